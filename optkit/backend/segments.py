"""Adding up rows that share a number, in an order that is the same in every run.

Atomic adds, and `np.add.at` against them, would round differently from run to run or from backend
to backend. Here rows are sorted by number and halves of each group are added until one is left:
the same sums, bit for bit, under NumPy and CuPy, in about log2(largest group) steps. On a device
two kernels of optkit's add them up, in the same order; row numbers that are on the host are sorted
there, so that nobody waits for the device.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from optkit.backend.cuda.rows import can_sum, sums_of_groups

__all__ = ["Merged", "groups", "merge_rows", "segment_sum"]


class Merged(NamedTuple):
    """Rows with equal numbers added up.

    Attributes:
        values: the sums, shape (m, ...).
        rows: their numbers, each once, in the order of first occurrence; shape (m,).
        places: for each row before, where it went; shape (n,).
    """

    values: Any
    rows: Any
    places: Any


def segment_sum(xp: Any, values: Any, rows: Any, count: int) -> Any:
    """The sums of the values with equal row numbers, at those rows of a (count, ...) array.

    Args:
        xp: numpy or cupy.
        values: shape (n, ...).
        rows: integers in [0, count), shape (n,); with CuPy they may be NumPy's.
        count: the number of rows of the result; rows not named are zero.
    """
    result = xp.zeros((count, *values.shape[1:]), values.dtype)
    if xp is not np and can_sum(values.dtype):
        order, ranked, heads, _ = _sorted(xp, rows)
        values = xp.ascontiguousarray(values)
        sums_of_groups(values, order, heads, ranked[heads], result)
    elif rows.size:
        rows = xp.asarray(rows)
        order = xp.argsort(rows, kind="stable")
        ranked = rows[order]
        heads, group = groups(xp, ranked)
        result[ranked[heads]] = _sums(xp, values[order], heads, group)
    return result


def merge_rows(xp: Any, values: Any, rows: Any) -> Merged:
    """Rows with equal numbers added up; see `Merged`.

    Args:
        xp: numpy or cupy.
        values: shape (n, ...).
        rows: integers, shape (n,); with CuPy they may be NumPy's, and then so are the results.
    """
    if xp is not np and can_sum(values.dtype):
        return _merged_on_device(xp, values, rows)
    rows = xp.asarray(rows)
    place = xp.arange(rows.size)
    if rows.size < 2:
        return Merged(values, rows, place)
    order = xp.argsort(rows, kind="stable")
    ranked = rows[order]
    heads, group = groups(xp, ranked)
    if heads.size == rows.size:
        return Merged(values, rows, place)
    sums = _sums(xp, values[order], heads, group)
    # The sort is stable, so the head of a group is its first occurrence.
    first = xp.argsort(order[heads])
    rank = xp.empty_like(first)
    rank[first] = xp.arange(first.size)
    place[order] = rank[group]
    return Merged(sums[first], ranked[heads][first], place)


def _sorted(xp: Any, rows: Any) -> tuple[Any, Any, Any, Any]:
    """Row numbers in order, where they are: (order, sorted numbers, heads, group of each)."""
    where: Any = np if isinstance(rows, np.ndarray) else xp
    order = where.argsort(rows, kind="stable")
    ranked = rows[order]
    if not rows.size:
        return order, ranked, order, order
    return order, ranked, *groups(where, ranked)


def _merged_on_device(xp: Any, values: Any, rows: Any) -> Merged:
    """As `merge_rows`, by kernels."""
    where: Any = np if isinstance(rows, np.ndarray) else xp
    place = where.arange(rows.size)
    if rows.size < 2:
        return Merged(values, rows, place)
    order, ranked, heads, group = _sorted(xp, rows)
    if heads.size == rows.size:
        return Merged(values, rows, place)
    first = where.argsort(order[heads])
    rank = where.empty_like(first)
    rank[first] = where.arange(first.size)
    place[order] = rank[group]
    sums = xp.empty((heads.size, *values.shape[1:]), values.dtype)
    sums_of_groups(xp.ascontiguousarray(values), order, heads, rank, sums)
    return Merged(sums, ranked[heads][first], place)


def groups(xp: Any, ranked: Any) -> tuple[Any, Any]:
    """Of sorted numbers: where each group starts, and the group of each."""
    starts = xp.concatenate([xp.ones(1, bool), ranked[1:] != ranked[:-1]])
    return xp.flatnonzero(starts), xp.cumsum(starts) - 1


def _sums(xp: Any, values: Any, heads: Any, group: Any) -> Any:
    """The sum of each group of neighbouring rows; `values` is overwritten."""
    narrow = values.dtype
    if narrow.kind in "fV" and narrow.itemsize < 4:
        values = values.astype(xp.float32)  # sums in float16 or bfloat16 lose low bits and overflow
    count = group.size
    if heads.size == count:
        return values.astype(narrow, copy=False)
    ends = xp.append(heads[1:], count)
    inside = xp.arange(count) - heads[group]  # the place of each row in its group
    active = xp.arange(count)
    step = 1
    while step < count:
        active = active[inside[active] % (2 * step) == 0]
        left = active[active + step < ends[group[active]]]
        if left.size == 0:
            break
        values[left] = values[left] + values[left + step]
        step *= 2
    return values[heads].astype(narrow, copy=False)
