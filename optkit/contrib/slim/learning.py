"""`tf.contrib.slim.learning`: `create_train_op`, with multipliers and clipping as arguments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from optkit.contrib.training import train_op
from optkit.contrib.training.train_op import USE_GLOBAL_STEP
from optkit.graph import Tensor, get_default_graph
from optkit.train.optimizer import Optimizer
from optkit.train.transforms import GradAndVar, clip_gradient_norms, multiply_gradients

__all__ = ["create_train_op"]


def create_train_op(
    total_loss: Any,
    optimizer: Any,
    global_step: Any = USE_GLOBAL_STEP,
    update_ops: Iterable[Any] | None = None,
    variables_to_train: Sequence[Any] | None = None,
    clip_gradient_norm: float = 0,
    summarize_gradients: bool = False,
    gate_gradients: int = Optimizer.GATE_OP,
    aggregation_method: int | None = None,
    colocate_gradients_with_ops: bool = False,
    gradient_multipliers: Any = None,
    check_numerics: bool = True,
) -> Tensor:
    """`tf.contrib.training.create_train_op`; gradients are first multiplied and then clipped.

    Args:
        total_loss: as there, like all that is not explained here.
        optimizer: as there.
        global_step: as there.
        update_ops: as there.
        variables_to_train: as there.
        clip_gradient_norm: the largest norm of each gradient; 0 clips nothing.
        summarize_gradients: as there.
        gate_gradients: as there.
        aggregation_method: as there.
        colocate_gradients_with_ops: as there.
        gradient_multipliers: Variable, "w:0" or "w" -> factor of its gradient.
        check_numerics: as there.

    Raises:
        TypeError, ValueError: as there, and as `clip_gradient_norms` and `multiply_gradients`.

    Source: tf.contrib.slim.learning.create_train_op.
    """

    def transform(pairs: list[GradAndVar]) -> list[GradAndVar]:
        graph = get_default_graph()
        if gradient_multipliers:
            with graph.name_scope("multiply_grads"):
                pairs = multiply_gradients(pairs, gradient_multipliers)
        if clip_gradient_norm > 0:
            with graph.name_scope("clip_grads"):
                pairs = clip_gradient_norms(pairs, clip_gradient_norm)
        return pairs

    return train_op.create_train_op(
        total_loss,
        optimizer,
        global_step,
        update_ops,
        variables_to_train,
        transform,
        summarize_gradients,
        gate_gradients,
        aggregation_method,
        colocate_gradients_with_ops,
        check_numerics,
    )
