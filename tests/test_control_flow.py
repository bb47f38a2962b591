"""Loops in both modes: values, gradients against unrolled graphs, random numbers, errors."""

import contextlib

import numpy as np
import pytest

from optkit.control_flow import foldl, foldr, map_fn, scan, while_loop
from optkit.errors import InvalidArgumentError
from optkit.gradients import gradients
from optkit.graph import get_default_graph
from optkit.ops.array import concat, ones, placeholder, shape, stack
from optkit.ops.control import cond
from optkit.ops.core import constant
from optkit.ops.elementary import tanh
from optkit.ops.linalg import matmul
from optkit.ops.nn import dropout
from optkit.ops.random import random_uniform, set_random_seed
from optkit.ops.reductions import reduce_sum
from optkit.ops.state_ops import assign_add
from optkit.runtime.eager import eager
from optkit.runtime.session import Session
from optkit.runtime.tape import GradientTape
from optkit.train.moving_averages import assign_moving_average
from optkit.variables import Variable, global_variables_initializer

X = np.array([0.3, -1.2, 0.8])


def run(fetches, feed=None, times=3):
    """The values of the last of several runs: the first ones are interpreted."""
    session = Session()
    for _ in range(times):
        values = session.run(fetches, feed)
    return values


def test_while_loop_counts():
    i, total = while_loop(lambda i, t: i < 5, lambda i, t: (i + 1, t + i), [0, 0])
    assert (i.dtype, i.shape.as_list()) == ("int32", [])
    assert tuple(run([i, total])) == (5, 10)
    single = while_loop(lambda i: i < 3, lambda i: i + 1, [0])
    assert run(single) == 3
    kept = while_loop(lambda i: i < 3, lambda i: [i + 1], [0], return_same_structure=True)
    assert isinstance(kept, list)
    never = while_loop(lambda i: i < 0, lambda i: i + 1, [7])
    assert run(never) == 7


def test_structures():
    start = {"b": (constant(1), [constant(2.0)]), "a": constant(3)}
    found = while_loop(
        lambda n, s: n < 2,
        lambda n, s: (n + 1, {"a": s["a"] + 1, "b": (s["b"][0] * 3, [s["b"][1][0] * 2])}),
        (0, start),
    )
    assert run(list(found)) == [2, {"b": (9, [8.0]), "a": 5}]


@pytest.mark.parametrize("limit", [2, np.int64(2)])
def test_maximum_iterations(limit):
    assert run(while_loop(lambda i: i < 9, lambda i: i + 1, [0], maximum_iterations=limit)) == 2
    n = placeholder("int32", [])
    y = while_loop(lambda i: i < 3, lambda i: i + 1, [0], maximum_iterations=n)
    assert [run(y, {n: k}) for k in (1, 2, 7)] == [1, 2, 3]


def test_shapes_may_change_where_they_are_said_to():
    x = constant([1.0])
    grow = lambda i, y: (i + 1, concat([y, y], 0))  # noqa: E731
    y = while_loop(lambda i, y: i < 3, grow, [0, x], shape_invariants=[[], [None]])[1]
    assert y.shape == [None]
    np.testing.assert_array_equal(run(y), np.ones(8))
    assert run(gradients(y, [x])[0]) == [8]
    with pytest.raises(ValueError, match=r"loop variable 1 \('.*'\): has shape \(1,\) before"):
        while_loop(lambda i, y: i < 3, grow, [0, x])
    with pytest.raises(ValueError, match=r"shape_invariants: .* does not have the shape"):
        while_loop(lambda i, y: i < 3, grow, [0, x], shape_invariants=[[], [2]])


def looped(x, w, n):
    return while_loop(
        lambda i, y: i < n, lambda i, y: (i + 1, tanh(y * w) + x * (1.0 / n)), [0, x]
    )[1]


def unrolled(x, w, n):
    y = x
    for _ in range(n):
        y = tanh(y * w) + x * (1.0 / n)
    return y


@pytest.mark.parametrize("n", [1, 4])
def test_gradients_are_those_of_the_unrolled_graph(n):
    x, w = placeholder("float64", [3]), Variable(np.array([0.5, 2.0, 1.5]))
    session = Session()
    session.run(global_variables_initializer())
    results = []
    for build in (looped, unrolled):
        y = build(x, w, n)
        results.append([y, *gradients(y, [x, w], grad_ys=[np.array([1.0, -2.0, 3.0])])])
    for _ in range(3):
        found, expected = session.run(results, {x: X})
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13)


def test_gradients_where_no_turn_runs():
    x, w = constant(X), constant(X)
    y = while_loop(lambda y: reduce_sum(y) > 1e9, lambda y: y * w, [x])
    dx, dw = run(gradients(y, [x, w]))
    np.testing.assert_array_equal(dx, np.ones(3))
    np.testing.assert_array_equal(dw, np.zeros(3))


def test_gradients_inside_a_body_reach_what_is_outside():
    """x ← x - 0.1·∂(2·w²·x²)/∂w, with 2·w and w from outside, from w = 3: f ← f - 1.2·f²."""
    w = Variable(3.0)
    c = w * 2.0

    def body(i, x):
        (direct, through) = gradients(x * x * w * c, [c, w])
        inner = while_loop(lambda j, y: j < 1, lambda j, y: (j + 1, gradients(y * c, w)[0]), [0, x])
        return i + 1, x - 0.1 * through + 0.0 * direct + 0.0 * inner[1]

    x = while_loop(lambda i, x: i < 3, body, [0, 1.0])[1]
    session = Session()
    session.run(global_variables_initializer())
    expected = 1.0
    for _ in range(3):
        expected -= 1.2 * expected**2
    np.testing.assert_allclose(session.run(x), expected, rtol=1e-5)


def test_a_gradient_inside_a_body_through_a_cond_outside_is_refused():
    w = constant(3.0)
    c = cond(w > 1.0, lambda: w * 2.0, lambda: w)
    with pytest.raises(LookupError, match="is a cond outside of the loop"):
        while_loop(lambda x: x < 9.0, lambda x: x + gradients(x * c, w)[0], [1.0])


def test_gradients_of_the_gradient_are_refused():
    x = constant(X)
    (dx,) = gradients(while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, y * y), [0, x])[1], [x])
    with pytest.raises(LookupError, match=r"WhileGrad.* has no gradient rule"):
        gradients(dx, [x])


def test_back_prop_can_be_switched_off():
    x = constant(X)
    y = while_loop(lambda y: reduce_sum(y) < 9, lambda y: y + 1.0, [x], back_prop=False)
    assert gradients(y, [x]) == [None]


def test_nested_loops_and_cond():
    x, w = constant(1.5), constant(0.9)

    def body(i, y):
        inner = while_loop(lambda j, z: j < i, lambda j, z: (j + 1, z * w + x), [0, y])[1]
        return i + 1, cond(i > 1, lambda: inner * 2.0, lambda: inner + w)

    y = while_loop(lambda i, y: i < 4, body, [0, x])[1]
    z = x
    for i in range(4):
        for _ in range(i):
            z = z * w + x
        z = z * 2.0 if i > 1 else z + w
    for a, b in [(y, z), *zip(gradients(y, [x, w]), gradients(z, [x, w]), strict=True)]:
        np.testing.assert_allclose(run(a), run(b), rtol=1e-6)


def test_random_numbers_are_fresh_each_turn_and_run():
    draws = while_loop(
        lambda i, r: i < 4,
        lambda i, r: (i + 1, concat([r, random_uniform([1])], 0)),
        [0, ones([0])],
        shape_invariants=[[], [None]],
    )[1]
    session = Session()
    values = np.concatenate([session.run(draws) for _ in range(3)])
    assert len(set(values)) == 12
    assert set(values).isdisjoint(Session().run(draws))


@pytest.mark.parametrize("graph_seed", [None, 3])
def test_random_numbers_repeat_with_a_seed(graph_seed):
    set_random_seed(graph_seed)
    seed = None if graph_seed else 5
    y = while_loop(
        lambda i, r: i < 4, lambda i, r: (i + 1, r * 0.5 + random_uniform([], seed=seed)), [0, 0.0]
    )[1]
    sessions = [Session(), Session()]
    first, second = ([session.run(y) for _ in range(4)] for session in sessions)
    assert first == second
    assert len(set(first)) == 4


def test_the_gradient_sees_the_random_numbers_of_the_loop():
    x = constant(np.ones(50))

    def inner(y):
        return while_loop(lambda j, z: j < 2, lambda j, z: (j + 1, dropout(z, rate=0.3)), [0, y])[1]

    y = while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, inner(y)), [0, x])[1]
    value, dx = Session().run([y, gradients(y, [x])[0]])
    assert 0 < np.count_nonzero(value) < 50
    np.testing.assert_allclose(value, dx)  # it is linear


def test_map_fn():
    x, w = constant(np.arange(6.0).reshape(3, 2)), constant([2.0, 3.0], "float64")
    y = map_fn(lambda row: row * row * w, x)
    assert y.shape == [3, 2]
    np.testing.assert_array_equal(run(y), np.arange(6.0).reshape(3, 2) ** 2 * [2, 3])
    dx, dw = run(gradients(y, [x, w]))
    np.testing.assert_array_equal(dx, 2 * np.arange(6.0).reshape(3, 2) * [2, 3])
    np.testing.assert_array_equal(dw, [0 + 4 + 16, 1 + 9 + 25])
    pair = map_fn(lambda e: (e[0] + e[1], e[0] > 1), (x, x), dtype=("float64", "bool"))
    total, flags = run(list(pair))
    np.testing.assert_array_equal(total, 2 * np.arange(6.0).reshape(3, 2))
    assert flags.dtype == bool
    n = placeholder("float32", [None])
    none = map_fn(lambda e: stack([e, e]), n)
    assert run(none, {n: []}).shape == (0, 2)
    np.testing.assert_array_equal(run(none, {n: [1, 2]}), [[1, 1], [2, 2]])


def test_map_fn_refuses():
    with pytest.raises(TypeError, match="fn: expected int32, as dtype says, got"):
        map_fn(lambda e: e, constant([1.0]), dtype="int32")
    with pytest.raises(TypeError, match="fn: expected"):
        map_fn(lambda e: (e, e), constant([1.0]))
    with pytest.raises(ValueError, match="elems: expected at least one axis"):
        map_fn(lambda e: e, constant(1.0))
    with pytest.raises(ValueError, match="elems: expected inputs of one length"):
        map_fn(lambda e: e, (constant([1.0]), constant([1.0, 2.0])))
    with pytest.raises(TypeError, match="fn: expected a function, got 3"):
        map_fn(3, constant([1.0]))
    with pytest.raises(ValueError, match="parallel_iterations: expected"):
        map_fn(lambda e: e, constant([1.0]), parallel_iterations=0)
    a, b = placeholder("float32", [None]), placeholder("float32", [None])
    y = map_fn(lambda e: e[0] + e[1], (a, b), dtype="float32")
    with pytest.raises(InvalidArgumentError, match=r"lengths \[1, 2\]") as caught:
        run(y, {a: [1], b: [1, 2]})
    assert "test_control_flow.py" in str(caught.value)


@pytest.mark.parametrize("mode", [contextlib.nullcontext, eager])
def test_scan_and_folds(mode):
    def value(x):
        return x.numpy() if get_default_graph().eager else run(x)

    with mode():
        x = constant([1, 2, 3, 4])
        np.testing.assert_array_equal(value(scan(lambda a, e: a * 10 + e, x)), [1, 12, 123, 1234])
        np.testing.assert_array_equal(
            value(scan(lambda a, e: a * 10 + e, x, reverse=True)), [4321, 432, 43, 4]
        )
        np.testing.assert_array_equal(
            value(scan(lambda a, e: a + e, x, initializer=10)), [11, 13, 16, 20]
        )
        pair = scan(lambda a, e: (a[0] + e, a[1] * 2.0), x, initializer=(0, 1.0))
        np.testing.assert_array_equal(value(pair[0]), [1, 3, 6, 10])
        np.testing.assert_array_equal(value(pair[1]), [2, 4, 8, 16])
        assert value(foldl(lambda a, e: a * 10 + e, x)) == 1234
        assert value(foldr(lambda a, e: a * 10 + e, x)) == 4321
        assert value(foldl(lambda a, e: a - e, x, initializer=0)) == -10
        assert value(foldr(lambda a, e: a * 2 + e, x, initializer=1)) == 65


def test_gradients_of_scan():
    x, w = constant([0.5, -1.0, 2.0]), constant(0.7)
    y = scan(lambda a, e: tanh(a * w) + e, x, initializer=constant(0.1))
    rows, a = [], constant(0.1)
    for i in range(3):
        a = tanh(a * w) + x[i]
        rows.append(a)
    z = stack(rows)
    weights = np.array([1.0, 2.0, -1.0], np.float32)
    pairs = zip(gradients(y, [x, w], weights), gradients(z, [x, w], weights), strict=True)
    for found, expected in [(y, z), *pairs]:
        np.testing.assert_allclose(run(found), run(expected), rtol=1e-6)


def test_eager_mode_is_a_python_loop():
    with eager(), GradientTape() as tape:
        x, w = constant(X), constant(np.array([0.5, 2.0, 1.5]))
        tape.watch([x, w])
        y = looped(x, w, 4)
        z = map_fn(lambda e: e * e, y)
        found = [g.numpy() for g in tape.gradient(z, [x, w])]
    x, w = constant(X), constant(np.array([0.5, 2.0, 1.5]))
    expected = run(gradients(unrolled(x, w, 4) ** 2, [x, w]))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


def test_sizes_from_outside_stay_known():
    x = constant(np.ones((2, 3)))
    n = shape(x)[1]
    y = while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, y + ones([2, n], "float64")), [0, x])[1]
    assert y.shape == [2, 3]
    np.testing.assert_array_equal(run(y), np.full((2, 3), 3))


def test_bodies_that_cannot_be():
    v = Variable(1.0, name="v")
    x = constant(1.0)
    row = constant([1.0])
    built = get_default_graph().version
    with pytest.raises(ValueError, match="AssignAdd cannot change the variable 'v' inside"):
        while_loop(lambda y: y < 3, lambda y: y + assign_add(v, 1.0), [x])

    def body(y):
        with get_default_graph().control_dependencies([assign_add(v, 1.0)]):
            return y + 1.0

    with pytest.raises(ValueError, match="AssignAdd cannot change the variable 'v' inside"):
        while_loop(lambda y: y < 3, body, [x])
    with pytest.raises(ValueError, match="built in a loop's body, which changes nothing outside"):
        while_loop(lambda y: y < 3, lambda y: y + assign_moving_average(v, y, 0.9), [x])
    with pytest.raises(ValueError, match="cannot be made inside; make it before"):
        while_loop(lambda y: y < 3, lambda y: y + Variable(1.0), [x])
    with pytest.raises(TypeError, match=r"loop variable 0 .*: expected float32 .*, got int32"):
        while_loop(lambda y: y < 3, lambda y: constant(1), [x])
    with pytest.raises(ValueError, match="body: expected 2 values, got 1"):
        while_loop(lambda i, y: i < 3, lambda i, y: [i], [0, x])
    with pytest.raises(TypeError, match="cond: expected a bool"):
        while_loop(lambda y: y, lambda y: y, [x])
    with pytest.raises(ValueError, match="cond: expected a scalar"):
        while_loop(lambda y: y > 0, lambda y: y, [row])
    with pytest.raises(ValueError, match="loop_vars: expected at least one"):
        while_loop(lambda: True, lambda: (), [])
    with pytest.raises(TypeError, match="body: expected a function"):
        while_loop(lambda y: y < 3, 3, [x])
    assert [op.name for op in get_default_graph().get_operations()[built:]] == []


@pytest.mark.parametrize("mode", [contextlib.nullcontext, eager])
def test_what_a_function_gives_is_named_where_it_is_no_tensor(mode):
    with mode():
        x = constant([1.0, 2.0])
        with pytest.raises(ValueError, match="loop variable 0 after a turn: expected a value"):
            while_loop(lambda y: reduce_sum(y) < 9.0, lambda y: None, [x])
        with pytest.raises(TypeError, match="loop variable 1 after a turn: expected float32, got"):
            while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, "text"), [0, x])
        with pytest.raises(ValueError, match="fn: result 0: expected a value, got None"):
            map_fn(lambda row: None, x)
        with pytest.raises(ValueError, match="fn: result 0: expected a value, got None"):
            scan(lambda total, row: None, x)


def test_errors_name_the_line_of_the_body():
    x = placeholder("float32", [None, None])
    y = while_loop(
        lambda y: reduce_sum(y) < 9,
        lambda y: matmul(y, ones([2, 2])),
        [x],
        shape_invariants=[[None, None]],
    )
    with pytest.raises(InvalidArgumentError, match="lambda y: matmul"):
        run(y, {x: np.ones((2, 3))})
