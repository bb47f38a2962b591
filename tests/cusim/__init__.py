"""cusim: the real CuPy, run on a CPU. A tool of these tests, never part of the wheel.

`install()` before CuPy is imported. The CUDA runtime and driver calls below CuPy are replaced, and
each kernel's text is compiled by NVRTC for a real device, to know that it can be, and by g++ to be
run. README.md beside this file says what that proves and what it does not.

    from tests import cusim

    cusim.install()
    import cupy

    with cusim.settings(order=1, log=True):
        ...
    cusim.stats()["log"]
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tests.cusim.cache import CusimError, folder
from tests.cusim.compiler import kernels
from tests.cusim.install import CUPY_VERSION, check, install, native

__all__ = [
    "CUPY_VERSION",
    "CusimError",
    "check",
    "folder",
    "install",
    "kernels",
    "set",
    "settings",
    "stats",
]


def set(**changes: Any) -> None:  # noqa: A001 - read as cusim.set
    """Change settings for the rest of the process.

    Args:
        **changes: any of
            lazy (bool): streams run only when something waits for them;
            order (int): of blocks and threads: 0 as numbered, 1 backwards, else a seed;
            limit (int): bytes of device memory, 0 for no limit;
            log (bool): keep the names of what is put on streams, from now on;
            strict (bool): a thread that ended before a barrier of its block is an error;
            devices (int): how many there are: 2 or, to see what one does, 1;
            reset (bool): forget a fault of a kernel, which else fails every later call.
    """
    native().set(**changes)


@contextlib.contextmanager
def settings(**changes: Any) -> Iterator[None]:
    """`set` for the body of a `with` statement; also forgets a fault of a kernel in the body."""
    before = native().settings()
    set(**changes)
    try:
        yield
    finally:
        set(**before, reset=True)


def stats() -> dict[str, Any]:
    """launches, used (bytes of device memory), blocks, fault (text or ""), log (names)."""
    return native().stats()
