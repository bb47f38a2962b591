"""Memory for a program's large values, planned by when each of them lives.

An operation that can write into an array gets one that lies in the session's workspace. Values
that do not live at the same time share memory there, and the memory stays: a step neither asks
the system for pages nor gives them back. Programs of a session run one after another, so one
workspace serves them all.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from optkit.backend.arrays import ALIGNMENT, aligned, padded

__all__ = ["LARGE", "Life", "Tenant", "Workspace", "placed"]

LARGE = 1 << 15
"""Bytes from which on a value is worth a place of its own; below, the allocator is as fast."""


class Tenant(Protocol):
    """Something that holds arrays of a workspace."""

    def leave(self) -> None:
        """Let go of the arrays: the workspace is moving."""


class Workspace:
    """One block of memory that grows, which those that hold arrays of it are told of."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)
        self._tenants: weakref.WeakSet[Tenant] = weakref.WeakSet()

    def reserve(self, size: int, tenant: Tenant) -> None:
        """Have at least so many bytes; `tenant` is about to take arrays."""
        if size > self._memory.size:
            for other in self._tenants:
                other.leave()
            self._tenants.clear()
            self._memory = np.empty(0, np.uint8)  # first free, then take
            self._memory = aligned(size, np.dtype(np.uint8))
        self._tenants.add(tenant)

    def array(self, start: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        """An array that lies in the block from byte `start` on."""
        stop = start + math.prod(shape) * np.dtype(dtype).itemsize
        found: np.ndarray[Any, Any] = self._memory[start:stop].view(dtype)
        return found.reshape(shape)


@dataclass
class Life:
    """A value's life: the lines that write it first and read it last, and its size in bytes."""

    first: int
    last: int
    size: int


def placed(lives: Sequence[Life]) -> tuple[list[int], int]:
    """A start for each value, such that no two that live at the same time overlap.

    The largest go first, each to the lowest gap that holds it.

    Returns:
        the starts in bytes, at multiples of the alignment, and the size of the whole.
    """
    starts = [0] * len(lives)
    done: list[int] = []
    total = 0
    for i in sorted(range(len(lives)), key=lambda i: (-lives[i].size, lives[i].first)):
        size = padded(lives[i].size, 1)
        taken = sorted(
            (starts[j], starts[j] + padded(lives[j].size, 1))
            for j in done
            if lives[j].first <= lives[i].last and lives[i].first <= lives[j].last
        )
        start = 0
        for low, high in taken:
            if low - start >= size:
                break
            start = max(start, high)
        starts[i] = start
        done.append(i)
        total = max(total, start + size)
    assert all(start % ALIGNMENT == 0 for start in starts)
    return starts, total
