"""`tf.contrib`: layers, training and framework."""

from optkit.contrib import framework, layers, training

__all__ = ["framework", "layers", "training"]
