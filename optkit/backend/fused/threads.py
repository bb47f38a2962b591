"""A small thread pool for kernels that release the GIL, safe after a fork."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

__all__ = ["in_chunks", "workers"]

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


def in_chunks(work: Callable[[int, int], None], size: int, grain: int) -> None:
    """Call `work(start, stop)` for parts of range(size), side by side.

    Parts are multiples of `grain`, so that their bounds do not depend on the number of threads'
    speed, and one part runs on the calling thread.
    """
    count = min(workers(), -(-size // grain))
    if count <= 1:
        work(0, size)
        return
    grains = -(-size // grain)
    bounds = [grain * (grains * i // count) for i in range(count)] + [size]
    pool = _executor(workers())
    waiting = []
    for part in itertools.pairwise(bounds[1:]):
        try:
            waiting.append(pool.submit(work, *part))
        except RuntimeError:  # no thread can be had: at a limit, or when the interpreter ends
            work(*part)
    try:
        work(bounds[0], bounds[1])
    finally:
        for future in waiting:
            future.result()
