"""Depthwise and separable convolutions: every setting against loops, arguments, errors."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from optkit.errors import InvalidArgumentError
from optkit.gradients import gradients
from optkit.graph import Graph
from optkit.ops import depthwise as ops
from optkit.ops import windows
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.runtime.session import Session
from tests.gradcheck import check_gradients
from tests.ops import images


def run(fetches, feed=None):
    return Session().run(fetches, feed)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def assert_as_reference(x, w, **settings):
    """The convolution and both its gradients are those of the loops."""
    with Graph().as_default():
        xs, ws = constant(x), constant(w)
        y = ops.depthwise_conv2d_native(xs, ws, **settings)
        expected = images.depthwise(x, w, **settings)
        dy = normal(*expected.shape, seed=1)
        value, dx, dw = run([y, *gradients(y, [xs, ws], dy)])
    assert y.shape == value.shape
    np.testing.assert_allclose(value, expected, rtol=0, atol=1e-10)
    expected = images.depthwise_input(x.shape, w, dy, **settings)
    np.testing.assert_allclose(dx, expected, rtol=0, atol=1e-10)
    expected = images.depthwise_filter(x, w.shape, dy, **settings)
    np.testing.assert_allclose(dw, expected, rtol=0, atol=1e-10)


@given(
    sizes=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    window=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    channels=st.integers(1, 3),
    many=st.integers(1, 3),
    count=st.integers(0, 3),
    strides=st.integers(1, 3),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    padding=st.sampled_from(["SAME", "VALID"]),
    data_format=st.sampled_from(["NHWC", "NCHW"]),
)
def test_every_setting(
    sizes, window, channels, many, count, strides, dilations, padding, data_format
):
    reach = [(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)]
    assume(padding == "SAME" or (reach[0] <= sizes[0] and reach[1] <= sizes[1]))
    x = images.in_format(normal(count, *sizes, channels), data_format)
    w = normal(*window, channels, many, seed=2)
    assert_as_reference(
        x, w, strides=strides, padding=padding, data_format=data_format, dilations=dilations
    )


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("limit", [1, 500, 10**9])
def test_any_number_of_images_at_a_time_gives_the_same(monkeypatch, data_format, limit):
    monkeypatch.setattr(windows, "_PART", limit)
    x = images.in_format(normal(5, 4, 3, 2), data_format)
    w = normal(3, 2, 2, 2, seed=2)
    assert_as_reference(x, w, strides=1, padding="SAME", data_format=data_format)


def test_float16_is_added_up_in_float32():
    x = constant(np.ones((1, 64, 64, 1), "float16"))
    whole = constant(np.ones((64, 64, 1, 1), "float16"))
    one = constant(np.ones((1, 1, 1, 1), "float16"))
    y = ops.depthwise_conv2d_native(x, whole, 1, "VALID")
    (dw,) = gradients(ops.depthwise_conv2d_native(x, one, 1, "SAME"), one)
    (dx,) = gradients(ops.depthwise_conv2d_native(x, whole, 1, "SAME"), x)
    found = run([y, dw, dx])
    assert {value.dtype.name for value in found} == {"float16"}
    assert [value.max() for value in found] == [4096, 4096, 4096]


def test_static_shapes():
    x = placeholder("float32", [None, None, 9, 3])
    w = placeholder("float32", [2, 2, None, 4])
    y = ops.depthwise_conv2d(x, w, 2, "SAME")
    assert y.shape.as_list() == [None, None, 5, 12]
    assert gradients(y, x)[0].shape.as_list() == [None, None, 9, 3]
    unknown = ops.depthwise_conv2d(placeholder("float32"), w, [1, 2, 2, 1], "VALID")
    assert unknown.shape.as_list() == [None] * 4


def test_the_rate_is_a_dilation():
    x, w = normal(1, 7, 8, 2), normal(2, 3, 2, 2, seed=1)
    expected = images.depthwise(x, w, 1, "VALID", dilations=(2, 3))
    for settings in ({"rate": [2, 3]}, {"dilations": (2, 3)}):
        y = ops.depthwise_conv2d(x, w, [1, 1, 1, 1], "VALID", **settings)
        np.testing.assert_allclose(run(y), expected, atol=1e-12)


@pytest.mark.parametrize("data_format", [None, "NHWC", "NCHW"])
def test_separable(data_format):
    x, w, p = normal(2, 5, 6, 3), normal(3, 2, 3, 2, seed=1), normal(1, 1, 6, 4, seed=2)
    expected = images.conv2d(images.depthwise(x, w, 2, "SAME", dilations=(1, 2)), p)
    y = ops.separable_conv2d(
        images.in_format(x, data_format), w, p, 2, "SAME", (1, 2), data_format=data_format
    )
    assert y.op.name == "separable_conv2d"
    found = images.channels_last(run(y), data_format)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_separable_has_gradients():
    check_gradients(
        lambda x, w, p: ops.separable_conv2d(x, w, p, 1, "SAME"),
        [normal(1, 3, 3, 2), normal(2, 2, 2, 1), normal(1, 1, 2, 2)],
        order=2,
    )


X = np.ones((1, 4, 5, 3), "float32")
W = np.ones((3, 3, 3, 2), "float32")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.depthwise_conv2d(X, W[:, :, :2], 1, "SAME"), "channels .* got 3 and 2"),
        (lambda: ops.depthwise_conv2d(X[0], W, 1, "SAME"), "input: expected four axes"),
        (lambda: ops.depthwise_conv2d(X, W[0], 1, "SAME"), "filter: expected four axes"),
        (lambda: ops.depthwise_conv2d(X, W, -1, "SAME"), "strides: expected numbers ≥ 1"),
        (lambda: ops.depthwise_conv2d(X, W, 1, "FULL"), "padding: expected 'SAME', 'VALID'"),
        (lambda: ops.depthwise_conv2d(X, W, 1, "SAME", 1, dilations=2), "rate: expected it once"),
        (lambda: ops.depthwise_conv2d(X, None, 1, "SAME"), "filter: expected it once"),
        (lambda: ops.depthwise_conv2d(X, W, 1, "SAME", data_format="HWC"), "one of NHWC, NCHW"),
        (
            lambda: ops.depthwise_conv2d_backprop_input([1, 4, 5, 3], W, X, 1, "SAME"),
            r"out_backprop: expected shape \(1, 4, 5, 6\)",
        ),
        (
            lambda: ops.depthwise_conv2d_backprop_filter(X, [3, 3, 3], X, 1, "SAME"),
            "filter_sizes: expected four axes",
        ),
        (
            lambda: ops.separable_conv2d(X, W, np.ones((2, 1, 6, 1), "f4"), 1, "SAME"),
            "pointwise_filter: expected height and width 1",
        ),
        (
            lambda: ops.separable_conv2d(X, W, np.ones((1, 1, 5, 1), "f4"), 1, "SAME"),
            "channels .* got 6 and 5",
        ),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_bad_values_when_run():
    x, w = placeholder("float32"), placeholder("float32")
    y = ops.depthwise_conv2d(x, w, 1, "VALID", name="layer")
    with pytest.raises(InvalidArgumentError, match=r"(?s)got 3 and 2.*'layer'"):
        run(y, {x: X, w: W[:, :, :2]})
    sizes, dy = placeholder("int32", [4]), placeholder("float32")
    dx = ops.depthwise_conv2d_backprop_input(sizes, w, dy, 1, "SAME")
    with pytest.raises(InvalidArgumentError, match="out_backprop: expected shape"):
        run(dx, {sizes: X.shape, w: W, dy: X})
