"""contrib.training.train: the loop around a train op."""

import shutil

import numpy as np
import pytest

import optkit as tf
from optkit.errors import OutOfRangeError
from summaries import read


@pytest.fixture(autouse=True)
def _writers():
    yield
    tf.summary.FileWriterCache.clear()


def model():
    w = tf.get_variable("w", initializer=np.float32([3, -2]))
    loss = tf.nn.l2_loss(w)
    tf.summary.scalar("loss", loss)
    return tf.contrib.training.create_train_op(loss, tf.train.GradientDescentOptimizer(0.1))


def points(logdir, tag):
    (run,) = read(logdir)._runs.values()
    found = run.scalars(tag)
    return list(zip(found.steps.tolist(), found.values.tolist(), strict=True))


def test_it_trains_saves_and_writes(tmp_path):
    loss = tf.contrib.training.train(
        model(), tmp_path, hooks=[tf.train.StopAtStepHook(num_steps=250)]
    )
    assert isinstance(loss, np.float32)
    assert [step for step, _ in points(tmp_path, "loss")] == [1, 101, 201]
    assert points(tmp_path, "loss")[0] == (1, 6.5)  # of the step whose number it has
    assert [step for step, _ in points(tmp_path, "global_step/sec")] == [101, 201]
    assert tf.train.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-250")
    state = tf.train.get_checkpoint_state(tmp_path)
    assert len(state.all_model_checkpoint_paths) == 2  # the first and the last


def test_a_run_goes_on_and_gives_the_loss_of_its_last_step(tmp_path):
    """P077: no step is taken twice, and none is written twice."""
    with tf.Graph().as_default():
        whole = tf.contrib.training.train(
            model(), tmp_path / "whole", hooks=[tf.train.StopAtStepHook(num_steps=15)]
        )
    for steps in (10, 5):
        tf.summary.FileWriterCache.clear()  # as in a process of its own
        with tf.Graph().as_default():
            loss = tf.contrib.training.train(
                model(),
                tmp_path / "parts",
                save_summaries_steps=1,
                hooks=[tf.train.StopAtStepHook(num_steps=steps)],
            )
    assert loss == whole
    assert [step for step, _ in points(tmp_path / "parts", "loss")] == [*range(1, 16)]
    last = sorted((tmp_path / "parts").glob("events*"))[-1]
    (run,) = read(last)._runs.values()
    assert run.scalars("loss").steps.tolist() == [*range(11, 16)]


def test_p076_what_comes_after_the_checkpoint_is_written_again(tmp_path):
    """P076: a run that failed at step 7 goes on from 4, and 5, 6, 7 are there once."""

    class Fails(tf.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            if int(run_context.session.value(tf.train.get_global_step())) == 7:
                raise KeyError

    def train(*hooks):
        with tf.Graph().as_default():
            train_op = model()
            with tf.train.MonitoredTrainingSession(
                checkpoint_dir=tmp_path,
                save_checkpoint_steps=4,
                save_summaries_steps=1,
                hooks=[*hooks, tf.train.StopAtStepHook(last_step=9)],
            ) as session:
                while not session.should_stop():
                    session.run(train_op)

    with pytest.raises(KeyError):
        train(Fails())
    tf.summary.FileWriterCache.clear()
    assert [step for step, _ in points(tmp_path, "loss")] == [*range(1, 8)]
    train()
    assert [step for step, _ in points(tmp_path, "loss")] == [*range(1, 10)]


@pytest.mark.parametrize("name", ["save_summaries_steps", "save_checkpoint_secs"])
def test_without_a_directory_nothing_can_be_saved(name):
    settings = {"save_summaries_steps": None, "save_checkpoint_secs": None, name: 5}
    with pytest.raises(ValueError, match=f"logdir: .* with {name}=5"):
        tf.contrib.training.train(model(), None, **settings)


def test_without_a_directory_it_trains_all_the_same():
    loss = tf.contrib.training.train(
        model(),
        None,
        save_summaries_steps=None,
        save_checkpoint_secs=None,
        hooks=[tf.train.StopAtStepHook(num_steps=2)],
    )
    assert loss == pytest.approx(6.5 * 0.81)


def test_the_end_of_the_data_is_the_end(tmp_path):
    x = tf.placeholder(tf.float32, [])
    train_op = model() + x
    numbers = iter([1.0, 2.0])

    def feed():
        try:
            return {x: next(numbers)}
        except StopIteration:
            raise OutOfRangeError("no more numbers") from None

    loss = tf.contrib.training.train(train_op, tmp_path, hooks=[tf.train.FeedFnHook(feed)])
    assert loss == pytest.approx(6.5 * 0.81 + 2)
    assert tf.train.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-2")


def test_where_no_step_is_taken_there_is_no_loss(tmp_path):
    class Stops(tf.train.SessionRunHook):
        def after_create_session(self, session, coord):
            coord.request_stop()

    assert tf.contrib.training.train(model(), tmp_path, hooks=[Stops()]) is None


def test_hooks_of_the_chief_are_the_chiefs(tmp_path):
    class Begins(tf.train.SessionRunHook):
        begun = 0

        def begin(self):
            self.begun += 1

    everyones, chiefs = Begins(), Begins()
    stop = tf.train.StopAtStepHook(num_steps=1)
    tf.contrib.training.train(
        model(), tmp_path, is_chief=False, hooks=[everyones, stop], chief_only_hooks=[chiefs]
    )
    assert (everyones.begun, chiefs.begun) == (1, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_was_deleted_is_made_anew(tmp_path):
    """As where a notebook's cell deletes the last run and trains again."""
    for _ in range(2):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        with tf.Graph().as_default():
            tf.contrib.training.train(
                model(), tmp_path / "run", hooks=[tf.train.StopAtStepHook(last_step=3)]
            )
        assert points(tmp_path / "run", "loss") == [(1, 6.5)]


def test_a_session_that_only_looks_leaves_what_is_being_written(tmp_path):
    with tf.Graph().as_default():
        tf.contrib.training.train(model(), tmp_path, hooks=[tf.train.StopAtStepHook(last_step=3)])
    half = tmp_path / ".model.ckpt-4.safetensors.0123abcd.tmp"
    half.write_bytes(b"half")
    step = tf.train.get_or_create_global_step()
    tf.get_variable("w", [2])
    with tf.train.SingularMonitoredSession(checkpoint_dir=tmp_path) as session:
        assert session.run(step) == 3
    assert half.exists()
    with tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path):
        assert not half.exists()
