import math
import sys
import time
import tracemalloc
import types
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from summaries import _loops, encode_histogram, histogram
from summaries.histogram import (
    GRIDS,
    MAX_BUCKETS,
    bit_layout,
    measure,
    register_counter,
    sum_squares,
)

FLOATS = ["float16", "float32", "float64"]
DTYPES = [*FLOATS, "bool", "int8", "uint8", "int16", "uint16", "int32", "int64", "uint64"]
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_side=40))
)


def with_plain_nans(values):
    """The array with NaNs as arithmetic makes them: their first mantissa bit is set."""
    values = values.copy()
    values[np.isnan(values)] = np.nan
    return values


def assert_sound(histogram, values):
    """Each finite value is in a bucket around it, and the rest is as its definition says."""
    finite = values[np.isfinite(values)].astype(np.float64)
    limits, counts = histogram.limits, histogram.counts
    assert histogram.num == counts.sum() == finite.size
    assert histogram.nan == np.isnan(values).sum()
    assert histogram.inf == np.isinf(values).sum()
    assert limits.size == counts.size <= MAX_BUCKETS
    assert (limits[1:] > limits[:-1]).all()
    # A bucket's right edge has at least the smaller values to its left, at most the equal ones too.
    left_of_limit = counts.cumsum()
    for limit, left in zip(limits, left_of_limit, strict=True):
        assert (finite < limit).sum() <= left <= (finite <= limit).sum()
    if finite.size:
        assert (histogram.min, histogram.max) == (finite.min(), finite.max())
        assert counts[0] > 0
        assert counts[-1] > 0
        assert not ((counts[1:] == 0) & (counts[:-1] == 0)).any(), "empty runs are one bucket"
    with np.errstate(over="ignore"):
        scale = np.abs(finite).sum()
        if np.isfinite(scale):  # else the result depends on the order of summation
            assert histogram.sum == pytest.approx(finite.sum(), rel=1e-12, abs=1e-12 * scale)
        assert histogram.sum_squares == pytest.approx(np.square(finite).sum(), rel=1e-12)


@pytest.mark.parametrize("buckets", GRIDS)
@given(values=ARRAYS)
def test_p066_every_finite_value_is_counted_in_its_bucket(buckets, values):
    if values.dtype.kind == "f":
        values = with_plain_nans(values)
    assert_sound(measure(values, buckets), values)


@pytest.mark.parametrize("buckets", GRIDS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_p067_random_bits_of_every_magnitude(dtype, buckets):
    bits = np.dtype(f"uint{8 * np.dtype(dtype).itemsize}")
    values = np.random.default_rng(3).integers(0, np.iinfo(bits).max, 150_000, bits).view(dtype)
    values = with_plain_nans(values)
    histogram = measure(values, buckets)
    assert histogram.nonfinite > 0
    assert histogram.counts.size > (500 if dtype != "float16" else 100)
    assert_sound(histogram, values)


@pytest.mark.parametrize("buckets", GRIDS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_edges_of_the_number_line(dtype, buckets):
    info = np.finfo(dtype)
    ends = [info.max, info.tiny, info.smallest_subnormal, 1, 2, 1.125, 0]
    with np.errstate(over="ignore"):  # above the largest number is infinity
        near = [
            np.nextafter(np.array(end, dtype), info.dtype.type(to))
            for end in ends
            for to in (0, 9e9)
        ]
    values = np.array([*ends, *near], dtype)
    values = np.concatenate((values, -values))
    assert_sound(measure(values, buckets), values)


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_tensorflow_grid_is_exact(dtype):
    """Values at and beside its edges fall as the edges' float64 values say: [left, right)."""
    edge, edges = 1e-12, [0.0]
    while edge < 1e20:
        edges += [edge, -edge]
        edge *= 1.1
    edges = np.sort(edges)
    with np.errstate(over="ignore", under="ignore"):
        near = edges.astype(dtype)
        near = near[np.isfinite(near)]
        values = np.concatenate(
            [near, np.nextafter(near, near.dtype.type(9)), np.nextafter(near, near.dtype.type(-9))]
        )
    expected = np.bincount(edges.searchsorted(values.astype(np.float64), "right"))
    histogram = measure(values, "tf")
    np.testing.assert_array_equal(histogram.counts[histogram.counts > 0], expected[expected > 0])


def test_the_tensorflow_grid_gives_what_its_op_gives():
    """Right edges and counts of the buckets with a count, from TensorFlow 2.21's HistogramSummary.

    The values are chosen at the grid's ends, at edges, around zero, and twice in one bucket.
    """
    values = [0.0, 1.0, -1.0, 1.1, 1e-12, -1e-12, 5e-13, 3.14, -2.5e10, 1e19, 1e20, -3e25]
    values += [0.05, 0.05, 0.0500001, 7, 7, 7, -0.3, 2**-20]
    expected = {
        -9.920775621859783e19: 1,
        -24742448250.524574: 1,
        -0.917246389039776: 1,
        -0.29226296698161564: 1,
        0.0: 1,
        1e-12: 2,
        1.1000000000000002e-12: 1,
        1.0044754989265568e-06: 1,
        0.052566063576589855: 3,
        1.0089710279437536: 1,
        1.109868130738129: 1,
        3.1665833053880363: 1,
        7.466637793298873: 3,
        1.0072126775812549e19: 1,
        1.7976931348623157e308: 1,
    }
    histogram = measure(np.array(values), "tf")
    filled = histogram.counts > 0
    assert dict(zip(histogram.limits[filled], histogram.counts[filled], strict=True)) == expected
    assert histogram.sum == pytest.approx(-2.9999890000000026e25)
    assert histogram.sum_squares == pytest.approx(9.000000000101e50)


def test_a_bucket_is_an_eighth_of_an_octave():
    histogram = measure(np.array([1.0, 1.1, 1.125, 1.9, -1.0, -1.1], np.float32))
    np.testing.assert_array_equal(histogram.limits, [-1, 1, 1.125, 1.25, 1.875, 2])
    np.testing.assert_array_equal(histogram.counts, [2, 0, 2, 1, 0, 1])


def test_p066_huge_values_are_not_lost():
    for buckets in GRIDS:
        histogram = measure(np.array([1e25, -1e25, 0]), buckets)
        assert (histogram.num, histogram.counts.sum()) == (3, 3)


def test_p099_moments():
    histogram = measure(np.array([1.0, 2.0, 3.0], np.float32))
    assert (histogram.num, histogram.sum, histogram.min, histogram.max) == (3, 6, 1, 3)
    assert histogram.sum_squares == 14
    assert histogram.norm == math.sqrt(14)


@pytest.mark.parametrize(
    ("values", "norm"),
    [([3, np.nan, np.inf], math.nan), ([3, -np.inf, np.inf], math.inf), ([3, 4], 5), ([], 0)],
)
def test_the_norm_is_of_all_values(values, norm):
    values = np.array(values, np.float32)
    assert measure(values).norm == pytest.approx(norm, nan_ok=True)
    assert math.sqrt(sum_squares(values)) == pytest.approx(norm, nan_ok=True)


def test_arrays_of_any_layout_are_counted_whole():
    values = np.random.default_rng(0).normal(size=(300, 400)).astype(np.float32)
    whole = measure(values)
    others = [np.asfortranarray(values), values.astype(np.longdouble), values.astype(">f4")]
    for view in (values.T, values[::-1], *others):
        other = measure(view)
        assert other.num == whole.num
        assert (other.min, other.max) == (whole.min, whole.max)
        assert_sound(other, np.asarray(view, np.float64))
    assert measure(values[:, ::7]).num == values[:, ::7].size


def test_an_unknown_grid_is_refused():
    with pytest.raises(ValueError, match="'fast', 'tf' or an integer of at least 2, not 'auto'"):
        measure(np.ones(3), "auto")


@pytest.mark.parametrize(
    ("buckets", "same"), [(np.int64(5), 5), (2**70, "fast"), (np.uint64(2**63), "fast")]
)
@pytest.mark.parametrize("size", [10, 100_000])  # by NumPy, and by Numba where it is installed
def test_any_whole_number_of_buckets_is_taken(buckets, same, size):
    values = np.random.default_rng(0).normal(size=size)
    found, expected = measure(values, buckets), measure(values, same)
    np.testing.assert_array_equal(found.limits, expected.limits)
    np.testing.assert_array_equal(found.counts, expected.counts)


@pytest.mark.parametrize("buckets", [True, 1, 0, -3, 2.5, "tensorflow", None])
def test_what_is_no_grid_is_refused(buckets):
    with pytest.raises(ValueError, match=f"at least 2, not {buckets!r}"):
        measure(np.ones(3), buckets)


@given(values=ARRAYS, most=st.integers(2, 40))
def test_neighbours_are_merged_down_to_a_number(values, most):
    if values.dtype.kind == "f":
        values = with_plain_nans(values)
    merged = measure(values, most)
    assert merged.counts.size <= most
    assert_sound(merged, values)


@pytest.mark.parametrize("buckets", [*GRIDS, 12])
@pytest.mark.parametrize("dtype", [*FLOATS, "bfloat16", "longdouble"])
def test_a_scale_is_a_product_in_the_arrays_dtype(dtype, buckets):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    values = np.random.default_rng(5).normal(size=(70_000,)).astype(dtype)
    scale = np.float32(1 / 3)
    scaled, product = (
        measure(values, buckets, scale),
        measure(values * values.dtype.type(scale), buckets),
    )
    np.testing.assert_array_equal(scaled.limits, product.limits)
    np.testing.assert_array_equal(scaled.counts, product.counts)
    assert (scaled.min, scaled.max, scaled.sum) == (product.min, product.max, product.sum)


def test_bfloat16_is_counted_as_the_float32_that_it_is():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    values = np.random.default_rng(6).normal(size=1000).astype(bfloat16)
    assert bit_layout(values.dtype) == bit_layout(np.float32)
    one, other = measure(values), measure(values.astype(np.float32))
    np.testing.assert_array_equal(one.counts, other.counts)
    assert (one.sum, one.sum_squares) == (other.sum, other.sum_squares)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_layout_names_buckets_by_the_top_bits(dtype):
    """What a counter elsewhere goes by: the index of a value, and where infinity and NaN are."""
    layout = bit_layout(dtype)
    values = np.array([0.0, 1.0, -0.0, -1.0, np.inf, np.nan, -np.inf], dtype)
    indices = (values.view(layout.bits) >> layout.shift).astype(int)
    half = layout.buckets // 2
    assert indices[0] == 0
    assert indices[2] == half
    assert indices[3] - half == indices[1]
    assert (indices[4:6] >= half - 8).all()
    assert (indices[4:6] < half).all()
    assert indices[6] == layout.buckets - 8


# -- compiled loops -------------------------------------------------------------------------------


@pytest.fixture
def plain_loops(monkeypatch):
    """Count by the loops as Python functions, which they are before Numba compiles them."""

    def use(wanted):
        loops = _loops.Loops(_loops.tally, _loops.count, _loops.collapse)
        monkeypatch.setattr(_loops, "loops", lambda size: loops if wanted else None)

    return use


@pytest.mark.parametrize("scale", [None, np.float32(0.7)])
@pytest.mark.parametrize("size", [1, 127, 128, 129, 500])
@pytest.mark.parametrize("dtype", [*FLOATS, "int8", "int64"])
def test_the_loops_count_as_the_tiles_do(dtype, size, scale, plain_loops):
    if scale is not None and dtype.startswith("int"):
        scale = 2
    values = (np.random.default_rng(size).normal(size=size) * 50).astype(dtype)
    plain_loops(False)
    tiles = measure(values, scale=scale)
    plain_loops(True)
    with np.errstate(over="ignore"):  # bits, seen as floats
        loops = measure(values, scale=scale)
    np.testing.assert_array_equal(loops.limits, tiles.limits)
    np.testing.assert_array_equal(loops.counts, tiles.counts)
    assert (loops.min, loops.max, loops.num) == (tiles.min, tiles.max, size)
    assert loops.sum == pytest.approx(tiles.sum, rel=1e-13, abs=1e-10)
    assert loops.sum_squares == pytest.approx(tiles.sum_squares, rel=1e-13)


@pytest.mark.parametrize("buckets", ["fast", 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_the_loops_leave_is_done_by_tiles(dtype, buckets, plain_loops):
    """Values that are not finite, buckets to merge, strides, nothing at all."""
    plain_loops(True)
    values = np.arange(-20, 20, dtype=dtype) ** 3
    odd = values.copy()
    odd[5:8] = [np.nan, np.inf, -np.inf]
    with np.errstate(over="ignore", invalid="ignore"):
        for array in (values, odd, values[::3], values[:0], values.reshape(4, 10).T):
            assert_sound(measure(array, buckets), array)
        assert measure(odd, buckets).counts.size <= (3 if buckets == 3 else 100)


def test_the_loops_tell_how_many_buckets_do_not_fit():
    values = np.array([-3.0, 1, 2, 4, 8], np.float32)
    counts = np.bincount(values.view(np.uint32) >> 20, minlength=4096)
    edges = histogram._edges(bit_layout(np.float32))
    limits, numbers = np.full((2, 4), 7.0)
    assert _loops.collapse(counts, edges, limits, numbers) == 9  # five, and the empty runs between
    np.testing.assert_array_equal(numbers, [1, 0, 1, 7])  # written as far as there is room


def test_compiled_loops_count_the_same(monkeypatch):
    pytest.importorskip("numba")
    values = np.random.default_rng(7).normal(size=30_000).astype(np.float32)
    odd = np.append(values, [np.nan, np.inf]).astype(np.float32)
    compiled = [measure(values, scale=np.float32(0.3)), measure(odd)]
    monkeypatch.setattr(_loops, "available", lambda: False)
    plain = [measure(values, scale=np.float32(0.3)), measure(odd)]
    for one, other in zip(compiled, plain, strict=True):
        np.testing.assert_array_equal(one.limits, other.limits)
        np.testing.assert_array_equal(one.counts, other.counts)
        assert (one.min, one.max, one.nan, one.inf) == (other.min, other.max, other.nan, other.inf)
        assert one.sum == pytest.approx(other.sum, rel=1e-12, abs=1e-9)


@pytest.fixture
def numba(monkeypatch):
    """A stand-in for Numba's modules, and compiling anew."""
    package, extending = types.ModuleType("numba"), types.ModuleType("numba.extending")
    extending.register_jitable = lambda function: function
    monkeypatch.setitem(sys.modules, "numba", package)
    monkeypatch.setitem(sys.modules, "numba.extending", extending)
    monkeypatch.setattr(_loops, "available", lambda: True)
    _loops._compiled.cache_clear()
    yield package
    _loops._compiled.cache_clear()


def test_without_a_folder_to_keep_it_in_it_is_compiled_each_time(numba):
    def njit(cache=False, **options):
        def compile_one(function):
            if cache:
                raise RuntimeError("cannot cache function: no locator available")
            return function

        return compile_one

    numba.njit = njit
    assert _loops.loops(1 << 20) == (_loops.tally, _loops.count, _loops.collapse)


def test_a_numba_that_cannot_be_imported_is_done_without(numba):
    """It is installed, say, and refuses this NumPy."""
    assert _loops.loops(1 << 20) is None
    assert measure(np.ones(20_000)).num == 20_000


def test_a_small_array_does_not_bring_in_numba(monkeypatch):
    monkeypatch.setattr(_loops, "available", lambda: pytest.fail("Numba was looked for"))
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    assert measure(np.ones(100)).num == 100


# -- arrays that live elsewhere -------------------------------------------------------------------


class Elsewhere:
    """An array that only its own library can count."""

    def __init__(self, values):
        self.values = values
        self.dtype = values.dtype

    def __mul__(self, scale):
        return Elsewhere(self.values * scale)

    def get(self):
        return self.values


def count_elsewhere(array):
    values = array.values
    layout = bit_layout(values.dtype)
    indices = (values.view(layout.bits) >> layout.shift).astype(np.int64)
    finite = values[np.isfinite(values)].astype(np.float64)
    counts = np.bincount(indices, minlength=layout.buckets)
    counts.flags.writeable = False
    lost = values.size - finite.size
    return counts, lost, finite.min(), finite.max(), finite.sum(), np.square(finite).sum()


@pytest.fixture
def elsewhere(monkeypatch):
    monkeypatch.setattr(histogram, "_COUNTERS", [])
    register_counter(lambda value: isinstance(value, Elsewhere), count_elsewhere)
    return Elsewhere


def test_a_registered_counter_counts_its_arrays(elsewhere):
    values = np.random.default_rng(8).normal(size=999).astype(np.float32)
    values[:3] = [np.nan, np.inf, -np.inf]
    for scale in (None, np.float32(0.5)):
        there, here = measure(elsewhere(values), scale=scale), measure(values, scale=scale)
        np.testing.assert_array_equal(there.limits, here.limits)
        np.testing.assert_array_equal(there.counts, here.counts)
        assert (there.min, there.max, there.num) == (here.min, here.max, here.num)
        assert (there.nan, there.inf) == (here.nan, here.inf) == (1, 2)
    exact = np.arange(9, dtype=np.float32)
    assert encode_histogram("h", elsewhere(exact)) == encode_histogram("h", exact)


def test_tensorflows_grid_brings_such_an_array_over(elsewhere):
    values = np.random.default_rng(9).normal(size=99).astype(np.float32)
    there, here = measure(elsewhere(values), "tf"), measure(values, "tf")
    np.testing.assert_array_equal(there.counts, here.counts)


def test_the_newest_counter_comes_first(elsewhere):
    def other(array):
        layout = bit_layout(array.dtype)
        return np.zeros(layout.buckets), 0, np.inf, -np.inf, 0.0, 0.0

    register_counter(lambda value: isinstance(value, Elsewhere), other)
    assert measure(elsewhere(np.ones(3, np.float32))).num == 0


def test_p067_time_and_size_are_bounded():
    rng = np.random.default_rng(1)
    signs = rng.choice([-1, 1], 1_000_000)
    values = (signs * 10.0 ** rng.uniform(-45, 38, 1_000_000)).astype(np.float32)
    assert (np.abs(values) < np.finfo(np.float32).tiny).any(), "denormals are among them"
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        histogram = measure(values)
        seconds.append(time.perf_counter() - start)
    assert histogram.num == 1_000_000
    assert histogram.counts.size <= 1600
    assert min(seconds) < 0.050


def test_no_copy_of_a_large_array_is_made():
    values = np.ones(2_000_000, np.float32)
    measure(values)  # loops are compiled at the first call
    tracemalloc.start()
    try:
        measure(values)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < values.nbytes / 2


@pytest.mark.parametrize("buckets", GRIDS)
def test_no_numpy_warning_escapes(buckets):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measure(np.array([1.7e308, 1.7e308, -np.inf, np.nan]), buckets)
        measure(np.array([np.finfo(np.longdouble).max, 1], np.longdouble), buckets)
