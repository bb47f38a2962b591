"""One event file: created at the first record, written whole records at a time."""

import errno
import os
import re
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

from summaries.records import frame

if sys.platform != "win32":
    import fcntl

PREFIX = "events.out.tfevents."
_BUFFER_BYTES = 1 << 16
_SECONDS = re.compile(re.escape(PREFIX) + r"(\d+)")
_counter = count()


class EventFile:
    """The file behind an event log: framing, buffer, errors, forks. Its lock guards all of it.

    A record that `append` accepted is in the file at once where `flush_secs` is 0, else at the
    latest with the first call after that many seconds, a full buffer, `flush` or `close`. A forked
    child gets a file of its own, without what the parent has in its buffer.
    """

    def __init__(
        self,
        logdir: Path,
        suffix: str,
        flush_secs: float,
        fsync: bool,
        first_records: Callable[[bool], bytes],
    ) -> None:
        self.logdir = logdir
        self.path: Path | None = None
        self.lock = threading.RLock()
        self.closed = False
        self.inherited = False
        self._suffix = suffix
        self._flush_secs = 0.0 if _may_end_silently() else flush_secs
        self._fsync = fsync
        self._first_records = first_records
        self._fd: int | None = None
        self._buffer = bytearray()
        self._oldest = 0.0
        _files.add(self)

    def append(self, data: bytes) -> None:
        """Take one record. If it has to be written and cannot be, the record is not kept.

        Raises:
            OSError: the directory or the file cannot be written, or the file was deleted.
            ValueError: the file is closed.
        """
        with self.lock:
            if self.closed:
                raise ValueError(f"the event log of {self.logdir} is closed")
            if not self._buffer:
                self._oldest = time.monotonic()
            record = frame(data)
            self._buffer += record
            if self._is_due():
                try:
                    self._drain()
                except OSError:
                    del self._buffer[-len(record) :]
                    raise

    def flush(self) -> None:
        """Return when every record taken so far is in the file, for any process to read."""
        with self.lock:
            if self._buffer:
                self._drain()
            if self._fsync and self._fd is not None:
                os.fsync(self._fd)

    def close(self) -> None:
        """Flush and close the file; a second call does nothing."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
            try:
                self.flush()
            finally:
                self._buffer.clear()
                self._abandon()

    def forget(self) -> None:
        """Leave the file and the buffer to the process that forked this one."""
        self.lock = threading.RLock()  # a thread that is not here may hold the old one
        self.path = None
        self.inherited = True
        self._flush_secs = 0.0
        self._buffer.clear()
        self._abandon()

    def _is_due(self) -> bool:
        return (
            len(self._buffer) >= _BUFFER_BYTES
            or time.monotonic() - self._oldest >= self._flush_secs
        )

    def _drain(self) -> None:
        fd = self._descriptor()
        state = os.fstat(fd)
        if not state.st_nlink:
            raise FileNotFoundError(errno.ENOENT, "the event file was deleted", str(self.path))
        data = bytes(self._buffer)
        if not state.st_size:
            data = self._first_records(self.inherited) + data
        try:
            written = 0
            while written < len(data):
                written += os.write(fd, data[written:])
        except OSError as error:
            # Readers stop at half a record, so nothing may ever follow one.
            try:
                os.ftruncate(fd, state.st_size)
            except OSError:
                self._abandon()
            message = f"events cannot be written: {error.strerror}"
            raise OSError(error.errno, message, str(self.path)) from error
        self._buffer.clear()

    def _descriptor(self) -> int:
        if self._fd is None:
            try:
                self.path, self._fd = _create(self.logdir, self._suffix)
            except OSError as error:
                message = f"no event file can be created: {error.strerror}"
                raise OSError(error.errno, message, str(self.logdir)) from error
            _mark_live(self._fd)
        return self._fd

    def _abandon(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def has_live_file(logdir: Path) -> bool:
    """Whether some event log, in this process or another, writes to the directory now.

    A log of another process is seen once it has written its first event, and only where the
    system has `flock`.
    """
    real = logdir.resolve()
    if any(file.logdir.resolve() == real for file in list(_files) if not file.closed):
        return True
    return any(_is_live(path) for path in logdir.glob(f"{PREFIX}*"))


def _create(logdir: Path, suffix: str) -> tuple[Path, int]:
    """A new file, and its descriptor, whose name sorts behind every other one in the directory.

    TensorBoard reads the files of a run in the order of their names, and never goes back.
    """
    seconds = int(time.time())
    for name in os.listdir(logdir):  # noqa: PTH208 - names are enough
        found = _SECONDS.match(name)
        if found:
            seconds = max(seconds, int(found[1]) + 1)
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_BINARY", 0)
    while True:
        unique = f"{seconds:010d}.{host}.{os.getpid()}.{next(_counter)}"
        path = logdir / f"{PREFIX}{unique}{suffix}"
        try:
            return path, os.open(path, flags, 0o666)
        except FileExistsError:
            continue  # another machine with this host's name


def _mark_live(fd: int) -> None:
    """Hold a lock that the system drops when this process ends, however it ends."""
    if sys.platform != "win32":
        # Some file systems have no locks; this one only serves a warning.
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_live(path: Path) -> bool:
    if sys.platform != "win32":
        try:
            fd = os.open(path, os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            os.close(fd)
    return False


def _may_end_silently() -> bool:
    """Whether this process is a child that may end without its exit handlers being run."""
    process = sys.modules.get("multiprocessing.process")
    return _is_fork or (process is not None and process.parent_process() is not None)


def _after_fork() -> None:
    global _is_fork
    _is_fork = True
    for file in list(_files):
        file.forget()


_is_fork = False
_files: weakref.WeakSet[EventFile] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
