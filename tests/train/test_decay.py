"""Learning-rate schedules: TensorFlow's numbers, dtypes, boundaries, errors."""

import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optkit.dtypes import float32, float64, int32, int64
from optkit.errors import InvalidArgumentError
from optkit.gradients import gradients
from optkit.graph import Graph, get_default_graph
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.ops.math import cast
from optkit.runtime.eager import eager
from optkit.runtime.session import Session
from optkit.train import decay
from optkit.train.decay import (
    cosine_decay,
    cosine_decay_restarts,
    exponential_decay,
    inverse_time_decay,
    linear_cosine_decay,
    natural_exp_decay,
    noisy_linear_cosine_decay,
    piecewise_constant,
    piecewise_constant_decay,
    polynomial_decay,
    sgdr_decay,
)
from optkit.train.gradient_descent import GradientDescentOptimizer
from optkit.variables import Variable, global_variables_initializer

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "decays.json").read_text(encoding="utf-8")
)

# Every schedule but piecewise_constant, with the argument that gives the length of a period and
# what else it needs.
SCHEDULES = {
    exponential_decay: ("decay_steps", {"decay_rate": 0.5}),
    natural_exp_decay: ("decay_steps", {"decay_rate": 0.5}),
    inverse_time_decay: ("decay_steps", {"decay_rate": 0.5}),
    polynomial_decay: ("decay_steps", {}),
    cosine_decay: ("decay_steps", {}),
    cosine_decay_restarts: ("first_decay_steps", {}),
    sgdr_decay: ("initial_period_steps", {}),
    linear_cosine_decay: ("decay_steps", {}),
    noisy_linear_cosine_decay: ("decay_steps", {"initial_variance": 0.0}),
}
# The same and the two schedules whose flag changes the curve.
CURVES = [
    *((f, period, rest) for f, (period, rest) in SCHEDULES.items()),
    (polynomial_decay, "decay_steps", {"cycle": True}),
    (exponential_decay, "decay_steps", {"decay_rate": 0.5, "staircase": True}),
]
every_schedule = pytest.mark.parametrize(
    "schedule", SCHEDULES, ids=lambda function: function.__name__
)
every_curve = pytest.mark.parametrize(
    ("schedule", "period", "rest"), CURVES, ids=[f"{f.__name__}-{rest}" for f, _, rest in CURVES]
)


def with_period(schedule, length):
    """The keyword arguments of a schedule with a period of `length` steps."""
    period, rest = SCHEDULES[schedule]
    return {period: length, **rest}


def rates(build, steps, dtype=int64):
    """`build(step)` in a graph of its own, at each of the steps."""
    with Graph().as_default(), Session() as session:
        step = placeholder(dtype, ())
        rate = build(step)
        return [session.run(rate, {step: s}) for s in steps]


# -- TensorFlow's numbers ------------------------------------------------------------------------


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["id"])
def test_schedule_matches_tensorflow(case):
    scalar = np.dtype(case["dtype"]).type
    kwargs = dict(case["kwargs"])
    start = kwargs.get("learning_rate", 1.0)
    if case["function"] == "piecewise_constant":
        kwargs["values"] = [scalar(value) for value in kwargs["values"]]
        found = rates(lambda step: piecewise_constant(step, **kwargs), case["steps"])
    else:
        kwargs["learning_rate"] = scalar(start)
        schedule = getattr(decay, case["function"])
        found = rates(lambda step: schedule(global_step=step, **kwargs), case["steps"])
    assert {value.dtype.name for value in found} == {case["dtype"]}
    # TensorFlow rounds π and end_learning_rate to float32, which shows in float64 where the rate
    # is almost zero.
    rtol, atol = (1e-6, 1e-8 * start) if case["dtype"] == "float64" else (0, 2e-6 * start)
    expected = list(case["expected"])
    if case["id"] == "sgdr_f64":
        # Rounding makes TensorFlow miss the restart at 70 = 10·(1 + 2 + 4).
        expected[case["steps"].index(70)] = 0.1
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


def test_every_schedule_has_a_golden_row_or_a_row_by_hand():
    golden = {case["function"] for case in GOLDEN["cases"]}
    by_hand = {"noisy_linear_cosine_decay", "piecewise_constant_decay"}
    assert golden | by_hand == set(decay.__all__)
    assert piecewise_constant_decay is piecewise_constant


# By hand, for terms that no golden row reaches: each row is lr, schedule, arguments, step, result.
BY_HAND = [
    # x = 5/20; ½(1 + cos(2π·1·¼)) = ½; (α + 1 − x)·½ + β = (0.25 + 0.75)·½ + 0.125 = 0.625.
    (8.0, linear_cosine_decay, {"num_periods": 1.0, "alpha": 0.25, "beta": 0.125}, 5, 5.0),
    # With variance 0 the noisy form is the same.
    (
        8.0,
        noisy_linear_cosine_decay,
        {"num_periods": 1.0, "alpha": 0.25, "beta": 0.125, "initial_variance": 0.0},
        5,
        5.0,
    ),
    # Negative steps grow: 8·½^(−1).
    (8.0, exponential_decay, {"decay_rate": 0.5}, -20, 16.0),
    # Power ½ of what is left, ¼: (8 − 4)·½ + 4.
    (8.0, polynomial_decay, {"end_learning_rate": 4.0, "power": 0.5}, 15, 6.0),
    # Third restart (s = 20·(1 + 3) starts period 2), half through its 180 steps:
    # (1 − ½)·¼·½ + ½ = 0.5625.
    (
        8.0,
        cosine_decay_restarts,
        {"t_mul": 3.0, "m_mul": 0.5, "alpha": 0.5},
        80 + 90,
        8 * 0.5625,
    ),
    # Shrinking periods 20, 10, 5, ...: the second is half through at 25; ½(1 + cos ½π) = ½.
    (8.0, sgdr_decay, {"t_mul": 0.5}, 25, 4.0),
    # All shrinking periods together end at 20/(1 − ½) = 40; nothing is left after that.
    (8.0, sgdr_decay, {"t_mul": 0.5}, 50, 0.0),
]


@pytest.mark.parametrize(("start", "schedule", "kwargs", "step", "expected"), BY_HAND)
def test_schedule_matches_hand_computation(start, schedule, kwargs, step, expected):
    kwargs = with_period(schedule, 20) | kwargs
    (found,) = rates(lambda s: schedule(np.float64(start), s, **kwargs), [step])
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_noise_has_the_variance_that_was_asked_for():
    # The line at s = 4, n = 10 is 0.6; with num_periods = 0 the cosine is 1 and with β = 0 the
    # rate is 0.6 + ε with Var ε = 2/(1 + 4)^0.5.
    with Graph().as_default() as graph, Session() as session:
        graph.seed = 3
        rate = noisy_linear_cosine_decay(
            np.float64(1.0),
            4,
            10,
            initial_variance=2.0,
            variance_decay=0.5,
            num_periods=0.0,
            beta=0.0,
        )
        drawn = np.array([session.run(rate) for _ in range(4000)]) - 0.6
    deviation = math.sqrt(2 / math.sqrt(5))
    # Four standard errors of the mean and of the deviation of 4000 draws.
    assert abs(drawn.mean()) < 4 * deviation / math.sqrt(4000)
    assert abs(drawn.std() / deviation - 1) < 4 / math.sqrt(8000)


def test_noise_is_repeatable_and_new_in_each_run():
    def draw():
        with Graph().as_default() as graph, Session() as session:
            graph.seed = 11
            rate = noisy_linear_cosine_decay(1.0, 4, 10)
            return [float(session.run(rate)) for _ in range(3)]

    first = draw()
    assert len(set(first)) == 3
    assert draw() == first


# -- dtypes --------------------------------------------------------------------------------------

RATES = [
    pytest.param(lambda: 4.0, "float32", id="python float"),
    pytest.param(lambda: 4, "float32", id="python int"),
    pytest.param(lambda: np.int64(4), "float32", id="numpy int64"),
    pytest.param(lambda: np.float16(4), "float16", id="numpy float16"),
    pytest.param(lambda: np.float32(4), "float32", id="numpy float32"),
    pytest.param(lambda: np.float64(4), "float64", id="numpy float64"),
    pytest.param(lambda: np.array(4.0), "float64", id="0-d array"),
    pytest.param(lambda: constant(4, int32), "float32", id="int32 tensor"),
    pytest.param(lambda: constant(4.0, float64), "float64", id="float64 tensor"),
    pytest.param(lambda: Variable(4.0), "float32", id="variable"),
    pytest.param(lambda: Variable(np.float64(4.0)), "float64", id="float64 variable"),
]

STEPS = [
    pytest.param(lambda: 5, id="python int"),
    pytest.param(lambda: np.int64(5), id="numpy int64"),
    pytest.param(lambda: 5.0, id="python float"),
    pytest.param(lambda: constant(5, int32), id="int32 tensor"),
    pytest.param(lambda: constant(5, int64), id="int64 tensor"),
    pytest.param(lambda: constant(5.0, float32), id="float32 tensor"),
    pytest.param(lambda: constant(5.0, float64), id="float64 tensor"),
    pytest.param(lambda: Variable(5), id="int32 variable"),
    pytest.param(lambda: Variable(np.int64(5)), id="int64 variable"),
]


def run_built(build):
    with Graph().as_default(), Session() as session:
        value = build()
        session.run(global_variables_initializer())
        return session.run(value)


@every_curve
@pytest.mark.parametrize(("rate", "dtype"), RATES)
def test_result_has_the_dtype_of_the_rate(schedule, period, rest, rate, dtype):
    found = run_built(lambda: schedule(rate(), 5, **{period: 20}, **rest))
    expected = run_built(lambda: schedule(np.float64(4.0), 5, **{period: 20}, **rest))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=4 * np.finfo(dtype).eps)


@every_curve
@pytest.mark.parametrize("step", STEPS)
def test_every_kind_of_step_gives_the_same_rate(schedule, period, rest, step):
    found = run_built(lambda: schedule(4.0, step(), **{period: 20}, **rest))
    expected = run_built(lambda: schedule(4.0, 5, **{period: 20}, **rest))
    assert found.dtype == np.float32
    assert found == expected


@pytest.mark.parametrize("step", STEPS)
def test_piecewise_constant_takes_every_kind_of_step(step):
    assert run_built(lambda: piecewise_constant(step(), [4, 5], [1.0, 0.5, 0.25])) == 0.5


@pytest.mark.parametrize(("value", "dtype"), RATES)
def test_piecewise_constant_has_the_dtype_of_its_values(value, dtype):
    found = run_built(lambda: piecewise_constant(5, [4], [value(), value()]))
    assert (found, found.dtype) == (4, dtype)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (lambda: [1.0, np.float64(0.1)], "float64"),
        (lambda: [1, 0.1], "float32"),
        (lambda: [constant(1.0, float64), 0.1], "float64"),
        (lambda: [0.5, Variable(np.float64(0.1))], "float64"),
    ],
)
def test_piecewise_constant_brings_numbers_to_one_dtype(values, dtype):
    found = run_built(lambda: piecewise_constant(5, [4], values()))
    assert found.dtype == dtype
    assert found == np.dtype(dtype).type(0.1)


@every_curve
def test_parameters_may_be_tensors(schedule, period, rest):
    def built(wrap):
        numbers = {k: v if isinstance(v, bool) else wrap(v) for k, v in rest.items()}
        return schedule(wrap(4.0), 5, **{period: wrap(20)}, **numbers)

    plain = run_built(lambda: built(lambda value: value))
    assert run_built(lambda: built(constant)) == plain
    assert run_built(lambda: built(Variable)) == plain


# -- boundaries ----------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [sgdr_decay, cosine_decay_restarts])
@pytest.mark.parametrize("t_mul", [1.0, 1.1, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("length", [1, 3, 7, 10, 1000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_restart_that_falls_on_a_whole_step_is_exact(schedule, t_mul, length, dtype):
    # In exact arithmetic: t_mul is a decimal fraction, and so are all starts.
    from fractions import Fraction

    t, start, starts = Fraction(str(t_mul)), Fraction(0), []
    for i in range(12):
        if start.denominator == 1:
            starts.append((i, int(start)))
        start += length * t**i
    found = rates(
        lambda step: schedule(dtype(0.1), step, length, t_mul=t_mul, m_mul=0.5),
        [step for _, step in starts],
    )
    assert found == [dtype(0.1) * dtype(0.5**i) for i, _ in starts]


@given(st.integers(1, 10**6), st.integers(0, 10**9))
def test_staircase_counts_whole_periods(length, step):
    (found,) = rates(
        lambda s: inverse_time_decay(np.float64(1.0), s, length, 1.0, staircase=True), [step]
    )
    assert found == 1 / (1 + step // length)


def test_large_int64_steps_keep_their_digits():
    # A float32 step could not tell 2^24 from 2^24 + 1.
    first = 2**24
    found = rates(lambda s: exponential_decay(1.0, s, 1, 0.5, staircase=False), [3, 4])
    assert found == [0.125, 0.0625]
    found = rates(lambda s: polynomial_decay(1.0, s, first + 2, 0.0), [first, first + 1, first + 2])
    assert found == [np.float32(2 / (first + 2)), np.float32(1 / (first + 2)), 0.0]


def test_p036_polynomial_decay_with_cycle_starts_at_the_initial_rate():
    found = rates(lambda s: polynomial_decay(0.1, s, 100, 0.01, cycle=True), [0, 150])
    np.testing.assert_allclose(found, [0.1, 0.0325], rtol=1e-6)
    assert found[0] == np.float32(0.1)


@every_curve
@pytest.mark.parametrize("length", [1, 2, 3])
def test_p037_short_spans_give_finite_rates(schedule, period, rest, length):
    found = rates(lambda s: schedule(0.5, s, **{period: length}, **rest), range(6))
    assert np.isfinite(found).all()
    assert min(found) >= 0


@every_schedule
@pytest.mark.parametrize("length", [0, -1, 0.0, float("nan"), np.int64(0)])
def test_p037_a_span_that_is_not_positive_is_refused(schedule, length):
    period, rest = SCHEDULES[schedule]
    with Graph().as_default() as graph:
        with pytest.raises(ValueError, match=rf"{period}: expected a number"):
            schedule(0.5, 3, **{period: length}, **rest)
        assert not graph.get_operations()
        with pytest.raises(ValueError, match=rf"{period}: expected a number above 0, got 0"):
            schedule(0.5, 3, **{period: constant(0)}, **rest)


def test_p038_piecewise_constant_takes_python_boundaries_for_an_int64_step():
    found = rates(lambda s: piecewise_constant(s, [2, 4], [1.0, 0.5, 0.1]), range(6))
    assert found == [np.float32(rate) for rate in (1.0, 1.0, 1.0, 0.5, 0.5, 0.1)]


def test_p038_piecewise_constant_compares_int64_steps_exactly():
    edge = 2**53
    found = rates(lambda s: piecewise_constant(s, [edge], [1.0, 0.5]), [edge, edge + 1])
    assert found == [1.0, 0.5]


@pytest.mark.parametrize("values", [[1.0, 0.5], [1.0, 0.5, 0.1, 0.01]])
def test_p038_piecewise_constant_tells_both_lengths(values):
    with pytest.raises(ValueError, match=f"got 2 boundaries and {len(values)} values"):
        piecewise_constant(0, [2, 4], values)


def test_p039_alpha_is_a_part_of_the_initial_rate():
    assert rates(lambda s: cosine_decay(0.5, s, 10, alpha=0.1), [10]) == [np.float32(0.05)]


def test_p039_each_restart_starts_at_the_multiplied_rate():
    found = rates(
        lambda s: cosine_decay_restarts(1.0, s, 10, t_mul=2.0, m_mul=0.5), [0, 10, 30, 70]
    )
    assert found == [1.0, 0.5, 0.25, 0.125]


# -- piecewise_constant's errors -----------------------------------------------------------------


@pytest.mark.parametrize("boundaries", [[4, 2], [2, 2], [1, 3, 2]])
def test_piecewise_constant_refuses_boundaries_that_do_not_increase(boundaries):
    values = [1.0] * (len(boundaries) + 1)
    with Graph().as_default() as graph:
        with pytest.raises(ValueError, match="boundaries: expected strictly increasing"):
            piecewise_constant(0, boundaries, values)
        assert not graph.get_operations()


def test_piecewise_constant_refuses_running_with_tensor_boundaries_that_do_not_increase():
    with Graph().as_default(), Session() as session:
        first = placeholder(int64, ())
        rate = piecewise_constant(constant(3, int64), [first, 5], [1.0, 0.5, 0.1])
        assert session.run(rate, {first: 2}) == 0.5
        with pytest.raises(InvalidArgumentError, match="boundaries: expected strictly increasing"):
            session.run(rate, {first: 5})


@pytest.mark.parametrize(
    ("boundaries", "values", "error", "text"),
    [
        ([], [1.0], ValueError, "one or more boundaries"),
        ([2.5], [1.0, 0.5], ValueError, "boundaries: expected whole numbers that fit int32"),
        ([2**31], [1.0, 0.5], ValueError, "boundaries: expected whole numbers that fit int32"),
        (["2"], [1.0, 0.5], TypeError, "boundaries: expected a number or Tensor, got '2'"),
        ([None], [1.0, 0.5], TypeError, "boundaries: expected a number or Tensor, got None"),
        ([2], [1.0, None], TypeError, "values: expected a number or Tensor, got None"),
        ([2], [1.0, float("nan")], ValueError, "values: expected a number, got NaN"),
    ],
)
def test_piecewise_constant_refuses_bad_arguments(boundaries, values, error, text):
    with Graph().as_default() as graph:
        with pytest.raises(error, match=text):
            piecewise_constant(0, boundaries, values)
        assert not graph.get_operations()


def test_piecewise_constant_refuses_tensors_of_other_dtypes():
    with Graph().as_default():
        with pytest.raises(TypeError, match="boundaries: expected int32 as x"):
            piecewise_constant(0, [constant(2.0)], [1.0, 0.5])
        with pytest.raises(TypeError, match="values: expected one dtype, got float32, float64"):
            piecewise_constant(0, [2], [constant(1.0), constant(0.5, float64)])
        with pytest.raises(ValueError, match="x: expected the global_step, got None"):
            piecewise_constant(None, [2], [1.0, 0.5])


def test_piecewise_constant_widens_int32_tensor_boundaries():
    found = rates(lambda s: piecewise_constant(s, [constant(2)], [1.0, 0.5]), [2, 3])
    assert found == [1.0, 0.5]


# -- arguments -----------------------------------------------------------------------------------


@every_schedule
def test_a_missing_step_is_named(schedule):
    with Graph().as_default() as graph:
        with pytest.raises(ValueError, match="global_step: expected the global_step, got None"):
            schedule(0.5, None, **with_period(schedule, 10))
        assert not graph.get_operations()


@every_schedule
@pytest.mark.parametrize("bad", ["0.5", True, [0.5], object()], ids=repr)
def test_arguments_of_another_kind_are_named(schedule, bad):
    period, _ = SCHEDULES[schedule]
    good = {"learning_rate": 0.5, "global_step": 3, **with_period(schedule, 10)}
    for argument in ("learning_rate", "global_step", period):
        with Graph().as_default(), pytest.raises(TypeError, match=f"{argument}: expected a"):
            schedule(**good | {argument: bad})
    with Graph().as_default(), pytest.raises(ValueError, match="learning_rate: expected a rate"):
        schedule(**good | {"learning_rate": None})
    with Graph().as_default(), pytest.raises(ValueError, match=r"learning_rate: .* got NaN"):
        schedule(**good | {"learning_rate": math.nan})


def test_every_other_parameter_is_checked():
    rest = {
        exponential_decay: ["decay_rate"],
        polynomial_decay: ["end_learning_rate", "power"],
        cosine_decay: ["alpha"],
        cosine_decay_restarts: ["t_mul", "m_mul", "alpha"],
        linear_cosine_decay: ["num_periods", "alpha", "beta"],
        noisy_linear_cosine_decay: ["initial_variance", "variance_decay", "num_periods"],
    }
    for schedule, arguments in rest.items():
        for argument in arguments:
            for bad, error in (("1", TypeError), (math.nan, ValueError)):
                kwargs = with_period(schedule, 10) | {argument: bad}
                with Graph().as_default(), pytest.raises(error, match=f"{argument}: expected a"):
                    schedule(0.5, 3, **kwargs)


@pytest.mark.parametrize("t_mul", [0.0, -1.0])
def test_t_mul_must_be_positive(t_mul):
    with Graph().as_default(), pytest.raises(ValueError, match="t_mul: expected a number above 0"):
        cosine_decay_restarts(0.5, 3, 10, t_mul=t_mul)


def test_boolean_and_complex_tensors_are_refused():
    with Graph().as_default():
        with pytest.raises(TypeError, match="global_step: expected a real dtype"):
            cosine_decay(0.5, constant(True), 10)
        with pytest.raises(TypeError, match="learning_rate: expected a real dtype"):
            cosine_decay(constant(1j), 3, 10)


# -- the graph -----------------------------------------------------------------------------------

NAMES = {
    exponential_decay: "ExponentialDecay",
    natural_exp_decay: "ExponentialDecay",
    inverse_time_decay: "InverseTimeDecay",
    polynomial_decay: "PolynomialDecay",
    cosine_decay: "CosineDecay",
    cosine_decay_restarts: "SGDRDecay",
    sgdr_decay: "SGDRDecay",
    linear_cosine_decay: "LinearCosineDecay",
    noisy_linear_cosine_decay: "NoisyLinearCosineDecay",
}


@every_schedule
def test_the_result_is_named_like_the_schedule(schedule):
    with Graph().as_default() as graph:
        kwargs = with_period(schedule, 10)
        name = NAMES[schedule]
        assert schedule(0.5, 3, **kwargs).op.name == name
        assert schedule(0.5, 3, **kwargs).op.name == f"{name}_1"
        assert schedule(0.5, 3, **kwargs, name="mine").op.name == "mine"
        with graph.name_scope("outer"):
            assert schedule(0.5, 3, **kwargs).op.name == f"outer/{name}"


def test_piecewise_constant_is_named_like_the_schedule():
    with Graph().as_default():
        assert piecewise_constant(3, [2], [1.0, 0.5]).op.name == "PiecewiseConstant"
        assert piecewise_constant(3, [2], [1.0, 0.5], name="mine").op.name == "mine"


@every_schedule
def test_the_rate_can_be_differentiated(schedule):
    with Graph().as_default(), Session() as session:
        rate = constant(2.0, float64)
        result = schedule(rate, 3, **with_period(schedule, 10))
        value, slope = session.run([result, gradients(result, rate)[0]])
        end = 0.0001 if schedule is polynomial_decay else 0.0
        share = (value - end) / (2.0 - end)
    np.testing.assert_allclose(slope, share, rtol=1e-9)


def test_piecewise_values_can_be_differentiated():
    with Graph().as_default(), Session() as session:
        values = [constant(2.0), constant(3.0)]
        found = gradients(piecewise_constant(3, [2], values), values)
        assert session.run(found) == [0.0, 1.0]


def test_the_step_is_read_each_time():
    with Graph().as_default(), Session() as session:
        step = Variable(np.int64(0), trainable=False)
        rate = exponential_decay(8.0, step, 1, 0.5)
        session.run(global_variables_initializer())
        found = []
        for _ in range(3):
            found.append(session.run(rate))
            session.run(step.assign_add(1))
    assert found == [8.0, 4.0, 2.0]


# -- eager mode ----------------------------------------------------------------------------------


@every_curve
def test_in_eager_mode_a_schedule_is_a_function(schedule, period, rest):
    expected = rates(lambda s: schedule(0.5, s, **{period: 10}, **rest), [0, 4, 8])
    with eager():
        step = Variable(np.int64(0), trainable=False)
        rate = schedule(0.5, step, **{period: 10}, **rest)
        found = []
        for _ in range(3):
            found.append(rate().numpy())
            step.assign_add(4)
    assert found == expected


def test_in_eager_mode_piecewise_constant_is_a_function():
    with eager():
        step = Variable(np.int64(0), trainable=False)
        rate = piecewise_constant(step, [0], [1.0, 0.5])
        assert rate().numpy() == 1.0
        step.assign_add(1)
        assert rate().numpy() == 0.5


def test_in_eager_mode_arguments_are_checked_at_once():
    with eager():
        with pytest.raises(ValueError, match="decay_steps: expected a number above 0"):
            cosine_decay(0.5, 0, 0)
        with pytest.raises(ValueError, match="boundaries: expected strictly increasing"):
            piecewise_constant(0, [2, 1], [1.0, 0.5, 0.1])


def test_in_eager_mode_an_optimizer_follows_the_schedule():
    with eager():
        step = Variable(np.int64(0), trainable=False)
        w = Variable(np.float64(1.0))
        optimizer = GradientDescentOptimizer(exponential_decay(np.float64(0.5), step, 1, 0.5))
        found = []
        for _ in range(3):
            optimizer.apply_gradients([(1.0, w)], step)
            found.append(float(w.read_value().numpy()))
    assert found == [0.5, 0.25, 0.125]


# -- P040: a schedule whose step stands still ----------------------------------------------------


def training(counted, step_of=lambda step: step, schedule=exponential_decay):
    """A session, a train op with a schedule, and the rate."""
    step = Variable(np.int64(0), trainable=False, name="global_step")
    w = Variable([1.0, 2.0])
    rate = schedule(0.1, step_of(step), **with_period(schedule, 10))
    train = GradientDescentOptimizer(rate).minimize(w * w, step if counted else None)
    session = Session()
    session.run(global_variables_initializer())
    return session, train, rate


@every_schedule
def test_p040_a_rate_that_never_moves_is_told_once(schedule):
    with Graph().as_default():
        session, train, rate = training(counted=False, schedule=schedule)
        with pytest.warns(RuntimeWarning, match="depends on 'global_step'") as caught:
            session.run(train)
        assert len(caught) == 1
        for _ in range(4):
            session.run([train, rate])


def test_p040_piecewise_constant_is_watched_too():
    with Graph().as_default() as graph:
        step = Variable(np.int64(0), trainable=False, name="global_step")
        rate = piecewise_constant(step, [2], [1.0, 0.5])
        assert graph.schedules == {rate.op: step.op}


def test_p040_no_warning_when_the_step_is_counted_or_during_evaluation():
    with warnings.catch_warnings(), Graph().as_default():
        warnings.simplefilter("error")
        session, train, _ = training(counted=True)
        session.run(train)
    with warnings.catch_warnings(), Graph().as_default():
        warnings.simplefilter("error")
        session, _, rate = training(counted=False)
        session.run(rate)


@pytest.mark.parametrize(
    "step_of", [lambda step: step.value(), lambda step: step.op.outputs[0]], ids=["value", "op"]
)
def test_p040_the_read_of_a_step_counts_as_the_step(step_of):
    with Graph().as_default():
        session, train, _ = training(counted=False, step_of=step_of)
        with pytest.warns(RuntimeWarning, match="depends on 'global_step'"):
            session.run(train)


def test_p040_a_step_that_is_no_variable_cannot_stand_still():
    with Graph().as_default() as graph:
        exponential_decay(0.1, placeholder(int64, ()), 10, 0.5)
        exponential_decay(0.1, cast(constant(3), float32), 10, 0.5)
        assert get_default_graph() is graph
        assert graph.schedules == {}


def test_p040_a_read_under_control_dependencies_counts_as_the_step():
    with Graph().as_default() as graph:
        step = Variable(np.int64(0), trainable=False)
        with graph.control_dependencies([constant(1).op]):
            rate = exponential_decay(0.1, step, 10, 0.5)
        assert graph.schedules == {rate.op: step.op}
