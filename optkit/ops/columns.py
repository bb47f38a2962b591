"""Correlations of images with filters as matrix products (im2col).

The windows of the images as the rows of a matrix, with a column for each element of a window,
times the filters as a matrix, are the result. The matrix of windows is as many times larger than
the images as a window has elements, so it is made a block at a time, in memory that is used again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from optkit.backend.special import wide_dtype
from optkit.ops.core import Array, ArrayModule
from optkit.ops.windows import (
    Slide,
    arranged,
    padded,
    padded_shape,
    parts,
    steps,
    unpadded,
    window_view,
)

__all__ = ["Correlation"]

_BLOCK = 1 << 24
_SMALL_BLOCK = 1 << 21
_DEVICE_BLOCK = 1 << 28
"""The bytes of the matrix that are made at a time: on the host, there for small problems, on a
device."""

_SMALL = 1 << 27
"""The multiplications of a problem that takes a few milliseconds.

The threads of BLAS wait for each other without sleeping: where another process holds a core, it
costs many milliseconds to wake them. So small problems stay on one thread, cut into products of
`_ALONE` multiplications at most, which BLAS does not share out. Large ones are left to BLAS, in
few and large products.
"""

_ALONE = 1 << 18
_FEWEST = 16
"""Rows below which cutting a product costs too much."""

_LONG_RUN = 32
"""So many elements side by side in memory are copied fast."""


class Correlation:
    """A correlation of images with filters, and its two adjoints.

    Args:
        xp: numpy or cupy.
        moves: how the windows move down and right.
        sizes: the number of images, of their channels, and of filters.
        dtype: of the arrays; 16-bit floats are computed in float32.
        data_format: of the images and of the result.
    """

    def __init__(
        self,
        xp: ArrayModule,
        moves: tuple[Slide, Slide],
        sizes: tuple[int, int, int],
        dtype: np.dtype[np.generic],
        data_format: str,
    ) -> None:
        self._xp = xp
        self._moves = moves
        self._n, self._channels, self._filters = sizes
        self._narrow, self._dtype = dtype, wide_dtype(dtype)
        self._format = data_format
        self._channels_first = data_format == "NCHW"
        down, right = moves
        self._counts = down.number, right.number
        self._elements = down.window * right.window * self._channels
        work = self._n * down.number * right.number * self._elements * self._filters
        self._small = xp is np and work <= _SMALL
        # The matrix laid out by element has runs as long as a row of the result, laid out by
        # window as long as a row of the window.
        run = self._channels * (right.window if right.dilation == 1 else 1)
        self._by_element = self._channels_first or run < min(right.number, _LONG_RUN)
        # Windows of one element, or of the whole image: the images are the matrix.
        bare = not any(slide.before or slide.after for slide in moves)
        self._pointwise = bare and all(slide.window == slide.stride == 1 for slide in moves)
        whole = all(slide.window == slide.size for slide in moves)
        self._as_it_is = not self._channels_first and (self._pointwise or (bare and whole))

    def forward(self, x: Array, w: Array) -> Array:
        """Each window of x times each filter.

        Args:
            x: images.
            w: filters, shape (height, width, channels, filters).
        """
        matrix = self._matrix(w)
        shape = arranged(self._n, self._counts, self._filters, self._format)
        if self._channels_first and self._pointwise:
            flat = x.astype(self._dtype, copy=False).reshape(*x.shape[:2], math.prod(self._counts))
            return self._xp.matmul(matrix.T, flat).reshape(shape).astype(self._narrow, copy=False)
        y = self._xp.empty(shape, self._dtype)
        for images, rows, columns in self._columns(x):
            if self._channels_first:
                part = self._product(matrix.T, columns.T)
                part = part.reshape(self._filters, *self._shape(images, rows)[:3])
                y[images, :, rows] = part.transpose(1, 0, 2, 3)
            else:
                self._product(columns, matrix, out=self._block(y, images, rows))
        return y.astype(self._narrow, copy=False)

    def to_filter(self, x: Array, dy: Array) -> Array:
        """The gradient of the filters, given that of the result."""
        dw = self._xp.zeros((self._elements, self._filters), self._dtype)
        dy = dy.astype(self._dtype, copy=False)
        for images, rows, columns in self._columns(x):
            dw += self._sum_of_products(columns.T, self._block(dy, images, rows))
        down, right = self._moves
        shape = (down.window, right.window, self._channels, self._filters)
        return dw.reshape(shape).astype(self._narrow, copy=False)

    def to_input(self, w: Array, dy: Array) -> Array:
        """The gradient of the images, given that of the result."""
        down, right = self._moves
        matrix, dy = self._matrix(w), dy.astype(self._dtype, copy=False)
        if self._as_it_is:
            whole = self._block(dy, slice(0, self._n), slice(0, down.number))
            dx = self._product(whole, matrix.T)
            dx = dx.reshape(self._n, down.size, right.size, self._channels)
            return dx.astype(self._narrow, copy=False)
        if self._channels_first and self._pointwise:
            dx = self._xp.matmul(matrix, dy.reshape(*dy.shape[:2], math.prod(self._counts)))
            dx = dx.reshape(self._n, self._channels, *self._counts)
            return dx.astype(self._narrow, copy=False)
        room = padded_shape(self._n, self._moves, self._channels, self._format)
        dx = self._xp.zeros(room, self._dtype)
        for images, rows in self._blocks():
            part = self._block(dy, images, rows)
            sizes = self._shape(images, rows)
            if self._by_element:
                columns = self._product(matrix, part.T).reshape(*sizes[3:], *sizes[:3])
                # From (filter height, width, channels, images, rows, columns):
                order = (0, 1, 3, 2, 4, 5) if self._channels_first else (0, 1, 3, 4, 5, 2)
                columns = columns.transpose(order)
            else:
                columns = self._product(part, matrix.T).reshape(sizes)
                columns = columns.transpose(3, 4, 0, 1, 2, 5)
            for i in range(down.window):
                for j in range(right.window):
                    pair = steps(down, i, rows), steps(right, j)
                    dx[arranged(images, pair, slice(None), self._format)] += columns[i, j]
        return unpadded(dx, self._moves, self._format).astype(self._narrow, copy=False)

    def _matrix(self, w: Array) -> Array:
        return w.astype(self._dtype, copy=False).reshape(self._elements, self._filters)

    def _shape(self, images: slice, rows: slice) -> tuple[int, ...]:
        """Of the windows in a block: images, rows, columns, height, width, channels."""
        down, right = self._moves
        return (
            images.stop - images.start,
            rows.stop - rows.start,
            right.number,
            down.window,
            right.window,
            self._channels,
        )

    def _blocks(self) -> Iterator[tuple[slice, slice]]:
        """Parts of the result, as images and rows, whose matrices are of moderate size."""
        limit = _SMALL_BLOCK if self._small else _BLOCK if self._xp is np else _DEVICE_BLOCK
        height, width = self._counts
        row = max(1, width * self._elements * self._dtype.itemsize)
        many = limit // max(1, height * row)
        if many or self._as_it_is:
            for images in parts(self._n, self._n if self._as_it_is else many):
                yield images, slice(0, height)
            return
        for image in range(self._n):
            for rows in parts(height, max(1, limit // row)):
                yield slice(image, image + 1), rows

    def _columns(self, x: Array) -> Iterator[tuple[slice, slice, Array]]:
        """The blocks with their matrices, (windows, elements of a window)."""
        x = x.astype(self._dtype, copy=False)
        if self._as_it_is:
            for images, rows in self._blocks():
                count = self._n * self._counts[0] * self._counts[1]
                yield images, rows, x.reshape(count, self._elements)
            return
        x = padded(self._xp, x, self._moves, self._format)
        windows = window_view(self._xp, x, self._moves, self._format)
        memory = None
        for images, rows in self._blocks():
            part = windows[images, rows]
            count = part.shape[0] * part.shape[1] * part.shape[2]
            if memory is None:
                memory = self._xp.empty(count * self._elements, self._dtype)
            flat = memory[: count * self._elements]
            if self._by_element:
                part = part.transpose(3, 4, 5, 0, 1, 2)
                self._xp.copyto(flat.reshape(part.shape), part)
                yield images, rows, flat.reshape(self._elements, count).T
            else:
                self._xp.copyto(flat.reshape(part.shape), part)
                yield images, rows, flat.reshape(count, self._elements)

    def _block(self, y: Array, images: slice, rows: slice) -> Array:
        """A block of the result as a matrix (windows, filters); a view where channels are last."""
        if self._channels_first:
            part = y[images, :, rows].transpose(1, 0, 2, 3)
            _, n, height, width = part.shape
            return part.reshape(self._filters, n * height * width).T
        part = y[images, rows]
        n, height, width, _ = part.shape
        return part.reshape(n * height * width, self._filters)

    def _tile(self, rows: int, others: int) -> int:
        """How many of the rows of a product to multiply at a time."""
        tile = _ALONE // max(1, others)
        return min(tile, rows) if self._small and tile >= _FEWEST else rows

    def _product(self, a: Array, b: Array, out: Array | None = None) -> Array:
        """The matrix product a·b; into `out` where given."""
        if out is None:
            out = self._xp.empty((a.shape[0], b.shape[1]), a.dtype)
        left, right, target = (a, b, out) if a.shape[0] >= b.shape[1] else (b.T, a.T, out.T)
        (rows, inner), columns = left.shape, right.shape[1]
        tile = self._tile(rows, inner * columns)
        if tile == rows:
            self._xp.matmul(a, b, out=out)
            return out
        many = rows // tile
        bulk = many * tile
        self._xp.matmul(
            left[:bulk].reshape(many, tile, inner),
            right,
            out=target[:bulk].reshape(many, tile, columns),
        )
        if bulk < rows:
            self._xp.matmul(left[bulk:], right, out=target[bulk:])
        return out

    def _sum_of_products(self, a: Array, b: Array) -> Array:
        """The matrix product a·b, where the sums are long."""
        (rows, inner), columns = a.shape, b.shape[1]
        tile = self._tile(inner, rows * columns)
        if tile == inner:
            return self._xp.matmul(a, b)
        many = inner // tile
        bulk = many * tile
        sums = self._xp.matmul(
            a[:, :bulk].reshape(rows, many, tile).transpose(1, 0, 2),
            b[:bulk].reshape(many, tile, columns),
        )
        return sums.sum(0) + self._xp.matmul(a[:, bulk:], b[bulk:])
