"""Checks of row numbers that the host need not wait for.

A run that collects its checks gets one flag on the device for all of them. It reads the flag
together with what it fetches, before it writes anything; if the flag is set, the run is done again
step by step, which tells which operation had a bad number.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

import numpy as np

from optkit.backend.cuda.launch import function, over_elements
from optkit.backend.cuda.sources import has, source

__all__ = ["Checks", "deferred"]

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

    def note(self, numbers: Any, size: int) -> None:
        """Check that device numbers lie in [0, size)."""
        import cupy

        if self.flag is None:
            self.flag = cupy.zeros(1, np.int32)
        kernel = function(source("bounds", numbers.dtype.name), "outside")
        flat = cupy.ascontiguousarray(numbers)
        arguments = (flat, np.int64(flat.size), np.int64(size), self.flag)
        over_elements(kernel, flat.size, arguments)


def deferred(numbers: Any, size: int) -> bool:
    """Have numbers checked later if the current run does that; else say no."""
    checks: Checks | None = getattr(_current, "checks", None)
    if checks is None or not has("bounds", numbers.dtype):
        return False
    checks.note(numbers, size)
    return True
