"""Sums, means, extremes and running sums over axes of a tensor.

Every `reduce_*` takes TF1's arguments: `axis`, one axis or several, negative ones from the end,
all of them if None; `keepdims`, whether they stay with size 1; and the older names
`reduction_indices` and `keep_dims` of the two. The result has the dtype of the input.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from optkit.backend.special import repeated, wide_dtype
from optkit.dtypes import FLOATS, DType, as_dtype, bool_, int64
from optkit.errors import InvalidArgumentError
from optkit.graph import OPERATORS, Operation, Tensor
from optkit.ops.arguments import axis_in, one_of, static_int, static_ints
from optkit.ops.core import INDEX_TYPES, Array, ArrayModule, as_tensor, composite, op
from optkit.ops.elementary import sqrt
from optkit.ops.logic import REALS, equal, not_equal
from optkit.ops.math import cast, squared_difference
from optkit.shapes import Shape

__all__ = [
    "argmax",
    "argmin",
    "count_nonzero",
    "cumsum",
    "reduce_all",
    "reduce_any",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_std",
    "reduce_sum",
    "reduce_variance",
]

# -- arguments ------------------------------------------------------------------------------------


def static_axis(axis: Any, rank: int | None) -> int:
    """One axis, known when the graph is built; counted from the front when the rank is known."""
    number = static_int(axis, "axis")
    return number if rank is None else axis_in(number, rank)


def _axes(axis: Any, rank: int | None) -> tuple[int, ...] | None:
    """The axes to reduce, sorted; None is all of them."""
    if axis is None:
        return None
    numbers = [static_axis(number, rank) for number in static_ints(axis, "axis")]
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"axis: expected each axis once, got {axis!r}")
    return tuple(sorted(numbers))


def reduced_sizes(sizes: Sequence[Any], attrs: Mapping[str, Any]) -> tuple[Any, ...]:
    axis = attrs["axis"]
    gone = range(len(sizes)) if axis is None else [each % len(sizes) for each in axis]
    if attrs["keepdims"]:
        return tuple(1 if i in gone else size for i, size in enumerate(sizes))
    return tuple(size for i, size in enumerate(sizes) if i not in gone)


def reduced_shape(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Shape:
    sizes = inputs[0].sizes
    if sizes is None:
        return () if attrs["axis"] is None and not attrs["keepdims"] else None
    return reduced_sizes(sizes, attrs)


def built(
    reduction: Any,
    input_tensor: Any,
    axis: Any,
    keepdims: Any,
    name: str | None,
    reduction_indices: Any = None,
    keep_dims: Any = None,
) -> Tensor:
    x = as_tensor(input_tensor, None, "input_tensor")
    axis = one_of("axis", axis, "reduction_indices", reduction_indices)
    keepdims = bool(one_of("keepdims", keepdims, "keep_dims", keep_dims))
    axes = _axes(axis, None if x.sizes is None else len(x.sizes))
    return reduction(x, axis=axes, keepdims=keepdims, name=name)  # type: ignore[no-any-return]


# -- sum and mean ---------------------------------------------------------------------------------


def total_of(xp: ArrayModule, x: Array, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
    """The sum, for 16-bit floats in float32."""
    return x.sum(axis=axis, dtype=wide_dtype(x.dtype), keepdims=keepdims)


@op("Spread", accepts={"x": REALS}, shape=lambda inputs, _: inputs[1].sizes)
def _spread(
    xp: ArrayModule, y: Array, x: Array, *, axis: tuple[int, ...] | None, keepdims: bool, mean: bool
) -> Array:
    """y, a reduction of x, repeated to x's shape; divided by how often if `mean`."""
    if mean:
        # The count may exceed float16.
        y = (y.astype(wide_dtype(y.dtype)) / max(1, x.size // max(1, y.size))).astype(y.dtype)
    if not keepdims:
        y = y.reshape(reduced_sizes(x.shape, {"axis": axis, "keepdims": True}))
    return repeated(xp, y, x.shape)


@_spread.gradient
def _(node: Operation, dx: Tensor) -> tuple[Tensor, None]:
    attrs = dict(node.attrs)
    return (_mean if attrs.pop("mean") else _sum)(dx, **attrs), None


def spread_of(node: Operation, y: Tensor, *, mean: bool = False) -> Tensor:
    """y, of the shape of the reduction `node`, repeated to the shape of its input."""
    axis, keepdims = node.attrs["axis"], node.attrs["keepdims"]
    return _spread(y, node.inputs[0], axis=axis, keepdims=keepdims, mean=mean)


@op("Sum", types=REALS, shape=reduced_shape)
def _sum(xp: ArrayModule, x: Array, *, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
    return total_of(xp, x, axis, keepdims).astype(x.dtype, copy=False)


@_sum.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return spread_of(node, dy)


@composite
def reduce_sum(
    input_tensor: Any,
    axis: Any = None,
    keepdims: Any = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: Any = None,
) -> Tensor:
    """Σ x over the axes; 0 if there is nothing to add."""
    return built(_sum, input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


@op("Mean", types=REALS, shape=reduced_shape)
def _mean(xp: ArrayModule, x: Array, *, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
    if x.dtype.kind in "iu":
        total = x.sum(axis=axis, dtype=xp.int64, keepdims=keepdims)
        count = max(1, x.size // max(1, total.size))
        # Integers are divided as in C: towards 0.
        return (xp.sign(total) * (xp.abs(total) // count)).astype(x.dtype)
    total = total_of(xp, x, axis, keepdims)
    # 0/0 = NaN for the mean of nothing.
    return (total / (x.size / max(1, total.size))).astype(x.dtype, copy=False)


@_mean.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return spread_of(node, dy, mean=True)


@composite
def reduce_mean(
    input_tensor: Any,
    axis: Any = None,
    keepdims: Any = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: Any = None,
) -> Tensor:
    """(1/n)·Σ x over the axes, rounded towards 0 for integers; NaN if there is nothing to add."""
    return built(_mean, input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


@composite
def reduce_variance(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """mean((x - mean(x))²) over the axes."""
    x = as_tensor(input_tensor, None, "input_tensor")
    if not x.dtype.is_floating:
        raise TypeError(f"reduce_variance: input_tensor: expected floats, got {x!r}")
    with x.graph.name_scope(name or "reduce_variance"):
        difference = squared_difference(x, reduce_mean(x, axis, keepdims=True))
        return reduce_mean(difference, axis, keepdims)


@composite
def reduce_std(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """√mean((x - mean(x))²) over the axes."""
    x = as_tensor(input_tensor, None, "input_tensor")
    with x.graph.name_scope(name or "reduce_std"):
        return sqrt(reduce_variance(x, axis, keepdims))


# -- product --------------------------------------------------------------------------------------


@op("Prod", types=REALS, shape=reduced_shape)
def _prod(xp: ArrayModule, x: Array, *, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
    wide = wide_dtype(x.dtype)
    return x.prod(axis=axis, dtype=wide, keepdims=keepdims).astype(x.dtype, copy=False)


@_prod.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return spread_of(node, dy) * _product_of_others(node.inputs[0], axis=node.attrs["axis"])


@op("ProductOfOthers", types=FLOATS)
def _product_of_others(xp: ArrayModule, x: Array, *, axis: tuple[int, ...] | None) -> Array:
    """For each element the product of all others along the axes, without dividing by it."""
    axes = range(x.ndim) if axis is None else [each % x.ndim for each in axis]
    order = [i for i in range(x.ndim) if i not in axes] + list(axes)
    kept = [x.shape[i] for i in order[: x.ndim - len(axes)]]
    wide = wide_dtype(x.dtype)
    rows = x.transpose(order).reshape(*kept, math.prod(x.shape[i] for i in axes)).astype(wide)
    ones = xp.ones((*kept, 1), wide)
    before = xp.cumprod(xp.concatenate([ones, rows[..., :-1]], -1), -1)
    after = xp.cumprod(xp.concatenate([ones, rows[..., :0:-1]], -1), -1)[..., ::-1]
    product = (before * after)[..., : rows.shape[-1]].reshape([x.shape[i] for i in order])
    return product.transpose([order.index(i) for i in range(x.ndim)]).astype(x.dtype)


@_product_of_others.gradient
def _(node: Operation, dy: Tensor) -> Any:
    # Exact unless an element is 0: there the second derivative of a product is NaN, as in TF.
    (x,) = node.inputs
    weighted = dy * node.outputs[0]
    total = _sum(weighted, axis=node.attrs["axis"], keepdims=True)
    return (total - weighted) / x


@composite
def reduce_prod(
    input_tensor: Any,
    axis: Any = None,
    keepdims: Any = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: Any = None,
) -> Tensor:
    """The product of x over the axes; 1 if there is nothing to multiply."""
    return built(_prod, input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


# -- extremes -------------------------------------------------------------------------------------


def extreme(
    xp: ArrayModule, x: Array, axis: tuple[int, ...] | None, keepdims: bool, name: str, empty: Any
) -> Array:
    """max or min; `empty`, the neutral element, where there is nothing to choose from."""
    shape = reduced_sizes(x.shape, {"axis": axis, "keepdims": keepdims})
    if x.size == 0:
        return xp.full(shape, empty, x.dtype)
    return getattr(x, name)(axis=axis, keepdims=keepdims)


def lowest(dtype: Any) -> Any:
    return as_dtype(dtype).min if dtype.kind in "iu" else -math.inf


def _highest(dtype: Any) -> Any:
    return as_dtype(dtype).max if dtype.kind in "iu" else math.inf


@op("Max", types=REALS, shape=reduced_shape)
def _max(xp: ArrayModule, x: Array, *, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
    return extreme(xp, x, axis, keepdims, "max", lowest(x.dtype))


@op("Min", types=REALS, shape=reduced_shape)
def _min(xp: ArrayModule, x: Array, *, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
    return extreme(xp, x, axis, keepdims, "min", _highest(x.dtype))


@_max.gradient
@_min.gradient
def _extreme_gradient(node: Operation, dy: Tensor) -> Any:
    """Equal parts for all elements that are the extreme."""
    (x,) = node.inputs
    chosen = cast(equal(x, spread_of(node, node.outputs[0])), x.dtype)
    count = _sum(chosen, axis=node.attrs["axis"], keepdims=node.attrs["keepdims"])
    return chosen * spread_of(node, dy / count)


@composite
def reduce_max(
    input_tensor: Any,
    axis: Any = None,
    keepdims: Any = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: Any = None,
) -> Tensor:
    """The largest x over the axes; -∞ (or the lowest integer) of nothing, NaN if one is NaN.

    Elements that share the largest value share the gradient equally.
    """
    return built(_max, input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


@composite
def reduce_min(
    input_tensor: Any,
    axis: Any = None,
    keepdims: Any = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: Any = None,
) -> Tensor:
    """The smallest x over the axes; ∞ (or the highest integer) of nothing, NaN if one is NaN.

    Elements that share the smallest value share the gradient equally.
    """
    return built(_min, input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


# -- truth and counts -----------------------------------------------------------------------------


@op("Any", types={bool_}, shape=reduced_shape, differentiable=False)
def _any(xp: ArrayModule, x: Array, *, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
    return x.any(axis=axis, keepdims=keepdims)


@op("All", types={bool_}, shape=reduced_shape, differentiable=False)
def _all(xp: ArrayModule, x: Array, *, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
    return x.all(axis=axis, keepdims=keepdims)


@composite
def reduce_any(
    input_tensor: Any,
    axis: Any = None,
    keepdims: Any = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: Any = None,
) -> Tensor:
    """Whether one holds over the axes; False of nothing."""
    return built(_any, input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


@composite
def reduce_all(
    input_tensor: Any,
    axis: Any = None,
    keepdims: Any = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: Any = None,
) -> Tensor:
    """Whether all hold over the axes; True of nothing."""
    return built(_all, input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


@composite
def count_nonzero(
    input_tensor: Any,
    axis: Any = None,
    keepdims: Any = None,
    dtype: Any = int64,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: Any = None,
) -> Tensor:
    """How many elements over the axes are not 0; int64, or `dtype`."""
    x = as_tensor(input_tensor, None, "input_tensor")
    with x.graph.name_scope(name or "count_nonzero"):
        nonzero = x if x.dtype is bool_ else not_equal(x, 0)
        counted = cast(nonzero, int64)
        total = reduce_sum(counted, axis, keepdims, None, reduction_indices, keep_dims)
        return cast(total, dtype)  # type: ignore[no-any-return]


# -- positions ------------------------------------------------------------------------------------


def _without_axis(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Shape:
    sizes = inputs[0].sizes
    return None if sizes is None else sizes[: attrs["axis"]] + sizes[attrs["axis"] + 1 :]


def _position(xp: ArrayModule, x: Array, axis: int, dtype: DType, name: str) -> Array:
    if x.shape[axis] == 0:
        raise InvalidArgumentError(f"input: expected elements along axis {axis}, got none")
    return getattr(xp, name)(x, axis=axis).astype(dtype.dtype)


def _output_type(_: Any, attrs: Any) -> DType:
    return attrs["output_type"]  # type: ignore[no-any-return]


@op("ArgMax", types=REALS | {bool_}, result=_output_type, shape=_without_axis, differentiable=False)
def _argmax(xp: ArrayModule, x: Array, *, axis: int, output_type: DType) -> Array:
    return _position(xp, x, axis, output_type, "argmax")


@op("ArgMin", types=REALS | {bool_}, result=_output_type, shape=_without_axis, differentiable=False)
def _argmin(xp: ArrayModule, x: Array, *, axis: int, output_type: DType) -> Array:
    return _position(xp, x, axis, output_type, "argmin")


@composite
def argmax(
    input: Any,
    axis: Any = None,
    name: str | None = None,
    dimension: Any = None,
    output_type: Any = int64,
) -> Tensor:
    """The position of the largest element along `axis` (0 if None), the first of equal ones.

    Args:
        input: numbers or truth values.
        axis: one axis.
        name: the operation's name.
        dimension: the older name of `axis`.
        output_type: int64 or int32.

    Raises:
        InvalidArgumentError: when run, there are no elements along the axis.
    """
    return _find(_argmax, input, one_of("axis", axis, "dimension", dimension), output_type, name)


@composite
def argmin(
    input: Any,
    axis: Any = None,
    name: str | None = None,
    dimension: Any = None,
    output_type: Any = int64,
) -> Tensor:
    """The position of the smallest element along `axis`; see `argmax`."""
    return _find(_argmin, input, one_of("axis", axis, "dimension", dimension), output_type, name)


def _find(finder: Any, x: Any, axis: Any, output_type: Any, name: str | None) -> Tensor:
    x = as_tensor(x, None, "input")
    rank = None if x.sizes is None else len(x.sizes)
    number = static_axis(0 if axis is None else axis, rank)
    dtype = as_dtype(output_type)
    if dtype not in INDEX_TYPES:
        raise TypeError(f"output_type: expected int32 or int64, got {dtype.name}")
    return finder(x, axis=number, output_type=dtype, name=name)  # type: ignore[no-any-return]


# -- running sums ---------------------------------------------------------------------------------


@op("Cumsum", types=REALS)
def _cumsum(xp: ArrayModule, x: Array, *, axis: int, exclusive: bool, reverse: bool) -> Array:
    wide = wide_dtype(x.dtype)
    rows = xp.flip(x, axis) if reverse else x
    if exclusive:
        rows = xp.moveaxis(rows, axis, 0)
        rows = xp.moveaxis(xp.concatenate([xp.zeros_like(rows[:1]), rows[:-1]]), 0, axis)
    total = xp.cumsum(rows, axis=axis, dtype=wide).astype(x.dtype, copy=False)
    return xp.flip(total, axis) if reverse else total


@_cumsum.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return _cumsum(dy, **{**node.attrs, "reverse": not node.attrs["reverse"]})


@composite
def cumsum(
    x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """The running sum along one axis: y_i = x_0 + ... + x_i.

    Args:
        x: numbers.
        axis: the axis.
        exclusive: leave x_i itself out.
        reverse: add up from the end.
        name: the operation's name.
    """
    x = as_tensor(x, None, "x")
    number = static_axis(axis, None if x.sizes is None else len(x.sizes))
    return _cumsum(x, axis=number, exclusive=bool(exclusive), reverse=bool(reverse), name=name)


# -- NumPy's functions ----------------------------------------------------------------------------


def _numpy_function(reduction: Any, convert: Any = None) -> Any:
    def function(a: Any, axis: Any = None, *, keepdims: bool = False) -> Tensor:
        return built(reduction, a if convert is None else convert(a), axis, keepdims, None)

    return function


def _truth(a: Any) -> Tensor:
    x = as_tensor(a)
    return x if x.dtype is bool_ else not_equal(x, 0)


def _numpy_var(a: Any, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    return reduce_variance(a, axis, keepdims)


def _numpy_std(a: Any, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    return reduce_std(a, axis, keepdims)


def _numpy_argmax(a: Any, axis: Any = None) -> Tensor:
    return argmax(_flat_unless(a, axis), axis)


def _numpy_argmin(a: Any, axis: Any = None) -> Tensor:
    return argmin(_flat_unless(a, axis), axis)


def _numpy_cumsum(a: Any, axis: Any = None) -> Tensor:
    return cumsum(_flat_unless(a, axis), 0 if axis is None else axis)


def _flat_unless(a: Any, axis: Any) -> Any:
    """NumPy's functions look at the flattened array when no axis is given."""
    return OPERATORS["function:ravel"](a) if axis is None else a


OPERATORS.update(
    {
        "function:sum": _numpy_function(_sum),
        "function:mean": _numpy_function(_mean),
        "function:prod": _numpy_function(_prod),
        "function:max": _numpy_function(_max),
        "function:amax": _numpy_function(_max),
        "function:min": _numpy_function(_min),
        "function:amin": _numpy_function(_min),
        "function:any": _numpy_function(_any, _truth),
        "function:all": _numpy_function(_all, _truth),
        "function:var": _numpy_var,
        "function:std": _numpy_std,
        "function:argmax": _numpy_argmax,
        "function:argmin": _numpy_argmin,
        "function:cumsum": _numpy_cumsum,
    }
)
