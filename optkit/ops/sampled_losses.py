"""Losses over many classes that look at the true ones and a few drawn ones."""

from __future__ import annotations

from typing import Any

from optkit.dtypes import int64
from optkit.graph import Tensor, get_default_graph
from optkit.ops.arguments import static_int
from optkit.ops.array import concat, ones_like, reshape, shape, stack, stop_gradient, zeros_like
from optkit.ops.core import as_tensor, composite
from optkit.ops.cross_entropy import (
    sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits_v2,
)
from optkit.ops.elementary import log
from optkit.ops.embedding import embedding_lookup
from optkit.ops.indexing import scatter_nd
from optkit.ops.linalg import matmul
from optkit.ops.math import cast
from optkit.ops.reductions import reduce_sum
from optkit.ops.sampling import compute_accidental_hits, log_uniform_candidate_sampler

__all__ = ["nce_loss", "sampled_softmax_loss"]


def _sampled_logits(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: Any,
    num_classes: Any,
    num_true: Any,
    sampled_values: Any,
    subtract_log_q: bool,
    remove_accidental_hits: bool,
    partition_strategy: str,
    seed: Any,
) -> tuple[Tensor, Tensor]:
    """Logits of the true and the drawn classes, (batch, num_true + num_sampled), and labels."""
    truths = static_int(num_true, "num_true")
    x = as_tensor(inputs, name="inputs")
    classes = cast(labels, int64)
    if not classes.shape.is_compatible_with([None, truths]):
        raise ValueError(f"labels: expected shape (batch, num_true = {truths}), got {classes!r}")
    if x.shape.ndims not in (None, 2):
        raise ValueError(f"inputs: expected shape (batch, dim), got {x!r}")
    if sampled_values is None:
        sampled_values = log_uniform_candidate_sampler(
            classes, truths, num_sampled, True, num_classes, seed=seed
        )
    sampled, true_expected, sampled_expected = (stop_gradient(value) for value in sampled_values)
    sampled = cast(sampled, int64)
    flat = reshape(classes, [-1])
    ids = concat([flat, sampled], 0)
    rows = embedding_lookup(weights, ids, partition_strategy)
    offsets = embedding_lookup(biases, ids, partition_strategy)
    count = shape(flat)[0]
    true_rows = reshape(rows[:count], concat([[-1, truths], shape(rows)[1:]], 0))
    # One dot product for each true class of an example.
    true_logits = reduce_sum(reshape(x, [-1, 1, shape(x)[1]]) * true_rows, 2)
    true_logits = true_logits + reshape(offsets[:count], [-1, truths])
    sampled_logits = matmul(x, rows[count:], transpose_b=True) + offsets[count:]
    if remove_accidental_hits:
        hits = compute_accidental_hits(classes, sampled, truths)
        places = stack([hits.indices, cast(hits.ids, hits.indices.dtype)], 1)
        sampled_logits = sampled_logits + scatter_nd(
            places, cast(hits.weights, sampled_logits.dtype), shape(sampled_logits)
        )
    if subtract_log_q:
        true_logits = true_logits - log(cast(true_expected, true_logits.dtype))
        sampled_logits = sampled_logits - log(cast(sampled_expected, sampled_logits.dtype))
    logits = concat([true_logits, sampled_logits], 1)
    targets = concat([ones_like(true_logits) / truths, zeros_like(sampled_logits)], 1)
    return logits, stop_gradient(targets)


@composite
def nce_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: Any,
    num_classes: Any,
    num_true: Any = 1,
    sampled_values: Any = None,
    remove_accidental_hits: bool = False,
    partition_strategy: str = "mod",
    name: str = "nce_loss",
) -> Tensor:
    """Noise-contrastive estimation: telling the true classes from drawn ones; shape (batch,).

    The sigmoid cross entropy of x·w_k + b_k - log(expected count of k) over the true classes,
    whose labels add up to 1, and the drawn ones, labelled 0 (Gutmann & Hyvärinen, 2010).

    Args:
        weights: shape (num_classes, dim), or a list of shards of it.
        biases: shape (num_classes,).
        labels: the true classes, shape (batch, num_true).
        inputs: x, shape (batch, dim).
        num_sampled: how many classes to draw for the batch.
        num_classes: how many there are.
        num_true: true classes an example.
        sampled_values: what a candidate sampler gave; log-uniform, all different, if None.
        remove_accidental_hits: whether drawn classes that are true ones are left out.
        partition_strategy: how `weights` is spread over shards: "mod" or "div".
        name: the name scope.

    Raises:
        ValueError: shapes do not fit.
    """
    with get_default_graph().name_scope(name or "nce_loss"):
        logits, targets = _sampled_logits(
            weights,
            biases,
            labels,
            inputs,
            num_sampled,
            num_classes,
            num_true,
            sampled_values,
            True,
            remove_accidental_hits,
            partition_strategy,
            None,
        )
        return reduce_sum(sigmoid_cross_entropy_with_logits(labels=targets, logits=logits), 1)


@composite
def sampled_softmax_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: Any,
    num_classes: Any,
    num_true: Any = 1,
    sampled_values: Any = None,
    remove_accidental_hits: bool = True,
    partition_strategy: str = "mod",
    name: str = "sampled_softmax_loss",
    seed: Any = None,
) -> Tensor:
    """The softmax cross entropy over the true classes and drawn ones; shape (batch,).

    Logits are x·w_k + b_k - log(expected count of k) (Jean et al., 2014). For training only.
    Arguments as of `nce_loss`; `seed` is the sampler's.

    Raises:
        ValueError: shapes do not fit.
    """
    with get_default_graph().name_scope(name or "sampled_softmax_loss"):
        logits, targets = _sampled_logits(
            weights,
            biases,
            labels,
            inputs,
            num_sampled,
            num_classes,
            num_true,
            sampled_values,
            True,
            remove_accidental_hits,
            partition_strategy,
            seed,
        )
        return softmax_cross_entropy_with_logits_v2(labels=targets, logits=logits)
