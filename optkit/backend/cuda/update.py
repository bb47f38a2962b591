"""An optimizer's equation as one launch over all variables, in place."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from optkit.backend.cuda.emit import update_source
from optkit.backend.cuda.launch import (
    CHUNK,
    THREADS,
    addresses,
    function,
    over_elements,
    sent_addresses,
    tensors,
)
from optkit.backend.fused.trace import UntraceableError, trace

__all__ = ["BoundUpdate", "DeviceUpdate", "Gathered"]


class Gathered(NamedTuple):
    """Arrays, and the table of their addresses on the device."""

    arrays: Sequence[Any]
    table: Any

    @classmethod
    def of(cls, arrays: Sequence[Any]) -> Gathered:
        """Of arrays that are the same in many runs; every stream may read the table."""
        return cls(arrays, sent_addresses(arrays))


class DeviceUpdate:
    """An optimizer's equation for arrays on a device.

    Args:
        equation: the rule; see `optkit.ops.update.Equation`.
        slots: how many slots it has.
        hyper: the names of its hyper-parameters.
        dtype: of the variables and slots: float16, float32 or float64.

    Raises:
        UntraceableError: the equation cannot be followed, or there is no kernel for the dtype.
    """

    def __init__(
        self,
        equation: Callable[..., Any],
        slots: int,
        hyper: Sequence[str],
        dtype: np.dtype[Any],
    ) -> None:
        program = trace(equation, slots, hyper)
        try:
            text = update_source(program, dtype)
        except KeyError:
            raise UntraceableError(f"variables of dtype {dtype}") from None
        self._update = function(text, "update")
        self._rows = function(text, "update_rows")
        self._one = function(text, "update_one")
        self.number = np.dtype(np.float32) if dtype.itemsize == 2 else dtype

    def bind(self, columns: Sequence[Sequence[Any]]) -> BoundUpdate:
        """The update of certain arrays; compiles for the current device.

        Args:
            columns: for each tensor the variable and its slots, device arrays in C's order that
                stay where they are.
        """
        self._update.compile()
        self._rows.compile()
        return BoundUpdate(self._update, self._rows, self.number, columns)

    def apply(self, column: Sequence[Any], gradient: Any, hyper: Sequence[Any]) -> None:
        """Update one variable and its slots now.

        Args:
            column: device arrays of one shape, in C's order.
            gradient: of their shape and dtype, in C's order.
            hyper: as for `BoundUpdate.start`.
        """
        arguments = (np.int64(gradient.size), gradient, *column, *hyper)
        over_elements(self._one, gradient.size, arguments)


def fused_values(
    equation: Callable[..., Any],
    hyper: Mapping[str, Any],
    arrays: Sequence[Any],
    gradient: Any,
) -> tuple[Any, ...] | None:
    """New values of a variable and its slots, beside the old ones, by one launch.

    Args:
        equation: the rule.
        hyper: its hyper-parameters, device arrays of one number; float32 for half precision, else
            of the variable's dtype.
        arrays: the variable and its slots, device arrays.
        gradient: device array.

    Returns:
        None where there can be no kernel: then the equation is to be called.
    """
    dtype = gradient.dtype
    if any(array.dtype != dtype or array.shape != gradient.shape for array in arrays):
        return None
    update = _update_of(equation, len(arrays) - 1, tuple(hyper), dtype)
    if update is None:
        return None
    news = tuple(array.copy("C") for array in arrays)
    g = gradient if gradient.flags.c_contiguous else gradient.copy("C")
    update.apply(news, g, list(hyper.values()))
    return news


# By the owner of the equation, which must not live on for it: an optimizer holds variables.
_updates: weakref.WeakKeyDictionary[Any, dict[Any, DeviceUpdate | None]]
_updates = weakref.WeakKeyDictionary()


def _update_of(
    equation: Callable[..., Any], slots: int, hyper: tuple[str, ...], dtype: np.dtype[Any]
) -> DeviceUpdate | None:
    owner = getattr(equation, "__self__", equation)
    made = _updates.setdefault(owner, {})
    key = getattr(equation, "__name__", ""), slots, hyper, dtype
    if key not in made:
        try:
            made[key] = DeviceUpdate(equation, slots, hyper, dtype)
        except UntraceableError:
            made[key] = None
    return made[key]


class BoundUpdate:
    """An update of certain arrays, in place.

    Attributes:
        number: the dtype of the hyper-parameters.
    """

    def __init__(
        self, update: Any, rows: Any, number: np.dtype[Any], columns: Sequence[Sequence[Any]]
    ) -> None:
        self.number = number
        self._update = update
        self._rows = rows
        self._columns = columns  # the kernels know their addresses only
        self._table = tensors(tuple(column[0].size for column in columns))
        self._state = sent_addresses([array for column in columns for array in column])

    def start(
        self, gradients: Sequence[Any] | Gathered, hyper: Sequence[Any]
    ) -> Callable[[], None]:
        """All but the launch, which what comes back does.

        Args:
            gradients: one for each tensor, of its size and dtype, in C's order.
            hyper: device arrays of one number of the dtype `number`, in the order of their names.
        """
        table = self._table
        if not isinstance(gradients, Gathered):
            gradients = Gathered(gradients, addresses(gradients))
        arguments = (
            self._state,
            gradients.table,
            table.sizes,
            table.blocks,
            np.int32(CHUNK),
            *hyper,
        )
        kept = gradients, arguments  # until the launch: then the stream keeps the order

        def update() -> None:
            if table.count:
                self._update((table.count,), (THREADS,), kept[1])

        return update

    def start_rows(self, gradient: Any, rows: Any, hyper: Sequence[Any]) -> Callable[[], None]:
        """The same for rows of the only tensor.

        Args:
            gradient: shape (m, ...), in C's order.
            rows: int64 in [0, n), each at most once, shape (m,).
            hyper: as for `start`.
        """
        total = gradient.size
        width = total // rows.size if rows.size else 0
        arguments = (
            self._state,
            addresses([gradient]),
            rows,
            np.int64(total),
            np.int64(width),
            *hyper,
        )
        kept = gradient, arguments
        return lambda: over_elements(self._rows, total, kept[1])
