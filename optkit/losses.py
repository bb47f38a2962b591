"""TF1's `tf.losses`: losses with weights, reduced to a scalar and collected.

Each loss is worked out elementwise, multiplied by its weights and reduced as `reduction` says. It
joins the collection `loss_collection`; in eager mode collections keep nothing.

Results have the dtype of TF1 (float32, or that of the logits), with one exception: losses of
float64 predictions stay float64 where TF1 rounds them to float32.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from optkit.dtypes import DType, float32, float64
from optkit.graph import GraphKeys, Tensor, get_default_graph, is_symbolic
from optkit.names import missing
from optkit.ops.arguments import one_of
from optkit.ops.array import broadcast_to, shape, size, squeeze, stop_gradient
from optkit.ops.core import as_tensor, constant
from optkit.ops.cross_entropy import (
    sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits_v2,
    sparse_softmax_cross_entropy_with_logits,
)
from optkit.ops.elementary import log, square
from optkit.ops.logic import not_equal
from optkit.ops.math import abs, add_n, cast, div_no_nan, maximum, minimum, squared_difference
from optkit.ops.nn import relu
from optkit.ops.reductions import reduce_sum
from optkit.ops.weights import checked_weights

__all__ = [
    "Reduction",
    "absolute_difference",
    "add_loss",
    "compute_weighted_loss",
    "cosine_distance",
    "get_losses",
    "get_regularization_loss",
    "get_regularization_losses",
    "get_total_loss",
    "hinge_loss",
    "huber_loss",
    "log_loss",
    "mean_pairwise_squared_error",
    "mean_squared_error",
    "sigmoid_cross_entropy",
    "softmax_cross_entropy",
    "sparse_softmax_cross_entropy",
]


class Reduction:
    """How weighted losses become the result.

    Attributes:
        NONE: they stay as they are.
        SUM: their sum.
        SUM_OVER_BATCH_SIZE: the sum divided by the number of losses.
        MEAN: the sum divided by the sum of the weights.
        SUM_BY_NONZERO_WEIGHTS: the sum divided by the number of losses whose weight is not 0.
        SUM_OVER_NONZERO_WEIGHTS: its older name.
    """

    NONE = "none"
    SUM = "weighted_sum"
    SUM_OVER_BATCH_SIZE = "weighted_sum_over_batch_size"
    MEAN = "weighted_mean"
    SUM_BY_NONZERO_WEIGHTS = "weighted_sum_by_nonzero_weights"
    SUM_OVER_NONZERO_WEIGHTS = SUM_BY_NONZERO_WEIGHTS

    @classmethod
    def all(cls) -> tuple[str, ...]:
        """All of them."""
        return cls.NONE, cls.SUM, cls.MEAN, cls.SUM_OVER_BATCH_SIZE, cls.SUM_BY_NONZERO_WEIGHTS

    @classmethod
    def validate(cls, key: Any) -> None:
        """Refuse what is no reduction with a ValueError."""
        if key not in cls.all():
            raise ValueError(f"reduction: expected one of {', '.join(cls.all())}, got {key!r}")


# -- what all losses share ------------------------------------------------------------------------


@contextlib.contextmanager
def _loss_scope(
    scope: str | None, function: str, default: str | None = None, **given: Any
) -> Iterator[None]:
    """The name scope of a loss, whose failure leaves the graph as it was."""
    for argument, value in given.items():
        if value is None:
            raise ValueError(f"{function}: {argument}: expected a tensor, got None")
    graph = get_default_graph()
    with graph.all_or_nothing(), graph.name_scope(scope or default or function):
        try:
            yield
        except (TypeError, ValueError) as error:
            if type(error) in (TypeError, ValueError):
                raise type(error)(f"{function}: {error}") from error
            raise


def _pair(labels: Any, predictions: Any) -> tuple[Tensor, Tensor]:
    """Both as floats of one dtype and shape."""
    predictions = as_tensor(predictions, name="predictions")
    dtype = float64 if predictions.dtype is float64 else float32
    labels, predictions = cast(as_tensor(labels, name="labels"), dtype), cast(predictions, dtype)
    if not labels.shape.is_compatible_with(predictions.shape):
        raise ValueError(
            f"labels: expected the shape {predictions.shape} of the predictions, got {labels!r}"
        )
    return labels, predictions


def compute_weighted_loss(
    losses: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """Losses times weights, reduced.

    Args:
        losses: a tensor.
        weights: a scalar, or a tensor of the losses' rank that broadcasts to them.
        scope: the name scope.
        loss_collection: the collection that the result joins, None for none.
        reduction: one of `Reduction`.

    Returns:
        A scalar of the losses' dtype; with Reduction.NONE the weighted losses.

    Raises:
        ValueError: the weights do not fit, or `reduction` is none.
    """
    Reduction.validate(reduction)
    with _loss_scope(
        scope, "compute_weighted_loss", "weighted_loss", losses=losses, weights=weights
    ):
        return _reduced(as_tensor(losses, name="losses"), weights, loss_collection, reduction)


def _reduced(losses: Tensor, weights: Any, loss_collection: str | None, reduction: str) -> Tensor:
    Reduction.validate(reduction)
    dtype: DType = losses.dtype
    wide = float64 if dtype is float64 else float32
    values = as_tensor(cast(losses, wide))
    result = as_tensor(cast(_weighted(values, weights, reduction), dtype))
    add_loss(result, loss_collection)
    return result


def _weighted(losses: Tensor, weights: Any, reduction: str) -> Tensor:
    unit = isinstance(weights, int | float) and weights == 1
    if unit:
        weighted = losses
    else:
        weights = _weights(weights, losses)
        weighted = losses * weights
    if reduction == Reduction.NONE:
        return weighted
    total = reduce_sum(weighted)
    if reduction == Reduction.SUM:
        return total
    count: Any = cast(size(losses), losses.dtype)
    if not unit and reduction != Reduction.SUM_OVER_BATCH_SIZE:
        counted = weights if reduction == Reduction.MEAN else _nonzero(weights)
        repeats = div_no_nan(count, cast(size(weights), losses.dtype))
        count = reduce_sum(counted) * repeats
    return div_no_nan(total, count, name="value")


def _weights(weights: Any, losses: Tensor) -> Tensor:
    """The weights in the losses' dtype, seen to fit."""
    weights = cast(as_tensor(weights, name="weights"), losses.dtype)
    return checked_weights(weights, losses)


def _nonzero(weights: Tensor) -> Tensor:
    """1 for each weight that is not 0, else 0."""
    return cast(not_equal(weights, 0), weights.dtype)  # type: ignore[no-any-return]


def add_loss(loss: Any, loss_collection: str | None = GraphKeys.LOSSES) -> None:
    """Add a loss to a collection, if one is named."""
    if loss_collection:
        get_default_graph().add_to_collection(loss_collection, loss)


# -- losses of two tensors of one shape -----------------------------------------------------------


def absolute_difference(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """|predictions - labels|; arguments and errors as `mean_squared_error`."""
    given = {"labels": labels, "predictions": predictions, "weights": weights}
    with _loss_scope(scope, "absolute_difference", **given):
        labels, predictions = _pair(labels, predictions)
        return _reduced(abs(predictions - labels), weights, loss_collection, reduction)


def mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """(predictions - labels)².

    Args:
        labels: numbers.
        predictions: numbers of the same shape.
        weights: a scalar, or a tensor of the same rank that broadcasts to the losses.
        scope: the name scope.
        loss_collection: the collection that the result joins, None for none.
        reduction: one of `Reduction`.

    Raises:
        ValueError: the shapes do not fit, or an argument is missing.
        InvalidArgumentError: when run, the shape of the weights does not fit.
    """
    given = {"labels": labels, "predictions": predictions, "weights": weights}
    with _loss_scope(scope, "mean_squared_error", **given):
        labels, predictions = _pair(labels, predictions)
        losses = squared_difference(predictions, labels)
        return _reduced(losses, weights, loss_collection, reduction)


def huber_loss(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    delta: float = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """e²/2 where e = |predictions - labels| <= delta, else delta·e - delta²/2.

    Arguments and errors as `mean_squared_error`.
    """
    given = {"labels": labels, "predictions": predictions, "weights": weights}
    with _loss_scope(scope, "huber_loss", **given):
        labels, predictions = _pair(labels, predictions)
        error = abs(predictions - labels)
        quadratic = minimum(error, delta)
        losses = 0.5 * square(quadratic) + delta * (error - quadratic)
        return _reduced(losses, weights, loss_collection, reduction)


def log_loss(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    epsilon: float = 1e-7,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """-labels·ln(predictions + epsilon) - (1 - labels)·ln(1 - predictions + epsilon).

    Arguments and errors as `mean_squared_error`.
    """
    given = {"labels": labels, "predictions": predictions, "weights": weights}
    with _loss_scope(scope, "log_loss", **given):
        labels, predictions = _pair(labels, predictions)
        losses = -labels * log(predictions + epsilon)
        losses = losses - (1 - labels) * log(1 - predictions + epsilon)
        return _reduced(losses, weights, loss_collection, reduction)


def hinge_loss(
    labels: Any,
    logits: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """max(0, 1 - (2·labels - 1)·logits), for labels of 0 and 1.

    Arguments and errors as `mean_squared_error`.
    """
    given = {"labels": labels, "logits": logits, "weights": weights}
    with _loss_scope(scope, "hinge_loss", **given):
        labels, logits = _pair(labels, logits)
        losses = relu(1 - (2 * labels - 1) * logits)
        return _reduced(losses, weights, loss_collection, reduction)


def cosine_distance(
    labels: Any,
    predictions: Any,
    axis: int | None = None,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
    dim: int | None = None,
) -> Tensor:
    """1 - Σ labels·predictions along `axis`, for vectors of length 1.

    Arguments and errors as `mean_squared_error`; the losses keep the axis, with size 1. `dim` is
    the older name of `axis`.
    """
    given = {"labels": labels, "predictions": predictions, "weights": weights}
    with _loss_scope(scope, "cosine_distance", "cosine_distance_loss", **given):
        axis = one_of("axis", axis, "dim", dim)
        if axis is None:
            raise ValueError("axis: expected the axis of the vectors, got None")
        labels, predictions = _pair(labels, predictions)
        losses = 1 - reduce_sum(predictions * labels, axis, keepdims=True)
        return _reduced(losses, weights, loss_collection, reduction)


def mean_pairwise_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
) -> Tensor:
    """How far differences between elements of a row are from what the labels say.

    With d = predictions - labels and n elements in each row (the first axis counts rows), the
    mean of (dᵢ - dⱼ)² over all pairs i ≠ j; rows are added up. Weights multiply the result of a
    row, and elements whose weight is 0 do not count in n.

    Arguments and errors as `mean_squared_error`.
    """
    given = {"labels": labels, "predictions": predictions, "weights": weights}
    with _loss_scope(scope, "mean_pairwise_squared_error", **given):
        labels, predictions = _pair(labels, predictions)
        difference = predictions - labels
        weights = _weights(weights, difference)
        rank = difference.shape.ndims
        if rank is None or rank == 0:
            raise ValueError(f"predictions: expected rows, got {predictions!r}")
        axes = list(range(1, rank))
        present = broadcast_to(_nonzero(weights), shape(difference))
        n = reduce_sum(present, axes, keepdims=True)
        squares = reduce_sum(square(difference), axes, keepdims=True)
        total = reduce_sum(difference, axes, keepdims=True)
        rows = div_no_nan(squares, maximum(n - 1, 0)) - div_no_nan(square(total), n * (n - 1))
        loss = reduce_sum(2 * rows * weights, name="value")
        add_loss(loss, loss_collection)
        return loss


# -- cross entropies ------------------------------------------------------------------------------


def _smoothing(label_smoothing: Any) -> float:
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing: expected a number in [0, 1], got {label_smoothing!r}")
    return float(label_smoothing)


def sigmoid_cross_entropy(
    multi_class_labels: Any,
    logits: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """The cross entropy of independent classes; see `nn.sigmoid_cross_entropy_with_logits`.

    Args:
        multi_class_labels: numbers in [0, 1], of the shape of the logits.
        logits: floats.
        weights: a scalar, or a tensor of the same rank that broadcasts to the losses.
        label_smoothing: moves labels this part of the way to 1/2.
        scope: the name scope.
        loss_collection: the collection that the result joins, None for none.
        reduction: one of `Reduction`.

    Raises:
        ValueError: the shapes do not fit, or an argument is missing.
    """
    given = {"multi_class_labels": multi_class_labels, "logits": logits, "weights": weights}
    with _loss_scope(scope, "sigmoid_cross_entropy", "sigmoid_cross_entropy_loss", **given):
        logits = as_tensor(logits, name="logits")
        labels: Any = cast(as_tensor(multi_class_labels, name="labels"), logits.dtype)
        smoothing = _smoothing(label_smoothing)
        if smoothing:
            labels = labels * (1 - smoothing) + 0.5 * smoothing
        losses = sigmoid_cross_entropy_with_logits(labels=labels, logits=logits, name="xentropy")
        return _reduced(losses, weights, loss_collection, reduction)


def softmax_cross_entropy(
    onehot_labels: Any,
    logits: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """The cross entropy of exclusive classes, one loss a row; no gradient flows to the labels.

    Args:
        onehot_labels: probabilities of the classes, of the shape of the logits.
        logits: floats; the last axis counts classes.
        weights: a scalar, or a tensor that broadcasts to the losses.
        label_smoothing: moves labels this part of the way to equal probabilities.
        scope: the name scope.
        loss_collection: the collection that the result joins, None for none.
        reduction: one of `Reduction`.

    Raises:
        ValueError: the shapes do not fit, or an argument is missing.
    """
    given = {"onehot_labels": onehot_labels, "logits": logits, "weights": weights}
    with _loss_scope(scope, "softmax_cross_entropy", "softmax_cross_entropy_loss", **given):
        logits = as_tensor(logits, name="logits")
        labels: Any = cast(as_tensor(onehot_labels, name="labels"), logits.dtype)
        smoothing = _smoothing(label_smoothing)
        if smoothing:
            classes = cast(shape(logits)[-1], logits.dtype)
            labels = labels * (1 - smoothing) + smoothing / classes
        losses = softmax_cross_entropy_with_logits_v2(
            labels=stop_gradient(labels), logits=logits, name="xentropy"
        )
        return _reduced(losses, weights, loss_collection, reduction)


def sparse_softmax_cross_entropy(
    labels: Any,
    logits: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """The cross entropy of exclusive classes whose numbers are the labels, one loss a row.

    Args:
        labels: int32 or int64, of the logits' shape without the last axis, or with size 1 there.
        logits: floats; the last axis counts classes.
        weights: a scalar, or a tensor that broadcasts to the losses; it may have a last axis of
            size 1 too many.
        scope: the name scope.
        loss_collection: the collection that the result joins, None for none.
        reduction: one of `Reduction`.

    Raises:
        ValueError: the shapes do not fit, or an argument is missing.
        InvalidArgumentError: when run, a label is no class number.
    """
    given = {"labels": labels, "logits": logits, "weights": weights}
    with _loss_scope(
        scope, "sparse_softmax_cross_entropy", "sparse_softmax_cross_entropy_loss", **given
    ):
        logits = as_tensor(logits, name="logits")
        rank = logits.shape.ndims
        labels = _without_last(as_tensor(labels, name="labels"), rank)
        losses = sparse_softmax_cross_entropy_with_logits(
            labels=labels, logits=logits, name="xentropy"
        )
        if is_symbolic(weights) or isinstance(weights, list | tuple | np.ndarray):
            weights = _without_last(as_tensor(weights, name="weights"), rank)
        return _reduced(losses, weights, loss_collection, reduction)


def _without_last(tensor: Tensor, rank: int | None) -> Tensor:
    """A tensor of one axis fewer than `rank`; a last axis of size 1 too many is taken off."""
    if rank is None or tensor.shape.ndims != rank or tensor.sizes is None:
        return tensor
    return squeeze(tensor, [-1]) if tensor.sizes[-1] in (1, None) else tensor


# -- what was collected ---------------------------------------------------------------------------


def get_losses(scope: str | None = None, loss_collection: str = GraphKeys.LOSSES) -> list[Any]:
    """The losses of a collection; with `scope`, a regular expression, those whose name matches."""
    return get_default_graph().get_collection(loss_collection, scope)


def get_regularization_losses(scope: str | None = None) -> list[Any]:
    """The losses that regularizers gave; see `get_losses`."""
    return get_default_graph().get_collection(GraphKeys.REGULARIZATION_LOSSES, scope)


def get_regularization_loss(
    scope: str | None = None, name: str = "total_regularization_loss"
) -> Tensor:
    """The sum of what regularizers gave; 0 where there is none."""
    losses = get_regularization_losses(scope)
    return add_n(losses, name=name) if losses else constant(0.0)


def get_total_loss(
    add_regularization_losses: bool = True, name: str = "total_loss", scope: str | None = None
) -> Tensor:
    """The sum of the losses collected, and of what regularizers gave.

    Args:
        add_regularization_losses: whether to add those of regularizers.
        name: the operation's name.
        scope: a regular expression that the losses' names must match.

    Raises:
        ValueError: there is no loss.
    """
    losses = get_losses(scope)
    if add_regularization_losses:
        losses += get_regularization_losses(scope)
    if not losses:
        raise ValueError(
            "get_total_loss: expected losses in the collection LOSSES, found none"
            + (
                f" whose name matches {scope!r}"
                if scope
                else "; the losses of optkit.losses join it when they are built in graph mode"
            )
        )
    return add_n(losses, name=name)


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__ = missing("losses", __all__)
