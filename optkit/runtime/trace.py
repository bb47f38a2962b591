"""The values of a run by name, and the way back from one that is not finite to its origin.

The way follows values that are not finite to where they come from: an operation whose inputs are
all finite, a fed array, a variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optkit.backend import Backend
from optkit.graph import Operation, Tensor
from optkit.runtime.plan import Plan

__all__ = ["Node", "Trace", "is_finite", "is_float", "traced"]


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
        return value is not None and not is_finite(value)

    def has_nan(self, tensor: str) -> bool:
        """Whether a tensor holds NaN."""
        value = self.values.get(tensor)
        return value is not None and is_float(value) and bool(np.isnan(value).any())

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


def traced(plan: Plan, values: Sequence[Any], backend: Backend) -> Trace:
    """The values of a run so far, brought to the host.

    Args:
        plan: what runs.
        values: by place; what is no array was not computed.
        backend: where they are.
    """
    trace = Trace()
    for tensor, place in plan.places.items():
        value = values[place]
        if isinstance(value, np.ndarray | np.generic) or hasattr(value, "get"):
            trace.values[tensor.name] = np.asarray(backend.to_numpy(value))
    _, feeds = plan.key
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


def is_float(value: np.ndarray[Any, Any]) -> bool:
    """Whether an array can hold what is not finite."""
    return value.dtype.kind in "fcV" or value.dtype.name == "bfloat16"


def is_finite(value: np.ndarray[Any, Any]) -> bool:
    """Whether all elements are finite."""
    return not is_float(value) or bool(np.isfinite(value).all())
