"""Optimizers in eager mode: they move variables at once, and as in a graph."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import optkit as tf
from optkit.runtime.eager import eager
from tests.train.rules import OPTIMIZERS, new_step, run_steps

T = tf.train

every_optimizer = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)


def value(variable):
    return variable.read_value().numpy()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@every_optimizer
def test_steps_give_the_numbers_of_a_graph(make, dtype):
    initial = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype)
    grads = [np.full((3, 2), 0.5), ([[0.5, 0.25], [1.0, 2.0], [0.25, 0.5]], [2, 0, 2])]
    expected = run_steps(make, initial, grads)
    with eager():
        step = new_step()
        w = tf.Variable(initial, name="w")
        optimizer = make(0.1, step)
        for grad in grads:
            if isinstance(grad, tuple):
                grad = tf.IndexedSlices(tf.constant(grad[0], dtype), tf.constant(grad[1]))
            assert optimizer.apply_gradients([(grad, w)], step) is None
        assert value(step) == 2
        assert_array_equal(value(w), expected["w"])
        for slot in optimizer.get_slot_names():
            assert value(optimizer.get_slot(w, slot)).dtype == dtype


@every_optimizer
def test_minimize_takes_a_function(make):
    with eager():
        w, idle = tf.Variable([1.0, -2.0]), tf.Variable([3.0])
        step = new_step()
        optimizer = make(0.1, step)
        loss = lambda: tf.reduce_sum(tf.square(w - 0.5))  # noqa: E731
        before = loss().numpy()
        for _ in range(5):
            assert optimizer.minimize(loss, step) is None
        assert loss().numpy() < before
        assert_array_equal(value(idle), [3.0])
        assert value(step) == 5


def test_a_tensor_is_no_loss():
    with eager():
        w = tf.Variable([1.0])
        with pytest.raises(RuntimeError, match="in eager mode expected a function"):
            T.GradientDescentOptimizer(0.1).minimize(w * w)


def test_variables_of_one_name_have_slots_of_their_own():
    with eager():
        a, b = tf.Variable([1.0]), tf.Variable([[1.0, 2.0]])
        assert a.name == b.name
        optimizer = T.AdamOptimizer()
        optimizer.apply_gradients([([1.0], a), ([[1.0, 2.0]], b)])
        assert value(optimizer.get_slot(a, "m")).shape == (1,)
        assert value(optimizer.get_slot(b, "m")).shape == (1, 2)


def test_an_error_leaves_everything_as_it_was():
    with eager():
        w, e = tf.Variable([1.0, 2.0]), tf.Variable([1.0, 2.0])
        step = new_step()
        optimizer = T.AdamOptimizer()
        optimizer.apply_gradients([([1.0, 1.0], w)], step)
        before = [value(w), value(optimizer.get_slot(w, "m"))]
        bad = tf.IndexedSlices(tf.constant([1.0]), tf.constant([5]))
        with pytest.raises(tf.errors.InvalidArgumentError, match="expected row numbers"):
            optimizer.apply_gradients([([1.0, 1.0], w), (bad, e)], step)
        assert_array_equal([value(w), value(optimizer.get_slot(w, "m"))], before)
        assert value(step) == 1
        assert optimizer.get_slot(e, "m") is None


def test_callables_are_called_at_every_step():
    with eager():
        rates = iter([0.5, 0.25])
        w = tf.Variable(1.0)
        optimizer = T.GradientDescentOptimizer(lambda: next(rates))
        for expected in (0.5, 0.25):
            optimizer.apply_gradients([(1.0, w)])
            assert value(w) == expected
