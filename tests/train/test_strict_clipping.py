"""Clipping that raises when a norm is not finite, if it is asked to."""

import numpy as np
import pytest

import optkit as tf
from tests.train.rules import new_step, started, state

STRICT = {
    "together": tf.train.clip_by_global_norm_fn(1.0, error_if_nonfinite=True),
    "apart": tf.contrib.training.clip_gradient_norms_fn(1.0, error_if_nonfinite=True),
}
WAYS = ("optimize_loss", "create_train_op")


def build(way, clip):
    """A train op whose gradient is what is fed."""
    x = tf.placeholder(tf.float32, [2])
    w = tf.Variable([1.0, 2.0], name="w")
    table = tf.Variable([[1.0], [2.0]], name="table")
    loss = tf.reduce_sum(w * x) + tf.reduce_sum(tf.gather(table, [1]) * x[0])
    step = new_step()
    optimizer = tf.train.MomentumOptimizer(0.5, 0.9)
    if way == "optimize_loss":
        train_op = tf.contrib.layers.optimize_loss(loss, step, None, optimizer, clip_gradients=clip)
    else:
        train_op = tf.contrib.training.create_train_op(
            loss, optimizer, step, transform_grads_fn=clip, check_numerics=False
        )
    return x, train_op, optimizer, (w, table, step)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("clip", STRICT.values(), ids=STRICT)
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_p061_strict_clipping_raises_before_anything_is_written(way, clip, bad):
    x, train_op, optimizer, variables = build(way, clip)
    session = started()
    session.run(train_op, {x: [3.0, 4.0]})
    before = state(session, optimizer, *variables)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"norm is inf or nan|'w' is inf or nan"
    ):
        session.run(train_op, {x: [1.0, bad]})
    after = state(session, optimizer, *variables)
    assert all((after[name] == before[name]).all() for name in before)
    session.run(train_op, {x: [3.0, 4.0]})
    assert session.value(variables[2]) == 2


@pytest.mark.parametrize("way", WAYS)
def test_p061_by_default_the_result_is_tfs(way):
    x, train_op, optimizer, variables = build(way, tf.train.clip_by_global_norm_fn(1.0))
    session = started()
    session.run(train_op, {x: [1.0, np.inf]})
    found = state(session, optimizer, *variables)
    assert np.isnan(found["w"]).all()
    assert np.isnan(found["table"]).tolist() == [[False], [True]]
    assert found["global_step"] == 1


@pytest.mark.parametrize("strict", [False, True])
def test_finite_gradients_are_clipped_alike(strict):
    results = []
    for clip in (1.0, tf.train.clip_by_global_norm_fn(1.0, error_if_nonfinite=strict)):
        with tf.Graph().as_default():
            x, train_op, optimizer, variables = build("optimize_loss", clip)
            session = started()
            for _ in range(2):
                session.run(train_op, {x: [3.0, 4.0]})
            results.append(state(session, optimizer, *variables))
    assert all((results[0][name] == results[1][name]).all() for name in results[0])


def test_the_function_itself_raises_when_run():
    x = tf.placeholder(tf.float32, [2])
    (clipped, missing), norm = tf.clip_by_global_norm([x, None], 1.0, error_if_nonfinite=True)
    assert missing is None
    session = tf.Session()
    assert session.run(norm, {x: [3.0, 4.0]}) == 5.0
    with pytest.raises(tf.errors.InvalidArgumentError, match="the global norm is inf or nan"):
        session.run(clipped, {x: [np.inf, 1.0]})


def test_a_threshold_must_be_a_number():
    with pytest.raises(ValueError, match="clip_norm: expected >= 0"):
        tf.train.clip_by_global_norm_fn(-1.0)
    with pytest.raises(TypeError, match="clip_norm: expected a number"):
        tf.train.clip_by_global_norm_fn("1")
