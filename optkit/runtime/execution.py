"""One run of a plan: the values of its tensors, and the writes that wait to become state."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from optkit.backend import Backend
from optkit.backend.arrays import to_host
from optkit.errors import (
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    OpError,
    ResourceExhaustedError,
)
from optkit.graph import Graph, GraphKeys, Operation, Tensor
from optkit.ops.random import Stream
from optkit.runtime.kernels import as_op_error, guarded, of_text, stored
from optkit.runtime.plan import Plan, Step
from optkit.runtime.trace import traced

__all__ = ["Run", "handed_out", "new_values", "stream_of", "uninitialized"]


class _Skipped:
    """The value of an operation in a `cond` branch that was not taken."""


_SKIPPED = _Skipped()
_NO = np.empty(0)
"""The value of an operation that was fetched."""


def uninitialized(op: Operation) -> FailedPreconditionError:
    """The error for a variable that is needed and holds no value."""
    return FailedPreconditionError(
        f"variable {op.name!r} is not initialised; run global_variables_initializer() (or "
        "variables_initializer([...]) for variables made after the first call) before it is used",
        op,
    )


def handed_out(array: Any) -> Any:
    """A host array as the caller's own copy; a NumPy scalar for shape ()."""
    array = np.asarray(array)
    return array[()] if array.ndim == 0 else array.copy()


def new_values(
    xp: Any,
    op: Operation,
    state: Mapping[Operation, Any],
    written: MutableMapping[Operation, Any],
    fed: Sequence[Any],
    *inputs: Any,
) -> list[Any]:
    """The new values of a write's variables, put into `written`.

    Raises:
        FailedPreconditionError: a variable that the write changes holds no value.
        InternalError: the kernel gave another dtype or shape.
    """
    currents = []
    if op.kind.reads_target:
        for variable in op.variables:
            current = written.get(variable, state.get(variable))
            if current is None:
                raise uninitialized(variable)
            currents.append(current)
    assert op.kind.kernel is not None
    # An equation may be the user's: it must not change what others read too.
    news = op.kind.kernel(xp, *currents, *map(guarded, inputs), **op.attrs)
    # On the host a feed is a view, which is copied anyway.
    borrowed = () if xp is np else {id(array) for array in fed}
    owned = [
        stored(xp, op, variable, new, borrowed)
        for variable, new in zip(op.variables, news, strict=True)
    ]
    written.update(zip(op.variables, owned, strict=True))
    return owned


def stream_of(
    op: Operation,
    state: Mapping[Operation, Any],
    written: MutableMapping[Operation, Any],
    entropy: int,
) -> Stream:
    """The next random numbers of an operation; `written` learns that they are taken."""
    count = written.get(op, state.get(op, 0))
    written[op] = count + 1
    seeds = op.attrs["seed"]
    return Stream(seeds if seeds[0] is not None else (entropy, op.index), count)


class Run:
    """One run.

    Args:
        graph: the graph that runs.
        backend: where the arrays are.
        plan: what to do.
        state: the session's state, which is only read: variable operation -> its array, random
            operation -> how often it has run.
        entropy: seeds the random operations that have no seed.
        fed: the arrays for `plan.fed`.

    Attributes:
        written: what the run adds to the state once it has succeeded.
    """

    def __init__(
        self,
        graph: Graph,
        backend: Backend,
        plan: Plan,
        state: Mapping[Operation, Any],
        entropy: int,
        fed: Sequence[Any],
    ) -> None:
        self.graph = graph
        self.backend = backend
        self.plan = plan
        self.state = state
        self.entropy = entropy
        self.values: list[Any] = [_SKIPPED] * plan.size
        # On a device: what is known on the host too, and need not be asked for.
        self.hosts: dict[int, Any] = {}
        for tensor, place, array in zip(plan.key[1], plan.fed, fed, strict=True):
            try:
                self.values[place] = self._placed(place, array)
            except MemoryError as error:
                raise as_op_error(error, tensor.op) from error
        self.fed = fed
        self.written: dict[Operation, Any] = {}
        # The value of each variable right after each write, for the reads that see it.
        self.versions: dict[tuple[Operation, Operation], Any] = {}

    def compute(self) -> list[Any]:
        """The values of the plan's fetches, the caller's own.

        Raises:
            OpError: an operation failed.
        """
        with np.errstate(all="ignore"):
            for step in self.plan.steps:
                if not step.branch or self._reached(step):
                    self._perform(step)
        values = [
            self._result(place, item) if isinstance(item, Tensor) and place is not None else _NO
            for place, item in zip(self.plan.fetched, self.plan.fetches, strict=True)
        ]
        try:
            return [None if array is _NO else handed_out(array) for array in to_host(values)]
        except MemoryError as error:
            raise ResourceExhaustedError(f"memory ran out: {error}") from error

    def _reached(self, step: Step) -> bool:
        """Whether all `cond` branches around the operation are taken."""
        for place, taken in step.branch:
            predicate = self.values[place]
            if predicate is _SKIPPED or bool(predicate) is not taken:
                return False
        return True

    def _perform(self, step: Step) -> None:
        try:
            results = self._results(step)
        except Exception as error:
            told = isinstance(error, OpError) and error.op is not None
            failure = as_op_error(error, step.op)
            if isinstance(failure, OpError) and not told:
                self._explain(failure, step)
            if failure is error:
                raise
            raise failure from error
        for place, value in zip(step.outputs, results, strict=True):
            if place is not None:
                self.values[place] = self._placed(place, value)

    def _placed(self, place: int, value: Any) -> Any:
        """A value where kernels take it; on a device, the host's copy is remembered."""
        if self.backend.xp is np or not isinstance(value, np.ndarray):
            return value
        self.hosts[place] = value
        return self.backend.asarray(value)

    def _results(self, step: Step) -> Sequence[Any]:
        op = step.op
        kind = op.kind
        if kind.access == "variable":
            return (self._stored(op),)
        if kind.access == "read":
            return (self._seen(step),)
        if kind.access == "initialized":
            return (self.backend.asarray(np.asarray(op.variables[0] in self.state)),)
        inputs = [self.values[place] for place in step.inputs]
        if kind.merges:
            taken = 1 if bool(inputs[0]) else 2
            return (inputs[taken],)
        if kind.kernel is None:
            raise InvalidArgumentError(
                f"placeholder {op.name!r} was not fed; pass a value of dtype "
                f"{op.outputs[0].dtype.name} and shape {op.outputs[0].shape} in feed_dict"
            )
        for i in kind.host:
            known = self.hosts.get(step.inputs[i])
            inputs[i] = self.backend.to_numpy(inputs[i]) if known is None else known
        for i in kind.either:
            inputs[i] = self.hosts.get(step.inputs[i], inputs[i])
        xp = self.backend.xp
        if xp is not np and of_text(kind, op.inputs):
            xp, inputs = np, [self.backend.to_numpy(array) for array in inputs]
        if kind.access == "write":
            return self._write(xp, op, inputs)
        extra = (
            {"stream": stream_of(op, self.state, self.written, self.entropy)} if kind.random else {}
        )
        result = kind.kernel(xp, *inputs, **extra, **op.attrs)
        if len(op.outputs) == 1:
            return (result,)
        results = () if result is None else tuple(result)
        if len(results) != len(op.outputs):
            raise InternalError(
                f"the kernel gave {len(results)} values for {len(op.outputs)} outputs"
            )
        return results

    def _stored(self, variable: Operation) -> Any:
        """The variable at the start of the run, or what is fed in its place."""
        place = self.plan.fed_variables.get(variable)
        if place is not None:
            return self.values[place]
        held = self.state.get(variable)
        if held is None:
            raise uninitialized(variable)
        return held

    def _seen(self, step: Step) -> Any:
        """The newest write among the read's ancestors, else the value at the start of the run."""
        (variable,) = step.op.variables
        if variable not in self.plan.fed_variables:
            for write in step.sources:
                found = self.versions.get((variable, write), _SKIPPED)
                if found is not _SKIPPED:  # else the write is in a branch that was not taken
                    return found
        return self._stored(variable)

    def _write(self, xp: Any, op: Operation, inputs: list[Any]) -> Sequence[Any]:
        owned = new_values(xp, op, self.state, self.written, self.fed, *inputs)
        self.versions |= {(v, op): new for v, new in zip(op.variables, owned, strict=True)}
        return owned[: len(op.outputs)]

    def _result(self, place: int, element: Tensor) -> Any:
        value = self.values[place]
        if value is _SKIPPED:
            raise InvalidArgumentError(
                f"{element.name!r} was built inside a cond branch that was not taken, so it has no "
                "value; fetch what cond returns",
                element.op,
            )
        return self.hosts.get(place, value)

    def _explain(self, error: OpError, step: Step) -> None:
        """Tell where a non-finite value came from, and at which step."""
        if step.op.kind.name != "CheckNumerics":
            return
        (checked,) = step.op.inputs
        origin = traced(self.plan, self.values, self.backend).origin([checked.name])
        if origin is not None:
            where = f"the gradient of {origin.forward}" if origin.forward else origin.told
            error.message += f"; the first value that is not finite came from {where}"
        for variable in self.graph.get_collection(GraphKeys.GLOBAL_STEP):
            held = self.state.get(variable.op)
            if held is not None:
                error.message += f"; {variable.op.name} = {int(held)}"
        error.args = (error.message,)
