"""How ops read arguments that are axes, sizes and counts."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from optkit.dtypes import DType, as_dtype
from optkit.errors import InvalidArgumentError
from optkit.graph import Tensor, is_symbolic
from optkit.ops.core import (
    INDEX_TYPES,
    Array,
    as_array,
    constant_value,
    constant_value_as_shape,
)
from optkit.shapes import Shape, TensorShape


def static_int(value: Any, argument: str) -> int:
    """An int that must be known when the graph is built: an axis, a count.

    Raises:
        TypeError: it is no integer.
        ValueError: it is a tensor whose value is not known yet.
    """
    if is_symbolic(value):
        known = constant_value(value)
        if known is None:
            raise ValueError(f"{argument}: expected an int or a constant, got {value!r}")
        value = known
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError  # True would pass for 1
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{argument}: expected an int, got {value!r}") from None


def static_ints(value: Any, argument: str) -> tuple[int, ...]:
    """Several ints that must be known when the graph is built; one int counts as a list of one."""
    if is_symbolic(value):
        known = constant_value(value)
        if known is None:
            raise ValueError(f"{argument}: expected ints or a constant, got {value!r}")
        value = known
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list | tuple | TensorShape):
        value = [value]
    return tuple(static_int(item, argument) for item in value)


def axis_in(axis: int, ndims: int, argument: str = "axis") -> int:
    """`axis` counted from the front.

    Raises:
        ValueError: there is no such axis.
    """
    if not -ndims <= axis < ndims:
        raise ValueError(f"{argument}: expected one in [{-ndims}, {ndims}), got {axis}")
    return axis % ndims


def sizes_argument(value: Any, argument: str) -> Any:
    """A list of sizes as an op's input: tensors stay, the rest becomes an integer array.

    Raises:
        TypeError: the sizes are no integers.
    """
    if is_symbolic(value) or (
        isinstance(value, list | tuple) and any(is_symbolic(item) for item in value)
    ):
        return value
    try:
        array = np.atleast_1d(as_array(value))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{argument}: expected a list of sizes: {error}") from error
    if array.size == 0:
        return np.zeros(0, np.int32)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{argument}: expected integers, got {value!r}")
    return array


def count_of(sizes: Shape) -> int | None:
    """The number of elements, None when it is not known."""
    return TensorShape(sizes).num_elements()


def several(arrays: Sequence[Array]) -> Any:
    """The result of a kernel with as many outputs as there are arrays."""
    return tuple(arrays) if len(arrays) != 1 else arrays[0]


def index_type(out_type: Any) -> DType:
    """int32 or int64; TypeError for another dtype."""
    dtype = as_dtype(out_type)
    if dtype not in INDEX_TYPES:
        raise TypeError(f"out_type: expected int32 or int64, got {dtype.name}")
    return dtype


def one_of(name: str, value: Any, old_name: str, old_value: Any) -> Any:
    """An argument that may come under its old name; not under both."""
    if old_value is None:
        return value
    if value is not None:
        raise ValueError(f"{name} and its old name {old_name} were both given")
    return old_value


def target_shape(position: int) -> Any:
    """The shape rule of an op whose input at `position` is the shape of its output."""

    def rule(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Shape:
        return constant_value_as_shape(inputs[position])

    return rule


def checked_sizes(sizes: Array, argument: str) -> tuple[int, ...]:
    """A run-time list of sizes as ints.

    Raises:
        InvalidArgumentError: it is no vector, or a size is negative.
    """
    if sizes.ndim != 1 or (sizes.size and int(sizes.min()) < 0):
        raise InvalidArgumentError(f"{argument}: expected a list of sizes >= 0, got {sizes}")
    return tuple(int(item) for item in sizes)


def is_zero(dy: Tensor) -> bool:
    """Whether this is the zero that the engine puts where an output was not used."""
    if dy.op.type == "ZerosLike":
        return True
    if dy.op.type == "Fill" and dy.op.inputs:
        dy = dy.op.inputs[1]
    known = constant_value(dy) if dy.op.type in ("Const", "Fill") else None
    return known is not None and not known.any()
