"""Optimizer updates: one large variable, many small ones, rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

import optkit as tf
from optkit.backend.fused import compiled
from optkit.train import AdamOptimizer, Optimizer, ProximalAdagradOptimizer
from tests.benchmarks.harness import Case, torch_or_none, without_jit

F = np.float32


def _values(count: int, size: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    shape = () if size == 1 else (size,)
    return [rng.standard_normal(shape).astype(F) for _ in range(count)]


def _train_step(optimizer: Optimizer, count: int, size: int, fed: bool = False) -> Callable:
    """A step of apply_gradients with constant or fed gradients."""
    graph = tf.Graph()
    with graph.as_default():
        variables = [tf.Variable(value) for value in _values(count, size, 0)]
        values = _values(count, size, 1)
        if fed:
            gradients = [tf.placeholder(tf.float32, value.shape) for value in values]
        else:
            gradients = [tf.constant(value) for value in values]
        train = optimizer.apply_gradients(list(zip(gradients, variables, strict=True)))
        session = tf.Session()
        session.run(tf.global_variables_initializer())
    feeds = dict(zip(gradients, values, strict=True)) if fed else {}
    return lambda: session.run(train, feeds)


def _plain(
    optimizer: Optimizer, size: int, slots: list[float], hyper: dict[str, float]
) -> Callable:
    """The equation called with whole NumPy arrays, as one writes it by hand."""
    w, g = _values(2, size, 0)
    state = [np.full(size, value, F) for value in slots]
    scalars = {name: F(value) for name, value in hyper.items()}

    def step() -> None:
        nonlocal w, state
        w, *state = optimizer.update(np, w, g, *state, **scalars)

    return step


def _torch_adam(count: int, size: int, **mode: bool) -> dict[str, Callable]:
    torch = torch_or_none()
    if torch is None:
        return {}
    parameters = [
        torch.nn.Parameter(torch.from_numpy(np.array(v))) for v in _values(count, size, 0)
    ]
    for parameter, value in zip(parameters, _values(count, size, 1), strict=True):
        parameter.grad = torch.from_numpy(np.array(value))
    optimizer = torch.optim.Adam(parameters, lr=0.01, **mode)
    return {f"torch {next(iter(mode))}": optimizer.step}


def _loop(arrays: int, size: int) -> dict[str, Callable]:
    """A compiled loop x += c·y over as many bytes: what memory allows."""
    if not compiled.available():
        return {}
    import numba

    from optkit.backend.fused.threads import in_chunks

    @numba.njit(nogil=True)
    def axpy(x, y, c):  # type: ignore[no-untyped-def]
        for i in range(x.size):
            x[i] += c * y[i]

    length = size * arrays // 3
    x, y = np.zeros(length, F), np.zeros(length, F)
    return {
        "loop over as many bytes": lambda: in_chunks(
            lambda _, start, stop: axpy(x[start:stop], y[start:stop], F(0.1)), length, 1 << 15
        )
    }


ADAM = {
    "learning_rate": 0.01,
    "beta1": 0.9,
    "beta2": 0.999,
    "epsilon": 1e-8,
    "beta1_power": 0.9,
    "beta2_power": 0.999,
}
PROXIMAL = {"learning_rate": 0.01, "l1": 0.001, "l2": 0.001}


def _proximal() -> Optimizer:
    return ProximalAdagradOptimizer(
        0.01, l1_regularization_strength=0.001, l2_regularization_strength=0.001
    )


def cases(scale: float = 1.0) -> Iterator[Case]:
    """All cases, for variables `scale` times as large as the real ones."""
    large = max(1000, int(10_000_000 * scale))
    if compiled.available():
        yield Case(
            "Adam, one variable of 10M, jit",
            _train_step(AdamOptimizer(0.01), 1, large),
            {**_torch_adam(1, large, fused=True), **_loop(7, large)},
            5,
            {"torch fused": 1.05, "loop over as many bytes": 1.25},
        )
        yield Case(
            "ProximalAdagrad, one variable of 10M, jit",
            _train_step(_proximal(), 1, large),
            {"numpy": _plain(_proximal(), large, [0.1], PROXIMAL), **_loop(5, large)},
            5,
            {"numpy": 0.08, "loop over as many bytes": 1.25},
        )
    with without_jit():
        yield Case(
            "Adam, one variable of 10M",
            _train_step(AdamOptimizer(0.01), 1, large),
            {
                "numpy": _plain(AdamOptimizer(0.01), large, [0, 0], ADAM),
                **_torch_adam(1, large, foreach=True),
            },
            5,
            {"numpy": 0.35, "torch foreach": 0.8},
        )
        yield Case(
            "ProximalAdagrad, one variable of 10M",
            _train_step(_proximal(), 1, large),
            {"numpy": _plain(_proximal(), large, [0.1], PROXIMAL)},
            5,
            {"numpy": 0.35},
        )
    many = max(10, int(1000 * min(1.0, scale * 10)))
    yield Case(
        "Adam, 1000 variables of 1000, constant gradients",
        _train_step(AdamOptimizer(0.01), many, 1000),
        _torch_adam(many, 1000, fused=True),
        aims={"torch fused": 0.12 if compiled.available() else 0.3},
    )
    yield Case(
        "Adam, 1000 variables of 1000, gradients fed",
        _train_step(AdamOptimizer(0.01), many, 1000, fed=True),
        _torch_adam(many, 1000, fused=True),
        aims={"torch fused": 0.5},
    )
    yield Case(
        "Adam, 200 variables of 64",
        _train_step(AdamOptimizer(0.01), 200, 64),
        _torch_adam(200, 64, fused=True),
        aims={"torch fused": 0.1},
    )
    for count in (10, 100, 1000, 10_000):
        if count <= 10_000 * scale or count == 10:
            yield Case(f"Adam, {count} scalars", _train_step(AdamOptimizer(0.01), count, 1), {})


def row_cases(scale: float = 1.0) -> Iterator[Case]:
    """Four rows of a table of a million."""
    rows = max(100, int(1_000_000 * scale))
    makers = {
        "SGD": lambda: tf.train.GradientDescentOptimizer(0.1),
        "Adagrad": lambda: tf.train.AdagradOptimizer(0.1),
        "Momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9),
        "Ftrl": lambda: tf.train.FtrlOptimizer(0.1),
        "ProximalAdagrad": _proximal,
    }
    for name, make in makers.items():
        with tf.Graph().as_default():
            table = tf.Variable(np.zeros((rows, 16), F))
            wanted = tf.placeholder(tf.int32, [4])
            loss = tf.reduce_sum(tf.square(tf.gather(table, wanted)))
            train = make().minimize(loss)
            session = tf.Session()
            session.run(tf.global_variables_initializer())
        feed = {wanted: np.array([1, 5, 5, 9], np.int32)}
        yield Case(
            f"{name}, 4 rows of 1M × 16",
            lambda session=session, train=train, feed=feed: session.run(train, feed),
            {},
            100,
        )
