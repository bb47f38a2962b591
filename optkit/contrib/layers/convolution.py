"""contrib's convolutions and poolings as functions; see `layers` for what they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from optkit import nn
from optkit.contrib.framework.arg_scope import add_arg_scope
from optkit.contrib.framework.variables import model_variable
from optkit.contrib.layers.layers import (
    NAMES,
    channels_of,
    format_argument,
    layer_scope,
    normalized_or_not,
)
from optkit.contrib.layers.utils import collect_named_outputs
from optkit.initializers import Zeros, xavier_initializer
from optkit.layers.arguments import padding_argument, size_argument, sizes_argument
from optkit.layers.convolution import Conv1D, Conv2D, Conv2DTranspose, SeparableConv2D
from optkit.layers.pooling import AveragePooling2D, MaxPooling2D
from optkit.ops.core import as_tensor
from optkit.ops.depthwise import depthwise_conv2d
from optkit.ops.nn import bias_add

__all__ = [
    "avg_pool2d",
    "conv1d",
    "conv2d",
    "conv2d_transpose",
    "convolution",
    "convolution1d",
    "convolution2d",
    "convolution2d_transpose",
    "max_pool2d",
    "separable_conv2d",
    "separable_convolution2d",
]

_ZEROS = Zeros()
_XAVIER = xavier_initializer()
_Function = Callable[[Any], Any]


@add_arg_scope
def convolution(
    inputs: Any,
    num_outputs: Any,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str | None = None,
    rate: Any = 1,
    activation_fn: _Function | None = nn.relu,
    normalizer_fn: Callable[..., Any] | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = _XAVIER,
    weights_regularizer: _Function | None = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: _Function | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
    conv_dims: int | None = None,
) -> Any:
    """activation_fn(inputs convolved with weights + biases), of images or sequences.

    Args:
        inputs: shape (batch, height, width, channels) or (batch, width, channels); channels come
            second where data_format begins with NC.
        num_outputs: the number of channels of the output.
        kernel_size: the size of the windows: an int, or one for each spatial axis.
        stride: how far the windows move; like kernel_size.
        padding: "SAME" or "VALID".
        data_format: None, or "NHWC" or "NCHW", for sequences "NWC" or "NCW".
        rate: the distance between elements of a window; like kernel_size.
        activation_fn: a function, relu by default; None for none.
        normalizer_fn: takes the place of the biases, e.g. `batch_norm`.
        normalizer_params: its arguments.
        weights_initializer: initial value of the weights.
        weights_regularizer: a function of the weights that gives a loss or None.
        biases_initializer: initial value of the biases; None for no biases.
        biases_regularizer: a function of the biases that gives a loss or None.
        reuse: whether to find the variables of `scope` again.
        variables_collections: what the variables join besides MODEL_VARIABLES: a list, or a dict of
            lists for "weights" and "biases".
        outputs_collections: a collection, or several, that the output joins.
        trainable: whether the variables are trainable.
        scope: the variable scope; "Conv", made unique, if None.
        conv_dims: the number of spatial axes that the inputs must have.

    Raises:
        TypeError, ValueError: as of `tf.layers.Conv2D`.

    Source: tf.contrib.layers.convolution.
    """
    with layer_scope(scope, "Conv", inputs, reuse, variables_collections, NAMES) as entered:
        x = as_tensor(inputs, name="inputs")
        rank = conv_dims if x.shape.ndims is None else x.shape.ndims - 2
        if rank not in (1, 2) or conv_dims not in (None, rank):
            axes = "three or four axes" if conv_dims is None else f"{conv_dims + 2} axes"
            raise ValueError(f"inputs: expected {axes}, got {x!r}")
        kind = Conv1D if rank == 1 else Conv2D
        layer = kind(
            size_argument(num_outputs, "num_outputs"),
            kernel_size,
            strides=stride,
            padding=padding,
            data_format=_format(data_format, rank),
            dilation_rate=rate,
            use_bias=normalizer_fn is None and biases_initializer is not None,
            kernel_initializer=weights_initializer,
            bias_initializer=biases_initializer,
            kernel_regularizer=weights_regularizer,
            bias_regularizer=biases_regularizer,
            trainable=trainable,
            name=entered.name,
            _scope=entered,
            _reuse=reuse,
        )
        outputs = normalized_or_not(layer(x), normalizer_fn, normalizer_params)
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return collect_named_outputs(outputs_collections, entered.name, outputs)


def _format(data_format: str | None, rank: int) -> str:
    known = ("NHWC", "NCHW") if rank == 2 else ("NWC", "NCW")
    if data_format is not None and data_format not in known:
        raise ValueError(f"data_format: expected {known[0]} or {known[1]}, got {data_format!r}")
    return "channels_first" if data_format == known[1] else "channels_last"


@add_arg_scope
def conv1d(
    inputs: Any,
    num_outputs: Any,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str | None = None,
    rate: Any = 1,
    activation_fn: _Function | None = nn.relu,
    normalizer_fn: Callable[..., Any] | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = _XAVIER,
    weights_regularizer: _Function | None = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: _Function | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """`convolution` of sequences; see there for arguments and errors."""
    return convolution(
        inputs,
        num_outputs,
        kernel_size,
        stride,
        padding,
        data_format,
        rate,
        activation_fn,
        normalizer_fn,
        normalizer_params,
        weights_initializer,
        weights_regularizer,
        biases_initializer,
        biases_regularizer,
        reuse,
        variables_collections,
        outputs_collections,
        trainable,
        scope,
        conv_dims=1,
    )


@add_arg_scope
def conv2d(
    inputs: Any,
    num_outputs: Any,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str | None = None,
    rate: Any = 1,
    activation_fn: _Function | None = nn.relu,
    normalizer_fn: Callable[..., Any] | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = _XAVIER,
    weights_regularizer: _Function | None = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: _Function | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """`convolution` of images; see there for arguments and errors."""
    return convolution(
        inputs,
        num_outputs,
        kernel_size,
        stride,
        padding,
        data_format,
        rate,
        activation_fn,
        normalizer_fn,
        normalizer_params,
        weights_initializer,
        weights_regularizer,
        biases_initializer,
        biases_regularizer,
        reuse,
        variables_collections,
        outputs_collections,
        trainable,
        scope,
        conv_dims=2,
    )


@add_arg_scope
def conv2d_transpose(
    inputs: Any,
    num_outputs: Any,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str = "NHWC",
    activation_fn: _Function | None = nn.relu,
    normalizer_fn: Callable[..., Any] | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = _XAVIER,
    weights_regularizer: _Function | None = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: _Function | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """activation_fn(the transpose of a convolution, of the inputs, + biases), of images.

    The scope is "Conv2d_transpose", made unique, if None; see `convolution` for the rest, and
    `tf.layers.Conv2DTranspose` for the size of the output.

    Source: tf.contrib.layers.conv2d_transpose.
    """
    channels = format_argument(data_format)
    with layer_scope(
        scope, "Conv2d_transpose", inputs, reuse, variables_collections, NAMES
    ) as entered:
        layer = Conv2DTranspose(
            size_argument(num_outputs, "num_outputs"),
            kernel_size,
            strides=stride,
            padding=padding,
            data_format=channels,
            use_bias=normalizer_fn is None and biases_initializer is not None,
            kernel_initializer=weights_initializer,
            bias_initializer=biases_initializer,
            kernel_regularizer=weights_regularizer,
            bias_regularizer=biases_regularizer,
            trainable=trainable,
            name=entered.name,
            _scope=entered,
            _reuse=reuse,
        )
        outputs = normalized_or_not(layer(inputs), normalizer_fn, normalizer_params)
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return collect_named_outputs(outputs_collections, entered.name, outputs)


_SEPARABLE = {
    "depthwise_kernel": "depthwise_weights",
    "pointwise_kernel": "pointwise_weights",
    "bias": "biases",
}


@add_arg_scope
def separable_conv2d(
    inputs: Any,
    num_outputs: Any,
    kernel_size: Any,
    depth_multiplier: Any = 1,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str = "NHWC",
    rate: Any = 1,
    activation_fn: _Function | None = nn.relu,
    normalizer_fn: Callable[..., Any] | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = _XAVIER,
    pointwise_initializer: Any = None,
    weights_regularizer: _Function | None = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: _Function | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """A convolution of each channel by itself, then one that mixes them, then activation_fn.

    Args as of `convolution`, but for these:
        num_outputs: the number of channels of the output; None leaves the second step out.
        depth_multiplier: how many channels each channel becomes in the first step.
        pointwise_initializer: initial value of the second step's weights; weights_initializer if
            None.
        scope: the variable scope; "SeparableConv2d", made unique, if None.

    Source: tf.contrib.layers.separable_conv2d.
    """
    channels = format_argument(data_format)
    with layer_scope(
        scope, "SeparableConv2d", inputs, reuse, variables_collections, _SEPARABLE
    ) as entered:
        use_bias = normalizer_fn is None and biases_initializer is not None
        if num_outputs is None:
            outputs = _depthwise(
                as_tensor(inputs, name="inputs"),
                sizes_argument(kernel_size, 2, "kernel_size"),
                size_argument(depth_multiplier, "depth_multiplier"),
                sizes_argument(stride, 2, "stride"),
                padding_argument(padding).upper(),
                data_format,
                sizes_argument(rate, 2, "rate"),
                (weights_initializer, weights_regularizer),
                (biases_initializer, biases_regularizer) if use_bias else None,
                trainable,
            )
        else:
            layer = SeparableConv2D(
                size_argument(num_outputs, "num_outputs"),
                kernel_size,
                strides=stride,
                padding=padding,
                data_format=channels,
                dilation_rate=rate,
                depth_multiplier=depth_multiplier,
                use_bias=use_bias,
                depthwise_initializer=weights_initializer,
                pointwise_initializer=pointwise_initializer or weights_initializer,
                bias_initializer=biases_initializer,
                depthwise_regularizer=weights_regularizer,
                pointwise_regularizer=weights_regularizer,
                bias_regularizer=biases_regularizer,
                trainable=trainable,
                name=entered.name,
                _scope=entered,
                _reuse=reuse,
            )
            outputs = layer(inputs)
        outputs = normalized_or_not(outputs, normalizer_fn, normalizer_params)
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return collect_named_outputs(outputs_collections, entered.name, outputs)


def _depthwise(
    x: Any,
    kernel_size: tuple[int, ...],
    multiplier: int,
    stride: tuple[int, ...],
    padding: str,
    data_format: str,
    rate: tuple[int, ...],
    weights_settings: tuple[Any, Any],
    biases_settings: tuple[Any, Any] | None,
    trainable: bool,
) -> Any:
    """The first step alone."""
    channels = channels_of(x, data_format)
    shape = [*kernel_size, channels, multiplier]
    weights = model_variable(
        "depthwise_weights", shape, x.dtype, *weights_settings, trainable=trainable
    )
    outputs = depthwise_conv2d(
        x, weights, stride, padding, rate, data_format=data_format, name="depthwise"
    )
    if biases_settings is None:
        return outputs
    biases = model_variable(
        "biases", [channels * multiplier], x.dtype, *biases_settings, trainable=trainable
    )
    return bias_add(outputs, biases, data_format)


def _pooled(
    kind: Any,
    default_name: str,
    inputs: Any,
    kernel_size: Any,
    stride: Any,
    padding: str,
    data_format: str,
    outputs_collections: Any,
    scope: Any,
) -> Any:
    channels = format_argument(data_format)
    with layer_scope(scope, default_name, inputs) as entered:
        layer = kind(kernel_size, stride, padding, channels, name=entered.name, _scope=entered)
        return collect_named_outputs(outputs_collections, entered.name, layer(inputs))


@add_arg_scope
def max_pool2d(
    inputs: Any,
    kernel_size: Any,
    stride: Any = 2,
    padding: str = "VALID",
    data_format: str = "NHWC",
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """The largest element of each window of images.

    Args:
        inputs: four axes.
        kernel_size: the size of the windows: an int, or one for height and width.
        stride: how far the windows move; like kernel_size.
        padding: "SAME" or "VALID".
        data_format: "NHWC" or "NCHW".
        outputs_collections: a collection, or several, that the output joins.
        scope: the name scope; "MaxPool2D", made unique, if None.

    Source: tf.contrib.layers.max_pool2d.
    """
    return _pooled(
        MaxPooling2D,
        "MaxPool2D",
        inputs,
        kernel_size,
        stride,
        padding,
        data_format,
        outputs_collections,
        scope,
    )


@add_arg_scope
def avg_pool2d(
    inputs: Any,
    kernel_size: Any,
    stride: Any = 2,
    padding: str = "VALID",
    data_format: str = "NHWC",
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """The mean of each window of images, padding left out; arguments as of `max_pool2d`.

    Source: tf.contrib.layers.avg_pool2d.
    """
    return _pooled(
        AveragePooling2D,
        "AvgPool2D",
        inputs,
        kernel_size,
        stride,
        padding,
        data_format,
        outputs_collections,
        scope,
    )


convolution1d = conv1d
convolution2d = conv2d
convolution2d_transpose = conv2d_transpose
separable_convolution2d = separable_conv2d
