"""The lines of a program for a device.

As `optkit.runtime.code`, with one thing more to know of each value: where it is. What the host
can know without asking the device stays on the host: what is fed, constants, shapes, and integers
made of these. It is sent when a kernel needs it. The other way, something waits for the device
only where an operation insists on a host value that the device alone knows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optkit.backend import Backend
from optkit.backend.cuda.update import Gathered
from optkit.dtypes import string
from optkit.graph import Operation, Tensor
from optkit.runtime.code import FILE, fold, freed, reached
from optkit.runtime.device_updates import DeviceGroup, DeviceRows
from optkit.runtime.execution import new_values
from optkit.runtime.kernels import of_text
from optkit.runtime.plan import Plan, Step

__all__ = ["DeviceCode"]

_FROM_SHAPES = frozenset({"Rank", "Shape", "Size"})
"""Operations that ask an array for its shape only."""
_SMALL = 1 << 10
"""Elements up to which integers are worked out on the host."""


class DeviceCode:
    """The lines of a program, and the values they refer to by name."""

    def __init__(self, plan: Plan, backend: Backend) -> None:
        self.plan = plan
        self.backend = backend
        self.lines: list[str] = []
        self.space: dict[str, Any] = {
            "on_device": backend.asarray,
            "on_host": backend.to_numpy,
            "number": _number,
            "np": np,
            "reached": reached,
        }
        self.tensors = {place: tensor for tensor, place in plan.places.items()}
        # Where a value is: on the device; on the host; or where the run finds it.
        self.device: dict[int, str] = {}
        self.host: dict[int, str] = {}
        self.found: dict[int, str] = {place: f"fed[{i}]" for i, place in enumerate(plan.fed)}
        self.constants: dict[int, Any] = {}
        self.updates: list[str] = []
        self.versions: dict[tuple[Operation, Operation], str] = {}
        self.steps = {place: s for s in plan.steps for place in s.outputs if place is not None}
        # The names that are None when a branch is not taken, in the order of their lines.
        self.conditional: dict[str, None] = {}
        self.predicates: dict[int, str] = {}
        for i, place in enumerate(plan.fed):
            tensor = self.tensors[place]
            if tensor.sizes == () and not tensor.dtype.is_floating and tensor.dtype is not string:
                # Flags and counts decide what is done: the host must know them.
                self.host[place] = f"h{i}"
                self.lines.append(f"h{i} = on_host(fed[{i}])")

    def bound(self, value: Any) -> str:
        """A name for a value of the compiler's."""
        name = f"c{len(self.space)}"
        self.space[name] = value
        return name

    # -- where values are -------------------------------------------------------------------

    def on_device(self, place: int) -> str:
        """The name of a value on the device; texts are always on the host."""
        if place not in self.device:
            if self.tensors[place].dtype is string:
                return self.anywhere(place)
            if place in self.constants:
                self.device[place] = self.bound(self.backend.asarray(self.constants[place]))
            else:
                self.device[place] = self._converted(place, f"v{place}d", "on_device")
        return self.device[place]

    def on_host(self, place: int) -> str:
        """The name of a value on the host."""
        if place not in self.host:
            if place in self.constants:
                self.host[place] = self.bound(self.constants[place])
            else:
                self.host[place] = self._converted(place, f"v{place}h", "on_host")
        return self.host[place]

    def _converted(self, place: int, name: str, how: str) -> str:
        """A line that makes a value's copy on the other side, whoever asks for it first."""
        source = self.anywhere(place)
        if source in self.conditional:
            self.conditional[name] = None
            self.lines.append(f"{name} = None if {source} is None else {how}({source})")
        else:
            self.lines.append(f"{name} = {how}({source})")
        return name

    def anywhere(self, place: int) -> str:
        """The name of a value where it is, on the host if it is there too."""
        if place in self.host or place in self.constants:
            return self.on_host(place)
        return self.found[place] if place in self.found else self.device[place]

    def _known(self, place: int) -> bool:
        """Whether a value is on the host without anybody waiting for it."""
        return place in self.host or place in self.constants

    # -- branches ---------------------------------------------------------------------------

    def _line(self, step: Step, targets: Sequence[str], value: str) -> None:
        """A line that gives a value to names, if the branches around the operation are taken."""
        condition = self._condition(step)
        line = f"{', '.join(targets)} = {value}"
        if condition:
            self.conditional.update(dict.fromkeys(name for name in targets if name != "_"))
            line = f"if {condition}: {line}"
        self.lines.append(line)

    def _condition(self, step: Step) -> str:
        """Whether all `cond` branches around an operation are taken, "" if there are none."""
        tests = [(self._predicate(place), taken) for place, taken in step.branch]
        return " and ".join(name if taken else f"not {name}" for name, taken in tests)

    def _predicate(self, place: int) -> str:
        if place not in self.predicates:
            value = self.on_host(place)
            self.predicates[place] = f"p{place}"
            self.lines.append(f"p{place} = bool({value})")
        return self.predicates[place]

    # -- operations that write nothing ------------------------------------------------------

    def compute(self, step: Step) -> None:
        """An operation that writes nothing."""
        op, kind = step.op, step.op.kind
        if kind.access in ("variable", "read"):
            self._read(step)
        elif kind.access == "initialized":
            (place,) = step.outputs
            if place is not None:
                self.host[place] = f"v{place}"
                value = f"np.asarray({self.bound(op.variables[0])} in state)"
                self._line(step, [f"v{place}"], value)
        elif kind.merges:
            self._merge(step)
        elif kind.name in ("Identity", "StopGradient"):
            self._alias(step)
        elif op.outputs and not fold(step, self.constants, self._worked_out):
            self._call(step)

    def _worked_out(self, op: Operation, inputs: Sequence[Any]) -> Any:
        """The values of an operation on constants; floats have the bits that the device gives."""
        kind = op.kind
        assert kind.kernel is not None
        if (
            kind.name == "Const"
            or of_text(kind, op.inputs)
            or not any(y.dtype.is_floating for y in op.outputs)
        ):
            return kind.kernel(np, *inputs, **op.attrs)
        sent = [
            x if i in kind.host or i in kind.either else self.backend.asarray(np.asarray(x))
            for i, x in enumerate(inputs)
        ]
        values = kind.kernel(self.backend.xp, *sent, **op.attrs)
        if len(op.outputs) == 1:
            return self.backend.to_numpy(values)
        return [self.backend.to_numpy(value) for value in values]

    def _read(self, step: Step) -> None:
        variable = step.op.variables[0] if step.op.variables else step.op
        (place,) = step.outputs
        if place is None:
            return
        fed = self.plan.fed_variables.get(variable)
        if fed is not None:
            self.found[place] = self.found[fed]
        elif step.sources and self.versions[variable, step.sources[0]] not in self.conditional:
            self.device[place] = self.versions[variable, step.sources[0]]
        else:
            # A write in a branch that was not taken has no value.
            sources = [self.versions[variable, write] for write in step.sources]
            written = "".join(f"{source} if {source} is not None else " for source in sources)
            name = self.device[place] = f"v{place}"
            self._line(step, [name], f"{written}state[{self.bound(variable)}]")

    def _merge(self, step: Step) -> None:
        (place,) = step.outputs
        if place is None:
            return
        predicate = self._predicate(step.inputs[0])
        yes, no = map(self.on_device, step.inputs[1:])
        text = self.tensors[place].dtype is string
        (self.found if text else self.device)[place] = f"v{place}"
        self._line(step, [f"v{place}"], f"{yes} if {predicate} else {no}")

    def _alias(self, step: Step) -> None:
        (source,), (place,) = step.inputs, step.outputs
        if place is None:
            return
        for known in (self.constants, self.device, self.host, self.found):
            if source in known:
                known[place] = known[source]

    def _call(self, step: Step) -> None:
        op, kind = step.op, step.op.kind
        assert kind.kernel is not None
        text = of_text(op.kind, op.inputs)
        on_host = text or self._for_the_host(step)
        if text:
            arguments = [self.on_host(place) for place in step.inputs]
        elif on_host:
            arguments = [self.anywhere(place) for place in step.inputs]
        else:
            arguments = [self._argument(step, i) for i in range(len(step.inputs))]
        if kind.random:
            arguments.append(f"stream=stream({self.bound(op)})")
        xp = np if on_host else self.backend.xp
        kernel = self.bound(functools.partial(kind.kernel, xp, **op.attrs))
        targets = []
        for place, tensor in zip(step.outputs, op.outputs, strict=True):
            targets.append("_" if place is None else f"v{place}")
            if place is not None:
                self._places(step, tensor, on_host)[place] = f"v{place}"
        self._line(step, targets, f"{kernel}({', '.join(arguments)})")

    def _argument(self, step: Step, i: int) -> str:
        kind, place = step.op.kind, step.inputs[i]
        if i in kind.host:
            return self.on_host(place)
        return self.anywhere(place) if i in kind.either else self.on_device(place)

    def _places(self, step: Step, tensor: Tensor, on_host: bool) -> dict[int, str]:
        """Where an output will be."""
        if on_host:
            return self.host
        # Numbers of rows stay where they came from.
        if tensor.dtype is string or (step.op.kind.either and tensor.dtype.is_integer):
            return self.found
        return self.device

    def _for_the_host(self, step: Step) -> bool:
        """Whether the host can do an operation at once: small integers made of what it knows."""
        op, kind = step.op, step.op.kind
        if kind.name in _FROM_SHAPES:
            return True
        if kind.random or not step.inputs or not all(map(self._known, step.inputs)):
            return False
        for tensor in op.outputs:
            count = tensor.shape.num_elements()
            if tensor.dtype.is_floating or tensor.dtype is string or count is None:
                return False
            if count > _SMALL:
                return False
        return True

    # -- writes -----------------------------------------------------------------------------

    def write(self, step: Step) -> None:
        """A write whose new values are made beside the old ones."""
        op = step.op
        text = of_text(op.kind, op.inputs)
        write = self.bound(functools.partial(new_values, np if text else self.backend.xp, op))
        inputs = [
            self.on_host(place) if text else self._argument(step, i)
            for i, place in enumerate(step.inputs)
        ]
        arguments = "".join(f", {name}" for name in inputs)
        names = [f"w{op.index}_{i}" for i in range(len(op.variables))]
        self._line(step, [*names, "_"], f"*{write}(state, written, fed{arguments}), None")
        self._written(step, names)

    def _written(self, step: Step, names: Sequence[str]) -> None:
        """Have what sees a write find the new values by their names."""
        op = step.op
        self.versions |= {(v, op): name for v, name in zip(op.variables, names, strict=True)}
        for place in step.outputs:
            if place is not None:
                self.device[place] = names[0]

    def rows(self, rows: DeviceRows) -> None:
        """A sparse update: everything but the launch now, the launch at the end."""
        gradient, indices, *hyper = rows.step.inputs
        start = self.bound(functools.partial(rows.start, self.backend.xp))
        numbers = self._numbers(hyper, rows.update.number)
        arguments = f"{self.on_device(gradient)}, {self.anywhere(indices)}, {numbers}"
        self._update(rows.step, f"{start}({arguments})")

    def group(self, group: DeviceGroup) -> None:
        """Fused updates: everything but the launch now, the launch at the end.

        New values that are seen in the run are made now, beside the old ones.
        """
        hyper = group.hyper if group.scale is None else (*group.hyper, group.scale)
        assert group.update is not None
        arguments = f"{self._gradients(group)}, {self._numbers(hyper, group.update.number)}"
        if not group.seen:
            self._update(group.steps[0], f"{self.bound(group.start)}({arguments})")
            return
        self.lines.append(f"{self.bound(group.stage_all)}({arguments})")
        self.updates.append(self.bound(group.write_staged))
        for step, views in zip(group.steps, group.views, strict=True):
            names = [self.bound(view) for view in views]
            self._written(step, names)

    def _gradients(self, group: DeviceGroup) -> str:
        """The gradients of a group; constant ones are looked at once and for all."""
        places = group.gradients
        if all(place in self.constants for place in places):
            arrays = [self.backend.asarray(self.constants[place]) for place in places]
            return self.bound(Gathered.of(group.ready(arrays)))
        return f"[{', '.join([self.on_device(place) for place in places])}]"

    def _numbers(self, places: Sequence[int], dtype: np.dtype[Any]) -> str:
        """Hyper-parameters as device arrays of a dtype; constants are sent once."""
        names = []
        for place in places:
            if place in self.constants:
                number = np.asarray(self.constants[place]).astype(dtype)
                names.append(self.bound(self.backend.asarray(number)))
            else:
                names.append(f"number({self.on_device(place)}, {self.bound(dtype)})")
        return f"[{', '.join(names)}]"

    def _update(self, step: Step, call: str) -> None:
        """A launch that is left for the end, if the branches around the step are taken."""
        name = f"u{len(self.updates)}"
        self._line(step, [name], call)
        self.updates.append(f"*([{name}] if {name} else [])" if step.branch else name)

    # -- the end ----------------------------------------------------------------------------

    def function(self) -> Callable[..., Any]:
        """The program: gives what is fetched, where it is, and the launches that are left."""
        results = []
        for item, place in zip(self.plan.fetches, self.plan.fetched, strict=True):
            if not isinstance(item, Tensor) or place is None:
                results.append("None")
                continue
            name = self.anywhere(place)
            condition = self._condition(self.steps[place]) if place in self.steps else ""
            results.append(f"reached({condition}, {name})" if condition else name)
        updates = "".join(f"{update}, " for update in self.updates)
        self.lines.append(f"return [{', '.join(results)}], ({updates})")
        body = freed(self.lines)
        if self.conditional:
            body.insert(0, f"{' = '.join(self.conditional)} = None")
        text = "\n    ".join(["def program(state, fed, written, stream):", *body])
        scope = dict(self.space)
        exec(compile(text, FILE, "exec"), scope)
        # Not left in its own scope: that would be a cycle, which keeps the variables' memory.
        function: Callable[..., Any] = scope.pop("program")
        return function


def _number(value: Any, dtype: np.dtype[Any]) -> Any:
    """A hyper-parameter in the dtype of the arithmetic."""
    return value if value.dtype == dtype else value.astype(dtype)
