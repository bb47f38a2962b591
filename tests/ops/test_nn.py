"""Activations, biases, norms, dropout: special values, arguments, errors."""

import math

import numpy as np
import pytest

from optkit.gradients import gradients
from optkit.ops import nn as ops
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.ops.softmax import log_softmax, softmax
from optkit.runtime.session import Session
from tests.gradcheck import check_gradients


def run(fetches, feed=None):
    return Session().run(fetches, feed)


def gradient(y, x):
    return run(gradients(y, x)[0])


# -- activations ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("function", "values", "slopes"),
    [
        (ops.relu, [0.0, 0.0, 1e4], [0.0, 0.0, 1.0]),
        (ops.relu6, [0.0, 0.0, 6.0], [0.0, 0.0, 0.0]),
        (ops.leaky_relu, [-2e3, 0.0, 1e4], [0.2, 0.2, 1.0]),
        (ops.elu, [-1.0, 0.0, 1e4], [0.0, 1.0, 1.0]),
        (ops.selu, [-1.7580993, 0.0, 10507.01], [0.0, 1.050701, 1.050701]),
        (ops.softsign, [-1.0, 0.0, 1.0], [1e-8, 1.0, 1e-8]),
    ],
)
def test_large_arguments(function, values, slopes, dtype):
    x = constant([-1e4, 0.0, 1e4], dtype)
    y = function(x)
    found, dx = run([y, gradients(y, x)[0]])
    np.testing.assert_allclose(found, values, rtol=2e-3 if dtype == "float16" else 1e-4, atol=1e-4)
    np.testing.assert_allclose(dx, slopes, rtol=2e-3 if dtype == "float16" else 1e-6, atol=1e-6)


def test_second_derivatives_at_the_kinks_are_finite():
    x = constant([0.0, 6.0, -1.0, 2.0])
    for function in (ops.relu, ops.relu6, ops.leaky_relu, ops.elu, ops.selu, ops.softsign):
        (dx,) = gradients(function(x) ** 2, x)
        assert np.isfinite(gradient(dx, x)).all()


def test_a_relu_keeps_nan():
    x = constant([math.nan, -1.0])
    np.testing.assert_array_equal(run(ops.relu(x)), [math.nan, 0.0])


def test_an_infinite_gradient_does_not_pass_a_closed_relu():
    x = constant([-1.0, 1.0])
    for function in (ops.relu, ops.relu6):
        (dx,) = gradients(function(x), x, [[math.inf, math.inf]])
        assert run(dx).tolist() == [0.0, math.inf]


def test_the_slope_of_a_leaky_relu():
    x = constant([-2.0, 2.0])
    assert run(ops.leaky_relu(x, 0.5)).tolist() == [-1.0, 2.0]
    assert run(ops.leaky_relu(constant([-2, 2]), alpha=0.5)).tolist() == [-1.0, 2.0]
    assert ops.leaky_relu(x, name="leak").op.name == "leak"


# -- softmax --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_softmax_of_large_logits(dtype):
    x = constant([[1e4, -1e4, 1e4], [-1e4, -1e4, -1e4]], dtype)
    for function, expected in (
        (softmax, [[0.5, 0.0, 0.5], [1 / 3] * 3]),
        (log_softmax, [[-math.log(2), -2e4, -math.log(2)], [-math.log(3)] * 3]),
    ):
        y = function(x)
        np.testing.assert_allclose(run(y), expected, rtol=1e-3)
        assert np.isfinite(gradient(y * constant(np.arange(3.0), dtype), x)).all()


def test_the_axis_of_softmax():
    x = constant(np.random.default_rng(0).standard_normal((2, 3)))
    np.testing.assert_allclose(run(softmax(x, 0)).sum(0), 1.0)
    np.testing.assert_allclose(run(softmax(x)).sum(1), 1.0)
    np.testing.assert_array_equal(run(softmax(x, dim=0)), run(softmax(x, axis=0)))
    with pytest.raises(ValueError, match="axis and its old name dim were both given"):
        log_softmax(x, 0, dim=0)
    with pytest.raises(ValueError, match=r"axis: expected one in \[-2, 2\), got 2"):
        softmax(x, 2)
    with pytest.raises(ValueError, match="logits: expected at least one axis"):
        softmax(constant(1.0))


# -- biases ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "bias", "data_format", "message"),
    [
        ([2, 3], [2], None, r"BiasAdd: bias: expected 3 values, one a channel, got .*\(2,\)"),
        ([2, 3, 4, 4], [4], "NCHW", "bias: expected 3 values"),
        ([3], [3], None, "value: expected at least two axes"),
        ([2, 3], [1, 3], None, "bias: expected one axis"),
        ([2, 3], [3], "HWCN", "data_format: expected one of NHWC, NCHW, .*got 'HWCN'"),
    ],
)
def test_biases_that_do_not_fit_are_refused(value, bias, data_format, message):
    with pytest.raises(ValueError, match=message):
        ops.bias_add(constant(np.ones(value)), constant(np.ones(bias)), data_format)


def test_the_gradient_of_a_bias_of_float16_is_added_up_in_float32():
    value, bias = constant(np.ones((4096, 3)), "float16"), constant(np.ones(3), "float16")
    # One by one, ones stop at 2048 in float16.
    assert gradient(ops.bias_add(value, bias), bias).tolist() == [4096.0] * 3


def test_xw_plus_b():
    x, w, b = np.ones((2, 3)), np.ones((3, 4)), np.arange(4.0)
    y = ops.xw_plus_b(constant(x), constant(w), constant(b))
    assert y.op.name == "xw_plus_b"
    np.testing.assert_array_equal(run(y), x @ w + b)
    check_gradients(ops.xw_plus_b, [x, w, b], order=2)


# -- norms and moments ----------------------------------------------------------------------------


def test_l2_loss():
    x = constant([[1.0, 2.0], [3.0, 4.0]])
    y = ops.l2_loss(x)
    assert run(y) == 15.0
    assert y.op.name == "L2Loss"
    assert ops.l2_loss(x, name="half").op.name == "half"
    # 300² is beyond float16, half of it is not.
    assert run(ops.l2_loss(constant([300.0], "float16"))) == 45000.0
    with pytest.raises(TypeError, match=r"L2Loss 'L2Loss': t: expected one of .*int32"):
        ops.l2_loss(constant(1))


def test_l2_normalize():
    x = np.random.default_rng(0).standard_normal((2, 3))
    for axis in (None, 0, 1, [0, 1]):
        y = run(ops.l2_normalize(constant(x), axis))
        norm = np.sqrt(np.sum(x**2, axis=tuple(axis) if axis == [0, 1] else axis, keepdims=True))
        np.testing.assert_allclose(y, x / norm, rtol=1e-12)
        check_gradients(lambda t, axis=axis: ops.l2_normalize(t, axis), [x], order=2)
    np.testing.assert_array_equal(
        run(ops.l2_normalize(constant(x), dim=0)), run(ops.l2_normalize(constant(x), axis=0))
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_normalizing_zeros_gives_zeros(dtype):
    x = constant(np.zeros(3), dtype)
    y = ops.l2_normalize(x)
    assert y.dtype == dtype
    assert run(y).tolist() == [0.0] * 3
    slopes = gradient(y, x)
    assert not np.isnan(slopes).any()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_moments(dtype):
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(dtype)
    for axes, keepdims in (([0], False), ([0, 1], True), ([1], True)):
        mean, variance = ops.moments(constant(x), axes, keep_dims=keepdims)
        wide = x.astype("float64")
        options = {"axis": tuple(axes), "keepdims": keepdims}
        for moment, reference in ((mean, np.mean), (variance, np.var)):
            assert moment.dtype == dtype
            rtol = 4 * float(np.finfo(dtype).eps)
            np.testing.assert_allclose(
                run(moment), reference(wide, **options), rtol=rtol, atol=rtol
            )
    check_gradients(lambda t: ops.moments(t, [0]), [x.astype("float64")], order=2)


def test_moments_of_float16_are_computed_in_float32():
    # The mean 2049 is no float16.
    mean, variance = run(ops.moments(constant([2048.0, 2050.0], "float16"), [0]))
    assert mean in (2048.0, 2050.0)
    assert variance == 1.0


def test_zero_fraction():
    assert run(ops.zero_fraction(constant([0.0, 1.0, 0.0, 2.0]))) == 0.5
    assert run(ops.zero_fraction(constant([0, 1, 1, 2]))) == 0.25
    assert ops.zero_fraction(constant([0.0])).dtype == "float32"


# -- dropout --------------------------------------------------------------------------------------


def test_dropout_drops_the_rate_and_scales_the_rest():
    x = constant(np.ones((100, 100)), "float32")
    for arguments in ({"rate": 0.25}, {"keep_prob": 0.75}):
        y = run(ops.dropout(x, seed=1, **arguments))
        kept = y != 0
        assert kept.mean() == pytest.approx(0.75, abs=0.02)
        np.testing.assert_allclose(y[kept], 1 / 0.75, rtol=1e-6)


def test_dropout_is_the_same_in_the_gradient():
    x = constant(np.ones((50,)), "float64")
    y = ops.dropout(x, rate=0.5, seed=1)
    (dx,) = gradients(y, x)
    value, slopes = run([y, dx])
    np.testing.assert_array_equal(value, slopes)
    assert {0.0, 2.0} == set(value)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_dropout_with_a_tensor_for_a_rate(dtype):
    x = constant(np.ones(1000), dtype)
    rate = placeholder("float32", [])
    y = ops.dropout(x, rate=rate, seed=1)
    assert y.dtype == dtype
    assert run(y, {rate: 0.0}).tolist() == [1.0] * 1000
    value = run(y, {rate: 0.5})
    assert 0.4 < np.mean(value == 0) < 0.6
    assert set(value) == {0.0, 2.0}
    old = ops.dropout(x, keep_prob=1 - rate, seed=1)
    np.testing.assert_array_equal(run(old, {rate: 0.5}), value)


def test_what_is_rarely_kept_of_float16_is_not_lost():
    # The nearest float16 to the rate is 1.
    kept = run(ops.dropout(constant(np.ones(100000), "float16"), rate=0.9998, seed=3))
    assert 5 <= np.sum(kept == np.float16(5000)) <= 40
    assert set(kept) == {0.0, 5000.0}


def test_the_shape_of_the_choices():
    x = placeholder("float32", [None, 5])
    for noise_shape in ([4, 1], [None, 1], constant([4, 1])):
        y = ops.dropout(x, rate=0.5, noise_shape=noise_shape, seed=2)
        assert y.shape.as_list() in ([None, 5], [4, 5])
        value = run(y, {x: np.ones((4, 5))})
        assert (value == value[:, :1]).all()
    fixed = ops.dropout(constant(np.ones((6, 5))), rate=0.5, noise_shape=[None, 1], seed=2)
    value = run(fixed)
    assert (value == value[:, :1]).all()
    assert len(set(value[:, 0])) == 2


def test_no_dropout_is_the_tensor():
    x = constant([1.0])
    assert ops.dropout(x, rate=0) is x
    assert ops.dropout(x, 1.0) is x


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "rate: expected a number or a scalar tensor, got None"),
        ({"rate": 0.5, "keep_prob": 0.5}, "rate, keep_prob: expected one number"),
        ({"rate": 1.0}, r"rate: expected a number in \[0, 1\), got 1\.0"),
        ({"rate": -0.1}, r"rate: expected a number in \[0, 1\)"),
        ({"keep_prob": 0.0}, r"rate: expected a number in \[0, 1\)"),
        ({"keep_prob": "all"}, "expected one number"),
    ],
)
def test_bad_rates_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ops.dropout(constant([1.0]), **arguments)


def test_dropout_wants_floats():
    with pytest.raises(ValueError, match=r"x: expected floats, got .*int32"):
        ops.dropout(constant([1]), rate=0.5)


def test_crelu_joins_both_halves():
    x = constant([[1.0, -2.0], [-3.0, 4.0]])
    np.testing.assert_array_equal(Session().run(ops.crelu(x)), [[1, 0, 0, 2], [0, 4, 3, 0]])
    assert ops.crelu(x, axis=0).shape == [4, 2]
