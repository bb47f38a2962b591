import math
import time
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from summaries.histogram import GRIDS, MAX_BUCKETS, measure, sum_squares

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
