"""Eager mode: the same operations, carried out when they are built."""

from __future__ import annotations

import copy
import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest

import optkit as tf
from optkit.errors import InvalidArgumentError


@pytest.fixture(autouse=True)
def eager_mode(graph, monkeypatch):
    with tf.eager():
        # Another test's step may still wait for the garbage collector.
        monkeypatch.setattr(tf.get_default_graph(), "_global_step", lambda: None)
        yield


def test_a_tensor_has_its_value():
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal((x @ x + 1).numpy(), [[8, 11], [16, 23]])
    assert (float(x[0, 1]), int(x[1, 0]), len(x), [float(row[0]) for row in x]) == (2, 3, 2, [1, 3])
    assert bool(tf.reduce_all(x > 0)) is True
    assert [10, 20, 30][tf.constant(1)] == 20
    assert np.asarray(np.tanh(x)).dtype == np.float32
    assert f"{x[0, 0]:.2f}" == "1.00"
    assert "numpy=" in repr(x)


def test_a_tensor_of_eager_mode_is_refused_in_a_graph_and_the_reverse():
    x = tf.constant(1.0)
    graph = tf.Graph()
    with graph.as_default():
        y = tf.constant(2.0)
        assert not tf.executing_eagerly()
        with pytest.raises((RuntimeError, ValueError), match=r"another graph|eager"):
            _ = x + y
    with pytest.raises(RuntimeError, match="built in a graph"):
        _ = x + y


def test_a_graph_takes_nothing_of_eager_mode_and_says_so():
    x = tf.constant(1.0)
    v = tf.Variable(1.0)
    layer = tf.layers.Dense(2)
    layer(tf.ones([1, 3]))
    with tf.Graph().as_default(), tf.Session() as session:
        y = tf.placeholder("float32", [])
        for refused in (
            lambda: y * x,
            lambda: y * v,
            lambda: layer(tf.ones([1, 3])),
            lambda: session.run(x),
            lambda: session.run(v),
            lambda: tf.group(x),
            lambda: tf.variables_initializer([v]),
            lambda: tf.control_dependencies([x]).__enter__(),
            lambda: tf.gradients(y, [v]),
            lambda: tf.train.AdamOptimizer().minimize(y, var_list=[v]),
            lambda: tf.while_loop(lambda i: i < 3.0, lambda i: i + x, [y]),
        ):
            with pytest.raises(ValueError, match=r"(has its value|was made) in eager mode"):
                refused()
        with pytest.raises(RuntimeError, match="was made in eager mode"):
            tf.gradients(x, [x])
        with pytest.raises(TypeError, match=r"feed arrays or numbers, .* x\.numpy\(\)"):
            session.run(y, {y: x})


def test_a_copy_of_a_value_is_the_value():
    x = tf.constant([1.0, 2.0])
    assert copy.copy(x) is x
    assert copy.deepcopy({"x": [x]}) == {"x": [x]}


def test_a_failing_kernel_keeps_no_values():
    x = tf.constant([1.0])
    kept = weakref.ref(x)

    def fails(x):
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.gather(x, [7])

    gc.collect()
    gc.disable()
    try:
        fails(x)
        del x
        assert kept() is None
    finally:
        gc.enable()


def test_variables_hold_their_own_arrays_and_collections_do_not_grow():
    v = tf.Variable([1.0, 2.0])
    v.assign_add([1.0, 1.0])
    np.testing.assert_array_equal(v.numpy(), [2, 3])
    assert float(v[0]) == 2
    tf.get_variable("w", [3])
    assert tf.global_variables() == []
    assert tf.trainable_variables() == []


def test_what_is_dropped_is_freed_at_once():
    gc.disable()
    try:
        x = tf.Variable(np.ones(1000))
        y = tf.reduce_sum(x * x)
        with tf.GradientTape() as tape:
            z = tf.reduce_sum(x * x * y)
        seen = [weakref.ref(item) for item in (y, z)]
        del y, z, tape
        assert [ref() for ref in seen] == [None, None]
    finally:
        gc.enable()


def test_a_failing_operation_names_itself_and_changes_nothing():
    v = tf.Variable([1.0, 2.0])
    with pytest.raises(InvalidArgumentError, match="operation 'ScatterAdd"):
        tf.scatter_add(v, [5], [1.0])
    np.testing.assert_array_equal(v.numpy(), [1, 2])


def test_random_numbers_follow_the_seed():
    def draws():
        tf.set_random_seed(3)
        return [tf.random_normal([2]).numpy(), tf.random_uniform([2], seed=1).numpy()]

    first = draws()
    np.testing.assert_array_equal(first, draws())
    assert not np.array_equal(tf.random_normal([2]).numpy(), tf.random_normal([2]).numpy())


def test_placeholders_and_sessions_need_a_graph():
    with pytest.raises(RuntimeError, match="no session to feed"):
        tf.placeholder(tf.float32)
    with pytest.raises(RuntimeError, match="has a value already"):
        tf.constant(1.0).eval()


def test_cond_calls_the_side_taken():
    taken = []
    result = tf.cond(
        tf.constant(True), lambda: taken.append(1) or tf.constant(1.0), lambda: taken.append(2)
    )
    assert (float(result), taken) == (1, [1])


def test_enable_eager_execution_holds_for_the_process():
    code = (
        "import optkit as tf\n"
        "tf.enable_eager_execution()\n"
        "assert tf.executing_eagerly()\n"
        "print(float(tf.constant(2.0) * 3))\n"
        "tf.disable_eager_execution()\n"
        "x = tf.constant(1.0)\n"
        "try:\n"
        "    tf.enable_eager_execution()\n"
        "except ValueError as error:\n"
        "    print('refused', error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("6.0\nrefused enable_eager_execution must come before")


# -- training -------------------------------------------------------------------------------------

OPTIMIZERS = {
    "sgd": lambda step: tf.train.GradientDescentOptimizer(0.1),
    "momentum": lambda step: tf.train.MomentumOptimizer(0.1, 0.9),
    "adagrad": lambda step: tf.train.AdagradOptimizer(0.1),
    "adagrad_da": lambda step: tf.train.AdagradDAOptimizer(0.1, step),
    "adam": lambda step: tf.train.AdamOptimizer(0.1),
    "adadelta": lambda step: tf.train.AdadeltaOptimizer(1.0),
    "rmsprop": lambda step: tf.train.RMSPropOptimizer(0.1, centered=True),
    "ftrl": lambda step: tf.train.FtrlOptimizer(0.1),
    "proximal_adagrad": lambda step: tf.train.ProximalAdagradOptimizer(0.1),
    "proximal_sgd": lambda step: tf.train.ProximalGradientDescentOptimizer(0.1),
}


def trained_in_a_graph(make):
    with tf.Graph().as_default() as graph:
        step = tf.train.create_global_step()
        w = tf.Variable([[1.0, -2.0], [0.5, 3.0]])
        b = tf.Variable(0.25)
        loss = tf.reduce_sum(tf.square(w)) + tf.reduce_sum(tf.gather(w, [0, 0])) + b * b
        train = make(step).minimize(loss, global_step=step)
        with tf.Session(graph=graph) as session:
            session.run(tf.global_variables_initializer())
            for _ in range(4):
                session.run(train)
            return [session.value(v) for v in (w, b, step)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_trains_as_in_a_graph(name):
    expected = trained_in_a_graph(OPTIMIZERS[name])
    step = tf.train.create_global_step()
    w = tf.Variable([[1.0, -2.0], [0.5, 3.0]])
    b = tf.Variable(0.25)
    optimizer = OPTIMIZERS[name](step)

    def loss():
        return tf.reduce_sum(tf.square(w)) + tf.reduce_sum(tf.gather(w, [0, 0])) + b * b

    for _ in range(2):
        assert optimizer.minimize(loss, global_step=step) is None
    for _ in range(2):
        with tf.GradientTape() as tape:
            value = loss()
        gradients = tape.gradient(value, [w, b])
        optimizer.apply_gradients(zip(gradients, [w, b], strict=True), global_step=step)
    for got, wanted in zip((w.numpy(), b.numpy(), step.numpy()), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
    for slot in optimizer.get_slot_names():
        assert optimizer.get_slot(w, slot).numpy().shape == (2, 2)


def test_a_tensor_as_loss_is_refused():
    w = tf.Variable(1.0)
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    for build in (optimizer.minimize, optimizer.compute_gradients):
        with pytest.raises(RuntimeError, match="expected a function"):
            build(w * w)
    with pytest.raises(RuntimeError, match="GradientTape"):
        tf.gradients(w * w, w)
    with pytest.raises(RuntimeError, match="eager mode runs everything at once"):
        tf.contrib.layers.optimize_loss(w * w, None, 0.1, "SGD")
    with pytest.raises(RuntimeError, match="eager mode runs everything at once"):
        tf.contrib.training.create_train_op(w * w, optimizer)


def test_grad_loss_weighs_a_callable_loss():
    w = tf.Variable([1.0, 2.0])
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    ((gradient, variable),) = optimizer.compute_gradients(
        lambda: w * w, [w], grad_loss=tf.constant([10.0, 1.0])
    )
    assert variable is w
    np.testing.assert_array_equal(gradient.numpy(), [20, 4])


def test_variables_of_equal_names_have_their_own_slots():
    first, second = tf.Variable(1.0, name="w"), tf.Variable(2.0, name="w")
    optimizer = tf.train.MomentumOptimizer(1.0, 0.5)
    optimizer.apply_gradients([(tf.constant(1.0), first), (tf.constant(3.0), second)])
    slots = [float(optimizer.get_slot(v, "momentum")) for v in (first, second)]
    assert slots == [1, 3]


def test_a_failing_step_leaves_all_variables_as_they_were():
    class Failing(tf.train.Optimizer):
        def __init__(self):
            super().__init__(False, "Failing")

        def update(self, xp, w, g):
            if w.ndim == 1 and np.any(g > 2):
                raise ValueError("too large")
            return w - g

    first, second = tf.Variable([1.0]), tf.Variable([2.0])
    with pytest.raises(InvalidArgumentError, match="too large"):
        Failing().apply_gradients([(tf.constant([1.0]), first), (tf.constant([3.0]), second)])
    assert (float(first[0]), float(second[0])) == (1, 2)


def test_a_schedule_is_read_at_every_step():
    step = tf.train.create_global_step()
    rate = tf.train.exponential_decay(1.0, step, 1, 0.5)
    w = tf.Variable(4.0)
    optimizer = tf.train.GradientDescentOptimizer(rate)
    for expected in (3.0, 2.5, 2.25):
        optimizer.apply_gradients([(tf.constant(1.0), w)], global_step=step)
        assert float(w) == expected
