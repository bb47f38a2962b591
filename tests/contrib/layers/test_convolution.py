"""contrib's convolutions and poolings; names and shapes observed with tf_slim 1.1 on TF 2.21.

What they compute is that of `tf.layers`, which tests/layers/test_convolution.py checks by loops.
"""

import inspect

import numpy as np
import pytest
from numpy.testing import assert_allclose

import optkit as tf
from optkit import layers as tf_layers
from optkit.contrib import layers
from optkit.contrib.framework import arg_scope
from optkit.runtime.eager import eager

RNG = np.random.default_rng(6)
IMAGES = RNG.standard_normal((2, 6, 6, 3)).astype(np.float32)


def names(items):
    return [item.name for item in items]


def run(fetches):
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        return sess.run(fetches)


def given(*shape):
    return tf.constant_initializer(RNG.standard_normal(shape).astype(np.float32))


KERNEL, LINE, BACK = given(3, 3, 3, 4), given(3, 3, 4), given(3, 3, 4, 3)
DEEP, WIDE = given(3, 3, 3, 2), given(1, 1, 6, 4)
ONES = tf.ones_initializer()

# contrib's call, and the same by tf.layers.
SAME = {
    "conv2d": (
        lambda: layers.conv2d(
            IMAGES, 4, 3, 2, weights_initializer=KERNEL, biases_initializer=ONES
        ),
        lambda: tf_layers.conv2d(
            IMAGES, 4, 3, 2, "same", activation=tf.nn.relu, kernel_initializer=KERNEL,
            bias_initializer=ONES,
        ),
    ),
    "conv2d valid and apart": (
        lambda: layers.convolution2d(
            IMAGES, 4, [3, 3], padding="VALID", rate=2, activation_fn=None,
            weights_initializer=KERNEL,
        ),
        lambda: tf_layers.conv2d(IMAGES, 4, 3, dilation_rate=2, kernel_initializer=KERNEL),
    ),
    "conv2d of channels first": (
        lambda: layers.conv2d(
            IMAGES.transpose(0, 3, 1, 2), 4, 3, data_format="NCHW", weights_initializer=KERNEL
        ),
        lambda: tf.transpose(
            tf_layers.conv2d(
                IMAGES, 4, 3, padding="same", activation=tf.nn.relu, kernel_initializer=KERNEL
            ),
            [0, 3, 1, 2],
        ),
    ),
    "conv1d": (
        lambda: layers.conv1d(IMAGES[0], 4, 3, weights_initializer=LINE),
        lambda: tf_layers.conv1d(
            IMAGES[0], 4, 3, padding="same", activation=tf.nn.relu, kernel_initializer=LINE
        ),
    ),
    "convolution of sequences": (
        lambda: layers.convolution(
            IMAGES[0], 4, 3, 2, "VALID", activation_fn=None, weights_initializer=LINE
        ),
        lambda: tf_layers.conv1d(IMAGES[0], 4, 3, 2, kernel_initializer=LINE),
    ),
    "conv2d_transpose": (
        lambda: layers.conv2d_transpose(IMAGES, 4, 3, 2, weights_initializer=BACK),
        lambda: tf_layers.conv2d_transpose(
            IMAGES, 4, 3, 2, "same", activation=tf.nn.relu, kernel_initializer=BACK
        ),
    ),
    "conv2d_transpose without activation": (
        lambda: layers.conv2d_transpose(
            IMAGES, 4, 3, padding="VALID", activation_fn=None, weights_initializer=BACK
        ),
        lambda: tf_layers.conv2d_transpose(IMAGES, 4, 3, kernel_initializer=BACK),
    ),
    "separable_conv2d": (
        lambda: layers.separable_conv2d(
            IMAGES, 4, 3, 2, activation_fn=None, weights_initializer=DEEP,
            pointwise_initializer=WIDE,
        ),
        lambda: tf_layers.separable_conv2d(
            IMAGES, 4, 3, padding="same", depth_multiplier=2, depthwise_initializer=DEEP,
            pointwise_initializer=WIDE,
        ),
    ),
    "separable_conv2d of one step": (
        lambda: layers.separable_conv2d(
            IMAGES, None, 3, 2, 2, "VALID", activation_fn=None, weights_initializer=DEEP,
            biases_initializer=ONES,
        ),
        lambda: 1 + tf.nn.depthwise_conv2d(IMAGES, DEEP([3, 3, 3, 2]), [1, 2, 2, 1], "VALID"),
    ),
    "max_pool2d": (
        lambda: layers.max_pool2d(IMAGES, 2),
        lambda: tf_layers.max_pooling2d(IMAGES, 2, 2),
    ),
    "avg_pool2d": (
        lambda: layers.avg_pool2d(IMAGES, [3, 2], 1, "SAME"),
        lambda: tf_layers.average_pooling2d(IMAGES, (3, 2), 1, "same"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("mode", ["graph", "eager"])
@pytest.mark.parametrize("name", SAME)
def test_values_are_those_of_tf_layers(name, mode):
    ours, theirs = SAME[name]
    if mode == "eager":
        with eager():
            found, expected = ours().numpy(), theirs().numpy()
    else:
        y, z = ours(), theirs()
        assert y.shape == z.shape
        found, expected = run([y, z])
    assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_names_and_shapes():
    x = tf.placeholder(tf.float32, [None, 8, 8, 3])
    c = tf.placeholder(tf.float32, [None, 3, 8, 8])
    s = tf.placeholder(tf.float32, [None, 8, 3])
    found = [
        layers.conv2d(x, 4, 3),
        layers.conv2d(x, 4, 3, 2, "VALID", activation_fn=None),
        layers.conv2d(x, 4, [3, 2], normalizer_fn=layers.batch_norm),
        layers.conv2d(x, 4, 3, scope="c"),
        layers.conv2d(x, 4, 3, scope="c", reuse=True),
        layers.conv1d(s, 4, 3),
        layers.conv2d_transpose(x, 4, 3, 2),
        layers.conv2d_transpose(c, 4, 3, data_format="NCHW", padding="VALID"),
        layers.separable_conv2d(x, 4, 3, 1),
        layers.separable_conv2d(x, 4, 3, 2, 2, normalizer_fn=layers.batch_norm),
        layers.separable_conv2d(x, None, 3, 2),
        layers.separable_conv2d(c, None, 3, 1, data_format="NCHW"),
        layers.max_pool2d(x, 2),
        layers.max_pool2d(x, [3, 2], [2, 1], "SAME"),
        layers.avg_pool2d(c, 2, data_format="NCHW"),
    ]
    assert [(y.name, y.shape.as_list()[1:]) for y in found] == [
        ("Conv/Relu:0", [8, 8, 4]),
        ("Conv_1/BiasAdd:0", [3, 3, 4]),
        ("Conv_2/Relu:0", [8, 8, 4]),
        ("c/Relu:0", [8, 8, 4]),
        ("c_1/Relu:0", [8, 8, 4]),
        ("Conv_3/Relu:0", [8, 4]),
        ("Conv2d_transpose/Relu:0", [16, 16, 4]),
        ("Conv2d_transpose_1/Relu:0", [4, 10, 10]),
        ("SeparableConv2d/Relu:0", [8, 8, 4]),
        ("SeparableConv2d_1/Relu:0", [4, 4, 4]),
        ("SeparableConv2d_2/Relu:0", [8, 8, 6]),
        ("SeparableConv2d_3/Relu:0", [3, 8, 8]),
        ("MaxPool2D/MaxPool:0", [4, 4, 3]),
        ("MaxPool2D_1/MaxPool:0", [4, 8, 3]),
        ("AvgPool2D/AvgPool:0", [3, 4, 4]),
    ]
    assert {v.op.name: v.shape.as_list() for v in tf.global_variables()} == {
        "Conv/weights": [3, 3, 3, 4],
        "Conv/biases": [4],
        "Conv_1/weights": [3, 3, 3, 4],
        "Conv_1/biases": [4],
        "Conv_2/weights": [3, 2, 3, 4],
        "Conv_2/BatchNorm/beta": [4],
        "Conv_2/BatchNorm/moving_mean": [4],
        "Conv_2/BatchNorm/moving_variance": [4],
        "c/weights": [3, 3, 3, 4],
        "c/biases": [4],
        "Conv_3/weights": [3, 3, 4],
        "Conv_3/biases": [4],
        "Conv2d_transpose/weights": [3, 3, 4, 3],
        "Conv2d_transpose/biases": [4],
        "Conv2d_transpose_1/weights": [3, 3, 4, 3],
        "Conv2d_transpose_1/biases": [4],
        "SeparableConv2d/depthwise_weights": [3, 3, 3, 1],
        "SeparableConv2d/pointwise_weights": [1, 1, 3, 4],
        "SeparableConv2d/biases": [4],
        "SeparableConv2d_1/depthwise_weights": [3, 3, 3, 2],
        "SeparableConv2d_1/pointwise_weights": [1, 1, 6, 4],
        "SeparableConv2d_1/BatchNorm/beta": [4],
        "SeparableConv2d_1/BatchNorm/moving_mean": [4],
        "SeparableConv2d_1/BatchNorm/moving_variance": [4],
        "SeparableConv2d_2/depthwise_weights": [3, 3, 3, 2],
        "SeparableConv2d_2/biases": [6],
        "SeparableConv2d_3/depthwise_weights": [3, 3, 3, 1],
        "SeparableConv2d_3/biases": [3],
    }
    assert tf.model_variables() == tf.global_variables()


def test_collections(graph):
    settings = {
        "variables_collections": {"weights": ["w"], "biases": ["b"]},
        "outputs_collections": "outs",
        "weights_regularizer": layers.l2_regularizer(0.1),
        "biases_regularizer": layers.l1_regularizer(0.1),
    }
    layers.conv2d(IMAGES, 4, 3, **settings)
    layers.conv2d_transpose(IMAGES, 4, 3, trainable=False, **settings)
    layers.separable_conv2d(IMAGES, 4, 3, **settings)
    layers.separable_conv2d(IMAGES, None, 3, biases_initializer=None, scope="d", **settings)
    layers.max_pool2d(IMAGES, 2, outputs_collections="outs")
    assert names(graph.get_collection("w")) == [
        "Conv/weights:0",
        "Conv2d_transpose/weights:0",
        "SeparableConv2d/depthwise_weights:0",
        "SeparableConv2d/pointwise_weights:0",
        "d/depthwise_weights:0",
    ]
    assert names(graph.get_collection("b")) == [
        "Conv/biases:0", "Conv2d_transpose/biases:0", "SeparableConv2d/biases:0",
    ]  # fmt: skip
    assert len(graph.get_collection("outs")) == 5
    assert len(graph.get_collection("regularization_losses")) == 8
    assert names(tf.trainable_variables()) == [
        "Conv/weights:0",
        "Conv/biases:0",
        "SeparableConv2d/depthwise_weights:0",
        "SeparableConv2d/pointwise_weights:0",
        "SeparableConv2d/biases:0",
        "d/depthwise_weights:0",
    ]


def test_arg_scope():
    with (
        arg_scope([layers.conv2d, layers.max_pool2d], padding="VALID"),
        arg_scope([layers.conv2d], activation_fn=None, biases_initializer=None),
    ):
        y = layers.conv2d(IMAGES, 4, 3)
    assert (y.name, y.shape) == ("Conv/Conv2D:0", (2, 4, 4, 4))


REFUSED = [
    (
        "inputs: expected 4 axes, got .*'Conv/inputs:0'",
        lambda: layers.conv2d(IMAGES[0], 4, 3),
    ),
    ("inputs: expected 3 axes", lambda: layers.conv1d(IMAGES, 4, 3)),
    ("inputs: expected three or four axes", lambda: layers.convolution(IMAGES[0, 0], 4, 3)),
    (
        "Conv2D 'Conv': inputs: expected channels of known number",
        lambda: layers.conv2d(tf.placeholder(tf.float32), 4, 3),
    ),
    (
        "data_format: expected NHWC or NCHW, got 'NWC'",
        lambda: layers.conv2d(IMAGES, 4, 3, data_format="NWC"),
    ),
    (
        "data_format: expected NWC or NCW, got 'NHWC'",
        lambda: layers.conv1d(IMAGES[0], 4, 3, data_format="NHWC"),
    ),
    (
        "data_format: expected NHWC or NCHW, got 'X'",
        lambda: layers.conv2d_transpose(IMAGES, 4, 3, data_format="X"),
    ),
    (
        "data_format: expected NHWC or NCHW, got 'X'",
        lambda: layers.separable_conv2d(IMAGES, 4, 3, data_format="X"),
    ),
    ("data_format: expected NHWC", lambda: layers.max_pool2d(IMAGES, 2, data_format="X")),
    ("MaxPooling2D 'MaxPool2D': inputs: expected 4", lambda: layers.max_pool2d(IMAGES[0], 2)),
    (
        "inputs: expected channels of known number on axis -1",
        lambda: layers.separable_conv2d(tf.placeholder(tf.float32), None, 3),
    ),
    ("padding: expected valid or same", lambda: layers.conv2d(IMAGES, 4, 3, padding="FULL")),
]


@pytest.mark.parametrize(("message", "call"), REFUSED)
def test_refusals_leave_no_variables(message, call):
    with pytest.raises(ValueError, match=message):
        call()
    assert tf.global_variables() == []


def test_signatures_are_those_of_contrib():
    """As tf_slim 1.1 has them."""
    settings = ["activation_fn", "normalizer_fn", "normalizer_params", "weights_initializer",
                "weights_regularizer", "biases_initializer", "biases_regularizer", "reuse",
                "variables_collections", "outputs_collections", "trainable", "scope"]  # fmt: skip
    head = ["inputs", "num_outputs", "kernel_size"]
    conv = [*head, "stride", "padding", "data_format", "rate", *settings]
    pool = ["inputs", "kernel_size", "stride", "padding", "data_format", "outputs_collections",
            "scope"]  # fmt: skip
    separable = [*head, "depth_multiplier", "stride", "padding", "data_format", "rate", *settings]
    separable.insert(separable.index("weights_regularizer"), "pointwise_initializer")
    expected = {
        "conv1d": conv,
        "conv2d": conv,
        "convolution": [*conv, "conv_dims"],
        "conv2d_transpose": [*head, "stride", "padding", "data_format", *settings],
        "separable_conv2d": separable,
        "max_pool2d": pool,
        "avg_pool2d": pool,
    }
    for name, arguments in expected.items():
        assert list(inspect.signature(getattr(layers, name)).parameters) == arguments, name
    assert layers.convolution1d is layers.conv1d
    assert layers.convolution2d is layers.conv2d
    assert layers.convolution2d_transpose is layers.conv2d_transpose
    assert layers.separable_convolution2d is layers.separable_conv2d
