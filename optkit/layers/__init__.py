"""`tf.layers`."""

from typing import TYPE_CHECKING

from optkit.layers.base import InputSpec, Layer
from optkit.layers.convolution import (
    Conv1D,
    Conv2D,
    Conv2DTranspose,
    SeparableConv2D,
    conv1d,
    conv2d,
    conv2d_transpose,
    separable_conv2d,
)
from optkit.layers.core import Dense, Dropout, Flatten, dense, dropout, flatten
from optkit.layers.normalization import BatchNormalization, batch_normalization
from optkit.layers.pooling import (
    AveragePooling1D,
    AveragePooling2D,
    MaxPooling1D,
    MaxPooling2D,
    average_pooling1d,
    average_pooling2d,
    max_pooling1d,
    max_pooling2d,
)
from optkit.names import missing

__all__ = [
    "AveragePooling1D",
    "AveragePooling2D",
    "BatchNormalization",
    "Conv1D",
    "Conv2D",
    "Conv2DTranspose",
    "Dense",
    "Dropout",
    "Flatten",
    "InputSpec",
    "Layer",
    "MaxPooling1D",
    "MaxPooling2D",
    "SeparableConv2D",
    "average_pooling1d",
    "average_pooling2d",
    "batch_normalization",
    "conv1d",
    "conv2d",
    "conv2d_transpose",
    "dense",
    "dropout",
    "flatten",
    "max_pooling1d",
    "max_pooling2d",
    "separable_conv2d",
]


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__ = missing("layers", __all__)
