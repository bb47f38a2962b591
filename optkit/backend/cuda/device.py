"""A device as a session sees it: which one, on which stream, and what a fault on it means."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from optkit.backend.cuda.launch import forget_tables
from optkit.backend.cuda.memory import release_memory
from optkit.errors import InternalError

__all__ = ["BrokenStateError", "Device", "is_fault", "wait_for_all"]


class BrokenStateError(RuntimeError):
    """Variables could not be written to the end, so what they hold is unknown."""


class Device:
    """Where a session's arrays are and where its work is queued.

    Args:
        index: the device; the current one, at each run, if None.
        stream: None queues work on the stream that is current when the session runs, after what
            runs have queued on others; "own" on a non-blocking stream of its own; else a
            `cupy.cuda.Stream`.

    Attributes:
        lost: the fault that ended it, or None.
        used: whether anything has run on it.

    Raises:
        ValueError: `stream` is something else.
    """

    def __init__(self, index: int | None = None, stream: Any = None) -> None:
        if not (stream is None or stream == "own" or hasattr(stream, "ptr")):
            raise ValueError(f'stream: expected None, "own" or a cupy.cuda.Stream, got {stream!r}')
        self.index = index
        self.lost: BaseException | None = None
        self.used = False
        self._stream = stream
        self._last: Any = None  # the stream of the run before

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """The device and the stream, as the current ones.

        A stream that is not the current one waits for what is queued there, such as the making of
        arrays that are fed; and the current one then waits for it, before it changes them.

        Raises:
            InternalError: the device has failed, now or before; the cause is attached.
        """
        if self.lost is not None:
            raise InternalError(
                "the session has ended: its device failed before, and what the variables hold is "
                f"unknown ({_told(self.lost)}); start a new process and restore a checkpoint"
            ) from self.lost
        self.used = True
        try:
            with self._entered():
                yield
        except Exception as error:
            cause = _fault_in(error)
            if cause is None:
                raise
            self.lost = cause
            raise InternalError(
                f"the device failed, which ends the session ({_told(cause)}); kernels run on their "
                "own, so an earlier one than where this was found may be at fault: "
                "CUDA_LAUNCH_BLOCKING=1 in the environment finds the place"
            ) from error

    @contextlib.contextmanager
    def _entered(self) -> Iterator[None]:
        import cupy

        with contextlib.ExitStack() as stack:
            if self.index is not None:
                stack.enter_context(cupy.cuda.Device(self.index))
            outer = cupy.cuda.get_current_stream()
            if self._stream is None:
                last, self._last = self._last, outer
                if last is not None and last.ptr != outer.ptr:
                    outer.wait_event(last.record())
                yield
                return
            if self._stream == "own":
                self._stream = cupy.cuda.Stream(non_blocking=True)
            self._stream.wait_event(outer.record())
            try:
                with self._stream:
                    yield
            finally:
                # A device that is lost takes no events; the error that tells is on its way.
                with contextlib.suppress(RuntimeError):
                    outer.wait_event(self._stream.record())

    def synchronize(self) -> None:
        """Wait until all that was queued is done.

        Raises:
            InternalError: it has failed; the cause is attached.
        """
        with self.active():
            wait_for_all()

    def release(self) -> None:
        """Give the memory that no array holds any more back to the device."""
        if self.used and self.lost is None:
            with self.active():
                forget_tables()
                release_memory()


_FAULTS = frozenset(
    {
        "assert",
        "devicesunavailable",
        "eccuncorrectable",
        "hardwarestackerror",
        "illegaladdress",
        "illegalinstruction",
        "invalidaddressspace",
        "invalidpc",
        "launchfailed",
        "launchfailure",
        "launchtimeout",
        "misalignedaddress",
        "unknown",
    }
)
"""Faults by their names in the runtime and the driver, without `cudaError` and underscores."""


def wait_for_all() -> None:
    """Wait until what is queued on the current stream is done."""
    import cupy

    cupy.cuda.get_current_stream().synchronize()


def is_fault(error: BaseException) -> bool:
    """Whether an error says that the device is lost to this process.

    Such an error is found by whoever waits next, comes again at every call, and leaves memory in an
    unknown state. One about an argument, or memory that ran out, is not of this kind.
    """
    return _fault_in(error) is not None


def _fault_in(error: BaseException) -> BaseException | None:
    """The device's fault among an error and its causes."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, BrokenStateError):
            return seen.__cause__ or seen
        if type(seen).__name__ in ("CUDARuntimeError", "CUDADriverError"):
            name = str(seen).partition(":")[0].strip().lower().replace("_", "")
            if name.removeprefix("cudaerror") in _FAULTS:
                return seen
        seen = seen.__cause__
    return None


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
