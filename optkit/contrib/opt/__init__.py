"""`tf.contrib.opt`: further optimizers, decoupled weight decay, averages of weights."""

from typing import TYPE_CHECKING

from optkit.contrib.opt.adamax import AdaMaxOptimizer
from optkit.contrib.opt.amsgrad import AMSGradOptimizer
from optkit.contrib.opt.lazy_adam import LazyAdamOptimizer
from optkit.contrib.opt.lion import LionOptimizer
from optkit.contrib.opt.moving_average import MovingAverageOptimizer
from optkit.contrib.opt.nadam import NadamOptimizer
from optkit.contrib.opt.sign import AddSignOptimizer, PowerSignOptimizer
from optkit.contrib.opt.sign_decay import (
    get_cosine_decay_fn,
    get_linear_decay_fn,
    get_restart_decay_fn,
)
from optkit.contrib.opt.weight_decay import (
    AdamWOptimizer,
    DecoupledWeightDecayExtension,
    MomentumWOptimizer,
    extend_with_decoupled_weight_decay,
)
from optkit.names import missing

__all__ = [
    "AMSGradOptimizer",
    "AdaMaxOptimizer",
    "AdamWOptimizer",
    "AddSignOptimizer",
    "DecoupledWeightDecayExtension",
    "LazyAdamOptimizer",
    "LionOptimizer",
    "MomentumWOptimizer",
    "MovingAverageOptimizer",
    "NadamOptimizer",
    "PowerSignOptimizer",
    "extend_with_decoupled_weight_decay",
    "get_cosine_decay_fn",
    "get_linear_decay_fn",
    "get_restart_decay_fn",
]


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__ = missing("contrib.opt", __all__)
