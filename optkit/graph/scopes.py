"""Functions on the default graph: scopes, control dependencies, collections."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from optkit.graph.graph import get_default_graph
from optkit.graph.node import is_symbolic

__all__ = [
    "add_to_collection",
    "add_to_collections",
    "colocate_with",
    "control_dependencies",
    "device",
    "get_collection",
    "get_collection_ref",
    "init_scope",
    "name_scope",
    "op_scope",
]


@contextlib.contextmanager
def name_scope(
    name: str | None, default_name: str | None = None, values: Iterable[Any] | None = None
) -> Iterator[str]:
    """Names of operations built inside get the prefix `<name>/`; yields it.

    Args:
        name: the scope, made unique; `"x/"` is re-entered as it is; "" is the root.
        default_name: used when name is None.
        values: inputs of what is built inside: the graph of the first tensor becomes the default.

    Raises:
        ValueError: both names are None while values are given, or the name is not valid.
        TypeError: the name is no string.
    """
    chosen = default_name if name is None else name
    if chosen is None and values is not None:
        raise ValueError("name: expected a name or a default_name, got None for both")
    graph = next((v._as_graph_element().graph for v in values or () if is_symbolic(v)), None)
    if graph is None:
        with get_default_graph().name_scope(chosen) as scope:
            yield scope
    else:
        with graph.as_default(), graph.name_scope(chosen) as scope:
            yield scope


def op_scope(
    values: Iterable[Any], name: str | None, default_name: str | None = None
) -> contextlib.AbstractContextManager[str]:
    """`name_scope` with its arguments in TF's oldest order."""
    return name_scope(name, default_name, values)


def control_dependencies(
    control_inputs: Iterable[Any] | None,
) -> contextlib.AbstractContextManager[None]:
    """Operations built inside run after `control_inputs`; see `Graph.control_dependencies`."""
    return get_default_graph().control_dependencies(control_inputs)


def device(device_name_or_function: Any) -> contextlib.AbstractContextManager[None]:
    """Record where operations built inside should run; a hint only."""
    return get_default_graph().device(device_name_or_function)


def colocate_with(
    op: Any, ignore_existing: bool = False
) -> contextlib.AbstractContextManager[None]:
    """Record that operations built inside should be where `op` is; a hint only."""
    return get_default_graph().colocate_with(op, ignore_existing)


def init_scope() -> contextlib.AbstractContextManager[None]:
    """Build free of control dependencies and `cond` branches, as initial values must be."""
    return get_default_graph().outside_control_flow()


def add_to_collection(name: str, value: Any) -> None:
    """Append `value` to a collection of the default graph."""
    get_default_graph().add_to_collection(name, value)


def add_to_collections(names: Any, value: Any) -> None:
    """Append `value` to several collections of the default graph."""
    get_default_graph().add_to_collections(names, value)


def get_collection(key: str, scope: str | None = None) -> list[Any]:
    """The items of a collection of the default graph; see `Graph.get_collection`."""
    return get_default_graph().get_collection(key, scope)


def get_collection_ref(key: str) -> list[Any]:
    """The list of a collection of the default graph itself."""
    return get_default_graph().get_collection_ref(key)
