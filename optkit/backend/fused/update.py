"""One equation as fast kernels that update flat arrays in place.

Which kernel runs depends on the equation, the dtype, the size and whether Numba is installed, and
never on timing: exact resume rests on it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optkit.backend.fused import compiled
from optkit.backend.fused.source import (
    loop_source,
    scalar_source,
    shared_scalars,
    tile_source,
)
from optkit.backend.fused.threads import in_chunks, parts
from optkit.backend.fused.trace import trace

__all__ = ["FusedUpdate"]

TILE = 1 << 16
"""Elements a tile: few enough for a second-level cache, many enough to hide the calls."""
_PARALLEL = 1 << 17
"""Elements from which on a second thread pays for being woken."""
_COMPILED = 1 << 17
"""Elements from which on compiling pays, if not at once then from disk the next time."""


@dataclass(frozen=True)
class _Scratch:
    """What one thread works with: temporaries, truth values, and copies of a tile of each array."""

    temporaries: list[np.ndarray[Any, Any]]
    truths: list[np.ndarray[Any, Any]]
    copies: list[np.ndarray[Any, Any]]


class FusedUpdate:
    """An optimizer's equation over flat arrays, in place; one call at a time.

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
        # By the type of the arithmetic, for each of the threads.
        self._scratch: dict[Any, list[_Scratch]] = {}

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
        number = _arithmetic(dtype)
        numbers = self._scalars(np, number, *hyper)
        size = arrays[0].size
        if self._compiles(dtype, size):
            loop = compiled.compiled(self._loop, number.__name__)

            def work(i: int, start: int, stop: int) -> None:
                # Zeros are given by tiles, a gradient as a whole.
                step = TILE if gradient is None else stop - start
                for low in range(start, stop, step):
                    high = min(low + step, stop)
                    w, *slots = (array[low:high] for array in arrays)
                    loop(w, _frozen(_part(gradient, low, high, dtype)), *slots, *numbers)

        else:
            scratch = self._ready(number, size)

            def work(i: int, start: int, stop: int) -> None:
                self._by_tiles(arrays, gradient, numbers, number, scratch[i], start, stop)

        if size < _PARALLEL:
            work(0, 0, size)
        else:
            in_chunks(_quiet(work), size, TILE)

    def prepare(self, dtype: np.dtype[Any], size: int) -> None:
        """Do beforehand what the first call for such arrays would: compile, take memory."""
        number = _arithmetic(dtype)
        if self._compiles(dtype, size):
            loop = compiled.compiled(self._loop, number.__name__)
            w, g, *slots = (np.empty(0, dtype) for _ in range(self._slots + 2))
            loop(w, _frozen(g), *slots, *(number(1) for _ in range(self._numbers)))
        else:
            self._ready(number, size)
        _zeros(dtype)

    @staticmethod
    def _compiles(dtype: np.dtype[Any], size: int) -> bool:
        return dtype.itemsize > 2 and size >= _COMPILED and compiled.available()

    def _by_tiles(
        self,
        arrays: Sequence[np.ndarray[Any, Any]],
        gradient: np.ndarray[Any, Any] | None,
        numbers: Sequence[Any],
        number: type[np.floating[Any]],
        scratch: _Scratch,
        start: int,
        stop: int,
    ) -> None:
        wide = arrays[0].dtype != number
        for low in range(start, stop, TILE):
            high = min(low + TILE, stop)
            length = high - low
            w, *slots = (array[low:high] for array in arrays)
            tiles = [w, _part(gradient, low, high, w.dtype), *slots]
            t = [a[:length] for a in scratch.temporaries]
            b = [a[:length] for a in scratch.truths]
            if not wide:
                self._tile(np, number, numbers, t, b, *tiles)
                continue
            work = [copy[:length] for copy in scratch.copies]
            for copy, tile in zip(work, tiles, strict=True):
                np.copyto(copy, tile)
            self._tile(np, number, numbers, t, b, *work)
            for i in (0, *range(2, len(tiles))):
                np.copyto(tiles[i], work[i], casting="same_kind")

    def _ready(self, number: type[np.floating[Any]], size: int) -> list[_Scratch]:
        """Scratch arrays for each thread that such arrays are shared by, made at the first use."""
        made = self._scratch.setdefault(number, [])
        temporaries, truths = self._counts
        while len(made) < (1 if size < _PARALLEL else parts(size, TILE)):
            made.append(
                _Scratch(
                    [np.empty(TILE, number) for _ in range(temporaries)],
                    [np.empty(TILE, np.bool_) for _ in range(truths)],
                    [np.empty(TILE, number) for _ in range(self._slots + 2)],
                )
            )
        return made


def _arithmetic(dtype: np.dtype[Any]) -> type[np.floating[Any]]:
    """The scalar type in which arrays of a dtype are worked on."""
    return np.float32 if dtype.itemsize == 2 else dtype.type


def _frozen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A read-only view: for Numba that is another type, and one loop is to serve all gradients."""
    view = array.view()
    view.setflags(write=False)
    return view


def _part(
    gradient: np.ndarray[Any, Any] | None, low: int, high: int, dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    """A stretch of the gradient, of at most a tile where it stands for zeros."""
    return _zeros(dtype)[: high - low] if gradient is None else gradient[low:high]


@functools.cache
def _zeros(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    return np.zeros(TILE, dtype)


def _quiet(work: Callable[[int, int, int], None]) -> Callable[[int, int, int], None]:
    """`work` without floating-point warnings, which each thread is asked for anew."""

    def quiet(i: int, start: int, stop: int) -> None:
        with np.errstate(all="ignore"):
            work(i, start, stop)

    return quiet


def _defined(source: str, name: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(compile(source, f"<optkit {name}>", "exec"), namespace)
    function: Callable[..., Any] = namespace[name]
    return function
