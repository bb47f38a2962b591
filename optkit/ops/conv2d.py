"""The convolution of images, in TF1's sense: a correlation with filters, and its gradients.

    y[n, i, j, q] = Σ x[n, i·s + a·d, j·s + b·d, c] · w[a, b, c, q]  over a, b, c

with x padded by zeros, stride s and dilation d. Padding follows TF (see `windows`). Float dtypes;
16-bit floats are added up in float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optkit.dtypes import FLOATS
from optkit.errors import InvalidArgumentError
from optkit.graph import Operation, Tensor
from optkit.ops.arguments import checked_sizes, sizes_argument
from optkit.ops.columns import Correlation
from optkit.ops.core import INDEX_TYPES, Array, ArrayModule, composite, constant_value_as_shape, op
from optkit.ops.reshaping import shape
from optkit.ops.windows import (
    Padding,
    arranged,
    channel_axis,
    check_result,
    checked_format,
    checked_padding,
    checked_result,
    counts,
    equal_sizes,
    four_axes,
    per_axis,
    required,
    slides,
    spatial,
)
from optkit.shapes import Shape

__all__ = ["conv2d", "conv2d_backprop_filter", "conv2d_backprop_input"]

# -- static shapes --------------------------------------------------------------------------------


FILTER_AXES = "height, width, channels in, channels out"


def correlated(x: Shape, w: Shape, attrs: Mapping[str, Any]) -> Shape:
    """The static shape of images x correlated with filters w.

    Raises:
        ValueError: the shapes do not fit.
    """
    data_format = attrs["data_format"]
    x = four_axes(x, "input", data_format)
    w = four_axes(w, "filter", FILTER_AXES)
    equal_sizes(
        ("the channels of the input", x[channel_axis(data_format)]),
        ("the third axis of the filter", w[2]),
    )
    pair = counts(spatial(x, data_format), (w[0], w[1]), attrs)
    return arranged(x[0], pair, w[3], data_format)


def _input_sizes(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Shape:
    sizes, w, dy = inputs
    data_format = attrs["data_format"]
    x = four_axes(constant_value_as_shape(sizes), "input_sizes", data_format)
    dx = check_result(correlated(x, w.sizes, attrs), dy.sizes, data_format)
    channels = x[channel_axis(data_format)]
    if channels is None and w.sizes is not None:
        channels = w.sizes[2]
    return arranged(dx[0] if x[0] is None else x[0], spatial(x, data_format), channels, data_format)


def _filter_sizes(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Shape:
    x, sizes, dy = inputs
    w = four_axes(constant_value_as_shape(sizes), "filter_sizes", FILTER_AXES)
    check_result(correlated(x.sizes, w, attrs), dy.sizes, attrs["data_format"])
    channel = channel_axis(attrs["data_format"])
    found = [None if each.sizes is None else each.sizes[channel] for each in (x, dy)]
    return (*w[:2], *(size if size is not None else found[i] for i, size in enumerate(w[2:])))


# -- ops ------------------------------------------------------------------------------------------


def _correlation(
    xp: ArrayModule, x: Sequence[int], w: Sequence[int], dtype: Any, attrs: Mapping[str, Any]
) -> tuple[Correlation, tuple[int, ...]]:
    """The problem for images and filters of these shapes, and the shape of its result."""
    data_format = attrs["data_format"]
    try:
        moved: Any = correlated(tuple(x), tuple(w), attrs)
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from error
    moves = slides(spatial(x, data_format), (w[0], w[1]), attrs)
    sizes = (x[0], w[2], w[3])
    return Correlation(xp, moves, sizes, dtype, data_format), moved


@op("Conv2D", types=FLOATS, shape=lambda inputs, attrs: correlated(*_sizes(inputs), attrs))
def _conv2d(
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
    problem, _ = _correlation(xp, input.shape, filter.shape, input.dtype, attrs)
    return problem.forward(input, filter)


@_conv2d.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, Tensor]:
    x, w = node.inputs
    return (
        _conv2d_backprop_input(shape(x), w, dy, **node.attrs),
        _conv2d_backprop_filter(x, shape(w), dy, **node.attrs),
    )


@op(
    "Conv2DBackpropInput",
    types=FLOATS,
    accepts={"input_sizes": INDEX_TYPES},
    host=("input_sizes",),
    result=lambda inputs, _: inputs[1].dtype,
    shape=_input_sizes,
)
def _conv2d_backprop_input(
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
    problem, moved = _correlation(xp, sizes, filter.shape, filter.dtype, attrs)
    checked_result(out_backprop, moved)
    return problem.to_input(filter, out_backprop)


@_conv2d_backprop_input.gradient
def _(node: Operation, dz: Tensor) -> tuple[None, Tensor, Tensor]:
    _, w, dy = node.inputs
    return (
        None,
        _conv2d_backprop_filter(dz, shape(w), dy, **node.attrs),
        _conv2d(dz, w, **node.attrs),
    )


@op(
    "Conv2DBackpropFilter",
    types=FLOATS,
    accepts={"filter_sizes": INDEX_TYPES},
    host=("filter_sizes",),
    shape=_filter_sizes,
)
def _conv2d_backprop_filter(
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
    problem, moved = _correlation(xp, input.shape, sizes, input.dtype, attrs)
    checked_result(out_backprop, moved)
    return problem.to_filter(input, out_backprop)


@_conv2d_backprop_filter.gradient
def _(node: Operation, dz: Tensor) -> tuple[Tensor, None, Tensor]:
    x, _, dy = node.inputs
    return (
        _conv2d_backprop_input(shape(x), dz, dy, **node.attrs),
        None,
        _conv2d(x, dz, **node.attrs),
    )


def _sizes(inputs: Sequence[Tensor]) -> tuple[Shape, Shape]:
    return inputs[0].sizes, inputs[1].sizes


def attributes(
    strides: tuple[int, ...], padding: Padding, data_format: str, dilations: tuple[int, ...]
) -> dict[str, Any]:
    """The attributes of a kernel as those of its node."""
    return {
        "strides": strides,
        "padding": padding,
        "data_format": data_format,
        "dilations": dilations,
    }


def checked_attrs(
    strides: Any, padding: Any, data_format: Any, dilations: Any, explicit: bool = False
) -> dict[str, Any]:
    """The arguments of a convolution as its attributes.

    Raises:
        TypeError, ValueError: they are none.
    """
    data_format = checked_format(data_format)
    return {
        "strides": per_axis(strides, "strides", data_format),
        "padding": checked_padding(padding, data_format, explicit),
        "data_format": data_format,
        "dilations": per_axis(1 if dilations is None else dilations, "dilations", data_format),
    }


# -- public functions -----------------------------------------------------------------------------


@composite
def conv2d(
    input: Any,
    filter: Any = None,
    strides: Any = None,
    padding: Any = None,
    use_cudnn_on_gpu: bool = True,
    data_format: str | None = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
    filters: Any = None,
) -> Tensor:
    """Images correlated with filters; see the module's text for the formula.

    Args:
        input: shape (batch, height, width, channels), with NCHW (batch, channels, height, width).
        filter: shape (height, width, channels, filters); the dtype of the input.
        strides: an int for both, two for height and width, or four in the order of data_format.
        padding: "SAME", "VALID", or four pairs of sizes in the order of data_format.
        use_cudnn_on_gpu: a hint, not needed here.
        data_format: "NHWC" or "NCHW".
        dilations: the distance between elements of a window; like strides.
        name: the operation's name.
        filters: another name of `filter`.

    Returns:
        shape (batch, rows, columns, filters) in the order of data_format.

    Raises:
        ValueError: the shapes, or an argument, do not fit.
        TypeError: not floats, or dtypes that differ.
    """
    attrs = checked_attrs(strides, padding, data_format, dilations, explicit=True)
    return _conv2d(input, required("filter", filter, filters), name=name, **attrs)


@composite
def conv2d_backprop_input(
    input_sizes: Any,
    filter: Any = None,
    out_backprop: Any = None,
    strides: Any = None,
    padding: Any = None,
    use_cudnn_on_gpu: bool = True,
    data_format: str | None = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
    filters: Any = None,
) -> Tensor:
    """The gradient of `conv2d` for its input, given that for its result.

    Args:
        input_sizes: the shape of the input.
        filter: as for `conv2d`.
        out_backprop: the gradient for the result, and of its shape.
        strides: as for `conv2d`.
        padding: as for `conv2d`.
        use_cudnn_on_gpu: a hint, not needed here.
        data_format: as for `conv2d`.
        dilations: as for `conv2d`.
        name: the operation's name.
        filters: another name of `filter`.
    """
    attrs = checked_attrs(strides, padding, data_format, dilations, explicit=True)
    sizes = sizes_argument(input_sizes, "input_sizes")
    w = required("filter", filter, filters)
    return _conv2d_backprop_input(sizes, w, out_backprop, name=name, **attrs)


@composite
def conv2d_backprop_filter(
    input: Any,
    filter_sizes: Any,
    out_backprop: Any,
    strides: Any = None,
    padding: Any = None,
    use_cudnn_on_gpu: bool = True,
    data_format: str | None = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
) -> Tensor:
    """The gradient of `conv2d` for its filters, given that for its result.

    Args:
        input: as for `conv2d`.
        filter_sizes: the shape of the filters.
        out_backprop: the gradient for the result, and of its shape.
        strides: as for `conv2d`.
        padding: as for `conv2d`.
        use_cudnn_on_gpu: a hint, not needed here.
        data_format: as for `conv2d`.
        dilations: as for `conv2d`.
        name: the operation's name.
    """
    attrs = checked_attrs(strides, padding, data_format, dilations, explicit=True)
    sizes = sizes_argument(filter_sizes, "filter_sizes")
    return _conv2d_backprop_filter(input, sizes, out_backprop, name=name, **attrs)
