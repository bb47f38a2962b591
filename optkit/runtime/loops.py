"""Loops in a graph: a body that is a graph of its own, run again and again by one operation.

The body takes states, which each turn replaces, elements of stacked inputs, one row a turn, and
what it refers to in the graph around it, which stays. It gives new states, and rows that are
stacked. The gradient runs backwards over the states that were kept of each turn: it computes the
turn anew, so nothing but states is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from optkit import backend as backends
from optkit.dtypes import DType, bool_, string
from optkit.errors import InvalidArgumentError
from optkit.gradients import backward
from optkit.graph import Graph, IndexedSlices, Kind, Operation, Tensor, get_default_graph
from optkit.ops.array import placeholder, zeros_like
from optkit.ops.core import as_tensor, constant, constant_value
from optkit.ops.random import Stream, get_seed
from optkit.ops.sparse import densify
from optkit.runtime.execution import Run
from optkit.runtime.plan import Plan
from optkit.shapes import Shape, TensorShape

__all__ = ["FunctionGraph", "Loop", "given"]


class FunctionGraph(Graph):
    """A graph whose operations may take tensors of the graph around it.

    Such a tensor is captured: a placeholder stands for it inside, and the operation that runs the
    function takes it as an input. Small constants that are no floats are copied instead, so that
    sizes and axes stay known.
    """

    def __init__(self, outer: Graph, what: str) -> None:
        super().__init__()
        self.outer: Graph = outer
        self.depth = outer.depth + 1
        self.what = what
        self.seed = outer.seed
        self.stores = outer.stores
        self._scope = outer.get_name_scope()
        self.captures: dict[Tensor, Tensor] = {}
        """Tensor of the outer graph -> its placeholder."""
        self._copies: dict[Tensor, Tensor] = {}
        self._sources: dict[Tensor, Tensor] = {}

    def create_operation(
        self,
        kind: Kind,
        inputs: Sequence[Tensor],
        attrs: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        variables: Sequence[Operation] = (),
    ) -> Operation:
        """Append an operation, capturing its inputs where they are of the graph around.

        Raises:
            ValueError: it would make a variable.
        """
        if kind.access == "variable":
            raise ValueError(
                f"{self.what}: the variable {(name or kind.name).rstrip('/')!r} cannot be made "
                "inside; make it before, and use it inside"
            )
        inside = [self.captured(tensor) for tensor in inputs]
        return super().create_operation(kind, inside, attrs, name=name, variables=variables)

    def captured(self, tensor: Tensor) -> Tensor:
        """What stands for a tensor inside."""
        if tensor.graph is self or tensor.graph.eager:
            return tensor
        found = self.captures.get(tensor, self._copies.get(tensor))
        if found is not None:
            return found
        source = tensor
        if source.graph is not self.outer:
            if not isinstance(self.outer, FunctionGraph):
                return tensor  # of another graph; the caller tells
            source = self.outer.captured(tensor)
        known = None if tensor.dtype.is_floating else constant_value(tensor)
        with self.as_default(), self.outside_control_flow(), self.name_scope(None):
            if known is not None:
                self._copies[tensor] = constant(known, name="copy")
                return self._copies[tensor]
            inner = placeholder(tensor.dtype, tensor.sizes, name="captured")
        self.captures[source] = self.captures[tensor] = inner
        self._sources[inner] = source
        return inner

    def source_of(self, tensor: Tensor) -> Tensor | None:
        """The tensor of the graph around that a placeholder stands for."""
        return self._sources.get(tensor)

    def check_write(self, kind: Kind, variable: Operation) -> None:
        """Refuse: writes are built where their variable is, so they would run once, not each turn.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            f"{self.what}: {kind.name} cannot change the variable {variable.name!r} inside; "
            "return the new value as a loop variable, and assign it afterwards"
        )

    def outside(self) -> list[tuple[Tensor, Tensor]]:
        """The captured tensors of the graph around, each with its placeholder."""
        return [(x, inner) for x, inner in self.captures.items() if x.graph is self.outer]

    @property
    def version(self) -> int:
        """Grows with each operation; unlike that of the graph around, for the seeds."""
        return self.outer.version + len(self._operations)

    def get_collection(self, name: str, scope: str | None = None) -> list[Any]:
        """The items of a collection of the graph around."""
        return self.outer.get_collection(name, scope)


def given(value: Any, dtype: DType | None, what: str) -> Tensor:
    """What a function of the user's gave, as a tensor; `what` it is, for messages.

    Raises:
        TypeError, ValueError: it is no tensor, or has another dtype.
    """
    try:
        return as_tensor(value, dtype)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what}: {error}") from error


class _Counts(dict[Operation, Any]):
    """How often random operations have run; those that have not begin at an offset."""

    def __init__(self, start: int, counts: Mapping[Operation, Any] = {}) -> None:
        super().__init__(counts)
        self.start = start

    def get(self, key: Operation, default: Any = None) -> Any:
        return super().get(key, self.start if key.kind.random else default)


class _Function:
    """Tensors of a FunctionGraph as a function of others."""

    def __init__(self, graph: FunctionGraph, inputs: Sequence[Tensor], outputs: Sequence[Tensor]):
        self.graph = graph
        self.plan = Plan(graph, outputs, inputs)

    def __call__(self, xp: Any, state: _Counts, entropy: int, arrays: Sequence[Any]) -> list[Any]:
        """The outputs; `state` learns how often random operations ran."""
        backend = backends.resolve("numpy" if xp is np else "cupy")
        run = Run(self.graph, backend, self.plan, state, entropy, arrays)
        for step in self.plan.steps:
            if not step.branch or run._reached(step):
                run._perform(step)
        state.update(run.written)
        return [run.values[place] for place in self.plan.fetched if place is not None]


class _Kept:
    """What the forward loop keeps for its gradient: where each turn started."""

    def __init__(self, entropy: int) -> None:
        self.entropy = entropy
        self.turns: list[tuple[list[Any], _Counts]] = []


class Loop:
    """A loop that is being built, and then what its operation runs.

    Args:
        what: the public function, for messages.
        states: the first states, tensors of the default graph.
        shapes: the static shape that each state keeps.
        rows: stacked inputs; each turn gets a row of each.
        length: the static number of rows.
    """

    def __init__(
        self,
        what: str,
        states: Sequence[Tensor],
        shapes: Sequence[Shape],
        rows: Sequence[Tensor],
        length: int | None,
    ) -> None:
        self.outer = get_default_graph()
        self.what = what
        self.length = length
        self.states = list(states)
        self.rows = list(rows)
        self.graph = FunctionGraph(self.outer, what)
        self.test: _Function | None = None
        self._root = self.outer
        while isinstance(self._root, FunctionGraph):
            self._root = self._root.outer
        self._before = self._root.version
        self.keeps = False
        """Whether a gradient needs what turns started from."""
        with self.graph.as_default():
            self.state_inputs = [
                placeholder(x.dtype, shape, name="state")
                for x, shape in zip(states, shapes, strict=True)
            ]
            self.row_inputs = [
                placeholder(x.dtype, None if x.sizes is None else x.sizes[1:], name="row")
                for x in rows
            ]

    def tested(self, result: Any) -> None:
        """Run while `result`, of the loop's graph, is true; without a test, once for each row.

        Raises:
            TypeError, ValueError: it is no scalar bool.
        """
        with self.graph.as_default():
            condition = self.graph.captured(as_tensor(result))
        if condition.dtype is not bool_:
            raise TypeError(f"{self.what}: cond: expected a bool, got {condition!r}")
        if condition.shape.ndims not in (None, 0):
            raise ValueError(f"{self.what}: cond: expected a scalar, got {condition!r}")
        self._condition: Tensor = condition

    def finished(
        self, new_states: Sequence[Any], stacked: Sequence[Any], name: str
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The last states and the stacked rows, given what the body gives.

        Raises:
            TypeError, ValueError: a new state has another dtype or shape than the state.
        """
        with self.graph.as_default():
            news: list[Tensor] = []
            for old, new in zip(self.state_inputs, new_states, strict=True):
                label = f"{self.what}: loop variable {len(news)} after a turn"
                tensor = given(new, None if hasattr(new, "dtype") else old.dtype, label)
                news.append(self.graph.captured(tensor))
            outs = [
                self.graph.captured(given(row, None, f"{self.what}: result {i}"))
                for i, row in enumerate(stacked)
            ]
        self._refuse_writes()
        for i, (first, old, new) in enumerate(
            zip(self.states, self.state_inputs, news, strict=True)
        ):
            if new.dtype is not old.dtype:
                raise TypeError(
                    f"{self.what}: loop variable {i} ({first.name!r}): expected {old.dtype.name} "
                    f"after a turn, got {new.dtype.name}"
                )
            if not _within(new.sizes, old.sizes):
                raise ValueError(
                    f"{self.what}: loop variable {i} ({first.name!r}): has shape {old.shape} "
                    f"before a turn and {new.shape} after it; if it is to change, say so with "
                    "shape_invariants"
                )
        self.new_states, self.outs = news, outs
        pairs = self.graph.outside()
        captured = [inner for _, inner in pairs]
        fed = [*self.state_inputs, *self.row_inputs, *captured]
        self.body = _Function(self.graph, fed, [*news, *outs])
        if hasattr(self, "_condition"):
            self.test = _Function(self.graph, [*self.state_inputs, *captured], [self._condition])
        node = self.outer.create_operation(
            _LOOP,
            [*self.states, *self.rows, *(x for x, _ in pairs)],
            {"loop": self, "seed": get_seed(None)},
            name=name,
        )
        # What is said inside of a shape decides the shapes of the results.
        said = any(y.claimed for op in self.graph.get_operations() for y in op.outputs)
        for output in node.outputs:
            output.claimed = said
        count = len(news)
        return list(node.outputs[:count]), list(node.outputs[count:-1])

    def _refuse_writes(self) -> None:
        """Writes are built where their variable is: they would run once, not each turn."""
        for op in self._root.get_operations()[self._before :]:
            if op.kind.access == "write":
                self.graph.check_write(op.kind, op.variables[0])

    # -- running ----------------------------------------------------------------------------

    def run(self, xp: Any, inputs: Sequence[Any], stream: Stream) -> tuple[Any, ...]:
        """All turns; the last states, the stacked rows, and what the gradient needs."""
        k, m = len(self.states), len(self.rows)
        states, rows, captured = list(inputs[:k]), inputs[k : k + m], list(inputs[k + m :])
        turns = self._turns(rows)
        # Operations with seeds of their own give the same numbers whatever the session.
        counts = _Counts(int(Stream((0, 0), stream.run).bits(1)[0]))
        kept = _Kept(int(stream.bits(1)[0]))
        outs: list[list[Any]] = [[] for _ in self.outs]
        turn = 0
        while True:
            if self.test is not None:
                (wanted,) = self.test(xp, counts, kept.entropy, [*states, *captured])
                if not bool(wanted):
                    break
            elif turn == turns:
                break
            if self.keeps:
                kept.turns.append((list(states), _Counts(counts.start, counts)))
            fed = [*states, *(row[turn, ...] for row in rows), *captured]
            results = self.body(xp, counts, kept.entropy, fed)
            states = results[:k]
            for out, value in zip(outs, results[k:], strict=True):
                out.append(value)
            turn += 1
        stacked = [self._stacked(xp, *pair) for pair in zip(self.outs, outs, strict=True)]
        held = np.empty((), object)
        held[()] = kept
        return (*states, *stacked, held)

    def _turns(self, rows: Sequence[Any]) -> int:
        lengths = {row.shape[0] for row in rows}
        if len(lengths) > 1:
            raise InvalidArgumentError(
                f"{self.what}: expected inputs of one length, got lengths {sorted(lengths)}"
            )
        return lengths.pop() if lengths else 0

    @staticmethod
    def _stacked(xp: Any, tensor: Tensor, values: Sequence[Any]) -> Any:
        if values:
            shapes = {np.shape(value) for value in values}
            if len(shapes) > 1:
                raise InvalidArgumentError(
                    f"{tensor.name!r}: expected one shape in all turns to stack, got "
                    f"{sorted(shapes)}"
                )
            return xp.stack(values) if tensor.dtype is not string else np.stack(values)
        sizes = [size or 0 for size in tensor.sizes or ()]
        return xp.zeros((0, *sizes), tensor.dtype.dtype)

    # -- the gradient -----------------------------------------------------------------------

    def gradient(self, node: Operation, dys: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradients of the operation's inputs, given those of its outputs."""
        self.keeps = True
        if not hasattr(self, "_backward"):
            self._backward = _Backward(self)
        back = self._backward
        k = len(self.states)
        used = [*back.states, *(k + i for i in back.outs)]
        made = node.graph.create_operation(
            _LOOP_GRADIENT,
            [node.outputs[-1], *node.inputs, *(dys[i] for i in used)],
            {"loop": self, "wrt": back.wrt},
            name=f"{self.what}_gradient",
        )
        result: list[Tensor | None] = [None] * len(node.inputs)
        for place, output in zip(back.wrt, made.outputs, strict=True):
            result[place] = output
        return result


class _Backward:
    """One turn backwards: a function in the loop's own graph."""

    def __init__(self, loop: Loop) -> None:
        graph = loop.graph
        k, m = len(loop.states), len(loop.rows)
        self.captured = [inner for _, inner in graph.outside()]
        inputs = [*loop.state_inputs, *loop.row_inputs, *self.captured]
        self.wrt = [i for i, x in enumerate(inputs) if x.dtype.is_floating]
        self.states = [i for i in range(k) if loop.state_inputs[i].dtype.is_floating]
        self.outs = [i for i, y in enumerate(loop.outs) if y.dtype.is_floating]
        ys = [loop.new_states[i] for i in self.states] + [loop.outs[i] for i in self.outs]
        with graph.as_default(), graph.name_scope("gradient"):
            dys = [placeholder(y.dtype, y.sizes, name="dy") for y in ys]
            xs = [inputs[i] for i in self.wrt]
            found = backward(ys, xs, dys) if ys else [None] * len(xs)
            dxs = [densify(dx) if isinstance(dx, IndexedSlices) else dx for dx in found]
            # A state that a turn does not use, but replaces, has no gradient from it.
            full = [zeros_like(x) if dx is None else dx for x, dx in zip(xs, dxs, strict=True)]
        self.unused = {i for i, dx in zip(self.wrt, dxs, strict=True) if dx is None}
        self.rows = range(k, k + m)
        if len(graph.outside()) != len(self.captured):
            raise ValueError(
                f"{loop.what}: a gradient rule inside refers to a tensor around the loop"
            )
        self.function = _Function(graph, [*inputs, *dys], full)

    def run(self, xp: Any, loop: Loop, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients of the loop's inputs in `wrt`, the last turn first."""
        kept: _Kept = inputs[0][()]
        k, m = len(loop.states), len(loop.rows)
        given = inputs[1 : 1 + k + m + len(self.captured)]
        dstates = list(inputs[1 + len(given) :][: len(self.states)])
        douts = inputs[1 + len(given) + len(self.states) :]
        rows, captured = given[k : k + m], list(given[k + m :])
        totals: dict[int, Any] = {}
        parts: dict[int, list[Any]] = {i: [] for i in self.wrt if i in self.rows}
        for turn in reversed(range(len(kept.turns))):
            states, counts = kept.turns[turn]
            fed = [
                *states,
                *(row[turn, ...] for row in rows),
                *captured,
                *dstates,
                *(dout[turn, ...] for dout in douts),
            ]
            found = self.function(xp, _Counts(counts.start, counts), kept.entropy, fed)
            dstates = found[: len(self.states)]
            for i, dx in zip(self.wrt, found, strict=True):
                if i in parts:
                    parts[i].append(dx)
                elif i >= k + m and i not in self.unused:
                    totals[i] = totals[i] + dx if i in totals else dx
        results = []
        for place, i in enumerate(self.wrt):
            if i < k:
                results.append(dstates[place])
            elif i in parts:
                stacked = parts[i][::-1]
                results.append(xp.stack(stacked) if stacked else xp.zeros_like(given[i]))
            else:
                results.append(totals[i] if i in totals else xp.zeros_like(given[i]))
        return tuple(results)


def _within(new: Shape, old: Shape) -> bool:
    """Whether a shape is at least as known as another, and agrees with it."""
    if old is None:
        return True
    if new is None or len(new) != len(old):
        return False
    return all(b is None or a == b for a, b in zip(new, old, strict=True))


def _loop_types(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> list[tuple[DType, Shape]]:
    loop: Loop = attrs["loop"]
    states = [(x.dtype, x.sizes) for x in loop.state_inputs]
    outs = [(y.dtype, TensorShape([loop.length]).concatenate(y.shape).sizes) for y in loop.outs]
    return [*states, *outs, (string, ())]


def _loop_kernel(xp: Any, *inputs: Any, loop: Loop, seed: Any, stream: Stream) -> Any:
    return loop.run(xp, inputs, stream)


def _loop_gradient(node: Operation, *dys: Tensor) -> list[Tensor | None]:
    loop: Loop = node.attrs["loop"]
    return loop.gradient(node, dys)


_LOOP = Kind("While", _loop_kernel, _loop_types, gradient=_loop_gradient, random=True)


def _gradient_kernel(xp: Any, *inputs: Any, loop: Loop, wrt: Any) -> Any:
    results = loop._backward.run(xp, loop, inputs)
    return results if len(results) != 1 else results[0]


_LOOP_GRADIENT = Kind(
    "WhileGrad",
    _gradient_kernel,
    lambda inputs, attrs: [(inputs[1 + i].dtype, inputs[1 + i].sizes) for i in attrs["wrt"]],
    host=frozenset({0}),
)
