"""Event logs: summaries and graphs, each with a step and a time, into the files of a directory."""

import errno
import os
import time
import weakref
from collections.abc import Iterable
from numbers import Real
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self, SupportsFloat, get_args

from summaries import _proto, wire
from summaries._rank import is_chief
from summaries._signals import flush_at_sigterm
from summaries._warn import warn
from summaries.event_file import EventFile
from summaries.event_queue import (
    PATIENCE,
    WINDOW,
    EventQueue,
    OnError,
    close_at_exit,
    is_written_to,
    register,
)
from summaries.steps import Step, check_step, check_wall_time

_FILE_VERSION = "brain.Event:2"
_NEVER = 2**63 - 1


class GraphNode(NamedTuple):
    """An operation of a graph; `inputs` names tensors as `x` or `x:1`, control inputs as `^x`."""

    name: str
    op_type: str
    inputs: tuple[str, ...] = ()
    device: str = ""


class EventLog:
    """Writes events for TensorBoard into a directory, in one file that the first event creates.

    A thread writes: what was added is in the file within 0.2 s, after `flush`, after `close`, at
    the end of a `with` block, when the log is collected and when the interpreter exits. All methods
    may be called from any thread. In a forked child the log goes on in a file of its own, and there
    each event is in the file when its call returns.

    An error of the disk is raised by the next call (see `on_error`). Events that were taken before
    are kept and tried again every second; the one whose call raises is not taken.

    Each file begins with a session start, which TensorBoard wants in a run's first file before it
    heeds one in a later file. Without `start_step` it stands at the last possible step, where it
    hides nothing.

    Args:
        logdir: the directory of one run; created if need be, `~` is expanded.
        filename_suffix: ends the name of the file.
        flush_secs: how long events may be gathered, if that is less than 0.2 s; 0 has each event in
            the file when its call returns.
        fsync: whether writing also waits for the disk, against a power failure.
        start_step: the step at which a resumed run goes on; TensorBoard then drops what earlier
            files of the directory hold from this step on.
        on_error: "raise", or "warn" to have a warning for an error of the disk and go on: events
            that cannot be kept are dropped and counted. Errors on opening are always raised.
        max_bytes: how many bytes of events may wait; who would exceed it waits for the disk.
        write_to_disk: False writes nothing and makes no directory; None is False in a process that
            is not the first of its job (RANK, OMPI_COMM_WORLD_RANK or PMI_RANK is above 0).
        flush_on_sigterm: whether SIGTERM writes what waits before it does what it did before.

    Raises:
        OSError: the directory cannot be created or written.
        TypeError: an argument is of the wrong kind.
        ValueError: an argument is out of its range, the directory is a URL or no name, or
            `flush_on_sigterm` is asked for outside the main thread.

    Another log that is open in the same directory is warned of; each writes a file of its own.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        *,
        filename_suffix: str = "",
        flush_secs: float = 2.0,
        fsync: bool = False,
        start_step: Step | None = None,
        on_error: OnError = "raise",
        max_bytes: int = 8 << 20,
        write_to_disk: bool | None = None,
        flush_on_sigterm: bool = False,
    ) -> None:
        for name, number in (("flush_secs", flush_secs), ("max_bytes", max_bytes)):
            if not isinstance(number, Real):
                raise TypeError(f"{name} must be a number, not {number!r:.60}")
        if not flush_secs >= 0:
            raise ValueError(f"flush_secs must be at least 0, not {flush_secs!r}")
        _check_name("filename_suffix", filename_suffix)
        if Path(filename_suffix).name != filename_suffix:
            raise ValueError(f"filename_suffix must have no path separator: {filename_suffix!r}")
        if on_error not in get_args(OnError):
            raise ValueError(f"on_error must be 'raise' or 'warn', not {on_error!r}")
        if not max_bytes >= 1:
            raise ValueError(f"max_bytes must be at least 1, not {max_bytes!r}")
        start = None if start_step is None else check_step(start_step)
        self._last_step = start or 0
        self._logdir = _local(logdir)
        self._writes = is_chief() if write_to_disk is None else write_to_disk
        # Nothing that lives longer may hold the log, or the log would never be collected.
        file = EventFile(
            self._logdir, filename_suffix, fsync, lambda first: _head(start if first else None)
        )
        self._queue = EventQueue(file, min(flush_secs, WINDOW), max_bytes, on_error)
        if not self._writes:
            return
        _make(self._logdir)
        register(self._queue)
        if is_written_to(self._logdir, other_than=self._queue):
            warn(
                f"another event log is open in {self._logdir}: each writes a file of its own, and "
                "TensorBoard may need --reload_multifile=true to follow both while they grow"
            )
        if flush_on_sigterm:
            flush_at_sigterm(self._queue)
        self._finalizer = weakref.finalize(self, close_at_exit, self._queue)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"the event log of {self._logdir} cannot be copied or pickled: open another one, in "
            "each process its own"
        )

    @property
    def logdir(self) -> Path:
        """The directory."""
        return self._logdir

    @property
    def path(self) -> Path | None:
        """The file, or None before the first event."""
        return self._queue.path

    @property
    def last_step(self) -> int:
        """The step of the newest event: what `step=None` means."""
        return self._last_step

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._queue.closed

    @property
    def dropped(self) -> int:
        """How many events were dropped, under `on_error="warn"`, since the log was opened."""
        return self._queue.dropped

    @property
    def writes(self) -> bool:
        """Whether this process writes, see `write_to_disk`."""
        return self._writes

    def add_summary(
        self, summary: bytes, step: Step | None = None, wall_time: SupportsFloat | None = None
    ) -> None:
        """Write the bytes of a Summary message as one event; one without values writes nothing.

        Args:
            summary: what the `encode_` functions return, or several of these joined.
            step: an integer in [0, 2**63) of any kind; None is the step of the newest event.
            wall_time: seconds since 1970; None is now.

        Raises:
            TypeError: an argument is of the wrong kind.
            ValueError: the step or time is out of range, the bytes are no Summary, or the log is
                closed.
            OSError: the file cannot be written; the message names it.
        """
        self.add_encoded(check_summary(summary), step, wall_time)

    def add_encoded(
        self, summary: bytes, step: Step | None = None, wall_time: SupportsFloat | None = None
    ) -> None:
        """As `add_summary`, of bytes that are known to be a Summary message: they are not parsed.

        Raises:
            OSError, TypeError, ValueError: as `add_summary` does.
        """
        seconds = check_wall_time(wall_time)
        checked = None if step is None else check_step(step)
        if not self._writes:
            return
        with self._queue.lock:
            number = self._last_step if checked is None else checked
            if summary or self._queue.closed:
                self._queue.append(wire.event(seconds, number, summary))
                self._last_step = number

    def add_graph(
        self,
        nodes: Iterable[tuple[str, str, Iterable[str], str]],
        step: Step | None = None,
        wall_time: SupportsFloat | None = None,
    ) -> None:
        """Write a graph for TensorBoard's graph view.

        Args:
            nodes: for each operation its name, type, inputs and device, as in `GraphNode`.
            step: as in `add_summary`.
            wall_time: as in `add_summary`.

        Raises:
            OSError, TypeError, ValueError: as `add_summary` does.
        """
        messages = [
            _proto.NodeDef(name=name, op=op_type, input=list(inputs), device=device)
            for name, op_type, inputs, device in nodes
        ]
        graph = _proto.GraphDef(node=messages)
        self.add_event(_proto.Event(graph_def=graph.SerializeToString()), step, wall_time)

    def add_event(
        self, event: Any, step: Step | None = None, wall_time: SupportsFloat | None = None
    ) -> None:
        """Write an Event message of tensorboardX, whose step and wall time are set.

        Raises:
            OSError, TypeError, ValueError: as `add_summary` does.
        """
        event.wall_time = check_wall_time(wall_time)
        checked = None if step is None else check_step(step)
        if self._writes:
            with self._queue.lock:
                event.step = self._last_step if checked is None else checked
                self._queue.append(event.SerializeToString())
                self._last_step = event.step

    def add_session_start(self, step: Step) -> None:
        """Mark the step at which a session starts: TensorBoard drops older events from there on.

        The same as `start_step`, for a step that is known only after the log was opened.

        Raises:
            OSError, TypeError, ValueError: as `add_summary` does.
        """
        number = check_step(step)
        if self._writes:
            with self._queue.lock:
                for mark in _start_marks(number):
                    self._queue.append(mark)
                self._last_step = number

    def flush(self, timeout: float = PATIENCE) -> None:
        """Return when every event added so far is in the file, for any process to read.

        Raises:
            OSError: they cannot be written.
            TimeoutError: the disk took longer than `timeout` seconds.
        """
        self._queue.flush(timeout)

    def close(self, timeout: float = PATIENCE) -> None:
        """Write what is left and close the file; a second call does nothing.

        Raises:
            OSError: an error was not told yet, or something was left and cannot be written; a note
                on the error tells how many events are lost.
            TimeoutError: the disk took longer than `timeout` seconds.
        """
        self._queue.close(timeout)

    def reopen(self) -> None:
        """Go on in a new file after `close`; an open log is left as it is."""
        if self._writes:
            _make(self._logdir)
        self._queue.reopen()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def check_summary(summary: bytes) -> bytes:
    """The bytes, which are a Summary message.

    Raises:
        TypeError: they are no bytes.
        ValueError: they are no such message.
    """
    if not isinstance(summary, bytes | bytearray | memoryview):
        raise TypeError(f"a summary is given as bytes, not {type(summary).__name__}")
    data = bytes(summary)
    try:
        _proto.Summary.FromString(data)
    except _proto.data_error() as error:
        raise ValueError(f"the bytes are not a Summary message: {error}") from error
    return data


def _local(logdir: str | os.PathLike[str]) -> Path:
    """The directory as an absolute path."""
    if not isinstance(logdir, str | os.PathLike):
        raise TypeError(f"logdir must be a path, not {type(logdir).__name__} {logdir!r:.60}")
    name = os.fsdecode(logdir)
    _check_name("logdir", name)
    if "://" in name:
        raise ValueError(f"logdir must be a local directory, not {name!r}")
    try:
        # Absolute, since the file is made later, perhaps after a change of directory.
        return Path(name).expanduser().absolute()
    except RuntimeError as error:
        raise ValueError(f"logdir {name!r} names no user's directory: {error}") from error


def _check_name(argument: str, name: str) -> None:
    """Refuse what no file can be called."""
    if not isinstance(name, str):
        raise TypeError(f"{argument} must be a string, not {type(name).__name__} {name!r:.60}")
    try:
        usable = b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise ValueError(f"{argument} must be a name that a file can have, not {name!r}")


def _make(path: Path) -> None:
    """Create the directory if need be; it is writable then."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"the directory cannot be made: {error.strerror}"
        raise type(error)(error.errno, message, str(path)) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "the directory cannot be written", str(path))


def _head(start_step: int | None) -> list[bytes]:
    """The head of a file: the version of its format, and the start of its session."""
    version = wire.file_version(time.time(), _FILE_VERSION)
    marks = _start_marks(start_step) if start_step is not None else _start_marks(_NEVER)[:1]
    return [version, *marks]


def _start_marks(step: int) -> list[bytes]:
    """Two equal marks: TensorBoard's own loader takes the first of a run as its beginning.

    The second one is what makes it drop later points, also where no earlier file has a mark.
    """
    return [wire.session_start(time.time(), step)] * 2
