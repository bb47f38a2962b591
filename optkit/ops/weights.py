"""Weights of losses and metrics: what they may look like beside the values they weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optkit.dtypes import NUMBERS, bool_
from optkit.errors import InvalidArgumentError
from optkit.graph import Operation, Tensor
from optkit.ops.core import Array, ArrayModule, op
from optkit.shapes import Shape, TensorShape

__all__ = ["checked_weights"]


def _merged(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Shape:
    weights, values = inputs
    _fits(weights, values)
    return weights.sizes


def _fits(weights: Tensor, values: Tensor) -> bool:
    """Whether the static shapes tell that the weights fit the values.

    Raises:
        ValueError: they tell that the weights do not.
    """
    if weights.sizes == ():
        return True
    if weights.sizes is None or values.sizes is None:
        return False
    pairs = list(zip(weights.sizes, values.sizes, strict=False))
    bad = any(None not in pair and pair[0] not in (1, pair[1]) for pair in pairs)
    if bad or len(weights.sizes) != len(values.sizes):
        raise ValueError(_expectation(values.shape, f"{weights!r}"))
    return all(n == 1 or (n is not None and n == m) for n, m in pairs)


def _expectation(shape: Any, got: str) -> str:
    return (
        f"weights: expected a scalar, or the shape {shape} of the values with 1 in place of any "
        f"size, got {got}"
    )


@op("CheckedWeights", types=NUMBERS | {bool_}, accepts={"values": NUMBERS}, shape=_merged)
def _checked_weights(xp: ArrayModule, weights: Array, values: Array) -> Array:
    """The weights, once they are seen to fit the values."""
    pairs = zip(weights.shape, values.shape, strict=False)
    same_rank = weights.ndim == values.ndim and all(n in (1, m) for n, m in pairs)
    if weights.ndim and not same_rank:
        raise InvalidArgumentError(
            _expectation(TensorShape(values.shape), f"shape {TensorShape(weights.shape)}")
        )
    return weights


@_checked_weights.gradient
def _(_: Operation, dy: Tensor) -> tuple[Tensor, None]:
    return dy, None


def checked_weights(weights: Tensor, values: Tensor) -> Tensor:
    """`weights`, which must be a scalar or broadcast to `values` from the same rank.

    What static shapes leave open is checked when it is run.

    Raises:
        ValueError: the static shapes do not fit.
        InvalidArgumentError: when run, the shapes do not fit.
    """
    return weights if _fits(weights, values) else _checked_weights(weights, values)
