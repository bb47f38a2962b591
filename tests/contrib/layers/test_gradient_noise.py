"""gradient_noise_scale: a truncated normal of standard deviation 0.8796·scale, within 2·scale."""

import numpy as np
import pytest

import optkit as tf
from tests.contrib.golden import parse_summary
from tests.contrib.models import after, embedding, linear, session

optimize_loss = tf.contrib.layers.optimize_loss
SIZE = 20_000


def noise(dtype=tf.float32, scale=3.0, seed=7, op_seed=None):
    """The noise of one step on a gradient of zeros."""
    with tf.Graph().as_default():
        tf.set_random_seed(seed)
        model = linear(np.zeros(SIZE), dtype=dtype)
        train_op = optimize_loss(model.loss, model.step, 1.0, "SGD", gradient_noise_scale=scale)
        return -after(train_op)["w"]


@pytest.mark.parametrize("dtype", [tf.float16, tf.float32, tf.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("scale", [3.0, 3, np.float32(3)], ids=["float", "int", "float32"])
def test_the_noise_is_a_truncated_normal_in_every_dtype(dtype, scale):
    drawn = noise(dtype, scale)
    assert drawn.dtype == dtype
    drawn = drawn.astype(np.float64)
    assert np.abs(drawn).max() <= 6.0
    assert np.abs(drawn).max() > 5.5
    assert drawn.std() == pytest.approx(0.8796 * 3.0, rel=0.02)
    assert abs(drawn.mean()) < 4 * drawn.std() / SIZE**0.5


def test_the_same_seed_gives_the_same_noise():
    np.testing.assert_array_equal(noise(seed=7), noise(seed=7))
    assert (noise(seed=7) != noise(seed=8)).any()


def test_the_noise_is_new_at_every_step_and_for_every_variable(graph):
    tf.set_random_seed(3)
    one, two = linear(np.zeros(50), name="one"), linear(np.zeros(50), name="two")
    train_op = optimize_loss(one.loss + two.loss, one.step, 1.0, "SGD", gradient_noise_scale=1.0)
    with session() as sess:
        sess.run(train_op)
        first = {name: sess.value(v) for name, v in (one.variables | two.variables).items()}
        sess.run(train_op)
        second = {name: sess.value(v) for name, v in (one.variables | two.variables).items()}
    assert (first["one"] != first["two"]).all()
    for name in ("one", "two"):
        assert (second[name] - first[name] != first[name]).all()


def test_the_noise_comes_on_top_of_the_gradient(graph):
    tf.set_random_seed(5)
    model = linear(np.full(1000, 100.0))
    train_op = optimize_loss(model.loss, model.step, 1.0, "SGD", gradient_noise_scale=0.5)
    moved = -after(train_op)["w"]
    assert (np.abs(moved - 100) <= 1.0).all()
    assert moved.std() > 0.3


def test_multipliers_and_the_norm_come_after_the_noise(graph):
    tf.set_random_seed(5)
    model = linear(np.zeros(1000))
    train_op = optimize_loss(
        model.loss,
        model.step,
        1.0,
        "SGD",
        gradient_noise_scale=1.0,
        gradient_multipliers={"w": 0.0},
    )
    merged = tf.summary.merge_all()
    with session() as sess:
        _, data = sess.run([train_op, merged])
        assert ("OptimizeLoss/global_norm/gradient_norm", "scalar", 0.0) in parse_summary(data)
        np.testing.assert_array_equal(sess.value(model.w), np.zeros(1000))


def test_rows_stay_rows_and_are_merged_before_the_noise(graph):
    """Row 4: noise on the rows present, duplicates added up; the other rows do not move."""
    tf.set_random_seed(9)
    model = embedding(rows=[0] * 40 + [3], size=(5, 400))
    seen = []

    def keep(pairs):
        seen.extend(pairs)
        return pairs

    train_op = optimize_loss(
        model.loss, model.step, 1.0, "Momentum", gradient_noise_scale=0.5, clip_gradients=keep
    )
    ((gradient, _),) = seen
    assert isinstance(gradient, tf.IndexedSlices)
    with session() as sess:
        rows, _ = sess.run([gradient, train_op])
        moved = -sess.value(model.emb)
    np.testing.assert_array_equal(np.sort(rows.indices), [0, 3])
    assert rows.values.shape == (2, 400)
    # Added once to each element, and not once for each time that its row is named.
    assert np.abs(moved[0] - 40).max() <= 1.0
    assert np.abs(moved[3] - 1).max() <= 1.0
    assert moved[0].std() == pytest.approx(0.8796 * 0.5, rel=0.1)
    np.testing.assert_array_equal(moved[[1, 2, 4]], np.zeros((3, 400)))
    np.testing.assert_allclose(moved[rows.indices], rows.values, rtol=1e-6)


def test_variables_without_a_gradient_get_no_noise(graph):
    model = linear([1.0])
    other = tf.Variable(2.0, name="other")
    train_op = optimize_loss(model.loss, model.step, 1.0, "SGD", gradient_noise_scale=1.0)
    assert after(train_op)["other"] == 2.0
    assert other in tf.trainable_variables()


def test_a_failed_step_does_not_use_up_noise(graph):
    tf.set_random_seed(11)
    x = tf.placeholder(tf.float32, [])
    w = tf.Variable(np.zeros(10, np.float32), name="w")
    loss = tf.reduce_sum(w) * x
    train_op = tf.contrib.layers.optimize_loss(loss, None, 1.0, "SGD", gradient_noise_scale=1.0)
    with tf.control_dependencies([tf.check_numerics(x, "x is bad")]):
        guarded = tf.identity(train_op)
    expected = after(train_op, feed={x: 0.0})["w"]
    with session() as sess:
        with pytest.raises(tf.errors.InvalidArgumentError, match="x is bad"):
            sess.run(guarded, {x: np.nan})
        sess.run(train_op, {x: 0.0})
        np.testing.assert_array_equal(sess.value(w), expected)
