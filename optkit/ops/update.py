"""The update of one variable and its slots by an optimizer's equation, as one operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from optkit.backend.cuda.update import fused_values
from optkit.dtypes import DType, float32
from optkit.errors import InvalidArgumentError
from optkit.graph import IndexedSlices, Kind, Operation, Tensor
from optkit.ops.core import Array, ArrayModule
from optkit.ops.state import check_indices
from optkit.shapes import Shape, TensorShape

__all__ = ["UPDATE", "Equation", "changed_rows", "try_equation", "update", "update_norm"]


class Equation(Protocol):
    """An optimizer's rule in plain array arithmetic, elementwise and without side effects.

    Takes the variable, its gradient, its slots and the hyper-parameters (0-d arrays of the
    variable's dtype; float32 for half-precision variables, which are updated in float32) and
    returns the new variable and the new slots, in the same order.
    """

    def __call__(
        self, xp: ArrayModule, w: Array, g: Array, *slots: Array, **hyper: Array
    ) -> Array | tuple[Array, ...]:
        """The new values of w and the slots."""


def _infer(_: Sequence[Tensor], attrs: Mapping[str, Any]) -> Sequence[tuple[DType, Shape]]:
    return [(attrs["dtype"], attrs["shape"])]


def _kernel(xp: ArrayModule, *arrays: Array, count: int, **attrs: Any) -> tuple[Array, ...]:
    """New values of the variable and its slots; see `changed_rows`."""
    indices, news = changed_rows(xp, *arrays, count=count, **attrs)
    if indices is None:
        return news
    merged = []
    for current, new in zip(arrays[:count], news, strict=True):
        whole = current.copy()
        whole[indices] = new
        merged.append(whole)
    return tuple(merged)


def changed_rows(
    xp: ArrayModule,
    *arrays: Array,
    equation: Equation,
    hyper: tuple[str, ...],
    count: int,
    rows: str,
    variable: str,
    **_: Any,
) -> tuple[Array | None, tuple[Array, ...]]:
    """The row numbers that an update changes, and the new rows of the variable and its slots.

    The row numbers are None, and the rows whole arrays, when all of them change. `arrays` holds
    `count` current values, the gradient (for rows, its values and their row numbers, without
    duplicates) and the hyper-parameters.
    """
    currents, rest = arrays[:count], arrays[count:]
    indices = None
    if rows == "none":
        gradient, values = rest[0], rest[1:]
    else:
        gradient, indices, values = rest[0], rest[1], rest[2:]
        check_indices(xp, indices, currents[0].shape[0], f"the gradient of variable {variable!r}")
    expected = currents[0].shape if indices is None else indices.shape + currents[0].shape[1:]
    if gradient.shape != expected:
        raise InvalidArgumentError(
            f"the gradient of variable {variable!r}: expected shape {TensorShape(expected)}, got "
            f"{TensorShape(gradient.shape)}"
        )
    dtype = currents[0].dtype
    # Half precision loses small epsilons and rates; the arithmetic is done in float32.
    wide = xp.dtype(xp.float32) if dtype.itemsize == 2 else dtype
    scalars = {
        name: xp.asarray(value).astype(wide) for name, value in zip(hyper, values, strict=True)
    }
    for name, value in scalars.items():
        if value.shape:
            raise InvalidArgumentError(
                f"{name}, of the update of variable {variable!r}: expected a scalar, got shape "
                f"{TensorShape(value.shape)}"
            )
    named = indices
    if rows in ("all", "slots"):
        full = xp.zeros(currents[0].shape, gradient.dtype)
        full[indices] = gradient
        gradient, indices = full, None
    chosen = currents if indices is None else [current[indices] for current in currents]
    result = None if xp is np else fused_values(equation, scalars, chosen, gradient)
    w, *slots = [array.astype(wide, copy=False) for array in chosen]
    if result is None:
        result = equation(xp, w, gradient.astype(wide, copy=False), *slots, **scalars)
    news = [xp.asarray(new) for new in (result if isinstance(result, tuple | list) else (result,))]
    if [new.shape for new in news] != [current.shape for current in chosen]:
        raise InvalidArgumentError(
            f"the equation of variable {variable!r}: expected {count} arrays of shape "
            f"{TensorShape(w.shape)}, got {', '.join(str(TensorShape(new.shape)) for new in news)}"
        )
    if rows == "slots":
        kept = w.copy()
        kept[named] = news[0][named]
        news[0] = kept
    stored = tuple(
        new.astype(current.dtype, copy=False) for current, new in zip(currents, news, strict=True)
    )
    return indices, stored


def try_equation(equation: Equation, variable: Operation, count: int, hyper: Sequence[str]) -> None:
    """Call an equation with small arrays, as `update` will for a variable and count − 1 slots.

    Raises:
        ValueError: it changes an argument in place, or gives other arrays than it should.
    """
    where = f"the equation of variable {variable.name!r}"
    sizes = variable.outputs[0].sizes
    shape = (2,) if sizes is None else tuple(2 if size is None else min(size, 2) for size in sizes)
    arrays = [_frozen(shape) for _ in range(count + 1)]
    scalars = {name: _frozen(()) for name in hyper}
    try:
        with np.errstate(all="ignore"):
            result = equation(np, *arrays, **scalars)
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        raise ValueError(
            f"{where} changes one of its arguments in place; return new arrays instead"
        ) from error
    news = result if isinstance(result, tuple | list) else (result,)
    if len(news) != count:
        raise ValueError(
            f"{where}: expected {count} arrays, the variable and its {count - 1} slots, got "
            f"{len(news)}"
        )
    for new in map(np.asarray, news):
        if new.shape != shape or not np.can_cast(new.dtype, np.float64, "same_kind"):
            raise ValueError(
                f"{where}: expected arrays of the variable's shape, got {new.dtype} of shape "
                f"{new.shape} for {shape}"
            )


def _frozen(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    array = np.full(shape, 0.5)
    array.flags.writeable = False
    return array


UPDATE = Kind("Update", _kernel, infer=_infer, access="write", differentiable=False)


def update(
    equation: Equation,
    variable: Operation,
    slots: Sequence[Operation],
    gradient: Tensor | IndexedSlices,
    hyper: Mapping[str, Tensor],
    *,
    decays_all_rows: bool = False,
    keeps_left_out_rows: bool = False,
    name: str,
) -> Operation:
    """Set a variable and its slots to what `equation` gives.

    Args:
        equation: the rule.
        variable: the operation of the variable.
        slots: the operations of its slots, in the equation's order.
        gradient: a tensor of the variable's shape, or rows without duplicates.
        hyper: the hyper-parameters, shape ().
        decays_all_rows: rows that an IndexedSlices leaves out are updated with a zero gradient;
            otherwise they, and their slots, stay as they are.
        keeps_left_out_rows: with `decays_all_rows`, so are those rows' slots only.
        name: the operation's name.
    """
    handle = variable.outputs[0]
    sparse = isinstance(gradient, IndexedSlices)
    parts: list[Tensor] = (
        [gradient.values, gradient.indices] if isinstance(gradient, IndexedSlices) else [gradient]
    )
    rows = "none"
    if sparse:
        rows = "named" if not decays_all_rows else "slots" if keeps_left_out_rows else "all"
    return variable.graph.create_operation(
        UPDATE,
        [*parts, *hyper.values()],
        {
            "equation": equation,
            "hyper": tuple(hyper),
            "count": 1 + len(slots),
            "rows": rows,
            "variable": variable.name,
            "dtype": handle.dtype,
            "shape": handle.sizes,
        },
        name=name,
        variables=(variable, *slots),
    )


def _norm_infer(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Sequence[tuple[DType, Shape]]:
    dtype = inputs[0].dtype
    return [(float32 if dtype.size == 2 else dtype, ())]


def _change_norm(xp: ArrayModule, *arrays: Array, count: int, **attrs: Any) -> Array:
    """‖w' − w‖ of what the update would make of the variable; nothing is written."""
    indices, news = changed_rows(xp, *arrays, count=count, **attrs)
    old = arrays[0] if indices is None else arrays[0][indices]
    wide = xp.float32 if old.dtype.itemsize == 2 else old.dtype
    change = (news[0].astype(wide) - old.astype(wide)).reshape(-1)
    return xp.sqrt(xp.dot(change, change))


_UPDATE_NORM = Kind("UpdateNorm", _change_norm, infer=_norm_infer, differentiable=False)


def update_norm(update: Operation, name: str = "UpdateNorm") -> Tensor:
    """How far an `update` moves its variable: ‖w' − w‖, shape (); float32 for half precision.

    The new value is worked out a second time, from the values at the start of the run, so the
    update itself stays what it is, and where it is.
    """
    values = [variable.outputs[0] for variable in update.variables]
    node = update.graph.create_operation(
        _UPDATE_NORM, [*values, *update.inputs], update.attrs, name=name
    )
    return node.outputs[0]
