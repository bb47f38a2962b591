"""Variable scopes: names, sharing, defaults, getters; and that failures leave nothing behind.

The names are those that TensorFlow 2.21 gives in v1 graph mode.
"""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from optkit.dtypes import float32, float64, int32, string
from optkit.graph import Graph, GraphKeys
from optkit.initializers import Constant, Ones, Zeros
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.ops.reductions import reduce_sum
from optkit.runtime.session import Session
from optkit.variable_scope import (
    AUTO_REUSE,
    VariableScope,
    get_local_variable,
    get_variable,
    get_variable_scope,
    no_regularizer,
    variable_op_scope,
    variable_scope,
)
from optkit.variables import (
    Variable,
    global_variables,
    global_variables_initializer,
    local_variables,
    trainable_variables,
)


def initial(variable):
    """The value right after initialisation."""
    with Session() as session:
        session.run(global_variables_initializer())
        return session.run(variable)


class TestNames:
    def test_scopes_nest_and_open_name_scopes(self):
        with variable_scope("a"):
            x = get_variable("x", [1])
            with variable_scope("b") as b:
                y = get_variable("y", [1])
                o = constant(1.0, name="o")
        assert (x.name, y.name, o.name) == ("a/x:0", "a/b/y:0", "a/b/o:0")
        assert (b.name, b.original_name_scope) == ("a/b", "a/b/")
        assert x.initializer.name == "a/x/Assign"
        assert x.initial_value.op.name == "a/x/Initializer/random_uniform"

    def test_entering_by_name_again_gives_a_new_name_scope(self):
        seen = []
        for _ in range(2):
            with variable_scope("a", reuse=AUTO_REUSE) as scope:
                x = get_variable("x", [1])
                seen.append((x.name, constant(1.0, name="o").name, scope.original_name_scope))
        assert seen == [("a/x:0", "a/o:0", "a/"), ("a/x:0", "a_1/o:0", "a_1/")]

    def test_entering_a_scope_again_jumps_to_it(self):
        with variable_scope("a") as a:
            x = get_variable("x", [1])
        with variable_scope("b"):
            with variable_scope(a, reuse=True) as again:
                assert get_variable("x") is x
                assert constant(1.0, name="o").name == "b/a/o:0"
            assert get_variable_scope().name == "b"
        assert again is not a
        assert (again.name, again.original_name_scope) == ("a", "a/")
        assert not a.reuse

    def test_without_a_name_scope_of_its_own(self, graph):
        with variable_scope("c", auxiliary_name_scope=False):
            assert get_variable("x", [1]).name == "c/x:0"
            assert constant(1.0, name="o").name == "o:0"
        with graph.name_scope("n"), variable_scope("c", auxiliary_name_scope=False) as c:
            assert constant(1.0, name="o").name == "n/o:0"
        assert c.original_name_scope == "n/"

    def test_default_names_are_made_unique_among_the_opened_scopes(self):
        def opened():
            with variable_scope(None, "d") as scope:
                return scope.name, get_variable("x", [1]).name, constant(1.0, name="o").name

        assert [opened() for _ in range(3)] == [
            ("d", "d/x:0", "d/o:0"),
            ("d_1", "d_1/x:0", "d_1/o:0"),
            ("d_2", "d_2/x:0", "d_2/o:0"),
        ]
        with variable_scope("outer"):
            assert opened() == ("outer/d", "outer/d/x:0", "outer/d/o:0")
            assert opened() == ("outer/d_1", "outer/d_1/x:0", "outer/d_1/o:0")
        with variable_scope("outer", reuse=AUTO_REUSE):
            assert opened() == ("outer/d", "outer/d/x:0", "outer_1/d/o:0")

    def test_default_names_avoid_given_names(self):
        with variable_scope("d"):
            pass
        with variable_scope(None, "d") as scope:
            assert scope.name == "d_1"

    def test_default_names_start_afresh_after_a_jump(self):
        with variable_scope("a") as a:
            pass
        for scope in (a, a, "a"):
            with variable_scope(scope), variable_scope(None, "d") as inner:
                assert inner.name == "a/d"

    def test_a_name_wins_over_a_default_name(self):
        with variable_scope("a", "d") as scope:
            assert scope.name == "a"

    def test_an_empty_name_changes_nothing(self):
        with variable_scope("a"), variable_scope("") as scope:
            assert scope.name == "a"
            assert get_variable("x", [1]).name == "a/x:0"

    def test_slashes(self):
        with variable_scope("a/b"):
            assert get_variable("c/x", [1]).name == "a/b/c/x:0"

    def test_name_scopes_do_not_name_shared_variables(self, graph):
        with graph.name_scope("n"), variable_scope("a"):
            assert get_variable("x", [1]).name == "a/x:0"
            assert constant(1.0, name="o").name == "n/a/o:0"

    def test_plain_variables_follow_the_name_scope(self):
        found = []
        for _ in range(2):
            with variable_scope("a"):
                found.append(Variable(1.0, name="x").name)
        assert found == ["a/x:0", "a_1/x:0"]

    def test_a_plain_variable_of_the_same_name_moves_the_shared_one(self):
        Variable(1.0, name="x")
        x = get_variable("x", [])
        assert x.name == "x_1:0"
        get_variable_scope().reuse_variables()
        assert get_variable("x") is x

    def test_variables_of_a_scope(self):
        with variable_scope("a") as a:
            x = get_variable("x", [1])
            n = get_variable("n", [1], trainable=False)
            m = get_local_variable("m", [1])
        with variable_scope("ab") as ab:
            y = get_variable("x", [1])
        assert a.global_variables() == [x, n]
        assert a.trainable_variables() == a.get_collection("trainable_variables") == [x]
        assert a.local_variables() == [m]
        assert ab.global_variables() == [y]
        assert get_variable_scope().global_variables() == [x, n, y]

    def test_values_name_the_graph(self, graph):
        x = constant(1.0)
        with Graph().as_default() as other:
            with variable_scope("a", values=[None, 2.0, x.op]):
                assert get_variable("x", [1]).graph is graph
            with variable_op_scope([x], None, "d", dtype=float64) as scope:
                assert get_variable("x", [1]).graph is graph
                assert scope.name == "d"
                assert scope.dtype is float64
            assert get_variable("y", [1]).graph is other


class TestReuse:
    def test_it_is_inherited_and_cannot_be_turned_off(self):
        with variable_scope("a", reuse=True):
            for reuse in (None, False):
                with variable_scope("b", reuse=reuse) as b:
                    assert b.reuse is True
        assert get_variable_scope().reuse is False

    def test_from_a_line_on(self):
        with variable_scope("a") as a:
            x = get_variable("x", [1])
            a.reuse_variables()
            assert get_variable("x", [1]) is x
        with variable_scope("a") as a:
            assert not a.reuse

    def test_auto(self):
        for _ in range(2):
            with variable_scope("a", reuse=AUTO_REUSE):
                get_variable("x", [1])
        assert [v.name for v in global_variables()] == ["a/x:0"]

    def test_a_missing_variable_is_named_with_similar_ones(self, graph):
        with variable_scope("layer"):
            get_variable("weights", [1])
        before = graph.version
        with (
            variable_scope("layer", reuse=True),
            pytest.raises(ValueError, match=r"'layer/weight' does not exist.*'layer/weights'"),
        ):
            get_variable("weight", [1])
        assert graph.version == before

    def test_a_missing_variable_without_similar_ones(self):
        with variable_scope("a", reuse=True), pytest.raises(ValueError, match="is True; reuse="):
            get_variable("x", [1])

    def test_an_existing_variable_is_named_with_its_line(self):
        get_variable("x", [1])  # the line
        with pytest.raises(
            ValueError,
            match=r"'x' exists already.*test_variable_scope\.py.*the line.*reset_default_graph",
        ):
            get_variable("x", [1])

    def test_another_shape(self):
        get_variable("x", [1])
        with (
            variable_scope("", reuse=True),
            pytest.raises(ValueError, match=r"'x': shape: expected \(1,\).*got \(2,\)"),
        ):
            get_variable("x", [2])

    @pytest.mark.parametrize("dtype", [None, float64])
    def test_another_dtype(self, dtype):
        get_variable("x", [1], dtype=int32)
        with (
            variable_scope("", reuse=AUTO_REUSE),
            pytest.raises(ValueError, match=r"'x': dtype: expected int32.*got float"),
        ):
            get_variable("x", [1], dtype=dtype)

    def test_a_value_states_its_dtype(self):
        for _ in range(2):
            with variable_scope("", reuse=AUTO_REUSE):
                x = get_variable("x", initializer=[1, 2])
        assert x.dtype is int32

    def test_a_shape_is_not_needed_to_find(self):
        x = get_variable("x", [1])
        with variable_scope("", reuse=True):
            assert get_variable("x") is x

    def test_graphs_do_not_share(self):
        x = get_variable("x", [1])
        with Graph().as_default():
            assert get_variable("x", [1]) is not x
            assert get_variable_scope().name == ""


class TestInitialValues:
    @pytest.mark.parametrize(
        ("dtype", "expected"),
        [
            ("float16", "random_uniform"),
            ("float64", "random_uniform"),
            ("int64", "zeros"),
            ("bool", "zeros"),
        ],
    )
    def test_defaults(self, dtype, expected):
        x = get_variable("x", [3, 5], dtype=dtype)
        assert x.dtype == dtype
        assert x.initial_value.op.name == f"x/Initializer/{expected}"
        value = initial(x).astype(float)
        assert np.abs(value).max() <= np.sqrt(6 / 8)
        assert value.any() == x.dtype.is_floating

    @pytest.mark.parametrize(
        ("initializer", "shape", "expected"),
        [
            (Ones(), [2], [1.0, 1.0]),
            (Ones, [2], [1.0, 1.0]),
            (lambda shape, dtype: np.full(shape, 3, dtype), [2], [3.0, 3.0]),
            ([1.0, 2.0], None, [1.0, 2.0]),
            (lambda: np.float32([1.0, 2.0]), None, [1.0, 2.0]),
            (np.float32(4.0), None, 4.0),
            (Constant(5.0), (), 5.0),
            (Constant(5.0), 2, [5.0, 5.0]),
        ],
    )
    def test_kinds_of_initializers(self, initializer, shape, expected):
        assert_array_equal(initial(get_variable("x", shape, initializer=initializer)), expected)

    def test_a_tensor(self):
        tensor = constant([1.0, 2.0])
        assert get_variable("x", initializer=tensor).initial_value is tensor
        assert_array_equal(
            initial(get_variable("y", initializer=tensor, dtype=float32)), [1.0, 2.0]
        )

    @pytest.mark.parametrize(
        ("message", "arguments"),
        [
            (r"'x': shape: expected None.*got \[1\]", {"shape": [1], "initializer": [1.0]}),
            (
                "'x': initializer: expected a value of dtype float64, got float32",
                {"initializer": [1.0], "dtype": float64},
            ),
            (r"'x': shape: expected a fully known shape, got \(\?, 2\)", {"shape": [None, 2]}),
            ("'x': shape: expected a fully known shape, got <unknown>", {}),
            ("got <unknown>", {"initializer": lambda shape, dtype: 1.0}),
            (
                r"'x': shape: \(2,\) does not fit.*\(3,\)",
                {"shape": [2], "initializer": lambda shape, dtype: [1.0, 2.0, 3.0]},
            ),
            ("custom_getter: expected a function", {"shape": [1], "custom_getter": "mine"}),
        ],
    )
    def test_refusals(self, graph, message, arguments):
        with pytest.raises(ValueError, match=message):
            get_variable("x", **arguments)
        assert graph.get_operations() == []

    def test_a_name_that_is_none(self):
        with pytest.raises(TypeError, match="name: expected a string, got 3"):
            get_variable(3, [1])

    def test_an_initializer_whose_shape_is_known_late(self):
        late = placeholder(float32, [None])
        x = get_variable("x", [2], initializer=lambda shape, dtype: late)
        assert x.sizes == (2,)

    def test_scope_defaults(self):
        def constraint(value):
            return value

        with variable_scope(
            "a", initializer=Constant(3.0), dtype=float64, constraint=constraint
        ) as a:
            pass
        with variable_scope(a):
            x = get_variable("x", [1])
            y = get_variable("y", [1], dtype=float32, initializer=Zeros(), constraint=abs)
        assert (x.dtype, y.dtype) == (float64, float32)
        assert (initial(x), initial(y)) == (3.0, 0.0)
        assert (x.constraint, y.constraint) == (constraint, abs)

    def test_scope_defaults_can_be_set(self):
        with variable_scope("a") as a:
            a.set_initializer(Constant(3.0))
            a.set_dtype("float64")
            a.set_regularizer(reduce_sum)
            a.set_custom_getter(lambda getter, name, **kwargs: getter(f"{name}_got", **kwargs))
            a.set_caching_device("/cpu:0")
            a.set_partitioner(len)
            a.set_use_resource(True)
            with variable_scope("b") as b:
                x = get_variable("x", [1])
        assert (x.name, x.dtype.name, initial(x)) == ("a/b/x_got:0", "float64", 3.0)
        assert (b.caching_device, b.partitioner, b.use_resource) == ("/cpu:0", len, True)
        assert len(x.graph.get_collection(GraphKeys.REGULARIZATION_LOSSES)) == 1
        assert repr(b) == "<optkit.VariableScope 'a/b' reuse=False>"

    def test_collections_and_training(self):
        x = get_variable("x", [1], collections=["mine"])
        y = get_variable("y", [1], trainable=False)
        z = get_local_variable("z", [1], collections=["mine"])
        w = get_local_variable("w", [1])
        assert x.graph.get_collection("mine") == [x, z]
        assert global_variables() == [y]
        assert trainable_variables() == [x]
        assert local_variables() == [z, w]

    def test_text(self):
        assert initial(get_variable("x", [2], dtype=string)).tolist() == [b"", b""]

    def test_a_value_of_a_shape_known_late(self):
        with pytest.raises(ValueError, match=r"'x': initial_value: expected a fully known shape"):
            get_variable("x", initializer=placeholder(float32, [None]))

    def test_an_open_shape(self):
        x = get_variable("x", initializer=[1.0], validate_shape=False)
        assert x.shape.ndims is None


class TestRegularizers:
    def test_losses_are_collected_once(self, graph):
        seen = []

        def regularizer(variable):
            seen.append(variable)
            return reduce_sum(variable, name="r")

        with variable_scope("a", regularizer=regularizer):
            x = get_variable("x", [1], initializer=Ones())
            get_variable("y", [1], regularizer=no_regularizer)
        with variable_scope("a", reuse=True, regularizer=regularizer):
            get_variable("x")
        losses = graph.get_collection(GraphKeys.REGULARIZATION_LOSSES)
        assert [loss.name for loss in losses] == ["a/x/Regularizer/r:0"]
        assert seen == [x]
        assert initial(losses[0]) == 1.0

    def test_no_loss(self, graph):
        get_variable("x", [1], regularizer=lambda _: None)
        assert graph.get_collection(GraphKeys.REGULARIZATION_LOSSES) == []

    def test_control_dependencies_do_not_reach_it(self, graph):
        with graph.control_dependencies([constant(1.0)]):
            get_variable("x", [1], regularizer=reduce_sum)
        (loss,) = graph.get_collection(GraphKeys.REGULARIZATION_LOSSES)
        assert not loss.op.control_inputs

    def test_a_failing_one_leaves_the_graph_as_it_was(self, graph):
        def fails(variable):
            reduce_sum(variable)
            raise KeyError("mine")

        with variable_scope("a") as a:
            before = graph.version
            with pytest.raises(KeyError, match="mine"):
                get_variable("x", [1], regularizer=fails)
            assert graph.version == before
            assert global_variables() == []
            assert get_variable_scope() is a
            assert get_variable("x", [1]).name == "a/x:0"


class TestGetters:
    def test_inner_getters_are_called_first(self):
        log = []

        def outer(getter, name, *args, **kwargs):
            log.append(f"outer {name}")
            return getter(name, *args, **kwargs)

        def inner(getter, name, *args, **kwargs):
            log.append(f"inner {name}")
            return getter(f"{name}_2", *args, **kwargs)

        with variable_scope("a", custom_getter=outer):
            with variable_scope("b", custom_getter=inner):
                x = get_variable("x", [1])
            y = get_variable("y", [1], custom_getter=inner)
        assert (x.name, y.name) == ("a/b/x_2:0", "a/y_2:0")
        assert log == ["inner a/b/x", "outer a/b/x_2", "inner a/y"]

    def test_what_they_are_given(self):
        seen = {}

        def getter(getter, **kwargs):
            seen.update(kwargs)
            return getter(**kwargs)

        get_variable("x", [1], custom_getter=getter, constraint=abs)
        assert seen == {
            "name": "x",
            "shape": [1],
            "dtype": float32,
            "initializer": None,
            "regularizer": None,
            "reuse": False,
            "trainable": None,
            "collections": None,
            "caching_device": None,
            "partitioner": None,
            "validate_shape": True,
            "use_resource": None,
            "synchronization": None,
            "aggregation": None,
            "constraint": abs,
        }

    def test_older_ones_do_not_know_constraint(self):
        def getter(
            getter, name, shape, dtype, initializer, regularizer, reuse, trainable, collections,
            caching_device, partitioner, validate_shape, use_resource, synchronization, aggregation,
        ):  # fmt: skip
            return getter(name, shape, dtype)

        assert get_variable("x", [1], custom_getter=getter).name == "x:0"

    def test_they_may_give_anything(self):
        doubled = get_variable(
            "x", [1], initializer=Ones(), custom_getter=lambda getter, **k: getter(**k) * 2.0
        )
        assert initial(doubled) == 2.0


class TestEntering:
    @pytest.mark.parametrize(
        ("kind", "message", "arguments"),
        [
            (TypeError, "name_or_scope: expected a name, as default_name is None", (None,)),
            (TypeError, "name_or_scope: expected a name or a VariableScope, got 3", (3,)),
            (
                ValueError,
                "reuse: expected a name_or_scope",
                (None, "d", None, None, None, None, None, None, True),
            ),
            (
                ValueError,
                "reuse: expected True, False, None",
                ("a", None, None, None, None, None, None, None, "yes"),
            ),
            (
                ValueError,
                "custom_getter: expected a function",
                ("a", None, None, None, None, None, None, 3),
            ),
        ],
    )
    def test_refusals(self, graph, kind, message, arguments):
        with pytest.raises(kind, match=message), variable_scope(*arguments):
            pass
        assert get_variable_scope().name == ""
        assert graph.get_name_scope() == ""

    def test_a_bad_auxiliary_name_scope(self):
        with (
            pytest.raises(TypeError, match="auxiliary_name_scope: expected a bool, got 1"),
            variable_scope("a", auxiliary_name_scope=1),
        ):
            pass

    def test_an_exception_leaves_the_scope(self, graph):
        with pytest.raises(KeyError), variable_scope("a"), variable_scope("b"):
            raise KeyError
        assert get_variable_scope().name == ""
        assert graph.get_name_scope() == ""

    def test_scopes_left_in_the_wrong_order(self):
        outer, inner = variable_scope("a"), variable_scope("b")
        outer.__enter__()
        inner.__enter__()
        for scope, name in ((outer, "'a'"), (inner, "'a/b'")):
            with pytest.raises(RuntimeError, match=f"VariableScope {name} reuse=False> was left"):
                scope.__exit__(None, None, None)

    def test_a_rollback_takes_scopes_and_variables_back(self, graph):
        with variable_scope(None, "kept"):
            kept = get_variable("x", [1])
        before = graph.version

        def attempt():
            with graph.all_or_nothing(), variable_scope(None, "d") as scope:
                assert scope.name == "d"
                get_variable("x", [1])
                raise KeyError("mine")

        for _ in range(2):
            with pytest.raises(KeyError, match="mine"):
                attempt()
        assert graph.version == before
        assert global_variables() == [kept]
        assert get_variable_scope().name == ""
        with variable_scope(None, "d") as scope:
            assert (scope.name, get_variable("x", [1]).name) == ("d", "d/x:0")
        with variable_scope("kept", reuse=True):
            assert get_variable("x") is kept

    def test_a_rollback_inside_a_scope_keeps_it(self, graph):
        with variable_scope("a") as a:
            with pytest.raises(KeyError), graph.all_or_nothing(), variable_scope("b"):
                raise KeyError
            assert get_variable_scope() is a
            assert get_variable("x", [1]).name == "a/x:0"
        assert get_variable_scope().name == ""

    def test_a_scope_object_made_by_hand(self):
        with variable_scope(VariableScope(AUTO_REUSE, "mine", initializer=Ones())):
            x = get_variable("x", [1])
            assert get_variable("x", [1]) is x
        assert (x.name, initial(x)) == ("mine/x:0", 1.0)
