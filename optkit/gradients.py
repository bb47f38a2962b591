"""Reverse-mode differentiation on the graph.

`gradients` walks from ys back to xs, newest operation first, and asks each kind's rule for the
gradients of its inputs. What all rules share is done here, once: adding up, undoing broadcasting,
zeros for outputs that were not used, IndexedSlices, `cond` branches, reads of variables.
The result is graph again, so it can be differentiated again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from optkit.errors import InternalError
from optkit.graph import (
    Branch,
    Graph,
    IndexedSlices,
    Operation,
    Tensor,
    get_default_graph,
    is_symbolic,
)
from optkit.ops.array import concat, ones_like, zeros_like
from optkit.ops.broadcasting import sum_to_like
from optkit.ops.control import merge
from optkit.ops.core import as_tensor
from optkit.ops.math import add, add_n
from optkit.ops.sparse import densify

__all__ = [
    "AggregationMethod",
    "UnconnectedGradients",
    "backward",
    "blocking_operations",
    "check_unconnected",
    "gradients",
]


class AggregationMethod:
    """How gradients from several uses of a tensor are added up; the sum is the same."""

    ADD_N = 0
    DEFAULT = 0
    EXPERIMENTAL_TREE = 1
    EXPERIMENTAL_ACCUMULATE_N = 2


class UnconnectedGradients:
    """What `gradients` gives for an x that no y depends on: None or zeros."""

    NONE = "none"
    ZERO = "zero"


_Gradient = Tensor | IndexedSlices
_Producer = Callable[[Tensor], Operation]
"""From a tensor to the operation that made it: its own in a graph, what a tape recorded."""


def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    name: str = "gradients",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: int | None = None,
    stop_gradients: Any = None,
    unconnected_gradients: str = UnconnectedGradients.NONE,
) -> list[Any]:
    """The gradient of the sum of all ys with respect to each x: Σ_y Σ_i ∂y_i/∂x · grad_y_i.

    Args:
        ys: a floating tensor or a list of them.
        xs: a tensor or Variable, or a list. A Variable stands for all reads of it.
        grad_ys: weights of the ys, each of its y's shape and dtype; ones where None.
        name: the name scope of what is built.
        colocate_gradients_with_ops: record that gradients should be where their operations are.
        gate_gradients: accepted as in TF; runs are deterministic either way.
        aggregation_method: an `AggregationMethod`; DEFAULT if None.
        stop_gradients: tensors that are held constant.
        unconnected_gradients: "none" or "zero", for an x that no y depends on.

    Returns:
        One entry per x, in its shape and dtype: a Tensor; an IndexedSlices where only rows were
        gathered; None where no differentiable path leads to it.

    Raises:
        TypeError: a y is not floating, or a grad_y has another dtype.
        ValueError: wrong lengths, shapes, or aggregation method; an x of eager mode.
        LookupError: an operation on the path has no gradient rule.
    """
    if aggregation_method not in (None, 0, 1, 2):
        raise ValueError(
            f"aggregation_method: expected an AggregationMethod (0, 1, 2) or None, got "
            f"{aggregation_method!r}"
        )
    if get_default_graph().eager:
        raise RuntimeError("gradients: eager mode keeps no graph to go back; use GradientTape")
    targets = _listed(ys)
    graph: Graph = next((y.graph for y in targets if is_symbolic(y)), get_default_graph())
    if graph.eager:
        raise RuntimeError(f"gradients: ys: {targets[0]!r} was made in eager mode; use a tape")
    for x in _listed(xs):
        if is_symbolic(x) and x.graph.eager:
            raise ValueError(f"xs: {x!r} was made in eager mode, and ys in a graph")
    with graph.as_default(), graph.all_or_nothing():
        targets = [_differentiated(y) for y in targets]
        with graph.name_scope(name or "gradients"):
            return backward(
                targets,
                _listed(xs),
                grad_ys,
                unconnected_gradients,
                stopped={_source(x, "stop_gradients") for x in _listed(stop_gradients)},
                aggregation=aggregation_method or AggregationMethod.DEFAULT,
                colocate=colocate_gradients_with_ops,
                producer=_through_captures() if graph.outer is not None else None,
            )


def check_unconnected(unconnected_gradients: Any) -> None:
    """Refuse what is neither "none" nor "zero" with a ValueError."""
    if unconnected_gradients not in ("none", "zero"):
        raise ValueError(
            f"unconnected_gradients: expected 'none' or 'zero', got {unconnected_gradients!r}"
        )


def backward(
    ys: Sequence[Tensor],
    xs: Sequence[Any],
    grad_ys: Any = None,
    unconnected_gradients: str = UnconnectedGradients.NONE,
    *,
    stopped: set[Tensor] | None = None,
    aggregation: int = AggregationMethod.DEFAULT,
    colocate: bool = False,
    producer: _Producer | None = None,
) -> list[Any]:
    """The walk behind `gradients` and `GradientTape.gradient`; see `gradients` for the rest.

    Args:
        ys: floating tensors.
        xs: tensors or Variables.
        grad_ys: as of `gradients`.
        unconnected_gradients: as of `gradients`.
        stopped: tensors that are held constant.
        aggregation: an `AggregationMethod`.
        colocate: whether to record where gradients belong.
        producer: from a tensor to the operation that made it, where a tape remembers it.
    """
    check_unconnected(unconnected_gradients)
    targets = [_differentiated(y) for y in ys]
    sources = [_source(x) for x in xs]
    graph = targets[0].graph if targets else get_default_graph()
    walk = _Walk(graph, aggregation, colocate, producer or _in_graph)
    found = walk.run(targets, _seeds(targets, grad_ys), sources, stopped or set())
    if unconnected_gradients == UnconnectedGradients.ZERO:
        found = [zeros_like(x) if dx is None else dx for x, dx in zip(xs, found, strict=True)]
    return found


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    return [value]


def _differentiated(y: Any) -> Tensor:
    tensor = as_tensor(y)
    if not tensor.dtype.is_floating:
        raise TypeError(f"ys: expected a floating tensor, got {tensor!r}")
    return tensor


def _source(x: Any, argument: str = "xs") -> Tensor:
    """The tensor whose gradient is collected: a Variable's own, which all its reads lead to."""
    if not is_symbolic(x):
        raise TypeError(f"{argument}: expected a Tensor or Variable, got {x!r}")
    element = x._as_graph_element()
    assert isinstance(element, Tensor)
    return element


def _seeds(targets: Sequence[Tensor], grad_ys: Any) -> list[_Gradient]:
    given = [None] * len(targets) if grad_ys is None else _listed(grad_ys)
    if len(given) != len(targets):
        raise ValueError(f"grad_ys: expected {len(targets)} entries, one a y, got {len(given)}")
    seeds: list[_Gradient] = []
    for y, dy in zip(targets, given, strict=True):
        if dy is None:
            seeds.append(ones_like(y))
            continue
        try:
            tensor = as_tensor(dy, y.dtype)
        except (TypeError, ValueError) as error:
            raise TypeError(f"grad_ys: for {y.name!r}: {error}") from error
        if not tensor.shape.is_compatible_with(y.sizes):
            raise ValueError(
                f"grad_ys: for {y.name!r}: expected shape {y.shape}, got {tensor.shape}"
            )
        seeds.append(tensor)
    return seeds


def _in_graph(tensor: Tensor) -> Operation:
    return tensor.op


class _Crossing(Operation):
    """The way from what stands for a tensor in a loop's body to the tensor: the identity."""

    __slots__ = ()

    def __init__(self, inner: Tensor, outer: Tensor) -> None:
        op = inner.op
        self.graph = op.graph
        self.kind = op.kind
        self.name = op.name
        self.inputs = (outer,)
        self.control_inputs = ()
        self.outputs = (inner,)
        self.variables = ()
        self.attrs = {}
        self.branch = op.branch
        self.device = ""
        self._colocation = ()
        self.index = op.index
        self.site = op.site


def _through_captures() -> _Producer:
    """In a loop's body: what stands for a tensor of the graph around comes from that tensor."""
    crossings: dict[Tensor, Operation] = {}

    def producer(tensor: Tensor) -> Operation:
        outer = tensor.graph.source_of(tensor)
        if outer is None:
            return tensor.op
        if tensor not in crossings:
            crossings[tensor] = _Crossing(tensor, outer)
        return crossings[tensor]

    return producer


def _ancestors(targets: Sequence[Tensor], producer: _Producer) -> list[Operation]:
    """The operations whose values the targets are made of, newest first."""
    found: set[Operation] = set()
    waiting = [producer(y) for y in targets]
    while waiting:
        op = waiting.pop()
        if op not in found:
            found.add(op)
            waiting.extend(producer(tensor) for tensor in op.inputs)
            if op.kind.access == "read":
                waiting.extend(op.variables)
    return sorted(found, key=lambda op: (-op.graph.depth, -op.index))


def _dependent(
    ancestors: Sequence[Operation],
    sources: set[Tensor],
    stopped: set[Tensor],
    producer: _Producer,
) -> set[Operation]:
    """The operations whose inputs depend on a source."""
    dependent: set[Operation] = set()

    def leads(tensor: Tensor) -> bool:
        return tensor in sources or (producer(tensor) in dependent and tensor not in stopped)

    for op in reversed(ancestors):
        reads = op.variables if op.kind.access == "read" else ()
        if any(map(leads, op.inputs)) or any(v.outputs[0] in sources for v in reads):
            dependent.add(op)
    return dependent


def blocking_operations(ys: Any, xs: Any) -> list[Operation]:
    """The operations declared not differentiable on the way from xs to ys, oldest first."""
    targets = [as_tensor(y) for y in _listed(ys)]
    ancestors = _ancestors(targets, _in_graph)
    sources = {_source(x) for x in _listed(xs)}
    dependent = _dependent(ancestors, sources, set(), _in_graph)
    return [op for op in reversed(ancestors) if op in dependent and not op.kind.differentiable]


class _Walk:
    """One walk from ys to xs, and the gradients found so far by tensor."""

    def __init__(self, graph: Graph, aggregation: int, colocate: bool, producer: _Producer) -> None:
        self.graph = graph
        self.producer = producer
        self.aggregation = aggregation
        self.colocate = colocate
        self.home = graph.branch
        scope = graph.get_name_scope()
        self.prefix = f"{scope}/" if scope else ""
        self.parts: dict[Tensor, list[_Gradient]] = {}

    def run(
        self,
        targets: Sequence[Tensor],
        seeds: Sequence[_Gradient],
        sources: Sequence[Tensor],
        stopped: set[Tensor],
    ) -> list[_Gradient | None]:
        ancestors = _ancestors(targets, self.producer)
        wanted = set(sources)
        dependent = _dependent(ancestors, wanted, stopped, self.producer)
        for y, dy in zip(targets, seeds, strict=True):
            self._contribute(y, dy, self._place(y.op.branch))
        found: dict[Tensor, _Gradient | None] = {}
        for op in ancestors:
            dys: list[_Gradient | None] = [self._total(y, y in wanted) for y in op.outputs]
            for i, y in enumerate(op.outputs):
                if y in wanted:
                    found[y] = dys[i]
                if y in stopped:
                    dys[i] = None
            if op in dependent and any(dy is not None for dy in dys):
                self._pass_on(op, dys)
        return [found.get(x) for x in sources]

    def _place(self, branch: Branch | None) -> Branch | None:
        """Where to build the gradients of what was built in `branch`.

        That is the `cond` branch in which `gradients` was called, or one further inside: a
        gradient asked for in a branch is worked out only where that is taken.
        """
        if branch is not None and branch.predicate.graph is not self.graph:
            return self.home
        inside = self.home is not None and (branch is None or branch in self.home.chain())
        return self.home if inside else branch

    def _pass_on(self, op: Operation, dys: list[_Gradient | None]) -> None:
        """Give the gradients of an operation's outputs to its inputs."""
        if op.kind.access == "read":
            (dy,) = dys
            assert dy is not None
            self._contribute(op.variables[0].outputs[0], dy, self._place(op.branch))
            return
        if isinstance(op, _Crossing):
            (dy,) = dys
            assert dy is not None
            self._contribute(op.inputs[0], dy, self._place(op.branch))
            return
        if not op.kind.differentiable:
            return
        if op.kind.gradient is None:
            raise LookupError(
                f"{op.describe()} has no gradient rule; use stop_gradient, or declare one"
            )
        here = op.graph is self.graph
        if op.kind.merges and not here:
            raise LookupError(
                f"{op.describe()} is a cond outside of the loop, and a gradient through it is "
                "asked for inside; use stop_gradient, or build the cond inside"
            )
        colocated = self.colocate and here
        colocation = self.graph.colocate_with(op) if colocated else contextlib.nullcontext()
        with (
            self.graph.name_scope(None),
            self.graph.name_scope(f"{self.prefix}{op.name}_grad"),
            self.graph.in_branch(self._place(op.branch)),
            colocation,
        ):
            full = [
                zeros_like(y) if dy is None else dy for y, dy in zip(op.outputs, dys, strict=True)
            ]
            # Only identity-like rules can take rows as they are; they say so by their type.
            if op.kind.name != "Identity":
                full = [densify(dy) if isinstance(dy, IndexedSlices) else dy for dy in full]
            result = op.kind.gradient(op, *full)
            dxs = list(result) if isinstance(result, tuple | list) else [result]
            if len(dxs) != len(op.inputs):
                raise InternalError(
                    f"the gradient rule of {op.type} gave {len(dxs)} gradients for "
                    f"{len(op.inputs)} inputs",
                    op,
                )
            for x, dx in zip(op.inputs, dxs, strict=True):
                if dx is not None:
                    self._contribute(x, self._fitted(op, x, dx), self._place(op.branch))

    def _fitted(self, op: Operation, x: Tensor, dx: _Gradient) -> _Gradient:
        """The gradient in its input's shape; a rule that breaks its dtype is an error."""
        if dx.dtype is not x.dtype:
            raise InternalError(
                f"the gradient rule of {op.type} gave {dx.dtype.name} for the {x.dtype.name} input "
                f"{x.name!r}",
                op,
            )
        if isinstance(dx, IndexedSlices):
            return dx
        if op.kind.broadcasts and not (x.shape.is_fully_defined() and dx.shape == x.shape):
            dx = sum_to_like(dx, x)
        if not dx.shape.is_compatible_with(x.sizes):
            raise InternalError(
                f"the gradient rule of {op.type} gave shape {dx.shape} for the input {x!r}", op
            )
        return dx

    def _contribute(self, x: Tensor, dx: _Gradient, inside: Branch | None) -> None:
        """Add to x's gradient what was found inside a branch."""
        place = self._place(x.op.branch)
        outside = set(place.chain()) if place is not None else set()
        while inside is not None and inside not in outside:
            dx = self._led_out(x, dx, inside)
            inside = inside.outer
        self.parts.setdefault(x, []).append(dx)

    def _led_out(self, x: Tensor, dx: _Gradient, side: Branch) -> Tensor:
        """A gradient from inside a `cond` branch, zero when the other branch is taken."""
        with self.graph.in_branch(side):
            dense = densify(dx) if isinstance(dx, IndexedSlices) else dx
        with self.graph.in_branch(Branch(side.predicate, not side.taken, side.outer)):
            zero = zeros_like(x)
        pair = (dense, zero) if side.taken else (zero, dense)
        with self.graph.in_branch(side.outer):
            return merge(side.predicate, *pair)

    def _total(self, y: Tensor, keep: bool) -> _Gradient | None:
        """The sum of what was contributed to y."""
        parts = self.parts.get(y) if keep else self.parts.pop(y, None)
        if not parts:
            return None
        if len(parts) == 1:
            return parts[0]
        with self.graph.in_branch(self._place(y.op.branch)):
            return self._sum(parts)

    def _sum(self, parts: Sequence[_Gradient]) -> _Gradient:
        rows = [part for part in parts if isinstance(part, IndexedSlices)]
        if len(rows) == len(parts):
            # Row numbers may be int32 and int64 in different uses.
            indices = [slices.indices for slices in rows]
            if len({index.dtype for index in indices}) > 1:
                return self._sum([densify(slices) for slices in rows])
            return IndexedSlices(
                concat([slices.values for slices in rows], 0),
                concat(indices, 0),
                rows[0].dense_shape,
            )
        dense = [densify(part) if isinstance(part, IndexedSlices) else part for part in parts]
        if self.aggregation == AggregationMethod.EXPERIMENTAL_TREE:
            while len(dense) > 1:
                dense = [
                    add(*dense[i : i + 2]) if len(dense[i : i + 2]) == 2 else dense[i]
                    for i in range(0, len(dense), 2)
                ]
            return dense[0]
        return add_n(dense)
