"""Collections of named outputs, and what else contrib's layers share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from optkit.graph import Ledger, Tensor, get_default_graph

__all__ = [
    "append_tensor_alias",
    "collect_named_outputs",
    "convert_collection_to_dict",
    "gather_tensors_aliases",
    "get_tensor_aliases",
    "get_variable_collections",
]

_STORE = "aliases"
"""Key of graph.stores: the aliases of each tensor."""


def _aliases() -> Ledger[Tensor, tuple[str, ...]]:
    found: Ledger[Tensor, tuple[str, ...]] = get_default_graph().stores.setdefault(_STORE, Ledger())
    return found


def append_tensor_alias(tensor: Tensor, alias: str) -> None:
    """Give a tensor of a graph one more alias; in eager mode nothing is kept."""
    if not tensor.graph.eager:
        _aliases()[tensor] = (*_aliases().get(tensor, ()), alias)


def get_tensor_aliases(tensor: Tensor) -> list[str]:
    """The aliases of a tensor, or its name when it has none."""
    return list(_aliases().get(tensor, ())) or [tensor.op.name]


def gather_tensors_aliases(tensors: Iterable[Tensor]) -> list[str]:
    """The aliases of several tensors."""
    return [alias for tensor in tensors for alias in get_tensor_aliases(tensor)]


def collect_named_outputs(collections: Any, alias: str, outputs: Any) -> Any:
    """Add a tensor to collections (a name, several, or None) under an alias, and return it."""
    if collections:
        append_tensor_alias(outputs, alias)
        get_default_graph().add_to_collections(collections, outputs)
    return outputs


def convert_collection_to_dict(
    collection: str, clear_collection: bool = False
) -> OrderedDict[str, Any]:
    """The tensors of a collection by their aliases, in order.

    Args:
        collection: its name.
        clear_collection: whether to empty it.
    """
    graph = get_default_graph()
    found = OrderedDict(
        (alias, tensor)
        for tensor in graph.get_collection(collection)
        for alias in get_tensor_aliases(tensor)
    )
    if clear_collection:
        graph.clear_collection(collection)
    return found


def get_variable_collections(variables_collections: Any, name: str) -> Any:
    """The collections for the variable `name`: those of a dict for it, or those of a list."""
    if isinstance(variables_collections, Mapping):
        return variables_collections.get(name)
    return variables_collections
