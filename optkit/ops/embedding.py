"""Looking up rows of embeddings, whole or in shards."""

from __future__ import annotations

from typing import Any

from optkit.graph import Tensor, get_default_graph
from optkit.ops.array import concat, reshape, shape
from optkit.ops.clip import clip_by_norm
from optkit.ops.core import INDEX_TYPES, as_tensor, composite
from optkit.ops.indexing import gather, where
from optkit.ops.logic import equal
from optkit.ops.math import cast
from optkit.ops.sequences import invert_permutation
from optkit.shapes import TensorShape

__all__ = ["embedding_lookup"]


@composite
def embedding_lookup(
    params: Any,
    ids: Any,
    partition_strategy: str = "mod",
    name: str | None = None,
    validate_indices: bool = True,
    max_norm: float | None = None,
) -> Tensor:
    """The rows of `params` that `ids` names; shape ids.shape + params.shape[1:].

    Args:
        params: a tensor or Variable, or a list of shards of one, all with the same row shape.
        ids: int32 or int64, any shape.
        partition_strategy: how rows are spread over n shards. "mod": row i is row i // n of shard
            i % n. "div": shards hold neighbouring rows, the first of them one more where rows do
            not divide evenly.
        name: the name scope.
        validate_indices: ignored; ids are always checked.
        max_norm: rows with a larger norm are scaled down to it.

    Raises:
        ValueError: there is no shard, or no such strategy.
        InvalidArgumentError: when run, an id is out of range.
    """
    shards = list(params) if isinstance(params, list | tuple) else [params]
    if not shards:
        raise ValueError("params: expected at least one tensor, got none")
    if partition_strategy not in ("mod", "div"):
        raise ValueError(f"partition_strategy: expected 'mod' or 'div', got {partition_strategy!r}")
    with get_default_graph().name_scope(name or "embedding_lookup"):
        numbers = as_tensor(ids, name="ids")
        if numbers.dtype not in INDEX_TYPES:
            raise TypeError(f"ids: expected int32 or int64, got {numbers!r}")
        if len(shards) == 1:
            rows = gather(shards[0], numbers)
        else:
            rows = _from_shards([as_tensor(s) for s in shards], numbers, partition_strategy)
        if max_norm is None:
            return rows
        if numbers.shape.ndims is None or rows.shape.ndims is None:
            raise ValueError(f"max_norm: needs ids and params of known rank, got {numbers!r}")
        axes = list(range(numbers.shape.ndims, rows.shape.ndims))
        clipped = clip_by_norm(rows, max_norm, axes=axes)
        assert isinstance(clipped, Tensor)
        return clipped


def _from_shards(shards: list[Tensor], ids: Tensor, strategy: str) -> Tensor:
    """Each shard looks up its own ids; the rows are then put back in the order of the ids."""
    count = len(shards)
    flat = reshape(ids, [-1])
    if strategy == "mod":
        owner, row = flat % count, flat // count
    else:
        owner, row = _neighbours(shards, flat)
    places = [reshape(where(equal(owner, shard)), [-1]) for shard in range(count)]
    rows = [gather(shard, gather(row, place)) for shard, place in zip(shards, places, strict=True)]
    ordered = gather(concat(rows, 0), invert_permutation(concat(places, 0)))
    row_shape = TensorShape(None)
    for shard in shards:
        row_shape = row_shape.merge_with(shard.shape[1:])
    result = reshape(ordered, concat([shape(ids), shape(shards[0])[1:]], 0))
    result.set_shape(ids.shape.concatenate(row_shape))
    return result


def _neighbours(shards: list[Tensor], ids: Tensor) -> tuple[Tensor, Tensor]:
    """For the strategy "div": the shard and the row in it of each id."""
    count = len(shards)
    lengths = [cast(shape(shard)[0], ids.dtype) for shard in shards]
    total = lengths[0]
    for length in lengths[1:]:
        total = total + length
    even, longer = total // count, total % count
    # The first `longer` shards hold one row more.
    boundary = longer * (even + 1)
    early = ids < boundary
    owner = where(early, ids // (even + 1), longer + (ids - boundary) // even)
    row = where(early, ids % (even + 1), (ids - boundary) % even)
    return owner, row
