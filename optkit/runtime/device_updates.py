"""The optimizer updates of a plan on a device: one launch for each group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optkit.backend.cuda.update import BoundUpdate, DeviceUpdate
from optkit.backend.fused import UntraceableError
from optkit.graph import Operation
from optkit.ops.state import check_indices
from optkit.runtime.arenas import Arenas
from optkit.runtime.plan import Plan, Step
from optkit.runtime.updates import (
    DenseGroup,
    are_alike,
    check_scalars,
    check_shape,
    rule,
    take_out_factor,
)

__all__ = ["DeviceGroup", "DeviceRows", "device_groups", "device_rows"]


@dataclass(eq=False)
class DeviceGroup(DenseGroup):
    """Dense updates by one equation with the same hyper-parameters, done by one launch."""

    update: DeviceUpdate | None = None
    bound: BoundUpdate | None = None
    shapes: tuple[tuple[int, ...], ...] = ()
    owns: Callable[[Any], bool] = bool

    def arrange(self, state: MutableMapping[Operation, Any], arenas: Arenas) -> None:
        """Put the variables and slots into arenas, and compile."""
        assert self.update is not None
        rows = [step.op.variables for step in self.steps]
        for column in zip(*rows, strict=True):
            arenas.place(column, state)
        columns = [[arenas.members[op].view for op in row] for row in rows]
        self.shapes = tuple(column[0].shape for column in columns)
        self.owns = arenas.owns
        self.bound = self.update.bind(columns)

    def start(self, gradients: Sequence[Any], hyper: Sequence[Any]) -> Callable[[], None]:
        """All but the launch, which what comes back does.

        Raises:
            InvalidArgumentError: a gradient has another shape than its variable, or a
                hyper-parameter is no scalar.
        """
        assert self.bound is not None
        check_scalars(hyper)
        ready = [
            # What almost all are; there may be thousands.
            x if x.base is None and x.flags.c_contiguous and x.shape == shape else self._ready(i, x)
            for i, (x, shape) in enumerate(zip(gradients, self.shapes, strict=True))
        ]
        return self.bound.start(ready, [_readable(number, self.owns) for number in hyper])

    def _ready(self, i: int, gradient: Any) -> Any:
        check_shape(gradient, self.shapes[i], self.steps[i].op.variables[0].name)
        return _readable(gradient, self.owns)


@dataclass(eq=False)
class DeviceRows:
    """An update by a sparse gradient, in place, by one launch."""

    step: Step
    update: DeviceUpdate
    views: list[Any] = field(default_factory=list)
    bound: BoundUpdate | None = None
    owns: Callable[[Any], bool] = bool

    def arrange(self, state: MutableMapping[Operation, Any], arenas: Arenas) -> None:
        """Put the variable and its slots into arenas, and compile."""
        ops = self.step.op.variables
        for op in ops:
            arenas.place([op], state)
        self.views = [arenas.members[op].view for op in ops]
        self.owns = arenas.owns
        self.bound = self.update.bind([self.views])

    def start(
        self, xp: Any, gradient: Any, indices: Any, hyper: Sequence[Any]
    ) -> Callable[[], None]:
        """All but the launch, which what comes back does.

        Raises:
            InvalidArgumentError: a row is out of range, the rows have another shape, or a
                hyper-parameter is no scalar.
        """
        assert self.bound is not None
        check_scalars(hyper)
        attrs = self.step.op.attrs
        shape, name = self.views[0].shape, attrs["variable"]
        check_indices(xp, indices, shape[0], f"the gradient of variable {name!r}")
        check_shape(gradient, (*indices.shape, *shape[1:]), name)
        rows = xp.asarray(indices, np.int64)
        gradient = _readable(gradient, self.owns)
        hyper = [_readable(number, self.owns) for number in hyper]
        if attrs["rows"] == "named":
            return self.bound.start_rows(gradient, rows, hyper)
        full = xp.zeros(shape, gradient.dtype)
        full[rows] = gradient
        return self.bound.start([full], hyper)


def device_groups(
    plan: Plan, readers: Counter[int], seen: Container[Operation]
) -> list[DeviceGroup]:
    """The dense updates that can be fused, but for those whose results are seen in the run.

    `readers` counts who takes each place; a product that a group absorbs is taken off.
    """
    groups: dict[Any, DeviceGroup] = {}
    for step in plan.steps:
        op, attrs = step.op, step.op.attrs
        if op.kind.name == "Update" and op not in seen and attrs["rows"] == "none":
            if not are_alike(op):
                continue
            key = attrs["equation"], attrs["dtype"], step.inputs[1:]
            groups.setdefault(key, DeviceGroup([], step.inputs[1:])).steps.append(step)
    producers = {place: step for step in plan.steps for place in step.outputs}
    kept = []
    for group in groups.values():
        group.gradients = [step.inputs[0] for step in group.steps]
        take_out_factor(group, producers, readers)
        try:
            group.update = DeviceUpdate(*rule(group), group.steps[0].op.attrs["dtype"].dtype)
        except UntraceableError:
            continue
        for product in group.absorbed:
            readers.subtract(product.inputs)
        kept.append(group)
    return kept


def device_rows(plan: Plan, seen: Container[Operation]) -> list[DeviceRows]:
    """The updates by rows that can be fused, but for those whose results are seen in the run."""
    found = []
    for step in plan.steps:
        op = step.op
        if op.kind.name != "Update" or op in seen or op.attrs["rows"] not in ("named", "all"):
            continue
        if not are_alike(op):
            continue
        attrs = op.attrs
        try:
            update = DeviceUpdate(
                attrs["equation"], attrs["count"] - 1, attrs["hyper"], attrs["dtype"].dtype
            )
        except UntraceableError:
            continue
        found.append(DeviceRows(step, update))
    return found


def _readable(array: Any, owns: Callable[[Any], bool]) -> Any:
    """An array in C's order that shares nothing with a variable that is updated."""
    if not array.flags.c_contiguous or (array.base is not None and owns(array)):
        return array.copy("C")
    return array
