"""Moving averages: TensorFlow's numbers, names, and what apply builds."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from optkit.graph import GraphKeys
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.runtime.session import Session
from optkit.train.moving_averages import (
    ExponentialMovingAverage,
    assign_moving_average,
    weighted_moving_average,
)
from optkit.variable_scope import variable_scope
from optkit.variables import (
    Variable,
    global_variables,
    global_variables_initializer,
    moving_average_variables,
    trainable_variables,
)

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "decays.json").read_text(encoding="utf-8")
)["ema_cases"]


@pytest.fixture
def session():
    with Session() as session:
        yield session


def initialise(session):
    session.run(global_variables_initializer())


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["id"])
def test_golden(session, case):
    decay = np.float32(case["decay"]) if case["dtype"] == "float64" else case["decay"]
    tolerance = {"float32": {"rtol": 0, "atol": 2e-6}, "float64": {"rtol": 1e-6}}[case["dtype"]]
    steps = case["num_updates"]
    updates = None if steps is None else Variable(0, trainable=False)
    average = ExponentialMovingAverage(decay, updates, case["zero_debias"])
    of_tensor = case["of"].startswith("tensor")
    if of_tensor:
        fed = followed = placeholder(case["dtype"], [], name="mul")
    else:
        fed = constant(case["initial_value"], case["dtype"])
        w = Variable(fed, name="w")
        followed = w
    update = average.apply([followed])
    shadow = average.average(followed)
    assert shadow.dtype == case["dtype"]
    assert shadow.op.name == average.average_name(followed) == case["average_name"]
    initialise(session)
    seen = [session.run(shadow)]
    for i, value in enumerate(case["values"]):
        if steps is not None:
            updates.load(steps[i])
        if of_tensor:
            session.run(update, {fed: value})
        else:
            w.load(value)
            session.run(update)
        seen.append(session.run(shadow))
    expected = np.array(case["expected_initial_then_after_each"], case["dtype"])
    assert np.array(seen).dtype == expected.dtype
    assert_allclose(seen, expected, **tolerance)


def test_golden_cases_cover_both_kinds_and_dtypes():
    assert len(GOLDEN) == 5
    assert {case["dtype"] for case in GOLDEN} == {"float32", "float64"}


class TestAssignMovingAverage:
    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    def test_without_debiasing(self, session, dtype):
        w = Variable(np.ones(2, dtype), name="w")
        result = assign_moving_average(w, [3.0, 5.0], 0.75, zero_debias=False)
        assert result.op.name == "AssignMovingAvg"
        initialise(session)
        assert_array_equal(session.run(result), np.array([1.5, 2.0], dtype), strict=True)
        assert_array_equal(session.run(w), [1.5, 2.0])

    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    def test_with_debiasing(self, session, dtype):
        w = Variable(np.zeros((), dtype), name="w")
        value = placeholder(dtype, [])
        result = assign_moving_average(w, value, 0.5, name="moved")
        assert result.op.name == "moved"
        assert [v.name for v in global_variables()] == ["w:0", "w/biased:0", "w/local_step:0"]
        assert trainable_variables() == [w]
        initialise(session)
        seen = [session.run(result, {value: x}) for x in (1.0, 1.0, 4.0)]
        # By hand: b = 0.5, 0.75, 2.375; 1 - 0.5^t = 0.5, 0.75, 0.875.
        assert_allclose(seen, [1.0, 1.0, 2.375 / 0.875], rtol=4 * np.finfo(dtype).eps)
        assert seen[0].dtype == dtype
        assert session.run(w) == seen[2]

    def test_full_precision_for_float64(self, session):
        w = Variable(np.float64(1.0))
        result = assign_moving_average(w, np.float64(0.0), 0.9, zero_debias=False)
        initialise(session)
        assert session.run(result) == 0.9

    @pytest.mark.parametrize("make", [constant, Variable, np.float32])
    def test_a_decay_that_is_a_tensor(self, session, make):
        w = Variable(np.float64(1.0))
        result = assign_moving_average(w, np.float64(0.0), make(0.5), zero_debias=False)
        initialise(session)
        assert session.run(result) == 0.5

    def test_two_of_one_variable_count_on_their_own(self):
        w = Variable(0.0, name="w")
        for _ in range(2):
            assign_moving_average(w, 1.0, 0.5)
        assert [v.op.name for v in global_variables()[3:]] == ["w/biased_1", "w/local_step_1"]

    def test_a_value_that_does_not_fit_leaves_the_graph_as_it_was(self, graph):
        w = Variable([0.0], name="w")
        before = graph.version
        with pytest.raises(ValueError, match=r"\(1,\).*\(2, 2\)|\(2, 2\).*\(1,\)"):
            assign_moving_average(w, constant([[1.0, 2.0], [1.0, 2.0]]), 0.5)
        assert graph.version == before + 1
        assert global_variables() == [w]


class TestExponentialMovingAverage:
    def test_trainable_variables_are_the_default(self):
        w = Variable(1.0, name="w")
        fixed = Variable(1.0, name="fixed", trainable=False)
        average = ExponentialMovingAverage(0.9)
        operation = average.apply()
        assert operation.name == average.name == "ExponentialMovingAverage"
        assert average.average(fixed) is None
        shadow = average.average(w)
        assert (shadow.name, shadow.trainable) == ("w/ExponentialMovingAverage:0", False)
        assert moving_average_variables() == [w]
        assert global_variables() == [w, fixed, shadow]

    def test_names_before_apply(self, graph):
        w = Variable(1.0, name="w")
        average = ExponentialMovingAverage(0.9)
        with graph.name_scope("n"):
            assert average.average_name(w) == "w/ExponentialMovingAverage"
        average.apply()
        assert average.average_name(w) == "w/ExponentialMovingAverage"

    def test_the_variable_scope_is_part_of_the_names(self):
        w = Variable(1.0, name="w")
        average = ExponentialMovingAverage(0.9, name="ema")
        with variable_scope("o"):
            operation = average.apply([w])
        assert (operation.name, average.average(w).name) == ("o/ema", "o/w/ema:0")
        assert average.average_name(w) == "o/w/ema"

    def test_a_second_apply_uses_the_shadow_again(self, session):
        w = Variable(1.0)
        average = ExponentialMovingAverage(0.5)
        first, second = average.apply([w]), average.apply([w])
        assert (first.name, second.name) == (
            "ExponentialMovingAverage",
            "ExponentialMovingAverage_1",
        )
        assert moving_average_variables() == [w]
        initialise(session)
        w.load(3.0)
        session.run(first)
        session.run(second)
        assert session.run(average.average(w)) == 2.5

    def test_a_second_object_has_shadows_of_its_own(self):
        w = Variable(1.0, name="w")
        first, second = ExponentialMovingAverage(0.5), ExponentialMovingAverage(0.5)
        first.apply()
        second.apply()
        assert second.average(w).name == "w/ExponentialMovingAverage_1:0"
        assert second.average_name(w) == "w/ExponentialMovingAverage_1"

    def test_it_follows_the_update_it_depends_on(self, graph, session):
        w = Variable(1.0)
        average = ExponentialMovingAverage(0.5)
        train = w.assign_add(2.0)
        with graph.control_dependencies([train]):
            update = average.apply()
        initialise(session)
        session.run(update)
        assert session.run([w, average.average(w)]) == [3.0, 2.0]

    def test_debiasing_is_for_tensors(self, session):
        w = Variable(1.0, name="w")
        x = placeholder("float32", [], name="x")
        average = ExponentialMovingAverage(0.9, zero_debias=True)
        update, again = average.apply([w, x]), average.apply([x])
        assert [v.op.name for v in global_variables()] == [
            "w",
            "w/ExponentialMovingAverage",
            "x/ExponentialMovingAverage",
            "x/ExponentialMovingAverage/biased",
            "x/ExponentialMovingAverage/local_step",
        ]
        initialise(session)
        seen = []
        for operation, value in ((update, 1.0), (again, 1.0), (update, 2.0)):
            session.run(operation, {x: value})
            seen.append(session.run(average.average(x)))
        # behaviour of the reference for 1, 1, 2 with 0.9
        assert_allclose(seen, [1.0, 1.0, 0.371 / 0.271], rtol=1e-6)

    def test_the_initial_value_counts_where_there_is_no_value_yet(self, session):
        w = Variable(1.0)
        session.run(w.initializer)
        w.load(5.0)
        average = ExponentialMovingAverage(0.5)
        average.apply()
        shadow = average.average(w)
        session.run(shadow.initializer)
        assert session.run(shadow) == 5.0

    @pytest.mark.parametrize("steps", [0, np.int64(0), constant])
    def test_the_number_of_updates_may_be_a_number_or_a_tensor(self, session, steps):
        w = Variable(1.0)
        average = ExponentialMovingAverage(constant(0.9), steps(0) if steps is constant else steps)
        update = average.apply()
        initialise(session)
        w.load(2.0)
        session.run(update)
        assert_allclose(session.run(average.average(w)), 1.9, rtol=1e-6)

    @pytest.mark.parametrize("decay", [-0.1, 1.5, np.float32(2.0), float("nan")])
    def test_a_decay_out_of_range(self, decay):
        with pytest.raises(ValueError, match=r"decay: expected a number in \[0, 1\]"):
            ExponentialMovingAverage(decay)

    @pytest.mark.parametrize("decay", [None, "0.9", [0.9], 1j, True])
    def test_a_decay_of_another_kind(self, decay):
        with pytest.raises(TypeError, match=r"decay: expected a number in \[0, 1\]"):
            ExponentialMovingAverage(decay)

    @pytest.mark.parametrize(
        ("message", "make"),
        [
            ("expected floating dtypes, got .*'n:0'", lambda: Variable(1, name="n")),
            ("expected Variables or Tensors, got 1.0", lambda: 1.0),
        ],
    )
    def test_what_has_no_average(self, graph, message, make):
        w, other = Variable(1.0, name="w"), make()
        before = graph.version
        average = ExponentialMovingAverage(0.9)
        with pytest.raises(TypeError, match=f"var_list: {message}"):
            average.apply([w, other])
        assert graph.version == before
        assert average.average(w) is None

    def test_a_failing_apply_leaves_everything_as_it_was(self, graph):
        w = Variable(1.0, name="w")
        before = graph.version
        average = ExponentialMovingAverage(0.9, num_updates="many")
        with pytest.raises(TypeError, match=r"Cast 'num_updates'.*got string"):
            average.apply()
        assert graph.version == before
        assert average.average(w) is None
        assert moving_average_variables() == []

    def test_variables_to_restore(self):
        w = Variable(1.0, name="w")
        b = Variable(1.0, name="b", trainable=False)
        average = ExponentialMovingAverage(0.9)
        doubled = w * 2.0
        average.apply([w, doubled])
        assert average.variables_to_restore() == {
            "w/ExponentialMovingAverage": w,
            "b": b,
            "mul/ExponentialMovingAverage": average.average(doubled),
        }
        assert average.variables_to_restore([b]) == {
            "b/ExponentialMovingAverage": b,
            "w": w,
            "w/ExponentialMovingAverage": average.average(w),
            "mul/ExponentialMovingAverage": average.average(doubled),
        }


class TestWeightedMovingAverage:
    def test_values(self, graph, session):
        value, weight = placeholder("float32", []), placeholder("float32", [])
        result = weighted_moving_average(value, 0.5, weight)
        assert result.op.name == "WeightedMovingAvg"
        assert [v.op.name for v in global_variables()] == [
            "WeightedMovingAvg/value_x_weight",
            "WeightedMovingAvg/weight",
        ]
        assert trainable_variables() == []
        initialise(session)
        seen = [session.run(result, {value: v, weight: w}) for v, w in ((2, 1), (5, 3), (7, 0))]
        # By hand: (1, 0.5), (8, 1.75), (4, 0.875).
        assert_allclose(seen, [2.0, 8 / 1.75, 8 / 1.75], rtol=1e-6)

    def test_collections_and_name(self, graph):
        weighted_moving_average(1.0, 0.5, 2.0, False, [GraphKeys.LOCAL_VARIABLES], "avg")
        assert [v.op.name for v in graph.get_collection(GraphKeys.LOCAL_VARIABLES)] == [
            "avg/value_x_weight",
            "avg/weight",
        ]


def test_repr_tells_name_and_decay():
    text = "<optkit.ExponentialMovingAverage 'ExponentialMovingAverage' decay=0.9>"
    assert repr(ExponentialMovingAverage(0.9)) == text
