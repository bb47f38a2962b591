"""Adadelta."""

from __future__ import annotations

from typing import Any

from optkit.ops.core import Array, ArrayModule
from optkit.train.checks import require, require_rate
from optkit.train.optimizer import Optimizer

__all__ = ["AdadeltaOptimizer"]


class AdadeltaOptimizer(Optimizer):
    """Adadelta: steps scaled by a running mean of past steps.

    With a the mean of g² and u that of d²:
        a ← ρ·a + (1−ρ)·g²;  d = √(u+ε)/√(a+ε) · g;  w ← w − lr·d;  u ← ρ·u + (1−ρ)·d²

    Args:
        learning_rate: lr; as every value of the equation a number, a scalar Tensor, a Variable or
            a callable, read at every step.
        rho: ρ, the part of a running mean that a step keeps.
        epsilon: ε.
        use_locking: accepted as in TF.
        name: the name of the train op and of the slots.

    Raises:
        TypeError, ValueError: rho is outside [0, 1], epsilon below 0, or a value is no number.

    Source: Zeiler, arXiv:1212.5701; ApplyAdadelta in TF 1.15.
    """

    slots = ("accum", "accum_update")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: Any = 0.95,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "Adadelta",
    ) -> None:
        require_rate(name, learning_rate)
        require(name, "rho", rho, at_least=0.0, at_most=1.0)
        require(name, "epsilon", epsilon, at_least=0.0)
        super().__init__(use_locking, name, learning_rate=learning_rate, rho=rho, epsilon=epsilon)

    def update(
        self,
        xp: ArrayModule,
        w: Array,
        g: Array,
        accum: Array,
        accum_update: Array,
        *,
        learning_rate: Array,
        rho: Array,
        epsilon: Array,
    ) -> tuple[Array, Array, Array]:
        """The equation; see the class."""
        accum = rho * accum + (1 - rho) * g * g
        d = xp.sqrt(accum_update + epsilon) / xp.sqrt(accum + epsilon) * g
        accum_update = rho * accum_update + (1 - rho) * d * d
        return w - learning_rate * d, accum, accum_update
