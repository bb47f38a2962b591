"""fit with accumulated gradients, with averages in evaluations, with a rate that follows them."""

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import optkit as tf
from tests.train.rules import new_step

T = tf.train
X = np.arange(16, dtype=np.float32).reshape(8, 2) / 8


def line(optimizer, **arguments):
    """A loss that falls for ever, its variable, and its train op."""
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    w = tf.Variable([1.0, 1.0], name="w")
    step = new_step()
    tf.add_to_collection(tf.GraphKeys.GLOBAL_STEP, step)
    loss = tf.reduce_mean(tf.reduce_sum(x * w, 1))
    train_op = tf.contrib.layers.optimize_loss(
        loss, step, None if isinstance(optimizer, T.Optimizer) else 0.5, optimizer, **arguments
    )
    return x, w, loss, train_op


def test_p056_fit_measures_evaluates_and_writes_once_a_step(tmp_path):
    optimizer = T.GradientAccumulationOptimizer(T.GradientDescentOptimizer(0.1), 4)
    x, _, loss, train_op = line(optimizer)
    history = tf.fit(
        train_op,
        [X[:2], X[2:4], X[4:6], X[6:]],
        x,
        steps=4,
        logdir=tmp_path,
        eval=([X], 2, {"loss": loss}),
        save_summaries_steps=1,
        progress=False,
    )
    assert history.steps.tolist() == [1, 2, 3, 4]
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    norms = events.Scalars("OptimizeLoss/global_norm/gradient_norm")
    assert [event.step for event in norms] == [1, 2, 3, 4]
    norm = np.linalg.norm(X.mean(0))
    assert [event.value for event in norms] == pytest.approx([norm] * 4)
    np.testing.assert_allclose(history["gradient_norm"], norm, rtol=1e-6)
    evaluations = EventAccumulator(str(tmp_path / "eval"))
    evaluations.Reload()
    (tag,) = evaluations.Tags()["scalars"]
    assert [event.step for event in evaluations.Scalars(tag)] == [2, 4]


def test_evaluations_are_made_with_the_averages(tmp_path):
    optimizer = tf.contrib.opt.MovingAverageOptimizer(T.GradientDescentOptimizer(0.5), 0.5)
    x, w, loss, train_op = line(optimizer)
    history = tf.fit(
        train_op, [X], x, steps=3, eval=([X], 1, {"loss": loss}), averages=optimizer, progress=False
    )
    place, average, expected = np.ones(2), np.ones(2), []
    for _ in range(3):
        place = place - 0.5 * X.mean(0)
        average = average - 0.5 * (average - place)
        expected.append((X @ average).mean())
    np.testing.assert_allclose(history["eval/loss"], expected, rtol=1e-5)
    np.testing.assert_allclose(history.session.value(w), place, rtol=1e-5)


def test_a_plateau_observes_evaluations():
    plateau = T.ReduceOnPlateau(factor=0.5, patience=1)
    x, _, _, train_op = line("SGD", learning_rate_decay_fn=plateau)
    history = tf.fit(
        train_op,
        [X],
        x,
        steps=6,
        eval=([X], 1, {"always one": tf.constant(1.0)}),
        plateau=(plateau, "always one"),
        progress=False,
    )
    # The first is the best; of the others two bad ones in a row halve the rate.
    np.testing.assert_allclose(history["learning_rate"], [0.5, 0.5, 0.5, 0.25, 0.25, 0.125])


def test_the_rate_of_a_plateau_goes_on_after_a_break(tmp_path):
    def run(steps, folder):
        with tf.Graph().as_default():
            plateau = T.ReduceOnPlateau(factor=0.5, patience=0)
            x, w, _, train_op = line("SGD", learning_rate_decay_fn=plateau)
            history = tf.fit(
                train_op,
                [X],
                x,
                steps=steps,
                logdir=tmp_path / folder,
                eval=([X], 1, {"one": tf.constant(1.0)}),
                plateau=(plateau, "one"),
                progress=False,
            )
            return history.session.value(w)

    whole = run(5, "whole")
    run(2, "parts")
    np.testing.assert_array_equal(run(5, "parts"), whole)


@pytest.mark.parametrize("rate", ["a number", "another plateau's"])
def test_a_plateau_that_the_train_op_does_not_read_is_refused(rate):
    plateau = T.ReduceOnPlateau(name="mine")
    other = {} if rate == "a number" else {"learning_rate_decay_fn": T.ReduceOnPlateau()}
    x, _, loss, train_op = line("SGD", **other)
    with pytest.raises(ValueError, match=r"plateau: .* does not read <.*'mine'"):
        tf.fit(
            train_op,
            [X],
            x,
            steps=1,
            eval=([X], 1, {"loss": loss}),
            plateau=(plateau, "loss"),
            progress=False,
        )


@pytest.mark.parametrize("place", ["plain", "cond", "loop"])
def test_a_plateau_is_read_wherever_the_rate_is_made(place):
    plateau = T.ReduceOnPlateau(factor=0.5, patience=0)
    w = tf.Variable(1.0)
    if place == "cond":
        rate = tf.cond(tf.constant(True), lambda: plateau(0.1), lambda: tf.constant(0.1))
    elif place == "loop":
        rate = tf.while_loop(lambda r: r > 1.0, lambda _: [plateau(0.1)], [tf.constant(2.0)])
    else:
        rate = plateau(0.1)
    step = T.create_global_step()
    train_op = T.GradientDescentOptimizer(rate).minimize(w, global_step=step)
    history = tf.fit(
        train_op,
        [{}, {}, {}],
        steps=3,
        eval=([{}], 1, {"one": tf.constant(1.0)}),
        plateau=(plateau, "one"),
        progress=False,
    )
    # Steps of 0.1, 0.1 and 0.05: the first observation is the best, the second is a bad one.
    np.testing.assert_allclose(history.session.value(w), 0.75, rtol=1e-6)


def test_what_does_not_fit_is_refused():
    plateau = T.ReduceOnPlateau()
    x, _, loss, train_op = line("SGD", learning_rate_decay_fn=plateau)
    evaluated = {"eval": ([X], 1, {"loss": loss}), "steps": 1, "progress": False}
    with pytest.raises(ValueError, match=r"plateau: expected one of eval's names \['loss'\]"):
        tf.fit(train_op, [X], x, plateau=(plateau, "accuracy"), **evaluated)
    with pytest.raises(ValueError, match=r"plateau: expected one of eval's names \[\]"):
        tf.fit(train_op, [X], x, steps=1, plateau=(plateau, "loss"))
    with pytest.raises(TypeError, match="plateau: expected"):
        tf.fit(train_op, [X], x, plateau=plateau, **evaluated)
    with pytest.raises(TypeError, match="averages: expected an ExponentialMovingAverage"):
        tf.fit(train_op, [X], x, averages=0.9, **evaluated)
