"""What a session holds as plain arrays by name: to be written somewhere, and to be put back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optkit.backend import Backend
from optkit.backend.arrays import to_host
from optkit.errors import InvalidArgumentError, NotFoundError
from optkit.graph import Graph, Operation
from optkit.runtime.execution import uninitialized
from optkit.shapes import fits

__all__ = ["SessionState", "exported", "imported", "random_counts"]


@dataclass(frozen=True)
class SessionState:
    """The state of a session at one moment, independent of the session.

    Attributes:
        variables: the name of a variable's operation -> its value; slots, averages and the global
            step are variables too.
        counters: the name of a random operation -> how often it has run.
        entropy: what seeds the random operations that have no seed; None says nothing of random
            numbers, and `counters` counts for nothing then.
    """

    variables: Mapping[str, np.ndarray[Any, Any]]
    counters: Mapping[str, int] = field(default_factory=dict)
    entropy: int | None = None


def exported(
    graph: Graph,
    state: Mapping[Operation, Any],
    entropy: int,
    names: Collection[str] | None,
) -> SessionState:
    """Copies of what a session holds: all of it, or the variables `names`.

    Raises:
        FailedPreconditionError: a variable of `names` holds nothing.
        NotFoundError: there is no variable of a name.
    """
    held = {op: value for op, value in state.items() if op.kind.access == "variable"}
    if names is not None:
        chosen = [_variable(graph, name) for name in names]
        for op in chosen:
            if op not in held:
                raise uninitialized(op)
        held = {op: held[op] for op in chosen}
    values = zip(held, to_host(list(held.values())), strict=True)
    return SessionState(
        {op.name: np.array(value, order="C") for op, value in values},
        {op.name: int(value) for op, value in state.items() if op.kind.random},
        entropy,
    )


def imported(
    graph: Graph, backend: Backend, snapshot: SessionState, shared: Callable[[Operation], bool]
) -> dict[Operation, Any]:
    """The variables of a snapshot as a session stores them, checked.

    Args:
        graph: the session's graph.
        backend: where its arrays are.
        snapshot: what to store.
        shared: whether the array of a variable may be stored as it is.

    Raises:
        NotFoundError: the graph has no variable of a name.
        InvalidArgumentError: a value has another dtype or shape than its variable.
    """
    unknown = [name for name in snapshot.variables if _found(graph, name) is None]
    if unknown:
        raise NotFoundError(f"the graph has no variables {', '.join(map(repr, sorted(unknown)))}")
    stored: dict[Operation, Any] = {}
    wrong = []
    for name, value in snapshot.variables.items():
        op = _variable(graph, name)
        handle = op.outputs[0]
        array = np.asarray(value, order="C")
        # A variable of open shape may leave its arena for the new array.
        as_it_is = shared(op) and handle.shape.is_fully_defined()
        if backend.xp is np and not as_it_is:
            array = array.copy()
        if array.dtype != handle.dtype.dtype:
            wrong.append(f"{name!r}: expected {handle.dtype.name}, got {array.dtype}")
        elif not fits(handle.sizes, array.shape):
            wrong.append(f"{name!r}: expected shape {handle.shape}, got {array.shape}")
        stored[op] = array = array.view()
        array.flags.writeable = False
    if wrong:
        raise InvalidArgumentError(f"values do not fit their variables: {'; '.join(wrong)}")
    return {op: backend.asarray(array) for op, array in stored.items()}


def random_counts(graph: Graph, counters: Mapping[str, int]) -> dict[Operation, int]:
    """The random operations of the graph with their counts; names it lacks are passed over."""
    found = {}
    for name, count in counters.items():
        op = _operation(graph, name)
        if op is not None and op.kind.random:
            found[op] = int(count)
    return found


def _operation(graph: Graph, name: str) -> Operation | None:
    try:
        return graph.get_operation_by_name(name)
    except KeyError:
        return None


def _found(graph: Graph, name: str) -> Operation | None:
    op = _operation(graph, name)
    return op if op is not None and op.kind.access == "variable" else None


def _variable(graph: Graph, name: str) -> Operation:
    op = _found(graph, name)
    if op is None:
        raise NotFoundError(f"the graph has no variable {name!r}")
    return op
