"""A coordinator: threads that stop together, and the exception that one of them stopped with."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

from optkit import logging
from optkit.errors import OutOfRangeError

__all__ = ["Coordinator"]


class Coordinator:
    """Lets any of several threads ask all of them to stop.

    Args:
        clean_stop_exception_types: exceptions that ask for a stop and are no failure;
            OutOfRangeError if None.
    """

    def __init__(self, clean_stop_exception_types: Iterable[type[BaseException]] | None = None):
        if clean_stop_exception_types is None:
            clean_stop_exception_types = (OutOfRangeError,)
        self._clean = tuple(clean_stop_exception_types)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._threads: set[threading.Thread] = set()
        self._joined = False

    @property
    def joined(self) -> bool:
        """Whether `join` has been called and has returned."""
        return self._joined

    def request_stop(self, ex: Any = None) -> None:
        """Ask all threads to stop; `ex`, an exception or what `sys.exc_info` gives, is kept."""
        error = ex[1] if isinstance(ex, tuple) else ex
        with self._lock:
            if self._joined:
                if error is not None and not isinstance(error, self._clean):
                    raise error
                return
            if not self._stop.is_set():
                if error is not None and not isinstance(error, self._clean):
                    self._failure = error
                self._stop.set()
            elif error is not None:
                logging.info("an exception after the stop: %r", error)

    def clear_stop(self) -> None:
        """Take the request back, so that threads may be started anew."""
        with self._lock:
            self._joined = False
            self._failure = None
            self._stop.clear()

    def should_stop(self) -> bool:
        """Whether a stop has been asked for."""
        return self._stop.is_set()

    @contextlib.contextmanager
    def stop_on_exception(self) -> Iterator[None]:
        """Ask for a stop when the body raises; the exception goes to who joins."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - `join` raises it
            self.request_stop(error)

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Wait until a stop is asked for, at most `timeout` seconds; whether it was."""
        return self._stop.wait(timeout)

    def register_thread(self, thread: threading.Thread) -> None:
        """A thread for `join` to wait for."""
        with self._lock:
            self._threads.add(thread)

    def raise_requested_exception(self) -> None:
        """Raise the exception that the stop was asked for with, if there was one."""
        with self._lock:
            if self._failure is not None:
                raise self._failure

    def join(
        self,
        threads: Iterable[threading.Thread] | None = None,
        stop_grace_period_secs: float = 120,
        ignore_live_threads: bool = False,
    ) -> None:
        """Wait for threads to end, and raise what one of them failed with.

        Args:
            threads: threads, beside the registered ones.
            stop_grace_period_secs: how long they may take from the request to stop on.
            ignore_live_threads: whether some may still be alive then; the log tells which.

        Raises:
            RuntimeError: a thread did not end in time.
        """
        with self._lock:
            waited = [*self._threads, *(threads or ())]
        while not self._stop.is_set() and any(thread.is_alive() for thread in waited):
            self._stop.wait(0.1)
        deadline = time.monotonic() + stop_grace_period_secs
        for thread in waited:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            self._joined = True
            self._threads.clear()
            failure = self._failure
        if failure is not None:
            raise failure
        alive = [thread.name for thread in waited if thread.is_alive()]
        if alive:
            message = f"threads did not end within {stop_grace_period_secs} s: {', '.join(alive)}"
            if not ignore_live_threads:
                raise RuntimeError(message)
            logging.warning("%s", message)
