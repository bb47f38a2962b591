"""`tf.layers`."""

from optkit.layers.base import InputSpec, Layer
from optkit.layers.core import Dense, Dropout, Flatten, dense, dropout, flatten
from optkit.layers.normalization import BatchNormalization, batch_normalization

__all__ = [
    "BatchNormalization",
    "Dense",
    "Dropout",
    "Flatten",
    "InputSpec",
    "Layer",
    "batch_normalization",
    "dense",
    "dropout",
    "flatten",
]
