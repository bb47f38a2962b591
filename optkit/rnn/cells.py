"""TF1's `tf.nn.rnn_cell`: recurrent cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from optkit.graph import Tensor, get_default_graph
from optkit.initializers import constant_initializer, zeros_initializer
from optkit.nesting import flatten, is_nested, pack
from optkit.ops.array import concat, split
from optkit.ops.clip import clip_by_value
from optkit.ops.core import as_tensor
from optkit.ops.elementary import floor, sigmoid
from optkit.ops.linalg import matmul
from optkit.ops.nn import bias_add, dropout
from optkit.ops.random import random_uniform
from optkit.rnn.base import RNNCell, activation_of, units_of
from optkit.variable_scope import variable_scope

__all__ = [
    "BasicLSTMCell",
    "BasicRNNCell",
    "DropoutWrapper",
    "GRUCell",
    "LSTMCell",
    "LSTMStateTuple",
    "MultiRNNCell",
    "RNNCell",
    "ResidualWrapper",
]


class LSTMStateTuple(NamedTuple):
    """The state of an LSTM cell: the cell's memory and its output."""

    c: Any
    h: Any

    @property
    def dtype(self) -> Any:
        """The dtype of both."""
        return self.c.dtype


class BasicRNNCell(RNNCell):
    """h' = act([x, h]·W + b), which is the output too.

    Args:
        num_units: the size of h.
        activation: tanh if None.
        reuse: whether to find variables that exist.
        name: the name of its scope.
        dtype: of the variables; the inputs' if None.
    """

    def __init__(
        self,
        num_units: Any,
        activation: Any = None,
        reuse: Any = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(trainable, name, dtype, reuse)
        self._num_units = units_of(num_units)
        self._activation = activation_of(activation)

    @property
    def state_size(self) -> int:
        """The size of h."""
        return self._num_units

    @property
    def output_size(self) -> int:
        """The size of h."""
        return self._num_units

    def build(self, inputs_shape: Any) -> None:
        """Make kernel (depth + units, units) and bias."""
        self._input_depth = self._depth(inputs_shape)
        n = self._num_units
        self._kernel = self.add_variable("kernel", [self._input_depth + n, n])
        self._bias = self.add_variable("bias", [n], initializer=zeros_initializer())

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """The new h, twice."""
        self._check_depth(inputs, self._input_depth)
        gates = matmul(concat([inputs, state], 1), self._kernel)
        output = self._activation(bias_add(gates, self._bias))
        return output, output


class GRUCell(RNNCell):
    """Gated recurrent unit (Cho et al., 2014).

    r, u = σ([x, h]·W + b);  c = act([x, r·h]·Wc + bc);  h' = u·h + (1 - u)·c

    Args:
        num_units: the size of h.
        activation: tanh if None.
        reuse: whether to find variables that exist.
        kernel_initializer: of W and Wc.
        bias_initializer: of b and bc; ones for b and zeros for bc if None.
        name: the name of its scope.
        dtype: of the variables; the inputs' if None.
    """

    def __init__(
        self,
        num_units: Any,
        activation: Any = None,
        reuse: Any = None,
        kernel_initializer: Any = None,
        bias_initializer: Any = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(trainable, name, dtype, reuse)
        self._num_units = units_of(num_units)
        self._activation = activation_of(activation)
        self._kernel_initializer = kernel_initializer
        self._bias_initializer = bias_initializer

    @property
    def state_size(self) -> int:
        """The size of h."""
        return self._num_units

    @property
    def output_size(self) -> int:
        """The size of h."""
        return self._num_units

    def build(self, inputs_shape: Any) -> None:
        """Make kernel and bias of the gates and of the candidate."""
        self._input_depth = self._depth(inputs_shape)
        n = self._num_units
        rows = self._input_depth + n
        given = self._bias_initializer
        self._gates = (
            self.add_variable("gates/kernel", [rows, 2 * n], initializer=self._kernel_initializer),
            self.add_variable(
                "gates/bias", [2 * n], initializer=given or constant_initializer(1.0)
            ),
        )
        self._candidate = (
            self.add_variable("candidate/kernel", [rows, n], initializer=self._kernel_initializer),
            self.add_variable("candidate/bias", [n], initializer=given or zeros_initializer()),
        )

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """The new h, twice."""
        self._check_depth(inputs, self._input_depth)
        kernel, bias = self._gates
        gates = sigmoid(bias_add(matmul(concat([inputs, state], 1), kernel), bias))
        r, u = split(gates, 2, 1)
        kernel, bias = self._candidate
        mixed = bias_add(matmul(concat([inputs, r * state], 1), kernel), bias)
        new = u * state + (1 - u) * self._activation(mixed)
        return new, new


class LSTMCell(RNNCell):
    """Long short-term memory (Hochreiter & Schmidhuber, 1997; Sak et al., 2014).

    i, j, f, o = [x, h]·W + b;  c' = σ(f + forget_bias)·c + σ(i)·act(j);  h' = σ(o)·act(c')

    With peepholes σ(f + w_f·c), σ(i + w_i·c) and σ(o + w_o·c'); with a projection h'·P.

    Args:
        num_units: the size of c.
        use_peepholes: see above.
        cell_clip: c' is clipped to [-cell_clip, cell_clip].
        initializer: of the kernels and peepholes.
        num_proj: the size of the projected output.
        proj_clip: the projected output is clipped to [-proj_clip, proj_clip].
        num_unit_shards: not used, as in TF.
        num_proj_shards: not used, as in TF.
        forget_bias: see above.
        state_is_tuple: whether states are LSTMStateTuples; else [c, h] side by side.
        activation: tanh if None.
        reuse: whether to find variables that exist.
        name: the name of its scope.
        dtype: of the variables; the inputs' if None.
    """

    def __init__(
        self,
        num_units: Any,
        use_peepholes: bool = False,
        cell_clip: float | None = None,
        initializer: Any = None,
        num_proj: Any = None,
        proj_clip: float | None = None,
        num_unit_shards: Any = None,
        num_proj_shards: Any = None,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Any = None,
        reuse: Any = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(trainable, name, dtype, reuse)
        self._num_units = units_of(num_units)
        self._peepholes = use_peepholes
        self._cell_clip = cell_clip
        self._initializer = initializer
        self._num_proj = None if num_proj is None else units_of(num_proj, "num_proj")
        self._proj_clip = proj_clip
        self._forget_bias = forget_bias
        self._state_is_tuple = state_is_tuple
        self._activation = activation_of(activation)

    @property
    def state_size(self) -> Any:
        """The sizes of c and h."""
        sizes = LSTMStateTuple(self._num_units, self.output_size)
        return sizes if self._state_is_tuple else sum(sizes)

    @property
    def output_size(self) -> int:
        """The size of h."""
        return self._num_proj or self._num_units

    def build(self, inputs_shape: Any) -> None:
        """Make kernel (depth + outputs, 4·units), bias, peepholes and projection."""
        self._input_depth = self._depth(inputs_shape)
        n, first = self._num_units, self._initializer
        rows = self._input_depth + self.output_size
        self._kernel = self.add_variable("kernel", [rows, 4 * n], initializer=first)
        self._bias = self.add_variable("bias", [4 * n], initializer=zeros_initializer())
        self._diagonals: dict[str, Any] = {}
        if self._peepholes:
            for gate in "fio":
                self._diagonals[gate] = self.add_variable(f"w_{gate}_diag", [n], initializer=first)
        if self._num_proj is not None:
            self._projection = self.add_variable(
                "projection/kernel", [n, self._num_proj], initializer=first
            )

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """The new h, and the new state."""
        self._check_depth(inputs, self._input_depth)
        if self._state_is_tuple:
            c, h = state
        else:
            c, h = split(state, [self._num_units, self.output_size], 1)
        gates = bias_add(matmul(concat([inputs, h], 1), self._kernel), self._bias)
        i, j, f, o = split(gates, 4, 1)
        keep, write = f + self._forget_bias, i
        if self._peepholes:
            keep, write = keep + self._diagonals["f"] * c, write + self._diagonals["i"] * c
        c = sigmoid(keep) * c + sigmoid(write) * self._activation(j)
        if self._cell_clip is not None:
            c = clip_by_value(c, -self._cell_clip, self._cell_clip)
        if self._peepholes:
            o = o + self._diagonals["o"] * c
        h = sigmoid(o) * self._activation(c)
        if self._num_proj is not None:
            h = matmul(h, self._projection)
            if self._proj_clip is not None:
                h = clip_by_value(h, -self._proj_clip, self._proj_clip)
        return h, LSTMStateTuple(c, h) if self._state_is_tuple else concat([c, h], 1)


class BasicLSTMCell(LSTMCell):
    """An `LSTMCell` without peepholes, projection and clipping.

    Args:
        num_units: the size of c and h.
        forget_bias: added to the forget gate.
        state_is_tuple: whether states are LSTMStateTuples; else [c, h] side by side.
        activation: tanh if None.
        reuse: whether to find variables that exist.
        name: the name of its scope.
        dtype: of the variables; the inputs' if None.
    """

    def __init__(
        self,
        num_units: Any,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Any = None,
        reuse: Any = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(
            num_units,
            forget_bias=forget_bias,
            state_is_tuple=state_is_tuple,
            activation=activation,
            reuse=reuse,
            name=name,
            dtype=dtype,
            trainable=trainable,
        )


class MultiRNNCell(RNNCell):
    """Cells on top of each other: the output of one is the input of the next.

    Args:
        cells: the cells, from the input up.
        state_is_tuple: whether the state is a tuple of theirs; else they are side by side.

    Raises:
        ValueError: there is no cell, or one object is given twice.
    """

    def __init__(self, cells: Any, state_is_tuple: bool = True) -> None:
        super().__init__()
        if not isinstance(cells, list | tuple) or not cells:
            raise ValueError(f"cells: expected a list of at least one cell, got {cells!r}")
        self._cells = list(cells)
        self._state_is_tuple = state_is_tuple
        if not state_is_tuple and any(is_nested(cell.state_size) for cell in self._cells):
            raise ValueError("state_is_tuple: False needs cells whose states are single tensors")

    @property
    def state_size(self) -> Any:
        """A tuple of the cells' sizes."""
        sizes = tuple(cell.state_size for cell in self._cells)
        return sizes if self._state_is_tuple else sum(sizes)

    @property
    def output_size(self) -> Any:
        """That of the last cell."""
        return self._cells[-1].output_size

    @property
    def variables(self) -> list[Any]:
        """Those of the cells."""
        return [variable for cell in self._cells for variable in cell.variables]

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """A tuple of the cells' zero states."""
        if not self._state_is_tuple:
            return super().zero_state(batch_size, dtype)
        return tuple(cell.zero_state(batch_size, dtype) for cell in self._cells)

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """The last output, and the new states."""
        if not self._state_is_tuple:
            state = split(state, [cell.state_size for cell in self._cells], 1)
        news = []
        for i, (cell, old) in enumerate(zip(self._cells, state, strict=True)):
            with variable_scope(f"cell_{i}"):
                inputs, new = cell(inputs, old)
            news.append(new)
        return inputs, tuple(news) if self._state_is_tuple else concat(news, 1)


class _Wrapper(RNNCell):
    """A cell around another, whose variables and sizes are that one's."""

    def __init__(self, cell: Any) -> None:
        super().__init__()
        if not hasattr(cell, "state_size"):
            raise TypeError(f"cell: expected an RNNCell, got {cell!r}")
        self.cell = cell

    @property
    def wrapped_cell(self) -> Any:
        """The cell inside."""
        return self.cell

    @property
    def state_size(self) -> Any:
        """That of the cell inside."""
        return self.cell.state_size

    @property
    def output_size(self) -> Any:
        """That of the cell inside."""
        return self.cell.output_size

    @property
    def variables(self) -> list[Any]:
        """Those of the cell inside."""
        found: list[Any] = self.cell.variables
        return found

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """That of the cell inside."""
        return self.cell.zero_state(batch_size, dtype)


class ResidualWrapper(_Wrapper):
    """Adds the inputs to the outputs of a cell.

    Args:
        cell: the cell.
        residual_fn: (inputs, outputs) -> outputs; their sum if None.
    """

    def __init__(self, cell: Any, residual_fn: Callable[[Any, Any], Any] | None = None) -> None:
        super().__init__(cell)
        self._residual = residual_fn

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> tuple[Any, Any]:
        """The sum, and the new state."""
        outputs, new = self.cell(inputs, state, scope)
        if self._residual is not None:
            return self._residual(inputs, outputs), new
        sums = [x + y for x, y in zip(flatten(inputs), flatten(outputs), strict=True)]
        return pack(outputs, sums), new


class DropoutWrapper(_Wrapper):
    """Dropout on the inputs, outputs and state of a cell; the memory c of an LSTM is left alone.

    Args:
        cell: the cell.
        input_keep_prob: the part of the inputs that is kept; a number or scalar tensor.
        output_keep_prob: the same for outputs.
        state_keep_prob: the same for the new state.
        variational_recurrent: whether one mask is drawn a run, for all steps and examples (Gal &
            Ghahramani, 2016).
        input_size: the size of the inputs; needed for a variational mask of theirs.
        dtype: of the variational masks.
        seed: the seed of the masks.
        dropout_state_filter_visitor: only None works.

    Raises:
        ValueError: a number outside (0, 1], or a variational mask without `dtype` or `input_size`.
    """

    def __init__(
        self,
        cell: Any,
        input_keep_prob: Any = 1.0,
        output_keep_prob: Any = 1.0,
        state_keep_prob: Any = 1.0,
        variational_recurrent: bool = False,
        input_size: Any = None,
        dtype: Any = None,
        seed: Any = None,
        dropout_state_filter_visitor: Any = None,
    ) -> None:
        super().__init__(cell)
        if dropout_state_filter_visitor is not None:
            raise ValueError("dropout_state_filter_visitor: optkit knows only None")
        self._keep = {
            "input": input_keep_prob,
            "output": output_keep_prob,
            "state": state_keep_prob,
        }
        for part, keep in self._keep.items():
            if isinstance(keep, int | float) and not 0 < keep <= 1:
                raise ValueError(f"{part}_keep_prob: expected a number in (0, 1], got {keep!r}")
        self._seed = seed
        self._calls = 0
        self._masks: dict[str, list[Tensor]] | None = None
        if variational_recurrent:
            if dtype is None:
                raise ValueError("dtype: expected one where variational_recurrent is set")
            self._masks = {}
            sizes = {"input": input_size, "output": cell.output_size, "state": cell.state_size}
            for part, size in sizes.items():
                if self._drops(part):
                    if size is None:
                        raise ValueError("input_size: expected one for a variational mask")
                    self._masks[part] = [
                        random_uniform([1, int(n)], dtype=dtype, seed=self._next_seed())
                        for n in flatten(size)
                    ]

    def _drops(self, part: str) -> bool:
        keep = self._keep[part]
        return not (isinstance(keep, int | float) and keep == 1)

    def _next_seed(self) -> int | None:
        """Steps that are operations of their own must not draw the same numbers."""
        self._calls += 1
        return None if self._seed is None else int(self._seed) + 1_000_003 * self._calls

    def _dropped(self, part: str, tree: Any) -> Any:
        if not self._drops(part):
            return tree
        keep = self._keep[part]
        left_alone = _memories(tree) if part == "state" else [False] * len(flatten(tree))
        values = []
        for i, (value, alone) in enumerate(zip(flatten(tree), left_alone, strict=True)):
            if alone:
                values.append(value)
            elif self._masks is not None:
                rate = as_tensor(keep, value.dtype)
                values.append(value / rate * floor(rate + self._masks[part][i]))
            else:
                values.append(dropout(value, keep_prob=keep, seed=self._next_seed()))
        return pack(tree, values)

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> tuple[Any, Any]:
        """The output and the new state."""
        with get_default_graph().name_scope("dropout_wrapper"):
            inputs = self._dropped("input", inputs)
        output, new = self.cell(inputs, state, scope)
        with get_default_graph().name_scope("dropout_wrapper"):
            new = self._dropped("state", new)
            return self._dropped("output", output), new


def _memories(state: Any) -> list[bool]:
    """For each leaf of a state whether it is the memory of an LSTM."""
    if isinstance(state, LSTMStateTuple):
        return [True, False]
    if is_nested(state):
        items = [state[key] for key in sorted(state)] if isinstance(state, dict) else state
        return [flag for item in items for flag in _memories(item)]
    return [False]
