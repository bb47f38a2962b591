"""Holding signals back while variables are written."""

from __future__ import annotations

import signal
import threading

# Below the signal module, which spends more time on making enums than a small step has.
from _signal import getsignal as _handler_of
from _signal import signal as _set_handler
from types import FrameType, TracebackType
from typing import Any

from optkit.backend.cuda.device import BrokenStateError

__all__ = ["HeldBack"]

_SIGNALS = tuple(
    int(getattr(signal, name))
    for name in (
        "SIGINT",
        "SIGTERM",
        "SIGALRM",
        "SIGVTALRM",
        "SIGPROF",
        "SIGHUP",
        "SIGUSR1",
        "SIGUSR2",
    )
    if hasattr(signal, name)
)
"""Those whose handlers are known to raise: Ctrl-C, time limits, requests to end."""


class HeldBack:
    """A signal that comes inside the `with` is handled at its end, once.

    Nothing inside may fail; what does all the same leaves variables half written, and becomes the
    cause of a `BrokenStateError`.

    Only handlers written in Python can stop the code half-way; Python runs them in the main thread
    only, so elsewhere there is nothing to hold back.
    """

    __slots__ = ("_came", "_held", "_open")

    def __enter__(self) -> None:
        self._open = True
        self._came: dict[int, FrameType | None] = {}
        self._held: dict[int, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            for number in _SIGNALS:
                handler = _handler_of(number)
                if callable(handler):
                    self._held[number] = handler
                    _set_handler(number, self._note)
        except BaseException:  # a handler that is not held back yet has raised
            self._finish()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._finish()
        finally:
            if error is not None:
                raise BrokenStateError("variables were being written") from error

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._open:
            self._came[number] = frame
        else:  # it could not be restored
            self._held[number](number, frame)

    def _finish(self) -> None:
        """Put the handlers back, and let them have what came."""
        try:
            self._restore()
        finally:
            self._open = False
        for number, handler in self._held.items():
            if number in self._came:
                handler(number, self._came[number])

    def _restore(self) -> None:
        try:
            for number, handler in self._held.items():
                _set_handler(number, handler)
        except BaseException:  # one that is back has raised before the others were
            for number, handler in self._held.items():
                _set_handler(number, handler)
            raise
