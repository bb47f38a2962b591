import numpy as np
import pytest

import optkit as tf


def build(seed):
    """What a notebook's cell builds and runs."""
    with tf.fresh_graph(seed) as graph:
        w = tf.get_variable("w", [3])
        loss = tf.nn.l2_loss(w)
        train_op = tf.optimize_loss(loss, None, 0.1, "SGD", summaries=["loss"])
        summaries = tf.get_collection(tf.GraphKeys.SUMMARIES)
    with tf.Session(graph=graph) as session:
        session.run(tf.variables_initializer(graph.get_collection("variables")))
        value = session.run(train_op)
    names = [operation.name for operation in graph.get_operations()]
    return names, [summary.name for summary in summaries], value


def test_p117_a_cell_run_twice_builds_the_same(graph):
    first, again = build(0), build(0)
    assert first == again
    assert len(first[1]) == 1
    assert build(1)[2] != first[2]
    assert graph.get_operations() == []


def test_a_fresh_graph_has_no_seed_unless_given_one():
    with tf.fresh_graph() as graph:
        assert graph.seed is None
    with tf.fresh_graph(np.int64(7)) as graph:
        assert graph.seed == 7
    with pytest.raises(TypeError, match="integer"), tf.fresh_graph("seven"):
        pass
