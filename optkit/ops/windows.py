"""Windows that slide over the height and the width of images: arguments, sizes, views of memory.

An axis of `size` elements is filled up with `before` and `after` more; a window has `window`
elements, `dilation` apart, and moves on by `stride`, which gives `number` windows. With SAME
padding number = ⌈size/stride⌉ and the odd element of the padding goes to the end; with VALID there
is none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from optkit.backend.arrays import strided
from optkit.errors import InvalidArgumentError
from optkit.ops.arguments import static_int, static_ints
from optkit.ops.core import Array, ArrayModule
from optkit.shapes import Shape, TensorShape

Padding: TypeAlias = "str | tuple[tuple[int, int], ...]"
"""SAME, VALID, or the elements before and after each of the four axes."""
Spatial: TypeAlias = tuple[Any, Any]
"""Something for the height and for the width."""

FORMATS = ("NHWC", "NCHW")
LINE_FORMATS = ("NWC", "NCW")
"""The formats of sequences: images of height 1."""


class Slide(NamedTuple):
    """How a window moves along one axis; see the module's text."""

    size: int
    window: int
    stride: int
    dilation: int
    before: int
    after: int
    number: int


# -- arguments ------------------------------------------------------------------------------------


def checked_format(data_format: Any, allowed: Sequence[str] = FORMATS) -> str:
    """The data format, the first of `allowed` if None.

    Raises:
        ValueError: there is no such format.
    """
    if data_format is None:
        return allowed[0]
    if data_format not in allowed:
        raise ValueError(f"data_format: expected one of {', '.join(allowed)}, got {data_format!r}")
    return str(data_format)


def channel_axis(data_format: str) -> int:
    """The axis of the channels: 1, or the last of four."""
    return 1 if data_format.startswith("NC") else 3


def spatial(values: Sequence[Any], data_format: str) -> Spatial:
    """Of a value for each of the four axes, those of the height and the width."""
    first = 2 if data_format.startswith("NC") else 1
    return values[first], values[first + 1]


def arranged(batch: Any, pair: Sequence[Any], channels: Any, data_format: str) -> tuple[Any, ...]:
    """A value for each of the four axes, in their order."""
    if data_format.startswith("NC"):
        return (batch, channels, *pair)
    return (batch, *pair, channels)


def per_axis(value: Any, argument: str, data_format: str) -> tuple[int, ...]:
    """A number ≥ 1 for each of the four axes, of which only height and width may have another.

    Args:
        value: an int for both, a list of one or two for height and width, or of four.
        argument: what to call it in errors.
        data_format: NHWC or NCHW.

    Raises:
        TypeError: no integers.
        ValueError: too many or too few of them, one below 1, or one for batch or channels.
    """
    if value is None:
        raise ValueError(f"{argument}: expected an int or a list of 1, 2 or 4 ints, got None")
    items = static_ints(value, argument)
    if len(items) not in (1, 2, 4):
        raise ValueError(f"{argument}: expected an int or a list of 1, 2 or 4 ints, got {value!r}")
    if min(items) < 1:
        raise ValueError(f"{argument}: expected numbers ≥ 1, got {value!r}")
    if len(items) < 4:
        pair = items * 2 if len(items) == 1 else items
        return arranged(1, pair, 1, data_format)
    if items[0] != 1 or items[channel_axis(data_format)] != 1:
        raise ValueError(
            f"{argument}: expected 1 for the batch and the channels of {data_format}, got {value!r}"
        )
    return items


def along_line(value: Any, argument: str, data_format: str) -> int:
    """A number ≥ 1 for the only axis of a sequence: an int, or a list of one or of three.

    Raises:
        TypeError: no integers.
        ValueError: a list of another length, a number below 1, or one for batch or channels.
    """
    items = static_ints(value, argument)
    if len(items) == 3:
        place = 2 if data_format.startswith("NC") else 1
        if [item for i, item in enumerate(items) if i != place] != [1, 1]:
            raise ValueError(
                f"{argument}: expected 1 for the batch and the channels of {data_format}, got "
                f"{value!r}"
            )
        items = (items[place],)
    if len(items) != 1:
        raise ValueError(f"{argument}: expected an int or a list of 1 or 3 ints, got {value!r}")
    if items[0] < 1:
        raise ValueError(f"{argument}: expected a number ≥ 1, got {value!r}")
    return items[0]


def checked_padding(padding: Any, data_format: str, explicit: bool = False) -> Padding:
    """SAME or VALID; where `explicit`, also a pair of sizes for each of the four axes.

    Raises:
        ValueError: it is neither.
    """
    if padding in ("SAME", "VALID"):
        return str(padding)
    wanted = "'SAME', 'VALID'" + (" or four pairs of sizes" if explicit else "")
    if not explicit or not isinstance(padding, list | tuple) or len(padding) != 4:
        raise ValueError(f"padding: expected {wanted}, got {padding!r}")
    pairs: list[tuple[int, int]] = []
    for axis, pair in enumerate(padding):
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ValueError(f"padding: expected {wanted}, got {padding!r}")
        before, after = (static_int(item, "padding") for item in pair)
        if before < 0 or after < 0:
            raise ValueError(f"padding: expected sizes ≥ 0, got {padding!r}")
        if (before or after) and axis in (0, channel_axis(data_format)):
            raise ValueError(
                f"padding: expected none for the batch and the channels of {data_format}, got "
                f"{padding!r}"
            )
        pairs.append((before, after))
    return tuple(pairs)


def required(argument: str, value: Any, *others: Any) -> Any:
    """The one of several spellings of an argument that was given.

    Raises:
        ValueError: none was, or several.
    """
    given = [item for item in (value, *others) if item is not None]
    if len(given) != 1:
        raise ValueError(f"{argument}: expected it once, got it {len(given)} times")
    return given[0]


# -- sizes ----------------------------------------------------------------------------------------


def _slide(size: int, window: int, stride: int, dilation: int, padding: Any, name: str) -> Slide:
    """How the window moves along the axis `name`.

    Raises:
        InvalidArgumentError: the window is larger than the axis, or has no elements.
    """
    if window < 1:
        raise InvalidArgumentError(f"expected a window of {name} ≥ 1, got {window}")
    reach = (window - 1) * dilation + 1
    if padding == "SAME":
        number = -(-size // stride)
        total = max((number - 1) * stride + reach - size, 0) if number else 0
        return Slide(size, window, stride, dilation, total // 2, total - total // 2, number)
    before, after = (0, 0) if padding == "VALID" else padding
    room = size + before + after
    if room < reach:
        raise InvalidArgumentError(
            f"expected a {name} of at least {reach}, for a window of {window} elements {dilation} "
            f"apart, got {room}; padding 'SAME' takes any"
        )
    return Slide(size, window, stride, dilation, before, after, (room - reach) // stride + 1)


def slides(sizes: Spatial, windows: Spatial, attrs: Mapping[str, Any]) -> tuple[Slide, Slide]:
    """How windows move over images of these sizes.

    Args:
        sizes: the height and width of the images.
        windows: the height and width of the windows.
        attrs: strides, dilations, padding and data_format.

    Raises:
        InvalidArgumentError: a window is larger than the image.
    """
    down, right = (
        _slide(size, window, *rest)
        for size, window, rest in zip(sizes, windows, _moves(attrs), strict=True)
    )
    return down, right


def counts(sizes: Spatial, windows: Spatial, attrs: Mapping[str, Any]) -> Spatial:
    """The height and width of the result, None where not known yet; arguments as `slides`.

    Raises:
        ValueError: a window is larger than the image.
    """
    found: list[int | None] = []
    for size, window, rest in zip(sizes, windows, _moves(attrs), strict=True):
        if window is None and attrs["padding"] == "SAME":
            window = 1  # any gives as many
        known = size is not None and window is not None
        found.append(_slide(size, window, *rest).number if known else None)
    return found[0], found[1]


def _moves(attrs: Mapping[str, Any]) -> Iterator[tuple[int, int, Any, str]]:
    """Stride, dilation, padding and name of both axes."""
    padding, data_format = attrs["padding"], attrs["data_format"]
    paddings = (padding, padding) if isinstance(padding, str) else spatial(padding, data_format)
    strides = spatial(attrs["strides"], data_format)
    dilations = spatial(attrs["dilations"], data_format)
    return zip(strides, dilations, paddings, ("height", "width"), strict=True)


def four_axes(sizes: Shape, argument: str, axes: str) -> tuple[int | None, ...]:
    """The sizes of four axes, unknown ones where nothing is known.

    Raises:
        ValueError: there are more or fewer axes.
    """
    if sizes is None:
        return (None,) * 4
    if len(sizes) != 4:
        raise ValueError(f"{argument}: expected four axes ({axes}), got shape {TensorShape(sizes)}")
    return sizes


def equal_sizes(first: tuple[str, int | None], second: tuple[str, int | None]) -> None:
    """Raise ValueError when two sizes with their descriptions are known and differ."""
    if first[1] is not None and second[1] is not None and first[1] != second[1]:
        raise ValueError(
            f"{first[0]} and {second[0]} must be equal, got {first[1]} and {second[1]}"
        )


def check_result(expected: Shape, dy: Shape, data_format: str) -> tuple[int | None, ...]:
    """The shape of the gradient of a result whose shape should be `expected`.

    Raises:
        ValueError: it is another.
    """
    dy = four_axes(dy, "out_backprop", data_format)
    if not TensorShape(dy).is_compatible_with(expected):
        raise ValueError(
            f"out_backprop: expected shape {TensorShape(expected)}, that of the result, got "
            f"{TensorShape(dy)}"
        )
    return dy


def checked_result(dy: Array, expected: Sequence[int]) -> None:
    """Raise InvalidArgumentError unless the gradient of the result has the result's shape."""
    if dy.shape != tuple(expected):
        raise InvalidArgumentError(
            f"out_backprop: expected shape {tuple(expected)}, that of the result, got {dy.shape}"
        )


# -- arrays ---------------------------------------------------------------------------------------


def padded(
    xp: ArrayModule, x: Array, moves: tuple[Slide, Slide], data_format: str, fill: Any = 0
) -> Array:
    """The images with their padding; x itself where there is none."""
    if not any(slide.before or slide.after for slide in moves):
        return x
    n, channels = x.shape[0], x.shape[channel_axis(data_format)]
    result = xp.full(padded_shape(n, moves, channels, data_format), fill, x.dtype)
    result[_inside(moves, data_format)] = x
    return result


def padded_shape(
    n: int, moves: tuple[Slide, Slide], channels: int, data_format: str
) -> tuple[int, ...]:
    """The shape of so many images with their padding."""
    sizes = [slide.before + slide.size + slide.after for slide in moves]
    return arranged(n, sizes, channels, data_format)


def unpadded(x: Array, moves: tuple[Slide, Slide], data_format: str) -> Array:
    """A view of padded images without their padding."""
    return x[_inside(moves, data_format)]


def _inside(moves: tuple[Slide, Slide], data_format: str) -> tuple[slice, ...]:
    pair = [slice(slide.before, slide.before + slide.size) for slide in moves]
    return arranged(slice(None), pair, slice(None), data_format)


def window_view(xp: ArrayModule, x: Array, moves: tuple[Slide, Slide], data_format: str) -> Array:
    """Padded images as their windows, without a copy.

    Returns:
        shape (batch, rows, columns, height of the window, width of the window, channels).
    """
    n, channels = x.shape[0], x.shape[channel_axis(data_format)]
    down, right = moves
    to_image, to_channel = x.strides[0], x.strides[channel_axis(data_format)]
    to_row, to_column = spatial(x.strides, data_format)
    return strided(
        xp,
        x,
        (n, down.number, right.number, down.window, right.window, channels),
        (
            to_image,
            to_row * down.stride,
            to_column * right.stride,
            to_row * down.dilation,
            to_column * right.dilation,
            to_channel,
        ),
    )


def steps(slide: Slide, i: int, rows: slice | None = None) -> slice:
    """Where element i of the windows lies on a padded axis; of the windows in `rows` alone."""
    first, last = (0, slide.number) if rows is None else (rows.start, rows.stop)
    start = i * slide.dilation
    if last <= first:
        return slice(0, 0)
    return slice(start + first * slide.stride, start + (last - 1) * slide.stride + 1, slide.stride)


def places(
    moves: tuple[Slide, Slide], data_format: str, images: slice = slice(None)
) -> Iterator[tuple[int, int, tuple[slice, ...]]]:
    """Each place (i, j) of the window, row by row, and its elements as an index of the images."""
    down, right = moves
    for i in range(down.window):
        for j in range(right.window):
            pair = (steps(down, i), steps(right, j))
            yield i, j, arranged(images, pair, slice(None), data_format)


_PART = 1 << 20
"""The bytes worked on at a time on the host, which stay in a cache."""


def image_parts(xp: ArrayModule, images: Array) -> Iterator[slice]:
    """A few of the images at a time; all of them on a device."""
    count = images.shape[0]
    if xp is not np:
        return parts(count, count)
    return parts(count, _PART // max(1, images.itemsize * math.prod(images.shape[1:])))


def parts(total: int, most: int) -> Iterator[slice]:
    """Slices of at most so many (of one at least), which cover range(total)."""
    most = max(1, most)
    return (slice(first, min(first + most, total)) for first in range(0, total, most))
