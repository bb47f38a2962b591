"""An optimizer's equation as one launch over all variables, in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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

__all__ = ["BoundUpdate", "DeviceUpdate"]


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

    def start(self, gradients: Sequence[Any], hyper: Sequence[Any]) -> Callable[[], None]:
        """All but the launch, which what comes back does.

        Args:
            gradients: one for each tensor, of its size and dtype, in C's order.
            hyper: device arrays of one number of the dtype `number`, in the order of their names.
        """
        table = self._table
        arguments = (
            self._state,
            addresses(gradients),
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
