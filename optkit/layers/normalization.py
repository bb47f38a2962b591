"""Batch normalisation as a layer (Ioffe & Szegedy, arXiv:1502.03167)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from optkit.dtypes import float64
from optkit.graph import Tensor
from optkit.initializers import Ones, Zeros
from optkit.layers.arguments import chosen, known_condition
from optkit.layers.base import InputSpec, Layer
from optkit.ops.arguments import static_ints
from optkit.ops.array import ones, reshape, zeros
from optkit.ops.batch_norm import batch_normalization as normalized
from optkit.ops.batch_norm import (
    least_epsilon,
    normalized_batch,
    parameter_dtype,
)
from optkit.ops.core import as_tensor, composite
from optkit.ops.math import cast
from optkit.shapes import TensorShape
from optkit.train.moving_averages import assign_moving_average

__all__ = ["BatchNormalization", "batch_normalization"]

_ZEROS = Zeros()
_ONES = Ones()


class BatchNormalization(Layer):
    """(inputs - mean)/√(variance + epsilon)·gamma + beta, for each place on the axes `axis`.

    In training mean and variance are those of the batch, and the operations that move the moving
    averages towards them join UPDATE_OPS: average ← momentum·average + (1 - momentum)·batch's.
    They run when somebody runs them: `optimize_loss` and `create_train_op` do, plain `minimize`
    does not. Otherwise mean and variance are the moving averages.

    As in TF, where it has a fused operation (inputs of four axes and at most 32 bits, channels on
    the second or the last axis) the variance that is averaged is that of a sample,
    Σ(x - mean)²/(n - 1), elsewhere it is Σ(x - mean)²/n.

    Args:
        axis: the axis (or axes) that keep statistics of their own: the channels.
        momentum: how much of the moving averages an update keeps.
        epsilon: added to the variance.
        center: whether there is a beta.
        scale: whether there is a gamma.
        beta_initializer: initial value of beta, as are the following.
        gamma_initializer: see above.
        moving_mean_initializer: see above.
        moving_variance_initializer: see above.
        beta_regularizer: a function of beta that gives a loss or None.
        gamma_regularizer: a function of gamma that gives a loss or None.
        beta_constraint: see `Variable`.
        gamma_constraint: see `Variable`.
        renorm: must be False: batch renormalisation is not part of optkit.
        renorm_clipping: goes with it.
        renorm_momentum: goes with it.
        fused: True for the fused operation's variance, False for the other; None chooses as TF.
        trainable: whether beta and gamma are trainable; if not, there are no updates either.
        virtual_batch_size: must be None.
        adjustment: must be None.
        name: the layer's name.
        **kwargs: as of `Layer`.

    Raises:
        ValueError: an argument is not supported; when called, the inputs' rank or the size of
            `axis` is not known, there is no such axis, or `fused` asks for four axes.
        TypeError: when called, the inputs are not floating.
    """

    def __init__(
        self,
        axis: Any = -1,
        momentum: Any = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = _ZEROS,
        gamma_initializer: Any = _ONES,
        moving_mean_initializer: Any = _ZEROS,
        moving_variance_initializer: Any = _ONES,
        beta_regularizer: Callable[[Any], Any] | None = None,
        gamma_regularizer: Callable[[Any], Any] | None = None,
        beta_constraint: Callable[[Any], Any] | None = None,
        gamma_constraint: Callable[[Any], Any] | None = None,
        renorm: bool = False,
        renorm_clipping: Any = None,
        renorm_momentum: float = 0.99,
        fused: bool | None = None,
        trainable: bool = True,
        virtual_batch_size: int | None = None,
        adjustment: Any = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(trainable=trainable, name=name, **kwargs)
        for argument, value in {
            "renorm": renorm,
            "virtual_batch_size": virtual_batch_size,
            "adjustment": adjustment,
        }.items():
            if value:
                raise ValueError(f"{self._label}: {argument}: not supported, got {value!r}")
        self.axis: Any = static_ints(axis, "axis")
        self.momentum = momentum
        self.epsilon = epsilon
        self.center = center
        self.scale = scale
        self.beta_initializer = beta_initializer
        self.gamma_initializer = gamma_initializer
        self.moving_mean_initializer = moving_mean_initializer
        self.moving_variance_initializer = moving_variance_initializer
        self.beta_regularizer = beta_regularizer
        self.gamma_regularizer = gamma_regularizer
        self.beta_constraint = beta_constraint
        self.gamma_constraint = gamma_constraint
        self.fused = fused
        self.beta: Any = None
        self.gamma: Any = None
        self.moving_mean: Any = None
        self.moving_variance: Any = None

    def build(self, input_shape: Any) -> None:
        """Make gamma, beta and the moving averages."""
        self._require_floats()
        shape = TensorShape(input_shape)
        if shape.sizes is None:
            raise self._refusal("inputs", "a known rank", shape)
        rank = len(shape.sizes)
        if any(not -rank <= axis < rank for axis in self.axis):
            raise self._refusal("axis", f"axes of inputs of shape {shape}", self.axis)
        self.axis = tuple(sorted(axis % rank for axis in self.axis))
        sizes = {axis: shape.sizes[axis] for axis in self.axis}
        if None in sizes.values() or len(sizes) != len(self.axis):
            raise self._refusal("inputs", f"known sizes on the axes {self.axis}", shape)
        self._choose_fused(rank)
        self.input_spec = InputSpec(ndim=rank, axes=sizes)
        # With several axes a parameter keeps the others, with size 1.
        parameter = [sizes.get(axis, 1) for axis in range(rank)]
        if len(self.axis) == 1:
            parameter = list(sizes.values())
        dtype = None if self._dtype is None else parameter_dtype(self._dtype)
        settings: dict[str, Any] = {"shape": parameter, "dtype": dtype}
        if self.scale:
            self.gamma = self.add_weight(
                "gamma",
                initializer=self.gamma_initializer,
                regularizer=self.gamma_regularizer,
                constraint=self.gamma_constraint,
                **settings,
            )
        if self.center:
            self.beta = self.add_weight(
                "beta",
                initializer=self.beta_initializer,
                regularizer=self.beta_regularizer,
                constraint=self.beta_constraint,
                **settings,
            )
        settings["trainable"] = False
        self.moving_mean = self.add_weight(
            "moving_mean", initializer=self.moving_mean_initializer, **settings
        )
        self.moving_variance = self.add_weight(
            "moving_variance", initializer=self.moving_variance_initializer, **settings
        )
        self.built = True

    def _choose_fused(self, rank: int) -> None:
        possible = rank == 4 and self.axis in ((1,), (3,))
        if self.fused is None:
            self.fused = possible and self._dtype is not float64
        elif self.fused and not possible:
            raise self._refusal("fused", "False, but for four axes with channels on 1 or 3", True)

    def call(self, inputs: Any, training: Any = False, **kwargs: Any) -> Tensor:
        """The inputs normalised; by the batch where `training`, a bool or bool tensor, holds."""
        condition = known_condition(training, f"{self._label}: training")
        if condition is False:
            return self._by_averages(inputs)
        output, *updates = chosen(
            condition,
            lambda: self._by_batch(inputs),
            lambda: [self._by_averages(inputs), *map(as_tensor, self._averages)],
        )
        return self._updated(output, updates)

    @property
    def _averages(self) -> tuple[Any, Any]:
        return self.moving_mean, self.moving_variance

    def _updated(self, output: Tensor, updates: list[Any]) -> Tensor:
        """The output, once it is arranged when the updates run."""
        self.add_update(updates)
        return output

    def _by_averages(self, inputs: Tensor) -> Tensor:
        """The inputs normalised by the moving averages; 16-bit floats in float32."""
        mean, variance, beta, gamma = (
            self._aligned(each) for each in (*self._averages, self.beta, self.gamma)
        )
        wide = cast(inputs, parameter_dtype(inputs.dtype))
        y = normalized(wide, mean, variance, beta, gamma, self._least_epsilon())
        return cast(y, inputs.dtype)  # type: ignore[no-any-return]

    def _aligned(self, parameter: Any) -> Any:
        """A parameter in a shape that broadcasts to the inputs."""
        last = self.input_spec.ndim - 1
        if parameter is None or len(self.axis) > 1 or self.axis == (last,):
            return parameter
        return reshape(parameter, [-1] + [1] * (last - self.axis[0]))

    def _by_batch(self, inputs: Tensor) -> list[Any]:
        """The inputs normalised by themselves, and the moved averages."""
        y, *moments = self._normalized(inputs)
        moved = [
            self._moved(average, self._shaped(moment, average.shape))
            for average, moment in zip(self._averages, moments, strict=True)
        ]
        return [y, *moved]

    def _moved(self, average: Any, moment: Any) -> Tensor:
        """The update of an average."""
        return assign_moving_average(average, moment, self.momentum, zero_debias=False)

    def _normalized(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The inputs normalised by themselves, and the moments to average."""
        sizes = [inputs.shape.as_list()[axis] for axis in self.axis]
        dtype = parameter_dtype(inputs.dtype)
        return normalized_batch(
            inputs,
            ones(sizes, dtype) if self.gamma is None else self._shaped(self.gamma, sizes),
            zeros(sizes, dtype) if self.beta is None else self._shaped(self.beta, sizes),
            [axis for axis in range(self.input_spec.ndim) if axis not in self.axis],
            self._least_epsilon(),
            1 if self.fused else 0,
        )

    def _shaped(self, parameter: Any, sizes: Any) -> Any:
        """A parameter without the axes of size 1 that it has beside several of its own, or with."""
        return parameter if len(self.axis) == 1 else reshape(parameter, sizes)

    def _least_epsilon(self) -> float:
        return least_epsilon(self.epsilon) if self.fused else self.epsilon

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """The input's shape."""
        return TensorShape(input_shape)


@composite
def batch_normalization(
    inputs: Any,
    axis: Any = -1,
    momentum: Any = 0.99,
    epsilon: float = 1e-3,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Any = _ZEROS,
    gamma_initializer: Any = _ONES,
    moving_mean_initializer: Any = _ZEROS,
    moving_variance_initializer: Any = _ONES,
    beta_regularizer: Callable[[Any], Any] | None = None,
    gamma_regularizer: Callable[[Any], Any] | None = None,
    beta_constraint: Callable[[Any], Any] | None = None,
    gamma_constraint: Callable[[Any], Any] | None = None,
    training: Any = False,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
    renorm: bool = False,
    renorm_clipping: Any = None,
    renorm_momentum: float = 0.99,
    fused: bool | None = None,
    virtual_batch_size: int | None = None,
    adjustment: Any = None,
) -> Tensor:
    """The output of a new layer `BatchNormalization`; with `name` and `reuse` variables are shared.

    The moving averages move when the operations in UPDATE_OPS run: `optimize_loss` and
    `create_train_op` see to it, beside plain `minimize` they must be run.
    """
    layer = BatchNormalization(
        axis,
        momentum,
        epsilon,
        center,
        scale,
        beta_initializer,
        gamma_initializer,
        moving_mean_initializer,
        moving_variance_initializer,
        beta_regularizer,
        gamma_regularizer,
        beta_constraint,
        gamma_constraint,
        renorm,
        renorm_clipping,
        renorm_momentum,
        fused,
        trainable,
        virtual_batch_size,
        adjustment,
        name,
        _scope=name,
        _reuse=reuse,
    )
    return layer(inputs, training=training)  # type: ignore[no-any-return]
