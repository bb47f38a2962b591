"""What a row of the op table holds; `table*.py` fill it and `test_table.py` checks it.

A table maps an op's type name (a key of `optkit.ops.core.REGISTRY`) to a list of `Case`, or to one
`Elsewhere` for ops whose values no formula gives (state, random numbers, control flow).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

FLOATS = ("float16", "float32", "float64")
INTS = ("int8", "int16", "int32", "int64", "uint8")
NUMBERS = (*FLOATS, "int32", "int64")


@dataclass(frozen=True)
class Case:
    """One way to call an op, and what must come out.

    Attributes:
        name: says what is special about the case; part of the test's id.
        inputs: `(rng) -> arrays`. Arrays of float64 are cast to the dtype under test; arrays of
            any other dtype (indices, truth values) stay as they are.
        call: optkit's public function; it gets one tensor per array, then `kwargs`, and returns a
            tensor or several.
        reference: the same in plain NumPy, not derived from the kernel. It gets the arrays with
            floats widened to float64, then `kwargs`; what it returns is compared after the cast to
            the dtype the op should give.
        kwargs: passed on to `call` and `reference`.
        dtypes: the dtypes to test.
        result: the dtype of the result, if it is not the one under test.
        smooth: second derivatives are checked too.
        wrt: positions of the inputs that get a gradient; all floating ones if None; () if none.
        tolerance: multiplies the tolerance (4 units in the last place of the largest value).
        gradient_tolerance: multiplies the tolerance of the gradient.
        shape_known: the static shape follows from the inputs' static shapes.
        unknown_rank: the op can be built for inputs whose rank is not known.
        step: how far inputs are moved to check the gradient in float64.
    """

    name: str
    inputs: Callable[[np.random.Generator], Sequence[Any]]
    call: Callable[..., Any]
    reference: Callable[..., Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dtypes: Sequence[str] = FLOATS
    result: str | None = None
    smooth: bool = True
    wrt: Sequence[int] | None = None
    tolerance: float = 1.0
    gradient_tolerance: float = 1.0
    shape_known: bool = True
    unknown_rank: bool = True
    step: float = 1e-3


@dataclass(frozen=True)
class Elsewhere:
    """The op is tested in `file` (relative to the root), which names its type or function.

    `name` is what the file calls it, if neither.
    """

    file: str
    why: str
    name: str | None = None


Table: TypeAlias = Mapping[str, Sequence[Case] | Elsewhere]


def normal(*shape: int, scale: float = 1.0) -> Callable[[np.random.Generator], np.ndarray]:
    """A builder of one float64 array from the normal distribution."""
    return lambda rng: scale * rng.standard_normal(shape)


def uniform(*shape: int, low: float, high: float) -> Callable[[np.random.Generator], np.ndarray]:
    """A builder of one float64 array, uniform in [low, high)."""
    return lambda rng: rng.uniform(low, high, shape)


def whole(*shape: int, low: int, high: int) -> Callable[[np.random.Generator], np.ndarray]:
    """A builder of one float64 array of whole numbers in [low, high)."""
    return lambda rng: rng.integers(low, high, shape).astype(np.float64)


def distinct(*shape: int, gap: float = 0.25) -> Callable[[np.random.Generator], np.ndarray]:
    """A builder of one float64 array with no two values, nor a value and 0, nearer than `gap`."""

    def build(rng: np.random.Generator) -> np.ndarray:
        size = int(np.prod(shape))
        values = gap * (np.arange(size) - size // 2 + 0.5) * 1.5
        return rng.permutation(values).reshape(shape)

    return build


def given(values: Any, dtype: Any = np.float64) -> Callable[[np.random.Generator], np.ndarray]:
    """A builder that gives the same array each time."""
    return lambda _: np.array(values, dtype)


def inputs(*builders: Callable[[np.random.Generator], Any]) -> Callable[..., list[Any]]:
    """The `inputs` of a Case from one builder an input."""
    return lambda rng: [build(rng) for build in builders]
