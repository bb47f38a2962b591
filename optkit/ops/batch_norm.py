"""Batch normalisation (Ioffe & Szegedy, arXiv:1502.03167), and weighted moments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from optkit.backend.special import wide_dtype
from optkit.dtypes import FLOATS, DType, bfloat16, float16, float32, float64
from optkit.graph import Operation, Tensor, get_default_graph
from optkit.ops.arguments import is_zero, one_of
from optkit.ops.array import expand_dims, reshape, size, squeeze, zeros_like
from optkit.ops.core import Array, ArrayModule, as_tensor, composite, op
from optkit.ops.elementary import rsqrt
from optkit.ops.math import cast, divide, maximum, squared_difference
from optkit.ops.reductions import reduce_mean, reduce_sum, total_of
from optkit.shapes import Shape, TensorShape

__all__ = [
    "batch_normalization",
    "fused_batch_norm",
    "least_epsilon",
    "normalized_batch",
    "parameter_dtype",
    "weighted_moments",
]


def parameter_dtype(dtype: DType) -> DType:
    """The dtype of what goes with a normalised tensor: float32 for 16-bit floats."""
    return float32 if dtype in (float16, bfloat16) else dtype


def _types(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> list[tuple[DType, Shape]]:
    x, scale, offset = inputs
    if x.sizes is None:
        raise ValueError(f"x: expected a known rank, got {x!r}")
    kept = TensorShape([n for i, n in enumerate(x.sizes) if i not in attrs["axes"]])
    for name, parameter in (("scale", scale), ("offset", offset)):
        if parameter.dtype is not parameter_dtype(x.dtype):
            raise TypeError(
                f"{name}: expected {parameter_dtype(x.dtype).name} beside {x!r}, got {parameter!r}"
            )
        if not kept.is_compatible_with(parameter.sizes):
            raise ValueError(f"{name}: expected shape {kept} beside {x!r}, got {parameter!r}")
    sizes = kept.merge_with(scale.sizes).merge_with(offset.sizes).sizes
    return [(x.dtype, x.sizes), (scale.dtype, sizes), (scale.dtype, sizes)]


_PARAMETERS = frozenset({float32, float64})


@op(
    "FusedBatchNorm",
    types=FLOATS,
    accepts={"scale": _PARAMETERS, "offset": _PARAMETERS},
    infer=_types,
)
def _batch_norm(
    xp: ArrayModule,
    x: Array,
    scale: Array,
    offset: Array,
    *,
    axes: tuple[int, ...],
    epsilon: float,
    correction: int,
) -> tuple[Array, Array, Array]:
    """x with mean 0 and variance 1 over `axes`, times scale plus offset; the mean, the variance.

    The variance given is Σ(x - mean)²/(n - correction); x is divided by that of correction 0.
    """
    wide, kept, n = _columns(x, axes)
    mean = total_of(xp, wide, axes, True) / n
    centred = wide - mean
    squares = total_of(xp, centred * centred, axes, True)
    centred *= scale.reshape(kept) / xp.sqrt(squares / n + epsilon)
    centred += offset.reshape(kept)
    variance = squares / _degrees(n, correction)
    return (
        centred.astype(x.dtype, copy=False),
        mean.reshape(scale.shape),
        variance.reshape(scale.shape),
    )


def _columns(x: Array, axes: tuple[int, ...]) -> tuple[Array, list[int], Any]:
    """x wide enough to add up, the shape of its mean with `axes` kept, and how many it is of."""
    wide = x.astype(wide_dtype(x.dtype), copy=False)
    kept = [1 if i in axes else n for i, n in enumerate(x.shape)]
    # As a NumPy number: 0/0 is NaN then, the mean of nothing.
    return wide, kept, wide.dtype.type(math.prod(x.shape[i] for i in axes))


def _degrees(n: Any, correction: int) -> Any:
    # One element has no variance of a sample, so it counts; of none there is no variance at all.
    return max(n - correction, min(n, 1)) if correction else n


@op(
    "FusedBatchNormGrad",
    types=FLOATS,
    accepts={"scale": _PARAMETERS, "mean": _PARAMETERS, "variance": _PARAMETERS},
    infer=lambda inputs, _: (
        [(inputs[1].dtype, inputs[1].sizes)] + [(inputs[2].dtype, inputs[2].sizes)] * 2
    ),
)
def _batch_norm_grad(
    xp: ArrayModule,
    dy: Array,
    x: Array,
    scale: Array,
    mean: Array,
    variance: Array,
    *,
    axes: tuple[int, ...],
    epsilon: float,
    correction: int,
) -> tuple[Array, Array, Array]:
    """What comes of dy for x, scale and offset; mean and variance are those of x.

    With x̂ = (x - mean)/σ:  doffset = Σ dy;  dscale = Σ dy·x̂;
    dx = scale/σ · (dy - doffset/n - x̂·dscale/n).
    """
    wide, kept, n = _columns(x, axes)
    dy = dy.astype(wide.dtype, copy=False)
    shape = scale.shape
    scale, mean, variance = (each.reshape(kept) for each in (scale, mean, variance))
    inverse = 1 / xp.sqrt(variance * (_degrees(n, correction) / n) + epsilon)
    dx = wide - mean
    doffset = total_of(xp, dy, axes, True)
    dscale = total_of(xp, dx * dy, axes, True) * inverse
    dx *= -dscale * inverse / n
    dx -= doffset / n
    dx += dy
    dx *= scale * inverse
    return dx.astype(x.dtype, copy=False), dscale.reshape(shape), doffset.reshape(shape)


class _Standardised:
    """x̂ = (x - mean)/σ as graph tensors, and what gradients of it are made of."""

    def __init__(
        self, x: Tensor, scale: Tensor, mean: Tensor, variance: Tensor, attrs: Any
    ) -> None:
        self._axes = attrs["axes"]
        self.scale = self.along(scale)
        self.n = cast(size(x), scale.dtype) / cast(size(mean), scale.dtype)
        factor = maximum(self.n - 1, 1) / self.n if attrs["correction"] else 1
        self.inverse: Any = rsqrt(self.along(variance) * factor + attrs["epsilon"])
        self.centred: Any = cast(x, scale.dtype) - self.along(mean)
        self.x: Any = self.centred * self.inverse

    def along(self, parameter: Tensor) -> Any:
        """A parameter with the axes that x is averaged over, of size 1."""
        for axis in self._axes:
            parameter = expand_dims(parameter, axis)
        return parameter

    def mean(self, g: Any) -> Any:
        return reduce_mean(g, self._axes, keepdims=True)

    def total(self, g: Any) -> Any:
        return reduce_sum(g, self._axes)

    def projected(self, g: Any) -> Any:
        """The part of g that changes neither the mean nor the variance of x."""
        return g - self.mean(g) - self.x * self.mean(g * self.x)


@_batch_norm.gradient
def _(node: Operation, dy: Tensor, dmean: Tensor, dvariance: Tensor) -> tuple[Any, Any, Any]:
    (x, scale, _), (_, mean, variance) = node.inputs, node.outputs
    dx: Any
    dx, dscale, doffset = _batch_norm_grad.node(dy, x, scale, mean, variance, **node.attrs).outputs
    if not (is_zero(dmean) and is_zero(dvariance)):
        of = _Standardised(x, scale, mean, variance, node.attrs)
        degrees = maximum(of.n - 1, 1) if node.attrs["correction"] else of.n
        moved = of.along(dmean) / of.n + of.along(dvariance) * of.centred * (2 / degrees)
        dx = dx + cast(moved, x.dtype)
    return dx, dscale, doffset


@_batch_norm_grad.gradient
def _(
    node: Operation, ddx: Tensor, ddscale: Tensor, ddoffset: Tensor
) -> tuple[Any, Any, Any, None, None]:
    dy, x, scale, mean, variance = node.inputs
    of = _Standardised(x, scale, mean, variance, node.attrs)
    wide_dy, wide_ddx = cast(dy, scale.dtype), cast(ddx, scale.dtype)
    g = wide_dy * of.scale
    projected = of.inverse * of.projected(wide_ddx)
    to_dy = of.scale * projected + of.x * of.along(ddscale) + of.along(ddoffset)
    to_scale = of.total(wide_dy * projected)
    # What x does by way of x̂, and by way of the factor 1/σ.
    by_x = of.along(ddscale) * wide_dy - of.inverse * (
        wide_ddx * of.mean(g * of.x) + g * of.mean(wide_ddx * of.x)
    )
    by_inverse = of.mean(wide_ddx * of.projected(g))
    to_x = of.inverse * of.projected(by_x) - of.inverse * of.inverse * of.x * by_inverse
    return cast(to_dy, dy.dtype), cast(to_x, x.dtype), to_scale, None, None


def normalized_batch(
    x: Tensor,
    scale: Any,
    offset: Any,
    axes: Sequence[int],
    epsilon: float,
    correction: int = 0,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(x - mean)/√(variance + epsilon)·scale + offset, the mean, and the variance.

    Args:
        x: floats of known rank.
        scale: a number for each place on the axes that stay; see `parameter_dtype`.
        offset: the same.
        axes: the axes that mean and variance are taken over.
        epsilon: added to the variance.
        correction: 1 makes the variance that is returned Σ(x - mean)²/(n - 1); y does not change.
        name: the operation's name.

    Raises:
        TypeError, ValueError: dtypes or shapes do not fit.
    """
    y, mean, variance = _batch_norm.node(
        x, scale, offset, axes=tuple(axes), epsilon=float(epsilon), correction=correction, name=name
    ).outputs
    return y, mean, variance


@composite
def batch_normalization(
    x: Any,
    mean: Any,
    variance: Any,
    offset: Any,
    scale: Any,
    variance_epsilon: Any,
    name: str | None = None,
) -> Tensor:
    """(x - mean)/√(variance + variance_epsilon)·scale + offset.

    Args:
        x: floats.
        mean: broadcasts to x, as do the following.
        variance: at least 0.
        offset: None for none.
        scale: None for none.
        variance_epsilon: a small number that keeps the divisor from 0.
        name: the name scope.
    """
    with get_default_graph().name_scope(name or "batchnorm"):
        x = as_tensor(x, name="x")
        factor: Any = rsqrt(as_tensor(variance, name="variance") + variance_epsilon)
        if scale is not None:
            factor = factor * scale
        shift = -mean * factor if offset is None else offset - mean * factor
        return x * cast(factor, x.dtype) + cast(shift, x.dtype)  # type: ignore[no-any-return]


def least_epsilon(epsilon: float) -> float:
    """The epsilon that TF's fused operation uses: it has a lower bound from cuDNN."""
    return max(epsilon, 1.001e-5)


@composite
def fused_batch_norm(
    x: Any,
    scale: Any,
    offset: Any,
    mean: Any = None,
    variance: Any = None,
    epsilon: float = 0.001,
    data_format: str = "NHWC",
    is_training: bool = True,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Images normalised channel by channel, and the moments used.

    Args:
        x: shape (batch, height, width, channels), or (batch, channels, height, width).
        scale: a number a channel; float32 beside 16-bit floats.
        offset: the same.
        mean: the channels' means when not training; must be None in training.
        variance: the channels' variances when not training; must be None in training.
        epsilon: added to the variance; at least 1.001e-5, as in TF.
        data_format: "NHWC" or "NCHW".
        is_training: take the moments of x.
        name: the operation's name.

    Returns:
        y, the mean, and the variance: when training that of a sample, Σ(x - mean)²/(n - 1).

    Raises:
        ValueError: `mean` or `variance` are given or missing, or shapes do not fit.
    """
    if data_format not in ("NHWC", "NCHW"):
        raise ValueError(f"data_format: expected NHWC or NCHW, got {data_format!r}")
    if is_training and (mean is not None or variance is not None):
        raise ValueError("mean, variance: expected None when training, where those of x are taken")
    if not is_training and (mean is None or variance is None):
        raise ValueError("mean, variance: expected tensors when not training, got None")
    epsilon = least_epsilon(epsilon)
    x = as_tensor(x, name="x")
    if x.shape.ndims not in (None, 4):
        raise ValueError(f"x: expected four axes, got {x!r}")
    channels_last = data_format == "NHWC"
    if is_training:
        axes = (0, 1, 2) if channels_last else (0, 2, 3)
        return normalized_batch(x, scale, offset, axes, epsilon, 1, name or "FusedBatchNorm")
    mean, variance = as_tensor(mean, name="mean"), as_tensor(variance, name="variance")
    m, v, beta, gamma = (
        each if channels_last else reshape(each, [-1, 1, 1])
        for each in (mean, variance, offset, scale)
    )
    y = batch_normalization(x, m, v, beta, gamma, epsilon, name or "FusedBatchNorm")
    return y, mean, variance


@composite
def weighted_moments(
    x: Any,
    axes: Any,
    frequency_weights: Any,
    name: str | None = None,
    keep_dims: Any = None,
    keepdims: Any = None,
) -> tuple[Tensor, Tensor]:
    """The mean Σwx/Σw and the variance Σw(x - mean)²/Σw over the axes.

    Args:
        x: floats; 16-bit floats are computed in float32.
        axes: the axes to average over.
        frequency_weights: w, which broadcasts to x.
        name: the name scope.
        keep_dims: the older name of `keepdims`.
        keepdims: whether the axes stay with size 1.
    """
    kept = bool(one_of("keepdims", keepdims, "keep_dims", keep_dims))
    with get_default_graph().name_scope(name or "weighted_moments"):
        tensor = as_tensor(x, name="x")
        wide: Any = cast(tensor, parameter_dtype(tensor.dtype))
        weights: Any = cast(as_tensor(frequency_weights, name="frequency_weights"), wide.dtype)
        weights = weights + zeros_like(wide)
        total = reduce_sum(weights, axes, keepdims=True)
        mean = divide(reduce_sum(weights * wide, axes, keepdims=True), total)
        variance = divide(
            reduce_sum(weights * squared_difference(wide, mean), axes, keepdims=True), total
        )
        if not kept:
            mean, variance = squeeze(mean, axes), squeeze(variance, axes)
        return cast(mean, tensor.dtype), cast(variance, tensor.dtype)
