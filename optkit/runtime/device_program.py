"""Programs on a device: a plan as straight-line code that seldom waits.

As on the host, a program computes first and writes last. The kernels of the computation are
queued; what is fetched starts on its way home; then the updates are queued, one launch for each
group; and only then does the host wait, for what was fetched. Row numbers that the device alone
knows are checked there: their one flag comes home with the fetches, before anything is written.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import numpy as np

from optkit.backend import Backend
from optkit.backend.cuda.checks import Checks
from optkit.backend.cuda.device import wait_for_all
from optkit.backend.cuda.pace import Pace
from optkit.backend.cuda.transfer import Transfer, is_device_array
from optkit.errors import InvalidArgumentError
from optkit.graph import Operation
from optkit.ops.random import Stream
from optkit.runtime.arenas import Arenas
from optkit.runtime.device_code import DeviceCode
from optkit.runtime.device_updates import DeviceGroup, device_rows
from optkit.runtime.execution import handed_out, stream_of
from optkit.runtime.interrupts import HeldBack
from optkit.runtime.plan import Plan
from optkit.runtime.updates import arranged, dense_groups, seen_writes, write_lines

__all__ = ["DeviceProgram", "device_program"]


def device_program(plan: Plan, backend: Backend) -> DeviceProgram | None:
    """The plan as a program for a device, or None where only the reference can run it."""
    for step in plan.steps:
        kind = step.op.kind
        if kind.effect:  # a program that fails runs again by the reference
            return None
        if kind.kernel is None and kind.access is None:
            return None  # a placeholder that was not fed: the reference tells
    return DeviceProgram(plan, backend)


class DeviceProgram:
    """A plan as code for a device; see the module."""

    def __init__(self, plan: Plan, backend: Backend) -> None:
        self._plan = plan
        self._backend = backend
        readers = Counter(place for step in plan.steps for place in step.inputs)
        readers.update(place for place in plan.fetched if place is not None)
        seen = seen_writes(plan)
        self._groups = dense_groups(plan, readers, seen, DeviceGroup)
        self._rows = device_rows(plan, seen)
        self._function: Callable[..., Any] | None = None
        self._departures = 0
        self._pace = Pace()

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

        Whatever is raised, nothing has changed, but for a fault of the device, which ends the
        session; the reference tells what was wrong, and where.
        """
        if self._function is None or self._departures != arenas.departures:
            self._compile(state, arenas)
        assert self._function is not None
        written: dict[Operation, Any] = {}
        begin = time.perf_counter() if self.in_place and self._pace.looks() else None

        def stream(op: Operation) -> Stream:
            return stream_of(op, state, written, entropy)

        with np.errstate(all="ignore"), Checks() as checks:
            values, updates = self._function(state, fed, written, stream)
        flag = checks.flag
        transfer = Transfer(values if flag is None else [*values, flag])
        if flag is not None and transfer.wait()[-1].any():
            raise InvalidArgumentError("a value is bad")

        def write() -> list[Any]:
            with HeldBack():
                for update in updates:
                    update()
                arenas.commit(state, written)
                queued = time.perf_counter()
                arrays = transfer.wait()
                if begin is not None:
                    wait_for_all()
                    self._pace.note(queued - begin, time.perf_counter() - queued)
            return [_own(value, array) for value, array in zip(values, arrays, strict=False)]

        return write

    def _compile(self, state: MutableMapping[Operation, Any], arenas: Arenas) -> None:
        groups, rows = arranged(self._groups, self._rows, state, arenas)
        code = DeviceCode(self._plan, self._backend)
        write_lines(code, self._plan, groups, rows)
        self._function = code.function()
        self._departures = arenas.departures


def _own(value: Any, array: Any) -> Any:
    """A fetched value as the caller's own; what has come from the device is that already."""
    if array is None or not is_device_array(value):
        return None if array is None else handed_out(array)
    return array[()] if array.ndim == 0 else array
