"""Operations on variables: the variable itself, reads, and the writes `assign` and `scatter_*`.

A variable's own operation gives its value at the start of the run. A read built under control
dependencies sees the newest write among its ancestors (the executor works out which). A writing
kernel gets the current values of its targets and returns the new ones; it never changes an array.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from optkit.backend.arrays import scatter_rows, to_numpy
from optkit.backend.cuda.checks import deferred
from optkit.dtypes import NUMBERS, DType, bool_, string
from optkit.errors import FailedPreconditionError, InvalidArgumentError
from optkit.graph import Kind, Operation, Tensor, get_default_graph
from optkit.ops.core import INDEX_TYPES, Array, ArrayModule, as_tensor, op
from optkit.shapes import Shape, TensorShape

__all__ = [
    "VARIABLE",
    "assign",
    "assign_add",
    "assign_sub",
    "check_indices",
    "is_initialized",
    "read",
    "require_initialized",
    "scatter",
    "uninitialized_names",
    "variable_operation",
    "write_kind",
]

VARIABLE = Kind(
    "VariableV2",
    kernel=None,
    infer=lambda _, attrs: [(attrs["dtype"], attrs["shape"])],
    access="variable",
)
_READ = Kind(
    "ReadVariable",
    kernel=None,
    infer=lambda _, attrs: [(attrs["dtype"], attrs["shape"])],
    access="read",
)
_IS_INITIALIZED = Kind(
    "IsVariableInitialized",
    kernel=None,
    infer=lambda _, __: [(bool_, ())],
    access="initialized",
    differentiable=False,
)


def variable_operation(
    name: str, dtype: DType, shape: Shape, *, trainable: bool = False
) -> Operation:
    """A new variable's operation; its storage is empty until something is assigned."""
    graph = get_default_graph()
    attrs = {"dtype": dtype, "shape": shape, "trainable": trainable}
    with graph.outside_control_flow():
        return graph.create_operation(VARIABLE, (), attrs, name=name)


def read(variable: Operation) -> Tensor:
    """The variable's value at this place of the graph, under the control dependencies in force.

    Inside a `cond` branch it is an operation of its own, so that the branch not taken may read a
    variable that holds nothing yet.
    """
    graph = variable.graph
    controls = graph.current_controls()
    handle = variable.outputs[0]
    if graph.eager:
        return _read(variable)
    if not controls and graph.branch is None:
        return handle
    key = (variable, controls, graph.branch)
    found = graph.reads.get(key)
    if found is None:
        with graph.name_scope(None):
            found = _read(variable).op
        graph.reads[key] = found
    return found.outputs[0]


def _read(variable: Operation) -> Tensor:
    handle = variable.outputs[0]
    return variable.graph.create_operation(
        _READ,
        (),
        {"dtype": handle.dtype, "shape": handle.sizes},
        name=f"{variable.name}/read",
        variables=(variable,),
    ).outputs[0]


def is_initialized(variable: Operation, name: str | None = None) -> Tensor:
    """Whether the variable holds a value at the start of the run; bool, shape ()."""
    return variable.graph.create_operation(
        _IS_INITIALIZED, (), name=name or "IsVariableInitialized", variables=(variable,)
    ).outputs[0]


@op("UninitializedNames", types={bool_}, result=string, shape=(None,), differentiable=False)
def uninitialized_names(xp: ArrayModule, *held: Array, names: Sequence[bytes]) -> Array:
    """Those of `names` whose flag in `held` is False; string, shape (any,)."""
    return np.array(_missing(held, names), object)


@op("RequireInitialized", types={bool_}, result=bool_, shape=(), differentiable=False)
def require_initialized(xp: ArrayModule, *held: Array, names: Sequence[bytes]) -> Array:
    """True, shape ().

    Raises:
        FailedPreconditionError: when run, a flag in `held` is False; it gives the names of those.
    """
    missing = _missing(held, names)
    if missing:
        text = ", ".join(name.decode() for name in missing)
        raise FailedPreconditionError(
            f"expected initialised variables, got without a value: {text}"
        )
    return xp.asarray(True)


def _missing(held: Sequence[Array], names: Sequence[bytes]) -> list[bytes]:
    return [name for flag, name in zip(held, names, strict=True) if not bool(to_numpy(flag))]


def write_kind(
    name: str, kernel: Callable[..., tuple[Array, ...]], *, reads_target: bool = True
) -> Kind:
    """A kind of operation that writes one variable and gives its new value."""
    return Kind(
        name,
        kernel,
        infer=lambda _, attrs: [(attrs["dtype"], attrs["shape"])],
        access="write",
        reads_target=reads_target,
        differentiable=False,
    )


def _assigned(xp: ArrayModule, value: Array, *, shape: Shape, **_: Any) -> tuple[Array, ...]:
    if not TensorShape(shape).is_compatible_with(value.shape):
        _refuse_shape(TensorShape(shape), value)
    return (xp.array(value),)


def _added(xp: ArrayModule, current: Array, value: Array, **_: Any) -> tuple[Array, ...]:
    if current.shape != value.shape:
        _refuse_shape(current.shape, value)
    return (current + value,)


def _subtracted(xp: ArrayModule, current: Array, value: Array, **_: Any) -> tuple[Array, ...]:
    if current.shape != value.shape:
        _refuse_shape(current.shape, value)
    return (current - value,)


def _refuse_shape(expected: Any, value: Array) -> None:
    raise InvalidArgumentError(
        f"value: expected the variable's shape {TensorShape(expected)}, got "
        f"{TensorShape(value.shape)}"
    )


_ASSIGN = write_kind("Assign", _assigned, reads_target=False)
_ASSIGN_ADD = write_kind("AssignAdd", _added)
_ASSIGN_SUB = write_kind("AssignSub", _subtracted)


def assign(variable: Operation, value: Any, name: str | None = None) -> Tensor:
    """Set the variable; the result is its value right after.

    A variable whose shape is open takes a value of any shape.

    Raises:
        TypeError, ValueError: the value has another dtype or shape.
        InvalidArgumentError: when run, the value has another shape.
    """
    with _building(variable, _ASSIGN, name) as scope:
        tensor = _value_for(variable, value, "Assign")
        shape = _checked_shape(variable, tensor, "Assign")
        return _write(_ASSIGN, variable, (tensor,), scope, shape)


def assign_add(variable: Operation, value: Any, name: str | None = None) -> Tensor:
    """Add to the variable's current value; the result is its value right after."""
    return _accumulate(_ASSIGN_ADD, variable, value, name)


def assign_sub(variable: Operation, value: Any, name: str | None = None) -> Tensor:
    """Subtract from the variable's current value; the result is its value right after."""
    return _accumulate(_ASSIGN_SUB, variable, value, name)


def _accumulate(kind: Kind, variable: Operation, value: Any, name: str | None) -> Tensor:
    if variable.outputs[0].dtype not in NUMBERS:
        raise TypeError(
            f"{kind.name}: expected a variable of numbers, got {variable.name!r} of dtype "
            f"{variable.outputs[0].dtype.name}"
        )
    with _building(variable, kind, name) as scope:
        tensor = _value_for(variable, value, kind.name)
        shape = _checked_shape(variable, tensor, kind.name)
        return _write(kind, variable, (tensor,), scope, shape)


@contextlib.contextmanager
def _building(variable: Operation, kind: Kind, name: str | None) -> Iterator[str]:
    """The name scope of a write and the constants it takes; a refused one leaves no trace."""
    graph = variable.graph
    get_default_graph().check_write(kind, variable)
    mark = graph.mark()
    try:
        with graph.as_default(), graph.name_scope(name or kind.name) as scope:
            yield scope
    except (TypeError, ValueError):
        graph.undo(mark)
        raise


def _value_for(variable: Operation, value: Any, what: str, argument: str = "value") -> Tensor:
    dtype = variable.outputs[0].dtype
    try:
        return as_tensor(value, dtype, argument)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what} to variable {variable.name!r}: {argument}: {error}") from error


def _checked_shape(variable: Operation, tensor: Tensor, what: str) -> Shape:
    """What is known of the shape that the variable and the value share."""
    shape = variable.outputs[0].shape
    if not shape.is_compatible_with(tensor.sizes):
        raise ValueError(
            f"{what} to variable {variable.name!r}: value: expected shape {shape}, got "
            f"{tensor.shape} ({tensor.name})"
        )
    return shape.merge_with(tensor.sizes).sizes


def _write(
    kind: Kind,
    variable: Operation,
    inputs: Sequence[Tensor],
    scope: str,
    shape: Shape,
) -> Tensor:
    attrs = {"dtype": variable.outputs[0].dtype, "shape": shape}
    return variable.graph.create_operation(
        kind, inputs, attrs, name=scope, variables=(variable,)
    ).outputs[0]


_SCATTER_KINDS = {
    mode: write_kind(
        f"Scatter{mode.capitalize()}",
        lambda xp, current, indices, updates, mode=mode, **_: (
            _scattered(xp, current, indices, updates, mode),
        ),
    )
    for mode in ("update", "add", "sub", "mul", "div", "min", "max")
}


def _scattered(xp: ArrayModule, current: Array, indices: Array, updates: Array, mode: str) -> Array:
    check_indices(xp, indices, current.shape[0], "indices")
    expected = indices.shape + current.shape[1:]
    if updates.shape not in ((), expected):
        raise InvalidArgumentError(
            f"updates: expected shape {TensorShape(expected)}, got {TensorShape(updates.shape)}"
        )
    return scatter_rows(xp, current, indices, updates, mode)


def check_indices(xp: ArrayModule, indices: Array, size: int, argument: str) -> None:
    """Refuse row numbers outside [0, size).

    On a device a run may collect such checks and look at the answer once, before it writes
    anything; numbers that are on the host are checked there.

    Raises:
        InvalidArgumentError: naming the first bad one.
    """
    if xp is not np and not isinstance(indices, np.ndarray) and deferred(indices, size):
        return
    bad = (indices < 0) | (indices >= size)
    if bool(bad.any()):
        where = int(bad.reshape(-1).argmax())
        raise InvalidArgumentError(
            f"{argument}: expected row numbers in [0, {size}), got "
            f"{int(indices.reshape(-1)[where])} at position {where}"
        )


def scatter(
    mode: str, variable: Operation, indices: Any, updates: Any, name: str | None = None
) -> Tensor:
    """Change the rows `indices` of a variable by `updates`; the result is its value right after.

    Rows named twice get both changes; with mode "update" the last one wins.

    Args:
        mode: update, add, sub, mul, div, min or max.
        variable: the target.
        indices: int32 or int64, any shape.
        updates: shape indices.shape + variable.shape[1:], or a scalar.
        name: the operation's name.

    Raises:
        TypeError, ValueError: dtype or shape do not fit.
        InvalidArgumentError: when run, an index is out of range.
    """
    kind = _SCATTER_KINDS[mode]
    handle = variable.outputs[0]
    what = f"{kind.name} to variable {variable.name!r}"
    if handle.dtype not in NUMBERS and mode != "update":
        raise TypeError(f"{what}: expected a variable of numbers, got {handle.dtype.name}")
    if handle.dtype.is_integer and mode == "div":
        raise TypeError(f"{what}: expected a floating dtype, got {handle.dtype.name}")
    if handle.sizes == ():
        raise ValueError(f"{what}: expected a variable with rows, got shape ()")
    with _building(variable, kind, name) as scope:
        rows = as_tensor(indices, None, "indices")
        if rows.dtype not in INDEX_TYPES:
            raise TypeError(f"{what}: indices: expected int32 or int64, got {rows!r}")
        tensor = _value_for(variable, updates, kind.name, "updates")
        if handle.sizes is not None and rows.sizes is not None and tensor.sizes != ():
            expected = TensorShape((*rows.sizes, *handle.sizes[1:]))
            if not expected.is_compatible_with(tensor.sizes):
                raise ValueError(
                    f"{what}: updates: expected shape {expected} (indices' shape and the "
                    f"variable's but its first axis), got {tensor.shape}"
                )
        return _write(kind, variable, (rows, tensor), scope, handle.sizes)
