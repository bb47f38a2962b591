"""Dense layers, dropout, flattening, in TF1's forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from optkit.graph import Tensor, get_default_graph
from optkit.initializers import Zeros
from optkit.layers.arguments import (
    activation_of,
    chosen,
    format_argument,
    known_condition,
    size_argument,
)
from optkit.layers.base import InputSpec, Layer
from optkit.ops.array import concat, expand_dims, identity, reshape, shape, transpose
from optkit.ops.core import composite
from optkit.ops.linalg import matmul
from optkit.ops.nn import bias_add
from optkit.ops.nn import dropout as dropped
from optkit.shapes import TensorShape

__all__ = ["Dense", "Dropout", "Flatten", "dense", "dropout", "flatten"]

_ZEROS = Zeros()


class Dense(Layer):
    """activation(inputs·kernel + bias) over the last axis.

    Args:
        units: the size of the output's last axis.
        activation: a function, the name of one in `nn`, or None.
        use_bias: whether to add a bias.
        kernel_initializer: initial value of the kernel, shape (size of the last axis, units).
        bias_initializer: initial value of the bias, shape (units,).
        kernel_regularizer: a function of the kernel that gives a loss or None.
        bias_regularizer: a function of the bias that gives a loss or None.
        activity_regularizer: see `Layer`, as are the following.
        kernel_constraint: see `Variable`.
        bias_constraint: see `Variable`.
        trainable: whether the variables are trainable.
        name: the layer's name.
        **kwargs: `dtype`, `_scope` and `_reuse` of `Layer`.

    Raises:
        ValueError: when called, the inputs have fewer than two axes, or a last axis of unknown
            size, or of another size than at the first call.
        TypeError: when called, the inputs are not floating.
    """

    def __init__(
        self,
        units: Any,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = None,
        bias_initializer: Any = _ZEROS,
        kernel_regularizer: Callable[[Any], Any] | None = None,
        bias_regularizer: Callable[[Any], Any] | None = None,
        activity_regularizer: Callable[[Any], Any] | None = None,
        kernel_constraint: Callable[[Any], Any] | None = None,
        bias_constraint: Callable[[Any], Any] | None = None,
        trainable: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            trainable=trainable, name=name, activity_regularizer=activity_regularizer, **kwargs
        )
        self.units = size_argument(units, "units")
        self.activation = activation_of(activation)
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = bias_initializer
        self.kernel_regularizer = kernel_regularizer
        self.bias_regularizer = bias_regularizer
        self.kernel_constraint = kernel_constraint
        self.bias_constraint = bias_constraint
        self.input_spec = InputSpec(min_ndim=2)
        self.kernel: Any = None
        self.bias: Any = None

    def build(self, input_shape: Any) -> None:
        """Make kernel and bias."""
        self._require_floats()
        sizes = TensorShape(input_shape).sizes
        if sizes is None or sizes[-1] is None:
            raise self._refusal("inputs", "a last axis of known size", TensorShape(sizes))
        self.input_spec = InputSpec(min_ndim=2, axes={-1: sizes[-1]})
        self.kernel = self.add_weight(
            "kernel",
            [sizes[-1], self.units],
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        if self.use_bias:
            self.bias = self.add_weight(
                "bias",
                [self.units],
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )
        self.built = True

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
        """activation(inputs·kernel + bias)."""
        outputs = _product(inputs, self.kernel)
        if self.use_bias:
            outputs = bias_add(outputs, self.bias)
        return outputs if self.activation is None else self.activation(outputs)

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """The input's shape with `units` for the last size."""
        sizes = TensorShape(input_shape).with_rank_at_least(2).as_list()
        return TensorShape([*sizes[:-1], self.units])


def _product(x: Tensor, kernel: Any) -> Tensor:
    """x·kernel over the last axis of x, which may have more axes than two."""
    if x.shape.ndims == 2:
        return matmul(x, kernel)
    columns, units = kernel.shape.as_list()
    with get_default_graph().name_scope("Tensordot") as scope:
        rows = matmul(reshape(x, [-1, columns]), kernel)
        sizes = None if x.sizes is None else [*x.sizes[:-1], units]
        if sizes is not None and sizes.count(None) <= 1:
            return reshape(rows, [-1 if size is None else size for size in sizes], name=scope)
        return reshape(rows, concat([shape(x)[:-1], [units]], 0), name=scope)


class Dropout(Layer):
    """In training, 0 with probability `rate`, else inputs/(1 - rate); see `nn.dropout`.

    Args:
        rate: a number in [0, 1) or a scalar tensor.
        noise_shape: the shape of the random choices, which broadcast to the inputs.
        seed: the operation's seed.
        name: the layer's name.
        **kwargs: as of `Layer`.
    """

    def __init__(
        self,
        rate: Any = 0.5,
        noise_shape: Any = None,
        seed: int | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.rate = rate
        self.noise_shape = noise_shape
        self.seed = seed

    def call(self, inputs: Any, training: Any = False, **kwargs: Any) -> Tensor:
        """The inputs, thinned out where `training`, a bool or a bool tensor, holds."""

        def thinned() -> Any:
            made = dropped(inputs, noise_shape=self.noise_shape, seed=self.seed, rate=self.rate)
            return identity(made) if made is inputs else made

        condition = known_condition(training, f"{self._label}: training")
        return chosen(condition, thinned, lambda: identity(inputs))  # type: ignore[no-any-return]

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """The input's shape."""
        return TensorShape(input_shape)


class Flatten(Layer):
    """The inputs with all axes but the first joined to one.

    Args:
        data_format: "channels_last" (also None), or "channels_first" for inputs whose channels
            come second; they are moved to the end first.
        **kwargs: as of `Layer`.

    Raises:
        ValueError: a bad data_format; when called, the input has no axis.
    """

    def __init__(self, data_format: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.data_format = format_argument(data_format)
        self.input_spec = InputSpec(min_ndim=1)

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
        """The inputs with all axes but the first joined to one."""
        rank = inputs.shape.ndims
        if rank == 1:
            return expand_dims(inputs, 1)
        if self.data_format == "channels_first" and rank is not None and rank > 2:
            inputs = transpose(inputs, [0, *range(2, rank), 1])
        rows, columns = self.compute_output_shape(inputs.shape).as_list()
        if columns is not None:
            return reshape(inputs, [-1 if rows is None else rows, columns])
        return reshape(inputs, [shape(inputs)[0] if rows is None else rows, -1])

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """The first size, and the product of the others."""
        sizes = TensorShape(input_shape).sizes
        if sizes is None:
            return TensorShape([None, None])
        rest = sizes[1:]
        return TensorShape([sizes[0], None if None in rest else math.prod(n or 0 for n in rest)])


# -- functions ------------------------------------------------------------------------------------


@composite
def dense(
    inputs: Any,
    units: Any,
    activation: Any = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = _ZEROS,
    kernel_regularizer: Callable[[Any], Any] | None = None,
    bias_regularizer: Callable[[Any], Any] | None = None,
    activity_regularizer: Callable[[Any], Any] | None = None,
    kernel_constraint: Callable[[Any], Any] | None = None,
    bias_constraint: Callable[[Any], Any] | None = None,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
) -> Tensor:
    """The output of a new layer `Dense`; with `name` and `reuse` its variables are shared."""
    layer = Dense(
        units,
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
def dropout(
    inputs: Any,
    rate: Any = 0.5,
    noise_shape: Any = None,
    seed: int | None = None,
    training: Any = False,
    name: str | None = None,
) -> Tensor:
    """The output of a layer `Dropout`."""
    return Dropout(rate, noise_shape, seed, name)(inputs, training=training)  # type: ignore[no-any-return]


@composite
def flatten(inputs: Any, name: str | None = None, data_format: str = "channels_last") -> Tensor:
    """The output of a layer `Flatten`."""
    return Flatten(data_format, name=name)(inputs)  # type: ignore[no-any-return]
