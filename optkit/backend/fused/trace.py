"""From an optimizer's equation to an expression graph, by calling it once with symbols.

The equation is plain array arithmetic, so symbols that record what is done to them are enough to
see all of it. What they cannot follow (a Python condition on a value, an unknown function) raises
`UntraceableError`, and the equation is then called with arrays as it is.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["FUNCTIONS", "Node", "Program", "UntraceableError", "trace", "trace_values"]

FUNCTIONS: dict[str, int] = {
    "absolute": 1,
    "ceil": 1,
    "cos": 1,
    "exp": 1,
    "expm1": 1,
    "floor": 1,
    "isfinite": 1,
    "isnan": 1,
    "log": 1,
    "log1p": 1,
    "logical_not": 1,
    "negative": 1,
    "reciprocal": 1,
    "sign": 1,
    "sin": 1,
    "sqrt": 1,
    "square": 1,
    "tanh": 1,
    "add": 2,
    "copysign": 2,
    "divide": 2,
    "equal": 2,
    "greater": 2,
    "greater_equal": 2,
    "less": 2,
    "less_equal": 2,
    "logical_and": 2,
    "logical_or": 2,
    "maximum": 2,
    "minimum": 2,
    "multiply": 2,
    "not_equal": 2,
    "power": 2,
    "subtract": 2,
    "where": 3,
}
"""The functions an expression may hold, by NumPy's name, with their number of arguments."""

_ALIASES = {"abs": "absolute", "true_divide": "divide"}
_PREDICATES = frozenset(
    {
        "equal",
        "greater",
        "greater_equal",
        "isfinite",
        "isnan",
        "less",
        "less_equal",
        "logical_and",
        "logical_not",
        "logical_or",
        "not_equal",
    }
)


class UntraceableError(Exception):
    """The equation does something that cannot be seen from outside."""


@dataclass(frozen=True, eq=False)
class Node:
    """A value of an expression.

    Attributes:
        function: a name from FUNCTIONS, "input" or "constant".
        args: the values it is made of.
        value: an input's name or a constant's number.
        vector: whether it has an element per element of the variable; else it is one number.
        truth: whether it is a truth value.
    """

    function: str
    args: tuple[Node, ...] = ()
    value: Any = None
    vector: bool = False
    truth: bool = False


@dataclass(frozen=True)
class Program:
    """A traced equation.

    Attributes:
        arrays: the names of its arrays: the variable, the gradient and the slots.
        scalars: the names of its hyper-parameters.
        order: all values, each after those it is made of.
        outputs: the new variable and slots.
    """

    arrays: tuple[str, ...]
    scalars: tuple[str, ...]
    order: tuple[Node, ...]
    outputs: tuple[Node, ...]


def _lifted(value: Any) -> Node:
    if isinstance(value, _Symbol):
        return value.node
    if isinstance(value, numbers.Real | np.generic) and not isinstance(value, np.bool_ | bool):
        # NumPy scalars would promote where Python's adapt to the arrays.
        if isinstance(value, np.generic) and value.dtype.kind == "f":
            raise UntraceableError(f"a NumPy scalar {value!r}")
        return Node("constant", value=value)
    raise UntraceableError(f"a value of type {type(value).__name__}")


def _apply(function: str, *values: Any) -> _Symbol:
    args = tuple(_lifted(value) for value in values)
    _check_kinds(function, args)
    return _Symbol(
        Node(
            function,
            args,
            vector=any(arg.vector for arg in args),
            truth=function in _PREDICATES,
        )
    )


_LOGICAL = frozenset({"logical_and", "logical_not", "logical_or"})


def _check_kinds(function: str, args: Sequence[Node]) -> None:
    """Refuse what has another dtype in NumPy than the variable's, or only looks like a number.

    Python's numbers and truth values alone give float64 or integers, which promote.
    """
    conditions = args if function in _LOGICAL else args[:1] if function == "where" else ()
    if not all(arg.truth for arg in conditions):
        raise UntraceableError(f"{function} of a number")
    values = () if function in _LOGICAL else args[1:] if function == "where" else args
    if values and all(arg.truth or arg.function == "constant" for arg in values):
        raise UntraceableError(f"{function} of Python's numbers and truth values alone")


def _binary(function: str) -> Callable[[_Symbol, Any], _Symbol]:
    return lambda self, other: _apply(function, self, other)


def _reflected(function: str) -> Callable[[_Symbol, Any], _Symbol]:
    return lambda self, other: _apply(function, other, self)


class _Symbol:
    """Stands for an array while an equation is traced."""

    __slots__ = ("node",)
    __array_ufunc__ = None  # NumPy's operators step back

    def __init__(self, node: Node) -> None:
        self.node = node

    __add__, __radd__ = _binary("add"), _reflected("add")
    __sub__, __rsub__ = _binary("subtract"), _reflected("subtract")
    __mul__, __rmul__ = _binary("multiply"), _reflected("multiply")
    __truediv__, __rtruediv__ = _binary("divide"), _reflected("divide")
    __pow__, __rpow__ = _binary("power"), _reflected("power")
    __lt__, __le__ = _binary("less"), _binary("less_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_equal")
    __eq__ = _binary("equal")  # type: ignore[assignment]  # a comparison of elements, as NumPy's
    __ne__ = _binary("not_equal")  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]
    __and__, __or__ = _binary("logical_and"), _binary("logical_or")

    def __neg__(self) -> _Symbol:
        return _apply("negative", self)

    def __pos__(self) -> _Symbol:
        return self

    def __abs__(self) -> _Symbol:
        return _apply("absolute", self)

    def __invert__(self) -> _Symbol:
        return _apply("logical_not", self)

    def __bool__(self) -> bool:
        raise UntraceableError("a Python condition on a value")

    def __getattr__(self, name: str) -> Any:
        raise UntraceableError(f"the attribute {name}")

    def _in_place(self, other: Any) -> Any:
        # What the reference refuses (its arrays are read-only) must not work by being fused.
        raise UntraceableError("an operation in place")

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ipow__ = _in_place


class _Functions:
    """Stands for the array module while an equation is traced."""

    inf = float("inf")
    nan = float("nan")
    pi = np.pi
    e = np.e

    def clip(self, x: Any, low: Any, high: Any) -> _Symbol:
        """min(max(x, low), high), which keeps x where it equals a limit (as −0 and 0 do)."""
        if _lifted(low).vector or _lifted(high).vector:
            raise UntraceableError("clip to arrays")  # NumPy gives the limit then
        above = _apply("where", _apply("greater_equal", x, low), x, _apply("maximum", x, low))
        return _apply(
            "where", _apply("less_equal", above, high), above, _apply("minimum", above, high)
        )

    def __getattr__(self, name: str) -> Callable[..., _Symbol]:
        function = _ALIASES.get(name, name)
        if function not in FUNCTIONS:
            raise UntraceableError(f"the function {name}")

        def call(*values: Any) -> _Symbol:
            if len(values) != FUNCTIONS[function]:
                raise UntraceableError(f"{name} with {len(values)} arguments")
            return _apply(function, *values)

        return call


def trace(equation: Callable[..., Any], slots: int, hyper: Sequence[str]) -> Program:
    """The expression graph of an equation with so many slots and these hyper-parameters.

    Raises:
        UntraceableError: the equation cannot be followed.
    """
    arrays = ("w", "g", *(f"slot{i}" for i in range(slots)))
    leaves = {name: Node("input", value=name, vector=True) for name in arrays}
    leaves |= {name: Node("input", value=name) for name in hyper}
    try:
        result = equation(
            _Functions(),
            *(_Symbol(leaves[name]) for name in arrays),
            **{name: _Symbol(leaves[name]) for name in hyper},
        )
    except UntraceableError:
        raise
    except Exception as error:
        raise UntraceableError(f"{type(error).__name__}: {error}") from error
    values = result if isinstance(result, tuple | list) else (result,)
    if len(values) != slots + 1:
        raise UntraceableError(f"{len(values)} results")
    outputs = tuple(_lifted(value) for value in values)
    if any(not node.vector or node.truth for node in outputs):
        raise UntraceableError("a result that is one number or a truth value")
    for node, name in zip(outputs, (arrays[0], *arrays[2:]), strict=True):
        # Working in place, the old value of another array would be gone.
        if node.function == "input" and node.value not in (name, "g"):
            raise UntraceableError("a result that is the old value of another array")
    return Program(arrays, tuple(hyper), _ordered(outputs), outputs)


def trace_values(function: Callable[..., Any], names: Sequence[str]) -> Program:
    """The expression graph of `function(xp, *arrays)`, which gives one array, elementwise.

    Raises:
        UntraceableError: the function cannot be followed.
    """
    leaves = [Node("input", value=name, vector=True) for name in names]
    try:
        result = function(_Functions(), *map(_Symbol, leaves))
    except UntraceableError:
        raise
    except Exception as error:
        raise UntraceableError(f"{type(error).__name__}: {error}") from error
    output = _lifted(result)
    if not output.vector or output.truth:
        raise UntraceableError("a result that is one number or a truth value")
    return Program(tuple(names), (), _ordered([output]), (output,))


def _ordered(outputs: Sequence[Node]) -> tuple[Node, ...]:
    """All nodes behind `outputs`, each after its arguments and as early as it was built."""
    order: dict[Node, None] = {}
    waiting = [(node, False) for node in reversed(outputs)]
    while waiting:
        node, ready = waiting.pop()
        if node in order:
            continue
        if ready:
            order[node] = None
        else:
            waiting.append((node, True))
            waiting.extend((arg, False) for arg in reversed(node.args))
    return tuple(order)
