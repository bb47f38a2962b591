"""tf.contrib.losses: predictions before labels, and weights with fewer axes than the losses.

Values: tf_slim 1.1.0 (the same functions) under TensorFlow 2.21.
"""

from __future__ import annotations

import numpy as np
import pytest

import optkit as tf

losses = tf.contrib.losses

X = np.array([[0.2, 0.7, 0.1], [0.6, 0.3, 0.9]], np.float32)
Y = np.array([[0, 1, 0], [1, 0, 1]], np.float32)


@pytest.mark.parametrize(
    ("loss", "settings", "expected"),
    [
        ("absolute_difference", {}, 0.233333),
        ("absolute_difference", {"weights": [2.0, 0.0]}, 0.4),
        ("mean_squared_error", {"weights": [[2.0], [0.5]]}, 0.068333),
        ("mean_squared_error", {"weights": [[2.0, 0.0, 1.0], [0.5, 1.0, 1.0]]}, 0.054),
        ("log_loss", {}, 0.27634),
        ("log_loss", {"weights": [1.0, 2.0], "epsilon": 0.1}, 0.248023),
        ("cosine_distance", {"dim": 1}, -0.1),
        ("cosine_distance", {"axis": 1, "weights": [1.0, 3.0]}, -0.6),
        ("sigmoid_cross_entropy", {"weights": [1.0, 3.0], "label_smoothing": 0.1}, 1.174119),
        ("softmax_cross_entropy", {}, 1.362365),
        ("softmax_cross_entropy", {"weights": [1.0, 3.0], "label_smoothing": 0.2}, 3.107295),
        ("softmax_cross_entropy", {"weights": [[1.0], [3.0]]}, 3.319145),
    ],
)
@pytest.mark.parametrize("spelling", [tf.contrib.losses, tf.contrib.slim.losses])
def test_predictions_come_before_labels(graph, spelling, loss, settings, expected):
    x, y = tf.constant(X), tf.constant(Y)
    value = getattr(spelling, loss)(x, y, **settings)
    assert tf.get_collection(tf.GraphKeys.LOSSES) == [value]
    with tf.Session() as session:
        assert session.run(value) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("labels", "weights", "expected"),
    [([1, 2], 1.0, 0.79817), ([[1], [2]], [[1.0], [0.0]], 0.76795), ([1, 2], [0.5, 0.0], 0.383975)],
)
def test_class_numbers(graph, labels, weights, expected):
    value = losses.sparse_softmax_cross_entropy(tf.constant(X), tf.constant(labels), weights)
    with tf.Session() as session:
        assert session.run(value) == pytest.approx(expected, rel=1e-5)


def test_hinge_losses_stay_apart_and_are_not_collected(graph):
    value = losses.hinge_loss(tf.constant(X), tf.constant(Y))
    assert tf.get_collection(tf.GraphKeys.LOSSES) == []
    with tf.Session() as session:
        expected = [[1.2, 0.3, 1.1], [0.4, 1.3, 0.1]]
        np.testing.assert_allclose(session.run(value), expected, rtol=1e-6)


def test_weighted_losses_are_in_the_total(graph):
    losses.compute_weighted_loss(tf.constant(X), [2.0, 0.0])
    losses.absolute_difference(tf.constant(X), tf.constant(Y))
    with tf.Session() as session:
        total = session.run(losses.get_total_loss())
    assert total == pytest.approx(2 / 3 + 0.233333, rel=1e-5)


def test_arg_scope_gives_losses_their_arguments(graph):
    with tf.contrib.slim.arg_scope([losses.mean_squared_error], weights=10.0):
        value = losses.mean_squared_error(tf.constant(X), tf.constant(Y))
    with tf.Session() as session:
        assert session.run(value) == pytest.approx(10 * np.mean((X - Y) ** 2), rel=1e-6)


@pytest.mark.parametrize("loss", ["absolute_difference", "mean_squared_error", "hinge_loss"])
def test_missing_labels_are_told(graph, loss):
    with pytest.raises(ValueError, match=f"{loss}: labels: expected a tensor, got None"):
        getattr(losses, loss)(tf.constant(X))


def test_weights_of_another_batch_are_refused(graph):
    with pytest.raises(ValueError, match="weights: expected a scalar, or the shape"):
        losses.mean_squared_error(tf.constant(X), tf.constant(Y), [1.0, 2.0, 3.0])
