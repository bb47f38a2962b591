"""Sessions: the values of variables, and runs of a graph.

A run is a transaction. Kernels are pure, writes go to an overlay, and the overlay becomes the
session's state in one step once everything that was asked for has been computed and handed out.
So a run that fails, or is interrupted, leaves every variable, slot and random counter as it was.
"""

from __future__ import annotations

import secrets
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from optkit import backend as backends
from optkit.dtypes import string
from optkit.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    OpError,
)
from optkit.graph import (
    Graph,
    GraphKeys,
    IndexedSlices,
    Operation,
    Tensor,
    default_session,
    get_default_graph,
    is_symbolic,
    push_default_session,
    remove_default_session,
)
from optkit.ops.core import as_array
from optkit.ops.random import Stream
from optkit.runtime.config import ConfigProto
from optkit.runtime.kernels import as_op_error, stored
from optkit.runtime.plan import Plan, Step
from optkit.shapes import TensorShape

__all__ = ["IndexedSlicesValue", "InteractiveSession", "Session"]

_PLANS = 128
"""Plans a session keeps; the least recently used goes first."""


class IndexedSlicesValue(NamedTuple):
    """The fetched value of an `IndexedSlices`."""

    values: np.ndarray[Any, Any]
    indices: np.ndarray[Any, Any]
    dense_shape: np.ndarray[Any, Any] | None


class _Skipped:
    """The value of an operation in a `cond` branch that was not taken."""


_SKIPPED = _Skipped()


class Session:
    """Runs a graph and holds the values of its variables.

    Args:
        target: TF's master; only "" (this process) works.
        graph: the graph to run; the default graph if None.
        config: a `ConfigProto`; recorded.
        backend: "auto", "numpy" or "cupy"; the current backend if None.

    Raises:
        ValueError: there is no such backend, or `target` is not "".
        RuntimeError: the backend is not usable.
    """

    def __init__(
        self,
        target: str = "",
        graph: Graph | None = None,
        config: ConfigProto | None = None,
        backend: str | None = None,
    ) -> None:
        if isinstance(target, Graph):
            raise TypeError("target: expected a string, got a Graph; pass it as graph=")
        if target:
            raise ValueError(f"target: optkit runs in this process only, got {target!r}")
        if graph is not None and not isinstance(graph, Graph):
            raise TypeError(f"graph: expected a Graph, got {graph!r}")
        self._graph = graph if graph is not None else get_default_graph()
        self.config = config
        self._backend = backends.resolve(backend)
        # A variable's operation -> its array; a random operation -> how often it has run.
        self._state: dict[Operation, Any] = {}
        self._entropy = secrets.randbits(63)
        self._plans: OrderedDict[Any, Plan] = OrderedDict()
        self._lock = threading.RLock()
        self._closed = False
        self._warned_schedule = False
        self._entered: list[Any] = []

    @property
    def graph(self) -> Graph:
        """The graph the session runs."""
        return self._graph

    @property
    def sess_str(self) -> str:
        """TF's target."""
        return ""

    @property
    def backend(self) -> str:
        """The name of the backend: "numpy" or "cupy"."""
        return self._backend.name

    # -- life -------------------------------------------------------------------------------

    def close(self) -> None:
        """Release the variables' memory; the session cannot run any more."""
        with self._lock:
            self._closed = True
            self._state.clear()
            self._plans.clear()

    def as_default(self) -> Any:
        """Make this the session of `Tensor.eval` and `Operation.run`, inside a `with`."""
        return default_session(self)

    def __enter__(self) -> Session:
        for context in (self._graph.as_default(), self.as_default()):
            context.__enter__()
            self._entered.append(context)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for _ in range(2):
            self._entered.pop().__exit__(None, None, None)
        self.close()

    def list_devices(self) -> list[str]:
        """The device the session runs on."""
        return ["/device:GPU:0" if self._backend.name == "cupy" else "/device:CPU:0"]

    # -- running ----------------------------------------------------------------------------

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> Any:
        """Compute `fetches` and carry out the writes they stand for.

        Args:
            fetches: tensors, operations, variables, IndexedSlices or names of them, in any
                nesting of lists, tuples, named tuples and dicts.
            feed_dict: tensor (or Variable, or name) -> value to use in its place.
            options: a `RunOptions`; recorded by TF, unused here.
            run_metadata: a `RunMetadata`; left empty.

        Returns:
            The same nesting with NumPy arrays and scalars, the caller's own; None for operations.

        Raises:
            RuntimeError: the session is closed.
            TypeError: something cannot be fetched or fed.
            ValueError: an element is of another graph, or a fed value has the wrong shape.
            FailedPreconditionError: a variable that is read holds no value.
            InvalidArgumentError: an operation got a bad value; nothing has changed.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("the session is closed; make a new Session")
            elements: list[Any] = []
            rebuild = self._unpack(fetches, elements)
            feeds = self._feeds(feed_dict or {})
            plan = self._plan(elements, list(feeds))
            results = self._execute(plan, list(feeds.values()))
            return rebuild(results)

    def make_callable(
        self, fetches: Any, feed_list: Sequence[Any] | None = None, accept_options: bool = False
    ) -> Callable[..., Any]:
        """A function of the fed values, in the order of `feed_list`, that runs `fetches`."""
        keys = list(feed_list or ())

        def call(*values: Any) -> Any:
            if len(values) != len(keys):
                raise TypeError(f"expected {len(keys)} values, got {len(values)}")
            return self.run(fetches, dict(zip(keys, values, strict=True)))

        return call

    def value(self, variable: Any) -> Any:
        """What a variable holds now, read from storage without a run.

        Raises:
            TypeError: it is no variable.
            FailedPreconditionError: it holds no value.
        """
        element = self._graph.as_graph_element(variable)
        op = element.op if isinstance(element, Tensor) else element
        if op.kind.access != "variable":
            raise TypeError(f"variable: expected a Variable of the graph, got {variable!r}")
        with self._lock:
            if op not in self._state:
                raise _uninitialized(op)
            return _handed_out(self._backend.to_numpy(self._state[op]))

    # -- fetches and feeds ------------------------------------------------------------------

    def _unpack(self, fetches: Any, elements: list[Any]) -> Callable[[list[Any]], Any]:
        """Append the leaves of `fetches` to `elements`; the result puts their values in place."""
        if isinstance(fetches, list | tuple):
            parts = [self._unpack(item, elements) for item in fetches]
            if hasattr(fetches, "_fields"):
                make: Any = lambda values: type(fetches)(*values)  # noqa: E731
            else:
                make = type(fetches)
            return lambda results: make([part(results) for part in parts])
        if isinstance(fetches, Mapping):
            named = {key: self._unpack(item, elements) for key, item in fetches.items()}
            kind = type(fetches) if isinstance(fetches, dict) else dict
            return lambda results: _mapping(
                kind, {key: part(results) for key, part in named.items()}
            )
        if isinstance(fetches, IndexedSlices):
            parts = [
                self._unpack(item, elements)
                for item in (fetches.values, fetches.indices, fetches.dense_shape)
                if item is not None
            ]
            return lambda results: IndexedSlicesValue(
                *([part(results) for part in parts] + [None])[:3]
            )
        if fetches is None:
            raise TypeError(self._about_none())
        try:
            element = self._graph.as_graph_element(fetches)
        except TypeError as error:
            raise TypeError(f"fetches: {error}") from None
        except KeyError as error:
            raise ValueError(f"fetches: {error.args[0]}") from None
        except ValueError as error:
            raise ValueError(f"fetches: {error}") from None
        place = len(elements)
        elements.append(element)
        return lambda results: results[place]

    def _about_none(self) -> str:
        names = self._graph.missing_gradients
        text = "fetches: None cannot be fetched"
        if names:
            text += f"; compute_gradients found no gradient for {', '.join(names)}"
        return text

    def _feeds(self, feed_dict: Mapping[Any, Any]) -> dict[Tensor, Any]:
        feeds: dict[Tensor, Any] = {}
        if not isinstance(feed_dict, Mapping):
            raise TypeError(f"feed_dict: expected a dict, got {type(feed_dict).__name__}")
        for key, value in feed_dict.items():
            if isinstance(key, IndexedSlices):
                parts = (key.values, key.indices, key.dense_shape)
                for part, item in zip(parts, value, strict=False):
                    if part is not None:
                        feeds[part] = self._fed(part, item)
                continue
            try:
                tensor = self._graph.as_graph_element(key, allow_operation=False)
            except (TypeError, ValueError) as error:
                raise type(error)(f"feed_dict: the key {key!r}: {error}") from None
            except KeyError as error:
                raise TypeError(f"feed_dict: the key {key!r}: {error.args[0]}") from None
            assert isinstance(tensor, Tensor)
            if not self._graph.is_feedable(tensor):
                raise ValueError(f"feed_dict: {tensor!r} may not be fed")
            feeds[tensor] = self._fed(tensor, value)
        return feeds

    def _fed(self, tensor: Tensor, value: Any) -> Any:
        if is_symbolic(value) or isinstance(value, Operation):
            raise TypeError(
                f"feed_dict: the value for {tensor.name!r} is {value!r}; feed arrays or numbers, "
                "e.g. the result of Session.run"
            )
        if (
            self._backend.name == "cupy"
            and isinstance(value, self._backend.xp.ndarray)
            and value.dtype == tensor.dtype.dtype
        ):
            array = value
        else:
            array = self._backend.asarray(_as_fed(tensor, value))
        if not tensor.shape.is_compatible_with(array.shape):
            raise ValueError(
                f"feed_dict: the value for {tensor.name!r}: expected shape {tensor.shape}, got "
                f"{TensorShape(array.shape)}"
            )
        return array

    def _plan(self, elements: list[Any], feeds: list[Tensor]) -> Plan:
        key = (tuple(elements), tuple(feeds))
        plan = self._plans.get(key)
        if plan is None:
            plan = Plan(self._graph, elements, feeds)
            self._warn_of_frozen_schedule(plan)
            self._plans[key] = plan
            if len(self._plans) > _PLANS:
                self._plans.popitem(last=False)
        else:
            self._plans.move_to_end(key)
        return plan

    def _warn_of_frozen_schedule(self, plan: Plan) -> None:
        """Once a session: an update follows a schedule whose step nothing in the run counts."""
        if self._warned_schedule or not any(s.op.kind.name == "Update" for s in plan.steps):
            return
        written = {v for s in plan.steps if s.op.kind.access == "write" for v in s.op.variables}
        for step in plan.steps:
            counter = self._graph.schedules.get(step.op)
            if counter is not None and counter not in written:
                self._warned_schedule = True
                warnings.warn(
                    f"the learning rate {step.op.name!r} depends on {counter.name!r}, which this "
                    f"train op does not increment: the rate will never move. Pass global_step="
                    f"{counter.name} to minimize or apply_gradients",
                    RuntimeWarning,
                    stacklevel=4,
                )
                return

    # -- execution --------------------------------------------------------------------------

    def _execute(self, plan: Plan, fed: list[Any]) -> list[Any]:
        run = _Run(self, plan, fed)
        run.compute()
        results = [
            run.result(place, item) if isinstance(item, Tensor) and place is not None else None
            for place, item in zip(plan.fetched, plan.fetches, strict=True)
        ]
        # One call into C, so that no signal handler can run in the middle of it.
        self._state.update(run.written)
        return results


def _mapping(kind: type, values: dict[Any, Any]) -> Any:
    return values if kind is dict else kind(values)


def _as_fed(tensor: Tensor, value: Any) -> np.ndarray[Any, Any]:
    """`value` as a read-only array of the tensor's dtype; no copy where none is needed."""
    if isinstance(value, np.ndarray) and value.dtype == tensor.dtype.dtype:
        array = value.view()
    else:
        if not hasattr(value, "__array__") and hasattr(value, "__dlpack__"):
            value = np.from_dlpack(value)
        if tensor.dtype is not string and np.asarray(value).dtype == np.bool_:
            # 0 and 1 are what scripts mean when they feed a mask where numbers are expected.
            value = np.asarray(value).astype(tensor.dtype.dtype)
        try:
            array = as_array(value, tensor.dtype).view()
        except (TypeError, ValueError) as error:
            raise type(error)(f"feed_dict: the value for {tensor.name!r}: {error}") from error
    array.flags.writeable = False
    return array


def _uninitialized(op: Operation) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"variable {op.name!r} is not initialised; run global_variables_initializer() (or "
        "variables_initializer([...]) for variables made after the first call) before it is used",
        op,
    )


def _handed_out(array: Any) -> Any:
    """A copy that is the caller's own; a NumPy scalar for shape ()."""
    array = np.asarray(array)
    return array[()] if array.ndim == 0 else array.copy()


class _Run:
    """One run: the values of its tensors and the writes that are not yet the session's state."""

    def __init__(self, session: Session, plan: Plan, fed: list[Any]) -> None:
        self.session = session
        self.plan = plan
        self.backend = session._backend
        self.values: list[Any] = [_SKIPPED] * plan.size
        for place, array in zip(plan.fed, fed, strict=True):
            self.values[place] = array
        self.borrowed = {id(array) for array in fed}
        # What the run writes: variable -> array, random operation -> its next count.
        self.written: dict[Operation, Any] = {}
        # The value of each variable right after each write, for the reads that see it.
        self.versions: dict[tuple[Operation, Operation], Any] = {}

    def compute(self) -> None:
        with np.errstate(all="ignore"):
            for step in self.plan.steps:
                if all(
                    bool(self.values[place]) is taken
                    for place, taken in step.branch
                    if self.values[place] is not _SKIPPED
                ) and not any(self.values[place] is _SKIPPED for place, _ in step.branch):
                    self._perform(step)

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
        for place, value in zip(step.outputs, results, strict=False):
            if place is not None:
                self.values[place] = value

    def _results(self, step: Step) -> Sequence[Any]:
        op = step.op
        kind = op.kind
        if kind.access == "variable":
            return (self._stored(op),)
        if kind.access == "read":
            return (self._seen(step),)
        if kind.access == "initialized":
            return (np.asarray(op.variables[0] in self.session._state),)
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
            inputs[i] = self.backend.to_numpy(inputs[i])
        xp = self.backend.xp
        if kind.access == "write":
            return self._write(op, inputs)
        if kind.random:
            return self._several(op, kind.kernel(xp, *inputs, stream=self._stream(op), **op.attrs))
        return self._several(op, kind.kernel(xp, *inputs, **op.attrs))

    def _several(self, op: Operation, result: Any) -> Sequence[Any]:
        if len(op.outputs) == 1:
            return (result,)
        return () if result is None else tuple(result)

    def _stored(self, variable: Operation) -> Any:
        """The variable at the start of the run, or what is fed in its place."""
        place = self.plan.fed_variables.get(variable)
        if place is not None:
            return self.values[place]
        held = self.session._state.get(variable)
        if held is None:
            raise _uninitialized(variable)
        return held

    def _seen(self, step: Step) -> Any:
        """The newest write among the read's ancestors, else the value at the start of the run."""
        (variable,) = step.op.variables
        if variable not in self.plan.fed_variables:
            for write in step.sources:
                found = self.versions.get((variable, write), _SKIPPED)
                if found is not _SKIPPED:
                    return found
        return self._stored(variable)

    def _write(self, op: Operation, inputs: list[Any]) -> Sequence[Any]:
        currents = []
        if op.kind.reads_target:
            for variable in op.variables:
                current = self.written.get(variable, self.session._state.get(variable))
                if current is None:
                    raise _uninitialized(variable)
                currents.append(current)
        assert op.kind.kernel is not None
        news = op.kind.kernel(self.backend.xp, *currents, *inputs, **op.attrs)
        owned = [
            stored(self.backend.xp, op, variable, new, self.borrowed)
            for variable, new in zip(op.variables, news, strict=True)
        ]
        for variable, new in zip(op.variables, owned, strict=True):
            self.written[variable] = new
            self.versions[variable, op] = new
        return owned[:1]

    def _stream(self, op: Operation) -> Stream:
        session = self.session
        graph_seed, op_seed = op.attrs["seed"]
        if graph_seed is None:
            graph_seed, op_seed = session._entropy, op.index
        count = self.written.get(op, session._state.get(op, 0))
        self.written[op] = count + 1
        return Stream((graph_seed, op_seed), count)

    def result(self, place: int, element: Tensor) -> Any:
        """A fetched value, the caller's own."""
        value = self.values[place]
        if value is _SKIPPED:
            raise InvalidArgumentError(
                f"{element.name!r} was built inside a cond branch that was not taken, so it has no "
                "value; fetch what cond returns",
                element.op,
            )
        return _handed_out(self.backend.to_numpy(value))

    def _explain(self, error: OpError, step: Step) -> None:
        """Tell where a non-finite value came from, and at which step."""
        if step.op.kind.name != "CheckNumerics":
            return
        first = self._first_nonfinite(step.op)
        if first is not None:
            error.message += f"; the first non-finite value came from {first.describe()}"
        for variable in self.session.graph.get_collection(GraphKeys.GLOBAL_STEP):
            held = self.session._state.get(variable.op)
            if held is not None:
                error.message += f"; {variable.op.name} = {int(held)}"
        error.args = (error.message,)

    def _first_nonfinite(self, last: Operation) -> Operation | None:
        """The earliest operation before `last`, or fed tensor, whose value is not finite."""
        wanted = {last}
        for step in reversed(self.plan.steps):
            if step.op in wanted:
                wanted.update(tensor.op for tensor in step.op.inputs)
        wanted.discard(last)
        for op in sorted(wanted, key=lambda op: op.index):
            for tensor in op.outputs:
                place = self.plan.places.get(tensor)
                value = None if place is None else self.values[place]
                if not tensor.dtype.is_floating or value is None or value is _SKIPPED:
                    continue
                if not bool(self.backend.xp.isfinite(value).all()):
                    return op
        return None


class InteractiveSession(Session):
    """A session that is the default from its creation until `close`, as at a prompt."""

    def __init__(
        self,
        target: str = "",
        graph: Graph | None = None,
        config: ConfigProto | None = None,
        backend: str | None = None,
    ) -> None:
        super().__init__(target, graph, config, backend)
        self._graph_context = None
        if graph is not None:
            self._graph_context = graph.as_default()
            self._graph_context.__enter__()
        push_default_session(self)

    def close(self) -> None:
        """Stop being the default and release the variables' memory."""
        remove_default_session(self)
        if self._graph_context is not None:
            context, self._graph_context = self._graph_context, None
            context.__exit__(None, None, None)
        super().close()
