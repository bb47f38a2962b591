"""contrib's batch and layer normalisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from optkit.contrib.framework.arg_scope import add_arg_scope
from optkit.contrib.framework.variables import model_variable
from optkit.contrib.layers.layers import format_argument, layer_scope
from optkit.contrib.layers.utils import collect_named_outputs
from optkit.dtypes import float16, float64
from optkit.graph import GraphKeys, Tensor, get_default_graph
from optkit.initializers import Ones, Zeros
from optkit.layers.normalization import BatchNormalization
from optkit.ops.arguments import axis_in
from optkit.ops.array import reshape
from optkit.ops.batch_norm import batch_normalization, parameter_dtype, weighted_moments
from optkit.ops.control import with_dependencies
from optkit.ops.core import as_tensor
from optkit.ops.math import cast
from optkit.ops.nn import moments
from optkit.shapes import TensorShape
from optkit.train.moving_averages import assign_moving_average

__all__ = ["batch_norm", "layer_norm"]


class _BatchNorm(BatchNormalization):
    """`BatchNormalization` with contrib's further arguments.

    In TF contrib has an implementation of its own for what `tf.layers` has not; `own` says that it
    is used here. Its averages move even where the variables are not trainable.
    """

    def __init__(
        self,
        *,
        batch_weights: Any,
        updates_collections: Any,
        zero_debias_moving_mean: bool,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.batch_weights = batch_weights
        self.updates_collections = updates_collections
        self.zero_debias_moving_mean = zero_debias_moving_mean
        self.own = (
            batch_weights is not None
            or zero_debias_moving_mean
            or updates_collections != GraphKeys.UPDATE_OPS
        )

    def _choose_fused(self, rank: int) -> None:
        possible = rank in (2, 4) and self._dtype is not float64 and self.batch_weights is None
        self.fused = possible and self.fused is not False
        self.own = self.own or (self.fused and rank == 2)

    def _normalized(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.batch_weights is None:
            return super()._normalized(inputs)
        rank = self.input_spec.ndim
        weights = as_tensor(self.batch_weights, name="batch_weights")
        rows = TensorShape([None if inputs.sizes is None else inputs.sizes[0]])
        if not weights.shape.is_compatible_with(rows):
            raise self._refusal("batch_weights", f"shape {rows}, a weight a row", weights)
        wide = cast(inputs, parameter_dtype(inputs.dtype))
        mean, variance = weighted_moments(
            wide,
            [axis for axis in range(rank) if axis not in self.axis],
            reshape(weights, [-1] + [1] * (rank - 1)),
        )
        aligned = map(self._aligned, (mean, variance, self.beta, self.gamma))
        y = batch_normalization(wide, *aligned, self.epsilon)  # type: ignore[call-arg]
        return as_tensor(cast(y, inputs.dtype)), mean, variance

    def _moved(self, average: Any, moment: Any) -> Tensor:
        debias = self.zero_debias_moving_mean and average is self.moving_mean
        return assign_moving_average(average, moment, self.momentum, zero_debias=debias)

    def _updated(self, output: Tensor, updates: list[Any]) -> Tensor:
        if self.updates_collections is None:
            return with_dependencies(updates, output)  # type: ignore[no-any-return]
        if self.trainable or self.own:
            for update in updates:
                get_default_graph().add_to_collections(self.updates_collections, update)
        return output


@add_arg_scope
def batch_norm(
    inputs: Any,
    decay: Any = 0.999,
    center: bool = True,
    scale: bool = False,
    epsilon: float = 0.001,
    activation_fn: Callable[[Any], Any] | None = None,
    param_initializers: Mapping[str, Any] | None = None,
    param_regularizers: Mapping[str, Any] | None = None,
    updates_collections: Any = GraphKeys.UPDATE_OPS,
    is_training: Any = True,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    batch_weights: Any = None,
    fused: bool | None = None,
    data_format: str = "NHWC",
    zero_debias_moving_mean: bool = False,
    scope: Any = None,
    renorm: bool = False,
    renorm_clipping: Any = None,
    renorm_decay: float = 0.99,
    adjustment: Any = None,
) -> Any:
    """Batch normalisation, then activation_fn; see `tf.layers.BatchNormalization`.

    The moving averages move when the operations in `updates_collections` run: `optimize_loss` and
    `create_train_op` run those of UPDATE_OPS, plain `minimize` does not. With None they move
    whenever the output is computed in training.

    As in TF, for inputs of two or four axes and at most 32 bits the variance that is averaged is
    that of a sample, Σ(x - mean)²/(n - 1), unless `fused` is False or there are batch_weights.

    Args:
        inputs: floats of known rank, channels of known number.
        decay: how much of the moving averages an update keeps.
        center: whether there is a beta.
        scale: whether there is a gamma.
        epsilon: added to the variance.
        activation_fn: a function, or None.
        param_initializers: initial values of "beta", "gamma", "moving_mean", "moving_variance".
        param_regularizers: regularizers of "beta" and "gamma".
        updates_collections: the collections that the updates join; None to update in place.
        is_training: a bool or a bool tensor.
        reuse: whether to find the variables of `scope` again.
        variables_collections: what the variables join besides MODEL_VARIABLES: a list, or a dict of
            lists by the names above.
        outputs_collections: a collection, or several, that the output joins.
        trainable: whether beta and gamma are trainable.
        batch_weights: a weight for each row of the batch, in mean and variance.
        fused: False for the other variance, see above.
        data_format: "NHWC" (channels last) or "NCHW" (channels second).
        zero_debias_moving_mean: take the start at 0 out of the moving mean.
        scope: the variable scope; "BatchNorm", made unique, if None.
        renorm: must be False: batch renormalisation is not part of optkit.
        renorm_clipping: goes with it.
        renorm_decay: goes with it.
        adjustment: must be None.

    Raises:
        ValueError: the inputs' rank or the number of channels is not known, or an argument is bad.
        TypeError: the inputs are not floating, or is_training is no truth value.

    Source: tf.contrib.layers.batch_norm.
    """
    channels_first = format_argument(data_format) == "channels_first"
    initializers = _by_name("param_initializers", param_initializers, _AVERAGES)
    regularizers = _by_name("param_regularizers", param_regularizers, _PARAMETERS)
    with layer_scope(scope, "BatchNorm", inputs, reuse, variables_collections) as entered:
        layer = _BatchNorm(
            axis=1 if channels_first else -1,
            momentum=decay,
            epsilon=epsilon,
            center=center,
            scale=scale,
            beta_initializer=initializers.get("beta", Zeros()),
            gamma_initializer=initializers.get("gamma", Ones()),
            moving_mean_initializer=initializers.get("moving_mean", Zeros()),
            moving_variance_initializer=initializers.get("moving_variance", Ones()),
            beta_regularizer=regularizers.get("beta"),
            gamma_regularizer=regularizers.get("gamma"),
            renorm=renorm,
            fused=fused,
            adjustment=adjustment,
            trainable=trainable,
            name=entered.name,
            batch_weights=batch_weights,
            updates_collections=updates_collections,
            zero_debias_moving_mean=zero_debias_moving_mean,
            _scope=entered,
            _reuse=reuse,
        )
        outputs = layer(inputs, training=is_training)
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return collect_named_outputs(outputs_collections, entered.name, outputs)


_PARAMETERS = ("beta", "gamma")
_AVERAGES = (*_PARAMETERS, "moving_mean", "moving_variance")


def _by_name(
    argument: str, given: Mapping[str, Any] | None, known: tuple[str, ...]
) -> Mapping[str, Any]:
    unknown = [name for name in given or () if name not in known]
    if unknown:
        raise ValueError(f"{argument}: expected {', '.join(known)}, got {', '.join(unknown)}")
    return given or {}


@add_arg_scope
def layer_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    activation_fn: Callable[[Any], Any] | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    scope: Any = None,
) -> Any:
    """(inputs - mean)/√(variance + 1e-12)·gamma + beta, each row by itself, then activation_fn.

    The layer normalisation of Ba et al., arXiv:1607.06450; for float16 the constant is 1e-3.

    Args:
        inputs: floats of known rank.
        center: whether there is a beta.
        scale: whether there is a gamma.
        activation_fn: a function, or None.
        reuse: whether to find the variables of `scope` again.
        variables_collections: what the variables join besides MODEL_VARIABLES: a list, or a dict of
            lists for "beta" and "gamma".
        outputs_collections: a collection, or several, that the output joins.
        trainable: whether beta and gamma are trainable.
        begin_norm_axis: mean and variance are those over this axis and all after it.
        begin_params_axis: beta and gamma have the shape of this axis and all after it.
        scope: the variable scope; "LayerNorm", made unique, if None.

    Raises:
        ValueError: the rank, or a size that beta and gamma need, is not known; or there is no such
            axis.

    Source: tf.contrib.layers.layer_norm.
    """
    with layer_scope(scope, "LayerNorm", inputs, reuse, variables_collections) as entered:
        x = as_tensor(inputs, name="inputs")
        if x.sizes is None:
            raise ValueError(f"inputs: expected a known rank, got {x!r}")
        rank = len(x.sizes)
        first = axis_in(begin_norm_axis, rank, "begin_norm_axis")
        sizes = x.sizes[axis_in(begin_params_axis, rank, "begin_params_axis") :]
        if None in sizes:
            raise ValueError(
                f"inputs: expected known sizes from axis {begin_params_axis} on, got {x!r}"
            )
        parameters = {}
        for name, wanted, initializer in (("beta", center, Zeros()), ("gamma", scale, Ones())):
            if wanted:
                parameters[name] = model_variable(
                    name, sizes, x.dtype, initializer, trainable=trainable
                )
        mean, variance = moments(x, list(range(first, rank)), keepdims=True)
        outputs: Any = batch_normalization(
            x,
            mean,
            variance,
            parameters.get("beta"),
            parameters.get("gamma"),
            1e-3 if x.dtype is float16 else 1e-12,
        )
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return collect_named_outputs(outputs_collections, entered.name, outputs)
