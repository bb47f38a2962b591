"""Variables: construction, names, collections, reads and writes, initialisation."""

import re

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from optkit.errors import FailedPreconditionError, InvalidArgumentError
from optkit.graph import Graph, GraphKeys, IndexedSlices, Operation, Tensor
from optkit.ops import array, control, state_ops
from optkit.ops.core import constant
from optkit.ops.random import random_normal
from optkit.runtime.session import Session
from optkit.variables import (
    Variable,
    all_variables,
    assert_variables_initialized,
    global_variables,
    global_variables_initializer,
    initialize_all_variables,
    initialize_local_variables,
    initialize_variables,
    local_variables,
    local_variables_initializer,
    model_variables,
    moving_average_variables,
    report_uninitialized_variables,
    trainable_variables,
    variable_of,
    variables_initializer,
)


@pytest.fixture
def session():
    with Session() as session:
        yield session


def names(graph):
    return [op.name for op in graph.get_operations()]


def run_initial(session):
    session.run(global_variables_initializer())


class TestConstruction:
    # The names are those that TensorFlow 2.21 gives in v1 graph mode, less w/read.
    @pytest.mark.parametrize(
        ("initial", "expected"),
        [
            pytest.param(1.0, ["w/initial_value", "w", "w/Assign"], id="value"),
            pytest.param(
                lambda: 1.0, ["w/Initializer/initial_value", "w", "w/Assign"], id="function"
            ),
            pytest.param(
                lambda: constant(1.0), ["w/Initializer/Const", "w", "w/Assign"], id="tensor made"
            ),
        ],
    )
    def test_names(self, graph, initial, expected):
        w = Variable(initial, name="w")
        assert names(graph) == expected
        assert (w.name, w.op.name, w.initializer.name) == ("w:0", "w", "w/Assign")
        assert w.op.type == "VariableV2"

    def test_default_names_are_made_unique(self):
        assert [Variable(0.0).name for _ in range(3)] == [
            "Variable:0",
            "Variable_1:0",
            "Variable_2:0",
        ]

    def test_the_name_scope_is_part_of_the_name(self, graph):
        with graph.name_scope("a"), graph.name_scope("b"):
            w = Variable(0.0, name="w")
        assert w.name == "a/b/w:0"
        assert w.initializer.name == "a/b/w/Assign"

    def test_a_tensor_is_assigned_as_it_is(self, graph):
        initial = constant([1.0, 2.0])
        w = Variable(initial, name="w")
        assert w.initial_value is initial
        assert names(graph) == ["Const", "w", "w/Assign"]

    @pytest.mark.parametrize(
        ("initial", "dtype", "expected"),
        [
            (1.0, None, "float32"),
            (1, None, "int32"),
            (True, None, "bool"),
            (1, "float64", "float64"),
            (np.float64([1.0]), None, "float64"),
            (np.float16(1.0), None, "float16"),
            ([1.0, 2.0], "float16", "float16"),
            (lambda: np.int64(3), None, "int64"),
            (lambda: 3, "float32", "float32"),
            ("text", None, "string"),
        ],
    )
    def test_dtype(self, session, initial, dtype, expected):
        w = Variable(initial, dtype=dtype)
        assert w.dtype.name == expected
        run_initial(session)
        held = session.run(w)
        assert held == b"text" if expected == "string" else held.dtype == expected

    def test_properties(self, graph):
        constraint = np.abs
        w = Variable(np.zeros((2, 3), np.float32), name="w", constraint=constraint)
        assert w.shape == [2, 3]
        assert w.get_shape() == [2, 3]
        assert w.sizes == (2, 3)
        assert w.graph is graph
        assert w.trainable
        assert w.constraint is constraint
        assert w.device == ""
        assert repr(w) == "<optkit.Variable 'w:0' shape=(2, 3) dtype=float32>"
        assert variable_of(w.op) is variable_of(w.op.outputs[0]) is variable_of(w) is w
        assert variable_of("w") is None

    def test_identity(self):
        v, w = Variable(1.0), Variable(1.0)
        assert v == v
        assert v != w
        assert {v: 1, w: 2}[w] == 2

    def test_it_has_no_value_outside_a_session(self):
        w = Variable(1.0, name="w")
        with pytest.raises(TypeError, match="'w:0'"):
            bool(w)
        with pytest.raises(TypeError, match="'w:0'"):
            np.asarray(w)

    def test_control_dependencies_do_not_reach_the_initializer(self, graph, session):
        counter = Variable(0, name="counter")
        with graph.control_dependencies([counter.assign_add(1)]):
            w = Variable(lambda: constant(1.0), name="w")
        assert not w.initializer.control_inputs
        run_initial(session)
        assert session.run([w, counter]) == [1.0, 0]

    def test_in_a_cond_branch_it_is_made_by_a_function(self, session):
        made = []

        def branch():
            made.append(Variable(lambda: constant(2.0), name="w"))
            return made[0].read_value()

        result = control.cond(constant(True), branch, lambda: constant(0.0))
        run_initial(session)
        assert session.run(result) == 2.0

    def test_a_tensor_of_a_cond_branch_is_refused(self):
        def branch():
            with pytest.raises(ValueError, match=r"'cond/w'.*inside a cond branch.*function"):
                Variable(constant(2.0), name="w")
            return constant(1.0)

        control.cond(constant(True), branch, lambda: constant(0.0))

    def test_an_open_shape_takes_any_value(self, session):
        w = Variable([1.0], validate_shape=False)
        assert w.shape.ndims is None
        run_initial(session)
        assert_array_equal(session.run(w.assign([[1.0, 2.0]])), [[1.0, 2.0]])
        assert_array_equal(session.run(w), [[1.0, 2.0]])

    def test_a_shape_may_be_stated(self, session):
        w = Variable([[1.0]], shape=[None, 1])
        assert w.sizes == (None, 1)
        run_initial(session)
        session.run(w.assign([[1.0], [2.0]]))
        assert_array_equal(session.run(w), [[1.0], [2.0]])

    def test_set_shape_adds_what_is_known(self):
        w = Variable([1.0], validate_shape=False)
        w.set_shape([None])
        assert w.sizes == (None,)


class TestRefusals:
    @pytest.mark.parametrize(
        ("kind", "message", "arguments"),
        [
            (ValueError, "initial_value: expected a value", {}),
            (ValueError, "constraint: expected a function", {"constraint": 1.0}),
            (ValueError, "collections: expected a list", {"collections": "mine"}),
            (ValueError, "variable_def", {"variable_def": b""}),
            (ValueError, r"'w': shape: \(3,\).*\(2,\)", {"shape": [3]}),
            (ValueError, r"'w': expected_shape: \(3,\).*\(2,\)", {"expected_shape": [3]}),
            (TypeError, "'w': initial_value: expected int32", {"dtype": "int32"}),
        ],
    )
    def test_arguments(self, graph, kind, message, arguments):
        before = names(graph)
        initial = None if not arguments else [1.5, 2.5]
        with pytest.raises(kind, match=message):
            Variable(initial, name="w", **arguments)
        assert names(graph) == before == []

    def test_a_tensor_of_another_dtype(self):
        with pytest.raises(ValueError, match=r"'w': initial_value: expected float64.*Const:0"):
            Variable(constant(1.0), dtype="float64", name="w")

    def test_a_shape_that_is_not_known(self):
        unknown = array.placeholder("float32", [None, 2])
        with pytest.raises(ValueError, match=r"'w'.*Placeholder.*validate_shape=False"):
            Variable(unknown, name="w")

    def test_a_finalized_graph(self, graph):
        graph.finalize()
        with pytest.raises(RuntimeError, match="finalized"):
            Variable(1.0)

    def test_a_failing_function_leaves_the_graph_as_it_was(self, graph):
        kept = Variable(1.0, name="kept")
        before = names(graph)

        def initial():
            Variable(2.0, name="inner")
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            Variable(initial, name="w")
        assert names(graph) == before
        assert global_variables() == trainable_variables() == [kept]
        assert Variable(1.0, name="w").name == "w:0"
        assert Variable(1.0, name="w/Initializer/inner").name == "w/Initializer/inner:0"


class TestCollections:
    def test_defaults(self):
        w = Variable(1.0)
        fixed = Variable(1.0, trainable=False)
        assert global_variables() == all_variables() == [w, fixed]
        assert trainable_variables() == [w]
        assert not fixed.trainable
        assert Variable(1.0, trainable=None).trainable

    def test_others(self):
        keys = [GraphKeys.LOCAL_VARIABLES, GraphKeys.MODEL_VARIABLES]
        w = Variable(1.0, trainable=False, collections=keys)
        assert global_variables() == []
        assert local_variables() == model_variables() == [w]
        v = Variable(1.0, collections={GraphKeys.MOVING_AVERAGE_VARIABLES})
        assert moving_average_variables() == trainable_variables() == [v]

    def test_a_scope_filters_by_the_start_of_the_name(self, graph):
        with graph.name_scope("a"):
            w = Variable(1.0)
        v = Variable(1.0, name="ba")
        assert global_variables("a") == trainable_variables(scope="a/") == [w]
        assert global_variables(".*a") == [w, v]


class TestReads:
    def test_without_control_dependencies_a_read_is_the_variable(self):
        w = Variable(1.0)
        handle = w.op.outputs[0]
        assert w.value() is w.read_value() is handle
        assert (w + 1.0).op.inputs[0] is handle

    def test_a_read_sees_the_write_it_depends_on(self, graph, session):
        w = Variable(1.0, name="w")
        with graph.control_dependencies([w.assign(5.0)]):
            after = w.read_value()
            assert w.value() is after
            assert after.op.type == "ReadVariable"
            doubled = w * 2.0
        run_initial(session)
        assert session.run([w, after, doubled]) == [1.0, 5.0, 10.0]
        assert session.run(w) == 5.0

    def test_the_branch_not_taken_may_read_what_holds_nothing(self, session):
        w = Variable(1.0)
        result = control.cond(constant(False), lambda: w * 2.0, lambda: constant(7.0))
        assert session.run(result) == 7.0

    def test_eval_uses_the_default_session_or_the_one_given(self, session):
        w = Variable(3.0)
        run_initial(session)
        assert w.eval() == w.eval(session) == 3.0

    def test_eval_without_a_session(self):
        with pytest.raises(ValueError, match="no default session"):
            Variable(3.0).eval()

    def test_feeding_a_variable_replaces_its_reads(self, session):
        w = Variable(3.0)
        assert session.run(w + 1.0, {w: 10.0}) == 11.0

    def test_python_operators_build_and_do_not_assign(self, session):
        w = v = Variable(3.0)
        w += 1.0
        assert isinstance(w, Tensor)
        run_initial(session)
        assert session.run([w, v]) == [4.0, 3.0]

    def test_numpy_functions_build(self, session):
        w = Variable([3.0, -4.0])
        run_initial(session)
        assert_array_equal(session.run(np.abs(w)), [3.0, 4.0])
        assert_array_equal(session.run(w[1]), -4.0)


class TestWrites:
    @pytest.mark.parametrize(
        ("write", "expected"),
        [
            (lambda w: w.assign([5.0, 6.0]), [5.0, 6.0]),
            (lambda w: w.assign_add([5.0, 6.0]), [6.0, 8.0]),
            (lambda w: w.assign_sub([5.0, 6.0]), [-4.0, -4.0]),
            (lambda w: state_ops.assign(w, [5.0, 6.0]), [5.0, 6.0]),
            (lambda w: state_ops.assign(w.op.outputs[0], w * 2.0), [2.0, 4.0]),
            (lambda w: state_ops.assign_add(w, w), [2.0, 4.0]),
            (lambda w: state_ops.assign_sub(w, w), [0.0, 0.0]),
        ],
    )
    def test_the_result_is_the_value_right_after(self, session, write, expected):
        w = Variable([1.0, 2.0])
        run_initial(session)
        result = write(w)
        assert isinstance(result, Tensor)
        assert result.shape == [2]
        assert_array_equal(session.run(result), expected)
        assert_array_equal(session.run(w), expected)

    def test_names_are_tensorflows(self, graph):
        w = Variable(1.0, name="w")
        with graph.name_scope("s"):
            results = [
                w.assign(2.0),
                w.assign(2.0, name="again"),
                w.assign_add(2.0),
                w.assign_sub(2.0),
                state_ops.scatter_update(Variable([1.0]), [0], [1.0]),
            ]
        assert [result.op.name for result in results] == [
            "s/Assign",
            "s/again",
            "s/AssignAdd",
            "s/AssignSub",
            "s/ScatterUpdate",
        ]
        assert "s/Assign/value" in names(graph)

    def test_an_operation_instead_of_the_value(self):
        w = Variable(1.0)
        for write in (w.assign, w.assign_add, w.assign_sub):
            assert isinstance(write(1.0, read_value=False), Operation)

    def test_a_write_builds_in_the_variables_graph(self, graph):
        w = Variable(1.0)
        with Graph().as_default():
            assert w.assign(2.0).graph is graph

    @pytest.mark.parametrize(
        ("kind", "message", "write"),
        [
            (TypeError, "'w': value: expected float32", lambda w: w.assign("text")),
            (
                TypeError,
                "'w': value: expected float32.*int32",
                lambda w: w.assign(constant([1, 2])),
            ),
            (
                ValueError,
                r"'w': value: expected shape \(2,\), got \(3,\)",
                lambda w: w.assign([1.0] * 3),
            ),
            (ValueError, r"expected shape \(2,\), got \(\)", lambda w: w.assign_add(1.0)),
            (ValueError, r"expected shape \(2,\), got \(1,\)", lambda w: w.assign_sub([1.0])),
            (
                TypeError,
                "ref: expected a Variable",
                lambda w: state_ops.assign(w * 1.0, [1.0, 2.0]),
            ),
            (TypeError, "ref: expected a Variable", lambda w: state_ops.assign_add(3.0, 1.0)),
        ],
    )
    def test_what_does_not_fit_is_refused_and_leaves_no_trace(self, graph, kind, message, write):
        w = Variable([1.0, 2.0], name="w")
        with pytest.raises(kind, match=message):
            write(w)
        assert [name for name in names(graph) if name.startswith("Assign")] == []

    def test_only_numbers_add(self):
        with pytest.raises(
            TypeError, match="AssignAdd: expected a variable of numbers, got 'flag'"
        ):
            Variable(True, name="flag").assign_add(True)

    @pytest.mark.parametrize("write", ["assign", "assign_add", "assign_sub"])
    def test_shapes_known_late_are_checked_when_run(self, session, write):
        w = Variable([1.0, 2.0], name="w")
        value = array.placeholder("float32", [None])
        result = getattr(w, write)(value, name="late")
        assert result.shape == [2]
        run_initial(session)
        with pytest.raises(InvalidArgumentError, match=r"\(2,\), got \(1,\)(.|\n)*'late'"):
            session.run(result, {value: [1.0]})
        assert_array_equal(session.run(w), [1.0, 2.0])

    def test_adding_to_what_holds_nothing_names_it(self, session):
        w = Variable(1.0, name="w")
        with pytest.raises(FailedPreconditionError, match="'w'"):
            session.run(w.assign_add(1.0))

    def test_load(self, session):
        w = Variable([1.0, 2.0], name="w")
        before = w.graph.version
        w.load([3.0, 4.0])
        w.load(np.float32([5.0, 6.0]), session)
        assert w.graph.version == before
        assert_array_equal(session.run(w), [5.0, 6.0])
        with pytest.raises(ValueError, match="shape"):
            w.load([1.0])
        assert_array_equal(session.run(w), [5.0, 6.0])

    def test_a_loaded_array_is_not_shared(self, session):
        w = Variable([1.0, 2.0])
        mine = np.float32([3.0, 4.0])
        w.load(mine)
        mine[0] = 9.0
        assert_array_equal(session.run(w), [3.0, 4.0])


class TestScatter:
    @pytest.mark.parametrize(
        ("mode", "expected"),
        [
            ("update", [[7.0, 7.0], [2.0, 2.0], [5.0, 5.0]]),
            ("add", [[12.0, 12.0], [2.0, 2.0], [8.0, 8.0]]),
            ("sub", [[-10.0, -10.0], [2.0, 2.0], [-2.0, -2.0]]),
            ("mul", [[28.0, 28.0], [2.0, 2.0], [15.0, 15.0]]),
            ("div", [[1 / 28, 1 / 28], [2.0, 2.0], [0.6, 0.6]]),
            ("min", [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]),
            ("max", [[7.0, 7.0], [2.0, 2.0], [5.0, 5.0]]),
        ],
    )
    def test_function_and_method(self, session, mode, expected):
        indices, updates = [0, 2, 0], [[4.0, 4.0], [5.0, 5.0], [7.0, 7.0]]
        start = [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
        for through_method in (False, True):
            w = Variable(start)
            session.run(w.initializer)
            if through_method:
                slices = IndexedSlices(constant(updates), constant(indices))
                result = getattr(w, f"scatter_{mode}")(slices)
            else:
                result = getattr(state_ops, f"scatter_{mode}")(w, indices, updates)
            np.testing.assert_allclose(session.run(result), expected, rtol=1e-6)
            np.testing.assert_allclose(session.run(w), expected, rtol=1e-6)

    def test_one_scalar_for_all_rows(self, session):
        w = Variable([1.0, 2.0, 3.0])
        run_initial(session)
        assert_array_equal(session.run(state_ops.scatter_add(w, [0, 0], 1.0)), [3.0, 2.0, 3.0])

    @pytest.mark.parametrize(
        ("kind", "message", "scatter"),
        [
            (
                TypeError,
                "indices: expected int32 or int64",
                lambda w: state_ops.scatter_add(w, [0.0], [1.0]),
            ),
            (
                ValueError,
                r"updates: expected shape \(1,\).*got \(2,\)",
                lambda w: state_ops.scatter_add(w, [0], [1.0, 2.0]),
            ),
            (
                TypeError,
                "updates: expected float32",
                lambda w: state_ops.scatter_add(w, [0], ["a"]),
            ),
            (TypeError, "sparse_delta: expected IndexedSlices", lambda w: w.scatter_sub(1.0)),
            (
                TypeError,
                "ref: expected a Variable",
                lambda w: state_ops.scatter_sub([1.0], [0], [1.0]),
            ),
        ],
    )
    def test_refusals(self, kind, message, scatter):
        with pytest.raises(kind, match=message):
            scatter(Variable([1.0, 2.0], name="w"))

    def test_kinds_of_variables(self):
        with pytest.raises(ValueError, match="'w': expected a variable with rows"):
            state_ops.scatter_add(Variable(1.0, name="w"), [0], [1.0])
        with pytest.raises(TypeError, match="'flags': expected a variable of numbers"):
            state_ops.scatter_add(Variable([True], name="flags"), [0], [True])
        with pytest.raises(TypeError, match="'count': expected a floating dtype"):
            state_ops.scatter_div(Variable([1], name="count"), [0], [1])

    @pytest.mark.parametrize("index", [2, -1])
    def test_an_index_out_of_range_changes_nothing(self, session, index):
        w = Variable([1.0, 2.0])
        run_initial(session)
        late = array.placeholder("int32", [None])
        with pytest.raises(InvalidArgumentError, match=rf"\[0, 2\), got {index} at position 1"):
            session.run(state_ops.scatter_update(w, late, 9.0), {late: [0, index]})
        assert_array_equal(session.run(w), [1.0, 2.0])

    def test_shapes_known_late_are_checked_when_run(self, session):
        w = Variable([1.0, 2.0])
        run_initial(session)
        late = array.placeholder("float32", [None])
        with pytest.raises(
            InvalidArgumentError, match=r"updates: expected shape \(2,\), got \(1,\)"
        ):
            session.run(state_ops.scatter_add(w, [0, 1], late), {late: [1.0]})


class TestInitialisation:
    def test_of_all(self, session):
        v = Variable(1.0)
        w = Variable(2.0, trainable=False, collections=[GraphKeys.LOCAL_VARIABLES])
        assert global_variables_initializer().name == "init"
        session.run([global_variables_initializer(), local_variables_initializer()])
        assert session.run([v, w]) == [1.0, 2.0]

    def test_of_some(self, session):
        v, w = Variable(1.0), Variable(2.0)
        session.run(variables_initializer([w], name="some"))
        assert session.run(report_uninitialized_variables()).tolist() == [v.op.name.encode()]

    def test_of_none(self, session):
        operation = variables_initializer([], name="nothing")
        assert operation.name == "nothing"
        session.run([operation, global_variables_initializer()])

    def test_old_names(self, session):
        w = Variable(1.0, collections=[GraphKeys.LOCAL_VARIABLES])
        v = Variable(2.0)
        session.run(
            [initialize_all_variables(), initialize_local_variables(), initialize_variables([v, w])]
        )
        assert session.run([v, w]) == [2.0, 1.0]

    def test_whether_a_variable_holds_a_value(self, session):
        w = Variable(1.0, name="w")
        held = state_ops.is_variable_initialized(w)
        assert not session.run(held)
        session.run(w.initializer)
        assert session.run(held)
        with pytest.raises(TypeError, match="variable: expected a Variable"):
            state_ops.is_variable_initialized(w + 1.0)

    def test_reports(self, graph, session):
        Variable(1.0, name="v")
        w = Variable(1.0, name="w")
        Variable(1.0, name="x", collections=[GraphKeys.LOCAL_VARIABLES])
        report = report_uninitialized_variables()
        assert report.op.name == "report_uninitialized_variables"
        assert report.op.type == "UninitializedNames"
        assert report.dtype.name == "string"
        assert report.sizes == (None,)
        session.run(w.initializer)
        assert session.run(report).tolist() == [b"v", b"x"]
        assert session.run(report_uninitialized_variables([w])).tolist() == []
        with Graph().as_default() as empty, Session(graph=empty) as other:
            assert other.run(report_uninitialized_variables()).tolist() == []

    def test_assertion(self, session):
        assert assert_variables_initialized() is None
        v, w = Variable(1.0, name="v"), Variable(1.0, name="w")
        check = assert_variables_initialized()
        assert check.type == "RequireInitialized"
        session.run(w.initializer)
        with pytest.raises(FailedPreconditionError, match="without a value: v\n"):
            session.run(check)
        session.run(v.initializer)
        assert session.run(check) is None

    def test_initialized_value(self, session):
        w = Variable(1.0)
        value = w.initialized_value()
        assert session.run(value) == 1.0
        session.run(w.initializer)
        w.load(4.0)
        assert session.run(value) == 4.0

    def test_one_run_initialises_what_depends_on_each_other(self, session):
        a = Variable(random_normal([3]), name="a")
        b = Variable(a * 2.0, name="b")
        c = Variable(b.initialized_value() + a, name="c")
        d = Variable(c, name="d")
        run_initial(session)
        a_, b_, c_, d_ = session.run([a, b, c, d])
        assert_array_equal(b_, 2 * a_)
        assert_array_equal(c_, b_ + a_)
        assert_array_equal(d_, c_)

    def test_a_dependency_that_holds_a_value_gives_that(self, session):
        a = Variable(1.0)
        b = Variable(a * 2.0)
        session.run(a.initializer)
        a.load(5.0)
        session.run(b.initializer)
        assert session.run(b) == 10.0

    def test_reads_under_control_dependencies_are_left_alone(self, graph, session):
        a = Variable(1.0)
        with graph.control_dependencies([a.assign(7.0)]):
            after = a.read_value()
        b = Variable(after * 1.0)
        session.run(b.initializer)
        assert session.run([a, b]) == [7.0, 7.0]

    def test_what_holds_nothing_is_named_with_the_remedy(self, session):
        w = Variable(1.0, name="w")
        with pytest.raises(
            FailedPreconditionError,
            match=re.escape("'w' is not initialised; run global_variables_init"),
        ):
            session.run(w)
