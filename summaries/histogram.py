"""Exact histograms of arrays in one pass.

On the fast grid a value's bucket is the top bits of the float itself: sign, exponent and three
bits of the mantissa, so eight buckets an octave, found by one shift. The grid "tf" is that of
TensorFlow 1's summary op: ±1e-12·1.1^k, and ±DBL_MAX outside.

NumPy arrays are counted here, in tiles or by a compiled loop; `register_counter` adds the counting
of arrays that live elsewhere, of which only the counts then come to the host.
"""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from summaries import _loops

_Floats: TypeAlias = NDArray[np.float64]
_Counts: TypeAlias = NDArray[np.int64]

GRIDS = ("fast", "tf")
MAX_BUCKETS = 1600
MANTISSA_BITS = 3
_TILE = 1 << 16
_ROOM = _TILE + _TILE // 2
_ROW = 1 << 13  # BLAS takes a product of rows of this length on one thread: waking more costs more
_ONES = np.ones(_ROW)
_DBL_MAX = float(np.finfo(np.float64).max)


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


@dataclass(frozen=True, slots=True)
class BitLayout:
    """How the fast grid counts a float: bucket = bits >> shift, an index below `buckets`.

    So the counts of positive values come first, from zero up, then those of negative ones, from
    zero down. In either half the last 2**MANTISSA_BITS are those of infinity and NaN.
    """

    dtype: np.dtype[Any]
    bits: np.dtype[Any]
    shift: int

    @property
    def buckets(self) -> int:
        """How many counts there are: 4096 for float32, 32768 for float64."""
        return 1 << (8 * self.bits.itemsize - self.shift)


_FLOAT32 = BitLayout(np.dtype(np.float32), np.dtype(np.uint32), 23 - MANTISSA_BITS)
_FLOAT64 = BitLayout(np.dtype(np.float64), np.dtype(np.uint64), 52 - MANTISSA_BITS)
_BY_DTYPE = {_FLOAT32.dtype: _FLOAT32, _FLOAT64.dtype: _FLOAT64}
_BY_BUCKETS = {_FLOAT32.buckets: _FLOAT32, _FLOAT64.buckets: _FLOAT64}


def bit_layout(dtype: Any) -> BitLayout:
    """The layout an array of this dtype is counted in.

    It is that of float32 where the dtype converts to float32 exactly (float16, bfloat16, 8 and 16
    bit integers, bool), else that of float64.
    """
    return _FLOAT32 if np.can_cast(dtype, np.float32) else _FLOAT64


class Counted(NamedTuple):
    """An array counted on the fast grid; the extremes and moments are of its finite values.

    Attributes:
        counts: int64, how many values each bucket of the layout has, NaN and infinity included.
        nonfinite: how many values are NaN or infinite.
        min: inf where no value is finite.
        max: -inf where no value is finite.
        sum: float64.
        sum_squares: float64.
    """

    counts: _Counts
    nonfinite: int
    min: float
    max: float
    sum: float
    sum_squares: float


_Function: TypeAlias = Callable[[Any], Sequence[Any]]
_COUNTERS: list[tuple[Callable[[Any], bool], _Function]] = []


def register_counter(predicate: Callable[[Any], bool], function: _Function) -> None:
    """Let a function count the arrays of another library, where they are.

    Args:
        predicate: tells whether an array is such a one; called with anything but NumPy arrays.
        function: takes an array of real numbers and gives what `Counted` holds, by the layout
            `bit_layout(array.dtype)`.
    """
    _COUNTERS.append((predicate, function))


def counter_for(values: object) -> _Function | None:
    """The function registered for such an array, the newest first; None where there is none."""
    if isinstance(values, np.ndarray):
        return None
    return next((count for predicate, count in reversed(_COUNTERS) if predicate(values)), None)


def measure(values: Any, buckets: str | int = "fast", scale: Any = None) -> Histogram:
    """The exact histogram of an array of real numbers of any shape.

    float16, bfloat16 and small integers are counted as the float32 that they are, other integers
    and extended floats as float64. Runs of empty buckets are one bucket.

    Args:
        values: a NumPy array, or one that a registered counter takes.
        buckets: "fast", at most 1600 buckets; a number of 2 or more, at most so many; or "tf".
            While there are more buckets on the fast grid, neighbours are merged, two by two.
        scale: a scalar that the values are multiplied by first, in their dtype.

    Raises:
        ValueError: `buckets` is none of these.
    """
    most = _most(buckets)
    if most is not None and isinstance(values, np.ndarray):
        found = _by_tally(values, scale, most)
        if found is not None:
            return found
    with np.errstate(over="ignore", invalid="ignore"):
        if most is None:
            return _on_tensorflow_grid(_on_host(values, scale))
        counter = counter_for(values)
        if counter is None:
            counted = _count(values, scale)
        else:
            counts, *rest = counter(values if scale is None else values * scale)
            counted = Counted(np.array(counts, np.int64), *rest)
    return _histogram(counted, most)


def _most(buckets: str | int) -> int | None:
    """How many buckets there may be, at most all there are; None stands for TensorFlow's grid."""
    if isinstance(buckets, str) and buckets in GRIDS:
        return MAX_BUCKETS if buckets == "fast" else None
    if isinstance(buckets, Integral) and not isinstance(buckets, bool) and buckets >= 2:
        return min(int(buckets), _FLOAT64.buckets)
    raise ValueError(f"buckets must be 'fast', 'tf' or an integer of at least 2, not {buckets!r}")


def _on_host(values: Any, scale: Any) -> NDArray[Any]:
    array: NDArray[Any] = values.get() if counter_for(values) is not None else values
    return array if scale is None else array * array.dtype.type(scale)


def sum_squares(values: NDArray[Any]) -> float:
    """Σx² in float64: NaN if one value is NaN, else inf if one is infinite."""
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for tile in _tiles(values, None):
            total += _squares(tile.astype(np.float64, copy=False))
    return total


def _squares(wide: _Floats) -> float:
    return _products(wide, wide)


def _total(wide: _Floats) -> float:
    # A product with ones is twice as fast as a sum.
    return _products(wide, _ONES)


def _products(x: _Floats, y: _Floats) -> float:
    """Σ x·y, where y is as long as x or a row that is taken again and again."""
    rest = x.size % _ROW
    whole = x.size - rest
    tail = float(np.dot(x[whole:], y[whole:] if y is x else y[:rest]))
    if not whole:
        return tail
    rows = x[:whole].reshape(-1, _ROW)
    return float(np.add.reduce(np.vecdot(rows, rows if y is x else y))) + tail


# -- counting -------------------------------------------------------------------------------------


def _tiles(values: NDArray[Any], scale: Any) -> Iterator[NDArray[Any]]:
    """Contiguous pieces of the array times the scale, as the float type they are counted in.

    Each is good until the next one is asked for.
    """
    flat = values.ravel(order="K")
    dtype = bit_layout(flat.dtype).dtype
    # As near to the size of a tile as equal parts come.
    step = -(-flat.size // max(1, round(flat.size / _TILE)))
    for start in range(0, flat.size, max(1, step)):
        tile = flat[start : start + step]
        if scale is not None:
            room = _scratch.product(flat.dtype, tile.size)
            tile = np.multiply(tile, flat.dtype.type(scale), out=room)
        yield np.ascontiguousarray(tile, dtype)


class _Scratch(threading.local):
    """Memory for the tiles of a thread: taking it anew would cost as much as the counting."""

    def __init__(self) -> None:
        self._memory = np.empty(3 * _ROOM)

    def floats(self, size: int) -> _Floats:
        """Room for a tile in float64; the same as for its indices."""
        return self._memory[:size]

    def indices(self, size: int) -> NDArray[np.intp]:
        """Room for the indices of a tile, of the type that counting wants."""
        return self._memory[:size].view(np.intp)

    def product(self, dtype: np.dtype[Any], size: int) -> NDArray[Any]:
        """Room for a tile times a scale."""
        return self._memory[_ROOM:].view(dtype)[:size]


_scratch = _Scratch()


class _Moments:
    """Extremes and moments of finite values, a tile at a time."""

    def __init__(self) -> None:
        self.min, self.max = math.inf, -math.inf
        self.sum = self.squares = 0.0

    def add(self, tile: NDArray[Any]) -> None:
        if tile.size:
            wide = tile
            if tile.dtype != np.float64:
                wide = _scratch.floats(tile.size)
                wide[...] = tile
            # The functions behind the methods: for a small array they are half the time.
            self.min = min(self.min, float(np.minimum.reduce(tile)))
            self.max = max(self.max, float(np.maximum.reduce(tile)))
            self.sum += _total(wide)
            self.squares += _squares(wide)


def _count(values: NDArray[Any], scale: Any) -> Counted:
    """Count a NumPy array, by the compiled loop or by tiles."""
    layout = bit_layout(values.dtype)
    counts = np.zeros(layout.buckets, np.int64)
    compiled = _loops.loops(values.size)
    if compiled is not None:
        counted = _by_loop(compiled.count, values, scale, layout, counts)
        if not counted.nonfinite:
            return counted
        counts[...] = 0  # the sums hold NaN or infinity: the tiles keep these apart
    moments, nonfinite = _Moments(), 0
    shift = layout.bits.type(layout.shift)
    special = _special(counts)
    for tile in _tiles(values, scale):
        indices = _scratch.indices(tile.size)
        np.right_shift(tile.view(layout.bits), shift, out=indices, casting="unsafe")
        np.add.at(counts, indices, 1)  # a third faster than bincount
        before, nonfinite = nonfinite, int(np.add.reduce(special, axis=None))
        moments.add(tile if nonfinite == before else tile[np.isfinite(tile)])
    return Counted(counts, nonfinite, moments.min, moments.max, moments.sum, moments.squares)


def _by_tally(values: NDArray[Any], scale: Any, most: int) -> Histogram | None:
    """The histogram by one compiled call.

    None where the array is not of the float type it is counted in; where a value is not finite, so
    that the sums are none; and where buckets are to be merged.
    """
    compiled = _loops.loops(values.size)
    layout = _BY_DTYPE.get(values.dtype)
    if compiled is None or layout is None:
        return None
    limits, numbers = np.empty((2, most))
    nonfinite, used, low, high, total, squares = compiled.tally(
        values.ravel(order="K"),
        layout.dtype.type(1 if scale is None else scale),
        layout.bits.type(layout.shift),
        np.empty(_loops.LANES, layout.bits),
        _edges(layout),
        limits,
        numbers,
        1 << MANTISSA_BITS,
    )
    if nonfinite or used > most:
        return None
    found = limits[:used], numbers[:used]
    return Histogram(*found, low, high, values.size, total, squares)


def _by_loop(
    count: Callable[..., Any],
    values: NDArray[Any],
    scale: Any,
    layout: BitLayout,
    counts: _Counts,
) -> Counted:
    shift = layout.bits.type(layout.shift)
    bits = np.empty(_loops.LANES, layout.bits)
    low, high, total, squares = math.inf, -math.inf, 0.0, 0.0
    native = values.dtype == layout.dtype and values.dtype.isnative
    if native:
        factor = layout.dtype.type(1 if scale is None else scale)
        pieces: Any = (np.ascontiguousarray(values.ravel(order="K")),)
    else:  # the product is rounded to the narrow type before it is counted
        factor = layout.dtype.type(1)
        pieces = _tiles(values, scale)
    for piece in pieces:
        least, most, more, more_squares = count(piece, factor, counts, shift, bits)
        low, high = min(low, least), max(high, most)
        total, squares = total + more, squares + more_squares
    return Counted(counts, int(_special(counts).sum()), low, high, total, squares)


def _special(counts: _Counts) -> _Counts:
    """The counts of infinity and the NaNs, [sign, mantissa bits]; a view."""
    view: _Counts = counts.reshape(2, -1)[:, -(1 << MANTISSA_BITS) :]
    return view


# -- from counts to buckets -----------------------------------------------------------------------


def _histogram(counted: Counted, most: int) -> Histogram:
    counts = counted.counts
    size = counts.size
    layout = _BY_BUCKETS[size]
    nan = 0
    if counted.nonfinite:
        special = _special(counts)
        # A NaN that arithmetic makes has its first mantissa bit set, infinity none.
        nan = int(special[:, 1:].sum())
        special[...] = 0
    limits, numbers = _buckets(counts, _edges(layout), most)
    return Histogram(
        limits,
        numbers,
        counted.min,
        counted.max,
        int(np.add.reduce(numbers)),
        counted.sum,
        counted.sum_squares,
        nan,
        counted.nonfinite - nan,
    )


def _buckets(counts: _Counts, edges: _Floats, most: int) -> tuple[_Floats, _Floats]:
    """Right edges and counts of at most so many buckets; neighbours are merged until they fit.

    Zero stays an edge, as the number of buckets on either side is a power of two.
    """
    compiled = _loops.loops(0)
    while True:
        if compiled is None:
            limits, numbers = _collapsed(counts, edges)
            if limits.size <= most:
                return limits, numbers
        else:
            limits, numbers = np.empty((2, most))
            used = compiled.collapse(counts, edges, limits, numbers)
            if used <= most:
                return limits[:used], numbers[:used]
        counts = counts.reshape(-1, 2).sum(axis=1)
        edges = edges[::2]


def _collapsed(counts: _Counts, edges: _Floats) -> tuple[_Floats, _Floats]:
    """As `collapse` of the loops, with room for all buckets."""
    half = counts.size // 2
    rising = np.concatenate((counts[: half - 1 : -1], counts[:half]))
    filled = (rising != 0).nonzero()[0]  # three times as fast on truth values
    if not filled.size:
        return np.empty(0), np.empty(0)
    first = int(filled[0])
    kept = np.zeros(int(filled[-1]) + 1 - first, np.bool_)
    kept[filled - first] = True
    kept[filled[1:] - (first + 1)] = True  # the last of a run of empty ones, or a filled one
    ranks = kept.nonzero()[0] + first
    return edges[ranks + 1], rising[ranks].astype(np.float64)


@lru_cache(maxsize=2)
def _edges(layout: BitLayout) -> _Floats:
    """All edges of the fast grid in rising order, one more than there are buckets.

    The buckets of infinity and NaN, always empty here, stay: the number is a power of two.
    """
    keys = np.arange(layout.buckets // 2, dtype=layout.bits)
    finite = keys.size - (1 << MANTISSA_BITS)
    magnitudes = np.empty(keys.size + 1)
    magnitudes[:finite] = (keys[:finite] << layout.shift).view(layout.dtype)
    magnitudes[finite:] = 2.0**128 if layout is _FLOAT32 else _DBL_MAX
    return np.concatenate((-magnitudes[:0:-1], magnitudes))


# -- TensorFlow's grid ----------------------------------------------------------------------------


def _on_tensorflow_grid(values: NDArray[Any]) -> Histogram:
    """Tiles are sorted in their own type, and the edges looked up in them."""
    edges = _tensorflow_edges()
    moments, nan, inf = _Moments(), 0, 0
    below = np.zeros(edges.size, np.int64)
    for tile in _tiles(values, None):
        ordered = np.sort(tile)
        # NaN is sorted to the end, so the two ends tell of every value that is not finite.
        if not (math.isfinite(ordered[0]) and math.isfinite(ordered[-1])):
            finite = ordered[np.isfinite(ordered)]
            missing = int(np.count_nonzero(np.isnan(ordered)))
            nan, inf = nan + missing, inf + ordered.size - finite.size - missing
            ordered = finite
        moments.add(ordered)
        below += ordered.searchsorted(_edges_in(tile.dtype), "left")
    num = values.size - nan - inf
    counts = np.diff(below, prepend=0, append=num)
    limits = np.append(edges, _DBL_MAX)
    filled = counts.nonzero()[0]
    inner = slice(filled[0], filled[-1] + 1) if filled.size else slice(0)
    limits, counts = limits[inner], counts[inner]
    ends = np.ones(counts.size, np.bool_)  # buckets with a count, and the last of each empty run
    np.logical_or(counts[:-1] > 0, counts[1:] > 0, out=ends[:-1])
    return Histogram(
        limits[ends],
        counts[ends].astype(np.float64),
        moments.min,
        moments.max,
        num,
        moments.sum,
        moments.squares,
        nan,
        inf,
    )


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
