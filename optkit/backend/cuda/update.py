"""An optimizer's equation as one launch over all variables, in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optkit.backend.cuda.emit import update_source
from optkit.backend.cuda.launch import CHUNK, THREADS, addresses, function, over_elements, tensors
from optkit.backend.fused.trace import UntraceableError, trace

__all__ = ["DeviceUpdate"]


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

    def prepare(self) -> None:
        """Compile now, for the current device."""
        self._update.compile()
        self._rows.compile()

    def start(
        self,
        columns: Sequence[Sequence[Any]],
        gradients: Sequence[Any],
        hyper: Sequence[Any],
    ) -> Callable[[], None]:
        """Make everything ready; what comes back does the update, in place, and cannot fail.

        Args:
            columns: for each tensor the variable and its slots.
            gradients: one for each tensor, in C's order.
            hyper: 0-d device arrays of the dtype `number`, in the order of their names.
        """
        table = tensors(tuple(column[0].size for column in columns))
        state = addresses([array for column in columns for array in column])
        arguments = (
            state,
            addresses(gradients),
            table.sizes,
            table.blocks,
            np.int32(CHUNK),
            *hyper,
        )
        kept = columns, gradients, arguments

        def update() -> None:
            if table.count:
                self._update((table.count,), (THREADS,), kept[2])

        return update

    def start_rows(
        self,
        column: Sequence[Any],
        gradient: Any,
        rows: Any,
        hyper: Sequence[Any],
    ) -> Callable[[], None]:
        """The same for rows of one variable and its slots.

        Args:
            column: the variable and its slots, shape (n, ...).
            gradient: shape (m, ...), in C's order.
            rows: int64 in [0, n), each at most once, shape (m,).
            hyper: as for `start`.
        """
        total = gradient.size
        width = total // rows.size if rows.size else 0
        arguments = (
            addresses(column),
            addresses([gradient]),
            rows,
            np.int64(total),
            np.int64(width),
            *hyper,
        )
        kept = column, gradient, arguments
        return lambda: over_elements(self._rows, total, kept[2])
