"""TF1's `tf.metrics`: averages over everything that a run has seen since the variables were set.

Each gives a value, which reads local variables, and an update, an operation that adds a batch to
them and gives the new value. `local_variables_initializer()` starts them over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from optkit.dtypes import bool_, float32
from optkit.graph import GraphKeys, Tensor, get_default_graph
from optkit.names import missing
from optkit.ops.array import expand_dims, identity, ones_like, reshape, squeeze, zeros
from optkit.ops.core import as_tensor
from optkit.ops.elementary import sqrt, square
from optkit.ops.logic import equal, greater, logical_and, logical_not
from optkit.ops.math import abs, cast, div_no_nan
from optkit.ops.reductions import reduce_sum
from optkit.ops.state_ops import assign_add
from optkit.ops.weights import checked_weights
from optkit.variable_scope import variable_scope
from optkit.variables import Variable

__all__ = [
    "accuracy",
    "auc",
    "false_negatives",
    "false_positives",
    "mean",
    "mean_absolute_error",
    "mean_squared_error",
    "precision",
    "recall",
    "root_mean_squared_error",
    "true_negatives",
    "true_positives",
]


@contextlib.contextmanager
def _scope(name: str | None, default: str) -> Iterator[None]:
    graph = get_default_graph()
    if graph.eager:
        raise RuntimeError(
            f"metrics.{default}: eager mode has no streaming metrics; keep sums in Python"
        )
    with graph.all_or_nothing(), variable_scope(name, default):
        yield


def _variable(name: str, shape: tuple[int, ...] = ()) -> Variable:
    return Variable(
        zeros(shape, float32),
        trainable=False,
        collections=[GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES],
        name=name,
    )


def _results(
    value: Tensor, update: Tensor, metrics_collections: Any, updates_collections: Any
) -> tuple[Tensor, Tensor]:
    graph = get_default_graph()
    if metrics_collections:
        graph.add_to_collections(metrics_collections, value)
    if updates_collections:
        graph.add_to_collections(updates_collections, update)
    return value, update


def _weights(weights: Any, values: Tensor) -> Tensor:
    """Weights as float32 in the shape of the values."""
    given = cast(as_tensor(weights, name="weights"), float32)
    spread: Tensor = checked_weights(given, values) * ones_like(values)
    return spread


def _pair(labels: Any, predictions: Any) -> tuple[Tensor, Tensor]:
    """Both as tensors of one shape; a last axis of size 1 that only one has is dropped.

    Raises:
        ValueError: the shapes differ.
    """
    y, x = as_tensor(labels, name="labels"), as_tensor(predictions, name="predictions")
    ranks = y.shape.ndims, x.shape.ndims
    if None not in ranks:
        if ranks[0] == (ranks[1] or 0) + 1 and y.shape.as_list()[-1] in (1, None):
            y = squeeze(y, [-1])
        elif ranks[1] == (ranks[0] or 0) + 1 and x.shape.as_list()[-1] in (1, None):
            x = squeeze(x, [-1])
    if not y.shape.is_compatible_with(x.shape):
        raise ValueError(f"labels: expected shape {x.shape}, as predictions have, got {y.shape}")
    return y, x


def mean(
    values: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """The weighted mean of all values; 0 while there is none.

    Args:
        values: a tensor of any shape.
        weights: of the rank of `values` or 0, with sizes that are 1 or those of `values`; 1 if
            None.
        metrics_collections: collections that the value joins.
        updates_collections: collections that the update joins.
        name: the scope of the variables `total` and `count`.

    Returns:
        The value, and the update.

    Raises:
        ValueError: the weights do not fit.
        RuntimeError: in eager mode.
    """
    with _scope(name, "mean"):
        return _mean(values, weights, metrics_collections, updates_collections)


def _mean(
    values: Any, weights: Any, metrics_collections: Any, updates_collections: Any
) -> tuple[Tensor, Tensor]:
    x = cast(as_tensor(values, name="values"), float32)
    total, count = _variable("total"), _variable("count")
    weight = ones_like(x) if weights is None else _weights(weights, x)
    added = assign_add(total, reduce_sum(x * weight))
    counted = assign_add(count, reduce_sum(weight))
    value = div_no_nan(total, count, name="value")
    update = div_no_nan(added, counted, name="update_op")
    return _results(value, update, metrics_collections, updates_collections)


def accuracy(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """The part of predictions that equal the labels; see `mean` for the rest."""
    with _scope(name, "accuracy"):
        y, x = _pair(labels, predictions)
        right = equal(x, cast(y, x.dtype))
        return _mean(right, weights, metrics_collections, updates_collections)


def mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """The mean of (prediction - label)²; see `mean` for the rest."""
    with _scope(name, "mean_squared_error"):
        y, x = _pair(labels, predictions)
        errors = square(cast(x, float32) - cast(y, float32))
        return _mean(errors, weights, metrics_collections, updates_collections)


def mean_absolute_error(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """The mean of |prediction - label|; see `mean` for the rest."""
    with _scope(name, "mean_absolute_error"):
        y, x = _pair(labels, predictions)
        errors = abs(cast(x, float32) - cast(y, float32))
        return _mean(errors, weights, metrics_collections, updates_collections)


def root_mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """The square root of `mean_squared_error`."""
    with _scope(name, "root_mean_squared_error"):
        y, x = _pair(labels, predictions)
        errors = square(cast(x, float32) - cast(y, float32))
        value, update = _mean(errors, weights, None, None)
        return _results(sqrt(value), sqrt(update), metrics_collections, updates_collections)


# -- counts of right and wrong ---------------------------------------------------------------------


def _truths(labels: Any, predictions: Any) -> tuple[Tensor, Tensor]:
    y, x = _pair(labels, predictions)
    return cast(y, bool_), cast(x, bool_)


def _count(name: str, chosen: Tensor, weights: Any) -> tuple[Tensor, Tensor]:
    """The weight of all that was chosen, read and updated."""
    ones = cast(chosen, float32)
    if weights is not None:
        ones = ones * _weights(weights, ones)
    total = _variable(name)
    return identity(total), assign_add(total, reduce_sum(ones))


def _counted(
    default: str,
    side: bool,
    right: bool,
    labels: Any,
    predictions: Any,
    weights: Any,
    metrics_collections: Any,
    updates_collections: Any,
    name: str | None,
) -> tuple[Tensor, Tensor]:
    with _scope(name, default):
        y, x = _truths(labels, predictions)
        predicted = x if side else logical_not(x)
        wanted = y if side is right else logical_not(y)
        value, update = _count("count", logical_and(predicted, wanted), weights)
        return _results(value, update, metrics_collections, updates_collections)


def true_positives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """How many were predicted true and are; bools or numbers that are not 0."""
    rest = labels, predictions, weights, metrics_collections, updates_collections, name
    return _counted("true_positives", True, True, *rest)


def true_negatives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """How many were predicted false and are."""
    rest = labels, predictions, weights, metrics_collections, updates_collections, name
    return _counted("true_negatives", False, True, *rest)


def false_positives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """How many were predicted true and are false."""
    rest = labels, predictions, weights, metrics_collections, updates_collections, name
    return _counted("false_positives", True, False, *rest)


def false_negatives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """How many were predicted false and are true."""
    rest = labels, predictions, weights, metrics_collections, updates_collections, name
    return _counted("false_negatives", False, False, *rest)


def precision(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """The part of what was predicted true that is; 0 while nothing was. See `mean`."""
    with _scope(name, "precision"):
        y, x = _truths(labels, predictions)
        hit, more_hit = _count("true_positives", logical_and(x, y), weights)
        miss, more_miss = _count("false_positives", logical_and(x, logical_not(y)), weights)
        value = div_no_nan(hit, hit + miss, name="value")
        update = div_no_nan(more_hit, more_hit + more_miss, name="update_op")
        return _results(value, update, metrics_collections, updates_collections)


def recall(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """The part of what is true that was predicted so; 0 while nothing is. See `mean`."""
    with _scope(name, "recall"):
        y, x = _truths(labels, predictions)
        hit, more_hit = _count("true_positives", logical_and(x, y), weights)
        miss, more_miss = _count("false_negatives", logical_and(logical_not(x), y), weights)
        value = div_no_nan(hit, hit + miss, name="value")
        update = div_no_nan(more_hit, more_hit + more_miss, name="update_op")
        return _results(value, update, metrics_collections, updates_collections)


# -- the area under a curve ------------------------------------------------------------------------

_EPSILON = 1e-7
_TINY = 1e-6


def auc(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    curve: str = "ROC",
    name: str | None = None,
    summation_method: str = "trapezoidal",
    thresholds: Any = None,
) -> tuple[Tensor, Tensor]:
    """The area under the ROC or the precision-recall curve, by the trapezoidal rule.

    Args:
        labels: bools, or numbers that are not 0 for true.
        predictions: numbers in [0, 1], in the shape of the labels.
        weights: as of `mean`.
        num_thresholds: how many points of the curve are counted.
        metrics_collections: collections that the value joins.
        updates_collections: collections that the update joins.
        curve: "ROC" or "PR".
        name: the scope of the four vectors of counts.
        summation_method: only "trapezoidal" works.
        thresholds: inner thresholds in (0, 1), in place of even ones.

    Raises:
        ValueError: another curve or summation, or fewer than two thresholds.
    """
    if curve not in ("ROC", "PR"):
        raise ValueError(f"curve: expected 'ROC' or 'PR', got {curve!r}")
    if summation_method != "trapezoidal":
        raise ValueError(f"summation_method: expected 'trapezoidal', got {summation_method!r}")
    if thresholds is None:
        if num_thresholds < 2:
            raise ValueError(f"num_thresholds: expected at least 2, got {num_thresholds!r}")
        inner = [(i + 1) / (num_thresholds - 1) for i in range(num_thresholds - 2)]
    else:
        inner = sorted(thresholds)
    limits = np.array([-_EPSILON, *inner, 1 + _EPSILON], np.float32)
    with _scope(name, "auc"):
        y, x = _pair(labels, predictions)
        flat = reshape(cast(x, float32), [1, -1])
        truth = reshape(cast(y, bool_), [1, -1])
        above = greater(flat, expand_dims(as_tensor(limits), 1))
        weight = None if weights is None else reshape(_weights(weights, cast(x, float32)), [1, -1])
        reads, updates = {}, {}
        for key, chosen in {
            "true_positives": logical_and(above, truth),
            "false_negatives": logical_and(logical_not(above), truth),
            "true_negatives": logical_and(logical_not(above), logical_not(truth)),
            "false_positives": logical_and(above, logical_not(truth)),
        }.items():
            ones = cast(chosen, float32)
            counts = _variable(key, (len(limits),))
            reads[key] = identity(counts)
            updates[key] = assign_add(
                counts, reduce_sum(ones if weight is None else ones * weight, [1])
            )
        value, update = _area(reads, curve), _area(updates, curve)
        return _results(value, update, metrics_collections, updates_collections)


def _area(counts: dict[str, Tensor], curve: str) -> Tensor:
    hit, missed = counts["true_positives"], counts["false_negatives"]
    wrong = counts["false_positives"]
    found = (hit + _TINY) / (hit + missed + _TINY)
    if curve == "ROC":
        x, y = wrong / (wrong + counts["true_negatives"] + _TINY), found
    else:
        x, y = found, (hit + _TINY) / (hit + wrong + _TINY)
    return reduce_sum((x[:-1] - x[1:]) * (y[:-1] + y[1:]) / 2.0)


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__ = missing("metrics", __all__)
