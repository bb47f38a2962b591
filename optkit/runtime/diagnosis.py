"""Why a value is not finite: a run is repeated with all its values kept, and walked backwards.

The walk starts at what turned out not finite and follows values that are not finite to where they
come from: an operation whose inputs are all finite, a fed array, a variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optkit.graph import Operation, Tensor
from optkit.runtime.execution import Run
from optkit.runtime.fetches import as_feeds
from optkit.runtime.plan import Plan, Step

__all__ = ["CHECKS", "Node", "Report", "Trace", "describe_values", "observe", "report"]

CHECKS = ("CheckNumerics", "CheckFinite")
"""The types of operations that raise when a value is not finite."""

_SOURCES = ("fed", "variable", "constant")
_SHOWN_ROWS = 16


@dataclass(frozen=True)
class Node:
    """An operation of a trace.

    Attributes:
        inputs, outputs: the names of the tensors.
        source: "fed", "variable" or "constant" where the value is given; "" where it is computed.
        told: what it is, with the line of the user's code that built it.
        forward: the same of the operation whose gradient it is a part of, or "".
    """

    name: str
    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    source: str
    told: str
    forward: str


@dataclass
class Trace:
    """The operations of a run in order, and the values of its tensors by name.

    Attributes:
        nodes: the operations that ran.
        values: host arrays; a tensor without a value was not computed.
        operations: the operations behind the nodes, where there is a graph.
        error: what an operation raised, which ended the run early.
    """

    nodes: list[Node] = field(default_factory=list)
    values: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    operations: dict[str, Operation] = field(default_factory=dict)
    error: Exception | None = None

    def bad(self, tensor: str) -> bool:
        """Whether a tensor holds NaN or infinity."""
        value = self.values.get(tensor)
        return value is not None and not _finite(value)

    def has_nan(self, tensor: str) -> bool:
        """Whether a tensor holds NaN."""
        value = self.values.get(tensor)
        return value is not None and _is_float(value) and bool(np.isnan(value).any())

    def path(self, targets: Iterable[str]) -> list[Node]:
        """The operations through which what is not finite came to the targets, oldest first."""
        producers = {tensor: node for node in self.nodes for tensor in node.outputs}
        found: dict[str, Node] = {}
        waiting = [tensor for tensor in targets if self.bad(tensor)]
        while waiting:
            node = producers.get(waiting.pop())
            if node is not None and node.name not in found:
                found[node.name] = node
                waiting += [tensor for tensor in node.inputs if self.bad(tensor)]
        return [node for node in self.nodes if node.name in found]

    def origin(self, targets: Iterable[str]) -> Node | None:
        """Where what is not finite in the targets came from first."""
        path = self.path(targets)
        first = [node for node in path if not any(map(self.bad, node.inputs))]
        # Infinities that the user wrote down, as masks are, are no fault of theirs.
        meant = [node for node in first if node.source != "constant"]
        if meant:
            return meant[0]
        for node in path:
            if not node.source and any(map(self.has_nan, node.outputs)):
                return node
        return first[0] if first else None


class _Kept(Run):
    """A run that lets what is not finite pass, and is never made the session's state."""

    def _results(self, step: Step) -> Sequence[Any]:
        if step.op.kind.name in CHECKS:
            return (self.values[step.inputs[0]],)
        return super()._results(step)


def observe(session: Any, fetches: Sequence[Tensor], feed_dict: Mapping[Any, Any]) -> Trace:
    """Run `fetches` as the session would now, keep every value and change nothing.

    An operation that raises ends it; its error is in the trace.
    """
    graph, backend = session.graph, session._backend
    with session._lock:
        feeds = as_feeds(graph, backend, feed_dict)
        plan = Plan(graph, list(fetches), list(feeds))
        run = _Kept(graph, backend, plan, session._state, session._entropy, list(feeds.values()))
        trace = Trace()
        try:
            run.compute()
        except Exception as error:  # noqa: BLE001 - it is the result
            trace.error = error
        for tensor, place in plan.places.items():
            value = run.values[place]
            if isinstance(value, np.ndarray | np.generic) or hasattr(value, "get"):
                trace.values[tensor.name] = np.asarray(backend.to_numpy(value))
    fed = [_fed_node(tensor) for tensor in feeds if tensor.op.kind.access is None]
    trace.nodes += [node for node, _ in fed]
    trace.operations |= {node.name: op for node, op in fed}
    given = {tensor.name for tensor in feeds}
    for step in plan.steps:
        op = step.op
        outputs = tuple(tensor.name for tensor in op.outputs if tensor.name not in given)
        if op.kind.access in ("variable", "read"):
            outputs = tuple(tensor.name for tensor in op.outputs)
        if outputs:
            trace.nodes.append(_node(op, outputs))
            trace.operations[op.name] = op
    return trace


def _fed_node(tensor: Tensor) -> tuple[Node, Operation]:
    told = tensor.op.describe().replace("operation", "what is fed for", 1)
    return Node(tensor.op.name, tensor.op.type, (), (tensor.name,), "fed", told, ""), tensor.op


def _node(op: Operation, outputs: tuple[str, ...]) -> Node:
    kind = op.kind
    if kind.access in ("variable", "read"):
        variable = op.variables[0] if op.variables else op
        told = variable.describe().replace("operation", "variable", 1)
        return Node(op.name, kind.name, (), outputs, "variable", told, "")
    source = "constant" if kind.name == "Const" else ""
    inputs = tuple(tensor.name for tensor in op.inputs)
    forward = _forward(op)
    return Node(
        op.name,
        kind.name,
        inputs,
        outputs,
        source,
        op.describe(),
        "" if forward is None else forward.describe(),
    )


def _forward(op: Operation) -> Operation | None:
    """The operation whose gradient this one computes a part of, going by its name."""
    parts = op.name.split("/")
    for stop in range(len(parts) - 1, 0, -1):
        last, found, number = parts[stop - 1].rpartition("_grad")
        if not found or (number and not number.lstrip("_").isdecimal()):
            continue
        for start in range(stop):
            name = "/".join([*parts[start : stop - 1], last])
            try:
                return op.graph.get_operation_by_name(name)
            except (KeyError, ValueError):
                continue
    return None


# -- what is told ---------------------------------------------------------------------------------


def _is_float(value: np.ndarray[Any, Any]) -> bool:
    return value.dtype.kind in "fcV" or value.dtype.name == "bfloat16"


def _finite(value: np.ndarray[Any, Any]) -> bool:
    return not _is_float(value) or bool(np.isfinite(value).all())


def describe_values(name: str, value: np.ndarray[Any, Any] | None) -> str:
    """A tensor in words: dtype, shape, how much of it is not finite, the range of the rest."""
    if value is None:
        return f"{name}: not computed"
    text = f"{name}: {value.dtype} {value.shape}"
    if value.dtype == object or not value.size:
        return text
    if not _is_float(value):
        return f"{text}, from {value.min()} to {value.max()}"
    wide = value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)
    if wide.dtype.kind == "c":
        return text
    nan, inf = int(np.isnan(wide).sum()), int(np.isinf(wide).sum())
    counts = [f"{count} {what}" for count, what in ((nan, "NaN"), (inf, "infinite")) if count]
    if counts:
        text += f", {' and '.join(counts)} of {value.size}"
    finite = wide[np.isfinite(wide)]
    if finite.size:
        rest = "the rest " if counts else ""
        low, high = finite.min(), finite.max()
        text += f", {rest}all {low:.6g}" if low == high else f", {rest}from {low:.6g} to {high:.6g}"
        zeros = int((finite == 0).sum())
        if zeros and not (low == high == 0):
            text += f", {zeros} zero{'' if zeros == 1 else 's'}"
    return text


@dataclass(frozen=True)
class Report:
    """What was not finite, and where it came from; its `str` is the explanation.

    Attributes:
        what: e.g. "the loss is nan".
        step: the global step that was not taken, or None.
        origin: the operation, fed array or variable that it came from; None where all values
            were finite when the run was repeated.
        rows: the rows of the batch that are not finite at the origin, where it has rows.
        variable: the variable whose gradient broke first, or None.
        lines: the rest of the explanation.
    """

    what: str
    step: int | None
    origin: Node | None
    rows: tuple[int, ...]
    variable: str | None
    lines: tuple[str, ...]

    def __str__(self) -> str:
        begin = "" if self.step is None else f"step {self.step}: "
        return "\n  ".join([begin + self.what, *self.lines])


def report(
    trace: Trace,
    loss: str | None,
    gradients: Mapping[str, str],
    step: int | None,
) -> Report:
    """Explain what is not finite in a trace.

    Args:
        trace: the repeated run.
        loss: the name of the loss's tensor.
        gradients: the name of a variable -> that of its gradient's tensor.
        step: the global step that would have been taken.
    """
    order = {tensor: i for i, node in enumerate(trace.nodes) for tensor in node.outputs}
    broken = [(order.get(g, 0), v, g) for v, g in gradients.items() if trace.bad(g)]
    variable = min(broken)[1] if broken else None
    if loss is not None and trace.bad(loss):
        what, targets = f"the loss is {_shown(trace.values[loss])}", [loss]
    elif broken:
        what, targets = f"the gradient of variable {variable!r} is not finite", [min(broken)[2]]
    else:
        why = "the norm of the gradients is beyond the range of its dtype"
        return Report(f"loss and gradients are finite, but {why}", step, None, (), None, ())
    origin = trace.origin(targets)
    lines: list[str] = []
    rows: tuple[int, ...] = ()
    if origin is not None:
        rows = _rows(trace, origin)
        lines += _told(trace, origin, rows)
    if variable is not None:
        lines.append(
            f"the first variable whose gradient is not finite is {variable!r}: "
            f"{describe_values('gradient', trace.values.get(gradients[variable]))}"
        )
    return Report(what, step, origin, rows, variable, tuple(lines))


def _shown(value: np.ndarray[Any, Any]) -> str:
    return str(value[()]) if value.ndim == 0 else "not finite"


def _told(trace: Trace, origin: Node, rows: tuple[int, ...]) -> list[str]:
    if origin.source == "fed":
        lines = [f"it came with {origin.told}"]
    elif origin.source == "variable":
        lines = [f"it came from {origin.told}, which was not finite before the step"]
    elif origin.forward:
        lines = [
            f"the first value that is not finite is in the gradient of {origin.forward}",
            f"in {origin.told}" if origin.told != origin.forward else "",
        ]
    else:
        lines = [f"the first value that is not finite came from {origin.told}"]
    lines = [line for line in lines if line]
    for name in dict.fromkeys(origin.inputs):
        lines.append(f"  input  {describe_values(name, trace.values.get(name))}")
    for name in origin.outputs:
        lines.append(f"  output {describe_values(name, trace.values.get(name))}")
    if rows:
        shown = ", ".join(map(str, rows[:_SHOWN_ROWS]))
        more = f" and {len(rows) - _SHOWN_ROWS} more" if len(rows) > _SHOWN_ROWS else ""
        lines.append(f"  in row{'' if len(rows) == 1 else 's'} {shown}{more} of the batch")
    return lines


def _rows(trace: Trace, origin: Node) -> tuple[int, ...]:
    """The rows along the first axis that are not finite, where that is the batch's."""
    sizes = {
        value.shape[0]
        for node in trace.nodes
        if node.source == "fed"
        for name in node.outputs
        if (value := trace.values.get(name)) is not None and value.ndim
    }
    for name in origin.outputs:
        value = trace.values.get(name)
        if value is not None and value.ndim and value.shape[0] in sizes and _is_float(value):
            flat = value.reshape(len(value), -1)
            return tuple(np.flatnonzero(~np.isfinite(flat).all(axis=1)).tolist())
    return ()
