"""The texts of all kernels, and how each is compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from optkit.backend.cuda.emit import update_source, values_source
from optkit.backend.fused.trace import UntraceableError, trace, trace_values

__all__ = [
    "OPTIONS",
    "TracedEquation",
    "formula_source",
    "has",
    "kernel_sources",
    "register_equations",
    "register_formula",
    "source",
]

OPTIONS = ("--fmad=false",)
"""No product is joined with a sum, so that results are NumPy's, rounding by rounding."""

KERNELS = Path(__file__).parent / "kernels"
"""Where the kernels are that are not made from an equation."""
_KINDS = {
    "float16": ("float16", "float"),
    "float32": ("float", "float"),
    "float64": ("double", "double"),
    "int32": ("int", "int"),
    "int64": ("long long", "long long"),
}
"""dtype -> what its kernels store, and what they compute in."""

_FILES = {
    "norm": ("float16", "float32", "float64"),
    "segments": ("float16", "float32", "float64", "int32", "int64"),
    "bounds": ("int32", "int64"),
    "finite": ("float16", "float32", "float64"),
    "histogram": ("float32", "float64"),
    "pack": (None,),
}
"""Kernel files, and the dtypes there are of each."""


@functools.cache
def source(name: str, dtype: str | None = None) -> str:
    """The text of a kernel file for a dtype.

    Raises:
        KeyError: there is no kernel for the dtype.
    """
    text = (KERNELS / f"{name}.cu").read_text()
    if dtype is None:
        return text
    if dtype not in _FILES[name]:
        raise KeyError(dtype)
    stored, number = _KINDS[dtype]
    head = "#include <cupy/float16.cuh>\n" if stored == "float16" else ""
    return f"{head}typedef {stored} T;\ntypedef {number} N;\n\n{text}"


def has(name: str, dtype: np.dtype[Any]) -> bool:
    """Whether there is a kernel for a dtype."""
    return dtype.name in _FILES[name]


def formula_source(formula: Callable[..., Any], count: int, dtype: str) -> str:
    """The text of a kernel for an elementwise `formula(xp, *arrays)` of so many arrays.

    Raises:
        UntraceableError: the formula cannot be followed.
    """
    program = trace_values(formula, [f"in{i}" for i in range(count)])
    return values_source(program, np.dtype(dtype))


class TracedEquation(NamedTuple):
    """An equation that kernels can be made of.

    Attributes:
        name: what it is called in `kernel_sources`.
        equation: the rule; see `optkit.ops.update.Equation`.
        slots: how many slots it has.
        hyper: the names of its hyper-parameters.
    """

    name: str
    equation: Callable[..., Any]
    slots: int
    hyper: Sequence[str]


_equations: list[Callable[[], Iterable[TracedEquation]]] = []


def register_equations(provider: Callable[[], Iterable[TracedEquation]]) -> None:
    """Have `kernel_sources` list the kernels of these equations too.

    Args:
        provider: gives them; called when they are asked for.
    """
    _equations.append(provider)


_formulas: dict[str, tuple[Callable[..., Any], int]] = {}


def register_formula(name: str, formula: Callable[..., Any], count: int) -> None:
    """Have `kernel_sources` list the kernel of an elementwise formula of so many arrays too."""
    _formulas[name] = formula, count


def kernel_sources() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Every kernel text that optkit has or makes: name -> (text, options for NVRTC).

    Kernels of optimizers are there once the optimizers have been imported, for each dtype. The
    half-precision ones include `cupy/float16.cuh`, which CuPy brings.
    """
    texts = {
        name if dtype is None else f"{name}-{dtype}": source(name, dtype)
        for name, dtypes in _FILES.items()
        for dtype in dtypes
    }
    for name, (formula, count) in _formulas.items():
        for dtype in ("float32", "float64"):
            texts[f"{name}-{dtype}"] = formula_source(formula, count, dtype)
    for provider in _equations:
        for name, equation, slots, hyper in provider():
            try:
                program = trace(equation, slots, hyper)
            except UntraceableError:
                continue
            for dtype in ("float16", "float32", "float64"):
                texts[f"{name}-{dtype}"] = update_source(program, np.dtype(dtype))
    return {name: (text, OPTIONS) for name, text in texts.items()}
