"""Convolutions that keep the channels apart, and the separable ones made of them.

    y[n, i, j, c·k + q] = Σ x[n, i·s + a·d, j·s + b·d, c] · w[a, b, c, q]  over a, b

with k filters a channel. No matrix product has this form, so the elements of the window are gone
through one by one, each for all windows at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from optkit.backend.special import wide_dtype
from optkit.dtypes import FLOATS
from optkit.errors import InvalidArgumentError
from optkit.graph import Operation, Tensor, get_default_graph, is_symbolic
from optkit.ops.arguments import checked_sizes, sizes_argument
from optkit.ops.conv2d import (
    FILTER_AXES,
    attributes,
    checked_attrs,
    conv2d,
    correlated,
)
from optkit.ops.core import (
    INDEX_TYPES,
    Array,
    ArrayModule,
    as_tensor,
    composite,
    constant_value_as_shape,
    op,
)
from optkit.ops.reshaping import shape
from optkit.ops.windows import (
    Padding,
    Slide,
    arranged,
    channel_axis,
    check_result,
    checked_format,
    checked_result,
    four_axes,
    image_parts,
    padded,
    padded_shape,
    places,
    required,
    slides,
    spatial,
    unpadded,
)
from optkit.shapes import Shape

__all__ = [
    "depthwise_conv2d",
    "depthwise_conv2d_backprop_filter",
    "depthwise_conv2d_backprop_input",
    "depthwise_conv2d_native",
    "depthwise_conv2d_native_backprop_filter",
    "depthwise_conv2d_native_backprop_input",
    "separable_conv2d",
]

_AXES = "height, width, channels, filters a channel"

# -- static shapes --------------------------------------------------------------------------------


def _correlated(x: Shape, w: Shape, attrs: Mapping[str, Any]) -> Shape:
    """The static shape of the result for images x and filters w."""
    height, width, channels, many = four_axes(w, "filter", _AXES)
    if channels is None and x is not None:
        channels = four_axes(x, "input", attrs["data_format"])[channel_axis(attrs["data_format"])]
    made = None if channels is None or many is None else channels * many
    return correlated(x, (height, width, channels, made), attrs)


def _input_sizes(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Shape:
    sizes, w, dy = inputs
    data_format = attrs["data_format"]
    x = four_axes(constant_value_as_shape(sizes), "input_sizes", data_format)
    dx = check_result(_correlated(x, w.sizes, attrs), dy.sizes, data_format)
    channels = x[channel_axis(data_format)]
    if channels is None and w.sizes is not None:
        channels = w.sizes[2]
    return arranged(dx[0] if x[0] is None else x[0], spatial(x, data_format), channels, data_format)


def _filter_sizes(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Shape:
    x, sizes, dy = inputs
    w = four_axes(constant_value_as_shape(sizes), "filter_sizes", _AXES)
    check_result(_correlated(x.sizes, w, attrs), dy.sizes, attrs["data_format"])
    return w


# -- arrays ---------------------------------------------------------------------------------------


class _Depthwise:
    """A depthwise correlation and its adjoints; arguments as for `columns.Correlation`.

    Inside, all arrays have channels and filters as two axes: (…, channels, filters), or (channels,
    filters, …) after the batch.
    """

    def __init__(
        self,
        xp: ArrayModule,
        x: Sequence[int],
        w: Sequence[int],
        dtype: np.dtype[np.generic],
        attrs: Mapping[str, Any],
    ) -> None:
        self._format = attrs["data_format"]
        try:
            moved: Any = _correlated(tuple(x), tuple(w), attrs)
        except ValueError as error:
            raise InvalidArgumentError(str(error)) from error
        self._xp = xp
        self._moves: tuple[Slide, Slide] = slides(spatial(x, self._format), (w[0], w[1]), attrs)
        self._narrow, self._dtype = dtype, wide_dtype(dtype)
        self._n, self._channels, self._many = x[0], w[2], w[3]
        self._first = self._format == "NCHW"
        self.shape: tuple[int, ...] = moved

    def forward(self, x: Array, w: Array) -> Array:
        x = padded(self._xp, self._wide(x), self._moves, self._format)
        w = self._wide(w)
        y = self._xp.zeros(self.shape, self._dtype)
        for images, split in self._parts(y):
            for i, j, where in places(self._moves, self._format, images):
                split += self._apart(x[where]) * self._along(w[i, j])
        return y.astype(self._narrow, copy=False)

    def to_input(self, w: Array, dy: Array) -> Array:
        w, dy = self._wide(w), self._wide(dy)
        room = padded_shape(self._n, self._moves, self._channels, self._format)
        dx = self._xp.zeros(room, self._dtype)
        axis = 2 if self._first else -1
        for images, split in self._parts(dy):
            for i, j, where in places(self._moves, self._format, images):
                dx[where] += (split * self._along(w[i, j])).sum(axis)
        return unpadded(dx, self._moves, self._format).astype(self._narrow, copy=False)

    def to_filter(self, x: Array, dy: Array) -> Array:
        x = padded(self._xp, self._wide(x), self._moves, self._format)
        dy = self._wide(dy)
        down, right = self._moves
        dw = self._xp.zeros((down.window, right.window, self._channels, self._many), self._dtype)
        axes = (0, 3, 4) if self._first else (0, 1, 2)
        for images, split in self._parts(dy):
            for i, j, where in places(self._moves, self._format, images):
                dw[i, j] += (self._apart(x[where]) * split).sum(axes)
        return dw.astype(self._narrow, copy=False)

    def _wide(self, array: Array) -> Array:
        return array.astype(self._dtype, copy=False)

    def _parts(self, y: Array) -> Iterator[tuple[slice, Array]]:
        """The result in parts of some images, with its channels split by filters."""
        pair = spatial(self.shape, self._format)
        for images in image_parts(self._xp, y):
            count = images.stop - images.start
            if self._first:
                split = (count, self._channels, self._many, *pair)
            else:
                split = (count, *pair, self._channels, self._many)
            yield images, y[images].reshape(split)

    def _apart(self, x: Array) -> Array:
        """Images with an axis for the filters beside that of the channels."""
        return x[:, :, None] if self._first else x[..., None]

    def _along(self, w: Array) -> Array:
        """An element of the filters, (channels, filters), as it broadcasts to the result."""
        return w[:, :, None, None] if self._first else w


# -- ops ------------------------------------------------------------------------------------------


@op(
    "DepthwiseConv2dNative",
    types=FLOATS,
    shape=lambda inputs, attrs: _correlated(inputs[0].sizes, inputs[1].sizes, attrs),
)
def _depthwise(
    xp: ArrayModule,
    input: Array,
    filter: Array,
    *,
    strides: tuple[int, ...],
    padding: Padding,
    data_format: str,
    dilations: tuple[int, ...],
) -> Array:
    attrs = attributes(strides, padding, data_format, dilations)
    return _Depthwise(xp, input.shape, filter.shape, input.dtype, attrs).forward(input, filter)


@_depthwise.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, Tensor]:
    x, w = node.inputs
    return (
        _backprop_input(shape(x), w, dy, **node.attrs),
        _backprop_filter(x, shape(w), dy, **node.attrs),
    )


@op(
    "DepthwiseConv2dNativeBackpropInput",
    types=FLOATS,
    accepts={"input_sizes": INDEX_TYPES},
    host=("input_sizes",),
    result=lambda inputs, _: inputs[1].dtype,
    shape=_input_sizes,
)
def _backprop_input(
    xp: ArrayModule,
    input_sizes: Array,
    filter: Array,
    out_backprop: Array,
    *,
    strides: tuple[int, ...],
    padding: Padding,
    data_format: str,
    dilations: tuple[int, ...],
) -> Array:
    attrs = attributes(strides, padding, data_format, dilations)
    sizes = checked_sizes(input_sizes, "input_sizes")
    problem = _Depthwise(xp, sizes, filter.shape, filter.dtype, attrs)
    checked_result(out_backprop, problem.shape)
    return problem.to_input(filter, out_backprop)


@_backprop_input.gradient
def _(node: Operation, dz: Tensor) -> tuple[None, Tensor, Tensor]:
    _, w, dy = node.inputs
    return (
        None,
        _backprop_filter(dz, shape(w), dy, **node.attrs),
        _depthwise(dz, w, **node.attrs),
    )


@op(
    "DepthwiseConv2dNativeBackpropFilter",
    types=FLOATS,
    accepts={"filter_sizes": INDEX_TYPES},
    host=("filter_sizes",),
    shape=_filter_sizes,
)
def _backprop_filter(
    xp: ArrayModule,
    input: Array,
    filter_sizes: Array,
    out_backprop: Array,
    *,
    strides: tuple[int, ...],
    padding: Padding,
    data_format: str,
    dilations: tuple[int, ...],
) -> Array:
    attrs = attributes(strides, padding, data_format, dilations)
    sizes = checked_sizes(filter_sizes, "filter_sizes")
    problem = _Depthwise(xp, input.shape, sizes, input.dtype, attrs)
    checked_result(out_backprop, problem.shape)
    return problem.to_filter(input, out_backprop)


@_backprop_filter.gradient
def _(node: Operation, dz: Tensor) -> tuple[Tensor, None, Tensor]:
    x, _, dy = node.inputs
    return (
        _backprop_input(shape(x), dz, dy, **node.attrs),
        None,
        _depthwise(x, dz, **node.attrs),
    )


# -- public functions -----------------------------------------------------------------------------


@composite
def depthwise_conv2d_native(
    input: Any,
    filter: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
) -> Tensor:
    """Each channel of images correlated with filters of its own; see the module's text.

    Args:
        input: shape (batch, height, width, channels), with NCHW (batch, channels, height, width).
        filter: shape (height, width, channels, filters a channel); the dtype of the input.
        strides: an int for both, two for height and width, or four in the order of data_format.
        padding: "SAME" or "VALID".
        data_format: "NHWC" or "NCHW".
        dilations: the distance between elements of a window; like strides.
        name: the operation's name.

    Returns:
        shape (batch, rows, columns, channels · filters) in the order of data_format.

    Raises:
        ValueError: the shapes, or an argument, do not fit.
        TypeError: not floats, or dtypes that differ.
    """
    attrs = checked_attrs(strides, padding, data_format, dilations, explicit=True)
    return _depthwise(input, filter, name=name, **attrs)


@composite
def depthwise_conv2d(
    input: Any,
    filter: Any = None,
    strides: Any = None,
    padding: Any = None,
    rate: Any = None,
    name: str | None = None,
    data_format: str | None = None,
    dilations: Any = None,
) -> Tensor:
    """`depthwise_conv2d_native` with a dilation for height and width.

    Args:
        input: as for `depthwise_conv2d_native`.
        filter: as for `depthwise_conv2d_native`.
        strides: as for `depthwise_conv2d_native`.
        padding: "SAME" or "VALID".
        rate: an int or two: the distance between elements of a window; 1 if None.
        name: the operation's name.
        data_format: "NHWC" or "NCHW".
        dilations: another name of `rate`.

    Raises:
        ValueError: the shapes, or an argument, do not fit.
        TypeError: not floats, or dtypes that differ.
    """
    apart = _rate(rate, dilations)
    return depthwise_conv2d_native(
        input,
        required("filter", filter),
        strides,
        padding,
        data_format,
        apart,
        name or "depthwise",
    )


def _rate(rate: Any, dilations: Any) -> Any:
    if rate is None and dilations is None:
        return 1
    return required("rate", rate, dilations)


@composite
def depthwise_conv2d_backprop_input(
    input_sizes: Any,
    filter: Any,
    out_backprop: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
) -> Tensor:
    """The gradient of `depthwise_conv2d_native` for its input, given that for its result.

    Args:
        input_sizes: the shape of the input.
        filter: as for `depthwise_conv2d_native`.
        out_backprop: the gradient for the result, and of its shape.
        strides: as for `depthwise_conv2d_native`.
        padding: "SAME" or "VALID".
        data_format: "NHWC" or "NCHW".
        dilations: as for `depthwise_conv2d_native`.
        name: the operation's name.
    """
    attrs = checked_attrs(strides, padding, data_format, dilations, explicit=True)
    sizes = sizes_argument(input_sizes, "input_sizes")
    return _backprop_input(sizes, filter, out_backprop, name=name, **attrs)


@composite
def depthwise_conv2d_backprop_filter(
    input: Any,
    filter_sizes: Any,
    out_backprop: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
) -> Tensor:
    """The gradient of `depthwise_conv2d_native` for its filters, given that for its result.

    Args:
        input: as for `depthwise_conv2d_native`.
        filter_sizes: the shape of the filters.
        out_backprop: the gradient for the result, and of its shape.
        strides: as for `depthwise_conv2d_native`.
        padding: "SAME" or "VALID".
        data_format: "NHWC" or "NCHW".
        dilations: as for `depthwise_conv2d_native`.
        name: the operation's name.
    """
    attrs = checked_attrs(strides, padding, data_format, dilations, explicit=True)
    sizes = sizes_argument(filter_sizes, "filter_sizes")
    return _backprop_filter(input, sizes, out_backprop, name=name, **attrs)


depthwise_conv2d_native_backprop_input = depthwise_conv2d_backprop_input
depthwise_conv2d_native_backprop_filter = depthwise_conv2d_backprop_filter


@composite
def separable_conv2d(
    input: Any,
    depthwise_filter: Any,
    pointwise_filter: Any,
    strides: Any,
    padding: Any,
    rate: Any = None,
    name: str | None = None,
    data_format: str | None = None,
    dilations: Any = None,
) -> Tensor:
    """`depthwise_conv2d`, then `conv2d` with windows of one element, which mixes the channels.

    Args:
        input: shape (batch, height, width, channels) in the order of data_format.
        depthwise_filter: shape (height, width, channels, filters a channel).
        pointwise_filter: shape (1, 1, channels · filters a channel, filters).
        strides: of the depthwise step; as for `depthwise_conv2d`.
        padding: "SAME" or "VALID".
        rate: as for `depthwise_conv2d`.
        name: the name of the operation and its scope.
        data_format: "NHWC" or "NCHW".
        dilations: another name of `rate`.

    Raises:
        ValueError: the shapes, or an argument, do not fit.
        TypeError: not floats, or dtypes that differ.
    """
    format_ = checked_format(data_format)
    apart = _rate(rate, dilations)
    with get_default_graph().name_scope(name or "separable_conv2d") as scope:
        y = depthwise_conv2d(input, depthwise_filter, strides, padding, apart, "depthwise", format_)
        w = as_tensor(
            pointwise_filter,
            None if is_symbolic(pointwise_filter) else y.dtype,
            "pointwise_filter",
        )
        height, width, _, _ = four_axes(w.sizes, "pointwise_filter", FILTER_AXES)
        if height not in (1, None) or width not in (1, None):
            raise ValueError(f"pointwise_filter: expected height and width 1, got {w!r}")
        return conv2d(y, w, 1, "VALID", data_format=format_, name=scope)
