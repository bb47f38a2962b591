"""`tf.train`: optimizers, learning-rate decays, moving averages, the global step."""

from typing import TYPE_CHECKING

from optkit.errors import NanLossDuringTrainingError
from optkit.global_step import (
    assert_global_step,
    create_global_step,
    get_global_step,
    get_or_create_global_step,
    global_step,
)
from optkit.names import missing
from optkit.train.adadelta import AdadeltaOptimizer
from optkit.train.adagrad import AdagradOptimizer
from optkit.train.adagrad_da import AdagradDAOptimizer
from optkit.train.adam import AdamOptimizer
from optkit.train.checkpoints import (
    checkpoint_exists,
    get_checkpoint_state,
    latest_checkpoint,
    remove_checkpoint,
    update_checkpoint_state,
)
from optkit.train.decay import (
    cosine_decay,
    cosine_decay_restarts,
    exponential_decay,
    inverse_time_decay,
    linear_cosine_decay,
    natural_exp_decay,
    noisy_linear_cosine_decay,
    piecewise_constant,
    piecewise_constant_decay,
    polynomial_decay,
)
from optkit.train.ftrl import FtrlOptimizer
from optkit.train.gradient_descent import GradientDescentOptimizer
from optkit.train.momentum import MomentumOptimizer
from optkit.train.moving_averages import ExponentialMovingAverage
from optkit.train.optimizer import Optimizer
from optkit.train.proximal_adagrad import ProximalAdagradOptimizer
from optkit.train.proximal_gradient_descent import ProximalGradientDescentOptimizer
from optkit.train.rmsprop import RMSPropOptimizer
from optkit.train.saver import Saver

__all__ = [
    "AdadeltaOptimizer",
    "AdagradDAOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "ExponentialMovingAverage",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "NanLossDuringTrainingError",
    "Optimizer",
    "ProximalAdagradOptimizer",
    "ProximalGradientDescentOptimizer",
    "RMSPropOptimizer",
    "Saver",
    "assert_global_step",
    "checkpoint_exists",
    "cosine_decay",
    "cosine_decay_restarts",
    "create_global_step",
    "exponential_decay",
    "get_checkpoint_state",
    "get_global_step",
    "get_or_create_global_step",
    "global_step",
    "inverse_time_decay",
    "latest_checkpoint",
    "linear_cosine_decay",
    "natural_exp_decay",
    "noisy_linear_cosine_decay",
    "piecewise_constant",
    "piecewise_constant_decay",
    "polynomial_decay",
    "remove_checkpoint",
    "update_checkpoint_state",
]


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__ = missing("train", __all__)
