"""average_gradients over towers: dense, sparse and missing gradients."""

import numpy as np
import pytest

import optkit as tf
from tests.train.rules import rows, started

average = tf.train.average_gradients


def run(tensor):
    return tf.Session().run(tensor)


def test_p059_towers_with_dense_sparse_and_missing_gradients():
    dense, sparse, missing, mixed = (tf.Variable(np.zeros((3, 2), "f"), name=n) for n in "dsmx")
    one, two = np.full((3, 2), 1.0, "f"), np.full((3, 2), 4.0, "f")
    towers = [
        [
            (tf.constant(one), dense),
            (rows([[1.0, 2.0], [3.0, 4.0]], [2, 0]), sparse),
            (None, missing),
            (None, mixed),
        ],
        [
            (tf.constant(two), dense),
            (rows([[10.0, 20.0], [30.0, 40.0]], [2, 2]), sparse),
            (None, missing),
            (tf.constant(two), mixed),
        ],
    ]
    result = average(towers)
    assert [v for _, v in result] == [dense, sparse, missing, mixed]
    (d, s, m, x) = (g for g, _ in result)
    assert m is None
    assert isinstance(s, tf.IndexedSlices)
    found = run([d, s.values, s.indices, x])
    np.testing.assert_array_equal(found[0], (one + two) / 2)
    np.testing.assert_array_equal(found[1], [[41 / 2, 62 / 2], [3 / 2, 4 / 2]])
    assert found[2].tolist() == [2, 0]
    np.testing.assert_array_equal(found[3], two / 2)


def test_dense_and_sparse_together_give_a_dense_mean():
    v = tf.Variable(np.zeros(3), name="v")
    slices = tf.IndexedSlices(
        tf.constant([1.0, 2.0], tf.float64), tf.constant([1, 1]), tf.constant([3])
    )
    ((g, _),) = average([[(slices, v)], [(tf.constant([4.0, 4.0, 4.0], tf.float64), v)]])
    assert run(g).tolist() == [2.0, 3.5, 2.0]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "rows"])
def test_half_precision_is_added_up_in_float32(sparse):
    v = tf.Variable(np.zeros(1, np.float16))
    g = rows([40000.0], [0], "float16") if sparse else tf.constant([40000.0], tf.float16)
    ((mean, _),) = average([[(g, v)]] * 2)
    mean = mean.values if sparse else mean
    assert mean.dtype is tf.float16
    assert run(mean).tolist() == [40000.0]


def test_the_mean_is_the_gradient_of_the_mean_loss():
    w = tf.Variable([[1.0, -2.0], [0.5, 3.0]])
    xs = [tf.constant(x, tf.float32) for x in ([[1.0, 2.0]], [[3.0, -1.0]], [[0.5, 0.0]])]
    losses = [tf.reduce_sum(tf.square(tf.matmul(x, w))) for x in xs]
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    ((g, _),) = average([optimizer.compute_gradients(loss) for loss in losses])
    (expected,) = tf.gradients(tf.add_n(losses) / 3.0, [w])
    session = started()
    np.testing.assert_allclose(session.run(g), session.run(expected), rtol=1e-6)


def test_one_tower_is_its_own_mean():
    v = tf.Variable([0.0])
    ((g, _),) = average([[(tf.constant([3.0]), v)]])
    assert run(g).tolist() == [3.0]


def test_towers_that_do_not_match_are_refused():
    a, b = tf.Variable(0.0, name="a"), tf.Variable(0.0, name="b")
    g = tf.constant(1.0)
    with pytest.raises(ValueError, match="tower_grads: expected the pairs of one tower or more"):
        average([])
    with pytest.raises(ValueError, match=r"expected the variables \['a:0'\].*'b:0'.*tower 1"):
        average([[(g, a)], [(g, b)]])
    with pytest.raises(ValueError, match="in tower 1"):
        average([[(g, a)], [(g, a), (g, b)]])
    with pytest.raises(TypeError, match=r"tower_grads: expected \(gradient, variable\) pairs"):
        average([[g, a]])


def test_eager_towers():
    with tf.eager():
        v = tf.Variable([1.0, 2.0])
        ((g, _),) = average([[(tf.constant([1.0, 2.0]), v)], [(tf.constant([3.0, 6.0]), v)]])
        assert g.numpy().tolist() == [2.0, 4.0]
