"""Summaries: single values and histograms against tensorboardX, and what they add to a step."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import tempfile
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import optkit as tf
import summaries
from summaries import _loops
from tests.benchmarks.harness import Case, without_jit
from tests.benchmarks.steps import perceptron

F = np.float32
SIZES = [784, 256, 128, 10]
SCALARS = ["loss", "learning_rate", "gradient_norm", "global_gradient_norm"]
NAME = "MLP 784-256-128-10, Adam, clip 1.0"


@contextlib.contextmanager
def without_loops() -> Iterator[None]:
    """Count in NumPy tiles although Numba is installed."""
    available = _loops.available
    _loops.available = lambda: False  # type: ignore[assignment]
    try:
        yield
    finally:
        _loops.available = available


def _folder() -> str:
    folder = tempfile.TemporaryDirectory(prefix="optkit-bench-")
    weakref.finalize(_folder, folder.cleanup)
    return folder.name


def _tensorboardx(**options: Any) -> Any:
    writer = importlib.import_module("tensorboardX").SummaryWriter(_folder(), **options)
    weakref.finalize(_folder, writer.close)
    return writer


def _ours() -> Any:
    writer = summaries.SummaryWriter(_folder())
    weakref.finalize(_folder, writer.close)
    return writer


def _scalars(writer: Any, count: int) -> Callable:
    """A step that adds so many scalars, one call each."""
    tags = [f"OptimizeLoss/gradient_norm/dense_{i}/kernel_0" for i in range(count)]
    steps = itertools.count()

    def add() -> None:
        step = next(steps)
        for tag in tags:
            writer.add_scalar(tag, 0.5, step)

    return add


def _scalars_of_a_step(writer: Any, count: int) -> Callable:
    """The same in one event."""
    tags = [f"OptimizeLoss/gradient_norm/dense_{i}/kernel_0" for i in range(count)]
    steps = itertools.count()

    def add() -> None:
        with writer.step(next(steps)):
            for tag in tags:
                writer.add_scalar(tag, 0.5)

    return add


def _histogram(writer: Any, values: np.ndarray) -> Callable:
    steps = itertools.count()
    return lambda: writer.add_histogram("weights", values, next(steps))


def _train(batch: int, wanted: list[str] | None, every: int) -> Callable:
    """A training step; with summaries, of which one in `every` is fetched and written."""
    with tf.Graph().as_default():
        loss, feed = perceptron(batch, SIZES)
        count = tf.train.create_global_step()
        train = tf.contrib.layers.optimize_loss(
            loss, count, 0.001, "Adam", clip_gradients=1.0, summaries=wanted or []
        )
        merged = tf.summary.merge_all()
        session = tf.Session()
        session.run(tf.global_variables_initializer())
    if merged is None:
        return lambda: [session.run(train, feed) for _ in range(every)]
    writer = tf.summary.FileWriter(_folder())
    weakref.finalize(_folder, writer.close)
    steps = itertools.count(1)

    def step() -> None:
        for turn in range(every):
            if turn:
                session.run(train, feed)
            else:
                _, data = session.run([train, merged], feed)
                writer.add_summary(data, next(steps))

    return step


def cases(scale: float = 1.0) -> Iterator[Case]:
    """All cases; `scale` below 1 makes arrays and batches smaller."""
    calls = max(10, int(1000 * scale))
    yield Case(
        f"add_scalar, {calls} calls",
        _scalars(_ours(), calls),
        {"tensorboardX": _scalars(_tensorboardx(), calls)},
        3,
        {"tensorboardX": 1 / 3},
    )
    yield Case(
        "a step of 20 scalars",
        _scalars_of_a_step(_ours(), 20),
        {"tensorboardX": _scalars(_tensorboardx(), 20)},
        50,
        {"tensorboardX": 1 / 10},
    )
    large = max(1000, int(10_000_000 * scale))
    values = (np.random.default_rng(0).standard_normal(large) * 0.05).astype(F)
    if _loops.available():
        yield Case(
            "histogram of 10M float32, jit",
            _histogram(_ours(), values),
            {"tensorboardX": _histogram(_tensorboardx(), values)},
            3,
            {"tensorboardX": 1 / 15},
        )
    with without_loops():
        yield Case(
            "histogram of 10M float32",
            _histogram(_ours(), values),
            {"tensorboardX": _histogram(_tensorboardx(), values)},
            3,
            {"tensorboardX": 1 / 3.5},
        )
    count = int(100_000 * scale)
    folder = _written(count)
    yield Case(
        f"reading {count} scalars",
        lambda: summaries.read(folder).table(library="numpy"),
        {"tensorboard": lambda: _accumulator(folder).Reload()},
        1,
        {"tensorboard": 1 / 5},
    )
    yield from _steps(scale)


def _written(count: int) -> str:
    """A directory with so many scalars of ten tags, an event each."""
    folder = _folder()
    with summaries.EventLog(folder) as log:
        for index in range(count):
            tag = f"OptimizeLoss/gradient_norm/dense_{index % 10}/kernel_0"
            log.add_summary(summaries.encode_scalar(tag, index), index // 10)
    return folder


def _accumulator(folder: str) -> Any:
    module = "tensorboard.backend.event_processing.event_accumulator"
    return importlib.import_module(module).EventAccumulator(folder, {"scalars": 0})


def _steps(scale: float) -> Iterator[Case]:
    batch = max(8, int(128 * scale))
    everything = list(summaries.OPTIMIZER_SUMMARIES)

    def case(what: str, wanted: list[str], aim: float, every: int = 1) -> Case:
        without = {"without": _train(batch, None, every)}
        return Case(
            f"{NAME}, {what}",
            _train(batch, wanted, every),
            without,
            30 if every == 1 else 3,
            {"without": aim},
        )

    yield case("all scalars at every step", SCALARS, 1.1)
    if _loops.available():
        yield case("all OPTIMIZER_SUMMARIES at every step, jit", everything, 1.35)
    with without_jit(), without_loops():
        yield case("all OPTIMIZER_SUMMARIES at every step", everything, 1.7)
    yield case("all OPTIMIZER_SUMMARIES at every 100th step", everything, 1.03, 100)
