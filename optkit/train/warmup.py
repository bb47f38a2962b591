"""Schedules that rise before they fall: warm-up, and one cycle.

They are used like the decays of `optkit.train.decay`, alone or as `learning_rate_decay_fn`, and in
front of one:

    rate = linear_warmup(cosine_decay(0.1, step, 10_000), step, 500)
    optimize_loss(loss, step, 0.1, "Adam",
                  learning_rate_decay_fn=lambda lr, s: one_cycle(lr, s, 10_000))

With lr the rate, s the step and n the number of steps:

    linear_warmup   lr · (start + (1 − start)·min(s/n, 1))
    one_cycle       lr · (start + (1 − start)·½(1 − cos(π·s/p))),     s ≤ p = peak·n
                    lr · (end + (1 − end)·½(1 + cos(π·(s−p)/(n−p)))), s > p

Each raises:
    TypeError: an argument is no number, Tensor or Variable.
    ValueError: there is no step, or a number is NaN or out of range.
"""

from __future__ import annotations

import math
from typing import Any

from optkit.ops.core import Array, ArrayModule
from optkit.train.checks import require
from optkit.train.schedule import scheduled

__all__ = ["linear_warmup", "one_cycle"]


def _rising_line(xp: ArrayModule, s: Array, warmup_steps: Array, start: Array) -> Array:
    return start + (1 - start) * xp.minimum(s / warmup_steps, 1)


def _cycle(
    xp: ArrayModule, s: Array, total_steps: Array, peak: Array, start: Array, end: Array
) -> Array:
    top = peak * total_steps
    rising = (s <= top) & (top > 0)
    # Either part may be empty; its quotient counts for nothing then.
    x = xp.where(
        rising,
        s / xp.where(top > 0, top, 1),
        (total_steps - s) / xp.where(top < total_steps, total_steps - top, 1),
    )
    wave = 0.5 * (1 - xp.cos(math.pi * xp.clip(x, 0, 1)))
    low = xp.where(rising, start, end)
    return low + (1 - low) * wave


def linear_warmup(
    learning_rate: Any,
    global_step: Any,
    warmup_steps: Any,
    start: Any = 0.0,
    name: str | None = None,
) -> Any:
    """The rate along a line from start·lr at step 0 to lr at step `warmup_steps`, and on there.

    The first update is made at step 0, so with start = 0 it does not move the variables, but it
    does start the optimizer's averages.

    Example:
        >>> import optkit as tf
        >>> with tf.Graph().as_default(), tf.Session() as session:
        ...     rates = [linear_warmup(8.0, s, warmup_steps=4) for s in range(6)]
        ...     print([float(rate) for rate in session.run(rates)])
        [0.0, 2.0, 4.0, 6.0, 8.0, 8.0]

    Source: Goyal et al., Accurate, Large Minibatch SGD, 2017, section 2.2.
    """
    require("LinearWarmup", "start", start, at_least=0.0)
    return scheduled(
        "LinearWarmup",
        name,
        learning_rate,
        global_step,
        _rising_line,
        warmup_steps=warmup_steps,
        start=start,
    )


def one_cycle(
    learning_rate: Any,
    global_step: Any,
    total_steps: Any,
    peak: Any = 0.3,
    start: Any = 0.04,
    end: Any = 4e-6,
    name: str | None = None,
) -> Any:
    """Half a cosine wave up from start·lr to lr, and half a one down to end·lr.

    lr is the highest rate, at step peak·total_steps; after `total_steps` the rate stays end·lr.
    Momentum cycles the other way round with a `start` and `end` above 1: between 0.95 and 0.85
    by one_cycle(0.85, step, n, start=0.95/0.85, end=0.95/0.85).

    Source: Smith & Topin, Super-Convergence, 2018; the defaults are PyTorch's.
    """
    require("OneCycle", "peak", peak, at_least=0.0, at_most=1.0)
    require("OneCycle", "start", start, at_least=0.0)
    require("OneCycle", "end", end, at_least=0.0)
    return scheduled(
        "OneCycle",
        name,
        learning_rate,
        global_step,
        _cycle,
        total_steps=total_steps,
        peak=peak,
        start=start,
        end=end,
    )
