"""The graph: operations, tensors, scopes, control dependencies, and the default-session stack.

Nothing here computes. An `Operation` says which `Kind` it is, what it reads and what must run
before it; `optkit.runtime` runs it. A graph only grows, each operation after its inputs, so the
order of creation is an order in which everything can run.
"""

from optkit.graph.fresh import fresh_graph
from optkit.graph.graph import Graph, default_mode, get_default_graph, reset_default_graph
from optkit.graph.keys import GraphKeys
from optkit.graph.ledger import Ledger
from optkit.graph.node import (
    OPERATORS,
    Branch,
    IndexedSlices,
    Kind,
    Operation,
    Tensor,
    TensorOperators,
    is_symbolic,
    not_picklable,
)
from optkit.graph.scopes import (
    add_to_collection,
    add_to_collections,
    colocate_with,
    control_dependencies,
    device,
    get_collection,
    get_collection_ref,
    init_scope,
    name_scope,
    op_scope,
)
from optkit.graph.stacks import (
    SessionLike,
    default_session,
    get_default_session,
    push_default_session,
    remove_default_session,
)

__all__ = [
    "OPERATORS",
    "Branch",
    "Graph",
    "GraphKeys",
    "IndexedSlices",
    "Kind",
    "Ledger",
    "Operation",
    "SessionLike",
    "Tensor",
    "TensorOperators",
    "add_to_collection",
    "add_to_collections",
    "colocate_with",
    "control_dependencies",
    "default_mode",
    "default_session",
    "device",
    "fresh_graph",
    "get_collection",
    "get_collection_ref",
    "get_default_graph",
    "get_default_session",
    "init_scope",
    "is_symbolic",
    "name_scope",
    "not_picklable",
    "op_scope",
    "push_default_session",
    "remove_default_session",
    "reset_default_graph",
]
