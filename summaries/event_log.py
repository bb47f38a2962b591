"""Event logs: summaries and graphs, each with a step and a time, into the files of a directory."""

import errno
import os
import weakref
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, SupportsFloat

from summaries import _proto
from summaries._warn import warn
from summaries.event_file import EventFile, has_live_file
from summaries.records import frame
from summaries.steps import Step, check_step, check_wall_time

_FILE_VERSION = "brain.Event:2"


class GraphNode(NamedTuple):
    """An operation of a graph; `inputs` names tensors as `x` or `x:1`, control inputs as `^x`."""

    name: str
    op_type: str
    inputs: tuple[str, ...] = ()
    device: str = ""


class EventLog:
    """Writes events for TensorBoard into a directory, in one file that the first event creates.

    What was added is in the file when the call returns (see `flush_secs`), after `close`, at the
    end of a `with` block, when the log is collected and when the interpreter exits. All methods may
    be called from any thread. In a forked child the log goes on in a file of its own.

    Args:
        logdir: the directory of one run; created if need be, `~` is expanded.
        filename_suffix: ends the name of the file.
        flush_secs: how long events may be gathered, until the next call, before they are written
            together; 0 writes each as it comes.
        fsync: whether `flush` and `close` also wait for the disk, against a power failure.
        start_step: the step at which a resumed run goes on; TensorBoard then drops what earlier
            files of the directory hold from this step on.

    Raises:
        OSError: the directory cannot be created or written.
        ValueError: an argument is out of its range, or the directory is a URL.

    Another log that is open in the same directory is warned of; each writes a file of its own.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        *,
        filename_suffix: str = "",
        flush_secs: float = 0.0,
        fsync: bool = False,
        start_step: Step | None = None,
    ) -> None:
        if not flush_secs >= 0:
            raise ValueError(f"flush_secs must be at least 0, not {flush_secs!r}")
        if Path(filename_suffix).name != filename_suffix:
            raise ValueError(f"filename_suffix must have no path separator: {filename_suffix!r}")
        self._start_step = None if start_step is None else check_step(start_step)
        self._last_step = self._start_step or 0
        self._logdir = _directory(logdir)
        if has_live_file(self._logdir):
            warn(
                f"another event log is open in {self._logdir}: each writes a file of its own, and "
                "TensorBoard may need --reload_multifile=true to follow both while they grow"
            )
        # The file must not hold the log, or the log would never be collected.
        start = self._start_step
        self._file = EventFile(
            self._logdir,
            filename_suffix,
            flush_secs,
            fsync,
            lambda inherited: _first_records(None if inherited else start),
        )
        self._finalizer = weakref.finalize(self, self._file.close)

    @property
    def logdir(self) -> Path:
        """The directory."""
        return self._logdir

    @property
    def path(self) -> Path | None:
        """The file, or None before the first event."""
        return self._file.path

    @property
    def last_step(self) -> int:
        """The step of the newest event: what `step=None` means."""
        return self._last_step

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._file.closed

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
        if not isinstance(summary, bytes | bytearray | memoryview):
            raise TypeError(f"a summary is given as bytes, not {type(summary).__name__}")
        event = _proto.Event()
        try:
            event.summary.MergeFromString(bytes(summary))
        except _proto.data_error() as error:
            raise ValueError(f"the bytes are not a Summary message: {error}") from error
        self._add(event, step, wall_time, skip=not event.summary.value)

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
        self._add(_proto.Event(graph_def=graph.SerializeToString()), step, wall_time)

    def add_session_start(self, step: Step) -> None:
        """Mark the step at which a session starts: TensorBoard drops older events from there on.

        The same as `start_step`, for a step that is known only after the log was opened.

        Raises:
            OSError, TypeError, ValueError: as `add_summary` does.
        """
        with self._file.lock:
            for event in _start_marks(check_step(step)):
                self._file.append(event.SerializeToString())
                self._last_step = event.step

    def flush(self) -> None:
        """Return when every event added so far is in the file, for any process to read.

        Raises:
            OSError: they cannot be written.
        """
        self._file.flush()

    def close(self) -> None:
        """Write what is left and close the file; a second call does nothing.

        Raises:
            OSError: something was left and cannot be written; it is lost.
        """
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _add(
        self,
        event: Any,
        step: Step | None,
        wall_time: SupportsFloat | None,
        *,
        skip: bool = False,
    ) -> None:
        event.wall_time = check_wall_time(wall_time)
        checked = None if step is None else check_step(step)
        with self._file.lock:
            event.step = self._last_step if checked is None else checked
            if self._file.closed or not skip:
                self._file.append(event.SerializeToString())
                self._last_step = event.step


def _directory(logdir: str | os.PathLike[str]) -> Path:
    """The directory as a path, created if need be and writable."""
    name = os.fspath(logdir)
    if "://" in name:
        raise ValueError(f"logdir must be a local directory, not {name!r}")
    # Absolute, since the file is made later, perhaps after a change of directory.
    path = Path(name).expanduser().absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"the directory cannot be made: {error.strerror}"
        raise type(error)(error.errno, message, str(path)) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "the directory cannot be written", str(path))
    return path


def _first_records(start_step: int | None) -> bytes:
    """The head of a file: the version of its format and, where a run goes on, its step."""
    events = [_proto.Event(wall_time=check_wall_time(None), file_version=_FILE_VERSION)]
    if start_step is not None:
        events += _start_marks(start_step)
    return b"".join(frame(event.SerializeToString()) for event in events)


def _start_marks(step: int) -> list[Any]:
    """Two equal marks: TensorBoard's own loader takes the first of a run as its beginning.

    The second one is what makes it drop later points, also where no earlier file has a mark.
    """
    mark = _proto.SessionLog(status=_proto.SessionLog.START)
    return [_proto.Event(wall_time=check_wall_time(None), step=step, session_log=mark)] * 2
