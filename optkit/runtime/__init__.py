"""Running a graph: what to compute, in which order, and the session that does it."""

from optkit.runtime.config import ConfigProto, GPUOptions, RunMetadata, RunOptions
from optkit.runtime.eager import (
    EagerTensor,
    disable_eager_execution,
    eager,
    enable_eager_execution,
    executing_eagerly,
)
from optkit.runtime.fetches import IndexedSlicesValue
from optkit.runtime.plan import Plan
from optkit.runtime.session import InteractiveSession, Session
from optkit.runtime.snapshot import SessionState
from optkit.runtime.tape import GradientTape

__all__ = [
    "ConfigProto",
    "EagerTensor",
    "GPUOptions",
    "GradientTape",
    "IndexedSlicesValue",
    "InteractiveSession",
    "Plan",
    "RunMetadata",
    "RunOptions",
    "Session",
    "SessionState",
    "disable_eager_execution",
    "eager",
    "enable_eager_execution",
    "executing_eagerly",
]
