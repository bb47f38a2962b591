"""What a recurrent cell is."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from optkit.dtypes import DType, as_dtype
from optkit.graph import Tensor, get_default_graph
from optkit.nesting import flatten, pack, same_structure
from optkit.ops.array import shape, stack, zeros
from optkit.ops.core import as_tensor
from optkit.ops.elementary import sigmoid, tanh
from optkit.ops.nn import relu
from optkit.shapes import TensorShape
from optkit.variable_scope import VariableScope, get_variable, variable_scope
from optkit.variables import Variable

__all__ = ["RNNCell", "activation_of", "batch_of", "units_of"]

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ACTIVATIONS: dict[str, Callable[[Any], Tensor]] = {
    "relu": relu,
    "sigmoid": sigmoid,
    "tanh": tanh,
}


def activation_of(activation: Any, default: Callable[[Any], Any] = tanh) -> Callable[[Any], Any]:
    """A function of tensors, given as such or by name."""
    if activation is None:
        return default
    if isinstance(activation, str) and activation in _ACTIVATIONS:
        return _ACTIVATIONS[activation]
    if not callable(activation):
        raise TypeError(
            f"activation: expected a function or one of {sorted(_ACTIVATIONS)}, got {activation!r}"
        )
    found: Callable[[Any], Any] = activation
    return found


def units_of(num_units: Any, argument: str = "num_units") -> int:
    """A number of units, at least 1."""
    if isinstance(num_units, bool) or not hasattr(num_units, "__index__") or num_units < 1:
        raise ValueError(f"{argument}: expected an int of at least 1, got {num_units!r}")
    return int(num_units)


class RNNCell:
    """A function (inputs, state) -> (output, new state) with variables of its own.

    A cell of one's own defines `state_size`, `output_size` and `call(inputs, state)`, and makes
    variables there by `get_variable`, or in `build(inputs_shape)` by `add_variable`. The scope of
    its variables is opened at the first call and used by all later ones.

    Args:
        trainable: whether its variables join TRAINABLE_VARIABLES.
        name: its name; the class's if None.
        dtype: the dtype of its variables; that of the first input if None.
        reuse: whether to find variables that exist; see `variable_scope`.
    """

    def __init__(
        self,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
        reuse: Any = None,
        _reuse: Any = None,
    ) -> None:
        if not isinstance(name, str | None):
            raise TypeError(f"name: expected a string or None, got {name!r}")
        self._base_name = name or _WORD.sub("_", type(self).__name__).lower()
        self._cell_dtype = None if dtype is None else as_dtype(dtype)
        self._reuse = reuse if reuse is not None else _reuse
        self._scope: VariableScope | None = None
        self._variables: list[Variable] = []
        self.trainable = trainable
        self.built = False

    # -- what it is -------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The scope of its variables; the name it asks for while there is none."""
        return self._base_name if self._scope is None else self._scope.name

    @property
    def state_size(self) -> Any:
        """Sizes of the state: an int, a TensorShape, or a nesting of them."""
        raise NotImplementedError(f"{type(self).__name__} must define state_size")

    @property
    def output_size(self) -> Any:
        """The size of the output."""
        raise NotImplementedError(f"{type(self).__name__} must define output_size")

    @property
    def variables(self) -> list[Variable]:
        """Its variables."""
        return list(self._variables)

    @property
    def weights(self) -> list[Variable]:
        """Its variables."""
        return self.variables

    @property
    def trainable_variables(self) -> list[Variable]:
        """Its variables, if it is trainable."""
        return self.variables if self.trainable else []

    @property
    def trainable_weights(self) -> list[Variable]:
        """Its variables, if it is trainable."""
        return self.trainable_variables

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Zeros in the nesting of `state_size`, each of shape (batch_size, ...)."""
        wanted = as_dtype(dtype)
        with get_default_graph().name_scope(f"{type(self).__name__}ZeroState"):
            return pack(
                self.state_size,
                [
                    zeros(stack([batch_size, *_sizes(size)]), wanted)
                    if hasattr(batch_size, "op")
                    else zeros([batch_size, *_sizes(size)], wanted)
                    for size in flatten(self.state_size)
                ],
            )

    def get_initial_state(
        self, inputs: Any = None, batch_size: Any = None, dtype: Any = None
    ) -> Any:
        """`zero_state` for the batch size and dtype of `inputs`, or those given."""
        if inputs is not None:
            tensor = as_tensor(inputs)
            dtype = tensor.dtype
            batch_size = batch_of(tensor, 0)
        if batch_size is None or dtype is None:
            raise ValueError("get_initial_state: expected inputs, or batch_size and dtype")
        return self.zero_state(batch_size, dtype)

    # -- variables --------------------------------------------------------------------------

    def add_variable(
        self,
        name: str,
        shape: Any,
        dtype: Any = None,
        initializer: Any = None,
        regularizer: Any = None,
        trainable: bool = True,
        **settings: Any,
    ) -> Any:
        """A variable in the cell's scope; see `get_variable` for the arguments."""
        variable = get_variable(
            name,
            shape,
            dtype or self._cell_dtype,
            initializer,
            regularizer,
            trainable and self.trainable,
            **settings,
        )
        self._variables.append(variable)
        return variable

    add_weight = add_variable

    @contextlib.contextmanager
    def _entered(self, scope: Any) -> Iterator[None]:
        first = self._scope is None
        if self._scope is None:
            if self._reuse:
                opened = variable_scope(self._base_name if scope is None else scope, reuse=True)
            else:
                opened = variable_scope(scope, self._base_name)
            with opened as self._scope:
                pass
        reuse = self._reuse if first or get_default_graph().eager else True
        with (
            variable_scope(self._scope, reuse=reuse, auxiliary_name_scope=False),
            get_default_graph().name_scope(self._base_name),
        ):
            yield

    # -- calling ----------------------------------------------------------------------------

    def build(self, inputs_shape: Any) -> None:
        """Make the variables for inputs of a shape."""
        self.built = True

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """The output and the new state."""
        raise NotImplementedError(f"{type(self).__name__} must define call(inputs, state)")

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> tuple[Any, Any]:
        """The output and the new state; variables are made at the first call.

        Args:
            inputs: shape (batch, depth), or a nesting.
            state: a nesting as `state_size`.
            scope: the variable scope that the first call opens; named as the cell if None.

        Raises:
            ValueError: the inputs or the state do not fit the cell.
        """
        same_structure(self.state_size, state, f"{self.name}: state")
        with get_default_graph().all_or_nothing(), self._entered(scope):
            values = [as_tensor(value, name="inputs") for value in flatten(inputs)]
            if self._cell_dtype is None and values:
                self._cell_dtype = values[0].dtype
            if not self.built:
                shapes = [value.shape for value in values]
                self.build(pack(inputs, shapes) if shapes else None)
                self.built = True
            return self.call(pack(inputs, values), state)

    def _depth(self, inputs_shape: Any) -> int:
        """The size of the inputs' last axis, which must be known.

        Raises:
            ValueError: it is not.
        """
        given = TensorShape(inputs_shape)
        depth = None if given.ndims != 2 else given.as_list()[1]
        if depth is None:
            raise ValueError(
                f"{self.name}: inputs: expected shape (batch, depth) with a known depth, got "
                f"{given}"
            )
        return int(depth)

    def _check_depth(self, inputs: Tensor, depth: int) -> None:
        """Refuse inputs of another depth than the variables were made for."""
        if not inputs.shape.is_compatible_with([None, depth]):
            raise ValueError(
                f"{self.name}: inputs: expected shape (batch, {depth}), got {inputs!r}"
            )

    @property
    def dtype(self) -> DType | None:
        """The dtype of its variables; None until it is known."""
        return self._cell_dtype


def _sizes(size: Any) -> list[Any]:
    return list(TensorShape(size if hasattr(size, "__len__") else [size]).as_list())


def batch_of(tensor: Tensor, axis: int) -> Any:
    """The size of the batch: an int where it is known, else a tensor."""
    known = None if tensor.sizes is None else tensor.sizes[axis]
    return shape(tensor)[axis] if known is None else known
