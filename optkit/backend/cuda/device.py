"""A device as a session sees it: which one, on which stream, and what a fault on it means."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["Device", "is_fault"]


class Device:
    """Where a session's arrays are and where its work is queued.

    Args:
        index: the device; the current one, at each run, if None.
        stream: None queues work on the stream that is current when the session runs; "own" on a
            non-blocking stream of its own; else a `cupy.cuda.Stream`.

    Raises:
        ValueError: `stream` is something else.
    """

    def __init__(self, index: int | None = None, stream: Any = None) -> None:
        if not (stream is None or stream == "own" or hasattr(stream, "ptr")):
            raise ValueError(f'stream: expected None, "own" or a cupy.cuda.Stream, got {stream!r}')
        self.index = index
        self._stream = stream

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """The device and the stream, as the current ones.

        A stream that is not the current one waits for what is queued there, such as the making of
        arrays that are fed; and the current one then waits for it, before it changes them.
        """
        import cupy

        if self.index is None and self._stream is None:
            yield
            return
        with contextlib.ExitStack() as stack:
            if self.index is not None:
                stack.enter_context(cupy.cuda.Device(self.index))
            if self._stream is None:
                yield
                return
            if self._stream == "own":
                self._stream = cupy.cuda.Stream(non_blocking=True)
            outer = cupy.cuda.get_current_stream()
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
            cupy.cuda.runtime.CUDARuntimeError: it has failed.
        """
        import cupy

        with self.active():
            cupy.cuda.get_current_stream().synchronize()


_FAULTS = frozenset(
    {
        "cudaErrorIllegalAddress",
        "cudaErrorLaunchTimeout",
        "cudaErrorAssert",
        "cudaErrorHardwareStackError",
        "cudaErrorIllegalInstruction",
        "cudaErrorMisalignedAddress",
        "cudaErrorInvalidAddressSpace",
        "cudaErrorInvalidPc",
        "cudaErrorLaunchFailure",
        "cudaErrorECCUncorrectable",
        "cudaErrorDevicesUnavailable",
        "cudaErrorUnknown",
    }
)


def is_fault(error: BaseException) -> bool:
    """Whether an error says that the device is lost to this process.

    Such an error is found by whoever waits next, comes again at every call, and leaves memory in an
    unknown state. One about an argument, or memory that ran out, is not of this kind.
    """
    seen: BaseException | None = error
    while seen is not None:
        if type(seen).__name__ in ("CUDARuntimeError", "CUDADriverError"):
            name = str(seen).partition(":")[0].strip()
            driver = name.replace("CUDA_ERROR_", "cudaError").replace("_", "").lower()
            if driver in {fault.lower() for fault in _FAULTS}:
                return True
        seen = seen.__cause__
    return False
