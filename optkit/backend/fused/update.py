"""One equation as fast kernels that update flat arrays in place.

Which kernel runs depends on the equation, the dtype, the size and whether Numba is installed, and
never on timing: exact resume rests on it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optkit.backend.fused import compiled
from optkit.backend.fused.source import (
    loop_source,
    scalar_source,
    shared_scalars,
    tile_source,
)
from optkit.backend.fused.threads import in_chunks
from optkit.backend.fused.trace import trace

__all__ = ["FusedUpdate"]

TILE = 1 << 16
"""Elements a tile: few enough for a second-level cache, many enough to hide the calls."""
_PARALLEL = 1 << 17
"""Elements from which on a second thread pays for being woken."""
_COMPILED = 1 << 17
"""Elements from which on compiling pays, if not at once then from disk the next time."""


class FusedUpdate:
    """An optimizer's equation over flat arrays, in place.

    Args:
        equation: the rule; see `optkit.ops.update.Equation`.
        slots: how many slots it has.
        hyper: the names of its hyper-parameters.

    Raises:
        UntraceableError: the equation cannot be followed; call it as it is.
    """

    def __init__(self, equation: Callable[..., Any], slots: int, hyper: Sequence[str]) -> None:
        program = trace(equation, slots, hyper)
        tiles = tile_source(program)
        self._scalars = _defined(scalar_source(program), "scalars")
        self._tile = _defined(tiles.text, "tile")
        self._counts = tiles.scratch, tiles.truths
        self._loop = loop_source(program)
        self._slots = slots
        self._numbers = len(shared_scalars(program))
        self._local = threading.local()

    def __call__(
        self,
        arrays: Sequence[np.ndarray[Any, Any]],
        gradient: np.ndarray[Any, Any] | None,
        hyper: Sequence[Any],
    ) -> None:
        """Update in place.

        Args:
            arrays: the variable and its slots, flat, of one floating dtype.
            gradient: flat, of the same dtype; None stands for zeros, which take no memory.
            hyper: the hyper-parameters in the order of their names, of the arithmetic's dtype:
                float32 for half precision, else that of the arrays.
        """
        dtype = arrays[0].dtype
        half = dtype.itemsize == 2
        number = np.float32 if half else dtype.type
        numbers = self._scalars(np, number, *hyper)
        size = arrays[0].size
        if not half and size >= _COMPILED and compiled.available():
            loop = compiled.compiled(self._loop, number.__name__)

            def work(start: int, stop: int) -> None:
                # Zeros are given by tiles, a gradient as a whole.
                step = TILE if gradient is None else stop - start
                for low in range(start, stop, step):
                    high = min(low + step, stop)
                    w, *slots = (array[low:high] for array in arrays)
                    loop(w, _part(gradient, low, high, dtype), *slots, *numbers)

        else:

            def work(start: int, stop: int) -> None:
                self._by_tiles(arrays, gradient, numbers, number, start, stop)

        if size < _PARALLEL:
            work(0, size)
        else:
            in_chunks(_quiet(work), size, TILE)

    def prepare(self, dtype: np.dtype[Any], size: int) -> None:
        """Do beforehand what the first call for such arrays would: compile, take memory."""
        number = np.float32 if dtype.itemsize == 2 else dtype.type
        if dtype.itemsize > 2 and size >= _COMPILED and compiled.available():
            loop = compiled.compiled(self._loop, number.__name__)
            names = (np.empty(0, dtype), *(np.empty(0, dtype) for _ in range(self._slots + 1)))
            loop(*names, *(number(1) for _ in range(self._numbers)))
        else:
            self._scratch(number, self._slots + 2)

    def _by_tiles(
        self,
        arrays: Sequence[np.ndarray[Any, Any]],
        gradient: np.ndarray[Any, Any] | None,
        numbers: Sequence[Any],
        number: type[np.floating[Any]],
        start: int,
        stop: int,
    ) -> None:
        wide = arrays[0].dtype != number
        scratch, truths, copies = self._scratch(number, len(arrays) + 1)
        for low in range(start, stop, TILE):
            high = min(low + TILE, stop)
            length = high - low
            w, *slots = (array[low:high] for array in arrays)
            parts = [w, _part(gradient, low, high, w.dtype), *slots]
            t = [a[:length] for a in scratch]
            b = [a[:length] for a in truths]
            if not wide:
                self._tile(np, number, numbers, t, b, *parts)
                continue
            work = [copy[:length] for copy in copies]
            for copy, part in zip(work, parts, strict=True):
                np.copyto(copy, part)
            self._tile(np, number, numbers, t, b, *work)
            for i in (0, *range(2, len(parts))):
                np.copyto(parts[i], work[i], casting="same_kind")

    def _scratch(self, number: type[np.floating[Any]], copies: int) -> tuple[Any, Any, Any]:
        """This thread's scratch arrays."""
        made: dict[Any, Any] = self._local.__dict__
        if number not in made:
            count, truths = self._counts
            made[number] = (
                [np.empty(TILE, number) for _ in range(count)],
                [np.empty(TILE, np.bool_) for _ in range(truths)],
                [np.empty(TILE, number) for _ in range(copies)],
            )
        found: tuple[Any, Any, Any] = made[number]
        return found


def _part(
    gradient: np.ndarray[Any, Any] | None, low: int, high: int, dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    """A stretch of the gradient, of at most a tile where it stands for zeros."""
    return _zeros(dtype)[: high - low] if gradient is None else gradient[low:high]


@functools.cache
def _zeros(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    return np.zeros(TILE, dtype)


def _quiet(work: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """`work` without floating-point warnings, which each thread is asked for anew."""

    def quiet(start: int, stop: int) -> None:
        with np.errstate(all="ignore"):
            work(start, stop)

    return quiet


def _defined(source: str, name: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(compile(source, f"<optkit {name}>", "exec"), namespace)
    function: Callable[..., Any] = namespace[name]
    return function
