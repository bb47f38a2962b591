"""Sessions: what can be fetched and fed, whose arrays they are, errors, defaults, threads."""

import copy
import gc
import threading
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pytest

from optkit.errors import FailedPreconditionError, InvalidArgumentError
from optkit.gradients import gradients
from optkit.graph import (
    Graph,
    GraphKeys,
    IndexedSlices,
    Kind,
    get_default_graph,
    get_default_session,
    reset_default_graph,
)
from optkit.ops.array import identity, placeholder, placeholder_with_default
from optkit.ops.control import cond, group, no_op
from optkit.ops.core import constant
from optkit.ops.host import py_func
from optkit.ops.indexing import gather
from optkit.ops.math import add
from optkit.ops.random import random_uniform
from optkit.runtime import (
    ConfigProto,
    GPUOptions,
    IndexedSlicesValue,
    InteractiveSession,
    RunMetadata,
    RunOptions,
    Session,
)
from optkit.runtime import session as session_module
from optkit.variables import Variable, global_variables_initializer


@pytest.fixture
def session(graph):
    with Session() as session:
        yield session


def initialized(session, *variables):
    session.run([variable.initializer for variable in variables])
    return variables


# -- fetches --------------------------------------------------------------------------------------


class Pair(NamedTuple):
    first: object
    second: object


class Names(list):
    """A list of the user's own."""


def test_structures(session):
    x, y = constant(1.0, name="x"), constant([2.0, 3.0], name="y")
    op = no_op(name="nothing")
    assert session.run(x) == 1.0
    assert session.run([x, op]) == [1.0, None]
    assert session.run((x, x)) == (1.0, 1.0)
    assert session.run([]) == []
    assert session.run(()) == ()
    assert session.run({}) == {}
    assert session.run([[], {"a": ()}]) == [[], {"a": ()}]
    assert session.run(op) is None
    found = session.run({"x": x, "more": [y, (op, {3: x})]})
    assert list(found) == ["x", "more"]
    assert found["x"] == 1.0
    np.testing.assert_array_equal(found["more"][0], [2.0, 3.0])
    assert found["more"][1] == (None, {3: 1.0})


def test_structures_keep_their_types(session):
    x = constant(1.0)
    assert type(session.run(Pair(x, [x]))) is Pair
    assert session.run(Pair(x, [x])) == Pair(1.0, [1.0])
    made = namedtuple("made", "a b")(x, x)
    assert session.run(made)._asdict() == {"a": 1.0, "b": 1.0}
    ordered = session.run(OrderedDict([("b", x), ("a", x)]))
    assert type(ordered) is OrderedDict
    assert list(ordered) == ["b", "a"]
    found = session.run(defaultdict(list, {"a": x}))
    assert type(found) is defaultdict
    assert found["new"] == []
    assert found["a"] == 1.0
    assert session.run(MappingProxyType({"a": x})) == {"a": 1.0}
    assert session.run(UserDict({"a": x})) == {"a": 1.0}
    assert session.run(Names([x])) == [1.0]


def test_names(session):
    constant(1.0, name="x")
    assert session.run("x:0") == 1.0
    assert session.run(["x:0", "x"]) == [1.0, None]


def test_variables_and_rows(session):
    (w,) = initialized(session, Variable([[1.0], [2.0], [3.0]], name="w"))
    np.testing.assert_array_equal(session.run(w), [[1.0], [2.0], [3.0]])
    (dw,) = gradients(gather(w, [2, 0, 2]), [w])
    assert isinstance(dw, IndexedSlices)
    found = session.run(dw)
    assert isinstance(found, IndexedSlicesValue)
    np.testing.assert_array_equal(found.values, np.ones((3, 1)))
    np.testing.assert_array_equal(found.indices, [2, 0, 2])
    np.testing.assert_array_equal(found.dense_shape, [3, 1])
    bare = session.run([IndexedSlices(constant([1.0]), constant([0]))])[0]
    assert bare.dense_shape is None


def test_duplicates_are_computed_once_and_handed_out_twice(session):
    x = random_uniform([3])
    a, b, (c, _) = session.run([x, x, (x, x.op)])
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(a, c)
    assert a is not b
    a[:] = -1.0
    assert (b >= 0).all()


def test_scalars_are_numpy_scalars(session):
    for given, kind in ((1.5, np.float32), (1, np.int32), (True, np.bool_)):
        found = session.run(constant(given))
        assert type(found) is kind
    assert type(session.run(constant("a"))) is bytes
    assert type(session.run(constant([1.0]))) is np.ndarray


class Picky(dict):
    """A dict that is not made of a dict."""

    def __init__(self, key, value):
        super().__init__({key: value})


class PickyTuple(tuple):
    """A tuple that is not made of a list."""

    def __new__(cls, first, second):
        return super().__new__(cls, (first, second))


def test_values_are_not_lost_in_a_structure_that_cannot_be_made_again(session):
    (w,) = initialized(session, Variable(1.0))
    step = w.assign_add(1.0)
    assert session.run(Picky("a", step)) == {"a": 2.0}
    assert session.run(PickyTuple(step, w)) == (3.0, 2.0)
    assert session.value(w) == 3.0


# -- whose arrays they are ------------------------------------------------------------------------


def test_fetched_arrays_are_the_callers_own(session):
    x = constant([1.0, 2.0])
    (w,) = initialized(session, Variable([1.0, 2.0]))
    feed = placeholder("float32", [2])
    fed = np.array([1.0, 2.0], np.float32)
    for tensor in (x, w, identity(w), identity(x), x[::-1], feed, identity(feed), w + 0.0):
        first = session.run(tensor, {feed: fed})
        assert first.flags.owndata
        assert first.flags.writeable
        again = first.copy()
        first[:] = 100.0
        np.testing.assert_array_equal(session.run(tensor, {feed: fed}), again)
    np.testing.assert_array_equal(fed, [1.0, 2.0])


def test_later_steps_do_not_change_fetched_arrays(session):
    (w,) = initialized(session, Variable([1.0, 2.0]))
    step = w.assign_add([1.0, 1.0])
    start, after = session.run([w, step])
    held = session.value(w)
    copies = [copy.deepcopy(array) for array in (start, after, held)]
    for _ in range(3):
        session.run(step)
    for array, before in zip((start, after, held), copies, strict=True):
        np.testing.assert_array_equal(array, before)
    held[:] = 100.0
    np.testing.assert_array_equal(session.value(w), [5.0, 6.0])


def test_strings_are_the_callers_own(session):
    x = constant(["a", "b"])
    found = session.run(x)
    found[0] = b"changed"
    np.testing.assert_array_equal(session.run(x), np.array([b"a", b"b"], object))


@pytest.mark.parametrize("through", [lambda x: x, identity, lambda x: x[:], lambda x: x + 0.0])
def test_arrays_changed_after_the_run_do_not_change_variables(session, through):
    w = Variable([0.0, 0.0])
    x = placeholder("float32", [2])
    store = w.assign(through(x))
    fed = np.array([1.0, 2.0], np.float32)
    session.run(store, {x: fed})
    fed[:] = 100.0
    np.testing.assert_array_equal(session.value(w), [1.0, 2.0])


@pytest.mark.host("CuPy has no arrays that are read-only")
def test_fed_arrays_are_never_written(session):
    x = placeholder("float32", [2])
    fed = np.array([1.0, 2.0], np.float32)
    fed.flags.writeable = False
    assert session.run(add(x, 1.0), {x: fed}).tolist() == [2.0, 3.0]
    writeable = np.array([1.0, 2.0], np.float32)
    session.run(add(x, 1.0), {x: writeable})
    assert writeable.flags.writeable

    def kernel(xp, x):
        x[0] = 100.0
        return x

    spoiling = Kind("Spoiling", kernel, infer=lambda inputs, _: [(inputs[0].dtype, (2,))])
    y = x.graph.create_operation(spoiling, [x]).outputs[0]
    for _ in range(3):
        with pytest.raises(InvalidArgumentError, match="read-only"):
            session.run(y, {x: writeable})
    np.testing.assert_array_equal(writeable, [1.0, 2.0])


# -- feeds ----------------------------------------------------------------------------------------


def test_any_tensor_can_be_fed(session):
    x = constant(1.0, name="x")
    y = x * 2.0
    z = y + 1.0
    assert session.run(z) == 3.0
    assert session.run(z, {y: 10.0}) == 11.0
    assert session.run(z, {x: 10.0}) == 21.0
    assert session.run(z, {"x:0": 10.0}) == 21.0
    assert session.run([y, z], {y: 10.0}) == [10.0, 11.0]
    assert session.run(x, {x: 5.0}) == 5.0


def test_feeding_cuts_what_comes_before(session):
    missing = placeholder("float32", [])
    (w,) = initialized(session, Variable(1.0))
    y = missing + w.assign_add(1.0)
    assert session.run(y * 2.0, {y: 4.0}) == 8.0
    assert session.value(w) == 1.0


def test_a_fed_variable_replaces_all_its_reads(session):
    (w,) = initialized(session, Variable(1.0, name="w"))
    before = w * 1.0
    store = w.assign(2.0)
    with get_default_graph().control_dependencies([store]):
        after = w * 1.0
    for key in (w, "w:0", w.op.outputs[0]):
        assert session.run([before, after, w, store], {key: 7.0}) == [7.0, 7.0, 7.0, 2.0]
    assert session.value(w) == 2.0


def test_writes_to_a_fed_variable_change_what_is_stored(session):
    (w,) = initialized(session, Variable(1.0))
    assert session.run(w.assign_add(w), {w: 10.0}) == 11.0
    assert session.value(w) == 11.0


def test_a_fed_variable_needs_no_initializer(session):
    w = Variable([1.0, 2.0])
    np.testing.assert_array_equal(session.run(w * 2.0, {w: [3.0, 4.0]}), [6.0, 8.0])


def test_rows_can_be_fed(session):
    slices = IndexedSlices(
        placeholder("float32", [None, 1]), placeholder("int64", [None]), constant([3, 1])
    )
    dense = add(slices, 0.0)
    expected = [[0.0], [3.0], [0.0]]
    values = [[1.0], [2.0]]
    for given in (
        (values, [1, 1]),
        (values, [1, 1], None),
        IndexedSlicesValue(np.array(values), np.array([1, 1]), np.array([3, 1])),
        IndexedSlices(np.array(values), np.array([1, 1])),
    ):
        np.testing.assert_array_equal(session.run(dense, {slices: given}), expected)
    for bad in (values[0], 3.0, None):
        with pytest.raises(TypeError, match=r"expected \(values, indices, dense_shape\)"):
            session.run(dense, {slices: bad})


class Exported:
    """An array of another library that speaks DLPack alone."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class Refusing:
    """An array that does not let itself be converted, as one on a device or with a gradient."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("call detach() first")


class Device:
    """Like a CuPy array: np.asarray is refused, get() copies to the host."""

    __cuda_array_interface__ = {"shape": (2,), "typestr": "<f4", "data": (0, False), "version": 3}  # noqa: RUF012

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def get(self):
        return np.array([1.0, 2.0], np.float32)


@pytest.mark.parametrize(
    ("dtype", "fed"),
    [
        ("float32", [1, 2]),
        ("float32", (1.5, 2)),
        ("float32", np.array([1.0, 2.0])),
        ("float32", np.array([1, 2])),
        ("float32", np.array([True, False])),
        ("float32", [True, False]),
        ("int32", np.array([True, False])),
        ("float32", np.array([1.0, 2.0], ">f4")),
        ("float32", np.arange(4, dtype=np.float32)[::2]),
        ("float32", Exported(np.array([1.0, 2.0], np.float32))),
        ("float64", Exported(np.array([1.0, 2.0], np.float32))),
        ("float16", np.array([1.0, 2.0])),
        ("int32", np.array([1, 2], np.int64)),
        ("int64", np.array([1, 2], np.uint8)),
        ("uint8", [1, 255]),
        ("bool", [True, False]),
        ("float32", []),
        ("complex64", [1.0, 2.0]),
    ],
)
def test_values_of_many_kinds(session, dtype, fed):
    x = placeholder(dtype, [None])
    found = session.run(x, {x: fed})
    plain = fed._array if isinstance(fed, Exported) else fed
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.asarray(plain).astype(dtype))


def test_p108_device_arrays_are_copied_to_the_host_for_numpy(graph):
    for dtype in ("float32", "float64"):
        x = placeholder(dtype, [2])
        with Session(backend="numpy") as session:
            np.testing.assert_array_equal(session.run(x * 2.0, {x: Device()}), [2.0, 4.0])


def test_texts_can_be_fed(session):
    x = placeholder("string", [None])
    for fed in (["a", b"b"], np.array(["a", "b"]), np.array([b"a", "b"], object)):
        np.testing.assert_array_equal(session.run(x, {x: fed}), np.array([b"a", b"b"], object))


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_matrices_are_plain_arrays(session):
    x = placeholder("float32", [2, 2])
    fed = np.matrix([[1.0, 2.0], [3.0, 4.0]], np.float32)
    found = session.run(x * x, {x: fed})
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, [[1.0, 4.0], [9.0, 16.0]])


def test_results_of_a_run_can_be_fed(session):
    x = placeholder("float32", [None])
    y = x * 2.0
    value = np.ones(2, np.float32)
    for _ in range(3):
        value = session.run(y, {x: value})
    np.testing.assert_array_equal(value, [8.0, 8.0])


@pytest.mark.parametrize(
    ("dtype", "fed", "message"),
    [
        ("int32", [1.5, 2.0], "'x:0': expected int32, got .* of type list"),
        ("int32", np.array([1.0, 2.0]), "'x:0': expected int32, got .* of type float64"),
        ("bool", [1, 0], "expected bool, got"),
        ("float32", [1j, 2.0], "expected float32, got .*"),
        ("uint8", [-1, 0], "expected values that fit uint8"),
        ("int32", [2**40, 1], "expected values that fit int32"),
        ("float32", ["a", "b"], "expected float32, got text"),
        ("string", [1.0, 2.0], "expected text, got"),
        ("float32", [None, None], "expected numbers or text"),
        ("float32", object(), "expected numbers or text"),
        ("float32", Refusing(), "'x:0': call detach"),
    ],
)
def test_values_of_another_dtype_are_refused(session, dtype, fed, message):
    x = placeholder(dtype, [2], name="x")
    with pytest.raises(TypeError, match=f"feed_dict: the value for .*{message}"):
        session.run(x, {x: fed})


@pytest.mark.parametrize(
    ("fed", "message"),
    [
        ([1.0], r"'x:0': expected shape \(2, \?\), got \(1,\)"),
        (1.0, r"'x:0': expected shape \(2, \?\), got \(\)"),
        (np.ones((3, 2)), r"'x:0': expected shape \(2, \?\), got \(3, 2\)"),
        ([[1.0], [2.0, 3.0]], "'x:0': .*rows of unequal length"),
        (None, "'x:0': expected a value, got None"),
    ],
)
def test_values_of_another_shape_are_refused(session, fed, message):
    x = placeholder("float32", [2, None], name="x")
    with pytest.raises(ValueError, match=f"feed_dict: the value for {message}"):
        session.run(x, {x: fed})


def test_tensors_are_no_values_to_feed(session):
    x = placeholder("float32", [], name="x")
    for fed in (constant(1.0), Variable(1.0), no_op()):
        with pytest.raises(
            TypeError, match=r"feed arrays or numbers, e.g. the result of Session.run"
        ):
            session.run(x, {x: fed})


@pytest.mark.parametrize(
    ("feeds", "error", "message"),
    [
        (lambda x: [x, 1.0], TypeError, "feed_dict: expected a dict, got list"),
        (lambda x: {x.op: 1.0}, TypeError, "feed_dict: the key .*expected a tensor"),
        (lambda x: {"x": 1.0}, ValueError, "feed_dict: the key 'x'.*a tensor's name is 'x:0'"),
        (
            lambda x: {"nothing:0": 1.0},
            TypeError,
            "the key 'nothing:0': the graph has no operation",
        ),
        (lambda x: {3: 1.0}, TypeError, "feed_dict: the key 3: expected a Tensor"),
        (lambda x: {"x:1": 1.0}, TypeError, "has 1 outputs"),
    ],
)
def test_keys_that_cannot_be_fed(session, feeds, error, message):
    x = placeholder("float32", [], name="x")
    with pytest.raises(error, match=message):
        session.run(x, feeds(x))


def test_default_values_of_placeholders(session):
    x = placeholder_with_default(constant([1.0]), [None])
    np.testing.assert_array_equal(session.run(x * 2.0), [2.0])
    np.testing.assert_array_equal(session.run(x * 2.0, {x: [3.0, 4.0]}), [6.0, 8.0])


# -- errors ---------------------------------------------------------------------------------------


def test_a_placeholder_that_is_not_fed(session):
    x = placeholder("float32", [None, 3], name="x")
    with pytest.raises(InvalidArgumentError, match=r"'x' was not fed.*float32 and shape") as caught:
        session.run(x * 2.0)
    assert caught.value.op is x.op
    assert __file__ in str(caught.value)


@pytest.mark.parametrize(
    ("fetch", "error", "message"),
    [
        (lambda: "nothing", ValueError, "fetches: the graph has no operation 'nothing'"),
        (lambda: "x:7", ValueError, "fetches: .*has 1 outputs"),
        (
            lambda: 3.0,
            TypeError,
            "fetches: expected a Tensor, Operation, Variable or a name, got 3",
        ),
        (lambda: [object()], TypeError, "fetches: expected a Tensor"),
        (lambda: {"a": {1, 2}}, TypeError, "fetches: expected a Tensor"),
        (lambda: None, TypeError, "fetches: None cannot be fetched; summary.merge_all"),
        (lambda: [None], TypeError, "fetches: None cannot be fetched"),
    ],
)
def test_what_cannot_be_fetched(session, fetch, error, message):
    constant(1.0, name="x")
    with pytest.raises(error, match=message):
        session.run(fetch())


def test_p025_none_among_gradients_lists_the_variables(session, graph):
    graph.missing_gradients.extend(["unused", "other"])
    x = constant(1.0)
    with pytest.raises(TypeError, match="compute_gradients found no gradient for unused, other"):
        session.run([x, None])


def test_uninitialised_variables_are_named(session):
    w, v = Variable(1.0, name="w"), Variable(1.0, name="v")
    session.run(w.initializer)
    for use in (v, v * w, v.assign_add(1.0), [w, v]):
        with pytest.raises(
            FailedPreconditionError,
            match="variable 'v' is not initialised; run global_variables_in",
        ) as caught:
            session.run(use)
        assert caught.value.op is v.op
    assert session.run(v.assign(5.0)) == 5.0


def test_another_graphs_elements_are_refused(session):
    with Graph().as_default():
        stranger = constant(1.0, name="stranger")
    x = placeholder("float32", [])
    with pytest.raises(ValueError, match=r"fetches: .*'stranger:0'.*belongs to another graph"):
        session.run(stranger)
    with pytest.raises(ValueError, match=r"feed_dict: the key .*'stranger:0'.*another graph"):
        session.run(x, {stranger: 1.0})


def test_an_old_session_after_a_reset_names_the_fix():
    old = Session()
    reset_default_graph()
    x = constant(1.0)
    with pytest.raises(ValueError, match=r"After reset_default_graph\(\) a new session"):
        old.run(x)
    old.close()


def test_closed_sessions(session):
    x = constant(1.0)
    (w,) = initialized(session, Variable(1.0))
    session.close()
    for use in (lambda: session.run(x), lambda: session.run(x)):
        with pytest.raises(RuntimeError, match="the session is closed; make a new Session"):
            use()
    with pytest.raises((RuntimeError, FailedPreconditionError)):
        session.value(w)
    session.close()


def test_closing_frees_the_variables():
    w = Variable(np.ones(10))
    session = Session()
    session.run(w.initializer)
    session.close()
    gc.collect()
    assert session._state == {}
    assert not session._plans


def test_a_session_closed_in_the_middle_of_a_run_closes_at_its_end(session):
    (w,) = initialized(session, Variable([1.0, 2.0]))

    def closing(x):
        session.close()
        return x + 1

    after = w.assign(py_func(closing, [w], "float32"))
    assert session.run(after).tolist() == [2.0, 3.0]
    assert session._state == {}
    assert not session._plans
    with pytest.raises(RuntimeError, match="the session is closed"):
        session.run(after)


def test_running_inside_a_run_is_refused(session):
    x = placeholder("float32", [])

    class Nested:
        def __array__(self, dtype=None, copy=None):
            return np.asarray(session.run(constant(1.0)))

    with pytest.raises(TypeError, match=r"inside a run of the same session.*Session.value reads"):
        session.run(x, {x: Nested()})
    assert session.run(x, {x: 1.0}) == 1.0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"target": "grpc://localhost"}, ValueError, "target: optkit runs in this process only"),
        ({"target": Graph()}, TypeError, "pass it as graph="),
        ({"graph": "g"}, TypeError, "graph: expected a Graph, got 'g'"),
        ({"backend": "tpu"}, ValueError, "backend: expected one of auto, numpy, cupy, got 'tpu'"),
    ],
)
def test_bad_arguments_of_a_session(arguments, error, message):
    with pytest.raises(error, match=message):
        Session(**arguments)


# -- sessions by default --------------------------------------------------------------------------


def test_the_stack_of_default_sessions():
    x = constant(1.0)
    assert get_default_session() is None
    with Session() as outer:
        assert get_default_session() is outer
        inner = Session()
        with inner.as_default() as entered:
            assert entered is inner
            assert get_default_session() is inner
        assert get_default_session() is outer
        assert inner.run(x) == 1.0  # as_default does not close
        inner.close()
    assert get_default_session() is None
    with pytest.raises(RuntimeError, match="closed"):
        outer.run(x)


def test_a_session_makes_its_graph_the_default():
    graph = Graph()
    before = get_default_graph()
    with Session(graph=graph) as session:
        assert get_default_graph() is graph is session.graph
        assert constant(1.0).eval() == 1.0
    assert get_default_graph() is before


def test_nested_sessions_of_two_graphs():
    first, second = Graph(), Graph()
    with first.as_default():
        x = constant(1.0)
    with Session(graph=first) as outer:
        with Session(graph=second) as inner:
            y = constant(2.0)
            assert y.eval() == 2.0
            assert x.eval(session=outer) == 1.0
            with pytest.raises(ValueError, match="belongs to another graph than the session's"):
                x.eval()
            with outer.as_default():
                assert x.eval() == 1.0
                assert get_default_graph() is second  # only the session changed, as in TF
        assert x.eval() == 1.0
        with pytest.raises(RuntimeError, match="closed"):
            inner.run(y)


def test_the_with_of_a_session_ends_with_an_error():
    before = get_default_graph()
    with pytest.raises(KeyError), Session(graph=Graph()):
        raise KeyError
    assert get_default_session() is None
    assert get_default_graph() is before


def test_a_session_is_entered_once_at_a_time():
    x = constant(1.0)
    with Session() as session:
        with pytest.raises(RuntimeError, match=r"use `with session.as_default\(\):`"), session:
            pass
        assert session.run(x) == 1.0
        with session.as_default(), session.as_default():
            assert x.eval() == 1.0
        assert get_default_session() is session
    assert get_default_session() is None


def test_default_sessions_are_one_a_thread(session):
    seen = []
    thread = threading.Thread(target=lambda: seen.append(get_default_session()))
    thread.start()
    thread.join()
    assert seen == [None]
    assert get_default_session() is session


def test_interactive_sessions():
    x = constant(1.0)
    session = InteractiveSession()
    assert get_default_session() is session
    assert x.eval() == 1.0
    with Session() as other:
        assert get_default_session() is other
    assert get_default_session() is session
    session.close()
    assert get_default_session() is None
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        session.run(x)


def test_an_interactive_session_brings_its_graph():
    graph, other = Graph(), Graph()
    before = get_default_graph()
    session = InteractiveSession(graph=graph)
    assert get_default_graph() is graph
    with other.as_default():
        assert get_default_graph() is other
        session.close()
        assert get_default_graph() is other
    assert get_default_graph() is before


def test_an_interactive_session_outlives_the_block_it_was_made_in():
    outer = Session()
    with outer.as_default():
        session = InteractiveSession()
    assert get_default_session() is session
    session.close()
    assert get_default_session() is None
    outer.close()


def test_interactive_sessions_are_removed_in_any_order():
    first, second = InteractiveSession(), InteractiveSession()
    first.close()
    assert get_default_session() is second
    second.close()
    assert get_default_session() is None


# -- the rest of the interface --------------------------------------------------------------------


def test_make_callable(session):
    x, y = placeholder("float32", []), placeholder("float32", [])
    call = session.make_callable([x - y, x], [x, y])
    assert call(3.0, 1.0) == [2.0, 3.0]
    assert call(1.0, 3.0) == [-2.0, 1.0]
    assert session.make_callable(constant(1.0))() == 1.0
    assert session.make_callable({"a": y}, ["Placeholder_1:0"])(4.0) == {"a": 4.0}
    with pytest.raises(TypeError, match="expected 2 values, got 1"):
        call(1.0)
    with pytest.raises(TypeError, match="accept_options=True"):
        call(1.0, 2.0, options=RunOptions())
    accepting = session.make_callable(x, [x], accept_options=True)
    assert accepting(1.0, options=RunOptions(), run_metadata=RunMetadata()) == 1.0
    with pytest.raises(TypeError, match="fetches: None cannot be fetched"):
        session.make_callable(None)


def test_value_reads_storage(session):
    w = Variable([1.0, 2.0], name="w")
    with pytest.raises(FailedPreconditionError, match="'w' is not initialised"):
        session.value(w)
    session.run(w.initializer)
    for given in (w, "w", "w:0", w.op, w.op.outputs[0]):
        np.testing.assert_array_equal(session.value(given), [1.0, 2.0])
    assert type(session.value(initialized(session, Variable(3.0))[0])) is np.float32
    for bad in (constant(1.0), "Const:0", w * 2.0):
        with pytest.raises(TypeError, match="variable: expected a Variable of the graph"):
            session.value(bad)
    with Graph().as_default():
        stranger = Variable(1.0)
    with pytest.raises(ValueError, match="another graph"):
        session.value(stranger)


def test_plans_are_kept_up_to_a_bound(session, monkeypatch):
    monkeypatch.setattr(session_module, "_PLANS", 3)
    tensors = [constant(float(i)) for i in range(5)]
    for tensor in tensors:
        session.run(tensor)
    assert len(session._plans) == 3
    kept = dict(session._plans)
    session.run(tensors[2])  # used last now
    session.run(tensors[0])
    assert len(session._plans) == 3
    assert {key[0][0] for key in session._plans} == {tensors[0], tensors[2], tensors[4]}
    assert session._plans[(tensors[4],), ()] is kept[(tensors[4],), ()]


def test_no_program_outlives_its_plan(session, monkeypatch):
    """A plan may go and be made again for others, between two runs of what it was made for."""
    monkeypatch.setattr(session_module, "_PLANS", 2)
    x = constant([1.0, 2.0])
    for fetch in [x, {"a": [x, x]}, {"a": [x] * 3}, {"a": x}, x, x] * 2:
        session.run(fetch)
        assert set(session._programs) <= set(session._plans.values())


def test_plans_depend_on_what_is_fed(session):
    x = constant(1.0)
    y = x + 1.0
    assert [session.run(y), session.run(y, {x: 5.0}), session.run(y)] == [2.0, 6.0, 2.0]
    assert len(session._plans) == 2


def test_a_graph_may_grow_between_runs(session):
    (w,) = initialized(session, Variable(1.0))
    assert session.run(w) == 1.0
    later = Variable(2.0)
    session.run(later.initializer)
    assert session.run([w, later, w + later]) == [1.0, 2.0, 3.0]


def test_options_are_accepted(session):
    config = ConfigProto(gpu_options=GPUOptions(allow_growth=True), allow_soft_placement=True)
    config.gpu_options.per_process_gpu_memory_fraction = 0.5
    assert Session(config=config).config is config
    assert ConfigProto().gpu_options.allow_growth is False
    assert session.run(constant(1.0), None, RunOptions(trace_level=1), RunMetadata()) == 1.0
    with pytest.raises(ValueError, match=r"ConfigProto: unknown options \['gpu_option'\]; it has"):
        ConfigProto(gpu_option=None)
    ConfigProto().graph_options.optimizer_options.global_jit_level = 1
    assert ConfigProto().graph_options.optimizer_options.global_jit_level == 0
    assert session.sess_str == ""
    with Session(backend="numpy") as other:
        assert other.backend == "numpy"
        assert other.list_devices() == ["/device:CPU:0"]


def test_sessions_hold_values_of_their_own(graph):
    w = Variable(1.0)
    step = w.assign_add(1.0)
    first, second = Session(), Session()
    for session in (first, second):
        session.run(w.initializer)
    first.run(step)
    assert (first.run(w), second.run(w)) == (2.0, 1.0)
    first.close()
    second.close()


# -- threads --------------------------------------------------------------------------------------


def test_runs_of_two_threads_come_one_after_another(session):
    w, v = initialized(session, Variable(0), Variable(0))
    step = [w.assign_add(1), v.assign_add(2)]
    barrier = threading.Barrier(4)
    seen = [[] for _ in range(4)]

    def work(results):
        barrier.wait()
        results.extend(session.run(step) for _ in range(200))

    threads = [threading.Thread(target=work, args=(results,)) for results in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert session.run([w, v]) == [800, 1600]
    everything = sorted(tuple(map(int, pair)) for results in seen for pair in results)
    assert everything == [(i, 2 * i) for i in range(1, 801)]


def test_group_and_initializer_in_one_session(session):
    w, v = Variable(1.0), Variable(2.0)
    session.run(global_variables_initializer())
    session.run(group(w.assign(5.0), v.assign(6.0)))
    assert session.run((w, v)) == (5.0, 6.0)
    assert get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES) == [w, v]


def test_a_value_inside_a_branch_that_was_not_taken(session):
    kept = []

    def branch():
        kept.append(constant(1.0, name="inside"))
        return kept[0]

    result = cond(constant(False), branch, lambda: constant(2.0))
    assert session.run(result) == 2.0
    with pytest.raises(InvalidArgumentError, match=r"inside'?.*not taken.*fetch what cond returns"):
        session.run(kept[0])


def test_repr_tells_graph_backend_and_whether_it_is_closed(graph):
    session = Session(backend="numpy")
    assert repr(session) == f"<optkit.Session of {graph!r} backend=numpy>"
    session.close()
    assert repr(session) == f"<optkit.Session of {graph!r} closed>"


def test_holds_tells_whether_a_variable_has_a_value():
    w = Variable(1.0)
    with Session() as session:
        assert not session.holds(w)
        session.run(w.initializer)
        assert session.holds(w)
        with pytest.raises(TypeError, match="variable: expected a Variable"):
            session.holds(constant(1.0))
