"""Summaries of tensors, activations and whole collections."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from optkit import summary
from optkit.dtypes import float32
from optkit.graph import GraphKeys, Tensor, get_default_graph
from optkit.ops.core import as_tensor, composite
from optkit.ops.logic import greater, less
from optkit.ops.math import cast
from optkit.ops.reductions import reduce_mean

__all__ = [
    "summarize_activation",
    "summarize_activations",
    "summarize_biases",
    "summarize_collection",
    "summarize_tensor",
    "summarize_tensors",
    "summarize_variables",
    "summarize_weights",
]


@composite
def summarize_tensor(tensor: Any, tag: str | None = None) -> Tensor:
    """A scalar summary of a scalar, a histogram of anything else.

    Args:
        tensor: a tensor or variable.
        tag: the tag; `<name>_summary` if None.

    Raises:
        ValueError: the rank is not known.
    """
    value = as_tensor(tensor)
    if value.shape.ndims is None:
        raise ValueError(f"tensor: expected a known rank, got {value!r}")
    made = summary.scalar if value.shape.ndims == 0 else summary.histogram
    return made(tag or f"{tensor.op.name}_summary", value)


def summarize_activation(op: Tensor) -> Tensor:
    """A histogram of a layer's output, under `<name>/activation`.

    For Relu, Relu6 and Softplus the part of the inputs below 0 comes with it as `<name>/zeros`,
    for Relu6 the part above 6 as `<name>/sixes`.
    """
    node = op.op
    if node.type in ("Relu", "Softplus", "Relu6"):
        summary.scalar(f"{node.name}/zeros", _part(less(node.inputs[0], 0)))
    if node.type == "Relu6":
        summary.scalar(f"{node.name}/sixes", _part(greater(node.inputs[0], 6)))
    return summary.histogram(f"{node.name}/activation", op)


def _part(condition: Any) -> Tensor:
    """The part of the elements for which a condition holds."""
    return reduce_mean(cast(condition, float32))


_Summarizer = Callable[[Any], Any]


@composite
def summarize_tensors(
    tensors: Iterable[Any], summarizer: _Summarizer = summarize_tensor
) -> list[Any]:
    """What `summarizer` gives for each of the tensors."""
    return [summarizer(tensor) for tensor in tensors]


def summarize_collection(
    collection: str, name_filter: str | None = None, summarizer: _Summarizer = summarize_tensor
) -> list[Any]:
    """What `summarizer` gives for the items of a collection.

    Args:
        collection: its name.
        name_filter: a regular expression that the operations' names must begin with.
        summarizer: a function of an item.
    """
    items = get_default_graph().get_collection(collection)
    if name_filter is not None:
        items = [item for item in items if re.match(name_filter, item.op.name)]
    return summarize_tensors(items, summarizer)


def summarize_variables(
    name_filter: str | None = None, summarizer: _Summarizer = summarize_tensor
) -> list[Any]:
    """Summaries of the global variables; see `summarize_collection`."""
    return summarize_collection(GraphKeys.GLOBAL_VARIABLES, name_filter, summarizer)


def summarize_weights(
    name_filter: str | None = None, summarizer: _Summarizer = summarize_tensor
) -> list[Any]:
    """Summaries of the collection WEIGHTS; see `summarize_collection`."""
    return summarize_collection(GraphKeys.WEIGHTS, name_filter, summarizer)


def summarize_biases(
    name_filter: str | None = None, summarizer: _Summarizer = summarize_tensor
) -> list[Any]:
    """Summaries of the collection BIASES; see `summarize_collection`."""
    return summarize_collection(GraphKeys.BIASES, name_filter, summarizer)


def summarize_activations(
    name_filter: str | None = None, summarizer: _Summarizer = summarize_activation
) -> list[Any]:
    """Summaries of the collection ACTIVATIONS; see `summarize_collection`."""
    return summarize_collection(GraphKeys.ACTIVATIONS, name_filter, summarizer)
