"""Compiling and starting kernels, and the tables of addresses that they read.

Nothing here waits for the device, but for what is made once.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optkit.backend.cuda.emit import THREADS
from optkit.backend.cuda.sources import OPTIONS

__all__ = [
    "CHUNK",
    "THREADS",
    "Tensors",
    "addresses",
    "forget_tables",
    "function",
    "over_elements",
    "sent_addresses",
    "tensors",
]

CHUNK = 1 << 14
"""Elements of a tensor that a block does: many blocks for large tensors, one for a small one."""
_BLOCKS = 1 << 11
"""Blocks of a kernel that walks over elements: a few for each multiprocessor."""
_TABLES = 256
"""Address tables to keep: a step of a program has the same few again and again."""


@functools.lru_cache(maxsize=512)
def function(text: str, name: str) -> Any:
    """A kernel of a text, compiled for a device when it is first started there.

    Raises:
        cupy.cuda.compiler.CompileException: the text does not compile.
    """
    import cupy

    return _module(cupy, text).get_function(name)


@functools.lru_cache(maxsize=512)
def _module(cupy: Any, text: str) -> Any:
    return cupy.RawModule(code=text, options=OPTIONS)


def over_elements(kernel: Any, count: int, arguments: Sequence[Any]) -> None:
    """Start a kernel that walks over `count` elements by itself."""
    if count:
        blocks = min(-(-count // THREADS), _BLOCKS)
        kernel((blocks,), (THREADS,), tuple(arguments))


@dataclass(frozen=True, eq=False)
class Tensors:
    """How blocks are shared out to tensors of given sizes, on the current device.

    Attributes:
        sizes: elements of each tensor.
        blocks: (tensor, chunk) of each block.
        count: how many blocks.
    """

    sizes: Any
    blocks: Any
    count: int


def tensors(sizes: tuple[int, ...]) -> Tensors:
    """The table for tensors of these sizes; made once for a device."""
    import cupy

    return _tensors(sizes, cupy.cuda.runtime.getDevice())


@functools.lru_cache(maxsize=_TABLES)
def _tensors(sizes: tuple[int, ...], device: int) -> Tensors:
    import cupy

    blocks = [(t, c) for t, size in enumerate(sizes) for c in range(-(-size // CHUNK))]
    made = Tensors(
        cupy.asarray(np.array(sizes, np.int64)),
        cupy.asarray(np.array(blocks, np.int32).reshape(-1, 2)),
        len(blocks),
    )
    # Any stream may read it from now on.
    cupy.cuda.get_current_stream().synchronize()
    return made


_tables: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
_lock = threading.Lock()


def addresses(arrays: Sequence[Any]) -> Any:
    """The addresses of arrays, on the device.

    Memory comes from a pool, so a step finds its arrays where they were in the step before, and
    nothing is sent.
    """
    import cupy

    pointers = tuple([array.data.ptr for array in arrays])
    # What one stream has sent, another may not have got yet.
    key = cupy.cuda.runtime.getDevice(), cupy.cuda.get_current_stream().ptr, pointers
    with _lock:
        table = _tables.get(key)
        if table is not None:
            _tables.move_to_end(key)
            return table
    table = cupy.asarray(np.array(pointers, np.uint64))
    with _lock:
        _tables[key] = table
        if len(_tables) > _TABLES:
            _tables.popitem(last=False)
    return table


def sent_addresses(arrays: Sequence[Any]) -> Any:
    """The addresses of arrays, on the device and there for every stream."""
    import cupy

    table = cupy.asarray(np.array([array.data.ptr for array in arrays], np.uint64))
    cupy.cuda.get_current_stream().synchronize()
    return table


def forget_tables() -> None:
    """Free the tables; those in use are kept by who uses them."""
    with _lock:
        _tables.clear()
    _tensors.cache_clear()
