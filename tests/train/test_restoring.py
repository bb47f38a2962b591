"""Checkpoints of one model in another: partial restores, and rates given in code."""

import logging

import numpy as np
import pytest

import optkit as tf
from tests.train.rules import new_step, started

T = tf.train


def model(optimizer):
    """A model of two variables and its train op."""
    w = tf.Variable([1.0, 2.0], name="w")
    b = tf.Variable(0.5, name="b")
    return w, optimizer.minimize(tf.reduce_sum(w * w) + b * b, new_step())


def trained(optimizer, path, steps=2):
    """The values of a model after some steps, saved."""
    with tf.Graph().as_default():
        _, train_op = model(optimizer)
        session = started()
        for _ in range(steps):
            session.run(train_op)
        saved = T.Saver().save(session, str(path / "model"), global_step=steps)
        return saved, {v.op.name: session.value(v) for v in tf.global_variables()}


# -- switching optimizers ------------------------------------------------------------------------


def test_p031_weights_load_into_another_optimizer_and_the_rest_is_told(tmp_path, caplog):
    path, values = trained(T.RMSPropOptimizer(0.1), tmp_path)
    w, train_op = model(T.AdamOptimizer(0.1))
    session = started()
    with pytest.raises(tf.errors.NotFoundError, match="'beta1_power' is missing"):
        T.Saver().restore(session, path)
    assert session.value(w).tolist() == [1.0, 2.0]
    with caplog.at_level(logging.INFO, "optkit"):
        report = T.restore_partial(session, path)
    assert sorted(report.restored) == ["b", "global_step", "w"]
    assert sorted(report.missing) == [
        *("b/Adam", "b/Adam_1", "beta1_power", "beta2_power", "w/Adam", "w/Adam_1")
    ]
    assert sorted(report.extra) == [*("b/RMSProp", "b/RMSProp_1", "w/RMSProp", "w/RMSProp_1")]
    assert report.mismatched == {}
    assert "missing in it, left as they are: beta1_power" in caplog.text
    for variable in tf.global_variables():
        if variable.op.name in values:
            np.testing.assert_array_equal(session.value(variable), values[variable.op.name])
    session.run(train_op)
    assert (session.value(w) != values["w"]).all()


def test_p031_slots_and_powers_are_named_in_the_order_of_creation():
    def names():
        with tf.Graph().as_default():
            w = tf.Variable([1.0], name="w")
            for _ in range(2):
                T.AdamOptimizer().minimize(w * w)
            return [v.op.name for v in tf.global_variables()]

    assert names() == names()
    assert names() == [
        *("w", "beta1_power", "beta2_power", "w/Adam", "w/Adam_1"),
        *("beta1_power_1", "beta2_power_1", "w/Adam_2", "w/Adam_3"),
    ]


def test_p031_a_map_and_what_does_not_fit(tmp_path):
    path, values = trained(T.GradientDescentOptimizer(0.1), tmp_path)
    head = tf.Variable([0.0, 0.0], name="head")
    other = tf.Variable([0.0, 0.0, 0.0], name="other")
    session = started()
    report = T.restore_partial(session, path, {"w": head, "b": other})
    assert (report.restored, report.missing) == (["head"], [])
    assert report.mismatched == {"other": "expected shape (3,), got ()"}
    assert "global_step" in report.extra
    np.testing.assert_array_equal(session.value(head), values["w"])
    assert session.value(other).tolist() == [0.0, 0.0, 0.0]
    report = T.restore_partial(session, path, [head])
    assert report.missing == ["head"]


def test_a_partial_restore_refuses_what_is_no_checkpoint(tmp_path):
    tf.Variable(1.0, name="w")
    session = started()
    with pytest.raises(tf.errors.NotFoundError, match="no such checkpoint"):
        T.restore_partial(session, str(tmp_path / "model"))
    (tmp_path / "model.safetensors").write_bytes(b"not one")
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        T.restore_partial(session, str(tmp_path / "model"))
    with pytest.raises(TypeError, match="sess: expected a Session"):
        T.restore_partial(None, str(tmp_path / "model"))
    path, _ = trained(T.GradientDescentOptimizer(0.1), tmp_path)
    with pytest.raises(TypeError, match="var_list: expected variables"):
        T.restore_partial(session, path, [1.0])


# -- rates ---------------------------------------------------------------------------------------

DECAYS = {"learning_rate_decay_fn": lambda lr, step: T.exponential_decay(lr, step, 1000, 0.5)}


def fitted(rate, **arguments):
    """A variable that moves by the rate, and its train op."""
    w = tf.Variable(0.0, name="w")
    step = new_step()
    return w, tf.contrib.layers.optimize_loss(w * 1.0, step, rate, "SGD", **arguments)


def continued(first, second, tmp_path):
    """How far a step goes that continues, by `second`, from a checkpoint of `first`."""
    with tf.Graph().as_default():
        _, train_op = first()
        session = started()
        session.run(train_op)
        path = T.Saver().save(session, str(tmp_path / "model"))
    with tf.Graph().as_default():
        w, train_op = second()
        session = tf.Session()
        T.Saver().restore(session, path)
        before = session.value(w)
        session.run(train_op)
        return float(before - session.value(w))


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (lambda: fitted(0.1), True),
        (lambda: fitted(0.1, **DECAYS), True),
        (lambda: fitted(tf.constant(0.1)), False),
        (lambda: fitted(tf.constant(0.1), **DECAYS), False),
        (lambda: fitted(0.1, learning_rate_decay_fn=lambda lr, s: tf.identity(lr)), True),
    ],
    ids=["number", "number, decay", "constant", "constant, decay", "number, function"],
)
def test_p043_a_rate_given_in_code_wins_and_says_so(second, told, tmp_path, caplog):
    moved = continued(lambda: fitted(0.2), second, tmp_path)
    assert moved == pytest.approx(0.1, rel=1e-3)
    says = "OptimizeLoss/learning_rate: 0.2 in the checkpoint, 0.1 in the code"
    assert (says in caplog.text) == told


@pytest.mark.parametrize("arguments", [{}, DECAYS], ids=["number", "decay"])
def test_p043_a_checkpoint_without_the_rate_restores_too(arguments, tmp_path):
    moved = continued(lambda: fitted(tf.constant(0.2)), lambda: fitted(0.1, **arguments), tmp_path)
    assert moved == pytest.approx(0.1, rel=1e-3)


def test_p043_a_rate_that_was_changed_while_training_is_kept(tmp_path):
    def lowered():
        w, train_op = fitted(0.2)
        (rate,) = [v for v in tf.global_variables() if v.op.name == "OptimizeLoss/learning_rate"]
        return w, tf.group(train_op, rate.assign(0.05))

    assert continued(lowered, lambda: fitted(0.2), tmp_path) == pytest.approx(0.05)
