"""Padding, repeating and reversing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from optkit.dtypes import NUMBERS
from optkit.errors import InvalidArgumentError
from optkit.graph import Operation, Tensor, is_symbolic
from optkit.ops.arguments import axis_in, sizes_argument, static_ints, target_shape
from optkit.ops.array import shape as shape_of
from optkit.ops.core import (
    ALL_TYPES,
    INDEX_TYPES,
    Array,
    ArrayModule,
    as_array,
    as_tensor,
    composite,
    constant_value,
    op,
)
from optkit.ops.indexing import slice as slice_block
from optkit.shapes import Shape

__all__ = ["pad", "reverse", "tile"]

# -- pad ------------------------------------------------------------------------------------------


def _padded(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Shape:
    x, paddings = inputs
    if not paddings.shape.is_compatible_with((None, 2)):
        raise ValueError(f"paddings: expected shape (rank, 2), got {paddings.shape}")
    rank = None if paddings.sizes is None else paddings.sizes[0]
    if x.sizes is None:
        return None if rank is None else (None,) * rank
    if rank not in (None, len(x.sizes)):
        raise ValueError(f"paddings: expected {len(x.sizes)} rows, got {rank}")
    known = constant_value(paddings)
    if known is None:
        return (None,) * len(x.sizes)
    if (known < 0).any():
        raise ValueError(f"paddings: expected numbers >= 0, got {known.tolist()}")
    return tuple(
        None if size is None else size + int(pair.sum())
        for size, pair in zip(x.sizes, known, strict=True)
    )


def _widths(paddings: Array, sizes: Sequence[int], limit: int | None = None) -> list[list[int]]:
    """The paddings as lists; `limit` 0 or 1: a mirror of the axis without so many elements.

    Raises:
        InvalidArgumentError: there are not two an axis, one is negative or reaches too far.
    """
    if paddings.shape != (len(sizes), 2) or (paddings.size and int(paddings.min()) < 0):
        raise InvalidArgumentError(
            f"paddings: expected {len(sizes)} pairs of numbers >= 0, got {paddings.tolist()}"
        )
    pairs: list[list[int]] = paddings.tolist()
    if limit is not None:
        for axis, pair in enumerate(pairs):
            if max(pair) > max(sizes[axis] - limit, 0):
                raise InvalidArgumentError(
                    f"paddings: axis {axis} of size {sizes[axis]} can be mirrored by at most "
                    f"{max(sizes[axis] - limit, 0)}, got {pair}"
                )
    return pairs


@op(
    "Pad",
    types=ALL_TYPES,
    accepts={"paddings": INDEX_TYPES},
    shape=_padded,
    host=("paddings",),
)
def _pad(xp: ArrayModule, tensor: Array, paddings: Array, *, value: Any) -> Array:
    pairs = _widths(paddings, tensor.shape)
    sizes = [size + sum(pair) for size, pair in zip(tensor.shape, pairs, strict=True)]
    padded = xp.full(sizes, value, tensor.dtype)
    inner = [
        slice(first, first + size) for size, (first, _) in zip(tensor.shape, pairs, strict=True)
    ]
    padded[tuple(inner)] = tensor
    return padded


@_pad.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, None]:
    x, paddings = node.inputs
    return slice_block(dy, paddings[:, 0], shape_of(x)), None


_MIRRORED = {"reflect": 1, "symmetric": 0}


@op(
    "MirrorPad",
    types=ALL_TYPES,
    accepts={"paddings": INDEX_TYPES},
    shape=_padded,
    host=("paddings",),
)
def _mirror_pad(xp: ArrayModule, tensor: Array, paddings: Array, *, mode: str) -> Array:
    pairs = _widths(paddings, tensor.shape, _MIRRORED[mode])
    return xp.pad(tensor, pairs, mode)


@_mirror_pad.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, None]:
    x, paddings = node.inputs
    return _mirror_pad_grad(dy, paddings, shape_of(x), mode=node.attrs["mode"]), None


@op(
    "MirrorPadGrad",
    types=NUMBERS,
    accepts={"paddings": INDEX_TYPES, "shape": INDEX_TYPES},
    shape=target_shape(2),
    host=("paddings", "shape"),
)
def _mirror_pad_grad(
    xp: ArrayModule, dy: Array, paddings: Array, shape: Array, *, mode: str
) -> Array:
    """dy with the margins folded back onto what they mirror."""
    skipped = _MIRRORED[mode]
    for axis, (before, after) in enumerate(paddings.tolist()):
        size = int(shape[axis])
        rows = xp.moveaxis(dy, axis, 0)
        inner = rows[before : before + size].copy()
        if before:
            inner[skipped : skipped + before] += rows[:before][::-1]
        if after:
            end = size - skipped
            inner[end - after : end] += rows[before + size :][::-1]
        dy = xp.moveaxis(inner, 0, axis)
    return dy


@_mirror_pad_grad.gradient
def _(node: Operation, ddx: Tensor) -> tuple[Tensor, None, None]:
    return _mirror_pad(ddx, node.inputs[1], mode=node.attrs["mode"]), None, None


@composite
def pad(
    tensor: Any,
    paddings: Any,
    mode: str = "CONSTANT",
    name: str | None = None,
    constant_values: Any = 0,
) -> Tensor:
    """The tensor with margins: paddings[axis] = (elements before, elements after).

    Args:
        tensor: what gets the margins.
        paddings: int32 or int64, shape (rank, 2).
        mode: CONSTANT; REFLECT, a mirror without the edge; SYMMETRIC, a mirror with the edge.
        name: the node's name.
        constant_values: the number in the margins of CONSTANT.

    Raises:
        ValueError: there is no such mode, or the paddings do not fit.
        InvalidArgumentError: when run, the paddings do not fit.
    """
    x = as_tensor(tensor)
    widths = sizes_argument(paddings, "paddings")
    kind = str(mode).upper()
    if kind in ("REFLECT", "SYMMETRIC"):
        return _mirror_pad(x, widths, mode=kind.lower(), name=name)
    if kind != "CONSTANT":
        raise ValueError(f"mode: expected CONSTANT, REFLECT or SYMMETRIC, got {mode!r}")
    return _pad(x, widths, value=_margin(constant_values, x), name=name)


def _margin(value: Any, x: Tensor) -> Any:
    """The element that fills the margins, as a Python value."""
    known = constant_value(value)
    if known is None or known.ndim:
        raise TypeError(f"constant_values: expected a number, got {value!r}")
    if x.dtype.name == "string":
        return known.item() if known.dtype.kind == "O" else b""
    if is_symbolic(value) and known.dtype != x.dtype.dtype:
        raise TypeError(f"constant_values: expected {x.dtype.name}, got {value!r}")
    try:
        return as_array(known.item(), x.dtype).item()
    except TypeError as error:
        raise TypeError(f"constant_values: {error}") from error


# -- repeat ---------------------------------------------------------------------------------------


def _tiled(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Shape:
    x, multiples = inputs
    if x.sizes is None:
        return None
    if not multiples.shape.is_compatible_with((len(x.sizes),)):
        raise ValueError(f"multiples: expected {len(x.sizes)} numbers, got {multiples.shape}")
    known = constant_value(multiples)
    if known is None:
        return (None,) * len(x.sizes)
    if (known < 0).any():
        raise ValueError(f"multiples: expected numbers >= 0, got {known.tolist()}")
    return tuple(
        None if size is None else size * int(times)
        for size, times in zip(x.sizes, known, strict=True)
    )


def _times(multiples: Array, rank: int) -> list[int]:
    times: list[int] = multiples.tolist()
    if len(times) != rank or any(item < 0 for item in times):
        raise InvalidArgumentError(f"multiples: expected {rank} numbers >= 0, got {times}")
    return times


@op(
    "Tile",
    types=ALL_TYPES,
    accepts={"multiples": INDEX_TYPES},
    shape=_tiled,
    host=("multiples",),
)
def _tile(xp: ArrayModule, input: Array, multiples: Array) -> Array:
    return xp.tile(input, tuple(_times(multiples, input.ndim)))


@_tile.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, None]:
    x, multiples = node.inputs
    return _tile_grad(dy, multiples, shape_of(x)), None


@op(
    "TileGrad",
    types=NUMBERS,
    accepts={"multiples": INDEX_TYPES, "shape": INDEX_TYPES},
    shape=target_shape(2),
    host=("multiples", "shape"),
)
def _tile_grad(xp: ArrayModule, dy: Array, multiples: Array, shape: Array) -> Array:
    """The sum of the copies that `tile` made."""
    folded = [int(size) for pair in zip(multiples, shape, strict=True) for size in pair]
    copies = tuple(range(0, len(folded), 2))
    wide = xp.float32 if dy.dtype == np.float16 else dy.dtype  # float16 would round each sum
    return dy.reshape(folded).sum(axis=copies, dtype=wide).astype(dy.dtype, copy=False)


@_tile_grad.gradient
def _(node: Operation, ddx: Tensor) -> tuple[Tensor, None, None]:
    return _tile(ddx, node.inputs[1]), None, None


@composite
def tile(input: Any, multiples: Any, name: str | None = None) -> Tensor:
    """The tensor repeated multiples[i] times along each axis i.

    Raises:
        ValueError: there are not as many multiples as axes, or one is negative.
    """
    return _tile(input, sizes_argument(multiples, "multiples"), name=name)


# -- reverse --------------------------------------------------------------------------------------


@op("ReverseV2", types=ALL_TYPES)
def _reverse(xp: ArrayModule, tensor: Array, *, axis: tuple[int, ...]) -> Array:
    return xp.flip(tensor, axis)


@_reverse.gradient
def _(node: Operation, dy: Tensor) -> Tensor:
    return _reverse(dy, axis=node.attrs["axis"])


@composite
def reverse(tensor: Any, axis: Any, name: str | None = None) -> Tensor:
    """The tensor backwards along each of the axes.

    Raises:
        ValueError: there is no such axis, or it is named twice.
    """
    x = as_tensor(tensor)
    axes = static_ints(axis, "axis")
    if x.sizes is not None:
        axes = tuple(axis_in(item, len(x.sizes)) for item in axes)
    if len(set(axes)) != len(axes):
        raise ValueError(f"axis: expected each axis once, got {list(axes)}")
    return _reverse(x, axis=axes, name=name)
