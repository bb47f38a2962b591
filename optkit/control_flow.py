"""Loops: `while_loop`, and `map_fn`, `scan`, `foldl`, `foldr` over the rows of tensors.

In a graph each is one operation that runs its body as often as it takes. A body may refer to
tensors and variables around it, but neither make nor change variables. In eager mode they are
Python loops.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from optkit.dtypes import as_dtype
from optkit.graph import Tensor, get_default_graph
from optkit.nesting import flatten, pack, same_structure
from optkit.ops.array import concat, expand_dims, stack, stop_gradient, unstack
from optkit.ops.core import as_tensor, composite
from optkit.ops.logic import less, logical_and
from optkit.ops.rearranging import reverse as reversed_axes
from optkit.runtime.loops import Loop, given
from optkit.shapes import Shape, TensorShape

__all__ = ["foldl", "foldr", "map_fn", "scan", "while_loop"]


def _function(value: Any, argument: str) -> Callable[..., Any]:
    if not callable(value):
        raise TypeError(f"{argument}: expected a function, got {value!r}")
    checked: Callable[..., Any] = value
    return checked


def _parallel(value: Any) -> None:
    if value is not None and not (isinstance(value, int) and value >= 1):
        raise ValueError(f"parallel_iterations: expected an int of at least 1, got {value!r}")


@contextlib.contextmanager
def _building(name: str) -> Iterator[None]:
    """A name scope; what was built in it is taken back if it raises."""
    graph = get_default_graph()
    with graph.all_or_nothing(), graph.name_scope(name):
        yield


# -- while ----------------------------------------------------------------------------------------


@composite
def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    shape_invariants: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
    maximum_iterations: Any = None,
    return_same_structure: bool = False,
) -> Any:
    """Replaces `loop_vars` by body(*loop_vars) as long as cond(*loop_vars) is true.

    The gradient runs through all turns; gradients of that gradient are not there. Random
    operations in the body give fresh numbers each turn.

    Args:
        cond: gives a scalar bool.
        body: gives the new values, in the nesting of `loop_vars`.
        loop_vars: a list of tensors, or of nestings of them.
        shape_invariants: the shapes that hold in all turns, in the nesting of `loop_vars`; their
            static shapes if None.
        parallel_iterations: accepted as in TF.
        back_prop: False: no gradient flows.
        swap_memory: accepted as in TF.
        name: the name scope.
        maximum_iterations: an int or scalar tensor: stop after so many turns.
        return_same_structure: whether one loop variable comes back in a list, as it was given.

    Raises:
        TypeError: no functions, another dtype after a turn, or no bool from `cond`.
        ValueError: no loop variables, another nesting or shape after a turn, or the body makes or
            changes a variable.
    """
    _function(cond, "cond")
    _function(body, "body")
    _parallel(parallel_iterations)
    if not isinstance(loop_vars, list | tuple):
        loop_vars = [loop_vars]
    if not flatten(loop_vars):
        raise ValueError("loop_vars: expected at least one tensor, got none")
    graph = get_default_graph()
    with _building(name or "while"):
        tensors = [as_tensor(value, name="loop_var") for value in flatten(loop_vars)]
        limit = None if maximum_iterations is None else as_tensor(maximum_iterations, name="limit")
        if limit is not None and (limit.dtype.is_floating or limit.shape.ndims not in (None, 0)):
            raise ValueError(f"maximum_iterations: expected an integer, got {limit!r}")
        if graph.eager:
            values = _eager_while(cond, body, loop_vars, tensors, limit)
        else:
            shapes = _invariants(loop_vars, tensors, shape_invariants)
            values = _graph_while(cond, body, loop_vars, tensors, shapes, limit)
        if not back_prop:
            values = [stop_gradient(value) for value in values]
    if len(values) == 1 and not return_same_structure:
        return values[0]
    return pack(loop_vars, values)


def _turned(body: Callable[..., Any], loop_vars: Any, tensors: Sequence[Tensor]) -> list[Any]:
    """What the body gives, as a flat list."""
    result = body(*pack(loop_vars, tensors))
    if len(loop_vars) == 1 and not (isinstance(result, list | tuple) and len(result) == 1):
        result = [result]  # one variable need not be in a list
    same_structure(list(loop_vars), result, "body")
    return flatten(result)


def _eager_while(
    cond: Any, body: Any, loop_vars: Any, tensors: list[Tensor], limit: Tensor | None
) -> list[Tensor]:
    turn = 0
    while (limit is None or turn < int(limit)) and bool(cond(*pack(loop_vars, tensors))):
        news = _turned(body, loop_vars, tensors)
        tensors = _after_a_turn("while_loop", news, tensors)
        turn += 1
    return tensors


def _after_a_turn(what: str, news: Sequence[Any], olds: Sequence[Tensor]) -> list[Tensor]:
    """In eager mode: the new loop variables, of the dtypes of the old."""
    return [
        given(new, old.dtype, f"{what}: loop variable {i} after a turn")
        for i, (new, old) in enumerate(zip(news, olds, strict=True))
    ]


def _invariants(loop_vars: Any, tensors: Sequence[Tensor], invariants: Any) -> list[Shape]:
    if invariants is None:
        return [tensor.sizes for tensor in tensors]
    if not isinstance(invariants, list | tuple):
        invariants = [invariants]
    found = _shapes(loop_vars, invariants)
    for tensor, wanted in zip(tensors, found, strict=True):
        if not _covers(wanted, tensor.sizes):
            raise ValueError(
                f"shape_invariants: {tensor!r} does not have the shape {TensorShape(wanted)} that "
                "is to hold in all turns"
            )
    return found


def _shapes(tree: Any, invariants: Any) -> list[Shape]:
    """Shapes in the nesting of the loop variables, flat; a shape may be a list itself."""
    if not isinstance(tree, list | tuple | dict):
        return [TensorShape(invariants).sizes]
    if len(tree) != len(invariants):
        raise ValueError(f"shape_invariants: expected {len(tree)} shapes, got {len(invariants)}")
    keys: Any = sorted(tree) if isinstance(tree, dict) else range(len(tree))
    return [size for key in keys for size in _shapes(tree[key], invariants[key])]


def _covers(wide: Shape, narrow: Shape) -> bool:
    if wide is None:
        return True
    if narrow is None or len(wide) != len(narrow):
        return False
    return all(a is None or a == b for a, b in zip(wide, narrow, strict=True))


def _graph_while(
    cond: Any,
    body: Any,
    loop_vars: Any,
    tensors: list[Tensor],
    shapes: list[Shape],
    limit: Tensor | None,
) -> list[Tensor]:
    counted = [] if limit is None else [as_tensor(0, limit.dtype)]
    loop = Loop("while_loop", [*tensors, *counted], [*shapes, *(() for _ in counted)], (), None)
    states = loop.state_inputs[: len(tensors)]
    with loop.graph.as_default():
        wanted = cond(*pack(loop_vars, states))
        if limit is not None:
            wanted = logical_and(less(loop.state_inputs[-1], limit), wanted)
        loop.tested(wanted)
        news = _turned(body, loop_vars, states)
        if limit is not None:
            news.append(loop.state_inputs[-1] + 1)
    finals, _ = loop.finished(news, (), "While")
    return finals[: len(tensors)]


# -- over rows ------------------------------------------------------------------------------------


def _rows(elems: Any, argument: str = "elems") -> list[Tensor]:
    """Tensors with rows, all as many.

    Raises:
        ValueError: there is none, one is a scalar, or lengths differ.
    """
    tensors = [as_tensor(elem, name=argument) for elem in flatten(elems)]
    if not tensors:
        raise ValueError(f"{argument}: expected at least one tensor, got none")
    length = TensorShape([None])
    for tensor in tensors:
        if tensor.shape.ndims == 0:
            raise ValueError(f"{argument}: expected at least one axis, got {tensor!r}")
        if tensor.sizes is not None:
            if not length.is_compatible_with(tensor.sizes[:1]):
                raise ValueError(
                    f"{argument}: expected inputs of one length, got {[t.sizes for t in tensors]}"
                )
            length = length.merge_with(tensor.sizes[:1])
    return tensors


def _length(tensors: Sequence[Tensor]) -> int | None:
    return next((t.sizes[0] for t in tensors if t.sizes and t.sizes[0] is not None), None)


def over_rows(
    what: str,
    states: list[Tensor],
    rows: list[Tensor],
    step: Callable[[list[Tensor], list[Tensor]], tuple[list[Any], list[Any]]],
) -> tuple[list[Tensor], list[Tensor]]:
    """Runs step(states, row of each) -> (new states, outputs) over rows; stacks the outputs."""
    if get_default_graph().eager:
        outs: list[list[Any]] = []
        for elements in zip(*(unstack(row) for row in rows), strict=True):
            news, results = step(states, list(elements))
            states = _after_a_turn(what, news, states)
            outs.append([as_tensor(value) for value in results])
        return states, [stack(column) for column in zip(*outs, strict=True)]
    loop = Loop(what, states, [state.sizes for state in states], rows, _length(rows))
    with loop.graph.as_default():
        news, results = step(loop.state_inputs, loop.row_inputs)
    return loop.finished(news, results, "While")


@composite
def map_fn(
    fn: Callable[[Any], Any],
    elems: Any,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: str | None = None,
) -> Any:
    """fn(row) for each row along the first axis of `elems`, stacked.

    Args:
        fn: gets a row, in the nesting of `elems`.
        elems: a tensor, or a nesting of tensors with the same first size.
        dtype: the dtypes of what `fn` gives, in its nesting; where it is None, `fn` gives the
            nesting of `elems`.
        parallel_iterations: accepted as in TF.
        back_prop: False: no gradient flows.
        swap_memory: accepted as in TF.
        infer_shape: accepted as in TF.
        name: the name scope.

    Raises:
        TypeError: `fn` gives other dtypes, or is no function.
        ValueError: `elems` are scalars or differ in length, or `fn` gives another nesting.
    """
    _function(fn, "fn")
    _parallel(parallel_iterations)
    expected = elems if dtype is None else dtype
    with _building(name or "map"):
        rows = _rows(elems)
        types = [x.dtype for x in rows] if dtype is None else map(as_dtype, flatten(dtype))
        wanted = list(types)

        def step(_: list[Tensor], row: list[Tensor]) -> tuple[list[Any], list[Any]]:
            result = fn(pack(elems, row))
            same_structure(expected, result, "fn")
            outs = [
                given(value, None, f"fn: result {i}") for i, value in enumerate(flatten(result))
            ]
            for out, one in zip(outs, wanted, strict=True):
                if dtype is not None and out.dtype is not one:
                    raise TypeError(f"fn: expected {one.name}, as dtype says, got {out!r}")
            return [], outs

        if get_default_graph().eager and _length(rows) == 0:
            raise ValueError("elems: map_fn of no rows has no result in eager mode")
        _, outs = over_rows("map_fn", [], rows, step)
        return pack(expected, outs if back_prop else [stop_gradient(out) for out in outs])


def _folded(
    what: str,
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any,
    back_prop: bool,
    reverse: bool,
    keep_all: bool,
) -> Any:
    rows = _rows(elems)
    if reverse:
        rows = [reversed_axes(row, [0]) for row in rows]
    like = elems if initializer is None else initializer
    if initializer is None:
        if _length(rows) == 0:
            raise ValueError("elems: expected at least one row where there is no initializer")
        states = [row[0] for row in rows]
        rest = [row[1:] for row in rows]
    else:
        states = [as_tensor(value, name="initializer") for value in flatten(initializer)]
        rest = rows

    def step(old: list[Tensor], row: list[Tensor]) -> tuple[list[Any], list[Any]]:
        result = fn(pack(like, old), pack(elems, row))
        same_structure(like, result, "fn")
        news = [
            given(new, None if hasattr(new, "dtype") else state.dtype, f"fn: result {i}")
            for i, (new, state) in enumerate(zip(flatten(result), old, strict=True))
        ]
        return news, news if keep_all else []

    if get_default_graph().eager and _length(rest) == 0:
        finals, outs = states, [expand_dims(state, 0)[:0] for state in states]
    else:
        finals, outs = over_rows(what, states, rest, step)
    if keep_all:
        if initializer is None:
            outs = [
                concat([expand_dims(s, 0), out], 0) for s, out in zip(states, outs, strict=True)
            ]
        finals = [reversed_axes(out, [0]) for out in outs] if reverse else list(outs)
    if not back_prop:
        finals = [stop_gradient(value) for value in finals]
    return pack(like, finals)


@composite
def scan(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    reverse: bool = False,
    name: str | None = None,
) -> Any:
    """All a_i = fn(a_(i-1), row i of `elems`), stacked.

    Args:
        fn: gets what it gave before, in the nesting of `initializer`, and a row.
        elems: a tensor, or a nesting of tensors with the same first size.
        initializer: a_(-1), a nesting of tensors; where it is None, a_0 is the first row.
        parallel_iterations: accepted as in TF.
        back_prop: False: no gradient flows.
        swap_memory: accepted as in TF.
        infer_shape: accepted as in TF.
        reverse: from the last row to the first; a_i stays at place i.
        name: the name scope.

    Raises:
        TypeError, ValueError: `fn` gives another nesting, dtype or shape than it gets; `elems`
            are scalars or differ in length.
    """
    _function(fn, "fn")
    _parallel(parallel_iterations)
    with _building(name or "scan"):
        return _folded("scan", fn, elems, initializer, back_prop, reverse, True)


@composite
def foldl(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> Any:
    """The last a_i = fn(a_(i-1), row i of `elems`); arguments as of `scan`."""
    _function(fn, "fn")
    _parallel(parallel_iterations)
    with _building(name or "foldl"):
        return _folded("foldl", fn, elems, initializer, back_prop, False, False)


@composite
def foldr(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> Any:
    """As `foldl`, from the last row to the first."""
    _function(fn, "fn")
    _parallel(parallel_iterations)
    with _building(name or "foldr"):
        return _folded("foldr", fn, elems, initializer, back_prop, True, False)
