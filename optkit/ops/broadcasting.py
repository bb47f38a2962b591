"""Undoing and redoing NumPy's broadcasting; what the gradients engine needs of it."""

from __future__ import annotations

from optkit.graph import Operation, Tensor
from optkit.ops.core import ALL_TYPES, Array, ArrayModule, op

__all__ = ["broadcast_like", "sum_to_like"]


@op("SumToLike", accepts={"like": ALL_TYPES}, shape=lambda inputs, _: inputs[1].sizes)
def sum_to_like(xp: ArrayModule, x: Array, like: Array) -> Array:
    """x summed over the axes along which `like` was broadcast to x's shape; the shape of `like`."""
    if x.shape == like.shape:
        return x
    lead = x.ndim - like.ndim
    axes = tuple(
        axis for axis in range(x.ndim) if axis < lead or like.shape[axis - lead] != x.shape[axis]
    )
    # float16 would overflow and round while adding up.
    wide = xp.float32 if x.dtype == xp.float16 else x.dtype
    return x.sum(axis=axes, dtype=wide).reshape(like.shape).astype(x.dtype, copy=False)


@op("BroadcastLike", accepts={"like": ALL_TYPES}, shape=lambda inputs, _: inputs[1].sizes)
def broadcast_like(xp: ArrayModule, x: Array, like: Array) -> Array:
    """x broadcast to the shape of `like`."""
    return xp.broadcast_to(x, like.shape)


@sum_to_like.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, None]:
    return broadcast_like(dy, node.inputs[0]), None


@broadcast_like.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, None]:
    return sum_to_like(dy, node.inputs[0]), None
