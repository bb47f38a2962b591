"""Running recurrent cells over sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optkit.control_flow import over_rows
from optkit.dtypes import as_dtype, int32
from optkit.graph import Tensor, get_default_graph
from optkit.nesting import flatten, pack, same_structure
from optkit.ops.array import concat, stack, transpose, unstack, zeros_like
from optkit.ops.core import INDEX_TYPES, as_tensor
from optkit.ops.indexing import where
from optkit.ops.logic import less
from optkit.ops.masking import reverse_sequence
from optkit.ops.math import cast
from optkit.ops.rearranging import reverse
from optkit.ops.reductions import reduce_sum
from optkit.ops.reshaping import expand_dims
from optkit.rnn.base import batch_of
from optkit.shapes import TensorShape
from optkit.variable_scope import get_variable_scope, variable_scope

__all__ = [
    "bidirectional_dynamic_rnn",
    "dynamic_rnn",
    "static_bidirectional_rnn",
    "static_rnn",
]

_UNROLLED = 128
"""Steps up to which dynamic_rnn builds each step; longer sequences run in a loop."""


def _cell(cell: Any, argument: str = "cell") -> Any:
    if not (callable(cell) and hasattr(cell, "state_size") and hasattr(cell, "output_size")):
        raise TypeError(f"{argument}: expected an RNNCell, got {cell!r}")
    return cell


def _lengths(sequence_length: Any, batch: Any) -> Tensor | None:
    """One length an example, or None.

    Raises:
        ValueError: it is no vector of integers of the batch's size.
    """
    if sequence_length is None:
        return None
    lengths = as_tensor(sequence_length, name="sequence_length")
    size = batch if isinstance(batch, int) else None
    if lengths.dtype not in INDEX_TYPES or not lengths.shape.is_compatible_with([size]):
        raise ValueError(f"sequence_length: expected integers of shape ({size},), got {lengths!r}")
    counts: Tensor = cast(lengths, int32)
    return counts


def _first_state(cell: Any, initial_state: Any, batch: Any, dtype: Any) -> Any:
    if initial_state is None:
        if dtype is None:
            raise ValueError("dtype: expected one where there is no initial_state")
        return cell.zero_state(batch, as_dtype(dtype))
    same_structure(cell.state_size, initial_state, "initial_state")
    tensors = [as_tensor(value, name="initial_state") for value in flatten(initial_state)]
    rows = batch if isinstance(batch, int) else None
    for size, tensor in zip(flatten(cell.state_size), tensors, strict=True):
        if isinstance(size, int) and not tensor.shape.is_compatible_with([rows, size]):
            raise ValueError(
                f"initial_state: expected shape {TensorShape([rows, size])}, that of the cell's "
                f"state, got {tensor!r}"
            )
    return pack(initial_state, tensors)


def _step(cell: Any, inputs: Any, state: Any, time: Any, lengths: Tensor | None) -> Any:
    """A cell's step; past the end of its sequence an example gives zeros and keeps its state."""
    output, new = cell(inputs, state)
    same_structure(state, new, "cell: new state")
    if lengths is None:
        return output, new
    alive = less(time, lengths)
    outputs = [where(alive, y, zeros_like(y)) for y in flatten(output)]
    states = [where(alive, a, b) for a, b in zip(flatten(new), flatten(state), strict=True)]
    return pack(output, outputs), pack(new, states)


def _unrolled(
    cell: Any, inputs: Sequence[Any], state: Any, lengths: Tensor | None
) -> tuple[list[Any], Any]:
    outputs = []
    for time, x in enumerate(inputs):
        if time and not get_default_graph().eager:
            get_variable_scope().reuse_variables()
        output, state = _step(cell, x, state, time, lengths)
        outputs.append(output)
    return outputs, state


def static_rnn(
    cell: Any,
    inputs: Any,
    initial_state: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[list[Any], Any]:
    """A cell over a list of inputs, one a step.

    Args:
        cell: an RNNCell.
        inputs: a list of tensors of shape (batch, depth), or of nestings of them.
        initial_state: the first state; zeros if None.
        dtype: of those zeros.
        sequence_length: how many steps each example has, shape (batch,); past them outputs are
            zero and the state stays.
        scope: the variable scope; "rnn" if None.

    Returns:
        A list of outputs, and the last state.

    Raises:
        TypeError: no cell, or no list.
        ValueError: no inputs, neither initial_state nor dtype, or shapes that do not fit.
    """
    _cell(cell)
    if not isinstance(inputs, list | tuple):
        raise TypeError(f"inputs: expected a list of tensors, one a step, got {inputs!r}")
    if not inputs:
        raise ValueError("inputs: expected at least one step, got none")
    with get_default_graph().all_or_nothing(), variable_scope(scope or "rnn"):
        steps = [pack(step, [as_tensor(x) for x in flatten(step)]) for step in inputs]
        first = flatten(steps[0])[0]
        if first.shape.ndims is not None and first.shape.ndims < 1:
            raise ValueError(f"inputs: expected shape (batch, depth), got {first!r}")
        batch = batch_of(first, 0)
        state = _first_state(cell, initial_state, batch, dtype)
        return _unrolled(cell, steps, state, _lengths(sequence_length, batch))


def static_bidirectional_rnn(
    cell_fw: Any,
    cell_bw: Any,
    inputs: Any,
    initial_state_fw: Any = None,
    initial_state_bw: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[list[Any], Any, Any]:
    """One cell over a list of inputs, and another from its end.

    Args:
        cell_fw: the cell that runs forwards.
        cell_bw: the cell that runs backwards.
        inputs: as of `static_rnn`.
        initial_state_fw: the first state of `cell_fw`; zeros if None.
        initial_state_bw: the first state of `cell_bw`; zeros if None.
        dtype: of those zeros.
        sequence_length: as of `static_rnn`; the second cell begins at each example's end.
        scope: the variable scope; "bidirectional_rnn" if None.

    Returns:
        A list of outputs of both side by side, and the last state of each.
    """
    _cell(cell_fw, "cell_fw")
    _cell(cell_bw, "cell_bw")
    if not isinstance(inputs, list | tuple) or not inputs:
        raise TypeError(f"inputs: expected a list of tensors, one a step, got {inputs!r}")
    with get_default_graph().all_or_nothing(), variable_scope(scope or "bidirectional_rnn"):
        with variable_scope("fw") as forward:
            outputs_fw, state_fw = static_rnn(
                cell_fw, inputs, initial_state_fw, dtype, sequence_length, scope=forward
            )
        with variable_scope("bw") as backward:
            turned, state_bw = static_rnn(
                cell_bw,
                _turned(inputs, sequence_length),
                initial_state_bw,
                dtype,
                sequence_length,
                scope=backward,
            )
        outputs_bw = _turned(turned, sequence_length)
        outputs = [concat(pair, 1) for pair in zip(outputs_fw, outputs_bw, strict=True)]
        return outputs, state_fw, state_bw


def _turned(inputs: Sequence[Any], sequence_length: Any) -> list[Any]:
    """A list of steps from the end of each example."""
    if sequence_length is None:
        return list(inputs)[::-1]
    stacked = reverse_sequence(stack(list(inputs)), sequence_length, 0, 1)
    return unstack(stacked, len(inputs))


def dynamic_rnn(
    cell: Any,
    inputs: Any,
    sequence_length: Any = None,
    initial_state: Any = None,
    dtype: Any = None,
    parallel_iterations: Any = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: Any = None,
) -> tuple[Any, Any]:
    """A cell over sequences in one tensor.

    Up to a known length of 128 each step is built; else the steps are a loop, see `while_loop`.

    Args:
        cell: an RNNCell.
        inputs: shape (batch, time, depth), or a nesting of such tensors.
        sequence_length: how many steps each example has, shape (batch,); past them outputs are
            zero and the state stays.
        initial_state: the first state; zeros if None.
        dtype: of those zeros.
        parallel_iterations: accepted as in TF.
        swap_memory: accepted as in TF.
        time_major: whether inputs and outputs are (time, batch, depth).
        scope: the variable scope; "rnn" if None.

    Returns:
        Outputs of shape (batch, time, output_size), and the last state.

    Raises:
        TypeError: no cell.
        ValueError: neither initial_state nor dtype, or shapes that do not fit.
    """
    _cell(cell)
    with get_default_graph().all_or_nothing(), variable_scope(scope or "rnn"):
        tensors = [as_tensor(x, name="inputs") for x in flatten(inputs)]
        for x in tensors:
            if x.shape.ndims is not None and x.shape.ndims < 3:
                raise ValueError(f"inputs: expected shape (batch, time, depth), got {x!r}")
        rows = tensors if time_major else [_exchanged(x) for x in tensors]
        batch = batch_of(rows[0], 1)
        lengths = _lengths(sequence_length, batch)
        state = _first_state(cell, initial_state, batch, dtype)
        known = rows[0].sizes[0] if rows[0].sizes else None
        if (get_default_graph().eager and known) or (known and known <= _UNROLLED):
            columns = [unstack(x, known) for x in rows]
            steps = [pack(inputs, list(step)) for step in zip(*columns, strict=True)]
            outputs, state = _unrolled(cell, steps, state, lengths)
            stacked = [stack(list(c)) for c in zip(*map(flatten, outputs), strict=True)]
            like = outputs[0]
        elif known == 0:
            # The step makes the variables, and tells what no step would give.
            like, _ = cell(pack(inputs, [_row_of(x) for x in rows]), state)
            stacked = [expand_dims(y, 0)[:0] for y in flatten(like)]
        else:
            like, stacked, state = _looped(cell, inputs, rows, state, lengths)
        return pack(like, stacked if time_major else [_exchanged(y) for y in stacked]), state


def _looped(
    cell: Any, inputs: Any, rows: list[Tensor], state: Any, lengths: Tensor | None
) -> tuple[Any, list[Tensor], Any]:
    """The nesting of an output, the stacked outputs, and the last state."""
    # A loop's body makes no variables: a step that is never run makes them here.
    like, _ = cell(pack(inputs, [x[0] for x in rows]), state)
    get_variable_scope().reuse_variables()
    within = get_variable_scope()

    def step(states: list[Tensor], row: list[Tensor]) -> tuple[list[Any], list[Any]]:
        time, *old = states
        with variable_scope(within, reuse=True):
            output, new = _step(cell, pack(inputs, row), pack(state, old), time, lengths)
        return [time + 1, *flatten(new)], flatten(output)

    first = [as_tensor(0, int32), *flatten(state)]
    finals, stacked = over_rows("dynamic_rnn", first, rows, step)
    return like, stacked, pack(state, finals[1:])


def _row_of(x: Tensor) -> Tensor:
    """Zeros in the shape of a row of something without rows."""
    return reduce_sum(x, 0)


def _exchanged(x: Tensor) -> Tensor:
    """With the first two axes exchanged."""
    if x.shape.ndims is None:
        raise ValueError(f"inputs: expected a known rank, got {x!r}")
    return transpose(x, [1, 0, *range(2, x.shape.ndims)])


def bidirectional_dynamic_rnn(
    cell_fw: Any,
    cell_bw: Any,
    inputs: Any,
    sequence_length: Any = None,
    initial_state_fw: Any = None,
    initial_state_bw: Any = None,
    dtype: Any = None,
    parallel_iterations: Any = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: Any = None,
) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """One cell over sequences, and another from their ends.

    Args:
        cell_fw: the cell that runs forwards.
        cell_bw: the cell that runs backwards.
        inputs: as of `dynamic_rnn`, a single tensor.
        sequence_length: as of `dynamic_rnn`; the second cell begins at each example's end.
        initial_state_fw: the first state of `cell_fw`; zeros if None.
        initial_state_bw: the first state of `cell_bw`; zeros if None.
        dtype: of those zeros.
        parallel_iterations: accepted as in TF.
        swap_memory: accepted as in TF.
        time_major: whether inputs and outputs are (time, batch, depth).
        scope: the variable scope; "bidirectional_rnn" if None.

    Returns:
        The outputs of both, and the last states of both.
    """
    _cell(cell_fw, "cell_fw")
    _cell(cell_bw, "cell_bw")
    time, batch = (0, 1) if time_major else (1, 0)

    def turned(x: Any) -> Tensor:
        if sequence_length is None:
            return reverse(x, [time])
        return reverse_sequence(x, sequence_length, time, batch)

    with get_default_graph().all_or_nothing(), variable_scope(scope or "bidirectional_rnn"):
        x = as_tensor(inputs, name="inputs")
        with variable_scope("fw") as forward:
            output_fw, state_fw = dynamic_rnn(
                cell_fw,
                x,
                sequence_length,
                initial_state_fw,
                dtype,
                time_major=time_major,
                scope=forward,
            )
        with variable_scope("bw") as backward:
            output_bw, state_bw = dynamic_rnn(
                cell_bw,
                turned(x),
                sequence_length,
                initial_state_bw,
                dtype,
                time_major=time_major,
                scope=backward,
            )
        return (output_fw, turned(output_bw)), (state_fw, state_bw)
