"""`on_nonfinite` in `train` and in monitored sessions (P050, P051)."""

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import optkit as tf
from optkit.train import nonfinite
from optkit.train.nonfinite_hook import NonFiniteHook

F = np.float32
training = tf.contrib.training


class Feeds:
    """Feeds of a regression, of which some are bad."""

    def __init__(self, *bad):
        self.count = 0
        self.bad = bad

    def __call__(self):
        self.count += 1
        x = F([[1, 2], [3, np.nan if self.count in self.bad else 4]])
        return {"x:0": x, "y:0": F([1, 2])}


def model(optimizer=None):
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    y = tf.placeholder(tf.float32, [None], name="y")
    w = tf.get_variable("w", [2], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.reduce_sum(x * w, 1) - y))
    tf.summary.scalar("loss", loss)
    return training.create_train_op(
        loss, optimizer or tf.train.AdamOptimizer(0.01), check_numerics=False
    )


def train(feeds, steps, **options):
    hooks = [tf.train.FeedFnHook(feeds), tf.train.StopAtStepHook(last_step=steps)]
    options = {"save_checkpoint_secs": None, "save_summaries_steps": None, **options}
    logdir = options.pop("logdir", None)
    return training.train(model(), logdir, hooks=hooks, **options)


def scalars(folder, tag):
    loaded = EventAccumulator(str(folder)).Reload()
    return [(event.step, event.value) for event in loaded.Scalars(tag)]


def test_p050_raise_names_the_culprit(tmp_path):
    with pytest.raises(tf.errors.NonFiniteError) as caught:
        train(
            Feeds(3),
            5,
            on_nonfinite="raise",
            logdir=tmp_path,
            save_checkpoint_secs=600,
            save_summaries_steps=1,
        )
    text = str(caught.value)
    for part in (
        "at step 3: the loss is nan",
        "it came with what is fed for 'x'",
        "in row 1 of the batch",
        "it was fed x:0, y:0",
        f"optkit debug {tmp_path / 'nonfinite-3.safetensors'}",
    ):
        assert part in text
    assert [step for step, _ in scalars(tmp_path, "loss")] == [1, 2]


def test_ignore_is_as_in_tf(tmp_path):
    assert np.isnan(train(Feeds(3), 5))


def test_skip_moves_nothing_and_counts_for_nothing(tmp_path, caplog):
    feeds = Feeds(2, 3)
    value = train(feeds, 5, on_nonfinite="skip", logdir=tmp_path, save_summaries_steps=1)
    assert feeds.count == 7
    assert np.isfinite(value)
    assert caplog.text.count("step 2 is left out: the loss is nan") == 1
    tf.reset_default_graph()
    assert value == train(Feeds(), 5)
    assert [step for step, _ in scalars(tmp_path, "loss")] == [1, 2, 3, 4, 5]


def test_skip_ends_when_nothing_else_comes(monkeypatch):
    monkeypatch.setattr(nonfinite, "LIMIT", 3)
    with pytest.raises(tf.errors.NonFiniteError):
        train(Feeds(*range(1, 99)), 5, on_nonfinite="skip")


def test_rollback_goes_back_with_new_data(tmp_path, monkeypatch, caplog):
    feeds = Feeds(6)
    hook = None

    def made(*args, **options):
        nonlocal hook
        hook = NonFiniteHook(*args, rollback_steps=2, **options)
        return hook

    monkeypatch.setattr("optkit.contrib.training.loop.NonFiniteHook", made)
    train(
        feeds,
        9,
        on_nonfinite="rollback",
        logdir=tmp_path,
        save_summaries_steps=1,
        save_checkpoint_secs=600,
    )
    assert "step 6: the loss is nan; going back to step 4" in caplog.text
    assert feeds.count == 11  # nine steps, the bad one, and step 5 once more
    points = scalars(tmp_path, "loss")
    assert [step for step, _ in points] == list(range(1, 10))
    assert np.isfinite([value for _, value in points]).all()


def test_a_monitored_session_gives_none_for_a_step_that_is_left_out():
    train_op = model()
    feeds = Feeds(2)
    hook = NonFiniteHook(train_op, "skip")
    with tf.train.MonitoredTrainingSession(hooks=[hook]) as session:
        values = [session.run(train_op, feeds()) for _ in range(3)]
        # What takes no step is not looked at.
        session.run("x:0", {"x:0": F([[np.nan, 1]])})
    assert [value is None for value in values] == [False, True, False]


def test_other_errors_go_through():
    train_op = model()
    x = tf.placeholder(tf.int32, [], name="i")
    bad = tf.gather(tf.constant([1.0]), x)
    with (
        tf.train.MonitoredTrainingSession(hooks=[NonFiniteHook(train_op, "skip")]) as session,
        pytest.raises(tf.errors.InvalidArgumentError, match="indices"),
    ):
        session.run([train_op, bad], {**Feeds()(), x: 3})


def test_what_is_refused():
    with pytest.raises(ValueError, match="on_nonfinite: expected one of raise, skip"):
        NonFiniteHook(None, "stop")
    with pytest.raises(ValueError, match="on_nonfinite: expected one of raise, skip"):
        training.train(
            model(), None, save_checkpoint_secs=None, save_summaries_steps=None, on_nonfinite="stop"
        )
    with pytest.raises(ValueError, match="rollback_steps: expected at least 1"):
        NonFiniteHook(None, rollback_steps=0)
