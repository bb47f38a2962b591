"""TF1's functions that write variables, on Variables or their tensors; see `state`."""

from __future__ import annotations

from typing import Any

from optkit.graph import Operation, Tensor
from optkit.ops import state

__all__ = [
    "assign",
    "assign_add",
    "assign_sub",
    "is_variable_initialized",
    "scatter_add",
    "scatter_div",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_sub",
    "scatter_update",
    "target",
]


def is_variable_initialized(variable: Any) -> Tensor:
    """Whether the variable holds a value at the start of the run; bool, shape ()."""
    return state.is_initialized(target(variable, "variable"))


def assign(
    ref: Any,
    value: Any,
    validate_shape: bool | None = None,
    use_locking: bool | None = None,
    name: str | None = None,
) -> Tensor:
    """Set the variable `ref`; the result is its value right after.

    Shapes are always checked: a variable takes values of other shapes when it was made with
    `validate_shape=False`.

    Raises:
        TypeError: `ref` is no variable, or the value has another dtype.
        ValueError: the value has another shape.
    """
    return state.assign(target(ref, "ref"), value, name)


def assign_add(
    ref: Any, value: Any, use_locking: bool | None = None, name: str | None = None
) -> Tensor:
    """Add to the variable `ref`; the result is its value right after."""
    return state.assign_add(target(ref, "ref"), value, name)


def assign_sub(
    ref: Any, value: Any, use_locking: bool | None = None, name: str | None = None
) -> Tensor:
    """Subtract from the variable `ref`; the result is its value right after."""
    return state.assign_sub(target(ref, "ref"), value, name)


def scatter_update(
    ref: Any, indices: Any, updates: Any, use_locking: bool = True, name: str | None = None
) -> Tensor:
    """Set the rows `indices` of the variable `ref`; of equal rows the last one wins."""
    return state.scatter("update", target(ref, "ref"), indices, updates, name)


def scatter_add(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Tensor:
    """Add `updates` to the rows `indices` of the variable `ref`; equal rows add up."""
    return state.scatter("add", target(ref, "ref"), indices, updates, name)


def scatter_sub(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Tensor:
    """Subtract `updates` from the rows `indices` of the variable `ref`."""
    return state.scatter("sub", target(ref, "ref"), indices, updates, name)


def scatter_mul(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Tensor:
    """Multiply the rows `indices` of the variable `ref` by `updates`."""
    return state.scatter("mul", target(ref, "ref"), indices, updates, name)


def scatter_div(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Tensor:
    """Divide the rows `indices` of the floating variable `ref` by `updates`."""
    return state.scatter("div", target(ref, "ref"), indices, updates, name)


def scatter_min(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Tensor:
    """Lower the rows `indices` of the variable `ref` to at most `updates`."""
    return state.scatter("min", target(ref, "ref"), indices, updates, name)


def scatter_max(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Tensor:
    """Raise the rows `indices` of the variable `ref` to at least `updates`."""
    return state.scatter("max", target(ref, "ref"), indices, updates, name)


def target(ref: Any, argument: str) -> Operation:
    """The variable operation behind a Variable or its tensor; TypeError for anything else."""
    element = ref._as_graph_element() if hasattr(ref, "_as_graph_element") else ref
    op = element.op if isinstance(element, Tensor) else element
    if not isinstance(op, Operation) or op.kind is not state.VARIABLE:
        raise TypeError(f"{argument}: expected a Variable, got {ref!r}")
    return op
