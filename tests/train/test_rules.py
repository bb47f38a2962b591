"""The update rules by hand: each term of each rule has a row that fails without it.

TensorFlow's numbers are in test_optimizers_golden.py; these rows are exact and small enough to
follow, and reach what no recorded number reaches.
"""

import inspect

import numpy as np
import pytest

import optkit as tf
from optkit.train.wrapper import OptimizerWrapper
from tests.train.rules import new_step, rows, started

T = tf.train


def momentum(**kwargs):
    return lambda step: T.MomentumOptimizer(0.25, 0.5, **kwargs)


def rms_prop(**kwargs):
    return lambda step: T.RMSPropOptimizer(2.0, 0.5, 0.5, **kwargs)


def adagrad_da(l1):
    return lambda step: T.AdagradDAOptimizer(
        0.5, step, l1_regularization_strength=l1, l2_regularization_strength=1.0
    )


def ftrl(rate, **kwargs):
    return lambda step: T.FtrlOptimizer(rate, **kwargs)


def proximal_adagrad(l1):
    return lambda step: T.ProximalAdagradOptimizer(
        1.5, l1_regularization_strength=l1, l2_regularization_strength=2.0
    )


def proximal_descent(l1):
    return lambda step: T.ProximalGradientDescentOptimizer(
        0.5, l1_regularization_strength=l1, l2_regularization_strength=2.0
    )


FTRL = {
    "l1_regularization_strength": 2.0,
    "l2_regularization_strength": 2.0,
    "l2_shrinkage_regularization_strength": 0.25,
    "beta": 1.0,
}

# Optimizer, w, g, slots before; w and slots after.
ROWS = {
    # 1 − ¼·2
    "descent": (lambda step: T.GradientDescentOptimizer(0.25), 1, 2, {}, 0.5, {}),
    # a = ½·2 + 3 = 4;  1 − ¼·4
    "momentum": (momentum(), 1, 3, {"momentum": 2}, 0, {"momentum": 4}),
    # a = 4 as above;  1 − ¼·3 − ¼·½·4
    "nesterov": (momentum(use_nesterov=True), 1, 3, {"momentum": 2}, -0.25, {"momentum": 4}),
    # a = 5 + 2² = 9;  1 − ¾·2/3
    "adagrad": (
        lambda step: T.AdagradOptimizer(0.75),
        *(1, 2, {"accumulator": 5}),
        *(0.5, {"accumulator": 9}),
    ),
    # G = 1 + 2 = 3, A = 5 + 2² = 9, T = 1 + 1 = 2;
    # −½ · (3 − ½·2)/(1·2·½ + 3) = −½ · 2/4; the old 7 has no influence.
    "adagrad_da": (
        adagrad_da(0.5),
        *(7, 2, {"gradient_accumulator": 1, "gradient_squared_accumulator": 5}),
        *(-0.25, {"gradient_accumulator": 3, "gradient_squared_accumulator": 9}),
    ),
    # the same with the other sign
    "adagrad_da, negative": (
        adagrad_da(0.5),
        *(7, -2, {"gradient_accumulator": -1, "gradient_squared_accumulator": 5}),
        *(0.25, {"gradient_accumulator": -3, "gradient_squared_accumulator": 9}),
    ),
    # 3 − 2·2 < 0: nothing is left
    "adagrad_da, shrunk to zero": (
        adagrad_da(2.0),
        *(7, 2, {"gradient_accumulator": 1, "gradient_squared_accumulator": 5}),
        *(0, {"gradient_accumulator": 3, "gradient_squared_accumulator": 9}),
    ),
    # m = ½·4 + ½·8 = 6, v = ¾·12 + ¼·64 = 25; with both powers ¾ the rate is 1·√¼/¼ = 2;
    # 1 − 2·6/(5 + 3)
    "adam": (
        lambda step: T.AdamOptimizer(1.0, 0.5, 0.75, 3.0),
        *(1, 8, {"m": 4, "v": 12}),
        *(-0.5, {"m": 6, "v": 25}),
    ),
    # a = ½·2 + ½·16 = 9, d = √(2 + 7)/√(9 + 7) · 4 = 3;  1 − ¼·3;  u = ½·2 + ½·9
    "adadelta": (
        lambda step: T.AdadeltaOptimizer(0.25, 0.5, 7.0),
        *(1, 4, {"accum": 2, "accum_update": 2}),
        *(0.25, {"accum": 9, "accum_update": 5.5}),
    ),
    # r = ½·2 + ½·16 = 9, p = ½·2 + 2·4/√(9 + 7) = 3;  1 − 3
    "rms_prop": (
        rms_prop(epsilon=7.0),
        *(1, 4, {"rms": 2, "momentum": 2}),
        *(-2, {"rms": 9, "momentum": 3}),
    ),
    # c = ½·2 + ½·4 = 3, r = ½·20 + ½·16 = 18, p = ½·2 + 2·4/√(18 − 9 + 7) = 3;  1 − 3
    "rms_prop, centered": (
        rms_prop(epsilon=7.0, centered=True),
        *(1, 4, {"rms": 20, "mg": 2, "momentum": 2}),
        *(-2, {"rms": 18, "mg": 3, "momentum": 3}),
    ),
    # c = ½·4 + ½·2 = 3, r = ½·0 + ½·4 = 2: 2 − 9 counts as 0; p = ½·2 + 2·2/√(0 + 4) = 3
    "rms_prop, negative variance": (
        rms_prop(epsilon=4.0, centered=True),
        *(1, 2, {"rms": 0, "mg": 4, "momentum": 2}),
        *(-2, {"rms": 2, "mg": 3, "momentum": 3}),
    ),
    # n = 16 + 3² = 25, z = 10 + 3 + 2·¼·2 − (5 − 4)/½·2 = 10;
    # (2 − 10)/((5 + 1)/½ + 2·2) = −8/16
    "ftrl": (
        ftrl(0.5, **FTRL),
        *(2, 3, {"accum": 16, "linear": 10}),
        *(-0.5, {"accum": 25, "linear": 10}),
    ),
    # the same with the other sign: z = −10 − 3 − 1 + 4
    "ftrl, negative": (
        ftrl(0.5, **FTRL),
        *(-2, -3, {"accum": 16, "linear": -10}),
        *(0.5, {"accum": 25, "linear": -10}),
    ),
    # z = 1 is within ±l1
    "ftrl, zero": (
        ftrl(0.5, **FTRL),
        *(2, 3, {"accum": 16, "linear": 1}),
        *(0, {"accum": 25, "linear": 1}),
    ),
    # power −1: n = 3 + 1², z = 4 + 1 − (4 − 3)/1·1 = 4;  −4/4
    "ftrl, power": (
        ftrl(1.0, learning_rate_power=-1.0),
        *(1, 1, {"accum": 3, "linear": 4}),
        *(-1, {"accum": 4, "linear": 4}),
    ),
    # n = z = 0 and no gradient: z is within ±0, so w is zero, not 0/0
    "ftrl, nothing yet": (
        ftrl(1.0, initial_accumulator_value=0.0),
        *(1, 0, {"accum": 0, "linear": 0}),
        *(0, {"accum": 0, "linear": 0}),
    ),
    # a = 5 + 2² = 9, s = 1.5/3 = ½, v = 4 − ½·2 = 3;  (3 − ½·2)/(1 + ½·2)
    "proximal_adagrad": (
        proximal_adagrad(2.0),
        *(4, 2, {"accumulator": 5}),
        *(1, {"accumulator": 9}),
    ),
    "proximal_adagrad, negative": (
        proximal_adagrad(2.0),
        *(-4, -2, {"accumulator": 5}),
        *(-1, {"accumulator": 9}),
    ),
    # 3 − ½·8 < 0
    "proximal_adagrad, shrunk to zero": (
        proximal_adagrad(8.0),
        *(4, 2, {"accumulator": 5}),
        *(0, {"accumulator": 9}),
    ),
    # v = 4 − ½·2 = 3;  (3 − ½·2)/(1 + ½·2)
    "proximal_descent": (proximal_descent(2.0), 4, 2, {}, 1, {}),
    "proximal_descent, negative": (proximal_descent(2.0), -4, -2, {}, -1, {}),
    # 3 − ½·8 < 0
    "proximal_descent, shrunk to zero": (proximal_descent(8.0), 4, 2, {}, 0, {}),
}

every_row = pytest.mark.parametrize(
    ("make", "w", "g", "before", "w_after", "after"), ROWS.values(), ids=ROWS
)


@every_row
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "rows"])
def test_rule_by_hand(make, w, g, before, w_after, after, dtype, sparse):
    step = new_step(1)
    variable = tf.Variable(np.full(2, w, dtype), name="w")
    optimizer = make(step)
    grad = rows([g, g], [1, 0], dtype) if sparse else np.full(2, g, dtype)
    train_op = optimizer.apply_gradients([(grad, variable)], step)
    session = started()
    for slot, value in before.items():
        optimizer.get_slot(variable, slot).load(np.full(2, value, dtype), session)
    powers = {v: optimizer._hyper[v.op.name[:5]] for v in optimizer.variables() if v.sizes == ()}
    for power in powers:
        power.load(0.75, session)
    session.run(train_op)
    np.testing.assert_array_equal(session.value(variable), np.full(2, w_after, dtype))
    for slot, value in after.items():
        held = session.value(optimizer.get_slot(variable, slot))
        np.testing.assert_array_equal(held, np.full(2, value, dtype), err_msg=slot)
    assert [session.value(power) for power in powers] == [0.75 * beta for beta in powers.values()]


@every_row
def test_an_equation_is_a_plain_function_of_arrays(make, w, g, before, w_after, after):
    step = new_step(1)
    optimizer = make(step)
    slots = [np.array([before[slot]], float) for slot in optimizer.slots]
    known = optimizer._hyper | {"step": 1, "beta1_power": 0.75, "beta2_power": 0.75}
    taken = inspect.signature(optimizer.update).parameters
    hyper = {name: np.array(value, float) for name, value in known.items() if name in taken}
    found = optimizer.update(np, np.array([w], float), np.array([g], float), *slots, **hyper)
    found = found if isinstance(found, tuple) else (found,)
    assert [float(array[0]) for array in found] == [w_after, *(after[s] for s in optimizer.slots)]


def test_every_optimizer_has_a_row():
    made = {type(row[0](new_step())) for row in ROWS.values()}
    public = {
        value
        for value in vars(T).values()
        if isinstance(value, type)
        and issubclass(value, T.Optimizer)
        and not issubclass(value, OptimizerWrapper)
        and value is not T.Optimizer
    }
    assert made == public
