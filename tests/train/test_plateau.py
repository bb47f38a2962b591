"""ReduceOnPlateau: PyTorch's numbers, checkpoints, graph and eager."""

import numpy as np
import pytest

import optkit as tf
from tests.train.rules import started

METRICS = [
    *(1.0, 0.9, 0.95, 0.95, 0.91, 0.8, 0.8, 0.79999),
    *(0.8, np.nan, 0.85, 0.1, 0.2, 0.3, 0.3, 0.3),
]
# torch.optim.lr_scheduler.ReduceLROnPlateau of 2.13 with eps=0 and a rate of 1.
TORCH = [
    (
        {"factor": 0.5, "patience": 1},
        [1.0] * 3 + [0.5] * 4 + [0.25] * 2 + [0.125] * 4 + [0.0625] * 2 + [0.03125],
    ),
    (
        {"factor": 0.5, "patience": 0, "cooldown": 2},
        [1.0] * 2 + [0.5] * 4 + [0.25] * 3 + [0.125] * 3 + [0.0625] * 3 + [0.03125],
    ),
    (
        {"factor": 0.25, "patience": 1, "mode": "max"},
        [0.25 ** (i // 2) for i in range(16)],
    ),
    (
        {
            **{"factor": 0.5, "patience": 2, "cooldown": 1},
            **{"threshold": 0.05, "threshold_mode": "abs"},
        },
        [1.0] * 4 + [0.5] * 4 + [0.25] * 6 + [0.125] * 2,
    ),
    (
        {
            **{"factor": 0.5, "patience": 1, "mode": "max", "threshold": 0.1},
            "min_learning_rate": 0.2,
        },
        [1.0] * 2 + [0.5] * 2 + [0.25] * 2 + [0.2] * 10,
    ),
]
every_case = pytest.mark.parametrize(("arguments", "expected"), TORCH)


@every_case
def test_rates_are_pytorchs(arguments, expected):
    plateau = tf.train.ReduceOnPlateau(**arguments)
    rate = plateau(1.0)
    session = started()
    found = []
    for metric in METRICS:
        plateau.observe(metric, session)
        found.append(float(session.run(rate)))
    assert found == pytest.approx(expected)


@every_case
def test_eager_rates_are_the_same(arguments, expected):
    with tf.eager():
        plateau = tf.train.ReduceOnPlateau(**arguments)
        rate = plateau(np.float64(1.0))
        found = []
        for metric in METRICS:
            plateau.observe(metric)
            found.append(float(rate().numpy()))
        assert found == pytest.approx(expected)


def test_a_tensor_may_be_observed_in_the_graph():
    metric = tf.placeholder(tf.float32, ())
    plateau = tf.train.ReduceOnPlateau(factor=0.5, patience=0)
    update = plateau.update(metric)
    session = started()
    for value in (1.0, 2.0, 0.5, 0.5):
        session.run(update, {metric: value})
    assert session.value(plateau.scale) == 0.25
    assert session.value(plateau.best) == 0.5


def test_negative_metrics_improve_downwards():
    plateau = tf.train.ReduceOnPlateau(factor=0.5, patience=0, threshold=0.1)
    session = started()
    assert [plateau.observe(m, session) for m in (-1.0, -1.05, -1.2)] == [1.0, 0.5, 0.5]


def test_it_is_a_decay_function_and_its_state_is_in_checkpoints(tmp_path):
    def build():
        w = tf.Variable(0.0, name="w")
        plateau = tf.train.ReduceOnPlateau(factor=0.5, patience=1)
        train_op = tf.contrib.layers.optimize_loss(
            w, tf.train.create_global_step(), 1.0, "SGD", learning_rate_decay_fn=plateau
        )
        return w, plateau, train_op

    w, plateau, train_op = build()
    session = started()
    session.run(train_op)
    for metric in (1.0, 2.0, 2.0, 2.0):
        scale = plateau.observe(metric, session)
    assert scale == 0.5
    session.run(train_op)
    assert session.value(w) == -1.5
    path = tf.train.Saver().save(session, str(tmp_path / "model"))
    with tf.Graph().as_default():
        w, plateau, train_op = build()
        session = tf.Session()
        tf.train.Saver().restore(session, path)
        session.run(train_op)
        assert session.value(w) == -2.0
        assert plateau.observe(2.0, session) == 0.25  # the second bad one after the reduction


def test_a_run_of_a_finalized_graph_can_be_observed():
    plateau = tf.train.ReduceOnPlateau(patience=0)
    session = started()
    tf.get_default_graph().finalize()
    with session.as_default():
        plateau.observe(1.0)
        assert plateau.observe(1.0) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"factor": 1.0}, "factor: expected > 0 and < 1"),
        ({"patience": -1}, "patience: expected >= 0"),
        ({"cooldown": 1.5}, "cooldown: expected an integer >= 0"),
        ({"mode": "auto"}, "mode: expected 'min' or 'max'"),
        ({"threshold": -1.0}, "threshold: expected >= 0"),
        ({"threshold_mode": "relative"}, "threshold_mode: expected 'rel' or 'abs'"),
        ({"min_learning_rate": -1.0}, "min_learning_rate: expected >= 0"),
    ],
)
def test_bad_arguments_are_refused(arguments, text):
    with pytest.raises(ValueError, match=text):
        tf.train.ReduceOnPlateau(**arguments)


def test_bad_metrics_are_refused():
    plateau = tf.train.ReduceOnPlateau()
    with pytest.raises(ValueError, match="metric: expected a scalar"):
        plateau.update(tf.constant([1.0]))
    with pytest.raises(TypeError, match="metric: expected a real dtype"):
        plateau.update(tf.constant("low"))
    with pytest.raises(ValueError, match="session: expected one, got None"):
        plateau.observe(1.0)
