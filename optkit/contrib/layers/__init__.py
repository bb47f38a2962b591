"""`tf.contrib.layers`: layers as functions, regularizers, summaries and `optimize_loss`."""

from typing import TYPE_CHECKING

from optkit.contrib.layers.convolution import (
    avg_pool2d,
    conv1d,
    conv2d,
    conv2d_transpose,
    convolution,
    convolution1d,
    convolution2d,
    convolution2d_transpose,
    max_pool2d,
    separable_conv2d,
    separable_convolution2d,
)
from optkit.contrib.layers.layers import (
    bias_add,
    dropout,
    elu,
    flatten,
    fully_connected,
    linear,
    maxout,
    one_hot_encoding,
    relu,
    relu6,
    repeat,
    softmax,
    stack,
    unit_norm,
)
from optkit.contrib.layers.normalization import batch_norm, layer_norm
from optkit.contrib.layers.optimizers import (
    EXTRA_SUMMARIES,
    OPTIMIZER_CLS_NAMES,
    OPTIMIZER_SUMMARIES,
    adaptive_clipping_fn,
    optimize_loss,
)
from optkit.contrib.layers.regularizers import (
    apply_regularization,
    l1_l2_regularizer,
    l1_regularizer,
    l2_regularizer,
    sum_regularizer,
)
from optkit.contrib.layers.summaries import (
    summarize_activation,
    summarize_activations,
    summarize_biases,
    summarize_collection,
    summarize_tensor,
    summarize_tensors,
    summarize_variables,
    summarize_weights,
)
from optkit.initializers import (
    contrib_variance_scaling_initializer as variance_scaling_initializer,
)
from optkit.initializers import (
    xavier_initializer,
)
from optkit.names import missing

xavier_initializer_conv2d = xavier_initializer

__all__ = [
    "EXTRA_SUMMARIES",
    "OPTIMIZER_CLS_NAMES",
    "OPTIMIZER_SUMMARIES",
    "adaptive_clipping_fn",
    "apply_regularization",
    "avg_pool2d",
    "batch_norm",
    "bias_add",
    "conv1d",
    "conv2d",
    "conv2d_transpose",
    "convolution",
    "convolution1d",
    "convolution2d",
    "convolution2d_transpose",
    "dropout",
    "elu",
    "flatten",
    "fully_connected",
    "l1_l2_regularizer",
    "l1_regularizer",
    "l2_regularizer",
    "layer_norm",
    "linear",
    "max_pool2d",
    "maxout",
    "one_hot_encoding",
    "optimize_loss",
    "relu",
    "relu6",
    "repeat",
    "separable_conv2d",
    "separable_convolution2d",
    "softmax",
    "stack",
    "sum_regularizer",
    "summarize_activation",
    "summarize_activations",
    "summarize_biases",
    "summarize_collection",
    "summarize_tensor",
    "summarize_tensors",
    "summarize_variables",
    "summarize_weights",
    "unit_norm",
    "variance_scaling_initializer",
    "xavier_initializer",
    "xavier_initializer_conv2d",
]


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__ = missing("contrib.layers", __all__)
