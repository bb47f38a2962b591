"""Pooling: every setting against loops, ties, padding, arguments, errors."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from optkit.errors import InvalidArgumentError
from optkit.gradients import gradients
from optkit.graph import Graph
from optkit.ops import pooling as ops
from optkit.ops import windows
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.runtime.session import Session
from tests.ops import images


def run(fetches, feed=None):
    return Session().run(fetches, feed)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def few(*shape, seed=0):
    """Numbers many of which are equal."""
    return np.random.default_rng(seed).integers(-1, 2, shape).astype(np.float64)


def assert_as_reference(x, **settings):
    """Both poolings and their gradients, of both orders, are those of the loops."""
    with Graph().as_default():
        xs = constant(x)
        largest, mean = ops.max_pool(xs, **settings), ops.avg_pool(xs, **settings)
        expected = images.max_pool(x, **settings)
        dy, dz = normal(*expected.shape, seed=1), normal(*x.shape, seed=2)
        dys = constant(dy)
        dx, du = gradients(largest, xs, dys)[0], gradients(mean, xs, dys)[0]
        second = [gradients(each, dys, dz)[0] for each in (dx, du)]
        values = run([largest, mean, dx, du, *second])
    assert largest.shape == mean.shape == values[0].shape
    references = [
        expected,
        images.avg_pool(x, **settings),
        images.max_pool_input(x, dy, **settings),
        images.avg_pool_input(x.shape, dy, **settings),
        images.max_pool_picked(x, dz, **settings),
        images.avg_pool(dz, **settings),
    ]
    for value, reference in zip(values, references, strict=True):
        np.testing.assert_allclose(value, reference, rtol=0, atol=1e-12)


@given(
    sizes=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    ksize=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    channels=st.integers(1, 3),
    count=st.integers(0, 3),
    strides=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    padding=st.sampled_from(["SAME", "VALID"]),
    data_format=st.sampled_from(["NHWC", "NCHW"]),
    values=st.sampled_from([normal, few]),
)
def test_every_setting(sizes, ksize, channels, count, strides, padding, data_format, values):
    assume(padding == "SAME" or (ksize[0] <= sizes[0] and ksize[1] <= sizes[1]))
    x = images.in_format(values(count, *sizes, channels), data_format)
    assert_as_reference(x, ksize=ksize, strides=strides, padding=padding, data_format=data_format)


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("limit", [1, 300, 10**9])
def test_any_number_of_images_at_a_time_gives_the_same(monkeypatch, data_format, limit):
    monkeypatch.setattr(windows, "_PART", limit)
    x = images.in_format(few(5, 4, 5, 2), data_format)
    assert_as_reference(x, ksize=3, strides=2, padding="SAME", data_format=data_format)


# -- the largest ----------------------------------------------------------------------------------


def test_the_first_of_equal_elements_gets_the_gradient():
    x = constant(np.array([[1.0, 3, 3], [3, 3, 0], [2, 2, 2]]).reshape(1, 3, 3, 1))
    y = ops.max_pool(x, 2, 1, "VALID")
    dy = np.array([[1.0, 10], [100, 1000]]).reshape(1, 2, 2, 1)
    dx = run(gradients(y, x, dy)[0]).reshape(3, 3)
    # Windows row by row: the first largest are (0, 1), (0, 1), (1, 0) and (1, 1).
    np.testing.assert_array_equal(dx, [[0, 11, 0], [100, 1000, 0], [0, 0, 0]])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint8"])
def test_padding_is_never_the_largest(dtype):
    low = np.iinfo(dtype).min if dtype[0] in "iu" else -math.inf
    x = np.full((1, 2, 2, 1), low, dtype)
    y = run(ops.max_pool(constant(x), 3, 1, "SAME"))
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, x)


def test_gradients_stay_in_the_image_where_all_is_minus_infinity():
    x = constant(np.full((1, 2, 2, 1), -math.inf))
    y, argmax = ops.max_pool_with_argmax(x, 2, 2, "SAME")
    dx = run(gradients(y, x)[0])
    np.testing.assert_array_equal(dx.ravel(), [1, 0, 0, 0])
    np.testing.assert_array_equal(run(argmax), [[[[0]]]])
    tall = constant(np.full((1, 3, 2, 1), -math.inf))
    argmax = ops.max_pool_with_argmax(tall, (2, 3), 1, "SAME")[1]
    np.testing.assert_array_equal(run(argmax).reshape(3, 2), [[0, 0], [2, 2], [4, 4]])


def test_a_nan_is_the_largest():
    x = np.array([[1.0, math.nan], [2, 3]]).reshape(1, 2, 2, 1)
    assert np.isnan(run(ops.max_pool(x, 2, 2, "VALID"))).all()


def test_an_infinite_gradient_stays_where_it_belongs():
    x = constant(np.array([[1.0, 5], [2, 3]]).reshape(1, 2, 2, 1))
    for strides in (1, 2):
        dy = np.full((1, 1, 1, 1), math.inf)
        dx = run(gradients(ops.max_pool(x, 2, strides, "VALID"), x, dy)[0])
        np.testing.assert_array_equal(dx.ravel(), [0, math.inf, 0, 0])


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("values", [normal, few])
def test_argmax(padding, values):
    x = values(2, 5, 4, 3)
    settings = {"ksize": (3, 2), "strides": (2, 1), "padding": padding}
    y, argmax = ops.max_pool_with_argmax(x, **settings)
    assert argmax.dtype.name == "int64"
    assert argmax.shape == y.shape
    found, places = run([y, argmax])
    np.testing.assert_array_equal(found, images.max_pool(x, **settings))
    expected = images.argmax_pool(x, **settings) * 3 + np.arange(3)
    np.testing.assert_array_equal(places, expected)
    for name in ("Targmax", "output_dtype"):
        whole = ops.max_pool_with_argmax(
            x, **settings, **{name: "int32"}, include_batch_in_index=True
        )[1]
        assert whole.dtype.name == "int32"
        np.testing.assert_array_equal(x.ravel()[run(whole)], found)


# -- the mean -------------------------------------------------------------------------------------


def test_padding_does_not_count_in_a_mean():
    x = np.arange(1.0, 10).reshape(1, 3, 3, 1)
    y = run(ops.avg_pool(x, 2, 2, "SAME"))
    np.testing.assert_array_equal(y.ravel(), [3, 4.5, 7.5, 9])
    np.testing.assert_array_equal(run(ops.avg_pool(np.ones((1, 3, 4, 2)), 3, 1, "SAME")), 1)


def test_float16_is_added_up_in_float32():
    x = constant(np.full((1, 64, 64, 1), 32.0, "float16"))
    y = ops.avg_pool(x, 64, 1, "VALID")  # the sum is not finite in float16
    peak = np.zeros((1, 64, 64, 1), "float16")
    peak[0, 32, 32] = 1  # in all 4096 windows
    tip = constant(peak)
    (dx,) = gradients(ops.max_pool(tip, 64, 1, "SAME"), tip)
    found = run([y, dx])
    assert {value.dtype.name for value in found} == {"float16"}
    assert [value.max() for value in found] == [32, 4096]


# -- forms and shapes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "plane"),
    [(ops.max_pool1d, images.max_pool), (ops.avg_pool1d, images.avg_pool)],
)
@pytest.mark.parametrize("data_format", ["NWC", "NCW", None])
def test_sequences(line, plane, data_format):
    x = normal(2, 7, 3)
    expected = plane(x[:, None], (1, 3), (1, 2), "SAME")[:, 0]
    if data_format == "NCW":
        x, expected = x.transpose(0, 2, 1), expected.transpose(0, 2, 1)
    y = line(x, 3, [2], "SAME", data_format)
    assert y.shape == expected.shape
    np.testing.assert_allclose(run(y), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "reference"), [("MAX", images.max_pool), ("AVG", images.avg_pool)]
)
def test_pool_of_both_ranks_with_dilations(kind, reference):
    x = normal(2, 7, 6, 3)
    expected = reference(x, (2, 3), (2, 1), "VALID", dilations=(3, 2))
    y = ops.pool(x, [2, 3], kind, "VALID", [3, 2], [2, 1])
    np.testing.assert_allclose(run(y), expected, atol=1e-12)
    turned = ops.pool(x.transpose(0, 3, 1, 2), [2, 3], kind, "VALID", (3, 2), (2, 1), None, "NCHW")
    np.testing.assert_allclose(run(turned), expected.transpose(0, 3, 1, 2), atol=1e-12)
    line = ops.pool(x[:, 0], [2], kind, "SAME", dilations=[2], name="line")
    assert line.op.name.startswith("line/")
    expected = reference(x[:, :1], (1, 2), 1, "SAME", dilations=(1, 2))[:, 0]
    np.testing.assert_allclose(run(line), expected, atol=1e-12)


def test_windows_of_padding_alone():
    """A dilated window can miss a small image."""
    x = constant(np.ones((1, 1, 2, 1)))
    y = ops.pool(x, [1, 2], "AVG", "SAME", [1, 3])
    dx = gradients(y, x)[0]
    np.testing.assert_array_equal(run(y).ravel(), [0, 1])
    np.testing.assert_array_equal(run(dx).ravel(), [1, 0])


def test_static_shapes_with_unknown_sizes():
    x = placeholder("float32", [None, None, 9, 3])
    for pool in (ops.max_pool, ops.avg_pool):
        y = pool(x, 2, 2, "SAME")
        assert y.shape.as_list() == [None, None, 5, 3]
        assert gradients(y, x)[0].shape.as_list() == [None, None, 9, 3]
        assert pool(x, 2, 2, "VALID").shape.as_list() == [None, None, 4, 3]
        assert pool(placeholder("float32"), 2, 2, "VALID").shape.as_list() == [None] * 4


def test_names_and_second_names():
    x = normal(1, 4, 4, 2)
    for pool, kind in ((ops.max_pool, "MaxPool"), (ops.avg_pool, "AvgPool")):
        y = pool(input=x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
        assert y.op.name == y.op.type == kind
        assert y.op.get_attr("ksize") == (1, 2, 2, 1)
        np.testing.assert_array_equal(run(y), run(pool(x, 2, 2, "SAME", name="mine")))
    assert ops.max_pool2d is ops.max_pool
    assert ops.avg_pool2d is ops.avg_pool


# -- errors ---------------------------------------------------------------------------------------

X = np.ones((1, 4, 5, 3), "float32")


@pytest.mark.parametrize("pool", [ops.max_pool, ops.avg_pool])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": X[0]}, r"value: expected four axes \(NHWC\), got shape \(4, 5, 3\)"),
        ({"value": None}, "value: expected it once, got it 0 times"),
        ({"ksize": None}, "ksize: expected an int .* got None"),
        ({"ksize": 0}, "ksize: expected numbers ≥ 1, got 0"),
        ({"ksize": [1, 2, 2, 3]}, "ksize: expected 1 for the batch and the channels of NHWC"),
        ({"strides": [1, 2, 2]}, "strides: expected an int or a list of 1, 2 or 4 ints"),
        ({"strides": (1, -2)}, "strides: expected numbers ≥ 1"),
        ({"padding": "valid"}, "padding: expected 'SAME', 'VALID', got 'valid'"),
        ({"padding": [[0, 0]] * 4}, "padding: expected 'SAME', 'VALID', got"),
        ({"data_format": "NHW"}, "data_format: expected one of NHWC, NCHW, got 'NHW'"),
        ({"ksize": 5, "padding": "VALID"}, "expected a height of at least 5, .* got 4"),
    ],
)
def test_bad_arguments(pool, change, message):
    arguments = {"value": X, "ksize": 2, "strides": 2, "padding": "SAME", **change}
    with pytest.raises(ValueError, match=message):
        pool(**arguments)


def test_a_mean_of_integers_is_refused():
    with pytest.raises(TypeError, match="value: expected one of bfloat16, float16"):
        ops.avg_pool(constant(X.astype("int32")), 2, 2, "SAME")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.pool(X, 2, "MIN", "SAME"), "pooling_type: expected 'MAX' or 'AVG', got 'MIN'"),
        (lambda: ops.pool(X, [2, 2, 2], "MAX", "SAME"), "window_shape: expected one or two ints"),
        (
            lambda: ops.pool(X, [2, 2], "MAX", "SAME", 2, dilations=2),
            "dilation_rate and its old name dilations were both given",
        ),
        (lambda: ops.pool(X, [2], "MAX", "SAME"), r"input: expected three axes \(NWC\)"),
        (lambda: ops.max_pool1d(X[0], 2, [1, 2, 2], "SAME"), "strides: expected 1 for the batch"),
        (lambda: ops.max_pool1d(X[0], 2, 2, "SAME", "NHWC"), "expected one of NWC, NCW"),
        (
            lambda: ops.max_pool_with_argmax(X, 2, 2, "SAME", "NCHW"),
            "data_format: expected one of NHWC, got 'NCHW'",
        ),
    ],
)
def test_bad_arguments_of_the_other_forms(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_bad_values_when_run():
    x = placeholder("float32")
    y = ops.max_pool(x, 3, 1, "VALID", name="layer")
    with pytest.raises(InvalidArgumentError, match=r"(?s)a width of at least 3.*got 2.*'layer'"):
        run(y, {x: X[:, :, :2]})
    with pytest.raises(InvalidArgumentError, match="expected images of four axes"):
        run(y, {x: X[0]})
