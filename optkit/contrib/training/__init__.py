"""`tf.contrib.training`: `create_train_op` and the transformations of gradients."""

from optkit.contrib.training.train_op import add_gradients_summaries, create_train_op
from optkit.train.decay import sgdr_decay
from optkit.train.transforms import (
    clip_gradient_norms,
    clip_gradient_norms_fn,
    multiply_gradients,
)

__all__ = [
    "add_gradients_summaries",
    "clip_gradient_norms",
    "clip_gradient_norms_fn",
    "create_train_op",
    "multiply_gradients",
    "sgdr_decay",
]
