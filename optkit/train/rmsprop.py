"""RMSProp, plain and centered."""

from __future__ import annotations

from typing import Any

from optkit.ops.core import Array, ArrayModule
from optkit.train.checks import require, require_rate
from optkit.train.optimizer import Optimizer

__all__ = ["RMSPropOptimizer"]


class RMSPropOptimizer(Optimizer):
    """RMSProp with momentum, plain or centered.

        r ← ρ·r + (1−ρ)·g²;  p ← μ·p + lr·g / √(r + ε);  w ← w − p

    ρ is `decay`; the mean square r starts at one and ε is inside the root, as in TF. `centered`
    divides by an estimate of the variance instead, √(r − c² + ε) with c the running mean of g;
    the estimate is kept from falling below zero, where rounding would give NaN.

    Args:
        learning_rate: lr; as every value of the equation a number, a scalar Tensor, a Variable or
            a callable, read at every step.
        decay: ρ, the part of a running mean that a step keeps.
        momentum: μ.
        epsilon: ε.
        use_locking: accepted as in TF.
        centered: divide by an estimate of the variance.
        name: the name of the train op and of the slots.

    Raises:
        TypeError, ValueError: decay is outside [0, 1], momentum or epsilon below 0, or a value is
            no number.

    Source: Hinton, Neural Networks for Machine Learning, lecture 6e; Graves, arXiv:1308.0850, for
    the centered form; ApplyRMSProp and ApplyCenteredRMSProp in TF 1.15.
    """

    def __init__(
        self,
        learning_rate: Any,
        decay: Any = 0.9,
        momentum: Any = 0.0,
        epsilon: Any = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        require_rate(name, learning_rate)
        require(name, "decay", decay, at_least=0.0, at_most=1.0)
        require(name, "momentum", momentum, at_least=0.0)
        require(name, "epsilon", epsilon, at_least=0.0)
        self.slots = ("rms", "mg", "momentum") if centered else ("rms", "momentum")
        self._centered = centered
        super().__init__(
            use_locking,
            name,
            initial={"rms": 1.0},
            learning_rate=learning_rate,
            decay=decay,
            momentum=momentum,
            epsilon=epsilon,
        )

    def update(
        self,
        xp: ArrayModule,
        w: Array,
        g: Array,
        *slots: Array,
        learning_rate: Array,
        decay: Array,
        momentum: Array,
        epsilon: Array,
    ) -> tuple[Array, ...]:
        """The equation; see the class."""
        rms, *mean, step = slots
        rms = rms + (1 - decay) * (g * g - rms)
        spread = rms
        if self._centered:
            mean = [mean[0] + (1 - decay) * (g - mean[0])]
            spread = xp.maximum(rms - mean[0] * mean[0], 0)
        step = momentum * step + learning_rate * g / xp.sqrt(spread + epsilon)
        return w - step, rms, *mean, step
