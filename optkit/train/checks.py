"""Range checks of hyper-parameters at construction.

Only Python and NumPy numbers are checked; Tensors, Variables and callables are read when the
train op runs.
"""

from __future__ import annotations

import math
import numbers
import operator
from typing import Any

import numpy as np

from optkit.graph import is_symbolic

__all__ = ["is_number", "require", "require_plain", "require_rate"]


def is_number(value: Any) -> bool:
    """Whether `value` is a real number that fits a float (no bool), or a 0-d array of one."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if not isinstance(value, numbers.Real | np.floating | np.integer):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return not isinstance(value, bool | np.bool_)


def require(
    owner: str,
    argument: str,
    value: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> None:
    """Check a hyper-parameter.

    Raises:
        TypeError: it is neither a number nor a Tensor, Variable or callable.
        ValueError: it is NaN or outside the range.
    """
    if is_symbolic(value) or callable(value):
        return
    if not is_number(value):
        raise TypeError(
            f"{owner}: {argument}: expected a number, a scalar Tensor, a Variable or a callable, "
            f"got {value!r}"
        )
    number = float(value)
    bounds = [
        (sign, bound, holds(number, bound))
        for sign, bound, holds in (
            (">", above, operator.gt),
            (">=", at_least, operator.ge),
            ("<", below, operator.lt),
            ("<=", at_most, operator.le),
        )
        if bound is not None
    ]
    if math.isnan(number) or not all(holds for _, _, holds in bounds):
        expected = " and ".join(f"{sign} {bound:g}" for sign, bound, _ in bounds)
        raise ValueError(f"{owner}: {argument}: expected {expected or 'a number'}, got {value!r}")


def require_rate(owner: str, value: Any, *, negative: bool = True) -> None:
    """Check a learning rate: never NaN; negative (ascent) only where the rule makes sense of it."""
    require(owner, "learning_rate", value, at_least=None if negative else 0.0)


def require_plain(
    owner: str, argument: str, value: Any, *, whole: bool = False, **bounds: float
) -> None:
    """Check a number that must be known now: no Tensor, Variable or callable.

    Args:
        owner: whose argument it is.
        argument: its name.
        value: what came.
        whole: whether it must be an integer.
        bounds: as in `require`.

    Raises:
        TypeError: it is no number, or no integer where one is needed.
        ValueError: it is NaN or outside the range.
    """
    whole_number = isinstance(value, numbers.Integral | np.integer)
    if not is_number(value) or (whole and not whole_number):
        kind = "an integer" if whole else "a number"
        raise TypeError(f"{owner}: {argument}: expected {kind}, got {value!r}")
    require(owner, argument, value, **bounds)
