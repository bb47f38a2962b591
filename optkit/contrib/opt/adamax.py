"""AdaMax."""

from __future__ import annotations

from typing import Any

from optkit.ops.core import Array, ArrayModule
from optkit.train.adam import AdamOptimizer

__all__ = ["AdaMaxOptimizer"]


class AdaMaxOptimizer(AdamOptimizer):
    """Adam with the largest instead of the mean square gradient.

        m ← β₁·m + (1−β₁)·g;  v ← max(β₂·v, |g|);  w ← w − lr/(1−β₁ᵗ) · m / (v + ε)

    Rows that a sparse gradient leaves out stay as they are, and so do their slots.

    Args:
        learning_rate: lr; as every value of the equation a number, a scalar Tensor, a Variable or
            a callable, read at every step.
        beta1: β₁, the part of the mean gradient m that a step keeps.
        beta2: β₂, the part of the largest gradient v that a step keeps.
        epsilon: ε, against 0/0 before the first gradient.
        use_locking: accepted as in TF.
        name: the name of the train op and of the slots.

    Raises:
        TypeError, ValueError: a beta is outside [0, 1), epsilon below 0, or a value is no number.

    Source: Kingma & Ba, ICLR 2015, section 7.1; tf.contrib.opt.AdaMaxOptimizer.
    """

    decays_all_rows = False
    powers = ("beta1",)

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "AdaMax",
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)

    def update(  # type: ignore[override]  # there is no power of β₂
        self,
        xp: ArrayModule,
        w: Array,
        g: Array,
        m: Array,
        v: Array,
        *,
        learning_rate: Array,
        beta1: Array,
        beta2: Array,
        epsilon: Array,
        beta1_power: Array,
    ) -> tuple[Array, Array, Array]:
        """The equation; see the class."""
        m = m + (1 - beta1) * (g - m)
        v = xp.maximum(beta2 * v, xp.abs(g))
        return w - learning_rate / (1 - beta1_power) * m / (v + epsilon), m, v
