"""NumPy's functions on graph tensors: `np.reshape(x, ...)` builds a node.

Tensor's `__array_function__` looks them up here; arguments are NumPy's.
"""

from __future__ import annotations

from typing import Any

from optkit.graph import OPERATORS, Tensor
from optkit.ops.arguments import axis_in, static_ints
from optkit.ops.array import (
    broadcast_to,
    concat,
    expand_dims,
    fill,
    identity,
    ones_like,
    reshape,
    shape,
    size,
    split,
    squeeze,
    stack,
    transpose,
    zeros_like,
)
from optkit.ops.clip import clip_by_value
from optkit.ops.core import as_tensor
from optkit.ops.indexing import gather
from optkit.ops.math import cast, maximum, minimum
from optkit.ops.rearranging import pad, reverse, tile

__all__: list[str] = []


def _rank(x: Tensor, function: str) -> int:
    if x.sizes is None:
        raise ValueError(f"np.{function}: needs a static rank, got {x!r}")
    return len(x.sizes)


def _reshape(a: Any, shape: Any, order: str = "C") -> Tensor:
    if order != "C":
        raise ValueError(f"order: only 'C' has a graph form, got {order!r}")
    return reshape(a, shape)


def _ravel(a: Any, order: str = "C") -> Tensor:
    return _reshape(a, [-1], order)


def _transpose(a: Any, axes: Any = None) -> Tensor:
    return transpose(a, axes)


def _concatenate(arrays: Any, axis: int | None = 0) -> Tensor:
    if axis is None:
        return concat([reshape(array, [-1]) for array in arrays], 0)
    return concat(list(arrays), axis)


def _stack(arrays: Any, axis: int = 0) -> Tensor:
    return stack(list(arrays), axis)


def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """np.split cuts at places; `split` makes parts of given sizes."""
    if not isinstance(indices_or_sections, list | tuple):
        return split(ary, indices_or_sections, axis)
    cuts = static_ints(indices_or_sections, "indices_or_sections")
    sizes = [b - a for a, b in zip((0, *cuts), cuts, strict=False)]
    return split(ary, [*sizes, -1], axis)


def _expand_dims(a: Any, axis: Any) -> Tensor:
    x = as_tensor(a)
    axes = static_ints(axis, "axis")
    if len(axes) > 1:
        rank = _rank(x, "expand_dims") + len(axes)
        axes = tuple(sorted(axis_in(item, rank) for item in axes))
    for item in axes:
        x = expand_dims(x, item)
    return x


def _squeeze(a: Any, axis: Any = None) -> Tensor:
    return squeeze(a, axis)


def _shape(a: Any) -> Any:
    """A tuple of ints where the shape is static, as NumPy; else a tensor."""
    x = as_tensor(a)
    return tuple(x.shape.as_list()) if x.shape.is_fully_defined() else shape(x)


def _ndim(a: Any) -> int:
    return _rank(as_tensor(a), "ndim")


def _size(a: Any, axis: int | None = None) -> Any:
    x = as_tensor(a)
    if axis is None:
        count = x.shape.num_elements()
        return size(x) if count is None else count
    length = x.shape.as_list()[axis_in(axis, _rank(x, "size"))]
    return shape(x)[axis] if length is None else length


def _zeros_like(a: Any, dtype: Any = None) -> Tensor:
    return zeros_like(a, dtype)


def _ones_like(a: Any, dtype: Any = None) -> Tensor:
    return ones_like(a, dtype)


def _full_like(a: Any, fill_value: Any, dtype: Any = None) -> Tensor:
    x = as_tensor(a)
    value = as_tensor(fill_value, x.dtype)
    full = fill(shape(x), value)
    return full if dtype is None else cast(full, dtype)


def _clip(a: Any, a_min: Any = None, a_max: Any = None, **newer: Any) -> Any:
    """NumPy 2.1 calls the limits min and max as well."""
    low, high = newer.pop("min", a_min), newer.pop("max", a_max)
    if newer:
        raise TypeError(f"np.clip: {sorted(newer)} have no graph form")
    if low is None and high is None:
        return as_tensor(a)
    if low is None:
        return minimum(a, high)
    if high is None:
        return maximum(a, low)
    return clip_by_value(a, low, high)


def _pad(array: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Tensor:
    """np.pad also takes one number for all sides, or one pair for all axes."""
    x = as_tensor(array)
    rank = _rank(x, "pad")
    widths = pad_width
    if isinstance(widths, int):
        widths = [(widths, widths)] * rank
    elif len(widths) == 2 and all(isinstance(item, int) for item in widths):
        widths = [tuple(widths)] * rank
    elif len(widths) == 1:
        widths = [tuple(widths[0])] * rank
    return pad(x, [list(pair) for pair in widths], mode, constant_values=constant_values)


def _tile(A: Any, reps: Any) -> Tensor:  # noqa: N803 - NumPy's name
    """np.tile lines axes up at the end."""
    x = as_tensor(A)
    times = list(static_ints(reps, "reps"))
    rank = _rank(x, "tile")
    times = [1] * (rank - len(times)) + times
    for _ in range(len(times) - rank):
        x = expand_dims(x, 0)
    return tile(x, times)


def _take(a: Any, indices: Any, axis: int | None = None) -> Tensor:
    """The elements that `indices` names; out of range is an error and -1 is out of range."""
    if axis is None:
        return gather(reshape(a, [-1]), indices)
    return gather(a, indices, axis=axis)


def _flip(m: Any, axis: Any = None) -> Tensor:
    x = as_tensor(m)
    return reverse(x, list(range(_rank(x, "flip"))) if axis is None else axis)


def _swapaxes(a: Any, axis1: int, axis2: int) -> Tensor:
    x = as_tensor(a)
    rank = _rank(x, "swapaxes")
    order = list(range(rank))
    first, second = axis_in(axis1, rank, "axis1"), axis_in(axis2, rank, "axis2")
    order[first], order[second] = second, first
    return transpose(x, order)


def _moveaxis(a: Any, source: Any, destination: Any) -> Tensor:
    x = as_tensor(a)
    rank = _rank(x, "moveaxis")
    sources = [axis_in(item, rank, "source") for item in static_ints(source, "source")]
    targets = [
        axis_in(item, rank, "destination") for item in static_ints(destination, "destination")
    ]
    if len(sources) != len(targets):
        raise ValueError(f"destination: expected {len(sources)} axes, got {len(targets)}")
    order = [axis for axis in range(rank) if axis not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return transpose(x, order)


def _along(axis: int) -> Any:
    """np.hstack and np.vstack, which make scalars and vectors of a rank that fits first."""

    def joined(tup: Any) -> Tensor:
        tensors = [as_tensor(item) for item in tup]
        tensors = [reshape(x, [1]) if x.sizes == () else x for x in tensors]
        vectors = all(x.shape.ndims == 1 for x in tensors)
        if axis == 0:
            tensors = [expand_dims(x, 0) if x.shape.ndims == 1 else x for x in tensors]
        return concat(tensors, 0 if vectors else axis)

    return joined


def _copy(a: Any, order: str = "K", subok: bool = False) -> Tensor:
    return identity(a)  # type: ignore[no-any-return]


OPERATORS.update(
    {
        "function:reshape": _reshape,
        "function:ravel": _ravel,
        "function:transpose": _transpose,
        "function:concatenate": _concatenate,
        "function:stack": _stack,
        "function:hstack": _along(1),
        "function:vstack": _along(0),
        "function:split": _split,
        "function:expand_dims": _expand_dims,
        "function:squeeze": _squeeze,
        "function:shape": _shape,
        "function:ndim": _ndim,
        "function:size": _size,
        "function:zeros_like": _zeros_like,
        "function:ones_like": _ones_like,
        "function:full_like": _full_like,
        "function:broadcast_to": broadcast_to,
        "function:clip": _clip,
        "function:pad": _pad,
        "function:tile": _tile,
        "function:take": _take,
        "function:flip": _flip,
        "function:swapaxes": _swapaxes,
        "function:moveaxis": _moveaxis,
        "function:copy": _copy,
    }
)
