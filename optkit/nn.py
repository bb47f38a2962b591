"""TF1's `tf.nn`: activations, cross entropies, normalisation, dropout, embeddings."""

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
from optkit.ops.softmax import log_softmax, softmax

__all__ = [
    "atrous_conv2d",
    "atrous_conv2d_transpose",
    "avg_pool",
    "avg_pool1d",
    "avg_pool2d",
    "batch_normalization",
    "bias_add",
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_backprop_filter",
    "conv2d_backprop_input",
    "conv2d_transpose",
    "convolution",
    "depthwise_conv2d",
    "depthwise_conv2d_backprop_filter",
    "depthwise_conv2d_backprop_input",
    "depthwise_conv2d_native",
    "depthwise_conv2d_native_backprop_filter",
    "depthwise_conv2d_native_backprop_input",
    "dropout",
    "elu",
    "embedding_lookup",
    "fused_batch_norm",
    "l2_loss",
    "l2_normalize",
    "leaky_relu",
    "local_response_normalization",
    "log_softmax",
    "lrn",
    "max_pool",
    "max_pool1d",
    "max_pool2d",
    "max_pool_with_argmax",
    "moments",
    "pool",
    "relu",
    "relu6",
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
    "tanh",
    "weighted_cross_entropy_with_logits",
    "weighted_moments",
    "xw_plus_b",
    "zero_fraction",
]

if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__ = missing("nn", __all__)
