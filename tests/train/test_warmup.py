"""Warm-up and one cycle: alone, before a decay, as decay functions, for any hyper-parameter."""

import math

import numpy as np
import pytest

import optkit as tf
from tests.train.rules import started

T = tf.train

# PyTorch 2.13: OneCycleLR(max_lr=1, total_steps=11, pct_start=4/11) and its momentum.
RATES = [
    *(0.04, 0.28, 0.76, 1.0, 0.950484632, 0.811745654, 0.611262022),
    *(0.388741978, 0.188258346, 0.049519368, 4e-06),
]
MOMENTA = [
    *(0.95, 0.925, 0.875, 0.85, 0.854951557, 0.86882551, 0.888873953),
    *(0.911126047, 0.93117449, 0.945048443, 0.95),
]


def values(schedule, steps):
    """A schedule over a fed step."""
    step = tf.placeholder(tf.int64, ())
    rate = schedule(step)
    session = tf.Session()
    return [session.run(rate, {step: s}) for s in steps]


def test_one_cycle_is_pytorchs():
    found = values(lambda s: T.one_cycle(np.float64(1.0), s, 10), range(11))
    np.testing.assert_allclose(found, RATES, rtol=1e-6)
    found = values(
        lambda s: T.one_cycle(np.float64(0.85), s, 10, start=0.95 / 0.85, end=0.95 / 0.85),
        range(11),
    )
    np.testing.assert_allclose(found, MOMENTA, rtol=1e-7)


def test_one_cycle_stays_at_its_end():
    np.testing.assert_allclose(
        values(lambda s: T.one_cycle(2.0, s, 10, end=0.25), [10, 11, 10**9]), 0.5
    )


@pytest.mark.parametrize(("peak", "expected"), [(0.0, [8.0, 4.0, 0.0]), (1.0, [0.0, 4.0, 8.0])])
def test_one_cycle_may_lack_a_part(peak, expected):
    found = values(lambda s: T.one_cycle(8.0, s, 10, peak, start=0.0, end=0.0), [0, 5, 10])
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_warm_up_rises_along_a_line():
    found = values(lambda s: T.linear_warmup(8.0, s, 4, 0.5), [0, 1, 3, 4, 100])
    assert found == [4.0, 5.0, 7.0, 8.0, 8.0]
    assert found[0].dtype == np.float32


def test_warm_up_goes_before_a_decay():
    def schedule(s):
        return T.linear_warmup(T.exponential_decay(8.0, s, 10, 0.5), s, 5)

    np.testing.assert_allclose(
        values(schedule, [0, 1, 5, 10]), [0.0, 8 * 0.5**0.1 / 5, 8 * 0.5**0.5, 4.0], rtol=1e-6
    )


def test_they_are_decay_functions_of_optimize_loss():
    w = tf.Variable(0.0)
    step = T.create_global_step()
    train_op = tf.contrib.layers.optimize_loss(
        w, step, 0.5, "SGD", learning_rate_decay_fn=lambda lr, s: T.linear_warmup(lr, s, 2)
    )
    session = started()
    moved = []
    for _ in range(4):
        session.run(train_op)
        moved.append(float(session.value(w)))
    np.testing.assert_allclose(moved, [0.0, -0.25, -0.75, -1.25])


def test_they_compose_in_eager_mode():
    with tf.eager():
        step = tf.Variable(np.int64(0), trainable=False)
        w = tf.Variable(0.0)
        rate = T.linear_warmup(T.piecewise_constant(step, [2], [1.0, 0.5]), step, 2)
        optimizer = T.GradientDescentOptimizer(rate)
        moved = []
        for _ in range(4):
            optimizer.minimize(lambda: w * 1.0, step)
            moved.append(float(w.numpy()))
        assert moved == [0.0, -0.5, -1.5, -2.0]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: T.linear_warmup(0.1, 0, 0), "warmup_steps: expected a number above 0"),
        (lambda: T.linear_warmup(0.1, 0, 5, -0.5), "start: expected >= 0"),
        (lambda: T.linear_warmup(0.1, None, 5), "global_step: expected the global_step, got None"),
        (lambda: T.one_cycle(0.1, 0, -1), "total_steps: expected a number above 0"),
        (lambda: T.one_cycle(0.1, 0, 5, peak=1.5), "peak: expected >= 0 and <= 1"),
        (lambda: T.one_cycle(0.1, 0, 5, end=math.nan), "end: expected >= 0"),
    ],
)
def test_what_is_out_of_range_is_refused(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_a_warm_up_whose_step_is_not_counted_is_warned_of():
    step = T.create_global_step()
    w = tf.Variable(1.0)
    train_op = T.GradientDescentOptimizer(T.linear_warmup(0.1, step, 5)).minimize(w)
    with pytest.warns(RuntimeWarning, match="does not increment"):
        started().run(train_op)
