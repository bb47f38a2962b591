"""AMSGrad."""

from __future__ import annotations

from typing import Any

from optkit.ops.core import Array, ArrayModule
from optkit.train.adam import AdamOptimizer

__all__ = ["AMSGradOptimizer"]


class AMSGradOptimizer(AdamOptimizer):
    """Adam whose denominator never shrinks.

        m ← β₁·m + (1−β₁)·g;  v ← β₂·v + (1−β₂)·g²;  v̂ ← max(v̂, v)
        w ← w − lr·√(1−β₂ᵗ)/(1−β₁ᵗ) · m / (√v̂ + ε)

    The arguments are `AdamOptimizer`'s. A sparse gradient moves every row, as there.

    Source: Reddi, Kale & Kumar, ICLR 2018; ApplyAdamWithAmsgrad in TF (the paper has no bias
    correction).
    """

    slots = ("m", "v", "vhat")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "AMSGrad",
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)

    def update(  # type: ignore[override]  # there is a slot more
        self,
        xp: ArrayModule,
        w: Array,
        g: Array,
        m: Array,
        v: Array,
        vhat: Array,
        *,
        learning_rate: Array,
        beta1: Array,
        beta2: Array,
        epsilon: Array,
        beta1_power: Array,
        beta2_power: Array,
    ) -> tuple[Array, Array, Array, Array]:
        """The equation; see the class."""
        m = m + (1 - beta1) * (g - m)
        v = v + (1 - beta2) * (g * g - v)
        vhat = xp.maximum(vhat, v)
        rate = learning_rate * xp.sqrt(1 - beta2_power) / (1 - beta1_power)
        return w - rate * m / (xp.sqrt(vhat) + epsilon), m, v, vhat
