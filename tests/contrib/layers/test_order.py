"""What happens before what in a step of a train op; the same in every repeat."""

import numpy as np
import pytest

import optkit as tf
from tests.contrib.models import session

REPEATS = 100


def by_optimize_loss(loss, step):
    return tf.contrib.layers.optimize_loss(loss, step, 1.0, "SGD", summaries=["loss"])


def by_create_train_op(loss, step):
    return tf.contrib.training.create_train_op(loss, tf.train.GradientDescentOptimizer(1.0), step)


both = pytest.mark.parametrize(
    "make", [by_optimize_loss, by_create_train_op], ids=lambda f: f.__name__
)


def repeats(train_op, *fetches):
    """What the first step of 100 sessions gives, as a set."""
    seen = set()
    for _ in range(REPEATS):
        with session() as sess:
            seen.add(tuple(np.asarray(x).item() for x in sess.run([train_op, *fetches])))
    return seen


@both
def test_p049_the_loss_sees_the_values_from_before_the_update_ops(graph, make):
    w = tf.Variable(2.0, name="w")
    c = tf.Variable(5.0, trainable=False, name="c")
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, c.assign(500.0))
    step = tf.train.get_or_create_global_step()
    train_op = make(w * c, step)
    assert repeats(train_op) == {(10.0,)}
    with session() as sess:
        sess.run(train_op)
        # The gradient is the old c too: 2 − 1·5.
        assert sess.value(w) == -3.0
        assert sess.value(c) == 500.0
        assert sess.value(step) == 1


@both
def test_row_7_a_loss_that_no_gradient_needs_is_that_before_the_step(graph, make):
    emb = tf.Variable([[1.0], [2.0], [3.0]], name="emb")
    train_op = make(tf.reduce_sum(tf.gather(emb, [0, 1, 2])), tf.train.get_or_create_global_step())
    assert repeats(train_op) == {(6.0,)}


@both
def test_row_7_a_variable_fetched_beside_the_train_op_is_that_before_the_step(graph, make):
    w = tf.Variable(2.0, name="w")
    step = tf.train.get_or_create_global_step()
    train_op = make(tf.square(w), step)
    assert repeats(train_op, w, step) == {(4.0, 2.0, 0)}


def test_the_loss_summary_is_the_returned_loss(graph):
    emb = tf.Variable([[1.0], [2.0]], name="emb")
    loss = tf.reduce_sum(tf.gather(emb, [0, 1]))
    train_op = by_optimize_loss(loss, tf.train.get_or_create_global_step())
    merged = tf.summary.merge_all()
    seen = set()
    for _ in range(REPEATS):
        with session() as sess:
            value, data = sess.run([train_op, merged])
            seen.add((float(value), data))
    assert {value for value, _ in seen} == {3.0}
    assert len(seen) == 1


@both
def test_the_step_counts_once_and_after_the_update(graph, make):
    """A rate that reads the step reads the one before the step is counted."""
    w = tf.Variable(0.0, name="w")
    step = tf.train.get_or_create_global_step()
    train_op = make(w * tf.cast(step + 1, tf.float32), step)
    with session() as sess:
        for _ in range(3):
            sess.run(train_op)
        assert sess.value(step) == 3
        assert sess.value(w) == -(1 + 2 + 3)


def test_what_depends_on_the_train_op_sees_the_step_done(graph):
    w = tf.Variable(2.0, name="w")
    step = tf.train.get_or_create_global_step()
    train_op = by_optimize_loss(tf.square(w), step)
    with tf.control_dependencies([train_op]):
        later = w.read_value(), step.read_value()
    with session() as sess:
        assert sess.run(later) == (-2.0, 1)
