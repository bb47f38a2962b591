"""Functions that NumPy lacks, or computes slowly, in one place for both array modules."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["erf", "erfc", "kept", "power", "repeated", "wide_dtype"]


def erf(xp: Any, x: Any) -> Any:
    """The error function 2/√π·∫₀ˣ exp(-t²) dt, elementwise; the dtype of x."""
    return _elementwise(xp, x, "erf", math.erf)


def erfc(xp: Any, x: Any) -> Any:
    """1 - erf(x), accurate where erf(x) is close to 1; the dtype of x."""
    return _elementwise(xp, x, "erfc", math.erfc)


def _elementwise(xp: Any, x: Any, name: str, function: Callable[[float], float]) -> Any:
    if xp is not np:
        special = importlib.import_module("cupyx.scipy.special")
        return getattr(special, name)(x).astype(x.dtype, copy=False)
    wide = np.asarray(x, np.float64)
    values = np.fromiter(map(function, wide.ravel().tolist()), np.float64, wide.size)
    return values.reshape(wide.shape).astype(x.dtype)


def kept(xp: Any, x: Any, keep: Any, out: Any = None) -> Any:
    """x where `keep` holds, else 0, with shapes broadcast; in `out` where that is given.

    NumPy's `where` mispredicts a branch an element when `keep` is as good as random, which costs
    six times a product. A product would turn infinities to NaN and leave -0; the bits do neither.
    """
    if xp is not np:
        return xp.where(keep, x, xp.zeros((), x.dtype))
    bits = np.dtype(f"i{x.dtype.itemsize}")
    mask = np.array(keep, np.bool_).view(np.int8)
    np.negative(mask, out=mask)  # all bits set, or none, in every width
    if out is None:
        return np.bitwise_and(x.view(bits), mask).view(x.dtype)
    np.bitwise_and(x.view(bits), mask, out=out.view(bits))
    return out


def power(xp: Any, x: Any, y: Any) -> Any:
    """x**y, elementwise, with shapes broadcast; dtypes equal.

    NumPy's general power costs some twenty multiplications, so a single exponent of 1, 2 or 3 is
    multiplied out. A device array is not looked at: that would wait for the device.
    """
    if xp is np and np.ndim(y) == 0:
        if y == 2:
            return x * x
        if y == 3:
            return x * x * x
        if y == 1:
            return x
    return xp.power(x, y)


def repeated(xp: Any, x: Any, shape: tuple[int, ...]) -> Any:
    """x broadcast to a shape; a view where that is cheaper than a copy.

    NumPy takes some microseconds to make the view: as long as filling a few thousand elements.
    """
    if xp is not np or math.prod(shape) > 4096:
        return xp.broadcast_to(x, shape)
    filled = np.empty(shape, x.dtype)
    filled[...] = x
    return filled


def wide_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype to add up in: float32 for the 16-bit floats, which would round and overflow."""
    if dtype.kind not in "iu" and dtype.itemsize == 2:
        return np.dtype(np.float32)
    return dtype
