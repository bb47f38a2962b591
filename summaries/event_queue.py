"""Records on their way to an event file: one thread writes, the others wait for it only if asked.

A record that was taken is written within a fifth of a second. What the thread meets is told by the
next call: an error is raised there, or issued as a warning, and the records are kept and tried
again. No call waits for ever.
"""

import errno
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias

from summaries._warn import warn
from summaries.event_file import EventFile, WriteError, has_live_file

OnError: TypeAlias = Literal["raise", "warn"]

WINDOW = 0.2
"""Seconds that a record waits for others to be written with it, at most."""

PATIENCE = 30.0
"""Seconds that a call waits for the disk."""

_PATIENCE_AT_EXIT = 5.0
_RETRY = 1.0
_BATCH_BYTES = 1 << 18


class EventQueue:
    """Takes records from any thread and has one daemon thread write them, which the first starts.

    Without a window, in a forked child, and where the system gives no thread, a record is written
    before `append` returns.

    Args:
        file: the file, which no one else uses.
        window: seconds that records may gather.
        max_bytes: records beyond this size wait until there is room.
        on_error: "raise", or "warn" to drop what cannot be kept, with a warning.
    """

    # Records stay in `_waiting` until they are in the file: a batch is its front part. All
    # attributes change under the lock only, which the thread leaves while it writes.
    #
    # A signal's handler, or what the collector runs, may call in the middle of another call, and
    # Ctrl-C may end one anywhere. So the lock is reentrant, what was taken is counted in one place,
    # and nothing is written within a write.

    def __init__(self, file: EventFile, window: float, max_bytes: int, on_error: OnError) -> None:
        self.closed = False
        self.dropped = 0
        self._file = file
        self._window = 0.0 if _may_end_silently() else window
        self._max_bytes = max_bytes
        self._on_error = on_error
        self._reset()

    def _reset(self) -> None:
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._written = 0
        self._round_end = 0
        self._thread: threading.Thread | None = None
        self._works = False
        self._idle = True
        self._hurry = False
        self._failures = 0  # in a row
        self._stalled = False
        self._error: Exception | None = None

    @property
    def logdir(self) -> Path:
        """The directory of the file."""
        return self._file.logdir

    @property
    def path(self) -> Path | None:
        """The file, or None before the first record."""
        return self._file.path

    def append(self, data: bytes) -> None:
        """Take one record; a call that raises has not taken it.

        Raises:
            OSError: an earlier record could not be written, this one cannot, or the queue stayed
                full.
            ValueError: the queue is closed.
        """
        with self.lock:
            if self.closed:
                raise ValueError(
                    f"the event log of {self.logdir} is closed; reopen() goes on in a new file"
                )
            if self._error is not None:
                self._tell_kept()
            if self._bytes + len(data) > self._max_bytes and not self._make_room(len(data)):
                self.dropped += 1
                return
            self._bytes += len(data)
            self._waiting.append(data)
            if self._idle:
                try:
                    self._alone(self._start)
                except OSError as error:
                    if self._waiting:  # else it was written, but the disk failed to say so
                        self._take_back()
                        self.dropped += self._on_error == "warn"
                    self._note(error)
                    self._tell_kept()

    def flush(self, timeout: float = PATIENCE) -> None:
        """Return when every record taken so far is in the file, for any process to read.

        Raises:
            OSError: they could not be written.
            TimeoutError: the disk took longer.
        """
        with self.lock:
            if self._error is not None:
                self._tell_kept()
            target = self._taken()
            if self._written >= target or self._is_writing_here():
                return
            failures = self._failures
            self._hasten()
            done = self._wait_for(lambda: self._written >= target, timeout)
            if self._error is not None:
                self._tell_kept()
            elif not done and self._failures == failures:
                self._tell(self._timed_out(timeout))

    def close(self, timeout: float = PATIENCE) -> None:
        """Write what is left and close the file; a second call does nothing.

        Raises:
            OSError: an error was not told yet, or something is left that cannot be written; a note
                says how many records are lost.
        """
        with self.lock:
            if self.closed:
                return
            self.closed = True
            if self._is_writing_here():
                return  # that call, or the thread, writes the rest and closes the file
            thread = self._thread
            if thread is None:
                try:
                    self._alone(self._write_here)
                except OSError as failure:
                    self._error = failure
            else:
                self._changed.notify_all()
                if not self._changed.wait_for(lambda: self._thread is None, timeout):
                    self._error = self._timed_out(timeout)
            lost = len(self._waiting) + self.dropped
            error = self._kept()
            # A thread that hangs in a write finds nothing left, and ends.
            self._waiting.clear()
            self._bytes = 0
        if thread is not None and self._thread is None:
            thread.join()
        if error is not None or lost:
            self._tell(error or OSError(errno.EIO, "the queue was full", str(self.logdir)), lost)

    def reopen(self) -> None:
        """Take records again after `close`, for a new file."""
        with self.lock:
            if self.closed and self._thread is None:
                self._reset()
                self.closed = False
                self.dropped = 0
                self._file.path = None

    def forget(self) -> None:
        """Leave file, thread and records to the process that forked this one."""
        self._reset()
        self._window = 0.0
        self._file.is_first = False
        self._file.path = None
        self._file.abandon()

    # -- for the callers' side, under the lock

    def _taken(self) -> int:
        """How many records were taken so far."""
        return self._written + len(self._waiting)

    def _is_writing_here(self) -> bool:
        """Whether this call came in the middle of writing, which goes on only after it."""
        return self._works or self._thread is threading.current_thread()

    def _alone(self, work: Callable[[], None]) -> None:
        """Do this, unless the call came in the middle of such work, which sees to what is left."""
        if self._works:
            return
        self._works = True
        try:
            work()
        finally:
            self._works = False
            if self.closed and self._thread is None:
                self._file.abandon()

    def _start(self) -> None:
        """Have the records written: by the thread, or here where there is none."""
        self._file.open()
        if self._window and self._thread is None:
            thread = threading.Thread(target=self._run, name="summaries-writer", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                self._window = 0.0  # no thread to be had: at interpreter exit, say
            else:
                self._thread = thread
        if self._thread is None:
            self._write_here()
        else:
            self._changed.notify_all()
            self._idle = False

    def _hasten(self) -> None:
        """Have the records written now."""
        if self._thread is None:
            try:
                self._alone(self._start)
            except OSError as error:
                self._note(error)
        self._hurry = True
        self._changed.notify_all()

    def _make_room(self, size: int) -> bool:
        """Wait until the record fits; whether it does."""
        if self._stalled or (self._failures and self._on_error == "warn"):
            return False

        def fits() -> bool:
            return not self._waiting or self._bytes + size <= self._max_bytes

        if fits() or self._is_writing_here():
            return True
        self._hasten()
        done = self._wait_for(fits, PATIENCE)
        if self._error is not None:
            self._tell_kept()
            return False
        if not done:
            self._tell(self._timed_out(PATIENCE))
            self._stalled = True  # the next ones need not wait as long again
        return done

    def _wait_for(self, done: Callable[[], bool], timeout: float) -> bool:
        """Wait, but not beyond an error; whether it is done."""
        failures = self._failures

        def over() -> bool:
            return done() or self._error is not None or self._failures > failures

        self._changed.wait_for(over, timeout)
        return done()

    def _take_back(self) -> None:
        """Forget the newest record."""
        self._bytes -= len(self._waiting.pop())

    def _write_here(self) -> None:
        while self._waiting:
            batch = self._front()
            try:
                self._file.write(batch)
            except OSError as error:
                self._remove(_written(error))
                raise
            self._remove(len(batch))
        self._failures = 0

    def _tell_kept(self) -> None:
        if (error := self._kept()) is not None:
            self._tell(error)

    def _kept(self) -> Exception | None:
        error, self._error = self._error, None
        return error

    def _tell(self, error: Exception, lost: int = 0) -> None:
        """Raise the error, or warn of it."""
        note = f"{lost} events for {self.logdir} are lost"
        if self._on_error == "raise":
            if lost:
                error.add_note(note)
            raise error
        warn(f"{error}; {note if lost else 'what cannot be kept is dropped'}")

    def _timed_out(self, timeout: float) -> TimeoutError:
        message = f"the event file was not written within {timeout:g} s"
        return TimeoutError(errno.ETIMEDOUT, message, str(self.path or self.logdir))

    # -- for the side of the file

    def _front(self) -> list[bytes]:
        size = 0
        batch = []
        for index in range(len(self._waiting)):  # an iterator would not let a handler add
            data = self._waiting[index]
            batch.append(data)
            size += len(data)
            if size >= _BATCH_BYTES:
                break
        return batch

    def _remove(self, count: int) -> None:
        """Let go of records that are in the file."""
        for _ in range(count if self._waiting else 0):  # else `close` has given up waiting
            self._bytes -= len(self._waiting.popleft())
        self._written += count
        if not self._waiting:
            self._bytes = 0  # whatever Ctrl-C left uncounted

    def _note(self, error: Exception) -> None:
        """Keep an error for the next call; of failures in a row one warning is enough."""
        self._failures += 1
        if self._on_error == "raise" or self._failures == 1 or self.closed:
            self._error = error

    def _run(self) -> None:
        with self.lock:
            if self._thread is not threading.current_thread():
                return  # Ctrl-C cut short the call that started this thread
        try:
            while batch := self._next_batch():
                failure: OSError | None = None
                try:
                    self._file.write(batch)
                except OSError as error:
                    failure = error
                if not self._settle(_written(failure) if failure else len(batch), failure):
                    break
        except Exception as error:  # noqa: BLE001 - the next call raises it
            with self.lock:
                self._note(error)
        finally:
            with self.lock:
                if self.closed:
                    self._file.abandon()
                self._thread = None
                self._idle = True
                self._changed.notify_all()

    def _next_batch(self) -> list[bytes]:
        """The next records to write, once it is time; none when the thread has to end."""
        with self.lock:
            if self._written >= self._round_end or self._failures:
                self._gather()
                self._round_end = self._taken()
                self._hurry = False
            return self._front()

    def _gather(self) -> None:
        """Wait for a record and then for those that come soon after it."""
        while not self._waiting and not self.closed:
            self._idle = True
            self._changed.wait()
        self._idle = False
        pause = _RETRY if self._failures else self._window
        end = time.monotonic() + pause
        while not self._hurry and not self.closed and (left := end - time.monotonic()) > 0:
            self._changed.wait(left)

    def _settle(self, written: int, failure: OSError | None) -> bool:
        """Note how the write went; whether the thread goes on."""
        with self.lock:
            self._remove(written)
            if failure is not None:
                self._note(failure)
            else:
                self._failures = 0
                self._stalled = False
            self._changed.notify_all()
            return failure is None or not self.closed


def _written(error: OSError) -> int:
    """How many records of a batch are in the file, although the write failed."""
    return error.written if isinstance(error, WriteError) else 0


def close_at_exit(queue: EventQueue) -> None:
    """Close a queue whose log is gone, or whose interpreter ends."""
    queue.close(_PATIENCE_AT_EXIT)


def register(queue: EventQueue) -> None:
    """Have the queue seen by `is_written_to` and made ready after a fork."""
    _queues.add(queue)


def is_written_to(logdir: Path, other_than: EventQueue) -> bool:
    """Whether another event log, in this process or another, is open in the directory now.

    A log of another process is seen once it has written its first event, and only where the
    system has `flock`.
    """
    real = logdir.resolve()
    others = [queue for queue in list(_queues) if not queue.closed and queue is not other_than]
    return any(queue.logdir.resolve() == real for queue in others) or has_live_file(real)


def _may_end_silently() -> bool:
    """Whether this process is a child that may end without its exit handlers being run."""
    process = sys.modules.get("multiprocessing.process")
    return _is_fork or (process is not None and process.parent_process() is not None)


def _after_fork() -> None:
    """Make all queues those of a child."""
    global _is_fork
    _is_fork = True
    for queue in list(_queues):
        queue.forget()


_is_fork = False
_queues: weakref.WeakSet[EventQueue] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
