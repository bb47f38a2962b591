"""Gradient descent with a proximal step."""

from __future__ import annotations

from typing import Any

from optkit.ops.core import Array, ArrayModule
from optkit.train.checks import require, require_rate
from optkit.train.optimizer import Optimizer
from optkit.train.proximal_adagrad import proximal_step

__all__ = ["ProximalGradientDescentOptimizer"]


class ProximalGradientDescentOptimizer(Optimizer):
    """Gradient descent followed by the L1/L2 proximal step (FOBOS), for sparse models.

        v = w − lr·g;  w ← sign(v)·max(|v| − lr·l1, 0) / (1 + lr·l2)

    Args:
        learning_rate: lr; as every value of the equation a number, a scalar Tensor, a Variable or
            a callable, read at every step.
        l1_regularization_strength: l1, which makes small values exactly zero.
        l2_regularization_strength: l2.
        use_locking: accepted as in TF.
        name: the name of the train op and of the slots.

    Raises:
        TypeError, ValueError: a value is below 0 or no number.

    Source: Duchi & Singer, JMLR 10, 2009; ApplyProximalGradientDescent in TF 1.15.
    """

    def __init__(
        self,
        learning_rate: Any,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "ProximalGradientDescent",
    ) -> None:
        require_rate(name, learning_rate, negative=False)
        require(name, "l1_regularization_strength", l1_regularization_strength, at_least=0.0)
        require(name, "l2_regularization_strength", l2_regularization_strength, at_least=0.0)
        super().__init__(
            use_locking,
            name,
            learning_rate=learning_rate,
            l1=l1_regularization_strength,
            l2=l2_regularization_strength,
        )

    def update(
        self, xp: ArrayModule, w: Array, g: Array, *, learning_rate: Array, l1: Array, l2: Array
    ) -> Array:
        """The equation; see the class."""
        return proximal_step(xp, w - learning_rate * g, learning_rate, l1, l2)
