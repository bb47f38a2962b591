"""Adagrad with dual averaging."""

from __future__ import annotations

from typing import Any

from optkit.graph import Tensor, is_symbolic
from optkit.ops.core import Array, ArrayModule, as_tensor
from optkit.train.checks import require, require_rate
from optkit.train.optimizer import Optimizer

__all__ = ["AdagradDAOptimizer"]


class AdagradDAOptimizer(Optimizer):
    """Adagrad dual averaging, for sparse linear models.

    With G the sum of gradients, A that of their squares and T = global_step + 1:
        w ← −lr · sign(G)·max(|G| − l1·T, 0) / (l2·T·lr + √A)
    The variable's old value has no influence. `global_step` is read before it is incremented.

    Args:
        learning_rate: lr; as every value of the equation a number, a scalar Tensor, a Variable or
            a callable, read at every step.
        global_step: the step counter; T is one more. `minimize` must be given it too.
        initial_gradient_squared_accumulator_value: what A starts at.
        l1_regularization_strength: l1, which makes small values exactly zero.
        l2_regularization_strength: l2.
        use_locking: accepted as in TF.
        name: the name of the train op and of the slots.

    Raises:
        TypeError, ValueError: a value is out of range or no number, or global_step is no tensor.

    Source: Duchi, Hazan & Singer, JMLR 12, 2011; ApplyAdagradDA in TF 1.15.
    """

    slots = ("gradient_accumulator", "gradient_squared_accumulator")

    def __init__(
        self,
        learning_rate: Any,
        global_step: Any,
        initial_gradient_squared_accumulator_value: float = 0.1,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "AdagradDA",
    ) -> None:
        require_rate(name, learning_rate, negative=False)
        require(
            name,
            "initial_gradient_squared_accumulator_value",
            initial_gradient_squared_accumulator_value,
            above=0.0,
        )
        require(name, "l1_regularization_strength", l1_regularization_strength, at_least=0.0)
        require(name, "l2_regularization_strength", l2_regularization_strength, at_least=0.0)
        if not is_symbolic(global_step) or not global_step.dtype.is_integer:
            raise TypeError(
                f"{name}: global_step: expected an integer Variable, got {global_step!r}"
            )
        self._global_step = global_step
        super().__init__(
            use_locking,
            name,
            initial={"gradient_squared_accumulator": initial_gradient_squared_accumulator_value},
            learning_rate=learning_rate,
            l1=l1_regularization_strength,
            l2=l2_regularization_strength,
        )

    def _step_values(self) -> dict[str, Tensor]:
        return {"step": as_tensor(self._global_step)}

    def update(
        self,
        xp: ArrayModule,
        w: Array,
        g: Array,
        total: Array,
        squares: Array,
        *,
        learning_rate: Array,
        l1: Array,
        l2: Array,
        step: Array,
    ) -> tuple[Array, Array, Array]:
        """The equation; see the class."""
        total = total + g
        squares = squares + g * g
        turn = step + 1
        shrunk = xp.copysign(xp.maximum(xp.abs(total) - l1 * turn, 0), total)
        return (
            -learning_rate * shrunk / (l2 * turn * learning_rate + xp.sqrt(squares)),
            total,
            squares,
        )
