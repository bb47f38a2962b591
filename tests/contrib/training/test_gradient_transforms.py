"""clip_gradient_norms, clip_gradient_norms_fn and multiply_gradients."""

import numpy as np
import pytest

import optkit as tf
from tests.contrib.models import outline, session

training = tf.contrib.training


def variable(name="w", size=2):
    return tf.Variable(np.zeros(size, np.float32), name=name)


def values(pairs):
    """The values of the gradients; None stays None."""
    with session() as sess:
        return [None if g is None else sess.run(g) for g, _ in pairs]


# -- clip_gradient_norms --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gradient", "limit", "expected"),
    [
        ([3.0, 4.0], 1.0, [0.6, 0.8]),
        ([3.0, 4.0], 1, [0.6, 0.8]),
        ([3.0, 4.0], 5.0, [3.0, 4.0]),
        ([3.0, 4.0], 100.0, [3.0, 4.0]),
        ([3.0, 4.0], float("inf"), [3.0, 4.0]),
        ([3.0, 4.0], 0.0, [0.0, 0.0]),
        ([3.0, 4.0], -1.0, [0.0, 0.0]),
        ([3.0, 4.0], np.float32(1), [0.6, 0.8]),
        ([0.0, 0.0], 1.0, [0.0, 0.0]),
        ([np.inf, 4.0], 1.0, [np.nan, 0.0]),
        ([np.nan, 4.0], 1.0, [np.nan, np.nan]),
    ],
)
def test_each_gradient_is_clipped_by_its_own_norm(graph, gradient, limit, expected):
    w, small = variable(), variable("small")
    pairs = [(tf.constant(gradient, tf.float32), w), (tf.constant([0.0, 0.0]), small)]
    clipped = training.clip_gradient_norms(pairs, limit)
    assert [v for _, v in clipped] == [w, small]
    first, second = values(clipped)
    np.testing.assert_allclose(first, np.float32(expected), rtol=1e-6)
    np.testing.assert_array_equal(second, [0.0, 0.0])


def test_the_limit_may_be_a_tensor(graph):
    limit = tf.constant(1.0, tf.float64)
    pairs = [(tf.constant([3.0, 4.0]), variable())]
    (clipped,) = values(training.clip_gradient_norms(pairs, limit))
    np.testing.assert_allclose(clipped, np.float32([0.6, 0.8]), rtol=1e-6)


@pytest.mark.parametrize(
    ("limit", "error"),
    [("1", TypeError), (None, TypeError), (True, TypeError), (float("nan"), ValueError)],
)
def test_limits_that_are_no_numbers_are_refused(graph, limit, error):
    pairs = [(tf.constant([3.0, 4.0]), variable())]
    before = outline(graph)
    with pytest.raises(error, match=f"max_norm.*{limit!r}"):
        training.clip_gradient_norms(pairs, limit)
    assert outline(graph) == before


def test_none_and_rows_keep_their_kind(graph):
    """Row R6: rows named twice are added up before the norm is taken."""
    emb, w = variable("emb", (4, 1)), variable()
    rows = tf.IndexedSlices(tf.constant([[1.0], [2.0], [4.0]]), tf.constant([1, 3, 3]))
    clipped = training.clip_gradient_norms([(None, w), (rows, emb)], 1.0)
    assert clipped[0] == (None, w)
    assert isinstance(clipped[1][0], tf.IndexedSlices)
    (_, found) = values(clipped)
    dense = np.zeros((4, 1))
    np.add.at(dense, found.indices, found.values)
    np.testing.assert_allclose(dense[:, 0], np.array([0, 1, 0, 6]) / 37**0.5, rtol=1e-6)


@pytest.mark.parametrize("dtype", [tf.float16, tf.float32, tf.float64], ids=lambda d: d.name)
def test_clipping_keeps_the_dtype(graph, dtype):
    w = tf.Variable(np.zeros(2, dtype.as_numpy_dtype), name="w")
    (clipped,) = values(training.clip_gradient_norms([(tf.constant([3.0, 4.0], dtype), w)], 1.0))
    assert clipped.dtype == dtype
    np.testing.assert_allclose(clipped, [0.6, 0.8], rtol=1e-3)


def test_the_function_of_the_pairs(graph):
    w = variable()
    clip = training.clip_gradient_norms_fn(1.0)
    (clipped,) = values(clip([(tf.constant([3.0, 4.0]), w)]))
    np.testing.assert_allclose(clipped, [0.6, 0.8], rtol=1e-6)


# -- multiply_gradients ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", [lambda w: w, lambda w: "w", lambda w: "w:0"], ids=["variable", "w", "w:0"]
)
@pytest.mark.parametrize(
    ("by", "expected"),
    [(2.0, [2.0, 4.0]), (2, [2.0, 4.0]), ([2.0, 3.0], [2.0, 6.0])],
    ids=["float", "int", "vector"],
)
def test_gradients_are_multiplied(graph, key, by, expected):
    w, other = variable(), variable("other")
    pairs = [
        (tf.constant([1.0, 2.0]), w),
        (tf.constant([1.0, 1.0]), other),
        (None, variable("none")),
    ]
    multiplied = training.multiply_gradients(pairs, {key(w): by})
    assert [v for _, v in multiplied] == [v for _, v in pairs]
    first, second, none = values(multiplied)
    np.testing.assert_array_equal(first, np.float32(expected))
    np.testing.assert_array_equal(second, [1.0, 1.0])
    assert none is None


def test_a_tensor_multiplies_rows(graph):
    emb = variable("emb", (4, 1))
    rows = tf.IndexedSlices(tf.constant([[1.0], [2.0]]), tf.constant([1, 3]))
    ((found, _),) = training.multiply_gradients([(rows, emb)], {emb: tf.constant(3.0, tf.float64)})
    assert isinstance(found, tf.IndexedSlices)
    with session() as sess:
        got = sess.run(found)
    np.testing.assert_array_equal(got.values, np.float32([[3.0], [6.0]]))
    np.testing.assert_array_equal(got.indices, [1, 3])


@pytest.mark.parametrize(
    ("by", "error"),
    [
        ("2", TypeError),
        ([1.0, 2.0, 3.0], ValueError),
        ([[1.0, 2.0], [3.0, 4.0]], ValueError),
        ([[1.0, 2.0]], ValueError),
    ],
    ids=str,
)
def test_multipliers_that_do_not_fit_are_refused(graph, by, error):
    pairs = [(tf.constant([1.0, 2.0]), variable())]
    with pytest.raises(error, match=r"gradient_multipliers.*'w'"):
        training.multiply_gradients(pairs, {"w": by})
