"""Results that every device must give, recorded over tests/cusim.

Kernels made of + - × ÷ and square roots round as NumPy does, so they must give the recorded bits.
Powers may be some units in the last place away; products of matrices and functions such as exp,
which libraries add up and approximate as they like, are compared with a relative tolerance.

    OPTKIT_TEST_CUPY=sim python -m tests.gpu.cases      # record again, after a rule has changed
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import optkit as tf
from optkit.backend import use_backend
from optkit.backend.arrays import to_numpy
from optkit.backend.cuda.norm import device_norm
from optkit.backend.cuda.update import DeviceUpdate
from optkit.backend.segments import segment_sum
from summaries.histogram import measure
from tests import cusim
from tests.backend.test_fused import EXTRA, OPTIMIZERS, VALUES

RECORDED = Path(__file__).parents[1] / "golden" / "device.npz"


@dataclass(frozen=True)
class Case:
    """What to compute, and how near the recorded result it must be.

    Attributes:
        make: gives named arrays on the host.
        ulps: units in the last place of each array's largest value; 0 asks for the same bits.
        rtol: a relative tolerance instead.
    """

    make: Callable[[], dict[str, np.ndarray[Any, Any]]]
    ulps: int = 0
    rtol: float = 0.0

    @property
    def asks_for(self) -> str:
        """In words."""
        return f"rtol {self.rtol:g}" if self.rtol else f"{self.ulps} ulp" if self.ulps else "bits"


def cases() -> dict[str, Case]:
    """All of them by name."""
    found = {}
    for name in OPTIMIZERS:
        for dtype in ("float16", "float32", "float64"):
            ulps = (1 if dtype == "float16" else 64) if name == "ftrl" else 0  # it has a power
            found[f"update {name} {dtype}"] = Case(_updates(name, np.dtype(dtype)), ulps)
    for dtype in ("float16", "float32", "float64"):
        found[f"norm {dtype}"] = Case(_norm(np.dtype(dtype)))
        found[f"rows {dtype}"] = Case(_rows(np.dtype(dtype)))
    for dtype in ("float32", "float64"):
        found[f"histogram {dtype}"] = Case(_histogram(np.dtype(dtype)))
    found["random numbers"] = Case(_random)
    for name in ("Adam", "ProximalAdagrad"):
        found[f"training {name}"] = Case(_training(name), rtol=1e-4)
    return found


def differences(case: Case, got: dict[str, Any], wanted: dict[str, Any]) -> tuple[bool, float]:
    """Whether it is near enough, and by how many units in the last place it is off at most."""
    if got.keys() != wanted.keys():
        raise KeyError(f"recorded {sorted(wanted)}, computed {sorted(got)}: record again")
    fine, worst = True, 0.0
    for key, target in wanted.items():
        array = got[key]
        if array.dtype != target.dtype or array.shape != target.shape:
            raise TypeError(f"{key}: recorded {target.dtype}{target.shape}, got {array.dtype}")
        if target.dtype.kind != "f":
            fine &= np.array_equal(array, target)
            continue
        unit = float(np.finfo(target.dtype).eps) * max(float(np.abs(target).max()), 1e-30)
        off = float(np.abs(array.astype("f8") - target.astype("f8")).max()) / unit
        worst = max(worst, off)
        if case.rtol:
            fine &= np.allclose(array, target, rtol=case.rtol, atol=case.rtol * 1e-2)
        else:
            fine &= array.tobytes() == target.tobytes() if case.ulps == 0 else off <= case.ulps
    return fine, worst


def recorded() -> dict[str, dict[str, np.ndarray[Any, Any]]]:
    """The recorded arrays, by case and name."""
    found: dict[str, dict[str, np.ndarray[Any, Any]]] = {}
    with np.load(RECORDED, allow_pickle=False) as file:
        for key in file.files:
            case, _, name = key.partition("/")
            found.setdefault(case, {})[name] = file[key]
    return found


# -- what is computed -----------------------------------------------------------------------------


def _updates(name: str, dtype: np.dtype[Any]) -> Callable[[], dict[str, np.ndarray[Any, Any]]]:
    def make() -> dict[str, np.ndarray[Any, Any]]:
        import cupy

        with tf.Graph().as_default():
            optimizer = OPTIMIZERS[name]()
        hyper = (*optimizer._hyper, *EXTRA.get(name, ()))
        wide = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
        update = DeviceUpdate(optimizer.update, len(optimizer.slots), hyper, dtype)
        rng = np.random.default_rng(1)
        columns = [
            [
                cupy.asarray(rng.standard_normal(size).astype(dtype)),
                *(cupy.asarray((1 + rng.random(size)).astype(dtype)) for _ in optimizer.slots),
            ]
            for size in (1, 13, 70)
        ]
        numbers = [cupy.asarray(np.asarray(VALUES[key], wide)) for key in hyper]
        bound = update.bind(columns)
        for _ in range(3):
            gradients = [
                cupy.asarray(rng.standard_normal(c[0].size).astype(dtype)) for c in columns
            ]
            bound.start(gradients, numbers)()
        names = ("w", *optimizer.slots)
        return {
            n: np.concatenate([array.get() for array in arrays])
            for n, arrays in zip(names, zip(*columns, strict=True), strict=True)
        }

    return make


def _norm(dtype: np.dtype[Any]) -> Callable[[], dict[str, np.ndarray[Any, Any]]]:
    def make() -> dict[str, np.ndarray[Any, Any]]:
        import cupy

        rng = np.random.default_rng(2)
        arrays = [rng.standard_normal(size).astype(dtype) for size in (1, 17, 40_000)]
        return {"norm": device_norm([cupy.asarray(array) for array in arrays]).get()}

    return make


def _rows(dtype: np.dtype[Any]) -> Callable[[], dict[str, np.ndarray[Any, Any]]]:
    def make() -> dict[str, np.ndarray[Any, Any]]:
        import cupy

        rng = np.random.default_rng(3)
        values = cupy.asarray(rng.standard_normal((5000, 3)).astype(dtype))
        rows = cupy.asarray(rng.integers(0, 9, 5000))
        return {"sums": segment_sum(cupy, values, rows, 10).get()}

    return make


def _histogram(dtype: np.dtype[Any]) -> Callable[[], dict[str, np.ndarray[Any, Any]]]:
    def make() -> dict[str, np.ndarray[Any, Any]]:
        import cupy

        rng = np.random.default_rng(4)
        values = rng.standard_normal(5000) * np.exp2(rng.integers(-40, 40, 5000))
        found = measure(cupy.asarray(values.astype(dtype)))
        places = np.flatnonzero(found.counts)
        return {"places": places, "counts": np.asarray(found.counts)[places]}

    return make


def _random() -> dict[str, np.ndarray[Any, Any]]:
    with tf.Graph().as_default(), tf.Session() as session:
        made = [
            tf.random_uniform([20], seed=1),
            tf.random_normal([20], seed=2),
            tf.truncated_normal([20], seed=3),
        ]
        values = session.run(made)
    return {f"{i}": to_numpy(value) for i, value in enumerate(values)}


def _training(name: str) -> Callable[[], dict[str, np.ndarray[Any, Any]]]:
    def make() -> dict[str, np.ndarray[Any, Any]]:
        rng = np.random.default_rng(5)
        data = rng.standard_normal((64, 20)).astype("f4")
        labels = rng.integers(0, 4, 64)
        with tf.Graph().as_default(), tf.Session() as session:
            x = tf.placeholder(tf.float32, [None, 20])
            y = tf.placeholder(tf.int32, [None])
            first = tf.Variable(rng.standard_normal((20, 16)).astype("f4") * np.float32(0.2))
            last = tf.Variable(rng.standard_normal((16, 4)).astype("f4") * np.float32(0.2))
            logits = tf.matmul(tf.nn.relu(tf.matmul(x, first)), last)
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
            )
            optimizer = getattr(tf.train, f"{name}Optimizer")
            train_op = tf.contrib.layers.optimize_loss(
                loss, tf.train.create_global_step(), 0.01, optimizer, clip_gradients=1.0
            )
            session.run(tf.global_variables_initializer())
            losses = [session.run(train_op, {x: data, y: labels}) for _ in range(10)]
            return {"losses": np.array(losses), "last": session.value(last)}

    return make


def record() -> None:
    """Write the results of this run over the recorded ones."""
    arrays = {}
    with use_backend("cupy"):
        for name, case in cases().items():
            arrays.update({f"{name}/{key}": array for key, array in case.make().items()})
    np.savez_compressed(RECORDED, allow_pickle=False, **arrays)


if __name__ == "__main__":
    if os.environ.get("OPTKIT_TEST_CUPY") != "sim":
        raise SystemExit("set OPTKIT_TEST_CUPY=sim: results are recorded over tests/cusim")
    cusim.install()
    record()
