"""Placeholders, filled tensors, and joining tensors along an axis and taking them apart.

What changes a shape only is in `reshaping` and offered here too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from optkit.dtypes import DType, as_dtype, float32
from optkit.errors import InvalidArgumentError
from optkit.graph import (
    OPERATORS,
    IndexedSlices,
    Kind,
    Operation,
    Tensor,
    get_default_graph,
)
from optkit.ops.arguments import (
    axis_in,
    checked_sizes,
    several,
    sizes_argument,
    static_int,
    target_shape,
)
from optkit.ops.core import (
    ALL_TYPES,
    INDEX_TYPES,
    Array,
    ArrayModule,
    as_tensor,
    composite,
    constant,
    constant_value,
    constant_value_as_shape,
    op,
)
from optkit.ops.reshaping import (
    broadcast_to,
    expand_dims,
    rank,
    reshape,
    shape,
    size,
    squeeze,
    transpose,
)
from optkit.shapes import Shape, TensorShape, as_shape

__all__ = [
    "broadcast_to",
    "concat",
    "expand_dims",
    "fill",
    "identity",
    "ones",
    "ones_like",
    "placeholder",
    "placeholder_with_default",
    "rank",
    "reshape",
    "shape",
    "size",
    "split",
    "squeeze",
    "stack",
    "stop_gradient",
    "transpose",
    "unstack",
    "zeros",
    "zeros_like",
]

# -- placeholders ---------------------------------------------------------------------------------

_PLACEHOLDER = Kind(
    "Placeholder",
    kernel=None,
    infer=lambda _, attrs: [(attrs["dtype"], attrs["shape"])],
    differentiable=False,
)


def placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> Tensor:
    """A tensor whose value every run is given in its feed_dict.

    Raises:
        InvalidArgumentError: when run, it was not fed.
    """
    attrs = {"dtype": as_dtype(dtype), "shape": as_shape(shape)}
    graph = get_default_graph()
    return graph.create_operation(_PLACEHOLDER, (), attrs, name=name or "Placeholder").outputs[0]


@op(
    "PlaceholderWithDefault",
    types=ALL_TYPES,
    shape=lambda _, attrs: attrs["shape"],
)
def _placeholder_with_default(xp: ArrayModule, x: Array, *, shape: Shape) -> Array:
    if not TensorShape(shape).is_compatible_with(x.shape):
        raise InvalidArgumentError(
            f"input: expected shape {TensorShape(shape)}, got {TensorShape(x.shape)}"
        )
    return x


@_placeholder_with_default.gradient
def _(_: Operation, dy: Tensor) -> Tensor:
    return dy


@composite
def placeholder_with_default(input: Any, shape: Any, name: str | None = None) -> Tensor:
    """A tensor that a run may be given; `input` when it is not.

    Raises:
        ValueError: `input` cannot have the shape.
    """
    tensor = as_tensor(input)
    sizes = as_shape(shape)
    if not tensor.shape.is_compatible_with(sizes):
        raise ValueError(f"input: expected shape {TensorShape(sizes)}, got {tensor!r}")
    return _placeholder_with_default(tensor, shape=sizes, name=name)


@op("Identity", types=ALL_TYPES)
def _identity(xp: ArrayModule, x: Array) -> Array:
    return x


@_identity.gradient
def _(_: Operation, dy: Tensor) -> Tensor:
    return dy


@composite
def identity(input: Any, name: str | None = None) -> Any:
    """The same value as a new node, which control dependencies can be hung on.

    An IndexedSlices stays one.
    """
    if isinstance(input, IndexedSlices):
        with get_default_graph().name_scope(name or "Identity"):
            shape = input.dense_shape
            return IndexedSlices(
                _identity(input.values),
                _identity(input.indices),
                None if shape is None else _identity(shape),
            )
    return _identity(input, name=name)


@op("StopGradient", types=ALL_TYPES, differentiable=False)
def _stop_gradient(xp: ArrayModule, x: Array) -> Array:
    return x


@composite
def stop_gradient(input: Any, name: str | None = None) -> Tensor:
    """The same value, held constant by `gradients`."""
    return _stop_gradient(input, name=name)


# -- filled ---------------------------------------------------------------------------------------


@op(
    "Fill",
    types=ALL_TYPES,
    accepts={"dims": INDEX_TYPES},
    result=lambda inputs, _: inputs[1].dtype,
    shape=target_shape(0),
    broadcasts=True,
    host=("dims",),
)
def _fill(xp: ArrayModule, dims: Array, value: Array) -> Array:
    filled = xp.empty(checked_sizes(dims, "dims"), value.dtype)
    filled[...] = value
    return filled


@_fill.gradient
def _(_: Operation, dy: Tensor) -> tuple[None, Tensor]:
    return None, dy  # the engine sums it back to a scalar


@composite
def fill(dims: Any, value: Any, name: str | None = None) -> Tensor:
    """A tensor of shape `dims` whose elements are all the scalar `value`."""
    tensor = as_tensor(value)
    if tensor.shape.ndims not in (None, 0):
        raise ValueError(f"value: expected a scalar, got {tensor!r}")
    return _fill(sizes_argument(dims, "dims"), tensor, name=name)


_CONSTANT_ELEMENTS = 1000


def _filled(sizes: Any, number: int, dtype: Any, name: str) -> Tensor:
    """Zeros or ones: a constant when small and static, else a `Fill`."""
    of = as_dtype(dtype)
    value = np.asarray(b"" if of.name == "string" else number, of.dtype)
    sizes = sizes_argument(sizes, "shape")
    static = TensorShape(constant_value_as_shape(sizes))
    count = static.num_elements()
    if count is not None and count < _CONSTANT_ELEMENTS:
        filled = np.empty([int(item) for item in static], of.dtype)
        filled[...] = value
        return constant(filled, name=name)
    return _fill(sizes, value, name=name)


@composite
def zeros(shape: Any, dtype: Any = float32, name: str | None = None) -> Tensor:
    """Zeros (False, empty text) of a shape, which may be a tensor."""
    return _filled(shape, 0, dtype, name or "zeros")


@composite
def ones(shape: Any, dtype: Any = float32, name: str | None = None) -> Tensor:
    """Ones (True) of a shape, which may be a tensor."""
    if as_dtype(dtype).name == "string":
        raise TypeError("dtype: expected numbers or bool, got string")
    return _filled(shape, 1, dtype, name or "ones")


def _dtype_attr(_: Sequence[Tensor], attrs: Mapping[str, Any]) -> DType:
    return attrs["dtype"]  # type: ignore[no-any-return]


@op("ZerosLike", types=ALL_TYPES, differentiable=False, result=_dtype_attr)
def _zeros_like(xp: ArrayModule, x: Array, *, dtype: DType) -> Array:
    return xp.zeros(x.shape, dtype.dtype)


@op("OnesLike", types=ALL_TYPES, differentiable=False, result=_dtype_attr)
def _ones_like(xp: ArrayModule, x: Array, *, dtype: DType) -> Array:
    return xp.ones(x.shape, dtype.dtype)


@composite
def zeros_like(
    tensor: Any, dtype: Any = None, name: str | None = None, optimize: bool = True
) -> Tensor:
    """Zeros in the shape of a tensor and, unless `dtype` is given, in its dtype.

    `optimize` makes it a constant where the shape is static.
    """
    like = as_tensor(tensor)
    of = like.dtype if dtype is None else as_dtype(dtype)
    static = like.shape.is_fully_defined()
    if (optimize and static) or of.name == "string":
        return zeros(like.sizes if static else shape(like), of, name or "zeros_like")
    return _zeros_like(like, dtype=of, name=name or "zeros_like")


@composite
def ones_like(
    tensor: Any, dtype: Any = None, name: str | None = None, optimize: bool = True
) -> Tensor:
    """Ones in the shape of a tensor and, unless `dtype` is given, in its dtype."""
    like = as_tensor(tensor)
    of = like.dtype if dtype is None else as_dtype(dtype)
    if (optimize and like.shape.is_fully_defined()) or of.name == "string":
        return ones(like.sizes, of, name or "ones_like")
    return _ones_like(like, dtype=of, name=name or "ones_like")


# -- joining and taking apart ---------------------------------------------------------------------


def _joined(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Shape:
    """The static shape of a concatenation: axes merged but one, which adds up."""
    known = [x.sizes for x in inputs if x.sizes is not None]
    if not known:
        return None
    axis = axis_in(attrs["axis"], len(known[0]))
    rest = TensorShape(None)
    for sizes in known:
        if len(sizes) != len(known[0]):
            raise ValueError("values: expected tensors of one rank")
        rest = rest.merge_with((*sizes[:axis], None, *sizes[axis + 1 :]))
    lengths = [None if x.sizes is None else x.sizes[axis] for x in inputs]
    total = None if None in lengths else sum(length or 0 for length in lengths)
    merged = rest.as_list()
    return (*merged[:axis], total, *merged[axis + 1 :])


@op("ConcatV2", types=ALL_TYPES, shape=_joined)
def _concat(xp: ArrayModule, *values: Array, axis: int) -> Array:
    return xp.concatenate(values, axis=axis)


@_concat.gradient
def _(node: Operation, dy: Tensor) -> Sequence[Tensor]:
    return _split_like.node(dy, *node.inputs, axis=node.attrs["axis"]).outputs


@op(
    "SplitLike",
    types=ALL_TYPES,
    infer=lambda inputs, _: [(inputs[0].dtype, like.sizes) for like in inputs[1:]],
)
def _split_like(xp: ArrayModule, *values: Array, axis: int) -> Any:
    """The first value cut along an axis into pieces of the others' shapes."""
    x, likes = values[0], values[1:]
    ends = np.cumsum([like.shape[axis] for like in likes])
    return several(xp.split(x, ends[:-1].tolist(), axis))


@_split_like.gradient
def _(node: Operation, *dys: Tensor) -> list[Tensor | None]:
    return [concat(dys, node.attrs["axis"]), *[None] * len(dys)]


@composite
def concat(values: Any, axis: Any, name: str = "concat") -> Tensor:
    """Tensors joined along an existing axis, along which alone they may differ in size.

    Raises:
        ValueError: there is nothing to join, or shapes do not fit.
    """
    tensors = list(values) if isinstance(values, list | tuple) else [values]
    if not tensors:
        raise ValueError("values: expected at least one tensor, got none")
    along = static_int(axis, "axis")
    if len(tensors) == 1:
        return _identity(tensors[0], name=name)
    return _concat(*tensors, axis=along, name=name)


def _parts(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> list[tuple[DType, Shape]]:
    """Types of equal parts."""
    x, axis, count = inputs[0], attrs["axis"], attrs["num"]
    if count < 1:
        raise ValueError(f"num_or_size_splits: expected at least one part, got {count}")
    if x.sizes is None:
        return [(x.dtype, None)] * count
    axis = axis_in(axis, len(x.sizes))
    length = x.sizes[axis]
    if length is not None and length % count:
        raise ValueError(
            f"num_or_size_splits: axis {axis} of {x!r} has size {length}, which is not divisible "
            f"by {count}"
        )
    part = None if length is None else length // count
    return [(x.dtype, (*x.sizes[:axis], part, *x.sizes[axis + 1 :]))] * count


@op("Split", types=ALL_TYPES, infer=_parts)
def _split(xp: ArrayModule, value: Array, *, num: int, axis: int) -> Any:
    if value.shape[axis] % num:
        raise InvalidArgumentError(
            f"value: axis {axis} has size {value.shape[axis]}, which is not divisible by {num}"
        )
    return several(xp.split(value, num, axis))


def _sized_parts(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> list[tuple[DType, Shape]]:
    """Types of parts of given sizes, one of which may be open (-1)."""
    x, axis, count = inputs[0], attrs["axis"], attrs["num"]
    if x.sizes is None:
        return [(x.dtype, None)] * count
    axis = axis_in(axis, len(x.sizes))
    sizes = constant_value_as_shape(inputs[1]) or (None,) * count
    length = x.sizes[axis]
    if length is not None and constant_value(inputs[1]) is not None:
        known = sum(item for item in sizes if item is not None)
        if sizes.count(None) > 1 or known > length or (None not in sizes and known != length):
            raise ValueError(
                f"num_or_size_splits: sizes {list(sizes)} do not add up to the size {length} of "
                f"axis {axis} of {x!r}"
            )
        sizes = tuple(length - known if item is None else item for item in sizes)
    return [(x.dtype, (*x.sizes[:axis], item, *x.sizes[axis + 1 :])) for item in sizes]


@op(
    "SplitV",
    types=ALL_TYPES,
    accepts={"sizes": INDEX_TYPES},
    infer=_sized_parts,
    host=("sizes",),
)
def _split_sizes(xp: ArrayModule, value: Array, sizes: Array, *, num: int, axis: int) -> Any:
    lengths = [int(item) for item in sizes]
    length = value.shape[axis]
    if lengths.count(-1) == 1:
        lengths[lengths.index(-1)] = length - sum(lengths) - 1
    if min(lengths) < 0 or sum(lengths) != length:
        raise InvalidArgumentError(
            f"num_or_size_splits: sizes {sizes.tolist()} do not add up to {length}, the size of "
            f"axis {axis}"
        )
    return several(xp.split(value, np.cumsum(lengths)[:-1].tolist(), axis))


@_split.gradient
def _(node: Operation, *dys: Tensor) -> Tensor:
    return concat(dys, node.attrs["axis"])


@_split_sizes.gradient
def _(node: Operation, *dys: Tensor) -> tuple[Tensor, None]:
    return concat(dys, node.attrs["axis"]), None


@composite
def split(
    value: Any,
    num_or_size_splits: Any,
    axis: Any = 0,
    num: int | None = None,
    name: str = "split",
) -> list[Tensor]:
    """A tensor cut along an axis, into a number of equal parts or into parts of given sizes.

    `num` says how many sizes there are where that is not static.

    Raises:
        ValueError: the sizes do not fit, or their number is not known.
        InvalidArgumentError: when run, they do not fit.
    """
    along = static_int(axis, "axis")
    known = None
    if not isinstance(num_or_size_splits, list | tuple):
        known = constant_value(num_or_size_splits)
    if known is not None and known.ndim == 0:
        count = static_int(known, "num_or_size_splits")
        return list(_split.node(value, num=count, axis=along, name=name).outputs)
    sizes = as_tensor(sizes_argument(num_or_size_splits, "num_or_size_splits"))
    length = None if sizes.sizes is None else sizes.sizes[0]
    count = length if length is not None else num  # type: ignore[assignment]
    if count is None:
        raise ValueError("num: the number of parts is not static; pass num=")
    return list(_split_sizes.node(value, sizes, num=count, axis=along, name=name).outputs)


def _stacked(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Shape:
    merged = TensorShape(None)
    for x in inputs:
        merged = merged.merge_with(x.sizes)
    if merged.sizes is None:
        return None
    axis = axis_in(attrs["axis"], len(merged.sizes) + 1)
    return (*merged.sizes[:axis], len(inputs), *merged.sizes[axis:])


@op("Pack", types=ALL_TYPES, shape=_stacked)
def _pack(xp: ArrayModule, *values: Array, axis: int) -> Array:
    return xp.stack(values, axis=axis)


@_pack.gradient
def _(node: Operation, dy: Tensor) -> Sequence[Tensor]:
    return unstack(dy, len(node.inputs), node.attrs["axis"])


@composite
def stack(values: Any, axis: Any = 0, name: str = "stack") -> Tensor:
    """Tensors of one shape joined along a new axis.

    Raises:
        ValueError: there is nothing to join, or shapes differ.
    """
    if not isinstance(values, list | tuple):
        values = unstack(values)
    if not values:
        raise ValueError("values: expected at least one tensor, got none")
    return _pack(*values, axis=static_int(axis, "axis"), name=name)


def _unstacked(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> list[tuple[DType, Shape]]:
    x, count = inputs[0], attrs["num"]
    if x.sizes is None:
        return [(x.dtype, None)] * count
    axis = axis_in(attrs["axis"], len(x.sizes))
    if x.sizes[axis] not in (None, count):
        raise ValueError(f"num: axis {axis} of {x!r} has size {x.sizes[axis]}, got {count}")
    return [(x.dtype, (*x.sizes[:axis], *x.sizes[axis + 1 :]))] * count


@op("Unpack", types=ALL_TYPES, infer=_unstacked)
def _unpack(xp: ArrayModule, value: Array, *, num: int, axis: int) -> Any:
    if value.shape[axis] != num:
        raise InvalidArgumentError(
            f"value: axis {axis} has size {value.shape[axis]}, expected {num}"
        )
    front = xp.moveaxis(value, axis, 0)
    return several([front[i, ...] for i in range(num)])  # the dots keep scalars arrays


@_unpack.gradient
def _(node: Operation, *dys: Tensor) -> Tensor:
    return stack(dys, node.attrs["axis"])


@composite
def unstack(
    value: Any, num: int | None = None, axis: Any = 0, name: str = "unstack"
) -> list[Tensor]:
    """The slices of a tensor along an axis, which they lose.

    Raises:
        ValueError: the size of the axis is not static and `num` is not given, or is another.
    """
    tensor = as_tensor(value)
    along = static_int(axis, "axis")
    if num is None:
        if tensor.sizes is not None:
            num = tensor.sizes[axis_in(along, len(tensor.sizes))]
        if num is None:
            raise ValueError(f"num: axis {along} of {tensor!r} has no static size; pass num=")
    if num == 0:
        return []
    return list(_unpack.node(tensor, num=static_int(num, "num"), axis=along, name=name).outputs)


OPERATORS["stack"] = stack
