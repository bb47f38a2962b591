"""Convolutions, forward and with both gradients: `python -m tests.benchmarks convolutions`.

Batches of 64 images of 28x28, stride 1, SAME. PyTorch gets the filters in its own layout and the
images in the memory order that the format names. Ours at most three times as slow is the aim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import optkit as tf
from tests.benchmarks.harness import Case, torch_or_none

AIM = 3.0


@dataclass(frozen=True)
class Problem:
    """A convolution with a square window, stride 1 and SAME padding."""

    window: int
    channels: int
    filters: int
    data_format: str
    images: int = 64
    size: int = 28

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Images and filters, and a gradient of the result; float32."""
        rng = np.random.default_rng(0)
        plane = (self.images, self.size, self.size)
        x = rng.standard_normal((*plane, self.channels), np.float32)
        w = rng.standard_normal((self.window, self.window, self.channels, self.filters), np.float32)
        dy = rng.standard_normal((*plane, self.filters), np.float32)
        if self.data_format == "NCHW":
            x, dy = (np.ascontiguousarray(each.transpose(0, 3, 1, 2)) for each in (x, dy))
        return x, w, dy

    def __str__(self) -> str:
        shape = f"{self.window}x{self.window}x{self.channels}x{self.filters}"
        return f"convolution {shape} {self.data_format}"


PROBLEMS = [
    Problem(window, channels, filters, data_format)
    for window, channels, filters in ((5, 1, 32), (3, 32, 64))
    for data_format in ("NHWC", "NCHW")
]


def ours(problem: Problem, *, values: bool = False) -> tuple[Callable, Callable]:
    """The convolution, and it with both its gradients; copied out only if `values`."""
    arrays = problem.arrays()
    with tf.Graph().as_default():
        x, w, dy = (tf.placeholder(tf.float32, each.shape) for each in arrays)
        y = tf.nn.conv2d(x, w, 1, "SAME", data_format=problem.data_format)
        tensors = [y, *tf.gradients(y, [x, w], dy)]
        session = tf.Session(backend="numpy")
    feed = dict(zip((x, w, dy), arrays, strict=True))
    fetches = tensors if values else [tensor.op for tensor in tensors]
    return (lambda: session.run(fetches[:1], feed)), (lambda: session.run(fetches, feed))


def pytorchs(torch: Any, problem: Problem) -> tuple[Callable, Callable]:
    """The same in PyTorch."""
    x, w, dy = problem.arrays()
    images, result = torch.from_numpy(x), torch.from_numpy(dy)
    if problem.data_format == "NHWC":
        images, result = images.permute(0, 3, 1, 2), result.permute(0, 3, 1, 2)
    filters = torch.from_numpy(np.ascontiguousarray(w.transpose(3, 2, 0, 1)))
    leaves = [images.detach().requires_grad_(), filters.detach().clone().requires_grad_()]
    correlate, pad = torch.nn.functional.conv2d, problem.window // 2

    def forward() -> Any:
        with torch.no_grad():
            return [correlate(images, filters, padding=pad)]

    def both() -> Any:
        y = correlate(*leaves, padding=pad)
        return [y, *torch.autograd.grad(y, leaves, result)]

    return forward, both


def cases(scale: float = 1.0) -> Iterator[Case]:
    """Every problem, forward and with both gradients; `scale` shrinks the number of images."""
    torch = torch_or_none()
    for whole in PROBLEMS:
        problem = Problem(**{**vars(whole), "images": max(1, int(scale * whole.images))})
        steps = ours(problem)
        peers = (None, None) if torch is None else pytorchs(torch, problem)
        for name, step, peer in zip(("forward", "with gradients"), steps, peers, strict=True):
            yield Case(
                f"{problem}, {name}",
                step,
                {} if peer is None else {"torch": peer},
                repeats=7,
                aims={} if peer is None else {"torch": AIM},
            )
