"""A check inside a train op's run that loss and gradients are finite, before anything is written.

A run that raises changes nothing, so a step with a NaN leaves no trace. The check is one norm of
all gradients, that of the clipping where there is one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optkit.backend.cuda.checks import deferred_finite
from optkit.dtypes import DType
from optkit.errors import InvalidArgumentError
from optkit.graph import Branch, Graph, Kind, Operation, Tensor
from optkit.graph.ledger import Ledger
from optkit.ops.control import merge
from optkit.ops.core import REGISTRY, Array, ArrayModule, constant
from optkit.runtime.plan import Plan
from optkit.shapes import Shape
from optkit.train.objectives import objectives_of

__all__ = ["SELF_GUARDED", "Anatomy", "Guard", "anatomy", "guard"]

SELF_GUARDED = "self-guarded predicates"
"""Key of graph.stores: operations that tell whether gradients are finite and are acted on."""


def _first(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Sequence[tuple[DType, Shape]]:
    return [(inputs[0].dtype, inputs[0].sizes)]


def _check_finite(xp: ArrayModule, *values: Array) -> Array:
    """The first value, if all are finite."""
    for value in values:
        if xp is not np and deferred_finite(value):
            continue
        fine = math.isfinite(value) if value.ndim == 0 else bool(xp.isfinite(value).all())
        if not fine:
            raise InvalidArgumentError("LossTensor is inf or nan, or a gradient is")
    return values[0]


_CHECK = Kind("CheckFinite", _check_finite, infer=_first, differentiable=False)


@dataclass(frozen=True)
class Anatomy:
    """What a train op is made of.

    Attributes:
        loss: the tensor that its value is, or that `minimize` was called with, as it is before the
            update; None where there is none, several, or one in a branch of a `cond`.
        losses: that loss, and all others that the train op takes a step for.
        gradients: the name of a variable -> the tensor that its update takes.
        norm: the norm of all gradients, before clipping, if the train op computes one.
        rate: the learning rate of the update, where one can be told.
        writes: the operations that write variables, by the variable's operation.
    """

    loss: Tensor | None
    losses: list[Tensor]
    gradients: dict[str, Tensor]
    norm: Tensor | None
    rate: Tensor | None
    writes: dict[Operation, list[Operation]]

    def counts_by_one(self, counter: Operation) -> bool:
        """Whether each run adds 1 to a counter, whatever happens."""
        writes = self.writes.get(counter, [])
        if len(writes) != 1 or writes[0].branch is not None or writes[0].kind.name != "AssignAdd":
            return False
        (delta,) = writes[0].inputs
        return delta.op.kind.name == "Const" and bool(delta.op.attrs["value"] == 1)


@dataclass(frozen=True)
class Guard:
    """The check of a train op.

    Attributes:
        tensor: raises when it is run and something is not finite; else it is the loss, or a norm
            where there is no loss.
        norm: the norm of all gradients, where it is one number.
    """

    tensor: Tensor
    norm: Tensor | None


def anatomy(train_op: Tensor | Operation, loss: Tensor | None = None) -> Anatomy:
    """Take a train op apart.

    Args:
        train_op: what `optimize_loss`, `create_train_op` or `minimize` gave.
        loss: the loss, where the train op is an operation that `minimize` did not make.

    Raises:
        ValueError: the loss given has no value in every run.
    """
    if loss is not None and loss.op.branch is not None:
        raise ValueError(
            f"loss: {loss.name!r} was built inside a cond branch, so it has a value in some runs "
            "only; pass what cond returns"
        )
    plan = Plan(train_op.graph, [train_op], [])
    ops = [step.op for step in plan.steps]
    if loss is None and isinstance(train_op, Tensor) and train_op.dtype.is_floating:
        loss = _before_update(train_op)
    losses = list(dict.fromkeys([*([] if loss is None else [loss]), *objectives_of(ops)]))
    if len(losses) == 1 and losses[0].op.branch is None:
        (loss,) = losses
    trainable = {v.op for v in train_op.graph.get_collection("trainable_variables")}
    gradients: dict[str, Tensor] = {}
    rates: list[Tensor] = []
    for op in ops:
        if op.kind.access != "write" or not op.variables or _handled(op):
            continue
        variable = op.variables[0]
        if op.kind.name == "Update":
            gradients[variable.name] = op.inputs[0]
            hyper = dict(zip(op.attrs["hyper"][::-1], op.inputs[::-1], strict=False))
            found = [hyper[name] for name in ("learning_rate", "lr") if name in hyper]
            rates += [rate for rate in found if rate.op.branch is None]
        elif variable in trainable:
            floats = [x for x in op.inputs if x.dtype.is_floating and x.sizes != ()]
            if floats:
                gradients[variable.name] = floats[0]
    rate = rates[0] if len(set(rates)) == 1 else _summarised(train_op.graph, ops)
    writes: dict[Operation, list[Operation]] = {}
    for op in ops:
        if op.kind.access == "write":
            for written in op.variables:
                writes.setdefault(written, []).append(op)
    return Anatomy(loss, losses, gradients, _existing_norm(ops, gradients), rate, writes)


def _handled(op: Operation) -> bool:
    """Whether an operation runs only when gradients are finite, as with loss scaling."""
    known = op.graph.stores.get(SELF_GUARDED, {})
    sides = () if op.branch is None else op.branch.chain()
    return any(side.predicate.op in known for side in sides)


def _before_update(train_op: Tensor) -> Tensor:
    """The loss behind the identities and checks that make it a train op."""
    tensor = train_op
    while tensor.op.kind.name in ("Identity", "CheckNumerics"):
        (tensor,) = tensor.op.inputs
    return tensor


def _summarised(graph: Graph, ops: Sequence[Operation]) -> Tensor | None:
    """The learning rate that a summary of the graph shows, if the train op computes it."""
    known = set(ops)
    for op in graph.get_operations():
        if op.kind.name == "ScalarSummary" and op.attrs["tag"].endswith("learning_rate"):
            (rate,) = op.inputs
            if rate.op in known:
                return rate
    return None


def _raw(gradient: Tensor) -> list[Tensor]:
    """A gradient, and what it was before factors that all its elements share."""
    chain = [gradient]
    while chain[-1].op.kind.name in ("Mul", "Cast", "Identity"):
        x, *factor = chain[-1].op.inputs
        if factor and factor[0].sizes != ():
            break
        chain.append(x)
    return chain


def _existing_norm(ops: Sequence[Operation], gradients: Mapping[str, Tensor]) -> Tensor | None:
    """The norm of all gradients that the train op computes already, to clip them by."""
    if not gradients:
        return None
    chains = [set(_raw(gradient)) for gradient in gradients.values()]
    for op in ops:
        usable = op.kind.name == "GlobalNorm" and op.branch is None
        if usable and all(chain.intersection(op.inputs) for chain in chains):
            return op.outputs[0]
    return None


def guard(train_op: Tensor | Operation, parts: Anatomy) -> Guard | None:
    """The check of a train op; None where there is nothing to check.

    Raises:
        RuntimeError: the graph is finalized.
    """
    # Made once a train op, so that a second `fit` adds nothing to the graph.
    made = train_op.graph.stores.setdefault("guards", Ledger())
    if train_op not in made:
        with train_op.graph.as_default(), train_op.graph.outside_control_flow():
            made[train_op] = _made(train_op.graph, parts)
    found: Guard | None = made[train_op]
    return found


def _made(graph: Graph, parts: Anatomy) -> Guard | None:
    with graph.all_or_nothing(), graph.name_scope("finite"):
        norms = [parts.norm] if parts.norm is not None else _norms(graph, parts.gradients)
        checked = [*(_outside(graph, loss, loss.op.branch) for loss in parts.losses), *norms]
        if not checked:
            return None
        tensor = graph.create_operation(_CHECK, checked, name="check").outputs[0]
        return Guard(tensor, norms[0] if len(norms) == 1 else None)


def _norms(graph: Graph, gradients: Mapping[str, Tensor]) -> list[Tensor]:
    """The norm of the gradients of each dtype, and of each branch of a `cond` that has some."""
    usable = [g for g in gradients.values() if g.dtype.is_floating]
    raws = [_raw(gradient) for gradient in usable]
    # Where one factor scales all of them, the update absorbs it as long as nobody else reads the
    # product.
    if all(len(raw) > 1 for raw in raws):
        usable = [raw[1] if raw[0].op.kind.name == "Mul" else raw[0] for raw in raws]
    groups: dict[Any, list[Tensor]] = {}
    for gradient in usable:
        groups.setdefault((gradient.op.branch, gradient.dtype), []).append(gradient)
    found = []
    for (branch, _), same in groups.items():
        with graph.in_branch(branch):
            norm = REGISTRY["GlobalNorm"](*same, name="gradient_norm")
        found.append(_outside(graph, norm, branch))
    return found


def _outside(graph: Graph, value: Tensor, branch: Branch | None) -> Tensor:
    """A value from inside a branch, as one that is 0 in runs that do not take the branch."""
    while branch is not None:
        with graph.in_branch(Branch(branch.predicate, not branch.taken, branch.outer)):
            other = constant(0, value.dtype)
        sides = (value, other) if branch.taken else (other, value)
        predicate, branch = branch.predicate, branch.outer
        with graph.in_branch(branch):
            value = merge(predicate, *sides)
    return value
