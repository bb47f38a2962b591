"""Convolutions and pooling by loops over every window: what the kernels are compared with.

Images are NHWC; `channels_last` and `channels_first` turn those of the other format around.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np


def channels_last(x: np.ndarray, data_format: str) -> np.ndarray:
    """Images of a format as NHWC."""
    return x.transpose(0, 2, 3, 1) if data_format == "NCHW" else x


def in_format(x: np.ndarray, data_format: str) -> np.ndarray:
    """NHWC images in a format."""
    return x.transpose(0, 3, 1, 2) if data_format == "NCHW" else x


def pair(value: Any, data_format: str = "NHWC") -> tuple[int, int]:
    """The numbers for height and width of any form of argument."""
    items = [value] if isinstance(value, int) else list(value)
    if len(items) == 4:
        items = items[2:] if data_format == "NCHW" else items[1:3]
    return (items[0], items[-1])


def span(size: int, window: int, stride: int, dilation: int, padding: Any) -> tuple[int, int]:
    """The padding before an axis, and the number of windows: TensorFlow's rule."""
    reach = dilation * (window - 1) + 1
    if padding == "SAME":
        number = (size + stride - 1) // stride
        needed = max(0, (number - 1) * stride + reach - size)
        return needed // 2, number
    before, after = (0, 0) if padding == "VALID" else padding
    return before, (before + size + after - reach) // stride + 1


def spans(
    sizes: Any, windows: Any, strides: Any, dilations: Any, padding: Any
) -> list[tuple[int, int]]:
    """`span` for height and width; explicit padding is four pairs, NHWC."""
    paddings = [padding] * 2 if isinstance(padding, str) else padding[1:3]
    return [span(*item) for item in zip(sizes, windows, strides, dilations, paddings, strict=True)]


def windows(
    sizes: Any, window: Any, strides: Any, dilations: Any, padding: Any
) -> Iterator[tuple[int, int, list[tuple[int, int, int, int]]]]:
    """Each window (i, j) and its elements (a, b) that lie in the image, as (a, b, row, column)."""
    (top, height), (left, width) = spans(sizes, window, strides, dilations, padding)
    for i in range(height):
        for j in range(width):
            inside = []
            for a in range(window[0]):
                for b in range(window[1]):
                    row = i * strides[0] + a * dilations[0] - top
                    column = j * strides[1] + b * dilations[1] - left
                    if 0 <= row < sizes[0] and 0 <= column < sizes[1]:
                        inside.append((a, b, row, column))
            yield i, j, inside


def _walk(
    sizes: Any, window: Any, strides: Any, dilations: Any, padding: Any
) -> Iterator[tuple[int, int, int, int, int, int]]:
    for i, j, inside in windows(sizes, window, strides, dilations, padding):
        for element in inside:
            yield (i, j, *element)


def result_sizes(
    sizes: Any, window: Any, strides: Any, dilations: Any, padding: Any
) -> tuple[int, ...]:
    """The height and width of the result."""
    return tuple(number for _, number in spans(sizes, window, strides, dilations, padding))


def _settings(strides: Any, padding: Any, data_format: str, dilations: Any) -> tuple[Any, ...]:
    if not isinstance(padding, str) and data_format == "NCHW":
        padding = [padding[0], padding[2], padding[3], padding[1]]
    return pair(strides, data_format), pair(dilations, data_format), padding


def conv2d(
    x: np.ndarray,
    w: np.ndarray,
    strides: Any = 1,
    padding: Any = "SAME",
    data_format: str = "NHWC",
    dilations: Any = 1,
) -> np.ndarray:
    x = channels_last(x, data_format)
    rest = _settings(strides, padding, data_format, dilations)
    y = np.zeros((x.shape[0], *result_sizes(x.shape[1:3], w.shape[:2], *rest), w.shape[3]))
    for i, j, a, b, row, column in _walk(x.shape[1:3], w.shape[:2], *rest):
        y[:, i, j] += x[:, row, column] @ w[a, b]
    return in_format(y, data_format)


def conv2d_input(
    sizes: Any,
    w: np.ndarray,
    dy: np.ndarray,
    strides: Any = 1,
    padding: Any = "SAME",
    data_format: str = "NHWC",
    dilations: Any = 1,
) -> np.ndarray:
    dy = channels_last(dy, data_format)
    rest = _settings(strides, padding, data_format, dilations)
    dx = channels_last(np.zeros(tuple(sizes)), data_format)
    for i, j, a, b, row, column in _walk(dx.shape[1:3], w.shape[:2], *rest):
        dx[:, row, column] += dy[:, i, j] @ w[a, b].T
    return in_format(dx, data_format)


def conv2d_filter(
    x: np.ndarray,
    sizes: Any,
    dy: np.ndarray,
    strides: Any = 1,
    padding: Any = "SAME",
    data_format: str = "NHWC",
    dilations: Any = 1,
) -> np.ndarray:
    x, dy = channels_last(x, data_format), channels_last(dy, data_format)
    rest = _settings(strides, padding, data_format, dilations)
    dw = np.zeros(tuple(sizes))
    for i, j, a, b, row, column in _walk(x.shape[1:3], dw.shape[:2], *rest):
        dw[a, b] += x[:, row, column].T @ dy[:, i, j]
    return dw


def full_filter(w: np.ndarray) -> np.ndarray:
    """Depthwise filters as those of an ordinary convolution, zero across channels."""
    height, width, channels, many = w.shape
    full = np.zeros((height, width, channels, channels * many))
    for c in range(channels):
        full[:, :, c, c * many : (c + 1) * many] = w[:, :, c]
    return full


def diagonal_filter(full: np.ndarray, sizes: Any) -> np.ndarray:
    """The entries of `full_filter` that are not zero by construction."""
    w = np.zeros(tuple(sizes))
    many = w.shape[3]
    for c in range(w.shape[2]):
        w[:, :, c] = full[:, :, c, c * many : (c + 1) * many]
    return w


def depthwise(x: np.ndarray, w: np.ndarray, *args: Any, **kwargs: Any) -> np.ndarray:
    return conv2d(x, full_filter(w), *args, **kwargs)


def depthwise_input(
    sizes: Any, w: np.ndarray, dy: np.ndarray, *args: Any, **kwargs: Any
) -> np.ndarray:
    return conv2d_input(sizes, full_filter(w), dy, *args, **kwargs)


def depthwise_filter(
    x: np.ndarray, sizes: Any, dy: np.ndarray, *args: Any, **kwargs: Any
) -> np.ndarray:
    full = full_filter(np.zeros(tuple(sizes)))
    return diagonal_filter(conv2d_filter(x, full.shape, dy, *args, **kwargs), sizes)


def _pooled(
    x: np.ndarray, ksize: Any, strides: Any, padding: Any, data_format: str, dilations: Any
) -> tuple[np.ndarray, Iterator[Any]]:
    """Room for the result, and its windows."""
    window = pair(ksize, data_format)
    rest = _settings(strides, padding, data_format, dilations)
    sizes = result_sizes(x.shape[1:3], window, *rest)
    y = np.zeros((x.shape[0], *sizes, x.shape[3]), x.dtype)
    return y, windows(x.shape[1:3], window, *rest)


def max_pool(
    x: np.ndarray,
    ksize: Any,
    strides: Any,
    padding: Any,
    data_format: str = "NHWC",
    dilations: Any = 1,
) -> np.ndarray:
    x = channels_last(x, data_format)
    y, moves = _pooled(x, ksize, strides, padding, data_format, dilations)
    for i, j, inside in moves:
        y[:, i, j] = np.max([x[:, row, column] for _, _, row, column in inside], axis=0)
    return in_format(y, data_format)


def argmax_pool(
    x: np.ndarray, ksize: Any, strides: Any, padding: Any, dilations: Any = 1
) -> np.ndarray:
    """The row·width + column of the first largest element of each window; NHWC."""
    y, moves = _pooled(x, ksize, strides, padding, "NHWC", dilations)
    found = np.zeros(y.shape, np.int64)
    for i, j, inside in moves:
        elements = np.array([x[:, row, column] for _, _, row, column in inside])
        places = np.array([row * x.shape[2] + column for _, _, row, column in inside])
        found[:, i, j] = places[np.argmax(elements, axis=0)]
    return found


def max_pool_input(
    x: np.ndarray,
    dy: np.ndarray,
    ksize: Any,
    strides: Any,
    padding: Any,
    data_format: str = "NHWC",
    dilations: Any = 1,
) -> np.ndarray:
    x, dy = channels_last(x, data_format), channels_last(dy, data_format)
    found = argmax_pool(x, pair(ksize, data_format), pair(strides, data_format), padding, dilations)
    dx = np.zeros(x.shape)
    for n, i, j, c in np.ndindex(dy.shape):
        row, column = divmod(int(found[n, i, j, c]), x.shape[2])
        dx[n, row, column, c] += dy[n, i, j, c]
    return in_format(dx, data_format)


def max_pool_picked(
    x: np.ndarray,
    z: np.ndarray,
    ksize: Any,
    strides: Any,
    padding: Any,
    data_format: str = "NHWC",
    dilations: Any = 1,
) -> np.ndarray:
    """Of z, which has x's shape, what is where x is first largest in each window."""
    x, z = channels_last(x, data_format), channels_last(z, data_format)
    found = argmax_pool(x, pair(ksize, data_format), pair(strides, data_format), padding, dilations)
    y = np.zeros(found.shape)
    for n, i, j, c in np.ndindex(found.shape):
        row, column = divmod(int(found[n, i, j, c]), x.shape[2])
        y[n, i, j, c] = z[n, row, column, c]
    return in_format(y, data_format)


def avg_pool(
    x: np.ndarray,
    ksize: Any,
    strides: Any,
    padding: Any,
    data_format: str = "NHWC",
    dilations: Any = 1,
) -> np.ndarray:
    x = channels_last(x, data_format)
    y, moves = _pooled(x, ksize, strides, padding, data_format, dilations)
    for i, j, inside in moves:
        y[:, i, j] = np.mean([x[:, row, column] for _, _, row, column in inside], axis=0)
    return in_format(y, data_format)


def avg_pool_input(
    sizes: Any,
    dy: np.ndarray,
    ksize: Any,
    strides: Any,
    padding: Any,
    data_format: str = "NHWC",
    dilations: Any = 1,
) -> np.ndarray:
    dy = channels_last(dy, data_format)
    dx = channels_last(np.zeros(tuple(sizes)), data_format)
    _, moves = _pooled(dx, ksize, strides, padding, data_format, dilations)
    for i, j, inside in moves:
        for _, _, row, column in inside:
            dx[:, row, column] += dy[:, i, j] / len(inside)
    return in_format(dx, data_format)


def near(x: np.ndarray, radius: int) -> np.ndarray:
    """The sums over the channels at most `radius` away."""
    channels = x.shape[-1]
    total = np.zeros(x.shape)
    for c in range(channels):
        for other in range(channels):
            if abs(c - other) <= radius:
                total[..., c] += x[..., other]
    return total


def lrn(
    x: np.ndarray, depth_radius: int = 5, bias: float = 1, alpha: float = 1, beta: float = 0.5
) -> np.ndarray:
    return x / (bias + alpha * near(x**2, depth_radius)) ** beta
