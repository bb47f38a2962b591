"""Rows of the op table: arithmetic, comparison, logic, elementary functions."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from optkit.ops import elementary, logic
from optkit.ops import math as ops
from tests.ops.rows import (
    INTS,
    NUMBERS,
    Case,
    Table,
    distinct,
    given,
    inputs,
    normal,
    uniform,
    whole,
)


def unary(
    call: Callable[..., Any],
    reference: Callable[..., Any],
    low: float = -2.0,
    high: float = 2.0,
    label: str = "",
    **more: Any,
) -> list[Case]:
    """A function of one tensor, on a matrix, a scalar and an empty tensor."""
    return [
        Case(
            f"{label}{name}",
            inputs(uniform(*shape, low=low, high=high)),
            call,
            reference,
            **more,
        )
        for name, shape in {"matrix": (2, 3), "scalar": (), "empty": (0, 3)}.items()
    ]


def binary(
    call: Callable[..., Any],
    reference: Callable[..., Any],
    x: Callable[..., Any] = normal,
    y: Callable[..., Any] = normal,
    **more: Any,
) -> list[Case]:
    """A function of two tensors, of equal shapes and of shapes that broadcast."""
    return [
        Case("equal shapes", inputs(x(2, 3), y(2, 3)), call, reference, **more),
        Case("row", inputs(x(2, 3), y(3)), call, reference, **more),
        Case("both ways", inputs(x(2, 1), y(1, 3)), call, reference, **more),
        Case("scalar", inputs(x(), y(2, 3)), call, reference, **more),
        Case("scalars", inputs(x(), y()), call, reference, **more),
        Case("empty", inputs(x(0, 3), y(3)), call, reference, **more),
    ]


def integers(
    call: Callable[..., Any],
    reference: Callable[..., Any],
    low: int = 1,
    high: int = 8,
    **more: Any,
) -> Case:
    """Two integer tensors."""
    values = inputs(whole(2, 3, low=low, high=high), whole(3, low=low, high=high))
    return Case("integers", values, call, reference, **({"dtypes": INTS, "wrt": ()} | more))


def positive(*shape: int) -> Callable[..., Any]:
    """Values in [0.5, 2)."""
    return uniform(*shape, low=0.5, high=2.0)


def few(*shape: int) -> Callable[..., Any]:
    """Whole numbers of which several are equal."""
    return whole(*shape, low=-1, high=2)


def truth(*shape: int) -> Callable[..., Any]:
    """Truth values."""
    return lambda rng: rng.random(shape) < 0.5


def shifted(*shape: int) -> Callable[..., Any]:
    """Values whose distance from those of `distinct` is at least 0.1."""
    return lambda rng: distinct(*shape)(rng) + 0.1


COMPARISON: dict[str, Any] = {"wrt": (), "result": "bool", "smooth": False}


def comparison(call: Callable[..., Any], reference: Callable[..., Any]) -> list[Case]:
    """A comparison of numbers."""
    return [
        *binary(call, reference, few, few, **COMPARISON),
        integers(call, reference, result="bool"),
    ]


def order(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """-1, 0 or 1 as x is less than, equal to or greater than y."""
    return np.sign(x.astype(np.float64) - y.astype(np.float64))


def truths(call: Callable[..., Any], reference: Callable[..., Any]) -> list[Case]:
    """A function of two tensors of truth values."""
    return binary(call, reference, truth, truth, dtypes=("bool",), wrt=())


def gauss_erf(x: np.ndarray) -> np.ndarray:
    """The error function as an integral, by Gauss and Legendre's rule of 40 points."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    half = np.asarray(x)[..., None] / 2
    integral = half * np.exp(-np.square(half * (nodes + 1)))
    return 2 / math.sqrt(math.pi) * np.sum(integral * weights, -1)


NONFINITE = [0.0, 1.0, math.nan, math.inf, -math.inf]
ROUNDING = {"smooth": False, "wrt": ()}

TABLE: Table = {
    # -- arithmetic
    "Add": [*binary(ops.add, np.add), integers(ops.add, np.add)],
    "Sub": [*binary(ops.subtract, np.subtract), integers(ops.subtract, lambda x, y: x - y)],
    "Mul": [*binary(ops.multiply, np.multiply), integers(ops.multiply, np.multiply)],
    "Neg": [
        *unary(ops.negative, np.negative),
        integers(lambda x, _: ops.negative(x), lambda x, _: -x, dtypes=("int8", "int64")),
    ],
    "SquaredDifference": [
        *binary(ops.squared_difference, lambda x, y: x**2 - 2 * x * y + y**2, tolerance=2),
        integers(ops.squared_difference, lambda x, y: (x - y) ** 2),
    ],
    "AddN": [
        Case(
            "three",
            inputs(normal(2, 3), normal(2, 3), normal(2, 3)),
            lambda *xs: ops.add_n(xs),
            lambda *xs: np.sum(np.stack(xs), 0),
            dtypes=NUMBERS[:3],
        ),
        Case(
            "integers",
            inputs(whole(3, low=0, high=9), whole(3, low=0, high=9)),
            lambda *xs: ops.add_n(xs),
            lambda x, y: x + y,
            dtypes=INTS,
            wrt=(),
        ),
        Case(
            "one, named",
            inputs(normal(3)),
            lambda x: ops.add_n([x], name="sum"),
            lambda x: x,
        ),
        Case(
            "accumulate_n",
            inputs(normal(), normal()),
            lambda *xs: ops.accumulate_n(xs),
            lambda x, y: x + y,
        ),
    ],
    "RealDiv": binary(ops.realdiv, np.divide, normal, positive),
    "DivNoNan": [
        *binary(ops.div_no_nan, np.divide, normal, positive),
        Case(
            "zeros",
            inputs(given([1.0, 0.0, -3.0]), given([0.0, 0.0, 2.0])),
            ops.div_no_nan,
            lambda x, y: np.array([0.0, 0.0, -1.5]),
            wrt=(0,),
            smooth=False,
        ),
    ],
    "FloorDiv": [
        *binary(ops.floordiv, lambda x, y: np.floor(x / y), distinct, positive, **ROUNDING),
        integers(ops.floordiv, lambda x, y: np.floor(x / y)),
        Case(
            "negative integers",
            inputs(given([-7, 7, -7, 7]), given([2, 2, -2, -2])),
            ops.floordiv,
            lambda x, y: np.array([-4, 3, 3, -4]),
            dtypes=("int8", "int32", "int64"),
            wrt=(),
        ),
    ],
    "FloorMod": [
        Case(
            "floats",
            inputs(given([-7.3, 7.3, -7.3, 7.3]), given([2.0, 2.0, -2.0, -2.0])),
            ops.floormod,
            lambda x, y: x - np.floor(x / y) * y,
            tolerance=2,
        ),
        integers(ops.mod, lambda x, y: x - x // y * y),
    ],
    # -- powers, signs, extremes
    "Pow": [
        *binary(ops.pow, lambda x, y: np.exp(y * np.log(x)), positive, normal, tolerance=4),
        *(
            Case(
                f"constant exponent {exponent}",
                inputs(uniform(2, 3, low=-2, high=-0.5)),
                lambda x, exponent: ops.pow(x, exponent),
                lambda x, exponent: np.sign(x) ** exponent * np.abs(x) ** exponent,
                kwargs={"exponent": exponent},
                tolerance=2,
            )
            for exponent in (-1, 1, 2, 3, 4)
        ),
        Case(
            "zeros, constant exponent 2",
            inputs(given([0.0, 1.0])),
            lambda x: ops.pow(x, 2),
            np.square,
        ),
        integers(ops.pow, lambda x, y: x**y, low=0, high=4),
    ],
    "Abs": [
        *unary(ops.abs, lambda x: np.sqrt(x**2), 0.1, 2.0),
        *unary(ops.abs, lambda x: np.sqrt(x**2), -2.0, -0.1, "negative "),
        integers(lambda x, _: ops.abs(-x), lambda x, _: x, dtypes=("int8", "int32", "int64")),
    ],
    "Sign": [
        Case("both", inputs(given([-3, 0.25])), ops.sign, lambda x: np.array([-1, 1])),
        Case("zero", inputs(given([0.0])), ops.sign, lambda x: np.array([0]), wrt=()),
        Case(
            "integers",
            inputs(given([0, 5])),
            ops.sign,
            lambda x: np.array([0, 1]),
            dtypes=INTS,
            wrt=(),
        ),
    ],
    "Maximum": [
        *binary(ops.maximum, lambda x, y: np.where(x > y, x, y), distinct, shifted),
        integers(ops.maximum, lambda x, y: np.where(x > y, x, y)),
    ],
    "Minimum": [
        *binary(ops.minimum, lambda x, y: np.where(x < y, x, y), distinct, shifted),
        integers(ops.minimum, lambda x, y: np.where(x < y, x, y)),
    ],
    "SelectV2": [
        Case(
            name,
            inputs(truth(*shapes[0]), normal(*shapes[1]), normal(*shapes[2])),
            ops.select,
            lambda condition, x, y: np.where(condition, x, y),
        )
        for name, shapes in {
            "equal shapes": [(2, 3)] * 3,
            "broadcast": [(2, 1), (3,), ()],
            "scalars": [()] * 3,
        }.items()
    ],
    # -- casts and checks
    "Cast": [
        # Eighths moved by eighths are exact in each dtype, so the differences are too.
        Case(
            "to float32",
            inputs(given([0.125, -0.5, 3.0])),
            lambda x: ops.cast(x, "float32"),
            lambda x: x,
            dtypes=("float16", "float64"),
            result="float32",
            smooth=False,  # a weight of the float32 result cannot be moved by little
            step=0.125,
        ),
        Case(
            "to integers",
            inputs(given([-1.75, 0.5, 1.75])),
            lambda x: ops.cast(x, "int32"),
            lambda x: np.trunc(x),
            result="int32",
            wrt=(),
        ),
        Case(
            "from integers",
            inputs(whole(2, 3, low=0, high=9)),
            lambda x: ops.cast(x, "float64"),
            lambda x: x,
            dtypes=INTS,
            result="float64",
            wrt=(),
        ),
        Case(
            "to truth",
            inputs(given([0.0, -0.0, 0.25, math.nan])),
            lambda x: ops.cast(x, "bool"),
            lambda x: np.array([False, False, True, True]),
            result="bool",
            wrt=(),
        ),
        Case(
            "from truth",
            inputs(truth(2, 3)),
            lambda x: ops.cast(x, "float32"),
            lambda x: x,
            dtypes=("bool",),
            result="float32",
            wrt=(),
        ),
    ],
    "CheckNumerics": unary(lambda x: ops.check_numerics(x, "x"), lambda x: x),
    # -- comparison and logic
    "Equal": [
        *comparison(logic.equal, lambda x, y: ~((x < y) | (x > y))),
        Case(
            "truth values",
            inputs(truth(6), truth(6)),
            logic.equal,
            lambda x, y: ~(x ^ y),
            dtypes=("bool",),
            wrt=(),
        ),
    ],
    "NotEqual": comparison(logic.not_equal, lambda x, y: (x < y) | (x > y)),
    "Less": comparison(logic.less, lambda x, y: order(y, x) == 1),
    "LessEqual": comparison(logic.less_equal, lambda x, y: order(y, x) >= 0),
    "Greater": comparison(logic.greater, lambda x, y: order(x, y) == 1),
    "GreaterEqual": comparison(logic.greater_equal, lambda x, y: order(x, y) >= 0),
    "LogicalAnd": truths(logic.logical_and, lambda x, y: np.minimum(x, y)),
    "LogicalOr": truths(logic.logical_or, lambda x, y: np.maximum(x, y)),
    "LogicalXor": truths(logic.logical_xor, lambda x, y: x != y),
    "LogicalNot": [
        Case(
            "matrix",
            inputs(truth(2, 3)),
            logic.logical_not,
            lambda x: x == 0,
            dtypes=("bool",),
            wrt=(),
        )
    ],
    **{
        type_name: [
            Case(
                "special values",
                inputs(given(NONFINITE)),
                call,
                lambda x, expected=expected: np.array(expected, bool),
                **COMPARISON,
            )
        ]
        for type_name, call, expected in (
            ("IsNan", logic.is_nan, [0, 0, 1, 0, 0]),
            ("IsInf", logic.is_inf, [0, 0, 0, 1, 1]),
            ("IsFinite", logic.is_finite, [1, 1, 0, 0, 0]),
        )
    },
    # -- elementary functions
    "Square": [
        *unary(elementary.square, lambda x: np.abs(x) ** 2),
        integers(lambda x, _: elementary.square(x), lambda x, _: x**2),
    ],
    "Sqrt": unary(elementary.sqrt, lambda x: x**0.5, 0.5, 4.0),
    "Rsqrt": unary(elementary.rsqrt, lambda x: x**-0.5, 0.5, 4.0),
    "Reciprocal": unary(elementary.reciprocal, lambda x: x**-1.0, 0.5, 4.0),
    "Exp": unary(elementary.exp, lambda x: math.e**x),
    "Expm1": [
        *unary(elementary.expm1, lambda x: np.exp(x) - 1),
        Case(
            "tiny",
            inputs(given([1e-7, -1e-7])),
            elementary.expm1,
            lambda x: x + x**2 / 2,
            dtypes=("float32", "float64"),
        ),
    ],
    "Log": unary(elementary.log, lambda x: np.log2(x) * math.log(2), 0.5, 4.0),
    "Log1p": [
        *unary(elementary.log1p, lambda x: np.log(1 + x), -0.5, 4.0),
        Case(
            "tiny",
            inputs(given([1e-7, -1e-7])),
            elementary.log1p,
            lambda x: x - x**2 / 2,
            dtypes=("float32", "float64"),
        ),
    ],
    "Sigmoid": unary(elementary.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "Softplus": unary(elementary.softplus, lambda x: np.log(1 + np.exp(x))),
    "Erf": unary(elementary.erf, gauss_erf),
    "Erfc": unary(elementary.erfc, lambda x: 1 - gauss_erf(x)),
    "Sin": unary(elementary.sin, lambda x: np.exp(1j * x).imag),
    "Cos": unary(elementary.cos, lambda x: np.exp(1j * x).real),
    "Tan": unary(elementary.tan, lambda x: np.sin(x) / np.cos(x), -1.2, 1.2, tolerance=2),
    "Asin": unary(elementary.asin, lambda x: np.arctan2(x, np.sqrt(1 - x**2)), -0.9, 0.9),
    "Acos": unary(elementary.acos, lambda x: np.arctan2(np.sqrt(1 - x**2), x), -0.9, 0.9),
    "Atan": unary(elementary.atan, lambda x: np.arctan2(x, 1)),
    "Atan2": binary(elementary.atan2, lambda y, x: np.angle(x + 1j * y), distinct, positive),
    "Sinh": unary(elementary.sinh, lambda x: (np.exp(x) - np.exp(-x)) / 2),
    "Cosh": unary(elementary.cosh, lambda x: (np.exp(x) + np.exp(-x)) / 2),
    "Tanh": unary(elementary.tanh, lambda x: np.sinh(x) / np.cosh(x)),
    "Asinh": unary(elementary.asinh, lambda x: np.log(x + np.sqrt(x**2 + 1))),
    "Acosh": unary(elementary.acosh, lambda x: np.log(x + np.sqrt(x**2 - 1)), 1.5, 4.0),
    "Atanh": unary(elementary.atanh, lambda x: np.log((1 + x) / (1 - x)) / 2, -0.9, 0.9),
    # -- rounding
    **{
        type_name: [
            Case(
                "halves",
                inputs(given([-2.5, -1.5, -0.4, 0.0, 0.5, 1.5, 2.5, 2.6])),
                call,
                lambda x, expected=expected: np.array(expected),
                **ROUNDING,
            )
        ]
        for type_name, call, expected in (
            ("Floor", elementary.floor, [-3, -2, -1, 0, 0, 1, 2, 2]),
            ("Ceil", elementary.ceil, [-2, -1, 0, 0, 1, 2, 3, 3]),
            ("Rint", elementary.rint, [-2, -2, 0, 0, 0, 2, 2, 3]),
        )
    },
    "Round": [
        Case(
            "halves",
            inputs(given([-2.5, -1.5, -0.4, 0.0, 0.5, 1.5, 2.5, 2.6])),
            elementary.round,
            lambda x: np.array([-2, -2, 0, 0, 0, 2, 2, 3]),
            **ROUNDING,
        ),
        Case(
            "integers",
            inputs(whole(3, low=0, high=9)),
            elementary.round,
            lambda x: x,
            dtypes=INTS,
            wrt=(),
        ),
    ],
}
