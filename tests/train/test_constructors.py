"""The constructors of the optimizers: arguments, names, ranges."""

import inspect

import numpy as np
import pytest

import optkit as tf
from tests.train.rules import new_step

T = tf.train


@pytest.mark.parametrize("name", ["", None, 3])
def test_an_optimizer_needs_a_name(name):
    with pytest.raises(ValueError, match="name: expected a name"):
        T.Optimizer(False, name)


def test_get_name_is_that_of_the_constructor():
    assert T.ProximalAdagradOptimizer(0.1).get_name() == "ProximalAdagrad"
    assert T.ProximalAdagradOptimizer(0.1).get_name() == "ProximalAdagrad"
    assert T.AdamOptimizer(name="Mine").get_name() == "Mine"


SIGNATURES = {
    T.GradientDescentOptimizer: "learning_rate, use_locking=False, name='GradientDescent'",
    T.MomentumOptimizer: (
        "learning_rate, momentum, use_locking=False, name='Momentum', use_nesterov=False"
    ),
    T.AdagradOptimizer: (
        "learning_rate, initial_accumulator_value=0.1, use_locking=False, name='Adagrad'"
    ),
    T.AdagradDAOptimizer: (
        "learning_rate, global_step, initial_gradient_squared_accumulator_value=0.1, "
        "l1_regularization_strength=0.0, l2_regularization_strength=0.0, use_locking=False, "
        "name='AdagradDA'"
    ),
    T.AdamOptimizer: (
        "learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-08, use_locking=False, name='Adam'"
    ),
    T.AdadeltaOptimizer: (
        "learning_rate=0.001, rho=0.95, epsilon=1e-08, use_locking=False, name='Adadelta'"
    ),
    T.RMSPropOptimizer: (
        "learning_rate, decay=0.9, momentum=0.0, epsilon=1e-10, use_locking=False, "
        "centered=False, name='RMSProp'"
    ),
    T.FtrlOptimizer: (
        "learning_rate, learning_rate_power=-0.5, initial_accumulator_value=0.1, "
        "l1_regularization_strength=0.0, l2_regularization_strength=0.0, use_locking=False, "
        "name='Ftrl', accum_name=None, linear_name=None, "
        "l2_shrinkage_regularization_strength=0.0, beta=None"
    ),
    T.ProximalAdagradOptimizer: (
        "learning_rate, initial_accumulator_value=0.1, l1_regularization_strength=0.0, "
        "l2_regularization_strength=0.0, use_locking=False, name='ProximalAdagrad'"
    ),
    T.ProximalGradientDescentOptimizer: (
        "learning_rate, l1_regularization_strength=0.0, l2_regularization_strength=0.0, "
        "use_locking=False, name='ProximalGradientDescent'"
    ),
}


@pytest.mark.parametrize(("cls", "expected"), SIGNATURES.items())
def test_constructors_have_tensorflows_arguments(cls, expected):
    parameters = inspect.signature(cls).parameters.values()
    assert ", ".join(str(p.replace(annotation=p.empty)) for p in parameters) == expected


# Constructor, argument, values that are refused, values that are accepted.
RATE = [float("nan")]
HUGE = 10**400
"""A number that fits no float."""
NEGATIVE = [-0.1, float("nan")]
RANGES = [
    (T.GradientDescentOptimizer, {}, "learning_rate", RATE, [-0.1, 0, 1, np.float64(2)]),
    (T.MomentumOptimizer, {"momentum": 0.9}, "learning_rate", RATE, [-0.1]),
    (T.MomentumOptimizer, {"learning_rate": 0.1}, "momentum", NEGATIVE, [0, 1.5]),
    (T.AdagradOptimizer, {}, "learning_rate", RATE, [-0.1]),
    (T.AdagradOptimizer, {"learning_rate": 1}, "initial_accumulator_value", [0.0, -1], [1e-9]),
    (T.AdagradDAOptimizer, {"step": 0}, "learning_rate", NEGATIVE, [0.1]),
    (
        T.AdagradDAOptimizer,
        {"learning_rate": 1, "step": 0},
        "initial_gradient_squared_accumulator_value",
        [0.0],
        [1],
    ),
    (
        T.AdagradDAOptimizer,
        {"learning_rate": 1, "step": 0},
        "l1_regularization_strength",
        NEGATIVE,
        [0],
    ),
    (
        T.AdagradDAOptimizer,
        {"learning_rate": 1, "step": 0},
        "l2_regularization_strength",
        NEGATIVE,
        [0],
    ),
    (T.AdamOptimizer, {}, "learning_rate", RATE, [-0.1]),
    (T.AdamOptimizer, {}, "beta1", [*NEGATIVE, 1.0], [0.0, 0.999]),
    (T.AdamOptimizer, {}, "beta2", [*NEGATIVE, 1.0], [0.0, 0.999]),
    (T.AdamOptimizer, {}, "epsilon", NEGATIVE, [0.0]),
    (T.AdadeltaOptimizer, {}, "learning_rate", RATE, [-0.1]),
    (T.AdadeltaOptimizer, {}, "rho", [*NEGATIVE, 1.1], [0.0, 1.0]),
    (T.AdadeltaOptimizer, {}, "epsilon", NEGATIVE, [0.0]),
    (T.RMSPropOptimizer, {}, "learning_rate", RATE, [-0.1]),
    (T.RMSPropOptimizer, {"learning_rate": 1}, "decay", [*NEGATIVE, 1.1], [0.0, 1.0]),
    (T.RMSPropOptimizer, {"learning_rate": 1}, "momentum", NEGATIVE, [0.0]),
    (T.RMSPropOptimizer, {"learning_rate": 1}, "epsilon", NEGATIVE, [0.0]),
    (T.FtrlOptimizer, {}, "learning_rate", NEGATIVE, [0.1]),
    (T.FtrlOptimizer, {"learning_rate": 1}, "learning_rate_power", [0.5, float("nan")], [0.0]),
    (T.FtrlOptimizer, {"learning_rate": 1}, "initial_accumulator_value", NEGATIVE, [0.0]),
    (T.FtrlOptimizer, {"learning_rate": 1}, "l1_regularization_strength", NEGATIVE, [0.0]),
    (T.FtrlOptimizer, {"learning_rate": 1}, "l2_regularization_strength", NEGATIVE, [0.0]),
    (T.FtrlOptimizer, {"learning_rate": 1}, "l2_shrinkage_regularization_strength", NEGATIVE, [0]),
    (T.FtrlOptimizer, {"learning_rate": 1}, "beta", NEGATIVE, [0.0, None]),
    (T.ProximalAdagradOptimizer, {}, "learning_rate", NEGATIVE, [0.1]),
    (T.ProximalAdagradOptimizer, {"learning_rate": 1}, "initial_accumulator_value", [0.0], [1]),
    (T.ProximalAdagradOptimizer, {"learning_rate": 1}, "l1_regularization_strength", NEGATIVE, [0]),
    (T.ProximalAdagradOptimizer, {"learning_rate": 1}, "l2_regularization_strength", NEGATIVE, [0]),
    (T.ProximalGradientDescentOptimizer, {}, "learning_rate", NEGATIVE, [0.1]),
    (
        T.ProximalGradientDescentOptimizer,
        {"learning_rate": 1},
        "l1_regularization_strength",
        NEGATIVE,
        [0],
    ),
    (
        T.ProximalGradientDescentOptimizer,
        {"learning_rate": 1},
        "l2_regularization_strength",
        NEGATIVE,
        [0],
    ),
]


@pytest.mark.parametrize(
    ("cls", "kwargs", "argument", "bad", "good"),
    RANGES,
    ids=[f"{r[0].__name__}-{r[2]}" for r in RANGES],
)
def test_ranges_are_checked_at_construction(cls, kwargs, argument, bad, good):
    def make(value):
        given = {k: v for k, v in kwargs.items() if k != "step"} | {argument: value}
        return cls(**given, **({"global_step": new_step()} if "step" in kwargs else {}))

    owner = cls.__name__.removesuffix("Optimizer")
    for value in bad:
        with pytest.raises(ValueError, match=rf"{owner}: {argument}: expected .*, got {value!r}"):
            make(value)
    for value in ["0.1", True, [0.1], 1j, HUGE]:
        with pytest.raises(TypeError, match=rf"{owner}: {argument}: expected a number"):
            make(value)
    for value in good:
        make(value)


def test_ranges_of_tensors_variables_and_callables_are_not_checked():
    for value in (tf.constant(-1.0), tf.Variable(-1.0), lambda: -1.0):
        T.AdamOptimizer(beta1=value)
        T.FtrlOptimizer(value)


@pytest.mark.parametrize("step", [None, 3, tf.constant])
def test_adagrad_da_needs_an_integer_step(step):
    step = tf.constant(1.0) if step is tf.constant else step
    with pytest.raises(TypeError, match="global_step: expected an integer Variable"):
        T.AdagradDAOptimizer(0.1, step)


@pytest.mark.parametrize("name", [n for n in T.__all__ if n.endswith("Optimizer")])
def test_help_explains_every_argument(name):
    optimizer = getattr(T, name)
    parameters = [
        p.name for p in inspect.signature(optimizer).parameters.values() if p.kind != p.VAR_KEYWORD
    ]
    text = inspect.getdoc(optimizer)
    assert [p for p in parameters if f"    {p}: " not in text] == []
