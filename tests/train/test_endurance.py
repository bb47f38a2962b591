"""Full disks, clocks that go back, failures in the middle, and long runs."""

import gc
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator

import optkit as tf
from optkit.errors import FailedPreconditionError
from tests.train import survivor
from tests.train.test_resume import event_sequence, legacy_sequence

resource = pytest.importorskip("resource")
needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's /proc")


@pytest.fixture(autouse=True)
def _writers():
    yield
    tf.summary.FileWriterCache.clear()


class FailsAt(tf.train.SessionRunHook):
    """Fails after the run that takes a step."""

    def __init__(self, step):
        self.step = step

    def after_run(self, run_context, run_values):
        if int(run_context.session.value(tf.train.get_global_step())) == self.step:
            raise FailedPreconditionError("on purpose")


def failing(logdir, step):
    with pytest.raises(FailedPreconditionError, match="on purpose"):
        survivor.train(logdir, hooks=[FailsAt(step)])
    tf.summary.FileWriterCache.clear()


def same(run, reference):
    """Both ended with the same variables and wrote the same events."""
    found, expected = np.load(run / "final.npz"), np.load(reference / "final.npz")
    assert set(found.files) == set(expected.files)
    for name in expected.files:
        assert found[name].tobytes() == expected[name].tobytes(), name
    assert event_sequence(run) == event_sequence(reference)
    for module in (event_accumulator, plugin_event_accumulator):
        assert legacy_sequence(run, module) == legacy_sequence(reference, module)


@pytest.fixture
def reference(tmp_path):
    """The directory of a run that nothing disturbs."""
    survivor.train(tmp_path / "reference")
    tf.summary.FileWriterCache.clear()
    return tmp_path / "reference"


def test_a_run_that_fails_again_and_again_goes_on_bit_for_bit(tmp_path, reference):
    run = tmp_path / "run"
    for step in (3, 9, 10, 11, 22):
        failing(run, step)
    survivor.train(run)
    tf.summary.FileWriterCache.clear()
    same(run, reference)


def test_a_clock_that_goes_back_changes_nothing(tmp_path, reference, monkeypatch):
    run, now = tmp_path / "run", time.time
    for days, step in ((0, 8), (40, 14), (2, 21)):
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda days=days: now() - 86400 * days)
            failing(run, step)
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now() - 86400 * 400)
        survivor.train(run)
        tf.summary.FileWriterCache.clear()
    same(run, reference)


def test_a_disk_that_is_full_costs_no_checkpoint(tmp_path):
    """The save fails, the one before stands, and the run goes on from it when there is room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    class Full(tf.train.CheckpointSaverListener):
        def before_save(self, session, global_step_value):
            if global_step_value == self.at:
                resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))

        def after_save(self, session, global_step_value):
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    def train(at):
        with tf.Graph().as_default():
            w = tf.get_variable("w", initializer=np.ones(100_000, np.float32))
            step = tf.train.get_or_create_global_step()
            train_op = tf.train.AdamOptimizer(0.1).minimize(tf.nn.l2_loss(w), step)
            listener = Full()
            listener.at = at
            scaffold = tf.train.Scaffold()
            saver = tf.train.CheckpointSaverHook(
                tmp_path, save_steps=2, scaffold=scaffold, listeners=[listener]
            )
            stop = tf.train.StopAtStepHook(last_step=7)
            creator = tf.train.ChiefSessionCreator(scaffold, checkpoint_dir=tmp_path)
            with tf.train.MonitoredSession(creator, hooks=[saver, stop]) as session:
                while not session.should_stop():
                    session.run(train_op)

    for at, newest in ((4, 2), (2, 2), (7, 6)):
        with pytest.raises(OSError, match="File too large"):
            train(at)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert survivor.newest_step(tmp_path) == newest
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    train(None)
    assert survivor.newest_step(tmp_path) == 7


def steps(logdir, count, look):
    """Train with frequent summaries and checkpoints; `look` is called now and then."""
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        x = tf.random_normal([8, 4])
        step = tf.train.get_or_create_global_step()
        loss = tf.reduce_mean(tf.square(tf.layers.dense(x, 3)))
        train_op = tf.contrib.layers.optimize_loss(
            loss, step, 0.01, "Adam", summaries=["loss", "gradients"]
        )

        class Looks(tf.train.SessionRunHook):
            def after_run(self, run_context, run_values):
                taken = int(run_context.session.value(step))
                if taken % (count // 10) == 0:
                    look(taken)

        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=logdir,
            hooks=[Looks(), tf.train.StopAtStepHook(last_step=count)],
            save_checkpoint_secs=None,
            save_checkpoint_steps=count // 20,
            save_summaries_steps=10,
            log_step_count_steps=10,
        ) as session:
            while not session.should_stop():
                session.run(train_op)


def restored(folder):
    """The step and the value that a session in a directory starts with."""
    with tf.Graph().as_default():
        w = tf.get_variable("w", initializer=np.zeros(50, np.float32))
        step = tf.train.get_or_create_global_step()
        creator = tf.train.ChiefSessionCreator(checkpoint_dir=folder)
        with tf.train.MonitoredSession(creator) as session:
            return int(session.run(step)), session.run(w)


@pytest.fixture(scope="module")
def three_checkpoints(tmp_path_factory):
    """A directory with checkpoints of steps 1, 2 and 3, each full of its own number."""
    folder = tmp_path_factory.mktemp("three")
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=np.zeros(50, np.float32))
        step = tf.train.get_or_create_global_step()
        saver, value = tf.train.Saver(), tf.placeholder(tf.float32, [50])
        move = [tf.assign(w, value), tf.assign_add(step, 1)]
        session.run(tf.global_variables_initializer())
        for number in (1, 2, 3):
            session.run(move, {value: np.full(50, number)})
            saver.save(session, folder / "m", step)
    return folder


DAMAGE = st.tuples(
    st.sampled_from(["checkpoint", "m-1.safetensors", "m-2.safetensors", "m-3.safetensors"]),
    st.sampled_from(["flip", "cut", "grow", "zeros", "swap", "remove"]),
    st.integers(0, 10_000),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(DAMAGE, min_size=1, max_size=4))
def test_whatever_is_damaged_nothing_wrong_is_taken(three_checkpoints, tmp_path, damages):
    folder = tmp_path / "run"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(three_checkpoints, folder)
    for name, kind, place in damages:
        path = folder / name
        data = bytearray(path.read_bytes() if path.exists() else b"")
        place %= max(len(data), 1)
        if kind == "flip" and data:
            data[place] ^= 1 << place % 8
        elif kind == "cut":
            del data[place:]
        elif kind == "grow":
            data += b"0"
        elif kind == "zeros":
            data[place:] = bytes(len(data) - place)
        elif kind == "swap":
            data = bytearray((three_checkpoints / "m-1.safetensors").read_bytes()[place:])
        if kind != "remove":
            path.write_bytes(data)
        elif name != "checkpoint":  # without a record a run is a new one
            path.unlink(missing_ok=True)
    try:
        step, value = restored(folder)
    except (ValueError, OSError):
        return  # nothing could be read, and nothing was started in its place
    assert step in (1, 2, 3)
    np.testing.assert_array_equal(value, np.full(50, step))


@needs_proc
def test_a_run_leaves_nothing_open_and_nothing_behind(tmp_path):
    opened, objects = [], []

    def look(taken):
        gc.collect()
        opened.append(len(os.listdir("/proc/self/fd")))  # noqa: PTH208
        objects.append(len(gc.get_objects()))

    steps(tmp_path, 300, look)
    assert opened[1:] == [opened[1]] * 9
    assert objects[-1] - objects[2] < 100


@needs_proc
@pytest.mark.slow
def test_ten_thousand_steps_keep_memory_and_files_flat(tmp_path):
    opened, resident = [], []

    def look(taken):
        gc.collect()
        opened.append(len(os.listdir("/proc/self/fd")))  # noqa: PTH208
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        resident.append(pages * resource.getpagesize())

    steps(tmp_path, 10_000, look)
    assert opened[1:] == [opened[1]] * 9
    assert resident[-1] - resident[1] < 4 << 20, resident
