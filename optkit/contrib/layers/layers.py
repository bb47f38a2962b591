"""contrib's layers as functions: fully connected ones, dropout, flattening and the like.

What they share: variables get contrib's names (weights, biases) and join MODEL_VARIABLES; `scope`
names the variable scope, which is made unique when it is None; the output joins
`outputs_collections` under its scope's name; `arg_scope` gives arguments to all of them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from optkit import nn
from optkit.contrib.framework.arg_scope import add_arg_scope
from optkit.contrib.framework.variables import model_variable
from optkit.contrib.layers.utils import collect_named_outputs, get_variable_collections
from optkit.graph import GraphKeys, Tensor, get_default_graph
from optkit.initializers import Zeros, xavier_initializer
from optkit.layers.arguments import size_argument
from optkit.layers.core import Dense, Dropout, Flatten
from optkit.ops.arguments import axis_in
from optkit.ops.array import reshape, shape
from optkit.ops.core import as_tensor
from optkit.ops.elementary import sqrt, square
from optkit.ops.math import divide
from optkit.ops.nn import bias_add as biased
from optkit.ops.reductions import reduce_max, reduce_sum
from optkit.ops.sequences import one_hot
from optkit.variable_scope import VariableScope, variable_scope

__all__ = [
    "bias_add",
    "dropout",
    "elu",
    "flatten",
    "fully_connected",
    "layer_scope",
    "linear",
    "maxout",
    "one_hot_encoding",
    "relu",
    "relu6",
    "repeat",
    "softmax",
    "stack",
    "unit_norm",
]

_ZEROS = Zeros()
_XAVIER = xavier_initializer()

NAMES = {"kernel": "weights", "bias": "biases"}
"""contrib's names of a layer's variables."""


@contextlib.contextmanager
def layer_scope(
    scope: Any,
    default_name: str,
    inputs: Any,
    reuse: Any = None,
    variables_collections: Any = None,
    names: Mapping[str, str] | None = None,
) -> Iterator[VariableScope]:
    """The variable scope of a layer, whose failure leaves the graph as it was.

    Args:
        scope: its name, a scope, or None.
        default_name: the name to make unique if that is None.
        inputs: the layer's inputs.
        reuse: whether to find variables again.
        variables_collections: what variables join besides MODEL_VARIABLES: a list, or a dict of
            lists by the last part of their names.
        names: the last part of a variable's name -> the one it gets here.
    """

    def getter(make: Callable[..., Any], name: str, **settings: Any) -> Any:
        before, slash, last = name.rpartition("/")
        last = (names or {}).get(last, last)
        keys = settings.get("collections") or [GraphKeys.GLOBAL_VARIABLES]
        of = "weights" if last.endswith("_weights") else last  # the two of a separable convolution
        extra = get_variable_collections(variables_collections, of) or ()
        keys = [*keys, GraphKeys.MODEL_VARIABLES, *([extra] if isinstance(extra, str) else extra)]
        settings["collections"] = list(dict.fromkeys(keys))
        return make(name=f"{before}{slash}{last}", **settings)

    with (
        get_default_graph().all_or_nothing(),
        variable_scope(scope, default_name, [inputs], reuse=reuse, custom_getter=getter) as entered,
    ):
        yield entered


def normalized_or_not(outputs: Any, normalizer_fn: Any, normalizer_params: Any) -> Any:
    """The outputs through the normalizer, if there is one."""
    if normalizer_fn is None:
        return outputs
    return normalizer_fn(outputs, **(normalizer_params or {}))


@add_arg_scope
def fully_connected(
    inputs: Any,
    num_outputs: Any,
    activation_fn: Callable[[Any], Any] | None = nn.relu,
    normalizer_fn: Callable[..., Any] | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = _XAVIER,
    weights_regularizer: Callable[[Any], Any] | None = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: Callable[[Any], Any] | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """activation_fn(inputs·weights + biases) over the last axis.

    Args:
        inputs: at least two axes, the last one of known size.
        num_outputs: the size of the output's last axis.
        activation_fn: a function, relu by default; None for none.
        normalizer_fn: takes the place of the biases, e.g. `batch_norm`.
        normalizer_params: its arguments.
        weights_initializer: initial value of the weights.
        weights_regularizer: a function of the weights that gives a loss or None.
        biases_initializer: initial value of the biases; None for no biases.
        biases_regularizer: a function of the biases that gives a loss or None.
        reuse: whether to find the variables of `scope` again.
        variables_collections: what the variables join besides MODEL_VARIABLES: a list, or a dict of
            lists for "weights" and "biases".
        outputs_collections: a collection, or several, that the output joins.
        trainable: whether the variables are trainable.
        scope: the variable scope; "fully_connected", made unique, if None.

    Raises:
        TypeError, ValueError: as of `tf.layers.Dense`.

    Source: tf.contrib.layers.fully_connected.
    """
    with layer_scope(
        scope, "fully_connected", inputs, reuse, variables_collections, NAMES
    ) as entered:
        layer = Dense(
            size_argument(num_outputs, "num_outputs"),
            use_bias=normalizer_fn is None and biases_initializer is not None,
            kernel_initializer=weights_initializer,
            bias_initializer=biases_initializer,
            kernel_regularizer=weights_regularizer,
            bias_regularizer=biases_regularizer,
            trainable=trainable,
            name=entered.name,
            _scope=entered,
            _reuse=reuse,
        )
        outputs = normalized_or_not(layer(inputs), normalizer_fn, normalizer_params)
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return collect_named_outputs(outputs_collections, entered.name, outputs)


# As in TF these are `fully_connected` with one argument given, which arg_scope reaches by it.
linear = functools.partial(fully_connected, activation_fn=None)
relu = functools.partial(fully_connected, activation_fn=nn.relu)
relu6 = functools.partial(fully_connected, activation_fn=nn.relu6)
elu = functools.partial(fully_connected, activation_fn=nn.elu)


@add_arg_scope
def bias_add(
    inputs: Any,
    activation_fn: Callable[[Any], Any] | None = None,
    initializer: Any = _ZEROS,
    regularizer: Callable[[Any], Any] | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    data_format: str = "NHWC",
    scope: Any = None,
) -> Any:
    """activation_fn(inputs + biases), one bias a channel.

    Args:
        inputs: at least two axes; channels come last, or second with NCHW.
        activation_fn: a function, or None.
        initializer: initial value of the biases.
        regularizer: a function of the biases that gives a loss or None.
        reuse: whether to find the variables of `scope` again.
        variables_collections: what the biases join besides MODEL_VARIABLES.
        outputs_collections: a collection, or several, that the output joins.
        trainable: whether the biases are trainable.
        data_format: "NHWC" or "NCHW".
        scope: the variable scope; "BiasAdd", made unique, if None.

    Raises:
        ValueError: the number of channels is not known, or data_format is another.

    Source: tf.contrib.layers.bias_add.
    """
    format_argument(data_format)
    with layer_scope(scope, "BiasAdd", inputs, reuse, variables_collections) as entered:
        x = as_tensor(inputs, name="inputs")
        channels = channels_of(x, data_format)
        biases = model_variable("biases", [channels], x.dtype, initializer, regularizer, trainable)
        outputs: Any = biased(x, biases, data_format)
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return collect_named_outputs(outputs_collections, entered.name, outputs)


def format_argument(data_format: Any) -> str:
    """A data_format as layers have it.

    Raises:
        ValueError: it is neither "NHWC" nor "NCHW".
    """
    if data_format not in ("NHWC", "NCHW"):
        raise ValueError(f"data_format: expected NHWC or NCHW, got {data_format!r}")
    return "channels_first" if data_format == "NCHW" else "channels_last"


def channels_of(x: Tensor, data_format: str) -> int:
    """The number of channels.

    Raises:
        ValueError: it is not known.
    """
    axis = 1 if data_format == "NCHW" else -1
    channels = x.sizes[axis] if x.sizes is not None and len(x.sizes) > 1 else None
    if channels is None:
        raise ValueError(f"inputs: expected channels of known number on axis {axis}, got {x!r}")
    return channels


@add_arg_scope
def dropout(
    inputs: Any,
    keep_prob: Any = 0.5,
    noise_shape: Any = None,
    is_training: Any = True,
    outputs_collections: Any = None,
    scope: Any = None,
    seed: int | None = None,
) -> Any:
    """In training, 0 with probability 1 - keep_prob, else inputs/keep_prob; see `nn.dropout`.

    Args:
        inputs: floats.
        keep_prob: a number in (0, 1] or a scalar tensor.
        noise_shape: the shape of the random choices, which broadcast to the inputs.
        is_training: a bool or a bool tensor.
        outputs_collections: a collection, or several, that the output joins.
        scope: the variable scope; "Dropout", made unique, if None.
        seed: the operation's seed.

    Source: tf.contrib.layers.dropout.
    """
    with layer_scope(scope, "Dropout", inputs) as entered:
        layer = Dropout(1 - keep_prob, noise_shape, seed, name=entered.name, _scope=entered)
        outputs = layer(inputs, training=is_training)
        return collect_named_outputs(outputs_collections, entered.name, outputs)


@add_arg_scope
def flatten(inputs: Any, outputs_collections: Any = None, scope: Any = None) -> Any:
    """The inputs with all axes but the first joined to one.

    Args:
        inputs: at least one axis.
        outputs_collections: a collection, or several, that the output joins.
        scope: the name scope; "Flatten", made unique, if None.

    Source: tf.contrib.layers.flatten.
    """
    with layer_scope(scope, "Flatten", inputs) as entered:
        outputs = Flatten(name=entered.name, _scope=entered)(inputs)
        return collect_named_outputs(outputs_collections, entered.name, outputs)


@add_arg_scope
def one_hot_encoding(
    labels: Any,
    num_classes: Any,
    on_value: Any = 1.0,
    off_value: Any = 0.0,
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """For each label a row of `off_value` with `on_value` at its place.

    Args:
        labels: class numbers, integers.
        num_classes: the length of the rows.
        on_value: a number.
        off_value: a number.
        outputs_collections: a collection, or several, that the output joins.
        scope: the name scope; "OneHotEncoding", made unique, if None.

    Source: tf.contrib.layers.one_hot_encoding.
    """
    with layer_scope(scope, "OneHotEncoding", labels) as entered:
        indices = as_tensor(labels, name="labels")
        outputs = one_hot(indices, num_classes, on_value=on_value, off_value=off_value)
        return collect_named_outputs(outputs_collections, entered.name, outputs)


@add_arg_scope
def softmax(logits: Any, scope: Any = None) -> Tensor:
    """The softmax over the last axis; `scope` names the name scope."""
    with layer_scope(scope, "softmax", logits):
        return nn.softmax(logits)


@add_arg_scope
def unit_norm(inputs: Any, dim: int, epsilon: float = 1e-7, scope: Any = None) -> Tensor:
    """inputs/√(epsilon + Σ inputs²) along the axis `dim`.

    Raises:
        ValueError: there is no such axis.
    """
    with layer_scope(scope, "UnitNorm", inputs):
        x = as_tensor(inputs, name="inputs")
        if x.shape.ndims is not None:
            dim = axis_in(dim, x.shape.ndims, "dim")
        length = sqrt(epsilon + reduce_sum(square(x), dim, keepdims=True))
        return divide(x, length, name="div")


@add_arg_scope
def maxout(inputs: Any, num_units: Any, axis: int = -1, scope: Any = None) -> Tensor:
    """The largest of each group of neighbouring features (Goodfellow et al., arXiv:1302.4389).

    Args:
        inputs: the size of `axis` must be known.
        num_units: how many groups there are; it divides the number of features.
        axis: the axis of the features.
        scope: the name scope; "MaxOut", made unique, if None.

    Raises:
        ValueError: the features are of unknown number, or do not make `num_units` groups.
    """
    with layer_scope(scope, "MaxOut", inputs):
        x = as_tensor(inputs, name="inputs")
        units = size_argument(num_units, "num_units")
        if x.sizes is None:
            raise ValueError(f"inputs: expected a known rank, got {x!r}")
        axis = axis_in(axis, len(x.sizes))
        features = x.sizes[axis]
        if features is None or features % units:
            raise ValueError(
                f"num_units: expected a divisor of the size of axis {axis} of {x!r}, got {units}"
            )
        known = [size for size in x.sizes if size is not None]
        given: Any = list(x.sizes) if len(known) == len(x.sizes) else None
        if given is None:
            sizes = shape(x)
            given = [sizes[i] if size is None else size for i, size in enumerate(x.sizes)]
        grouped = reshape(x, [*given[:axis], units, features // units, *given[axis + 1 :]])
        return reduce_max(grouped, axis + 1, name="Max")


# -- several at once ------------------------------------------------------------------------------


def repeat(
    inputs: Any, repetitions: int, layer: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """`layer` applied `repetitions` times, each time to the last output.

    Args:
        inputs: the first input.
        repetitions: how often.
        layer: a layer that takes a `scope`.
        *args: further arguments of the layer.
        **kwargs: the same; `scope` names the scope of all of them, whose layers are called
            `<scope>/<scope>_1` and so on.

    Source: tf.contrib.layers.repeat.
    """
    return _in_turn(inputs, "Repeat", layer, [args] * repetitions, **kwargs)


def stack(inputs: Any, layer: Callable[..., Any], stack_args: Any, **kwargs: Any) -> Any:
    """`layer` applied once for each of `stack_args`, each time to the last output.

    Args:
        inputs: the first input.
        layer: a layer that takes a `scope`.
        stack_args: what each layer takes next: a value, or a list of values.
        **kwargs: further arguments of the layers, and their `scope`; see `repeat`.

    Source: tf.contrib.layers.stack.
    """
    calls = [tuple(args) if isinstance(args, list | tuple) else (args,) for args in stack_args]
    return _in_turn(inputs, "Stack", layer, calls, **kwargs)


def _in_turn(
    inputs: Any,
    default_name: str,
    layer: Callable[..., Any],
    calls: Sequence[tuple[Any, ...]],
    scope: Any = None,
    **kwargs: Any,
) -> Any:
    """The layer called with each of the arguments in turn, in a scope of their own."""
    with get_default_graph().all_or_nothing(), variable_scope(scope, default_name, [inputs]):
        if scope is None:
            function = getattr(layer, "func", layer)  # a functools.partial
            scope = getattr(function, "__name__", default_name.lower())
        outputs = inputs
        for i, args in enumerate(calls, 1):
            outputs = layer(outputs, *args, **kwargs, scope=f"{scope}_{i}")
        return outputs
