"""Elementary functions of one tensor: roots, exponentials, trigonometry, rounding.

All are elementwise and keep shape and dtype (float16, float32, float64, bfloat16).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from optkit.backend import special
from optkit.dtypes import FLOATS
from optkit.graph import OPERATORS, Operation, Tensor
from optkit.ops.core import Array, ArrayModule, as_tensor, composite, op
from optkit.ops.logic import REALS

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "expm1",
    "floor",
    "log",
    "log1p",
    "log_sigmoid",
    "reciprocal",
    "rint",
    "round",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
]

# -- powers and roots -----------------------------------------------------------------------------


@op("Square", types=REALS)
def square(xp: ArrayModule, x: Array) -> Array:
    """x²."""
    return x * x


@square.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return dy * (2 * node.inputs[0])


@op("Sqrt", types=FLOATS, ufunc="sqrt")
def sqrt(xp: ArrayModule, x: Array) -> Array:
    """√x; NaN for x < 0."""
    return xp.sqrt(x)


@sqrt.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return 0.5 * dy / node.outputs[0]


@op("Rsqrt", types=FLOATS)
def rsqrt(xp: ArrayModule, x: Array) -> Array:
    """1/√x."""
    return 1 / xp.sqrt(x)


@rsqrt.gradient
def _(node: Operation, dy: Tensor) -> Any:
    y = node.outputs[0]
    return -0.5 * dy * y / node.inputs[0]


@op("Reciprocal", types=FLOATS)
def reciprocal(xp: ArrayModule, x: Array) -> Array:
    """1/x."""
    return 1 / x


@reciprocal.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return -dy * square(node.outputs[0])


# -- exponentials and logarithms ------------------------------------------------------------------


@op("Exp", types=FLOATS, ufunc="exp")
def exp(xp: ArrayModule, x: Array) -> Array:
    """eˣ."""
    return xp.exp(x)


@exp.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return dy * node.outputs[0]


@op("Expm1", types=FLOATS, ufunc="expm1")
def expm1(xp: ArrayModule, x: Array) -> Array:
    """exp(x) - 1, accurate for small x."""
    return xp.expm1(x)


@expm1.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return dy * exp(node.inputs[0])


@op("Log", types=FLOATS, ufunc="log")
def log(xp: ArrayModule, x: Array) -> Array:
    """The natural logarithm; -∞ at 0, NaN below."""
    return xp.log(x)


@log.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return dy / node.inputs[0]


@op("Log1p", types=FLOATS, ufunc="log1p")
def log1p(xp: ArrayModule, x: Array) -> Array:
    """log(1 + x), accurate for small x."""
    return xp.log1p(x)


@log1p.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return dy / (1 + node.inputs[0])


@op("Sigmoid", types=FLOATS)
def sigmoid(xp: ArrayModule, x: Array) -> Array:
    """1/(1 + exp(-x)), without overflow."""
    e = xp.exp(-xp.abs(x))  # exp(-x) of float16 overflows at -12, where y is still 6e-6
    return xp.where(x >= 0, xp.ones((), x.dtype), e) / (1 + e)


@sigmoid.gradient
def _(node: Operation, dy: Tensor) -> Any:
    y = node.outputs[0]
    return dy * y * (1 - y)


@op("Softplus", types=FLOATS)
def softplus(xp: ArrayModule, features: Array) -> Array:
    """log(1 + exp(x)), without overflow."""
    return xp.maximum(features, 0) + xp.log1p(xp.exp(-xp.abs(features)))


@softplus.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return dy * sigmoid(node.inputs[0])


@composite
def log_sigmoid(x: Any, name: str | None = None) -> Tensor:
    """log(1/(1 + exp(-x))) = -softplus(-x), without overflow."""
    return OPERATORS["neg"](softplus(-as_tensor(x)), name=name or "LogSigmoid")  # type: ignore[no-any-return]


@op("Erf", types=FLOATS)
def erf(xp: ArrayModule, x: Array) -> Array:
    """The error function 2/√π·∫₀ˣ exp(-t²) dt."""
    return special.erf(xp, x)


@erf.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return dy * (2 / math.sqrt(math.pi)) * exp(-square(node.inputs[0]))


@op("Erfc", types=FLOATS)
def erfc(xp: ArrayModule, x: Array) -> Array:
    """1 - erf(x), accurate for large x."""
    return special.erfc(xp, x)


@erfc.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return dy * (-2 / math.sqrt(math.pi)) * exp(-square(node.inputs[0]))


# -- trigonometry ---------------------------------------------------------------------------------


@op("Sin", types=FLOATS, ufunc="sin")
def sin(xp: ArrayModule, x: Array) -> Array:
    """The sine of x in radians."""
    return xp.sin(x)


@sin.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return dy * cos(node.inputs[0])


@op("Cos", types=FLOATS, ufunc="cos")
def cos(xp: ArrayModule, x: Array) -> Array:
    """The cosine of x in radians."""
    return xp.cos(x)


@cos.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return -dy * sin(node.inputs[0])


@op("Tan", types=FLOATS)
def tan(xp: ArrayModule, x: Array) -> Array:
    """The tangent of x in radians."""
    return xp.tan(x)


@tan.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return dy * (1 + square(node.outputs[0]))


@op("Asin", types=FLOATS)
def asin(xp: ArrayModule, x: Array) -> Array:
    """The arc sine, in [-π/2, π/2]; NaN for |x| > 1."""
    return xp.arcsin(x)


@asin.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return dy * rsqrt(1 - square(node.inputs[0]))


@op("Acos", types=FLOATS)
def acos(xp: ArrayModule, x: Array) -> Array:
    """The arc cosine, in [0, π]; NaN for |x| > 1."""
    return xp.arccos(x)


@acos.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return -dy * rsqrt(1 - square(node.inputs[0]))


@op("Atan", types=FLOATS)
def atan(xp: ArrayModule, x: Array) -> Array:
    """The arc tangent, in (-π/2, π/2)."""
    return xp.arctan(x)


@atan.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return dy / (1 + square(node.inputs[0]))


@op("Atan2", types=FLOATS, broadcasts=True)
def atan2(xp: ArrayModule, y: Array, x: Array) -> Array:
    """The angle of the point (x, y), in [-π, π]; shapes broadcast."""
    return xp.arctan2(y, x)


@atan2.gradient
def _(node: Operation, dz: Tensor) -> tuple[Tensor, Tensor]:
    y, x = node.inputs
    scaled = dz / (square(x) + square(y))
    return scaled * x, -scaled * y


# -- hyperbolic functions -------------------------------------------------------------------------


@op("Sinh", types=FLOATS)
def sinh(xp: ArrayModule, x: Array) -> Array:
    """(exp(x) - exp(-x))/2."""
    return xp.sinh(x)


@sinh.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return dy * cosh(node.inputs[0])


@op("Cosh", types=FLOATS)
def cosh(xp: ArrayModule, x: Array) -> Array:
    """(exp(x) + exp(-x))/2."""
    return xp.cosh(x)


@cosh.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return dy * sinh(node.inputs[0])


@op("Tanh", types=FLOATS, ufunc="tanh")
def tanh(xp: ArrayModule, x: Array) -> Array:
    """sinh(x)/cosh(x)."""
    return xp.tanh(x)


@tanh.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return dy * (1 - square(node.outputs[0]))


@op("Asinh", types=FLOATS)
def asinh(xp: ArrayModule, x: Array) -> Array:
    """The inverse of sinh."""
    return xp.arcsinh(x)


@asinh.gradient
def _(node: Operation, dy: Tensor) -> Any:
    # Not 1/√(1 + x²): the square overflows long before cosh(y) does.
    return dy / cosh(node.outputs[0])


@op("Acosh", types=FLOATS)
def acosh(xp: ArrayModule, x: Array) -> Array:
    """The inverse of cosh, in [0, ∞); NaN for x < 1."""
    return xp.arccosh(x)


@acosh.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return dy / sinh(node.outputs[0])


@op("Atanh", types=FLOATS)
def atanh(xp: ArrayModule, x: Array) -> Array:
    """The inverse of tanh; NaN for |x| > 1."""
    return xp.arctanh(x)


@atanh.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return dy / (1 - square(node.inputs[0]))


# -- rounding -------------------------------------------------------------------------------------


@op("Floor", types=FLOATS, differentiable=False)
def floor(xp: ArrayModule, x: Array) -> Array:
    """The largest whole number ≤ x."""
    return xp.floor(x)


@op("Ceil", types=FLOATS, differentiable=False)
def ceil(xp: ArrayModule, x: Array) -> Array:
    """The smallest whole number ≥ x."""
    return xp.ceil(x)


@op("Rint", types=FLOATS, differentiable=False)
def rint(xp: ArrayModule, x: Array) -> Array:
    """The whole number nearest to x, the even one of two."""
    return xp.rint(x)


@op("Round", types=REALS, differentiable=False)
def round(xp: ArrayModule, x: Array) -> Array:
    """The whole number nearest to x, the even one of two; integers stay as they are."""
    return x if x.dtype.kind in "iu" else xp.rint(x)


def _rounded(a: Any, decimals: int = 0) -> Tensor:
    if decimals != 0:
        raise TypeError(f"np.round: decimals: expected 0, got {decimals!r}")
    return round(a)


_UFUNCS: dict[str, Callable[..., Tensor]] = {
    "square": square,
    "sqrt": sqrt,
    "reciprocal": reciprocal,
    "exp": exp,
    "expm1": expm1,
    "log": log,
    "log1p": log1p,
    "sin": sin,
    "cos": cos,
    "tan": tan,
    "arcsin": asin,
    "arccos": acos,
    "arctan": atan,
    "arctan2": atan2,
    "sinh": sinh,
    "cosh": cosh,
    "tanh": tanh,
    "arcsinh": asinh,
    "arccosh": acosh,
    "arctanh": atanh,
    "floor": floor,
    "ceil": ceil,
    "rint": rint,
}
OPERATORS.update({f"ufunc:{name}": function for name, function in _UFUNCS.items()})
OPERATORS.update({"function:round": _rounded, "function:around": _rounded})
