"""Histograms of arrays on a device, of which only the counts travel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from optkit.backend.cuda.launch import THREADS, function
from optkit.backend.cuda.sources import source
from optkit.backend.cuda.transfer import Transfer, is_device_array
from summaries.histogram import MANTISSA_BITS, bit_layout, register_counter

__all__ = ["DeviceCounts", "counted", "counting"]

_BLOCKS = 512
"""Blocks at most: a few for each multiprocessor."""
_EACH = 16
"""Elements a thread counts, at least, before there is another block."""
_MOMENTS = 4


@dataclass(frozen=True, eq=False)
class DeviceCounts:
    """What `counting` gave, once it has come to the host."""

    block: np.ndarray[Any, Any]


def counting(array: Any, scale: Any = None) -> Any:
    """Count a device array, times a scalar, on the bit grid of `summaries.histogram`.

    Returns:
        A device array of int64: a count for each bucket; then the bits of four float64, the least
        and the largest value, the sum and the sum of squares of those that are finite.
    """
    import cupy

    values = array if scale is None else array * scale
    layout = bit_layout(values.dtype)
    values = cupy.ascontiguousarray(values.astype(layout.dtype, copy=False))
    block = cupy.zeros(layout.buckets + _MOMENTS, np.int64)
    blocks = max(1, min(_BLOCKS, -(-values.size // (THREADS * _EACH))))
    partial = cupy.empty(_MOMENTS * blocks, np.float64)
    text = source("histogram", layout.dtype.name)
    function(text, "count")((blocks,), (THREADS,), (values, np.int64(values.size), block, partial))
    moments = block[layout.buckets :]
    function(text, "totals")((1,), (THREADS,), (partial, np.int32(blocks), moments))
    return block


def counted(counts: DeviceCounts) -> tuple[Any, int, float, float, float, float]:
    """What `summaries.histogram.Counted` holds, from what came to the host."""
    numbers = counts.block[:-_MOMENTS]
    special = numbers.reshape(2, -1)[:, -(1 << MANTISSA_BITS) :]
    low, high, total, squares = counts.block[-_MOMENTS:].view(np.float64).tolist()
    return numbers, int(special.sum()), low, high, total, squares


def _count(array: Any) -> tuple[Any, int, float, float, float, float]:
    (block,) = Transfer([counting(array)]).wait()
    return counted(DeviceCounts(block))


register_counter(is_device_array, _count)
register_counter(lambda value: isinstance(value, DeviceCounts), counted)
