"""Whole training steps through optimize_loss: a small one and a multi-layer perceptron."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator

import numpy as np

import optkit as tf
from tests.benchmarks.harness import Case, torch_or_none

F = np.float32


def _starts(sizes: list[int]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        (rng.standard_normal(pair) * np.sqrt(2 / pair[0])).astype(F)
        for pair in itertools.pairwise(sizes)
    ]


def _data(batch: int, sizes: list[int]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.standard_normal((batch, sizes[0])).astype(F), rng.integers(
        0, sizes[-1], batch
    ).astype(np.int32)


def perceptron(batch: int, sizes: list[int]) -> tuple:
    """The loss of layers of these sizes, and what to feed; in the default graph."""
    x_data, y_data = _data(batch, sizes)
    x = tf.placeholder(tf.float32, [None, sizes[0]])
    y = tf.placeholder(tf.int32, [None])
    net = x
    starts = _starts(sizes)
    for i, start in enumerate(starts):
        net = net @ tf.Variable(start) + tf.Variable(np.zeros(start.shape[1], F))
        net = tf.nn.relu(net) if i < len(starts) - 1 else net
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=net))
    return loss, {x: x_data, y: y_data}


def _ours(batch: int, sizes: list[int], optimizer: str, clip: float | None) -> Callable:
    with tf.Graph().as_default():
        loss, feed = perceptron(batch, sizes)
        step = tf.train.create_global_step()
        train = tf.contrib.layers.optimize_loss(loss, step, 0.001, optimizer, clip_gradients=clip)
        session = tf.Session()
        session.run(tf.global_variables_initializer())
    return lambda: session.run(train, feed)


def _torch(batch: int, sizes: list[int], adam: bool, clip: float | None) -> dict[str, Callable]:
    torch = torch_or_none()
    if torch is None:
        return {}
    x_data, y_data = _data(batch, sizes)
    layers: list = []
    for a, b in itertools.pairwise(sizes):
        layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    net = torch.nn.Sequential(*layers[:-1])
    parameters = list(net.parameters())
    if adam:
        optimizer = torch.optim.Adam(parameters, lr=0.001, fused=True)
    else:
        optimizer = torch.optim.SGD(parameters, lr=0.001)
    x, y = torch.from_numpy(x_data), torch.from_numpy(y_data.astype(np.int64))

    def step() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, clip)
        optimizer.step()
        return loss.item()

    return {"torch eager": step}


def _tensorflow(batch: int, sizes: list[int]) -> dict[str, Callable]:
    """Softmax regression with SGD in a TF1 session, where TensorFlow is installed."""
    try:
        v1 = importlib.import_module("tensorflow.compat.v1")
    except ImportError:
        return {}
    x_data, y_data = _data(batch, sizes)
    (start,) = _starts(sizes)
    with v1.Graph().as_default():
        x = v1.placeholder(v1.float32, [None, sizes[0]])
        y = v1.placeholder(v1.int32, [None])
        logits = v1.matmul(x, v1.Variable(start)) + v1.Variable(np.zeros(sizes[-1], F))
        loss = v1.reduce_mean(
            v1.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
        )
        count = v1.train.create_global_step()
        train = v1.train.GradientDescentOptimizer(0.001).minimize(loss, global_step=count)
        session = v1.Session()
        session.run(v1.global_variables_initializer())
    return {"tensorflow session": lambda: session.run([loss, train], {x: x_data, y: y_data})}


def _by_hand(batch: int, sizes: list[int], clip: float) -> Callable:
    """The perceptron with Adam and clipping in plain NumPy."""
    x, y = _data(batch, sizes)
    ws = [a for start in _starts(sizes) for a in (start, np.zeros(start.shape[1], F))]
    ms, vs = [np.zeros_like(w) for w in ws], [np.zeros_like(w) for w in ws]
    depth, rows, turn = len(sizes) - 1, np.arange(batch), 0

    def step() -> float:
        nonlocal turn
        acts = [x]
        for i in range(depth):
            z = acts[-1] @ ws[2 * i] + ws[2 * i + 1]
            acts.append(np.maximum(z, 0) if i < depth - 1 else z)
        z = acts[-1] - acts[-1].max(1, keepdims=True)
        e = np.exp(z)
        total = e.sum(1, keepdims=True)
        loss = float(np.mean(np.log(total[:, 0]) - z[rows, y]))
        d = e / total
        d[rows, y] -= 1
        d /= batch
        grads: list = [None] * len(ws)
        for i in reversed(range(depth)):
            grads[2 * i], grads[2 * i + 1] = acts[i].T @ d, d.sum(0)
            if i:
                d = (d @ ws[2 * i].T) * (acts[i] > 0)
        norm = np.sqrt(sum(np.dot(g.ravel(), g.ravel()) for g in grads))
        scale = F(min(1.0, clip / norm))
        turn += 1
        rate = F(0.001 * np.sqrt(1 - 0.999**turn) / (1 - 0.9**turn))
        for w, g, m, v in zip(ws, grads, ms, vs, strict=True):
            g = g * scale
            m += F(0.1) * (g - m)
            v += F(0.001) * (g * g - v)
            w -= rate * m / (np.sqrt(v) + F(1e-8))
        return loss

    return step


def cases(scale: float = 1.0) -> Iterator[Case]:
    """All cases; `scale` below 1 makes the perceptron's batch smaller."""
    yield Case(
        "optimize_loss, softmax regression 4→3, batch 16, SGD",
        _ours(16, [4, 3], "SGD", None),
        {**_torch(16, [4, 3], adam=False, clip=None), **_tensorflow(16, [4, 3])},
        200,
        {"torch eager": 0.8, "tensorflow session": 0.4},
    )
    sizes, batch = [784, 256, 128, 10], max(8, int(128 * scale))
    yield Case(
        "optimize_loss, MLP 784-256-128-10, batch 128, Adam, clip 1.0",
        _ours(batch, sizes, "Adam", 1.0),
        {"numpy by hand": _by_hand(batch, sizes, 1.0), **_torch(batch, sizes, adam=True, clip=1.0)},
        30,
        {"numpy by hand": 1.15, "torch eager": 1.0},
    )
