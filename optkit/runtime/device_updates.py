"""The optimizer updates of a plan on a device: one launch for each group."""

from __future__ import annotations

from collections.abc import Callable, Container, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optkit.backend.cuda.update import BoundUpdate, DeviceUpdate, Gathered
from optkit.backend.fused import UntraceableError
from optkit.graph import Operation
from optkit.ops.state import check_indices
from optkit.runtime.arenas import Arenas
from optkit.runtime.plan import Plan, Step
from optkit.runtime.updates import DenseGroup, are_alike, check_scalars, check_shape, rule

__all__ = ["DeviceGroup", "DeviceRows", "device_rows"]


@dataclass(eq=False)
class DeviceGroup(DenseGroup):
    """Dense updates by one equation with the same hyper-parameters, done by one launch.

    Attributes:
        views: for each update the arrays that it changes: those of the variable and its slots, or
            where their new values are staged.
        staged: stretches of arenas, each with the array that its new values are staged in.
    """

    update: DeviceUpdate | None = None
    bound: BoundUpdate | None = None
    views: list[list[Any]] = field(default_factory=list)
    staged: list[tuple[Any, Any]] = field(default_factory=list)
    shapes: tuple[tuple[int, ...], ...] = ()
    owns: Callable[[Any], bool] = bool

    def fuse(self) -> None:
        """Make the kernel; see `DenseGroup.fuse`."""
        self.update = DeviceUpdate(*rule(self), self.steps[0].op.attrs["dtype"].dtype)

    def arrange(self, state: MutableMapping[Operation, Any], arenas: Arenas) -> None:
        """Put the variables and slots into arenas, and compile."""
        assert self.update is not None
        rows = [step.op.variables for step in self.steps]
        columns = list(zip(*rows, strict=True))
        for column in columns:
            arenas.place(column, state)
        self.views = [[arenas.members[op].view for op in row] for row in rows]
        self.staged = []
        for span in arenas.spans(columns) if self.seen else ():
            news = [old.copy() for old in span.columns]
            self.staged += zip(span.columns, news, strict=True)
            for i, start, stop in span.rows:
                shape = self.views[i][0].shape
                self.views[i] = [new[start:stop].reshape(shape) for new in news]
        self.shapes = tuple(views[0].shape for views in self.views)
        self.owns = arenas.owns
        self.bound = self.update.bind(self.views)

    def start(
        self, gradients: Sequence[Any] | Gathered, hyper: Sequence[Any]
    ) -> Callable[[], None]:
        """All but the launch, which what comes back does.

        Raises:
            InvalidArgumentError: a gradient has another shape than its variable, or a
                hyper-parameter is no scalar.
        """
        assert self.bound is not None
        check_scalars(hyper)
        if not isinstance(gradients, Gathered):
            gradients = self.ready(gradients)
        return self.bound.start(gradients, [_readable(number, self.owns) for number in hyper])

    def ready(self, gradients: Sequence[Any]) -> list[Any]:
        """The gradients as the kernel takes them.

        Raises:
            InvalidArgumentError: one has another shape than its variable.
        """
        return [
            # What almost all are; there may be thousands.
            x if x.base is None and x.flags.c_contiguous and x.shape == shape else self._ready(i, x)
            for i, (x, shape) in enumerate(zip(gradients, self.shapes, strict=True))
        ]

    def stage_all(self, gradients: Sequence[Any] | Gathered, hyper: Sequence[Any]) -> None:
        """Make the new values beside the old ones, now.

        Raises:
            InvalidArgumentError: as for `start`.
        """
        for old, new in self.staged:
            new[...] = old
        self.start(gradients, hyper)()

    def write_staged(self) -> None:
        """Make the staged values those of the variables and slots."""
        for old, new in self.staged:
            old[...] = new

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
