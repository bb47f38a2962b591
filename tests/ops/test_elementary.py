"""Elementary functions where they are delicate: large and tiny arguments, roots of nothing."""

import math

import numpy as np
import pytest

from optkit.gradients import gradients
from optkit.ops import elementary as ops
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.runtime.session import Session


def value_and_gradient(function, x, dtype):
    tensor = constant(x, dtype)
    y = function(tensor)
    return Session().run([y, gradients(y, tensor)[0]])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("function", "values", "slopes"),
    [
        (ops.sigmoid, [0.0, 0.5, 1.0], [0.0, 0.25, 0.0]),
        (ops.tanh, [-1.0, 0.0, 1.0], [0.0, 1.0, 0.0]),
        (ops.erf, [-1.0, 0.0, 1.0], [0.0, 2 / math.sqrt(math.pi), 0.0]),
        (ops.erfc, [2.0, 1.0, 0.0], [0.0, -2 / math.sqrt(math.pi), 0.0]),
        (ops.atan, [-math.pi / 2, 0.0, math.pi / 2], [0.0, 1.0, 0.0]),
        (ops.softplus, [0.0, math.log(2), 1e4], [0.0, 0.5, 1.0]),
        (ops.log_sigmoid, [-1e4, -math.log(2), 0.0], [1.0, 0.5, 0.0]),
        (ops.asinh, [-math.asinh(1e4), 0.0, math.asinh(1e4)], [1e-4, 1.0, 1e-4]),
    ],
)
def test_large_arguments_give_limits_and_finite_gradients(function, values, slopes, dtype):
    found, dx = value_and_gradient(function, [-1e4, 0.0, 1e4], dtype)
    eps = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(found, values, rtol=4 * eps, atol=2e-4)
    np.testing.assert_allclose(dx, slopes, rtol=64 * eps, atol=2e-4)
    assert found.dtype == dx.dtype == dtype


def test_small_sigmoids_keep_their_digits():
    found, dx = value_and_gradient(ops.sigmoid, [-80.0, -30.0], "float32")
    np.testing.assert_allclose(found, np.exp([-80.0, -30.0]), rtol=1e-5)
    np.testing.assert_allclose(dx, np.exp([-80.0, -30.0]), rtol=1e-5)


def test_small_sigmoids_of_float16():
    found, _ = value_and_gradient(ops.sigmoid, [-12.0], "float16")
    np.testing.assert_allclose(found, [6.144e-06], rtol=0.01)


def test_the_slope_of_asinh_of_huge_arguments():
    _, slopes = value_and_gradient(ops.asinh, [-1e30, 1e30], "float32")
    np.testing.assert_allclose(slopes, [1e-30, 1e-30], rtol=1e-5)


def test_small_softplus_keeps_its_digits():
    found, _ = value_and_gradient(ops.softplus, [-80.0, -30.0], "float32")
    np.testing.assert_allclose(found, np.exp([-80.0, -30.0]), rtol=1e-5)


@pytest.mark.parametrize(
    ("function", "x", "value", "slope"),
    [
        (ops.sqrt, 0.0, 0.0, math.inf),
        (ops.sqrt, -1.0, math.nan, math.nan),
        (ops.rsqrt, 0.0, math.inf, -math.inf),
        (ops.reciprocal, 0.0, math.inf, -math.inf),
        (ops.log, 0.0, -math.inf, math.inf),
        (ops.log, -1.0, math.nan, -1.0),
        (ops.log1p, -1.0, -math.inf, math.inf),
        (ops.asin, 2.0, math.nan, math.nan),
        (ops.acosh, 0.5, math.nan, math.nan),
        (ops.exp, 1e4, math.inf, math.inf),
        (ops.sigmoid, math.nan, math.nan, math.nan),
    ],
)
def test_outside_the_domain(function, x, value, slope):
    np.testing.assert_array_equal(value_and_gradient(function, x, "float32"), [value, slope])


def test_rounding_has_no_gradient():
    x = constant([0.5, 1.5])
    for function in (ops.floor, ops.ceil, ops.rint, ops.round):
        assert gradients(function(x), x) == [None]


def test_floats_only():
    for function in (ops.exp, ops.sqrt, ops.sin, ops.sigmoid, ops.floor):
        with pytest.raises(TypeError, match=f"{function.type_name} .*: expected one of .* int32"):
            function(constant(1))


@pytest.mark.parametrize("function", [ops.exp, ops.softplus, ops.log_sigmoid])
def test_names_may_be_positional(function):
    assert function(constant(1.0), "mine").op.name == "mine"


def test_the_angle_of_a_point():
    y, x = placeholder("float64", [4]), placeholder("float64", [4])
    feed = {y: [1.0, 1.0, -1.0, -1.0], x: [1.0, -1.0, -1.0, 1.0]}
    angles = Session().run(ops.atan2(y, x), feed)
    np.testing.assert_allclose(angles, np.array([0.25, 0.75, -0.75, -0.25]) * math.pi)
