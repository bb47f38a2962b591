"""SIGTERM while training: the step is ended, a checkpoint saved, and the process ends with 143."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["EXIT_STATUS", "Termination"]

EXIT_STATUS = 128 + signal.SIGTERM


class Termination:
    """Turns SIGTERM into a stop after the run in progress, or a SystemExit between runs.

    It does nothing outside the main thread, where Python sets no handlers, and where the program
    has a handler of its own.

    Attributes:
        requested: whether SIGTERM came.
    """

    def __init__(self) -> None:
        self.requested = False
        self._busy = 0
        self._installed = False
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._came)
            self._installed = True

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """SIGTERM waits for the end of the `with`, and of what is around it."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1

    def release(self) -> None:
        """Put the system's handler back."""
        if self._installed and threading.current_thread() is threading.main_thread():
            self._installed = False
            if signal.getsignal(signal.SIGTERM) == self._came:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _came(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        if not self._busy:
            raise SystemExit(EXIT_STATUS)
