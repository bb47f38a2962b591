"""Device arrays to the host, many at once.

Small arrays are put side by side by one launch and travel as one block into pinned memory; the
host waits once. Large ones travel on their own, as packing would cost as much as it saves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optkit.backend.cuda.launch import THREADS, function
from optkit.backend.cuda.sources import source

__all__ = ["Transfer", "is_device_array"]

SMALL = 1 << 16
"""Bytes up to which an array is packed with others."""
_BATCH = 128
"""Arrays a launch packs: as many as its table holds."""
_TABLE = np.dtype(
    [("sources", np.uint64, _BATCH), ("starts", np.int32, _BATCH), ("sizes", np.int32, _BATCH)]
)
_UNIT = 16
"""Bytes at whose multiples packed arrays start."""


def is_device_array(value: Any) -> bool:
    """Whether a value is an array of CuPy's."""
    return type(value).__module__.partition(".")[0] == "cupy"


class Transfer:
    """Arrays on their way to the host.

    They are what they were when the transfer was started, in the order of the current stream:
    what is done to them afterwards does not show.

    Args:
        arrays: device arrays, and others, which are passed through.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        import cupy

        self._results: list[Any] = list(arrays)
        small: list[tuple[int, Any]] = []
        large: list[tuple[int, Any]] = []
        for i, array in enumerate(arrays):
            if is_device_array(array):
                if array.nbytes > SMALL:
                    large.append((i, array))
                else:
                    # Not `ascontiguousarray`, which gives shape () an axis.
                    small.append((i, array if array.flags.c_contiguous else array.copy("C")))
        self._event: Any = None
        self._small = small
        self._starts: list[int] = []
        if small:
            self._pack(cupy)
        for i, array in large:
            self._results[i] = array.get()

    def _pack(self, cupy: Any) -> None:
        total = 0
        for _, array in self._small:
            self._starts.append(total)
            total += -(-array.nbytes // _UNIT) * _UNIT
        for i, array in self._small:
            self._results[i] = np.empty(array.shape, array.dtype)
        if len(self._small) == 1:
            block = self._small[0][1].reshape(-1).view(np.uint8)
        else:
            block = cupy.empty(max(total, 1), np.uint8)
            kernel = function(source("pack"), "pack")
            for first in range(0, len(self._small), _BATCH):
                batch = self._small[first : first + _BATCH]
                table = np.zeros((), _TABLE)
                table["sources"][: len(batch)] = [array.data.ptr for _, array in batch]
                table["starts"][: len(batch)] = self._starts[first : first + _BATCH]
                table["sizes"][: len(batch)] = [array.nbytes for _, array in batch]
                kernel((len(batch),), (THREADS,), (table, block))
        if not block.size:
            return
        stream = cupy.cuda.get_current_stream()
        self._memory = cupy.cuda.alloc_pinned_memory(block.nbytes)
        self._bytes = np.frombuffer(self._memory, np.uint8, block.nbytes)
        block.get(out=self._bytes, stream=stream, blocking=False)
        self._event = stream.record()

    def wait(self) -> list[Any]:
        """NumPy arrays, the caller's own, in the order of the arrays.

        Raises:
            cupy.cuda.runtime.CUDARuntimeError: a kernel that came before has failed.
        """
        if self._event is not None:
            self._event.synchronize()
            for (i, array), start in zip(self._small, self._starts, strict=True):
                target = self._results[i]
                part = self._bytes[start : start + array.nbytes]
                target[...] = part.view(array.dtype).reshape(array.shape)
            self._event = None
            self._small = []
        return self._results
