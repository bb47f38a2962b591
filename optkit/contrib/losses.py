"""`tf.contrib.losses`, which slim has too: the losses of `tf.losses` as they were before 2017.

Predictions come before labels here. Weights may have fewer axes than the losses: those missing at
the end are filled in. Everything joins the collection that `tf.losses.get_total_loss` adds up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from optkit import losses as now
from optkit.contrib.framework import add_arg_scope
from optkit.graph import Tensor, is_symbolic
from optkit.losses import add_loss, get_losses, get_regularization_losses, get_total_loss
from optkit.names import missing
from optkit.ops.core import as_tensor
from optkit.ops.reshaping import expand_dims, squeeze

__all__ = [
    "absolute_difference",
    "add_loss",
    "compute_weighted_loss",
    "cosine_distance",
    "get_losses",
    "get_regularization_losses",
    "get_total_loss",
    "hinge_loss",
    "log_loss",
    "mean_squared_error",
    "sigmoid_cross_entropy",
    "softmax_cross_entropy",
    "sparse_softmax_cross_entropy",
]


def _weights(weights: Any, values: Any, dropped: int = 0) -> Any:
    """Weights with as many axes as the losses: those of `values` but for `dropped` at the end."""
    if not (is_symbolic(weights) or isinstance(weights, list | tuple | np.ndarray)):
        return weights
    weights = as_tensor(weights, name="weights")
    rank, wanted = weights.shape.ndims, as_tensor(values, name="values").shape.ndims
    if not rank or wanted is None:
        return weights
    lacking = wanted - dropped - rank
    if lacking == -1 and weights.sizes[-1] in (1, None):
        return squeeze(weights, [-1])
    for _ in range(lacking):
        weights = expand_dims(weights, -1)
    return weights


def compute_weighted_loss(losses: Any, weights: Any = 1.0, scope: str | None = None) -> Tensor:
    """As `tf.losses.compute_weighted_loss`: the mean over losses whose weight is not 0."""
    return now.compute_weighted_loss(losses, _weights(weights, losses), scope)


@add_arg_scope
def absolute_difference(
    predictions: Any, labels: Any = None, weights: Any = 1.0, scope: str | None = None
) -> Tensor:
    """As `tf.losses.absolute_difference`, predictions first."""
    return now.absolute_difference(labels, predictions, _weights(weights, predictions), scope)


@add_arg_scope
def mean_squared_error(
    predictions: Any, labels: Any = None, weights: Any = 1.0, scope: str | None = None
) -> Tensor:
    """As `tf.losses.mean_squared_error`, predictions first."""
    return now.mean_squared_error(labels, predictions, _weights(weights, predictions), scope)


@add_arg_scope
def log_loss(
    predictions: Any,
    labels: Any = None,
    weights: Any = 1.0,
    epsilon: float = 1e-7,
    scope: str | None = None,
) -> Tensor:
    """As `tf.losses.log_loss`, predictions first."""
    return now.log_loss(labels, predictions, _weights(weights, predictions), epsilon, scope)


@add_arg_scope
def hinge_loss(logits: Any, labels: Any = None, scope: str | None = None) -> Tensor:
    """The losses of `tf.losses.hinge_loss` one by one, in no collection; logits first."""
    return now.hinge_loss(
        labels, logits, scope=scope, loss_collection=None, reduction=now.Reduction.NONE
    )


@add_arg_scope
def cosine_distance(
    predictions: Any,
    labels: Any = None,
    axis: int | None = None,
    weights: Any = 1.0,
    scope: str | None = None,
    dim: int | None = None,
) -> Tensor:
    """As `tf.losses.cosine_distance`, predictions first."""
    return now.cosine_distance(
        labels, predictions, axis, _weights(weights, predictions), scope, dim=dim
    )


@add_arg_scope
def sigmoid_cross_entropy(
    logits: Any,
    multi_class_labels: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
) -> Tensor:
    """As `tf.losses.sigmoid_cross_entropy`, logits first."""
    return now.sigmoid_cross_entropy(
        multi_class_labels, logits, _weights(weights, logits), label_smoothing, scope
    )


@add_arg_scope
def softmax_cross_entropy(
    logits: Any,
    onehot_labels: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
) -> Tensor:
    """As `tf.losses.softmax_cross_entropy`, logits first."""
    return now.softmax_cross_entropy(
        onehot_labels, logits, _weights(weights, logits, dropped=1), label_smoothing, scope
    )


@add_arg_scope
def sparse_softmax_cross_entropy(
    logits: Any, labels: Any, weights: Any = 1.0, scope: str | None = None
) -> Tensor:
    """As `tf.losses.sparse_softmax_cross_entropy`, logits first."""
    return now.sparse_softmax_cross_entropy(
        labels, logits, _weights(weights, logits, dropped=1), scope
    )


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__ = missing("contrib.losses", __all__)
