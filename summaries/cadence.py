"""Which steps are written, decided before anything is done for them."""

import math
import time
from numbers import Integral, Real


class Cadence:
    """Every so many steps, or every so many seconds; the first step always counts.

    A step that comes again gets the same answer, and one before the last starts anew.

    Args:
        every_n_steps: the distance in steps; None, without `every_secs`, is 1.
        every_secs: the distance in seconds.

    Raises:
        TypeError: one of them is no number, or the steps are no integer.
        ValueError: one of them is not positive, or both are given.
    """

    __slots__ = ("_last", "_secs", "_steps", "_time")

    def __init__(self, every_n_steps: int | None = None, every_secs: float | None = None) -> None:
        if every_n_steps is not None and every_secs is not None:
            raise ValueError("give steps or seconds, not both")
        for kind, number in ((Integral, every_n_steps), (Real, every_secs)):
            if number is not None and (not isinstance(number, kind) or isinstance(number, bool)):
                unit = "whole steps" if kind is Integral else "seconds"
                raise TypeError(f"a cadence is a number of {unit}, not {number!r:.60}")
        if every_n_steps is not None and not every_n_steps >= 1:
            raise ValueError(f"a cadence needs at least 1 step, not {every_n_steps!r}")
        if every_secs is not None and not 0 <= every_secs < math.inf:
            raise ValueError(f"a cadence needs a finite number of seconds, not {every_secs!r}")
        self._steps = every_n_steps or 1
        self._secs = every_secs
        self._last: int | None = None
        self._time = 0.0

    def is_due(self, step: int) -> bool:
        """Whether this step is written; if so, the next distance counts from it."""
        last = self._last
        if last is not None and step > last:
            if self._secs is None:
                if step - last < self._steps:
                    return False
            elif time.monotonic() - self._time < self._secs:
                return False
        if self._secs is not None and step != last:
            self._time = time.monotonic()
        self._last = step
        return True
