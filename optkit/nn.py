"""TF1's `tf.nn`: activations, cross entropies, normalisation, dropout, embeddings."""

from optkit.ops.batch_norm import batch_normalization, fused_batch_norm, weighted_moments
from optkit.ops.cross_entropy import (
    sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits_v2,
    sparse_softmax_cross_entropy_with_logits,
    weighted_cross_entropy_with_logits,
)
from optkit.ops.elementary import sigmoid, softplus, tanh
from optkit.ops.embedding import embedding_lookup
from optkit.ops.nn import (
    bias_add,
    dropout,
    elu,
    l2_loss,
    l2_normalize,
    leaky_relu,
    moments,
    relu,
    relu6,
    selu,
    softsign,
    xw_plus_b,
    zero_fraction,
)
from optkit.ops.softmax import log_softmax, softmax

__all__ = [
    "batch_normalization",
    "bias_add",
    "dropout",
    "elu",
    "embedding_lookup",
    "fused_batch_norm",
    "l2_loss",
    "l2_normalize",
    "leaky_relu",
    "log_softmax",
    "moments",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "sigmoid_cross_entropy_with_logits",
    "softmax",
    "softmax_cross_entropy_with_logits",
    "softmax_cross_entropy_with_logits_v2",
    "softplus",
    "softsign",
    "sparse_softmax_cross_entropy_with_logits",
    "tanh",
    "weighted_cross_entropy_with_logits",
    "weighted_moments",
    "xw_plus_b",
    "zero_fraction",
]
