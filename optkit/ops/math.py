"""Arithmetic and casts; elementwise, with shapes broadcast.

The dtypes of all inputs are equal and the result has it too, unless a docstring says otherwise.
Python and NumPy numbers take the dtype of the tensor beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optkit.backend.cuda.checks import deferred_finite
from optkit.backend.special import kept, power
from optkit.dtypes import FLOATS, DType, as_dtype, bool_, float32, float64, int32, int64, string
from optkit.errors import InvalidArgumentError
from optkit.graph import OPERATORS, IndexedSlices, Operation, Tensor, is_symbolic
from optkit.ops.core import ALL_TYPES, Array, ArrayModule, as_tensor, composite, constant_value, op
from optkit.ops.logic import REALS, equal, greater, greater_equal, less_equal
from optkit.shapes import Shape, TensorShape

__all__ = [
    "abs",
    "accumulate_n",
    "add",
    "add_n",
    "cast",
    "check_numerics",
    "div",
    "div_no_nan",
    "divide",
    "floor_div",
    "floordiv",
    "floormod",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "negative",
    "pow",
    "realdiv",
    "saturate_cast",
    "scalar_mul",
    "select",
    "sign",
    "squared_difference",
    "subtract",
    "to_double",
    "to_float",
    "to_int32",
    "to_int64",
    "truediv",
]

# -- choosing -------------------------------------------------------------------------------------


@op(
    "SelectV2",
    broadcasts=True,
    types=ALL_TYPES,
    accepts={"condition": {bool_}},
    result=lambda inputs, _: inputs[1].dtype,
)
def select(xp: ArrayModule, condition: Array, x: Array, y: Array) -> Array:
    """x where the condition holds, else y; all three broadcast.

    The side that was not chosen gets a gradient of 0, also where the result's is infinite.
    """
    if _is_zero(xp, y, x):
        return kept(xp, x, condition)
    if _is_zero(xp, x, y):
        return kept(xp, y, ~condition)
    return xp.where(condition, x, y)


def _is_zero(xp: ArrayModule, x: Array, other: Array) -> bool:
    """Whether x is the one number +0, found out where that costs no wait for a device."""
    return bool(
        xp is np
        and np.ndim(x) == 0
        and np.ndim(other) > 0
        and other.dtype.kind in "fiu"
        and x == 0
        and not np.signbit(x)
    )


@select.gradient
def _(node: Operation, dz: Tensor) -> tuple[None, Tensor, Tensor]:
    condition = node.inputs[0]
    return None, select(condition, dz, 0), select(condition, 0, dz)


# -- sums, products -------------------------------------------------------------------------------


@op("Add", broadcasts=True, types=REALS, ufunc="add")
def add(xp: ArrayModule, x: Array, y: Array) -> Array:
    """x + y."""
    return x + y


@add.gradient
def _(_: Operation, dz: Tensor) -> tuple[Tensor, Tensor]:
    return dz, dz


@op("Sub", broadcasts=True, types=REALS, ufunc="subtract")
def subtract(xp: ArrayModule, x: Array, y: Array) -> Array:
    """x - y."""
    return x - y


@subtract.gradient
def _(_: Operation, dz: Tensor) -> tuple[Tensor, Tensor]:
    return dz, -dz


@op("Mul", broadcasts=True, types=REALS, ufunc="multiply")
def multiply(xp: ArrayModule, x: Array, y: Array) -> Array:
    """x·y."""
    return x * y


@multiply.gradient
def _(node: Operation, dz: Tensor) -> tuple[Tensor, Tensor]:
    x, y = node.inputs
    return dz * y, dz * x


@composite
def scalar_mul(scalar: Any, x: Any, name: str | None = None) -> Any:
    """scalar·x; an IndexedSlices stays one.

    Raises:
        ValueError: `scalar` is no scalar.
    """
    rows = x.values if isinstance(x, IndexedSlices) else as_tensor(x)
    factor = as_tensor(scalar, rows.dtype, "scalar")
    if factor.sizes not in (None, ()):
        raise ValueError(f"scalar: expected a scalar, got {factor!r}")
    product = multiply(factor, rows, name=name)
    if isinstance(x, IndexedSlices):
        return IndexedSlices(product, x.indices, x.dense_shape)
    return product


@op("Neg", types=REALS, ufunc="negative")
def negative(xp: ArrayModule, x: Array) -> Array:
    """-x."""
    return -x


@negative.gradient
def _(_: Operation, dy: Tensor) -> Any:
    return -dy


@op("SquaredDifference", broadcasts=True, types=REALS)
def squared_difference(xp: ArrayModule, x: Array, y: Array) -> Array:
    """(x - y)²."""
    difference = x - y
    return difference * difference


@squared_difference.gradient
def _(node: Operation, dz: Tensor) -> tuple[Tensor, Tensor]:
    x, y = node.inputs
    dx = 2 * dz * (x - y)
    return dx, -dx


def _common_shape(inputs: Sequence[Tensor], _: Any) -> Shape:
    shape = TensorShape(None)
    for tensor in inputs:
        shape = shape.merge_with(tensor.sizes)
    return shape.sizes


@op("AddN", types=REALS, shape=_common_shape)
def _add_n(xp: ArrayModule, *inputs: Array) -> Array:
    total = inputs[0]
    for array in inputs[1:]:
        total = total + array
    return total


@_add_n.gradient
def _(node: Operation, dy: Tensor) -> list[Tensor]:
    return [dy] * len(node.inputs)


@composite
def add_n(inputs: Any, name: str | None = None) -> Tensor:
    """The sum of a list of tensors of one shape; IndexedSlices among them become dense.

    Raises:
        ValueError: no inputs, or their shapes differ.
        TypeError: their dtypes differ.
    """
    addends = _addends(inputs, "add_n")
    if len(addends) == 1 and name is None:
        return as_tensor(addends[0])
    return _add_n(*addends, name=name)


def _addends(inputs: Any, function: str) -> list[Any]:
    addends = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    if not addends:
        raise ValueError(f"{function}: inputs: expected at least one tensor, got an empty list")
    return addends


@composite
def accumulate_n(
    inputs: Any, shape: Any = None, tensor_dtype: Any = None, name: str | None = None
) -> Tensor:
    """The sum of a list of tensors of one shape, which `shape` and `tensor_dtype` may state.

    Raises:
        ValueError: no inputs, or their shapes differ from each other or from `shape`.
        TypeError: their dtypes differ from each other or from `tensor_dtype`.
    """
    total = _add_n(*_addends(inputs, "accumulate_n"), name=name or "AccumulateNV2")
    if tensor_dtype is not None and total.dtype != as_dtype(tensor_dtype):
        raise TypeError(
            f"accumulate_n: inputs: expected {as_dtype(tensor_dtype).name}, got {total.dtype.name}"
        )
    if shape is not None:
        total.set_shape(shape)
    return total


# -- quotients ------------------------------------------------------------------------------------


@op("RealDiv", broadcasts=True, types=FLOATS, ufunc="divide")
def realdiv(xp: ArrayModule, x: Array, y: Array) -> Array:
    """x / y of floating tensors."""
    return x / y


@realdiv.gradient
def _(node: Operation, dz: Tensor) -> tuple[Tensor, Tensor]:
    dx = dz / node.inputs[1]
    return dx, -dx * node.outputs[0]


@op("DivNoNan", broadcasts=True, types=FLOATS)
def div_no_nan(xp: ArrayModule, x: Array, y: Array) -> Array:
    """x / y, and 0 where y is 0."""
    zero = y == 0
    return xp.where(zero, xp.zeros((), x.dtype), x / xp.where(zero, xp.ones((), y.dtype), y))


@div_no_nan.gradient
def _(node: Operation, dz: Tensor) -> tuple[Tensor, Tensor]:
    dx = div_no_nan(dz, node.inputs[1])
    return dx, -dx * node.outputs[0]


def _refuse_zero_divisor(xp: ArrayModule, y: Array) -> None:
    if y.dtype.kind in "iu" and bool((y == 0).any()):
        raise InvalidArgumentError("y: expected integers other than 0 to divide by, got a 0")


@op("FloorDiv", broadcasts=True, types=REALS, differentiable=False)
def floor_div(xp: ArrayModule, x: Array, y: Array) -> Array:
    """⌊x / y⌋.

    Raises:
        InvalidArgumentError: when run, an integer is divided by 0.
    """
    _refuse_zero_divisor(xp, y)
    return x // y if x.dtype.kind in "iu" else xp.floor(x / y)


@op("FloorMod", broadcasts=True, types=REALS)
def floormod(xp: ArrayModule, x: Array, y: Array) -> Array:
    """x - ⌊x / y⌋·y: the remainder with the sign of y.

    Raises:
        InvalidArgumentError: when run, an integer is divided by 0.
    """
    _refuse_zero_divisor(xp, y)
    return xp.remainder(x, y)


@floormod.gradient
def _(node: Operation, dz: Tensor) -> tuple[Tensor, Tensor]:
    x, y = node.inputs
    return dz, -dz * floor_div(x, y)


mod = floormod


@composite
def floordiv(x: Any, y: Any, name: str | None = None) -> Tensor:
    """⌊x / y⌋, in the dtype of x."""
    return floor_div(x, y, name=name or "floordiv")


def _converted(x: Any, y: Any) -> tuple[Any, Any]:
    """Both as they are when one of them is a tensor, else both as tensors."""
    if is_symbolic(x) or is_symbolic(y):
        return x, y
    x = as_tensor(x, None, "x")
    return x, as_tensor(y, x.dtype, "y")


@composite
def truediv(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x / y; integers are cast first, of 8 and 16 bits to float32, wider ones to float64.

    Raises:
        TypeError: the dtypes differ or are no numbers.
    """
    name = name or "truediv"
    x, y = _converted(x, y)
    dtype = (x if is_symbolic(x) else y).dtype
    if dtype.is_integer:
        wide = float32 if dtype.size <= 2 else float64
        pair = [_whole(z, dtype, f"RealDiv {name!r}: {key}") for key, z in (("x", x), ("y", y))]
        x, y = (cast(z, wide) for z in pair)
    return realdiv(x, y, name=name)


def _whole(value: Any, dtype: DType, what: str) -> Tensor:
    """An integer operand of a division."""
    try:
        return as_tensor(value, dtype)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what}: {error}") from error


@composite
def divide(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x / y, as Python 3 divides; see `truediv`."""
    return truediv(x, y, name=name)


@composite
def div(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x / y as Python 2 divides: integers are floored."""
    x, y = _converted(x, y)
    whole = (x if is_symbolic(x) else y).dtype.is_integer
    return (floor_div if whole else realdiv)(x, y, name=name or "div")


# -- powers, signs, extremes ----------------------------------------------------------------------


@op("Pow", broadcasts=True, types=REALS)
def pow(xp: ArrayModule, x: Array, y: Array) -> Array:
    """x**y.

    Raises:
        InvalidArgumentError: when run, an integer has a negative exponent.
    """
    if x.dtype.kind == "i" and bool((y < 0).any()):
        raise InvalidArgumentError(
            "y: expected exponents >= 0 for integers, got a negative one; cast to a float first"
        )
    return power(xp, x, y)


@pow.gradient
def _(node: Operation, dz: Tensor) -> tuple[Tensor, Tensor]:
    x, y = node.inputs
    # y·x^(y-1) is 0·∞ for x = y = 0; with y + 1 for an exponent it is the right 0.
    known = constant_value(y) if y.op.type == "Const" else None
    one = np.ones((), y.dtype.dtype)
    shift = select(equal(y, 0), one, -one) if known is None else np.where(known == 0, one, -one)
    # TF's convention: where x <= 0 the exponent's gradient, of which log is no real part, is 0.
    positive = greater(x, 0)
    log_x = select(positive, OPERATORS["ufunc:log"](select(positive, x, 1)), 0)
    return dz * y * x ** (y + shift), dz * node.outputs[0] * log_x


@op("Abs", types=REALS, ufunc="absolute")
def abs(xp: ArrayModule, x: Array) -> Array:
    """|x|; the gradient at 0 is 0."""
    return xp.abs(x)


@abs.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return dy * sign(node.inputs[0])


@op("Sign", types=REALS)
def sign(xp: ArrayModule, x: Array) -> Array:
    """-1, 0 or 1; the gradient is 0."""
    return xp.sign(x)


@sign.gradient
def _(_: Operation, dy: Tensor) -> Any:
    return select(False, dy, 0)


@op("Maximum", broadcasts=True, types=REALS, ufunc="maximum")
def maximum(xp: ArrayModule, x: Array, y: Array) -> Array:
    """The larger of x and y; NaN if one is NaN. Where they are equal, x gets the gradient."""
    return xp.maximum(x, y)


@maximum.gradient
def _(node: Operation, dz: Tensor) -> tuple[Tensor, Tensor]:
    chosen = greater_equal(*node.inputs)
    return select(chosen, dz, 0), select(chosen, 0, dz)


@op("Minimum", broadcasts=True, types=REALS, ufunc="minimum")
def minimum(xp: ArrayModule, x: Array, y: Array) -> Array:
    """The smaller of x and y; NaN if one is NaN. Where they are equal, x gets the gradient."""
    return xp.minimum(x, y)


@minimum.gradient
def _(node: Operation, dz: Tensor) -> tuple[Tensor, Tensor]:
    chosen = less_equal(*node.inputs)
    return select(chosen, dz, 0), select(chosen, 0, dz)


# -- casts and checks -----------------------------------------------------------------------------


def _target(_: Any, attrs: Any) -> DType:
    return attrs["dtype"]  # type: ignore[no-any-return]


@op("Cast", types=ALL_TYPES - {string}, result=_target)
def _cast(xp: ArrayModule, x: Array, *, dtype: DType) -> Array:
    if x.dtype.kind == "c" and not dtype.is_complex:
        x = x.real
    return x.astype(dtype.dtype)


@_cast.gradient
def _(node: Operation, dy: Tensor) -> Any:
    (x,) = node.inputs
    if x.dtype.is_floating and dy.dtype.is_floating:
        return cast(dy, x.dtype)
    return None


@composite
def cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    """x in another dtype; x itself if it has it. An IndexedSlices stays one.

    A float becomes an integer by dropping its fraction. Gradients pass between floats only.
    """
    wanted = as_dtype(dtype)
    if isinstance(x, IndexedSlices):
        return IndexedSlices(cast(x.values, wanted, name), x.indices, x.dense_shape)
    tensor = as_tensor(x)
    return tensor if tensor.dtype is wanted else _cast(tensor, dtype=wanted, name=name)


@composite
def saturate_cast(value: Any, dtype: Any, name: str | None = None) -> Tensor:
    """`value` in another dtype; what lies beyond its range is moved to its ends first.

    The ends are those that the dtype of `value` can hold.
    """
    x, wanted = as_tensor(value), as_dtype(dtype)
    if x.dtype.min < wanted.min:
        x = maximum(x, _within(wanted.min, x.dtype))
    if x.dtype.max > wanted.max:
        x = minimum(x, _within(wanted.max, x.dtype))
    return cast(x, wanted, name)  # type: ignore[no-any-return]


def _within(limit: Any, dtype: DType) -> np.ndarray[Any, Any]:
    """The limit in `dtype`, rounded towards 0."""
    rounded = np.asarray(limit, dtype.dtype)
    beyond = rounded.item() > limit if limit > 0 else rounded.item() < limit
    return np.nextafter(rounded, dtype.dtype.type(0)) if beyond else rounded


@composite
def to_float(x: Any, name: str = "ToFloat") -> Any:
    """x as float32."""
    return cast(x, float32, name)


@composite
def to_double(x: Any, name: str = "ToDouble") -> Any:
    """x as float64."""
    return cast(x, float64, name)


@composite
def to_int32(x: Any, name: str = "ToInt32") -> Any:
    """x as int32."""
    return cast(x, int32, name)


@composite
def to_int64(x: Any, name: str = "ToInt64") -> Any:
    """x as int64."""
    return cast(x, int64, name)


@op("CheckNumerics", types=FLOATS)
def _check_numerics(xp: ArrayModule, tensor: Array, *, message: str) -> Array:
    if xp is not np and deferred_finite(tensor):
        return tensor
    if not bool(xp.isfinite(tensor).all()):
        kinds = [
            name for name, test in (("NaN", xp.isnan), ("Inf", xp.isinf)) if test(tensor).any()
        ]
        raise InvalidArgumentError(
            f"{message} : Tensor had {' and '.join(kinds)} among its {tensor.size} values"
        )
    return tensor


@_check_numerics.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return check_numerics(dy, f"gradient of the tensor checked for {node.attrs['message']!r}")


@composite
def check_numerics(tensor: Any, message: str, name: str | None = None) -> Tensor:
    """The tensor itself, once it is known to be finite; its gradient is checked too.

    Raises:
        InvalidArgumentError: when run, there is a NaN or infinity; the text starts with `message`.
    """
    return _check_numerics(tensor, message=message, name=name)


# -- Python's operators and NumPy's functions -----------------------------------------------------


def _named(function: Callable[..., Tensor], name: str) -> Callable[[Any, Any], Tensor]:
    """A binary operator; TF names its nodes in lower case."""

    def operator(x: Any, y: Any) -> Tensor:
        return function(x, y, name=name)

    return operator


def _itself(x: Any) -> Tensor:
    return as_tensor(x)


_BINARY = {
    "add": _named(add, "add"),
    "sub": _named(subtract, "sub"),
    "mul": _named(multiply, "mul"),
    "truediv": _named(truediv, "truediv"),
    "floordiv": _named(floordiv, "floordiv"),
    "mod": _named(floormod, "mod"),
    "pow": _named(pow, "pow"),
}
OPERATORS.update(_BINARY)
OPERATORS.update(
    {
        "neg": negative,
        "abs": abs,
        # Also what `array + tensor` comes to, so they are named like the operators.
        "ufunc:add": _BINARY["add"],
        "ufunc:subtract": _BINARY["sub"],
        "ufunc:multiply": _BINARY["mul"],
        "ufunc:divide": _BINARY["truediv"],
        "ufunc:floor_divide": _BINARY["floordiv"],
        "ufunc:remainder": _BINARY["mod"],
        "ufunc:power": _BINARY["pow"],
        "ufunc:negative": negative,
        "ufunc:positive": _itself,
        "ufunc:absolute": abs,
        "ufunc:fabs": abs,
        "ufunc:sign": sign,
        "ufunc:maximum": maximum,
        "ufunc:minimum": minimum,
    }
)
