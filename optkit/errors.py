"""The exceptions optkit raises, under TensorFlow 1's names (`tf.errors`).

A run that fails names the operation and the line of user code that built it; `OpError.op` holds
the operation itself.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "CancelledError",
    "DataLossError",
    "DeadlineExceededError",
    "DivergedError",
    "FailedPreconditionError",
    "InternalError",
    "InvalidArgumentError",
    "NanLossDuringTrainingError",
    "NonFiniteError",
    "NotFoundError",
    "OpError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
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


# Nothing here raises the others of TensorFlow's; scripts have them in `except` clauses.


class CancelledError(OpError):
    """The operation was called off (TF's code 1)."""


class UnknownError(OpError):
    """Nobody knows why it failed (TF's code 2)."""


class DeadlineExceededError(OpError):
    """It took too long (TF's code 4)."""


class PermissionDeniedError(OpError):
    """The caller may not do this (TF's code 7)."""


class AbortedError(OpError):
    """It was given up, perhaps because another process stopped (TF's code 10)."""


class UnavailableError(OpError):
    """A service cannot be reached now (TF's code 14)."""


class DataLossError(OpError):
    """Data is lost or damaged beyond repair (TF's code 15)."""


class UnauthenticatedError(OpError):
    """The caller has not said who it is (TF's code 16)."""


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
