"""contrib's layers against NumPy; names and collections observed with tf_slim 1.1 on TF 2.21."""

import inspect

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import optkit as tf
from optkit.contrib import layers
from optkit.contrib.framework import arg_scope
from optkit.contrib.layers import utils
from optkit.runtime.eager import eager

X = np.float32([[1, 2, 0, -1], [3, -4, 1, 0], [0, 1, 2, 5]])
WEIGHTS = np.float32([[1, 0], [2, 1], [0, 1], [1, -3]])


def names(items):
    return [item.name for item in items]


def collected(graph):
    return {key: names(graph.get_collection(key)) for key in graph.get_all_collection_keys()}


def run(fetches, feed=None):
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        return sess.run(fetches, feed)


def given(value):
    return tf.constant_initializer(value)


# -- fully_connected ------------------------------------------------------------------------------

ACTIVATIONS = [
    (layers.fully_connected, lambda y: np.maximum(y, 0)),
    (layers.relu, lambda y: np.maximum(y, 0)),
    (layers.relu6, lambda y: np.clip(y, 0, 6)),
    (layers.elu, lambda y: np.where(y > 0, y, np.expm1(y))),
    (layers.linear, lambda y: y),
]


@pytest.mark.parametrize("mode", ["graph", "eager"])
@pytest.mark.parametrize(("layer", "activation"), ACTIVATIONS)
def test_fully_connected(layer, activation, mode):
    expected = activation(X.astype(float) @ WEIGHTS + [0.5, -1])
    settings = {
        "weights_initializer": given(WEIGHTS),
        "biases_initializer": given(np.float32([0.5, -1])),
    }
    if mode == "eager":
        with eager():
            found = layer(X, 2, **settings).numpy()
    else:
        found = run(layer(X, 2, **settings))
    assert_allclose(found, expected, rtol=1e-6)


def test_names_and_collections_of_fully_connected(graph):
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    found = [
        layers.fully_connected(x, 3),
        layers.fully_connected(
            x,
            3,
            activation_fn=None,
            scope="mine",
            weights_regularizer=layers.l2_regularizer(0.1),
            outputs_collections="outs",
            variables_collections=["vc"],
        ),
        layers.fully_connected(
            x, 3, None, scope="mine", reuse=True, outputs_collections=["outs", "o2"]
        ),
        layers.fully_connected(
            x, 3, biases_initializer=None, variables_collections={"weights": ["w"], "biases": ["b"]}
        ),
        layers.linear(x, 2),
        layers.relu6(x, 2),
    ]
    with tf.variable_scope("s"):
        found += [layers.fully_connected(x, 2), layers.fully_connected(x, 2, trainable=False)]
    assert names(found) == [
        "fully_connected/Relu:0",
        "mine/BiasAdd:0",
        "mine_1/BiasAdd:0",
        "fully_connected_1/Relu:0",
        "fully_connected_2/BiasAdd:0",
        "fully_connected_3/Relu6:0",
        "s/fully_connected/Relu:0",
        "s/fully_connected_1/Relu:0",
    ]
    variables = [
        "fully_connected/weights:0",
        "fully_connected/biases:0",
        "mine/weights:0",
        "mine/biases:0",
        "fully_connected_1/weights:0",
        "fully_connected_2/weights:0",
        "fully_connected_2/biases:0",
        "fully_connected_3/weights:0",
        "fully_connected_3/biases:0",
        "s/fully_connected/weights:0",
        "s/fully_connected/biases:0",
    ]
    fixed = ["s/fully_connected_1/weights:0", "s/fully_connected_1/biases:0"]
    assert collected(graph) == {
        "variables": variables + fixed,
        "model_variables": variables + fixed,
        "trainable_variables": variables,
        "regularization_losses": ["mine/weights/Regularizer/l2_regularizer:0"],
        "vc": ["mine/weights:0", "mine/biases:0"],
        "outs": ["mine/BiasAdd:0", "mine_1/BiasAdd:0"],
        "o2": ["mine_1/BiasAdd:0"],
        "w": ["fully_connected_1/weights:0"],
    }


def test_the_default_initializer_is_xaviers():
    layers.fully_connected(X, 100)
    weights = run(tf.global_variables()[0])
    limit = np.sqrt(6 / 104)
    assert 0.95 * limit < np.abs(weights).max() < limit


def test_a_normalizer_takes_the_place_of_the_biases():
    y = layers.fully_connected(
        X, 2, normalizer_fn=layers.batch_norm, normalizer_params={"scale": True, "decay": 0.5}
    )
    assert y.name == "fully_connected/Relu:0"
    assert names(tf.model_variables()) == [
        "fully_connected/weights:0",
        "fully_connected/BatchNorm/gamma:0",
        "fully_connected/BatchNorm/beta:0",
        "fully_connected/BatchNorm/moving_mean:0",
        "fully_connected/BatchNorm/moving_variance:0",
    ]


def test_arg_scope_gives_arguments():
    with (
        arg_scope(
            [layers.fully_connected],
            activation_fn=None,
            weights_regularizer=layers.l1_regularizer(0.5),
            normalizer_fn=layers.batch_norm,
        ),
        arg_scope([layers.batch_norm], center=False),
    ):
        y = layers.fully_connected(X, 2)
        z = layers.relu(X, 2, normalizer_fn=None)
    assert y.name == "fully_connected/BatchNorm/FusedBatchNorm:0"
    assert z.name == "fully_connected_1/Relu:0"
    assert names(tf.trainable_variables()) == [
        "fully_connected/weights:0",
        "fully_connected_1/weights:0",
        "fully_connected_1/biases:0",
    ]
    assert len(tf.get_collection("regularization_losses")) == 2


def test_inputs_of_three_axes():
    x = tf.placeholder(tf.float32, [None, 5, 4])
    assert layers.fully_connected(x, 3).shape.as_list() == [None, 5, 3]


REFUSED = [
    (TypeError, r"num_outputs: expected an int, got 2\.5", lambda: layers.fully_connected(X, 2.5)),
    (
        ValueError,
        "Dense 'fully_connected': inputs: expected at least 2 axes",
        lambda: layers.fully_connected(X[0], 3),
    ),
    (
        ValueError,
        "Dense 'fc': inputs: expected a last axis of known size",
        lambda: layers.fully_connected(tf.placeholder(tf.float32, [None, None]), 3, scope="fc"),
    ),
    (
        TypeError,
        "Dense 'fully_connected': inputs: expected floats, got int32",
        lambda: layers.fully_connected(X.astype(np.int32), 3),
    ),
    (
        ValueError,
        "inputs: expected channels of known number on axis -1",
        lambda: layers.bias_add(tf.placeholder(tf.float32, [None, None])),
    ),
    (
        ValueError,
        "data_format: expected NHWC or NCHW, got 'NCWH'",
        lambda: layers.bias_add(X, data_format="NCWH"),
    ),
    (ValueError, "Flatten 'Flatten': inputs: expected at least 1", lambda: layers.flatten(1.0)),
    (
        TypeError,
        "Dropout 'Dropout': training: expected a bool",
        lambda: layers.dropout(X, is_training="yes"),
    ),
    (ValueError, r"dim: expected one in \[-2, 2\), got 5", lambda: layers.unit_norm(X, 5)),
    (
        ValueError,
        r"num_units: expected a divisor of the size of axis 1 of .*shape=\(3, 4\).*, got 3",
        lambda: layers.maxout(X, 3),
    ),
    (
        ValueError,
        "inputs: expected a known rank",
        lambda: layers.maxout(tf.placeholder(tf.float32), 3),
    ),
]


@pytest.mark.parametrize(("error", "message", "call"), REFUSED)
def test_refusals_leave_no_variables(graph, error, message, call):
    with pytest.raises(error, match=message):
        call()
    assert {op.type for op in graph.get_operations()} <= {"Placeholder"}
    assert tf.global_variables() == tf.get_collection("outs") == []


def test_reuse_under_another_shape():
    layers.fully_connected(X, 3, scope="fc")
    with pytest.raises(ValueError, match=r"variable 'fc/weights': shape: expected \(4, 3\)"):
        layers.fully_connected(X, 5, scope="fc", reuse=True)
    with pytest.raises(ValueError, match="variable 'fc/weights' exists already"):
        layers.fully_connected(X, 3, scope="fc")


# -- the others -----------------------------------------------------------------------------------


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_bias_add_alone(data_format):
    x = np.zeros((2, 4, 4), np.float32)
    assert layers.bias_add(x, data_format=data_format).name == "BiasAdd/BiasAdd:0"


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_bias_add(graph, data_format):
    x = np.zeros((2, 3, 4, 5), np.float32)
    channels = 3 if data_format == "NCHW" else 5
    y = layers.bias_add(
        x,
        tf.exp,
        given(np.arange(channels, dtype=np.float32)),
        layers.l2_regularizer(0.1),
        variables_collections={"biases": ["b"]},
        outputs_collections="outs",
        data_format=data_format,
    )
    shape = (3, 1, 1) if data_format == "NCHW" else (5,)
    assert_allclose(run(y), x + np.exp(np.arange(channels).reshape(shape)), rtol=1e-6)
    biases = ["BiasAdd/biases:0"]
    assert collected(graph) == {
        "variables": biases,
        "model_variables": biases,
        "trainable_variables": biases,
        "b": biases,
        "outs": ["BiasAdd/Exp:0"],
        "regularization_losses": ["BiasAdd/biases/Regularizer/l2_regularizer:0"],
    }


@pytest.mark.parametrize("training", [True, False, "fed"])
def test_dropout(training):
    ones, flag = np.ones((100, 100), np.float32), tf.placeholder(tf.bool, [])
    y = layers.dropout(ones, 0.75, seed=1, is_training=flag if training == "fed" else training)
    kept = run(y, {flag: True})
    if training is False:
        assert_array_equal(kept, ones)
        return
    assert_allclose(np.unique(kept), [0, 4 / 3], rtol=1e-6)
    assert_allclose((kept > 0).mean(), 0.75, atol=0.03)
    if training == "fed":
        assert_array_equal(run(y, {flag: False}), ones)


def test_flatten():
    x = tf.placeholder(tf.float32, [None, 2, 3])
    y = layers.flatten(x, outputs_collections="outs")
    assert y.shape.as_list() == [None, 6]
    value = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    assert_array_equal(run(y, {x: value}), value.reshape(2, 6))
    assert tf.get_collection("outs") == [y]


def test_one_hot_encoding():
    y = layers.one_hot_encoding([1, 0], 3, on_value=2.0, off_value=-1.0)
    assert y.dtype is tf.float32
    assert_array_equal(run(y), [[-1, 2, -1], [2, -1, -1]])
    assert layers.one_hot_encoding(np.int64([1]), 2).op.name.startswith("OneHotEncoding_1/")


def test_softmax_and_unit_norm():
    assert_allclose(run(layers.softmax(X)).sum(1), np.ones(3), rtol=1e-6)
    expected = X / np.linalg.norm(X, axis=1, keepdims=True)
    for dim in (1, -1):
        assert_allclose(run(layers.unit_norm(X, dim)), expected, rtol=1e-5)


@pytest.mark.parametrize("shape", [[3, 4], [None, 4]])
def test_maxout(shape):
    x = tf.placeholder(tf.float32, shape)
    y = layers.maxout(x, 2)
    assert y.shape.as_list() == [shape[0], 2]
    assert_array_equal(run(y, {x: X}), X.reshape(3, 2, 2).max(2))
    if shape[0]:
        assert_array_equal(run(layers.maxout(x, 1, axis=0), {x: X}), X.max(0, keepdims=True))


def test_repeat_and_stack():
    found = [
        layers.repeat(X, 2, layers.fully_connected, 3),
        layers.repeat(X, 2, layers.linear, 3, scope="rep"),
        layers.stack(X, layers.fully_connected, [3, 4], scope="st"),
        layers.stack(X, layers.fully_connected, [[3, tf.nn.tanh], 4]),
    ]
    assert names(found) == [
        "Repeat/fully_connected_2/Relu:0",
        "rep/rep_2/BiasAdd:0",
        "st/st_2/Relu:0",
        "Stack/fully_connected_2/Relu:0",
    ]
    assert [y.shape.as_list() for y in found] == [[3, 3], [3, 3], [3, 4], [3, 4]]
    assert names(tf.global_variables())[::2] == [
        "Repeat/fully_connected_1/weights:0",
        "Repeat/fully_connected_2/weights:0",
        "rep/rep_1/weights:0",
        "rep/rep_2/weights:0",
        "st/st_1/weights:0",
        "st/st_2/weights:0",
        "Stack/fully_connected_1/weights:0",
        "Stack/fully_connected_2/weights:0",
    ]


# -- named outputs --------------------------------------------------------------------------------


def test_outputs_by_their_scopes():
    with tf.variable_scope("net"):
        a = layers.fully_connected(X, 3, outputs_collections="ends")
        b = layers.dropout(a, outputs_collections="ends", scope="drop")
    found = utils.convert_collection_to_dict("ends")
    assert list(found.items()) == [("net/fully_connected", a), ("net/drop", b)]
    utils.append_tensor_alias(b, "last")
    assert utils.gather_tensors_aliases([a, b]) == ["net/fully_connected", "net/drop", "last"]
    assert utils.get_tensor_aliases(tf.constant(1.0, name="bare")) == ["bare"]
    assert list(utils.convert_collection_to_dict("ends", clear_collection=True)) == [
        "net/fully_connected", "net/drop", "last",
    ]  # fmt: skip
    assert tf.get_collection("ends") == []


def test_named_outputs_are_not_kept_in_eager_mode():
    with eager():
        y = layers.flatten(X, outputs_collections="ends", scope="alias")
        assert utils.get_tensor_aliases(y) == [y.op.name] != ["alias"]
        assert tf.get_collection("ends") == []


def test_signatures_are_those_of_contrib():
    """As tf_slim 1.1 has them."""
    shared = ["reuse", "variables_collections", "outputs_collections", "trainable"]
    kernel = ["activation_fn", "normalizer_fn", "normalizer_params", "weights_initializer",
              "weights_regularizer", "biases_initializer", "biases_regularizer", *shared,
              "scope"]  # fmt: skip
    expected = {
        "fully_connected": ["inputs", "num_outputs", *kernel],
        "bias_add": ["inputs", "activation_fn", "initializer", "regularizer", *shared,
                     "data_format", "scope"],
        "dropout": ["inputs", "keep_prob", "noise_shape", "is_training", "outputs_collections",
                    "scope", "seed"],
        "flatten": ["inputs", "outputs_collections", "scope"],
        "one_hot_encoding": ["labels", "num_classes", "on_value", "off_value",
                             "outputs_collections", "scope"],
        "softmax": ["logits", "scope"],
        "unit_norm": ["inputs", "dim", "epsilon", "scope"],
        "maxout": ["inputs", "num_units", "axis", "scope"],
        "repeat": ["inputs", "repetitions", "layer", "args", "kwargs"],
        "stack": ["inputs", "layer", "stack_args", "kwargs"],
        "l1_regularizer": ["scale", "scope"],
        "l2_regularizer": ["scale", "scope"],
        "l1_l2_regularizer": ["scale_l1", "scale_l2", "scope"],
        "sum_regularizer": ["regularizer_list", "scope"],
        "apply_regularization": ["regularizer", "weights_list"],
        "summarize_tensor": ["tensor", "tag"],
        "summarize_activation": ["op"],
        "summarize_tensors": ["tensors", "summarizer"],
        "summarize_collection": ["collection", "name_filter", "summarizer"],
    }  # fmt: skip
    for name, arguments in expected.items():
        assert list(inspect.signature(getattr(layers, name)).parameters) == arguments, name
