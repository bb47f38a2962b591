"""Fast update kernels made from an optimizer's one equation."""

from optkit.backend.fused.trace import UntraceableError
from optkit.backend.fused.update import FusedUpdate

__all__ = ["FusedUpdate", "UntraceableError"]
