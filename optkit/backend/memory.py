"""The memory of the current backend's device."""

from __future__ import annotations

from optkit.backend.cuda import memory
from optkit.backend.cuda.memory import MemoryReport
from optkit.backend.select import resolve

__all__ = ["MemoryReport", "memory_report", "release_memory"]


def memory_report(backend: str | None = None) -> MemoryReport:
    """How much memory a device has, and who holds it; all zeros with NumPy, which has no device.

    Args:
        backend: as for a `Session`; the current backend if None.

    Raises:
        ValueError: there is no such backend or device.
        RuntimeError: the backend is not usable.
    """
    device = resolve(backend).device()
    if device is None:
        return MemoryReport(None, 0, 0, 0, 0, 0)
    with device.active():
        return memory.memory_report()


def release_memory(backend: str | None = None) -> int:
    """Give memory that no array holds any more back to the device, for other processes.

    CuPy keeps it for new arrays. A session that is closed does this by itself.

    Args:
        backend: as for a `Session`; the current backend if None.

    Returns:
        How many bytes were given back; 0 with NumPy.

    Raises:
        ValueError: there is no such backend or device.
        RuntimeError: the backend is not usable.
    """
    device = resolve(backend).device()
    if device is None:
        return 0
    with device.active():
        return memory.release_memory()
