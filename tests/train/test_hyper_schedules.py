"""A schedule for any hyper-parameter: it is read at every step, in graphs and in eager mode."""

import numpy as np
import pytest

import optkit as tf
from tests.train.rules import new_step, started, state

T, O = tf.train, tf.contrib.opt  # noqa: E741

# Class, arguments that are fixed, and for each hyper-parameter two values.
RULES = {
    "GradientDescent": (T.GradientDescentOptimizer, {}, {"learning_rate": (0.1, 0.3)}),
    "Momentum": (T.MomentumOptimizer, {}, {"learning_rate": (0.1, 0.3), "momentum": (0.9, 0.5)}),
    "Adagrad": (T.AdagradOptimizer, {}, {"learning_rate": (0.1, 0.3)}),
    "Adam": (
        T.AdamOptimizer,
        {},
        {
            **{"learning_rate": (0.1, 0.3), "beta1": (0.9, 0.5)},
            **{"beta2": (0.99, 0.8), "epsilon": (1e-8, 0.1)},
        },
    ),
    "Adadelta": (
        T.AdadeltaOptimizer,
        {},
        {"learning_rate": (0.1, 0.3), "rho": (0.9, 0.5), "epsilon": (1e-8, 0.1)},
    ),
    "RMSProp": (
        T.RMSPropOptimizer,
        {},
        {
            **{"learning_rate": (0.1, 0.3), "decay": (0.9, 0.5)},
            **{"momentum": (0.0, 0.5), "epsilon": (1e-8, 0.1)},
        },
    ),
    "Ftrl": (
        T.FtrlOptimizer,
        {},
        {
            **{"learning_rate": (0.1, 0.3), "learning_rate_power": (-0.5, -0.25)},
            "l1_regularization_strength": (0.0, 0.1),
            "l2_regularization_strength": (0.0, 0.1),
            "l2_shrinkage_regularization_strength": (0.0, 0.1),
            "beta": (0.0, 0.5),
        },
    ),
    "ProximalAdagrad": (
        T.ProximalAdagradOptimizer,
        {},
        {
            "learning_rate": (0.1, 0.3),
            "l1_regularization_strength": (0.0, 0.1),
            "l2_regularization_strength": (0.0, 0.1),
        },
    ),
    "ProximalGradientDescent": (
        T.ProximalGradientDescentOptimizer,
        {},
        {
            "learning_rate": (0.1, 0.3),
            "l1_regularization_strength": (0.0, 0.1),
            "l2_regularization_strength": (0.0, 0.1),
        },
    ),
    "AdaMax": (O.AdaMaxOptimizer, {}, {"beta1": (0.9, 0.5), "beta2": (0.99, 0.8)}),
    "AMSGrad": (O.AMSGradOptimizer, {}, {"beta1": (0.9, 0.5), "beta2": (0.99, 0.8)}),
    "Nadam": (O.NadamOptimizer, {}, {"beta1": (0.9, 0.5), "beta2": (0.99, 0.8)}),
    "AddSign": (O.AddSignOptimizer, {}, {"alpha": (1.0, 2.0), "beta": (0.9, 0.05)}),
    "PowerSign": (O.PowerSignOptimizer, {}, {"base": (2.0, 3.0), "beta": (0.9, 0.05)}),
    "Lion": (O.LionOptimizer, {}, {"beta1": (0.9, 0.5), "weight_decay": (0.0, 0.5)}),
    "AdamW": (O.AdamWOptimizer, {}, {"weight_decay": (0.01, 0.1)}),
    "MomentumW": (
        O.MomentumWOptimizer,
        {"learning_rate": 0.1},
        {"weight_decay": (0.01, 0.1), "momentum": (0.9, 0.5)},
    ),
}
NEEDED = {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.01}
EVERY = [(name, hyper) for name, (_, _, hypers) in RULES.items() for hyper in hypers]
GRADS = np.array([[0.5, -0.25], [1.0, 0.75], [-0.125, 0.25]])


def made(name, **hyper):
    cls, fixed, hypers = RULES[name]
    needed = {key: NEEDED[key] for key in hypers if key in NEEDED}
    return cls(**{**needed, **fixed, **hyper})


def stepped(name, hyper, dtype, value_at):
    """Three steps with a hyper-parameter whose value at each is told; a Variable if told None."""
    with tf.Graph().as_default():
        step = new_step()
        w = tf.Variable(np.array([1.0, -2.0], dtype), name="w")
        loaded = tf.Variable(value_at(0) if callable(value_at) else 0.0, dtype=tf.float64)
        schedule = (
            loaded
            if callable(value_at)
            else T.piecewise_constant(
                step, [0], [tf.constant(value, tf.float64) for value in value_at]
            )
        )
        optimizer = made(name, **{hyper: schedule})
        fed = tf.placeholder(dtype, [2])
        train_op = optimizer.apply_gradients([(fed, w)], step)
        session = started()
        for i, g in enumerate(GRADS):
            if callable(value_at):
                loaded.load(value_at(i), session)
            session.run(train_op, {fed: g})
        return state(session, optimizer, w)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "hyper"), EVERY)
def test_a_schedule_is_read_at_every_step(name, hyper, dtype):
    early, late = RULES[name][2][hyper]
    found = stepped(name, hyper, dtype, (early, late))
    expected = stepped(name, hyper, dtype, lambda i: early if i == 0 else late)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)
    constant = stepped(name, hyper, dtype, (early, early))
    assert (found["w"] != constant["w"]).any()


@pytest.mark.parametrize(("name", "hyper"), EVERY)
def test_in_eager_mode_it_is_a_callable(name, hyper):
    early, late = RULES[name][2][hyper]
    expected = stepped(name, hyper, "float64", (early, late))
    with tf.eager():
        step = tf.Variable(np.int64(0), trainable=False)
        w = tf.Variable(np.array([1.0, -2.0]))
        schedule = T.piecewise_constant(step, [0], [np.float64(early), np.float64(late)])
        optimizer = made(name, **{hyper: schedule})
        for g in GRADS:
            optimizer.apply_gradients([(tf.constant(g), w)], step)
        np.testing.assert_allclose(w.numpy(), expected["w"], rtol=1e-12)


def test_one_cycle_of_rate_and_momentum():
    w = tf.Variable(np.float64(0.0))
    step = new_step()
    rate = T.one_cycle(np.float64(1.0), step, 2, peak=0.5, start=0.5, end=0.0)
    momentum = T.one_cycle(np.float64(0.5), step, 2, peak=0.5, start=1.5, end=1.5)
    train_op = T.MomentumOptimizer(rate, momentum).apply_gradients([(1.0, w)], step)
    session = started()
    found = []
    for _ in range(3):
        session.run(train_op)
        found.append(float(session.value(w)))
    # velocities 1, 1 + ½·1 and 1 + ¾·1.5; rates ½, 1 and 0
    np.testing.assert_allclose(found, [-0.5, -2.0, -2.0])
