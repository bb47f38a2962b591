"""Momentum, and Nesterov's form of it."""

from __future__ import annotations

from typing import Any

from optkit.ops.core import Array, ArrayModule
from optkit.train.checks import require, require_rate
from optkit.train.optimizer import Optimizer

__all__ = ["MomentumOptimizer"]


class MomentumOptimizer(Optimizer):
    """Gradient descent with a velocity a: a ← μ·a + g;  w ← w − lr·a.

    Nesterov's form looks ahead: w ← w − lr·g − lr·μ·a with the new a. The rate is not part of the
    velocity, so a change of rate acts at once. Rows that a sparse gradient leaves out keep their
    velocity.

    Args:
        learning_rate: lr; as every value of the equation a number, a scalar Tensor, a Variable or
            a callable, read at every step.
        momentum: μ, the part of the velocity that a step keeps.
        use_locking: accepted as in TF.
        name: the name of the train op and of the slots.
        use_nesterov: take Nesterov's form.

    Raises:
        TypeError, ValueError: momentum is below 0, or a value is no number or NaN.

    Source: ApplyMomentum in TF 1.15; Sutskever et al., ICML 2013, for Nesterov's form.
    """

    slots = ("momentum",)

    def __init__(
        self,
        learning_rate: Any,
        momentum: Any,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None:
        require_rate(name, learning_rate)
        require(name, "momentum", momentum, at_least=0.0)
        super().__init__(use_locking, name, learning_rate=learning_rate, momentum=momentum)
        self._use_nesterov = use_nesterov

    def update(
        self,
        xp: ArrayModule,
        w: Array,
        g: Array,
        velocity: Array,
        *,
        learning_rate: Array,
        momentum: Array,
    ) -> tuple[Array, Array]:
        """The equation; see the class."""
        velocity = momentum * velocity + g
        if self._use_nesterov:
            return w - learning_rate * g - learning_rate * momentum * velocity, velocity
        return w - learning_rate * velocity, velocity
