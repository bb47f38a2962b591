"""Tensors, and Python's operators and NumPy's functions on them; Variables answer alike."""

import inspect
import math
import operator

import numpy as np
import pytest

from optkit.graph import OPERATORS, Graph, IndexedSlices, Tensor, TensorOperators, is_symbolic
from optkit.ops.array import placeholder, split
from optkit.ops.core import constant
from optkit.ops.math import add
from optkit.runtime import Session
from optkit.variables import Variable, global_variables_initializer


def value(tensor):
    with Session() as session:
        session.run(global_variables_initializer())
        return session.run(tensor)


@pytest.fixture(params=["tensor", "variable"])
def make(request):
    """From an array to what stands for it in the graph."""
    return constant if request.param == "tensor" else Variable


# -- operators ------------------------------------------------------------------------------------

X = np.array([[3.5, -2.0], [0.5, 4.0]], np.float32)
Y = np.array([[2.0, 1.5], [-3.0, 2.0]], np.float32)
M, N = np.array([7, -7, 6], np.int32), np.array([2, 2, -4], np.int32)
P, Q = np.array([True, False, True]), np.array([True, True, False])

BINARY = [
    (operator.add, X, Y, "add"),
    (operator.sub, X, Y, "sub"),
    (operator.mul, X, Y, "mul"),
    (operator.truediv, X, Y, "truediv"),
    (operator.floordiv, X, Y, "floordiv"),
    (operator.floordiv, M, N, "floordiv"),
    (operator.mod, X, Y, "mod"),
    (operator.mod, M, N, "mod"),
    (operator.pow, np.abs(X), Y, "pow"),
    (operator.matmul, X, Y, "matmul"),
    (operator.and_, P, Q, "and"),
    (operator.or_, P, Q, "or"),
    (operator.xor, P, Q, "xor"),
    (operator.lt, X, Y, "Less"),
    (operator.le, X, Y, "LessEqual"),
    (operator.gt, X, Y, "Greater"),
    (operator.ge, X, Y, "GreaterEqual"),
]
ids = [f"{case[0].__name__} {case[1].dtype}" for case in BINARY]


@pytest.mark.parametrize(("apply", "x", "y", "name"), BINARY, ids=ids)
def test_binary_operators(make, apply, x, y, name):
    expected = apply(x, y)
    result = apply(make(x), constant(y))
    assert isinstance(result, Tensor)
    np.testing.assert_allclose(value(result), expected, rtol=1e-6)
    assert result.dtype == expected.dtype
    assert result.shape == list(expected.shape)


@pytest.mark.parametrize(("apply", "x", "y", "name"), BINARY, ids=ids)
def test_arrays_and_lists_on_either_side(make, apply, x, y, name):
    expected = apply(x, y)
    for result in (
        apply(make(x), y),
        apply(make(x), y.tolist()),
        apply(x, make(y)),
        apply(x.tolist(), make(y)),
    ):
        assert isinstance(result, Tensor)
        np.testing.assert_allclose(value(result), expected, rtol=1e-6)
        assert result.dtype == expected.dtype


@pytest.mark.parametrize(
    ("apply", "name"),
    [
        (lambda x: x + 2, "add"),
        (lambda x: 2 + x, "add"),
        (lambda x: 2 - x, "sub"),
        (lambda x: x * 2, "mul"),
        (lambda x: 2 / x, "truediv"),
        (lambda x: 2 // x, "floordiv"),
        (lambda x: 2 % x, "mod"),
        (lambda x: 2**x, "pow"),
        (lambda x: np.float64(2) * x, "mul"),
        (lambda x: x - np.float64(2), "sub"),
        (lambda x: x > 2, "Greater"),
        (lambda x: x > 2.5, "Greater"),
        (lambda x: -x, "Neg"),
        (lambda x: abs(x), "Abs"),
    ],
)
def test_numbers_adapt_to_the_tensor(make, apply, name):
    array = np.array([1.5, 3.0], np.float16)
    result = apply(make(array))
    expected = apply(array.astype(np.float64))
    np.testing.assert_allclose(value(result), expected, rtol=2e-3)
    assert result.dtype.name == ("bool" if expected.dtype == bool else "float16")


@pytest.mark.parametrize(("apply", "x", "y", "name"), BINARY, ids=ids)
def test_nodes_are_named_as_in_tensorflow(apply, x, y, name):
    # Observed in TensorFlow.
    assert apply(constant(x), constant(y)).op.name == name


def test_unary_operators(make):
    x = make(X)
    np.testing.assert_array_equal(value(-x), -X)
    np.testing.assert_array_equal(value(abs(x)), abs(X))
    np.testing.assert_array_equal(value(+x), X)
    np.testing.assert_array_equal(value(~make(P)), ~P)


@pytest.mark.parametrize("key", [0, -1, slice(1, None), (0, 1), (slice(None), 1), ..., None])
def test_getitem(make, key):
    np.testing.assert_array_equal(value(make(X)[key]), X[key])


def test_every_operator_that_tensors_declare_is_built_by_ops():
    declared = {
        inspect.getclosurevars(method).nonlocals["name"]
        for method in vars(TensorOperators).values()
        if inspect.isfunction(method) and "name" in method.__code__.co_freevars
    }
    assert len(declared) == 19
    assert {"add", "getitem", "neg", "matmul", "less"} <= declared
    assert declared | {"stack", "densify"} <= OPERATORS.keys()
    assert all(callable(build) for build in OPERATORS.values())


def test_every_numpy_name_among_the_operators_is_numpys():
    for key in OPERATORS:
        kind, _, name = key.partition(":")
        if kind == "ufunc":
            assert isinstance(getattr(np, name), np.ufunc), key
        elif kind == "function":
            module = np.linalg if hasattr(np.linalg, name) and not hasattr(np, name) else np
            assert callable(getattr(module, name)), key


# -- identity -------------------------------------------------------------------------------------


def test_equality_and_hash_are_identity(make):
    x, y = make([1.0]), make([1.0])
    assert x == x
    assert x != y
    assert (x == y) is False
    assert (x != 3) is True
    assert (x == np.ones(1)) is False
    assert len({x, y, x}) == 2
    assert {x: 1}[x] == 1
    assert x in [y, x]
    assert [y, x].index(x) == 1


def test_np_equal_builds_a_comparison(make):
    np.testing.assert_array_equal(value(np.equal(make([1.0, 2.0]), [1.0, 3.0])), [True, False])
    np.testing.assert_array_equal(value(np.not_equal([1.0, 3.0], make([1.0, 2.0]))), [False, True])


def test_a_variable_is_not_its_tensor():
    w = Variable(1.0)
    assert w != w.op.outputs[0]
    assert is_symbolic(w)
    assert is_symbolic(w.op.outputs[0])
    assert not is_symbolic(w.op)
    assert not is_symbolic(1.0)


# -- what needs a value ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("use", "fix"),
    [
        (bool, "optkit.cond or optkit.where"),
        (lambda x: x and 1, "optkit.cond or optkit.where"),
        (lambda x: not x, "`is not None`"),
        (lambda x: 1 if x > 0 else 2, "optkit.cond"),
        (lambda x: 0 < x < 1, "optkit.cond"),
        (iter, r"optkit.unstack\(x\)"),
        (list, r"optkit.unstack\(x\)"),
        (lambda x: [*x], r"optkit.unstack\(x\)"),
        (lambda x: 1.0 in x, r"optkit.reduce_any"),
        (len, r"x.shape\[0\]"),
        (float, "Session.run"),
        (math.sqrt, "Session.run"),
        (int, "Session.run, or optkit.cast"),
        (operator.index, "optkit.gather"),
        (range, "Session.run"),
        (lambda x: [1, 2, 3][x], "optkit.gather"),
        (np.asarray, "Session.run or x.eval"),
        (np.array, "Session.run or x.eval"),
        (lambda x: np.array([x, x]), "Session.run"),
        (np.float32, "Session.run"),
        (lambda x: np.zeros(2) + np.asarray(x), "Session.run"),
        (np.testing.assert_array_equal, "Session.run"),
    ],
)
def test_what_needs_a_value_names_the_fix(make, use, fix):
    x = make([1.0, 2.0])
    with pytest.raises(TypeError, match=rf"needs a value.*has none until it is run.*{fix}"):
        use(x) if use is not np.testing.assert_array_equal else use(np.asarray(x), 1.0)


# -- NumPy ----------------------------------------------------------------------------------------


def test_numpys_functions_build_nodes(make):
    x = make(X)
    for result, expected in (
        (np.tanh(x) @ Y, np.tanh(X) @ Y),
        (np.mean(x), np.mean(X)),
        (np.maximum(0.0, x), np.maximum(0.0, X)),
        (np.concatenate([x, Y]), np.concatenate([X, Y])),
        (np.add(X, x), X + X),
        (Y * np.exp(x), Y * np.exp(X)),
    ):
        assert isinstance(result, Tensor)
        assert result.dtype.name == "float32"
        np.testing.assert_allclose(value(result), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("use", "what"),
    [
        (lambda x: np.hypot(x, 1.0), "np.hypot has no graph form"),
        (lambda x: np.add.reduce(x), "np.add.reduce has no graph form"),
        (lambda x: np.add.outer(x, x), "np.add.outer has no graph form"),
        (lambda x: np.add.at(np.zeros(2), [0], x), "np.add.at has no graph form"),
        (lambda x: np.add(x, 1.0, out=np.zeros(2)), r"np.add with \['out'\] has no graph form"),
        (lambda x: np.add(x, 1.0, dtype="float64"), r"np.add with \['dtype'\] has no graph form"),
        (lambda x: np.add(x, 1.0, where=[True, False]), r"np.add with \['where'\] has no graph"),
        (lambda x: np.linalg.svd(x), "np.svd has no graph form"),
        (lambda x: np.fft.fft(x), "np.fft has no graph form"),
        (lambda x: np.array_equal(x, x), "np.array_equal has no graph form"),
    ],
)
def test_numpys_functions_without_a_graph_form(make, use, what, graph):
    x = make([1.0, 2.0])
    count = graph.version
    with pytest.raises(TypeError, match=what) as caught:
        use(x)
    assert x.name in str(caught.value)
    assert graph.version == count


def test_adding_into_an_array_is_refused():
    array = np.zeros(2)
    with pytest.raises(TypeError, match="has no graph form"):
        array += constant([1.0, 2.0])
    np.testing.assert_array_equal(array, 0.0)


# -- tensors --------------------------------------------------------------------------------------


def test_attributes(graph):
    x = placeholder("float64", [None, 3], name="x")
    assert (x.name, x.op.name, x.value_index) == ("x:0", "x", 0)
    assert x.graph is graph
    assert x.dtype.name == "float64"
    assert x.shape == x.get_shape() == [None, 3]
    assert x.sizes == (None, 3)
    assert x.device == ""
    assert repr(x) == "<optkit.Tensor 'x:0' shape=(?, 3) dtype=float64>"
    parts = split(constant([1.0, 2.0]), 2, name="parts")
    assert [(part.name, part.value_index) for part in parts] == [("parts:0", 0), ("parts:1", 1)]


def test_consumers():
    x = constant(1.0)
    assert x.consumers() == []
    y, z = x + x, x * 2.0
    assert x.consumers() == [y.op, z.op]


def test_setting_the_shape_adds_what_is_known():
    x = placeholder("float32")
    x.set_shape([None, 3])
    x.set_shape([2, None])
    assert x.shape == [2, 3]
    x.set_shape(None)
    with pytest.raises(ValueError, match="are not compatible"):
        x.set_shape([4, 3])
    assert x.shape == [2, 3]


def test_eval_and_run():
    x = placeholder("float32", [], name="x")
    w = Variable(3.0)
    with Session() as session:
        w.initializer.run()
        assert (x * w).eval({x: 2.0}) == 6.0
        assert w.eval() == 3.0
    with Session() as other:
        w.initializer.run(session=other)
        assert (x * w).eval({x: 2.0}, other) == 6.0
        assert w.eval(other) == 3.0
        other.run(w.assign(5.0))
    del session


def test_eval_without_a_session_names_the_fix():
    x = constant(1.0, name="x")
    with pytest.raises(ValueError, match=r"Tensor.eval: there is no default session for 'x'.*with"):
        x.eval()
    with pytest.raises(ValueError, match=r"Operation.run: there is no default session for 'x'"):
        x.op.run()


def test_eval_in_a_session_of_another_graph():
    x = constant(1.0, name="x")
    with Session(graph=Graph()), pytest.raises(ValueError, match="'x' belongs to another graph"):
        x.eval()


# -- IndexedSlices --------------------------------------------------------------------------------


def test_indexed_slices(graph):
    values = constant([[1.0, 2.0], [3.0, 4.0]], name="values")
    slices = IndexedSlices(values, constant([0, 2]), constant([3, 2]))
    assert slices.dtype is values.dtype
    assert slices.op is values.op
    assert slices.name == "values:0"
    assert slices.graph is graph
    assert slices.device == ""
    assert slices.shape == [None, 2]
    assert "values:0" in repr(slices)
    negative = -slices
    assert isinstance(negative, IndexedSlices)
    assert negative.indices is slices.indices
    assert negative.dense_shape is slices.dense_shape
    np.testing.assert_array_equal(value(negative.values), [[-1.0, -2.0], [-3.0, -4.0]])
    assert IndexedSlices(placeholder("float32"), constant([0])).shape.ndims is None


def test_indexed_slices_in_an_expression_are_dense():
    slices = IndexedSlices(constant([[1.0], [3.0]]), constant([2, 0]), constant([3, 1]))
    np.testing.assert_array_equal(value(add(slices, 1.0)), [[4.0], [1.0], [2.0]])
    np.testing.assert_array_equal(value(constant([[1.0]] * 3) + slices), [[4.0], [1.0], [2.0]])
