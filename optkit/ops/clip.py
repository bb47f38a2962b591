"""Clipping by value and by norm.

Rows of an IndexedSlices that are named twice are added up before anything is measured, so a norm
is that of the gradient which will be applied; the result stays an IndexedSlices. float16 is
measured and scaled in float32. An infinite threshold clips nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from optkit.backend.arrays import side_by_side
from optkit.backend.cuda.elementwise import elementwise
from optkit.backend.cuda.norm import can_measure, device_norm
from optkit.backend.cuda.sources import register_formula
from optkit.dtypes import FLOATS, DType, bfloat16, float16, float32, float64
from optkit.graph import IndexedSlices, Operation, Tensor, get_default_graph, is_symbolic
from optkit.ops.arguments import axis_in, static_ints
from optkit.ops.array import size
from optkit.ops.core import Array, ArrayModule, as_tensor, composite, constant, op
from optkit.ops.logic import REALS, greater, less, logical_or
from optkit.ops.math import cast, check_numerics, div_no_nan, select
from optkit.ops.sparse import deduplicate
from optkit.shapes import Shape

__all__ = [
    "clip_by_average_norm",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "global_norm",
    "norm_of_parts",
    "norm_runs",
]

# -- by value -------------------------------------------------------------------------------------


@op("ClipByValue", types=REALS, broadcasts=True)
def _clip_by_value(
    xp: ArrayModule, t: Array, clip_value_min: Array, clip_value_max: Array
) -> Array:
    return xp.minimum(xp.maximum(t, clip_value_min), clip_value_max)


@_clip_by_value.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    t, low, high = node.inputs
    below, above = less(t, low), greater(t, high)
    inner = select(logical_or(below, above), 0, dy)
    return inner, select(below, dy, 0), select(above, dy, 0)


@composite
def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None) -> Any:
    """min(max(t, clip_value_min), clip_value_max); the gradient is zero where that changes t.

    Args:
        t: a tensor or an IndexedSlices.
        clip_value_min: a number or tensor of t's dtype that broadcasts to t.
        clip_value_max: the same.
        name: the node's name.

    Raises:
        TypeError: the limits have another dtype.
        ValueError: the limits have a larger shape than t.
    """
    label = name or "clip_by_value"
    if isinstance(t, IndexedSlices):
        return _on_values(
            lambda values: clip_by_value(values, clip_value_min, clip_value_max, label),
            deduplicate(t),
        )
    tensor = as_tensor(t)
    clipped = _clip_by_value(tensor, clip_value_min, clip_value_max, name=label)
    if not tensor.shape.is_compatible_with(clipped.sizes):
        raise ValueError(
            f"clip_by_value: expected limits that broadcast to {tensor!r}, but with them the "
            f"shape is {clipped.shape}"
        )
    return clipped


def _on_values(function: Callable[[Tensor], Tensor], slices: IndexedSlices) -> IndexedSlices:
    return IndexedSlices(function(slices.values), slices.indices, slices.dense_shape)


# -- norms ----------------------------------------------------------------------------------------


def _wide(dtype: DType) -> DType:
    """The dtype to measure in: that of the values, but at least float32."""
    return float32 if dtype in (float16, bfloat16) else dtype


def _wide_result(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> DType:
    return _wide(inputs[0].dtype)


def _widened(xp: ArrayModule, x: Array) -> Array:
    return x.astype(xp.float32) if x.dtype.itemsize < 4 else x


_SMALL = 1 << 12
"""Elements up to which a tensor is measured together with its neighbours."""


@op("GlobalNorm", types=FLOATS, result=_wide_result, shape=())
def _global_norm(xp: ArrayModule, *tensors: Array) -> Array:
    """√Σ t² over all elements of all tensors; on a device with the same bits in every run."""
    if xp is not np and can_measure(tensors[0].dtype):
        return device_norm(tensors)
    flats = [xp.ascontiguousarray(_widened(xp, tensor)).reshape(-1) for tensor in tensors]
    parts = []
    for first, stop in norm_runs([flat.size for flat in flats]):
        run = flats[first:stop]
        parts.append(run[0] if len(run) == 1 else side_by_side(xp, run))
    return norm_of_parts(xp, parts)


def norm_of_parts(xp: ArrayModule, parts: Sequence[Array]) -> Array:
    """√Σ x² over flat arrays."""
    total: Any = 0
    for part in parts:
        total = total + xp.dot(part, part)
    return xp.sqrt(total)


def norm_runs(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """How a norm is taken over tensors of these sizes: in runs [first, stop) of neighbours.

    A run is small tensors laid side by side, or one large one. Rounding depends on what is added
    up together, so a norm is defined by its tensors and not by where a session keeps them.
    """
    runs: list[tuple[int, int]] = []
    for i, elements in enumerate(sizes):
        joins = runs and max(elements, sizes[i - 1]) <= _SMALL
        runs[-1 if joins else len(runs) :] = [(runs[-1][0] if joins else i, i + 1)]
    return runs


@_global_norm.gradient
def _(node: Operation, dy: Tensor) -> list[Tensor]:
    # t/norm, and 0 at the zero vector, where the norm has no derivative.
    ratio = div_no_nan(dy, node.outputs[0])
    return [_scaled(tensor, ratio) for tensor in node.inputs]


def _kept(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Shape:
    sizes = inputs[0].sizes
    if sizes is None:
        return None
    gone = {axis_in(axis, len(sizes), "axes") for axis in attrs["axes"]}
    return tuple(1 if axis in gone else item for axis, item in enumerate(sizes))


@op("L2Norm", types=FLOATS, result=_wide_result, shape=_kept)
def _norm_along(xp: ArrayModule, t: Array, *, axes: tuple[int, ...]) -> Array:
    """√Σ t² over some axes, which stay with size 1."""
    wide = _widened(xp, t)
    return xp.sqrt((wide * wide).sum(axis=axes, keepdims=True))


@_norm_along.gradient
def _(node: Operation, dy: Tensor) -> Tensor:
    return _scaled(node.inputs[0], div_no_nan(dy, node.outputs[0]))


def _scaled(t: Tensor, factor: Tensor) -> Tensor:
    """t·factor in t's dtype, computed in the wider of the two dtypes."""
    if t.dtype is factor.dtype:
        return t * factor  # type: ignore[no-any-return]
    if _wide(t.dtype) is t.dtype:
        return t * cast(factor, t.dtype)  # type: ignore[no-any-return]
    return cast(cast(t, factor.dtype) * factor, t.dtype)  # type: ignore[no-any-return]


@op("ClipFactor", types=FLOATS, broadcasts=True)
def _clip_factor(
    xp: ArrayModule, norm: Array, clip_norm: Array, *, negative: int, strict: bool
) -> Array:
    """What scales a norm down to a threshold: clip_norm/norm, and 1 where it is not above.

    `negative` is the factor of a negative threshold. With `strict` a norm that is infinite or NaN
    gives NaN, unless the threshold is infinite.
    """
    formula = _FACTORS[negative, strict]
    factor = None if xp is np else elementwise(formula, norm, clip_norm)
    return formula(xp, norm, clip_norm) if factor is None else factor


def _factor_formula(negative: int, strict: bool) -> Callable[..., Array]:
    def formula(xp: ArrayModule, norm: Array, clip_norm: Array) -> Array:
        ratio = clip_norm / norm
        factor = xp.where((norm <= clip_norm) | (clip_norm == xp.inf), 1, ratio)
        factor = xp.where(clip_norm < 0, negative, factor)
        if strict:
            bad = ~xp.isfinite(norm) & (clip_norm != xp.inf)
            factor = xp.where(bad, xp.nan, factor)
        return factor

    return formula


_FACTORS = {
    (negative, strict): _factor_formula(negative, strict)
    for negative in (0, 1)
    for strict in (False, True)
}
for (_negative, _strict), _formula in _FACTORS.items():
    register_formula(f"clip_factor_{_negative}_{_strict:d}", _formula, 2)


@_clip_factor.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, Tensor]:
    norm, clip_norm = node.inputs
    # A threshold below zero gives a constant.
    clipping = greater(norm, select(less(clip_norm, 0), float("inf"), clip_norm))
    return (
        select(clipping, -dy * clip_norm / norm / norm, 0),
        select(clipping, dy / norm, 0),
    )


def _threshold(clip_norm: Any, dtype: DType) -> Tensor:
    if is_symbolic(clip_norm):
        return cast(clip_norm, dtype)  # type: ignore[no-any-return]
    if isinstance(clip_norm, bool):
        raise TypeError(f"clip_norm: expected a number, got {clip_norm}")
    try:
        return as_tensor(clip_norm, dtype, "clip_norm")
    except (TypeError, ValueError) as error:
        raise TypeError(f"clip_norm: {error}") from error


# -- one tensor -----------------------------------------------------------------------------------


@composite
def clip_by_norm(t: Any, clip_norm: Any, axes: Any = None, name: str | None = None) -> Any:
    """t·min(1, clip_norm/‖t‖): t scaled down to a norm of `clip_norm` where it has a larger one.

    Args:
        t: a tensor or an IndexedSlices; None stays None.
        clip_norm: a number or tensor; infinity clips nothing, a negative one gives zeros.
        axes: the axes to measure over; all if None.
        name: the name scope.

    Returns:
        t's kind, shape and dtype. At t = 0 the gradient is that of the identity. An infinite
        element becomes NaN and the others 0, as in TF.
    """
    if t is None:
        return None
    with get_default_graph().name_scope(name or "clip_by_norm"):
        if isinstance(t, IndexedSlices):
            return _on_values(lambda x: _clipped(x, clip_norm, axes), deduplicate(t))
        return _clipped(as_tensor(t, name="t"), clip_norm, axes)


@composite
def clip_by_average_norm(t: Any, clip_norm: Any, name: str | None = None) -> Tensor:
    """t·min(1, clip_norm/a) with a = ‖t‖/(number of elements), as TF defines it."""
    with get_default_graph().name_scope(name or "clip_by_average_norm"):
        tensor = as_tensor(t, name="t")
        return _clipped(tensor, clip_norm, None, size(tensor))


def _clipped(t: Tensor, clip_norm: Any, axes: Any, count: Tensor | None = None) -> Tensor:
    """t scaled down to a norm, or with a count a norm/count, of `clip_norm`."""
    norm = _global_norm(t) if axes is None else _norm_along(t, axes=static_ints(axes, "axes"))
    if count is not None:
        norm = norm / cast(count, norm.dtype)
    threshold = _threshold(clip_norm, norm.dtype)
    return _scaled(t, _clip_factor(norm, threshold, negative=0, strict=False))


# -- several tensors ------------------------------------------------------------------------------


def _merged(t_list: Any) -> list[Any]:
    """The tensors, IndexedSlices with duplicates added up, and None of a list."""
    if isinstance(t_list, str | bytes) or not isinstance(t_list, Sequence):
        raise TypeError(f"t_list: expected a list of tensors, got {t_list!r}")
    return [
        item
        if item is None
        else deduplicate(item)
        if isinstance(item, IndexedSlices)
        else as_tensor(item)
        for item in t_list
    ]


def _values(items: Sequence[Any]) -> list[Tensor]:
    return [
        item.values if isinstance(item, IndexedSlices) else item
        for item in items
        if item is not None
    ]


def _norm_of(values: Sequence[Tensor]) -> Tensor:
    """The norm of all values together, in the widest dtype among them, at least float32."""
    if not values:
        return constant(0.0)
    dtypes = {tensor.dtype for tensor in values}
    if len(dtypes) > 1:
        widest = float64 if float64 in dtypes else float32
        values = [cast(tensor, widest) for tensor in values]
    return _global_norm(*values)


def _in_their_dtype(norm: Tensor, values: Sequence[Tensor]) -> Tensor:
    """A norm of float16 values alone is float16."""
    dtypes = {tensor.dtype for tensor in values}
    return cast(norm, dtypes.pop()) if len(dtypes) == 1 else norm


@composite
def global_norm(t_list: Any, name: str | None = None) -> Tensor:
    """√Σ‖t‖² over a list of tensors and IndexedSlices; None is left out, an empty list gives 0.

    The dtype is that of the tensors, the widest if they differ; sums of float16 are float32.

    Raises:
        TypeError: `t_list` is no list, or a tensor is not floating.
    """
    with get_default_graph().name_scope(name or "global_norm"):
        values = _values(_merged(t_list))
        return _in_their_dtype(_norm_of(values), values)


@composite
def clip_by_global_norm(
    t_list: Any,
    clip_norm: Any,
    use_norm: Any = None,
    name: str | None = None,
    *,
    error_if_nonfinite: bool = False,
) -> tuple[list[Any], Tensor]:
    """Tensors scaled by min(1, clip_norm/n), with n the norm of all of them together.

    Args:
        t_list: tensors, IndexedSlices and None, which stays None.
        clip_norm: a number or tensor; infinity clips nothing, nor does a negative one, as in TF.
        use_norm: n, if it is known already.
        name: the name scope.
        error_if_nonfinite: raise when n is infinite or NaN; a run that raises changes nothing.

    Returns:
        The clipped list and n. If n is infinite or NaN, all elements become NaN, as in TF.

    Raises:
        TypeError: `t_list` is no list, or a tensor is not floating.
        InvalidArgumentError: when run, with `error_if_nonfinite`, n is infinite or NaN.
    """
    with get_default_graph().name_scope(name or "clip_by_global_norm"):
        items = _merged(t_list)
        values = _values(items)
        if use_norm is None:
            norm = _norm_of(values)
            shown = _in_their_dtype(norm, values)
        else:
            norm = shown = as_tensor(use_norm, name="use_norm")
            norm = cast(norm, _wide(norm.dtype))
        if not values:
            return items, shown
        if error_if_nonfinite:
            norm = check_numerics(norm, "the global norm is inf or nan")
        threshold = _threshold(clip_norm, norm.dtype)
        factor = _clip_factor(norm, threshold, negative=1, strict=True)
        return [
            item
            if item is None
            else _on_values(lambda x: _scaled(x, factor), item)
            if isinstance(item, IndexedSlices)
            else _scaled(item, factor)
            for item in items
        ], shown
