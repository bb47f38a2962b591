"""Hyper-parameters: numbers, tensors, variables and callables, read at every step."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import optkit as tf
from tests.train.rules import picture, started

T = tf.train


def test_a_tensor_as_rate_is_read_at_every_step():
    w = tf.Variable(1.0)
    rate = tf.placeholder(tf.float32, ())
    train_op = T.GradientDescentOptimizer(rate).apply_gradients([(1.0, w)])
    session = started()
    for value, expected in ((0.25, 0.75), (0.5, 0.25), (np.float32(0.0), 0.25)):
        session.run(train_op, {rate: value})
        assert session.value(w) == expected


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_a_variable_as_rate_is_read_at_every_step(dtype):
    w, rate = tf.Variable(1.0), tf.Variable(np.array(1, dtype), trainable=False)
    train_op = T.GradientDescentOptimizer(rate).apply_gradients([(0.25, w)])
    session = started()
    session.run(train_op)
    assert session.value(w) == 0.75
    rate.load(2, session)
    session.run(train_op)
    assert session.value(w) == 0.25


def test_a_callable_rate_is_called_when_a_step_is_built():
    calls = []
    rate = tf.Variable(0.5)

    def read():
        calls.append(1)
        return rate

    w = tf.Variable(1.0)
    optimizer = T.GradientDescentOptimizer(read)
    assert calls == []
    train_op = optimizer.apply_gradients([(1.0, w)])
    assert calls == [1]
    session = started()
    session.run(train_op)
    rate.load(0.25, session)
    session.run(train_op)
    assert session.value(w) == 0.25
    assert calls == [1]
    optimizer.apply_gradients([(1.0, w)])
    assert calls == [1, 1]


HYPER = {
    "Momentum": (T.MomentumOptimizer, {"learning_rate": 0.5, "momentum": 0.5}),
    "Adagrad": (T.AdagradOptimizer, {"learning_rate": 0.5}),
    "Adam": (T.AdamOptimizer, {"learning_rate": 0.5, "beta1": 0.5, "beta2": 0.75, "epsilon": 0.5}),
    "Adadelta": (T.AdadeltaOptimizer, {"learning_rate": 0.5, "rho": 0.5, "epsilon": 0.5}),
    "RMSProp": (
        T.RMSPropOptimizer,
        {"learning_rate": 0.5, "decay": 0.5, "momentum": 0.5, "epsilon": 0.5},
    ),
    "Ftrl": (
        T.FtrlOptimizer,
        {
            "learning_rate": 0.5,
            "learning_rate_power": -0.5,
            "l1_regularization_strength": 0.5,
            "l2_regularization_strength": 0.25,
            "l2_shrinkage_regularization_strength": 0.125,
            "beta": 0.5,
        },
    ),
    "ProximalAdagrad": (
        T.ProximalAdagradOptimizer,
        {
            "learning_rate": 0.5,
            "l1_regularization_strength": 0.25,
            "l2_regularization_strength": 0.25,
        },
    ),
    "ProximalGradientDescent": (
        T.ProximalGradientDescentOptimizer,
        {
            "learning_rate": 0.5,
            "l1_regularization_strength": 0.25,
            "l2_regularization_strength": 0.25,
        },
    ),
}


@pytest.mark.parametrize(("cls", "hyper"), HYPER.values(), ids=HYPER)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: tf.constant(x),
        lambda x: tf.constant(x, tf.float64),
        lambda x: tf.Variable(x, trainable=False),
        lambda x: lambda: x,
        lambda x: lambda: tf.constant(x),
        np.float64,
        np.array,
    ],
    ids=["tensor", "float64 tensor", "variable", "callable", "callable tensor", "numpy", "0-d"],
)
def test_every_hyper_parameter_may_be_a_tensor_variable_or_callable(cls, hyper, wrap):
    def run(kwargs):
        w = tf.Variable([1.0, -2.0], name="w")
        train_op = cls(**kwargs).apply_gradients([([0.5, 0.25], w)])
        session = started()
        for _ in range(2):
            session.run(train_op)
        return session.value(w)

    with tf.Graph().as_default():
        plain = run(hyper)
    with tf.Graph().as_default():
        assert_array_equal(run({name: wrap(value) for name, value in hyper.items()}), plain)


@pytest.mark.parametrize(
    ("rate", "error", "text"),
    [
        (lambda: tf.constant([0.1]), ValueError, "learning_rate: expected a scalar"),
        (lambda: tf.constant(True), TypeError, "learning_rate: expected a real dtype"),
        (lambda: lambda: "0.1", TypeError, "learning_rate: expected a number, got '0.1'"),
        (lambda: lambda: None, TypeError, "learning_rate: expected a number, got None"),
    ],
)
def test_a_bad_hyper_parameter_is_named_and_leaves_everything_as_it_was(graph, rate, error, text):
    w = tf.Variable([1.0], name="w")
    optimizer = T.AdamOptimizer(rate())
    before = picture(graph, optimizer)
    with pytest.raises(error, match=f"Adam: {text}"):
        optimizer.apply_gradients([([1.0], w)])
    assert picture(graph, optimizer) == before
    optimizer = T.AdamOptimizer()
    assert optimizer.apply_gradients([([1.0], w)]).name == "Adam"
    assert optimizer.get_slot(w, "m").name == "w/Adam:0"


def test_learning_rate_tensor_is_the_rate_in_use():
    rate = tf.Variable(0.25)
    tensors = [
        T.AdamOptimizer(0.5).learning_rate_tensor(),
        T.FtrlOptimizer(rate).learning_rate_tensor(),
        T.GradientDescentOptimizer(lambda: 0.125).learning_rate_tensor(),
    ]
    assert started().run(tensors) == [0.5, 0.25, 0.125]
    assert T.Optimizer(False, "Mine").learning_rate_tensor() is None
