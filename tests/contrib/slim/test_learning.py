"""slim.learning.train: the loop that runs to a number of steps."""

import logging

import numpy as np
import pytest

import optkit as tf
from optkit.errors import OutOfRangeError
from summaries import read

learning = tf.contrib.slim.learning


@pytest.fixture(autouse=True)
def _writers():
    yield
    tf.summary.FileWriterCache.clear()


def model():
    w = tf.get_variable("w", initializer=np.float32([3, -2]))
    loss = tf.nn.l2_loss(w)
    tf.summary.scalar("loss", loss)
    return learning.create_train_op(loss, tf.train.GradientDescentOptimizer(0.1))


def test_it_trains_to_a_step_saves_and_goes_on(tmp_path):
    for steps in (5, 8):
        with tf.Graph().as_default():
            loss = learning.train(model(), tmp_path, number_of_steps=steps)
    assert loss == pytest.approx(6.5 * 0.81**7)
    assert tf.train.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-8")
    (run,) = read(tmp_path)._runs.values()
    assert run.scalars("loss").steps.tolist() == [1]  # the next is due after ten minutes


def test_steps_are_logged(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "optkit"):
        learning.train(model(), None, number_of_steps=4, log_every_n_steps=2)
    lines = [r.getMessage() for r in caplog.records if "global step" in r.getMessage()]
    assert [line.partition(" (")[0] for line in lines] == [
        "global step 2: loss = 5.2650",
        "global step 4: loss = 3.4544",
    ]


def test_a_step_of_ones_own(tmp_path):
    seen = []

    def step_fn(session, train_op, global_step, kwargs):
        seen.append(kwargs["x"])
        loss, stop = learning.train_step(session, train_op, global_step, kwargs)
        assert not stop
        return loss, len(seen) == 3

    class Wrapped:
        def __init__(self, session):
            self.session = session

        def run(self, *args):
            seen.append("run")
            return self.session.run(*args)

        def _tf_sess(self):
            return self.session._tf_sess()

    learning.train(model(), None, step_fn, {"x": 7}, number_of_steps=1)
    assert seen == [7, 7, 7]
    with tf.Graph().as_default():
        learning.train(
            model(), None, number_of_steps=1, session_wrapper=Wrapped, log_every_n_steps=0
        )
    assert seen[-1] == "run"


def test_the_end_of_the_data_is_a_good_end(tmp_path):
    def step_fn(session, train_op, global_step, kwargs):
        if int(session.run(global_step)) == 2:
            raise OutOfRangeError("no more")
        return session.run(train_op), False

    loss = learning.train(model(), tmp_path, step_fn, number_of_steps=9)
    assert loss == pytest.approx(6.5 * 0.81)
    assert tf.train.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-2")


def test_what_starts_a_session_may_be_given(tmp_path):
    x = tf.placeholder(tf.float32, [2])
    train_op = model()
    w = tf.trainable_variables()[0]
    init = tf.group(tf.assign(w, x), tf.train.get_global_step().initializer)
    halve = tf.assign(w, w / 2)
    loss = learning.train(
        train_op,
        tmp_path,
        number_of_steps=1,
        init_op=init,
        init_feed_dict={x: [4.0, 0.0]},
        init_fn=lambda session: session.run(halve),
        summary_op=None,
        saver=tf.train.Saver([w, tf.train.get_global_step()]),
    )
    assert loss == 2
    (run,) = read(tmp_path)._runs.values()
    assert run.tags() == {}
    assert dict(tf.train.list_variables(tmp_path)) == {"w": [2], "global_step": []}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"number_of_steps": 0}, "number_of_steps: expected a number above 0, got 0"),
        ({"logdir": None, "summary_op": None}, "summary_op: goes with a logdir"),
        ({"logdir": None, "saver": object()}, "saver: goes with a logdir"),
        ({"trace_every_n_steps": 3}, "records no traces"),
        ({"sync_optimizer": object()}, "runs in one process"),
        ({"train_op": None}, "train_op"),
    ],
)
def test_bad_arguments_are_refused(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        learning.train(**{"train_op": model(), "logdir": tmp_path, **arguments})
