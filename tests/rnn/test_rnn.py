"""Cells and what runs them, against equations written in NumPy."""

import contextlib

import numpy as np
import pytest

from optkit import rnn
from optkit.gradients import gradients
from optkit.graph import get_default_graph
from optkit.initializers import random_uniform_initializer
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.ops.linalg import matmul
from optkit.ops.math import multiply
from optkit.ops.reductions import reduce_sum
from optkit.rnn import cells, sequences
from optkit.runtime.eager import eager
from optkit.runtime.session import Session
from optkit.runtime.tape import GradientTape
from optkit.variable_scope import get_variable, variable_scope
from optkit.variables import Variable, global_variables, global_variables_initializer

assert rnn.__doc__
RNG = np.random.default_rng(11)
X = RNG.normal(size=(2, 4, 3))
LENGTHS = [2, 4]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def started():
    """A session whose variables hold numbers of every kind, by name."""
    session = Session()
    session.run(global_variables_initializer())
    rng = np.random.default_rng(5)
    values = {}
    for variable in global_variables():
        values[variable.op.name] = rng.normal(scale=0.5, size=variable.shape.as_list())
        variable.load(values[variable.op.name], session)
    return session, values


def basic(values, x, h, scope):
    h = np.tanh(np.hstack([x, h]) @ values[f"{scope}/kernel"] + values[f"{scope}/bias"])
    return h, h


def gru(values, x, h, scope):
    gates = np.hstack([x, h]) @ values[f"{scope}/gates/kernel"] + values[f"{scope}/gates/bias"]
    r, u = np.split(sigmoid(gates), 2, 1)
    kernel, bias = values[f"{scope}/candidate/kernel"], values[f"{scope}/candidate/bias"]
    h = u * h + (1 - u) * np.tanh(np.hstack([x, r * h]) @ kernel + bias)
    return h, h


def lstm(values, x, state, scope, forget_bias=1.0, clip=np.inf, proj_clip=np.inf):
    c, h = state
    gates = np.hstack([x, h]) @ values[f"{scope}/kernel"] + values[f"{scope}/bias"]
    i, j, f, o = np.split(gates, 4, 1)
    peephole = {gate: values.get(f"{scope}/w_{gate}_diag", 0.0) for gate in "fio"}
    keep = sigmoid(f + forget_bias + peephole["f"] * c)
    c = np.clip(keep * c + sigmoid(i + peephole["i"] * c) * np.tanh(j), -clip, clip)
    h = sigmoid(o + peephole["o"] * c) * np.tanh(c)
    if f"{scope}/projection/kernel" in values:
        h = np.clip(h @ values[f"{scope}/projection/kernel"], -proj_clip, proj_clip)
    return h, (c, h)


CELLS = [
    pytest.param(
        lambda: cells.BasicRNNCell(5), basic, {}, ["kernel", "bias"], "basic_rnn_cell", id="basic"
    ),
    pytest.param(
        lambda: cells.GRUCell(5),
        gru,
        {},
        ["gates/kernel", "gates/bias", "candidate/kernel", "candidate/bias"],
        "gru_cell",
        id="gru",
    ),
    pytest.param(
        lambda: cells.BasicLSTMCell(5), lstm, {}, ["kernel", "bias"], "basic_lstm_cell", id="lstm"
    ),
    pytest.param(
        lambda: cells.LSTMCell(
            5, use_peepholes=True, cell_clip=0.4, num_proj=2, proj_clip=0.2, forget_bias=0.5
        ),
        lstm,
        {"forget_bias": 0.5, "clip": 0.4, "proj_clip": 0.2},
        ["kernel", "bias", "w_f_diag", "w_i_diag", "w_o_diag", "projection/kernel"],
        "lstm_cell",
        id="everything",
    ),
]


def expected_run(step, settings, values, scope, cell, lengths):
    """One example after the other, one step after the other."""
    leaves = cell.state_size if isinstance(cell.state_size, tuple) else (cell.state_size,)
    outputs = np.zeros((2, 4, cell.output_size))
    finals = [np.zeros((2, n)) for n in leaves]
    for b in range(2):
        state = tuple(np.zeros((1, n)) for n in leaves)
        for t in range(lengths[b]):
            given = state if len(leaves) > 1 else state[0]
            out, new = step(values, X[b : b + 1, t], given, scope, **settings)
            outputs[b, t] = out
            state = new if len(leaves) > 1 else (new,)
        for final, part in zip(finals, state, strict=True):
            final[b] = part
    return outputs, finals


@pytest.mark.parametrize("form", ["dynamic", "time major", "looped", "static"])
@pytest.mark.parametrize(("make", "step", "settings", "names", "name"), CELLS)
def test_values_and_names(make, step, settings, names, name, form):
    cell = make()
    feed = {}
    if form == "static":
        steps = [constant(X[:, t]) for t in range(4)]
        outputs, state = sequences.static_rnn(cell, steps, None, "float64", LENGTHS)
    elif form == "looped":
        x = placeholder("float64", [None, None, 3])
        feed = {x: X}
        outputs, state = sequences.dynamic_rnn(cell, x, LENGTHS, dtype="float64")
        assert "While" in {op.type for op in get_default_graph().get_operations()}
    elif form == "time major":
        outputs, state = sequences.dynamic_rnn(
            cell, X.swapaxes(0, 1), LENGTHS, dtype="float64", time_major=True
        )
    else:
        outputs, state = sequences.dynamic_rnn(cell, X, LENGTHS, dtype="float64")
        assert outputs.shape == [2, 4, cell.output_size]
    assert [v.op.name for v in global_variables()] == [f"rnn/{name}/{n}" for n in names]
    assert [v.op.name for v in cell.variables] == [f"rnn/{name}/{n}" for n in names]
    session, values = started()
    found, last = session.run([outputs, state], feed)
    if form in ("static", "time major"):
        found = np.swapaxes(found, 0, 1)
    expected, finals = expected_run(step, settings, values, f"rnn/{name}", cell, LENGTHS)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    if not isinstance(cell.state_size, tuple):
        last = (last,)
    for a, b in zip(last, finals, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_gradients_of_the_loop_are_those_of_the_steps(lengths):
    x = placeholder("float64", [None, None, 3])
    cell = cells.MultiRNNCell([cells.BasicLSTMCell(3), cells.GRUCell(2)])
    looped, _ = sequences.dynamic_rnn(cell, x, lengths, dtype="float64")
    with variable_scope("", reuse=True):
        unrolled, _ = sequences.dynamic_rnn(cell, X, lengths, dtype="float64")
    variables = global_variables()
    assert len(variables) == 6
    session, _ = started()
    weights = RNG.normal(size=(2, 4, 2))
    results = [
        [y, *gradients(reduce_sum(multiply(y, weights)), variables)] for y in (looped, unrolled)
    ]
    for a, b in zip(*session.run(results, {x: X}), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-14)


def test_initial_values():
    sequences.dynamic_rnn(cells.GRUCell(2), X, dtype="float64", scope="a")
    sequences.dynamic_rnn(
        cells.LSTMCell(2, initializer=random_uniform_initializer(1, 2)), X, dtype="float64"
    )
    session = Session()
    session.run(global_variables_initializer())
    values = {v.op.name: session.run(v) for v in global_variables()}
    np.testing.assert_array_equal(values["a/gru_cell/gates/bias"], np.ones(4))
    np.testing.assert_array_equal(values["a/gru_cell/candidate/bias"], np.zeros(2))
    np.testing.assert_array_equal(values["rnn/lstm_cell/bias"], np.zeros(8))
    kernel = values["rnn/lstm_cell/kernel"]
    assert kernel.min() >= 1
    assert kernel.max() < 2


@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_bidirectional(lengths):
    x = constant(X)
    make = lambda: (cells.BasicRNNCell(3), cells.BasicRNNCell(2))  # noqa: E731
    (fw, bw), states = sequences.bidirectional_dynamic_rnn(*make(), x, lengths, dtype="float64")
    names = [v.op.name for v in global_variables()]
    assert names == [
        f"bidirectional_rnn/{side}/basic_rnn_cell/{part}"
        for side in ("fw", "bw")
        for part in ("kernel", "bias")
    ]
    with variable_scope("", reuse=True):
        listed, *ends = sequences.static_bidirectional_rnn(
            *make(), [x[:, t] for t in range(4)], dtype="float64", sequence_length=lengths
        )
    session, values = started()
    found = session.run([fw, bw, states, listed, ends])
    counts = lengths or [4, 4]
    forward = np.zeros((2, 4, 3))
    backward = np.zeros((2, 4, 2))
    last = [np.zeros((2, 3)), np.zeros((2, 2))]
    for b in range(2):
        for out, order, side, n in (
            (forward, range(counts[b]), "fw", 3),
            (backward, reversed(range(counts[b])), "bw", 2),
        ):
            h = np.zeros((1, n))
            for t in order:
                scope = f"bidirectional_rnn/{side}/basic_rnn_cell"
                out[b, t], h = basic(values, X[b : b + 1, t], h, scope)
            last[0 if side == "fw" else 1][b] = h
    np.testing.assert_allclose(found[0], forward, rtol=1e-10)
    np.testing.assert_allclose(found[1], backward, rtol=1e-10)
    both = np.concatenate([forward, backward], 2).swapaxes(0, 1)
    np.testing.assert_allclose(found[3], both, rtol=1e-10)
    for got in (found[2], found[4]):
        for a, b in zip(got, last, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10)


def test_a_cell_keeps_its_variables():
    cell = cells.BasicLSTMCell(2)
    state = cell.zero_state(2, "float64")
    assert isinstance(state, cells.LSTMStateTuple)
    first, state = cell(X[:, 0], state)
    with variable_scope("elsewhere"):
        cell(X[:, 1], state)
    assert [v.op.name for v in global_variables()] == [
        "basic_lstm_cell/kernel",
        "basic_lstm_cell/bias",
    ]
    assert first.shape == [2, 2]
    with pytest.raises(ValueError, match=r"inputs: expected shape \(batch, 3\)"):
        cell(X[:, 0, :2], state)
    with pytest.raises(TypeError, match="basic_lstm_cell: state: expected a LSTMStateTuple of 2"):
        cell(X[:, 0], first)


def test_states_side_by_side():
    tuples, flat = cells.BasicLSTMCell(2, name="a"), cells.BasicLSTMCell(2, 1.0, False, name="a")
    state = RNG.normal(size=(2, 4))
    c, h = constant(state[:, :2]), constant(state[:, 2:])
    with variable_scope("s"):
        y, new = tuples(X[:, 0], cells.LSTMStateTuple(c, h))
    with variable_scope("s", reuse=True):
        z, joined = flat(X[:, 0], constant(state))
    assert flat.state_size == 4
    session, _ = started()
    values = session.run([y, z, new, joined])
    np.testing.assert_array_equal(values[0], values[1])
    np.testing.assert_array_equal(np.hstack(values[2]), values[3])
    stacked = cells.MultiRNNCell([cells.GRUCell(2), cells.GRUCell(3)], state_is_tuple=False)
    out, new = stacked(X[:, 0], stacked.zero_state(2, "float64"))
    assert (out.shape, new.shape) == ([2, 3], [2, 5])


class Own(cells.RNNCell):
    """A cell in the style of TF1's tutorials."""

    state_size = 3
    output_size = 3

    def call(self, inputs, state):
        w = get_variable("w", [3, 3], "float64")
        state = matmul(state, w) + inputs
        return state, state


@pytest.mark.parametrize("known", [True, False])
def test_a_cell_of_ones_own(known):
    x = placeholder("float64", [2, 4, 3] if known else [None, None, 3])
    outputs, _ = sequences.dynamic_rnn(Own(), x, dtype="float64")
    assert [v.op.name for v in global_variables()] == ["rnn/own/w"]
    session, values = started()
    h = np.zeros((2, 3))
    for t in range(4):
        h = h @ values["rnn/own/w"] + X[:, t]
    for _ in range(3):
        np.testing.assert_allclose(session.run(outputs, {x: X})[:, 3], h)


def test_dropout_draws_for_each_step():
    ones = np.ones((1, 6, 50))
    x = placeholder("float64", [None, None, 50])
    for inputs in (constant(ones), x):
        outer = cells.DropoutWrapper(Passing(), 0.5, 0.8, seed=3)
        with variable_scope("a" if inputs is x else "b"):
            outputs, _ = sequences.dynamic_rnn(outer, inputs, dtype="float64")
        session = Session()
        first, second = (session.run(outputs, {x: ones})[0] for _ in range(2))
        assert set(np.unique(np.round(first, 6))) <= {0.0, 2.5}
        assert 0.3 < (first > 0).mean() < 0.5
        assert len({row.tobytes() for row in first}) == 6
        assert (first != second).any()
        np.testing.assert_array_equal(Session().run(outputs, {x: ones})[0], first)


class Passing(cells.RNNCell):
    """Gives its inputs; the state counts steps."""

    state_size = 1
    output_size = 50

    def call(self, inputs, state):
        return inputs, state + 1.0


def test_dropout_of_states_leaves_memories_alone():
    wrapped = cells.DropoutWrapper(cells.BasicLSTMCell(40), state_keep_prob=0.5, seed=1)
    _, (c, h) = wrapped(np.ones((3, 2)), wrapped.zero_state(3, "float64"))
    session, _ = started()
    c, h = session.run([c, h])
    assert (c != 0).all()
    assert 0.3 < (h == 0).mean() < 0.7
    with pytest.raises(ValueError, match=r"input_keep_prob: expected a number in \(0, 1\]"):
        cells.DropoutWrapper(wrapped, input_keep_prob=0.0)


def test_a_variational_mask_is_one_for_all_steps():
    wrapped = cells.DropoutWrapper(
        Passing(), 0.5, variational_recurrent=True, input_size=50, dtype="float64"
    )
    x = placeholder("float64", [None, None, 50])
    outputs, _ = sequences.dynamic_rnn(wrapped, x, dtype="float64")
    value = Session().run(outputs, {x: np.ones((2, 5, 50))})
    assert set(np.unique(value)) == {0.0, 2.0}
    assert (value == value[0, 0]).all()


def test_residuals():
    wrapped = cells.ResidualWrapper(Passing())
    y, _ = wrapped(np.ones((1, 50)), wrapped.zero_state(1, "float64"))
    np.testing.assert_array_equal(Session().run(y), np.full((1, 50), 2))


def test_eager_mode():
    with eager(), GradientTape() as tape:
        cell = cells.BasicLSTMCell(3)
        y, _ = sequences.dynamic_rnn(cell, X, LENGTHS, dtype="float64")
        loss = reduce_sum(y * y)
        found = tape.gradient(loss, cell.variables)
        values = [v.numpy() for v in cell.variables]
        found = [dx.numpy() for dx in found]
    y, _ = sequences.dynamic_rnn(cells.BasicLSTMCell(3), X, LENGTHS, dtype="float64")
    session = Session()
    for variable, value in zip(global_variables(), values, strict=True):
        variable.load(value, session)
    expected = session.run(gradients(reduce_sum(y * y), global_variables()))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_mistakes():
    cell = cells.GRUCell(2)
    x = constant(X)
    cases = [
        (TypeError, "cell: expected an RNNCell", lambda: sequences.dynamic_rnn(3, x)),
        (ValueError, "dtype: expected one where", lambda: sequences.dynamic_rnn(cell, x)),
        (
            ValueError,
            r"inputs: expected shape \(batch, time, depth\)",
            lambda: sequences.dynamic_rnn(cell, x[0], dtype="float64"),
        ),
        (
            ValueError,
            r"sequence_length: expected integers of shape \(2,\)",
            lambda: sequences.dynamic_rnn(cell, x, [1], dtype="float64"),
        ),
        (TypeError, "inputs: expected a list", lambda: sequences.static_rnn(cell, x)),
        (ValueError, "at least one step", lambda: sequences.static_rnn(cell, [])),
        (ValueError, "num_units: expected an int", lambda: cells.GRUCell(0)),
        (ValueError, "cells: expected a list", lambda: cells.MultiRNNCell([])),
        (TypeError, "cell: expected an RNNCell", lambda: cells.DropoutWrapper(3)),
        (TypeError, "activation: expected a function", lambda: cells.GRUCell(2, "sine")),
    ]
    for kind, message, call in cases:
        with pytest.raises(kind, match=message):
            call()
    assert global_variables() == []
    v = Variable(1.0)
    assert [v] == global_variables()


def test_tf1s_namespaces():
    import optkit

    assert optkit.nn.rnn_cell is cells
    assert optkit.nn.dynamic_rnn is sequences.dynamic_rnn
    assert optkit.contrib.rnn.static_rnn is sequences.static_rnn
    assert optkit.contrib.rnn.BasicLSTMCell is cells.BasicLSTMCell


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_dynamic_rnn_over_no_steps_keeps_its_state(mode):
    with eager() if mode == "eager" else contextlib.nullcontext():
        cell = cells.LSTMCell(3)
        first = cells.LSTMStateTuple(constant(np.ones((2, 3))), constant(np.full((2, 3), 2.0)))
        inputs = constant(np.zeros((2, 0, 4)))
        outputs, last = sequences.dynamic_rnn(cell, inputs, initial_state=first)
        assert outputs.shape == [2, 0, 3]
        assert [v.shape for v in cell.trainable_weights] == [[7, 12], [12]]
        found = [x.numpy() for x in last] if mode == "eager" else list(Session().run(last))
    np.testing.assert_array_equal(found, [np.ones((2, 3)), np.full((2, 3), 2.0)])


@pytest.mark.parametrize("shape", [(2, 4), (3, 5), (5,)])
def test_an_initial_state_of_another_shape_is_refused(shape):
    state = constant(np.ones(shape))
    with pytest.raises(ValueError, match=r"initial_state: expected shape \(2, 5\), .* got"):
        sequences.dynamic_rnn(cells.GRUCell(5), constant(X), initial_state=state)
    with pytest.raises(ValueError, match=r"initial_state: expected shape \(2, 5\), .* got"):
        sequences.static_rnn(cells.GRUCell(5), [constant(X[:, 0])], initial_state=state)
