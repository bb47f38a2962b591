"""TF1's other forms of the convolution: of sequences, of either rank, dilated, transposed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optkit.graph import Tensor, get_default_graph, is_symbolic
from optkit.ops.arguments import sizes_argument, static_int, static_ints
from optkit.ops.array import concat
from optkit.ops.conv2d import (
    FILTER_AXES,
    checked_attrs,
    conv2d,
    conv2d_backprop_filter,
    conv2d_backprop_input,
)
from optkit.ops.core import as_tensor, composite, constant_value_as_shape
from optkit.ops.reshaping import expand_dims, squeeze
from optkit.ops.windows import (
    LINE_FORMATS,
    along_line,
    arranged,
    channel_axis,
    checked_format,
    equal_sizes,
    four_axes,
    required,
)

__all__ = [
    "atrous_conv2d",
    "atrous_conv2d_transpose",
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_backprop_filter",
    "conv2d_backprop_input",
    "conv2d_transpose",
    "convolution",
]


def _tensors(value: Any, filter: Any) -> tuple[Tensor, Tensor]:
    """Both as tensors; what is no tensor yet takes the dtype of the one beside it."""
    if is_symbolic(value) or not is_symbolic(filter):
        x = as_tensor(value, None, "value")
        return x, as_tensor(filter, None if is_symbolic(filter) else x.dtype, "filter")
    w = as_tensor(filter, None, "filter")
    return as_tensor(value, w.dtype, "value"), w


@composite
def conv2d_transpose(
    value: Any = None,
    filter: Any = None,
    output_shape: Any = None,
    strides: Any = None,
    padding: Any = "SAME",
    data_format: str | None = "NHWC",
    name: str | None = None,
    input: Any = None,
    filters: Any = None,
    dilations: Any = None,
) -> Tensor:
    """The transpose of `conv2d` as a linear map: the gradient for images that `conv2d` maps here.

    Args:
        value: shape (batch, height, width, channels) in the order of data_format.
        filter: shape (height, width, channels of the result, channels of value).
        output_shape: the shape of the result, a list or a tensor.
        strides: as for `conv2d`.
        padding: as for `conv2d`.
        data_format: "NHWC" or "NCHW".
        name: the operation's name.
        input: another name of `value`.
        filters: another name of `filter`.
        dilations: as for `conv2d`.

    Raises:
        ValueError: the shapes, or an argument, do not fit.
    """
    attrs = checked_attrs(strides, padding, data_format, dilations, explicit=True)
    if output_shape is None:
        raise ValueError("output_shape: expected four sizes, got None")
    value, filter = required("value", value, input), required("filter", filter, filters)
    with get_default_graph().name_scope(name or "conv2d_transpose") as scope:
        x, w = _tensors(value, filter)
        axis = channel_axis(attrs["data_format"])
        given = four_axes(x.sizes, "value", attrs["data_format"])
        shape = four_axes(w.sizes, "filter", FILTER_AXES)
        equal_sizes(("the channels of value", given[axis]), ("the last axis of filter", shape[3]))
        sizes = sizes_argument(output_shape, "output_shape")
        wanted = four_axes(constant_value_as_shape(sizes), "output_shape", attrs["data_format"])
        equal_sizes(
            ("the channels of output_shape", wanted[axis]),
            ("the third axis of filter", shape[2]),
        )
        return conv2d_backprop_input(sizes, w, x, name=scope, **attrs)


@composite
def conv1d(
    value: Any = None,
    filters: Any = None,
    stride: Any = None,
    padding: Any = None,
    use_cudnn_on_gpu: bool | None = None,
    data_format: str | None = None,
    name: str | None = None,
    input: Any = None,
    dilations: Any = None,
) -> Tensor:
    """Sequences correlated with filters.

    Args:
        value: shape (batch, width, channels), with NCW (batch, channels, width).
        filters: shape (width, channels, filters); the dtype of value.
        stride: an int, or a list of one or of three.
        padding: "SAME" or "VALID".
        use_cudnn_on_gpu: a hint, not needed here.
        data_format: "NWC" or "NCW"; "NHWC" and "NCHW" mean the same.
        name: the name scope.
        input: another name of `value`.
        dilations: the distance between elements of a window; like stride.

    Raises:
        ValueError: the shapes, or an argument, do not fit.
        TypeError: not floats, or dtypes that differ.
    """
    format_, wide = _line_format(data_format)
    value, filters = required("value", value, input), required("filters", filters)
    step = along_line(required("stride", stride), "stride", format_)
    apart = 1 if dilations is None else along_line(dilations, "dilations", format_)
    with get_default_graph().name_scope(name or "conv1d"):
        x, w = _tensors(value, filters)
        _three_axes(x, "value", format_)
        _three_axes(w, "filters", "width, channels in, channels out")
        height = 2 if wide == "NCHW" else 1
        y = conv2d(
            expand_dims(x, height),
            expand_dims(w, 0),
            arranged(1, (1, step), 1, wide),
            padding,
            data_format=wide,
            dilations=arranged(1, (1, apart), 1, wide),
        )
        return squeeze(y, [height])


def _line_format(data_format: Any) -> tuple[str, str]:
    """The format of sequences, and that of the images they are turned into."""
    alias = {"NHWC": "NWC", "NCHW": "NCW"}.get(data_format, data_format)
    format_ = checked_format(alias, LINE_FORMATS)
    return format_, "NCHW" if format_ == "NCW" else "NHWC"


def _three_axes(tensor: Tensor, argument: str, axes: str) -> None:
    if tensor.sizes is not None and len(tensor.sizes) != 3:
        raise ValueError(f"{argument}: expected three axes ({axes}), got {tensor!r}")


@composite
def conv1d_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: Any = "SAME",
    data_format: str | None = "NWC",
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """The transpose of `conv1d` as a linear map.

    Args:
        input: shape (batch, width, channels), with NCW (batch, channels, width).
        filters: shape (width, channels of the result, channels of the input).
        output_shape: the shape of the result, a list or a tensor.
        strides: as for `conv1d`.
        padding: "SAME" or "VALID".
        data_format: "NWC" or "NCW".
        dilations: as for `conv1d`.
        name: the name scope.

    Raises:
        ValueError: the shapes, or an argument, do not fit.
    """
    format_, wide = _line_format(data_format)
    step = along_line(required("strides", strides), "strides", format_)
    apart = 1 if dilations is None else along_line(dilations, "dilations", format_)
    with get_default_graph().name_scope(name or "conv1d_transpose"):
        x, w = _tensors(input, filters)
        _three_axes(x, "input", format_)
        _three_axes(w, "filters", "width, channels out, channels in")
        height = 2 if wide == "NCHW" else 1
        sizes = as_tensor(sizes_argument(output_shape, "output_shape"), None, "output_shape")
        y = conv2d_transpose(
            expand_dims(x, height),
            expand_dims(w, 0),
            concat([sizes[:height], as_tensor([1], sizes.dtype), sizes[height:]], 0),
            arranged(1, (1, step), 1, wide),
            padding,
            wide,
            dilations=arranged(1, (1, apart), 1, wide),
        )
        return squeeze(y, [height])


@composite
def convolution(
    input: Any,
    filter: Any = None,
    padding: Any = None,
    strides: Any = None,
    dilation_rate: Any = None,
    name: str | None = None,
    data_format: str | None = None,
    filters: Any = None,
    dilations: Any = None,
) -> Tensor:
    """`conv1d` or `conv2d`, as the filter has three or four axes.

    Args:
        input: shape (batch, *spatial, channels), channels second when data_format begins with NC.
        filter: shape (*spatial, channels, filters); the dtype of the input.
        padding: "SAME" or "VALID".
        strides: an int, or one for each spatial axis; 1 if None.
        dilation_rate: the distance between elements of a window; like strides.
        name: the name of the operation, or of its scope.
        data_format: "NWC", "NCW", "NHWC" or "NCHW".
        filters: another name of `filter`.
        dilations: another name of `dilation_rate`.

    Raises:
        ValueError: the shapes, or an argument, do not fit.
        TypeError: not floats, or dtypes that differ.
    """
    w = required("filter", filter, filters)
    if dilation_rate is not None or dilations is not None:
        dilation_rate = required("dilation_rate", dilation_rate, dilations)
    with get_default_graph().name_scope(name or "convolution") as scope:
        x, w = _tensors(input, w)
        rank = spatial_rank(x, w)
        steps = _spatial(strides, "strides", rank)
        apart = _spatial(dilation_rate, "dilation_rate", rank)
        if rank == 1:
            return conv1d(x, w, steps, padding, data_format=data_format, dilations=apart)
        return conv2d(x, w, steps, padding, True, data_format, apart, name=scope)


def spatial_rank(x: Tensor, w: Tensor) -> int:
    """The number of spatial axes of images x and filters w: 1 or 2.

    Raises:
        ValueError: they have other numbers of axes, or nothing is known of them.
    """
    ranks = {len(each.sizes) - 2 for each in (x, w) if each.sizes is not None}
    if len(ranks) != 1 or not ranks <= {1, 2}:
        raise ValueError(
            f"input, filter: expected three axes of both, or four, got {x!r} and {w!r}"
        )
    return ranks.pop()


def _spatial(value: Any, argument: str, rank: int) -> Sequence[int]:
    """An int for each spatial axis; 1 if None."""
    items = (1,) if value is None else static_ints(value, argument)
    if len(items) not in (1, rank):
        raise ValueError(f"{argument}: expected an int or a list of {rank} ints, got {value!r}")
    return items if len(items) == rank else items * rank


@composite
def atrous_conv2d(
    value: Any, filters: Any, rate: Any, padding: Any, name: str | None = None
) -> Tensor:
    """`conv2d` with stride 1 whose windows have elements `rate` apart; NHWC.

    Args:
        value: shape (batch, height, width, channels).
        filters: shape (height, width, channels, filters).
        rate: an int ≥ 1.
        padding: "SAME" or "VALID".
        name: the operation's name.
    """
    apart = static_int(rate, "rate")
    return conv2d(value, filters, 1, padding, dilations=apart, name=name or "convolution")


@composite
def atrous_conv2d_transpose(
    value: Any,
    filters: Any,
    output_shape: Any,
    rate: Any,
    padding: Any,
    name: str | None = None,
) -> Tensor:
    """The transpose of `atrous_conv2d` as a linear map.

    Args:
        value: shape (batch, height, width, channels).
        filters: shape (height, width, channels of the result, channels of value).
        output_shape: the shape of the result, a list or a tensor.
        rate: an int ≥ 1.
        padding: "SAME" or "VALID".
        name: the operation's name.
    """
    apart = static_int(rate, "rate")
    return conv2d_transpose(
        value,
        filters,
        output_shape,
        1,
        padding,
        dilations=apart,
        name=name or "conv2d_transpose",
    )
