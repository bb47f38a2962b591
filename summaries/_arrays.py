"""The border where any array becomes a NumPy array, once."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_PLAIN = (bool, int, float, complex, str, bytes, list, tuple, np.generic, np.ndarray)


def to_numpy(value: object) -> NDArray[Any]:
    """The value as a NumPy array; memory is shared where the value's owner allows it.

    Takes what NumPy takes, arrays with `__dlpack__` or `__array__`, and device arrays that are
    copied to the host by `get()` (CuPy) or `cpu()` (PyTorch, whose gradient tracking is left). Of a
    sparse tensor it is the merged values; of PyTorch's bfloat16 and float8, float32.
    What is masked is NaN.
    """
    if isinstance(value, np.ma.MaskedArray) and value.dtype.kind in "biuf":
        wide = value.astype(np.result_type(value.dtype, np.float32))
        return np.asarray(np.ma.filled(wide, np.nan))
    if isinstance(value, _PLAIN):
        return np.asarray(value)
    source: Any = value
    if hasattr(source, "__cuda_array_interface__") and hasattr(source, "get"):
        return np.asarray(source.get())
    if hasattr(source, "detach") and hasattr(source, "cpu"):
        source = source.detach()
        if getattr(source, "is_sparse", False):
            source = source.coalesce().values()
        source = source.cpu()
    if hasattr(source, "__dlpack__"):
        try:
            return np.from_dlpack(source)
        except (BufferError, RuntimeError, TypeError, ValueError):
            # A device, layout or dtype that NumPy's importer does not know; `__array__` may.
            pass
    try:
        return np.asarray(source)
    except TypeError:
        # A device array without the CUDA interface that refuses implicit copies.
        if hasattr(source, "__array__") and hasattr(source, "get"):
            return np.asarray(source.get())
        # A dtype of PyTorch that NumPy has not.
        if hasattr(source, "float"):
            return np.asarray(source.float())
        raise


def real_array(tag: str, value: object) -> NDArray[Any]:
    """The value as a NumPy array of integers, booleans or floats.

    Raises TypeError, or ValueError for a ragged list, which name the tag, for anything else.
    """
    try:
        array = to_numpy(value)
    except ValueError as error:  # lists of several lengths
        raise ValueError(f"{tag!r} takes real numbers: {error}") from error
    except (TypeError, RuntimeError) as error:  # a tensor without values, say
        raise TypeError(f"{tag!r} takes real numbers: {error}") from error
    if array.dtype.kind == "V" and np.can_cast(array.dtype, np.float32):
        return array.astype(np.float32)  # bfloat16 and the float8 kinds of ml_dtypes
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{tag!r} takes real numbers, not {_describe(value, array)}")
    return array


def _describe(value: object, array: NDArray[Any]) -> str:
    if array.dtype == object or array.ndim == 0:
        return f"{type(value).__name__} {value!r:.60}"
    return f"an array of dtype {array.dtype}"
