"""Reverse mode: every argument, sums, sparse rows, variables, cond, higher orders, errors."""

import numpy as np
import pytest

import optkit
from optkit.errors import InternalError
from optkit.gradients import AggregationMethod, UnconnectedGradients, blocking_operations, gradients
from optkit.graph import IndexedSlices, Tensor, control_dependencies
from optkit.ops import core
from optkit.ops.array import identity, placeholder, split, stop_gradient
from optkit.ops.control import cond
from optkit.ops.core import constant, op
from optkit.ops.elementary import exp, floor, sin, square
from optkit.ops.indexing import gather
from optkit.ops.linalg import matmul
from optkit.ops.math import add_n, cast, multiply
from optkit.ops.reductions import argmax, reduce_sum
from optkit.ops.sparse import densify
from optkit.runtime import IndexedSlicesValue, Session
from optkit.variables import Variable, global_variables_initializer
from tests.graph.test_graph import state_of


def value(tensors, feeds=None):
    with Session() as session:
        session.run(global_variables_initializer())
        return session.run(tensors, feeds)


def dense(gradient):
    """The value of a gradient, rows added up."""
    return value(densify(gradient))


@pytest.fixture
def declare(monkeypatch):
    """Declare ops for one test."""
    monkeypatch.setattr(core, "REGISTRY", {})
    return op


X = np.array([1.5, -2.0, 3.0])


# -- the basics -----------------------------------------------------------------------------------


def test_a_gradient_has_the_dtype_and_shape_of_its_x():
    for dtype in ("float16", "float32", "float64"):
        x = constant(X, dtype)
        (dx,) = gradients(square(x), [x])
        assert dx.dtype == dtype
        assert dx.shape == [3]
        np.testing.assert_array_equal(value(dx), (2 * X).astype(dtype))


def test_ys_are_summed():
    x = constant(X)
    (dx,) = gradients([square(x), reduce_sum(x * 3.0), x], x)
    np.testing.assert_allclose(value(dx), 2 * X + 3.0 + 1.0)


def test_lists_tuples_and_single_values():
    x, y = constant(2.0), constant(3.0)
    z = x * y
    for xs in ([x, y], (x, y)):
        assert value(gradients(z, xs)) == [3.0, 2.0]
    assert value(gradients(z, x)) == [3.0]
    assert value(gradients((z, z), {x})) == [6.0]
    assert value(gradients(z, [x, x])) == [3.0, 3.0]
    assert gradients([], [x, y]) == [None, None]
    assert gradients(z, []) == []


def test_uses_of_one_tensor_are_added_up():
    x = constant(3.0)
    y = x * x + sin(x) - x + x * 2.0
    assert value(gradients(y, [x])[0]) == pytest.approx(6.0 + np.cos(3.0) + 1.0, rel=1e-6)


def test_no_path_is_none():
    x, unrelated = constant(1.0), constant(1.0)
    for y in (
        x * 2.0,
        constant(5.0),
        stop_gradient(unrelated),
        floor(unrelated),
        cast(cast(unrelated, "int32"), "float32"),
        cast(argmax(unrelated * constant([1.0]), 0), "float32"),
    ):
        assert gradients(y, [unrelated]) == [None]


def test_unconnected_gradients_may_be_zeros():
    x = constant([1.0, 2.0])
    w = Variable([[3.0]])
    dx, dw, dy = gradients(
        constant(1.0), [x, w, constant(1.0)], unconnected_gradients=UnconnectedGradients.ZERO
    )
    np.testing.assert_array_equal(value(dx), [0.0, 0.0])
    np.testing.assert_array_equal(value(dw), [[0.0]])
    assert value(dy) == 0.0


def test_y_is_x():
    x = constant([1.0, 2.0])
    y = square(x)
    dy, dx = gradients(y, [y, x])
    np.testing.assert_array_equal(value(dy), [1.0, 1.0])
    np.testing.assert_array_equal(value(dx), [2.0, 4.0])
    (dx,) = gradients(x, x, grad_ys=constant([5.0, 6.0]))
    np.testing.assert_array_equal(value(dx), [5.0, 6.0])


def test_intermediate_xs():
    x = constant(2.0)
    y = x * 3.0
    z = y * y + x
    dx, dy, dz = gradients(z, [x, y, z])
    assert value([dx, dy, dz]) == [3.0 * 12.0 + 1.0, 12.0, 1.0]


def test_one_y_that_leads_to_another():
    x = constant(2.0)
    y = x * x
    z = y * 5.0
    assert value(gradients([y, z], [x, y])) == [4.0 + 20.0, 1.0 + 5.0]


# -- grad_ys and stop_gradients -------------------------------------------------------------------


def test_weights_of_the_ys():
    x = constant([1.0, 2.0])
    y, z = square(x), x * 3.0
    (dx,) = gradients([y, z], [x], grad_ys=[constant([1.0, 10.0]), None])
    np.testing.assert_array_equal(value(dx), [2.0 + 3.0, 40.0 + 3.0])
    for weight in ([1.0, 10.0], np.array([1.0, 10.0]), placeholder_of([1.0, 10.0])):
        (dx,) = gradients(y, [x], grad_ys=weight if isinstance(weight, Tensor) else [weight])
        np.testing.assert_array_equal(value(dx), [2.0, 40.0])


def placeholder_of(default):
    return optkit.placeholder_with_default(constant(default), [None])


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        ([None, None], ValueError, "grad_ys: expected 1 entries, one a y, got 2"),
        ([], ValueError, "grad_ys: expected 1 entries, one a y, got 0"),
        ([[1.0]], ValueError, r"grad_ys: for 'y:0': expected shape \(2,\), got \(1,\)"),
        ([1.0], ValueError, r"grad_ys: for 'y:0': expected shape \(2,\), got \(\)"),
        (["text"], TypeError, "grad_ys: for 'y:0': expected float32, got text"),
        ([[1j, 1j]], TypeError, "grad_ys: for 'y:0': expected float32"),
        ([np.zeros(2, np.complex64)], TypeError, "grad_ys: for 'y:0': expected float32"),
    ],
)
def test_weights_that_do_not_fit(graph, weights, error, message):
    x = constant([1.0, 2.0])
    y = multiply(x, 2.0, name="y")
    before = state_of(graph)
    with pytest.raises(error, match=message):
        gradients(y, [x], grad_ys=weights)
    assert state_of(graph) == before


def test_a_weight_of_another_dtype():
    x = constant([1.0, 2.0])
    y = multiply(x, 2.0, name="y")
    with pytest.raises(TypeError, match=r"grad_ys: for 'y:0': expected float32, got .*'d:0'"):
        gradients(y, [x], grad_ys=[constant([1.0, 1.0], "float64", name="d")])


def test_tensors_held_constant():
    x = constant(2.0)
    y = x * 3.0
    z = x * y
    assert value(gradients(z, [x])) == [12.0]
    assert value(gradients(z, [x], stop_gradients=[y])) == [6.0]
    assert value(gradients(z, [x], stop_gradients=y)) == [6.0]
    # An x that is held constant has a gradient all the same.
    assert value(gradients(z, [x, y], stop_gradients=[x, y])) == [6.0, 2.0]
    assert gradients(y, [x], stop_gradients=[y]) == [None]


def test_nothing_is_asked_of_what_depends_on_x_through_a_constant_alone(declare):
    @declare("Ruleless")
    def ruleless(xp, x):
        return x + 1

    x = constant(2.0)
    y = x * 3.0
    assert gradients(ruleless(y), [x], stop_gradients=[y]) == [None]
    with pytest.raises(LookupError, match="Ruleless"):
        gradients(ruleless(y), [x])


def test_a_variable_held_constant():
    w = Variable(2.0)
    with control_dependencies([constant(1.0)]):
        z = w * w
    assert value(gradients(z * w, [w], stop_gradients=[w])) == [12.0]
    u = constant(5.0)
    assert value(gradients(u * w, [u, w], stop_gradients=[w])) == [2.0, 5.0]


# -- how parts are added --------------------------------------------------------------------------


METHODS = [
    None,
    AggregationMethod.ADD_N,
    AggregationMethod.DEFAULT,
    AggregationMethod.EXPERIMENTAL_TREE,
    AggregationMethod.EXPERIMENTAL_ACCUMULATE_N,
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("uses", [1, 2, 3, 4, 5, 8])
def test_aggregation_methods_give_the_same_sum(method, uses):
    x = constant(X)
    y = add_n([x * float(i + 1) for i in range(uses)])
    (dx,) = gradients(y, [x], aggregation_method=method)
    np.testing.assert_array_equal(value(dx), np.full(3, uses * (uses + 1) / 2))


def test_the_constants_are_tensorflows():
    assert (AggregationMethod.ADD_N, AggregationMethod.DEFAULT) == (0, 0)
    assert AggregationMethod.EXPERIMENTAL_TREE == 1
    assert AggregationMethod.EXPERIMENTAL_ACCUMULATE_N == 2


def test_zeros_stand_for_outputs_that_are_not_used():
    x = constant([1.0, 2.0, 3.0, 4.0])
    first, _, _ = split(x, [1, 2, 1])
    _, middle, last = split(x * 10.0, [1, 2, 1])
    (dx,) = gradients(first, [x])
    np.testing.assert_array_equal(value(dx), [1.0, 0.0, 0.0, 0.0])
    (dx,) = gradients([middle, last, last], [x])
    np.testing.assert_array_equal(value(dx), [0.0, 10.0, 10.0, 20.0])


def test_outputs_as_xs():
    x = constant([1.0, 2.0])
    first, second = split(x, 2)
    assert value(gradients(first * 3.0, [first, x])[0]) == [3.0]
    assert gradients(first * 3.0, [second]) == [None]


# -- rows -----------------------------------------------------------------------------------------

E = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], np.float32)


def test_gather_gives_rows():
    w = Variable(E)
    (dw,) = gradients(gather(w, [2, 0, 2]) * 3.0, [w])
    assert isinstance(dw, IndexedSlices)
    assert dw.shape == [None, 2]
    found = value(dw)
    assert isinstance(found, IndexedSlicesValue)
    np.testing.assert_array_equal(found.indices, [2, 0, 2])
    np.testing.assert_array_equal(found.values, np.full((3, 2), 3.0))
    np.testing.assert_array_equal(dense(dw), [[3.0, 3.0], [0.0, 0.0], [6.0, 6.0]])


@pytest.mark.parametrize("method", METHODS)
def test_rows_and_rows(method):
    w = Variable(E)
    loss = reduce_sum(gather(w, [0, 1])) + reduce_sum(gather(w, [1, 1]) * 2.0)
    (dw,) = gradients(loss, [w], aggregation_method=method)
    assert isinstance(dw, IndexedSlices)
    np.testing.assert_array_equal(dense(dw), [[1.0, 1.0], [5.0, 5.0], [0.0, 0.0]])


def test_rows_with_row_numbers_of_two_dtypes():
    w = Variable(E)
    loss = reduce_sum(gather(w, constant([0]))) + reduce_sum(gather(w, constant([0], "int64")))
    (dw,) = gradients(loss, [w])
    np.testing.assert_array_equal(dense(dw), [[2.0, 2.0], [0.0, 0.0], [0.0, 0.0]])


@pytest.mark.parametrize("method", METHODS)
def test_p115_rows_and_dense_of_a_tied_embedding(method):
    w = Variable(E)
    loss = reduce_sum(gather(w, [0, 0])) + reduce_sum(matmul(w, np.ones((2, 1), np.float32)))
    (dw,) = gradients(loss, [w], aggregation_method=method)
    assert isinstance(dw, Tensor)
    np.testing.assert_array_equal(value(dw), [[3.0, 3.0], [1.0, 1.0], [1.0, 1.0]])


def test_rows_become_dense_where_a_rule_takes_tensors():
    w = Variable(E)
    (dw,) = gradients(reduce_sum(gather(square(w), [1, 1])), [w])
    assert isinstance(dw, Tensor)
    np.testing.assert_array_equal(value(dw), [[0.0, 0.0], [8.0, 12.0], [0.0, 0.0]])


def test_rows_pass_through_identity():
    w = Variable(E)
    (dw,) = gradients(reduce_sum(gather(identity(w), [1])), [w])
    assert isinstance(dw, IndexedSlices)


def test_rows_as_weights():
    w = Variable(E)
    rows = IndexedSlices(constant([[1.0, 2.0]]), constant([1]), constant([3, 2]))
    (dw,) = gradients(square(w), [w], grad_ys=[rows])
    np.testing.assert_array_equal(value(dw), [[0.0, 0.0], [4.0, 12.0], [0.0, 0.0]])


# -- variables ------------------------------------------------------------------------------------


def test_all_reads_of_a_variable_count():
    w = Variable(2.0)
    plain = w * 3.0
    with control_dependencies([constant(1.0)]):
        second = w * 5.0
    with control_dependencies([constant(1.0)]):
        third = w.read_value() * w
    (dw,) = gradients(plain + second + third, [w])
    assert value(dw) == 3.0 + 5.0 + 4.0


def test_reads_after_a_write_count():
    w = Variable(2.0)
    with control_dependencies([w.assign(10.0)]):
        y = w * w
    (dw,) = gradients(y, [w])
    assert value(dw) == 20.0  # ∂/∂read · 2 at the value that was read


def test_a_read_as_x_is_that_read_alone():
    w = Variable(2.0)
    with control_dependencies([constant(1.0)]):
        read = w.read_value()
        y = read * 3.0
    (dread, dw) = gradients(y + w * 4.0, [read, w])
    assert value([dread, dw]) == [3.0, 7.0]


def test_gradients_under_control_dependencies():
    w = Variable(2.0)
    with control_dependencies([constant(1.0)]):
        (dw,) = gradients(w, [w])
        assert value(dw) == 1.0
        assert value(gradients(w * w, [w])[0]) == 4.0


def test_no_gradient_flows_through_a_write():
    w, v = Variable(2.0), Variable(3.0)
    y = w.assign(v * 2.0) * 5.0
    assert gradients(y, [w, v]) == [None, None]
    assert blocking_operations(y, [v]) == [y.op.inputs[0].op]


# -- orders ---------------------------------------------------------------------------------------


def test_second_and_third_order():
    x = constant(X)
    y = x**4.0 + sin(x) + exp(x * 0.5)
    (first,) = gradients(y, [x])
    (second,) = gradients(first, [x])
    (third,) = gradients(second, [x])
    grown = np.exp(0.5 * X)
    np.testing.assert_allclose(value(first), 4 * X**3 + np.cos(X) + 0.5 * grown)
    np.testing.assert_allclose(value(second), 12 * X**2 - np.sin(X) + 0.25 * grown)
    np.testing.assert_allclose(value(third), 24 * X - np.cos(X) + 0.125 * grown)


def test_mixed_second_derivatives():
    x, y = constant(2.0), constant(3.0)
    (dx,) = gradients(x * x * y, [x])
    assert value(gradients(dx, [x, y])) == [6.0, 4.0]


def test_a_penalty_on_the_gradient():
    w = Variable([1.0, 2.0])
    (dw,) = gradients(reduce_sum(w * w * w), [w])
    loss = reduce_sum(square(dw))  # Σ 9·w⁴
    (ddw,) = gradients(loss, [w])
    np.testing.assert_array_equal(value(ddw), 36.0 * np.array([1.0, 8.0]))


def test_second_order_through_rows():
    w = Variable(E)
    (dw,) = gradients(reduce_sum(square(gather(w, [1, 1]))), [w])
    (ddw,) = gradients(reduce_sum(square(dw.values)), [w])  # Σ (2w)² over both rows
    np.testing.assert_array_equal(dense(ddw), [[0.0, 0.0], [32.0, 48.0], [0.0, 0.0]])


# -- cond -----------------------------------------------------------------------------------------


@pytest.fixture
def flag():
    return placeholder("bool", [], name="flag")


@pytest.fixture
def choose(flag):
    """Both values of a tensor: where the flag holds, and where not."""
    return lambda tensors: [value(tensors, {flag: side}) for side in (True, False)]


def test_both_sides(flag, choose):
    x, y = constant(2.0), constant(3.0)
    z = cond(flag, lambda: x * y, lambda: x * x) * 10.0
    dx, dy = gradients(z, [x, y])
    assert choose([dx, dy]) == [[30.0, 20.0], [40.0, 0.0]]


def test_one_side_depends_on_x(flag, choose):
    x = constant([1.0, 2.0])
    z = cond(flag, lambda: reduce_sum(square(x)), lambda: constant(7.0))
    (dx,) = gradients(z, [x])
    np.testing.assert_array_equal(choose(dx), [[2.0, 4.0], [0.0, 0.0]])
    assert gradients(cond(flag, lambda: constant(1.0), lambda: constant(2.0)), [x]) == [None]


def test_a_tensor_passes_through(flag, choose):
    x, y = constant(2.0), constant(3.0)
    assert choose(gradients(cond(flag, lambda: x, lambda: y), [x, y])) == [[1.0, 0.0], [0.0, 1.0]]


def test_nested(flag):
    other = placeholder("bool", [], name="other")
    x = constant(3.0)
    z = cond(flag, lambda: cond(other, lambda: x * x, lambda: x * 5.0) + x, lambda: -x)
    (dx,) = gradients(z, [x])
    for outer, inner, expected in (
        (True, True, 7.0),
        (True, False, 6.0),
        (False, True, -1.0),
        (False, False, -1.0),
    ):
        assert value(dx, {flag: outer, other: inner}) == expected


def test_a_variable_read_in_a_side(flag, choose):
    w = Variable(2.0)
    z = cond(flag, lambda: w * w, lambda: constant(1.0)) + w * 10.0
    assert choose(gradients(z, [w])[0]) == [14.0, 10.0]


def test_rows_inside_a_side(flag, choose):
    w = Variable(E)
    z = cond(flag, lambda: reduce_sum(gather(w, [0, 0])), lambda: reduce_sum(w * 2.0))
    (dw,) = gradients(z, [w])
    np.testing.assert_array_equal(
        choose(densify(dw)), [[[2.0, 2.0], [0.0, 0.0], [0.0, 0.0]], np.full((3, 2), 2.0)]
    )


def test_only_the_side_taken_is_differentiated(flag):
    x = placeholder("float32", [])
    late = Variable(1.0, collections=["elsewhere"])  # never initialised
    (dx,) = gradients(cond(flag, lambda: x * late, lambda: x * 2.0), [x])
    assert value(dx, {flag: False, x: 1.0}) == 2.0
    with pytest.raises(optkit.errors.FailedPreconditionError, match="not initialised"):
        value(dx, {flag: True, x: 1.0})


def test_second_order_through_a_cond(flag, choose):
    x = constant(2.0)
    z = cond(flag, lambda: x * x * x, lambda: x * x)
    (dx,) = gradients(z, [x])
    assert choose(gradients(dx, [x])[0]) == [12.0, 2.0]


def test_gradients_inside_a_side(flag, choose):
    x, w = constant(2.0), Variable(3.0)
    late = Variable(1.0, collections=["elsewhere"])
    outside = x * w * w

    def inside():
        dx, dw = gradients(outside, [x, w])
        (own,) = gradients(cond(x > 0.0, lambda: x * w, lambda: x), [w], grad_ys=[x * 1.0])
        return dx + dw + own

    result = cond(flag, inside, lambda: constant(0.0))
    assert choose(result) == [9.0 + 12.0 + 4.0, 0.0]
    # What was asked for in a side is worked out in that side.
    z = cond(flag, lambda: gradients(x * late, [x])[0], lambda: constant(5.0))
    assert value(z, {flag: False}) == 5.0


# -- broadcasting ---------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("a", "b"),
    [((2, 3), (3,)), ((2, 3), ()), ((2, 1), (1, 3)), ((1,), (2, 3)), ((), ()), ((3, 1), (3, 1))],
)
def test_broadcasting_is_undone(known, a, b):
    x = placeholder("float64", a if known else [None] * len(a))
    y = placeholder("float64", b if known else None)
    rng = np.random.default_rng(1)
    feeds = {x: rng.standard_normal(a), y: rng.standard_normal(b)}
    z = x * y
    dx, dy = value(gradients(z, [x, y]), feeds)
    full = np.broadcast_shapes(a, b)
    assert dx.shape == a
    assert dy.shape == b
    ones = np.ones(full)
    np.testing.assert_allclose(dx, undone(ones * feeds[y], a))
    np.testing.assert_allclose(dy, undone(ones * feeds[x], b))


def undone(array, sizes):
    array = array.sum(axis=tuple(range(array.ndim - len(sizes))))
    axes = tuple(i for i, size in enumerate(sizes) if size == 1)
    return array.sum(axis=axes, keepdims=True)


# -- names, devices, depth ------------------------------------------------------------------------


def test_what_is_built_is_named_inside_the_scope(graph):
    x = constant(1.0)
    y = multiply(x, x, name="y")
    before = graph.version
    gradients(y, [x])
    gradients(y, [x], name="mine")
    gradients(y, [x], name=None)
    scopes = {op.name.partition("/")[0] for op in graph.get_operations()[before:]}
    assert scopes == {"gradients", "mine", "gradients_1"}
    assert any(op.name.startswith("gradients/y_grad/") for op in graph.get_operations())
    with optkit.name_scope("outer"):
        (dx,) = gradients(y, [x])
    assert dx.op.name.startswith("outer/gradients/")


def test_colocation_is_recorded_where_asked_for(graph):
    with optkit.device("/gpu:0"):
        x = constant(1.0)
        y = multiply(sin(x), 2.0, name="y")
    before = graph.version
    gradients(y, [x], colocate_gradients_with_ops=True)
    made = [op for op in graph.get_operations()[before:] if "/y_grad/" in op.name]
    assert made
    assert all(op.colocation_groups() == [b"loc:@y"] and op.device == "/gpu:0" for op in made)
    before = graph.version
    gradients(y, [x], gate_gradients=True)
    assert all(op.device == "" for op in graph.get_operations()[before:])


def test_deep_graphs_need_no_recursion():
    x = placeholder("float64", [])
    y = x
    for _ in range(2500):
        y = sin(y) + x  # 5000 operations deep
    (dx,) = gradients(y, [x])
    plain, slope = 0.5, 1.0
    for _ in range(2500):
        plain, slope = np.sin(plain) + 0.5, np.cos(plain) * slope + 1.0
    assert value(dx, {x: 0.5}) == pytest.approx(slope, rel=1e-9)


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda x, y: gradients([y, np.arange(3)], [x]),
            TypeError,
            "ys: expected a floating tensor",
        ),
        (lambda x, y: gradients([y, 3], [x]), TypeError, "ys: expected a floating tensor, got"),
        (lambda x, y: gradients([y, "text"], [x]), TypeError, "ys: expected a floating tensor"),
        (lambda x, y: gradients([y, object()], [x]), TypeError, "expected numbers or text"),
        (lambda x, y: gradients(y, [x, 3.0]), TypeError, "xs: expected a Tensor or Variable, got"),
        (lambda x, y: gradients(y, ["x"]), TypeError, "xs: expected a Tensor or Variable, got 'x"),
        (lambda x, y: gradients(y, [x, None]), TypeError, "xs: expected a Tensor or Variable"),
        (
            lambda x, y: gradients(y, [x], stop_gradients=[3.0]),
            TypeError,
            "stop_gradients: expected a Tensor or Variable, got 3.0",
        ),
        (
            lambda x, y: gradients(y, [x], aggregation_method=7),
            ValueError,
            r"aggregation_method: expected an AggregationMethod \(0, 1, 2\) or None, got 7",
        ),
        (
            lambda x, y: gradients(y, [x], unconnected_gradients="ones"),
            ValueError,
            "unconnected_gradients: expected 'none' or 'zero', got 'ones'",
        ),
        (lambda x, y: gradients(y, [x], name="not valid"), ValueError, "'not valid' is not a vali"),
    ],
)
def test_bad_arguments_leave_no_trace(graph, call, error, message):
    x = constant(1.0, name="x")
    y = x * 2.0
    before = state_of(graph)
    with pytest.raises(error, match=message):
        call(x, y)
    assert state_of(graph) == before


def test_an_op_without_a_rule_is_named_with_its_line(graph, declare):
    @declare("Ruleless")
    def ruleless(xp, x):
        return x + 1

    x = constant(1.0)
    y = ruleless(x, name="mine")  # the line
    z = y * 2.0
    before = state_of(graph)
    with pytest.raises(LookupError) as caught:
        gradients(z, [x])
    text = str(caught.value)
    assert "operation 'mine' (Ruleless), built at" in text
    assert f"{__file__}:" in text
    assert 'ruleless(x, name="mine")  # the line' in text
    assert "has no gradient rule; use stop_gradient, or declare one" in text
    assert state_of(graph) == before
    assert value(gradients(z, [y])) == [2.0]  # not on the path
    assert gradients(stop_gradient(y), [x]) == [None]


def test_an_op_declared_not_differentiable_blocks(declare):
    @declare("Blocking", differentiable=False)
    def blocking(xp, x):
        return x + 1

    x, w = constant(1.0), constant(2.0)
    first, second = blocking(x), blocking(w)
    y = first * w + floor(first)
    assert gradients(y, [x]) == [None]
    assert value(gradients(y, [w])) == [2.0]
    assert blocking_operations(y, [x]) == [first.op, y.op.inputs[1].op]
    assert blocking_operations(y, [w]) == []
    assert blocking_operations([y, second], [x, w]) == [first.op, second.op, y.op.inputs[1].op]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda _, dy: (dy, dy), "gradient rule of Wrong gave 2 gradients for 1 inputs"),
        (lambda _, dy: cast(dy, "float64"), "of Wrong gave float64 for the float32 input 'x:0'"),
        (lambda _, dy: reduce_sum(dy), r"of Wrong gave shape \(\) for the input .*'x:0'"),
    ],
)
def test_rules_that_break_their_contract(graph, declare, rule, message):
    @declare("Wrong")
    def wrong(xp, x):
        return x * 2

    wrong.gradient(rule)
    x = constant([1.0, 2.0], name="x")
    y = wrong(x)
    before = state_of(graph)
    with pytest.raises(InternalError, match=message) as caught:
        gradients(y, [x])
    assert caught.value.op is y.op
    assert state_of(graph) == before


def test_a_rule_that_raises_leaves_no_trace(graph, declare):
    @declare("Raising")
    def raising(xp, x):
        return x * 2

    @raising.gradient
    def _(_, dy):
        constant(1.0)
        raise KeyboardInterrupt

    x = constant(1.0)
    y = raising(x) * 3.0
    before = state_of(graph)
    with pytest.raises(KeyboardInterrupt):
        gradients(y, [x])
    assert state_of(graph) == before


def test_another_graphs_tensors():
    with optkit.Graph().as_default() as other:
        x = constant(2.0)
        y = x * x
    (dx,) = gradients(y, [x])  # built where the ys are
    assert dx.graph is other
    with Session(graph=other) as session:
        assert session.run(dx) == 4.0
    assert gradients(constant(1.0) * 2.0, [x]) == [None]
