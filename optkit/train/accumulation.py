"""Gradient accumulation: several runs a step, with the mean of their gradients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from optkit.dtypes import bool_, float32, int64
from optkit.graph import (
    Graph,
    GraphKeys,
    IndexedSlices,
    Operation,
    Tensor,
    get_default_graph,
    is_symbolic,
)
from optkit.graph.ledger import Ledger
from optkit.initializers import Zeros
from optkit.ops.array import ones_like, zeros_like
from optkit.ops.control import cond, group, no_op
from optkit.ops.core import as_tensor
from optkit.ops.indexing import gather, where
from optkit.ops.logic import greater_equal, logical_and, logical_not, logical_or
from optkit.ops.math import cast
from optkit.train.averaging import joined_rows, over, widened
from optkit.train.checks import is_number
from optkit.train.optimizer import Optimizer
from optkit.train.slots import create_slot
from optkit.train.wrapper import OptimizerWrapper
from optkit.variables import Variable

__all__ = ["GradientAccumulationOptimizer"]

_STORE = "gradient accumulation"
"""Key of graph.stores: the accumulators by optimizer and variables."""


@dataclass(frozen=True)
class _Accumulators:
    """What is remembered between runs: how many there were, and the sums.

    Attributes:
        count: the runs since the last step.
        sums: for each variable the sum of its gradients.
        named: for each variable with sparse gradients which rows they named; else None.
    """

    count: Variable
    sums: tuple[Variable, ...]
    named: tuple[Variable | None, ...]


@dataclass(frozen=True)
class _Turn:
    """The gradients of one run added to those before it; nothing is written yet.

    Attributes:
        held: the accumulators.
        count: the runs including this one.
        applies: whether this run takes the step.
        usable: whether the optimizer inside can use this run's gradients; None for always.
        totals: the sums including this run's gradients: tensors or rows.
        means: the mean gradients.
    """

    held: _Accumulators
    count: Tensor
    applies: Tensor
    usable: Tensor | None
    totals: tuple[Any, ...]
    means: tuple[Any, ...]


class GradientAccumulationOptimizer(OptimizerWrapper):
    """One step every so many runs, with the mean gradient of those runs.

        optimizer = GradientAccumulationOptimizer(tf.train.AdamOptimizer(), steps=4)
        train_op = optimize_loss(loss, step, None, optimizer, clip_gradients=1.0)

    Four runs of train_op, on a quarter of a batch each, move the variables once, as one run on
    the whole batch would (with a mean loss, and up to rounding). The gradients that
    `compute_gradients` gives are the mean of those so far, so clipping, noise and norms are those
    of what will be applied; `optimize_loss` and `create_train_op` write summaries in the runs
    that take a step only. `global_step` counts steps, so schedules do too; everything else that
    train_op runs (update_ops) runs every time.

    Around a `LossScaleOptimizer`, a run whose gradients are not finite is left out: its step waits
    for one run more. Around a `MovingAverageOptimizer` averages follow steps.

    Rows stay rows: a sparse gradient's sum is kept with the rows it has named, and the step gets
    those. Sums of half precision are float32. The sums and the count are variables, saved in
    checkpoints, and a run that fails changes none of them.

    Args:
        optimizer: the optimizer that takes the steps.
        steps: the number of runs a step: an integer of 1 or more, or an integer scalar tensor or
            Variable, read in every run. With fewer than the runs so far the step is taken now.
        name: the name of the operation and the last part of the sums' names.

    Raises:
        TypeError: `optimizer` is no Optimizer, or steps no integer.
        ValueError: steps is below 1.
    """

    def __init__(
        self, optimizer: Optimizer, steps: Any, name: str = "GradientAccumulation"
    ) -> None:
        super().__init__(optimizer, name)
        if is_symbolic(steps):
            if not steps.dtype.is_integer:
                raise TypeError(f"{name}: steps: expected an integer, got {steps!r}")
        elif not is_number(steps) or steps != int(steps):
            raise TypeError(f"{name}: steps: expected an integer, got {steps!r}")
        elif steps < 1:
            raise ValueError(f"{name}: steps: expected 1 or more, got {steps!r}")
        self._steps = steps if is_symbolic(steps) else int(steps)
        self._turns: dict[Graph, list[_Turn]] = {}

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """The mean of the gradients since the last step, this run's among them.

        Nothing is written before `apply_gradients` runs.
        """
        graph = get_default_graph()
        with graph.all_or_nothing():
            pairs = self._optimizer.compute_gradients(*args, **kwargs)
            return self._accumulated(pairs, self._optimizer.applies_when())

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
    ) -> Any:
        """Keep the sums, or take the step and start anew.

        Gradients that do not come from this optimizer's `compute_gradients` are accumulated here.
        """
        graph = get_default_graph()
        with graph.all_or_nothing(), self._slots_or_nothing():
            pairs = self._checked_pairs(grads_and_vars)
            turn = self._turn_of(graph, pairs)
            if turn is None:
                pairs = self._accumulated(pairs)
                turn = self._turn_of(graph, pairs)
            assert turn is not None
            # Inside the branch they would be named after it.
            with graph.outside_control_flow():
                self._create_slots([v for _, v in pairs])

            def take() -> Any:
                done = self._optimizer.apply_gradients(
                    pairs, global_step, name, skip_gradients_aggregation
                )
                if turn.usable is None:
                    anew = _started_anew(turn)
                else:
                    anew = [cond(turn.usable, lambda: group(*_started_anew(turn)), no_op)]
                return group(*([] if done is None else [done]), *anew)

            def keep() -> Any:
                return group(*_kept(turn))

            listed = graph.get_collection_ref(GraphKeys.TRAIN_OP)
            before = len(listed)
            with graph.name_scope(self._name):
                takes = turn.applies
                if turn.usable is not None:  # the optimizer inside sees to what it cannot use
                    takes = logical_or(takes, logical_not(turn.usable))
                chosen = cond(takes, take, keep, name="turn")
            if graph.eager:
                return None
            del listed[before:]  # what runs in one branch only is no train op
            done: Operation = group(chosen, name=name or self._name)
            graph.add_to_collection(GraphKeys.TRAIN_OP, done)
            return done

    def applies_when(self) -> Tensor | None:
        """Whether the run that takes the gradients computed last takes the step."""
        turns = self._turns.get(get_default_graph())
        return turns[-1].applies if turns else None

    # -- the sums ---------------------------------------------------------------------------

    def _accumulated(
        self, pairs: Sequence[tuple[Any, Any]], usable: Tensor | None = None
    ) -> list[tuple[Any, Any]]:
        """The pairs with mean gradients, which make up a turn that waits to be applied."""
        graph = get_default_graph()
        chosen = [(g, v) for g, v in pairs if g is not None]
        if not chosen:
            return list(pairs)
        held = self._accumulators(graph, chosen)
        with graph.name_scope(self._name):
            count = as_tensor(held.count) + 1
            applies = greater_equal(count, cast(as_tensor(self._steps), int64))
            if usable is not None:
                applies = logical_and(applies, usable)
            totals = tuple(
                _total(g, total, named)
                for (g, _), total, named in zip(chosen, held.sums, held.named, strict=True)
            )
            means = tuple(
                _mean(total, count, v.dtype) for total, (_, v) in zip(totals, chosen, strict=True)
            )
        turn = _Turn(held, count, applies, usable, totals, means)
        if graph.eager:
            self._turns[graph] = [turn]
        else:
            self._turns.setdefault(graph, []).append(turn)
        found = iter(means)
        return [(None if g is None else next(found), v) for g, v in pairs]

    def _accumulators(self, graph: Graph, pairs: Sequence[tuple[Any, Any]]) -> _Accumulators:
        """The accumulators of these variables, made if there are none yet."""
        store: Ledger[Any, _Accumulators] = graph.stores.setdefault(_STORE, Ledger())
        kinds = [isinstance(g, IndexedSlices) for g, _ in pairs]
        key = self, tuple((v.op, sparse) for (_, v), sparse in zip(pairs, kinds, strict=True))
        if key not in store:
            with graph.outside_control_flow():
                sums, named = [], []
                for (_, v), sparse in zip(pairs, kinds, strict=True):
                    dtype = float32 if v.dtype.size == 2 else v.dtype
                    sums.append(create_slot(v, Zeros(), self._name, dtype=dtype))
                    rows = (
                        create_slot(v, Zeros(), f"{self._name}Rows", shape=v.shape[:1], dtype=bool_)
                        if sparse
                        else None
                    )
                    named.append(rows)
                with graph.name_scope(None):
                    count = Variable(0, trainable=False, name=f"{self._name}/count", dtype=int64)
                store[key] = _Accumulators(count, tuple(sums), tuple(named))
        return store[key]

    def _turn_of(self, graph: Graph, pairs: Sequence[tuple[Any, Any]]) -> _Turn | None:
        """Take out the newest turn that these gradients come from."""
        turns = self._turns.get(graph, [])
        if not turns:
            return None
        behind = None if graph.eager else _ancestors([g for g, _ in pairs])
        for i in range(len(turns) - 1, -1, -1):
            if behind is None or any(op in behind for op in map(_made_by, turns[i].means)):
                return turns.pop(i)
        return None

    # -- what passes on to the optimizer inside ---------------------------------------------

    def variables(self) -> list[Variable]:
        """The sums, the counts, and the variables of the optimizer inside, by name."""
        store = get_default_graph().stores.get(_STORE, {})
        own = [
            variable
            for (owner, _), held in store.items()
            if owner is self
            for variable in (held.count, *held.sums, *held.named)
            if variable is not None
        ]
        return sorted([*own, *super().variables()], key=lambda v: v.name)


def _total(gradient: Any, total: Variable, named: Variable | None) -> Any:
    """The sum with one gradient more."""
    if named is None:
        return as_tensor(total) + widened(gradient)
    rows = where(as_tensor(named))[:, 0]
    before = IndexedSlices(gather(as_tensor(total), rows), rows)
    return joined_rows([before, gradient])


def _mean(total: Any, count: Tensor, dtype: Any) -> Any:
    if isinstance(total, IndexedSlices):
        values = cast(over(total.values, count), dtype)
        return IndexedSlices(values, total.indices, total.dense_shape)
    return cast(over(total, count), dtype)


def _kept(turn: _Turn) -> list[Any]:
    """What writes the sums and the count."""
    writes: list[Any] = [turn.held.count.assign(turn.count)]
    for total, variable, named in zip(turn.totals, turn.held.sums, turn.held.named, strict=True):
        if named is None:
            writes.append(variable.assign(total))
            continue
        writes.append(variable.scatter_update(IndexedSlices(total.values, total.indices)))
        writes.append(named.scatter_update(_all(total.indices, True)))
    return writes


def _started_anew(turn: _Turn) -> list[Any]:
    """What sets the sums and the count to zero."""
    writes: list[Any] = [turn.held.count.assign(zeros_like(turn.count))]
    for total, variable, named in zip(turn.totals, turn.held.sums, turn.held.named, strict=True):
        if named is None:
            writes.append(variable.assign(zeros_like(total)))
            continue
        nothing = IndexedSlices(zeros_like(total.values), total.indices)
        writes.append(variable.scatter_update(nothing))
        writes.append(named.scatter_update(_all(total.indices, False)))
    return writes


def _all(rows: Tensor, value: bool) -> IndexedSlices:
    """One truth value for each of these rows."""
    made = ones_like if value else zeros_like
    return IndexedSlices(made(rows, dtype=bool_), rows)


def _made_by(gradient: Any) -> Operation:
    tensor = gradient.values if isinstance(gradient, IndexedSlices) else gradient
    operation: Operation = tensor.op
    return operation


def _ancestors(gradients: Sequence[Any]) -> set[Operation]:
    """The operations that gradients are made of."""
    found: set[Operation] = set()
    waiting = [_made_by(gradient) for gradient in gradients]
    while waiting:
        op = waiting.pop()
        if op not in found:
            found.add(op)
            waiting.extend(tensor.op for tensor in op.inputs)
    return found
