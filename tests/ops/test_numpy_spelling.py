"""NumPy's functions and operators on tensors build nodes with NumPy's values."""

import numpy as np
import pytest

import optkit  # noqa: F401 - fills OPERATORS
from optkit.gradients import gradients
from optkit.graph import OPERATORS, Tensor
from optkit.ops.core import constant
from optkit.runtime.session import Session

X = np.array([[0.5, 0.25, -0.75], [0.125, -0.5, 0.875]])
Y = np.array([1.5, 2.0, 3.0])


def run(fetches):
    return Session().run(fetches)


UNARY = [
    "absolute",
    "arccos",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctanh",
    "ceil",
    "cos",
    "cosh",
    "exp",
    "expm1",
    "fabs",
    "floor",
    "isfinite",
    "isinf",
    "isnan",
    "log1p",
    "negative",
    "positive",
    "reciprocal",
    "rint",
    "sign",
    "sin",
    "sinh",
    "square",
    "tan",
    "tanh",
]
ABOVE_ONE = ["arccosh", "log", "sqrt"]
BINARY = [
    "add",
    "arctan2",
    "divide",
    "equal",
    "floor_divide",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "maximum",
    "minimum",
    "multiply",
    "not_equal",
    "remainder",
    "subtract",
]
REDUCTIONS = ["sum", "mean", "prod", "max", "amax", "min", "amin", "var", "std"]
LOGIC = ["bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor"]


@pytest.mark.parametrize("name", [*UNARY, *ABOVE_ONE])
def test_ufuncs_of_one(name):
    x = Y if name in ABOVE_ONE else X
    function = getattr(np, name)
    y = function(constant(x))
    assert isinstance(y, Tensor)
    expected = function(x)
    assert y.dtype == expected.dtype
    np.testing.assert_allclose(run(y), expected, rtol=1e-12)


@pytest.mark.parametrize("name", BINARY)
def test_ufuncs_of_two(name):
    function = getattr(np, name)
    expected = function(X, Y)
    x, y = constant(X), constant(Y)
    for z in (function(x, y), function(X, y), function(x, Y)):
        assert isinstance(z, Tensor)
        assert z.dtype == expected.dtype
        np.testing.assert_allclose(run(z), expected, rtol=1e-12)


def test_power():
    np.testing.assert_allclose(run(np.power(constant(Y), X[0])), Y ** X[0])
    np.testing.assert_allclose(run(np.power(Y, constant(X[0]))), Y ** X[0])


@pytest.mark.parametrize("name", LOGIC)
def test_ufuncs_of_truth_values(name):
    a, b = X > 0, Y > 1.75
    function = getattr(np, name)
    np.testing.assert_array_equal(run(function(constant(a), b)), function(a, b))


@pytest.mark.parametrize("name", ["invert", "logical_not"])
def test_not(name):
    np.testing.assert_array_equal(run(getattr(np, name)(constant(X > 0))), X <= 0)


@pytest.mark.parametrize(
    "name", ["sum", "mean", "prod", "max", "amax", "min", "amin", "var", "std"]
)
@pytest.mark.parametrize(
    "options", [{}, {"axis": 0}, {"axis": (0, 1)}, {"axis": -1, "keepdims": True}]
)
def test_reductions(name, options):
    function = getattr(np, name)
    y = function(constant(X), **options)
    expected = function(X, **options)
    assert y.sizes == np.shape(expected)
    np.testing.assert_allclose(run(y), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["any", "all"])
def test_truth_of_many(name):
    function = getattr(np, name)
    for x in (X > 0, X):
        np.testing.assert_array_equal(run(function(constant(x), axis=1)), function(x, axis=1))
        assert run(function(constant(x))) == function(x)


@pytest.mark.parametrize("name", ["argmax", "argmin", "cumsum"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_along_an_axis_or_flat(name, axis):
    function = getattr(np, name)
    np.testing.assert_allclose(run(function(constant(X), axis=axis)), function(X, axis=axis))


def test_round():
    for function in (np.round, np.around):
        assert run(function(constant([0.5, 1.5, -0.6]))).tolist() == [0.0, 2.0, -1.0]
    with pytest.raises(TypeError, match=r"np\.round: decimals: expected 0, got 2"):
        np.round(constant(0.5), 2)


def test_operators_with_arrays_on_the_left_are_named_as_in_tf():
    x = constant(Y)
    names = [(y.op.name) for y in (X + x, X - x, X * x, X / x, X // x, X % x, Y**x, X @ x)]
    assert names == ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "Squeeze"]


def test_a_model_in_numpys_words():
    x, w = constant(X), constant(np.ones((3, 2)))
    loss = np.mean(np.square(np.tanh(x @ w) - 1.0))
    value, dw = run([loss, gradients(loss, w)[0]])
    h = np.tanh(X @ np.ones((3, 2)))
    assert value == pytest.approx(np.mean((h - 1) ** 2))
    np.testing.assert_allclose(dw, X.T @ ((h - 1) * (1 - h**2)) / 2, rtol=1e-12)


def test_what_has_no_graph_form_is_refused():
    x = constant(Y)
    with pytest.raises(TypeError, match=r"np\.median has no graph form"):
        np.median(x)
    with pytest.raises(TypeError, match=r"np\.add\.reduce has no graph form"):
        np.add.reduce(x)
    with pytest.raises(TypeError, match=r"np\.add with \['out'\] has no graph form"):
        np.add(x, 1.0, out=np.zeros(3))


def test_every_operator_is_there():
    needed = [
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "matmul",
        "and",
        "or",
        "xor",
        "invert",
        "neg",
        "abs",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
        "getitem",
        "stack",
        "densify",
    ]
    assert [name for name in needed if name not in OPERATORS] == []


@pytest.mark.parametrize("key", sorted(key for key in OPERATORS if ":" in key))
def test_every_entry_is_numpys(key):
    kind, name = key.split(":")
    function = getattr(np, name)
    assert isinstance(function, np.ufunc) == (kind == "ufunc")
    assert function.__name__ == name
