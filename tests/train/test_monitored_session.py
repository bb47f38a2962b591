"""Monitored sessions: their life cycle, and what hooks see and do in it."""

import logging
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

        class Stops:
            def step_fn(self, step_context):
                step_context.request_stop()

        assert session.run_step_fn(Stops().step_fn) is None
        assert session.should_stop()
        for bad in (lambda: 1, lambda a, b, c: 1, lambda context: 1):
            with pytest.raises(ValueError, match="step_context"):
                session.run_step_fn(bad)


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
