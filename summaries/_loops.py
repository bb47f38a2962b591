"""The counting of a histogram as loops, which Numba compiles where the `jit` extra is installed."""

import functools
import importlib.util
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

LANES = 128
"""Sums and extremes kept apart, so that the loop over them runs in vector registers."""
_WORTH_IT = 1 << 14
"""Elements from which on the import of Numba pays."""


class Loops(NamedTuple):
    """The functions of this module, compiled."""

    tally: Callable[..., Any]
    count: Callable[..., Any]
    collapse: Callable[..., Any]


def loops(size: int) -> Loops | None:
    """The compiled functions; None without Numba, or where NumPy is as fast.

    Numba takes a second to import: a first array that is small does not bring it in.
    """
    if size < _WORTH_IT and "numba" not in sys.modules:
        return None
    return _compiled() if available() else None


@functools.cache
def available() -> bool:
    """Whether Numba is installed."""
    return importlib.util.find_spec("numba") is not None


@functools.cache
def _compiled() -> Loops | None:
    """The functions, compiled; None where Numba is installed and does not fit the other packages.

    What is compiled is kept on disk for the next process, where there is a folder to keep it in.
    """
    try:
        from numba import njit
        from numba.extending import register_jitable
    except ImportError:
        return None
    for inner in (count, collapse):  # `tally` calls them
        register_jitable(inner)
    made = functools.partial(njit, nogil=True, error_model="numpy")
    try:
        return Loops(*map(made(cache=True), (tally, count, collapse)))
    except RuntimeError:
        return Loops(*map(made(), (tally, count, collapse)))


def tally(
    x: Any, scale: Any, shift: Any, bits: Any, edges: Any, limits: Any, numbers: Any, special: int
) -> Any:
    """`count` and `collapse` in one call, of which a small array feels each.

    Args:
        x: see `count`.
        scale: see `count`.
        shift: see `count`.
        bits: see `count`.
        edges: see `collapse`.
        limits: see `collapse`.
        numbers: see `collapse`.
        special: how many buckets of either sign, the last ones, are those of infinity and NaN.

    Returns:
        How many values those hold, how many buckets `collapse` found, and what `count` gives.
    """
    counts = np.zeros(edges.size - 1, np.int64)
    low, high, total, squares = count(x, scale, counts, shift, bits)
    half = counts.size // 2
    nonfinite = counts[half - special : half].sum() + counts[2 * half - special :].sum()
    used = collapse(counts, edges, limits, numbers)
    return nonfinite, used, low, high, total, squares


def count(x: Any, scale: Any, counts: Any, shift: Any, bits: Any) -> Any:
    """Add each value of scale·x to the count of its bucket; give the extremes and moments.

    Args:
        x: flat, float32 or float64.
        scale: a NumPy scalar of x's dtype.
        counts: the number of values for each top bits of the float.
        shift: an unsigned NumPy scalar as wide as x's: what leaves the top bits.
        bits: room for LANES unsigned integers of that type.

    Returns:
        min, max, Σ and Σ² in float64; NaN is left out of the first two alone.
    """
    scaled = bits.view(x.dtype)
    total, squares = np.zeros(LANES), np.zeros(LANES)
    low, high = np.full(LANES, np.inf, x.dtype), np.full(LANES, -np.inf, x.dtype)
    for start in range(0, x.size - x.size % LANES, LANES):
        part = x[start : start + LANES]
        for j in range(LANES):
            value = part[j] * scale
            scaled[j] = value
            wide = np.float64(value)
            total[j] += wide
            squares[j] += wide * wide
            low[j] = value if value < low[j] else low[j]
            high[j] = value if value > high[j] else high[j]
        for j in range(LANES):
            counts[bits[j] >> shift] += 1
    rest = x[x.size - x.size % LANES :]
    for j in range(rest.size):
        value = rest[j] * scale
        scaled[j] = value
        wide = np.float64(value)
        total[j] += wide
        squares[j] += wide * wide
        low[j] = value if value < low[j] else low[j]
        high[j] = value if value > high[j] else high[j]
        counts[bits[j] >> shift] += 1
    return np.float64(low.min()), np.float64(high.max()), total.sum(), squares.sum()


def collapse(counts: Any, edges: Any, limits: Any, numbers: Any) -> int:
    """Write the filled buckets in rising order, with one empty bucket for each run between them.

    Args:
        counts: by the top bits, so positive ones first, then negative ones from zero down.
        edges: the edges of all buckets in rising order, one more than there are buckets.
        limits: takes the right edges.
        numbers: takes the counts, as float64.

    Returns:
        How many buckets there are; more than fit in `limits` are counted and not written.
    """
    half = counts.size // 2
    used = 0
    last = -1
    for rank in range(counts.size):
        number = counts[counts.size - 1 - rank] if rank < half else counts[rank - half]
        if number:
            gap = last >= 0 and last < rank - 1
            if used + 1 + gap <= limits.size:
                if gap:
                    limits[used] = edges[rank]
                    numbers[used] = 0
                limits[used + gap] = edges[rank + 1]
                numbers[used + gap] = number
            used += 1 + gap
            last = rank
    return used
