"""Adagrad."""

from __future__ import annotations

from typing import Any

from optkit.ops.core import Array, ArrayModule
from optkit.train.checks import require, require_rate
from optkit.train.optimizer import Optimizer

__all__ = ["AdagradOptimizer"]


class AdagradOptimizer(Optimizer):
    """Adagrad: a ← a + g²;  w ← w − lr·g / √a.

    There is no epsilon; the accumulator starts above zero instead.

    Args:
        learning_rate: lr; as every value of the equation a number, a scalar Tensor, a Variable or
            a callable, read at every step.
        initial_accumulator_value: what a starts at.
        use_locking: accepted as in TF.
        name: the name of the train op and of the slots.

    Raises:
        TypeError, ValueError: initial_accumulator_value is not above 0, or a value is no number.

    Source: Duchi, Hazan & Singer, JMLR 12, 2011; ApplyAdagrad in TF 1.15.
    """

    slots = ("accumulator",)

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
    ) -> None:
        require_rate(name, learning_rate)
        require(name, "initial_accumulator_value", initial_accumulator_value, above=0.0)
        super().__init__(
            use_locking,
            name,
            initial={"accumulator": initial_accumulator_value},
            learning_rate=learning_rate,
        )

    def update(
        self, xp: ArrayModule, w: Array, g: Array, accumulator: Array, *, learning_rate: Array
    ) -> tuple[Array, Array]:
        """The equation; see the class."""
        accumulator = accumulator + g * g
        return w - learning_rate * g / xp.sqrt(accumulator), accumulator
