"""Plain gradient descent."""

from __future__ import annotations

from typing import Any

from optkit.ops.core import Array, ArrayModule
from optkit.train.checks import require_rate
from optkit.train.optimizer import Optimizer

__all__ = ["GradientDescentOptimizer"]


class GradientDescentOptimizer(Optimizer):
    """Gradient descent: w ← w − lr·g.

    Sparse gradients move only the rows they name.

    Args:
        learning_rate: lr; as every value of the equation a number, a scalar Tensor, a Variable or
            a callable, read at every step.
        use_locking: accepted as in TF.
        name: the name of the train op and of the slots.

    Raises:
        TypeError, ValueError: learning_rate is no number or NaN.

    Source: ApplyGradientDescent in TF 1.15.
    """

    def __init__(
        self,
        learning_rate: Any,
        use_locking: bool = False,
        name: str = "GradientDescent",
    ) -> None:
        require_rate(name, learning_rate)
        super().__init__(use_locking, name, learning_rate=learning_rate)

    def update(
        self, xp: ArrayModule, w: Array, g: Array, *slots: Array, learning_rate: Array, **_: Array
    ) -> Array:
        """The equation; see the class."""
        return w - learning_rate * g
