"""`create_train_op`: loss, optimizer and update ops as one operation to run."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from optkit import summary
from optkit.global_step import get_or_create_global_step
from optkit.graph import GraphKeys, Operation, Tensor, get_default_graph, is_symbolic
from optkit.ops.array import identity
from optkit.ops.control import no_op, with_dependencies
from optkit.ops.math import check_numerics as checked_numerics
from optkit.train.given import listed_variables, require_gradient
from optkit.train.optimizer import Optimizer
from optkit.train.step_summaries import Norms, factored, merged_rows
from optkit.train.transforms import as_pairs, gradient_values, refuse_eager
from optkit.variables import Variable
from summaries.quantities import quantity_metadata

__all__ = ["add_gradients_summaries", "create_train_op"]

USE_GLOBAL_STEP = 0
_log = logging.getLogger("optkit")


def create_train_op(
    total_loss: Any,
    optimizer: Any,
    global_step: Any = USE_GLOBAL_STEP,
    update_ops: Iterable[Any] | None = None,
    variables_to_train: Sequence[Any] | None = None,
    transform_grads_fn: Callable[[list[Any]], Any] | None = None,
    summarize_gradients: bool = False,
    gate_gradients: int = Optimizer.GATE_OP,
    aggregation_method: int | None = None,
    colocate_gradients_with_ops: bool = False,
    check_numerics: bool = True,
) -> Tensor:
    """A tensor whose evaluation takes one training step and gives the loss before it.

    The loss and its gradients are read as they were at the start of the run; then the update ops
    and the optimizer write, and `global_step` grows by one. With `check_numerics` a loss that is
    NaN or infinite raises before anything is written.

    Args:
        total_loss: a floating tensor.
        optimizer: an `Optimizer`, or anything with compute_gradients and apply_gradients.
        global_step: an integer Variable; by default the graph's, which is made if there is none;
            None counts nothing.
        update_ops: operations to run with each step; the collection UPDATE_OPS if None. A warning
            names those of the collection that are left out.
        variables_to_train: trainable variables; all if None.
        transform_grads_fn: a function from (gradient, variable) pairs to such pairs, e.g.
            `clip_gradient_norms_fn(1.0)`.
        summarize_gradients: add a histogram and the norm of each gradient to the summaries.
        gate_gradients: see `Optimizer.compute_gradients`.
        aggregation_method: an `AggregationMethod`.
        colocate_gradients_with_ops: record that gradients belong where their operations are.
        check_numerics: raise when the loss is NaN or infinite; the gradients are not checked.

    Raises:
        TypeError: total_loss is no tensor, the optimizer lacks a method, or transform_grads_fn
            returns no pairs.
        ValueError: there is nothing to train, or an option is none of its values.
        InvalidArgumentError: when run, the loss is NaN or infinite.

    Source: tf.contrib.training.create_train_op.
    """
    graph = get_default_graph()
    refuse_eager("create_train_op")
    if not is_symbolic(total_loss):
        raise TypeError(f"total_loss: expected a Tensor, got {total_loss!r}")
    if not total_loss.dtype.is_floating:
        raise ValueError(f"total_loss: expected a floating tensor, got {total_loss!r}")
    for method in ("compute_gradients", "apply_gradients"):
        if not callable(getattr(optimizer, method, None)):
            raise TypeError(f"optimizer: expected an Optimizer, got {optimizer!r} without {method}")
    if isinstance(optimizer, type):
        raise TypeError(f"optimizer: expected an instance, got the class {optimizer.__name__}")
    if transform_grads_fn is not None and not callable(transform_grads_fn):
        raise TypeError(f"transform_grads_fn: expected a function, got {transform_grads_fn!r}")
    with graph.all_or_nothing():
        if global_step is USE_GLOBAL_STEP or (type(global_step) is int and global_step == 0):
            global_step = get_or_create_global_step()
        variables = _trained(variables_to_train)
        updates = _update_ops(update_ops)
        loss = total_loss
        if updates:
            with graph.control_dependencies(updates):
                barrier = no_op(name="update_barrier")
            with graph.control_dependencies([barrier]):
                loss = identity(total_loss)
        pairs = optimizer.compute_gradients(
            loss,
            variables,
            gate_gradients=gate_gradients,
            aggregation_method=aggregation_method,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
        )
        if isinstance(optimizer, Optimizer):
            require_gradient(total_loss, pairs)
        if transform_grads_fn is not None:
            pairs = as_pairs("transform_grads_fn's result", transform_grads_fn(pairs))
            if not pairs:
                raise ValueError("transform_grads_fn: expected it to return pairs, got none")
        if summarize_gradients:
            applies = optimizer.applies_when() if isinstance(optimizer, Optimizer) else None
            with graph.name_scope("summarize_grads"), summary.written_when(applies):
                add_gradients_summaries(pairs)
        applied = optimizer.apply_gradients(pairs, global_step=global_step)
        with graph.name_scope("train_op"):
            if check_numerics:
                loss = checked_numerics(loss, "LossTensor is inf or nan")
            train_op: Tensor = with_dependencies([applied], loss)
        graph.add_to_collection(GraphKeys.TRAIN_OP, train_op)
        return train_op


def _trained(variables_to_train: Sequence[Any] | None) -> list[Any]:
    """The variables to train, each of them trainable."""
    chosen = listed_variables(variables_to_train, "variables_to_train")
    if variables_to_train is None:
        return chosen
    known = get_default_graph().get_collection(GraphKeys.TRAINABLE_VARIABLES)
    for variable in chosen:
        if not isinstance(variable, Variable):
            raise TypeError(f"variables_to_train: expected Variables, got {variable!r} among them")
        if not variable.trainable and variable not in known:
            raise ValueError(
                f"variables_to_train: variable {variable.op.name!r} is not trainable; make it with "
                "trainable=True"
            )
    return chosen


def _update_ops(update_ops: Iterable[Any] | None) -> tuple[Operation, ...]:
    """The operations to run with each step, without duplicates; warns of those left out."""
    graph = get_default_graph()
    collected = graph.as_operations(graph.get_collection(GraphKeys.UPDATE_OPS), "update_ops")
    if update_ops is None:
        return collected
    chosen = graph.as_operations(update_ops, "update_ops")
    missing = [op.name for op in collected if op not in chosen]
    if missing:
        warnings.warn(
            f"update_ops leaves out operations of the collection UPDATE_OPS: {', '.join(missing)}; "
            "what they maintain, e.g. moving averages, will not move",
            UserWarning,
            stacklevel=3,
        )
    return chosen


def add_gradients_summaries(grads_and_vars: Any) -> list[Tensor]:
    """A histogram and the norm of each gradient as summaries.

    The tags are `<variable>_gradient` and `<variable>_gradient_norm` below the current name scope;
    None gradients are left out. Rows named twice by a sparse gradient are added up first.

    Args:
        grads_and_vars: (gradient, variable) pairs.

    Raises:
        TypeError: they are no pairs.

    Source: tf.contrib.training.add_gradients_summaries.
    """
    made = []
    norms = Norms()
    for gradient, variable in merged_rows(as_pairs("grads_and_vars", grads_and_vars)):
        name = variable.op.name
        if gradient is None:
            _log.info("variable %s has no gradient, so there is no summary of it", name)
            continue
        values, scale = factored(gradient_values(gradient))
        note = quantity_metadata("gradients", name)
        counts = summary.noted_histogram(f"{name}_gradient", values, scale, note)
        note = quantity_metadata("gradient_norm", name)
        norm = norms.of([gradient])
        made += [counts, summary.noted_scalar(f"{name}_gradient_norm", norm, note, counts)]
    return made
