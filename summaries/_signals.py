"""Events written before SIGTERM ends the process, for the logs that asked for it."""

import os
import signal
import threading
import weakref
from contextlib import suppress
from types import FrameType
from typing import Any

from summaries.event_queue import EventQueue

_PATIENCE = 5.0
_asked: weakref.WeakSet[EventQueue] = weakref.WeakSet()
_before: Any = signal.SIG_DFL


def flush_at_sigterm(queue: EventQueue) -> None:
    """Have the queue written when SIGTERM arrives; then what was to happen before happens.

    Raises:
        ValueError: outside the main thread, where Python sets no handlers.
    """
    global _before
    if signal.getsignal(signal.SIGTERM) is not _handle:
        if threading.current_thread() is not threading.main_thread():
            raise ValueError("flush_on_sigterm needs the main thread, which alone sets handlers")
        _before = signal.signal(signal.SIGTERM, _handle)
    _asked.add(queue)


def _handle(number: int, frame: FrameType | None) -> None:
    for queue in list(_asked):
        # There is no one to tell; the process ends, or its own handler decides.
        with suppress(OSError, RuntimeWarning):
            queue.flush(_PATIENCE)
    if callable(_before):
        _before(number, frame)
    elif _before is not signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
