"""Adding up rows that share a number, on the device.

The work on row numbers (sorting, finding groups) is done where the numbers are: on the host for
numbers that were fed, which then needs no answer from the device. The sums are two launches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from optkit.backend.cuda.launch import function, over_elements
from optkit.backend.cuda.sources import has, source

__all__ = ["PIECE", "can_sum", "sums_of_groups"]

PIECE = 256
"""Rows that one thread adds up; a power of two, so that cutting does not change the order."""


def can_sum(dtype: np.dtype[Any]) -> bool:
    """Whether there is a kernel for values of a dtype."""
    return has("segments", dtype)


def sums_of_groups(values: Any, order: Any, heads: Any, places: Any, result: Any) -> None:
    """Put the sum of each group of rows into the row of `result` that `places` names.

    Args:
        values: device array, shape (n, ...), in C's order.
        order: the rows of `values`, group by group; int64, shape (n,).
        heads: where in `order` each group starts; int64, shape (m,).
        places: rows of `result`, shape (m,); one outside of it is skipped.
        result: device array, shape (k, ...), in C's order; the other rows stay as they are.

    The numbers may be on the host or on the device; what is there is sent.
    """
    xp: Any = np if isinstance(heads, np.ndarray) else _cupy()
    count, groups = order.size, heads.size
    width = values.size // values.shape[0] if values.shape[0] else 0
    if not groups or not width:
        return
    sizes = xp.diff(heads, append=xp.asarray([count]))
    cut = -(-sizes // PIECE)
    ends = xp.cumsum(cut)
    number = int(ends[-1])
    group = xp.repeat(xp.arange(groups), cut) if xp is np else _owners(xp, ends, number)
    within = xp.arange(number) - (ends - cut)[group]
    first = heads[group] + within * PIECE
    pieces = xp.stack([first, xp.minimum(sizes[group] - within * PIECE, PIECE)], axis=1)
    text = source("segments", values.dtype.name)
    cupy = _cupy()
    wide = np.float32 if values.dtype.name == "float16" else values.dtype
    partial = cupy.empty((number, width), wide)
    over_elements(
        function(text, "pieces_of_segments"),
        number * width,
        (
            values,
            _sent(cupy, order),
            _sent(cupy, pieces),
            np.int64(number * width),
            np.int64(width),
            partial,
        ),
    )
    over_elements(
        function(text, "segments_of_pieces"),
        groups * width,
        (
            partial,
            _sent(cupy, ends),
            _sent(cupy, places),
            np.int64(groups * width),
            np.int64(width),
            np.int64(result.shape[0]),
            result,
        ),
    )


def _owners(xp: Any, ends: Any, number: int) -> Any:
    """The group of each piece."""
    return xp.searchsorted(ends, xp.arange(number), side="right")


def _sent(cupy: Any, numbers: Any) -> Any:
    return cupy.ascontiguousarray(cupy.asarray(numbers, np.int64))


def _cupy() -> Any:
    import cupy

    return cupy
