"""What a run computes, in which order, and which write each read sees.

A plan is made once for a set of fetches and fed tensors. The order is that in which the
operations were built: a graph only grows, so inputs and control inputs come first, and writes to
one variable that nothing else orders run in the order they were built.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from optkit.graph import Branch, Graph, Operation, Tensor

__all__ = ["Plan", "Step"]


@dataclass(eq=False)
class Step:
    """One operation of a plan, with its values' places in the run's list of values.

    Attributes:
        inputs, outputs: places of the operation's inputs and outputs; an output is None where
            its value is fed.
        branch: (place of the predicate, side) of each `cond` around the operation, outermost
            first.
        sources: for a read, the writes it may see, newest first.
    """

    op: Operation
    inputs: tuple[int, ...]
    outputs: tuple[int | None, ...]
    branch: tuple[tuple[int, bool], ...]
    sources: tuple[Operation, ...] = ()


class Plan:
    """The steps that compute `fetches` when `feeds` are given.

    Attributes:
        steps: what runs, in order.
        key: what tells plans of one graph apart: the fetches and the fed tensors.
        fetched: the place of each fetched tensor, None for a fetched operation.
        fed: the place of each fed tensor.
        size: how many values a run holds.
        places: the place of every tensor of the plan.
    """

    def __init__(
        self, graph: Graph, fetches: Sequence[Tensor | Operation], feeds: Sequence[Tensor]
    ) -> None:
        self.fetches = tuple(fetches)
        self.key = self.fetches, tuple(feeds)
        self.places: dict[Tensor, int] = {}
        fed = set(feeds)
        self.fed = tuple(self._place(tensor) for tensor in feeds)
        fed_variables = {t.op for t in feeds if t.op.kind.access == "variable"}
        operations = _needed(self.fetches, fed)
        self.fetched = tuple(
            self._place(item) if isinstance(item, Tensor) else None for item in self.fetches
        )
        sources = _read_sources(operations, fed)
        self.steps = [
            Step(
                op,
                tuple(self._place(tensor) for tensor in op.inputs),
                tuple(None if t in fed else self._place(t) for t in op.outputs),
                self._branch(op.branch),
                sources.get(op, ()),
            )
            for op in operations
        ]
        self.fed_variables = {op: self.places[op.outputs[0]] for op in fed_variables}
        self.size = len(self.places)

    def _place(self, tensor: Tensor) -> int:
        return self.places.setdefault(tensor, len(self.places))

    def _branch(self, branch: Branch | None) -> tuple[tuple[int, bool], ...]:
        if branch is None:
            return ()
        chain = [(self._place(side.predicate), side.taken) for side in branch.chain()]
        return tuple(reversed(chain))


def _needed(fetches: Iterable[Tensor | Operation], fed: set[Tensor]) -> list[Operation]:
    """The operations behind `fetches`, not going past fed tensors, in the order of creation."""
    found: set[Operation] = set()
    waiting = [
        item if isinstance(item, Operation) else item.op
        for item in fetches
        if isinstance(item, Operation) or item not in fed
    ]
    while waiting:
        op = waiting.pop()
        if op in found:
            continue
        found.add(op)
        waiting.extend(_sources_of(op, fed))
    return sorted(found, key=lambda op: op.index)


def _sources_of(op: Operation, fed: set[Tensor]) -> Iterable[Operation]:
    """The operations that must come before `op`."""
    for tensor in op.inputs:
        if tensor not in fed:
            yield tensor.op
    yield from op.control_inputs
    if op.branch is not None:
        for side in op.branch.chain():
            if side.predicate not in fed:
                yield side.predicate.op


def _read_sources(
    operations: Sequence[Operation], fed: set[Tensor]
) -> dict[Operation, tuple[Operation, ...]]:
    """For each read, the writes to its variable among its ancestors, newest first."""
    if not any(op.kind.access == "read" for op in operations):
        return {}
    # The set of writes before an operation, as the bits of an int: bit i is writes[i].
    before: dict[Operation, int] = {}
    writes: list[Operation] = []
    sources: dict[Operation, tuple[Operation, ...]] = {}
    for op in operations:
        bits = 0
        for source in _sources_of(op, fed):
            bits |= before.get(source, 0)
        if op.kind.access == "read":
            (variable,) = op.variables
            sources[op] = tuple(
                write
                for i, write in reversed(list(enumerate(writes)))
                if bits >> i & 1 and variable in write.variables
            )
        elif op.kind.access == "write":
            bits |= 1 << len(writes)
            writes.append(op)
        before[op] = bits
    return sources
