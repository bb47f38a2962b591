"""Activations, normalisation and dropout of neural networks; the losses are in `cross_entropy`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optkit.backend.special import kept, wide_dtype
from optkit.dtypes import FLOATS, bfloat16, float16, float32, float64
from optkit.graph import Operation, Tensor, get_default_graph, is_symbolic
from optkit.ops.arguments import one_of
from optkit.ops.array import concat, shape, squeeze
from optkit.ops.core import Array, ArrayModule, as_tensor, composite, op
from optkit.ops.elementary import rsqrt, square
from optkit.ops.linalg import matmul
from optkit.ops.logic import REALS, equal, greater_equal, less
from optkit.ops.math import cast, maximum, negative, select, squared_difference
from optkit.ops.random import random_uniform
from optkit.ops.reductions import reduce_mean, reduce_sum
from optkit.shapes import Shape, dimension_value

__all__ = [
    "bias_add",
    "crelu",
    "dropout",
    "elu",
    "l2_loss",
    "l2_normalize",
    "leaky_relu",
    "moments",
    "relu",
    "relu6",
    "selu",
    "softsign",
    "xw_plus_b",
    "zero_fraction",
]

# -- rectifiers -----------------------------------------------------------------------------------


@op("Relu", types=REALS)
def relu(xp: ArrayModule, features: Array) -> Array:
    """max(x, 0); the gradient at 0 is 0."""
    return xp.maximum(features, 0)


@relu.into
def _(xp: ArrayModule, features: Array, *, out: Array) -> Array:
    return xp.maximum(features, 0, out=out)


@op("ReluGrad", types=REALS)
def _relu_grad(xp: ArrayModule, dy: Array, y: Array) -> Array:
    """dy where y > 0, else 0."""
    return kept(xp, dy, y > 0)


@_relu_grad.into
def _(xp: ArrayModule, dy: Array, y: Array, *, out: Array) -> Array:
    return kept(xp, dy, y > 0, out)


@relu.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return _relu_grad(dy, node.outputs[0])


@_relu_grad.gradient
def _(node: Operation, dz: Tensor) -> tuple[Tensor, None]:
    return _relu_grad(dz, node.inputs[1]), None


@composite
def crelu(features: Any, name: str | None = None, axis: int = -1) -> Tensor:
    """max(x, 0) and max(-x, 0), joined along an axis (Shang et al., 2016)."""
    with get_default_graph().name_scope(name or "CRelu") as scope:
        x = as_tensor(features, name="features")
        return relu(concat([x, negative(x)], axis), name=scope)


@op("Relu6", types=REALS)
def relu6(xp: ArrayModule, features: Array) -> Array:
    """min(max(x, 0), 6); the gradient at 0 and 6 is 0."""
    return xp.minimum(xp.maximum(features, 0), 6)


@op("Relu6Grad", types=REALS)
def _relu6_grad(xp: ArrayModule, dy: Array, y: Array) -> Array:
    """dy where 0 < y < 6, else 0."""
    return kept(xp, dy, (y > 0) & (y < 6))


@relu6.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return _relu6_grad(dy, node.outputs[0])


@_relu6_grad.gradient
def _(node: Operation, dz: Tensor) -> tuple[Tensor, None]:
    return _relu6_grad(dz, node.inputs[1]), None


@op("LeakyRelu", types=FLOATS)
def _leaky_relu(xp: ArrayModule, features: Array, *, alpha: float) -> Array:
    return xp.where(features > 0, features, features.dtype.type(alpha) * features)


@op("LeakyReluGrad", types=FLOATS)
def _leaky_relu_grad(xp: ArrayModule, dy: Array, x: Array, *, alpha: float) -> Array:
    """dy where x > 0, else alpha·dy."""
    return xp.where(x > 0, dy, dy.dtype.type(alpha) * dy)


@_leaky_relu.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return _leaky_relu_grad(dy, node.inputs[0], alpha=node.attrs["alpha"])


@_leaky_relu_grad.gradient
def _(node: Operation, dz: Tensor) -> tuple[Tensor, None]:
    return _leaky_relu_grad(dz, node.inputs[1], alpha=node.attrs["alpha"]), None


@composite
def leaky_relu(features: Any, alpha: Any = 0.2, name: str | None = None) -> Tensor:
    """x where x > 0, else alpha·x; integers become float32 first."""
    x = as_tensor(features, None, "features")
    if x.dtype.is_integer:
        x = cast(x, float32)
    return _leaky_relu(x, alpha=float(alpha), name=name)


# -- smooth activations ---------------------------------------------------------------------------


@op("Elu", types=FLOATS)
def elu(xp: ArrayModule, features: Array) -> Array:
    """x where x > 0, else eˣ - 1 (Clevert et al., 2015)."""
    return xp.where(features > 0, features, xp.expm1(features))


@elu.gradient
def _(node: Operation, dy: Tensor) -> Any:
    y = node.outputs[0]
    return select(less(y, 0), dy * (y + 1), dy)


_SELU_SCALE = 1.0507009873554804934193349852946
_SELU_ALPHA = 1.6732632423543772848170429916717


@op("Selu", types=FLOATS)
def selu(xp: ArrayModule, features: Array) -> Array:
    """λ·x where x > 0, else λ·α·(eˣ - 1), the constants of Klambauer et al., 2017."""
    scale, steep = (
        features.dtype.type(value) for value in (_SELU_SCALE, _SELU_SCALE * _SELU_ALPHA)
    )
    return xp.where(features > 0, scale * features, steep * xp.expm1(features))


@selu.gradient
def _(node: Operation, dy: Tensor) -> Any:
    y = node.outputs[0]
    return select(less(y, 0), dy * (y + _SELU_SCALE * _SELU_ALPHA), dy * _SELU_SCALE)


@op("Softsign", types=FLOATS)
def softsign(xp: ArrayModule, features: Array) -> Array:
    """x/(1 + |x|)."""
    return features / (1 + xp.abs(features))


@softsign.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return dy / square(1 + abs(node.inputs[0]))


# -- biases ---------------------------------------------------------------------------------------


def _with_bias(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Shape:
    value, bias = inputs
    if value.sizes is not None and len(value.sizes) < 2:
        raise ValueError(f"value: expected at least two axes, got {value!r}")
    if bias.sizes is not None and len(bias.sizes) != 1:
        raise ValueError(f"bias: expected one axis, got {bias!r}")
    if value.sizes is None or bias.sizes is None:
        return value.sizes
    axis = _channel_axis(attrs["data_format"])
    channels, count = value.sizes[axis], bias.sizes[0]
    if channels is not None and count is not None and channels != count:
        raise ValueError(f"bias: expected {channels} values, one a channel, got {bias!r}")
    return value.sizes


def _channel_axis(data_format: str) -> int:
    return 1 if data_format.startswith("NC") else -1


def _along_channels(bias: Array, rank: int, data_format: str) -> Array:
    sizes = [1] * rank
    sizes[_channel_axis(data_format)] = -1
    return bias.reshape(sizes)


@op("BiasAdd", types=REALS, shape=_with_bias)
def _bias_add(xp: ArrayModule, value: Array, bias: Array, *, data_format: str) -> Array:
    return value + _along_channels(bias, value.ndim, data_format)


@_bias_add.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, Tensor]:
    return dy, _bias_add_grad(dy, node.inputs[1], data_format=node.attrs["data_format"])


@op("BiasAddGrad", types=REALS, shape=lambda inputs, _: inputs[1].sizes)
def _bias_add_grad(xp: ArrayModule, dy: Array, bias: Array, *, data_format: str) -> Array:
    """dy summed over all axes but the channels', in the shape of the bias."""
    axis = _channel_axis(data_format) % dy.ndim
    axes = tuple(i for i in range(dy.ndim) if i != axis)
    return dy.sum(axis=axes, dtype=wide_dtype(dy.dtype)).astype(dy.dtype, copy=False)


@_bias_add_grad.gradient
def _(node: Operation, dz: Tensor) -> tuple[Tensor, None]:
    zeros = select(False, node.inputs[0], 0)
    return _bias_add(zeros, dz, data_format=node.attrs["data_format"]), None


_FORMATS = ("NHWC", "NCHW", "NWC", "NCW", "NDHWC", "NCDHW", "N...C", "NC...")


@composite
def bias_add(
    value: Any, bias: Any, data_format: str | None = None, name: str | None = None
) -> Tensor:
    """value + bias, a number a channel.

    Args:
        value: at least two axes; channels come last, or second when `data_format` begins with NC.
        bias: one axis; the dtype of value.
        data_format: "NHWC" if None, "NCHW", or their forms for one and three dimensions.
        name: the operation's name.

    Raises:
        ValueError: the shapes or the format do not fit.
    """
    if data_format is not None and data_format not in _FORMATS:
        raise ValueError(f"data_format: expected one of {', '.join(_FORMATS)}, got {data_format!r}")
    return _bias_add(value, bias, data_format=data_format or "NHWC", name=name)


@composite
def xw_plus_b(x: Any, weights: Any, biases: Any, name: str | None = None) -> Tensor:
    """x·weights + biases; shapes (n, k), (k, m) and (m,)."""
    with get_default_graph().name_scope(name or "xw_plus_b") as scope:
        return bias_add(matmul(x, weights), biases, name=scope)


# -- norms and moments ----------------------------------------------------------------------------


@op("L2Loss", types=FLOATS, shape=())
def _l2_loss(xp: ArrayModule, t: Array) -> Array:
    flat = t.astype(wide_dtype(t.dtype), copy=False).reshape(-1)
    return (xp.dot(flat, flat) / 2).astype(t.dtype)


@_l2_loss.gradient
def _(node: Operation, dy: Tensor) -> Any:
    return dy * node.inputs[0]


@composite
def l2_loss(t: Any, name: str | None = None) -> Tensor:
    """Σ t²/2, a scalar."""
    return _l2_loss(t, name=name)


@composite
def l2_normalize(
    x: Any, axis: Any = None, epsilon: float = 1e-12, name: str | None = None, dim: Any = None
) -> Tensor:
    """x/√max(Σ x², epsilon) over the axes, all if None; `dim` is their older name.

    16-bit floats are computed in float32, where the default epsilon is not 0.
    """
    axis = one_of("axis", axis, "dim", dim)
    with get_default_graph().name_scope(name or "l2_normalize"):
        tensor = as_tensor(x, None, "x")
        wide = cast(tensor, float32) if tensor.dtype in (float16, bfloat16) else tensor
        total = reduce_sum(square(wide), axis, keepdims=True)
        return cast(wide * rsqrt(maximum(total, epsilon)), tensor.dtype)  # type: ignore[no-any-return]


@composite
def moments(
    x: Any,
    axes: Any,
    shift: Any = None,
    name: str | None = None,
    keep_dims: Any = None,
    keepdims: Any = None,
) -> tuple[Tensor, Tensor]:
    """The mean and the variance over the axes; 16-bit floats are computed in float32.

    Args:
        x: floats.
        axes: the axes to average over.
        shift: not used, as in TF.
        name: the name scope.
        keep_dims: the older name of `keepdims`.
        keepdims: whether the axes stay with size 1.
    """
    kept = bool(one_of("keepdims", keepdims, "keep_dims", keep_dims))
    with get_default_graph().name_scope(name or "moments"):
        tensor = as_tensor(x, None, "x")
        wide = cast(tensor, float32) if tensor.dtype in (float16, bfloat16) else tensor
        mean = reduce_mean(wide, axes, keepdims=True, name="mean")
        # TF holds the mean constant here, which is right only for first derivatives.
        difference = squared_difference(wide, mean)
        variance = reduce_mean(difference, axes, keepdims=True, name="variance")
        if not kept:
            mean, variance = squeeze(mean, axes), squeeze(variance, axes)
        return cast(mean, tensor.dtype), cast(variance, tensor.dtype)


@composite
def zero_fraction(value: Any, name: str | None = None) -> Tensor:
    """The part of the elements that are 0; float32."""
    with get_default_graph().name_scope(name or "zero_fraction"):
        return reduce_mean(cast(equal(value, 0), float32), name="fraction")


# -- dropout --------------------------------------------------------------------------------------


@composite
def dropout(
    x: Any,
    keep_prob: Any = None,
    noise_shape: Any = None,
    seed: Any = None,
    name: str | None = None,
    rate: Any = None,
) -> Tensor:
    """0 with probability `rate`, else x/(1 - rate), independently for each element.

    Args:
        x: floats.
        keep_prob: 1 - rate, the older argument.
        noise_shape: the shape of the random choices, which broadcast to x; x's shape if None.
        seed: the operation's seed.
        name: the name scope.
        rate: a number in [0, 1) or a scalar tensor.

    Raises:
        ValueError: neither or both of rate and keep_prob, a rate outside [0, 1), or x not floats.
    """
    if keep_prob is not None and (isinstance(keep_prob, bool | str) or rate is not None):
        raise ValueError(f"rate, keep_prob: expected one number, got {rate!r} and {keep_prob!r}")
    if keep_prob is not None:
        rate = 1.0 - keep_prob
    if rate is None:
        raise ValueError("rate: expected a number or a scalar tensor, got None")
    tensor = as_tensor(x, None, "x")
    if not tensor.dtype.is_floating:
        raise ValueError(f"x: expected floats, got {tensor!r}")
    if not is_symbolic(rate):
        rate = float(rate)
        if not 0 <= rate < 1:
            raise ValueError(f"rate: expected a number in [0, 1), got {rate}")
        if rate == 0:
            return tensor
    with get_default_graph().name_scope(name or "dropout"):
        # float16 has 2048 numbers between 0.5 and 1: too few for a rate of 0.9999.
        fine = float64 if tensor.dtype is float64 else float32
        chance = cast(as_tensor(rate), fine) if is_symbolic(rate) else rate
        drawn = random_uniform(_noise_shape(tensor, noise_shape), dtype=fine, seed=seed)
        scale = cast(1 / (1 - chance), tensor.dtype) if is_symbolic(rate) else 1 / (1 - chance)
        dropped = select(greater_equal(drawn, chance), tensor * scale, 0)
        dropped.set_shape(tensor.sizes)
        return dropped


def _noise_shape(x: Tensor, noise_shape: Any) -> Any:
    """The shape of the choices; None in it stands for x's own size."""
    if noise_shape is None:
        return shape(x)
    if is_symbolic(noise_shape):
        return noise_shape
    return [
        shape(x)[i] if dimension_value(size) is None else size for i, size in enumerate(noise_shape)
    ]
