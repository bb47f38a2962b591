"""A step that is not finite raises before anything is written (P051)."""

import numpy as np
import pytest

import optkit as tf
from optkit.train.guard import anatomy, guard

F = np.float32


def linear(optimizer="Adam", **options):
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    w = tf.get_variable("w", [2, 3])
    b = tf.get_variable("b", [3], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b))
    step = tf.train.get_or_create_global_step()
    return x, tf.contrib.layers.optimize_loss(loss, step, 0.1, optimizer, **options), loss


def everything(session):
    return session.export_state()


def same(a, b):
    return (
        a.counters == b.counters
        and a.variables.keys() == b.variables.keys()
        and all(np.array_equal(a.variables[k], b.variables[k]) for k in a.variables)
    )


@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "Ftrl", "Momentum", "Adagrad", "RMSProp"])
def test_nothing_changes_in_a_step_that_is_not_finite(optimizer, clip):
    x, train, loss = linear(optimizer, clip_gradients=clip)
    parts = anatomy(train)
    check = guard(train, parts)
    assert parts.loss is loss
    assert parts.gradients.keys() == {"w", "b"}
    good, bad = {x: np.ones((4, 2), F)}, {x: F([[1, np.inf]])}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        start = everything(session)
        for _ in range(3):
            norm = session.run([train.op, check.tensor, check.norm], good)[2]
            assert norm > 0
            before = everything(session)
            with pytest.raises(tf.errors.InvalidArgumentError, match="LossTensor is inf or nan"):
                session.run([train.op, check.tensor], bad)
            assert same(everything(session), before)
        # Training went on as if nothing had been.
        after = everything(session)
        session.import_state(start)
        for _ in range(3):
            session.run(train, good)
        assert same(everything(session), after)


def test_a_gradient_that_is_not_finite_is_seen_where_the_loss_is():
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    loss = tf.sqrt(w * w)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    check = guard(train, anatomy(train, loss))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(loss) == 0
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run([train, check.tensor])
        assert session.value(w) == 0


def test_the_norm_of_the_clipping_is_used_and_is_that_before_clipping():
    x, train, _ = linear(clip_gradients=0.01)
    count = len(tf.get_default_graph().get_operations())
    check = guard(train, anatomy(train))
    assert check.norm.op.type == "GlobalNorm"
    assert check.norm.op.index < count
    assert len(tf.get_default_graph().get_operations()) == count + 1
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        feeds = {x: np.ones((1, 2), F)}
        assert session.run([train.op, check.tensor, check.norm], feeds)[2] > 0.01


def test_the_norm_agrees_with_numpy_without_clipping():
    x, train, _ = linear()
    parts = anatomy(train)
    check = guard(train, parts)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        feeds = {x: np.ones((5, 2), F)}
        gradients = session.run(list(parts.gradients.values()), feeds)
        norm = session.run(check.norm, feeds)
    expected = np.sqrt(sum((g.astype(float) ** 2).sum() for g in gradients))
    np.testing.assert_allclose(norm, expected, rtol=1e-6)


def test_a_guard_is_made_once():
    _, train, _ = linear()
    first = guard(train, anatomy(train))
    count = len(tf.get_default_graph().get_operations())
    assert guard(train, anatomy(train)) is first
    assert len(tf.get_default_graph().get_operations()) == count


def test_gradients_of_several_dtypes_and_rows():
    table = tf.get_variable("table", [5, 2])
    wide = tf.get_variable("wide", [2], tf.float64)
    rows = tf.placeholder(tf.int32, [None], name="rows")
    loss = tf.reduce_sum(tf.gather(table, rows) ** 2) + tf.cast(tf.reduce_sum(wide**2), tf.float32)
    train = tf.train.AdagradOptimizer(0.1).minimize(loss)
    parts = anatomy(train, loss)
    check = guard(train, parts)
    assert parts.gradients.keys() == {"table", "wide"}
    assert check.norm is None  # there are two
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run([train, check.tensor], {rows: [1, 1]})
        broken = session.value(table).copy()
        broken[3] = np.nan
        session.run(tf.assign(table, broken))
        before = everything(session)
        session.run([train, check.tensor], {rows: [0, 2]})
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run([train, check.tensor], {rows: [3]})
        assert not same(everything(session), before)


def test_an_optimizer_that_writes_by_hand_is_guarded():
    class Plain(tf.train.Optimizer):
        def __init__(self):
            super().__init__(False, "Plain")

        def _apply_dense(self, grad, var):
            return tf.assign_sub(var, 0.1 * grad)

    w = tf.get_variable("w", [2], initializer=tf.zeros_initializer())
    loss = tf.reduce_sum(tf.sqrt(w * w))
    train = Plain().minimize(loss)
    parts = anatomy(train, loss)
    assert parts.gradients.keys() == {"w"}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run([train, guard(train, parts).tensor])


@pytest.mark.parametrize("make", [tf.train.AdamOptimizer, tf.train.FtrlOptimizer])
def test_the_rate_is_found_without_a_summary(make):
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    train = tf.contrib.training.create_train_op(tf.square(w - 1.0), make(0.25))
    rate = anatomy(train).rate
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(rate) == 0.25


def alternating(first, second):
    """Two `minimize`s of which a run takes one, or none, as the feed says."""
    turn = tf.placeholder(tf.int32, [], name="turn")
    optimizer = tf.train.GradientDescentOptimizer(0.1)

    def inner():
        return tf.cond(tf.equal(turn, 1), lambda: optimizer.minimize(second()), tf.no_op)

    return turn, tf.cond(tf.equal(turn, 0), lambda: optimizer.minimize(first()), inner)


def test_what_a_branch_computes_is_looked_at_where_the_branch_is_taken():
    w = tf.get_variable("w", [2], initializer=tf.ones_initializer())
    v = tf.get_variable("v", [], initializer=tf.zeros_initializer())
    # The gradient of the one is infinite, that of the other is finite where the loss is NaN.
    turn, train = alternating(lambda: tf.reduce_sum(tf.sqrt(v)), lambda: tf.reduce_sum(tf.log(w)))
    parts = anatomy(train)
    assert parts.loss is None
    assert len(parts.losses) == 2
    check = guard(train, parts).tensor
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run([train, check], {turn: 1})
        np.testing.assert_allclose(session.value(w), F([0.9, 0.9]))
        session.run([train, check], {turn: 2})
        session.run(tf.assign(w, [-1, 1]))
        for bad in (0, 1):
            before = everything(session)
            with pytest.raises(tf.errors.InvalidArgumentError, match="LossTensor is inf or nan"):
                session.run([train, check], {turn: bad})
            assert same(everything(session), before)
            session.run([train, check], {turn: 2})


def test_every_loss_of_a_group_is_looked_at():
    w = tf.get_variable("w", [], initializer=tf.ones_initializer())
    v = tf.get_variable("v", [], initializer=tf.ones_initializer())
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    train = tf.group(optimizer.minimize(w * w), optimizer.minimize(tf.log(v)))
    check = guard(train, anatomy(train)).tensor
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run([train, check])
        session.run(tf.assign(v, -1))  # log is NaN, and its gradient -1
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run([train, check])
        assert session.value(v) == -1


def test_a_loss_from_inside_a_branch_is_refused():
    w = tf.get_variable("w", [], initializer=tf.ones_initializer())
    inside = []

    def take():
        inside.append(w * w)
        return tf.train.GradientDescentOptimizer(0.1).minimize(inside[0])

    train = tf.cond(tf.constant(True), take, tf.no_op)
    with pytest.raises(ValueError, match=r"loss: 'cond/mul:0' was built inside a cond branch"):
        anatomy(train, inside[0])


def test_a_train_op_with_nothing_to_check():
    train = tf.no_op()
    assert guard(train, anatomy(train)) is None
