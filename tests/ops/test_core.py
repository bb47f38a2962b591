"""Conversion of values to tensors, how a call is bound to an op, and static values."""

import inspect

import numpy as np
import pytest

import optkit
from optkit.dtypes import bool_, float16, float32, float64, int32, int64
from optkit.graph import Graph, IndexedSlices
from optkit.ops import core
from optkit.ops.array import (
    concat,
    fill,
    placeholder,
    placeholder_with_default,
    shape,
    stack,
)
from optkit.ops.control import no_op
from optkit.ops.core import (
    as_tensor,
    constant,
    constant_value,
    constant_value_as_shape,
    convert_to_tensor,
    op,
)
from optkit.ops.linalg import matmul
from optkit.ops.math import add, add_n, cast, check_numerics
from optkit.ops.random import random_uniform
from optkit.runtime import Session
from optkit.shapes import Dimension, TensorShape
from optkit.variables import Variable


def value(tensor, feeds=None):
    with Session() as session:
        return session.run(tensor, feeds)


# -- constants ------------------------------------------------------------------------------------


class Foreign:
    """An array of another library."""

    def __array__(self, dtype=None, copy=None):
        return np.arange(3.0)


# The value, and the dtype and shape it gets when none is asked for. Observed in TensorFlow, but for
# the last seven, which it refuses.
CONSTANTS = [
    (1.5, "float32", []),
    (1, "int32", []),
    (2**31 - 1, "int32", []),
    (-(2**31), "int32", []),
    (2**31, "int64", []),
    (-(2**31) - 1, "int64", []),
    (2**63, "uint64", []),
    (True, "bool", []),
    (1j, "complex128", []),
    ("a", "string", []),
    (b"a", "string", []),
    (["a", b"bc"], "string", [2]),
    ([1, 2.5], "float32", [2]),
    ([1, True], "int32", [2]),
    ([1.0, 2**40], "float32", [2]),
    ([2**31, 1], "int64", [2]),
    ([[1, 2], [3, 4]], "int32", [2, 2]),
    ((1, (2,))[:1], "int32", [1]),
    ([], "float32", [0]),
    ([[]], "float32", [1, 0]),
    (np.float64(1), "float64", []),
    (np.float32(1), "float32", []),
    (np.float16(1), "float16", []),
    (np.int64(1), "int64", []),
    (np.bool_(True), "bool", []),
    (np.arange(3), "int64", [3]),
    (np.arange(3.0), "float64", [3]),
    (np.array([1], np.uint32), "uint32", [1]),
    (np.array(["a", "b"]), "string", [2]),
    (np.array([1.0], ">f4"), "float32", [1]),
    (Foreign(), "float64", [3]),
    ([np.float64(1)], "float32", [1]),
    ([np.float32(1), 2.0], "float32", [2]),
    ([np.float16(1)], "float16", [1]),
    ([np.int64(1)], "int32", [1]),
    ([np.int64(2**40)], "int64", [1]),
    ([np.int16(1)], "int16", [1]),
    ([np.arange(3)], "int64", [1, 3]),
    ((np.zeros(2), np.zeros(2)), "float64", [2, 2]),
    (range(3), "int32", [3]),
    (Dimension(3), "int32", []),
    ([Dimension(3), 2], "int32", [2]),
    (TensorShape([1, 2]), "int32", [2]),
    (TensorShape([]), "int32", [0]),
]


@pytest.mark.parametrize(("given", "dtype", "sizes"), CONSTANTS, ids=lambda v: repr(v)[:40])
def test_constants(given, dtype, sizes):
    tensor = constant(given)
    assert tensor.dtype.name == dtype
    assert tensor.shape == sizes
    found = value(tensor)
    if dtype != "string":
        assert found.dtype.name == dtype
        expected = given.as_list() if isinstance(given, TensorShape) else given
        np.testing.assert_array_equal(found, np.array(expected, dtype))


def test_texts_are_bytes():
    assert value(constant("é")) == "é".encode()
    assert value(constant(b"a\0")) == b"a\0"
    assert value(constant(["b\0\0", b"a\0"])).tolist() == [b"b\0\0", b"a\0"]
    np.testing.assert_array_equal(
        value(constant([["a", b"b"], ["c", "dé"]])),
        np.array([[b"a", b"b"], [b"c", "dé".encode()]], object),
    )


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (1, float32),
        (True, float32),
        (True, int32),
        (1.5, float16),
        (1e10, float16),
        (float("nan"), float32),
        (np.float64(1.5), float32),
        (np.arange(3), int32),
        (np.arange(3, dtype=np.int32), int64),
        (np.arange(3), float64),
        ([True, False], float64),
        (1, "float64"),
        (1, float),
        (1, np.float16),
        ([], int32),
        (255, "uint8"),
        (-128, "int8"),
        (1, "complex64"),
        (0.5 + 1j, "complex64"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_constants_of_a_given_dtype(given, dtype):
    wanted = core.as_dtype(dtype)
    found = value(constant(given, dtype))
    assert found.dtype == wanted
    np.testing.assert_array_equal(found, np.asarray(given).astype(wanted))


@pytest.mark.parametrize(
    ("given", "dtype", "message"),
    [
        (1.5, int32, "expected int32, got 1.5 of type float"),
        (1.0, int32, "expected int32, got 1.0 of type float"),
        (float("inf"), int32, "expected int32, got inf of type float"),
        (np.float64(1.5), int32, r"expected int32, got np.float64\(1.5\) of type float64"),
        (np.array([1.5]), int64, "of type float64"),
        ([1, 2.5], int32, "of type list"),
        (1, bool_, "expected bool, got 1 of type int"),
        (1j, float32, "expected float32, got 1j of type complex"),
        (300, "uint8", "expected values that fit uint8, got 300"),
        (-1, "uint8", "expected values that fit uint8, got -1"),
        (2**31, int32, "expected values that fit int32"),
        (np.array([2**40]), int32, "expected values that fit int32"),
        ("a", int32, "expected int32, got text: 'a'"),
        (1.0, "string", "expected text, got 1.0"),
        (object(), None, "expected numbers or text, got <object"),
        ({}, None, "expected numbers or text, got {}"),
        ([None], None, r"expected numbers or text, got \[None\]"),
        ([1, "a"], None, r"expected numbers or text, got \[1, 'a'\]"),
        (["a", 1.5], None, "expected numbers or text"),
        ([["a"], [1]], None, "expected numbers or text"),
        (2**64, None, "expected numbers or text, got 18446744073709551616"),
        (np.longdouble(1), None, "optkit has no type for NumPy's"),
        (np.datetime64("2020"), None, "optkit has no type for NumPy's"),
        (TensorShape([None]), None, "unknown until the graph runs"),
        (1.0, "nonsense", "dtype: expected a data type, got 'nonsense'"),
    ],
)
def test_constants_of_another_kind_are_refused(graph, given, dtype, message):
    with pytest.raises(TypeError, match=message):
        constant(given, dtype)
    assert graph.version == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "expected a value, got None"),
        ([[1], [2, 3]], r"rows of unequal length: \[\[1\], \[2, 3\]\]"),
        ([1, [2]], "rows of unequal length"),
        ([[1.0] * 1000, [2.0]], r"\.\.\.$"),
    ],
)
def test_constants_that_are_no_array_are_refused(graph, given, message):
    with pytest.raises(ValueError, match=message):
        constant(given)
    assert graph.version == 0


def test_tensors_are_no_constants(graph):
    x = placeholder("float32", [])
    for given in (x, [x], [1.0, x], Variable(1.0)):
        with pytest.raises(TypeError, match=r"has none until it is run"):
            constant(given)
    del graph


def test_shapes_of_constants():
    np.testing.assert_array_equal(value(constant(2.0, shape=[2, 2])), [[2.0, 2.0], [2.0, 2.0]])
    np.testing.assert_array_equal(value(constant([1, 2], shape=[4])), [1, 2, 2, 2])
    np.testing.assert_array_equal(value(constant([1, 2], shape=[2, 1])), [[1], [2]])
    assert value(constant([1], shape=[])) == 1
    assert constant([], shape=[0, 3]).shape == [0, 3]
    assert constant(1.0, shape=[0, 3]).shape == [0, 3]
    assert constant([1.0, 2.0], float32, [2], "n", True).op.name == "n"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: constant([1, 2, 3], shape=[2]), r"3 values do not fit shape \(2,\)"),
        (lambda: constant([1, 2], shape=[0]), r"2 values do not fit shape \(0,\)"),
        (lambda: constant([], shape=[2]), r"0 values do not fit shape \(2,\)"),
        (lambda: constant(1.0, shape=[None]), r"expected a fully known shape, got \(\?,\)"),
        (lambda: constant(1.0, shape=[2], verify_shape=True), r"expected shape \(2,\), got \(\)"),
    ],
)
def test_shapes_that_do_not_fit(build, message, graph):
    with pytest.raises(ValueError, match=message):
        build()
    assert graph.version == 0


def test_a_constant_holds_a_copy():
    array = np.ones(2)
    tensor = constant(array)
    array[:] = 5.0
    np.testing.assert_array_equal(value(tensor), 1.0)
    with pytest.raises(ValueError, match="read-only"):
        tensor.op.get_attr("value")[:] = 5.0


# -- conversion -----------------------------------------------------------------------------------


def test_tensors_stay_what_they_are():
    x = placeholder("float32", [2])
    assert as_tensor(x) is x
    assert convert_to_tensor(x) is x
    assert as_tensor(x, float32) is x


def test_a_variable_becomes_its_value():
    w = Variable(1.0)
    assert as_tensor(w) is w.op.outputs[0]


def test_lists_that_hold_tensors_are_stacked():
    x = placeholder("float16", [2], name="x")
    feeds = {x: [5.0, 6.0]}
    for given, expected in (
        ([x, x], [[5, 6], [5, 6]]),
        ([x, [1, 2.5]], [[5, 6], [1, 2.5]]),
        ([[x], [x]], [[[5, 6]], [[5, 6]]]),
        ((x, (True, 2)), [[5, 6], [1, 2]]),
        ([[1, x[0]], [np.float64(2.0), 3]], [[1, 5], [2, 3]]),
    ):
        tensor = convert_to_tensor(given)
        assert tensor.dtype is float16
        assert tensor.shape == list(np.shape(expected))
        np.testing.assert_array_equal(value(tensor, feeds), expected)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda x: convert_to_tensor(x, float64), ValueError, "expected float64, got.*optkit.cast"),
        (lambda x: convert_to_tensor([x, None]), ValueError, "expected a value, got None"),
        (lambda x: convert_to_tensor([x, "a"]), TypeError, "expected float32, got text"),
        (lambda x: convert_to_tensor([1.5, cast(x, int32)]), TypeError, "expected int32, got 1.5"),
        (lambda x: convert_to_tensor([x, 1.0]), ValueError, "are not compatible"),
        (lambda x: convert_to_tensor(no_op()), TypeError, "expected a tensor.*has no value"),
        (lambda x: convert_to_tensor(x, "nonsense"), TypeError, "expected a data type"),
        (
            lambda x: convert_to_tensor(IndexedSlices(x, constant([0]))),
            ValueError,
            "has no dense_shape",
        ),
    ],
)
def test_what_cannot_be_converted(build, error, message):
    with pytest.raises(error, match=message):
        build(placeholder("float32", [2]))


def test_preferred_dtypes():
    assert convert_to_tensor(1, preferred_dtype=float64).dtype is float64
    assert convert_to_tensor(1, dtype_hint=float64).dtype is float64
    assert convert_to_tensor(1.5, preferred_dtype=int32).dtype is float32  # does not fit
    assert convert_to_tensor(1, float16, preferred_dtype=float64).dtype is float16
    x = placeholder("float32", [])
    assert convert_to_tensor(x, preferred_dtype=float64) is x


def test_indexed_slices_become_dense():
    slices = IndexedSlices(constant([[1.0], [2.0]]), constant([1, 1]), constant([3, 1]))
    np.testing.assert_array_equal(value(convert_to_tensor(slices)), [[0.0], [3.0], [0.0]])


# -- the inputs of an op --------------------------------------------------------------------------


def test_constants_adapt_to_the_first_tensor():
    x = placeholder("float16", [2])
    for result in (
        add(x, 1),
        add(1, x),
        add(1.5, x),
        add(x, np.float64(2)),
        add(np.arange(2), x),
        add(x, True),
        add([1, 2], x),
        add([1.0, x[0]], x),
        add([1, 2], [x[0], 3]),
        add_n([x, x]),
    ):
        assert result.dtype is float16
    assert add(1.0, 2).dtype is float32
    assert add(1, np.int64(2)).dtype is int32


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: add(x, 2.5j), "Add 'Add': y: expected float32, got 2.5j of type complex"),
        (lambda x: add(x, "a"), "Add 'Add': y: expected float32, got text: 'a'"),
        (lambda x: add(1, 2.5), "Add 'Add': y: expected int32, got 2.5 of type float"),
        (lambda x: add(cast(x, int32), x), r"Add 'Add': y: expected int32, got .*'x:0'.*cast"),
        (lambda x: add(x, object(), name="sum"), "Add 'sum': y: expected numbers or text"),
        (lambda x: x + constant(1), "Add 'add': y: expected float32, got .*'Const:0'"),
        (lambda x: add(True, False), "Add 'Add': x: expected one of .*, got bool"),
        (lambda x: matmul(x, [[1]], name="m") + "a", "expected float32, got text"),
    ],
)
def test_inputs_of_another_dtype_are_refused(build, message):
    with pytest.raises(TypeError, match=message):
        build(placeholder("float32", [1, 1], name="x"))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: add(x, None), "Add 'Add': y: expected a value, got None"),
        (lambda x: x + None, "Add 'add': y: expected a value, got None"),
        (lambda x: add(None, x), "Add 'Add': x: expected a value, got None"),
        (lambda x: add(x, [[1], [2, 3]]), "Add 'Add': y: .*rows of unequal length"),
        (lambda x: add(x, [1.0, 2.0, 3.0]), r"Add: shapes \(2,\) and \(3,\) do not.*'x:0'"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build(placeholder("float32", [2], name="x"))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: add(x), "add: the argument y is missing"),
        (lambda x: add(), "add: the argument x is missing"),
        (lambda x: add(y=x), "add: the argument x is missing"),
        (lambda x: add(x, x, z=1), r"add: unknown arguments \['z'\]"),
        (lambda x: add(x, x, y=x), "add: y was given twice"),
        (lambda x: add(x, x, "n", 3), "add: expected 2 arguments, got 4"),
        (lambda x: add(x, x, "n", name="m"), "add: expected 2 arguments, got 3"),
        (lambda x: add(x, x, x), "add: name: expected a string or None, got <optkit.Tensor"),
        (lambda x: add(x, x, name=3), "add: name: expected a string or None, got 3"),
    ],
)
def test_calls_that_do_not_match(graph, build, message):
    x = placeholder("float32", [2])
    with pytest.raises(TypeError, match=message):
        build(x)
    assert graph.version == 1


def test_the_name_may_be_the_last_positional_argument():
    x = placeholder("float32", [2])
    assert add(x, x, "n").op.name == "n"
    assert add(x, x, None).op.name == "Add"
    assert add(y=x, x=x, name="m").op.name == "m"


def test_constants_of_an_op_are_named_inside_it(graph):
    x = placeholder("float32", [], name="x")
    y = add(x, 1.0, name="sum")
    assert y.op.name == "sum"
    assert [op.name for op in graph.get_operations()] == ["x", "sum/y", "sum"]
    assert (x * 2.0).op.name == "mul"
    assert graph.get_operations()[-2].name == "mul/y"


# -- declarations ---------------------------------------------------------------------------------


@pytest.fixture
def registry(monkeypatch):
    """A registry that is thrown away."""
    monkeypatch.setattr(core, "REGISTRY", {})


@pytest.mark.usefixtures("registry")
def test_attributes_of_an_op():
    @op("Scaled")
    def scaled(xp, x, *, factor, offset=1.0):
        """x·factor + offset."""
        return x * x.dtype.type(factor) + x.dtype.type(offset)

    assert scaled.__name__ == "scaled"
    assert scaled.__doc__ == "x·factor + offset."
    assert list(inspect.signature(scaled).parameters) == ["x", "factor", "offset", "name"]
    assert {"Scaled": scaled} == core.REGISTRY
    assert value(scaled(2.0, factor=3.0)) == 7.0
    assert value(scaled(2.0, factor=3.0, offset=0.0)) == 6.0
    with pytest.raises(TypeError, match=r"scaled: the arguments \['factor'\] are missing"):
        scaled(2.0)
    with pytest.raises(TypeError, match="scaled: expected 1 arguments, got 3"):
        scaled(2.0, 3.0, 4.0)
    with pytest.raises(ValueError, match="an op of type 'Scaled' is declared already"):
        op("Scaled")(lambda xp, x: x)


@pytest.mark.usefixtures("registry")
def test_inputs_with_dtypes_of_their_own():
    @op("Picked", types={float32, float64}, accepts={"flag": {bool_}}, shape=())
    def picked(xp, x, flag):
        return x if flag else -x

    assert picked(np.float64(1), True).dtype is float64
    assert value(picked(1.0, False)) == -1.0
    with pytest.raises(TypeError, match="Picked 'Picked': flag: expected bool, got 1"):
        picked(1.0, 1)
    with pytest.raises(TypeError, match="x: expected one of float32, float64, got int32"):
        picked(1, True)


@pytest.mark.usefixtures("registry")
def test_a_broken_kernel_is_named():
    @op("Broken", infer=lambda inputs, _: [(float32, ())] * 2)
    def broken(xp, x):
        return (x,)

    node = broken.node(1.0)
    with (
        Session() as session,
        pytest.raises(
            optkit.errors.InternalError, match=r"gave 1 values for 2 outputs.*\n.*Broken"
        ),
    ):
        session.run(node)


# -- the user's line ------------------------------------------------------------------------------


SITES = {
    "operator": lambda x, w: x * 2.0,
    "reflected": lambda x, w: 2.0 - x,
    "getitem": lambda x, w: x[0],
    "ufunc": lambda x, w: np.tanh(x),
    "function": lambda x, w: np.mean(x),
    "array on the left": lambda x, w: np.ones((2, 2), np.float32) * x,
    "read": lambda x, w: w * 1.0,
    "assign": lambda x, w: w.assign(x),
    "variable": lambda x, w: Variable(lambda: x * 2.0, validate_shape=False),
    "cond": lambda x, w: optkit.cond(x[0, 0] > 0, lambda: x * 2.0, lambda: x),
    "gradients": lambda x, w: optkit.gradients(x @ w, [w]),
    "scope": lambda x, w: optkit.name_scope("s", values=[x]).__enter__() and x + 1.0,
    "clip": lambda x, w: optkit.clip_by_global_norm([x, w], 1.0),
    "minimize": lambda x, w: optkit.train.AdamOptimizer(0.1).minimize(optkit.reduce_sum(x @ w)),
    "optimize_loss": lambda x, w: optkit.optimize_loss(
        optkit.reduce_sum(x @ w), None, 0.1, "SGD", clip_gradients=1.0
    ),
    "moving average": lambda x, w: optkit.train.ExponentialMovingAverage(0.9).apply([w]),
    "decay": lambda x, w: optkit.train.exponential_decay(0.1, w[0, 0], 10, 0.5),
}


@pytest.mark.parametrize("build", SITES.values(), ids=SITES)
def test_every_operation_knows_the_users_line(graph, build):
    x = placeholder("float32", [2, 2])
    w = Variable(np.ones((2, 2), np.float32))
    before = graph.version
    build(x, w)
    made = graph.get_operations()[before:]
    assert made
    for operation in made:
        path, line, function = operation.site
        assert path == __file__, operation
        assert function == "<lambda>", operation
        assert inspect.getsourcelines(build)[1] <= line, operation


# -- static values --------------------------------------------------------------------------------


def test_constant_value_of_plain_values():
    np.testing.assert_array_equal(constant_value([1, 2]), [1, 2])
    assert constant_value(1.5).dtype == np.float32
    assert constant_value(constant(3)) == 3


def test_constant_value_follows_from_constants():
    n = constant([1, 2])
    known = constant_value(concat([n + 1, n[:1] * 5], 0))
    np.testing.assert_array_equal(known, [2, 3, 5])
    assert known.dtype == np.int32


def test_constant_value_follows_from_static_shapes():
    x = placeholder("float32", [2, 3])
    np.testing.assert_array_equal(constant_value(shape(x)), [2, 3])
    assert constant_value(optkit.size(x)) == 6
    assert constant_value(optkit.rank(x)) == 2
    assert constant_value(shape(x, out_type=int64)).dtype == np.int64
    assert constant_value(shape(x)[0] * 2) == 4
    assert constant_value(optkit.rank(placeholder("float32", [None, 3]))) == 2


@pytest.mark.parametrize(
    "build",
    [
        lambda: placeholder("float32", []),
        lambda: placeholder_with_default(3, []),
        lambda: placeholder_with_default(3, []) + 1,
        lambda: random_uniform([2], seed=1),
        lambda: Variable(1.0),
        lambda: Variable(1.0).assign(2.0),
        lambda: shape(placeholder("float32", [None])),
        lambda: optkit.size(placeholder("float32", [None])),
        lambda: optkit.rank(placeholder("float32")),
        lambda: optkit.cond(constant(True), lambda: constant(1), lambda: constant(2)),
        lambda: check_numerics(constant(np.inf), "folding must not raise"),
        lambda: constant(1) // constant(0),
    ],
)
def test_what_has_no_static_value(build):
    assert constant_value(build()) is None


def test_static_values_that_are_large_are_not_worked_out():
    assert constant_value(fill([100, 100], 1.0)) is None
    assert constant_value(fill([4], 1.0)).shape == (4,)


def test_static_values_of_wide_and_deep_graphs():
    n = constant(1, int64)
    for _ in range(60):
        n = n + n  # 2**60 paths
    assert constant_value(n) == 2**60
    for _ in range(5000):
        n = n * 1
    assert constant_value(n) is None  # too far away; nothing overflows the stack


def test_no_warning_while_folding():
    assert np.isinf(constant_value(constant(1.0) / constant(0.0)))


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda x: [2, 3], (2, 3)),
        (lambda x: 5, (5,)),
        (lambda x: [2, -1], (2, None)),
        (lambda x: TensorShape([2, None]), (2, None)),
        (lambda x: TensorShape(None), None),
        (lambda x: [], ()),
        (lambda x: constant([2, 3]), (2, 3)),
        (lambda x: constant([2, -1]), (2, None)),
        (lambda x: shape(x), (None, 3)),
        (lambda x: shape(x, out_type=int64), (None, 3)),
        (lambda x: cast(shape(x), int64), (None, 3)),
        (lambda x: shape(x)[1:], (3,)),
        (lambda x: shape(x)[::-1], (3, None)),
        (lambda x: [shape(x)[0], 7], (None, 7)),
        (lambda x: [shape(x)[1], 7], (3, 7)),
        (lambda x: [x.shape[1], 7], (3, 7)),
        (lambda x: stack([shape(x)[1], 7]), (3, 7)),
        (lambda x: concat([shape(x), [5]], 0), (None, 3, 5)),
        (lambda x: concat([shape(x)[:1], [4, 5]], 0), (None, 4, 5)),
        (lambda x: placeholder("int32", [2]), (None, None)),
        (lambda x: placeholder("int32", [None]), None),
        (lambda x: placeholder("int32"), None),
        (lambda x: shape(placeholder("float32")), None),
    ],
)
def test_constant_value_as_shape(build, expected):
    assert constant_value_as_shape(build(placeholder("float32", [None, 3]))) == expected


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([1.5], TypeError, "expected integers, got float32"),
        ([[1, 2], [3, 4]], ValueError, r"got an array of shape \(2, 2\)"),
        (None, ValueError, "got None"),
        ("ab", TypeError, "expected integers"),
    ],
)
def test_what_is_no_shape(given, error, message):
    with pytest.raises(error, match=message):
        constant_value_as_shape(given)


def test_building_into_a_graph_that_is_not_the_default():
    other = Graph()
    with other.as_default():
        x = constant(1.0)
    with pytest.raises(ValueError, match="another graph than the one being built"):
        add(x, 1.0)
