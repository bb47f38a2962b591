"""Running a graph: what to compute, in which order, and the session that does it."""

from optkit.runtime.config import ConfigProto, GPUOptions, RunMetadata, RunOptions
from optkit.runtime.plan import Plan
from optkit.runtime.session import IndexedSlicesValue, InteractiveSession, Session

__all__ = [
    "ConfigProto",
    "GPUOptions",
    "IndexedSlicesValue",
    "InteractiveSession",
    "Plan",
    "RunMetadata",
    "RunOptions",
    "Session",
]
