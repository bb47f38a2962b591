"""Reductions over segments: neighbouring rows that carry the same number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optkit.backend import segments
from optkit.backend.arrays import scatter_rows
from optkit.backend.special import wide_dtype
from optkit.dtypes import FLOATS
from optkit.errors import InvalidArgumentError
from optkit.graph import Operation, Tensor
from optkit.ops.array import ones_like
from optkit.ops.core import INDEX_TYPES, Array, ArrayModule, composite, constant_value, op
from optkit.ops.indexing import gather, where
from optkit.ops.logic import REALS, equal
from optkit.ops.math import cast, divide, multiply
from optkit.shapes import Shape

__all__ = ["segment_max", "segment_mean", "segment_min", "segment_prod", "segment_sum"]


def _segments_shape(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Shape:
    data, numbers = inputs
    if numbers.shape.ndims not in (None, 1):
        raise ValueError(f"segment_ids: expected a vector, got {numbers!r}")
    if data.sizes is None:
        return None
    if not data.sizes:
        raise ValueError(f"data: expected at least one axis, got {data!r}")
    rows = numbers.sizes[0] if numbers.sizes else None
    if rows is not None and data.sizes[0] not in (None, rows):
        raise ValueError(f"segment_ids: expected one a row of {data!r}, got {numbers!r}")
    known = constant_value(numbers)
    count = None if known is None else int(known[-1]) + 1 if known.size else 0
    return (count, *data.sizes[1:])


def _count(xp: ArrayModule, data: Array, segment_ids: Array) -> int:
    """The number of segments.

    Raises:
        InvalidArgumentError: the numbers do not fit the rows, fall, or are negative.
    """
    if segment_ids.shape != data.shape[:1]:
        raise InvalidArgumentError(
            f"segment_ids: expected shape {data.shape[:1]}, got {segment_ids.shape}"
        )
    if not segment_ids.size:
        return 0
    if int(segment_ids[0]) < 0 or bool((segment_ids[1:] < segment_ids[:-1]).any()):
        raise InvalidArgumentError(
            "segment_ids: expected numbers >= 0 that never fall; unsorted_segment_sum takes others"
        )
    return int(segment_ids[-1]) + 1


@op("SegmentSum", accepts={"segment_ids": INDEX_TYPES}, shape=_segments_shape)
def _segment_sum(xp: ArrayModule, data: Array, segment_ids: Array) -> Array:
    return segments.segment_sum(xp, data, segment_ids, _count(xp, data, segment_ids))


@_segment_sum.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, None]:
    return gather(dy, node.inputs[1]), None


@op("SegmentMean", types=FLOATS, accepts={"segment_ids": INDEX_TYPES}, shape=_segments_shape)
def _segment_mean(xp: ArrayModule, data: Array, segment_ids: Array) -> Array:
    count = _count(xp, data, segment_ids)
    wide = data.astype(wide_dtype(data.dtype), copy=False)
    sums = segments.segment_sum(xp, wide, segment_ids, count)
    sizes = xp.maximum(xp.bincount(segment_ids, minlength=count), 1).astype(wide.dtype)
    return (sums / sizes.reshape(-1, *[1] * (data.ndim - 1))).astype(data.dtype, copy=False)


@_segment_mean.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, None]:
    # The mean is linear, so each row's share is the gradient over the size of its segment.
    data, numbers = node.inputs
    sizes = gather(_segment_sum(ones_like(data), numbers), numbers)
    return divide(gather(dy, numbers), sizes), None


def _extreme(xp: ArrayModule, data: Array, segment_ids: Array, mode: str) -> Array:
    count = _count(xp, data, segment_ids)
    result = xp.zeros((count, *data.shape[1:]), data.dtype)
    if data.shape[0]:
        # Each segment starts from its first row.
        heads, _ = segments.groups(xp, segment_ids)
        result[segment_ids[heads]] = data[heads]
        result = scatter_rows(xp, result, segment_ids, data, mode)
    return result


@op("SegmentMax", types=REALS, accepts={"segment_ids": INDEX_TYPES}, shape=_segments_shape)
def _segment_max(xp: ArrayModule, data: Array, segment_ids: Array) -> Array:
    return _extreme(xp, data, segment_ids, "max")


@op("SegmentMin", types=REALS, accepts={"segment_ids": INDEX_TYPES}, shape=_segments_shape)
def _segment_min(xp: ArrayModule, data: Array, segment_ids: Array) -> Array:
    return _extreme(xp, data, segment_ids, "min")


@_segment_max.gradient
@_segment_min.gradient
def _extreme_gradient(node: Operation, dy: Tensor) -> tuple[Tensor, None]:
    """Rows that reach the extreme share its gradient evenly, as in TF."""
    data, numbers = node.inputs
    reached = cast(equal(data, gather(node.outputs[0], numbers)), data.dtype)
    shares = gather(_segment_sum(reached, numbers), numbers)
    return multiply(divide(reached, shares), gather(dy, numbers)), None


@op("SegmentProd", types=REALS, accepts={"segment_ids": INDEX_TYPES}, shape=_segments_shape)
def _segment_prod(xp: ArrayModule, data: Array, segment_ids: Array) -> Array:
    count = _count(xp, data, segment_ids)
    result = xp.ones((count, *data.shape[1:]), data.dtype)
    return scatter_rows(xp, result, segment_ids, data, "mul")


@_segment_prod.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, None]:
    """The product of the others: by division where there is no zero, else of all but the zero."""
    data, numbers = node.inputs
    zero = equal(data, 0)
    nonzero = where(zero, ones_like(data), data)
    zeros = gather(_segment_sum(cast(zero, data.dtype), numbers), numbers)
    others = gather(_segment_prod(nonzero, numbers), numbers)
    ratio = divide(others, nonzero)
    alone = multiply(cast(zero, data.dtype), cast(equal(zeros, 1), data.dtype))
    free = cast(equal(zeros, 0), data.dtype)
    return multiply(gather(dy, numbers), free * ratio + alone * others), None


@composite
def segment_sum(data: Any, segment_ids: Any, name: str | None = None) -> Tensor:
    """The sums of rows with the same number; a number that no row carries gives 0.

    Args:
        data: shape (n, ...).
        segment_ids: int32 or int64 that never fall, shape (n,).
        name: the node's name.

    Raises:
        InvalidArgumentError: when run, the numbers fall, or are negative.
    """
    return _segment_sum(data, segment_ids, name=name or "SegmentSum")


@composite
def segment_mean(data: Any, segment_ids: Any, name: str | None = None) -> Tensor:
    """The means of rows with the same number, 0 where there is none; see `segment_sum`."""
    return _segment_mean(data, segment_ids, name=name or "SegmentMean")


@composite
def segment_max(data: Any, segment_ids: Any, name: str | None = None) -> Tensor:
    """The largest of rows with the same number, 0 where there is none; see `segment_sum`."""
    return _segment_max(data, segment_ids, name=name or "SegmentMax")


@composite
def segment_min(data: Any, segment_ids: Any, name: str | None = None) -> Tensor:
    """The smallest of rows with the same number, 0 where there is none; see `segment_sum`."""
    return _segment_min(data, segment_ids, name=name or "SegmentMin")


@composite
def segment_prod(data: Any, segment_ids: Any, name: str | None = None) -> Tensor:
    """The products of rows with the same number, 1 where there is none; see `segment_sum`."""
    return _segment_prod(data, segment_ids, name=name or "SegmentProd")
