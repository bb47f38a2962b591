"""The largest elements, and whether a class is among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from optkit.dtypes import DType, bool_, float32, int32
from optkit.errors import InvalidArgumentError
from optkit.graph import Operation, Tensor
from optkit.ops.core import (
    INDEX_TYPES,
    Array,
    ArrayModule,
    as_tensor,
    composite,
    constant_value,
    op,
)
from optkit.ops.logic import REALS
from optkit.shapes import Shape

__all__ = ["TopK", "in_top_k", "top_k"]


class TopK(NamedTuple):
    """What `top_k` gives: the values, and their places along the last axis."""

    values: Tensor
    indices: Tensor


def _top_types(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> list[tuple[DType, Shape]]:
    x, k = inputs
    known = constant_value(k)
    count = None if known is None else int(known)
    if count is not None and count < 0:
        raise ValueError(f"k: expected a count >= 0, got {count}")
    if x.sizes is None:
        return [(x.dtype, None), (int32, None)]
    if not x.sizes:
        raise ValueError(f"input: expected at least one axis, got {x!r}")
    last = x.sizes[-1]
    if last is not None and count is not None and count > last:
        raise ValueError(f"input: expected at least k = {count} elements in a row, got {x!r}")
    sizes = (*x.sizes[:-1], count)
    return [(x.dtype, sizes), (int32, sizes)]


@op(
    "TopKV2",
    types=REALS,
    accepts={"k": INDEX_TYPES},
    infer=_top_types,
    host=("k",),
)
def _top_k(xp: ArrayModule, x: Array, k: Array, *, sorted: bool) -> tuple[Array, Array]:
    n, count = x.shape[-1], int(k)
    if not 0 <= count <= n:
        raise InvalidArgumentError(f"k: expected a count in [0, {n}], got {count}")
    # Of equal elements the first comes first, so the sort runs over the reversed row.
    order = n - 1 - xp.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1][..., :count]
    return xp.take_along_axis(x, order, axis=-1), order.astype(int32.dtype)


@_top_k.gradient
def _(node: Operation, dvalues: Tensor, _: Tensor) -> tuple[Tensor, None]:
    x = node.inputs[0]
    return _spread_last(dvalues, node.outputs[1], x), None


@op(
    "SpreadLast",
    types=REALS,
    accepts={"places": INDEX_TYPES, "like": REALS},
    shape=lambda inputs, _: inputs[2].sizes,
)
def _spread_last(xp: ArrayModule, y: Array, places: Array, like: Array) -> Array:
    """y at different places along the last axis of zeros in the shape of `like`."""
    result = xp.zeros(like.shape, y.dtype)
    rows = result.reshape(-1, like.shape[-1])
    rows[xp.arange(rows.shape[0])[:, None], places.reshape(-1, places.shape[-1])] = y.reshape(
        -1, y.shape[-1]
    )
    return result


@_spread_last.gradient
def _(node: Operation, dz: Tensor) -> tuple[Tensor, None, None]:
    return _pick_last(dz, node.inputs[1]), None, None


@op(
    "PickLast",
    types=REALS,
    accepts={"places": INDEX_TYPES},
    shape=lambda inputs, _: inputs[1].sizes,
)
def _pick_last(xp: ArrayModule, x: Array, places: Array) -> Array:
    """The elements of x at places along the last axis."""
    return xp.take_along_axis(x, places, axis=-1)


@_pick_last.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, None]:
    x, places = node.inputs
    return _spread_last(dy, places, x), None


@composite
def top_k(input: Any, k: Any = 1, sorted: bool = True, name: str | None = None) -> TopK:
    """The k largest elements along the last axis, falling, and where they are (int32).

    Of equal elements the one that comes first wins.

    Args:
        input: numbers of shape (..., n).
        k: how many, at most n.
        sorted: accepted as in TF; the result is always sorted.
        name: the node's name.

    Raises:
        ValueError: rows have fewer than k elements.
    """
    k = as_tensor(k, name="k")
    return TopK(*_top_k.node(input, k, sorted=bool(sorted), name=name or "TopKV2").outputs)


def _top_shape(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Shape:
    predictions, targets = inputs[:2]
    if predictions.shape.ndims not in (None, 2):
        raise ValueError(f"predictions: expected two axes, got {predictions!r}")
    if targets.shape.ndims not in (None, 1):
        raise ValueError(f"targets: expected a vector, got {targets!r}")
    rows = targets.sizes or (None,)
    if predictions.sizes is not None:
        if not predictions.shape[:1].is_compatible_with(rows):
            raise ValueError(f"targets: expected one a row of {predictions!r}, got {targets!r}")
        rows = (rows[0] if rows[0] is not None else predictions.sizes[0],)
    return rows


@op(
    "InTopKV2",
    types={float32},
    accepts={"targets": INDEX_TYPES, "k": INDEX_TYPES},
    result=bool_,
    shape=_top_shape,
    host=("k",),
    differentiable=False,
)
def _in_top_k(xp: ArrayModule, predictions: Array, targets: Array, k: Array) -> Array:
    rows, classes = predictions.shape
    if targets.shape != (rows,):
        raise InvalidArgumentError(f"targets: expected shape {(rows,)}, got {targets.shape}")
    known = (targets >= 0) & (targets < classes)
    own = predictions[xp.arange(rows), xp.where(known, targets, 0)]
    better = (predictions > own[:, None]).sum(axis=1)
    finite = xp.isfinite(own) & ~xp.isnan(predictions).any(axis=1)
    return known & finite & (better < int(k))


@composite
def in_top_k(predictions: Any, targets: Any, k: Any, name: str | None = None) -> Tensor:
    """Whether fewer than k classes have a larger prediction than the target's; shape (n,), bool.

    False where the target is no class, its prediction is not finite, or any is NaN.

    Args:
        predictions: float32 of shape (n, classes).
        targets: class numbers, shape (n,).
        k: how many classes count.
        name: the node's name.
    """
    return _in_top_k(predictions, targets, as_tensor(k, name="k"), name=name or "InTopKV2")
