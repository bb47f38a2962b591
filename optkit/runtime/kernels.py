"""What running a kernel means in both modes: errors that name the operation, owned results."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from optkit.dtypes import string
from optkit.errors import InternalError, InvalidArgumentError, OpError, ResourceExhaustedError
from optkit.graph import Kind, Operation, Tensor
from optkit.shapes import fits

__all__ = ["as_op_error", "guarded", "of_text", "stored"]


def as_op_error(error: Exception, op: Operation) -> Exception:
    """The exception to raise for what a kernel of `op` raised: an `OpError` that names it.

    An error that names an operation already stays as it is; one that is no complaint about values
    keeps its class and gets a note.
    """
    if isinstance(error, OpError):
        if error.op is None:
            error.op = op
        return error
    if isinstance(error, MemoryError):
        return ResourceExhaustedError(f"memory ran out: {error}", op)
    if isinstance(error, ValueError | TypeError | IndexError | ArithmeticError):
        return InvalidArgumentError(f"{type(error).__name__}: {error}", op)
    error.add_note(f"in {op.describe()}")
    return error


def stored(
    xp: Any, op: Operation, variable: Operation, array: Any, borrowed: Container[int]
) -> Any:
    """`array` as a variable's storage: of its dtype and shape, shared with nobody, read-only.

    The elements are in C's order, as in an arena: the order in which they are added up shows.

    Args:
        xp: numpy or cupy.
        op: the operation that writes.
        variable: the variable's operation.
        array: the new value.
        borrowed: ids of arrays that belong to the user.

    Raises:
        InternalError: the kernel gave another dtype or shape.
    """
    handle = variable.outputs[0]
    array = xp.asarray(array)
    if array.dtype != handle.dtype.dtype or not fits(handle.sizes, array.shape):
        raise InternalError(
            f"{op.name!r} gave variable {variable.name!r} a value of dtype {array.dtype} and "
            f"shape {array.shape}; expected {handle.dtype.name} and {handle.shape}"
        )
    if array.base is not None or id(array) in borrowed or not array.flags.c_contiguous:
        array = array.copy()
    if isinstance(array, np.ndarray):
        array.flags.writeable = False
    return array


def of_text(kind: Kind, inputs: Sequence[Tensor]) -> bool:
    """Whether an operation of a kind on these inputs is the host's on every backend, as texts are.

    Merging takes summaries, which are texts, and arrays from wherever they are. An operation that
    asks for a text as a host input has the others where they are, too.
    """
    texts = [x.dtype is string for i, x in enumerate(inputs) if i not in kind.host]
    return kind.name != "MergeSummary" and any(texts)


def guarded(array: Any) -> Any:
    """The array, read-only where its library can say so."""
    if not isinstance(array, np.ndarray) or not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view
