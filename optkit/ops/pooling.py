"""Pooling: the largest or the mean element of each window of images, channel by channel.

The elements of the window are gone through one by one, each for all windows at once. Padding
follows TF (see `windows`); it is never the largest and does not count in a mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from optkit.backend.special import wide_dtype
from optkit.dtypes import FLOATS, DType, int64
from optkit.errors import InvalidArgumentError
from optkit.graph import Operation, Tensor, get_default_graph
from optkit.ops.arguments import checked_sizes, index_type, one_of, static_ints
from optkit.ops.core import (
    INDEX_TYPES,
    Array,
    ArrayModule,
    as_tensor,
    composite,
    constant_value_as_shape,
    op,
)
from optkit.ops.logic import REALS
from optkit.ops.reductions import lowest
from optkit.ops.reshaping import expand_dims, shape, squeeze
from optkit.ops.windows import (
    LINE_FORMATS,
    Padding,
    Slide,
    along_line,
    arranged,
    channel_axis,
    check_result,
    checked_format,
    checked_padding,
    checked_result,
    counts,
    four_axes,
    image_parts,
    padded,
    padded_shape,
    per_axis,
    places,
    required,
    slides,
    spatial,
    unpadded,
)
from optkit.shapes import Shape

__all__ = [
    "avg_pool",
    "avg_pool1d",
    "avg_pool2d",
    "max_pool",
    "max_pool1d",
    "max_pool2d",
    "max_pool_with_argmax",
    "pool",
]

# -- static shapes --------------------------------------------------------------------------------


def _pooled(x: Shape, attrs: Mapping[str, Any]) -> Shape:
    """The static shape of pooled images."""
    data_format = attrs["data_format"]
    x = four_axes(x, "value", data_format)
    pair = counts(spatial(x, data_format), spatial(attrs["ksize"], data_format), attrs)
    return arranged(x[0], pair, x[channel_axis(data_format)], data_format)


def _of_first(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Shape:
    return _pooled(inputs[0].sizes, attrs)


def _like_images(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Shape:
    """The shape of a gradient for images: theirs."""
    x, y, dy = (each.sizes for each in inputs)
    check_result(_pooled(x, attrs), y, attrs["data_format"])
    check_result(_pooled(x, attrs), dy, attrs["data_format"])
    return x


def _of_sizes(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Shape:
    x = constant_value_as_shape(inputs[0])
    check_result(_pooled(x, attrs), inputs[1].sizes, attrs["data_format"])
    return x


# -- arrays ---------------------------------------------------------------------------------------


def _moves(x: Sequence[int], attrs: Mapping[str, Any]) -> tuple[Slide, Slide]:
    """How windows move over images of shape x."""
    if len(x) != 4:
        raise InvalidArgumentError(f"expected images of four axes, got shape {tuple(x)}")
    data_format = attrs["data_format"]
    return slides(spatial(x, data_format), spatial(attrs["ksize"], data_format), attrs)


def _result_shape(
    x: Sequence[int], moves: tuple[Slide, Slide], data_format: str
) -> tuple[int, ...]:
    down, right = moves
    return arranged(x[0], (down.number, right.number), x[channel_axis(data_format)], data_format)


def _counted(xp: ArrayModule, moves: tuple[Slide, Slide], dtype: Any, data_format: str) -> Array:
    """How many elements each window has without the padding, as it broadcasts to the result."""
    down, right = (
        np.maximum(1, sum(_valid(slide, i) for i in range(slide.window))) for slide in moves
    )
    number = np.multiply.outer(down, right).astype(dtype)
    return xp.asarray(number if data_format == "NCHW" else number[..., None])


def _valid(slide: Slide, i: int) -> Any:
    """Whether element i of each window is no padding: ones and zeros."""
    where = _element(slide, i)
    return ((where >= 0) & (where < slide.size)).astype(np.int64)


def _element(slide: Slide, i: int) -> Any:
    """Where element i of each window lies on the axis without padding."""
    return np.arange(slide.number) * slide.stride + i * slide.dilation - slide.before


def _disjoint(moves: tuple[Slide, Slide]) -> bool:
    """Whether no element is in two windows."""
    return all((slide.window - 1) * slide.dilation < slide.stride for slide in moves)


# -- ops ------------------------------------------------------------------------------------------


@op("MaxPool", types=REALS, shape=_of_first)
def _max_pool(
    xp: ArrayModule,
    value: Array,
    *,
    ksize: tuple[int, ...],
    strides: tuple[int, ...],
    padding: Padding,
    data_format: str,
    dilations: tuple[int, ...],
) -> Array:
    attrs = _attributes(ksize, strides, padding, data_format, dilations)
    moves = _moves(value.shape, attrs)
    x = padded(xp, value, moves, data_format, lowest(value.dtype))
    y = xp.empty(_result_shape(value.shape, moves, data_format), value.dtype)
    for images in image_parts(xp, y):
        part = y[images]
        for i, j, where in places(moves, data_format, images):
            if i == j == 0:
                part[...] = x[where]
            else:
                xp.maximum(part, x[where], out=part)
    return y


@_max_pool.gradient
def _(node: Operation, dy: Tensor) -> Tensor:
    return _max_pool_grad(node.inputs[0], node.outputs[0], dy, **node.attrs)


def _first_largest(
    xp: ArrayModule, x: Array, y: Array, moves: tuple[Slide, Slide], data_format: str
) -> Iterator[tuple[slice, tuple[slice, ...], Array]]:
    """Which elements of padded images x are the first largest of their windows, y.

    Yields:
        some images; the elements at one place of their windows, as an index; and whether they are.
    """
    for images in image_parts(xp, y):
        largest = y[images]
        open_ = xp.ones(largest.shape, bool)
        for _, _, where in places(moves, data_format, images):
            hit = x[where] == largest
            hit &= open_
            open_ ^= hit
            yield images, where, hit


@op("MaxPoolGrad", types=REALS, shape=_like_images)
def _max_pool_grad(
    xp: ArrayModule,
    orig_input: Array,
    orig_output: Array,
    grad: Array,
    *,
    ksize: tuple[int, ...],
    strides: tuple[int, ...],
    padding: Padding,
    data_format: str,
    dilations: tuple[int, ...],
) -> Array:
    """The gradient of each window, given to its first largest element."""
    attrs = _attributes(ksize, strides, padding, data_format, dilations)
    moves = _moves(orig_input.shape, attrs)
    shape_ = _result_shape(orig_input.shape, moves, data_format)
    checked_result(orig_output, shape_)
    checked_result(grad, shape_)
    x = padded(xp, orig_input, moves, data_format, lowest(orig_input.dtype))
    dx = xp.zeros(x.shape, wide_dtype(grad.dtype))
    disjoint = _disjoint(moves)
    for images, where, hit in _first_largest(xp, x, orig_output, moves, data_format):
        if disjoint:
            xp.copyto(dx[where], grad[images], where=hit)
        else:
            dx[where] += xp.where(hit, grad[images], xp.zeros((), grad.dtype))
    return unpadded(dx, moves, data_format).astype(grad.dtype, copy=False)


@_max_pool_grad.gradient
def _(node: Operation, dz: Tensor) -> tuple[None, None, Tensor]:
    x, y, _ = node.inputs
    return None, None, _max_pool_grad_grad(x, y, dz, **node.attrs)


@op("MaxPoolGradGrad", types=REALS, shape=_of_first)
def _max_pool_grad_grad(
    xp: ArrayModule,
    orig_input: Array,
    orig_output: Array,
    grad: Array,
    *,
    ksize: tuple[int, ...],
    strides: tuple[int, ...],
    padding: Padding,
    data_format: str,
    dilations: tuple[int, ...],
) -> Array:
    """Of `grad`, which has the shape of the images, what is where a window is first largest."""
    attrs = _attributes(ksize, strides, padding, data_format, dilations)
    moves = _moves(orig_input.shape, attrs)
    checked_result(orig_output, _result_shape(orig_input.shape, moves, data_format))
    checked_result(grad, orig_input.shape)
    x = padded(xp, orig_input, moves, data_format, lowest(orig_input.dtype))
    dz = padded(xp, grad, moves, data_format)
    dy = xp.zeros(orig_output.shape, grad.dtype)
    for images, where, hit in _first_largest(xp, x, orig_output, moves, data_format):
        xp.copyto(dy[images], dz[where], where=hit)
    return dy


@_max_pool_grad_grad.gradient
def _(node: Operation, dw: Tensor) -> tuple[None, None, Tensor]:
    x, y, _ = node.inputs
    return None, None, _max_pool_grad(x, y, dw, **node.attrs)


@op(
    "MaxPoolWithArgmax",
    types=REALS,
    infer=lambda inputs, attrs: [
        (inputs[0].dtype, _pooled(inputs[0].sizes, attrs)),
        (attrs["Targmax"], _pooled(inputs[0].sizes, attrs)),
    ],
)
def _max_pool_with_argmax(
    xp: ArrayModule,
    value: Array,
    *,
    ksize: tuple[int, ...],
    strides: tuple[int, ...],
    padding: Padding,
    data_format: str,
    dilations: tuple[int, ...],
    Targmax: DType,  # noqa: N803 - TF's name
    include_batch_in_index: bool,
) -> tuple[Array, Array]:
    attrs = _attributes(ksize, strides, padding, data_format, dilations)
    moves = _moves(value.shape, attrs)
    x = padded(xp, value, moves, data_format, lowest(value.dtype))
    n, height, width, channels = value.shape
    down, right = moves
    y = xp.full((n, down.number, right.number, channels), lowest(value.dtype), value.dtype)
    found = xp.full(y.shape, -1, np.int64)
    for i, j, where in places(moves, data_format):
        rows, columns = _element(down, i)[:, None, None], _element(right, j)[:, None]
        inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
        here = xp.asarray((rows * width + columns) * channels + np.arange(channels))
        larger = (x[where] > y) | (found < 0)
        larger &= xp.asarray(inside)
        xp.copyto(y, x[where], where=larger)
        xp.copyto(found, xp.broadcast_to(here, y.shape), where=larger)
    if include_batch_in_index:
        found += xp.arange(n).reshape(n, 1, 1, 1) * (height * width * channels)
    return y, found.astype(Targmax.dtype, copy=False)


@_max_pool_with_argmax.gradient
def _(node: Operation, dy: Tensor, _: Tensor) -> Tensor:
    attrs = {key: node.attrs[key] for key in _POOL_ATTRS}
    return _max_pool_grad(node.inputs[0], node.outputs[0], dy, **attrs)


@op("AvgPool", types=FLOATS, shape=_of_first)
def _avg_pool(
    xp: ArrayModule,
    value: Array,
    *,
    ksize: tuple[int, ...],
    strides: tuple[int, ...],
    padding: Padding,
    data_format: str,
    dilations: tuple[int, ...],
) -> Array:
    attrs = _attributes(ksize, strides, padding, data_format, dilations)
    moves = _moves(value.shape, attrs)
    dtype = wide_dtype(value.dtype)
    x = padded(xp, value, moves, data_format)
    y = xp.zeros(_result_shape(value.shape, moves, data_format), dtype)
    number = _counted(xp, moves, dtype, data_format)
    for images in image_parts(xp, y):
        part = y[images]
        for _, _, where in places(moves, data_format, images):
            part += x[where]
        part /= number
    return y.astype(value.dtype, copy=False)


@_avg_pool.gradient
def _(node: Operation, dy: Tensor) -> Tensor:
    return _avg_pool_grad(shape(node.inputs[0]), dy, **node.attrs)


@op(
    "AvgPoolGrad",
    types=FLOATS,
    accepts={"orig_input_shape": INDEX_TYPES},
    host=("orig_input_shape",),
    result=lambda inputs, _: inputs[1].dtype,
    shape=_of_sizes,
)
def _avg_pool_grad(
    xp: ArrayModule,
    orig_input_shape: Array,
    grad: Array,
    *,
    ksize: tuple[int, ...],
    strides: tuple[int, ...],
    padding: Padding,
    data_format: str,
    dilations: tuple[int, ...],
) -> Array:
    """The gradient of each window, shared out evenly among its elements."""
    attrs = _attributes(ksize, strides, padding, data_format, dilations)
    sizes = checked_sizes(orig_input_shape, "orig_input_shape")
    moves = _moves(sizes, attrs)
    checked_result(grad, _result_shape(sizes, moves, data_format))
    dtype = wide_dtype(grad.dtype)
    number = _counted(xp, moves, dtype, data_format)
    channels = sizes[channel_axis(data_format)]
    dx = xp.zeros(padded_shape(sizes[0], moves, channels, data_format), dtype)
    for images in image_parts(xp, grad):
        share = grad[images] / number
        for _, _, where in places(moves, data_format, images):
            dx[where] += share
    return unpadded(dx, moves, data_format).astype(grad.dtype, copy=False)


@_avg_pool_grad.gradient
def _(node: Operation, dz: Tensor) -> tuple[None, Tensor]:
    return None, _avg_pool(dz, **node.attrs)


_POOL_ATTRS = ("ksize", "strides", "padding", "data_format", "dilations")


def _attributes(*values: Any) -> dict[str, Any]:
    """The attributes of a kernel as those of its node."""
    return dict(zip(_POOL_ATTRS, values, strict=True))


# -- public functions -----------------------------------------------------------------------------


def _checked(
    ksize: Any, strides: Any, padding: Any, data_format: Any, dilations: Any = 1
) -> dict[str, Any]:
    """The arguments of a pooling as its attributes.

    Raises:
        TypeError, ValueError: they are none.
    """
    data_format = checked_format(data_format)
    return _attributes(
        per_axis(ksize, "ksize", data_format),
        per_axis(strides, "strides", data_format),
        checked_padding(padding, data_format),
        data_format,
        per_axis(dilations, "dilations", data_format),
    )


@composite
def max_pool(
    value: Any = None,
    ksize: Any = None,
    strides: Any = None,
    padding: Any = None,
    data_format: str | None = "NHWC",
    name: str | None = None,
    input: Any = None,
) -> Tensor:
    """The largest element of each window; the first of several gets the gradient.

    Args:
        value: real numbers, shape (batch, height, width, channels), with NCHW (batch, channels,
            height, width).
        ksize: the size of the windows: an int for both, two for height and width, or four in the
            order of data_format.
        strides: how far the windows move; like ksize.
        padding: "SAME" or "VALID".
        data_format: "NHWC" or "NCHW".
        name: the operation's name.
        input: another name of `value`.

    Raises:
        ValueError: the shape, or an argument, does not fit.
    """
    attrs = _checked(ksize, strides, padding, data_format)
    return _max_pool(required("value", value, input), name=name, **attrs)


@composite
def avg_pool(
    value: Any = None,
    ksize: Any = None,
    strides: Any = None,
    padding: Any = None,
    data_format: str | None = "NHWC",
    name: str | None = None,
    input: Any = None,
) -> Tensor:
    """The mean of each window, of its elements without padding.

    Args:
        value: floats; as for `max_pool`.
        ksize: as for `max_pool`.
        strides: as for `max_pool`.
        padding: "SAME" or "VALID".
        data_format: "NHWC" or "NCHW".
        name: the operation's name.
        input: another name of `value`.

    Raises:
        ValueError: the shape, or an argument, does not fit.
    """
    attrs = _checked(ksize, strides, padding, data_format)
    return _avg_pool(required("value", value, input), name=name, **attrs)


max_pool2d = max_pool
avg_pool2d = avg_pool


@composite
def max_pool_with_argmax(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = "NHWC",
    Targmax: Any = None,  # noqa: N803 - TF's name
    name: str | None = None,
    output_dtype: Any = None,
    include_batch_in_index: bool = False,
) -> tuple[Tensor, Tensor]:
    """`max_pool`, and where each largest element is.

    Args:
        input: shape (batch, height, width, channels).
        ksize: as for `max_pool`.
        strides: as for `max_pool`.
        padding: "SAME" or "VALID".
        data_format: "NHWC".
        Targmax: the dtype of the places, int32 or int64; int64 if None.
        name: the operation's name.
        output_dtype: another name of `Targmax`.
        include_batch_in_index: whether places are counted from the start of the whole batch.

    Returns:
        the largest elements, and their places (row·width + column)·channels + channel.

    Raises:
        ValueError: the shape, or an argument, does not fit.
    """
    attrs = _checked(ksize, strides, padding, checked_format(data_format, ("NHWC",)))
    dtype = index_type(one_of("Targmax", Targmax, "output_dtype", output_dtype) or int64)
    node = _max_pool_with_argmax.node(
        input,
        name=name,
        Targmax=dtype,
        include_batch_in_index=bool(include_batch_in_index),
        **attrs,
    )
    y, argmax = node.outputs
    return y, argmax


@composite
def max_pool1d(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = "NWC",
    name: str | None = None,
) -> Tensor:
    """`max_pool` of sequences.

    Args:
        input: shape (batch, width, channels), with NCW (batch, channels, width).
        ksize: an int, or a list of one or of three.
        strides: like ksize.
        padding: "SAME" or "VALID".
        data_format: "NWC" or "NCW".
        name: the name scope.
    """
    return _pool1d(_max_pool, input, ksize, strides, padding, data_format, name or "max_pool1d")


@composite
def avg_pool1d(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = "NWC",
    name: str | None = None,
) -> Tensor:
    """`avg_pool` of sequences; arguments as for `max_pool1d`."""
    return _pool1d(_avg_pool, input, ksize, strides, padding, data_format, name or "avg_pool1d")


def _pool1d(
    kind: Any,
    value: Any,
    ksize: Any,
    strides: Any,
    padding: Any,
    data_format: str | None,
    name: str,
    dilations: Any = 1,
) -> Tensor:
    format_ = checked_format(data_format, LINE_FORMATS)
    wide = "NCHW" if format_ == "NCW" else "NHWC"
    height = 2 if wide == "NCHW" else 1
    attrs = _checked(
        (1, along_line(required("ksize", ksize), "ksize", format_)),
        (1, along_line(required("strides", strides), "strides", format_)),
        padding,
        wide,
        (1, along_line(dilations, "dilations", format_)),
    )
    with get_default_graph().name_scope(name):
        x = as_tensor(value, None, "input")
        if x.sizes is not None and len(x.sizes) != 3:
            raise ValueError(f"input: expected three axes ({format_}), got {x!r}")
        return squeeze(kind(expand_dims(x, height), **attrs), [height])


@composite
def pool(
    input: Any,
    window_shape: Any,
    pooling_type: str,
    padding: Any,
    dilation_rate: Any = None,
    strides: Any = None,
    name: str | None = None,
    data_format: str | None = None,
    dilations: Any = None,
) -> Tensor:
    """The largest or the mean element of each window, of sequences or images.

    Args:
        input: shape (batch, *spatial, channels), channels second when data_format begins with NC.
        window_shape: the size of the windows, one for each of one or two spatial axes.
        pooling_type: "MAX" or "AVG".
        padding: "SAME" or "VALID".
        dilation_rate: the distance between elements of a window; 1 if None.
        strides: how far the windows move; 1 if None.
        name: the name scope.
        data_format: "NWC", "NCW", "NHWC" or "NCHW".
        dilations: another name of `dilation_rate`.

    Raises:
        ValueError: the shape, or an argument, does not fit.
    """
    kinds = {"MAX": _max_pool, "AVG": _avg_pool}
    if pooling_type not in kinds:
        raise ValueError(f"pooling_type: expected 'MAX' or 'AVG', got {pooling_type!r}")
    windows = static_ints(window_shape, "window_shape")
    if len(windows) not in (1, 2):
        raise ValueError(f"window_shape: expected one or two ints, got {window_shape!r}")
    steps = 1 if strides is None else strides
    apart = one_of("dilation_rate", dilation_rate, "dilations", dilations)
    apart = 1 if apart is None else apart
    kind, label = kinds[pooling_type], name or f"{pooling_type.lower()}_pool"
    if len(windows) == 1:
        return _pool1d(kind, input, windows, steps, padding, data_format, label, apart)
    return kind(input, name=label, **_checked(windows, steps, padding, data_format, apart))
