"""The decays of the signs' part: values, steps beyond the end, eager mode, what is refused."""

import math

import numpy as np
import pytest

import optkit as tf
from tests.train.rules import new_step, started

O = tf.contrib.opt  # noqa: E741

STEPS = [0, 1, 3, 5, 8, 10, 25]


def linear(s):
    return max(0.0, (10 - s) / 10)


def cosine(periods, zero_after=math.inf):
    def value(s):
        fraction = 2 * periods * min(s, 10) / 10
        return 0.0 if fraction >= 2 * zero_after else 0.5 * (1 + math.cos(math.pi * fraction))

    return value


def restart(periods, zero_after=math.inf):
    def value(s):
        s = min(s, 10)
        wave = 0.5 * (1 + math.cos(math.pi * (periods * s % 10) / 10))
        return 0.0 if periods * s / 10 >= zero_after else wave

    return value


CASES = {
    "linear": (O.get_linear_decay_fn(10), linear),
    "cosine": (O.get_cosine_decay_fn(10), cosine(0.5)),
    "cosine, periods": (O.get_cosine_decay_fn(10, 2), cosine(2)),
    "cosine, zero after": (O.get_cosine_decay_fn(10, 2.0, 1.0), cosine(2, 1)),
    "restart": (O.get_restart_decay_fn(10), restart(1)),
    "restart, periods": (O.get_restart_decay_fn(10, 3), restart(3)),
    "restart, zero after": (O.get_restart_decay_fn(10, 4, 2), restart(4, 2)),
}


@pytest.mark.parametrize(("decay", "formula"), CASES.values(), ids=CASES)
def test_values_follow_the_formula(decay, formula):
    step = tf.placeholder(tf.int64, ())
    value = decay(step)
    session = tf.Session()
    found = [session.run(value, {step: s}) for s in STEPS]
    np.testing.assert_allclose(found, [formula(s) for s in STEPS], rtol=1e-12, atol=1e-15)


def test_the_optimizers_read_the_step_before_it_is_counted():
    w = tf.Variable(np.float64(0.0))
    step = new_step()
    optimizer = O.AddSignOptimizer(1.0, 0.0, sign_decay_fn=O.get_linear_decay_fn(4))
    train_op = optimizer.apply_gradients([(1.0, w)], step)
    session = started()
    moved = []
    for _ in range(5):
        before = session.value(w)
        session.run(train_op)
        moved.append(float(before - session.value(w)))
    np.testing.assert_allclose(moved, [1.0, 0.75, 0.5, 0.25, 0.0])


def test_eager():
    with tf.eager():
        w = tf.Variable(np.float64(0.0))
        step = tf.Variable(np.int64(0), trainable=False)
        optimizer = O.PowerSignOptimizer(1.0, 4.0, sign_decay_fn=O.get_linear_decay_fn(2))
        moved = []
        for _ in range(3):
            before = w.numpy()
            optimizer.apply_gradients([(1.0, w)], step)
            moved.append(float(before - w.numpy()))
        np.testing.assert_allclose(moved, [4.0, 2.0, 1.0])


@pytest.mark.parametrize("cls", [O.AddSignOptimizer, O.PowerSignOptimizer])
def test_a_decay_needs_a_step(cls):
    w = tf.Variable(1.0)
    with pytest.raises(ValueError, match="global_step: sign_decay_fn needs a step, got None"):
        cls(sign_decay_fn=O.get_linear_decay_fn(10)).minimize(w)
    with pytest.raises(TypeError, match=r"sign_decay_fn: expected a function, got 0\.5"):
        cls(sign_decay_fn=0.5)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="decay_steps: expected a number above 0"):
        O.get_linear_decay_fn(0)(1)
    with pytest.raises(TypeError, match="num_periods: expected a number"):
        O.get_cosine_decay_fn(10, "two")
    with pytest.raises(ValueError, match="zero_after: expected a number, got NaN"):
        O.get_restart_decay_fn(10, 1, math.nan)
    with pytest.raises(ValueError, match="global_step: expected the global_step, got None"):
        O.get_linear_decay_fn(10)(None)
