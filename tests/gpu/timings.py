"""What a step costs on a device, beside PyTorch's fused optimizer and a plain copy.

`bytes` counts what an update must read and write once, so `of copy` is the share of the bandwidth
that a device-to-device copy reaches. Device times are between two events around many steps; wall
times end with the device idle. Medians of rounds, in which ours and the peer's take turns.

    python -m tests.gpu.timings --json FILE     # --dry: small sizes over tests/cusim, no figures
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import optkit as tf
from tests import cusim

F = np.float32


@dataclass
class Row:
    """One line of the table; times in seconds, None where nothing was measured."""

    name: str
    device: float | None = None
    wall: float | None = None
    bytes: int | None = None
    of_copy: float | None = None
    peer: str | None = None
    peer_device: float | None = None
    peer_wall: float | None = None


@dataclass
class Sizes:
    """How much work: as a user has it, or as little as shows that all of this runs."""

    variables: Sequence[tuple[int, int]]
    layers: Sequence[int]
    batch: int
    copied: int
    steps: int
    rounds: int


FULL = Sizes(
    variables=[(1, 10**6), (1, 10**7), (1, 10**8), (1000, 1000)],
    layers=[784, 1024, 1024, 10],
    batch=256,
    copied=1 << 30,
    steps=20,
    rounds=5,
)
DRY = Sizes([(1, 1000), (20, 10)], [8, 6, 3], 4, 1 << 12, 2, 1)

# Arrays that an update reads and writes: the variable, its slots, and the gradient once.
TRAFFIC = {"Adam": 7, "ProximalAdagrad": 5}
MAKERS = {
    "Adam": lambda: tf.train.AdamOptimizer(0.001),
    "ProximalAdagrad": lambda: tf.train.ProximalAdagradOptimizer(0.01, 0.1, 1e-4, 1e-4),
}


def _values(size: int, seed: int) -> np.ndarray[Any, Any]:
    """Random numbers, repeated: drawing a hundred million takes seconds."""
    return np.resize(
        np.random.default_rng(seed).standard_normal(min(size, 1 << 20)).astype(F), size
    )


def _measured(steps: dict[str, Callable[[], Any]], sizes: Sizes) -> dict[str, tuple[float, float]]:
    """(device, wall) seconds of a step, for functions that take turns."""
    import cupy

    for step in steps.values():
        for _ in range(3):
            step()
    cupy.cuda.runtime.deviceSynchronize()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    for _ in range(sizes.rounds):
        for name, step in steps.items():
            # Legacy default stream: it waits for PyTorch's, and PyTorch's for it.
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            begun = time.perf_counter()
            start.record()
            for _ in range(sizes.steps):
                step()
            end.record()
            end.synchronize()
            wall = time.perf_counter() - begun
            device = cupy.cuda.get_elapsed_time(start, end) / 1e3
            found[name].append((device / sizes.steps, wall / sizes.steps))
    return {
        name: (statistics.median(d for d, _ in pairs), statistics.median(w for _, w in pairs))
        for name, pairs in found.items()
    }


def _torch() -> Any:
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    return torch if torch.cuda.is_available() else None


def copy_bandwidth(sizes: Sizes) -> float:
    """Bytes a second, read and written, of a copy from the device to itself."""
    import cupy

    source = cupy.ones(sizes.copied // 4, F)
    target = cupy.empty_like(source)
    ((device, _),) = _measured({"copy": lambda: cupy.copyto(target, source)}, sizes).values()
    return 2 * sizes.copied / device


def update_row(optimizer: str, count: int, size: int, sizes: Sizes, copy: float) -> Row:
    """An optimizer's step over `count` variables of `size` elements."""
    import cupy

    steps = {}
    with tf.Graph().as_default():
        variables = [tf.Variable(_values(size, i)) for i in range(count)]
        gradients = [tf.placeholder(tf.float32, [size]) for _ in range(count)]
        train_op = MAKERS[optimizer]().apply_gradients(list(zip(gradients, variables, strict=True)))
        session = tf.Session()
        session.run(tf.global_variables_initializer())
        feed = {g: cupy.asarray(_values(size, count + i)) for i, g in enumerate(gradients)}
        run = session.make_callable(train_op, gradients)
    arrays = list(feed.values())
    steps["ours"] = lambda: run(*arrays)
    torch = _torch()
    if torch is not None and optimizer == "Adam":
        parameters = [
            torch.nn.Parameter(torch.from_numpy(_values(size, i)).cuda()) for i in range(count)
        ]
        for i, parameter in enumerate(parameters):
            parameter.grad = torch.from_numpy(_values(size, count + i)).cuda()
        steps["torch fused"] = torch.optim.Adam(parameters, lr=0.001, fused=True).step
    moved = TRAFFIC[optimizer] * count * size * 4
    name = f"{optimizer} {count} x {size:,}"
    row = _row(name, _measured(steps, sizes), moved, copy)
    session.close()
    return row


def step_row(sizes: Sizes) -> Row:
    """A whole training step, Adam included; data on the device, the loss not fetched."""
    import cupy

    layers = list(itertools.pairwise(sizes.layers))
    rng = np.random.default_rng(0)
    data = rng.standard_normal((sizes.batch, sizes.layers[0])).astype(F)
    labels = rng.integers(0, sizes.layers[-1], sizes.batch)
    starts = [(rng.standard_normal(pair) * np.sqrt(2 / pair[0])).astype(F) for pair in layers]
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, sizes.layers[0]])
        y = tf.placeholder(tf.int32, [None])
        net = x
        for i, start in enumerate(starts):
            net = net if i == 0 else tf.nn.relu(net)
            net = tf.matmul(net, tf.Variable(start)) + tf.Variable(np.zeros(start.shape[1], F))
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=net))
        train_op = MAKERS["Adam"]().minimize(loss)
        session = tf.Session()
        session.run(tf.global_variables_initializer())
        run = session.make_callable(train_op, [x, y])
    fed = cupy.asarray(data), cupy.asarray(labels.astype(np.int32))
    steps = {"ours": lambda: run(*fed)}
    torch = _torch()
    if torch is not None:
        modules: list[Any] = []
        for pair, start in zip(layers, starts, strict=True):
            modules += [torch.nn.Linear(*pair), torch.nn.ReLU()]
            modules[-2].weight.data.copy_(torch.from_numpy(start.T.copy()))
        model = torch.nn.Sequential(*modules[:-1]).cuda()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.001, fused=True)
        inputs, targets = torch.from_numpy(data).cuda(), torch.from_numpy(labels).cuda()

        def step() -> None:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()

        steps["torch fused"] = step
    name = f"MLP {'-'.join(map(str, sizes.layers))}, batch {sizes.batch}, Adam"
    return _row(name, _measured(steps, sizes), None, None)


def _row(
    name: str, times: dict[str, tuple[float, float]], moved: int | None, copy: float | None
) -> Row:
    device, wall = times["ours"]
    row = Row(name, device, wall, moved)
    if moved is not None and copy is not None:
        row.of_copy = moved / device / copy
    for peer in times.keys() - {"ours"}:
        row.peer, (row.peer_device, row.peer_wall) = peer, times[peer]
    return row


def table(rows: Sequence[Row]) -> str:
    """Markdown."""

    def micro(seconds: float | None) -> str:
        return "-" if seconds is None else f"{seconds * 1e6:,.1f}"

    lines = [
        "| step | device us | wall us | of copy | peer | device us | wall us | ours / peer |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        share = "-" if row.of_copy is None else f"{row.of_copy:.0%}"
        ratio = "-"
        if row.device is not None and row.peer_device is not None:
            ratio = f"{row.device / row.peer_device:.2f}"
        cells = [row.name, micro(row.device), micro(row.wall), share, row.peer or "-",
                 micro(row.peer_device), micro(row.peer_wall), ratio]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure everything, print a table and save it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--dry", action="store_true", help="over tests/cusim, without figures")
    options = parser.parse_args()
    if options.dry:
        cusim.install()
    import cupy

    tf.use_backend("cupy")
    sizes = DRY if options.dry else FULL
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    copy = copy_bandwidth(sizes)
    rows = []
    for optimizer in MAKERS:
        for count, size in sizes.variables:
            rows.append(update_row(optimizer, count, size, sizes, copy))
            cupy.get_default_memory_pool().free_all_blocks()
            if _torch() is not None:
                _torch().cuda.empty_cache()
    rows.append(step_row(sizes))
    if options.dry:  # a simulator's times are nobody's
        rows = [Row(row.name, bytes=row.bytes) for row in rows]
    result = {
        "device": device,
        "date": time.strftime("%Y-%m-%d"),
        "simulated": options.dry,
        "cupy": cupy.__version__,
        "torch": None if _torch() is None else _torch().__version__,
        "copy_bytes_per_second": None if options.dry else copy,
        "rows": [asdict(row) for row in rows],
    }
    options.json.write_text(json.dumps(result, indent=1) + os.linesep, encoding="utf-8")
    print(f"{device}, {result['date']}")
    if not options.dry:
        print(f"copy: {copy / 1e12:.2f} TB/s read and written")
    print(table(rows))


if __name__ == "__main__":
    main()
