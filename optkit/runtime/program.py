"""Programs: a plan as straight-line code, with its updates done in place over arenas.

A program computes first and writes last. Whatever can raise runs before the first write: the
values, the new values of plain writes, the rows of sparse updates, and the copies that the caller
gets. Then, with Ctrl-C held back, the fused updates work in place and the rest becomes state.

What a program cannot do (branches, reads that see a write of the same run, two writes to one
variable) is left to `execution.Run`, the reference; `compiled` then gives None.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import numpy as np

from optkit.backend import Backend
from optkit.graph import Operation, Tensor
from optkit.ops.clip import norm_of_parts, norm_runs
from optkit.ops.random import Stream
from optkit.runtime.arenas import Arenas
from optkit.runtime.execution import handed_out, uninitialized
from optkit.runtime.interrupts import HeldBack
from optkit.runtime.kernels import guarded, stored
from optkit.runtime.plan import Plan, Step
from optkit.runtime.updates import DenseGroup, Part, dense_groups, flat, gathered, row_updates

__all__ = ["Program", "compiled"]

_FOLDED = 1 << 16
"""Elements up to which a constant expression is worked out once."""


def compiled(plan: Plan, backend: Backend) -> Program | None:
    """The plan as a program, or None where only the reference can run it."""
    if backend.xp is not np:
        return None
    written: Counter[Operation] = Counter()
    results: set[int | None] = set()
    for step in plan.steps:
        kind = step.op.kind
        if step.branch or kind.merges or step.sources or kind.access == "initialized":
            return None
        if kind.effect:  # a program that fails runs again by the reference
            return None
        if kind.kernel is None and kind.access is None:
            return None  # a placeholder that was not fed: the reference tells
        if any(place in results for place in step.inputs):
            return None
        if kind.access == "write":
            written.update(step.op.variables)
            results.update(step.outputs)
    if any(count > 1 for count in written.values()):
        return None
    return Program(plan)


class Program:
    """A plan as code; see the module."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        readers = Counter(place for step in plan.steps for place in step.inputs)
        readers.update(place for place in plan.fetched if place is not None)
        self._groups = dense_groups(plan, readers)
        self._rows = row_updates(plan, readers)
        self._code: Callable[..., Any] | None = None
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
    ) -> list[Any]:
        """Run, and make what was written the state.

        Whatever is raised, nothing has changed; the reference tells what was wrong, and where.
        """
        if self._code is None or self._departures != arenas.departures:
            self._compile(state, arenas)
        assert self._code is not None
        written: dict[Operation, Any] = {}

        def stream(op: Operation) -> Stream:
            count = state.get(op, 0)
            written[op] = count + 1
            seeds = op.attrs["seed"]
            return Stream(seeds if seeds[0] is not None else (entropy, op.index), count)

        with np.errstate(all="ignore"):
            results, updates = self._code(state, fed, written, stream)
            with HeldBack():
                for apply, arguments in updates:
                    apply(*arguments)
                arenas.commit(state, written)
        return results  # type: ignore[no-any-return]

    # -- compiling --------------------------------------------------------------------------

    def _compile(self, state: MutableMapping[Operation, Any], arenas: Arenas) -> None:
        for group in self._groups:
            group.arrange(state, arenas)
        for row in self._rows:
            row.arrange(state, arenas)
        code = _Code(self._plan, self._groups, arenas)
        special = {step for group in self._groups for step in (*group.steps, *group.absorbed)}
        special |= {row.step for row in self._rows}
        writes = []
        for step in self._plan.steps:
            if step in special:
                continue
            if step.op.kind.access == "write":
                writes.append(step)
            else:
                code.compute(step)
        for step in writes:
            code.write(step)
        for row in self._rows:
            code.rows(row)
        for group in self._groups:
            code.group(group)
        code.end()
        self._code = code.function()
        self._departures = arenas.departures


_FILE = "<optkit program>"


class _Code:
    """The lines of a program, and the values they refer to by name."""

    def __init__(self, plan: Plan, groups: Sequence[DenseGroup], arenas: Arenas) -> None:
        self.plan = plan
        self.arenas = arenas
        self.lines: list[str] = []
        self.space: dict[str, Any] = {}
        self.names: dict[int, str] = {}
        self.constants: dict[int, Any] = {}
        self.filled: set[Part] = set()
        self.updates: list[str] = []
        # Norms of all gradients of a group can be taken over its gradient buffer.
        self.norms = {
            tuple(group.gradients): group.parts[0]
            for group in groups
            if len(group.parts) == 1 and group.parts[0].buffer is not None
        }
        for i, place in enumerate(plan.fed):
            self.names[place] = f"fed[{i}]"

    def bound(self, value: Any) -> str:
        """A name for a value of the compiler's."""
        name = f"c{len(self.space)}"
        self.space[name] = value
        return name

    def name(self, place: int) -> str:
        if place not in self.names:
            self.names[place] = self.bound(self.constants[place])
        return self.names[place]

    def compute(self, step: Step) -> None:
        """An operation that writes nothing."""
        op, kind = step.op, step.op.kind
        if kind.access in ("variable", "read"):
            self._read(step)
        elif kind.name in ("Identity", "StopGradient"):
            self._alias(step)
        elif op.outputs and not self._folded(step) and not self._norm(step):
            assert kind.kernel is not None
            kernel = self.bound(functools.partial(kind.kernel, np, **op.attrs))
            arguments = [self.name(place) for place in step.inputs]
            if kind.random:
                arguments.append(f"stream=stream({self.bound(op)})")
            self.lines.append(f"{self._targets(step)} = {kernel}({', '.join(arguments)})")

    def _targets(self, step: Step) -> str:
        targets = []
        for place in step.outputs:
            targets.append("_" if place is None else f"v{place}")
            if place is not None:
                self.names[place] = f"v{place}"
        return targets[0] if len(targets) == 1 else ", ".join(targets)

    def _read(self, step: Step) -> None:
        variable = step.op.variables[0] if step.op.variables else step.op
        (place,) = step.outputs
        fed = self.plan.fed_variables.get(variable)
        if place is None:
            return
        if fed is not None:
            self.names[place] = self.names[fed]
        else:
            self.lines.append(f"{self._targets(step)} = state[{self.bound(variable)}]")

    def _alias(self, step: Step) -> None:
        (source,), (place,) = step.inputs, step.outputs
        if place is None:
            return
        if source in self.constants:
            self.constants[place] = self.constants[source]
        else:
            self.names[place] = self.names[source]

    def _folded(self, step: Step) -> bool:
        """Work out an operation on constants now."""
        op, kind = step.op, step.op.kind
        constant = kind.name == "Const"
        if kind.random or kind.name == "CheckNumerics" or not (step.inputs or constant):
            return False
        if any(place not in self.constants for place in step.inputs):
            return False
        assert kind.kernel is not None
        try:
            with np.errstate(all="ignore"):
                values = kind.kernel(np, *map(self.constants.get, step.inputs), **op.attrs)
        except Exception:  # noqa: BLE001 - the run meets the error in its place
            return False
        values = (values,) if len(op.outputs) == 1 else tuple(values)
        if not constant and any(np.size(value) > _FOLDED for value in values):
            return False
        self.constants.update(
            (place, value)
            for place, value in zip(step.outputs, values, strict=True)
            if place is not None
        )
        return True

    def _norm(self, step: Step) -> bool:
        """The norm of all gradients of a group, in one pass over their buffer."""
        part = self.norms.get(step.inputs) if step.op.kind.name == "GlobalNorm" else None
        if part is None or part.buffer is None or part.buffer.dtype.itemsize < 4:
            return False
        self._fill(part)
        bounds = [(start, stop) for _, start, stop in part.span.rows]
        runs = norm_runs([stop - start for start, stop in bounds])
        views = [part.buffer[bounds[first][0] : bounds[stop - 1][1]] for first, stop in runs]
        self.lines.append(f"{self._targets(step)} = norm_of_parts(np, {self.bound(views)})")
        return True

    def _fill(self, part: Part) -> None:
        """Gather gradients in the buffer; constant ones once and for all."""
        if part in self.filled:
            return
        self.filled.add(part)
        for i, (place, variable) in enumerate(zip(part.places, part.variables, strict=True)):
            if place in self.constants:
                gathered(part.slot(i), self.constants[place], variable.name)
            else:
                slot = self.bound(part.slot(i))
                self.lines.append(
                    f"gathered({slot}, {self.name(place)}, {self.bound(variable.name)})"
                )

    # -- writes -----------------------------------------------------------------------------

    def write(self, step: Step) -> None:
        """A write whose new value is made beside the old one."""
        op = step.op
        write = self.bound(functools.partial(_new_values, op))
        arguments = "".join(f", {self.name(place)}" for place in step.inputs)
        self.lines.append(f"w{op.index} = {write}(state, written, fed{arguments})")
        for place in step.outputs:
            if place is not None:
                self.names[place] = f"w{op.index}"

    def rows(self, row: Any) -> None:
        """A sparse update: the new rows now, their writing at the end."""
        op = row.step.op
        arguments = ", ".join(self.name(place) for place in row.step.inputs)
        self.lines.append(f"r{op.index} = {self.bound(row.compute)}({arguments})")
        self.updates.append(f"({self.bound(row.apply)}, r{op.index})")

    def group(self, group: DenseGroup) -> None:
        """Fused updates: gradients and hyper-parameters now, the rest at the end."""
        op = group.steps[0].op
        places = group.hyper if group.scale is None else (*group.hyper, group.scale)
        numbers = f"h{op.index}"
        arguments = ", ".join(self.name(place) for place in places)
        self.lines.append(f"{numbers} = {self.bound(group.numbers)}({arguments})")
        apply = self.bound(group.apply)
        for part in group.parts:
            gradient = f"g{len(self.updates)}"
            if part.buffer is None:
                view, variable = self.bound(part.views[0]), part.variables[0]
                place = self.name(part.places[0])
                self.lines.append(
                    f"{gradient} = flat({view}, {place}, {self.bound(variable.name)})"
                )
            else:
                self._fill(part)
                gradient = self.bound(part.buffer)
            self.updates.append(f"({apply}, ({self.bound(part)}, {gradient}, {numbers}))")

    def end(self) -> None:
        """The caller's copies, and what is to be done in place."""
        results = []
        for item, place in zip(self.plan.fetches, self.plan.fetched, strict=True):
            if isinstance(item, Tensor) and place is not None:
                results.append(f"handed_out({self.name(place)})")
            else:
                results.append("None")
        updates = "".join(f"{update}, " for update in self.updates)
        self.lines.append(f"return [{', '.join(results)}], ({updates})")

    def function(self) -> Callable[..., Any]:
        body = _freed(self.lines)
        text = "\n    ".join(["def program(state, fed, written, stream):", *body])
        self.space |= {
            "flat": functools.partial(flat, self.arenas),
            "gathered": gathered,
            "handed_out": handed_out,
            "norm_of_parts": norm_of_parts,
            "np": np,
        }
        exec(compile(text, _FILE, "exec"), self.space)
        function: Callable[..., Any] = self.space["program"]
        return function


_VALUE = re.compile(r"\bv\d+\b")


def _freed(lines: Sequence[str]) -> list[str]:
    """The lines, each value deleted after the last that takes it: memory is used again at once."""
    last = {name: i for i, line in enumerate(lines) for name in _VALUE.findall(line)}
    dead: dict[int, list[str]] = {}
    for name, i in last.items():
        dead.setdefault(i, []).append(name)
    body = []
    for i, line in enumerate(lines):
        body.append(line)
        if i in dead and i < len(lines) - 1:
            body.append(f"del {', '.join(dead[i])}")
    return body


def _new_values(
    op: Operation,
    state: MutableMapping[Operation, Any],
    written: MutableMapping[Operation, Any],
    fed: Sequence[Any],
    *inputs: Any,
) -> Any:
    """The new values of a write's variables, put into `written`; gives the first."""
    currents = []
    if op.kind.reads_target:
        for variable in op.variables:
            if variable not in state:
                raise uninitialized(variable)
            currents.append(state[variable])
    assert op.kind.kernel is not None
    news = op.kind.kernel(np, *currents, *map(guarded, inputs), **op.attrs)
    borrowed = {id(array) for array in fed}
    for variable, new in zip(op.variables, news, strict=True):
        written[variable] = stored(np, op, variable, new, borrowed)
    return written[op.variables[0]]
