"""Programs: a plan as straight-line code, with its updates done in place over arenas.

A program computes first and writes last. Whatever can raise runs before the first write: the
values, the new values of plain writes, the rows of sparse updates, and the copies that the caller
gets. Then, with Ctrl-C held back, the fused updates work in place and the rest becomes state.
For feeds of shapes that come again, large values are given places in the session's workspace.

A write whose result is seen in the same run (by a read after it, or by another write) makes its
values beside the old ones, at its place. Updates in a branch of a `cond` are fused together, and
left out where it is not taken. What does more than give values (`Print`, `py_func`) is left to
`execution.Run`, the reference; `compiled` then gives None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import numpy as np

from optkit.backend import Backend
from optkit.graph import Operation
from optkit.ops.random import Stream
from optkit.runtime.arenas import Arenas
from optkit.runtime.code import Code, Layout, StaleShapeError
from optkit.runtime.device_program import DeviceProgram, device_program
from optkit.runtime.execution import stream_of
from optkit.runtime.interrupts import HeldBack
from optkit.runtime.plan import Plan
from optkit.runtime.updates import (
    DenseGroup,
    arranged,
    dense_groups,
    row_updates,
    seen_writes,
    write_lines,
)

__all__ = ["Program", "compiled"]

_VERSIONS = 8
"""Layouts of feeds for which a program keeps a version with planned memory."""


def compiled(plan: Plan, backend: Backend) -> Program | DeviceProgram | None:
    """The plan as a program, or None where only the reference can run it."""
    if backend.xp is not np:
        return device_program(plan, backend)
    for step in plan.steps:
        kind = step.op.kind
        if kind.effect:  # a program that fails runs again by the reference
            return None
        if kind.kernel is None and kind.access is None:
            return None  # a placeholder that was not fed: the reference tells
    return Program(plan)


class Program:
    """A plan as code; see the module."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        readers = Counter(place for step in plan.steps for place in step.inputs)
        readers.update(place for place in plan.fetched if place is not None)
        self._seen = seen_writes(plan)
        self._groups = dense_groups(plan, readers, self._seen, DenseGroup)
        self._rows = row_updates(plan, self._seen)
        self._code: Code | None = None
        self._plain: Callable[..., Any] | None = None
        # By the shapes and strides of what is fed; the least recently made goes first.
        self._versions: dict[Any, _Version] = {}
        self._departures = 0

    @property
    def in_place(self) -> bool:
        """Whether it updates variables in place, which saves memory from the first run on."""
        return bool(self._groups or self._rows)

    def __call__(
        self,
        state: MutableMapping[Operation, Any],
        arenas: Arenas,
        entropy: int,
        fed: Sequence[Any],
    ) -> Callable[[], list[Any]]:
        """Compute; what comes back makes what was written the state, and gives the results.

        Both are called with NumPy's floating-point warnings off.

        Whatever is raised, nothing has changed; the reference tells what was wrong, and where.
        """
        if self._plain is None or self._departures != arenas.departures:
            self._compile(state, arenas)
        assert self._plain is not None
        assert self._code is not None
        function = self._plain
        version = None
        if self._code.plannable:
            key = tuple([(array.shape, array.strides) for array in fed])
            version = self._versions.get(key)
            if version is not None:
                function = version.function()
            else:
                self._versions[key] = _Version(self._code, self._plain)
                if len(self._versions) > _VERSIONS:
                    del self._versions[next(iter(self._versions))]
        try:
            return self._computed(function, state, arenas, entropy, fed)
        except StaleShapeError:
            assert version is not None
            version.give_up()
            return self._computed(self._plain, state, arenas, entropy, fed)

    def _computed(
        self,
        function: Callable[..., Any],
        state: MutableMapping[Operation, Any],
        arenas: Arenas,
        entropy: int,
        fed: Sequence[Any],
    ) -> Callable[[], list[Any]]:
        written: dict[Operation, Any] = {}

        def stream(op: Operation) -> Stream:
            return stream_of(op, state, written, entropy)

        results, updates = function(state, fed, written, stream)

        def write() -> list[Any]:
            with HeldBack():
                for apply, arguments in updates:
                    apply(*arguments)
                arenas.commit(state, written)
            return results  # type: ignore[no-any-return]

        return write

    def _compile(self, state: MutableMapping[Operation, Any], arenas: Arenas) -> None:
        groups, rows = arranged(self._groups, self._rows, state, arenas)
        code = Code(self._plan, groups, arenas)
        write_lines(code, self._plan, groups, rows)
        code.end()
        self._versions.clear()
        self._code, self._plain = code, code.plain()
        self._departures = arenas.departures


class _Version:
    """A program for feeds of given shapes and strides.

    The first run with them is the plain one, since many are the last too; the second notes the
    layouts of all values; then the large values get their places.
    """

    def __init__(self, code: Code, plain: Callable[..., Any]) -> None:
        self._code = code
        self._plain = plain
        self._layouts: dict[str, Layout] | None = None
        self._function: Callable[..., Any] | None = None

    def function(self) -> Callable[..., Any]:
        """The function to run now."""
        if self._function is not None:
            return self._function
        if self._layouts is None:
            return self._code.noting(self._note)
        self._function = self._code.planned(self._layouts, self) or self._plain
        return self._function

    def _note(self, layouts: dict[str, Layout]) -> None:
        self._layouts = layouts

    def leave(self) -> None:
        """Let go of the workspace; the next run takes places in the new one."""
        if self._function is not self._plain:
            self._function = None

    def give_up(self) -> None:
        """Run plainly from now on: shapes do not follow from those of the feeds."""
        self._function = self._plain
