"""Local response normalisation across channels (Krizhevsky et al., 2012)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optkit.backend.special import wide_dtype
from optkit.dtypes import FLOATS, bfloat16, float16, float32
from optkit.graph import Operation, Tensor
from optkit.ops.arguments import static_int
from optkit.ops.core import Array, ArrayModule, composite, op
from optkit.ops.math import cast
from optkit.ops.windows import four_axes
from optkit.shapes import Shape

__all__ = ["local_response_normalization", "lrn"]


def _images(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Shape:
    return four_axes(inputs[0].sizes, "input", "NHWC")


@op("LRN", types=FLOATS, shape=_images)
def _lrn(
    xp: ArrayModule, input: Array, *, depth_radius: int, bias: float, alpha: float, beta: float
) -> Array:
    x = input.astype(wide_dtype(input.dtype), copy=False)
    total = bias + alpha * _near(xp, x * x, depth_radius)
    return (x * xp.power(total, -beta)).astype(input.dtype, copy=False)


@_lrn.gradient
def _(node: Operation, dy: Tensor) -> Any:
    # With s = bias + alpha·near(x²): dx = dy·s^-beta - 2·alpha·beta·x·near(dy·x·s^(-beta-1)).
    (x,), attrs = node.inputs, node.attrs
    radius, alpha, beta = attrs["depth_radius"], attrs["alpha"], attrs["beta"]
    wide = [cast(each, float32) if each.dtype in (float16, bfloat16) else each for each in (x, dy)]
    images, dresult = wide
    total = attrs["bias"] + alpha * _channel_sum(images * images, depth_radius=radius)
    scaled = dresult * total**-beta
    near = _channel_sum(scaled * images / total, depth_radius=radius)
    return cast(scaled - (2 * alpha * beta) * images * near, x.dtype)


@op("LRNSum", types=FLOATS)
def _channel_sum(xp: ArrayModule, x: Array, *, depth_radius: int) -> Array:
    """The sums over channels at most depth_radius apart; a symmetric linear map."""
    wide = x.astype(wide_dtype(x.dtype), copy=False)
    return _near(xp, wide, depth_radius).astype(x.dtype, copy=False)


@_channel_sum.gradient
def _(node: Operation, dy: Tensor) -> Tensor:
    return _channel_sum(dy, **node.attrs)


def _near(xp: ArrayModule, x: Array, radius: int) -> Array:
    channels = x.shape[-1]
    total = x.copy()
    for distance in range(1, min(radius, channels - 1) + 1):
        total[..., distance:] += x[..., :-distance]
        total[..., :-distance] += x[..., distance:]
    return total


@composite
def local_response_normalization(
    input: Any,
    depth_radius: Any = 5,
    bias: Any = 1,
    alpha: Any = 1,
    beta: Any = 0.5,
    name: str | None = None,
) -> Tensor:
    """x/(bias + alpha·Σ x²)^beta, the sum over the channels at most `depth_radius` away.

    Args:
        input: floats, shape (batch, height, width, channels).
        depth_radius: an int ≥ 0.
        bias: added to the sum.
        alpha: scales the sum.
        beta: the exponent.
        name: the operation's name.

    Raises:
        ValueError: there are not four axes, or the radius is negative.
    """
    radius = static_int(depth_radius, "depth_radius")
    if radius < 0:
        raise ValueError(f"depth_radius: expected an int ≥ 0, got {radius}")
    return _lrn(
        input,
        depth_radius=radius,
        bias=float(bias),
        alpha=float(alpha),
        beta=float(beta),
        name=name,
    )


lrn = local_response_normalization
