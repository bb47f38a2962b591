"""Monitored sessions: their life cycle, and what hooks see and do in it."""

import gc
import logging
import os
import re
import signal
import threading

import numpy as np
import pytest

import optkit as tf
from optkit.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
)
from optkit.train.monitored_session import guarded_session


@pytest.fixture(autouse=True)
def _writers():
    yield
    tf.summary.FileWriterCache.clear()


class Told(tf.train.SessionRunHook):
    """Notes what it is called for."""

    def __init__(self, events, name="hook", fetches=None, feed_dict=None):
        self.events = events
        self.name = name
        self.args = tf.train.SessionRunArgs(fetches, feed_dict)

    def begin(self):
        self.events.append((self.name, "begin", tf.get_default_graph().finalized))

    def after_create_session(self, session, coord):
        self.events.append((self.name, "created", tf.get_default_graph().finalized))
        assert not coord.should_stop()

    def before_run(self, run_context):
        self.events.append((self.name, "before", run_context.original_args.fetches))
        return self.args

    def after_run(self, run_context, run_values):
        self.events.append((self.name, "after", run_values.results))

    def end(self, session):
        self.events.append((self.name, "end"))


def counter():
    """A train op that does nothing but count."""
    step = tf.train.get_or_create_global_step()
    return tf.assign_add(step, 1)


# -- the life cycle -------------------------------------------------------------------------------


def test_hooks_are_called_in_order_and_the_graph_is_finalized():
    add = counter()
    events = []
    with tf.train.MonitoredSession(hooks=[Told(events, "a"), Told(events, "b")]) as session:
        assert tf.get_default_graph().finalized
        assert session.run(add) == 1
        assert session.graph is tf.get_default_graph()
        assert not session.should_stop()
    assert [event[:2] for event in events] == [
        ("a", "begin"),
        ("b", "begin"),
        ("a", "created"),
        ("b", "created"),
        ("a", "before"),
        ("b", "before"),
        ("a", "after"),
        ("b", "after"),
        ("a", "end"),
        ("b", "end"),
    ]
    assert [event[2] for event in events if event[1] in ("begin", "created")] == [
        False,
        False,
        True,
        True,
    ]
    assert not tf.get_default_graph().finalized  # as before


def test_hooks_may_add_operations_when_they_begin():
    class Adds(tf.train.SessionRunHook):
        def begin(self):
            self.double = 2 * tf.train.get_or_create_global_step()

        def before_run(self, run_context):
            return tf.train.SessionRunArgs({"double": self.double, "pair": [self.double, "x:0"]})

        def after_run(self, run_context, run_values):
            self.found = run_values.results

    tf.constant(5.0, name="x")
    add, hook = counter(), Adds()
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        session.run(add)
    assert hook.found == {"double": 0, "pair": [0, 5]}  # of the same run, before the write


def test_fetches_and_feeds_are_merged_into_one_run():
    x, y = tf.placeholder(tf.float32, [], "x"), tf.placeholder(tf.float32, [], "y")
    total = x + y
    events = []
    hooks = [Told(events, "a", total, {x: 2.0}), Told(events, "b"), Told(events, "c", (x, [y]))]
    with tf.train.MonitoredSession(hooks=hooks) as session:
        assert session.run({"y": y}, {y: 3.0}) == {"y": 3}
    after = {event[0]: event[2] for event in events if event[1] == "after"}
    assert after == {"a": 5, "b": None, "c": (2, [3])}


@pytest.mark.parametrize("other", ["hook", "caller"])
def test_a_tensor_that_is_fed_twice_is_refused(other):
    x = tf.placeholder(tf.float32, [], "x")
    hooks = [Told([], "a", None, {x: 1.0})]
    if other == "hook":
        hooks.append(Told([], "b", None, {"x:0": 2.0}))
    feeds = {x: 3.0} if other == "caller" else None
    with (
        tf.train.MonitoredSession(hooks=hooks) as session,
        pytest.raises(RuntimeError, match="fed twice"),
    ):
        session.run(x, feeds)


def test_no_run_after_the_stop():
    add = counter()
    with tf.train.MonitoredSession(hooks=[tf.train.StopAtStepHook(num_steps=1)]) as session:
        session.run(add)
        assert session.should_stop()
        with pytest.raises(RuntimeError, match="after a stop"):
            session.run(add)
    assert session.should_stop()
    with pytest.raises(RuntimeError, match="closed"):
        session.run(add)
    with pytest.raises(RuntimeError, match="closed"):
        session.close()


@pytest.mark.parametrize("error", [OutOfRangeError("at its end"), StopIteration()])
def test_the_end_of_the_data_ends_a_session_well(error):
    events = []
    counter()
    with tf.train.MonitoredSession(hooks=[Told(events)]):
        raise error
    assert events[-1] == ("hook", "end")


def test_a_failure_is_no_end():
    events = []
    counter()
    with pytest.raises(KeyError), tf.train.MonitoredSession(hooks=[Told(events)]):
        raise KeyError("x")
    assert events[-1][1] == "created"
    assert not tf.get_default_graph().finalized


def test_a_failing_hook_closes_the_session_and_the_graph_is_open_again(tmp_path):
    class Fails(tf.train.SessionRunHook):
        def __init__(self, when):
            setattr(self, when, self.fail)

        def fail(self, *_):
            raise ArithmeticError

    counter()
    for when in ("begin", "after_create_session", "end"):
        with pytest.raises(ArithmeticError):  # noqa: SIM117 - the inner one raises at its end
            with tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=[Fails(when)]):
                pass
        assert not tf.get_default_graph().finalized
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path):  # the lock is free
        pass


def test_what_was_trained_is_saved_where_a_hook_fails_at_the_end(tmp_path):
    class Fails(tf.train.SessionRunHook):
        def end(self, session):
            raise ArithmeticError

    add = counter()

    def train():
        with tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=[Fails()]) as session:
            session.run(add)

    with pytest.raises(ArithmeticError):
        train()
    assert tf.train.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-1")


@pytest.mark.parametrize("error", [ArithmeticError, KeyboardInterrupt])
def test_nothing_is_left_locked_by_a_close_that_fails(tmp_path, error, caplog):
    class Fails(tf.train.SessionRunHook):
        def flush(self):
            raise error

        def after_run(self, run_context, run_values):
            raise KeyError("the first")

    add = counter()

    def train():
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=tmp_path, save_checkpoint_secs=None, hooks=[Fails()]
        ) as session:
            session.run(add)

    # The error that ended the training comes first; only Ctrl-C comes before it.
    with pytest.raises(error if error is KeyboardInterrupt else KeyError):
        train()
    assert ("events could not be written" in caplog.text) is (error is ArithmeticError)
    assert not tf.get_default_graph().finalized
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path) as session:
        assert session.run(add) == 1


def test_a_session_that_is_lost_gives_its_directory_back(tmp_path):
    """As one that a notebook's cell made without a `with`."""
    add = counter()
    session = tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path)
    session.run(add)
    with pytest.raises(RuntimeError, match="in a session of this process"):
        tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path)
    del session
    gc.collect()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path) as session:
        assert session.run(add) == 1


def test_a_graph_that_was_finalized_stays_so():
    counter()
    scaffold = tf.train.Scaffold()
    scaffold.finalize()
    with tf.train.SingularMonitoredSession(scaffold=scaffold) as session:
        assert isinstance(session.raw_session(), tf.Session)
    assert tf.get_default_graph().finalized


def test_eager_mode_has_no_graph_to_run(tmp_path):
    with tf.eager():
        for _ in range(2):
            with pytest.raises(RuntimeError, match="eager mode has no graph"):
                tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path)
    counter()
    with tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path):  # the lock is free
        pass


def test_a_step_of_several_runs():
    add = counter()
    events = []
    with tf.train.MonitoredSession(hooks=[Told(events)]) as session:
        before = len(events)

        def step_fn(step_context):
            step_context.session.run(add)
            assert len(events) == before  # without hooks
            return step_context.run_with_hooks(add)

        assert session.run_step_fn(step_fn) == 2
        assert events[-1] == ("hook", "after", None)

        for bad in (lambda: 1, lambda a, b, c: 1, lambda context: 1):
            with pytest.raises(ValueError, match="step_context"):
                session.run_step_fn(bad)
        assert not session.should_stop()


def test_a_step_function_ends_the_training():
    """As in TF it raises StopIteration, which the session's `with` takes for a good end."""

    class Stops:
        def step_fn(self, step_context):
            step_context.request_stop()
            raise AssertionError

    def ends(step_context):
        raise StopIteration

    counter()
    events = []
    with tf.train.MonitoredSession(hooks=[Told(events)]) as session:
        with pytest.raises(StopIteration):
            session.run_step_fn(ends)
        assert not session.should_stop()
        with pytest.raises(StopIteration):
            session.run_step_fn(Stops().step_fn)
        assert session.should_stop()
        session.run_step_fn(Stops().step_fn)
        raise AssertionError
    assert events[-1] == ("hook", "end")


def test_what_a_thread_asks_for_is_heeded_at_the_next_look():
    """A run between that look and the request is no mistake of the caller."""
    add = counter()

    class Thread(tf.train.SessionRunHook):
        def after_create_session(self, session, coord):
            self.coord = coord

    hook = Thread()
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        assert not session.should_stop()
        hook.coord.request_stop()
        assert session.run(add) == 1
        assert session.should_stop()


def test_threads_that_do_not_end_are_told_of(caplog):
    counter()
    release = threading.Event()

    class Thread(tf.train.SessionRunHook):
        def after_create_session(self, session, coord):
            self.thread = threading.Thread(target=release.wait, name="endless")
            self.thread.start()
            coord.register_thread(self.thread)

    hook = Thread()
    with tf.train.MonitoredSession(hooks=[hook], stop_grace_period_secs=0.01):
        pass
    release.set()
    hook.thread.join()
    assert "threads did not end within 0.01 s: endless" in caplog.text


def test_threads_that_registered_are_waited_for():
    counter()

    class Thread(tf.train.SessionRunHook):
        def after_create_session(self, session, coord):
            self.thread = threading.Thread(target=coord.wait_for_stop)
            self.thread.start()
            coord.register_thread(self.thread)

    hook = Thread()
    with tf.train.MonitoredSession(hooks=[hook]):
        assert hook.thread.is_alive()
    assert not hook.thread.is_alive()


# -- starting -------------------------------------------------------------------------------------


def test_variables_are_initialised_and_local_ones_too():
    w = tf.get_variable("w", initializer=2.0)
    local = tf.get_variable(
        "local", initializer=3.0, trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES]
    )
    with tf.train.MonitoredSession() as session:
        assert session.run([w, local]) == [2, 3]


def test_a_scaffolds_own_initialisation_is_used():
    x = tf.placeholder(tf.float32, [])
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    v = tf.get_variable("v", [], initializer=tf.zeros_initializer())
    init = tf.group(tf.assign(w, x), v.initializer)
    add = tf.assign(v, 7.0)
    scaffold = tf.train.Scaffold(
        init_op=init,
        init_feed_dict={x: 4.0},
        init_fn=lambda scaffold, session: session.run(add),
    )
    other = tf.train.Scaffold(copy_from_scaffold=scaffold)
    with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(other)) as session:
        assert session.run([w, v]) == [4, 7]
    with pytest.raises(TypeError, match="copy_from_scaffold"):
        tf.train.Scaffold(copy_from_scaffold=3)


def test_variables_that_nothing_initialises_are_named():
    w = tf.get_variable("w", [2])
    v = tf.get_variable("v", [])
    scaffold = tf.train.Scaffold(init_op=v.initializer)
    with pytest.raises(RuntimeError, match=r"before local_init_op: w;"):
        tf.train.MonitoredSession(tf.train.ChiefSessionCreator(scaffold))
    assert w is not None


def test_what_a_scaffold_finds_in_collections_it_uses():
    step = counter()
    saver = tf.train.Saver()
    tf.add_to_collection(tf.GraphKeys.SAVERS, saver)
    scaffold = tf.train.Scaffold().finalize()
    assert scaffold.saver is saver
    assert step is not None
    with tf.Graph().as_default():
        counter()
        made = tf.train.Scaffold().finalize()
        assert tf.get_collection(tf.GraphKeys.SAVERS) == [made.saver]
        assert tf.get_collection(tf.GraphKeys.INIT_OP) == [made.init_op]
        assert made.summary_op is None
    with tf.Graph().as_default():
        counter()
        for _ in range(2):
            tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver())
        with pytest.raises(RuntimeError, match="saver: the collection 'savers' has 2 items"):
            tf.train.Scaffold().finalize()


def test_a_worker_saves_nothing(tmp_path):
    add = counter()
    with tf.train.MonitoredTrainingSession(is_chief=False, checkpoint_dir=tmp_path) as session:
        assert session.run(add) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_session_creator_of_ones_own_is_used():
    add = counter()

    class Creator(tf.train.SessionCreator):
        def create_session(self):
            tf.train.Scaffold().finalize()
            session = tf.Session()
            session.run(tf.get_collection(tf.GraphKeys.INIT_OP))
            return session

    with tf.train.MonitoredSession(Creator()) as session:
        assert session.run(add) == 1


# -- going on -------------------------------------------------------------------------------------


def steps_taken(logdir, hook, **settings):
    """Train with a hook that ends it; the steps after which it stood."""
    with tf.Graph().as_default():
        add = counter()
        seen = []
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=logdir, hooks=[hook], **settings
        ) as session:
            while not session.should_stop():
                seen.append(int(session.run(add)))
        return seen


def test_a_new_session_goes_on_where_the_last_one_ended(tmp_path):
    """P077: the step goes on with the checkpoint."""
    assert steps_taken(tmp_path, tf.train.StopAtStepHook(num_steps=3)) == [1, 2, 3]
    assert steps_taken(tmp_path, tf.train.StopAtStepHook(num_steps=2)) == [4, 5]
    assert steps_taken(tmp_path, tf.train.StopAtStepHook(last_step=6)) == [6]
    assert steps_taken(tmp_path, tf.train.StopAtStepHook(last_step=6)) == []  # it was through
    assert steps_taken(tmp_path, tf.train.StopAtStepHook(num_steps=0)) == [7]


def test_a_damaged_checkpoint_is_passed_over_and_told(tmp_path, caplog):
    steps_taken(tmp_path, tf.train.StopAtStepHook(num_steps=4), save_checkpoint_steps=2)
    newest = tmp_path / "model.ckpt-4.safetensors"
    data = bytearray(newest.read_bytes())
    data[-1] ^= 1
    newest.write_bytes(data)
    with caplog.at_level(logging.ERROR, "optkit"):
        assert steps_taken(tmp_path, tf.train.StopAtStepHook(num_steps=1)) == [3]
    assert "its data is not what was written" in caplog.text


def test_when_no_checkpoint_can_be_read_nothing_starts_anew(tmp_path):
    steps_taken(tmp_path, tf.train.StopAtStepHook(num_steps=1))
    for path in tmp_path.glob("*.safetensors"):
        path.write_bytes(b"torn")
    with pytest.raises(ValueError, match="none of the checkpoints on record"):
        steps_taken(tmp_path, tf.train.StopAtStepHook(num_steps=1))
    (tmp_path / "checkpoint").write_text("model_checkpoint_path: 'x'")
    with pytest.raises(ValueError, match='expected JSON with "latest" and "all"'):
        steps_taken(tmp_path, tf.train.StopAtStepHook(num_steps=1))


def test_a_checkpoint_of_another_model_is_no_damaged_one(tmp_path):
    steps_taken(tmp_path, tf.train.StopAtStepHook(num_steps=1))
    with tf.Graph().as_default():
        tf.get_variable("w", [2])
        counter()
        with pytest.raises(NotFoundError, match="'w' is missing"):
            tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path)
    with tf.Graph().as_default():
        tf.train.create_global_step()
        step = tf.get_variable("other", [3])
        scaffold = tf.train.Scaffold(saver=tf.train.Saver({"global_step": step}))
        with pytest.raises(InvalidArgumentError, match="'global_step': expected float32"):
            tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path, scaffold=scaffold)


def test_a_record_that_points_elsewhere_deletes_nothing_there(tmp_path):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    steps_taken(inside, tf.train.StopAtStepHook(num_steps=1))
    precious = outside / "precious.safetensors"
    precious.write_bytes(b"mine")
    (inside / "checkpoint").write_text(
        '{"latest": "model.ckpt-1", "all": ["../outside/precious", "model.ckpt-1"], '
        f'"best": {{"{outside}/precious": 0.5}}}}'
    )
    steps_taken(inside, tf.train.StopAtStepHook(num_steps=9), save_checkpoint_steps=1)
    assert precious.read_bytes() == b"mine"
    assert (inside / "model.ckpt-10.safetensors").exists()


def test_a_checkpoint_may_be_named(tmp_path):
    steps_taken(tmp_path, tf.train.StopAtStepHook(num_steps=4), save_checkpoint_steps=1)
    add = counter()
    with tf.train.SingularMonitoredSession(
        checkpoint_filename_with_path=str(tmp_path / "model.ckpt-2")
    ) as session:
        assert session.run(add) == 3
    with tf.train.SingularMonitoredSession(checkpoint_dir=tmp_path) as session:
        assert session.run(add) == 5


def test_a_monitored_session_can_be_saved(tmp_path):
    add = counter()
    saver = tf.train.Saver()
    with tf.train.MonitoredSession() as session:
        session.run(add)
        path = saver.save(session, tmp_path / "m", 1)
        session.run(add)
        saver.restore(session, path)
        assert session.run(add) == 2


def test_hooks_keep_their_state_in_checkpoints(tmp_path):
    class Counts(tf.train.SessionRunHook):
        def __init__(self):
            self.runs = 0

        def after_run(self, run_context, run_values):
            self.runs += 1

        def state_dict(self):
            return {"runs": self.runs}

        def load_state_dict(self, state):
            self.runs = state["runs"]

    add = counter()
    for expected in (3, 6):
        hooks = [Counts(), Counts(), tf.train.StopAtStepHook(num_steps=3)]
        with tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=hooks) as session:
            hooks[1].runs *= 10
            while not session.should_stop():
                session.run(add)
        assert hooks[0].runs == expected
        assert hooks[1].runs == 33 if expected == 6 else 3


def test_sigterm_is_left_alone_without_a_directory_and_where_a_program_has_its_own():
    counter()
    with tf.train.MonitoredTrainingSession():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_sigterm_in_a_run_ends_the_step_and_saves(tmp_path):
    add = counter()

    reached = []

    class Terminates(tf.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            signal.raise_signal(signal.SIGTERM)

    def train():
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=tmp_path, hooks=[Terminates()]
        ) as session:
            assert session.run(add) == 1
            assert session.should_stop()
            reached.append(True)

    with pytest.raises(SystemExit) as caught:
        train()
    assert reached == [True]
    assert caught.value.code == 143
    assert tf.train.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-1")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_sigterm_between_runs_saves_too(tmp_path):
    add = counter()

    def train():
        with tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path) as session:
            session.run(add)
            signal.raise_signal(signal.SIGTERM)
            session.run(add)

    with pytest.raises(SystemExit) as caught:
        train()
    assert caught.value.code == 143
    assert tf.train.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-1")


def test_sigterm_in_the_first_of_two_runs_leaves_the_second_out(tmp_path):
    """As where a loop looks at `should_stop` every second run."""

    class Terminates(tf.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            signal.raise_signal(signal.SIGTERM)

    add = counter()

    def train():
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=tmp_path, hooks=[Terminates()]
        ) as session:
            while not session.should_stop():
                assert session.run(add) == 1
                session.run(add)

    with pytest.raises(SystemExit) as caught:
        train()
    assert caught.value.code == 143
    assert tf.train.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-1")


def test_sigterm_waits_for_the_end_of_a_step_function(tmp_path):
    add = counter()

    def step_fn(step_context):
        step_context.run_with_hooks(add)
        signal.raise_signal(signal.SIGTERM)
        return step_context.session.run(add)

    def train():
        with tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path) as session:
            assert session.run_step_fn(step_fn) == 2
            assert session.should_stop()

    with pytest.raises(SystemExit) as caught:
        train()
    assert caught.value.code == 143
    assert tf.train.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-2")


@pytest.mark.parametrize("moment", ["run", "between"])
def test_sigterm_ends_a_training_within_a_training(tmp_path, moment):
    """Both save, and only the outer one ends the process."""

    class Terminates(tf.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            if moment == "run":
                signal.raise_signal(signal.SIGTERM)

    inner_runs, after = [], []

    def inner(folder):
        with tf.Graph().as_default():
            add = counter()
            with tf.train.MonitoredTrainingSession(
                checkpoint_dir=folder, hooks=[Terminates()]
            ) as session:
                while not session.should_stop():
                    inner_runs.append(int(session.run(add)))
                    if moment == "between":
                        signal.raise_signal(signal.SIGTERM)

    def train():
        add = counter()
        with tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path / "outer") as session:
            session.run(add)
            inner(tmp_path / "first")
            after.append(session.should_stop())
            inner(tmp_path / "second")  # starts, and sees that it shall stop

    with pytest.raises(SystemExit) as caught:
        train()
    assert caught.value.code == 143
    assert inner_runs == [1]
    # Between runs SIGTERM is heeded at once, in the midst of the body.
    assert after == ([True] if moment == "run" else [])
    for name in ("outer", "first"):
        assert tf.train.latest_checkpoint(tmp_path / name) == str(tmp_path / name / "model.ckpt-1")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.host("it forks")
def test_a_process_that_a_hook_forks_ends_at_sigterm(tmp_path):
    """As the workers that load data, which their parent ends so."""
    statuses = []

    class Forks(tf.train.SessionRunHook):
        def before_run(self, run_context):
            pid = os.fork()
            if pid == 0:
                signal.raise_signal(signal.SIGTERM)
                os._exit(1)
            statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    add = counter()
    with tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=[Forks()]) as session:
        session.run(add)
        assert not session.should_stop()
    assert statuses == [-signal.SIGTERM]


def test_a_directory_may_be_given_twice_in_other_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "run")
    add = counter()
    for count, other in enumerate(("run/", str(tmp_path / "run"), "link"), 1):
        with tf.train.MonitoredTrainingSession(checkpoint_dir="run", summary_dir=other) as session:
            assert session.run(add) == count
        with tf.train.MonitoredTrainingSession(checkpoint_dir=other):
            pass
    assert len(list((tmp_path / "run").glob("events*"))) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hooks": tf.train.StopAtStepHook(1)}, "hooks: expected a list of SessionRunHooks"),
        ({"hooks": 3}, "hooks: expected a list"),
        ({"hooks": [tf.train.StopAtStepHook]}, "hooks: expected instances, got the class Stop"),
        ({"chief_only_hooks": ["x"]}, "chief_only_hooks: expected SessionRunHooks, got 'x'"),
        ({"scaffold": 3}, "scaffold: expected a Scaffold, got 3"),
        ({"checkpoint_dir": 5}, "checkpoint_dir: expected a path, got 5"),
        ({"checkpoint_dir": b"run"}, "checkpoint_dir: expected a path, got b'run'"),
        ({"summary_dir": 5}, "summary_dir: expected a path, got 5"),
    ],
)
def test_what_is_no_hook_scaffold_or_path_is_named(settings, message, tmp_path):
    counter()
    with pytest.raises(TypeError, match=re.escape(message)):
        tf.train.MonitoredTrainingSession(**{"checkpoint_dir": tmp_path, **settings})
    assert list(tmp_path.iterdir()) == []


def test_other_mistakes_of_monitored_sessions_are_named(tmp_path):
    counter()
    with pytest.raises(TypeError, match="session_creator: expected a SessionCreator, got <"):
        tf.train.MonitoredSession(tf.train.Scaffold())
    with pytest.raises(TypeError, match="hooks: expected SessionRunHooks, got 3 among them"):
        tf.contrib.training.train(tf.no_op(), tmp_path, hooks=[3])
    with pytest.raises(ValueError, match="checkpoint_dir: '~nobodyatall/run'"):
        tf.train.MonitoredTrainingSession(checkpoint_dir="~nobodyatall/run")


def test_two_sessions_do_not_share_a_directory(tmp_path):
    add = counter()
    with tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path) as session:
        with pytest.raises(RuntimeError, match=r"a session of this process: pid \d+"):
            guarded_session(tf.train.ChiefSessionCreator(), [], [tmp_path])
        session.run(add)
    with tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path):
        pass


def test_p051_weights_that_are_not_finite_are_not_saved(tmp_path, caplog):
    """P051: the last good checkpoint stands."""
    w = tf.get_variable("w", initializer=np.float32([1, 1]))
    step = tf.train.get_or_create_global_step()
    with tf.control_dependencies([tf.assign(w, w / tf.cast(2 - step, tf.float32))]):
        train_op = tf.assign_add(step, 1)
    with (
        caplog.at_level(logging.ERROR, "optkit"),
        tf.train.MonitoredTrainingSession(
            checkpoint_dir=tmp_path,
            save_checkpoint_steps=1,
            save_checkpoint_secs=None,
            hooks=[tf.train.StopAtStepHook(last_step=5)],
        ) as session,
    ):
        while not session.should_stop():
            session.run(train_op)
    assert tf.train.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-2")
    assert caplog.text.count("no checkpoint at step") == 1
    assert "step 3: w is not finite" in caplog.text


def test_a_variable_that_nothing_collects_need_not_have_a_value(tmp_path):
    w = tf.get_variable("w", [2], collections=["mine"])
    counter()
    with (
        tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path) as session,
        pytest.raises(FailedPreconditionError, match="'w' is not initialised"),
    ):
        session.run(w)
