"""TF1's `tf.nn`: activations, convolutions, pooling, cross entropies, dropout, embeddings."""

from typing import TYPE_CHECKING

from optkit.names import missing
from optkit.ops.batch_norm import batch_normalization, fused_batch_norm, weighted_moments
from optkit.ops.convolution import (
    atrous_conv2d,
    atrous_conv2d_transpose,
    conv1d,
    conv1d_transpose,
    conv2d,
    conv2d_backprop_filter,
    conv2d_backprop_input,
    conv2d_transpose,
    convolution,
)
from optkit.ops.cross_entropy import (
    sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits_v2,
    sparse_softmax_cross_entropy_with_logits,
    weighted_cross_entropy_with_logits,
)
from optkit.ops.depthwise import (
    depthwise_conv2d,
    depthwise_conv2d_backprop_filter,
    depthwise_conv2d_backprop_input,
    depthwise_conv2d_native,
    depthwise_conv2d_native_backprop_filter,
    depthwise_conv2d_native_backprop_input,
    separable_conv2d,
)
from optkit.ops.elementary import sigmoid, softplus, tanh
from optkit.ops.embedding import embedding_lookup
from optkit.ops.lrn import (
    local_response_normalization,
    lrn,
)
from optkit.ops.nn import (
    bias_add,
    crelu,
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
from optkit.ops.pooling import (
    avg_pool,
    avg_pool1d,
    avg_pool2d,
    max_pool,
    max_pool1d,
    max_pool2d,
    max_pool_with_argmax,
    pool,
)
from optkit.ops.ranking import in_top_k, top_k
from optkit.ops.sampled_losses import nce_loss, sampled_softmax_loss
from optkit.ops.sampling import (
    compute_accidental_hits,
    fixed_unigram_candidate_sampler,
    log_uniform_candidate_sampler,
    uniform_candidate_sampler,
)
from optkit.ops.softmax import log_softmax, softmax
from optkit.rnn import cells as rnn_cell
from optkit.rnn.sequences import (
    bidirectional_dynamic_rnn,
    dynamic_rnn,
    static_bidirectional_rnn,
    static_rnn,
)

__all__ = [
    "atrous_conv2d",
    "atrous_conv2d_transpose",
    "avg_pool",
    "avg_pool1d",
    "avg_pool2d",
    "batch_normalization",
    "bias_add",
    "bidirectional_dynamic_rnn",
    "compute_accidental_hits",
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_backprop_filter",
    "conv2d_backprop_input",
    "conv2d_transpose",
    "convolution",
    "crelu",
    "depthwise_conv2d",
    "depthwise_conv2d_backprop_filter",
    "depthwise_conv2d_backprop_input",
    "depthwise_conv2d_native",
    "depthwise_conv2d_native_backprop_filter",
    "depthwise_conv2d_native_backprop_input",
    "dropout",
    "dynamic_rnn",
    "elu",
    "embedding_lookup",
    "fixed_unigram_candidate_sampler",
    "fused_batch_norm",
    "in_top_k",
    "l2_loss",
    "l2_normalize",
    "leaky_relu",
    "local_response_normalization",
    "log_softmax",
    "log_uniform_candidate_sampler",
    "lrn",
    "max_pool",
    "max_pool1d",
    "max_pool2d",
    "max_pool_with_argmax",
    "moments",
    "nce_loss",
    "pool",
    "relu",
    "relu6",
    "rnn_cell",
    "sampled_softmax_loss",
    "selu",
    "separable_conv2d",
    "sigmoid",
    "sigmoid_cross_entropy_with_logits",
    "softmax",
    "softmax_cross_entropy_with_logits",
    "softmax_cross_entropy_with_logits_v2",
    "softplus",
    "softsign",
    "sparse_softmax_cross_entropy_with_logits",
    "static_bidirectional_rnn",
    "static_rnn",
    "tanh",
    "top_k",
    "uniform_candidate_sampler",
    "weighted_cross_entropy_with_logits",
    "weighted_moments",
    "xw_plus_b",
    "zero_fraction",
]


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__ = missing("nn", __all__)
