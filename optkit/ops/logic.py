"""Comparison and logic: elementwise, shapes broadcast; the results are bool, without gradients."""

from __future__ import annotations

from typing import Any

from optkit.dtypes import FLOATS, INTEGERS, bool_
from optkit.graph import OPERATORS, Tensor
from optkit.ops.core import ALL_TYPES, Array, ArrayModule, op

__all__ = [
    "REALS",
    "equal",
    "greater",
    "greater_equal",
    "is_finite",
    "is_inf",
    "is_nan",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
]

REALS = FLOATS | INTEGERS
"""The dtypes of arithmetic."""


@op("Equal", broadcasts=True, types=ALL_TYPES, result=bool_, differentiable=False)
def equal(xp: ArrayModule, x: Array, y: Array) -> Array:
    """Whether x = y, as bool."""
    return x == y


@op("NotEqual", broadcasts=True, types=ALL_TYPES, result=bool_, differentiable=False)
def not_equal(xp: ArrayModule, x: Array, y: Array) -> Array:
    """Whether x ≠ y, as bool."""
    return x != y


@op("Less", broadcasts=True, types=REALS, result=bool_, differentiable=False)
def less(xp: ArrayModule, x: Array, y: Array) -> Array:
    """Whether x < y, as bool."""
    return x < y


@op("LessEqual", broadcasts=True, types=REALS, result=bool_, differentiable=False)
def less_equal(xp: ArrayModule, x: Array, y: Array) -> Array:
    """Whether x ≤ y, as bool."""
    return x <= y


@op("Greater", broadcasts=True, types=REALS, result=bool_, differentiable=False)
def greater(xp: ArrayModule, x: Array, y: Array) -> Array:
    """Whether x > y, as bool."""
    return x > y


@op("GreaterEqual", broadcasts=True, types=REALS, result=bool_, differentiable=False)
def greater_equal(xp: ArrayModule, x: Array, y: Array) -> Array:
    """Whether x ≥ y, as bool."""
    return x >= y


@op("LogicalAnd", broadcasts=True, types={bool_}, differentiable=False)
def logical_and(xp: ArrayModule, x: Array, y: Array) -> Array:
    """Whether both hold; bool."""
    return x & y


@op("LogicalOr", broadcasts=True, types={bool_}, differentiable=False)
def logical_or(xp: ArrayModule, x: Array, y: Array) -> Array:
    """Whether at least one holds; bool."""
    return x | y


@op("LogicalXor", broadcasts=True, types={bool_}, differentiable=False)
def logical_xor(xp: ArrayModule, x: Array, y: Array) -> Array:
    """Whether exactly one holds; bool."""
    return x ^ y


@op("LogicalNot", types={bool_}, differentiable=False)
def logical_not(xp: ArrayModule, x: Array) -> Array:
    """Whether x does not hold; bool."""
    return ~x


@op("IsNan", types=FLOATS, result=bool_, differentiable=False)
def is_nan(xp: ArrayModule, x: Array) -> Array:
    """Whether x is NaN, as bool."""
    return xp.isnan(x)


@op("IsInf", types=FLOATS, result=bool_, differentiable=False)
def is_inf(xp: ArrayModule, x: Array) -> Array:
    """Whether x is infinite, as bool."""
    return xp.isinf(x)


@op("IsFinite", types=FLOATS, result=bool_, differentiable=False)
def is_finite(xp: ArrayModule, x: Array) -> Array:
    """Whether x is neither NaN nor infinite, as bool."""
    return xp.isfinite(x)


def _and(x: Any, y: Any) -> Tensor:
    return logical_and(x, y, name="and")


def _or(x: Any, y: Any) -> Tensor:
    return logical_or(x, y, name="or")


def _xor(x: Any, y: Any) -> Tensor:
    return logical_xor(x, y, name="xor")


OPERATORS.update(
    {
        "and": _and,
        "or": _or,
        "xor": _xor,
        "invert": logical_not,
        "less": less,
        "less_equal": less_equal,
        "greater": greater,
        "greater_equal": greater_equal,
        "ufunc:bitwise_and": _and,
        "ufunc:bitwise_or": _or,
        "ufunc:bitwise_xor": _xor,
        "ufunc:invert": logical_not,
        "ufunc:logical_and": logical_and,
        "ufunc:logical_or": logical_or,
        "ufunc:logical_xor": logical_xor,
        "ufunc:logical_not": logical_not,
        "ufunc:less": less,
        "ufunc:less_equal": less_equal,
        "ufunc:greater": greater,
        "ufunc:greater_equal": greater_equal,
        "ufunc:equal": equal,
        "ufunc:not_equal": not_equal,
        "ufunc:isnan": is_nan,
        "ufunc:isinf": is_inf,
        "ufunc:isfinite": is_finite,
    }
)
