"""Gradient accumulation: several runs take the step that one run on all of their data takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.summary_pb2 import Summary

import optkit as tf
from optkit.train.optimizer import Optimizer
from tests.train.rules import OPTIMIZERS, new_step, rows, started

Accumulation = tf.train.GradientAccumulationOptimizer


def values(session, optimizer, *variables):
    """The variables and the slots of an optimizer, by name without scopes of the accumulation."""
    held = [*variables, *optimizer.variables()]
    return {
        v.op.name: np.asarray(session.value(v), float)
        for v in held
        if "Accumulation" not in v.op.name
    }


def trained(make, dtype, sparse, steps, parts, seed=0):
    """The state after `steps` steps, each on the mean of `parts` gradients.

    With parts = 1 on the means themselves.
    """
    rng = np.random.default_rng(seed)
    grads = rng.integers(-8, 9, (steps, abs(parts), 3, 2)) / 8
    indices = rng.integers(0, 4, (steps, abs(parts), 3))
    with tf.Graph().as_default():
        step = new_step()
        w = tf.Variable(np.arange(8.0).reshape(4, 2).astype(dtype), name="w")
        fed = tf.placeholder(dtype, [None, 2])
        fed_rows = tf.placeholder(tf.int32, [None])
        optimizer = make(0.125, step)
        if parts > 0:
            optimizer = Accumulation(optimizer, parts)
        g = tf.IndexedSlices(fed, fed_rows) if sparse else tf.pad(fed, [[0, 1], [0, 0]])
        train_op = optimizer.apply_gradients([(g, w)], step)
        session = started()
        for g, i in zip(grads, indices, strict=True):
            if parts > 0:
                for one, named in zip(g, i, strict=True):
                    session.run(train_op, {fed: one, fed_rows: named})
            elif sparse:
                session.run(train_op, {fed: g.reshape(-1, 2) / len(g), fed_rows: i.reshape(-1)})
            else:
                session.run(train_op, {fed: g.mean(0)})
        assert session.value(step) == steps
        return values(session, optimizer, w)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "rows"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_four_runs_take_the_step_of_one(name, dtype, sparse):
    expected = trained(OPTIMIZERS[name], dtype, sparse, steps=3, parts=-4)
    found = trained(OPTIMIZERS[name], dtype, sparse, steps=3, parts=4)
    assert found.keys() == expected.keys()
    tolerance = {"float16": 4e-3, "float32": 1e-5, "float64": 1e-12}[dtype]
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=tolerance, atol=tolerance, err_msg=key)


@given(st.integers(1, 5), st.integers(1, 3), st.booleans(), st.integers(0, 1000))
def test_any_number_of_runs_takes_the_step_of_one(parts, steps, sparse, seed):
    def momentum(rate, step):
        return tf.train.MomentumOptimizer(rate, 0.9)

    expected = trained(momentum, "float64", sparse, steps, -parts, seed)
    found = trained(momentum, "float64", sparse, steps, parts, seed)
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-12, atol=1e-12, err_msg=key)


def test_nothing_moves_before_the_last_run():
    w = tf.Variable([1.0, 2.0], name="w")
    step = new_step()
    optimizer = Accumulation(tf.train.AdamOptimizer(0.1), 3)
    train_op = optimizer.minimize(tf.reduce_sum(w * w), step)
    session = started()
    before = values(session, optimizer, w)
    for _ in range(2):
        session.run(train_op)
        now = values(session, optimizer, w)
        assert all((now[key] == before[key]).all() for key in before)
        assert session.value(step) == 0
    session.run(train_op)
    assert session.value(step) == 1
    assert (values(session, optimizer, w)["w"] != before["w"]).all()
    assert values(session, optimizer, w)["beta1_power"] != before["beta1_power"]


def test_gradients_alone_add_nothing_up():
    w = tf.Variable([1.0, 2.0], name="w")
    optimizer = Accumulation(tf.train.GradientDescentOptimizer(0.5), 2)
    ((g, _),) = pairs = optimizer.compute_gradients(tf.reduce_sum(w * w))
    train_op = optimizer.apply_gradients(pairs)
    session = started()
    for _ in range(3):
        assert session.run(g).tolist() == [2.0, 4.0]
    session.run(train_op)
    assert session.run(g).tolist() == [2.0, 4.0]
    session.run(train_op)
    assert session.value(w).tolist() == [0.0, 0.0]


def test_rows_that_no_run_named_stay_as_they_are():
    w = tf.Variable(np.ones((4, 1)), name="w")
    optimizer = Accumulation(tf.train.MomentumOptimizer(0.5, 0.5), 2)
    ops = [optimizer.apply_gradients([(rows([[2.0]], [i], "float64"), w)]) for i in (0, 1)]
    session = started()
    for op in (ops[0], ops[1], ops[1], ops[1]):
        session.run(op)
    # Row 0 moves at the first step only: its velocity of 1 is not used a second time.
    np.testing.assert_array_equal(session.value(w)[:, 0], [0.5, 1 - 0.5 - 0.5 * 2.5, 1.0, 1.0])


def summary_tags(data):
    return {v.tag: v.simple_value for v in Summary.FromString(data).value}


def test_p056_one_norm_a_step_and_it_is_that_of_the_mean_gradient():
    x = tf.placeholder(tf.float32, [None, 3])
    w = tf.Variable(tf.ones([3]), name="w")
    step = new_step()
    train_op = tf.contrib.layers.optimize_loss(
        tf.reduce_mean(tf.reduce_sum(x * w, 1)),
        step,
        0.5,
        lambda rate: Accumulation(tf.train.GradientDescentOptimizer(rate), 4),
        clip_gradients=1.0,
        summaries=["loss", "learning_rate", "global_gradient_norm", "gradients", "gradient_norm"],
    )
    merged = tf.summary.merge_all()
    session = started()
    rng = np.random.default_rng(0)
    batches = rng.standard_normal((8, 2, 3)).astype(np.float32) * 3
    events, position = [], np.ones(3)
    for batch in batches:
        _, data = session.run([train_op, merged], {x: batch})
        if data:
            events.append(summary_tags(data))
    assert session.value(step) == len(events) == 2
    for event, part in zip(events, (batches[:4], batches[4:]), strict=True):
        mean = part.reshape(-1, 3).mean(0)
        norm = np.linalg.norm(mean)
        np.testing.assert_allclose(event["OptimizeLoss/global_norm/gradient_norm"], norm, rtol=1e-5)
        np.testing.assert_allclose(
            event["OptimizeLoss/global_norm/clipped_gradient_norm"], min(norm, 1.0), rtol=1e-5
        )
        assert {"OptimizeLoss/gradients/w_0", "OptimizeLoss/learning_rate"} <= event.keys()
        position = position - 0.5 * mean * min(1.0, 1.0 / norm)
    np.testing.assert_allclose(session.value(w), position, rtol=1e-5)


def test_create_train_op_writes_gradients_once_a_step():
    w = tf.Variable([3.0, 4.0], name="w")
    optimizer = Accumulation(tf.train.GradientDescentOptimizer(0.1), 2)
    train_op = tf.contrib.training.create_train_op(
        tf.reduce_sum(w),
        optimizer,
        summarize_gradients=True,
        transform_grads_fn=tf.contrib.training.clip_gradient_norms_fn(1.0),
    )
    merged = tf.summary.merge_all()
    session = started()
    found = [summary_tags(session.run([train_op, merged])[1]) for _ in range(4)]
    assert [len(event) for event in found] == [0, 2, 0, 2]
    assert found[1]["summarize_grads/w_gradient_norm"] == pytest.approx(1.0)
    assert session.value(tf.train.get_global_step()) == 2
    assert tf.get_collection(tf.GraphKeys.TRAIN_OP)[-1] is train_op


def test_adaptive_clipping_counts_steps_and_not_runs():
    def build(runs):
        w = tf.Variable([3.0, 4.0], name="w")
        step = new_step()
        optimizer = tf.train.GradientDescentOptimizer(0.0)
        train_op = tf.contrib.layers.optimize_loss(
            tf.reduce_sum(tf.square(w)),
            step,
            None,
            optimizer if runs == 1 else Accumulation(optimizer, runs),
            clip_gradients=tf.contrib.layers.adaptive_clipping_fn(global_step=step),
        )
        session = started()
        for _ in range(3 * runs):
            session.run(train_op)
        return {v.op.name: session.value(v) for v in tf.global_variables() if "Max" in v.op.name}

    with tf.Graph().as_default():
        expected = build(1)
    found = build(3)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-6)


def test_runs_that_a_loss_scale_cannot_use_are_left_out():
    mixed = tf.contrib.mixed_precision
    manager = mixed.ExponentialUpdateLossScaleManager(8.0, 2, 1, 2.0, 0.5)
    w = tf.Variable([1.0, 2.0], name="w")
    x = tf.placeholder(tf.float32, ())
    step = new_step()
    inside = mixed.LossScaleOptimizer(tf.train.GradientDescentOptimizer(0.5), manager)
    optimizer = Accumulation(inside, 2)
    train_op = tf.contrib.layers.optimize_loss(tf.reduce_sum(w) * x, step, None, optimizer)
    merged = tf.summary.merge_all()
    session = started()
    found = []
    for value in (1.0, np.inf, 3.0, np.nan, 1.0, 1.0):
        _, data = session.run([train_op, merged], {x: value})
        scale = session.run(manager.get_loss_scale())
        found.append((int(session.value(step)), float(session.value(w)[0]), scale, bool(data)))
    # Steps: the mean of 1 and 3, then that of 1 and 1; a scale halved twice and doubled once.
    assert found == [
        (0, 1.0, 8.0, False),
        (0, 1.0, 4.0, False),
        (1, 0.0, 4.0, True),
        (1, 0.0, 2.0, False),
        (1, 0.0, 2.0, False),
        (2, -0.5, 2.0, True),
    ]


def test_the_number_of_runs_may_be_a_variable():
    w = tf.Variable(0.0)
    runs = tf.Variable(2, trainable=False)
    step = new_step()
    train_op = Accumulation(tf.train.GradientDescentOptimizer(1.0), runs).minimize(w, step)
    session = started()
    counted = []
    for number in (2, 2, 3, 3, 3, 3, 1):
        runs.load(number, session)
        session.run(train_op)
        counted.append(int(session.value(step)))
    assert counted == [0, 1, 1, 1, 2, 2, 3]


def test_schedules_count_steps():
    w = tf.Variable(0.0)
    step = new_step()
    rate = tf.train.piecewise_constant(step, [0], [1.0, 0.5])
    train_op = Accumulation(tf.train.GradientDescentOptimizer(rate), 2).minimize(w, step)
    session = started()
    for _ in range(4):
        session.run(train_op)
    assert session.value(w) == -1.5


def test_a_failed_run_adds_nothing_up():
    w = tf.Variable(1.0, name="w")
    x = tf.placeholder(tf.float32, ())
    step = new_step()
    optimizer = Accumulation(tf.train.GradientDescentOptimizer(0.5), 2)
    train_op = tf.contrib.training.create_train_op(w * x, optimizer, step)
    session = started()
    session.run(train_op, {x: 1.0})
    with pytest.raises(tf.errors.InvalidArgumentError, match="inf or nan"):
        session.run(train_op, {x: np.nan})
    session.run(train_op, {x: 3.0})
    assert session.value(w) == 0.0
    assert session.value(step) == 1


def test_a_bad_gradient_is_forgotten_with_its_step():
    w = tf.Variable(1.0)
    x = tf.placeholder(tf.float32, ())
    train_op = Accumulation(tf.train.GradientDescentOptimizer(0.5), 2).minimize(w * x)
    session = started()
    for value in (np.nan, 1.0):
        session.run(train_op, {x: value})
    w.load(1.0, session)
    for value in (1.0, 1.0):
        session.run(train_op, {x: value})
    assert session.value(w) == 0.5


def test_two_train_ops_of_other_variables_count_apart():
    a, b = tf.Variable(0.0, name="a"), tf.Variable(0.0, name="b")
    optimizer = Accumulation(tf.train.GradientDescentOptimizer(1.0), 2)
    pairs = [optimizer.compute_gradients(v * 1.0, [v]) for v in (a, b)]
    first, second = (optimizer.apply_gradients(p) for p in pairs)
    session = started()
    session.run(first)
    session.run(second)
    assert session.run([a, b]) == [0.0, 0.0]
    session.run(second)
    assert session.run([a, b]) == [0.0, -1.0]
    session.run(first)
    assert session.run([a, b]) == [-1.0, -1.0]


def test_gradients_are_applied_with_the_sums_that_they_come_from():
    w = tf.Variable(0.0)
    optimizer = Accumulation(tf.train.GradientDescentOptimizer(1.0), 2)
    pairs = [optimizer.compute_gradients(w * factor) for factor in (1.0, 10.0)]
    ops = [optimizer.apply_gradients([(2.0 * g, v) for g, v in p]) for p in pairs]
    for chosen, moved in ((ops[0], -2.0), (ops[1], -20.0)):
        session = started()
        session.run(chosen)
        session.run(chosen)
        assert session.value(w) == moved


def test_gradients_from_elsewhere_are_accumulated_when_they_are_applied():
    w = tf.Variable(0.0)
    optimizer = Accumulation(tf.train.GradientDescentOptimizer(1.0), 2)
    optimizer.compute_gradients(w * 100.0)  # never applied
    x = tf.placeholder(tf.float32, ())
    train_op = optimizer.apply_gradients([(x, w)])
    session = started()
    for value in (1.0, 3.0, 5.0):
        session.run(train_op, {x: value})
    assert session.value(w) == -2.0


def test_training_writes_one_event_a_step(tmp_path):
    w = tf.Variable([3.0, 4.0], name="w")
    step = tf.train.get_or_create_global_step()
    optimizer = Accumulation(tf.train.GradientDescentOptimizer(0.0), 3)
    train_op = tf.contrib.layers.optimize_loss(tf.reduce_sum(w), step, None, optimizer)
    tf.contrib.training.train(
        train_op,
        str(tmp_path),
        hooks=[tf.train.StopAtStepHook(4)],
        save_summaries_steps=1,
        save_checkpoint_secs=None,
    )
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    norms = events.Scalars("OptimizeLoss/global_norm/gradient_norm")
    assert [event.step for event in norms] == [1, 2, 3, 4]
    assert [event.value for event in norms] == pytest.approx([2**0.5] * 4)


def test_checkpoints_have_the_sums(tmp_path):
    def build():
        w = tf.Variable([1.0, 2.0], name="w")
        x = tf.placeholder(tf.float32, ())
        optimizer = Accumulation(tf.train.MomentumOptimizer(0.25, 0.9), 3)
        return w, x, optimizer.minimize(tf.reduce_sum(w * w) * x, new_step())

    w, x, train_op = build()
    session = started()
    for i in range(4):
        session.run(train_op, {x: i})
    path = tf.train.Saver().save(session, str(tmp_path / "model"))
    for i in range(4):
        session.run(train_op, {x: i})
    with tf.Graph().as_default():
        resumed, x, train_op = build()
        other = tf.Session()
        tf.train.Saver().restore(other, path)
        for i in range(4):
            other.run(train_op, {x: i})
        np.testing.assert_array_equal(other.value(resumed), session.value(w))


def test_accumulation_in_eager_mode():
    with tf.eager():
        w = tf.Variable([1.0, 2.0])
        table = tf.Variable([[1.0], [2.0], [3.0]])
        step = tf.Variable(np.int64(0), trainable=False)
        optimizer = Accumulation(tf.train.GradientDescentOptimizer(1.0), 2)
        for i in (0, 2, 1, 1):
            optimizer.minimize(
                lambda i=i: tf.reduce_sum(w) + tf.reduce_sum(tf.gather(table, [i])), step
            )
        assert step.numpy() == 2
        assert w.numpy().tolist() == [-1.0, 0.0]
        assert table.numpy()[:, 0].tolist() == [0.5, 1.0, 2.5]


def test_an_optimizer_with_tf1s_hooks_may_be_inside():
    class Hooked(Optimizer):
        def __init__(self):
            super().__init__(False, "Hooked")

        def _apply_dense(self, grad, var):
            return var.assign_sub(0.5 * grad)

    w = tf.Variable([4.0], name="w")
    train_op = Accumulation(Hooked(), 2).minimize(tf.reduce_sum(w * w))
    session = started()
    session.run(train_op)
    assert session.value(w) == 4.0
    session.run(train_op)
    assert session.value(w) == 0.0


def test_names_are_those_of_the_optimizer_inside():
    w = tf.Variable([1.0], name="w")
    optimizer = Accumulation(tf.train.AdamOptimizer(), 2)
    train_op = optimizer.minimize(w * w, new_step())
    assert [v.op.name for v in optimizer.variables()] == [
        *("GradientAccumulation/count", "beta1_power", "beta2_power"),
        *("w/Adam", "w/Adam_1", "w/GradientAccumulation"),
    ]
    assert optimizer.get_slot_names() == ["m", "v"]
    assert optimizer.get_slot(w, "m").op.name == "w/Adam"
    assert tf.get_collection(tf.GraphKeys.TRAIN_OP) == [train_op]


def test_what_the_optimizer_inside_refuses_leaves_nothing_behind():
    w = tf.Variable([1.0], name="w")
    loss = w * w
    before = len(w.graph.get_operations())
    optimizer = Accumulation(tf.train.AdamOptimizer(), 2)
    with pytest.raises(TypeError, match="global_step"):
        optimizer.minimize(loss, global_step="step")
    assert len(w.graph.get_operations()) == before
    assert optimizer.variables() == []
    with pytest.raises(ValueError, match="no variable has a gradient"):
        optimizer.minimize(tf.constant(1.0) * 2.0)
    optimizer.minimize(w * w)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((tf.train.AdamOptimizer, 2), TypeError, "optimizer: expected an Optimizer"),
        ((tf.train.AdamOptimizer(), 0), ValueError, "steps: expected 1 or more"),
        ((tf.train.AdamOptimizer(), 1.5), TypeError, "steps: expected an integer"),
        ((tf.train.AdamOptimizer(), "2"), TypeError, "steps: expected an integer"),
    ],
)
def test_bad_arguments_are_refused(arguments, error, text):
    with pytest.raises(error, match=text):
        Accumulation(*arguments)
    with pytest.raises(TypeError, match="steps: expected an integer"):
        Accumulation(tf.train.AdamOptimizer(), tf.constant(2.0))
