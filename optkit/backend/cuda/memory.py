"""How much memory of a device is in use, and giving it back.

CuPy keeps the memory of arrays that are gone in a pool, which other processes see as taken.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MemoryReport", "memory_report", "release_memory"]


@dataclass(frozen=True)
class MemoryReport:
    """The memory of a device, in bytes.

    Attributes:
        device: its index; None where there is none.
        used: what this process's arrays hold.
        pooled: what the pool keeps for new arrays beside that.
        free: what nobody has taken, other processes included.
        total: all there is.
        pinned_blocks: free blocks of host memory that are kept for transfers.
    """

    device: int | None
    used: int
    pooled: int
    free: int
    total: int
    pinned_blocks: int


def memory_report() -> MemoryReport:
    """The memory of the current device."""
    import cupy

    pool = cupy.get_default_memory_pool()
    used = pool.used_bytes()
    free, total = cupy.cuda.runtime.memGetInfo()
    return MemoryReport(
        cupy.cuda.runtime.getDevice(),
        used,
        pool.total_bytes() - used,
        free,
        total,
        cupy.get_default_pinned_memory_pool().n_free_blocks(),
    )


def release_memory() -> int:
    """Give the pooled memory of the current device back; how many bytes that were."""
    import cupy

    pool = cupy.get_default_memory_pool()
    before = pool.total_bytes()
    cupy.cuda.get_current_stream().synchronize()  # which may still read blocks
    pool.free_all_blocks()
    cupy.get_default_pinned_memory_pool().free_all_blocks()
    return before - pool.total_bytes()  # type: ignore[no-any-return]
