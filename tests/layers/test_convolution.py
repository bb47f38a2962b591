"""Convolutional and pooling layers against loops in NumPy; names against TensorFlow; refusals."""

import inspect

import numpy as np
import pytest
from numpy.testing import assert_allclose

import optkit as tf
from optkit import layers
from optkit.runtime.eager import eager

RNG = np.random.default_rng(5)
IMAGES = RNG.standard_normal((2, 6, 5, 3)).astype(np.float32)


def names(items):
    return [item.name for item in items]


def run(fetches, feed=None):
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        return sess.run(fetches, feed)


def given(value):
    return tf.constant_initializer(value)


# -- references -----------------------------------------------------------------------------------


def windows(x, size, stride, apart, padding, fill=0.0):
    """The windows of images x: shape (batch, rows, columns, height, width, channels)."""
    pads, counts = [], []
    for n, k, s, d in zip(x.shape[1:3], size, stride, apart, strict=True):
        span = (k - 1) * d + 1
        count = -(-n // s) if padding == "same" else (n - span) // s + 1
        total = max((count - 1) * s + span - n, 0) if padding == "same" else 0
        pads.append((total // 2, total - total // 2))
        counts.append(count)
    x = np.pad(x.astype(np.float64), [(0, 0), *pads, (0, 0)], constant_values=fill)
    result = np.empty((len(x), *counts, *size, x.shape[3]))
    for i, j in np.ndindex(*counts):
        rows = slice(i * stride[0], i * stride[0] + (size[0] - 1) * apart[0] + 1, apart[0])
        columns = slice(j * stride[1], j * stride[1] + (size[1] - 1) * apart[1] + 1, apart[1])
        result[:, i, j] = x[:, rows, columns]
    return result


def convolved(x, kernel, stride=(1, 1), apart=(1, 1), padding="valid"):
    found = windows(x, kernel.shape[:2], stride, apart, padding)
    return np.einsum("nijhwc,hwcf->nijf", found, kernel)


def depthwise(x, kernel, stride=(1, 1), apart=(1, 1), padding="valid"):
    found = np.einsum(
        "nijhwc,hwcm->nijcm", windows(x, kernel.shape[:2], stride, apart, padding), kernel
    )
    return found.reshape(*found.shape[:3], -1)


def transposed(x, kernel, stride, padding):
    """Each element adds its multiple of the kernel; "same" cuts off what sticks out."""
    k, s = kernel.shape[:2], stride
    full = [(n - 1) * s_ + max(k_, s_) for n, k_, s_ in zip(x.shape[1:3], k, s, strict=True)]
    y = np.zeros((len(x), *full, kernel.shape[2]))
    for i, j in np.ndindex(*x.shape[1:3]):
        part = np.einsum("nc,hwfc->nhwf", x[:, i, j], kernel)
        y[:, i * s[0] : i * s[0] + k[0], j * s[1] : j * s[1] + k[1]] += part
    if padding == "same":
        cut = [max(k_ - s_, 0) // 2 for k_, s_ in zip(k, s, strict=True)]
        rows, columns = (n * s_ for n, s_ in zip(x.shape[1:3], s, strict=True))
        y = y[:, cut[0] : cut[0] + rows, cut[1] : cut[1] + columns]
    return y


def first(x):
    """Channels moved to the second axis."""
    return np.moveaxis(x, -1, 1)


SETTINGS = [
    {},
    {"padding": "same"},
    {"strides": 2},
    {"strides": (2, 1), "padding": "SAME"},
    {"dilation_rate": 2},
    {"dilation_rate": (1, 2), "padding": "same"},
    {"strides": 2, "dilation_rate": 2, "padding": "same"},
]


def pair(value):
    return (value, value) if isinstance(value, int) else value


def as_reference(settings):
    return {
        "stride": pair(settings.get("strides", 1)),
        "apart": pair(settings.get("dilation_rate", 1)),
        "padding": settings.get("padding", "valid").lower(),
    }


def both_formats(make, x, expected, known=True):
    """Check a layer in both formats, its static shape and the shape it promises."""
    for data_format, value, target in (
        ("channels_last", x, expected),
        ("channels_first", first(x), first(expected)),
    ):
        layer = make(data_format)
        sizes = list(value.shape)
        if not known:
            spatial = slice(1, -1) if data_format == "channels_last" else slice(2, None)
            sizes[0], sizes[spatial] = None, [None] * (value.ndim - 2)
        fed = tf.placeholder(tf.float32, sizes)
        y = layer(fed)
        assert y.shape.as_list() == layer.compute_output_shape(sizes).as_list()
        if known:
            assert y.shape == target.shape
        assert_allclose(run(y, {fed: value}), target, rtol=1e-4, atol=1e-5)
        if known:
            with eager():
                layer = make(data_format)
                assert_allclose(layer(value).numpy(), target, rtol=1e-4, atol=1e-5)


# -- convolution ----------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_conv2d(settings, known):
    kernel = RNG.standard_normal((3, 2, 3, 4)).astype(np.float32)
    bias = RNG.standard_normal(4).astype(np.float32)
    expected = np.maximum(convolved(IMAGES, kernel, **as_reference(settings)) + bias, 0)

    def make(data_format):
        return layers.Conv2D(
            4,
            (3, 2),
            data_format=data_format,
            activation=tf.nn.relu,
            kernel_initializer=given(kernel),
            bias_initializer=given(bias),
            **settings,
        )

    both_formats(make, IMAGES, expected, known)


LINES = [
    {},
    {"padding": "same"},
    {"strides": 2},
    {"strides": [2], "padding": "SAME"},
    {"dilation_rate": 2},
]


@pytest.mark.parametrize("settings", LINES, ids=str)
def test_conv1d(settings):
    x = IMAGES[:, :, 0]
    kernel = RNG.standard_normal((3, 3, 4)).astype(np.float32)
    stride = 2 if "strides" in settings else 1
    expected = convolved(
        x[:, None],
        kernel[None],
        (1, stride),
        (1, settings.get("dilation_rate", 1)),
        settings.get("padding", "valid").lower(),
    )[:, 0]

    def make(data_format):
        return layers.Conv1D(
            4,
            3,
            data_format=data_format,
            kernel_initializer=given(kernel),
            bias_initializer=tf.ones_initializer(),
            **settings,
        )

    both_formats(make, x, expected + 1)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("strides", [1, 2, (1, 3), 4])
def test_conv2d_transpose(strides, padding, known):
    kernel = RNG.standard_normal((3, 2, 4, 3)).astype(np.float32)
    expected = transposed(IMAGES, kernel, pair(strides), padding) + 1

    def make(data_format):
        return layers.Conv2DTranspose(
            4,
            [3, 2],
            strides,
            padding,
            data_format,
            kernel_initializer=given(kernel),
            bias_initializer=tf.ones_initializer(),
        )

    both_formats(make, IMAGES, expected, known)


@pytest.mark.parametrize(
    "settings", [s for s in SETTINGS if s.get("strides") != (2, 1) and len(s) < 3]
)
def test_separable_conv2d(settings):
    deep = RNG.standard_normal((3, 3, 3, 2)).astype(np.float32)
    wide = RNG.standard_normal((1, 1, 6, 4)).astype(np.float32)
    expected = convolved(depthwise(IMAGES, deep, **as_reference(settings)), wide) + 1

    def make(data_format):
        return layers.SeparableConv2D(
            4,
            3,
            data_format=data_format,
            depth_multiplier=2,
            depthwise_initializer=given(deep),
            pointwise_initializer=given(wide),
            bias_initializer=tf.ones_initializer(),
            **settings,
        )

    both_formats(make, IMAGES, expected)


def test_gradients_reach_kernel_and_bias():
    layer = layers.Conv2D(2, 3)
    loss = tf.reduce_sum(layer(IMAGES))
    dkernel, dbias = run(tf.gradients(loss, [layer.kernel, layer.bias]))
    expected = windows(IMAGES, (3, 3), (1, 1), (1, 1), "valid").sum((0, 1, 2))
    assert_allclose(dkernel, np.stack([expected] * 2, -1), rtol=1e-4, atol=1e-4)
    assert_allclose(dbias, [2 * 4 * 3] * 2)


# -- pooling --------------------------------------------------------------------------------------

POOLS = [
    {"pool_size": 2, "strides": 2},
    {"pool_size": (3, 2), "strides": (2, 1), "padding": "same"},
    {"pool_size": 3, "strides": 1, "padding": "SAME"},
    {"pool_size": 2, "strides": 3},
]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("settings", POOLS, ids=str)
@pytest.mark.parametrize("kind", ["max", "average"])
def test_pooling_of_images(kind, settings, known):
    size, stride = pair(settings["pool_size"]), pair(settings["strides"])
    padding = settings.get("padding", "valid").lower()
    found = windows(IMAGES, size, stride, (1, 1), padding, fill=np.nan)
    expected = (np.nanmax if kind == "max" else np.nanmean)(found, axis=(3, 4))
    layer = layers.MaxPooling2D if kind == "max" else layers.AveragePooling2D

    def make(data_format):
        return layer(**settings, data_format=data_format)

    both_formats(make, IMAGES, expected, known)


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("kind", ["max", "average"])
def test_pooling_of_sequences(kind, padding):
    x = IMAGES[:, :, 0]
    found = windows(x[:, None], (1, 3), (1, 2), (1, 1), padding, fill=np.nan)
    expected = (np.nanmax if kind == "max" else np.nanmean)(found, axis=(3, 4))[:, 0]
    layer = layers.MaxPooling1D if kind == "max" else layers.AveragePooling1D

    def make(data_format):
        return layer(3, 2, padding, data_format)

    both_formats(make, x, expected)


@pytest.mark.parametrize(
    "pool",
    [
        lambda x, sizes: layers.average_pooling2d(x, sizes, sizes),
        lambda x, sizes: tf.contrib.slim.avg_pool2d(x, sizes, padding="VALID"),
        lambda x, sizes: tf.nn.avg_pool(x, sizes, sizes, "VALID"),
    ],
)
def test_a_window_may_be_as_large_as_a_static_shape(pool):
    x = tf.placeholder(tf.float32, [None, *IMAGES.shape[1:]])
    pooled = pool(x, x.get_shape()[1:3])
    assert pooled.shape.as_list() == [None, 1, 1, IMAGES.shape[3]]
    with tf.Session() as session:
        found = session.run(pooled, {x: IMAGES})
    np.testing.assert_allclose(found, IMAGES.mean((1, 2), keepdims=True), rtol=1e-5)


# -- names, observed in TensorFlow 2.21 with tf_keras (v1, graph mode) ----------------------------


def test_names():
    x = tf.placeholder(tf.float32, [None, 8, 8, 3])
    s = tf.placeholder(tf.float32, [None, 8, 3])
    found = [
        layers.conv2d(x, 4, 3),
        layers.conv2d(x, 4, 3, activation=tf.nn.relu, use_bias=False),
        layers.conv2d(x, 4, 3, name="c"),
        layers.conv2d(x, 4, 3, name="c", reuse=True),
        layers.conv1d(s, 4, 3),
        layers.conv2d_transpose(x, 4, 3),
        layers.separable_conv2d(x, 4, 3),
        layers.max_pooling2d(x, 2, 2),
        layers.average_pooling2d(x, 2, 2),
    ]
    assert names(found) == [
        "conv2d/BiasAdd:0",
        "conv2d_1/Relu:0",
        "c/BiasAdd:0",
        "c_1/BiasAdd:0",
        "conv1d/BiasAdd:0",
        "conv2d_transpose/BiasAdd:0",
        "separable_conv2d/BiasAdd:0",
        "max_pooling2d/MaxPool:0",
        "average_pooling2d/AvgPool:0",
    ]
    assert layers.max_pooling1d(s, 2, 2).op.name.startswith("max_pooling1d/")
    assert layers.average_pooling1d(s, 2, 2).op.name.startswith("average_pooling1d/")
    shapes = {variable.name: variable.shape.as_list() for variable in tf.global_variables()}
    assert shapes == {
        "conv2d/kernel:0": [3, 3, 3, 4],
        "conv2d/bias:0": [4],
        "conv2d_1/kernel:0": [3, 3, 3, 4],
        "c/kernel:0": [3, 3, 3, 4],
        "c/bias:0": [4],
        "conv1d/kernel:0": [3, 3, 4],
        "conv1d/bias:0": [4],
        "conv2d_transpose/kernel:0": [3, 3, 4, 3],
        "conv2d_transpose/bias:0": [4],
        "separable_conv2d/depthwise_kernel:0": [3, 3, 3, 1],
        "separable_conv2d/pointwise_kernel:0": [1, 1, 3, 4],
        "separable_conv2d/bias:0": [4],
    }
    assert tf.trainable_variables() == tf.global_variables()


def test_regularizers_and_constraints():
    settings = {"bias_regularizer": tf.reduce_sum, "bias_constraint": tf.abs}
    conv = layers.Conv2D(
        4, 3, kernel_regularizer=tf.nn.l2_loss, kernel_constraint=tf.nn.relu, **settings
    )
    deep = layers.SeparableConv2D(
        4,
        3,
        depthwise_regularizer=tf.nn.l2_loss,
        depthwise_constraint=tf.nn.relu,
        pointwise_regularizer=tf.nn.l2_loss,
        pointwise_constraint=tf.nn.elu,
        **settings,
    )
    conv(IMAGES)
    deep(IMAGES)
    assert names(conv.losses + deep.losses) == [
        "conv2d/kernel/Regularizer/L2Loss:0",
        "conv2d/bias/Regularizer/Sum:0",
        "separable_conv2d/depthwise_kernel/Regularizer/L2Loss:0",
        "separable_conv2d/pointwise_kernel/Regularizer/L2Loss:0",
        "separable_conv2d/bias/Regularizer/Sum:0",
    ]
    found = [conv.kernel, conv.bias, deep.depthwise_kernel, deep.pointwise_kernel, deep.bias]
    assert [each.constraint for each in found] == [
        tf.nn.relu, tf.abs, tf.nn.relu, tf.nn.elu, tf.abs,
    ]  # fmt: skip


# -- refusals -------------------------------------------------------------------------------------

REFUSED = [
    (
        ValueError,
        "Conv2D 'conv2d': inputs: expected 4 axes",
        lambda: layers.conv2d(IMAGES[0], 4, 3),
    ),
    (
        ValueError,
        "Conv2D 'conv2d': inputs: expected channels of known number on axis 3",
        lambda: layers.conv2d(tf.placeholder(tf.float32, [None, 8, 8, None]), 4, 3),
    ),
    (
        ValueError,
        "expected channels of known number on axis 1",
        lambda: layers.conv1d(tf.placeholder(tf.float32), 4, 3, data_format="channels_first"),
    ),
    (
        TypeError,
        "Conv2D 'conv2d': inputs: expected floats, got int32",
        lambda: layers.conv2d(IMAGES.astype(np.int32), 4, 3),
    ),
    (
        ValueError,
        r"kernel_size: expected a number or a list of 2 numbers, got \(3, 3, 3\)",
        lambda: layers.conv2d(IMAGES, 4, (3, 3, 3)),
    ),
    (ValueError, "kernel_size: expected a number >= 1", lambda: layers.conv2d(IMAGES, 4, 0)),
    (TypeError, "strides: expected an int", lambda: layers.conv2d(IMAGES, 4, 3, "2")),
    (ValueError, "filters: expected a number >= 1, got 0", lambda: layers.conv2d(IMAGES, 0, 3)),
    (
        ValueError,
        "padding: expected valid or same, got 'causal'",
        lambda: layers.conv1d(IMAGES[0], 4, 3, padding="causal"),
    ),
    (
        ValueError,
        "data_format: expected channels_last or channels_first, got 'NHWC'",
        lambda: layers.conv2d(IMAGES, 4, 3, data_format="NHWC"),
    ),
    (ValueError, "expected a height of at least 9", lambda: layers.conv2d(IMAGES, 4, 9)),
    (
        ValueError,
        "MaxPooling2D 'max_pooling2d': inputs: expected 4 axes",
        lambda: layers.max_pooling2d(IMAGES[0], 2, 2),
    ),
    (ValueError, "pool_size: expected", lambda: layers.average_pooling1d(IMAGES[0], (2, 2), 1)),
    (ValueError, "strides: expected a number >= 1", lambda: layers.max_pooling2d(IMAGES, 2, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("error", "message", "call"), REFUSED)
def test_refusals(error, message, call):
    with pytest.raises(error, match=message):
        call()
    assert tf.global_variables() == []


def test_other_channels_than_at_first():
    layer = layers.Conv2D(4, 3)
    layer(IMAGES)
    with pytest.raises(ValueError, match="Conv2D 'conv2d': inputs: expected size 3 on axis 3"):
        layer(IMAGES[..., :2])
    with pytest.raises(ValueError, match=r"variable 'conv2d/kernel': shape: .*\(3, 3, 3, 4\)"):
        layers.conv2d(IMAGES, 5, 3, name="conv2d", reuse=True)


def test_signatures_are_those_of_tensorflow():
    """TensorFlow 2.21's tf.compat.v1.layers: names and order of the arguments."""
    head = ["filters", "kernel_size", "strides", "padding", "data_format"]
    kernel = ["kernel_initializer", "bias_initializer", "kernel_regularizer", "bias_regularizer",
              "activity_regularizer", "kernel_constraint", "bias_constraint"]  # fmt: skip
    tail = ["trainable", "name"]
    full = [*head, "dilation_rate", "activation", "use_bias", *kernel, *tail]
    separable = [
        *head, "dilation_rate", "depth_multiplier", "activation", "use_bias",
        "depthwise_initializer", "pointwise_initializer", "bias_initializer",
        "depthwise_regularizer", "pointwise_regularizer", "bias_regularizer",
        "activity_regularizer", "depthwise_constraint", "pointwise_constraint", "bias_constraint",
        *tail,
    ]  # fmt: skip
    transposed = [*head, "activation", "use_bias", *kernel, *tail]
    pool = ["pool_size", "strides", "padding", "data_format", "name"]
    expected = {
        layers.conv1d: full,
        layers.conv2d: full,
        layers.conv2d_transpose: transposed,
        layers.separable_conv2d: separable,
    }
    for function, arguments in expected.items():
        assert list(inspect.signature(function).parameters) == ["inputs", *arguments, "reuse"]
    expected = {
        layers.Conv1D: full,
        layers.Conv2D: full,
        layers.Conv2DTranspose: transposed,
        layers.SeparableConv2D: separable,
        **dict.fromkeys(
            (
                layers.MaxPooling1D,
                layers.MaxPooling2D,
                layers.AveragePooling1D,
                layers.AveragePooling2D,
            ),
            pool,
        ),
    }
    for function, arguments in expected.items():
        assert list(inspect.signature(function).parameters) == [*arguments, "kwargs"]
    for function in (
        layers.max_pooling1d,
        layers.max_pooling2d,
        layers.average_pooling1d,
        layers.average_pooling2d,
    ):
        assert list(inspect.signature(function).parameters) == ["inputs", *pool]
