"""NumPy or CuPy: the choice between them, and the few things they do differently.

This is the only package that names CuPy; all else gets the array module as `xp`.
"""

from optkit.backend.memory import MemoryReport, memory_report, release_memory
from optkit.backend.select import BACKENDS, Backend, get_backend, resolve, use_backend

__all__ = [
    "BACKENDS",
    "Backend",
    "MemoryReport",
    "get_backend",
    "memory_report",
    "release_memory",
    "resolve",
    "use_backend",
]
