"""Measuring against peers: the same work, in turn, in one process; medians of ratios.

A machine's speed drifts and its neighbours come and go, so times are only compared with times
taken in the same round.
"""

from __future__ import annotations

import contextlib
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Step = Callable[[], Any]


@dataclass
class Case:
    """One piece of work, done by optkit and by peers.

    Attributes:
        name: what is done.
        ours: a step of optkit.
        peers: a step of each peer that is installed.
        repeats: steps in a round, of which the median counts.
        aims: the ratio (ours / peer) that is aimed at, by peer.
    """

    name: str
    ours: Step
    peers: dict[str, Step]
    repeats: int = 20
    aims: dict[str, float] = field(default_factory=dict)


@dataclass
class Result:
    """What was measured: milliseconds of ours, and ratios ours / peer, medians over rounds."""

    name: str
    ours_ms: float
    ratios: dict[str, float]
    aims: dict[str, float]


def _round(step: Step, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def measure(case: Case, rounds: int = 5) -> Result:
    """Run ours and the peers in turn, `rounds` times, after a warm-up of each."""
    steps = {"": case.ours, **case.peers}
    for step in steps.values():
        step()
        step()
    taken = [
        {name: _round(step, case.repeats) for name, step in steps.items()} for _ in range(rounds)
    ]
    ratios = {
        peer: statistics.median(times[""] / times[peer] for times in taken) for peer in case.peers
    }
    return Result(
        case.name, statistics.median(times[""] for times in taken), ratios, dict(case.aims)
    )


def table(results: list[Result]) -> str:
    """The results as a Markdown table."""
    lines = ["| work | ours, ms | ratio ours / peer (aim) |", "|---|---|---|"]
    for result in results:
        ratios = ", ".join(
            f"{peer} {ratio:.3g}" + (f" (≤ {result.aims[peer]:g})" if peer in result.aims else "")
            for peer, ratio in result.ratios.items()
        )
        lines.append(f"| {result.name} | {result.ours_ms:.3g} | {ratios or 'no peer installed'} |")
    return "\n".join(lines)


def save(results: list[Result], path: Path) -> None:
    """Write the results and what they were measured with as JSON."""
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    for name in ("torch", "numba", "tensorflow"):
        with contextlib.suppress(ImportError):
            versions[name] = str(__import__(name).__version__)
    content = {
        "machine": platform.machine(),
        "processor": platform.processor(),
        "versions": versions,
        "results": [vars(result) for result in results],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


@contextlib.contextmanager
def without_jit() -> Iterator[None]:
    """Use the NumPy tiles although Numba is installed."""
    from optkit.backend.fused import compiled

    available = compiled.available
    compiled.available = lambda: False  # type: ignore[assignment]
    try:
        yield
    finally:
        compiled.available = available


def torch_or_none() -> Any:
    """PyTorch on two threads, None where it is not installed."""
    try:
        import torch
    except ImportError:
        return None
    return torch
