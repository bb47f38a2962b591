"""Data types: TF1's `DType` objects over NumPy's dtypes.

A `DType` has TF1's attributes and is accepted wherever NumPy takes a dtype:

>>> import numpy as np
>>> np.zeros(2, float32).dtype
dtype('float32')
>>> float32.is_floating, float32.name, float32 == np.float32, as_dtype("int64").size
(True, 'float32', True, 8)
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

__all__ = [
    "FLOATS",
    "INTEGERS",
    "NUMBERS",
    "DType",
    "as_dtype",
    "bfloat16",
    "bool_",
    "complex64",
    "complex128",
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "result_dtype",
    "string",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]


class DType:
    """The type of a tensor's elements; one object per type, compared by type.

    `bfloat16` needs the ml_dtypes package the first time its NumPy type is asked for.
    """

    __slots__ = ("_numpy", "name")

    _numpy: np.dtype[Any] | None

    def __init__(self, name: str, numpy_dtype: Any = None) -> None:
        self.name = name
        self._numpy = None if numpy_dtype is None else np.dtype(numpy_dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype; the attribute through which NumPy accepts a `DType`."""
        if self._numpy is not None:
            return self._numpy
        try:
            module = importlib.import_module("ml_dtypes")
        except ImportError as error:
            raise TypeError(
                f"dtype {self.name} needs the ml_dtypes package, which is not installed"
            ) from error
        found: np.dtype[Any] = np.dtype(getattr(module, self.name))
        self._numpy = found
        return found

    @property
    def as_numpy_dtype(self) -> type[np.generic]:
        """The NumPy scalar type."""
        return self.dtype.type

    @property
    def as_datatype_enum(self) -> str:
        """The name; TF gives a protocol enum, which nothing here needs."""
        return self.name

    @property
    def base_dtype(self) -> DType:
        """Itself: optkit has no reference types."""
        return self

    @property
    def real_dtype(self) -> DType:
        """The type of the real part."""
        return {"complex64": float32, "complex128": float64}.get(self.name, self)

    @property
    def size(self) -> int:
        """Bytes per element (1 for strings, as TF)."""
        return {"string": 1, "bfloat16": 2}.get(self.name) or self.dtype.itemsize

    @property
    def is_floating(self) -> bool:
        """Whether it is a real floating type."""
        return self.name in ("bfloat16", "float16", "float32", "float64")

    @property
    def is_integer(self) -> bool:
        """Whether it is a signed or unsigned integer."""
        return self._numpy is not None and self._numpy.kind in "iu"

    @property
    def is_unsigned(self) -> bool:
        """Whether it is an unsigned integer."""
        return self._numpy is not None and self._numpy.kind == "u"

    @property
    def is_complex(self) -> bool:
        """Whether it is complex."""
        return self.name.startswith("complex")

    @property
    def is_bool(self) -> bool:
        """Whether it is the truth values."""
        return self.name == "bool"

    @property
    def is_quantized(self) -> bool:
        """Whether it stands for rounded floats: never, optkit has no such types."""
        return False

    @property
    def is_numpy_compatible(self) -> bool:
        """Whether NumPy has the type."""
        return True

    @property
    def min(self) -> Any:
        """The smallest finite value."""
        return self._limits().min

    @property
    def max(self) -> Any:
        """The largest finite value."""
        return self._limits().max

    @property
    def limits(self) -> tuple[Any, Any]:
        """The range of intensities in images of this type: from 0 to 1 or the largest integer."""
        if self.is_integer:
            return 0, self.max
        if self.is_floating:
            return 0, 1
        raise ValueError(f"dtype {self.name} has no range of intensities")

    def _limits(self) -> Any:
        if self.is_integer:
            return np.iinfo(self.dtype)
        if self.name == "bfloat16":
            dtype = self.dtype  # says what is missing where ml_dtypes is
            return importlib.import_module("ml_dtypes").finfo(dtype)
        if self.is_floating:
            return np.finfo(self.dtype)
        raise TypeError(f"dtype {self.name} has no smallest and largest value")

    def is_compatible_with(self, other: object) -> bool:
        """Whether `other` is the same type."""
        return self.__eq__(other)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self is other
        try:
            return self is as_dtype(other)
        except TypeError:
            return False

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"optkit.{self.name}"

    def __str__(self) -> str:
        return f"<dtype: {self.name!r}>"

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return as_dtype, (self.name,)


float16 = DType("float16", np.float16)
float32 = DType("float32", np.float32)
float64 = DType("float64", np.float64)
bfloat16 = DType("bfloat16")
int8 = DType("int8", np.int8)
int16 = DType("int16", np.int16)
int32 = DType("int32", np.int32)
int64 = DType("int64", np.int64)
uint8 = DType("uint8", np.uint8)
uint16 = DType("uint16", np.uint16)
uint32 = DType("uint32", np.uint32)
uint64 = DType("uint64", np.uint64)
bool_ = DType("bool", np.bool_)
complex64 = DType("complex64", np.complex64)
complex128 = DType("complex128", np.complex128)
string = DType("string", np.object_)

FLOATS = frozenset({float16, bfloat16, float32, float64})
INTEGERS = frozenset({int8, int16, int32, int64, uint8, uint16, uint32, uint64})
NUMBERS = FLOATS | INTEGERS | {complex64, complex128}

_ALL = NUMBERS | {bool_, string}
_BY_NAME = {dtype.name: dtype for dtype in _ALL} | {
    "half": float16,
    "float": float32,
    "double": float64,
    "int": int32,
    "str": string,
    "object": string,
}
_BY_PYTHON_TYPE: dict[Any, DType] = {
    float: float32,
    int: int32,
    bool: bool_,
    complex: complex128,
    str: string,
    bytes: string,
}
_OBJECTS = (object, np.object_)


def as_dtype(value: Any) -> DType:
    """The `DType` for a DType, a NumPy dtype or scalar type, a name or a Python type.

    Python's float is float32 and int is int32, as in TF.

    Raises:
        TypeError: `value` names no type optkit has.
    """
    if isinstance(value, DType):
        return value
    try:
        if value in _BY_PYTHON_TYPE:
            return _BY_PYTHON_TYPE[value]
        if isinstance(value, str) and value in _BY_NAME:
            return _BY_NAME[value]
        if value is None:
            raise TypeError  # which NumPy takes for float64
        numpy_dtype = np.dtype(value)
        if numpy_dtype.kind == "O" and isinstance(value, type) and value not in _OBJECTS:
            raise TypeError  # NumPy takes every class for a class of objects
    except (TypeError, ValueError):
        raise TypeError(f"dtype: expected a data type, got {value!r}") from None
    if numpy_dtype.kind in "US":
        return string
    try:
        return _BY_NAME[numpy_dtype.name]
    except KeyError:
        raise TypeError(f"dtype: optkit has no type for NumPy's {numpy_dtype}") from None


def result_dtype(value: Any) -> DType:
    """The type TF gives a tensor made of `value` when none is asked for.

    Python floats become float32, Python ints int32 (int64 when they do not fit), and so do lists
    of float64 and int64 scalars; NumPy arrays and scalars, and lists of arrays, keep their type.
    """
    array = np.asarray(value)
    if isinstance(value, np.generic) or _holds_arrays(value):
        return as_dtype(array.dtype)
    if array.dtype == np.float64:
        return float32
    if array.dtype == np.int64:
        info = np.iinfo(np.int32)
        fits = array.size == 0 or (array.min() >= info.min and array.max() <= info.max)
        return int32 if fits else int64
    return as_dtype(array.dtype)


def _holds_arrays(value: Any) -> bool:
    """Whether `value` is an array, of NumPy or another library, or nested lists of arrays."""
    while isinstance(value, list | tuple):
        if not value:
            return False
        value = value[0]
    return not isinstance(value, np.generic) and (
        hasattr(value, "__array__") or hasattr(value, "__array_interface__")
    )
