"""A session's state as arrays by name: taken, put back, and refused as a whole."""

import numpy as np
import pytest

import optkit as tf
from optkit.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from optkit.runtime import SessionState


def trained():
    """A small train op with slots, beta powers, a step and random noise."""
    w = tf.get_variable("w", initializer=np.float32([3, -2, 1]))
    noise = tf.random_normal([3], name="noise")
    step = tf.train.get_or_create_global_step()
    loss = tf.nn.l2_loss(w + 0.1 * noise)
    return tf.train.AdamOptimizer(0.1).minimize(loss, step), w


def test_a_run_goes_on_from_its_state_as_if_it_had_not_ended():
    train_op, w = trained()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(3):
            session.run(train_op)
        state = session.export_state()
        for _ in range(4):
            session.run(train_op)
        expected = session.export_state()
    assert {"w", "w/Adam", "w/Adam_1", "beta1_power", "global_step"} <= set(state.variables)
    assert state.counters == {"noise": 3}
    with tf.Session() as other:
        other.import_state(state)
        for _ in range(4):
            other.run(train_op)
        found = other.export_state()
        assert other.value(w).tobytes() == expected.variables["w"].tobytes()
    assert (found.counters, found.entropy) == (expected.counters, expected.entropy)
    for name, value in expected.variables.items():
        assert found.variables[name].tobytes() == value.tobytes(), name


def test_a_state_is_a_copy_and_may_be_put_back_in_the_middle():
    train_op, w = trained()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train_op)
        state = session.export_state()
        before = state.variables["w"].copy()
        for _ in range(2):
            session.run(train_op)
        np.testing.assert_array_equal(state.variables["w"], before)
        first = session.value(w)
        session.import_state(state)
        np.testing.assert_array_equal(session.value(w), before)
        state.variables["w"][:] = 0  # the session keeps its own
        for _ in range(2):
            session.run(train_op)
        assert session.value(w).tobytes() == first.tobytes()


def test_without_an_entropy_random_numbers_go_on():
    x = tf.random_uniform([2])
    with tf.Session() as session:
        first = session.run(x)
        session.import_state(SessionState({}))
        assert not np.array_equal(session.run(x), first)
        session.import_state(SessionState({}, {}, session.export_state().entropy))
        np.testing.assert_array_equal(session.run(x), first)


def test_all_that_does_not_fit_is_named_and_nothing_is_set():
    a, b = tf.Variable([1.0, 2.0], name="a"), tf.Variable(3, name="b")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        fine = np.float32([8, 9])
        with pytest.raises(NotFoundError, match="no variables 'x', 'y'"):
            session.import_state(SessionState({"a": fine, "y": fine, "x": fine}))
        wrong = {"a": fine, "b": np.int64(3)}
        with pytest.raises(InvalidArgumentError, match="'b': expected int32, got int64"):
            session.import_state(SessionState(wrong))
        wrong = {"b": np.int32(7), "a": np.float32([1])}
        with pytest.raises(InvalidArgumentError, match=r"'a': expected shape \(2,\), got \(1,\)"):
            session.import_state(SessionState(wrong))
        np.testing.assert_array_equal(session.value(a), [1, 2])
        assert session.value(b) == 3


def test_chosen_variables_are_exported():
    tf.Variable(1.0, name="a")
    empty = tf.Variable(2.0, name="b")
    with tf.Session() as session:
        session.run(tf.variables_initializer(tf.global_variables()[:1]))
        assert set(session.export_state().variables) == {"a"}
        with pytest.raises(FailedPreconditionError, match="'b'"):
            session.export_state(["a", "b"])
        with pytest.raises(NotFoundError, match="'c'"):
            session.export_state(["c"])
        session.run(empty.initializer)
        assert set(session.export_state(["b"]).variables) == {"b"}


def test_a_closed_session_has_no_state():
    session = tf.Session()
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        session.export_state()
    with pytest.raises(RuntimeError, match="closed"):
        session.import_state(SessionState({}))


@pytest.mark.parametrize("validate", [True, False])
def test_nobody_changes_a_session_through_the_arrays_it_was_given(validate):
    w = tf.Variable(np.float32([1, 2]), validate_shape=validate, name="w")
    train_op = tf.train.GradientDescentOptimizer(0.0).minimize(tf.reduce_sum(w * w))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for given in (np.float32([3, 4]), np.float32([5, 6])):
            session.import_state(SessionState({"w": given}))
            given[:] = 0
            session.run(train_op)  # from now on it may be in an arena
            assert session.value(w).all()
        if not validate:
            longer = np.float32([7, 8, 9])
            session.import_state(SessionState({"w": longer}))
            longer[:] = 0
            np.testing.assert_array_equal(session.value(w), [7, 8, 9])
