"""Holding Ctrl-C back while variables are written."""

from __future__ import annotations

import signal
import threading

# Below signal.signal, which spends more time on making enums than a small step has.
from _signal import signal as _set_handler
from types import FrameType, TracebackType
from typing import Any

__all__ = ["HeldBack"]

_SIGINT = int(signal.SIGINT)


class HeldBack:
    """An interrupt that comes inside the `with` is raised at its end.

    Python runs signal handlers in the main thread only; elsewhere there is nothing to hold back.
    """

    __slots__ = ("_came", "_previous")

    def __enter__(self) -> None:
        self._came: tuple[int, FrameType | None] | None = None
        self._previous: Any = None
        if threading.current_thread() is threading.main_thread():
            self._previous = _set_handler(_SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = number, frame

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._previous is not None:
            _set_handler(_SIGINT, self._previous)
            if self._came is not None and callable(self._previous):
                self._previous(*self._came)
