"""Adagrad with a proximal step."""

from __future__ import annotations

from typing import Any

from optkit.ops.core import Array, ArrayModule
from optkit.train.checks import require, require_rate
from optkit.train.optimizer import Optimizer

__all__ = ["ProximalAdagradOptimizer"]


class ProximalAdagradOptimizer(Optimizer):
    """Adagrad followed by the L1/L2 proximal step (FOBOS), for sparse models.

    Per coordinate, with a the accumulator and s = lr / √a:
        a ← a + g²;  v = w − s·g;  w ← sign(v)·max(|v| − s·l1, 0) / (1 + s·l2)
    The regularization shrinks at Adagrad's rate of the coordinate, not at the global one. Sparse
    gradients change only the rows they name.

    Args:
        learning_rate: lr; as every value of the equation a number, a scalar Tensor, a Variable or
            a callable, read at every step.
        initial_accumulator_value: what a starts at.
        l1_regularization_strength: l1, which makes small values exactly zero.
        l2_regularization_strength: l2.
        use_locking: accepted as in TF.
        name: the name of the train op and of the slots.

    Raises:
        TypeError, ValueError: initial_accumulator_value is not above 0, another value below 0, or
            a value is no number.

    Source: Duchi & Singer, JMLR 10, 2009; ApplyProximalAdagrad in TF 1.15.
    """

    slots = ("accumulator",)

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "ProximalAdagrad",
    ) -> None:
        require_rate(name, learning_rate, negative=False)
        require(name, "initial_accumulator_value", initial_accumulator_value, above=0.0)
        require(name, "l1_regularization_strength", l1_regularization_strength, at_least=0.0)
        require(name, "l2_regularization_strength", l2_regularization_strength, at_least=0.0)
        super().__init__(
            use_locking,
            name,
            initial={"accumulator": initial_accumulator_value},
            learning_rate=learning_rate,
            l1=l1_regularization_strength,
            l2=l2_regularization_strength,
        )

    def update(
        self,
        xp: ArrayModule,
        w: Array,
        g: Array,
        accumulator: Array,
        *,
        learning_rate: Array,
        l1: Array,
        l2: Array,
    ) -> tuple[Array, Array]:
        """The equation; see the class."""
        accumulator = accumulator + g * g
        s = learning_rate / xp.sqrt(accumulator)
        return proximal_step(xp, w - s * g, s, l1, l2), accumulator


def proximal_step(xp: ArrayModule, v: Array, s: Array, l1: Array, l2: Array) -> Array:
    """sign(v)·max(|v| − s·l1, 0) / (1 + s·l2): the proximal operator of s·(l1·|w| + l2·w²/2)."""
    return xp.copysign(xp.maximum(xp.abs(v) - s * l1, 0), v) / (1 + s * l2)
