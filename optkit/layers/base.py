"""`Layer`: what all layers share, and what one's own layers inherit from (`tf.layers.Layer`)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from optkit.dtypes import DType, as_dtype, float32
from optkit.graph import (
    Graph,
    GraphKeys,
    Ledger,
    Operation,
    Tensor,
    get_default_graph,
    is_symbolic,
)
from optkit.layers.arguments import initializer_of
from optkit.ops.array import shape
from optkit.ops.core import as_tensor
from optkit.ops.math import cast
from optkit.shapes import TensorShape, dimension_value
from optkit.variable_scope import VariableScope, get_variable, variable_scope
from optkit.variables import Variable

__all__ = ["InputSpec", "Layer"]

_STORE = "layers"
"""Key of graph.stores: how many layers there are of each name."""

_WORD = re.compile(r"(?<=.)(?=[A-Z][a-z0-9])|(?<=[a-z])(?=[A-Z])")
"""Where a word begins in a class's name: MaxPooling2D, LSTMCell."""


class InputSpec:
    """What a layer needs of an input; None leaves it open.

    Args:
        dtype: its dtype.
        shape: its shape, with None for sizes that may be any.
        ndim: how many axes it has.
        max_ndim: how many at most.
        min_ndim: how many at least.
        axes: axis -> size.
    """

    def __init__(
        self,
        dtype: Any = None,
        shape: Any = None,
        ndim: int | None = None,
        max_ndim: int | None = None,
        min_ndim: int | None = None,
        axes: Mapping[int, int | None] | None = None,
    ) -> None:
        self.dtype = None if dtype is None else as_dtype(dtype)
        self.shape = None if shape is None else TensorShape(shape)
        self.ndim = ndim if self.shape is None else self.shape.ndims
        self.max_ndim = max_ndim
        self.min_ndim = min_ndim
        self.axes = {axis: dimension_value(size) for axis, size in (axes or {}).items()}

    def __repr__(self) -> str:
        given = {key: value for key, value in vars(self).items() if value not in (None, {})}
        return f"InputSpec({', '.join(f'{key}={value}' for key, value in given.items())})"

    def expectation(self, tensor: Tensor) -> str | None:
        """What was expected of a tensor that does not fit; None for one that does."""
        rank = tensor.shape.ndims
        if self.dtype is not None and tensor.dtype is not self.dtype:
            return f"dtype {self.dtype.name}"
        if self.shape is not None and not self.shape.is_compatible_with(tensor.shape):
            return f"shape {self.shape}"
        if rank is None:
            return None
        if self.ndim is not None and rank != self.ndim:
            return f"{self.ndim} axes"
        if self.max_ndim is not None and rank > self.max_ndim:
            return f"at most {self.max_ndim} axes"
        if self.min_ndim is not None and rank < self.min_ndim:
            return f"at least {self.min_ndim} axes"
        for axis, size in self.axes.items():
            found = tensor.sizes[axis] if tensor.sizes else None
            if size is not None and found not in (None, size):
                return f"size {size} on axis {axis}"
        return None


class Layer:
    """A function of tensors with variables of its own, made when it is first called.

    A layer of one's own defines `build(input_shape)`, which makes variables by `add_weight`, and
    `call(inputs)`. The variables' names begin with the scope that the layer opens when it is first
    used: its name, or its class's name made unique.

    Args:
        trainable: whether its variables join TRAINABLE_VARIABLES.
        name: its name.
        dtype: the dtype of its variables; that of the first input if None.
        activity_regularizer: a function of the output whose result joins the layer's losses,
            divided by the size of the first axis.
        _scope: the variable scope, or its name.
        _reuse: whether to find variables again; see `variable_scope`.

    Attributes:
        built: whether `build` has run.
        trainable: see above; it may be changed.
        input_spec: an `InputSpec`, or a list of them, that inputs are checked against.
    """

    def __init__(
        self,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
        activity_regularizer: Callable[[Any], Any] | None = None,
        *,
        _scope: Any = None,
        _reuse: Any = None,
        **unknown: Any,
    ) -> None:
        kind = type(self).__name__
        if unknown:
            raise TypeError(f"{kind}: unknown arguments {', '.join(unknown)}")
        if not isinstance(name, str | None):
            raise TypeError(f"{kind}: name: expected a string or None, got {name!r}")
        self.built = False
        self.trainable = trainable
        self.input_spec: Any = None
        self.activity_regularizer = activity_regularizer
        self._base_name = name or _WORD.sub("_", kind).lower()
        self._name = name or _unique_name(self._base_name)
        self._dtype = None if dtype is None else as_dtype(dtype)
        self._reuse = _reuse
        self._scope: VariableScope | None = None
        self._trainable_weights: list[Variable] = []
        self._non_trainable_weights: list[Variable] = []
        self._regularized: list[tuple[Variable, Callable[[Any], Any]]] = []
        self._losses: list[Any] = []
        self._updates: list[Any] = []
        self._inputs: list[Tensor] = []
        if isinstance(_scope, VariableScope):
            self._scope = _scope
        elif _scope is not None:
            with variable_scope(_scope) as scope:
                self._scope = scope

    # -- what it is -------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Its name; its variables are named by its scope, see `scope_name`."""
        return self._name

    @property
    def scope_name(self) -> str:
        """The name of its variable scope.

        Raises:
            ValueError: it has not been used, so it has none yet.
        """
        if self._scope is None:
            raise ValueError(f"{self._label}: scope_name: it has no scope until it is first called")
        return self._scope.name

    @property
    def _label(self) -> str:
        """Class and name, for messages."""
        name = self._name if self._scope is None else self._scope.name
        return f"{type(self).__name__} {name!r}"

    @property
    def dtype(self) -> DType | None:
        """The dtype of its variables; None until it is known."""
        return self._dtype

    @property
    def graph(self) -> Graph:
        """The graph of its variables."""
        return self.weights[0].graph if self.weights else get_default_graph()

    @property
    def trainable_weights(self) -> list[Variable]:
        """Its trainable variables; none when it is not trainable."""
        return list(self._trainable_weights) if self.trainable else []

    @property
    def non_trainable_weights(self) -> list[Variable]:
        """Its other variables; all when it is not trainable."""
        if self.trainable:
            return list(self._non_trainable_weights)
        return self._trainable_weights + self._non_trainable_weights

    @property
    def weights(self) -> list[Variable]:
        """All its variables, trainable ones first."""
        return self.trainable_weights + self.non_trainable_weights

    variables = weights
    trainable_variables = trainable_weights
    non_trainable_variables = non_trainable_weights

    def count_params(self) -> int:
        """How many numbers its variables hold.

        Raises:
            ValueError: it has not been built.
        """
        if not self.built:
            raise ValueError(f"{self._label}: count_params: it has no variables until it is built")
        return sum(variable.shape.num_elements() or 0 for variable in self.weights)

    # -- variables --------------------------------------------------------------------------

    def add_weight(
        self,
        name: str,
        shape: Any,
        dtype: Any = None,
        initializer: Any = None,
        regularizer: Callable[[Any], Any] | None = None,
        trainable: bool | None = None,
        constraint: Callable[[Any], Any] | None = None,
        use_resource: bool | None = None,
        synchronization: Any = None,
        aggregation: Any = None,
        partitioner: Any = None,
    ) -> Any:
        """A variable of the layer, in its scope; see `get_variable` for the arguments.

        `dtype` defaults to the layer's, and `trainable` to True.
        """
        if regularizer is not None and not callable(regularizer):
            raise TypeError(
                f"{self._label}: regularizer of {name!r}: expected a function, got {regularizer!r}"
            )
        trained = trainable is None or trainable
        losses = get_default_graph().get_collection_ref(GraphKeys.REGULARIZATION_LOSSES)
        known = len(losses)
        with self._entered():
            variable = get_variable(
                name,
                shape,
                dtype or self._dtype or float32,
                initializer_of(initializer),
                regularizer,
                trained and self.trainable,
                constraint=constraint,
                use_resource=use_resource,
                synchronization=synchronization,
                aggregation=aggregation,
                partitioner=partitioner,
            )
        self._losses += losses[known:]
        if regularizer is not None:
            self._regularized.append((variable, regularizer))
        (self._trainable_weights if trained else self._non_trainable_weights).append(variable)
        return variable

    add_variable = add_weight

    @contextlib.contextmanager
    def _entered(self, scope: Any = None) -> Iterator[None]:
        """Inside the layer's variable and name scope, which the first use opens."""
        if self._scope is None:
            if self._reuse:
                opened = variable_scope(self._base_name if scope is None else scope)
            else:
                opened = variable_scope(scope, self._base_name)
            with opened as self._scope:
                pass
        reuse = True if self.built and not get_default_graph().eager else self._reuse
        with (
            variable_scope(self._scope, reuse=reuse, auxiliary_name_scope=False) as entered,
            get_default_graph().name_scope(entered.original_name_scope),
        ):
            yield

    # -- calling ----------------------------------------------------------------------------

    def build(self, input_shape: Any) -> None:
        """Make the variables for inputs of a shape: a TensorShape, or a list of them."""
        self.built = True

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """The layer's function of its inputs."""
        return inputs

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """The layer's output for `inputs`; variables are made at the first call.

        Args:
            inputs: a tensor or array, or a list or dict of them.
            *args: further arguments of `call`.
            **kwargs: the same; `scope` names the variable scope that the first use opens.

        Raises:
            ValueError: the inputs do not fit the layer. The layer and the graph are as before.
        """
        scope = kwargs.pop("scope", None)
        with self._or_as_before(), self._entered(scope):
            inputs = _mapped(self._as_input, inputs)
            tensors = list(_leaves(inputs))
            if self._dtype is None and tensors:
                self._dtype = tensors[0].dtype
            self._check(inputs)
            if get_default_graph().eager:
                self._losses, self._updates = [], []
            else:
                self._inputs += tensors
            if not self.built:
                self.build(_mapped(lambda tensor: tensor.shape, inputs))
                self.built = True
            outputs = self.call(inputs, *args, **kwargs)
            if self.activity_regularizer is not None:
                self._regularize_activity(outputs)
        return outputs

    def _as_input(self, value: Any) -> Tensor:
        try:
            return as_tensor(value, name="inputs")
        except (TypeError, ValueError) as error:
            raise type(error)(f"{self._label}: inputs: {error}") from error

    def apply(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """The same as calling the layer."""
        return self(inputs, *args, **kwargs)

    @contextlib.contextmanager
    def _or_as_before(self) -> Iterator[None]:
        """If the body raises, graph and layer are as before."""
        before = {
            key: list(value) if isinstance(value, list) else value
            for key, value in vars(self).items()
        }
        try:
            with get_default_graph().all_or_nothing():
                yield
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    def _check(self, inputs: Any) -> None:
        specs = self.input_spec
        if specs is None:
            return
        tensors = list(_leaves(inputs))
        specs = list(specs) if isinstance(specs, Sequence) else [specs]
        if len(specs) != len(tensors):
            raise ValueError(
                f"{self._label}: inputs: expected {len(specs)} tensors, got {len(tensors)}"
            )
        for spec, tensor in zip(specs, tensors, strict=True):
            expected = spec.expectation(tensor)
            if expected is not None:
                raise self._refusal("inputs", expected, tensor)

    def _require_floats(self) -> None:
        """Refuse variables of another kind than floats."""
        if self._dtype is not None and not self._dtype.is_floating:
            raise TypeError(f"{self._label}: inputs: expected floats, got {self._dtype.name}")

    def _refusal(self, argument: str, expected: str, got: Any) -> ValueError:
        return ValueError(f"{self._label}: {argument}: expected {expected}, got {got!r}")

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """The shape of the output for inputs of a shape.

        Raises:
            NotImplementedError: the layer does not say.
        """
        raise NotImplementedError(f"{type(self).__name__} must define compute_output_shape")

    # -- losses and updates -----------------------------------------------------------------

    def _regularize_activity(self, outputs: Any) -> None:
        assert self.activity_regularizer is not None
        with get_default_graph().name_scope("ActivityRegularizer"):
            for output in _leaves(outputs):
                loss: Any = self.activity_regularizer(output)
                self.add_loss(loss / cast(shape(output)[0], loss.dtype))

    def add_loss(self, losses: Any, inputs: Any = None) -> None:
        """Add a loss, or several, to the layer's and to REGULARIZATION_LOSSES.

        `inputs` is accepted as in TF: what a loss depends on shows in the graph.
        """
        self._losses += self._collected(losses, GraphKeys.REGULARIZATION_LOSSES)

    def add_update(self, updates: Any, inputs: Any = None) -> None:
        """Add an operation, or several, to the layer's updates and to UPDATE_OPS.

        A layer that is not trainable has no updates.
        """
        if self.trainable:
            self._updates += self._collected(updates, GraphKeys.UPDATE_OPS)

    def _collected(self, items: Any, key: str) -> list[Any]:
        several: list[Any] = list(items) if isinstance(items, list | tuple) else [items]
        for item in several:
            get_default_graph().add_to_collection(key, item)
        return several

    @property
    def losses(self) -> list[Any]:
        """The losses of regularizers and of `add_loss`; in eager mode those of the last call."""
        if self.weights and self.weights[0].graph.eager:
            regularized = [regularizer(variable) for variable, regularizer in self._regularized]
            return [loss for loss in regularized if loss is not None] + self._losses
        return list(self._losses)

    @property
    def updates(self) -> list[Any]:
        """The updates; none when the layer is not trainable."""
        return list(self._updates) if self.trainable else []

    def get_losses_for(self, inputs: Any) -> list[Any]:
        """The losses that depend on `inputs`; those that depend on no input if None."""
        return self._depending(self.losses, inputs)

    def get_updates_for(self, inputs: Any) -> list[Any]:
        """The updates that depend on `inputs`; those that depend on no input if None."""
        return self._depending(self.updates, inputs)

    def _depending(self, items: Iterable[Any], inputs: Any) -> list[Any]:
        sources = set(self._inputs) if inputs is None else set(_leaves(inputs))
        return [item for item in items if _depends(item, sources) is (inputs is not None)]


def _unique_name(base: str) -> str:
    """The name of a layer object; TF counts them from 1, apart from the scopes they open."""
    counts: Ledger[str, int] = get_default_graph().stores.setdefault(_STORE, Ledger())
    counts[base] = counts.get(base, 0) + 1
    return f"{base}_{counts[base]}"


def _depends(item: Any, sources: set[Any]) -> bool:
    """Whether an operation or tensor is computed from one of the tensors."""
    waiting = [item if isinstance(item, Operation) else item.op]
    seen = set(waiting)
    while waiting:
        for tensor in waiting.pop().inputs:
            if tensor in sources:
                return True
            if tensor.op not in seen:
                seen.add(tensor.op)
                waiting.append(tensor.op)
    return False


def _nested(inputs: Any) -> bool:
    """Whether this holds several inputs; a list of numbers is one."""
    if isinstance(inputs, Mapping):
        return True
    return isinstance(inputs, list | tuple) and any(
        is_symbolic(item) or isinstance(item, np.ndarray) or _nested(item) for item in inputs
    )


def _leaves(inputs: Any) -> Iterator[Any]:
    if not _nested(inputs):
        yield inputs
        return
    for item in inputs.values() if isinstance(inputs, Mapping) else inputs:
        yield from _leaves(item)


def _mapped(function: Callable[[Any], Any], inputs: Any) -> Any:
    if not _nested(inputs):
        return function(inputs)
    if isinstance(inputs, Mapping):
        return {key: _mapped(function, item) for key, item in inputs.items()}
    return [_mapped(function, item) for item in inputs]
