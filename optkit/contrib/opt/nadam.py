"""Nadam."""

from __future__ import annotations

from optkit.ops.core import Array, ArrayModule
from optkit.train.adam import AdamOptimizer

__all__ = ["NadamOptimizer"]


class NadamOptimizer(AdamOptimizer):
    """Adam that looks ahead, as Nesterov's momentum does.

        m ← β₁·m + (1−β₁)·g;  v ← β₂·v + (1−β₂)·g²
        w ← w − lr·√(1−β₂ᵗ)/(1−β₁ᵗ) · (β₁·m + (1−β₁)·g) / (√v + ε)

    The arguments are `AdamOptimizer`'s. A sparse gradient decays the slots of all rows, but moves
    only the rows that it names.

    Source: Dozat, ICLR 2016 workshop; tf.contrib.opt.NadamOptimizer (the bias correction is
    Adam's, that of the paper differs in m's).
    """

    keeps_left_out_rows = True

    def update(
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
        beta2_power: Array,
    ) -> tuple[Array, Array, Array]:
        """The equation; see the class."""
        m = m + (1 - beta1) * (g - m)
        v = v + (1 - beta2) * (g * g - v)
        rate = learning_rate * xp.sqrt(1 - beta2_power) / (1 - beta1_power)
        ahead = beta1 * m + (1 - beta1) * g
        return w - rate * ahead / (xp.sqrt(v) + epsilon), m, v
