"""`GradientTape`: gradients of what is computed inside a `with`, in eager mode and in graphs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from optkit.dtypes import DType
from optkit.gradients import UnconnectedGradients, backward, check_unconnected, gradients
from optkit.graph import Graph, Kind, Operation, Tensor, get_default_graph, is_symbolic
from optkit.nesting import flatten, pack
from optkit.ops.array import zeros_like
from optkit.ops.core import constant
from optkit.runtime.eager import EagerGraph
from optkit.variables import Variable, trainable_variables, variable_of

__all__ = ["GradientTape"]


class _Record(Operation):
    """An operation as a tape remembers it: with the tensors it took and gave."""

    __slots__ = ()

    def __init__(self, op: Operation, inputs: tuple[Tensor, ...]) -> None:
        self.graph: Graph = op.graph
        self.kind: Kind = op.kind
        self.name = op.name
        self.inputs = inputs
        self.control_inputs = ()
        self.outputs = op.outputs
        self.variables = op.variables
        self.attrs: Mapping[str, Any] = op.attrs
        self.branch = None
        self.device = ""
        self._colocation = ()
        self.index = op.index
        self.site = None


class GradientTape:
    """Remembers what is computed inside a `with`, to differentiate it afterwards.

        with optkit.GradientTape() as tape:
            loss = optkit.reduce_mean((optkit.matmul(x, w) - y) ** 2)
        dw, db = tape.gradient(loss, [w, b])

    Trainable variables that are read are watched by themselves, other tensors with `watch`. What
    the tape remembers is freed with the tape, or at the first `gradient` unless it is persistent.
    In a graph it builds the gradients, as `optkit.gradients`.

    Args:
        persistent: whether `gradient` may be called more than once.
        watch_accessed_variables: whether trainable variables are watched by themselves.
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self._persistent = persistent
        self._watch_variables = watch_accessed_variables
        self._graph: Graph | None = None
        self._recording = False
        self._used = False
        self._records: dict[Tensor, Operation] = {}
        # Tensors whose descendants are remembered; a variable by its own tensor.
        self._watched: dict[Tensor, None] = {}
        self._first = 0

    # -- recording --------------------------------------------------------------------------

    def __enter__(self) -> GradientTape:
        if self._recording:
            raise ValueError("the tape is recording already")
        graph = get_default_graph()
        if self._graph is not graph:
            self._graph = graph
            self._first = graph.version
        self._resume()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._recording:
            self._pause()

    def _resume(self) -> None:
        self._recording = True
        if isinstance(self._graph, EagerGraph):
            self._graph.tapes.append(self)

    def _pause(self) -> None:
        self._recording = False
        if isinstance(self._graph, EagerGraph):
            self._graph.tapes.remove(self)

    def _record(self, op: Operation, inputs: tuple[Tensor, ...]) -> None:
        """Remember an operation that took something watched; called by the eager graph."""
        if op.kind.access == "read":
            (variable,) = op.variables
            handle = variable.outputs[0]
            if handle not in self._watched:
                if not (self._watch_variables and variable.attrs["trainable"]):
                    return
                self._watched[handle] = None
        elif not any(x in self._watched or x in self._records for x in inputs):
            return
        record = _Record(op, inputs)
        for output in op.outputs:
            self._records[output] = record

    def watch(self, tensor: Any) -> None:
        """Remember what is computed from a tensor, a Variable, or several in a nesting.

        Raises:
            ValueError: the tape is not recording.
            TypeError: it is no floating tensor.
            RuntimeError: it is of the other mode.
        """
        if not self._recording:
            raise ValueError("watch: the tape is not recording; call it inside the `with`")
        for item in flatten(tensor):
            if not is_symbolic(item) or not _dtype(item).is_floating:
                raise TypeError(f"watch: expected a floating Tensor or Variable, got {item!r}")
            self._check_mode(item, "watch")
            self._watched[item._as_graph_element()] = None

    def _check_mode(self, item: Any, what: str) -> None:
        """Refuse a tensor of the other mode than the tape's."""
        assert self._graph is not None
        if is_symbolic(item) and item.graph.eager is not self._graph.eager:
            here, there = (
                ("eager mode", "a graph") if self._graph.eager else ("a graph", "eager mode")
            )
            raise RuntimeError(
                f"{what}: the tape was entered in {here}, and {item!r} was made in {there}"
            )

    @contextlib.contextmanager
    def stop_recording(self) -> Iterator[None]:
        """Remember nothing of what is computed inside a `with`.

        Raises:
            ValueError: the tape is not recording.
        """
        if not self._recording:
            raise ValueError("stop_recording: the tape is not recording")
        self._pause()
        try:
            yield
        finally:
            self._resume()

    def reset(self) -> None:
        """Forget everything remembered so far."""
        self._records.clear()
        self._watched.clear()
        self._used = False

    def watched_variables(self) -> list[Variable]:
        """The variables that are watched, in the order in which they were first read."""
        if isinstance(self._graph, EagerGraph):
            found = [variable_of(tensor) for tensor in self._watched]
            return [variable for variable in found if variable is not None]
        return self._variables_read()

    def _variables_read(self) -> list[Variable]:
        """In a graph: the trainable variables that operations built inside take."""
        if self._graph is None:
            return []
        taken: set[Operation] = set()
        for op in self._graph.get_operations()[self._first :]:
            taken.update(tensor.op for tensor in op.inputs)
            taken.update(op.variables)
        return [v for v in trainable_variables() if v.op in taken]

    # -- differentiating --------------------------------------------------------------------

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: str = UnconnectedGradients.NONE,
    ) -> Any:
        """The gradient of `target` for each of `sources`, in the nesting of `sources`.

        Args:
            target: a floating tensor or a list of them, whose sum is differentiated.
            sources: Variables and watched tensors, in any nesting.
            output_gradients: weights of the target's elements.
            unconnected_gradients: "none" or "zero", for a source the target does not depend on.

        Raises:
            RuntimeError: the tape is not persistent and was used before, or never recorded; a
                tensor is of the other mode.
            TypeError, ValueError: as `optkit.gradients`.
        """
        if self._graph is None:
            raise RuntimeError("gradient: the tape has recorded nothing; enter it with `with`")
        if self._used and not self._persistent:
            raise RuntimeError(
                "gradient: the tape has been used; make it with persistent=True to use it again"
            )
        check_unconnected(unconnected_gradients)
        leaves = flatten(sources)
        for item in (*flatten(target), *leaves):
            self._check_mode(item, "gradient")
        if isinstance(self._graph, EagerGraph):
            if self._recording and not self._persistent:
                self._pause()
            with self._graph.as_default():
                found = backward(
                    target if isinstance(target, list | tuple) else [target],
                    [leaf if self._follows(leaf) else constant(0.0) for leaf in leaves],
                    output_gradients,
                    producer=self._producer(),
                )
                if unconnected_gradients == UnconnectedGradients.ZERO:
                    found = [
                        zeros_like(x) if dx is None else dx
                        for x, dx in zip(leaves, found, strict=True)
                    ]
        else:
            found = gradients(
                target, leaves, output_gradients, unconnected_gradients=unconnected_gradients
            )
        self._used = True
        if not self._persistent:
            self._records.clear()
        return pack(sources, found)

    def _follows(self, source: Any) -> bool:
        """Whether the tape remembers what became of a source."""
        element = source._as_graph_element() if is_symbolic(source) else source
        return not is_symbolic(source) or element in self._watched or element in self._records

    def _producer(self) -> Any:
        """From a tensor to the operation that the tape remembers, else to one without inputs."""
        made: dict[Tensor, Operation] = dict(self._records)

        def producer(tensor: Tensor) -> Operation:
            if tensor not in made:
                made[tensor] = tensor.op
            return made[tensor]

        return producer


def _dtype(value: Any) -> DType:
    return value.dtype  # type: ignore[no-any-return]
