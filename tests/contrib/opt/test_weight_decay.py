"""Decoupled weight decay: any optimizer, some of the variables, rows, schedules."""

import numpy as np
import pytest

import optkit as tf
from optkit.train.optimizer import Optimizer
from tests.train.rules import OPTIMIZERS, new_step, rows, run_steps, started

O, T = tf.contrib.opt, tf.train  # noqa: E741

FORGETS = {"AdagradDA", "Ftrl"}  # what they do depends on the variable otherwise, or not at all


MAKERS = {
    "GradientDescent": (T.GradientDescentOptimizer, {}),
    "Momentum": (T.MomentumOptimizer, {"momentum": 0.9}),
    "Nesterov": (T.MomentumOptimizer, {"momentum": 0.9, "use_nesterov": True}),
    "Adagrad": (T.AdagradOptimizer, {}),
    "Adam": (T.AdamOptimizer, {}),
    "Adadelta": (T.AdadeltaOptimizer, {}),
    "RMSProp": (T.RMSPropOptimizer, {"momentum": 0.5}),
    "CenteredRMSProp": (T.RMSPropOptimizer, {"centered": True}),
    "ProximalAdagrad": (T.ProximalAdagradOptimizer, {}),
    "ProximalGradientDescent": (T.ProximalGradientDescentOptimizer, {}),
}


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "rows"])
@pytest.mark.parametrize("name", MAKERS)
def test_a_step_is_the_decay_and_then_the_optimizers_step(name, sparse):
    base, arguments = MAKERS[name]
    initial = np.array([1.0, -2.0, 4.0])
    grad = ([0.5, -0.25], [2, 0]) if sparse else [0.5, -0.25, 1.0]
    decayed = initial.copy()
    decayed[[2, 0] if sparse else slice(None)] *= 1 - 0.25
    expected = run_steps(lambda rate, _: base(learning_rate=rate, **arguments), decayed, [grad])
    found = run_steps(
        lambda rate, _: O.extend_with_decoupled_weight_decay(base)(
            0.25, learning_rate=rate, **arguments
        ),
        initial,
        [grad],
    )
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-12, err_msg=key)


def test_every_optimizer_is_extended():
    assert MAKERS.keys() | FORGETS == OPTIMIZERS.keys()


@pytest.mark.parametrize("way", ["minimize", "apply_gradients"])
@pytest.mark.parametrize(
    ("chosen", "expected"),
    [(None, (0.5, 1.0)), (["a"], (0.5, 2.0)), ([], (1.0, 2.0)), (["a", "b"], (0.5, 1.0))],
)
def test_only_the_variables_of_the_list_decay(way, chosen, expected):
    made = {"a": tf.Variable(1.0, name="a"), "b": tf.Variable(2.0, name="b")}
    listed = None if chosen is None else [made[name] for name in chosen]
    optimizer = O.MomentumWOptimizer(0.5, 0.0, 0.9)
    loss = made["a"] + made["b"]
    if way == "minimize":
        train_op = optimizer.minimize(loss, decay_var_list=listed)
    else:
        pairs = optimizer.compute_gradients(loss)
        train_op = optimizer.apply_gradients(pairs, decay_var_list=listed)
    session = started()
    session.run(train_op)
    assert tuple(session.run(list(made.values()))) == expected


def test_a_list_is_for_one_call_only():
    a, b = tf.Variable(1.0), tf.Variable(2.0)
    optimizer = O.MomentumWOptimizer(0.5, 0.0, 0.9)
    optimizer.minimize(a + b, decay_var_list=[a])
    everything = optimizer.minimize(a + b)
    session = started()
    session.run(everything)
    assert session.run([a, b]) == [0.5, 1.0]


def test_sparse_rows_of_adam_decay_where_they_are_named():
    w = tf.Variable(np.ones(3))
    train_op = O.AdamWOptimizer(0.5, learning_rate=0.0).apply_gradients(
        [(rows([1.0, 1.0], [2, 2], "float64"), w)]
    )
    session = started()
    session.run(train_op)
    assert session.value(w).tolist() == [1.0, 1.0, 0.5]


@pytest.mark.parametrize("hook", ["_apply_dense", "_resource_apply_dense"])
def test_optimizers_with_tf1s_hooks_are_extended_too(hook):
    def apply(self, grad, var):
        return var.assign_sub(0.5 * grad)

    base = type("Hooked", (Optimizer,), {hook: apply})
    extended = O.extend_with_decoupled_weight_decay(base)
    assert extended.__name__ == "HookedWOptimizer"
    w = tf.Variable(4.0)
    train_op = extended(0.25, False, "Hooked").apply_gradients([(1.0, w)])
    session = started()
    session.run(train_op)
    assert session.value(w) == 2.5


def test_a_class_of_ones_own():
    class AdagradW(O.DecoupledWeightDecayExtension, T.AdagradOptimizer):
        pass

    w = tf.Variable(2.0, name="w")
    optimizer = AdagradW(weight_decay=0.5, learning_rate=0.0)
    assert isinstance(optimizer, T.AdagradOptimizer)
    session_op = optimizer.minimize(w)
    session = started()
    session.run(session_op)
    assert session.value(w) == 1.0
    assert optimizer.get_slot_names() == ["accumulator"]


def test_the_decay_may_follow_the_schedule_of_the_rate():
    w = tf.Variable(np.float64(1.0))
    step = new_step()
    schedule = T.piecewise_constant(step, [0], [np.float64(1.0), np.float64(0.5)])
    optimizer = O.MomentumWOptimizer(0.5 * schedule, 0.0 * schedule, 0.9)
    train_op = optimizer.minimize(w * 1.0, step)
    session = started()
    session.run(train_op)
    assert session.value(w) == 0.5
    session.run(train_op)
    assert session.value(w) == 0.375


def test_eager():
    with tf.eager():
        w = tf.Variable(np.float64(1.0))
        optimizer = O.AdamWOptimizer(lambda: 0.5, learning_rate=0.0)
        for _ in range(2):
            optimizer.minimize(lambda: w * 2.0)
        assert w.numpy() == 0.25


def test_optimize_loss_takes_one():
    w = tf.Variable(1.0)
    train_op = tf.contrib.layers.optimize_loss(
        w, new_step(), 0.25, lambda rate: O.MomentumWOptimizer(0.5, rate, 0.0)
    )
    session = started()
    session.run(train_op)
    assert session.value(w) == 0.25


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match=r"weight_decay: expected >= 0, got -0\.1"):
        O.AdamWOptimizer(-0.1)
    with pytest.raises(TypeError, match="weight_decay: expected a number"):
        O.MomentumWOptimizer("1e-4", 0.1, 0.9)
    with pytest.raises(TypeError, match="base_optimizer: expected a subclass of Optimizer"):
        O.extend_with_decoupled_weight_decay(T.AdamOptimizer())
    w = tf.Variable(1.0)
    with pytest.raises(TypeError, match="decay_var_list: expected Variables, got 'w'"):
        O.AdamWOptimizer(0.1).minimize(w, decay_var_list=["w"])
