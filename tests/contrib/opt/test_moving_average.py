"""MovingAverageOptimizer: averages beside training, and under the variables' names in files."""

import numpy as np
import pytest

import optkit as tf
from tests.train.rules import new_step, started

O = tf.contrib.opt  # noqa: E741


class Training:
    """A line that is fitted, with averages."""

    def __init__(self, saver=True, **arguments):
        self.w = tf.Variable([1.0, 2.0], name="w")
        self.b = tf.Variable(0.5, name="b")
        self.step = new_step()
        self.optimizer = O.MovingAverageOptimizer(
            tf.train.MomentumOptimizer(0.1, 0.5), average_decay=0.75, **arguments
        )
        self.loss = tf.reduce_sum(self.w * self.w) + self.b
        self.train_op = self.optimizer.minimize(self.loss, self.step)
        self.saver = self.optimizer.swapping_saver() if saver else None


def test_averages_follow_the_step():
    training = Training()
    average = training.optimizer.averages.average(training.w)
    session = started()
    expected = np.float32([1.0, 2.0])
    for _ in range(4):
        session.run(training.train_op)
        expected = expected - 0.25 * (expected - session.value(training.w))
        np.testing.assert_allclose(session.value(average), expected, rtol=1e-6)
    assert session.value(training.step) == 4


def test_without_sequence_they_follow_what_was_there_before_the_step():
    training = Training(sequential_update=False)
    average = training.optimizer.averages.average(training.w)
    session = started()
    session.run(training.train_op)
    assert session.value(average).tolist() == [1.0, 2.0]
    moved = session.value(training.w)
    session.run(training.train_op)
    np.testing.assert_allclose(
        session.value(average), 0.75 * np.float32([1.0, 2.0]) + 0.25 * moved, rtol=1e-6
    )


def test_files_have_the_averages_under_the_names_of_the_variables(tmp_path):
    training = Training()
    session = started()
    for _ in range(3):
        session.run(training.train_op)
    average = training.optimizer.averages.average(training.w)
    held = {v.op.name: session.value(v) for v in tf.global_variables()}
    path = training.saver.save(session, str(tmp_path / "model"))
    # An ordinary saver, in a graph without the optimizer, reads the averages.
    with tf.Graph().as_default():
        w = tf.Variable([0.0, 0.0], name="w")
        evaluation = tf.Session()
        tf.train.Saver().restore(evaluation, path)
        np.testing.assert_array_equal(evaluation.value(w), held[average.op.name])
    # A swapping one goes on where training was.
    with tf.Graph().as_default():
        again = Training()
        resumed = tf.Session()
        again.saver.restore(resumed, path)
        assert all((resumed.value(v) == held[v.op.name]).all() for v in tf.global_variables())
        for _ in range(2):
            session.run(training.train_op)
            resumed.run(again.train_op)
        np.testing.assert_array_equal(resumed.value(again.w), session.value(training.w))


def test_evaluation_in_place():
    training = Training()
    session = started()
    session.run(training.train_op)
    w = session.value(training.w)
    average = session.value(training.optimizer.averages.average(training.w))
    with training.optimizer.swapped(session):
        np.testing.assert_array_equal(session.value(training.w), average)
    np.testing.assert_array_equal(session.value(training.w), w)


def test_it_passes_for_the_optimizer_inside():
    training = Training()
    optimizer = training.optimizer
    assert isinstance(optimizer, tf.train.Optimizer)
    assert optimizer.get_slot_names() == ["momentum"]
    assert optimizer.get_slot(training.w, "momentum").op.name == "w/Momentum"
    assert [v.op.name for v in optimizer.variables()] == ["b/Momentum", "w/Momentum"]
    session = started()
    assert session.run(optimizer.learning_rate_tensor()) == 0.1


def test_optimize_loss_takes_it():
    w = tf.Variable(1.0, name="w")
    step = new_step()
    train_op = tf.contrib.layers.optimize_loss(
        w * w,
        step,
        0.25,
        lambda rate: O.MovingAverageOptimizer(tf.train.GradientDescentOptimizer(rate), 0.5),
    )
    session = started()
    assert session.run(train_op) == 1.0
    values = {v.op.name: session.value(v) for v in tf.global_variables()}
    assert values["w"] == 0.5
    assert values["OptimizeLoss/w/ExponentialMovingAverage"] == 0.75


def test_accumulation_around_it_averages_once_a_step():
    w = tf.Variable(1.0, name="w")
    inside = O.MovingAverageOptimizer(tf.train.GradientDescentOptimizer(0.25), 0.5)
    optimizer = tf.train.GradientAccumulationOptimizer(inside, 2)
    train_op = optimizer.minimize(w * w)
    session = started()
    found = []
    for _ in range(4):
        session.run(train_op)
        found.append((session.value(w), session.value(inside.averages.average(w))))
    assert found == [(1.0, 1.0), (0.5, 0.75), (0.5, 0.75), (0.25, 0.5)]


def test_eager():
    with tf.eager():
        w = tf.Variable(1.0)
        optimizer = O.MovingAverageOptimizer(tf.train.GradientDescentOptimizer(0.25), 0.5)
        optimizer.minimize(lambda: w * w)
        assert (w.numpy(), optimizer.averages.average(w).numpy()) == (0.5, 0.75)
        with optimizer.swapped():
            assert w.numpy() == 0.75


def test_a_saver_needs_averages_and_both_of_a_pair():
    w = tf.Variable(1.0, name="w")
    optimizer = O.MovingAverageOptimizer(tf.train.GradientDescentOptimizer(0.25))
    with pytest.raises(RuntimeError, match="swapping_saver: call minimize"):
        optimizer.swapping_saver()
    optimizer.minimize(w * w)
    with pytest.raises(ValueError, match="'w:0' is there without 'w/Exponential"):
        optimizer.swapping_saver([w])
    with pytest.raises(TypeError, match="var_list: expected variables"):
        optimizer.swapping_saver({"w": 1.0})
    with pytest.raises(TypeError, match="optimizer: expected an Optimizer"):
        O.MovingAverageOptimizer(tf.train.AdamOptimizer)
