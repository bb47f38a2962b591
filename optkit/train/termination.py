"""SIGTERM while training: the step is ended, a checkpoint saved, and the process ends with 143."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["EXIT_STATUS", "Termination"]

EXIT_STATUS = 128 + signal.SIGTERM


_active: list[Termination] = []
"""Those that wait for SIGTERM, nested ones last."""


class Termination:
    """Turns SIGTERM into a stop after the run in progress, or a SystemExit between runs.

    Trainings within trainings all stop; the outermost one ends the process. It does nothing outside
    the main thread, where Python sets no handlers, and where the program has a handler of its own.

    Attributes:
        requested: whether SIGTERM came.
    """

    def __init__(self) -> None:
        self.requested: bool = any(other.requested for other in _active)
        self._busy = 0
        if threading.current_thread() is not threading.main_thread():
            return
        if not _active and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _came)
        if signal.getsignal(signal.SIGTERM) is _came:
            _active.append(self)

    @property
    def outermost(self) -> bool:
        """Whether no other one waits; once it is released, whether this was the last."""
        return all(other is self for other in _active)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """SIGTERM waits for the end of the `with`, and of what is around it."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1

    def release(self) -> None:
        """Wait no longer; the last one puts the system's handler back."""
        if self not in _active:
            return
        _active.remove(self)
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and not _active and signal.getsignal(signal.SIGTERM) is _came:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _came(number: int, frame: FrameType | None) -> None:
    for each in _active:
        each.requested = True
    if not any(each._busy for each in _active):
        raise SystemExit(EXIT_STATUS)


def _forget() -> None:
    """A forked child, a worker that loads data perhaps, ends at SIGTERM as any other process."""
    _active.clear()
    if signal.getsignal(signal.SIGTERM) is _came:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
