"""The exceptions: TF's classes, what they are also, and how they travel."""

import copy
import pickle

import pytest

import optkit
from optkit import errors


@pytest.mark.parametrize(
    ("name", "also"),
    [
        ("InvalidArgumentError", ValueError),
        ("ResourceExhaustedError", MemoryError),
        ("FailedPreconditionError", Exception),
        ("NotFoundError", Exception),
        ("AlreadyExistsError", Exception),
        ("OutOfRangeError", Exception),
        ("UnimplementedError", Exception),
        ("InternalError", Exception),
        ("CancelledError", Exception),
        ("UnknownError", Exception),
        ("DeadlineExceededError", Exception),
        ("PermissionDeniedError", Exception),
        ("AbortedError", Exception),
        ("UnavailableError", Exception),
        ("DataLossError", Exception),
        ("UnauthenticatedError", Exception),
    ],
)
def test_classes(name, also):
    kind = getattr(errors, name)
    assert issubclass(kind, errors.OpError)
    assert issubclass(kind, also)
    assert getattr(optkit.errors, name) is kind
    assert name in errors.__all__


def test_an_error_without_an_operation():
    error = errors.NotFoundError("nothing there")
    assert str(error) == error.message == "nothing there"
    assert error.op is None


def test_an_error_names_its_operation():
    x = optkit.constant(1.0, name="x")  # the line
    error = errors.InvalidArgumentError("bad value", x.op)
    assert error.message == "bad value"
    assert error.op is x.op
    first, second = str(error).split("\n")
    assert first == "bad value"
    assert second.startswith(f"  in operation 'x' (Const), built at {__file__}:")


def test_an_error_travels_without_its_graph():
    error = errors.InvalidArgumentError("bad value", optkit.constant(1.0, name="x").op)
    for travelled in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(travelled) is errors.InvalidArgumentError
        assert travelled.op is None
        assert str(travelled) == str(error)


def test_the_loss_is_nan():
    assert str(errors.NanLossDuringTrainingError()) == "the loss is NaN"
    assert isinstance(errors.NanLossDuringTrainingError("at step 3"), RuntimeError)


def test_a_bad_step_is_a_value_error_and_a_type_error():
    for kind in (ValueError, TypeError):
        with pytest.raises(kind, match="global_step"):
            raise errors.ValueOrTypeError("global_step: bad")


def test_a_step_that_is_not_finite_travels_with_its_report(tmp_path):
    error = errors.NonFiniteError("at step 3", ("a report",), tmp_path / "file")
    assert isinstance(error, errors.NanLossDuringTrainingError)
    for travelled in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert str(travelled) == "at step 3"
        assert (travelled.report, travelled.path) == (("a report",), tmp_path / "file")
    assert issubclass(errors.DivergedError, RuntimeError)
