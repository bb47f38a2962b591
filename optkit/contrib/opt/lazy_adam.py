"""Adam that touches only the rows it is given."""

from __future__ import annotations

from optkit.train.adam import AdamOptimizer

__all__ = ["LazyAdamOptimizer"]


class LazyAdamOptimizer(AdamOptimizer):
    """Adam whose sparse gradients leave the rows they do not name, and their slots, alone.

    The arguments and the equation are `AdamOptimizer`'s, as is what a dense gradient does. A step
    costs what its rows cost, however large the table; but a row's m and v do not decay while it
    is not named, so results differ from Adam's.

    Source: tf.contrib.opt.LazyAdamOptimizer.
    """

    decays_all_rows = False
