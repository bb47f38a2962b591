"""Means of the gradients that several towers, or several steps, have for one variable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optkit.dtypes import float32, int64
from optkit.graph import IndexedSlices, Tensor, get_default_graph
from optkit.ops.array import concat
from optkit.ops.core import as_tensor
from optkit.ops.math import cast
from optkit.ops.sparse import deduplicate
from optkit.train.transforms import GradAndVar, as_pairs

__all__ = ["average_gradients", "joined_rows", "over", "widened"]


def average_gradients(tower_grads: Any) -> list[GradAndVar]:
    """The mean of the gradients that several towers have for the same variables.

    A tower without a gradient for a variable counts as a gradient of zero, as it does in the
    gradient of the towers' mean loss: (None, g) gives g/2, and None is left where no tower has
    one. IndexedSlices stay sparse where all are: the rows are joined, those named twice added up,
    and divided by the number of towers. Half precision is added up in float32.

    Args:
        tower_grads: for each tower the (gradient, variable) pairs of `compute_gradients`, with
            the same variables in the same order.

    Returns:
        Pairs, with the variables of the first tower.

    Raises:
        TypeError: a tower is no list of pairs.
        ValueError: there are no towers, or they differ in their variables.
    """
    towers = [as_pairs("tower_grads", tower) for tower in tower_grads]
    if not towers:
        raise ValueError("tower_grads: expected the pairs of one tower or more, got none")
    first = [variable for _, variable in towers[0]]
    for i, tower in enumerate(towers):
        variables = [variable for _, variable in tower]
        if [id(variable) for variable in variables] != [id(variable) for variable in first]:
            raise ValueError(
                f"tower_grads: expected the variables {_names(first)} in every tower, got "
                f"{_names(variables)} in tower {i}"
            )
    graph = get_default_graph()
    with graph.all_or_nothing(), graph.name_scope("average_gradients"):
        columns = zip(*([gradient for gradient, _ in tower] for tower in towers), strict=True)
        return [
            (_mean(gradients, len(towers)), variable)
            for gradients, variable in zip(columns, first, strict=True)
        ]


def _names(variables: Sequence[Any]) -> list[str]:
    return [getattr(variable, "name", repr(variable)) for variable in variables]


def _mean(gradients: Sequence[Any], towers: int) -> Any:
    given = [gradient for gradient in gradients if gradient is not None]
    if not given:
        return None
    if all(isinstance(gradient, IndexedSlices) for gradient in given):
        dtype = given[0].dtype
        rows = joined_rows(given)
        return IndexedSlices(cast(over(rows.values, towers), dtype), rows.indices, rows.dense_shape)
    dense = [as_tensor(gradient) for gradient in given]
    total = widened(dense[0])
    for gradient in dense[1:]:
        total = total + widened(gradient)
    return cast(over(total, towers), dense[0].dtype)


def widened(tensor: Any) -> Tensor:
    """A tensor in the dtype to add up in: float32 for half precision, else its own."""
    tensor = as_tensor(tensor)
    wide: Tensor = cast(tensor, float32) if tensor.dtype.size == 2 else tensor
    return wide


def joined_rows(slices: Sequence[IndexedSlices]) -> IndexedSlices:
    """The sum of several IndexedSlices of one tensor, each row named once; see `widened`."""
    shapes = [item.dense_shape for item in slices if item.dense_shape is not None]
    values = [widened(item.values) for item in slices]
    indices = [cast(item.indices, int64) for item in slices]
    if len(slices) > 1:
        values, indices = [concat(values, 0)], [concat(indices, 0)]
    return deduplicate(IndexedSlices(values[0], indices[0], shapes[0] if shapes else None))


def over(total: Tensor, count: Any) -> Tensor:
    """total / count, in total's dtype; count is a number or an integer tensor of shape ()."""
    return total / cast(as_tensor(count), total.dtype)  # type: ignore[no-any-return]
