"""`tf.train`: optimizers, learning-rate decays, averages, sessions with hooks, checkpoints."""

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
from optkit.train.accumulation import GradientAccumulationOptimizer
from optkit.train.adadelta import AdadeltaOptimizer
from optkit.train.adagrad import AdagradOptimizer
from optkit.train.adagrad_da import AdagradDAOptimizer
from optkit.train.adam import AdamOptimizer
from optkit.train.averaging import average_gradients
from optkit.train.checkpoint_hook import CheckpointSaverHook, CheckpointSaverListener
from optkit.train.checkpoint_reader import (
    CheckpointReader,
    NewCheckpointReader,
    checkpoints_iterator,
    get_checkpoint_mtimes,
    init_from_checkpoint,
    list_variables,
    load_checkpoint,
    load_variable,
)
from optkit.train.checkpoints import (
    CheckpointState,
    best_checkpoint,
    checkpoint_exists,
    get_checkpoint_state,
    latest_checkpoint,
    remove_checkpoint,
    update_checkpoint_state,
)
from optkit.train.coordinator import Coordinator
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
from optkit.train.hooks import (
    FeedFnHook,
    FinalOpsHook,
    GlobalStepWaiterHook,
    LoggingTensorHook,
    NanTensorHook,
    SecondOrStepTimer,
    StopAtStepHook,
)
from optkit.train.logdir_lock import LogdirLock
from optkit.train.momentum import MomentumOptimizer
from optkit.train.monitored_session import (
    MonitoredSession,
    MonitoredTrainingSession,
    SingularMonitoredSession,
)
from optkit.train.moving_averages import ExponentialMovingAverage
from optkit.train.nonfinite_hook import NonFiniteHook
from optkit.train.optimizer import Optimizer
from optkit.train.plateau import ReduceOnPlateau
from optkit.train.proximal_adagrad import ProximalAdagradOptimizer
from optkit.train.proximal_gradient_descent import ProximalGradientDescentOptimizer
from optkit.train.restoring import restore_partial
from optkit.train.rmsprop import RMSPropOptimizer
from optkit.train.saver import Saver
from optkit.train.scaffold import (
    ChiefSessionCreator,
    Scaffold,
    SessionCreator,
    WorkerSessionCreator,
)
from optkit.train.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from optkit.train.stopping import EarlyStopping
from optkit.train.summary_hooks import StepCounterHook, SummarySaverHook
from optkit.train.training_state import TrainingState
from optkit.train.transforms import clip_by_global_norm_fn
from optkit.train.warmup import linear_warmup, one_cycle

__all__ = [
    "AdadeltaOptimizer",
    "AdagradDAOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "CheckpointReader",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "CheckpointState",
    "ChiefSessionCreator",
    "Coordinator",
    "EarlyStopping",
    "ExponentialMovingAverage",
    "FeedFnHook",
    "FinalOpsHook",
    "FtrlOptimizer",
    "GlobalStepWaiterHook",
    "GradientAccumulationOptimizer",
    "GradientDescentOptimizer",
    "LogdirLock",
    "LoggingTensorHook",
    "MomentumOptimizer",
    "MonitoredSession",
    "MonitoredTrainingSession",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "NewCheckpointReader",
    "NonFiniteHook",
    "Optimizer",
    "ProximalAdagradOptimizer",
    "ProximalGradientDescentOptimizer",
    "RMSPropOptimizer",
    "ReduceOnPlateau",
    "Saver",
    "Scaffold",
    "SecondOrStepTimer",
    "SessionCreator",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "SingularMonitoredSession",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "TrainingState",
    "WorkerSessionCreator",
    "assert_global_step",
    "average_gradients",
    "best_checkpoint",
    "checkpoint_exists",
    "checkpoints_iterator",
    "clip_by_global_norm_fn",
    "cosine_decay",
    "cosine_decay_restarts",
    "create_global_step",
    "exponential_decay",
    "get_checkpoint_mtimes",
    "get_checkpoint_state",
    "get_global_step",
    "get_or_create_global_step",
    "global_step",
    "init_from_checkpoint",
    "inverse_time_decay",
    "latest_checkpoint",
    "linear_cosine_decay",
    "linear_warmup",
    "list_variables",
    "load_checkpoint",
    "load_variable",
    "natural_exp_decay",
    "noisy_linear_cosine_decay",
    "one_cycle",
    "piecewise_constant",
    "piecewise_constant_decay",
    "polynomial_decay",
    "remove_checkpoint",
    "restore_partial",
    "update_checkpoint_state",
]


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__ = missing("train", __all__)
