"""The lines of a program: a plan's operations as Python source, and the values it refers to.

The same lines make three functions: a plain one; one that also notes how its values lie in
memory; and, once that is known, one in which large values are written to places of their own in the
session's workspace.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from optkit.errors import InvalidArgumentError
from optkit.graph import Operation, Tensor
from optkit.ops.clip import norm_of_parts, norm_runs
from optkit.runtime.arenas import Arenas
from optkit.runtime.execution import handed_out, new_values
from optkit.runtime.plan import Plan, Step
from optkit.runtime.updates import DenseGroup, Part, flat, gathered
from optkit.runtime.workspace import LARGE, Life, Tenant, placed

__all__ = ["FILE", "Code", "Layout", "StaleShapeError", "fold", "freed", "reached"]

_FOLDED = 1 << 16
"""Elements up to which a constant expression is worked out once."""

FILE = "<optkit program>"
_NAME = re.compile(r"\b[vwrhg]\d+(?:_\d+)?\b")
"""A value of the run in the source."""


class Layout(NamedTuple):
    """How a value lay in memory: its shape, and whether its elements were in C's order."""

    shape: tuple[int, ...]
    in_order: bool

    @classmethod
    def of(cls, value: Any) -> Layout:
        """That of a value."""
        array = np.asarray(value)
        return cls(array.shape, array.flags.c_contiguous)


class StaleShapeError(Exception):
    """A value has another shape than when the places of the values were planned."""

    @classmethod
    def check(cls, value: Any, shape: tuple[int, ...]) -> None:
        """Raise it unless a value has this shape."""
        if np.shape(value) != shape:
            raise cls


@dataclass(frozen=True)
class _Line:
    """A line of the source.

    Attributes:
        text: the line.
        condition: an expression that says whether it runs; "" if it always does.
        targets: the names it gives values to.
        fresh: whether these share no memory with what it reads.
        into: the line with a place to write to, `{out}` standing for it; None where it cannot.
        dtype: of what `into` writes.
    """

    text: str
    condition: str = ""
    targets: tuple[str, ...] = ()
    fresh: bool = False
    into: str | None = None
    dtype: Any = None

    def reads(self) -> Iterator[str]:
        """The names of the values it takes."""
        names = _NAME.findall(f"{self.condition} {self.text}")
        return (name for name in names if name not in self.targets)

    def source(self, text: str) -> str:
        """A line of source that runs when this one does."""
        return f"if {self.condition}: {text}" if self.condition else text


class Code:
    """The lines of a program, and the values they refer to by name."""

    def __init__(self, plan: Plan, groups: Sequence[DenseGroup], arenas: Arenas) -> None:
        self.plan = plan
        self.arenas = arenas
        self.lines: list[_Line] = []
        self.space: dict[str, Any] = {
            "flat": functools.partial(flat, arenas),
            "gathered": gathered,
            "handed_out": handed_out,
            "norm_of_parts": norm_of_parts,
            "np": np,
            "reached": reached,
            "StaleShapeError": StaleShapeError,
        }
        self.names: dict[int, str] = {}
        self.constants: dict[int, Any] = {}
        # The gradient buffers that hold this run's gradients, and in which branch they do.
        self.filled: dict[Part, tuple[tuple[int, bool], ...]] = {}
        self.updates: list[str] = []
        # The names that have no value when a branch is not taken.
        self.conditional: list[str] = []
        # The value of each variable right after each write.
        self.versions: dict[tuple[Operation, Operation], str] = {}
        # Places whose static shapes hang on what somebody has said (`Tensor.claimed`).
        self.doubtful: set[int | None] = set()
        # The shapes of values that the graph tells in full, without a doubt.
        self.static: dict[str, tuple[int, ...]] = {}
        # Norms of all gradients of a group can be taken over its gradient buffer.
        self.norms = {
            tuple(group.gradients): group.parts[0]
            for group in groups
            if len(group.parts) == 1 and group.parts[0].buffer is not None
        }
        # Where gradients go that their operation can write in place.
        self.slots: dict[int, np.ndarray[Any, Any]] = {}
        for group in groups:
            for part in group.parts:
                if part.buffer is not None:
                    for i, place in enumerate(part.places):
                        self.slots.setdefault(place, part.slot(i))
        self.in_slot: set[int] = set()
        for i, place in enumerate(plan.fed):
            self.names[place] = f"fed[{i}]"
        self.steps = {place: s for s in plan.steps for place in s.outputs if place is not None}

    @property
    def plannable(self) -> bool:
        """Whether any value can be given a place."""
        return any(line.into is not None for line in self.lines)

    def bound(self, value: Any) -> str:
        """A name for a value of the compiler's."""
        name = f"c{len(self.space)}"
        self.space[name] = value
        return name

    def name(self, place: int) -> str:
        """The name of a value of the run."""
        if place not in self.names:
            self.names[place] = self.bound(self.constants[place])
        return self.names[place]

    def compute(self, step: Step) -> None:
        """An operation that writes nothing."""
        op, kind = step.op, step.op.kind
        if any(y.claimed for y in op.outputs) or not self.doubtful.isdisjoint(step.inputs):
            self.doubtful.update(step.outputs)
        if kind.access in ("variable", "read"):
            self._read(step)
        elif kind.access == "initialized":
            variable = self.bound(op.variables[0])
            self._line(step, self._targets(step), f"np.asarray({variable} in state)", fresh=True)
        elif kind.merges:
            predicate, yes, no = map(self.name, step.inputs)
            self._line(step, self._targets(step), f"{yes} if {predicate} else {no}")
        elif kind.name in ("Identity", "StopGradient"):
            self._alias(step)
        elif op.outputs and not self._folded(step) and not self._norm(step):
            self._call(step)

    def _call(self, step: Step) -> None:
        op, kind = step.op, step.op.kind
        assert kind.kernel is not None
        arguments = [self.name(place) for place in step.inputs]
        if kind.random:
            arguments.append(f"stream=stream({self.bound(op)})")
        kernel = self.bound(functools.partial(kind.kernel, np, **op.attrs))
        targets = self._targets(step)
        call = f"{kernel}({', '.join(arguments)})"
        if kind.into is None or not all(targets):
            self._line(step, targets, call)
            return
        into = self.bound(functools.partial(kind.into, np, **op.attrs))
        dtype = op.outputs[0].dtype.dtype
        (place,) = step.outputs
        assert place is not None
        slot = None if place in self.doubtful else self.slots.get(place)
        if slot is None or slot.shape != op.outputs[0].sizes or slot.dtype != dtype:
            arguments.append("out={out}")
            text = f"{targets[0]} = {into}({', '.join(arguments)})"
            self._line(step, targets, call, into=text, dtype=dtype)
        else:
            self.in_slot.add(place)
            arguments.append(f"out={self.bound(slot)}")
            self._line(step, targets, f"{into}({', '.join(arguments)})", fresh=True)

    def _line(self, step: Step, targets: Sequence[str], value: str, **more: Any) -> None:
        """A line that gives a value to names, "" for one that nobody takes."""
        names = ", ".join(name or "_" for name in targets)
        kept = tuple(name for name in targets if name)
        condition = self._condition(step)
        if condition:
            self.conditional += kept
        self.lines.append(_Line(f"{names} = {value}", condition, kept, **more))

    def _condition(self, step: Step) -> str:
        """Whether all `cond` branches around an operation are taken, "" if there are none."""
        return " and ".join(
            self.name(place) if taken else f"not {self.name(place)}" for place, taken in step.branch
        )

    def _targets(self, step: Step) -> list[str]:
        """The names that an operation's outputs get, "" for one that nobody takes."""
        targets = []
        for place, tensor in zip(step.outputs, step.op.outputs, strict=True):
            if place is None:
                targets.append("")
                continue
            name = self.names[place] = f"v{place}"
            targets.append(name)
            if tensor.shape.is_fully_defined() and place not in self.doubtful:
                self.static[name] = tensor.sizes  # type: ignore[assignment]  # no size is None
        return targets

    def _read(self, step: Step) -> None:
        variable = step.op.variables[0] if step.op.variables else step.op
        (place,) = step.outputs
        fed = self.plan.fed_variables.get(variable)
        if place is None:
            return
        if fed is not None:
            self.names[place] = self.names[fed]
        elif step.sources and self.versions[variable, step.sources[0]] not in self.conditional:
            self.names[place] = self.versions[variable, step.sources[0]]
        else:
            # A write in a branch that was not taken has no value.
            sources = [self.versions[variable, write] for write in step.sources]
            written = "".join(f"{name} if {name} is not None else " for name in sources)
            self._line(step, self._targets(step), f"{written}state[{self.bound(variable)}]")

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
        return fold(step, self.constants)

    def _norm(self, step: Step) -> bool:
        """The norm of all gradients of a group, in one pass over their buffer."""
        part = self.norms.get(step.inputs) if step.op.kind.name == "GlobalNorm" else None
        if part is None or part.buffer is None or part.buffer.dtype.itemsize < 4:
            return False
        self._fill(part, step)
        bounds = [(start, stop) for _, start, stop in part.span.rows]
        runs = norm_runs([stop - start for start, stop in bounds])
        views = [part.buffer[bounds[first][0] : bounds[stop - 1][1]] for first, stop in runs]
        text = f"norm_of_parts(np, {self.bound(views)})"
        self._line(step, self._targets(step), text, fresh=True)
        return True

    def _fill(self, part: Part, step: Step) -> None:
        """Gather gradients in the buffer for a step; constant ones once and for all."""
        branch = self.filled.get(part)
        if branch is not None and branch == step.branch[: len(branch)]:
            return
        self.filled[part] = step.branch
        for i, (place, variable) in enumerate(zip(part.places, part.variables, strict=True)):
            slot = part.slot(i)
            if place in self.constants:
                gathered(slot, self.constants[place], variable.name)
            elif place not in self.in_slot or self.slots[place].ctypes.data != slot.ctypes.data:
                text = f"{self.bound(slot)}, {self.name(place)}, {self.bound(variable.name)}"
                self.lines.append(_Line(f"gathered({text})", self._condition(step)))

    # -- writes -----------------------------------------------------------------------------

    def write(self, step: Step) -> None:
        """A write whose new value is made beside the old one."""
        op = step.op
        write = self.bound(functools.partial(new_values, np, op))
        arguments = "".join(f", {self.name(place)}" for place in step.inputs)
        names = [f"w{op.index}_{i}" for i in range(len(op.variables))]
        self._line(step, [*names, ""], f"*{write}(state, written, fed{arguments}), None")
        self.versions |= {(v, op): name for v, name in zip(op.variables, names, strict=True)}
        for place in step.outputs:
            if place is not None:
                self.names[place] = names[0]

    def rows(self, row: Any) -> None:
        """A sparse update: the new rows now, their writing at the end."""
        op = row.step.op
        arguments = ", ".join(self.name(place) for place in row.step.inputs)
        name = f"r{op.index}"
        self._line(row.step, [name], f"{self.bound(row.compute)}({arguments})")
        self._update(row.step, f"({self.bound(row.apply)}, {name})")

    def group(self, group: DenseGroup) -> None:
        """Fused updates: gradients and hyper-parameters now, the rest at the end.

        New values that are seen in the run are made now, beside the old ones.
        """
        step = group.steps[0]
        op = step.op
        places = group.hyper if group.scale is None else (*group.hyper, group.scale)
        numbers = f"h{op.index}"
        arguments = ", ".join(self.name(place) for place in places)
        text = f"{self.bound(group.numbers)}({arguments})"
        self._line(step, [numbers], text, fresh=True)
        work = self.bound(group.stage if group.seen else group.apply)
        for part in group.parts:
            if part.buffer is None:
                gradient = f"g{op.index}_{part.span.rows[0][0]}"
                text = f"flat({self.bound(part)}, {self.name(part.places[0])})"
                self._line(step, [gradient], text)
            else:
                self._fill(part, step)
                gradient = self.bound(part.buffer)
            if group.seen:
                text = f"{work}({self.bound(part)}, {gradient}, {numbers})"
                self.lines.append(_Line(text))
                self._show(group, part)
                self._update(step, f"({self.bound(part.write_staged)}, ())")
            else:
                self._update(step, f"({work}, ({self.bound(part)}, {gradient}, {numbers}))")

    def _update(self, step: Step, update: str) -> None:
        """Something to be done in place at the end, if the branches around the step are taken."""
        condition = self._condition(step)
        self.updates.append(f"*([{update}] if {condition} else [])" if condition else update)

    def _show(self, group: DenseGroup, part: Part) -> None:
        """Name the new values of a part for those that see them."""
        for i, (row, _, _) in enumerate(part.span.rows):
            step = group.steps[row]
            names = [self.bound(view) for view in part.new_values(i)]
            variables = step.op.variables
            self.versions |= {(v, step.op): name for v, name in zip(variables, names, strict=True)}
            for place in step.outputs:
                if place is not None:
                    self.names[place] = names[0]

    def end(self) -> None:
        """The caller's copies, and what is to be done in place."""
        results = []
        for item, place in zip(self.plan.fetches, self.plan.fetched, strict=True):
            if not isinstance(item, Tensor) or place is None:
                results.append("None")
                continue
            name = self.name(place)
            condition = self._condition(self.steps[place]) if place in self.steps else ""
            if condition:
                name = f"reached({condition}, {name})"
            results.append(f"handed_out({name})")
        updates = "".join(f"{update}, " for update in self.updates)
        self.lines.append(_Line(f"return [{', '.join(results)}], ({updates})"))

    # -- functions --------------------------------------------------------------------------

    def plain(self) -> Callable[..., Any]:
        """The program, whatever the shapes are."""
        return self._function([line.source(line.text) for line in self.lines], self.space)

    def noting(self, note: Callable[[dict[str, Layout]], None]) -> Callable[..., Any]:
        """The program, which also gives the layouts of its values to `note` at its end."""
        lines = ["layouts = {}"]
        for line in self.lines:
            lines.append(line.source(line.text))
            lines += [
                line.source(f"layouts[{name!r}] = layout({name})")
                for name in line.targets
                if name[0] in "vw"
            ]
        lines.insert(-1, "note(layouts)")
        return self._function(lines, self.space | {"layout": Layout.of, "note": note})

    def planned(self, layouts: Mapping[str, Layout], tenant: Tenant) -> Callable[..., Any] | None:
        """The program for feeds and values of such layouts, with places for the large ones.

        It raises `StaleShapeError` when a value has another shape. None where no value is large.
        """
        lives, last = self._lives(layouts)
        if not lives:
            return None
        starts, total = placed([Life(i, last[name], size) for name, (i, size) in lives.items()])
        workspace = self.arenas.workspace
        workspace.reserve(total, tenant)
        space = dict(self.space)
        places = {}
        for name, start in zip(lives, starts, strict=True):
            line = self.lines[lives[name][0]]
            places[name] = f"p{name[1:]}"
            space[places[name]] = workspace.array(start, layouts[name].shape, line.dtype)
        lines: list[str] = []
        sure = {*lives, *self.static}
        for line in self.lines:
            if line.into is None or line.targets[0] not in lives:
                lines.append(line.source(line.text))
                continue
            # Broadcasting into a larger place would pass unseen.
            for name in line.reads():
                if name not in sure:
                    if not line.condition:
                        sure.add(name)
                    check = f"StaleShapeError.check({name}, {layouts[name].shape})"
                    lines.append(line.source(check))
            lines.append(line.source(line.into.format(out=places[line.targets[0]])))
        return self._function(lines, space)

    def _lives(
        self, layouts: Mapping[str, Layout]
    ) -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
        """The values that get a place, with their line and size, and the last line of each.

        A place is in C's order, so what was not has none: the order in which elements are added up
        shows.

        What an operation gives may be a view of what it takes, so that its life is theirs too.
        """
        lives: dict[str, tuple[int, int]] = {}
        last: dict[str, int] = {}
        shown: dict[str, frozenset[str]] = {}
        for i, line in enumerate(self.lines):
            seen: frozenset[str] = frozenset()
            for name in line.reads():
                seen |= shown.get(name, frozenset())
            last.update(dict.fromkeys(seen, i))
            if line.into is not None and line.targets[0] in layouts:
                (name,) = line.targets
                shape, in_order = layouts[name]
                size = math.prod(shape) * np.dtype(line.dtype).itemsize
                if in_order and size >= LARGE:
                    lives[name] = i, size
                    last[name] = i
                    seen = frozenset({name})
            if not line.fresh:
                shown.update(dict.fromkeys(line.targets, seen))
        return lives, last

    def _function(self, lines: Sequence[str], space: Mapping[str, Any]) -> Callable[..., Any]:
        body = freed(lines)
        if self.conditional:
            body.insert(0, f"{' = '.join(self.conditional)} = None")
        text = "\n    ".join(["def program(state, fed, written, stream):", *body])
        scope = dict(space)
        exec(compile(text, FILE, "exec"), scope)
        # Not left in its own scope: that would be a cycle, which keeps the variables' memory.
        function: Callable[..., Any] = scope.pop("program")
        return function


def reached(taken: Any, value: Any) -> Any:
    """A fetched value from inside a branch; the reference tells what is wrong if there is none."""
    if not taken:
        raise InvalidArgumentError("the branch was not taken")
    return value


_VALUE = re.compile(r"\bv\d+\b")


def freed(lines: Sequence[str]) -> list[str]:
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


def fold(
    step: Step,
    constants: MutableMapping[int, Any],
    work_out: Callable[[Operation, Sequence[Any]], Any] | None = None,
) -> bool:
    """Work out an operation on constants, and add its values to them; whether that was done.

    Args:
        step: the operation.
        constants: host arrays by place.
        work_out: gives an operation's values, host arrays, of its inputs; NumPy does if None.
    """
    op, kind = step.op, step.op.kind
    constant = kind.name == "Const"
    if kind.random or kind.name == "CheckNumerics" or not (step.inputs or constant):
        return False
    if any(place not in constants for place in step.inputs):
        return False
    assert kind.kernel is not None
    try:
        with np.errstate(all="ignore"):
            inputs = [constants[place] for place in step.inputs]
            if work_out is None:
                values = kind.kernel(np, *inputs, **op.attrs)
            else:
                values = work_out(op, inputs)
    except Exception:  # noqa: BLE001 - the run meets the error in its place
        return False
    values = (values,) if len(op.outputs) == 1 else tuple(values)
    if not constant and any(np.size(value) > _FOLDED for value in values):
        return False
    constants.update(
        (place, value)
        for place, value in zip(step.outputs, values, strict=True)
        if place is not None
    )
    return True
