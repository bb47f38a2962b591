"""`tf.contrib.training`: `create_train_op` and the transformations of gradients."""

from typing import TYPE_CHECKING

from optkit.contrib.training.loop import train
from optkit.contrib.training.train_op import add_gradients_summaries, create_train_op
from optkit.names import missing
from optkit.train.checkpoint_reader import checkpoints_iterator, wait_for_new_checkpoint
from optkit.train.decay import sgdr_decay
from optkit.train.transforms import (
    clip_gradient_norms,
    clip_gradient_norms_fn,
    multiply_gradients,
)

__all__ = [
    "add_gradients_summaries",
    "checkpoints_iterator",
    "clip_gradient_norms",
    "clip_gradient_norms_fn",
    "create_train_op",
    "multiply_gradients",
    "sgdr_decay",
    "train",
    "wait_for_new_checkpoint",
]


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__ = missing("contrib.training", __all__)
