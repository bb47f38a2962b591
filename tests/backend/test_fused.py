"""Fused update kernels: bit for bit what the equation gives when it is called with arrays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optkit import train
from optkit.backend.fused import FusedUpdate, UntraceableError, threads
from optkit.backend.fused import update as fused_update
from optkit.train.optimizer import Optimizer

VALUES = {
    "learning_rate": 0.01,
    "momentum": 0.9,
    "l1": 0.001,
    "l2": 0.01,
    "step": 3,
    "beta1": 0.9,
    "beta2": 0.999,
    "epsilon": 1e-8,
    "beta1_power": 0.9,
    "beta2_power": 0.999,
    "rho": 0.95,
    "decay": 0.9,
    "power": -0.5,
    "shrinkage": 0.1,
    "beta": 0.1,
}
OPTIMIZERS = {
    "sgd": lambda: train.GradientDescentOptimizer(0.1),
    "momentum": lambda: train.MomentumOptimizer(0.1, 0.9),
    "nesterov": lambda: train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adagrad": lambda: train.AdagradOptimizer(0.1),
    "adagrad_da": lambda: train.AdagradDAOptimizer(0.1, train.get_or_create_global_step()),
    "adam": lambda: train.AdamOptimizer(0.1),
    "adadelta": lambda: train.AdadeltaOptimizer(1.0),
    "rmsprop": lambda: train.RMSPropOptimizer(0.1),
    "centered": lambda: train.RMSPropOptimizer(0.1, centered=True),
    "ftrl": lambda: train.FtrlOptimizer(0.1),
    "proximal_adagrad": lambda: train.ProximalAdagradOptimizer(0.1),
    "proximal_sgd": lambda: train.ProximalGradientDescentOptimizer(0.1),
}
EXTRA = {"adagrad_da": ("step",), "adam": ("beta1_power", "beta2_power")}


def fused_and_called(name, dtype, size):
    """What the kernel leaves in the arrays, and what the equation gives when it is called."""
    optimizer: Optimizer = OPTIMIZERS[name]()
    hyper = (*optimizer._hyper, *EXTRA.get(name, ()))
    wide = np.float32 if dtype is np.float16 else dtype
    rng = np.random.default_rng(size)
    w, g = rng.standard_normal((2, size)).astype(dtype)
    slots = [1 + rng.random(size).astype(dtype) for _ in optimizer.slots]
    scalars = [wide(VALUES[key]) for key in hyper]
    expected = optimizer.update(
        np,
        *(array.astype(wide) for array in (w, g, *slots)),
        **dict(zip(hyper, scalars, strict=True)),
    )
    expected = expected if isinstance(expected, tuple) else (expected,)
    FusedUpdate(optimizer.update, len(slots), hyper)([w, *slots], g, scalars)
    return zip((w, *slots), (wanted.astype(dtype) for wanted in expected), strict=True)


@pytest.mark.parametrize("size", [1, 1000, 3 * fused_update.TILE + 17])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_tiles_give_the_equations_bits(monkeypatch, name, dtype, size):
    monkeypatch.setattr(fused_update.compiled, "available", lambda: False)
    for got, wanted in fused_and_called(name, dtype, size):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_compiled_loops_give_the_equations_bits(name, dtype):
    """But for powers, which the C library and NumPy round differently."""
    pytest.importorskip("numba")
    for got, wanted in fused_and_called(name, dtype, fused_update._COMPILED + 17):
        if name == "ftrl":
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
        else:
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    "equation",
    [
        pytest.param(lambda xp, w, g: w - g if w > 0 else w, id="a Python condition"),
        pytest.param(lambda xp, w, g: w - g.sum(), id="an attribute"),
        pytest.param(lambda xp, w, g: w - xp.median(g), id="an unknown function"),
        pytest.param(lambda xp, w, g: w - np.float64(2) * g, id="a NumPy scalar"),
        pytest.param(lambda xp, w, g: 1.0, id="a number as result"),
        pytest.param(lambda xp, w, g: w > g, id="a truth value as result"),
        pytest.param(lambda xp, w, g: (w, g), id="too many results"),
        pytest.param(lambda xp, w, g: w - xp.sqrt(2.0) * g, id="a float64 of numbers"),
        pytest.param(lambda xp, w, g: w - 0.1 * (g > 0), id="a float64 of truth values"),
        pytest.param(lambda xp, w, g: w * ((g > 0) + (w > 0)), id="a sum of truth values"),
        pytest.param(lambda xp, w, g: w - xp.where(g > 0, 0.1, 0.2), id="a choice of numbers"),
        pytest.param(lambda xp, w, g: w - xp.where(g, w, g), id="a number as condition"),
        pytest.param(lambda xp, w, g: w - xp.clip(w, -g, g), id="limits that are arrays"),
    ],
)
def test_what_cannot_be_followed_is_refused(equation):
    with pytest.raises(UntraceableError):
        FusedUpdate(equation, 0, ())


def test_a_swap_of_arrays_is_refused_since_it_is_done_in_place():
    with pytest.raises(UntraceableError, match="old value of another array"):
        FusedUpdate(lambda xp, w, g, m: (m, w), 1, ())


def test_where_keeps_its_sides_apart_in_every_place():
    def equation(xp, w, g, m):
        return xp.where(g > 0, w, w - m), xp.where(xp.abs(g) < 0.5, m + g, m)

    rng = np.random.default_rng(0)
    w, g, m = rng.standard_normal((3, 50_000))
    expected = equation(np, w, g, m)
    FusedUpdate(equation, 1, ())([w, m], g, ())
    np.testing.assert_array_equal([w, m], expected)


def test_an_equation_that_changes_nothing():
    w, m = np.ones((2, 3))
    FusedUpdate(lambda xp, w, g, m: (w, m), 1, ())([w, m], np.ones(3), ())
    np.testing.assert_array_equal([w, m], np.ones((2, 3)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_clip_keeps_the_sign_of_zero_and_lets_nan_through(dtype):
    w = np.array([-0.0, 0.0, -3.0, 3.0, np.nan, 0.5] * 5, dtype)
    wide = np.float32 if dtype is np.float16 else dtype
    for low, high in ((0.0, 1.0), (-0.0, 1.0), (-1.0, 0.0), (np.nan, 1.0), (0.0, np.nan)):
        limits = wide(low), wide(high)
        expected = np.clip(w.astype(wide), *limits).astype(dtype)
        got = w.copy()
        FusedUpdate(lambda xp, w, g, low, high: xp.clip(w, low, high), 0, ("low", "high"))(
            [got], w, limits
        )
        assert got.tobytes() == expected.tobytes()


# -- random equations -----------------------------------------------------------------------------

LEAVES = st.sampled_from(["w", "g", "m", "w", "g", "m", "rate", 0.5, 2])
ONE = ["abs", "exp", "log1p", "negative", "sign", "sqrt", "square", "tanh", "floor", "reciprocal"]
TWO = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "copysign", "power"]
TRUTHS = ["greater", "less", "equal", "not_equal", "greater_equal", "less_equal"]


def calls(names, *arguments):
    return st.tuples(st.sampled_from(names), *arguments)


def truths(x):
    compared = calls(TRUTHS, x, x) | calls(["isfinite", "isnan"], x)
    return compared | calls(["logical_and", "logical_or"], compared, compared)


EXPRESSIONS = st.recursive(
    LEAVES,
    lambda x: (
        calls(ONE, x)
        | calls(TWO, x, x)
        | calls(["where"], truths(x), x, x)
        | calls(["multiply"], x, truths(x))
        | calls(["clip"], x, st.sampled_from([-1.0, 0.0]), st.sampled_from([0.5, 2.0]))
    ),
    max_leaves=12,
)


def evaluated(expression, xp, leaves):
    if isinstance(expression, tuple):
        function, *arguments = expression
        return getattr(xp, function)(*(evaluated(item, xp, leaves) for item in arguments))
    return leaves.get(expression, expression) if isinstance(expression, str) else expression


@given(
    st.tuples(EXPRESSIONS, EXPRESSIONS, EXPRESSIONS),
    st.sampled_from([np.float16, np.float32, np.float64]),
    st.integers(0, 100),
)
def test_any_equation_that_can_be_followed_gives_numpys_bits(expressions, dtype, seed):
    shared, *outputs = expressions

    def equation(xp, w, g, m, rate):
        leaves = {"w": w, "g": g, "m": m, "rate": rate}
        leaves["g"] = g * evaluated(shared, xp, leaves)
        first, second = (evaluated(output, xp, leaves) for output in outputs)
        return w - first, m + second

    try:
        fused = FusedUpdate(equation, 1, ("rate",))
    except UntraceableError:  # then it is called as it is
        return
    wide = np.float32 if dtype is np.float16 else dtype
    rng = np.random.default_rng(seed)
    w, g, m = rng.choice([0.0, -0.0, np.nan, np.inf, 1.0, -0.7, 2.5, 1e-4], (3, 30)).astype(dtype)
    with np.errstate(all="ignore"):
        expected = equation(np, *(x.astype(wide) for x in (w, g, m)), rate=np.asarray(wide(0.1)))
        expected = [np.asarray(x).astype(dtype) for x in expected]
        fused([w, m], g, [wide(0.1)])
    for got, wanted in zip((w, m), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
        numbers = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(wanted)[numbers])


# -- before anything is written -------------------------------------------------------------------


def momentum(xp, w, g, m, *, rate):
    m = m + g
    return w - rate * m * xp.where(m > 0, m, 1.0), m


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_memory_for_all_threads_is_taken_beforehand(monkeypatch, dtype):
    """Also where the first call for an array comes from another thread."""
    monkeypatch.setattr(fused_update.compiled, "available", lambda: False)
    monkeypatch.setattr(threads, "workers", lambda: 3)
    kernel = FusedUpdate(momentum, 1, ["rate"])
    size = 5 * fused_update.TILE
    w, g, m = (np.ones(size, dtype) for _ in range(3))
    kernel.prepare(w.dtype, size)

    def refused(*_):
        raise MemoryError

    monkeypatch.setattr(np, "empty", refused)
    monkeypatch.setattr(np, "zeros", refused)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(kernel, [w, m], g, [w.dtype.type(0.5)]).result()
        pool.submit(kernel, [w, m], None, [w.dtype.type(0.5)]).result()
    assert (m == 2).all()
    assert (w == -3).all()


def test_one_loop_is_compiled_for_gradients_of_all_owners():
    """A second compilation would take a second, while variables are being written."""
    pytest.importorskip("numba")
    kernel = FusedUpdate(momentum, 1, ["rate"])
    size = fused_update._COMPILED
    w, g, m = (np.ones(size, np.float32) for _ in range(3))
    kernel.prepare(w.dtype, size)
    loop = fused_update.compiled.compiled(kernel._loop, "float32")
    assert len(loop.signatures) == 1
    fed = g.view()
    fed.flags.writeable = False
    for gradient in (g, fed, None):
        kernel([w, m], gradient, [np.float32(0.5)])
    assert (m == 3).all()
    assert len(loop.signatures) == 1
