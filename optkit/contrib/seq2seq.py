"""`tf.contrib.seq2seq`: the loss of sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from optkit.graph import Tensor, get_default_graph
from optkit.ops.array import reshape, shape
from optkit.ops.core import as_tensor
from optkit.ops.cross_entropy import sparse_softmax_cross_entropy_with_logits
from optkit.ops.logic import not_equal
from optkit.ops.math import cast, div_no_nan
from optkit.ops.reductions import reduce_sum

__all__ = ["sequence_loss"]


def sequence_loss(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    softmax_loss_function: Callable[..., Any] | None = None,
    name: str | None = None,
    sum_over_timesteps: bool = False,
    sum_over_batch: bool = False,
) -> Tensor:
    """The weighted cross entropy of sequences of classes.

    Averages over time divide by the sum of weights there; zero weights give zero.

    Args:
        logits: shape (batch, time, classes).
        targets: class numbers, shape (batch, time).
        weights: shape (batch, time), 0 past the end of a sequence.
        average_across_timesteps: whether to average over time.
        average_across_batch: whether to average over examples.
        softmax_loss_function: gets labels= and logits=, flat; the sparse softmax cross entropy if
            None.
        name: the name scope.
        sum_over_timesteps: whether to add up over time and divide by the number of weights that
            are not 0; not together with an average.
        sum_over_batch: the same for examples.

    Returns:
        Shape (), (time,), (batch,) or (batch, time), by what is averaged or added up.

    Raises:
        ValueError: a rank does not fit, or both an average and a sum are asked for.
    """
    for argument, value, rank in (
        ("logits", logits, 3),
        ("targets", targets, 2),
        ("weights", weights, 2),
    ):
        tensor = as_tensor(value)
        if tensor.shape.ndims not in (None, rank):
            raise ValueError(f"{argument}: expected {rank} axes, got {tensor!r}")
    if average_across_timesteps and sum_over_timesteps:
        raise ValueError("average_across_timesteps, sum_over_timesteps: expected one at most")
    if average_across_batch and sum_over_batch:
        raise ValueError("average_across_batch, sum_over_batch: expected one at most")
    with get_default_graph().name_scope(name or "sequence_loss"):
        scores, classes, weight = as_tensor(logits), as_tensor(targets), as_tensor(weights)
        flat = reshape(scores, [-1, shape(scores)[2]])
        function = softmax_loss_function or sparse_softmax_cross_entropy_with_logits
        losses = function(labels=reshape(classes, [-1]), logits=flat)
        weight = cast(weight, losses.dtype)
        losses = as_tensor(reshape(losses, shape(classes)) * weight)
        used = cast(not_equal(weight, 0), losses.dtype)
        axes: list[int] | None = None
        if average_across_timesteps and average_across_batch:
            divisor = weight
        elif sum_over_timesteps and sum_over_batch:
            divisor = used
        elif average_across_timesteps or average_across_batch:
            axes, divisor = [0 if average_across_batch else 1], weight
        elif sum_over_timesteps or sum_over_batch:
            axes, divisor = [0 if sum_over_batch else 1], used
        else:
            return losses
        loss: Tensor = div_no_nan(reduce_sum(losses, axes), reduce_sum(divisor, axes))
        return loss
