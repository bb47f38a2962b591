"""Steps and wall times of events, checked."""

import math
import time
from typing import SupportsFloat, SupportsIndex, TypeAlias

from summaries._arrays import to_numpy

Step: TypeAlias = SupportsFloat | SupportsIndex

_LIMIT = 2**63


def check_step(step: Step) -> int:
    """The step as an int: from an int, an integral float or a 0-d array of either.

    Raises:
        TypeError: the step is not a number.
        ValueError: it is a bool, not integral, negative, 2**63 or more, or not 0-d.
    """
    number = step if type(step) is int else _integral(step)
    if not 0 <= number < _LIMIT:
        raise ValueError(f"step must be in [0, 2**63), not {step!r:.60}")
    return number


def _integral(step: Step) -> int:
    if isinstance(step, int) and not isinstance(step, bool):
        return int(step)
    array = to_numpy(step)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"step must be an integer, not {type(step).__name__} {step!r:.60}")
    if array.dtype.kind == "b" or array.ndim or not float(array).is_integer():
        raise ValueError(f"step must be one integer, not {step!r:.60}")
    return int(array)


def check_wall_time(wall_time: SupportsFloat | None) -> float:
    """The time in seconds since 1970; None is now.

    Raises:
        TypeError: it is not a number.
        ValueError: it is not finite, or not one number.
    """
    if wall_time is None:
        return time.time()
    if type(wall_time) is float:
        seconds = wall_time
    else:
        array = to_numpy(wall_time)
        if array.dtype.kind not in "iuf":
            kind = type(wall_time).__name__
            raise TypeError(f"wall_time must be a number of seconds, not {kind} {wall_time!r:.60}")
        seconds = float(array) if not array.ndim else math.nan
    if not math.isfinite(seconds):
        raise ValueError(f"wall_time must be one finite number, not {wall_time!r:.60}")
    return seconds
