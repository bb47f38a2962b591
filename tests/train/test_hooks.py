"""The hooks of tf.train, and the timer that they share."""

import logging
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import optkit as tf
from optkit.errors import InvalidArgumentError, NanLossDuringTrainingError
from optkit.train import hooks as hooks_module
from summaries import read

train = tf.train


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's /proc")


@pytest.fixture(autouse=True)
def _writers():
    yield
    tf.summary.FileWriterCache.clear()


def counter():
    return tf.assign_add(train.get_or_create_global_step(), 1)


def run(hooks, steps, op=None, creator=None):
    op = counter() if op is None else op
    with train.MonitoredSession(creator, hooks=hooks) as session:
        for _ in range(steps):
            if session.should_stop():
                break
            session.run(op)


class Clock:
    """A clock that stands until it is moved."""

    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def points(logdir, tag):
    (run,) = read(logdir)._runs.values()
    found = run.scalars(tag)
    return list(zip(found.steps.tolist(), found.values.tolist(), strict=True))


# -- the timer ------------------------------------------------------------------------------------


def test_a_timer_of_steps():
    timer = train.SecondOrStepTimer(every_steps=3)
    assert timer.last_triggered_step() is None
    assert timer.should_trigger_for_step(5)
    assert timer.update_last_triggered_step(5) == (None, None)
    assert [timer.should_trigger_for_step(step) for step in (5, 6, 7, 8, 9)] == [
        False,
        False,
        False,
        True,
        True,
    ]
    assert timer.update_last_triggered_step(9)[1] == 4
    timer.reset()
    assert timer.should_trigger_for_step(9)


def test_a_timer_of_seconds(clock):
    timer = train.SecondOrStepTimer(every_secs=2.0)
    assert timer.should_trigger_for_step(1)
    timer.update_last_triggered_step(1)
    clock.now += 5
    assert not timer.should_trigger_for_step(1)  # never twice at one step
    assert timer.should_trigger_for_step(2)
    assert timer.update_last_triggered_step(2) == (5.0, 1)
    clock.now += 1.9
    assert not timer.should_trigger_for_step(3)
    clock.now -= 4000  # nobody sets this clock; even so, nothing is due early
    assert not timer.should_trigger_for_step(4)


def test_after_a_restart_the_seconds_count_from_then_on(clock):
    timer = train.SecondOrStepTimer(every_secs=2.0)
    timer.load_state_dict({"last_step": 7})
    assert not timer.should_trigger_for_step(8)
    clock.now += 2
    assert timer.should_trigger_for_step(9)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "expected exactly one of them, got None and None"),
        ({"every_steps": 1, "every_secs": 1}, ValueError, "expected exactly one of them"),
        ({"every_steps": 2.5}, TypeError, "every_steps: expected an integer, got 2.5"),
        ({"every_steps": True}, TypeError, "every_steps: expected an integer, got True"),
        ({"every_secs": "1"}, TypeError, "every_secs: expected a number, got '1'"),
        ({"every_secs": float("nan")}, ValueError, "every_secs: expected > 0, got nan"),
        ({"every_steps": 0}, ValueError, "every_steps: expected > 0, got 0"),
    ],
)
def test_bad_settings_of_a_timer_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        train.SecondOrStepTimer(**arguments)


# -- stopping -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"num_steps": 3}, 3),
        ({"num_steps": 0}, 1),
        ({"last_step": 2}, 2),
        ({"last_step": 0}, 1),
    ],
)
def test_stopping_at_a_step(arguments, expected):
    step = train.get_or_create_global_step()
    final = train.FinalOpsHook(step)
    run([train.StopAtStepHook(**arguments), final], 10)
    assert final.final_ops_values == expected


def test_stopping_needs_one_of_both_and_a_step():
    for arguments in ({}, {"num_steps": 1, "last_step": 1}):
        with pytest.raises(ValueError, match="exactly one"):
            train.StopAtStepHook(**arguments)
    with pytest.raises(RuntimeError, match="StopAtStepHook: the graph has no global step"):
        train.MonitoredSession(hooks=[train.StopAtStepHook(last_step=1)])


def test_a_step_that_nothing_counts_never_stops():
    op = tf.no_op()
    train.get_or_create_global_step()
    with train.MonitoredSession(hooks=[train.StopAtStepHook(last_step=1)]) as session:
        for _ in range(5):
            session.run(op)
        assert not session.should_stop()


# -- NaN ------------------------------------------------------------------------------------------


def test_a_nan_loss_ends_the_training():
    x = tf.placeholder(tf.float32, [])
    loss = tf.log(x, name="loss")
    counter()
    with train.MonitoredSession(hooks=[train.NanTensorHook(loss)]) as session:
        session.run(loss, {x: 0.0})  # minus infinity passes
        with pytest.raises(NanLossDuringTrainingError, match=r"the loss loss:0 is NaN at step 0"):
            session.run(loss, {x: -1.0})


def test_a_nan_loss_may_just_stop(caplog):
    x = tf.placeholder(tf.float32, [])
    loss = tf.log(x)
    hook = train.NanTensorHook(loss, fail_on_nan_loss=False)
    with (
        caplog.at_level(logging.WARNING, "optkit"),
        train.MonitoredSession(hooks=[hook]) as session,
    ):
        session.run(loss, {x: -1.0})
        assert session.should_stop()
    assert "is NaN: training stops" in caplog.text


def test_a_loss_that_is_no_scalar_is_refused():
    loss = tf.constant([1.0, 2.0])
    with (
        train.MonitoredSession(hooks=[train.NanTensorHook(loss)]) as session,
        pytest.raises(ValueError, match=r"expected a scalar, got shape \(2,\)"),
    ):
        session.run(loss)


def test_check_numerics_comes_first():
    """P050: the error names the step and the operation."""
    w = tf.get_variable("w", initializer=-1.0)
    loss = tf.log(w, name="bad")
    op = tf.contrib.training.create_train_op(loss, train.GradientDescentOptimizer(0.1))
    with train.SingularMonitoredSession(hooks=[train.NanTensorHook(loss)]) as session:
        with pytest.raises(InvalidArgumentError, match="LossTensor is inf or nan") as caught:
            session.run(op)
        assert "'bad'" in str(caught.value)
        assert "global_step = 0" in str(caught.value)
        assert session.raw_session().value(w) == -1  # P051: nothing was written


# -- logging --------------------------------------------------------------------------------------


def logged(caplog, hook, steps=5, op=None):
    with caplog.at_level(logging.INFO, "optkit"):
        run([hook], steps, op)
    return [record.getMessage() for record in caplog.records if record.name == "optkit"]


def test_tensors_are_logged_by_name(caplog, clock):
    x = tf.constant(2.0, name="x")
    y = tf.constant([1.0], name="y")
    lines = logged(caplog, train.LoggingTensorHook({"b": x, "a": "y:0"}, every_n_iter=2))
    assert lines == [
        "a = [1.], b = 2.0",
        "a = [1.], b = 2.0 (0.000 sec)",
        "a = [1.], b = 2.0 (0.000 sec)",
    ]
    assert y is not None


def test_a_list_of_tensors_keeps_its_order(caplog):
    y, x = tf.constant(2.0, name="y"), tf.constant(1.0, name="x")
    (line,) = logged(caplog, train.LoggingTensorHook([y, x], every_n_iter=100))
    assert line == "y:0 = 2.0, x:0 = 1.0"


def test_tensors_are_logged_by_seconds_with_a_format_and_at_the_end(caplog, clock):
    op = counter()

    class Ticks(train.SessionRunHook):
        def after_run(self, run_context, run_values):
            clock.now += 1

    hook = train.LoggingTensorHook(
        {"step": train.get_global_step()},
        every_n_secs=2,
        at_end=True,
        formatter=lambda values: f"<{values['step']}>",
    )
    with caplog.at_level(logging.INFO, "optkit"):
        run([hook, Ticks()], 5, op)
    assert [record.getMessage() for record in caplog.records] == ["<0>", "<2>", "<4>", "<5>"]


def test_the_name_of_an_operation_stands_for_its_output(caplog):
    tf.constant(2.0, name="x")
    tf.split(tf.constant([1.0, 2.0]), 2, name="halves")
    (line,) = logged(caplog, train.LoggingTensorHook(["x"], every_n_iter=100))
    assert line == "x = 2.0"
    tf.no_op(name="nothing")
    for name, count in (("halves", 2), ("nothing", 0)):
        hook = train.LoggingTensorHook([name], every_n_iter=1)
        with pytest.raises(ValueError, match=f"'{name}' is an operation with {count} outputs"):
            run([hook], 1)


def test_what_is_no_list_of_tensors_is_not_logged():
    for bad in ("x:0", tf.constant(1.0), 3):
        with pytest.raises(TypeError, match="tensors: expected a list or dict of tensors, got"):
            train.LoggingTensorHook(bad, every_n_iter=1)


def test_logging_only_at_the_end(caplog):
    assert logged(caplog, train.LoggingTensorHook([tf.constant(1.0)], at_end=True)) == [
        "Const:0 = 1.0"
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "every_n_secs, every_n_iter: expected exactly one of them, got None and None"),
        ({"every_n_iter": 1, "every_n_secs": 2}, "exactly one of them, got 2 and 1"),
        ({"every_n_iter": 0}, "LoggingTensorHook: every_n_iter: expected > 0, got 0"),
        ({"every_n_secs": -1}, "LoggingTensorHook: every_n_secs: expected > 0, got -1"),
    ],
)
def test_bad_settings_of_logging_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        train.LoggingTensorHook([], **arguments)


# -- final values, feeds, waiting -----------------------------------------------------------------


def test_final_values_are_of_a_good_end_only():
    x = tf.placeholder(tf.float32, [])
    good = train.FinalOpsHook([x + 1], {x: 2.0})
    run([good], 1)
    assert good.final_ops_values == [3]
    bad = train.FinalOpsHook(x)

    def fail():
        with train.MonitoredSession(hooks=[bad]):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert bad.final_ops_values is None
    nothing = train.FinalOpsHook(None)
    run([nothing], 1)
    assert nothing.final_ops_values is None


def test_a_function_feeds_each_run():
    x = tf.placeholder(tf.int64, [])
    double = x * 2
    numbers = iter(range(10))
    with train.MonitoredSession(hooks=[train.FeedFnHook(lambda: {x: next(numbers)})]) as session:
        assert [int(session.run(double)) for _ in range(3)] == [0, 2, 4]
    with pytest.raises(TypeError, match="feed_fn"):
        train.FeedFnHook({x: 1})


def test_the_first_run_waits_for_a_step(monkeypatch, caplog):
    step = train.get_or_create_global_step()
    add = tf.assign_add(step, 1)
    waits = []
    with (
        caplog.at_level(logging.INFO, "optkit"),
        train.SingularMonitoredSession(hooks=[train.GlobalStepWaiterHook(3)]) as session,
    ):

        def others_count(seconds):
            waits.append(seconds)
            thread = threading.Thread(target=session.raw_session().run, args=[add])
            thread.start()
            thread.join()

        monkeypatch.setattr(hooks_module.time, "sleep", others_count)
        assert session.run(add) == 4
        assert session.run(add) == 5
    assert waits == [0.5] * 3
    assert "waiting for the global step 3" in caplog.text


# -- summaries ------------------------------------------------------------------------------------


def test_summaries_come_at_exact_steps(tmp_path):
    """Section 0, row 19: 1, 101, 201, of the step whose number they carry."""
    step = train.get_or_create_global_step()
    before = tf.cast(step, tf.float32)  # what the run's own summary sees: the step before
    tf.summary.scalar("step", before)
    with tf.control_dependencies([before]):
        op = tf.assign_add(step, 1)
    scaffold = train.Scaffold()
    hook = train.SummarySaverHook(save_steps=100, output_dir=tmp_path, scaffold=scaffold)
    run([hook], 250, op, train.ChiefSessionCreator(scaffold))
    assert points(tmp_path, "step") == [(1, 0.0), (101, 100.0), (201, 200.0)]


def test_summaries_by_seconds(tmp_path, clock):
    op = counter()
    summary = tf.summary.scalar("x", 1.0)

    class Ticks(train.SessionRunHook):
        def after_run(self, run_context, run_values):
            clock.now += 1

    hook = train.SummarySaverHook(save_secs=2, output_dir=tmp_path, summary_op=summary)
    run([hook, Ticks()], 6, op)
    assert [step for step, _ in points(tmp_path, "x")] == [1, 3, 5]


def test_several_summaries_and_a_writer_of_ones_own():
    class Writer:
        def __init__(self):
            self.seen = []

        def add_summary(self, data, step):
            self.seen.append((bytes(data), step))

        def flush(self):
            self.seen.append("flush")

    op, writer = counter(), Writer()
    both = [tf.summary.scalar("a", 1.0), tf.summary.scalar("b", 2.0)]
    run([train.SummarySaverHook(save_steps=2, summary_writer=writer, summary_op=both)], 3, op)
    assert [item[1] for item in writer.seen[:-1]] == [1, 1, 3, 3]
    assert writer.seen[-1] == "flush"


def test_a_save_flushes_writers_of_ones_own_first(tmp_path):
    seen = []

    class Writer:
        def add_summary(self, data, step):
            seen.append(("summary", step))

        def flush(self):
            seen.append("flush")

    class Looks(train.CheckpointSaverListener):
        def after_save(self, session, global_step_value):
            seen.append(("saved", global_step_value))

    op = counter()
    node = tf.summary.scalar("a", 1.0)
    hooks = [
        train.SummarySaverHook(save_steps=1, summary_writer=Writer(), summary_op=node),
        train.CheckpointSaverHook(tmp_path, save_steps=1, saver=train.Saver(), listeners=[Looks()]),
    ]
    run(hooks, 1, op)
    assert seen == ["flush", ("saved", 0), ("summary", 1), "flush", ("saved", 1), "flush"]


def test_bad_settings_of_summaries_are_refused():
    for arguments in ({}, {"scaffold": train.Scaffold(), "summary_op": "x:0"}):
        with pytest.raises(ValueError, match="scaffold, summary_op"):
            train.SummarySaverHook(save_steps=1, **arguments)
    with pytest.raises(ValueError, match="every_secs, every_steps"):
        train.SummarySaverHook(summary_op="x:0")
    with pytest.raises(ValueError, match="every_n_steps=None"):
        train.StepCounterHook(every_n_secs=1.0)


def test_the_speed_is_written(tmp_path, clock):
    op = counter()

    class Ticks(train.SessionRunHook):
        def after_run(self, run_context, run_values):
            clock.now += 0.5

    run([Ticks(), train.StepCounterHook(every_n_steps=100, output_dir=tmp_path)], 250, op)
    assert points(tmp_path, "global_step/sec") == [(101, 2.0), (201, 2.0)]


def test_a_step_that_stays_is_told_five_times(caplog):
    train.get_or_create_global_step()
    op = tf.no_op()
    with caplog.at_level(logging.WARNING, "optkit"):
        run([train.StepCounterHook(every_n_steps=10)], 50, op)
    assert caplog.text.count("the global step stays at 0") == 5


def test_after_a_resume_summaries_go_on_at_their_steps(tmp_path):
    for last in (150, 320):
        with tf.Graph().as_default():
            tf.summary.scalar("x", 1.0)
            op = counter()
            with train.MonitoredTrainingSession(
                checkpoint_dir=tmp_path, hooks=[train.StopAtStepHook(last_step=last)]
            ) as session:
                while not session.should_stop():
                    session.run(op)
    assert [step for step, _ in points(tmp_path, "x")] == [1, 101, 201, 301]
    assert [step for step, _ in points(tmp_path, "global_step/sec")] == [101, 201, 301]


# -- checkpoints ----------------------------------------------------------------------------------


class Listens(train.CheckpointSaverListener):
    def __init__(self, events, stop_at=None):
        self.events = events
        self.stop_at = stop_at

    def begin(self):
        self.events.append("begin")

    def before_save(self, session, global_step_value):
        self.events.append(("before", global_step_value))

    def after_save(self, session, global_step_value):
        self.events.append(("after", global_step_value))
        return np.equal(global_step_value, self.stop_at)  # not Python's True

    def end(self, session, global_step_value):
        self.events.append(("end", global_step_value))


def test_checkpoints_come_at_the_start_in_between_and_at_the_end(tmp_path):
    events, op = [], counter()
    scaffold = train.Scaffold(saver=train.Saver(max_to_keep=None))
    hook = train.CheckpointSaverHook(
        tmp_path / "new", save_steps=2, scaffold=scaffold, listeners=[Listens(events)]
    )
    run([hook], 5, op, train.ChiefSessionCreator(scaffold))
    steps = [0, 2, 4, 5]
    assert events == [
        "begin",
        *(item for step in steps for item in (("before", step), ("after", step))),
        ("end", 5),
    ]
    names = sorted(path.stem for path in (tmp_path / "new").glob("*.safetensors"))
    assert names == [f"model.ckpt-{step}" for step in steps]


def test_a_listener_ends_the_training(tmp_path):
    events, op = [], counter()
    hook = train.CheckpointSaverHook(
        tmp_path,
        save_steps=2,
        saver=train.Saver(),
        listeners=[Listens(events, stop_at=2), Listens(events)],
        checkpoint_basename="m",
    )
    run([hook], 9, op)
    assert events[-1] == ("end", 2)
    assert events.count(("after", 2)) == 2  # the other was told too
    assert train.latest_checkpoint(tmp_path) == str(tmp_path / "m-2")


def test_a_save_comes_after_what_others_wrote_in_its_step(tmp_path):
    """P076: what a checkpoint's step wrote is in the event file before the checkpoint is there."""
    op = counter()
    seen = []

    class Writes(train.SessionRunHook):
        def after_run(self, run_context, run_values):
            step = int(run_context.session.value(train.get_global_step()))
            seen.append(("wrote", step))

    class Looks(train.CheckpointSaverListener):
        def before_save(self, session, global_step_value):
            seen.append(("saves", global_step_value))

    saver = train.CheckpointSaverHook(
        tmp_path, save_steps=1, saver=train.Saver(), listeners=[Looks()]
    )
    run([saver, Writes()], 2, op)
    assert seen == [("saves", 0), ("wrote", 1), ("saves", 1), ("wrote", 2), ("saves", 2)]


@needs_proc
def test_events_are_on_the_disk_before_a_checkpoint_is(tmp_path, monkeypatch):
    """Else a power failure could leave a checkpoint whose events are lost."""
    done, fsync = [], os.fsync

    def noted(descriptor):
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        done.append("events" if "tfevents" in name else "checkpoint" if "ckpt" in name else "")
        fsync(descriptor)

    op = counter()
    with train.MonitoredTrainingSession(checkpoint_dir=tmp_path) as session:
        session.run(op)
        monkeypatch.setattr("os.fsync", noted)
    assert [name for name in done if name] == ["events", "checkpoint"]


def test_the_best_checkpoints_are_kept(tmp_path):
    op = counter()
    losses = dict(enumerate([9.0, 3.0, 5.0, 1.0, 7.0, 2.0, float("nan")]))
    saver = train.Saver(max_to_keep=1, keep_best=2)
    hook = train.CheckpointSaverHook(
        tmp_path,
        save_steps=1,
        saver=saver,
        metric=lambda session: losses[int(session.value(train.get_global_step()))],
    )
    run([hook], 6, op)
    names = sorted(path.stem for path in tmp_path.glob("*.safetensors"))
    assert names == ["model.ckpt-3", "model.ckpt-5", "model.ckpt-6"]
    assert train.best_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-3")
    assert train.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-6")
    state = train.get_checkpoint_state(tmp_path)
    assert list(state.best_model_checkpoint_paths.values()) == [1.0, 2.0]


def test_bad_settings_of_saving_are_refused(tmp_path):
    counter()
    with pytest.raises(ValueError, match="saver, scaffold"):
        train.CheckpointSaverHook(
            tmp_path, save_steps=1, saver=train.Saver(), scaffold=train.Scaffold()
        )
    with pytest.raises(ValueError, match="every_secs, every_steps"):
        train.CheckpointSaverHook(tmp_path)
    hook = train.CheckpointSaverHook(tmp_path, save_steps=1)
    creator = train.ChiefSessionCreator(train.Scaffold(saver=train.Saver()))
    with pytest.raises(RuntimeError, match="a saver, a scaffold or one saver in the collection"):
        train.MonitoredSession(creator, hooks=[hook])
    with pytest.raises(ValueError, match="keep_best"):
        train.Saver(keep_best=-1)
    with pytest.raises(ValueError, match="'min' or 'max'"):
        train.Saver(best="least")


def test_the_greatest_metric_may_be_the_best_and_is_known_after_a_restart(tmp_path):
    with tf.Session() as session:
        tf.Variable(np.float32(1))
        session.run(tf.global_variables_initializer())
        saver = train.Saver(max_to_keep=1, keep_best=1, best="max")
        for step, metric in enumerate([1.0, 4.0, 4.0, 2.0]):
            saver.save(session, tmp_path / "m", step, metric=metric)
        assert train.best_checkpoint(tmp_path) == str(tmp_path / "m-1")  # the first of equals
        again = train.Saver(max_to_keep=1, keep_best=1, best="max")
        state = train.get_checkpoint_state(tmp_path)
        again.recover_last_checkpoints(state.all_model_checkpoint_paths)
        again.recover_best_checkpoints(state.best_model_checkpoint_paths)
        again.save(session, tmp_path / "m", 4, metric=3.0)
        assert sorted(p.stem for p in tmp_path.glob("*.safetensors")) == ["m-1", "m-4"]
        again.save(session, tmp_path / "m", 5, metric=5.0)
        assert sorted(p.stem for p in tmp_path.glob("*.safetensors")) == ["m-5"]
