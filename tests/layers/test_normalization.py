"""BatchNormalization against NumPy and TensorFlow's numbers, in training and in inference."""

import inspect

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import optkit as tf
from optkit import layers
from optkit.runtime.eager import eager

norm = layers.batch_normalization


def names(items):
    return [item.name for item in items]


def batch(shape, seed=3, dtype=np.float32):
    return (np.random.default_rng(seed).standard_normal(shape) * 2 + 1).astype(dtype)


def moments(x, axis, sample=False):
    """Mean and variance of each place on the axes, in the shape of the parameters."""
    axis = [a % x.ndim for a in np.atleast_1d(axis)]
    over = tuple(i for i in range(x.ndim) if i not in axis)
    wide = x.astype(np.float64)
    variance = wide.var(over, keepdims=True, ddof=1 if sample else 0)
    return wide.mean(over, keepdims=True), variance


def normalized(x, axis, epsilon=1e-3):
    mean, variance = moments(x, axis)
    return (x - mean) / np.sqrt(variance + epsilon)


# shape, axis, dtype, whether the variance that is averaged is a sample's: it is where TensorFlow
# 2.21 has a fused operation.
KINDS = [
    ((4, 3), -1, np.float32, False),
    ((4, 3), 1, np.float64, False),
    ((4, 3), -1, np.float16, False),
    ((4, 2, 3), -1, np.float32, False),
    ((4, 2, 3), 1, np.float32, False),
    ((4, 2, 3), [1, 2], np.float32, False),
    ((4, 2, 2, 3), -1, np.float32, True),
    ((4, 3, 2, 2), 1, np.float32, True),
    ((4, 2, 3, 2), 2, np.float32, False),
    ((4, 2, 2, 3), 3, np.float64, False),
    ((4, 2, 2, 3), 3, np.float16, True),
]


@pytest.mark.parametrize("way", ["static", "fed", "constant", "eager"])
@pytest.mark.parametrize(("shape", "axis", "dtype", "sample"), KINDS)
def test_training_and_inference(shape, axis, dtype, sample, way):
    """Two steps of training, then inference with the averages."""
    batches = [batch(shape, seed, dtype) for seed in (3, 4)]
    mean, variance = 0.0, 1.0
    for x in batches:
        batch_mean, batch_variance = moments(x, axis, sample)
        mean = 0.9 * mean + 0.1 * batch_mean
        variance = 0.9 * variance + 0.1 * batch_variance
    tolerance = (
        {"rtol": 1e-2, "atol": 1e-2} if dtype == np.float16 else {"rtol": 1e-4, "atol": 1e-5}
    )
    trained = normalized(batches[1], axis)
    inferred = (batches[0] - mean) / np.sqrt(variance + 1e-3)

    def check(y, averages, inference):
        assert y.dtype == dtype
        assert_allclose(y, trained, **tolerance)
        for found, expected in zip(averages, (mean, variance), strict=True):
            assert found.dtype == (np.float64 if dtype == np.float64 else np.float32)
            assert_allclose(found.ravel(), expected.ravel(), **tolerance)
        assert_allclose(inference, inferred, **tolerance)

    layer = layers.BatchNormalization(axis, momentum=0.9)
    if way == "eager":
        with eager():
            layer = layers.BatchNormalization(axis, momentum=0.9)
            for x in batches:
                y = layer(x, training=True)
            averages = [layer.moving_mean.numpy(), layer.moving_variance.numpy()]
            check(y.numpy(), averages, layer(batches[0]).numpy())
        return
    x = tf.placeholder(dtype, [None, *shape[1:]])
    flag = tf.placeholder(tf.bool, [])
    y = layer(x, training={"static": True, "fed": flag, "constant": tf.constant(True)}[way])
    assert y.shape == [None, *shape[1:]]
    inference = y if way == "fed" else layer(x)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for value in batches:
            found = sess.run([y, *tf.get_collection("update_ops")], {x: value, flag: True})[0]
        averages = [sess.value(layer.moving_mean), sess.value(layer.moving_variance)]
        check(found, averages, sess.run(inference, {x: batches[0], flag: False}))
        # The updates of a switch that is off change nothing.
        if way == "fed":
            sess.run(tf.get_collection("update_ops"), {x: batches[0], flag: False})
        after = [sess.value(layer.moving_mean), sess.value(layer.moving_variance)]
        assert_array_equal(after, averages)


def test_tensorflows_numbers():
    """TensorFlow 2.21 with tf_keras (v1, graph mode): momentum 0.5, epsilon 0.1, no gamma."""
    x = tf.placeholder(tf.float32, [None, 3])
    y = norm(x, training=True, momentum=0.5, epsilon=0.1, scale=False)
    rng = np.random.default_rng(3)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(2):
            value = (rng.standard_normal((4, 3)) * 2 + 1).astype(np.float32)
            found = sess.run([y, *tf.get_collection("update_ops")], {x: value})
        held = {v.op.name: sess.value(v) for v in tf.global_variables()}
    assert_allclose(
        found[0].ravel()[:6], [-0.8834, -1.3442, -1.4229, -1.0143, 0.8396, 0.4773], atol=1e-4
    )
    assert_allclose(held["batch_normalization/moving_mean"], [1.5549, 0.413, 0.1794], atol=1e-4)
    assert_allclose(held["batch_normalization/moving_variance"], [6.021, 1.897, 0.7785], atol=1e-4)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("way", ["static", "fed"])
def test_gradients(training, way):
    """By differences of the reference, of the input, gamma and beta."""
    value, weights = batch((5, 2), dtype=np.float64), batch((5, 2), 9, np.float64)
    gamma, beta = np.float64([1.5, 0.5]), np.float64([0.25, -1.0])
    mean, variance = np.float64([0.5, 2.0]), np.float64([2.0, 0.5])

    def loss(x, gamma, beta):
        m, v = moments(x, -1) if training else (mean, variance)
        y = (x - m) / np.sqrt(v + 1e-3) * gamma + beta
        return (y * weights).sum()

    layer = layers.BatchNormalization(
        beta_initializer=tf.constant_initializer(beta),
        gamma_initializer=tf.constant_initializer(gamma),
        moving_mean_initializer=tf.constant_initializer(mean),
        moving_variance_initializer=tf.constant_initializer(variance),
    )
    x, flag = tf.constant(value), tf.placeholder(tf.bool, [])
    y = layer(x, training=flag if way == "fed" else training)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        wanted = tf.gradients(tf.reduce_sum(y * weights), [x, layer.gamma, layer.beta])
        found = sess.run(wanted, {flag: training})
    arguments = [value, gamma, beta]
    for i, gradient in enumerate(found):
        for place in np.ndindex(gradient.shape):
            up, down = ([a.copy() for a in arguments] for _ in range(2))
            up[i][place] += 1e-5
            down[i][place] -= 1e-5
            difference = (loss(*up) - loss(*down)) / 2e-5
            assert_allclose(gradient[place], difference, rtol=1e-5, atol=1e-8)


# -- train ops ------------------------------------------------------------------------------------


def model(way):
    x, flag = tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.bool, [])
    y = norm(x, training=flag if way == "fed" else True, momentum=0.5)
    loss = tf.reduce_mean(tf.square(layers.dense(y, 1) - 1))
    return loss, {x: batch((6, 2)), flag: True}


TRAIN_OPS = {
    "optimize_loss": (
        lambda loss: tf.contrib.layers.optimize_loss(loss, None, 0.1, "SGD"),
        True,
    ),
    "create_train_op": (
        lambda loss: tf.contrib.training.create_train_op(
            loss, tf.train.GradientDescentOptimizer(0.1)
        ),
        True,
    ),
    "minimize": (lambda loss: tf.train.GradientDescentOptimizer(0.1).minimize(loss), False),
}


@pytest.mark.parametrize("way", ["static", "fed"])
@pytest.mark.parametrize("name", TRAIN_OPS)
def test_p048_the_averages_move_under_train_ops_and_not_under_minimize(name, way):
    make, moves = TRAIN_OPS[name]
    loss, feed = model(way)
    train_op = make(loss)
    x = next(iter(feed.values()))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(3):
            sess.run(train_op, feed)
        held = {v.op.name: sess.value(v) for v in tf.global_variables()}
    kept = 0.5**3 if moves else 1.0
    mean, variance = moments(x, -1)
    assert_allclose(
        held["batch_normalization/moving_mean"], (1 - kept) * mean[0], rtol=1e-5, atol=1e-6
    )
    expected = kept + (1 - kept) * variance[0]
    assert_allclose(held["batch_normalization/moving_variance"], expected, rtol=1e-5)
    assert (held["batch_normalization/gamma"] != 1).all()


def test_the_idiom_for_minimize():
    """control_dependencies on UPDATE_OPS around minimize, as TF1's documentation has it."""
    loss, feed = model("static")
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(train_op, feed)
        found = sess.run("batch_normalization/moving_mean:0")
    assert_allclose(found, 0.5 * moments(next(iter(feed.values())), -1)[0][0], rtol=1e-5)


def test_p049_the_loss_is_that_of_the_old_averages():
    """Inference normalises by the averages from before the updates of the same run."""
    x = tf.constant(batch((4, 2)))
    norm(x, training=True, momentum=0.0, name="bn")
    loss = tf.reduce_sum(norm(x, name="bn", reuse=True))
    train_op = tf.contrib.layers.optimize_loss(loss, None, 0.1, "SGD")
    with tf.Session() as sess:
        expected = batch((4, 2)).sum() / np.sqrt(1.001)
        for _ in range(20):
            sess.run(tf.global_variables_initializer())
            assert_allclose(sess.run(train_op), expected, rtol=1e-6)
            assert_allclose(sess.run("bn/moving_mean:0"), batch((4, 2)).mean(0), rtol=1e-5)


# -- names, observed in TensorFlow 2.21 with tf_keras (v1, graph mode) ----------------------------

ALL = ["gamma", "beta", "moving_mean", "moving_variance"]


def in_scope(scope, variables):
    return [f"{scope}/{name}:0" for name in variables]


def test_names_in_training(graph):
    norm(tf.placeholder(tf.float32, [None, 4]), training=True)
    assert names(tf.global_variables()) == in_scope("batch_normalization", ALL)
    assert names(tf.trainable_variables()) == in_scope("batch_normalization", ALL[:2])
    assert names(graph.get_collection("update_ops")) == in_scope(
        "batch_normalization", ["AssignMovingAvg", "AssignMovingAvg_1"]
    )
    assert tf.model_variables() == []


def test_names_in_inference(graph):
    y = norm(tf.placeholder(tf.float32, [None, 4]))
    assert y.name == "batch_normalization/batchnorm/add_1:0"
    assert names(tf.global_variables()) == in_scope("batch_normalization", ALL)
    assert graph.get_collection("update_ops") == []


def test_without_center_and_scale():
    norm(tf.placeholder(tf.float32, [None, 4]), center=False, scale=False, training=True)
    assert names(tf.global_variables()) == in_scope("batch_normalization", ALL[2:])
    assert tf.trainable_variables() == []


def test_a_layer_that_is_not_trainable_has_no_updates(graph):
    """TensorFlow 2.21: it still normalises by the batch."""
    x = batch((4, 3))
    y = norm(x, training=True, trainable=False)
    assert graph.get_collection("update_ops") == tf.trainable_variables() == []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert_allclose(sess.run(y), normalized(x, -1), rtol=1e-4, atol=1e-5)


def test_reuse_shares_variables_and_adds_updates(graph):
    x = tf.placeholder(tf.float32, [None, 4])
    norm(x, training=True, name="bn")
    norm(x, training=True, name="bn", reuse=True)
    assert names(tf.global_variables()) == in_scope("bn", ALL)
    assert names(graph.get_collection("update_ops")) == [
        *in_scope("bn", ["AssignMovingAvg", "AssignMovingAvg_1"]),
        *in_scope("bn_1", ["AssignMovingAvg", "AssignMovingAvg_1"]),
    ]


def test_updates_by_input(graph):
    """What a discriminator that is used twice needs: the updates of one use."""
    layer = layers.BatchNormalization()
    x, z = (tf.placeholder(tf.float32, [None, 4]) for _ in range(2))
    layer(x, training=True)
    layer(z, training=True)
    assert len(layer.updates) == 4
    assert layer.get_updates_for(x) == layer.updates[:2]
    assert layer.get_updates_for(z) == layer.updates[2:]


def test_regularizers_and_constraints():
    layer = layers.BatchNormalization(
        beta_regularizer=tf.nn.l2_loss,
        gamma_regularizer=tf.reduce_sum,
        beta_constraint=tf.abs,
        gamma_constraint=tf.nn.relu,
    )
    layer(batch((4, 3)), training=True)
    assert (layer.beta.constraint, layer.gamma.constraint) == (tf.abs, tf.nn.relu)
    assert names(layer.losses) == [
        "batch_normalization/gamma/Regularizer/Sum:0",
        "batch_normalization/beta/Regularizer/L2Loss:0",
    ]


def test_16_bit_floats_have_parameters_of_32():
    norm(tf.placeholder(tf.float16, [None, 4]), training=True)
    assert {v.dtype.name for v in tf.global_variables()} == {"float32"}


def test_the_fused_operations_epsilon_has_a_lower_bound():
    """TensorFlow 2.21: 1.001e-5, for four axes only."""
    one = np.ones((1, 1, 1, 1), np.float32)
    settings = {"epsilon": 1e-8, "moving_variance_initializer": tf.zeros_initializer()}
    bounded, plain = norm(one, **settings), norm(one[0, 0], **settings)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert_allclose(sess.run(bounded), 1.001e-5**-0.5, rtol=1e-5)
        assert_allclose(sess.run(plain), 1e4, rtol=1e-5)


@pytest.mark.parametrize(("fused", "sample"), [(False, False), (True, True), (None, True)])
def test_fused_chooses_the_variance(fused, sample):
    x = batch((4, 2, 2, 3))
    norm(x, training=True, momentum=0.0, fused=fused)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        found = sess.run(tf.get_collection("update_ops"))[1]
    assert_allclose(found, moments(x, -1, sample)[1].ravel(), rtol=1e-5)


# -- refusals -------------------------------------------------------------------------------------

REFUSED = [
    (ValueError, "renorm: not supported, got True", [None, 4], {"renorm": True}),
    (ValueError, "virtual_batch_size: not supported, got 2", [4, 4], {"virtual_batch_size": 2}),
    (ValueError, "inputs: expected known sizes on the axes", [None, None], {}),
    (ValueError, "inputs: expected a known rank", None, {}),
    (ValueError, r"axis: expected axes of inputs of shape \(\?, 4\)", [None, 4], {"axis": 2}),
    (ValueError, "inputs: expected known sizes on the axes", [None, 4], {"axis": 0}),
    (ValueError, "inputs: expected known sizes on the axes", [4, 4], {"axis": [1, -1]}),
    (ValueError, "fused: expected False, but for four axes", [None, 4], {"fused": True}),
    (TypeError, r"axis: expected an int, got 1\.5", [None, 4], {"axis": 1.5}),
    (TypeError, "training: expected a bool or a bool tensor, got 2", [4, 4], {"training": 2}),
]


@pytest.mark.parametrize(("error", "message", "shape", "arguments"), REFUSED)
def test_refusals(graph, error, message, shape, arguments):
    x = tf.placeholder(tf.float32, shape, name="x")
    with pytest.raises(error, match=message):
        norm(x, **arguments)
    assert names(graph.get_operations()) == ["x"]


def test_integers_are_refused():
    with pytest.raises(
        TypeError, match="'batch_normalization': inputs: expected floats, got int32"
    ):
        norm(tf.placeholder(tf.int32, [None, 4]), training=True)


def test_another_input_than_at_first():
    layer = layers.BatchNormalization()
    layer(tf.ones([2, 4]))
    with pytest.raises(ValueError, match="inputs: expected size 4 on axis 1"):
        layer(tf.ones([2, 3]))
    with pytest.raises(ValueError, match="inputs: expected 2 axes"):
        layer(tf.ones([2, 2, 4]))


def test_signatures_are_those_of_tensorflow():
    """TensorFlow 2.21's tf.compat.v1.layers: names and order of the arguments."""
    shared = [
        "axis", "momentum", "epsilon", "center", "scale", "beta_initializer", "gamma_initializer",
        "moving_mean_initializer", "moving_variance_initializer", "beta_regularizer",
        "gamma_regularizer", "beta_constraint", "gamma_constraint",
    ]  # fmt: skip
    renorm = ["renorm", "renorm_clipping", "renorm_momentum", "fused"]
    assert list(inspect.signature(layers.BatchNormalization).parameters) == [
        *shared, *renorm, "trainable", "virtual_batch_size", "adjustment", "name", "kwargs",
    ]  # fmt: skip
    assert list(inspect.signature(norm).parameters) == [
        "inputs", *shared, "training", "trainable", "name", "reuse", *renorm,
        "virtual_batch_size", "adjustment",
    ]  # fmt: skip


@pytest.mark.parametrize("fused", [True, False])
def test_the_averages_of_an_empty_batch_are_nan_as_in_tensorflow(fused):
    x = tf.constant(np.zeros((0, 2, 2, 3), np.float32))
    y = norm(x, training=True, fused=fused)
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    session.run(tf.get_collection(tf.GraphKeys.UPDATE_OPS))
    gamma, beta, *averages = session.run(tf.global_variables())
    assert_array_equal([gamma, beta], [[1, 1, 1], [0, 0, 0]])
    assert np.isnan(averages).all()
    assert session.run(tf.gradients(y, [x]))[0].shape == (0, 2, 2, 3)
