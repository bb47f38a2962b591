"""The graph: names, scopes, control dependencies, collections, and what an error leaves behind."""

import copy
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optkit
from optkit.graph import (
    Graph,
    GraphKeys,
    IndexedSlices,
    Ledger,
    add_to_collection,
    add_to_collections,
    colocate_with,
    control_dependencies,
    device,
    get_collection,
    get_collection_ref,
    get_default_graph,
    init_scope,
    name_scope,
    op_scope,
    reset_default_graph,
)
from optkit.ops.array import placeholder, split
from optkit.ops.control import cond, group, no_op
from optkit.ops.core import constant
from optkit.ops.math import add
from optkit.runtime import Session
from optkit.variables import Variable


def named(name: str) -> str:
    """The name that a new operation gets when it asks for `name`."""
    return constant(1.0, name=name).op.name


# -- names ----------------------------------------------------------------------------------------


# Observed in TensorFlow 2.21 (v1 graph mode): what is asked for, in order, and what it becomes.
# "/x" opens a scope for the rest of its row; a trailing "/" is a scope's own string.
UNIQUE_NAMES = [
    (["a", "a", "a"], ["a", "a_1", "a_2"]),
    (["a", "A", "a"], ["a", "A_1", "a_2"]),
    (["a_1", "a", "a"], ["a_1", "a", "a_2"]),
    (["a", "a_1", "a"], ["a", "a_1", "a_2"]),
    (["a", "a", "a_1"], ["a", "a_1", "a_1_1"]),
    (["a_2", "a", "a", "a"], ["a_2", "a", "a_1", "a_3"]),
    (["A_1", "a", "A"], ["A_1", "a", "A_2"]),
    (["a/b", "a", "/a", "b"], ["a/b", "a", "a_1/", "a_1/b"]),
    (["/a", "b", "b", "a/b"], ["a/", "a/b", "a/b_1", "a/a/b"]),
    (["a", "/a", "a"], ["a", "a_1/", "a_1/a"]),
    (["/a", "a/", "x", "/b", "x"], ["a/", "a", "a/x", "a/b/", "a/b/x"]),
    (["/a", "_x", "_x"], ["a/", "a/_x", "a/_x_1"]),
    (["a.b", "a.b", "0"], ["a.b", "a.b_1", "0"]),
]


@pytest.mark.parametrize(("asked", "given"), UNIQUE_NAMES)
def test_names_are_made_unique(asked, given):
    found = []

    def build(rest: list[str]) -> None:
        for i, name in enumerate(rest):
            if name.startswith("/"):
                with name_scope(name[1:]) as scope:
                    found.append(scope)
                    build(rest[i + 1 :])
                return
            found.append(named(name))

    build(asked)
    assert found == given


def test_scopes_of_one_name_are_numbered():
    scopes = []
    for _ in range(3):
        with name_scope("a") as scope:
            scopes.append(scope)
    assert scopes == ["a/", "a_1/", "a_2/"]


def test_a_scope_is_entered_again_by_its_string():
    with name_scope("outer"), name_scope("inner") as inner:
        assert named("x") == "outer/inner/x"
    with name_scope("elsewhere"), name_scope(inner) as again:
        assert again == inner == "outer/inner/"
        assert named("x") == "outer/inner/x_1"
    assert named("x") == "x"


def test_an_operation_may_have_the_name_of_its_scope():
    with name_scope("a") as scope:
        assert named(scope) == "a"
        assert named(scope) == "a_1"  # an operation of that name is there already
    assert named("a") == "a_2"


def test_the_root_scope(graph):
    for root in (None, ""):
        with name_scope("a"), graph.name_scope(root) as scope:
            assert scope == ""
            assert graph.get_name_scope() == ""
    with name_scope("x"):
        assert graph.get_name_scope() == "x"
        with name_scope("y"):
            assert graph.get_name_scope() == "x/y"


def test_a_scope_ends_with_an_error(graph):
    with pytest.raises(KeyError), name_scope("a"):
        raise KeyError
    assert graph.get_name_scope() == ""


def test_default_names_of_scopes():
    x = constant(1.0)
    with name_scope(None, "default", [x]) as scope:
        assert scope == "default/"
    with name_scope("given", "default", [x]) as scope:
        assert scope == "given/"
    with op_scope([x], None, "default") as scope:
        assert scope == "default_1/"
    with (
        pytest.raises(ValueError, match="expected a name or a default_name"),
        name_scope(None, None, [x]),
    ):
        pass


def test_a_scope_builds_in_the_graph_of_its_values():
    other = Graph()
    with other.as_default():
        x = constant(1.0)
    with name_scope("a", values=[3.0, x]):
        assert get_default_graph() is other
    assert get_default_graph() is not other


@pytest.mark.parametrize("name", ["a b", "a:0", "-a", "_a", "/a", "ä", "a,b"])
def test_names_that_are_not_valid(name, graph):
    with pytest.raises(ValueError, match="not a valid operation name"):
        constant(1.0, name=name)
    with pytest.raises(ValueError, match="not a valid scope name"), name_scope(name):
        pass
    assert graph.version == 0


@pytest.mark.parametrize("name", [3, b"a", ["a"]])
def test_names_are_strings(name, graph):
    for build in (
        lambda: constant(1.0, name=name),
        lambda: add(1.0, 2.0, name=name),
        lambda: name_scope(name).__enter__(),
        lambda: graph.name_scope(name).__enter__(),
    ):
        with pytest.raises(TypeError, match="name: expected a string"):
            build()
    assert graph.version == 0


def test_unique_name(graph):
    assert graph.unique_name("a", mark_as_used=False) == "a"
    assert graph.unique_name("a") == "a"
    assert graph.unique_name("a", mark_as_used=False) == "a_1"
    assert graph.unique_name("a") == "a_1"
    with name_scope("s"):
        assert graph.unique_name("a") == "s/a"
    assert named("a") == "a_2"


# -- operations -----------------------------------------------------------------------------------


def test_operations_are_kept_in_the_order_they_were_built(graph):
    x, y = constant(1.0, name="x"), constant(2.0, name="y")
    z = add(x, y, name="z")
    assert graph.get_operations() == [x.op, y.op, z.op]
    assert graph.version == 3
    graph.get_operations().clear()
    assert graph.version == 3
    assert "3 operations" in repr(graph)


def test_operations_and_tensors_by_name(graph):
    parts = split(constant([1.0, 2.0]), 2, name="s")
    assert graph.get_operation_by_name("s") is parts[0].op
    assert graph.get_tensor_by_name("s:1") is parts[1]
    assert graph.as_graph_element("s") is parts[0].op
    assert graph.as_graph_element("s:0") is parts[0]
    assert graph.as_graph_element(parts[1]) is parts[1]
    assert graph.as_graph_element(parts[1].op) is parts[1].op


def test_a_variable_as_a_graph_element(graph):
    w = Variable(1.0, name="w")
    assert graph.as_graph_element(w) is graph.get_tensor_by_name("w:0")


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda g: g.as_graph_element("nothing"), KeyError, "no operation 'nothing'"),
        (lambda g: g.as_graph_element("nothing:0"), KeyError, "no operation 'nothing'"),
        (lambda g: g.as_graph_element("x:1"), KeyError, "operation 'x' has 1 outputs"),
        (lambda g: g.as_graph_element("x:-1"), KeyError, "has 1 outputs"),
        (lambda g: g.as_graph_element("x:y"), KeyError, "has 1 outputs"),
        (lambda g: g.get_tensor_by_name("x"), ValueError, "a tensor's name is 'x:0'"),
        (lambda g: g.get_operation_by_name("x:0"), ValueError, "the operation's name is 'x'"),
        (lambda g: g.as_graph_element(3), TypeError, "expected a Tensor, Operation, Variable or"),
        (lambda g: g.as_graph_element(None), TypeError, "expected a Tensor, Operation, Variable"),
        (lambda g: g.as_graph_element([]), TypeError, "expected a Tensor, Operation, Variable or"),
        (
            lambda g: g.as_graph_element(g.get_tensor_by_name("x:0"), allow_tensor=False),
            TypeError,
            "expected an operation",
        ),
        (
            lambda g: g.as_graph_element(g.get_operation_by_name("x"), allow_operation=False),
            TypeError,
            "expected a tensor",
        ),
    ],
)
def test_what_is_no_graph_element(graph, ask, error, message):
    constant(1.0, name="x")
    with pytest.raises(error, match=message):
        ask(graph)


def test_attributes(graph):
    w = Variable([1.0, 2.0], name="w")
    assert w.op.get_attr("dtype") is w.dtype
    with pytest.raises(ValueError, match="'w' has no attr 'nothing'; it has"):
        w.op.get_attr("nothing")
    assert w.op.type == "VariableV2"
    assert w.op.values() == w.op.outputs
    assert repr(w.op) == "<optkit.Operation 'w' type=VariableV2>"


def test_an_operation_knows_the_line_that_built_it():
    op = constant(1.0, name="x").op  # the line
    path, line, function = op.site
    assert path == __file__
    assert function == "test_an_operation_knows_the_line_that_built_it"
    text = op.describe()
    assert f"operation 'x' (Const), built at {__file__}:{line} in {function}" in text
    assert text.endswith(': op = constant(1.0, name="x").op  # the line')


def test_user_code_in_a_folder_whose_name_begins_like_the_package():
    path = f"{Path(optkit.__file__).parent}_experiments/model.py"
    scope = {"constant": constant}
    exec(compile("op = constant(1.0).op", path, "exec"), scope)
    assert scope["op"].site[0] == path


# -- the default graph ----------------------------------------------------------------------------


def test_the_innermost_graph_is_the_default():
    outer, inner = Graph(), Graph()
    with outer.as_default() as entered:
        assert entered is outer
        with inner.as_default():
            assert get_default_graph() is inner
            x = constant(1.0)
        assert get_default_graph() is outer
    assert x.graph is inner
    assert get_default_graph() not in (inner, outer)


def test_resetting_starts_an_empty_graph():
    before = get_default_graph()
    constant(1.0)
    reset_default_graph()
    assert get_default_graph() is not before
    assert get_default_graph().version == 0


def test_resetting_inside_a_graph_is_refused():
    with (
        Graph().as_default(),
        pytest.raises(AssertionError, match="leave the block first, or start one with a new Graph"),
    ):
        reset_default_graph()


def test_each_thread_has_a_stack_of_its_own(graph):
    seen = []
    with Graph().as_default():
        thread = threading.Thread(target=lambda: seen.append(get_default_graph()))
        thread.start()
        thread.join()
    assert seen == [graph]


def test_mixing_graphs_names_the_fix():
    with Graph().as_default():
        stale = constant(1.0, name="stale")
    fix = "belongs to another graph.*reset_default_graph.*build everything again"
    for build in (
        lambda: add(stale, 1.0),
        lambda: stale + constant(1.0),
        lambda: group(stale, constant(1.0)),
    ):
        with pytest.raises(ValueError, match="another graph"):
            build()
    with pytest.raises(ValueError, match=fix):
        add(stale, 1.0)
    with pytest.raises(ValueError, match=r"'stale:0'.*belongs to another graph"):
        get_default_graph().as_graph_element(stale)


def test_a_stale_variable_names_the_fix():
    stale = Variable(1.0, name="stale")
    reset_default_graph()
    constant(2.0, name="x")
    with pytest.raises(ValueError, match="reset_default_graph"):
        constant(2.0) * stale
    with Session() as session, pytest.raises(ValueError, match="reset_default_graph"):
        session.run(stale)


def test_finalized_graphs_take_nothing_more(graph):
    x = constant(1.0)
    graph.finalize()
    assert graph.finalized
    names = dict(graph._names_in_use)
    for build in (
        lambda: constant(1.0),
        lambda: x + 1.0,
        lambda: add(x, x),
        lambda: Variable(1.0),
        lambda: no_op(),
    ):
        with pytest.raises(RuntimeError, match="the graph is finalized; build everything before"):
            build()
    with pytest.raises(RuntimeError, match="collection 'c': the graph is finalized"):
        graph.add_to_collection("c", x)
    assert graph.version == 1
    assert graph._names_in_use == names
    with Session() as session:
        assert session.run(x) == 1.0


# -- control dependencies -------------------------------------------------------------------------


def test_control_inputs(graph):
    a, b, c = (constant(float(i), name=n) for i, n in enumerate("abc"))
    with control_dependencies([a, b.op]):
        x = constant(1.0)
        with control_dependencies([c, a]):
            y = constant(1.0)
        z = constant(1.0)
    outside = constant(1.0)
    assert x.op.control_inputs == z.op.control_inputs == (a.op, b.op)
    assert y.op.control_inputs == (a.op, b.op, c.op)
    assert outside.op.control_inputs == ()
    assert graph.current_controls() == frozenset()


def test_inputs_are_no_control_inputs_too():
    a, b = constant(1.0), constant(2.0)
    with control_dependencies([a, b]):
        assert (a + 1.0).op.control_inputs == (b.op,)


def test_none_clears_control_dependencies():
    a, b = constant(1.0), constant(2.0)
    with control_dependencies([a]):
        with control_dependencies(None):
            assert constant(1.0).op.control_inputs == ()
            with control_dependencies([b]):
                assert constant(1.0).op.control_inputs == (b.op,)
        assert constant(1.0).op.control_inputs == (a.op,)
        with init_scope():
            assert constant(1.0).op.control_inputs == ()


def test_control_inputs_of_many_kinds(graph):
    w = Variable(1.0, name="w")
    values = constant([1.0], name="values")
    slices = IndexedSlices(values, constant([0]))
    with control_dependencies([w, slices, "values:0", "w"]):
        assert graph.current_controls() == {w.op, values.op}
    with control_dependencies([]):
        assert constant(1.0).op.control_inputs == ()


def test_control_dependencies_end_with_an_error(graph):
    a = constant(1.0)
    with pytest.raises(KeyError), control_dependencies([a]):
        raise KeyError
    assert graph.current_controls() == frozenset()


@pytest.mark.parametrize("bad", [3, [3], [None], [[]], "x", ["nothing"]])
def test_control_inputs_that_are_none(bad):
    constant(1.0, name="x")
    with (
        pytest.raises((TypeError, KeyError), match=r"control_inputs: (expected|the graph has no)"),
        control_dependencies(bad),
    ):
        pass


def test_a_single_tensor_is_no_list_of_control_inputs():
    x = constant(1.0)
    for bad in (x, x.op, Variable(1.0)):
        with (
            pytest.raises(TypeError, match="control_inputs: expected a list of operations"),
            control_dependencies(bad),
        ):
            pass


# -- device and colocation, recorded --------------------------------------------------------------


def test_devices_are_recorded():
    with device("/gpu:0"):
        x = constant(1.0)
        with device("/cpu:0"):
            y = constant(1.0)
        with device(None):
            z = constant(1.0)
        with device(lambda op: f"/job:{op.name}"):
            named_by_function = constant(1.0, name="n")
    assert (x.device, y.device, z.device) == ("/gpu:0", "/cpu:0", "")
    assert x.op.device == "/gpu:0"
    assert named_by_function.device == "/job:n"
    assert constant(1.0).device == ""


def test_a_device_function_that_raises_leaves_no_operation(graph):
    def refuse(op):
        raise LookupError(op.name)

    with device(refuse), pytest.raises(LookupError, match="x"):
        constant(1.0, name="x")
    assert graph.version == 0
    assert named("x") == "x"


def test_colocation_is_recorded():
    with device("/gpu:0"):
        a = constant(1.0, name="a")
    b = constant(1.0, name="b")
    with colocate_with(a):
        x = constant(1.0)
        with colocate_with(b):
            y = constant(1.0)
        with colocate_with(b.op, ignore_existing=True):
            z = constant(1.0)
        with colocate_with(None, ignore_existing=True):
            free = constant(1.0, name="free")
        with colocate_with(IndexedSlices(b, constant([0]))):
            rows = constant(1.0)
    assert x.op.colocation_groups() == [b"loc:@a"]
    assert x.device == "/gpu:0"
    assert y.op.colocation_groups() == rows.op.colocation_groups() == [b"loc:@a", b"loc:@b"]
    assert z.op.colocation_groups() == [b"loc:@b"]
    assert free.op.colocation_groups() == [b"loc:@free"]
    assert constant(1.0, name="out").op.colocation_groups() == [b"loc:@out"]


# -- collections ----------------------------------------------------------------------------------


def test_collections(graph):
    with name_scope("s"):
        x = constant(1.0, name="x")
    y = constant(1.0, name="y")
    add_to_collection("c", x)
    add_to_collections(["c", "d", "d"], y)
    add_to_collections("d", 3)
    assert get_collection("c") == [x, y]
    assert get_collection("d") == [y, 3]  # named twice, added once
    assert get_collection("c", "s/") == [x]
    assert get_collection("c", "x") == []  # a pattern for the beginning of the name
    assert get_collection("d", ".*") == [y]  # what has no name matches nothing
    assert get_collection("nothing") == []
    assert sorted(graph.get_all_collection_keys()) == ["c", "d"]
    get_collection("c").clear()
    assert get_collection("c") == [x, y]


def test_a_collection_itself(graph):
    reference = get_collection_ref("c")
    add_to_collection("c", 1)
    assert reference == [1]
    reference.append(2)
    assert get_collection("c") == [1, 2]
    graph.clear_collection("c")
    assert get_collection("c") == []
    graph.clear_collection("never there")
    assert graph.get_all_collection_keys() == []


def test_keys_are_those_of_tensorflow():
    assert GraphKeys.GLOBAL_VARIABLES == GraphKeys.VARIABLES == "variables"
    assert GraphKeys.TRAINABLE_VARIABLES == "trainable_variables"
    assert GraphKeys.UPDATE_OPS == "update_ops"
    assert GraphKeys.TRAIN_OP == "train_op"
    assert GraphKeys.SUMMARIES == "summaries"
    assert GraphKeys.LOSSES == "losses"
    assert GraphKeys.REGULARIZATION_LOSSES == "regularization_losses"
    assert GraphKeys.GLOBAL_STEP == "global_step"
    assert GraphKeys.MOVING_AVERAGE_VARIABLES == "moving_average_variables"


def test_feeding_can_be_prevented(graph):
    x = placeholder("float32", [])
    assert graph.is_feedable(x)
    graph.prevent_feeding(x)
    assert not graph.is_feedable(x)
    assert graph.is_fetchable(x)
    graph.prevent_fetching(x.op)
    with Session() as session, pytest.raises(ValueError, match="may not be fed"):
        session.run(x, {x: 1.0})


# -- what an error leaves behind ------------------------------------------------------------------


def state_of(graph):
    return (
        graph.get_operations(),
        dict(graph._by_name),
        dict(graph._names_in_use),
        {key: list(items) for key, items in graph._collections.items() if items},
        {key: dict(s) for key, s in graph.stores.items() if isinstance(s, dict) and s},
        dict(graph.reads),
        dict(graph.schedules),
        list(graph.missing_gradients),
        graph.get_name_scope(),
        graph.current_controls(),
    )


def build_at_random(graph: Graph, draw, count: int) -> None:
    """Grow a graph by some of everything that a call may do to it."""
    choices = st.sampled_from(
        [
            "constant",
            "add",
            "variable",
            "read",
            "scope",
            "controls",
            "collect",
            "clear",
            "store",
            "missing",
            "schedule",
            "cond",
        ]
    )
    name = st.sampled_from(["a", "A", "b", "a_1", "s/a"])
    variables = get_collection(GraphKeys.GLOBAL_VARIABLES)
    for _ in range(count):
        match draw(choices):
            case "constant":
                constant(1.0, name=draw(name))
            case "add":
                constant(1.0) + 2.0
            case "variable":
                variables.append(Variable(1.0, name=draw(name)))
            case "read" if variables:
                with control_dependencies([no_op()]):
                    variables[-1] * 2.0
                    variables[-1].assign_add(1.0)
            case "scope":
                with name_scope(draw(name)):
                    build_at_random(graph, draw, 1)
            case "controls":
                with control_dependencies([constant(1.0)]):
                    build_at_random(graph, draw, 1)
            case "collect":
                add_to_collection(draw(name), object())
            case "clear":
                graph.clear_collection(draw(name))
            case "store":
                graph.stores.setdefault(draw(name), Ledger())[draw(name)] = object()
            case "missing":
                graph.missing_gradients.append("w")
            case "schedule" if variables:
                graph.schedules[constant(0.1).op] = variables[-1].op
            case "cond":
                cond(constant(True), lambda: constant(1.0), lambda: constant(2.0))


def failing(graph: Graph, build, error: type[BaseException]) -> None:
    """Let `build` grow the graph in a call that raises at its end."""

    def call():
        with graph.all_or_nothing():
            build()
            raise error

    with pytest.raises(error):
        call()


@given(st.data(), st.sampled_from([ValueError, KeyboardInterrupt]))
def test_all_or_nothing(data, error):
    def build():
        build_at_random(graph, data.draw, 6)
        if data.draw(st.booleans()):
            with graph.all_or_nothing():  # nested, and this one succeeds
                build_at_random(graph, data.draw, 2)

    graph = Graph()
    with graph.as_default():
        build_at_random(graph, data.draw, 4)
        held = graph.get_collection_ref("a")
        before = state_of(graph)
        failing(graph, build, error)
        assert state_of(graph) == before
        assert held is graph.get_collection_ref("a")


def next_names(graph: Graph, first: list[str], fails: bool, draw) -> list[str]:
    """The names of what is built after `first` and, maybe, a call that fails."""
    names = ["a", "A", "b", "a_1", "s/a", "Const", "Variable"]
    with graph.as_default():
        for name in first:
            named(name)
        if fails:
            failing(graph, lambda: build_at_random(graph, draw, 6), ValueError)
        found = [named(name) for name in names]
        with name_scope("a") as scope:
            found.append(scope)
        return [*found, Variable(1.0).name]


@given(st.data())
def test_after_an_error_the_next_names_are_those_of_a_graph_without_it(data):
    first = data.draw(st.lists(st.sampled_from(["a", "A", "b", "a_1", "s/a"]), max_size=4))
    after = next_names(Graph(), first, True, data.draw)
    assert after == next_names(Graph(), first, False, data.draw)


def test_success_keeps_everything(graph):
    with graph.all_or_nothing():
        x = constant(1.0, name="x")
        add_to_collection("c", x)
    assert graph.get_operations() == [x.op]
    assert get_collection("c") == [x]


@pytest.mark.parametrize(
    "build",
    [
        lambda x: add(x, "text"),
        lambda x: add(x, [1.0, 2.0, 3.0, 4.0, 5.0]),
        lambda x: add(x, None),
        lambda x: add(x, [[1], [2, 3]]),
        lambda x: add([1.0, x, "text"], x),
        lambda x: x + np.zeros((7, 7)),
        lambda x: Variable("a", dtype="float32"),
        lambda x: Variable(lambda: x + "text"),
        lambda x: constant([1.0, 2.0], shape=[1]),
        lambda x: no_op(name="not valid"),
        lambda x: group(x, 3),
    ],
)
def test_a_refused_call_leaves_the_graph_as_it_was(graph, build):
    x = constant([1.0, 2.0], name="x")
    before = state_of(graph)
    with pytest.raises((TypeError, ValueError)):
        build(x)
    assert state_of(graph) == before


def test_what_was_taken_back_cannot_be_used(graph):
    kept = []
    failing(graph, lambda: kept.append(constant(1.0, name="lost")), KeyError)
    constant(2.0, name="other")
    for use in (
        lambda: kept[0] + 1.0,
        lambda: graph.as_graph_element(kept[0]),
        lambda: Session().run(kept[0]),
        lambda: group(kept[0]),
    ):
        with pytest.raises(ValueError, match="no longer in the graph: the call that built it rai"):
            use()


@pytest.mark.parametrize("way", [pickle.dumps, copy.deepcopy])
def test_parts_of_a_graph_refuse_to_be_pickled_and_say_what_to_keep(graph, way):
    x = placeholder("float32", [2], name="x")
    variable = optkit.Variable(1.0)
    for part in (graph, x, x.op, variable, optkit.Session()):
        with pytest.raises(TypeError, match=r"cannot be pickled.*Session\.run"):
            way(part)
