"""Properties that hold for every optimizer, whatever the numbers."""

import hypothesis.extra.numpy as arrays_of
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import optkit as tf
from tests.train.rules import (
    DECAYS_ALL_ROWS,
    FORGETS_THE_VARIABLE,
    OPTIMIZERS,
    new_step,
    run_steps,
    started,
    state,
)

# There are a dozen optimizers, and each example builds and runs graphs.
few = settings(max_examples=settings.default.max_examples // 4 + 5)
every_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)

# Numbers whose squares and quotients stay well inside every dtype.
numbers = st.integers(-64, 64).map(lambda i: i / 16)
dtypes = st.sampled_from(["float16", "float32", "float64"])
ROWS = 4


@st.composite
def named_rows(draw):
    """(values, indices) of rows of a 4 x 2 variable; indices repeat."""
    indices = draw(st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=6))
    values = draw(arrays_of.arrays(np.float64, (len(indices), 2), elements=numbers))
    return values, indices


def matrix(dtype=np.float64):
    return arrays_of.arrays(dtype, (ROWS, 2), elements=numbers)


def scattered(values, indices):
    dense = np.zeros((ROWS, 2))
    np.add.at(dense, indices, values)
    return dense


@every_optimizer
@few
@given(st.data())
def test_rows_move_as_the_dense_sum_of_the_rows_moves_them(name, data):
    initial = data.draw(matrix())
    steps = data.draw(st.lists(named_rows(), min_size=1, max_size=3))
    sparse = run_steps(OPTIMIZERS[name], initial, steps)
    # In each step the dense run takes the rows that were named, and keeps the others.
    dense = stepwise_dense(name, initial, steps)
    for key, value in dense.items():
        assert_allclose(sparse[key], value, rtol=1e-9, atol=1e-12, err_msg=key)


def stepwise_dense(name, initial, steps):
    """Dense steps with the summed rows; unnamed rows of variable and slots are put back."""
    with tf.Graph().as_default():
        step = new_step()
        w = tf.Variable(initial, name="w")
        optimizer = OPTIMIZERS[name](0.1, step)
        fed = tf.placeholder(tf.float64, w.shape)
        train_op = optimizer.apply_gradients([(fed, w)], step)
        session = started()
        for values, indices in steps:
            before = state(session, optimizer, w)
            session.run(train_op, {fed: scattered(values, indices)})
            if name in DECAYS_ALL_ROWS:
                continue
            named = np.isin(np.arange(ROWS), indices)[:, None]
            for variable in [w, *optimizer.variables()]:
                after = session.value(variable)
                variable.load(np.where(named, after, before[variable.op.name]), session)
        return state(session, optimizer, w)


@every_optimizer
@few
@given(st.data())
def test_the_order_of_named_rows_does_not_matter(name, data):
    initial = data.draw(matrix())
    values, indices = data.draw(named_rows())
    order = data.draw(st.permutations(range(len(indices))))
    plain = run_steps(OPTIMIZERS[name], initial, [(values, indices)])
    shuffled = run_steps(OPTIMIZERS[name], initial, [(values[order], [indices[i] for i in order])])
    for key, value in plain.items():
        assert_allclose(shuffled[key], value, rtol=1e-9, atol=1e-12, err_msg=key)


@every_optimizer
@few
@given(st.data())
def test_dtypes_are_kept(name, data):
    dtype = data.draw(dtypes)
    initial = data.draw(matrix()).astype(dtype)
    grads = [data.draw(st.one_of(matrix(), named_rows())) for _ in range(2)]
    for key, value in run_steps(OPTIMIZERS[name], initial, grads).items():
        if key.endswith("_power"):
            assert value.dtype == ("float64" if dtype == "float64" else "float32")
        else:
            assert value.dtype == dtype, key
        assert np.isfinite(value).all(), key


@every_optimizer
@few
@given(st.data())
def test_half_precision_follows_double_precision(name, data):
    """One step in float32, rounded once: nothing is lost on the way."""
    initial = data.draw(matrix()).astype(np.float16)
    grad = data.draw(matrix())
    half = run_steps(OPTIMIZERS[name], initial, [grad])
    full = run_steps(OPTIMIZERS[name], initial.astype(np.float64), [grad])
    for key, value in full.items():
        assert_allclose(half[key], value, rtol=2e-3, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if n not in FORGETS_THE_VARIABLE])
@few
@given(st.data())
def test_zero_gradients_leave_a_fresh_variable_unchanged(name, data):
    dtype = data.draw(dtypes)
    initial = data.draw(matrix()).astype(dtype)
    zero = data.draw(st.sampled_from([np.zeros((ROWS, 2)), (np.zeros((3, 2)), [0, 2, 2])]))
    found = run_steps(OPTIMIZERS[name], initial, [zero, zero])
    assert_array_equal(found["w"], initial)


@every_optimizer
@few
@given(st.data())
def test_the_order_of_the_variables_does_not_matter(name, data):
    initials = [data.draw(matrix()), data.draw(matrix()), data.draw(matrix())]
    grads = [data.draw(matrix()), data.draw(named_rows()), data.draw(matrix())]
    order = data.draw(st.permutations(range(3)))

    def run(order):
        with tf.Graph().as_default():
            step = new_step()
            variables = [tf.Variable(x, name=f"w{i}") for i, x in enumerate(initials)]
            optimizer = OPTIMIZERS[name](0.1, step)
            pairs = []
            for i in order:
                grad = grads[i]
                if isinstance(grad, tuple):
                    grad = tf.IndexedSlices(tf.constant(grad[0]), tf.constant(grad[1]))
                pairs.append((grad, variables[i]))
            train_op = optimizer.apply_gradients(pairs, step)
            session = started()
            for _ in range(2):
                session.run(train_op)
            return state(session, optimizer, *variables)

    plain, shuffled = run(range(3)), run(order)
    assert plain.keys() == shuffled.keys()
    for key, value in plain.items():
        assert_array_equal(shuffled[key], value, err_msg=key)


@every_optimizer
@few
@given(st.data())
def test_variables_do_not_touch_each_other(name, data):
    """A variable moves as it does alone, whatever is trained beside it."""
    initial, other = data.draw(matrix()), data.draw(matrix())
    grad, beside = data.draw(matrix()), data.draw(named_rows())
    alone = run_steps(OPTIMIZERS[name], initial, [grad, grad])
    with tf.Graph().as_default():
        step = new_step()
        w, b = tf.Variable(initial, name="w"), tf.Variable(other, name="b")
        optimizer = OPTIMIZERS[name](0.1, step)
        rows = tf.IndexedSlices(tf.constant(beside[0]), tf.constant(beside[1]))
        train_op = optimizer.apply_gradients([(rows, b), (grad, w)], step)
        session = started()
        for _ in range(2):
            session.run(train_op)
        together = state(session, optimizer, w)
    for key, value in alone.items():
        assert_array_equal(together[key], value, err_msg=key)
