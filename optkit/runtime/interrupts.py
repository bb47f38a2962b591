"""Holding signals back while variables are written."""

from __future__ import annotations

import signal
import threading

# Below the signal module, which spends more time on making enums than a small step has.
from _signal import getsignal as _handler_of
from _signal import signal as _set_handler
from types import FrameType, TracebackType
from typing import Any

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

    Only handlers written in Python can stop the code half-way; Python runs them in the main thread
    only, so elsewhere there is nothing to hold back.
    """

    __slots__ = ("_came", "_held")

    def __enter__(self) -> None:
        self._came: dict[int, FrameType | None] = {}
        self._held: list[tuple[int, Any]] = []
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            for number in _SIGNALS:
                handler = _handler_of(number)
                if callable(handler):
                    self._held.append((number, handler))
                    _set_handler(number, self._note)
        except BaseException:  # a handler that is not held back yet has raised
            self._restore(list(self._held))
            raise

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came[number] = frame

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore(list(self._held))
        for number, handler in self._held:
            if number in self._came:
                handler(number, self._came[number])

    def _restore(self, left: list[tuple[int, Any]]) -> None:
        try:
            while left:
                _set_handler(*left.pop())
        finally:
            if left:  # a handler that was just restored has raised
                self._restore(left)
