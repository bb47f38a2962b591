"""Lion."""

from __future__ import annotations

from typing import Any

from optkit.ops.core import Array, ArrayModule
from optkit.train.checks import require, require_rate
from optkit.train.optimizer import Optimizer

__all__ = ["LionOptimizer"]


class LionOptimizer(Optimizer):
    """Steps of one size, in the direction of the sign of a blend of momentum and gradient.

        w ← w − lr·(sign(β₁·m + (1−β₁)·g) + λ·w);  m ← β₂·m + (1−β₂)·g

    Each element moves by lr (or not at all, where the blend is zero), so rates are three to ten
    times smaller than Adam's. Rows that a sparse gradient leaves out stay as they are.

    Args:
        learning_rate: lr; as every value of the equation a number, a scalar Tensor, a Variable or
            a callable, read at every step.
        beta1: β₁, the part of the momentum in the direction.
        beta2: β₂, the part of the momentum that a step keeps.
        weight_decay: λ, which the rate scales, as in the paper.
        use_locking: accepted as in TF.
        name: the name of the train op and of the slots.

    Raises:
        TypeError, ValueError: a beta is outside [0, 1), weight_decay below 0, or a value is no
            number.

    Source: Chen et al., Symbolic Discovery of Optimization Algorithms, NeurIPS 2023.
    """

    slots = ("m",)

    def __init__(
        self,
        learning_rate: Any = 1e-4,
        beta1: Any = 0.9,
        beta2: Any = 0.99,
        weight_decay: Any = 0.0,
        use_locking: bool = False,
        name: str = "Lion",
    ) -> None:
        require_rate(name, learning_rate)
        require(name, "beta1", beta1, at_least=0.0, below=1.0)
        require(name, "beta2", beta2, at_least=0.0, below=1.0)
        require(name, "weight_decay", weight_decay, at_least=0.0)
        super().__init__(
            use_locking,
            name,
            learning_rate=learning_rate,
            beta1=beta1,
            beta2=beta2,
            weight_decay=weight_decay,
        )

    def update(
        self,
        xp: ArrayModule,
        w: Array,
        g: Array,
        m: Array,
        *,
        learning_rate: Array,
        beta1: Array,
        beta2: Array,
        weight_decay: Array,
    ) -> tuple[Array, Array]:
        """The equation; see the class."""
        direction = xp.sign(beta1 * m + (1 - beta1) * g)
        w = w - learning_rate * (direction + weight_decay * w)
        return w, beta2 * m + (1 - beta2) * g
