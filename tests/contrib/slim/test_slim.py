"""tf.contrib.slim: the names, arg_scope over its layers, and its create_train_op."""

from __future__ import annotations

import numpy as np
import pytest

import optkit as tf

slim = tf.contrib.slim


def test_a_net_in_slims_idiom_trains(graph):
    images = tf.placeholder(tf.float32, [None, 8, 8, 1])
    labels = tf.placeholder(tf.int32, [None])
    with slim.arg_scope(
        [slim.conv2d, slim.fully_connected], weights_regularizer=slim.l2_regularizer(1e-3)
    ):
        net = slim.conv2d(images, 4, [3, 3], scope="conv1")
        net = slim.max_pool2d(net, [2, 2], scope="pool1")
        net = slim.flatten(net)
        logits = slim.fully_connected(net, 2, activation_fn=None, scope="logits")
    slim.losses.sparse_softmax_cross_entropy(logits, labels)
    total = slim.losses.get_total_loss()
    train_op = slim.learning.create_train_op(total, tf.train.AdamOptimizer(0.01))
    names = [v.op.name for v in slim.get_model_variables()]
    assert names == ["conv1/weights", "conv1/biases", "logits/weights", "logits/biases"]
    assert len(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)) == 2
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 32)
    data = rng.normal(size=(32, 8, 8, 1)) + truth[:, None, None, None]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        feed = {images: data, labels: truth}
        losses = [session.run(train_op, feed) for _ in range(20)]
        assert session.value(slim.get_global_step()) == 20
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [-3.0, -4.0]),
        ({"clip_gradient_norm": 2.5}, [-1.5, -2.0]),
        ({"gradient_multipliers": {"w": 2.0}}, [-6.0, -8.0]),
        # Multiplied first: clipping has the last word.
        ({"gradient_multipliers": {"w": 2.0}, "clip_gradient_norm": 2.5}, [-1.5, -2.0]),
    ],
)
def test_gradients_are_multiplied_and_then_clipped(graph, settings, expected):
    w = tf.Variable([0.0, 0.0], name="w")
    loss = tf.reduce_sum(w * [3.0, 4.0])
    train_op = slim.learning.create_train_op(
        loss, tf.train.GradientDescentOptimizer(1.0), **settings
    )
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train_op)
        np.testing.assert_allclose(session.value(w), expected, rtol=1e-6)


def test_what_slim_has_and_optkit_has_not_is_told(graph):
    with pytest.raises(AttributeError, match="no 'dataset', which TensorFlow 1 has"):
        _ = slim.dataset
    with pytest.raises(ValueError, match="gradient_multipliers"):
        slim.learning.create_train_op(
            tf.reduce_sum(tf.Variable([1.0], name="w")),
            tf.train.GradientDescentOptimizer(1.0),
            gradient_multipliers={"v": 2.0},
        )


def test_slim_has_all_layers_and_the_functions_of_framework_that_it_had():
    # Checkpoints are read, and constants looked up, under contrib's own names.
    elsewhere = {"init_from_checkpoint", "list_variables", "load_checkpoint", "load_variable"}
    elsewhere |= {"EXTRA_SUMMARIES", "OPTIMIZER_CLS_NAMES", "OPTIMIZER_SUMMARIES"}
    contrib = tf.contrib
    for home in (contrib.layers, contrib.framework):
        for name in set(dir(home)) - elsewhere:
            assert getattr(slim, name) is getattr(home, name)
