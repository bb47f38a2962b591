"""Checks of values that the host need not wait for: numbers of rows, and that all is finite.

A run that collects its checks gets one flag on the device for all of them. It reads the flag
together with what it fetches, before it writes anything; if the flag is set, the run is done again
step by step, which tells which operation had a bad value.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

import numpy as np

from optkit.backend.cuda.launch import function, over_elements
from optkit.backend.cuda.sources import has, source

__all__ = ["Checks", "deferred", "deferred_finite"]

_current = threading.local()


class Checks:
    """The checks of one run, inside a `with`.

    Attributes:
        flag: a device array of one int32, not zero if a check failed; None if none was made.
    """

    def __init__(self) -> None:
        self.flag: Any = None

    def __enter__(self) -> Checks:
        self._outer = getattr(_current, "checks", None)
        _current.checks = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _current.checks = self._outer

    def note(self, kernel: Any, array: Any, *limits: Any) -> None:
        """Start a kernel that sets the flag where an element of an array is bad."""
        import cupy

        if self.flag is None:
            self.flag = cupy.zeros(1, np.int32)
        flat = cupy.ascontiguousarray(array)
        over_elements(kernel, flat.size, (flat, np.int64(flat.size), *limits, self.flag))


def deferred(numbers: Any, size: int) -> bool:
    """Have it checked later that numbers lie in [0, size), if the current run does that."""
    checks: Checks | None = getattr(_current, "checks", None)
    if checks is None or not has("bounds", numbers.dtype):
        return False
    kernel = function(source("bounds", numbers.dtype.name), "outside")
    checks.note(kernel, numbers, np.int64(size))
    return True


def deferred_finite(array: Any) -> bool:
    """Have it checked later that an array is finite, if the current run does that."""
    checks: Checks | None = getattr(_current, "checks", None)
    if checks is None or not has("finite", array.dtype):
        return False
    checks.note(function(source("finite", array.dtype.name), "nonfinite"), array)
    return True
