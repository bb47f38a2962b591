"""Regularizers: functions of a variable that give a loss, or None for none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from optkit.graph import GraphKeys, Tensor, get_default_graph
from optkit.ops.core import as_tensor, constant
from optkit.ops.math import abs, add_n, multiply
from optkit.ops.nn import l2_loss
from optkit.ops.reductions import reduce_sum
from optkit.train.checks import is_number

__all__ = [
    "apply_regularization",
    "l1_l2_regularizer",
    "l1_regularizer",
    "l2_regularizer",
    "sum_regularizer",
]

Regularizer = Callable[[Any], Any]


def _scaled(owner: str, argument: str, scale: Any) -> float:
    """The scale as a number.

    Raises:
        TypeError, ValueError: it is no number of at least 0.
    """
    if not is_number(scale):
        raise TypeError(f"{owner}: {argument}: expected a number >= 0, got {scale!r}")
    if not float(scale) >= 0:
        raise ValueError(f"{owner}: {argument}: expected a number >= 0, got {scale!r}")
    return float(scale)


def l1_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """The function scale·Σ|w|; one that gives None if `scale` is 0.

    Args:
        scale: a number of at least 0.
        scope: the name scope of the loss.

    Raises:
        TypeError, ValueError: `scale` is no such number.
    """
    factor = _scaled("l1_regularizer", "scale", scale)

    def l1(weights: Any) -> Tensor | None:
        if not factor:
            return None
        with get_default_graph().name_scope(scope or "l1_regularizer") as name:
            w = as_tensor(weights)
            return _times(reduce_sum(abs(w)), factor, name)

    return l1


def l2_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """The function scale·Σw²/2; one that gives None if `scale` is 0. See `l1_regularizer`."""
    factor = _scaled("l2_regularizer", "scale", scale)

    def l2(weights: Any) -> Tensor | None:
        if not factor:
            return None
        with get_default_graph().name_scope(scope or "l2_regularizer") as name:
            return _times(l2_loss(weights), factor, name)

    return l2


def _times(loss: Tensor, factor: float, name: str) -> Tensor:
    return multiply(constant(factor, loss.dtype, name="scale"), loss, name=name)


def l1_l2_regularizer(
    scale_l1: float = 1.0, scale_l2: float = 1.0, scope: str | None = None
) -> Regularizer:
    """The function scale_l1·Σ|w| + scale_l2·Σw²/2. See `l1_regularizer`."""
    l1 = l1_regularizer(_scaled("l1_l2_regularizer", "scale_l1", scale_l1))
    l2 = l2_regularizer(_scaled("l1_l2_regularizer", "scale_l2", scale_l2))
    return _sum([l1, l2], scope or "l1_l2_regularizer")


def sum_regularizer(
    regularizer_list: Iterable[Regularizer | None], scope: str | None = None
) -> Regularizer | None:
    """The function that adds up what several regularizers give; None where none is left.

    Args:
        regularizer_list: regularizers, or None.
        scope: the name scope of the loss.
    """
    regularizers = [each for each in regularizer_list if each is not None]
    return _sum(regularizers, scope or "sum_regularizer") if regularizers else None


def _sum(regularizers: Sequence[Regularizer], scope: str) -> Regularizer:
    def sum_reg(weights: Any) -> Tensor | None:
        with get_default_graph().name_scope(scope) as name:
            given = [regularizer(weights) for regularizer in regularizers]
            losses = [loss for loss in given if loss is not None]
            return add_n(losses, name=name) if losses else None

    return sum_reg


def apply_regularization(
    regularizer: Regularizer, weights_list: Sequence[Any] | None = None
) -> Tensor:
    """The sum of what a regularizer gives for variables; it joins REGULARIZATION_LOSSES.

    Args:
        regularizer: a function of a variable that gives a scalar or None.
        weights_list: the variables; those of the collection WEIGHTS if None.

    Returns:
        A scalar; 0 where there is nothing to add.

    Raises:
        ValueError: the regularizer gives no scalar.
    """
    graph = get_default_graph()
    if not weights_list:
        weights_list = graph.get_collection(GraphKeys.WEIGHTS)
    with graph.all_or_nothing(), graph.name_scope("get_regularization_penalty") as name:
        given = [regularizer(weights) for weights in weights_list]
        losses = [as_tensor(loss) for loss in given if loss is not None]
        for loss in losses:
            if loss.sizes not in ((), None):
                raise ValueError(f"regularizer: expected it to give a scalar, got {loss!r}")
        total = add_n(losses, name=name) if losses else constant(0.0, name=name)
        graph.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, total)
        return total
