"""Functions that NumPy lacks."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from optkit.backend.special import erf, erfc, kept, power, repeated, wide_dtype

# Abramowitz and Stegun, Handbook of Mathematical Functions, table 7.1.
ERF = {0.0: 0.0, 0.5: 0.5204998778, 1.0: 0.8427007929, 1.5: 0.9661051465, 2.0: 0.9953222650}


def test_erf_is_the_table():
    x = np.array(list(ERF))
    np.testing.assert_allclose(erf(np, x), list(ERF.values()), rtol=0, atol=5e-11)
    np.testing.assert_allclose(erf(np, -x), [-y for y in ERF.values()], rtol=0, atol=5e-11)


def test_erfc_keeps_its_digits_where_erf_is_one():
    # erfc(x) ~ exp(-x²)/(x·√π)·(1 - 1/2x²) for large x.
    x = 20.0
    expected = math.exp(-(x**2)) / (x * math.sqrt(math.pi)) * (1 - 1 / (2 * x**2))
    np.testing.assert_allclose(erfc(np, np.array([x])), [expected], rtol=1e-5)
    assert erf(np, np.array(x)) == 1.0


@pytest.mark.parametrize("function", [erf, erfc])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_dtype_and_shape_are_kept(function, dtype, shape):
    result = function(np, np.ones(shape, dtype))
    assert result.dtype == dtype
    assert result.shape == shape


def test_special_values():
    x = np.array([math.inf, -math.inf, math.nan])
    np.testing.assert_array_equal(erf(np, x), [1.0, -1.0, math.nan])
    np.testing.assert_array_equal(erfc(np, x), [0.0, 2.0, math.nan])


@pytest.mark.parametrize("exponent", [-1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0])
def test_power_of_one_exponent_is_that_of_many(exponent):
    x = np.array([0.5, 1.5, 2.5])
    many = np.full(3, exponent)
    np.testing.assert_allclose(power(np, x, np.array(exponent)), power(np, x, many), rtol=1e-15)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3])
def test_power_keeps_the_dtype(exponent):
    for dtype in ("float16", "float32", "int8", "int32"):
        assert power(np, np.ones(3, dtype), np.array(exponent, dtype)).dtype == dtype


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [
        ("float16", "float32"),
        ("float32", "float32"),
        ("float64", "float64"),
        ("int16", "int16"),
        ("int8", "int8"),
    ],
)
def test_what_sums_are_made_in(dtype, wide):
    assert wide_dtype(np.dtype(dtype)) == wide


@pytest.mark.parametrize(
    ("small", "shape"),
    [
        ((), ()),
        ((), (2, 3)),
        ((), (0, 3)),
        ((), (5000, 3)),
        ((3,), (100, 3)),
        ((1, 3), (5000, 3)),
        ((2, 1), (2, 3)),
    ],
)
def test_repeating(small, shape):
    x = np.arange(np.prod(small), dtype="float32").reshape(small)
    result = repeated(np, x, shape)
    assert result.dtype == "float32"
    np.testing.assert_array_equal(result, np.broadcast_to(x, shape))
    assert np.shares_memory(result, x) == (result.size > 4096)


@given(
    st.sampled_from(["float16", "float32", "float64", "int32", "int64"]),
    hnp.array_shapes(max_dims=2, max_side=5),
    st.integers(0, 2**32 - 1),
)
def test_kept_is_where_with_zero(dtype, shape, seed):
    rng = np.random.default_rng(seed)
    x = rng.choice([-2.0, -0.0, 0.0, 3.0, np.nan, np.inf, -np.inf], shape)
    if dtype.startswith("int"):
        x = np.nan_to_num(x, posinf=7, neginf=-7)
    x = x.astype(dtype)
    keep = rng.random(shape) < 0.5
    expected = np.where(keep, x, np.zeros((), dtype))
    for found in (kept(np, x, keep), kept(np, x, keep, np.full_like(x, 9))):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_kept_broadcasts_and_leaves_its_inputs():
    x, keep = np.float32([[1], [-2]]), np.array([True, False, True])
    np.testing.assert_array_equal(kept(np, x, keep), [[1, 0, 1], [-2, 0, -2]])
    np.testing.assert_array_equal(keep, [True, False, True])
    np.testing.assert_array_equal(kept(np, x[:, 0], np.array(True)), [1, -2])
