"""One event file: created at the first record, written whole records at a time, by one thread."""

import errno
import os
import re
import socket
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate, count
from pathlib import Path

from summaries.records import frame

if sys.platform != "win32":
    import fcntl

PREFIX = "events.out.tfevents."
_SECONDS = re.compile(re.escape(PREFIX) + r"(\d+)")
_counter = count()


class WriteError(OSError):
    """Some records were not written; `written` is how many of the first ones were."""

    def __init__(self, cause: OSError, path: str, written: int) -> None:
        super().__init__(cause.errno, f"events cannot be written: {cause.strerror}", path)
        self.written = written


class EventFile:
    """The file behind an event log. It has no lock: whoever shares it keeps the calls apart.

    After an error the file ends in a whole record, so the same records may be tried again; where
    that cannot be brought about, or the file is not under its name any more, the next attempt
    starts a new one.

    Args:
        logdir: the directory.
        suffix: ends the name.
        fsync: whether a write also waits for the disk, against a power failure.
        head: makes the records that a file begins with, given whether it is the first one here.
    """

    def __init__(
        self, logdir: Path, suffix: str, fsync: bool, head: Callable[[bool], list[bytes]]
    ) -> None:
        self.logdir = logdir
        self.path: Path | None = None
        self.is_first = True
        self._head = head
        self._suffix = suffix
        self._fsync = fsync
        self._fd: int | None = None

    def open(self) -> None:
        """Create the file, unless it is open.

        Raises:
            OSError: it cannot be created; the error names the directory.
        """
        if self._fd is not None:
            return
        try:
            self.path, self._fd = _create(self.logdir, self._suffix)
        except OSError as error:
            message = f"no event file can be created: {error.strerror}"
            raise OSError(error.errno, message, str(self.logdir)) from error
        _mark_live(self._fd)

    def write(self, records: Sequence[bytes]) -> None:
        """Write records; when this returns, any process can read them.

        Raises:
            WriteError: only some of them were written; it names the file.
            OSError: none was, as there is no such file; the error names it.
        """
        self.open()
        fd, path = self._fd, self.path
        assert fd is not None
        assert path is not None
        state = os.fstat(fd)
        if not _is_at(path, state):
            self.abandon()
            message = "the event file was deleted, or its directory moved"
            raise FileNotFoundError(errno.ENOENT, message, str(path))
        framed = [frame(data) for data in records]
        heads = [] if state.st_size else [*map(frame, self._head(self.is_first))]
        data = b"".join(heads + framed)
        done = 0
        try:
            while done < len(data):
                done += os.write(fd, data[done:] if done else data)
            if self._fsync:
                os.fsync(fd)
        except BaseException as error:
            # Readers stop at half a record, so nothing may ever follow one. After Ctrl-C nobody
            # counts what was written, so none is left.
            ends = [*accumulate(map(len, heads + framed))]
            whole = bisect_right(ends, done) if isinstance(error, OSError) else 0
            written = max(0, whole - len(heads))
            self.is_first = self.is_first and not written
            try:
                os.ftruncate(fd, state.st_size + (ends[whole - 1] if written else 0))
            except OSError:
                self.abandon()
            if isinstance(error, OSError):
                raise WriteError(error, str(path), written) from error
            raise
        self.is_first = False

    def abandon(self) -> None:
        """Close the file as it is."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def has_live_file(logdir: Path) -> bool:
    """Whether a process, this one too, writes to an event file of the directory now.

    It is seen once it has written its first event, and only where the system has `flock`.
    """
    return any(_is_live(path) for path in logdir.glob(f"{PREFIX}*"))


def _is_at(path: Path, state: os.stat_result) -> bool:
    """Whether the path still leads to the file with this state."""
    try:
        return os.path.samestat(path.stat(), state)
    except OSError:
        return False


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
