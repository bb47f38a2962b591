"""A small thread pool for kernels that release the GIL, safe after a fork."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

__all__ = ["in_chunks", "parts", "workers"]

_pool: ThreadPoolExecutor | None = None
_owner = 0


def workers() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _executor(count: int) -> ThreadPoolExecutor:
    global _pool, _owner
    if _pool is None or _owner != os.getpid():
        # A forked child inherits the pool's object without its threads.
        _pool = ThreadPoolExecutor(count, thread_name_prefix="optkit")
        _owner = os.getpid()
    return _pool


def parts(size: int, grain: int) -> int:
    """Into how many parts `in_chunks` cuts range(size)."""
    return max(1, min(workers(), -(-size // grain)))


def in_chunks(work: Callable[[int, int, int], None], size: int, grain: int) -> None:
    """Call `work(i, start, stop)` for parts of range(size), side by side.

    Parts are multiples of `grain`, so that their bounds do not depend on the number of threads'
    speed, and the first runs on the calling thread.
    """
    count = parts(size, grain)
    if count == 1:
        work(0, 0, size)
        return
    grains = -(-size // grain)
    bounds = [grain * (grains * i // count) for i in range(count)] + [size]
    pool = _executor(workers())
    waiting = []
    for i, part in enumerate(itertools.pairwise(bounds[1:]), 1):
        try:
            waiting.append(pool.submit(work, i, *part))
        except RuntimeError:  # no thread can be had: at a limit, or when the interpreter ends
            work(i, *part)
    try:
        work(0, bounds[0], bounds[1])
    finally:
        for future in waiting:
            future.result()
