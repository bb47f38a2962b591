"""Convolutions: every setting against loops, TensorFlow's padding, arguments, errors."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from optkit.errors import InvalidArgumentError
from optkit.gradients import gradients
from optkit.graph import Graph
from optkit.ops import columns
from optkit.ops import convolution as ops
from optkit.ops.array import placeholder
from optkit.ops.conv2d import conv2d
from optkit.ops.core import constant
from optkit.ops.reductions import reduce_sum
from optkit.runtime.session import Session
from tests.gradcheck import check_gradients
from tests.ops import images

numbers = st.integers(1, 3)
pairs = st.tuples(numbers, numbers)
formats = st.sampled_from(["NHWC", "NCHW"])


def run(fetches, feed=None):
    return Session().run(fetches, feed)


def normal(*shape, dtype="float64", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def assert_as_reference(x, w, **settings):
    """The convolution and both its gradients are those of the loops."""
    with Graph().as_default():
        xs, ws = constant(x), constant(w)
        y = conv2d(xs, ws, **settings)
        expected = images.conv2d(x, w, **settings)
        dy = normal(*expected.shape, seed=1)
        value, dx, dw = run([y, *gradients(y, [xs, ws], dy)])
    assert y.shape == value.shape
    np.testing.assert_allclose(value, expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        dx, images.conv2d_input(x.shape, w, dy, **settings), rtol=0, atol=1e-10
    )
    np.testing.assert_allclose(
        dw, images.conv2d_filter(x, w.shape, dy, **settings), rtol=0, atol=1e-10
    )


# -- against loops --------------------------------------------------------------------------------


@given(
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    window=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    channels=st.sampled_from([1, 2, 5, 40]),
    filters=st.integers(1, 3),
    count=st.integers(0, 3),
    strides=pairs,
    dilations=pairs,
    padding=st.sampled_from(["SAME", "VALID"]),
    data_format=formats,
)
def test_every_setting(
    sizes, window, channels, filters, count, strides, dilations, padding, data_format
):
    reach = [(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)]
    assume(padding == "SAME" or (reach[0] <= sizes[0] and reach[1] <= sizes[1]))
    x = images.in_format(normal(count, *sizes, channels), data_format)
    w = normal(*window, channels, filters, seed=2)
    assert_as_reference(
        x, w, strides=strides, padding=padding, data_format=data_format, dilations=dilations
    )


@given(
    padding=st.tuples(*[st.tuples(st.integers(0, 3), st.integers(0, 3))] * 2),
    strides=pairs,
    data_format=formats,
)
def test_explicit_padding(padding, strides, data_format):
    x = images.in_format(normal(2, 4, 5, 2), data_format)
    none = (0, 0)
    four = [none, none, *padding] if data_format == "NCHW" else [none, *padding, none]
    w = normal(3, 2, 2, 2, seed=2)
    assert_as_reference(x, w, strides=strides, padding=four, data_format=data_format)


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("channels", [1, 12])
@pytest.mark.parametrize("limit", [1, 3000, 10**9])
def test_blocks_of_any_size_give_the_same(monkeypatch, data_format, channels, limit):
    """One row, one image, all images at a time; on one thread and not."""
    for name in ("_BLOCK", "_SMALL_BLOCK", "_DEVICE_BLOCK"):
        monkeypatch.setattr(columns, name, limit)
    x = images.in_format(normal(5, 6, 4, channels), data_format)
    w = normal(3, 2, channels, 3, seed=2)
    for small in (0, 1 << 27):
        monkeypatch.setattr(columns, "_SMALL", small)
        assert_as_reference(x, w, strides=1, padding="SAME", data_format=data_format)


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("alone", [600, 1600])
def test_small_products_are_cut(monkeypatch, data_format, alone):
    monkeypatch.setattr(columns, "_ALONE", alone)
    monkeypatch.setattr(columns, "_FEWEST", 1)
    x = images.in_format(normal(3, 7, 5, 2), data_format)
    w = normal(3, 2, 2, 4, seed=2)
    assert_as_reference(x, w, strides=1, padding="SAME", data_format=data_format)


def test_the_images_may_be_any_view():
    x = normal(3, 4, 5, 2)
    w = normal(3, 3, 2, 2, seed=2)
    strided = np.repeat(x, 2, axis=2)[:, :, ::2].transpose(0, 2, 1, 3)
    for padding in ("SAME", "VALID"):
        assert_as_reference(strided, w, strides=1, padding=padding)


def test_repeated_runs_are_equal_to_the_last_bit():
    x, w = (
        constant(normal(8, 12, 12, 8, dtype="float32")),
        constant(normal(3, 3, 8, 16, dtype="float32")),
    )
    y = conv2d(x, w, 1, "SAME")
    fetches = [y, *gradients(y, [x, w])]
    session = Session()
    first, second = session.run(fetches), session.run(fetches)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_float16_is_added_up_in_float32(data_format):
    # 2048 + 1 is 2048 in float16.
    x = constant(images.in_format(np.ones((1, 64, 64, 1), "float16"), data_format))
    whole = constant(np.ones((64, 64, 1, 1), "float16"))
    one = constant(np.ones((1, 1, 1, 1), "float16"))
    y = conv2d(x, whole, 1, "VALID", data_format=data_format)
    (dw,) = gradients(conv2d(x, one, 1, "SAME", data_format=data_format), one)
    (dx,) = gradients(conv2d(x, whole, 1, "SAME", data_format=data_format), x)
    found = run([y, dw, dx])
    assert {value.dtype.name for value in found} == {"float16"}
    # Of the 64·64 windows, those that lie about the middle reach an element there.
    assert [value.max() for value in found] == [4096, 4096, 4096]


# -- padding --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "window", "stride", "expected"),
    [
        (4, 3, 2, [6, 7]),  # one element of padding: after
        (5, 3, 2, [3, 9, 9]),  # one on each side
        (4, 2, 1, [3, 5, 7, 4]),  # one after
        (5, 4, 1, [6, 10, 14, 12, 9]),  # one before, two after
        (5, 1, 3, [1, 4]),  # none, not even for strides past the end
        (1, 5, 7, [1]),
    ],
)
def test_same_padding_is_tensorflows(size, window, stride, expected):
    row = np.arange(1.0, size + 1).reshape(1, 1, size, 1)
    across = conv2d(row, np.ones((1, window, 1, 1)), stride, "SAME")
    down = conv2d(row.transpose(0, 2, 1, 3), np.ones((window, 1, 1, 1)), stride, "SAME")
    np.testing.assert_array_equal(run(across).ravel(), expected)
    np.testing.assert_array_equal(run(down).ravel(), expected)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_static_shapes_with_unknown_sizes(padding):
    w = normal(3, 3, 2, 5)
    cut = 0 if padding == "SAME" else 2
    x = placeholder("float64", [None, 8, None, 2])
    y = conv2d(x, w, 1, padding)
    assert y.shape.as_list() == [None, 8 - cut, None, 5]
    dx, dw = gradients(y, [x, constant(w)])[0], None
    assert dx.shape.as_list() == [None, 8, None, 2]
    assert dw is None
    fed = normal(3, 8, 6, 2)
    np.testing.assert_allclose(run(y, {x: fed}), images.conv2d(fed, w, 1, padding), atol=1e-12)


def test_static_shapes_with_nothing_known():
    x, w = placeholder("float32"), placeholder("float32")
    y = conv2d(x, w, 2, "SAME")
    assert y.shape.as_list() == [None] * 4
    w = placeholder("float32", [None, None, None, 7])
    assert conv2d(x, w, 2, "VALID").shape.as_list() == [None, None, None, 7]
    x = placeholder("float32", [None, None, 9, 3])
    assert conv2d(x, w, 2, "SAME").shape.as_list() == [None, None, 5, 7]
    assert conv2d(x, w, 2, "VALID").shape.as_list() == [None, None, None, 7]
    first = placeholder("float32", [2, 3, None, 9])
    assert conv2d(first, w, 2, "SAME", data_format="NCHW").shape.as_list() == [2, 7, None, 5]


# -- the other forms ------------------------------------------------------------------------------


@pytest.mark.parametrize("data_format", [None, "NWC", "NCW", "NHWC", "NCHW"])
@pytest.mark.parametrize("stride", [1, 2, [2]])
def test_conv1d(data_format, stride):
    x, w = normal(2, 7, 3), normal(2, 3, 4, seed=1)
    step = stride if isinstance(stride, int) else stride[0]
    expected = images.conv2d(x[:, None], w[None], (1, step), "SAME", dilations=(1, 3))[:, 0]
    first = data_format in ("NCW", "NCHW")
    if first:
        x, expected = x.transpose(0, 2, 1), expected.transpose(0, 2, 1)
    y = ops.conv1d(x, w, stride, "SAME", data_format=data_format, dilations=3)
    assert y.shape == expected.shape
    np.testing.assert_allclose(run(y), expected, atol=1e-12)


def test_conv1d_takes_three_strides_in_the_order_of_the_format():
    x, w = normal(2, 7, 3), normal(2, 3, 4, seed=1)
    plain = run(ops.conv1d(x, w, 2, "VALID"))
    np.testing.assert_array_equal(run(ops.conv1d(x, w, [1, 2, 1], "VALID")), plain)
    turned = ops.conv1d(x.transpose(0, 2, 1), w, [1, 1, 2], "VALID", data_format="NCW")
    np.testing.assert_allclose(run(turned), plain.transpose(0, 2, 1), atol=1e-12)
    with pytest.raises(ValueError, match=r"stride: expected 1 for the batch and the channels"):
        ops.conv1d(x, w, [1, 1, 2], "VALID")


def test_conv1d_has_gradients():
    check_gradients(
        lambda x, w: ops.conv1d(x, w, 2, "SAME"), [normal(2, 5, 2), normal(3, 2, 2)], order=2
    )


def test_transposes_are_transposes():
    """<conv(x), y> = <x, transpose(y)> for any x and y."""
    x, y = normal(2, 7, 6, 3), normal(2, 3, 6, 4, seed=1)
    w = normal(3, 2, 3, 4, seed=2)
    forward = conv2d(x, w, [1, 2, 1, 1], [[0, 0], [0, 1], [1, 0], [0, 0]])
    back = ops.conv2d_transpose(y, w, x.shape, (2, 1), [[0, 0], [0, 1], [1, 0], [0, 0]])
    assert back.shape == x.shape
    found = run([reduce_sum(forward * y), reduce_sum(x * back)])
    np.testing.assert_allclose(*found)


def test_conv2d_transpose_of_ones():
    # As TF 1.15 conv2d_transpose_test.py, testConv2DTransposeSingleStride: 4, 6 or 9 windows
    # reach an element, with three channels each.
    y = run(ops.conv2d_transpose(np.ones((2, 6, 4, 3)), np.ones((3, 3, 2, 3)), [2, 6, 4, 2], 1))
    expected = np.full((6, 4), 27.0)
    expected[[0, -1]] = expected[:, [0, -1]] = 18
    expected[[0, 0, -1, -1], [0, -1, 0, -1]] = 12
    for n, channel in np.ndindex(2, 2):
        np.testing.assert_array_equal(y[n, :, :, channel], expected)


def test_conv2d_transpose_takes_a_shape_known_when_run():
    value = placeholder("float32", [None, 3, 3, 2])
    sizes = placeholder("int32", [4])
    w = np.ones((3, 3, 1, 2), "float32")
    y = ops.conv2d_transpose(value, w, sizes, 2)
    assert y.shape.as_list() == [None, None, None, 1]
    fed = np.ones((4, 3, 3, 2), "float32")
    assert run(y, {value: fed, sizes: [4, 6, 5, 1]}).shape == (4, 6, 5, 1)
    with pytest.raises(InvalidArgumentError, match=r"out_backprop: expected shape \(4, 4, 3, 2\)"):
        run(y, {value: fed, sizes: [4, 7, 5, 1]})


def test_conv1d_transpose():
    x, y, w = normal(2, 7, 3), normal(2, 4, 5, seed=1), normal(4, 3, 5, seed=2)
    forward = ops.conv1d(x, w, 2, "SAME")
    back = ops.conv1d_transpose(y, w, [2, 7, 3], 2)
    assert back.shape == [2, 7, 3]
    np.testing.assert_allclose(*run([reduce_sum(forward * y), reduce_sum(x * back)]))
    turned = ops.conv1d_transpose(y.transpose(0, 2, 1), w, [2, 3, 7], 2, data_format="NCW")
    np.testing.assert_allclose(run(turned), run(back).transpose(0, 2, 1), atol=1e-12)


def test_convolution_is_conv1d_or_conv2d():
    x, w = normal(2, 7, 3), normal(2, 3, 4, seed=1)
    np.testing.assert_array_equal(
        run(ops.convolution(x, w, "VALID", [2], [1])), run(ops.conv1d(x, w, 2, "VALID"))
    )
    turned = ops.convolution(x.transpose(0, 2, 1), w, "SAME", data_format="NCW")
    np.testing.assert_allclose(
        run(turned), run(ops.conv1d(x, w, 1, "SAME")).transpose(0, 2, 1), atol=1e-12
    )
    x, w = normal(2, 7, 6, 3), normal(2, 2, 3, 4, seed=1)
    y = ops.convolution(x, filters=w, padding="SAME", dilations=[1, 2], name="mixed")
    assert y.op.name == "mixed"
    np.testing.assert_allclose(run(y), images.conv2d(x, w, dilations=(1, 2)), atol=1e-12)


def test_atrous_convolutions():
    x, w = normal(2, 7, 6, 3), normal(2, 2, 3, 4, seed=1)
    y = ops.atrous_conv2d(x, w, 2, "VALID")
    np.testing.assert_allclose(
        run(y), images.conv2d(x, w, padding="VALID", dilations=2), atol=1e-12
    )
    dy = normal(*y.shape.as_list(), seed=2)
    back = ops.atrous_conv2d_transpose(dy, w, x.shape, 2, "VALID")
    np.testing.assert_allclose(
        run(back), images.conv2d_input(x.shape, w, dy, padding="VALID", dilations=2), atol=1e-12
    )


def test_arguments_have_their_second_names():
    x, w = normal(1, 4, 4, 2), normal(2, 2, 2, 3, seed=1)
    plain = run(conv2d(x, w, 1, "SAME"))
    np.testing.assert_array_equal(run(conv2d(x, filters=w, strides=1, padding="SAME")), plain)
    np.testing.assert_array_equal(run(conv2d(x, w, [1, 1, 1, 1], "SAME", dilations=1)), plain)
    line = run(ops.conv1d(x[0], w[0], 1, "SAME"))
    again = ops.conv1d(input=x[0], filters=w[0], stride=1, padding="SAME")
    np.testing.assert_array_equal(run(again), line)
    back = run(ops.conv2d_transpose(plain, w, x.shape, 1))
    again = ops.conv2d_transpose(input=plain, filters=w, output_shape=x.shape, strides=1)
    np.testing.assert_array_equal(run(again), back)


def test_constants_take_the_dtype_of_the_tensor_beside_them():
    x = placeholder("float32", [1, 4, 4, 1])
    assert conv2d(x, [[[[1.0]]]], 1, "SAME").dtype.name == "float32"
    w = placeholder("float16", [3, 1, 1])
    assert ops.conv1d([[[1.0], [2.0]]], w, 1, "SAME").dtype.name == "float16"


def test_names_and_attributes():
    x, w = normal(1, 4, 4, 2), normal(2, 2, 2, 3)
    op = conv2d(x, w, 2, "SAME", data_format=None).op
    assert op.name == "Conv2D"
    assert op.get_attr("strides") == (1, 2, 2, 1)
    assert op.get_attr("padding") == "SAME"
    assert op.get_attr("data_format") == "NHWC"
    assert op.get_attr("dilations") == (1, 1, 1, 1)
    assert conv2d(x, w, 2, "SAME", name="mine").op.name == "mine"
    assert ops.conv1d(x[0], w[0], 1, "SAME").op.name.startswith("conv1d/")
    assert ops.conv2d_transpose(normal(1, 2, 2, 3), w, x.shape, 2).op.name == "conv2d_transpose"


# -- errors ---------------------------------------------------------------------------------------

X = np.ones((1, 4, 5, 3), "float32")
W = np.ones((3, 3, 3, 2), "float32")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input": X[0]}, r"input: expected four axes \(NHWC\), got shape \(4, 5, 3\)"),
        ({"filter": W[0]}, r"filter: expected four axes \(height, width, channels in"),
        (
            {"filter": W[:, :, :2]},
            "the channels of the input and the third axis of the filter must be equal, got 3 and 2",
        ),
        ({"data_format": "NCHW"}, "channels of the input .* got 4 and 3"),
        ({"data_format": "NWHC"}, "data_format: expected one of NHWC, NCHW, got 'NWHC'"),
        ({"strides": -1}, "strides: expected numbers ≥ 1, got -1"),
        ({"strides": [1, 0, 1, 1]}, "strides: expected numbers ≥ 1"),
        ({"strides": [2, 1, 1, 1]}, "strides: expected 1 for the batch and the channels of NHWC"),
        ({"strides": [1, 1, 1]}, "strides: expected an int or a list of 1, 2 or 4 ints"),
        ({"strides": None}, "strides: expected an int .* got None"),
        ({"dilations": 0}, "dilations: expected numbers ≥ 1, got 0"),
        ({"dilations": [1, 1, 1, 2]}, "dilations: expected 1 for the batch and the channels"),
        ({"padding": "same"}, "padding: expected 'SAME', 'VALID' or four pairs of sizes"),
        ({"padding": None}, "padding: expected 'SAME', 'VALID' or four pairs of sizes, got None"),
        ({"padding": [[0, 0], [1, -1], [0, 0], [0, 0]]}, "padding: expected sizes ≥ 0"),
        ({"padding": [[0, 0], [1, 1], [0, 0], [1, 0]]}, "padding: expected none for the batch"),
        ({"padding": [[0, 0], [1], [0, 0], [0, 0]]}, "padding: expected 'SAME', 'VALID' or four"),
        ({"padding": "VALID", "filter": np.ones((5, 1, 3, 1), "f4")}, "a height of at least 5"),
        ({"padding": "VALID", "dilations": (1, 3)}, "a width of at least 7, .* got 5"),
        ({"filter": np.ones((0, 1, 3, 1), "f4")}, "expected a window of height ≥ 1, got 0"),
        ({"filter": None}, "filter: expected it once, got it 0 times"),
        ({"filters": W}, "filter: expected it once, got it 2 times"),
    ],
)
def test_bad_arguments(change, message):
    arguments = {"input": X, "filter": W, "strides": 1, "padding": "SAME", **change}
    with pytest.raises(ValueError, match=message):
        conv2d(**arguments)


def test_bad_types(graph):
    with pytest.raises(TypeError, match=r"strides: expected an int, got 1\.5"):
        conv2d(X, W, 1.5, "SAME")
    with pytest.raises(TypeError, match=r"expected float32, got .*float64"):
        conv2d(constant(X), constant(W.astype("float64")), 1, "SAME")
    with pytest.raises(TypeError, match="input: expected one of bfloat16, float16, float32"):
        conv2d(constant(X.astype("int32")), constant(W.astype("int32")), 1, "SAME")
    assert not any(op.type == "Conv2D" for op in graph.get_operations())


def test_bad_values_when_run():
    x, w = placeholder("float32"), placeholder("float32")
    y = conv2d(x, w, 1, "VALID", name="layer")
    with pytest.raises(InvalidArgumentError, match=r"(?s)got 3 and 2.*'layer'.*Conv2D"):
        run(y, {x: X, w: W[:, :, :2]})
    with pytest.raises(InvalidArgumentError, match="input: expected four axes"):
        run(y, {x: X[0], w: W})
    with pytest.raises(InvalidArgumentError, match=r"a height of at least 3, .* got 2"):
        run(y, {x: X[:, :2], w: W})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.conv1d(X, W[0], 1, "SAME"), r"value: expected three axes \(NWC\)"),
        (lambda: ops.conv1d(X[0], W, 1, "SAME"), "filters: expected three axes"),
        (lambda: ops.conv1d(X[0], W[0], None, "SAME"), "stride: expected it once"),
        (lambda: ops.conv1d(X[0], W[0], [1, 2], "SAME"), "stride: expected an int or a list of 1"),
        (lambda: ops.conv1d(X[0], W[0], 0, "SAME"), "stride: expected a number ≥ 1"),
        (lambda: ops.conv1d(X[0], W[0], 1, "SAME", data_format="NDC"), "one of NWC, NCW"),
        (lambda: ops.convolution(X, W[0], "SAME"), "expected three axes of both, or four"),
        (
            lambda: ops.convolution(placeholder("float32"), placeholder("float32"), "SAME"),
            "expected three axes of both, or four",
        ),
        (lambda: ops.convolution(X, W, "SAME", [1, 1, 1]), "strides: expected an int or a list"),
        (lambda: ops.conv2d_transpose(X, W, [1, 4, 5, 3], 1), "channels of value .* 3 and 2"),
        (
            lambda: ops.conv2d_transpose(X[..., :2], W, [1, 4, 5, 2], 1),
            "the channels of output_shape and the third axis of filter must be equal, got 2 and 3",
        ),
        (
            lambda: ops.conv2d_transpose(X[..., :2], W, [1, 9, 5, 3], 1),
            r"out_backprop: expected shape \(1, 9, 5, 2\)",
        ),
        (lambda: ops.conv2d_transpose(X[..., :2], W, None, 1), "output_shape: expected four sizes"),
        (lambda: ops.conv2d_transpose(X[..., :2], W, [4, 5, 3], 1), "output_shape: expected four"),
        (
            lambda: ops.conv2d_backprop_filter(X, [3, 3, 3, 2], X, 1, "SAME"),
            r"out_backprop: expected shape \(1, 4, 5, 2\)",
        ),
        (
            lambda: ops.conv2d_backprop_input([1, 4, 5], W, X, 1, "SAME"),
            "input_sizes: expected four axes",
        ),
    ],
)
def test_bad_arguments_of_the_other_forms(call, message):
    with pytest.raises(ValueError, match=message):
        call()
