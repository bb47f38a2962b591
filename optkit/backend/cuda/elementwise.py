"""A formula of several operations as one launch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from optkit.backend.cuda.launch import function, over_elements
from optkit.backend.cuda.sources import formula_source
from optkit.backend.fused.trace import UntraceableError

__all__ = ["elementwise"]


def elementwise(formula: Callable[..., Any], *arrays: Any) -> Any:
    """`formula(xp, *arrays)` by one launch, where there is a kernel for it; else None.

    Args:
        formula: elementwise, a function that stays; its kernel is kept for it.
        arrays: device arrays of one dtype, float32 or float64, and of one shape or of shape ().
    """
    import cupy

    dtype = arrays[0].dtype
    shape = max((array.shape for array in arrays), key=len)
    fits = all(array.dtype == dtype and array.shape in ((), shape) for array in arrays)
    text = _source(formula, len(arrays), dtype.name) if fits else None
    if text is None:
        return None
    result = cupy.empty(shape, dtype)
    given: list[Any] = []
    for array in arrays:
        given += [cupy.ascontiguousarray(array), np.int32(array.shape == shape)]
    over_elements(function(text, "values"), result.size, (np.int64(result.size), *given, result))
    return result


@functools.lru_cache(maxsize=64)
def _source(formula: Callable[..., Any], count: int, dtype: str) -> str | None:
    if dtype not in ("float32", "float64"):
        return None  # half precision is rounded after each operation
    try:
        return formula_source(formula, count, dtype)
    except UntraceableError:
        return None
