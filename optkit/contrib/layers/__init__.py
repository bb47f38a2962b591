"""`tf.contrib.layers`: `optimize_loss` and what belongs to it."""

from typing import TYPE_CHECKING

from optkit.contrib.layers.optimizers import (
    OPTIMIZER_CLS_NAMES,
    OPTIMIZER_SUMMARIES,
    adaptive_clipping_fn,
    optimize_loss,
)
from optkit.initializers import (
    contrib_variance_scaling_initializer as variance_scaling_initializer,
)
from optkit.initializers import (
    xavier_initializer,
)
from optkit.names import missing

__all__ = [
    "OPTIMIZER_CLS_NAMES",
    "OPTIMIZER_SUMMARIES",
    "adaptive_clipping_fn",
    "optimize_loss",
    "variance_scaling_initializer",
    "xavier_initializer",
]

if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__ = missing("contrib.layers", __all__)
