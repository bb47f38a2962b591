"""Convolutional layers; see `nn.conv2d` for what they compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from optkit.graph import Tensor
from optkit.initializers import Zeros
from optkit.layers.arguments import (
    activation_of,
    format_argument,
    op_format,
    padding_argument,
    size_argument,
    sizes_argument,
)
from optkit.layers.base import InputSpec, Layer
from optkit.ops.array import shape
from optkit.ops.convolution import conv1d as lines_convolved
from optkit.ops.convolution import conv2d as convolved
from optkit.ops.convolution import conv2d_transpose as transposed
from optkit.ops.core import composite
from optkit.ops.depthwise import separable_conv2d as separated
from optkit.ops.nn import bias_add
from optkit.shapes import TensorShape

__all__ = [
    "Conv1D",
    "Conv2D",
    "Conv2DTranspose",
    "SeparableConv2D",
    "conv1d",
    "conv2d",
    "conv2d_transpose",
    "separable_conv2d",
    "windows_along",
]

_ZEROS = Zeros()
_Function = Callable[[Any], Any]


def windows_along(size: int | None, window: int, stride: int, padding: str) -> int | None:
    """How many windows fit along an axis; None where its size is not known."""
    if size is None:
        return None
    return -(-(size if padding == "same" else size - window + 1) // stride)


class _Convolution(Layer):
    """What convolutional layers share: arguments, kernel, bias and activation."""

    rank = 2

    def __init__(
        self,
        filters: Any,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str = "channels_last",
        dilation_rate: Any = 1,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = None,
        bias_initializer: Any = _ZEROS,
        kernel_regularizer: _Function | None = None,
        bias_regularizer: _Function | None = None,
        activity_regularizer: _Function | None = None,
        kernel_constraint: _Function | None = None,
        bias_constraint: _Function | None = None,
        trainable: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            trainable=trainable, name=name, activity_regularizer=activity_regularizer, **kwargs
        )
        self.filters = size_argument(filters, "filters")
        self.kernel_size = sizes_argument(kernel_size, self.rank, "kernel_size")
        self.strides = sizes_argument(strides, self.rank, "strides")
        self.padding = padding_argument(padding)
        self.data_format = format_argument(data_format)
        self.dilation_rate = sizes_argument(dilation_rate, self.rank, "dilation_rate")
        self.activation = activation_of(activation)
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = bias_initializer
        self.kernel_regularizer = kernel_regularizer
        self.bias_regularizer = bias_regularizer
        self.kernel_constraint = kernel_constraint
        self.bias_constraint = bias_constraint
        self.input_spec = InputSpec(ndim=self.rank + 2)
        self.kernel: Any = None
        self.bias: Any = None

    @property
    def _channel_axis(self) -> int:
        return 1 if self.data_format == "channels_first" else self.rank + 1

    def build(self, input_shape: Any) -> None:
        """Make kernel and bias."""
        self._require_floats()
        sizes = TensorShape(input_shape).sizes
        channels = None if sizes is None else sizes[self._channel_axis]
        if channels is None:
            expected = f"channels of known number on axis {self._channel_axis}"
            raise self._refusal("inputs", expected, TensorShape(sizes))
        self.input_spec = InputSpec(ndim=self.rank + 2, axes={self._channel_axis: channels})
        self._add_kernels(channels)
        if self.use_bias:
            self.bias = self.add_weight(
                "bias",
                [self.filters],
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )
        self.built = True

    def _kernel_shape(self, channels: int) -> Sequence[int]:
        return [*self.kernel_size, channels, self.filters]

    def _add_kernels(self, channels: int) -> None:
        self.kernel = self.add_weight(
            "kernel",
            self._kernel_shape(channels),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
        """activation(inputs convolved with the kernel + bias)."""
        outputs = self._convolved(inputs)
        if self.use_bias:
            outputs = bias_add(outputs, self.bias, op_format(self.data_format, self.rank))
        return outputs if self.activation is None else self.activation(outputs)

    def _convolved(self, inputs: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must define _convolved")

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """The shape of the output for inputs of a shape."""
        sizes = TensorShape(input_shape).with_rank(self.rank + 2).as_list()
        first = 2 if self.data_format == "channels_first" else 1
        spatial = [
            self._length(size, axis) for axis, size in enumerate(sizes[first : first + self.rank])
        ]
        if self.data_format == "channels_first":
            return TensorShape([sizes[0], self.filters, *spatial])
        return TensorShape([sizes[0], *spatial, self.filters])

    def _length(self, size: int | None, axis: int) -> int | None:
        window = (self.kernel_size[axis] - 1) * self.dilation_rate[axis] + 1
        return windows_along(size, window, self.strides[axis], self.padding)


class Conv2D(_Convolution):
    """activation(inputs convolved with the kernel + bias), for images.

    Inputs have shape (batch, height, width, channels), or with channels_first (batch, channels,
    height, width); the kernel has shape (height, width, channels, filters).

    Args:
        filters: the number of channels of the output.
        kernel_size: the size of the windows: an int, or one for each spatial axis.
        strides: how far the windows move; like kernel_size.
        padding: "valid" or "same", in any case.
        data_format: "channels_last" or "channels_first".
        dilation_rate: the distance between elements of a window; like kernel_size.
        activation: a function, the name of one in `nn`, or None.
        use_bias: whether to add a bias.
        kernel_initializer: initial value of the kernel.
        bias_initializer: initial value of the bias, shape (filters,).
        kernel_regularizer: a function of the kernel that gives a loss or None.
        bias_regularizer: a function of the bias that gives a loss or None.
        activity_regularizer: see `Layer`, as are the following.
        kernel_constraint: see `Variable`.
        bias_constraint: see `Variable`.
        trainable: whether the variables are trainable.
        name: the layer's name.
        **kwargs: `dtype`, `_scope` and `_reuse` of `Layer`.

    Raises:
        TypeError, ValueError: a bad argument; when called, the inputs are not floating, of
            another rank, or have channels of unknown number or another number than at first.
    """

    def _convolved(self, inputs: Tensor) -> Tensor:
        return convolved(
            inputs,
            self.kernel,
            self.strides,
            self.padding.upper(),
            data_format=op_format(self.data_format, 2),
            dilations=self.dilation_rate,
        )


class Conv1D(_Convolution):
    """activation(inputs convolved with the kernel + bias), for sequences.

    Inputs have shape (batch, width, channels), or with channels_first (batch, channels, width); the
    kernel has shape (width, channels, filters). Arguments and errors as of `Conv2D`.
    """

    rank = 1

    def _convolved(self, inputs: Tensor) -> Tensor:
        return lines_convolved(
            inputs,
            self.kernel,
            self.strides,
            self.padding.upper(),
            data_format=op_format(self.data_format, 1),
            dilations=self.dilation_rate,
        )


class Conv2DTranspose(_Convolution):
    """activation(the transpose of a convolution, of the inputs, + bias), for images.

    A window of size k that moves by s gives n·s elements with padding "same", and
    n·s + max(k - s, 0) with "valid", for n. The kernel has shape (height, width, filters,
    channels). Arguments and errors as of `Conv2D`, which has the dilation_rate that this has not.
    """

    def __init__(
        self,
        filters: Any,
        kernel_size: Any,
        strides: Any = (1, 1),
        padding: str = "valid",
        data_format: str = "channels_last",
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = None,
        bias_initializer: Any = _ZEROS,
        kernel_regularizer: _Function | None = None,
        bias_regularizer: _Function | None = None,
        activity_regularizer: _Function | None = None,
        kernel_constraint: _Function | None = None,
        bias_constraint: _Function | None = None,
        trainable: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            filters,
            kernel_size,
            strides,
            padding,
            data_format,
            1,
            activation,
            use_bias,
            kernel_initializer,
            bias_initializer,
            kernel_regularizer,
            bias_regularizer,
            activity_regularizer,
            kernel_constraint,
            bias_constraint,
            trainable,
            name,
            **kwargs,
        )

    def _kernel_shape(self, channels: int) -> Sequence[int]:
        return [*self.kernel_size, self.filters, channels]

    def _convolved(self, inputs: Tensor) -> Tensor:
        known = self.compute_output_shape(inputs.shape).as_list()
        sizes: list[Any] = list(known)
        if None in known:
            given = shape(inputs)
            first = 2 if self.data_format == "channels_first" else 1
            for axis, size in enumerate(known):
                if size is None:
                    n = given[axis]
                    sizes[axis] = n if axis == 0 else self._stretched(n, axis - first)
        return transposed(
            inputs,
            self.kernel,
            sizes,
            self.strides,
            self.padding.upper(),
            op_format(self.data_format, 2),
        )

    def _stretched(self, size: Any, axis: int) -> Any:
        window, stride = self.kernel_size[axis], self.strides[axis]
        return size * stride + (max(window - stride, 0) if self.padding == "valid" else 0)

    def _length(self, size: int | None, axis: int) -> int | None:
        return None if size is None else int(self._stretched(size, axis))


class SeparableConv2D(_Convolution):
    """A convolution of each channel by itself, then one that mixes them; see `separable_conv2d`.

    Args as of `Conv2D`, but for these:
        depth_multiplier: how many channels each channel becomes in the first step.
        depthwise_initializer: initial value of the first kernel, shape (height, width, channels,
            depth_multiplier); `depthwise_regularizer` and `depthwise_constraint` belong to it.
        pointwise_initializer: initial value of the second kernel, shape (1, 1,
            channels·depth_multiplier, filters), as do `pointwise_regularizer` and so on.
    """

    def __init__(
        self,
        filters: Any,
        kernel_size: Any,
        strides: Any = (1, 1),
        padding: str = "valid",
        data_format: str = "channels_last",
        dilation_rate: Any = (1, 1),
        depth_multiplier: Any = 1,
        activation: Any = None,
        use_bias: bool = True,
        depthwise_initializer: Any = None,
        pointwise_initializer: Any = None,
        bias_initializer: Any = _ZEROS,
        depthwise_regularizer: _Function | None = None,
        pointwise_regularizer: _Function | None = None,
        bias_regularizer: _Function | None = None,
        activity_regularizer: _Function | None = None,
        depthwise_constraint: _Function | None = None,
        pointwise_constraint: _Function | None = None,
        bias_constraint: _Function | None = None,
        trainable: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            filters,
            kernel_size,
            strides,
            padding,
            data_format,
            dilation_rate,
            activation,
            use_bias,
            None,
            bias_initializer,
            None,
            bias_regularizer,
            activity_regularizer,
            None,
            bias_constraint,
            trainable,
            name,
            **kwargs,
        )
        self.depth_multiplier = size_argument(depth_multiplier, "depth_multiplier")
        self.depthwise_initializer = depthwise_initializer
        self.pointwise_initializer = pointwise_initializer
        self.depthwise_regularizer = depthwise_regularizer
        self.pointwise_regularizer = pointwise_regularizer
        self.depthwise_constraint = depthwise_constraint
        self.pointwise_constraint = pointwise_constraint
        self.depthwise_kernel: Any = None
        self.pointwise_kernel: Any = None

    def _add_kernels(self, channels: int) -> None:
        self.depthwise_kernel = self.add_weight(
            "depthwise_kernel",
            [*self.kernel_size, channels, self.depth_multiplier],
            initializer=self.depthwise_initializer,
            regularizer=self.depthwise_regularizer,
            constraint=self.depthwise_constraint,
        )
        self.pointwise_kernel = self.add_weight(
            "pointwise_kernel",
            [1, 1, channels * self.depth_multiplier, self.filters],
            initializer=self.pointwise_initializer,
            regularizer=self.pointwise_regularizer,
            constraint=self.pointwise_constraint,
        )

    def _convolved(self, inputs: Tensor) -> Tensor:
        return separated(
            inputs,
            self.depthwise_kernel,
            self.pointwise_kernel,
            self.strides,
            self.padding.upper(),
            self.dilation_rate,
            data_format=op_format(self.data_format, 2),
        )


# -- functions ------------------------------------------------------------------------------------


@composite
def conv1d(
    inputs: Any,
    filters: Any,
    kernel_size: Any,
    strides: Any = 1,
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Any = 1,
    activation: Any = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = _ZEROS,
    kernel_regularizer: _Function | None = None,
    bias_regularizer: _Function | None = None,
    activity_regularizer: _Function | None = None,
    kernel_constraint: _Function | None = None,
    bias_constraint: _Function | None = None,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
) -> Tensor:
    """The output of a new layer `Conv1D`; with `name` and `reuse` its variables are shared."""
    layer = Conv1D(
        filters,
        kernel_size,
        strides,
        padding,
        data_format,
        dilation_rate,
        activation,
        use_bias,
        kernel_initializer,
        bias_initializer,
        kernel_regularizer,
        bias_regularizer,
        activity_regularizer,
        kernel_constraint,
        bias_constraint,
        trainable,
        name,
        _scope=name,
        _reuse=reuse,
    )
    return layer(inputs)  # type: ignore[no-any-return]


@composite
def conv2d(
    inputs: Any,
    filters: Any,
    kernel_size: Any,
    strides: Any = (1, 1),
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Any = (1, 1),
    activation: Any = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = _ZEROS,
    kernel_regularizer: _Function | None = None,
    bias_regularizer: _Function | None = None,
    activity_regularizer: _Function | None = None,
    kernel_constraint: _Function | None = None,
    bias_constraint: _Function | None = None,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
) -> Tensor:
    """The output of a new layer `Conv2D`; with `name` and `reuse` its variables are shared."""
    layer = Conv2D(
        filters,
        kernel_size,
        strides,
        padding,
        data_format,
        dilation_rate,
        activation,
        use_bias,
        kernel_initializer,
        bias_initializer,
        kernel_regularizer,
        bias_regularizer,
        activity_regularizer,
        kernel_constraint,
        bias_constraint,
        trainable,
        name,
        _scope=name,
        _reuse=reuse,
    )
    return layer(inputs)  # type: ignore[no-any-return]


@composite
def conv2d_transpose(
    inputs: Any,
    filters: Any,
    kernel_size: Any,
    strides: Any = (1, 1),
    padding: str = "valid",
    data_format: str = "channels_last",
    activation: Any = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = _ZEROS,
    kernel_regularizer: _Function | None = None,
    bias_regularizer: _Function | None = None,
    activity_regularizer: _Function | None = None,
    kernel_constraint: _Function | None = None,
    bias_constraint: _Function | None = None,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
) -> Tensor:
    """The output of a new layer `Conv2DTranspose`; `name` and `reuse` share its variables."""
    layer = Conv2DTranspose(
        filters,
        kernel_size,
        strides,
        padding,
        data_format,
        activation,
        use_bias,
        kernel_initializer,
        bias_initializer,
        kernel_regularizer,
        bias_regularizer,
        activity_regularizer,
        kernel_constraint,
        bias_constraint,
        trainable,
        name,
        _scope=name,
        _reuse=reuse,
    )
    return layer(inputs)  # type: ignore[no-any-return]


@composite
def separable_conv2d(
    inputs: Any,
    filters: Any,
    kernel_size: Any,
    strides: Any = (1, 1),
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Any = (1, 1),
    depth_multiplier: Any = 1,
    activation: Any = None,
    use_bias: bool = True,
    depthwise_initializer: Any = None,
    pointwise_initializer: Any = None,
    bias_initializer: Any = _ZEROS,
    depthwise_regularizer: _Function | None = None,
    pointwise_regularizer: _Function | None = None,
    bias_regularizer: _Function | None = None,
    activity_regularizer: _Function | None = None,
    depthwise_constraint: _Function | None = None,
    pointwise_constraint: _Function | None = None,
    bias_constraint: _Function | None = None,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
) -> Tensor:
    """The output of a new layer `SeparableConv2D`; `name` and `reuse` share its variables."""
    layer = SeparableConv2D(
        filters,
        kernel_size,
        strides,
        padding,
        data_format,
        dilation_rate,
        depth_multiplier,
        activation,
        use_bias,
        depthwise_initializer,
        pointwise_initializer,
        bias_initializer,
        depthwise_regularizer,
        pointwise_regularizer,
        bias_regularizer,
        activity_regularizer,
        depthwise_constraint,
        pointwise_constraint,
        bias_constraint,
        trainable,
        name,
        _scope=name,
        _reuse=reuse,
    )
    return layer(inputs)  # type: ignore[no-any-return]
