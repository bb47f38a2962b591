"""The optimizer updates of a plan, grouped so that one kernel does many, and done in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from optkit.backend.arrays import aligned
from optkit.backend.fused import FusedUpdate, UntraceableError
from optkit.errors import InvalidArgumentError
from optkit.graph import Operation
from optkit.ops.update import changed_rows
from optkit.runtime.arenas import Arenas, Span
from optkit.runtime.kernels import guarded
from optkit.runtime.plan import Plan, Step
from optkit.shapes import TensorShape

__all__ = [
    "DenseGroup",
    "Part",
    "RowUpdate",
    "are_alike",
    "arranged",
    "check_scalars",
    "check_shape",
    "dense_groups",
    "row_updates",
    "seen_writes",
    "write_lines",
]


def seen_writes(plan: Plan) -> dict[Operation, int | None]:
    """The writes whose results are seen in the run, and the index of the first that sees each.

    The index is None where another write to the variable is one of them, and for writes that
    happen on a condition, of which nobody knows beforehand what is seen.
    """
    writes = [step for step in plan.steps if step.op.kind.access == "write"]
    makers = {place: step.op for step in writes for place in step.outputs}
    seen: dict[Operation, int | None] = {}
    for step in plan.steps:
        for write in (*step.sources[:1], *(makers.get(place) for place in step.inputs)):
            if write is not None:
                seen.setdefault(write, step.op.index)
    for place in plan.fetched:
        if place in makers:
            seen.setdefault(makers[place], plan.steps[-1].op.index + 1)
    count = Counter(variable for step in writes for variable in step.op.variables)
    for step in writes:
        unsure = step.op in seen and step.branch
        if unsure or any(count[variable] > 1 for variable in step.op.variables):
            seen[step.op] = None
    return seen


@dataclass(eq=False)
class Part:
    """A span of a group, its gradients' places, and the buffer they are gathered in.

    A span of one variable takes its gradient as it is and has no buffer; `spare` is where a
    gradient goes that cannot be taken so. `staged` holds the new values of the columns until they
    are written, where something in the run sees them before.
    """

    span: Span
    places: tuple[int, ...]
    variables: tuple[Operation, ...]
    views: tuple[np.ndarray[Any, Any], ...]
    buffer: np.ndarray[Any, Any] | None
    spare: np.ndarray[Any, Any] | None = None
    staged: tuple[np.ndarray[Any, Any], ...] = ()

    def slot(self, i: int) -> np.ndarray[Any, Any]:
        """Where the i-th gradient goes in the buffer, in its variable's shape."""
        assert self.buffer is not None
        return self._shown(self.buffer, i)

    def new_values(self, i: int) -> list[np.ndarray[Any, Any]]:
        """Where the i-th variable's and its slots' staged values are, read-only."""
        views = [self._shown(column, i) for column in self.staged]
        for view in views:
            view.flags.writeable = False
        return views

    def _shown(self, column: np.ndarray[Any, Any], i: int) -> np.ndarray[Any, Any]:
        _, start, stop = self.span.rows[i]
        return column[start:stop].reshape(self.views[i].shape)

    def write_staged(self) -> None:
        """Make the staged values those of the variables and slots."""
        for column, new in zip(self.span.columns, self.staged, strict=True):
            np.copyto(column, new)


@dataclass(eq=False)
class DenseGroup:
    """Dense updates by one equation with the same hyper-parameters, in one branch.

    Attributes:
        steps: the updates.
        hyper: the places of the hyper-parameters.
        scale: the place of a factor that all gradients share, or None.
        gradients: the places of the gradients, before the factor.
        absorbed: the steps that multiply by the factor, which the kernel does instead.
        seen: whether the new values are seen in the same run, so that they are made beside the
            old ones.
        number: the NumPy scalar type of the arithmetic.
    """

    steps: list[Step]
    hyper: tuple[int, ...]
    seen: bool = False
    scale: int | None = None
    gradients: list[int] = field(default_factory=list)
    absorbed: list[Step] = field(default_factory=list)
    number: Any = None
    kernel: FusedUpdate | None = None
    parts: list[Part] = field(default_factory=list)

    def fuse(self) -> None:
        """Make the kernel, once the group is complete.

        Raises:
            UntraceableError: the equation cannot be followed.
        """
        self.kernel = FusedUpdate(*rule(self))
        self.number = _number(self.steps[0].op)

    def arrange(self, state: MutableMapping[Operation, Any], arenas: Arenas) -> None:
        """Put the variables and slots into arenas, and compile."""
        columns = list(zip(*(step.op.variables for step in self.steps), strict=True))
        for column in columns:
            arenas.place(column, state)
        self.parts = []
        for span in arenas.spans(columns):
            chosen = [self.steps[i].op.variables[0] for i, _, _ in span.rows]
            single = len(chosen) == 1
            buffer = None if single else np.zeros(span.size, span.columns[0].dtype)
            part = Part(
                span,
                tuple(self.gradients[i] for i, _, _ in span.rows),
                tuple(chosen),
                tuple(arenas.members[op].view for op in chosen),
                buffer,
            )
            if self.seen:
                part.staged = tuple(aligned(span.size, array.dtype) for array in span.columns)
            self.parts.append(part)
            assert self.kernel is not None
            self.kernel.prepare(span.columns[0].dtype, span.size)

    def numbers(self, *values: Any) -> list[Any]:
        """The hyper-parameters as scalars of the arithmetic's type.

        Raises:
            InvalidArgumentError: one is no scalar.
        """
        numbers = [self.number(value) for value in values]
        check_scalars(numbers)
        return numbers

    def apply(self, part: Part, gradient: np.ndarray[Any, Any], numbers: Sequence[Any]) -> None:
        """Update a part in place."""
        assert self.kernel is not None
        self.kernel(part.span.columns, gradient, numbers)

    def stage(self, part: Part, gradient: np.ndarray[Any, Any], numbers: Sequence[Any]) -> None:
        """Make a part's new values beside the old ones."""
        assert self.kernel is not None
        for column, new in zip(part.span.columns, part.staged, strict=True):
            np.copyto(new, column)
        self.kernel(part.staged, gradient, numbers)


def _is_ready(step: Step, state: Container[Operation]) -> bool:
    """Whether an update can be fused: in a branch that is not taken a variable may have no value.

    Elsewhere it must have one, and who misses it says so.
    """
    return not step.branch or all(variable in state for variable in step.op.variables)


_Group = TypeVar("_Group", bound=DenseGroup)


def dense_groups(
    plan: Plan,
    readers: Counter[int],
    seen: Mapping[Operation, int | None],
    kind: type[_Group],
) -> list[_Group]:
    """The dense updates that can be fused, in groups of a kind.

    `readers` counts who takes each place; a product that a group absorbs is taken off. `seen`
    holds the writes whose results are seen in the same run, and the index of the first operation
    that sees each; None where another write does.
    """
    groups: dict[Any, _Group] = {}
    for step in plan.steps:
        op = step.op
        if op.kind.name == "Update" and seen.get(op, 0) is not None and _is_regular(op):
            attrs = op.attrs
            key = attrs["equation"], attrs["dtype"], step.inputs[1:], step.branch, op in seen
            group = groups.setdefault(key, kind([], step.inputs[1:], op in seen))
            group.steps.append(step)
    producers = {place: step for step in plan.steps for place in step.outputs}
    kept = []
    for group in groups.values():
        last = group.steps[-1].op.index
        if any((seen.get(step.op) or last) < last for step in group.steps):
            continue  # one is seen before the others can be made
        group.gradients = [step.inputs[0] for step in group.steps]
        take_out_factor(group, producers, readers)
        try:
            group.fuse()
        except UntraceableError:
            continue
        for product in group.absorbed:
            readers.subtract(product.inputs)
        kept.append(group)
    return kept


def _is_regular(op: Operation) -> bool:
    """Whether it is a dense update whose variable and slots are alike."""
    return op.attrs["rows"] == "none" and are_alike(op)


def are_alike(op: Operation) -> bool:
    """Whether the variable of an update and its slots have one shape and dtype."""
    handle = op.variables[0].outputs[0]
    return (
        handle.shape.is_fully_defined()
        and all(
            slot.outputs[0].shape == handle.shape and slot.outputs[0].dtype is handle.dtype
            for slot in op.variables
        )
        and len(set(op.variables)) == len(op.variables)
    )


def _number(op: Operation) -> Any:
    """The NumPy scalar type of an update's arithmetic."""
    dtype = op.attrs["dtype"]
    return np.float32 if dtype.size == 2 else dtype.as_numpy_dtype


def take_out_factor(
    group: DenseGroup, producers: dict[int | None, Step], readers: Counter[int]
) -> None:
    """Find the factor that clipping multiplies all gradients by."""
    products = [producers.get(place) for place in group.gradients]
    factors = set()
    for product, place in zip(products, group.gradients, strict=True):
        if product is None or product.op.kind.name != "Mul" or readers[place] != 1:
            return
        x, factor = product.op.inputs
        if factor.sizes != () or x.shape != product.op.outputs[0].shape:
            return
        factors.add(product.inputs[1])
    # In half precision the product is rounded; the kernel's arithmetic would not do that.
    if len(factors) != 1 or group.steps[0].op.attrs["dtype"].size == 2:
        return
    (group.scale,) = factors
    group.absorbed = [product for product in products if product is not None]
    group.gradients = [product.inputs[0] for product in group.absorbed]


def rule(group: DenseGroup) -> tuple[Callable[..., Any], int, Sequence[str]]:
    """The equation of a group with its factor in it, the slots it has, and the numbers it takes."""
    attrs = group.steps[0].op.attrs
    parts = attrs["equation"], attrs["count"] - 1, attrs["hyper"]
    return parts if group.scale is None else scaled(*parts)


def scaled(
    equation: Callable[..., Any], slots: int, hyper: Sequence[str]
) -> tuple[Callable[..., Any], int, Sequence[str]]:
    """An equation that multiplies the gradient by one more hyper-parameter, `gradient_scale`."""

    def with_scale(xp: Any, w: Any, g: Any, *slots: Any, gradient_scale: Any, **rest: Any) -> Any:
        return equation(xp, w, g * gradient_scale, *slots, **rest)

    return with_scale, slots, (*hyper, "gradient_scale")


@dataclass(eq=False)
class RowUpdate:
    """An update by a sparse gradient, without arrays of the variable's size.

    Attributes:
        step: the update.
        idle: for an optimizer that moves the rows without a gradient too, the kernel that does.
    """

    step: Step
    idle: FusedUpdate | None = None
    views: tuple[np.ndarray[Any, Any], ...] = ()
    owns: Callable[[Any], bool] = bool

    def arrange(self, state: MutableMapping[Operation, Any], arenas: Arenas) -> None:
        """Put the variable and its slots into arenas, where their rows can be written."""
        ops = self.step.op.variables
        for op in ops:
            arenas.place([op], state)
        self.views = tuple(arenas.members[op].view for op in ops)
        self.owns = arenas.owns
        if self.idle is not None:
            self.idle.prepare(self.views[0].dtype, self.views[0].size)

    def compute(self, *inputs: Any) -> tuple[Any, tuple[Any, ...], Sequence[Any]]:
        """The row numbers, the new rows of the variable and its slots, the hyper-parameters."""
        attrs = {**self.step.op.attrs, "rows": "named"}
        indices, news = changed_rows(np, *self.views, *map(guarded, inputs), **attrs)
        # An equation may give its gradient back, which may be a variable that is updated too.
        news = tuple(new.copy() if self.owns(new) else new for new in news)
        number = _number(self.step.op)
        return indices, news, [number(value) for value in inputs[2:]]

    def apply(self, indices: Any, news: Sequence[Any], numbers: Sequence[Any]) -> None:
        """Write the new rows, after the others have been moved where they move."""
        if self.idle is not None:
            self.idle([view.reshape(-1) for view in self.views], None, numbers)
        for view, new in zip(self.views, news, strict=True):
            view[indices] = new


def row_updates(plan: Plan, seen: Container[Operation]) -> list[RowUpdate]:
    """The updates by rows, but for those whose results are seen in the same run."""
    updates = []
    for step in plan.steps:
        op = step.op
        if op.kind.name != "Update" or op in seen:
            continue
        if op.attrs["rows"] == "named":
            updates.append(RowUpdate(step))
        elif op.attrs["rows"] == "all" and are_alike(op):
            attrs = op.attrs
            try:
                idle = FusedUpdate(attrs["equation"], attrs["count"] - 1, attrs["hyper"])
            except UntraceableError:
                continue
            updates.append(RowUpdate(step, idle))
    return updates


class _Rows(Protocol):
    """A sparse update that works in place."""

    @property
    def step(self) -> Step: ...

    def arrange(self, state: MutableMapping[Operation, Any], arenas: Arenas) -> None: ...


_SomeRows = TypeVar("_SomeRows", bound=_Rows)


def arranged(
    groups: Sequence[_Group],
    rows: Sequence[_SomeRows],
    state: MutableMapping[Operation, Any],
    arenas: Arenas,
) -> tuple[list[_Group], list[_SomeRows]]:
    """The updates that can be fused now, with their variables in arenas."""
    ready = [group for group in groups if all(_is_ready(step, state) for step in group.steps)]
    ready_rows = [row for row in rows if _is_ready(row.step, state)]
    for group in ready:
        group.arrange(state, arenas)
    for row in ready_rows:
        row.arrange(state, arenas)
    return ready, ready_rows


class _Lines(Protocol):
    """The code of a program that is being written."""

    def compute(self, step: Step) -> None: ...
    def write(self, step: Step) -> None: ...
    def rows(self, row: Any, /) -> None: ...
    def group(self, group: Any, /) -> None: ...


def write_lines(
    code: _Lines, plan: Plan, groups: Sequence[DenseGroup], rows: Sequence[_Rows]
) -> None:
    """Write a plan's lines: what is computed in its order, then the updates in place.

    A group whose new values are seen in the run has its place where its last update has it.
    """
    fused = {step for group in groups for step in (*group.steps, *group.absorbed)}
    fused |= {row.step for row in rows}
    staged = {group.steps[-1]: group for group in groups if group.seen}
    for step in plan.steps:
        if step in staged:
            code.group(staged[step])
        elif step in fused:
            continue
        elif step.op.kind.access == "write":
            code.write(step)
        else:
            code.compute(step)
    for row in rows:
        code.rows(row)
    for group in groups:
        if not group.seen:
            code.group(group)


def gathered(target: np.ndarray[Any, Any], gradient: Any, variable: str) -> None:
    """Copy a gradient to its place in the arena.

    Raises:
        InvalidArgumentError: it has another shape.
    """
    if gradient.shape != target.shape:
        check_shape(gradient, target.shape, variable)
    target[...] = gradient  # half the time of copyto


def flat(arenas: Arenas, part: Part, gradient: Any) -> np.ndarray[Any, Any]:
    """The gradient of a part's one variable as a flat array that shares nothing with a variable.

    Raises:
        InvalidArgumentError: it has another shape.
    """
    (view,), (variable,) = part.views, part.variables
    array = np.asarray(gradient)
    check_shape(array, view.shape, variable.name)
    if not array.flags.c_contiguous or arenas.owns(array):
        if part.spare is None:
            part.spare = np.empty(view.shape, view.dtype)
        np.copyto(part.spare, array)
        array = part.spare
    return array.reshape(-1)


def check_scalars(numbers: Sequence[Any]) -> None:
    """Raise InvalidArgumentError unless all are numbers; the reference tells which is not."""
    for number in numbers:
        if number.ndim:
            raise InvalidArgumentError("a hyper-parameter is no scalar")


def check_shape(gradient: Any, shape: tuple[int, ...], variable: str) -> None:
    """Raise InvalidArgumentError for a gradient of another shape than its variable's."""
    if np.shape(gradient) != shape:
        raise InvalidArgumentError(
            f"the gradient of variable {variable!r}: expected shape {TensorShape(shape)}, got "
            f"{TensorShape(np.shape(gradient))}"
        )
