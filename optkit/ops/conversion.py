"""Python and NumPy values as arrays of the dtype that TF would choose, or of one asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from optkit.dtypes import DType, result_dtype, string
from optkit.shapes import Dimension, TensorShape

__all__ = ["as_array", "shortened"]


def shortened(value: Any) -> str:
    """The repr of `value`, cut off where it is long; for error messages."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def as_array(value: Any, dtype: DType | None = None) -> np.ndarray[Any, Any]:
    """`value` as a NumPy array, of `dtype` or of the dtype TF would choose.

    Raises:
        TypeError: `value` is no number, text or array of them, or loses its kind in `dtype`
            (a float in an int type, say).
        ValueError: `value` is ragged or None.
    """
    if value is None:
        raise ValueError("expected a value, got None")
    if isinstance(value, Dimension):
        value = int(value)
    elif isinstance(value, TensorShape):
        value = np.asarray([int(size) for size in value], np.int32)
    elif isinstance(value, list | tuple):
        value = _plain(value)
    elif hasattr(value, "get") and hasattr(value, "__cuda_array_interface__"):
        value = value.get()  # a device array refuses np.asarray
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(
            f"expected an array, got rows of unequal length: {shortened(value)}"
        ) from error
    if array.dtype.kind in "US" and not isinstance(value, np.ndarray):
        array = np.asarray(value, object)  # NumPy's texts have no zeros at their end
    if array.dtype.kind in "USO" and _is_text(array, value):
        if dtype not in (None, string):
            raise TypeError(f"expected {dtype.name}, got text: {shortened(value)}")
        return _as_bytes(array)
    if array.dtype.kind in "USO":
        raise TypeError(f"expected numbers or text, got {shortened(value)}")
    if dtype is None:
        dtype = result_dtype(value)
    elif dtype is string:
        raise TypeError(f"expected text, got {shortened(value)}")
    _check_kind(array, dtype, value)
    return array.astype(dtype.dtype, copy=False)


def _plain(value: Any) -> Any:
    """Lists with Dimension objects in them as lists of ints."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, Dimension) else value


def _is_text(array: np.ndarray[Any, Any], value: Any) -> bool:
    if isinstance(value, list):
        array = np.asarray(value, object)  # for NumPy, [1, "a"] is text
    return array.dtype.kind in "US" or all(isinstance(item, str | bytes) for item in array.ravel())


def _as_bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    encoded = np.empty(array.shape, object)
    flat = encoded.reshape(-1)
    for i, item in enumerate(array.ravel()):
        flat[i] = item.encode() if isinstance(item, str) else bytes(item)
    return encoded


_KIND_ORDER = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}


def _check_kind(array: np.ndarray[Any, Any], dtype: DType, value: Any) -> None:
    """Refuse casts that lose the kind (float to int, int to bool) or overflow an int type."""
    if array.dtype == dtype.dtype or array.size == 0:
        return
    have, want = array.dtype.kind, dtype.dtype.kind
    if have not in _KIND_ORDER or _KIND_ORDER[have] > _KIND_ORDER[want]:
        raise TypeError(
            f"expected {dtype.name}, got {shortened(value)} of type "
            f"{array.dtype if isinstance(value, np.ndarray | np.generic) else type(value).__name__}"
        )
    if want in "iu" and (array.min() < dtype.min or array.max() > dtype.max):
        raise TypeError(f"expected values that fit {dtype.name}, got {shortened(value)}")
