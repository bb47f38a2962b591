"""The exceptions optkit raises, under TensorFlow 1's names (`tf.errors`).

A run that fails names the operation and the line of user code that built it; `OpError.op` holds
the operation itself.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AlreadyExistsError",
    "DivergedError",
    "FailedPreconditionError",
    "InternalError",
    "InvalidArgumentError",
    "NanLossDuringTrainingError",
    "NonFiniteError",
    "NotFoundError",
    "OpError",
    "OutOfRangeError",
    "ResourceExhaustedError",
    "UnimplementedError",
    "ValueOrTypeError",
]


class OpError(Exception):
    """An operation failed while it ran.

    Attributes:
        message: what went wrong, without the operation.
        op: the `Operation` that failed, or None when it is not known.
    """

    def __init__(self, message: str, op: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.op = op

    def __str__(self) -> str:
        if self.op is None:
            return self.message
        return f"{self.message}\n  in {self.op.describe()}"

    def __reduce__(self) -> tuple[type[OpError], tuple[str]]:
        # The graph behind `op` does not travel between processes; its description does.
        return type(self), (str(self),)


class InvalidArgumentError(OpError, ValueError):
    """An operation got a value it cannot work with (TF's code 3)."""


class NotFoundError(OpError):
    """Something named does not exist (TF's code 5)."""


class AlreadyExistsError(OpError):
    """Something to be made exists already (TF's code 6)."""


class ResourceExhaustedError(OpError, MemoryError):
    """Memory ran out (TF's code 8)."""


class FailedPreconditionError(OpError):
    """The session is not in the state needed, e.g. a variable is uninitialised (TF's code 9)."""


class OutOfRangeError(OpError):
    """The input is at its end (TF's code 11)."""


class UnimplementedError(OpError):
    """The operation does not work for these arguments (TF's code 12)."""


class InternalError(OpError):
    """A kernel broke its own contract (TF's code 13)."""


class NanLossDuringTrainingError(RuntimeError):
    """The loss became NaN while training."""

    def __init__(self, message: str = "the loss is NaN") -> None:
        super().__init__(message)


class NonFiniteError(NanLossDuringTrainingError):
    """The loss or a gradient is NaN or infinite; the step was not taken and nothing has changed.

    Attributes:
        report: where it came from, an `optkit.runtime.diagnosis.Report`; None if unknown.
        path: the file with which `optkit debug` runs the step again, or None.
    """

    def __init__(self, message: str, report: Any = None, path: Any = None) -> None:
        super().__init__(message)
        self.report = report
        self.path = path


class DivergedError(RuntimeError):
    """The loss has grown far above the least it has been."""


class ValueOrTypeError(ValueError, TypeError):
    """A bad `global_step`: TF's documentation promises ValueError, its code raises TypeError."""
