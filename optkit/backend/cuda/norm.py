"""The norm of several tensors together, with the same bits in every run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optkit.backend.cuda.launch import CHUNK, THREADS, addresses, function, tensors
from optkit.backend.cuda.sources import has, source

__all__ = ["can_measure", "device_norm"]


def can_measure(dtype: np.dtype[Any]) -> bool:
    """Whether there is a kernel for arrays of a dtype."""
    return has("norm", dtype)


def device_norm(arrays: Sequence[Any]) -> Any:
    """√Σx² over all elements of device arrays of one floating dtype; 0-d, at least float32.

    Squares are added up in float64, in an order that only the sizes set.
    """
    import cupy

    dtype = arrays[0].dtype
    text = source("norm", dtype.name)
    flats = [cupy.ascontiguousarray(array) for array in arrays]
    table = tensors(tuple(flat.size for flat in flats))
    norm = cupy.empty((), np.float32 if dtype.itemsize == 2 else dtype)
    partial = cupy.empty(max(1, table.count), np.float64)
    if table.count:
        function(text, "squares")(
            (table.count,),
            (THREADS,),
            (addresses(flats), table.sizes, table.blocks, np.int32(CHUNK), partial),
        )
    function(text, "root")((1,), (THREADS,), (partial, np.int32(table.count), norm))
    return norm
