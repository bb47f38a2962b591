"""Losses against NumPy and TensorFlow's numbers; weights, reductions, collections, refusals."""

import inspect

import numpy as np
import pytest
from numpy.testing import assert_allclose

import optkit as tf
from optkit import losses
from optkit.losses import Reduction
from optkit.runtime.eager import eager

LABELS = np.float32([[0, 1, 0], [1, 0, 0]])
PREDICTIONS = np.float32([[0.2, 0.7, 0.1], [0.3, 0.4, 0.3]])
SQUARES = (PREDICTIONS.astype(np.float64) - LABELS) ** 2


def value(tensor, feed=None):
    with tf.Session() as sess:
        return sess.run(tensor, feed)


def softmax(x):
    e = np.exp(x)
    return e / e.sum(-1, keepdims=True)


def pairwise(labels, predictions):
    """By its definition: the mean over pairs of different elements, rows added up."""
    d = predictions - labels
    n = d.shape[1]
    return sum(sum((a - b) ** 2 for a in row for b in row) / (n * (n - 1)) for row in d)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def smoothed_sigmoid(labels, x):
    labels = labels * 0.8 + 0.1
    return -labels * np.log(sigmoid(x)) - (1 - labels) * np.log(1 - sigmoid(x))


def huber(labels, x):
    e = np.abs(x - labels)
    return np.where(e <= 0.3, e**2 / 2, 0.3 * e - 0.3**2 / 2)


# name, arguments, the losses in NumPy, what TensorFlow 2.21 (v1, graph mode) gave for the above.
VALUES = [
    ("absolute_difference", {}, lambda y, p: np.abs(p - y), 0.3333333),
    ("mean_squared_error", {}, lambda y, p: (p - y) ** 2, 0.1466667),
    ("cosine_distance", {"axis": 1}, lambda y, p: 1 - (y * p).sum(1), 0.5),
    ("cosine_distance", {"dim": 0}, lambda y, p: 1 - (y * p).sum(0), 0.6666667),
    ("hinge_loss", {}, lambda y, p: np.maximum(0, 1 - (2 * y - 1) * p), 1.0),
    ("huber_loss", {"delta": 0.3}, huber, 0.0591667),
    ("huber_loss", {}, lambda y, p: (p - y) ** 2 / 2, 0.0733333),
    (
        "log_loss",
        {"epsilon": 0.1},
        lambda y, p: -y * np.log(p + 0.1) - (1 - y) * np.log(1.1 - p),
        0.3041022,
    ),
    ("log_loss", {}, lambda y, p: -np.log(np.where(y == 1, p, 1 - p)), 0.4594419),
    ("mean_pairwise_squared_error", {}, pairwise, 0.88),
    (
        "sigmoid_cross_entropy",
        {},
        lambda y, p: -np.log(np.where(y == 1, sigmoid(p), 1 - sigmoid(p))),
        0.7112412,
    ),
    ("sigmoid_cross_entropy", {"label_smoothing": 0.2}, smoothed_sigmoid, 0.7112412),
    (
        "softmax_cross_entropy",
        {},
        lambda y, p: -(y * np.log(softmax(p))).sum(1),
        0.9505092,
    ),
    (
        "softmax_cross_entropy",
        {"label_smoothing": 0.2},
        lambda y, p: -((y * 0.8 + 0.2 / 3) * np.log(softmax(p))).sum(1),
        0.9838425,
    ),
]


@pytest.mark.parametrize("mode", ["graph", "eager"])
@pytest.mark.parametrize(("name", "arguments", "reference", "expected"), VALUES)
def test_values(name, arguments, reference, expected, mode):
    assert_allclose(
        np.mean(reference(LABELS.astype(float), PREDICTIONS.astype(float))), expected, rtol=1e-6
    )
    loss = getattr(losses, name)
    if mode == "eager":
        with eager():
            found = loss(LABELS, PREDICTIONS, **arguments).numpy()
    else:
        found = value(loss(LABELS, PREDICTIONS, **arguments))
    assert found.dtype == np.float32
    assert_allclose(found, expected, rtol=2e-6)


@pytest.mark.parametrize("labels", [[1, 0], [[1], [0]]])
@pytest.mark.parametrize(
    ("weights", "expected"),  # TensorFlow 2.21
    [(1.0, 0.9505092), ([1.0, 0.0], 0.7679496), ([[1.0], [0.0]], 0.7679496)],
)
def test_sparse_softmax_cross_entropy(labels, weights, expected):
    loss = losses.sparse_softmax_cross_entropy(labels, PREDICTIONS, weights)
    assert_allclose(value(loss), expected, rtol=1e-6)
    unknown = tf.placeholder(tf.int32), tf.placeholder(tf.float32, [None, None])
    loss = losses.sparse_softmax_cross_entropy(*unknown, np.float32(weights))
    feed = {unknown[0]: np.reshape(labels, [2]), unknown[1]: PREDICTIONS}
    assert_allclose(value(loss, feed), expected, rtol=1e-6)


# -- weights and reductions -----------------------------------------------------------------------

W = np.float32([[1, 2, 3], [0, 0, 1]])
# weights, then what TensorFlow 2.21 gives for SUM, MEAN, SUM_OVER_BATCH_SIZE and
# SUM_BY_NONZERO_WEIGHTS of the squared errors.
REDUCED = [
    (1.0, 0.88, 0.1466667, 0.1466667, 0.1466667),
    (2.0, 1.76, 0.1466667, 0.2933333, 0.2933333),
    (2, 1.76, 0.1466667, 0.2933333, 0.2933333),
    (0.0, 0.0, 0.0, 0.0, 0.0),
    (-1.0, -0.88, 0.1466667, -0.1466667, -0.1466667),
    ([[1.0], [0.0]], 0.14, 0.0466667, 0.0233333, 0.0466667),
    ([[True], [False]], 0.14, 0.0466667, 0.0233333, 0.0466667),
    ([[1.0, 0, 2]], 0.73, 0.1216667, 0.1216667, 0.1825),
    (W, 0.34, 0.0485714, 0.0566667, 0.085),
    (np.zeros((2, 3)), 0.0, 0.0, 0.0, 0.0),
]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("weights", "total", "mean", "size", "nonzero"), REDUCED)
def test_reductions(weights, total, mean, size, nonzero, known):
    feed = {}
    if not known and not isinstance(weights, int | float):
        given = np.float32(weights)
        weights = tf.placeholder(tf.float32)
        feed[weights] = given
    expected = {
        Reduction.SUM: total,
        Reduction.MEAN: mean,
        Reduction.SUM_OVER_BATCH_SIZE: size,
        Reduction.SUM_BY_NONZERO_WEIGHTS: nonzero,
    }
    for reduction, number in expected.items():
        loss = losses.mean_squared_error(LABELS, PREDICTIONS, weights, reduction=reduction)
        assert_allclose(value(loss, feed), number, rtol=2e-6, err_msg=reduction)


def test_without_reduction():
    loss = losses.mean_squared_error(LABELS, PREDICTIONS, W, reduction=Reduction.NONE)
    assert loss.shape == (2, 3)
    assert_allclose(value(loss), SQUARES * W, rtol=1e-6)


@pytest.mark.parametrize(
    ("weights", "expected"),  # TensorFlow 2.21
    [(2.0, 1.76), (0.0, 0.0), ([[1.0], [0.0]], 0.14), ([[1.0, 0, 2]], 5.28), (W, 0.84)],
)
def test_weights_of_pairs(weights, expected):
    loss = losses.mean_pairwise_squared_error(LABELS, PREDICTIONS, weights)
    assert_allclose(value(loss), expected, rtol=2e-6)


def test_the_mean_of_nothing_is_zero():
    empty = np.zeros((0, 3), np.float32)
    for weights in (1.0, np.ones((0, 3), np.float32), np.ones((1, 3), np.float32)):
        assert value(losses.mean_squared_error(empty, empty, weights)) == 0


def test_reductions_by_name():
    assert Reduction.SUM_OVER_NONZERO_WEIGHTS == Reduction.SUM_BY_NONZERO_WEIGHTS
    for key in Reduction.all():
        Reduction.validate(key)


def test_gradients_reach_predictions_and_weights():
    p, w = tf.constant(PREDICTIONS), tf.placeholder(tf.float32)
    loss = losses.mean_squared_error(LABELS, p, w)
    dp, dw = value(tf.gradients(loss, [p, w]), {w: W})
    assert_allclose(dp, 2 * (PREDICTIONS - LABELS) * W / 4, rtol=1e-6)
    assert_allclose(dw, SQUARES / 4, rtol=1e-5)


def test_no_gradient_reaches_onehot_labels():
    labels = tf.constant(LABELS)
    loss = losses.softmax_cross_entropy(labels, PREDICTIONS)
    assert tf.gradients(loss, [labels]) == [None]


# -- dtypes ---------------------------------------------------------------------------------------

IN_FLOAT32 = ["absolute_difference", "mean_squared_error", "hinge_loss", "huber_loss", "log_loss"]


@pytest.mark.parametrize("name", IN_FLOAT32)
@pytest.mark.parametrize(
    ("dtype", "expected"), [("float16", "float32"), ("int32", "float32"), ("float64", "float64")]
)
def test_dtype_of_predictions(name, dtype, expected):
    loss = getattr(losses, name)(LABELS.astype("int64"), np.ones((2, 3), dtype))
    assert loss.dtype == expected


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_dtype_of_logits(dtype):
    logits = PREDICTIONS.astype(dtype)
    assert losses.sigmoid_cross_entropy(LABELS, logits, W).dtype == dtype
    assert losses.softmax_cross_entropy(LABELS, logits, 2.0).dtype == dtype
    assert losses.sparse_softmax_cross_entropy([1, 0], logits).dtype == dtype


def test_float64_is_computed_in_float64():
    x = np.float64([[1 / 3]])
    assert value(losses.mean_squared_error(np.zeros((1, 1)), x)) == x[0, 0] ** 2


def test_dtype_of_weighted_losses():
    # TensorFlow 2.21: integers are averaged as floats and cut off.
    assert value(losses.compute_weighted_loss(np.int32([1, 0, 1]))) == 0
    assert losses.compute_weighted_loss(np.float16([1, 2]), 0.5).dtype == tf.float16


# -- names and collections ------------------------------------------------------------------------


def test_names_and_collections():
    """TensorFlow 2.21: the names of what each loss adds to LOSSES."""
    p = tf.constant(PREDICTIONS)
    losses.absolute_difference(LABELS, p)
    losses.cosine_distance(LABELS, p, axis=1)
    losses.hinge_loss(LABELS, p)
    losses.huber_loss(LABELS, p)
    losses.log_loss(LABELS, p)
    losses.sigmoid_cross_entropy(LABELS, p)
    losses.softmax_cross_entropy(LABELS, p)
    losses.sparse_softmax_cross_entropy([1, 0], p)
    losses.compute_weighted_loss(p)
    losses.mean_squared_error(LABELS, p)
    losses.mean_squared_error(LABELS, p)
    losses.mean_squared_error(LABELS, p, scope="mine")
    assert [loss.name for loss in tf.get_collection(tf.GraphKeys.LOSSES)] == [
        "absolute_difference/value:0",
        "cosine_distance_loss/value:0",
        "hinge_loss/value:0",
        "huber_loss/value:0",
        "log_loss/value:0",
        "sigmoid_cross_entropy_loss/value:0",
        "softmax_cross_entropy_loss/value:0",
        "sparse_softmax_cross_entropy_loss/value:0",
        "weighted_loss/value:0",
        "mean_squared_error/value:0",
        "mean_squared_error_1/value:0",
        "mine/value:0",
    ]


def test_a_collection_of_ones_own_or_none():
    mine = losses.mean_squared_error(LABELS, PREDICTIONS, loss_collection="mine")
    losses.mean_squared_error(LABELS, PREDICTIONS, loss_collection=None)
    losses.mean_pairwise_squared_error(LABELS, PREDICTIONS, loss_collection=None)
    losses.add_loss(mine)
    assert losses.get_losses() == [mine]
    assert losses.get_losses(loss_collection="mine") == [mine]


def test_total_loss():
    a = losses.mean_squared_error(LABELS, PREDICTIONS, scope="a")
    losses.mean_squared_error(LABELS, PREDICTIONS, 2.0, scope="b")
    tf.get_variable("v", [2], initializer=tf.ones_initializer(), regularizer=tf.reduce_sum)
    assert losses.get_losses("a") == [a]
    total, bare, only = (
        losses.get_total_loss(),
        losses.get_total_loss(add_regularization_losses=False, name="bare"),
        losses.get_total_loss(scope="a"),
    )
    assert (total.name, bare.name) == ("total_loss:0", "bare:0")
    assert losses.get_regularization_loss().name == "total_regularization_loss:0"
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        found = sess.run([total, bare, only, losses.get_regularization_loss()])
    assert_allclose(found, [2.44, 0.44, 0.1466667, 2.0], rtol=1e-6)


def test_totals_of_nothing():
    assert value(losses.get_regularization_loss()) == 0
    with pytest.raises(ValueError, match=r"get_total_loss: expected losses .* found none"):
        losses.get_total_loss()
    losses.mean_squared_error(LABELS, PREDICTIONS)
    with pytest.raises(ValueError, match=r"matches 'other'"):
        losses.get_total_loss(scope="other")


def test_eager_mode_collects_nothing():
    with eager():
        losses.mean_squared_error(LABELS, PREDICTIONS)
        assert losses.get_losses() == []


# -- refusals -------------------------------------------------------------------------------------

REFUSED = [
    (lambda: losses.mean_squared_error(None, PREDICTIONS), "mean_squared_error: labels"),
    (lambda: losses.mean_squared_error(LABELS, None), "mean_squared_error: predictions"),
    (lambda: losses.hinge_loss(LABELS, PREDICTIONS, None), "hinge_loss: weights"),
    (
        lambda: losses.mean_squared_error(LABELS, PREDICTIONS[:, :2]),
        r"mean_squared_error: labels: expected the shape \(2, 2\).*shape=\(2, 3\)",
    ),
    (lambda: losses.log_loss(LABELS, PREDICTIONS, reduction="sum"), "log_loss: reduction.*'sum'"),
    (
        lambda: losses.cosine_distance(LABELS, PREDICTIONS),
        "cosine_distance: axis: expected the axis of the vectors, got None",
    ),
    (
        lambda: losses.sigmoid_cross_entropy(LABELS, PREDICTIONS, label_smoothing=2),
        r"sigmoid_cross_entropy: label_smoothing: expected a number in \[0, 1\], got 2",
    ),
    (
        lambda: losses.sparse_softmax_cross_entropy([1, 0, 1], PREDICTIONS),
        "sparse_softmax_cross_entropy: labels",
    ),
    (
        lambda: losses.softmax_cross_entropy(LABELS, PREDICTIONS, [[1.0], [2.0]]),
        r"softmax_cross_entropy: weights: expected a scalar, or the shape \(2,\)",
    ),
    (
        lambda: losses.mean_pairwise_squared_error(1.0, 2.0),
        "mean_pairwise_squared_error: predictions: expected rows",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_refusals_leave_no_trace(graph, call, message):
    with pytest.raises(ValueError, match=message):
        call()
    assert graph.get_operations() == []
    assert losses.get_losses() == []


def test_wrong_dtypes_are_type_errors():
    with pytest.raises(TypeError, match=r"softmax_cross_entropy: .* logits: .*int32"):
        losses.softmax_cross_entropy(LABELS, np.ones((2, 3), np.int32))
    with pytest.raises(TypeError, match=r"sparse_softmax_cross_entropy: .* labels: .*float32"):
        losses.sparse_softmax_cross_entropy([1.0, 0.0], PREDICTIONS)


@pytest.mark.parametrize("weights", [[1.0, 2.0], [1.0, 2.0, 3.0], [[1.0, 2.0]], [[[1.0]]]])
def test_weights_that_do_not_fit(weights):
    with pytest.raises(ValueError, match=r"weights: expected a scalar, or the shape \(2, 3\)"):
        losses.mean_squared_error(LABELS, PREDICTIONS, weights)
    fed = tf.placeholder(tf.float32)
    loss = losses.mean_squared_error(LABELS, PREDICTIONS, fed)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"weights: expected a scalar.*shape"):
        value(loss, {fed: weights})


def test_signatures_are_those_of_tensorflow():
    """TensorFlow 2.21's tf.compat.v1.losses: names and order of the arguments."""
    shared = ["weights", "scope", "loss_collection", "reduction"]
    expected = {
        "absolute_difference": ["labels", "predictions", *shared],
        "compute_weighted_loss": ["losses", *shared],
        "cosine_distance": ["labels", "predictions", "axis", *shared, "dim"],
        "hinge_loss": ["labels", "logits", *shared],
        "huber_loss": ["labels", "predictions", "weights", "delta", *shared[1:]],
        "log_loss": ["labels", "predictions", "weights", "epsilon", *shared[1:]],
        "mean_pairwise_squared_error": ["labels", "predictions", *shared[:-1]],
        "mean_squared_error": ["labels", "predictions", *shared],
        "sigmoid_cross_entropy": [
            "multi_class_labels", "logits", "weights", "label_smoothing", *shared[1:],
        ],
        "softmax_cross_entropy": [
            "onehot_labels", "logits", "weights", "label_smoothing", *shared[1:],
        ],
        "sparse_softmax_cross_entropy": ["labels", "logits", *shared],
        "add_loss": ["loss", "loss_collection"],
        "get_losses": ["scope", "loss_collection"],
        "get_regularization_loss": ["scope", "name"],
        "get_regularization_losses": ["scope"],
        "get_total_loss": ["add_regularization_losses", "name", "scope"],
    }  # fmt: skip
    found = {name: list(inspect.signature(getattr(losses, name)).parameters) for name in expected}
    assert found == expected
    assert sorted(losses.__all__) == sorted([*expected, "Reduction"])
