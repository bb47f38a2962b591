"""IndexedSlices: adding up rows that are named twice, and turning them into a dense tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optkit.backend.segments import merge_rows, segment_sum
from optkit.dtypes import NUMBERS, DType, int64
from optkit.graph import OPERATORS, IndexedSlices, Operation, Tensor
from optkit.ops.array import zeros_like
from optkit.ops.core import (
    INDEX_TYPES,
    Array,
    ArrayModule,
    as_tensor,
    composite,
    constant_value,
    constant_value_as_shape,
    op,
)
from optkit.ops.indexing import gather, where
from optkit.ops.logic import greater_equal
from optkit.ops.reshaping import expand_dims
from optkit.ops.state import check_indices
from optkit.shapes import Shape, TensorShape

__all__ = ["deduplicate", "densify", "unsorted_segment_sum"]


def _segmented(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Shape:
    values, rows, count = inputs
    known = constant_value(count)
    if values.sizes is None or rows.sizes is None:
        return None
    lead = TensorShape(values.sizes[: len(rows.sizes)])
    if not lead.is_compatible_with(rows.sizes):
        raise ValueError(
            f"segment_ids: expected the first sizes of {values.shape}, got shape {rows.shape}"
        )
    return (None if known is None else int(known), *values.sizes[len(rows.sizes) :])


@op(
    "UnsortedSegmentSum",
    types=NUMBERS,
    accepts={"segment_ids": INDEX_TYPES, "num_segments": INDEX_TYPES},
    shape=_segmented,
    host=("num_segments",),
    either=("segment_ids",),
)
def _unsorted_segment_sum(
    xp: ArrayModule, data: Array, segment_ids: Array, num_segments: Array, *, all_rows: bool = False
) -> Array:
    """The sums; a negative number is an error where `all_rows` count, else its row does not."""
    count = int(num_segments)
    values = data.reshape(segment_ids.size, *data.shape[segment_ids.ndim :])
    rows = segment_ids.reshape(-1)
    kept = rows >= 0
    if not all_rows and not bool(kept.all()):
        values, rows = values[xp.asarray(kept)], rows[kept]
    check_indices(xp, rows, count, "segment_ids")
    return segment_sum(xp, values, rows, count)


@_unsorted_segment_sum.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, None, None]:
    data, rows, _ = node.inputs
    if node.attrs["all_rows"] or data.sizes is None or rows.sizes is None:
        return gather(dy, rows), None, None
    kept = greater_equal(rows, 0)
    taken = gather(dy, where(kept, rows, zeros_like(rows)))
    for _axis in range(len(data.sizes) - len(rows.sizes)):
        kept = expand_dims(kept, -1)
    return where(kept, taken, zeros_like(taken)), None, None


@composite
def unsorted_segment_sum(
    data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
) -> Tensor:
    """result[i] = Σ data[j] over the j with segment_ids[j] = i; zero where there is none.

    The sum is the same, bit for bit, in every run and on every backend.

    Args:
        data: shape segment_ids.shape + rest.
        segment_ids: int32 or int64 below num_segments; rows with a negative one are left out.
        num_segments: the number of rows of the result, which has shape (num_segments, *rest).
        name: the node's name.

    Raises:
        InvalidArgumentError: when run, an id is out of range.
    """
    return _unsorted_segment_sum(data, segment_ids, num_segments, name=name or "UnsortedSegmentSum")


@composite
def densify(slices: Any, name: str | None = None) -> Tensor:
    """An IndexedSlices as a tensor of its dense shape; anything else as a tensor, unchanged.

    Raises:
        ValueError: the dense shape is not known.
    """
    if not isinstance(slices, IndexedSlices):
        return as_tensor(slices)
    if slices.dense_shape is None:
        raise ValueError(f"{slices!r} has no dense_shape, so it cannot become a tensor")
    known = constant_value(slices.dense_shape)
    count = as_tensor(slices.dense_shape)[0] if known is None else known[0]
    dense = _unsorted_segment_sum(
        slices.values, slices.indices, count, all_rows=True, name=name or "UnsortedSegmentSum"
    )
    dense.set_shape(constant_value_as_shape(slices.dense_shape))
    return dense


OPERATORS["densify"] = densify


def _merged(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> list[tuple[DType, Shape]]:
    values, rows = inputs
    if not values.shape[:1].is_compatible_with(rows.sizes):
        raise ValueError(
            f"UniqueRows: values of shape {values.shape} do not fit indices of shape {rows.shape}"
        )
    rest = None if values.sizes is None else (None, *values.sizes[1:])
    return [(values.dtype, rest), (rows.dtype, (None,)), (int64, rows.sizes)]


@op(
    "UniqueRows",
    types=NUMBERS,
    accepts={"indices": INDEX_TYPES},
    infer=_merged,
    either=("indices",),
)
def _unique_rows(xp: ArrayModule, values: Array, indices: Array) -> tuple[Array, Array, Array]:
    """Values with equal indices added up; the indices, each once; where each value went."""
    return merge_rows(xp, values, indices)


@_unique_rows.gradient
def _(node: Operation, dvalues: Tensor, _: Any, __: Any) -> tuple[Tensor, None]:
    return gather(dvalues, node.outputs[2]), None


def deduplicate(slices: IndexedSlices, name: str | None = None) -> IndexedSlices:
    """The same rows with each named once: duplicates added up, in the order of first occurrence.

    Slices whose indices come from here already are returned as they are.
    """
    indices = as_tensor(slices.indices)
    if indices.op.kind is _unique_rows.kind and indices.value_index == 1:
        return slices
    values, rows, _ = _unique_rows.node(slices.values, indices, name=name).outputs
    return IndexedSlices(values, rows, slices.dense_shape)
