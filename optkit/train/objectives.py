"""What an operation that takes a training step minimises."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from optkit.graph import Operation, Tensor, is_symbolic
from optkit.graph.ledger import Ledger

__all__ = ["note_objective", "objectives_of"]

_STORE = "objectives"
"""Key of graph.stores: operation -> the loss that it takes a step for."""


def note_objective(train_op: Operation, loss: Any) -> None:
    """Remember what `minimize` was called with."""
    element = loss._as_graph_element() if is_symbolic(loss) else None
    if isinstance(element, Tensor) and element.graph is train_op.graph:
        train_op.graph.stores.setdefault(_STORE, Ledger())[train_op] = element


def objectives_of(operations: Iterable[Operation]) -> list[Tensor]:
    """The losses that these operations take a step for, each once."""
    found: dict[Tensor, None] = {}
    for op in operations:
        loss = op.graph.stores.get(_STORE, {}).get(op)
        if loss is not None:
            found[loss] = None
    return list(found)
