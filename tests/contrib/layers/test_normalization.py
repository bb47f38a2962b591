"""batch_norm and layer_norm against NumPy and against tf_slim 1.1 on TensorFlow 2.21."""

import inspect

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import optkit as tf
from optkit.contrib import layers
from optkit.runtime.eager import eager

batch_norm, layer_norm = layers.batch_norm, layers.layer_norm


def names(items):
    return [item.name for item in items]


def batch(shape, seed=3, dtype=np.float32):
    return (np.random.default_rng(seed).standard_normal(shape) * 2 + 1).astype(dtype)


def moments(x, axis=-1, sample=False, weights=None):
    rows = np.moveaxis(x.astype(np.float64), axis, -1).reshape(-1, x.shape[axis])
    if weights is None:
        return rows.mean(0), rows.var(0, ddof=1 if sample else 0)
    w = np.repeat(weights, len(rows) // len(weights))[:, None] / np.sum(weights)
    w = w * len(weights) / len(rows)
    mean = (w * rows).sum(0)
    return mean, (w * (rows - mean) ** 2).sum(0)


def normalized(x, mean, variance, axis=-1, epsilon=1e-3):
    shape = [1] * x.ndim
    shape[axis] = -1
    return (x - mean.reshape(shape)) / np.sqrt(variance.reshape(shape) + epsilon)


# -- batch_norm -----------------------------------------------------------------------------------

# shape, arguments, whether the variance that is averaged is a sample's (observed).
KINDS = [
    ((4, 3), {}, True),
    ((4, 3), {"fused": False}, False),
    ((4, 2, 3), {}, False),
    ((4, 2, 2, 3), {}, True),
    ((4, 2, 2, 3), {"fused": False}, False),
    ((4, 3, 2, 2), {"data_format": "NCHW"}, True),
    ((4, 3, 2), {"data_format": "NCHW"}, False),
    ((4, 3), {"batch_weights": np.float32([1, 2, 0, 1])}, False),
    ((4, 2, 2, 3), {"batch_weights": np.float32([1, 2, 0, 1])}, False),
    ((4, 3, 2, 2), {"batch_weights": np.float32([1, 2, 0, 1]), "data_format": "NCHW"}, False),
    ((4, 3), {"updates_collections": "mine"}, True),
    ((4, 2, 3), {"updates_collections": None}, False),
    ((4, 3), {"updates_collections": None}, True),
]


@pytest.mark.parametrize("way", ["static", "fed"])
@pytest.mark.parametrize(("shape", "arguments", "sample"), KINDS, ids=str)
def test_training_and_inference(shape, arguments, sample, way):
    axis = 1 if "data_format" in arguments else -1
    weights = arguments.get("batch_weights")
    batches = [batch(shape, seed) for seed in (3, 4)]
    mean, variance = np.zeros(3), np.ones(3)
    for x in batches:
        batch_mean, batch_variance = moments(x, axis, sample, weights)
        mean, variance = (mean + batch_mean) / 2, (variance + batch_variance) / 2
    trained = normalized(batches[1], *moments(batches[1], axis, weights=weights), axis)
    inferred = normalized(batches[0], mean, variance, axis)

    x, flag = tf.placeholder(tf.float32, [None, *shape[1:]]), tf.placeholder(tf.bool, [])
    training = flag if way == "fed" else True
    y = batch_norm(x, 0.5, is_training=training, scope="bn", **arguments)
    inference = batch_norm(x, 0.5, is_training=False, scope="bn", reuse=True, **arguments)
    updates = tf.get_collection(arguments.get("updates_collections") or "none")
    if "updates_collections" not in arguments:
        updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    assert len(updates) == (0 if arguments.get("updates_collections", "") is None else 2)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for value in batches:
            found = sess.run([y, *updates], {x: value, flag: True})[0]
        assert_allclose(found, trained, rtol=1e-4, atol=1e-5)
        held = {v.op.name: sess.value(v) for v in tf.global_variables()}
        assert_allclose(held["bn/moving_mean"], mean, rtol=1e-5, atol=1e-6)
        assert_allclose(held["bn/moving_variance"], variance, rtol=1e-5)
        assert_allclose(sess.run(inference, {x: batches[0]}), inferred, rtol=1e-4, atol=1e-5)
        if way == "fed":
            found = sess.run([y, *updates], {x: batches[0], flag: False})[0]
            assert_allclose(found, inferred, rtol=1e-4, atol=1e-5)
        for variable in tf.global_variables():
            assert_array_equal(sess.value(variable), held[variable.op.name])


def test_tensorflows_numbers_with_weights():
    """Three columns, decay 0.5, two steps."""
    x = tf.placeholder(tf.float32, [None, 3])
    y = batch_norm(x, 0.5, batch_weights=np.float32([1, 2, 0, 1]))
    found, held = two_steps(x, y)
    assert_allclose(
        found.ravel()[:6], [-0.4878, -1.729, -1.6353, -0.6207, 0.5349, 0.8114], atol=1e-4
    )
    assert_allclose(held["BatchNorm/moving_mean"], [1.3993, 0.5558, 0.1949], atol=1e-4)
    assert_allclose(held["BatchNorm/moving_variance"], [4.4536, 1.8595, 0.562], atol=1e-4)


def two_steps(x, y):
    rng = np.random.default_rng(3)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(2):
            value = (rng.standard_normal((4, 3)) * 2 + 1).astype(np.float32)
            found = sess.run([y, *tf.get_collection("update_ops")], {x: value})[0]
        return found, {v.op.name: sess.value(v) for v in tf.global_variables()}


def test_weights_leave_epsilon_alone():
    """Only the fused operation has a lower bound."""
    settings = {
        "epsilon": 1e-8,
        "is_training": False,
        "param_initializers": {"moving_variance": tf.zeros_initializer()},
    }
    one = np.ones((1, 1), np.float32)
    bounded, plain = batch_norm(one, **settings), batch_norm(one, batch_weights=[1.0], **settings)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert_allclose(sess.run(bounded), [[1.001e-5**-0.5]], rtol=1e-5)
        assert_allclose(sess.run(plain), [[1e4]], rtol=1e-5)


def test_zero_debias():
    """The start at 0 is taken out of the mean; tf_slim's names and numbers."""
    x = tf.placeholder(tf.float32, [None, 3])
    _, held = two_steps(x, batch_norm(x, 0.5, zero_debias_moving_mean=True))
    expected = {
        "BatchNorm/beta": [0, 0, 0],
        "BatchNorm/moving_mean": [2.0732, 0.5507, 0.2392],
        "BatchNorm/moving_variance": [7.9446, 2.446, 0.9547],
        "BatchNorm/BatchNorm/moving_mean/biased": [1.5549, 0.413, 0.1794],
        "BatchNorm/BatchNorm/moving_mean/local_step": 2,
    }
    assert list(held) == list(expected)
    for name, value in expected.items():
        assert_allclose(held[name], value, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("training", [True, False])
def test_zero_debias_that_is_fed(training):
    x, flag = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.bool, [])
    batch_norm(x, 0.5, zero_debias_moving_mean=True, is_training=flag)
    value = batch((4, 3))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(tf.get_collection("update_ops"), {x: value, flag: training})
        mean = sess.run("BatchNorm/moving_mean:0")
    assert_allclose(mean, moments(value)[0] if training else np.zeros(3), rtol=1e-5)


@pytest.mark.parametrize(
    ("shape", "arguments", "moves"),  # observed: where contrib has code of its own they move
    [
        ((4, 3), {}, True),
        ((4, 2, 3), {}, False),
        ((4, 2, 2, 3), {}, False),
        ((4, 3), {"fused": False}, False),
        ((4, 2, 3), {"updates_collections": "mine"}, True),
        ((4, 2, 3), {"updates_collections": None}, True),
    ],
)
def test_averages_of_what_is_not_trainable(shape, arguments, moves):
    x = batch(shape)
    y = batch_norm(x, 0.0, trainable=False, **arguments)
    assert tf.trainable_variables() == []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run([y, tf.get_collection("update_ops"), tf.get_collection("mine")])
        found = sess.run("BatchNorm/moving_mean:0")
    assert_allclose(found, moments(x)[0] if moves else np.zeros(3), rtol=1e-5)


def test_eager_mode():
    with eager():
        x = batch((4, 3))
        y = batch_norm(x, scale=True, activation_fn=tf.nn.relu)
        expected = np.maximum(normalized(x, *moments(x)), 0)
        assert_allclose(y.numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("dtype", "sample"), [(np.float16, True), (np.float64, False)])
def test_dtypes(dtype, sample):
    x = batch((4, 3), dtype=dtype)
    y = batch_norm(x, 0.0)
    assert y.dtype == dtype
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        variance = sess.run(tf.get_collection("update_ops"))[1]
    assert variance.dtype == (np.float64 if dtype == np.float64 else np.float32)
    assert_allclose(variance, moments(x, sample=sample)[1], rtol=1e-5)


def test_settings_by_name(graph):
    y = batch_norm(
        batch((4, 3)),
        scale=True,
        activation_fn=tf.nn.relu,
        param_initializers={"beta": tf.ones_initializer(), "moving_mean": tf.ones_initializer()},
        param_regularizers={"beta": layers.l2_regularizer(0.1), "gamma": tf.reduce_sum},
        variables_collections={"moving_mean": ["m"], "beta": ["b"]},
        outputs_collections="outs",
    )
    assert y.name == "BatchNorm/Relu:0"
    found = {key: names(graph.get_collection(key)) for key in graph.get_all_collection_keys()}
    every = ["gamma", "beta", "moving_mean", "moving_variance"]
    assert found == {
        "variables": [f"BatchNorm/{name}:0" for name in every],
        "model_variables": [f"BatchNorm/{name}:0" for name in every],
        "trainable_variables": ["BatchNorm/gamma:0", "BatchNorm/beta:0"],
        "m": ["BatchNorm/moving_mean:0"],
        "b": ["BatchNorm/beta:0"],
        "outs": ["BatchNorm/Relu:0"],
        "update_ops": ["BatchNorm/AssignMovingAvg:0", "BatchNorm/AssignMovingAvg_1:0"],
        "regularization_losses": [
            "BatchNorm/gamma/Regularizer/Sum:0",
            "BatchNorm/beta/Regularizer/l2_regularizer:0",
        ],
    }
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert_array_equal(
            sess.run(["BatchNorm/beta:0", "BatchNorm/moving_mean:0"]), np.ones((2, 3))
        )


def test_without_center_there_is_nothing_to_train():
    batch_norm(batch((4, 3)), center=False)
    assert names(tf.global_variables()) == [
        "BatchNorm/moving_mean:0", "BatchNorm/moving_variance:0",
    ]  # fmt: skip
    assert tf.trainable_variables() == []


def test_reuse(graph):
    x = tf.placeholder(tf.float32, [None, 3])
    with tf.variable_scope("a"):
        batch_norm(x, scope="b")
    with tf.variable_scope("a", reuse=True):
        batch_norm(x, scope="b")
    assert names(tf.trainable_variables()) == ["a/b/beta:0"]
    assert names(graph.get_collection("update_ops")) == [
        "a/b/AssignMovingAvg:0",
        "a/b/AssignMovingAvg_1:0",
        "a_1/b/AssignMovingAvg:0",
        "a_1/b/AssignMovingAvg_1:0",
    ]


TRAIN_OPS = {
    "optimize_loss": (lambda loss: layers.optimize_loss(loss, None, 0.1, "SGD"), True),
    "create_train_op": (
        lambda loss: tf.contrib.training.create_train_op(
            loss, tf.train.GradientDescentOptimizer(0.1)
        ),
        True,
    ),
    "minimize": (lambda loss: tf.train.GradientDescentOptimizer(0.1).minimize(loss), False),
}


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("way", ["static", "fed"])
@pytest.mark.parametrize("name", TRAIN_OPS)
def test_p048_the_averages_move_under_train_ops_and_not_under_minimize(name, way, in_place):
    """In place they move whatever the train op."""
    make, moves = TRAIN_OPS[name]
    x, flag = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.bool, [])
    settings = {"updates_collections": None} if in_place else {}
    y = batch_norm(x, 0.5, is_training=flag if way == "fed" else True, **settings)
    train_op = make(tf.reduce_mean(tf.square(layers.linear(y, 1) - 1)))
    value = batch((6, 3))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(3):
            sess.run(train_op, {x: value, flag: True})
        mean = sess.run("BatchNorm/moving_mean:0")
    kept = 0.5**3 if moves or in_place else 1.0
    assert_allclose(mean, (1 - kept) * moments(value)[0], rtol=1e-5, atol=1e-6)


REFUSED = [
    (ValueError, "data_format: expected NHWC or NCHW, got 'X'", [4, 3], {"data_format": "X"}),
    (ValueError, "'BatchNorm': inputs: expected known sizes on the axes", [None, None], {}),
    (ValueError, "'BatchNorm': inputs: expected a known rank", None, {}),
    (
        TypeError,
        "training: expected a bool or a bool tensor, got 'no'",
        [4, 3],
        {"is_training": "no"},
    ),
    (ValueError, "renorm: not supported", [4, 3], {"renorm": True}),
    (ValueError, "adjustment: not supported", [4, 3], {"adjustment": lambda shape: None}),
    (
        ValueError,
        "param_initializers: expected beta, gamma, moving_mean, moving_variance, got delta",
        [4, 3],
        {"param_initializers": {"delta": None}},
    ),
    (
        ValueError,
        "param_regularizers: expected beta, gamma, got moving_mean",
        [4, 3],
        {"param_regularizers": {"moving_mean": None}},
    ),
    (
        ValueError,
        r"batch_weights: expected shape \(4,\), a weight a row",
        [4, 3],
        {"batch_weights": np.float32([1, 2])},
    ),
]


@pytest.mark.parametrize(("error", "message", "shape", "arguments"), REFUSED)
def test_refusals(graph, error, message, shape, arguments):
    x = tf.placeholder(tf.float32, shape, name="x")
    with pytest.raises(error, match=message):
        batch_norm(x, **arguments)
    assert names(graph.get_operations()) == ["x"]


# -- layer_norm -----------------------------------------------------------------------------------

ROWS = batch((2, 3, 4))


@pytest.mark.parametrize("mode", ["graph", "eager"])
@pytest.mark.parametrize("first", [1, 2, -1])
def test_layer_norm(first, mode):
    axes = tuple(range(first % 3, 3))
    mean = ROWS.mean(axes, keepdims=True, dtype=np.float64)
    variance = ROWS.var(axes, keepdims=True, dtype=np.float64)
    expected = (ROWS - mean) / np.sqrt(variance)
    if mode == "eager":
        with eager():
            found = layer_norm(ROWS, begin_norm_axis=first).numpy()
    else:
        y = layer_norm(ROWS, begin_norm_axis=first, outputs_collections="outs")
        assert y.name == "LayerNorm/batchnorm/add_1:0"
        assert tf.get_collection("outs") == [y]
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            found = sess.run(y)
    assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "shapes"),
    [
        ({}, {"beta": [4], "gamma": [4]}),
        ({"begin_params_axis": 1}, {"beta": [3, 4], "gamma": [3, 4]}),
        ({"center": False}, {"gamma": [4]}),
        ({"scale": False}, {"beta": [4]}),
    ],
)
def test_variables_of_layer_norm(arguments, shapes):
    x = tf.placeholder(tf.float32, [None, 3, 4])
    y = layer_norm(x, activation_fn=tf.nn.relu, variables_collections=["vc"], **arguments)
    assert y.name == "LayerNorm/Relu:0"
    assert {v.op.name: v.shape.as_list() for v in tf.trainable_variables()} == {
        f"LayerNorm/{name}": shape for name, shape in shapes.items()
    }
    assert tf.model_variables() == tf.get_collection("vc") == tf.trainable_variables()


def test_beta_and_gamma_do_their_part():
    with tf.variable_scope("LayerNorm"):
        tf.get_variable("beta", initializer=np.float32([1, 2, 3, 4]))
        tf.get_variable("gamma", initializer=np.float32([4, 3, 2, 1]))
    y = layer_norm(ROWS, scope="LayerNorm", reuse=True, begin_norm_axis=2)
    expected = (ROWS - ROWS.mean(2, keepdims=True)) / ROWS.std(2, keepdims=True)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert_allclose(sess.run(y), expected * [4, 3, 2, 1] + [1, 2, 3, 4], rtol=1e-4, atol=1e-4)


def test_float16_has_a_larger_epsilon():
    """tf_slim: 1e-3 instead of 1e-12, which float16 has not."""
    x = np.float16([[0, 0.0625]])
    y = layer_norm(x)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        expected = 0.03125 / np.sqrt(0.03125**2 + 1e-3)
        assert_allclose(sess.run(y), [[-expected, expected]], rtol=5e-3)


LAYER_NORM_REFUSED = [
    (r"begin_norm_axis: expected one in \[-3, 3\), got 5", [2, 3, 4], {"begin_norm_axis": 5}),
    (r"begin_params_axis: expected one in \[-3, 3\), got 5", [2, 3, 4], {"begin_params_axis": 5}),
    ("inputs: expected known sizes from axis -1 on", [None, None], {}),
    ("inputs: expected a known rank", None, {}),
]


@pytest.mark.parametrize(("message", "shape", "arguments"), LAYER_NORM_REFUSED)
def test_layer_norm_refuses(message, shape, arguments):
    with pytest.raises(ValueError, match=message):
        layer_norm(tf.placeholder(tf.float32, shape), **arguments)


def test_signatures_are_those_of_contrib():
    """As tf_slim 1.1 has them."""
    assert list(inspect.signature(batch_norm).parameters) == [
        "inputs", "decay", "center", "scale", "epsilon", "activation_fn", "param_initializers",
        "param_regularizers", "updates_collections", "is_training", "reuse",
        "variables_collections", "outputs_collections", "trainable", "batch_weights", "fused",
        "data_format", "zero_debias_moving_mean", "scope", "renorm", "renorm_clipping",
        "renorm_decay", "adjustment",
    ]  # fmt: skip
    defaults = inspect.signature(batch_norm).parameters
    assert [defaults[name].default for name in ("decay", "center", "scale", "epsilon")] == [
        0.999, True, False, 0.001,
    ]  # fmt: skip
    assert list(inspect.signature(layer_norm).parameters) == [
        "inputs", "center", "scale", "activation_fn", "reuse", "variables_collections",
        "outputs_collections", "trainable", "begin_norm_axis", "begin_params_axis", "scope",
    ]  # fmt: skip
