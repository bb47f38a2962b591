"""log Σ exp, softmax and its logarithm, computed without overflow."""

from __future__ import annotations

from typing import Any

from optkit.backend.special import wide_dtype
from optkit.dtypes import FLOATS
from optkit.graph import Operation, Tensor
from optkit.ops.arguments import one_of
from optkit.ops.core import Array, ArrayModule, as_tensor, composite, op
from optkit.ops.elementary import exp
from optkit.ops.reductions import (
    built,
    extreme,
    lowest,
    reduce_sum,
    reduced_shape,
    reduced_sizes,
    spread_of,
    static_axis,
    total_of,
)

__all__ = ["log_softmax", "reduce_logsumexp", "softmax"]


def shifted_exponentials(
    xp: ArrayModule, x: Array, axis: int | tuple[int, ...] | None
) -> tuple[Array, Array, Array]:
    """x - max(x), its exponential, and the sum of that, over the axes; in float32 for 16 bits."""
    x = x.astype(wide_dtype(x.dtype), copy=False)
    shifted = x - x.max(axis=axis, keepdims=True)
    e = xp.exp(shifted)
    return shifted, e, e.sum(axis=axis, keepdims=True)


@op("Softmax", types=FLOATS)
def _softmax(xp: ArrayModule, logits: Array, *, axis: int | tuple[int, ...] | None) -> Array:
    if logits.size == 0:
        return logits
    _, e, total = shifted_exponentials(xp, logits, axis)
    return (e / total).astype(logits.dtype, copy=False)


@_softmax.gradient
def _(node: Operation, dy: Tensor) -> Any:
    y, axis = node.outputs[0], node.attrs["axis"]
    return (dy - reduce_sum(dy * y, axis, keepdims=True)) * y


@op("LogSoftmax", types=FLOATS)
def _log_softmax(xp: ArrayModule, logits: Array, *, axis: int) -> Array:
    if logits.size == 0:
        return logits
    shifted, _, total = shifted_exponentials(xp, logits, axis)
    return (shifted - xp.log(total)).astype(logits.dtype, copy=False)


@_log_softmax.gradient
def _(node: Operation, dy: Tensor) -> Any:
    total = reduce_sum(dy, node.attrs["axis"], keepdims=True)
    return dy - total * exp(node.outputs[0])


def class_axis(logits: Tensor, axis: Any) -> int:
    """The axis of the classes, the last by default.

    Raises:
        ValueError: the logits are a scalar or have no such axis.
    """
    if logits.sizes == ():
        raise ValueError(f"logits: expected at least one axis, got {logits!r}")
    rank = None if logits.sizes is None else len(logits.sizes)
    return static_axis(-1 if axis is None else axis, rank)


@composite
def softmax(logits: Any, axis: Any = None, name: str | None = None, dim: Any = None) -> Tensor:
    """exp(x)/Σ exp(x) over one axis, the last if None; `dim` is its older name."""
    x = as_tensor(logits, None, "logits")
    return _softmax(x, axis=class_axis(x, one_of("axis", axis, "dim", dim)), name=name)


@composite
def log_softmax(logits: Any, axis: Any = None, name: str | None = None, dim: Any = None) -> Tensor:
    """x - log Σ exp(x) over one axis, the last if None; `dim` is its older name."""
    x = as_tensor(logits, None, "logits")
    return _log_softmax(x, axis=class_axis(x, one_of("axis", axis, "dim", dim)), name=name)


@op("LogSumExp", types=FLOATS, shape=reduced_shape)
def _logsumexp(xp: ArrayModule, x: Array, *, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
    top = extreme(xp, x, axis, True, "max", lowest(x.dtype))
    # An infinite largest value would turn ∞ - ∞ into NaN.
    top = xp.where(xp.isfinite(top), top, xp.zeros((), x.dtype))
    total = total_of(xp, xp.exp(x - top), axis, True)
    result = (xp.log(total) + top).astype(x.dtype, copy=False)
    return result.reshape(reduced_sizes(x.shape, {"axis": axis, "keepdims": keepdims}))


@_logsumexp.gradient
def _(node: Operation, dy: Tensor) -> Any:
    # Not exp(x - y): y near 10⁴ has no room for the digits of log Σ.
    return spread_of(node, dy) * _softmax(node.inputs[0], axis=node.attrs["axis"])


@composite
def reduce_logsumexp(
    input_tensor: Any,
    axis: Any = None,
    keepdims: Any = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: Any = None,
) -> Tensor:
    """log Σ exp(x) over the axes, without overflow; -∞ if there is nothing to add."""
    name = name or "ReduceLogSumExp"
    return built(_logsumexp, input_tensor, axis, keepdims, name, reduction_indices, keep_dims)
