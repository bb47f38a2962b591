"""Where a value that is not finite came from."""

import numpy as np
import pytest

import optkit as tf
from optkit.runtime.diagnosis import describe_values, observe, report

F = np.float32


def found(targets, feeds=None, gradients=None):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        trace = observe(session, targets, feeds or {})
    named = {v.op.name: g.name for v, g in (gradients or {}).items()}
    return report(trace, targets[0].name, named, 7), trace


def test_the_first_operation_whose_inputs_are_finite_is_named():
    x = tf.placeholder(tf.float32, [None], name="x")
    with tf.name_scope("net"):
        y = tf.log(x)  # the line of the user
    loss = tf.reduce_mean(y * 2.0)
    told, _ = found([loss], {x: F([1, -1, 2])})
    text = str(told)
    assert told.origin.name == "net/Log"
    assert told.rows == (1,)
    assert text.startswith(
        "step 7: the loss is nan\n  the first value that is not finite came from"
    )
    assert f"built at {__file__}" in text
    assert "# the line of the user" in text
    assert "input  x:0: float32 (3,), from -1 to 2" in text
    assert "output net/Log:0: float32 (3,), 1 NaN of 3, the rest from 0 to 0.693147" in text
    assert "in row 1 of the batch" in text


def test_an_overflow_is_found_behind_the_nan_that_it_becomes():
    x = tf.placeholder(tf.float32, [2], name="x")
    e = tf.exp(x, name="grows")
    told, _ = found([tf.reduce_sum(e - e)], {x: F([1, 1000])})
    assert told.origin.name == "grows"


def test_a_gradient_is_told_by_the_operation_that_it_is_of():
    w = tf.get_variable("w", [2], initializer=tf.zeros_initializer())
    root = tf.sqrt(w * w, name="root")
    loss = tf.reduce_sum(root)
    (dw,) = tf.gradients(loss, [w])
    told, _ = found([loss, dw], gradients={w: dw})
    assert told.what == "the gradient of variable 'w' is not finite"
    assert told.variable == "w"
    assert "in the gradient of operation 'root' (Sqrt), built at" in str(told)
    assert "root:0: float32 (2,), all 0" in str(told)
    assert "gradient: float32 (2,), 2 NaN of 2" in str(told)


def test_the_variable_whose_gradient_broke_first_is_named():
    first = tf.get_variable("first", [], initializer=tf.zeros_initializer())
    last = tf.get_variable("last", [], initializer=tf.zeros_initializer())
    # The walk back meets `last` before `first`.
    loss = tf.sqrt(last * tf.exp(first))
    dfirst, dlast = tf.gradients(loss, [first, last])
    told, trace = found([loss, dfirst, dlast], gradients={first: dfirst, last: dlast})
    assert trace.bad(dfirst.name)
    assert told.variable == "last"


def test_a_fed_nan_and_a_variable_that_was_not_finite():
    x = tf.placeholder(tf.float32, [3], name="x")
    w = tf.get_variable("w", [3], initializer=tf.constant_initializer(np.inf))
    told, _ = found([tf.reduce_sum(x * 2.0)], {x: F([1, np.nan, 1])})
    assert "it came with what is fed for 'x' (Placeholder), built at" in str(told)
    assert told.rows == (1,)
    told, _ = found([tf.reduce_sum(w * 2.0)])
    assert "it came from variable 'w'" in str(told)
    assert "which was not finite before the step" in str(told)


def test_an_infinite_constant_is_no_fault():
    x = tf.placeholder(tf.float32, [2], name="x")
    masked = tf.constant(F([-np.inf, 0.0])) + x
    y = tf.log(x, name="culprit")
    told, _ = found([tf.reduce_sum(masked + y)], {x: F([1, -1])})
    assert told.origin.name == "culprit"
    # With nothing else, the operation that made NaN of it is told.
    gone = tf.subtract(masked, masked, name="gone")
    told, _ = found([tf.reduce_sum(gone)], {x: F([1, 1])})
    assert told.origin.name == "gone"


def test_values_that_are_cut_away_are_not_blamed():
    x = tf.placeholder(tf.float32, [2], name="x")
    safe = tf.where(x > 0, tf.log(x, name="masked"), tf.zeros_like(x))
    told, _ = found([tf.reduce_sum(safe) + tf.log(x[0] - 1.0, name="culprit")], {x: F([0.5, 0])})
    assert told.origin.name == "culprit"


def test_only_the_branch_that_was_taken_is_looked_at():
    x = tf.placeholder(tf.float32, [], name="x")
    y = tf.cond(x > 0, lambda: tf.log(-x, name="taken"), lambda: x)
    told, _ = found([y + 1.0], {x: F(1)})
    assert told.origin.name.endswith("taken")


def test_all_finite_says_so_and_nothing_changes():
    w = tf.get_variable("w", [], initializer=tf.ones_initializer())
    bump = tf.assign_add(w, 1.0)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        trace = observe(session, [bump], {})
        assert trace.values[bump.name] == 2.0
        assert session.value(w) == 1.0
    told = report(trace, bump.name, {}, None)
    assert told.origin is None
    assert str(told).startswith("loss and gradients are finite, but the norm of the gradients")


def test_random_numbers_are_those_of_the_step_that_failed():
    noise = tf.random_normal([3], name="noise")
    with tf.Session() as session:
        seen = observe(session, [noise], {}).values[noise.name]
        assert (session.run(noise) == seen).all()


def test_an_operation_that_raises_ends_the_run():
    x = tf.placeholder(tf.int32, [], name="x")
    y = tf.gather(tf.constant([1.0, 2.0]), x) + 1.0
    with tf.Session() as session:
        trace = observe(session, [y], {x: 5})
    assert isinstance(trace.error, tf.errors.InvalidArgumentError)
    assert y.name not in trace.values


def test_a_check_lets_pass_what_is_looked_for():
    x = tf.placeholder(tf.float32, [], name="x")
    y = tf.check_numerics(tf.log(x, name="culprit"), "loss") + 1.0
    told, _ = found([y], {x: F(-1)})
    assert told.origin.name == "culprit"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (F([]), "t: float32 (0,)"),
        (np.array([1, 5]), "t: int64 (2,), from 1 to 5"),
        (F([2, 2]), "t: float32 (2,), all 2"),
        (F([0, 2]), "t: float32 (2,), from 0 to 2, 1 zero"),
        (F([np.inf, np.nan]), "t: float32 (2,), 1 NaN and 1 infinite of 2"),
        (np.array(b"a", object), "t: object ()"),
        (None, "t: not computed"),
        (np.array([1j]), "t: complex128 (1,)"),
    ],
)
def test_values_in_words(value, text):
    assert describe_values("t", value) == text


def test_bfloat16_is_looked_at_too():
    types = pytest.importorskip("ml_dtypes")
    value = np.array([np.inf, 1], types.bfloat16)
    assert describe_values("t", value) == "t: bfloat16 (2,), 1 infinite of 2, the rest all 1"


def test_p050_a_failed_check_in_a_plain_run_names_the_culprit_and_the_step():
    x = tf.placeholder(tf.float32, [2], name="x")
    w = tf.get_variable("w", [], initializer=tf.ones_initializer())
    masked = tf.exp(tf.constant(F([-np.inf, 0])) + x)  # an infinity that is meant
    loss = tf.reduce_sum(masked) + tf.reduce_mean(tf.log(x * w, name="culprit"))
    train_op = tf.contrib.training.create_train_op(loss, tf.train.AdamOptimizer(0.1))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train_op, {x: F([1, 2])})
        before = session.export_state()
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            session.run(train_op, {x: F([1, -2])})
        after = session.export_state()
    text = str(caught.value)
    assert "LossTensor is inf or nan" in text
    assert "the first value that is not finite came from operation 'culprit' (Log)" in text
    assert f"built at {__file__}" in text
    assert "global_step = 1" in text
    # P051: nothing has changed.
    assert all((before.variables[k] == after.variables[k]).all() for k in before.variables)
