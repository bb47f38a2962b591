"""Arenas: variables of one kind side by side in one buffer, so that one kernel updates them all.

A variable in an arena is an ordinary variable whose array is a view of the buffer. Members start
at multiples of 64 bytes. A buffer is never reallocated: what joins later gets one of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optkit.backend.arrays import aligned, padded
from optkit.graph import Operation
from optkit.runtime.interrupts import HeldBack
from optkit.runtime.workspace import Workspace

__all__ = ["Arenas", "DeviceArenas", "Member", "Span"]


@dataclass(frozen=True, eq=False)
class Member:
    """Where a variable lives: `size` elements of `buffer` from `start` on; `view` writes them."""

    buffer: np.ndarray[Any, Any]
    start: int
    size: int
    view: np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Span:
    """A stretch of consecutive members, the same in each column.

    Attributes:
        columns: the flat arrays, the variables' first and then each slot's.
        rows: which of the variables it holds, with their place in it: (index, start, stop).
    """

    columns: tuple[np.ndarray[Any, Any], ...]
    rows: tuple[tuple[int, int, int], ...]

    @property
    def size(self) -> int:
        """Elements, padding included."""
        return self.columns[0].size


class Arenas:
    """The arenas of a session.

    Attributes:
        members: where each variable lives that is in an arena.
        departures: how many variables have left; what was worked out before is out of date.
        workspace: memory for the values of programs.
    """

    def __init__(self) -> None:
        self.members: dict[Operation, Member] = {}
        self.departures = 0
        self.workspace = Workspace()
        self._memory: set[int] = set()

    def owns(self, array: Any) -> bool:
        """Whether an array shows memory of an arena, and so changes with it."""
        return id(_owner(array)) in self._memory

    def _buffer(self, size: int, dtype: np.dtype[Any]) -> Any:
        return aligned(size, dtype)

    def _padding(self, array: Any) -> Any:
        """What the elements after a member are: one of its own, so that equations like it."""
        return max(array.flat[0], 0)

    def _shown(self, view: Any) -> Any:
        """What others see of a member."""
        shown = view.view()
        shown.flags.writeable = False
        return shown

    def place(self, ops: Sequence[Operation], state: MutableMapping[Operation, Any]) -> None:
        """Put those variables that are in no arena yet into one of their own, in this order.

        Their arrays in `state` become read-only views of it.
        """
        fresh = [op for op in dict.fromkeys(ops) if op not in self.members]
        if not fresh:
            return
        arrays = [state[op] for op in fresh]
        dtype = arrays[0].dtype
        starts, total = [], 0
        for array in arrays:
            starts.append(total)
            total += padded(array.size, dtype.itemsize)
        buffer = self._buffer(total, dtype)
        members = {}
        for op, array, start in zip(fresh, arrays, starts, strict=True):
            stop = start + array.size
            padding = buffer[stop : start + padded(array.size, dtype.itemsize)]
            # Accumulators must stay above zero in the padding too.
            padding[...] = self._padding(array) if array.size else 0
            view = buffer[start:stop].reshape(array.shape)
            view[...] = array
            members[op] = Member(buffer, start, array.size, view)
        shown = {op: self._shown(member.view) for op, member in members.items()}
        with HeldBack():
            self._memory.add(id(_owner(buffer)))
            self.members.update(members)
            state.update(shown)

    def spans(self, columns: Sequence[Sequence[Operation]]) -> list[Span]:
        """The stretches in which the members of all columns follow each other."""
        spans: list[Span] = []
        run: list[int] = []
        for i in range(len(columns[0])):
            if run and not self._follows(columns, run[-1], i):
                spans.append(self._span(columns, run))
                run = []
            run.append(i)
        spans.append(self._span(columns, run))
        return spans

    def _follows(self, columns: Sequence[Sequence[Operation]], before: int, after: int) -> bool:
        for column in columns:
            first, second = self.members[column[before]], self.members[column[after]]
            gap = padded(first.size, first.buffer.dtype.itemsize)
            if first.buffer is not second.buffer or second.start - first.start != gap:
                return False
        return True

    def _span(self, columns: Sequence[Sequence[Operation]], run: Sequence[int]) -> Span:
        arrays = []
        for column in columns:
            first, last = self.members[column[run[0]]], self.members[column[run[-1]]]
            arrays.append(first.buffer[first.start : last.start + last.size])
        origin = self.members[columns[0][run[0]]].start
        rows = []
        for i in run:
            member = self.members[columns[0][i]]
            rows.append((i, member.start - origin, member.start - origin + member.size))
        return Span(tuple(arrays), tuple(rows))

    def commit(
        self, state: MutableMapping[Operation, Any], written: Mapping[Operation, Any]
    ) -> None:
        """Make `written` the state; what is in an arena is written there.

        The caller holds interrupts back: this must not stop half-way.
        """
        if not self.members:
            state.update(written)
            return
        moved = {}
        for op, value in written.items():
            member = self.members.get(op)
            if member is None:
                moved[op] = value
            elif member.view.shape == value.shape:
                member.view[...] = value
            else:
                # The variable's shape is open and has changed: it leaves the arena.
                del self.members[op]
                self.departures += 1
                moved[op] = value
        state.update(moved)


def _owner(array: Any) -> Any:
    """The array whose memory another shows."""
    owner = array
    while hasattr(owner.base, "base"):
        owner = owner.base
    return owner


class DeviceArenas(Arenas):
    """The arenas of a session whose arrays are CuPy's, which have no read-only kind."""

    def __init__(self, xp: Any) -> None:
        super().__init__()
        self._xp = xp

    def _buffer(self, size: int, dtype: np.dtype[Any]) -> Any:
        return self._xp.empty(size, dtype)

    def _padding(self, array: Any) -> Any:
        return self._xp.maximum(array.reshape(-1)[:1], 0)

    def _shown(self, view: Any) -> Any:
        return view
