"""The global step: the integer variable that counts the training steps of a graph."""

from __future__ import annotations

import logging
from typing import Any

from optkit.dtypes import int64
from optkit.errors import ValueOrTypeError
from optkit.graph import Graph, GraphKeys, Tensor, get_default_graph
from optkit.initializers import zeros_initializer
from optkit.variable_scope import get_variable_scope
from optkit.variables import Variable, variable_of

__all__ = [
    "assert_global_step",
    "create_global_step",
    "get_global_step",
    "get_or_create_global_step",
    "global_step",
]

_LOG = logging.getLogger("optkit")


def global_step(sess: Any, global_step_tensor: Any) -> int:
    """The step's value in a session, as a Python int."""
    return int(sess.run(global_step_tensor))


def get_global_step(graph: Graph | None = None) -> Any:
    """The graph's global step: the one of the collection GLOBAL_STEP, else what is so named.

    Returns:
        The variable (or tensor); None when there is none, and, with an error in the log of
        "optkit", when the collection holds several.

    Raises:
        ValueOrTypeError: it is no integer scalar.
    """
    graph = graph if graph is not None else get_default_graph()
    steps = graph.get_collection(GraphKeys.GLOBAL_STEP)
    if len(steps) > 1:
        _LOG.error("expected one item in the collection 'global_step', got %r", steps)
        return None
    if steps:
        step = steps[0]
    else:
        try:
            tensor = graph.get_tensor_by_name("global_step:0")
        except KeyError:
            return None
        variable = variable_of(tensor)
        step = tensor if variable is None else variable
    assert_global_step(step)
    return step


def create_global_step(graph: Graph | None = None) -> Variable:
    """A new global step: int64 zero, not trainable, named global_step inside the variable scope.

    Raises:
        ValueError: the graph has one.
    """
    graph = graph if graph is not None else get_default_graph()
    existing = get_global_step(graph)
    if existing is not None:
        raise ValueError(
            f"global_step: the graph has one already: {existing!r}; use get_or_create_global_step()"
        )
    with graph.as_default():
        # Not found again by a scope's reuse: whether there is one was asked above.
        step: Variable = get_variable_scope().get_variable(
            "global_step",
            shape=[],
            dtype=int64,
            initializer=zeros_initializer(),
            reuse=False,
            trainable=False,
            collections=[GraphKeys.GLOBAL_VARIABLES, GraphKeys.GLOBAL_STEP],
        )
    return step


def get_or_create_global_step(graph: Graph | None = None) -> Any:
    """The graph's global step, made if there is none."""
    graph = graph if graph is not None else get_default_graph()
    existing = get_global_step(graph)
    return existing if existing is not None else create_global_step(graph)


def assert_global_step(global_step_tensor: Any) -> None:
    """Refuse what cannot be a global step; a shape that is not known passes.

    Raises:
        ValueOrTypeError: it is no Variable or Tensor, no integer, or no scalar.
    """
    if not isinstance(global_step_tensor, Variable | Tensor):
        raise ValueOrTypeError(
            f"global_step: expected a Variable or a Tensor, got {global_step_tensor!r}"
        )
    if not global_step_tensor.dtype.is_integer:
        raise ValueOrTypeError(
            f"global_step: expected an integer dtype, got {global_step_tensor!r}"
        )
    shape = global_step_tensor.shape
    if shape.ndims != 0 and shape.is_fully_defined():
        raise ValueOrTypeError(f"global_step: expected shape (), got {global_step_tensor!r}")
