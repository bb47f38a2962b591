"""Number sequences, one-hot vectors, and the distinct elements of a vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from optkit.dtypes import (
    FLOATS,
    INTEGERS,
    DType,
    as_dtype,
    float32,
    float64,
    int32,
    int64,
    result_dtype,
)
from optkit.errors import InvalidArgumentError
from optkit.graph import Operation, Tensor, get_default_graph, is_symbolic
from optkit.ops.arguments import axis_in, index_type, static_int
from optkit.ops.core import (
    ALL_TYPES,
    INDEX_TYPES,
    Array,
    ArrayModule,
    as_tensor,
    composite,
    constant_value,
    op,
)
from optkit.ops.math import cast
from optkit.shapes import Shape

__all__ = ["invert_permutation", "lin_space", "linspace", "one_hot", "range", "unique"]

# -- sequences ------------------------------------------------------------------------------------

_RANGE_TYPES = (int32, int64, float32, float64)


def _length(start: Any, limit: Any, delta: Any) -> int:
    """The number of elements of a range.

    Raises:
        ValueError: the step is 0 or leads away from the limit.
    """
    if delta == 0:
        raise ValueError("delta: expected a step other than 0")
    if (limit - start) * delta < 0:
        raise ValueError(f"limit: {limit} is not reached from {start} in steps of {delta}")
    if isinstance(delta, int):
        return -int((start - limit) // delta)
    return int(np.ceil((limit - start) / delta))


def _ranged(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Shape:
    values = [constant_value(x) for x in inputs]
    if any(value is None for value in values):
        return (None,)
    return (_length(*(value.item() for value in values if value is not None)),)


@op(
    "Range",
    types=_RANGE_TYPES,
    shape=_ranged,
    host=("start", "limit", "delta"),
    differentiable=False,
)
def _range(xp: ArrayModule, start: Array, limit: Array, delta: Array) -> Array:
    try:
        count = _length(start.item(), limit.item(), delta.item())
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from None
    return xp.asarray((start + np.arange(count) * delta).astype(start.dtype, copy=False))


@composite
def range(
    start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str = "range"
) -> Tensor:
    """start, start + delta, ... up to but without `limit`; `range(limit)` starts at 0.

    Without `dtype`, the widest of the arguments' among int32, int64, float32 and float64.

    Raises:
        ValueError: delta is 0 or leads away from the limit.
        InvalidArgumentError: when run, the same.
    """
    if limit is None:
        start, limit = 0, start
    arguments = {"start": start, "limit": limit, "delta": delta}
    if dtype is None:
        wanted = _RANGE_TYPES[max(_range_type(*item) for item in arguments.items())]
    else:
        wanted = as_dtype(dtype)
    with get_default_graph().name_scope(name) as scope:
        tensors = [
            cast(value, wanted) if is_symbolic(value) else as_tensor(value, wanted, argument)
            for argument, value in arguments.items()
        ]
        return _range(*tensors, name=scope)


def _range_type(argument: str, value: Any) -> int:
    dtype = value.dtype if is_symbolic(value) else result_dtype(value)
    if dtype not in _RANGE_TYPES:
        raise TypeError(f"{argument}: expected int32, int64, float32 or float64, got {value!r}")
    return _RANGE_TYPES.index(dtype)


@op(
    "LinSpace",
    types=FLOATS,
    accepts={"num": INDEX_TYPES},
    shape=lambda inputs, _: (_known_size(inputs[2]),),
    broadcasts=True,
    host=("num",),
)
def _linspace(xp: ArrayModule, start: Array, stop: Array, num: Array) -> Array:
    count = int(num)
    if count < 1:
        raise InvalidArgumentError(f"num: expected at least 1, got {count}")
    # In float64, so that a step too small for the dtype does not pile up.
    first, last = start.astype(np.float64), stop.astype(np.float64)
    values = first + (last - first) * (xp.arange(count) / max(count - 1, 1))
    if count > 1:
        values[-1] = last
    return values.astype(start.dtype, copy=False)


def _known_size(tensor: Tensor) -> int | None:
    value = constant_value(tensor)
    return None if value is None else int(value)


@_linspace.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, Tensor, None]:
    start, _, num = node.inputs
    t = _linspace(np.asarray(0, start.dtype.dtype), np.asarray(1, start.dtype.dtype), num)
    return (1 - t) * dy, t * dy, None


@composite
def linspace(start: Any, stop: Any, num: Any, name: str | None = None) -> Tensor:
    """`num` evenly spaced floats from `start` to `stop`, both included."""
    return _linspace(start, stop, num, name=name or "LinSpace")


lin_space = linspace


# -- one-hot --------------------------------------------------------------------------------------


def _with_depth(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Shape:
    indices, depth = inputs[:2]
    if indices.sizes is None:
        return None
    axis = axis_in(attrs["axis"], len(indices.sizes) + 1)
    return (*indices.sizes[:axis], _known_size(depth), *indices.sizes[axis:])


@op(
    "OneHot",
    types=ALL_TYPES,
    accepts={"indices": INTEGERS, "depth": INDEX_TYPES},
    result=lambda inputs, _: inputs[2].dtype,
    shape=_with_depth,
    host=("depth",),
    differentiable=False,
)
def _one_hot(
    xp: ArrayModule, indices: Array, depth: Array, on_value: Array, off_value: Array, *, axis: int
) -> Array:
    count = int(depth)
    if count < 0:
        raise InvalidArgumentError(f"depth: expected a size >= 0, got {count}")
    places = xp.expand_dims(indices, axis)
    steps = xp.arange(count).reshape(count, *[1] * (places.ndim - 1 - axis % places.ndim))
    return xp.where(places == steps, on_value, off_value)


@composite
def one_hot(
    indices: Any,
    depth: Any,
    on_value: Any = None,
    off_value: Any = None,
    axis: Any = None,
    dtype: Any = None,
    name: str | None = None,
) -> Tensor:
    """`on_value` at each index along a new axis of size `depth`, `off_value` elsewhere.

    Indices outside [0, depth) give no `on_value` at all.

    Args:
        indices: integers, any shape.
        depth: the size of the new axis.
        on_value: 1 if None.
        off_value: 0 if None.
        axis: where the new axis goes; last if None or -1.
        dtype: of the result; that of the values, else float32.
        name: the node's name.

    Raises:
        TypeError: `dtype` and the values' dtypes differ.
    """
    of = None if dtype is None else as_dtype(dtype)
    given = [value for value in (on_value, off_value) if value is not None]
    if of is None:
        symbolic = [value for value in given if is_symbolic(value)]
        of = as_tensor((symbolic or given)[0]).dtype if given else float32
    values = []
    for argument, value, default in (("on_value", on_value, 1), ("off_value", off_value, 0)):
        try:
            values.append(as_tensor(_default(of, default) if value is None else value, of))
        except (TypeError, ValueError) as error:
            raise TypeError(f"{argument}: {error}") from error
    along = -1 if axis is None else static_int(axis, "axis")
    return _one_hot(indices, depth, *values, axis=along, name=name or "one_hot")


def _default(dtype: DType, number: int) -> Any:
    return bool(number) if dtype.is_bool else number


# -- distinct elements ----------------------------------------------------------------------------


class Unique(NamedTuple):
    """What `unique` gives: the distinct elements, and for each element which of them it is."""

    y: Tensor
    idx: Tensor


def _distinct_types(
    inputs: Sequence[Tensor], attrs: Mapping[str, Any]
) -> list[tuple[DType, Shape]]:
    (x,) = inputs
    if x.shape.ndims not in (None, 1):
        raise ValueError(f"x: expected a vector, got {x!r}")
    return [(x.dtype, (None,)), (attrs["out_idx"], x.sizes)]


@op("Unique", types=ALL_TYPES, infer=_distinct_types, differentiable=False)
def _unique(xp: ArrayModule, x: Array, *, out_idx: DType) -> tuple[Array, Array]:
    distinct, first, places = xp.unique(x, return_index=True, return_inverse=True)
    order = xp.argsort(first)
    rank = xp.empty_like(order)
    rank[order] = xp.arange(order.size)
    return distinct[order], rank[places.reshape(-1)].astype(out_idx.dtype, copy=False)


@composite
def unique(x: Any, out_idx: Any = int32, name: str | None = None) -> Unique:
    """The distinct elements of a vector, in the order of first occurrence, and x as places in it.

    y[idx] is x.
    """
    return Unique(*_unique.node(x, out_idx=index_type(out_idx), name=name).outputs)


@op("InvertPermutation", types=INDEX_TYPES, differentiable=False)
def _invert_permutation(xp: ArrayModule, x: Array) -> Array:
    count = x.size
    if x.ndim != 1 or not bool((xp.sort(x) == xp.arange(count)).all()):
        raise InvalidArgumentError(f"x: expected each of 0 to {count - 1} once")
    inverse = xp.empty_like(x)
    inverse[x] = xp.arange(count, dtype=x.dtype)
    return inverse


@composite
def invert_permutation(x: Any, name: str | None = None) -> Tensor:
    """The y with y[x[i]] = i.

    Raises:
        InvalidArgumentError: when run, x is no permutation of 0, 1, ...
    """
    return _invert_permutation(x, name=name)
