"""Exact histograms of arrays in one pass over cache-sized tiles.

The fast grid takes a value's bucket from the top bits of the float itself: sign, exponent and three
bits of the mantissa, so eight buckets an octave, found by one shift. The TensorFlow grid is the one
of TensorFlow's summary op: ±1e-12·1.1^k, and ±DBL_MAX outside.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

_Floats: TypeAlias = NDArray[np.float64]
_Counts: TypeAlias = NDArray[np.int64]

BUCKETS = ("fast", "tensorflow")
MAX_BUCKETS = 1600
_TILE = 1 << 16
_DBL_MAX = float(np.finfo(np.float64).max)
_MANTISSA_BITS = 3
# dtype -> its unsigned twin and the shift that leaves sign, exponent and three mantissa bits
_LAYOUTS: dict[np.dtype[Any], tuple[np.dtype[Any], int]] = {
    np.dtype(np.float32): (np.dtype(np.uint32), 23 - _MANTISSA_BITS),
    np.dtype(np.float64): (np.dtype(np.uint64), 52 - _MANTISSA_BITS),
}


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Bucket counts and moments of an array's finite values, and how many were not finite.

    Bucket i holds values from limits[i-1] to limits[i], the first one those from min on. Moments
    are float64; where no value is finite, min is inf and max is -inf.
    """

    limits: _Floats
    counts: _Floats
    min: float
    max: float
    num: int
    sum: float
    sum_squares: float
    nan: int = 0
    inf: int = 0

    @property
    def nonfinite(self) -> int:
        """How many values were NaN or infinite, and so are in no bucket."""
        return self.nan + self.inf

    @property
    def norm(self) -> float:
        """√Σx² over all values: NaN if one is NaN, inf if one is infinite."""
        if self.nan:
            return math.nan
        return math.inf if self.inf else math.sqrt(self.sum_squares)


@dataclass(slots=True)
class _Moments:
    min: float = math.inf
    max: float = -math.inf
    sum: float = 0.0
    sum_squares: float = 0.0
    nan: int = 0
    inf: int = 0

    def add(self, tile: NDArray[Any]) -> None:
        """Take in a tile of finite values."""
        if tile.size:
            wide = tile.astype(np.float64, copy=False)
            self.min = min(self.min, float(tile.min()))
            self.max = max(self.max, float(tile.max()))
            self.sum += float(wide.sum())
            self.sum_squares += _squares(wide)

    def add_nonfinite(self, tile: NDArray[Any]) -> NDArray[Any]:
        """Count a tile's NaN and infinite values; return the others."""
        finite: NDArray[Any] = tile[np.isfinite(tile)]
        nan = int(np.count_nonzero(np.isnan(tile)))
        self.nan += nan
        self.inf += tile.size - finite.size - nan
        return finite


def measure(values: NDArray[Any], buckets: str = "fast") -> Histogram:
    """The exact histogram of an array of real numbers of any shape.

    `buckets` is "fast" (neighbours are merged, two by two, while there are more than 1600) or
    "tensorflow". float16 and small integers are counted as the float32 that they are, other
    integers and extended floats as float64. Runs of empty buckets are one bucket.

    Raises:
        ValueError: `buckets` is neither.
    """
    if buckets not in BUCKETS:
        raise ValueError(f"buckets must be one of {', '.join(BUCKETS)}, not {buckets!r}")
    moments = _Moments()
    count = _count_by_bits if buckets == "fast" else _count_by_search
    with np.errstate(over="ignore", invalid="ignore"):
        limits, counts = count(values, moments)
    limits, counts = _collapsed(limits, counts)
    return Histogram(
        limits,
        counts.astype(np.float64),
        moments.min,
        moments.max,
        int(counts.sum()),
        moments.sum,
        moments.sum_squares,
        moments.nan,
        moments.inf,
    )


def sum_squares(values: NDArray[Any]) -> float:
    """Σx² in float64: NaN if one value is NaN, else inf if one is infinite."""
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for tile in _tiles(values):
            wide = tile.astype(np.float64, copy=False)
            total += _squares(wide)
    return total


def _squares(wide: _Floats) -> float:
    # Not `dot`: BLAS wakes its threads for a tile, which costs milliseconds on busy cores.
    return float(np.einsum("i,i->", wide, wide))


def _tiles(values: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Contiguous pieces of the array, in float32 where that is exact and else in float64."""
    flat = values.ravel(order="K")
    dtype = np.float32 if np.can_cast(flat.dtype, np.float32) else np.float64
    for start in range(0, flat.size, _TILE):
        yield flat[start : start + _TILE].astype(dtype, copy=False)


def _count_by_bits(values: NDArray[Any], moments: _Moments) -> tuple[_Floats, _Counts]:
    counts: _Counts | None = None
    dtype = np.dtype(np.float32)
    for tile in _tiles(values):
        dtype = tile.dtype
        bits, shift = _LAYOUTS[dtype]
        keys = 1 << (8 * bits.itemsize - shift)
        # The cast is free, as bincount wants this type; a key is far below 2**63.
        tile_counts = np.bincount((tile.view(bits) >> shift).astype(np.intp), minlength=keys)
        # The keys of a sign's largest exponent are infinity and the NaNs.
        special = tile_counts.reshape(2, -1)[:, -(1 << _MANTISSA_BITS) :]
        if special.any():
            special[...] = 0
            moments.add(moments.add_nonfinite(tile))
        else:
            moments.add(tile)
        counts = tile_counts if counts is None else counts + tile_counts
    if counts is None:
        return np.empty(0), np.empty(0, np.int64)
    positive, negative = counts.reshape(2, -1)
    return _coarsened(_bit_edges(dtype), np.concatenate((negative[::-1], positive)))


@lru_cache(maxsize=2)
def _bit_edges(dtype: np.dtype[Any]) -> _Floats:
    """All edges of the fast grid in rising order, one more than there are buckets.

    The special keys stay as empty buckets of no width, so that the number is a power of two.
    """
    bits, shift = _LAYOUTS[dtype]
    keys = np.arange(1 << (8 * bits.itemsize - 1 - shift), dtype=bits)
    finite = keys.size - (1 << _MANTISSA_BITS)
    magnitudes = np.empty(keys.size + 1)
    magnitudes[:finite] = (keys[:finite] << shift).view(dtype)
    magnitudes[finite:] = 2.0**128 if dtype == np.float32 else _DBL_MAX
    return np.concatenate((-magnitudes[:0:-1], magnitudes))


def _coarsened(edges: _Floats, counts: _Counts) -> tuple[_Floats, _Counts]:
    """The right edges and counts, with buckets merged in pairs until few enough are left.

    Zero stays an edge, as the number of buckets on either side is a power of two.
    """
    while np.count_nonzero(_run_ends(counts)) > MAX_BUCKETS:
        counts = counts.reshape(-1, 2).sum(axis=1)
        edges = edges[::2]
    return edges[1:], counts


def _count_by_search(values: NDArray[Any], moments: _Moments) -> tuple[_Floats, _Counts]:
    edges = _tensorflow_edges()
    below = np.zeros(edges.size, np.int64)
    for tile in _tiles(values):
        ordered = np.sort(tile)
        # NaN is sorted to the end, so the two ends tell of every value that is not finite.
        if not (math.isfinite(ordered[0]) and math.isfinite(ordered[-1])):
            ordered = moments.add_nonfinite(ordered)
        moments.add(ordered)
        below += ordered.searchsorted(_edges_in(tile.dtype), "left")
    counts = np.diff(below, prepend=0, append=values.size - moments.nan - moments.inf)
    return np.append(edges, _DBL_MAX), counts


@lru_cache(maxsize=1)
def _tensorflow_edges() -> _Floats:
    positive = []
    edge = 1e-12
    while edge < 1e20:
        positive.append(edge)
        edge *= 1.1
    return np.array([*(-edge for edge in reversed(positive)), 0.0, *positive])


@lru_cache(maxsize=2)
def _edges_in(dtype: np.dtype[Any]) -> NDArray[Any]:
    """The edges rounded up: x >= edge if and only if x >= rounded edge, for each x of the dtype."""
    edges = _tensorflow_edges()
    rounded = edges.astype(dtype)
    low = rounded < edges
    rounded[low] = np.nextafter(rounded[low], np.array(np.inf, dtype))
    return rounded


def _run_ends(counts: _Counts) -> NDArray[np.bool_]:
    """Which buckets stay: those with a count, and the last of each run of empty ones."""
    filled = counts > 0
    ends = np.ones(counts.size, np.bool_)
    np.logical_or(filled[:-1], filled[1:], out=ends[:-1])
    return ends


def _collapsed(limits: _Floats, counts: _Counts) -> tuple[_Floats, _Counts]:
    """The limits and counts from the first filled bucket to the last, empty runs made one.

    TensorBoard takes min and max as the outermost edges: an empty bucket there would run backwards.
    """
    filled = np.flatnonzero(counts)
    if not filled.size:
        return limits[:0], counts[:0]
    inner = slice(filled[0], filled[-1] + 1)
    limits, counts = limits[inner], counts[inner]
    ends = _run_ends(counts)
    return limits[ends], counts[ends]
