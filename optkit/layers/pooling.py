"""Pooling layers; see `nn.max_pool` and `nn.avg_pool` for what they compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from optkit.graph import Tensor
from optkit.layers.arguments import (
    format_argument,
    op_format,
    padding_argument,
    sizes_argument,
)
from optkit.layers.base import InputSpec, Layer
from optkit.layers.convolution import windows_along
from optkit.ops.core import composite
from optkit.ops.pooling import avg_pool, avg_pool1d, max_pool, max_pool1d
from optkit.shapes import TensorShape

__all__ = [
    "AveragePooling1D",
    "AveragePooling2D",
    "MaxPooling1D",
    "MaxPooling2D",
    "average_pooling1d",
    "average_pooling2d",
    "max_pooling1d",
    "max_pooling2d",
]


class _Pooling(Layer):
    """One number for each window of each channel."""

    rank = 2
    pool: Callable[..., Tensor]

    def __init__(
        self,
        pool_size: Any,
        strides: Any,
        padding: str = "valid",
        data_format: str = "channels_last",
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.pool_size = sizes_argument(pool_size, self.rank, "pool_size")
        self.strides = sizes_argument(strides, self.rank, "strides")
        self.padding = padding_argument(padding)
        self.data_format = format_argument(data_format)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
        """The pooled inputs."""
        return type(self).pool(
            inputs,
            self.pool_size,
            self.strides,
            self.padding.upper(),
            op_format(self.data_format, self.rank),
        )

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """The shape of the output for inputs of a shape."""
        sizes = TensorShape(input_shape).with_rank(self.rank + 2).as_list()
        first = 2 if self.data_format == "channels_first" else 1
        for i, (window, stride) in enumerate(zip(self.pool_size, self.strides, strict=True)):
            sizes[first + i] = windows_along(sizes[first + i], window, stride, self.padding)
        return TensorShape(sizes)


class MaxPooling1D(_Pooling):
    """The largest element of each window of sequences; see `MaxPooling2D`."""

    rank = 1
    pool = staticmethod(max_pool1d)


class AveragePooling1D(_Pooling):
    """The mean of each window of sequences; see `MaxPooling2D`."""

    rank = 1
    pool = staticmethod(avg_pool1d)


class MaxPooling2D(_Pooling):
    """The largest element of each window of images.

    Args:
        pool_size: the size of the windows: an int, or one for each spatial axis.
        strides: how far the windows move; like pool_size.
        padding: "valid" or "same", in any case.
        data_format: "channels_last" or "channels_first".
        name: the layer's name.
        **kwargs: as of `Layer`.

    Raises:
        TypeError, ValueError: a bad argument; when called, inputs of another rank.
    """

    pool = staticmethod(max_pool)


class AveragePooling2D(_Pooling):
    """The mean of each window of images, padding left out; see `MaxPooling2D`."""

    pool = staticmethod(avg_pool)


# -- functions ------------------------------------------------------------------------------------


@composite
def max_pooling1d(
    inputs: Any,
    pool_size: Any,
    strides: Any,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Tensor:
    """The output of a layer `MaxPooling1D`."""
    return MaxPooling1D(pool_size, strides, padding, data_format, name)(inputs)  # type: ignore[no-any-return]


@composite
def average_pooling1d(
    inputs: Any,
    pool_size: Any,
    strides: Any,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Tensor:
    """The output of a layer `AveragePooling1D`."""
    return AveragePooling1D(pool_size, strides, padding, data_format, name)(inputs)  # type: ignore[no-any-return]


@composite
def max_pooling2d(
    inputs: Any,
    pool_size: Any,
    strides: Any,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Tensor:
    """The output of a layer `MaxPooling2D`."""
    return MaxPooling2D(pool_size, strides, padding, data_format, name)(inputs)  # type: ignore[no-any-return]


@composite
def average_pooling2d(
    inputs: Any,
    pool_size: Any,
    strides: Any,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Tensor:
    """The output of a layer `AveragePooling2D`."""
    return AveragePooling2D(pool_size, strides, padding, data_format, name)(inputs)  # type: ignore[no-any-return]
