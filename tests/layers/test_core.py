"""Dense, Dropout and Flatten against NumPy; names and collections against TensorFlow; refusals."""

import inspect

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import optkit as tf
from optkit import layers, losses
from optkit.runtime.eager import eager

X = np.float32([[1, 2], [3, -4], [0, 1]])
KERNEL, BIAS = np.float32([[1, 0, -1], [2, 1, 0.5]]), np.float32([0.5, -1, 0])


def names(items):
    return [item.name for item in items]


def run(fetches, feed=None):
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        return sess.run(fetches, feed)


def constant(value):
    return tf.constant_initializer(value)


def made_dense(**arguments):
    return layers.Dense(
        3, kernel_initializer=constant(KERNEL), bias_initializer=constant(BIAS), **arguments
    )


# -- Dense ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["graph", "eager"])
@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("activation", [None, "relu", tf.nn.relu])
@pytest.mark.parametrize("shape", [(3, 2), (1, 3, 2), (3, 1, 1, 2), (0, 2), (0, 3, 2)])
def test_dense(mode, use_bias, activation, shape):
    x = np.resize(X, shape)
    expected = x @ KERNEL + BIAS * use_bias
    if activation is not None:
        expected = np.maximum(expected, 0)
    layer = made_dense(use_bias=use_bias, activation=activation)
    if mode == "eager":
        with eager():
            layer = made_dense(use_bias=use_bias, activation=activation)
            found = layer(x).numpy()
    else:
        y = layer(x)
        assert y.shape == layer.compute_output_shape(x.shape) == expected.shape
        found = run(y)
    assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [[None, 2], [None, 3, 2], [3, None, 2], [None, None, 2]])
def test_dense_of_unknown_sizes(shape):
    x = tf.placeholder(tf.float32, shape)
    y = made_dense()(x)
    assert y.shape == [*shape[:-1], 3]
    value = np.resize(X, [n or 3 for n in shape])
    assert_allclose(run(y, {x: value}), value @ KERNEL + BIAS, rtol=1e-6)
    assert y.op.name == ("dense/BiasAdd")


def test_a_built_layer_takes_any_rank():
    layer = made_dense()
    layer(X)
    x = tf.placeholder(tf.float32)
    assert_allclose(run(layer(x), {x: [X]}), [X @ KERNEL + BIAS], rtol=1e-6)


def test_gradients_of_dense():
    layer = made_dense()
    x = tf.constant(X)
    loss = tf.reduce_sum(layer(x) * np.float32([1, 2, 3]))
    dx, dkernel, dbias = run(tf.gradients(loss, [x, layer.kernel, layer.bias]))
    dy = np.tile(np.float32([1, 2, 3]), (3, 1))
    assert_allclose(dx, dy @ KERNEL.T)
    assert_allclose(dkernel, X.T @ dy)
    assert_allclose(dbias, dy.sum(0))


def test_names_of_dense(graph):
    """Observed in TensorFlow 2.21 with tf_keras (v1, graph mode)."""
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    found = [
        layers.dense(
            x,
            3,
            tf.nn.relu,
            kernel_regularizer=tf.reduce_sum,
            activity_regularizer=tf.reduce_mean,
        ),
        layers.dense(x, 3),
        layers.dense(x, 3, name="mine"),
        layers.dense(x, 3, name="mine", reuse=True),
        layers.dense(x, 3, name="auto", reuse=tf.AUTO_REUSE),
        layers.dense(x, 3, name="auto", reuse=tf.AUTO_REUSE),
    ]
    with tf.variable_scope("s"):
        found.append(layers.dense(x, 3))
        found.append(layers.dense(x, 3))
    with tf.variable_scope("s", reuse=True):
        found.append(layers.dense(x, 3))
    assert names(found) == [
        "dense/Relu:0",
        "dense_1/BiasAdd:0",
        "mine/BiasAdd:0",
        "mine_1/BiasAdd:0",
        "auto/BiasAdd:0",
        "auto_1/BiasAdd:0",
        "s/dense/BiasAdd:0",
        "s/dense_1/BiasAdd:0",
        "s_1/dense/BiasAdd:0",
    ]
    scopes = ["dense", "dense_1", "mine", "auto", "s/dense", "s/dense_1"]
    expected = [f"{scope}/{name}:0" for scope in scopes for name in ("kernel", "bias")]
    assert names(tf.global_variables()) == names(tf.trainable_variables()) == expected
    assert names(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)) == [
        "dense/kernel/Regularizer/Sum:0",
        "dense/ActivityRegularizer/truediv:0",
    ]


def test_constraints_reach_the_variables():
    layer = layers.Dense(3, kernel_constraint=tf.abs, bias_constraint=tf.nn.relu)
    layer(X)
    assert (layer.kernel.constraint, layer.bias.constraint) == (tf.abs, tf.nn.relu)


def test_regularizers_of_dense():
    layers.dense(
        X,
        3,
        kernel_initializer=constant(KERNEL),
        bias_initializer=constant(BIAS),
        kernel_regularizer=tf.nn.l2_loss,
        bias_regularizer=tf.reduce_sum,
        activity_regularizer=tf.reduce_sum,
    )
    found = run(losses.get_regularization_losses())
    rows = (X @ KERNEL + BIAS).sum() / 3
    assert_allclose(found, [(KERNEL**2).sum() / 2, BIAS.sum(), rows], rtol=1e-6)


def test_the_bias_can_be_left_out():
    layer = layers.Dense(3, use_bias=False)
    layer(X)
    assert layer.bias is None
    assert names(layer.variables) == ["dense/kernel:0"]


def test_a_layer_that_is_not_trainable():
    layers.dense(X, 3, trainable=False)
    assert names(tf.global_variables()) == ["dense/kernel:0", "dense/bias:0"]
    assert tf.trainable_variables() == []


@pytest.mark.parametrize("units", [3, 3.0, np.int64(3), tf.Dimension(3)])
def test_units(units):
    assert layers.dense(X, units).shape == (3, 3)


REFUSED = [
    (TypeError, r"units: expected an int, got 2\.5", X, 2.5),
    (TypeError, "units: expected an int, got '3'", X, "3"),
    (ValueError, "units: expected a number >= 1, got 0", X, 0),
    (ValueError, "Dense 'dense': inputs: expected at least 2 axes", X[0], 3),
    (
        ValueError,
        r"Dense 'dense': inputs: expected a last axis of known size, got .*\[None, None\]",
        lambda: tf.placeholder(tf.float32, [None, None]),
        3,
    ),
    (
        ValueError,
        "inputs: expected a last axis of known size",
        lambda: tf.placeholder(tf.float32),
        3,
    ),
    (TypeError, "Dense 'dense': inputs: expected floats, got int32", X.astype(np.int32), 3),
]


@pytest.mark.parametrize(("error", "message", "x", "units"), REFUSED)
def test_refusals(graph, error, message, x, units):
    x = x() if callable(x) else x
    before = len(graph.get_operations())
    with pytest.raises(error, match=message):
        layers.dense(x, units)
    assert len(graph.get_operations()) == before
    assert tf.global_variables() == []


def test_another_last_axis_than_at_first():
    layer = layers.Dense(3)
    layer(X)
    with pytest.raises(ValueError, match="Dense 'dense': inputs: expected size 2 on axis -1"):
        layer(tf.ones([3, 5]))


def test_reuse_under_another_shape():
    layers.dense(X, 3, name="d")
    with pytest.raises(ValueError, match=r"variable 'd/kernel': shape: .*\(2, 3\).*\(2, 5\)"):
        layers.dense(X, 5, name="d", reuse=True)
    with pytest.raises(ValueError, match="variable 'd/kernel': dtype: expected float32"):
        layers.dense(X.astype(float), 3, name="d", reuse=True)
    with pytest.raises(ValueError, match="variable 'd/kernel' exists already"):
        layers.dense(X, 3, name="d")
    with pytest.raises(ValueError, match="variable 'e/kernel' does not exist"):
        layers.dense(X, 3, name="e", reuse=True)


# -- Dropout --------------------------------------------------------------------------------------

ONES = np.ones((200, 50), np.float32)


@pytest.mark.parametrize("training", [True, 1, "constant", "fed"])
def test_dropout_in_training(training):
    flag = tf.placeholder(tf.bool, [])
    given = {"constant": lambda: tf.constant(True), "fed": lambda: flag}
    y = layers.dropout(
        ONES, 0.25, seed=1, training=given[training]() if training in given else training
    )
    found = run(y, {flag: True})
    assert_allclose(np.unique(found), [0, 4 / 3], rtol=1e-6)
    assert_allclose((found == 0).mean(), 0.25, atol=0.03)


@pytest.mark.parametrize("training", [False, 0, "fed"])
def test_dropout_outside_of_training(training):
    flag = tf.placeholder(tf.bool, [])
    y = layers.dropout(ONES, training=flag if training == "fed" else training)
    assert_array_equal(run(y, {flag: False}), ONES)


def test_dropout_drops_where_noise_shape_says():
    y = run(layers.dropout(ONES, noise_shape=[None, 1], seed=3, training=True))
    assert (y == y[:, :1]).all()
    assert set(np.unique(y)) == {0.0, 2.0}


def test_dropout_in_eager_mode():
    with eager():
        layer = layers.Dropout(0.5, seed=1)
        assert_array_equal(layer(ONES).numpy(), ONES)
        assert set(np.unique(layer(ONES, training=True).numpy())) == {0.0, 2.0}


def test_names_of_dropout():
    """Observed in TensorFlow 2.21."""
    x = tf.placeholder(tf.float32, [None, 4])
    found = [
        layers.dropout(x),
        layers.dropout(x, training=True),
        layers.dropout(x, training=tf.placeholder(tf.bool, [])),
        layers.dropout(x, 0.0, training=True),
        layers.dropout(x, training=True, name="d"),
    ]
    assert [name.rpartition("/")[0] for name in names(found)] == [
        "dropout", "dropout_1/dropout", "dropout_2/cond", "dropout_3", "d/dropout",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "bad", [2, "yes", None, lambda: tf.constant(1), lambda: tf.constant([True])]
)
def test_training_must_be_a_truth_value(bad):
    with pytest.raises(TypeError, match="Dropout 'dropout': training: expected a bool"):
        layers.dropout(ONES, training=bad() if callable(bad) else bad)


def test_rate_must_be_below_one():
    with pytest.raises(ValueError, match=r"rate: expected a number in \[0, 1\), got 1"):
        layers.dropout(ONES, 1.0, training=True)


# -- Flatten --------------------------------------------------------------------------------------

BATCH = np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2)


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_flatten(mode):
    if mode == "eager":
        with eager():
            found = layers.Flatten()(BATCH).numpy()
    else:
        found = run(layers.flatten(BATCH))
    assert_array_equal(found, BATCH.reshape(2, 12))


def test_flatten_moves_channels_to_the_end():
    """So that both formats give the same features, as in TensorFlow 2.21."""
    y = layers.flatten(BATCH, data_format="channels_first")
    assert_array_equal(run(y), BATCH.transpose(0, 2, 3, 1).reshape(2, 12))


@pytest.mark.parametrize(
    ("shape", "expected"),  # TensorFlow 2.21
    [
        ([None, 3, 2, 2], [None, 12]),
        ([2, None, 2, 2], [2, None]),
        ([None, None, 2, 2], [None, None]),
        ([2, 3, 2, 2], [2, 12]),
        (None, [None, None]),
    ],
)
def test_static_shapes_of_flatten(shape, expected):
    x = tf.placeholder(tf.float32, shape)
    y = layers.flatten(x)
    assert y.shape.as_list() == expected
    assert_array_equal(run(y, {x: BATCH}), BATCH.reshape(2, 12))
    if expected[1] is not None:
        x = tf.placeholder(tf.float32, [None, *shape[1:]])
        assert run(layers.flatten(x), {x: BATCH[:0]}).shape == (0, 12)


def test_flatten_of_a_vector_is_a_column():
    x = tf.placeholder(tf.float32, [None])
    y = layers.flatten(x)
    assert y.shape.as_list() == [None, 1]
    assert_array_equal(run(y, {x: [1, 2]}), [[1], [2]])
    layer = layers.Flatten()
    assert layer.compute_output_shape([5, 2, None]).as_list() == [5, None]
    assert layer.compute_output_shape([5]).as_list() == [5, 1]


def test_flatten_refuses():
    with pytest.raises(ValueError, match="Flatten 'flatten': inputs: expected at least 1 axes"):
        layers.flatten(1.0)
    with pytest.raises(ValueError, match=r"data_format: expected channels_last or .*'NHWC'"):
        layers.Flatten("NHWC")


def test_signatures_are_those_of_tensorflow():
    """TensorFlow 2.21's tf.compat.v1.layers: names and order of the arguments."""
    dense = [
        "activation", "use_bias", "kernel_initializer", "bias_initializer", "kernel_regularizer",
        "bias_regularizer", "activity_regularizer", "kernel_constraint", "bias_constraint",
        "trainable", "name",
    ]  # fmt: skip
    expected = {
        layers.Dense: ["units", *dense, "kwargs"],
        layers.Dropout: ["rate", "noise_shape", "seed", "name", "kwargs"],
        layers.Flatten: ["data_format", "kwargs"],
        layers.dense: ["inputs", "units", *dense, "reuse"],
        layers.dropout: ["inputs", "rate", "noise_shape", "seed", "training", "name"],
        layers.flatten: ["inputs", "name", "data_format"],
    }
    for function, arguments in expected.items():
        assert list(inspect.signature(function).parameters) == arguments
