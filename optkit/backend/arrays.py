"""The few array operations that NumPy and CuPy spell differently, or that one of them lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optkit.backend.cuda.transfer import Transfer, is_device_array
from optkit.backend.segments import groups, merge_rows

__all__ = [
    "ALIGNMENT",
    "aligned",
    "padded",
    "scatter_rows",
    "side_by_side",
    "strided",
    "to_host",
    "to_numpy",
]

ALIGNMENT = 64
"""Bytes at whose multiples arrays that lie side by side start."""


def padded(size: int, itemsize: int) -> int:
    """Elements from one array's start to the next one's."""
    unit = max(1, ALIGNMENT // itemsize)
    return -(-size // unit) * unit


def aligned(size: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An uninitialised host array that starts at a multiple of the alignment."""
    raw = np.empty(size * dtype.itemsize + ALIGNMENT, np.uint8)
    shift = -raw.ctypes.data % ALIGNMENT
    return raw[shift : shift + size * dtype.itemsize].view(dtype)


def side_by_side(xp: Any, arrays: Sequence[Any]) -> Any:
    """Flat arrays of one dtype in one, as an arena holds them, with zeros in between."""
    starts, total = [], 0
    for array in arrays:
        starts.append(total)
        total += padded(array.size, array.dtype.itemsize)
    whole = xp.zeros(starts[-1] + arrays[-1].size, arrays[0].dtype)
    for array, start in zip(arrays, starts, strict=True):
        whole[start : start + array.size] = array
    return whole


def to_numpy(array: Any) -> np.ndarray[Any, Any]:
    """`array` on the host, copied only when it is on a device."""
    return array.get() if hasattr(array, "get") else np.asarray(array)


def to_host(arrays: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """The arrays on the host, in one transfer; those that are there already as they are.

    Args:
        arrays: of NumPy or of CuPy, mixed as they come.
    """
    if any(is_device_array(array) for array in arrays):
        arrays = Transfer(arrays).wait()
    return [to_numpy(array) for array in arrays]


def scatter_rows(xp: Any, current: Any, indices: Any, updates: Any, mode: str) -> Any:
    """A copy of `current` whose rows `indices` are changed by `updates`, one after the other.

    What is added or subtracted is added up for each row first.

    Args:
        xp: numpy or cupy.
        current: shape (n, ...).
        indices: integers in [0, n), any shape.
        updates: shape indices.shape + current.shape[1:], or a scalar.
        mode: update, add, sub, mul, div, min or max; with update the last of equal rows wins.
    """
    result = current.copy()
    rows = indices.reshape(-1)
    values = xp.broadcast_to(updates, indices.shape + current.shape[1:])
    values = values.reshape(rows.shape + current.shape[1:])
    if mode in ("add", "sub"):
        merged = merge_rows(xp, values, rows)
        places = xp.asarray(merged.rows)
        old = result[places]
        result[places] = old + merged.values if mode == "add" else old - merged.values
        return result
    if xp is np:
        if mode == "update":
            result[rows] = values
        else:
            _UFUNC_AT[mode].at(result, rows, values)
        return result
    return _scatter_sorted(xp, result, rows, values, mode)


_UFUNC_AT: dict[str, Any] = {
    "mul": np.multiply,
    "div": np.true_divide,
    "min": np.minimum,
    "max": np.maximum,
}


def _scatter_sorted(xp: Any, result: Any, rows: Any, values: Any, mode: str) -> Any:
    """Rounds over equal rows: round k handles the k-th occurrence of each row.

    Atomic adds would give another rounding each run; the sort makes the order the input's.
    """
    if rows.size == 0:
        return result
    order = xp.argsort(rows, kind="stable")
    ranked = rows[order]
    heads, group = groups(xp, ranked)
    occurrence = xp.arange(rows.size) - heads[group]
    for turn in range(int(occurrence.max()) + 1):
        chosen = occurrence == turn
        picked, change = ranked[chosen], values[order[chosen]]
        if mode == "update":
            result[picked] = change
        elif mode in ("min", "max"):
            result[picked] = getattr(xp, f"{mode}imum")(result[picked], change)
        else:
            operation = xp.multiply if mode == "mul" else xp.true_divide
            result[picked] = operation(result[picked], change)
    return result


def strided(xp: Any, array: Any, shape: Sequence[int], strides: Sequence[int]) -> Any:
    """A view of the memory of `array` in which elements may occur several times; only to be read.

    Args:
        xp: numpy or cupy.
        array: where the view begins.
        shape: of the view.
        strides: bytes from one element to the next along each axis.
    """
    return xp.lib.stride_tricks.as_strided(array, shape, strides)
