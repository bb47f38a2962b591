"""Parts of tensors: slices, rows picked by number, elements picked by a condition."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optkit.backend.segments import segment_sum
from optkit.dtypes import bool_, int64
from optkit.errors import InvalidArgumentError
from optkit.graph import OPERATORS, IndexedSlices, Operation, Tensor, is_symbolic
from optkit.ops.arguments import (
    axis_in,
    checked_sizes,
    sizes_argument,
    static_int,
    target_shape,
)
from optkit.ops.array import concat, reshape, shape, unstack
from optkit.ops.core import (
    ALL_TYPES,
    INDEX_TYPES,
    Array,
    ArrayModule,
    as_tensor,
    composite,
    constant_value,
    constant_value_as_shape,
    op,
)
from optkit.ops.math import cast, select
from optkit.ops.state import check_indices
from optkit.shapes import Shape, TensorShape

__all__ = ["gather", "gather_nd", "getitem", "scatter_nd", "slice", "where"]

# -- x[...] ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _At:
    """The place, among an operation's run-time bounds, of a part of its key."""

    place: int


def _part(part: Any, bounds: Any) -> Any:
    """One part of a key with the run-time values in place."""
    if isinstance(part, _At):
        return int(bounds[part.place])
    if isinstance(part, builtins.slice):
        return builtins.slice(*(_part(end, bounds) for end in (part.start, part.stop, part.step)))
    return part


def _numpy_key(key: tuple[Any, ...], bounds: Any, sizes: tuple[int, ...]) -> tuple[Any, ...]:
    """The key as NumPy takes it; always with dots, so that scalars stay arrays.

    Raises:
        InvalidArgumentError: an index is out of range, or a step is 0.
    """
    parts = tuple(_part(part, bounds) for part in key)
    if not any(part is Ellipsis for part in parts):
        parts = (*parts, Ellipsis)
    taken = sum(part is not None and part is not Ellipsis for part in parts)
    if taken > len(sizes):
        raise InvalidArgumentError(f"{taken} indices for a tensor of shape {sizes}")
    axis = 0
    for part in parts:
        if part is Ellipsis:
            axis += len(sizes) - taken
        elif part is not None:
            if isinstance(part, int) and not -sizes[axis] <= part < sizes[axis]:
                raise InvalidArgumentError(
                    f"index {part} is out of range for axis {axis} of size {sizes[axis]}"
                )
            if isinstance(part, builtins.slice) and part.step == 0:
                raise InvalidArgumentError(f"the slice of axis {axis} has a step of 0")
            axis += 1
    return parts


def _sliced(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Shape:
    """The static shape of x[key]."""
    sizes, key = inputs[0].sizes, attrs["key"]
    if sizes is None:
        return None
    taken = sum(part is not None and part is not Ellipsis for part in key)
    if taken > len(sizes):
        raise ValueError(f"{taken} indices for a tensor of rank {len(sizes)}")
    rest = len(sizes) - taken
    if Ellipsis not in key:
        key = (*key, Ellipsis)
    result: list[int | None] = []
    axis = 0
    for part in key:
        if part is None:
            result.append(1)
        elif part is Ellipsis:
            result.extend(sizes[axis : axis + rest])
            axis += rest
        else:
            size = sizes[axis]
            if isinstance(part, builtins.slice):
                result.append(_slice_length(part, size))
            elif isinstance(part, int) and size is not None and not -size <= part < size:
                raise ValueError(f"index {part} is out of range for axis {axis} of size {size}")
            axis += 1
    return tuple(result)


def _slice_length(part: builtins.slice, size: int | None) -> int | None:
    ends = (part.start, part.stop, part.step)
    if any(isinstance(end, _At) for end in ends) or size is None:
        return None
    return len(range(*part.indices(size)))


@op(
    "StridedSlice",
    types=ALL_TYPES,
    accepts={"bounds": {int64}},
    shape=_sliced,
    host=("bounds",),
)
def _strided_slice(xp: ArrayModule, x: Array, bounds: Array, *, key: tuple[Any, ...]) -> Array:
    return x[_numpy_key(key, bounds, x.shape)]


@_strided_slice.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, None]:
    x, bounds = node.inputs
    return _strided_slice_grad(dy, shape(x), bounds, key=node.attrs["key"]), None


@op(
    "StridedSliceGrad",
    types=ALL_TYPES,
    accepts={"shape": INDEX_TYPES, "bounds": {int64}},
    shape=target_shape(1),
    host=("shape", "bounds"),
)
def _strided_slice_grad(
    xp: ArrayModule, dy: Array, shape: Array, bounds: Array, *, key: tuple[Any, ...]
) -> Array:
    """dy at the places of x[key] in an x of zeros."""
    sizes = checked_sizes(shape, "shape")
    dx = xp.zeros(sizes, dy.dtype)
    dx[_numpy_key(key, bounds, sizes)] = dy
    return dx


@_strided_slice_grad.gradient
def _(node: Operation, ddx: Tensor) -> tuple[Tensor, None, None]:
    return _strided_slice(ddx, node.inputs[2], key=node.attrs["key"]), None, None


class _Key:
    """Reads the key of x[key]; collects the parts that only a run knows."""

    def __init__(self) -> None:
        self.bounds: list[Tensor] = []

    def read(self, part: Any) -> Any:
        if part is None or part is Ellipsis:
            return part
        if isinstance(part, builtins.slice):
            start, stop, step = (
                None if end is None else self.index(end)
                for end in (part.start, part.stop, part.step)
            )
            if step == 0:
                raise ValueError("index: a slice has a step of 0")
            return builtins.slice(start, stop, step)
        return self.index(part)

    def index(self, value: Any) -> Any:
        """An int, or the place of a run-time value."""
        if is_symbolic(value):
            tensor = value._as_graph_tensor()
            if tensor.dtype in INDEX_TYPES and tensor.shape.is_compatible_with(()):
                known = constant_value(tensor)
                if known is not None:
                    return int(known)
                self.bounds.append(cast(tensor, int64))
                return _At(len(self.bounds) - 1)
        elif not isinstance(value, bool | np.bool_) and hasattr(value, "__index__"):
            try:
                return operator.index(value)
            except TypeError:
                pass  # an array of several ints
        raise TypeError(
            "index: expected ints, slices, `...`, newaxis or integer tensors of shape (), got "
            f"{value!r}; optkit.gather picks rows by a list of numbers"
        )


def getitem(x: Any, key: Any, name: str = "strided_slice") -> Tensor:
    """x[key] as NumPy's basic indexing; the parts may be integer tensors of shape ().

    Raises:
        TypeError: a part is neither.
        ValueError: an index is known to be out of range.
        InvalidArgumentError: when run, an index is out of range. Slices are clamped.
    """
    tensor = as_tensor(x)
    reader = _Key()
    parts = tuple(reader.read(part) for part in (key if isinstance(key, tuple) else (key,)))
    if sum(part is Ellipsis for part in parts) > 1:
        raise ValueError("index: expected at most one `...`")
    bounds: Any = reader.bounds or np.zeros(0, np.int64)
    return _strided_slice(tensor, bounds, key=parts, name=name)


OPERATORS["getitem"] = getitem


def _cut(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Shape:
    x, begin, size = inputs
    starts, lengths = constant_value(begin), constant_value(size)
    if x.sizes is None:
        count = begin.sizes[0] if begin.sizes is not None else None
        return None if count is None else constant_value_as_shape(size)
    for argument, values in (("begin", begin), ("size", size)):
        if not values.shape.is_compatible_with((len(x.sizes),)):
            raise ValueError(f"{argument}: expected {len(x.sizes)} numbers, got {values.shape}")
    result: list[int | None] = []
    for axis, whole in enumerate(x.sizes):
        start = None if starts is None else int(starts[axis])
        length = None if lengths is None else int(lengths[axis])
        if length == -1:
            length = None if whole is None or start is None else whole - start
        if start is not None and (
            start < 0 or (None not in (whole, length) and start + length > whole)  # type: ignore[operator]
        ):
            raise ValueError(
                f"begin: axis {axis} of size {whole} has no slice of size {length} at {start}"
            )
        result.append(length)
    return tuple(result)


@op(
    "Slice",
    types=ALL_TYPES,
    accepts={"begin": INDEX_TYPES, "size": INDEX_TYPES},
    shape=_cut,
    host=("begin", "size"),
)
def _slice(xp: ArrayModule, input: Array, begin: Array, size: Array) -> Array:
    if not len(begin) == len(size) == input.ndim:
        raise InvalidArgumentError(
            f"begin and size: expected {input.ndim} numbers each, got {begin} and {size}"
        )
    key = []
    for axis, (start, length) in enumerate(zip(begin.tolist(), size.tolist(), strict=True)):
        whole = input.shape[axis]
        stop = whole if length == -1 else start + length
        if not 0 <= start <= stop <= whole:
            raise InvalidArgumentError(
                f"begin: axis {axis} of size {whole} has no slice of size {length} at {start}"
            )
        key.append(builtins.slice(start, stop))
    return input[tuple(key)]


@_slice.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, None, None]:
    x, begin, _ = node.inputs
    return _slice_grad(dy, begin, shape(x)), None, None


@op(
    "SliceGrad",
    types=ALL_TYPES,
    accepts={"begin": INDEX_TYPES, "shape": INDEX_TYPES},
    shape=target_shape(2),
    host=("begin", "shape"),
)
def _slice_grad(xp: ArrayModule, dy: Array, begin: Array, shape: Array) -> Array:
    """dy in an array of zeros of a shape, starting at `begin`."""
    dx = xp.zeros(checked_sizes(shape, "shape"), dy.dtype)
    ends = zip(begin.tolist(), dy.shape, strict=True)
    dx[tuple(builtins.slice(start, start + length) for start, length in ends)] = dy
    return dx


@_slice_grad.gradient
def _(node: Operation, ddx: Tensor) -> tuple[Tensor, None, None]:
    dy, begin, _ = node.inputs
    return _slice(ddx, begin, shape(dy)), None, None


@composite
def slice(input_: Any, begin: Any, size: Any, name: str | None = None) -> Tensor:
    """The block of shape `size` that starts at `begin`; a size of -1 takes all that is left.

    Raises:
        ValueError: the block is known not to fit.
        InvalidArgumentError: when run, it does not fit.
    """
    first, extent = sizes_argument(begin, "begin"), sizes_argument(size, "size")
    return _slice(input_, first, extent, name=name)


# -- rows by number -------------------------------------------------------------------------------


def _gathered(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Shape:
    params, indices = (x.sizes for x in inputs)
    if params is None:
        return None
    axis = axis_in(attrs["axis"], len(params))
    if indices is None:
        return None
    return (*params[:axis], *indices, *params[axis + 1 :])


@op(
    "GatherV2",
    types=ALL_TYPES,
    accepts={"indices": INDEX_TYPES},
    shape=_gathered,
    either=("indices",),
)
def _gather(xp: ArrayModule, params: Array, indices: Array, *, axis: int) -> Array:
    check_indices(xp, indices, params.shape[axis], "indices")
    return xp.take(params, xp.asarray(indices), axis=axis)


@_gather.gradient
def _(node: Operation, dy: Tensor) -> tuple[Any, None]:
    params, indices = node.inputs
    axis = node.attrs["axis"]
    sizes = shape(params)
    if axis != 0:
        return _gather_grad(dy, indices, sizes, axis=axis), None
    if indices.shape.ndims != 1:
        dy = reshape(dy, concat([[-1], sizes[1:]], 0))
        indices = reshape(indices, [-1])
    return IndexedSlices(dy, indices, sizes), None


@op(
    "GatherGrad",
    accepts={"indices": INDEX_TYPES, "shape": INDEX_TYPES},
    shape=target_shape(2),
    host=("shape",),
    either=("indices",),
)
def _gather_grad(xp: ArrayModule, dy: Array, indices: Array, shape: Array, *, axis: int) -> Array:
    """dy added up at the places along an axis that the indices name, in an array of a shape."""
    sizes = checked_sizes(shape, "shape")
    along = axis % len(sizes)
    flat = dy.reshape(*sizes[:along], indices.size, *sizes[along + 1 :])
    rows = xp.moveaxis(flat, along, 0)
    return xp.moveaxis(segment_sum(xp, rows, indices.reshape(-1), sizes[along]), 0, along)


@_gather_grad.gradient
def _(node: Operation, ddx: Tensor) -> tuple[Tensor, None, None]:
    return _gather(ddx, node.inputs[1], axis=node.attrs["axis"]), None, None


@composite
def gather(
    params: Any, indices: Any, validate_indices: Any = None, name: str | None = None, axis: Any = 0
) -> Tensor:
    """The slices of `params` along `axis` that `indices` names; an index never counts from the end.

    The result has the shape params.shape[:axis] + indices.shape + params.shape[axis+1:]. Along
    axis 0 the gradient is an IndexedSlices. `validate_indices` is ignored: indices are always
    checked.

    Raises:
        InvalidArgumentError: when run, an index is out of range.
    """
    tensor = as_tensor(params)
    along = static_int(axis, "axis")
    if tensor.sizes is not None:
        along = axis_in(along, len(tensor.sizes))
    return _gather(tensor, indices, axis=along, name=name)


def _flat_rows(
    xp: ArrayModule, indices: Array, sizes: tuple[int, ...]
) -> tuple[Array, int, tuple[int, ...]]:
    """Index vectors of K coordinates as row numbers, in an array whose first K axes are made one.

    Gives (row numbers, number of rows, shape of a row).
    """
    depth = indices.shape[-1] if indices.ndim else 0
    if indices.ndim == 0 or depth > len(sizes):
        raise InvalidArgumentError(
            f"indices: expected vectors of at most {len(sizes)} coordinates, got shape "
            f"{indices.shape}"
        )
    rows = (np if isinstance(indices, np.ndarray) else xp).zeros(indices.shape[:-1], np.int64)
    for axis in range(depth):
        check_indices(xp, indices[..., axis], sizes[axis], f"indices[..., {axis}]")
        rows = rows * sizes[axis] + indices[..., axis]
    count = int(np.prod(sizes[:depth], dtype=np.int64))
    return rows, count, sizes[depth:]


def _gathered_nd(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Shape:
    params, indices = (x.sizes for x in inputs)
    if params is None or indices is None:
        return None
    if not indices:
        raise ValueError("indices: expected rank >= 1, got a scalar")
    depth = indices[-1]
    if depth is None:
        return None
    if depth > len(params):
        raise ValueError(f"indices: expected at most {len(params)} coordinates, got {depth}")
    return (*indices[:-1], *params[depth:])


@op(
    "GatherNd",
    types=ALL_TYPES,
    accepts={"indices": INDEX_TYPES},
    shape=_gathered_nd,
    either=("indices",),
)
def _gather_nd(xp: ArrayModule, params: Array, indices: Array) -> Array:
    rows, count, row = _flat_rows(xp, indices, params.shape)
    return xp.take(params.reshape(count, *row), xp.asarray(rows), axis=0)


@_gather_nd.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, None]:
    params, indices = node.inputs
    return scatter_nd(indices, dy, shape(params)), None


@composite
def gather_nd(params: Any, indices: Any, name: str | None = None) -> Tensor:
    """The elements or slices of `params` at the coordinates in the last axis of `indices`.

    The result has the shape indices.shape[:-1] + params.shape[indices.shape[-1]:].

    Raises:
        InvalidArgumentError: when run, a coordinate is out of range.
    """
    return _gather_nd(params, indices, name=name)


@op(
    "ScatterNd",
    accepts={"indices": INDEX_TYPES, "shape": INDEX_TYPES},
    result=lambda inputs, _: inputs[1].dtype,
    shape=target_shape(2),
    host=("shape",),
    either=("indices",),
)
def _scatter_nd(xp: ArrayModule, indices: Array, updates: Array, shape: Array) -> Array:
    sizes = checked_sizes(shape, "shape")
    rows, count, row = _flat_rows(xp, indices, sizes)
    if updates.shape != (*rows.shape, *row):
        raise InvalidArgumentError(
            f"updates: expected shape {(*rows.shape, *row)}, got {updates.shape}"
        )
    flat = segment_sum(xp, updates.reshape(rows.size, *row), rows.reshape(-1), count)
    return flat.reshape(sizes)


@_scatter_nd.gradient
def _(node: Operation, dy: Tensor) -> tuple[None, Tensor, None]:
    return None, gather_nd(dy, node.inputs[0]), None


@composite
def scatter_nd(indices: Any, updates: Any, shape: Any, name: str | None = None) -> Tensor:
    """`updates` at the coordinates in the last axis of `indices`, in zeros of a shape.

    Updates at the same place add up, in the same order in every run.

    Raises:
        InvalidArgumentError: when run, a coordinate is out of range.
    """
    return _scatter_nd(indices, updates, sizes_argument(shape, "shape"), name=name)


# -- by condition ---------------------------------------------------------------------------------


@op(
    "Where",
    types={bool_},
    result=int64,
    shape=lambda inputs, _: (None, inputs[0].shape.ndims),
    differentiable=False,
)
def _places(xp: ArrayModule, condition: Array) -> Array:
    return xp.argwhere(condition).astype(np.int64, copy=False)


@op(
    "Select",
    types=ALL_TYPES,
    accepts={"condition": {bool_}},
    result=lambda inputs, _: inputs[1].dtype,
    shape=lambda inputs, _: None,
    broadcasts=True,
)
def _select_rows(xp: ArrayModule, condition: Array, x: Array, y: Array) -> Array:
    """`select` for when only the run knows whether the condition is one of rows."""
    if condition.ndim == 1 and x.ndim == y.ndim > 1:
        condition = condition.reshape(-1, *[1] * (x.ndim - 1))
    return xp.where(condition, x, y)


@_select_rows.gradient
def _(node: Operation, dz: Tensor) -> tuple[None, Tensor, Tensor]:
    condition, x, y = node.inputs
    from_x = _select_rows(condition, cast(x, bool_) | True, cast(y, bool_) & False)
    return None, select(from_x, dz, 0), select(from_x, 0, dz)


@composite
def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Tensor:
    """x where the condition holds, else y; without them, the places where it holds.

    A condition of rank 1 chooses whole rows where x and y both have a higher rank, as in TF1;
    else the three broadcast. The places are int64, shape (count, rank), in row-major order.

    Raises:
        TypeError: the condition is not bool, or x and y differ in dtype.
        ValueError: only one of x and y is given, or shapes do not fit.
    """
    if x is None and y is None:
        return _places(condition, name=name)
    if x is None or y is None:
        raise ValueError("x and y: expected both or neither")
    chosen = as_tensor(condition, name="condition")
    x, y = _pair(x, y)
    ranks = [value.shape.ndims for value in (chosen, x, y)]
    if None in ranks and ranks[0] in (1, None):
        return _select_rows(chosen, x, y, name=name or "Select")
    if ranks[0] == 1 and ranks[1] == ranks[2] and ranks[1] > 1:  # type: ignore[operator]
        rows = x.shape.merge_with(y.sizes).sizes[:1]
        if not chosen.shape.is_compatible_with(rows):
            raise ValueError(
                f"condition: expected a vector over the rows of x, shape {TensorShape(rows)}, or "
                f"the shape of x, got {chosen!r}"
            )
        chosen = reshape(chosen, [-1] + [1] * (x.shape.rank - 1))
    return select(chosen, x, y, name=name or "Select")


def _pair(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Two values as tensors of one dtype; a number takes that of the tensor beside it."""
    if is_symbolic(y) and not is_symbolic(x):
        y = as_tensor(y)
        return as_tensor(x, y.dtype), y
    x = as_tensor(x)
    try:
        return x, as_tensor(y, x.dtype)
    except (TypeError, ValueError) as error:
        raise TypeError(f"y: {error}") from error


def _numpy_where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        places = where(condition)
        return tuple(unstack(places, axis=1))
    return select(condition, *_pair(x, y))


OPERATORS["function:where"] = _numpy_where
