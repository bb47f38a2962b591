"""Shapes as values, and ops that give the same elements another shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from optkit.dtypes import DType, int32
from optkit.errors import InvalidArgumentError
from optkit.graph import Operation, Tensor
from optkit.ops.arguments import (
    axis_in,
    checked_sizes,
    count_of,
    index_type,
    one_of,
    sizes_argument,
    static_int,
    static_ints,
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
from optkit.shapes import Shape, TensorShape, broadcast_static

__all__ = [
    "broadcast_to",
    "expand_dims",
    "rank",
    "reshape",
    "shape",
    "size",
    "squeeze",
    "transpose",
]

# -- shapes as values -----------------------------------------------------------------------------


def _out_type(_: Sequence[Tensor], attrs: Mapping[str, Any]) -> DType:
    return attrs["out_type"]  # type: ignore[no-any-return]


@op(
    "Shape",
    types=ALL_TYPES,
    differentiable=False,
    result=_out_type,
    shape=lambda inputs, _: (inputs[0].shape.ndims,),
)
def _shape(xp: ArrayModule, x: Array, *, out_type: DType) -> Array:
    return xp.asarray(x.shape, out_type.dtype)


@op("Size", types=ALL_TYPES, differentiable=False, result=_out_type, shape=())
def _size(xp: ArrayModule, x: Array, *, out_type: DType) -> Array:
    return xp.asarray(x.size, out_type.dtype)


@op("Rank", types=ALL_TYPES, differentiable=False, result=int32, shape=())
def _rank(xp: ArrayModule, x: Array) -> Array:
    return xp.asarray(x.ndim, int32.dtype)


@composite
def shape(input: Any, name: str | None = None, out_type: Any = int32) -> Tensor:
    """The shape as a vector; a constant where it is static."""
    tensor = as_tensor(input)
    dtype = index_type(out_type)
    if tensor.sizes is not None and None not in tensor.sizes:
        return constant(np.asarray(tensor.sizes, dtype.dtype), name=name or "Shape")
    return _shape(tensor, out_type=dtype, name=name)


@composite
def size(input: Any, name: str | None = None, out_type: Any = int32) -> Tensor:
    """The number of elements; a constant where the shape is static."""
    tensor = as_tensor(input)
    dtype = index_type(out_type)
    count = count_of(tensor.sizes)
    if count is not None:
        return constant(np.asarray(count, dtype.dtype), name=name or "Size")
    return _size(tensor, out_type=dtype, name=name)


@composite
def rank(input: Any, name: str | None = None) -> Tensor:
    """The number of axes, int32; a constant where it is static."""
    tensor = as_tensor(input)
    if tensor.sizes is not None:
        return constant(np.asarray(len(tensor.sizes), np.int32), name=name or "Rank")
    return _rank(tensor, name=name)


# -- other shapes ---------------------------------------------------------------------------------


def _reshaped(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Shape:
    """The new static shape: the one size that is open follows from the number of elements."""
    x, target = inputs[0], constant_value_as_shape(inputs[1])
    if target is None:
        return None
    total = count_of(x.sizes)
    missing = target.count(None)
    known = count_of(tuple(item for item in target if item is not None)) or 0
    if total is None or missing > 1:
        return target
    if (missing == 0 and known != total) or (missing == 1 and (total % known if known else total)):
        raise ValueError(f"{total} elements do not fit the shape {TensorShape(target)}")
    if missing == 0 or known == 0:
        return target
    return tuple(total // known if item is None else item for item in target)


@op(
    "Reshape",
    types=ALL_TYPES,
    accepts={"shape": INDEX_TYPES},
    shape=_reshaped,
    host=("shape",),
)
def _reshape(xp: ArrayModule, tensor: Array, shape: Array) -> Array:
    sizes = tuple(int(item) for item in shape.reshape(-1))
    try:
        return tensor.reshape(sizes)
    except ValueError:
        raise InvalidArgumentError(
            f"shape: {tensor.size} elements of shape {tensor.shape} do not fit {sizes}"
        ) from None


@_reshape.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, None]:
    return reshape(dy, shape(node.inputs[0])), None


@composite
def reshape(tensor: Any, shape: Any, name: str | None = None) -> Tensor:
    """The same elements in another shape; a single -1 in it stands for whatever is left.

    Raises:
        ValueError: the elements do not fit the shape, or it has several -1.
        InvalidArgumentError: when run, they do not fit.
    """
    sizes = sizes_argument(shape, "shape")
    known = None if isinstance(sizes, list | tuple) else constant_value(sizes)
    if known is not None and ((known < 0).sum() > 1 or (known < -1).any()):
        raise ValueError(f"shape: expected sizes >= 0 and at most one -1, got {known.tolist()}")
    return _reshape(tensor, sizes, name=name)


def _permuted(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Shape:
    sizes, perm = inputs[0].sizes, attrs["perm"]
    if perm is None:
        return None if sizes is None else sizes[::-1]
    if sorted(perm) != list(range(len(perm))):
        raise ValueError(f"perm: expected each axis once, got {list(perm)}")
    if sizes is None:
        return (None,) * len(perm)
    if len(perm) != len(sizes):
        raise ValueError(f"perm: expected {len(sizes)} axes, got {list(perm)}")
    return tuple(sizes[axis] for axis in perm)


@op("Transpose", types=ALL_TYPES, shape=_permuted)
def _transpose(xp: ArrayModule, a: Array, *, perm: tuple[int, ...] | None) -> Array:
    return xp.transpose(a, perm)


@_transpose.gradient
def _(node: Operation, dy: Tensor) -> Tensor:
    perm = node.attrs["perm"]
    return transpose(dy, None if perm is None else np.argsort(perm).tolist())


@composite
def transpose(a: Any, perm: Any = None, name: str = "transpose", conjugate: bool = False) -> Tensor:
    """The axes in the order `perm`, reversed if None.

    Raises:
        ValueError: `perm` is not a permutation of the axes, or not constant.
    """
    if conjugate:
        raise ValueError("conjugate: only False is supported, got True")
    axes = None if perm is None else static_ints(perm, "perm")
    if axes is not None and any(axis < 0 for axis in axes):
        axes = tuple(axis_in(axis, len(axes), "perm") for axis in axes)
    return _transpose(a, perm=axes, name=name)


def _with_axis(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Shape:
    sizes = inputs[0].sizes
    if sizes is None:
        return None
    axis = axis_in(attrs["axis"], len(sizes) + 1)
    return (*sizes[:axis], 1, *sizes[axis:])


@op("ExpandDims", types=ALL_TYPES, shape=_with_axis)
def _expand_dims(xp: ArrayModule, input: Array, *, axis: int) -> Array:
    # np.expand_dims spends several times as long on its arguments.
    sizes = list(input.shape)
    sizes.insert(axis if axis >= 0 else len(sizes) + 1 + axis, 1)
    return input.reshape(sizes)


@_expand_dims.gradient
def _(node: Operation, dy: Tensor) -> Tensor:
    return squeeze(dy, [node.attrs["axis"]])


@composite
def expand_dims(input: Any, axis: Any = None, name: str | None = None, dim: Any = None) -> Tensor:
    """The input with a new axis of size 1 before `axis` (-1: at the end); `dim` is its old name."""
    axis = one_of("axis", axis, "dim", dim)
    if axis is None:
        raise ValueError("axis: expected an int, got None")
    return _expand_dims(input, axis=static_int(axis, "axis"), name=name)


def _without_axes(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Shape:
    sizes, axes = inputs[0].sizes, attrs["axis"]
    if sizes is None or (axes is None and None in sizes):
        return None
    if axes is None:
        return tuple(item for item in sizes if item != 1)
    gone = {axis_in(axis, len(sizes)) for axis in axes}
    for axis in gone:
        if sizes[axis] not in (1, None):
            raise ValueError(f"axis: axis {axis} has size {sizes[axis]}, expected 1")
    return tuple(item for i, item in enumerate(sizes) if i not in gone)


@op("Squeeze", types=ALL_TYPES, shape=_without_axes)
def _squeeze(xp: ArrayModule, input: Array, *, axis: tuple[int, ...] | None) -> Array:
    return xp.squeeze(input, axis)


@_squeeze.gradient
def _(node: Operation, dy: Tensor) -> Tensor:
    return reshape(dy, shape(node.inputs[0]))


@composite
def squeeze(
    input: Any, axis: Any = None, name: str | None = None, squeeze_dims: Any = None
) -> Tensor:
    """The input without the given axes, which have size 1; without all such axes if None.

    `squeeze_dims` is the old name of `axis`.
    """
    axis = one_of("axis", axis, "squeeze_dims", squeeze_dims)
    axes = None if axis is None else static_ints(axis, "axis")
    return _squeeze(input, axis=axes or None, name=name)


@op(
    "BroadcastTo",
    types=ALL_TYPES,
    accepts={"shape": INDEX_TYPES},
    shape=lambda inputs, _: _broadcast_target(inputs),
    broadcasts=True,
    host=("shape",),
)
def _broadcast_to(xp: ArrayModule, input: Array, shape: Array) -> Array:
    return xp.broadcast_to(input, checked_sizes(shape, "shape"))


def _broadcast_target(inputs: Sequence[Tensor]) -> Shape:
    target = constant_value_as_shape(inputs[1])
    if target is not None and inputs[0].sizes is not None:
        if len(inputs[0].sizes) > len(target):
            raise ValueError(f"{inputs[0].shape} does not broadcast to {TensorShape(target)}")
        joint = broadcast_static([inputs[0].sizes, target])
        if not TensorShape(joint).is_compatible_with(target):
            raise ValueError(f"{inputs[0].shape} does not broadcast to {TensorShape(target)}")
    return target


@_broadcast_to.gradient
def _(_: Operation, dy: Tensor) -> tuple[Tensor, None]:
    return dy, None  # the engine sums it back to the input's shape


@composite
def broadcast_to(input: Any, shape: Any, name: str | None = None) -> Tensor:
    """The input repeated along new axes and axes of size 1, as NumPy broadcasts."""
    return _broadcast_to(input, sizes_argument(shape, "shape"), name=name)
