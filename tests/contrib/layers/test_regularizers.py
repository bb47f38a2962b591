"""Regularizers: values, names, what they refuse; observed with tf_slim 1.1 on TF 2.21."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import optkit as tf
from optkit.contrib import layers
from optkit.contrib.layers import (
    apply_regularization,
    l1_l2_regularizer,
    l1_regularizer,
    l2_regularizer,
    sum_regularizer,
)
from optkit.runtime.eager import eager

W = np.float32([[1, -2], [3, 4]])

VALUES = [
    (lambda: l1_regularizer(0.1), "l1_regularizer:0", 1.0),
    (lambda: l2_regularizer(0.1), "l2_regularizer:0", 1.5),
    (lambda: l1_l2_regularizer(0.1, 0.2), "l1_l2_regularizer:0", 4.0),
    (lambda: l1_l2_regularizer(0.0, 0.2), "l1_l2_regularizer:0", 3.0),
    (lambda: l1_l2_regularizer(0.2, 0.0), "l1_l2_regularizer:0", 2.0),
    (lambda: l1_l2_regularizer(), "l1_l2_regularizer:0", 25.0),
    (
        lambda: sum_regularizer([l1_regularizer(0.1), None, l2_regularizer(0.2)]),
        "sum_regularizer:0",
        4.0,
    ),
    (lambda: l1_regularizer(1, scope="mine"), "mine:0", 10.0),
    (lambda: l2_regularizer(np.float32(2.0), scope="mine"), "mine:0", 30.0),
    (lambda: sum_regularizer([l1_regularizer(0.0), l2_regularizer(0.1)], "both"), "both:0", 1.5),
]


@pytest.mark.parametrize("mode", ["graph", "eager"])
@pytest.mark.parametrize(("make", "name", "expected"), VALUES)
def test_values(make, name, expected, mode):
    if mode == "eager":
        with eager():
            found = make()(tf.constant(W)).numpy()
    else:
        loss = make()(tf.constant(W))
        assert loss.name == name
        with tf.Session() as sess:
            found = sess.run(loss)
    assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_loss_has_the_weights_dtype(dtype):
    for regularizer in (l1_regularizer(0.1), l2_regularizer(0.1), l1_l2_regularizer(0.1, 0.1)):
        assert regularizer(tf.constant(W.astype(dtype))).dtype == dtype


def test_a_scale_of_zero_gives_nothing(graph):
    w = tf.constant(W)
    before = len(graph.get_operations())
    for regularizer in (l1_regularizer(0), l2_regularizer(0.0), l1_l2_regularizer(0.0, 0.0)):
        assert regularizer(w) is None
    assert len(graph.get_operations()) == before
    assert sum_regularizer([]) is sum_regularizer([None]) is None
    assert sum_regularizer([l1_regularizer(0.0)])(w) is None


def test_names_in_a_variable():
    v = tf.get_variable("v", [2], regularizer=l2_regularizer(0.1))
    (loss,) = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    assert loss.name == "v/Regularizer/l2_regularizer:0"
    assert tf.gradients(loss, [v])[0] is not None


BAD = [
    (
        ValueError,
        "l1_regularizer: scale: expected a number >= 0, got -1",
        lambda: l1_regularizer(-1),
    ),
    (ValueError, "l2_regularizer: scale: .*got nan", lambda: l2_regularizer(np.nan)),
    (TypeError, "l2_regularizer: scale: .*got 'a'", lambda: l2_regularizer("a")),
    (TypeError, "l1_regularizer: scale: .*got None", lambda: l1_regularizer(None)),
    (TypeError, "l1_regularizer: scale: .*got True", lambda: l1_regularizer(True)),
    (ValueError, "l1_l2_regularizer: scale_l1: .*-1", lambda: l1_l2_regularizer(-1.0, 0.0)),
    (ValueError, "l1_l2_regularizer: scale_l2: .*-1", lambda: l1_l2_regularizer(0.0, -1.0)),
]


@pytest.mark.parametrize(("error", "message", "call"), BAD)
def test_bad_scales(error, message, call):
    with pytest.raises(error, match=message):
        call()


def test_apply_regularization():
    w = tf.constant(W)
    penalty = apply_regularization(l2_regularizer(0.1), [w, w])
    assert penalty.name == "get_regularization_penalty:0"
    tf.add_to_collection(tf.GraphKeys.WEIGHTS, w)
    by_collection = apply_regularization(l2_regularizer(0.1))
    by_collection_too = apply_regularization(l2_regularizer(0.1), [])
    nothing = apply_regularization(lambda w: None)
    losses = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    assert losses == [penalty, by_collection, by_collection_too, nothing]
    with tf.Session() as sess:
        assert_allclose(sess.run(losses), [3.0, 1.5, 1.5, 0.0], rtol=1e-6)


def test_apply_regularization_wants_scalars(graph):
    w = tf.constant(W)
    with pytest.raises(ValueError, match=r"regularizer: expected it to give a scalar.*\(2, 2\)"):
        apply_regularization(lambda w: w, [w])
    assert tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES) == []


def test_initializers_are_contribs():
    assert layers.xavier_initializer_conv2d is layers.xavier_initializer
    value = layers.variance_scaling_initializer(uniform=True)([300, 4])
    with tf.Session() as sess:
        largest = np.abs(sess.run(value)).max()
    assert 0.95 * np.sqrt(6 / 300) < largest < np.sqrt(6 / 300)
