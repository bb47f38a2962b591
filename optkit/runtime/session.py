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
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from traceback import clear_frames
from types import TracebackType
from typing import Any, NoReturn

import numpy as np

from optkit import backend as backends
from optkit.backend.cuda.device import BrokenStateError, is_fault
from optkit.backend.select import on_device
from optkit.errors import InternalError, OpError
from optkit.graph import (
    Graph,
    Operation,
    Tensor,
    default_session,
    get_default_graph,
    not_picklable,
    push_default_session,
    remove_default_session,
)
from optkit.runtime.arenas import Arenas, DeviceArenas
from optkit.runtime.config import ConfigProto
from optkit.runtime.device_program import DeviceProgram
from optkit.runtime.execution import Run, handed_out, uninitialized
from optkit.runtime.fetches import Rebuild, as_fed, as_feeds, is_plain, unpack
from optkit.runtime.interrupts import HeldBack
from optkit.runtime.plan import Plan
from optkit.runtime.program import Program, compiled
from optkit.runtime.snapshot import SessionState, exported, imported, random_counts

__all__ = ["InteractiveSession", "Session"]

_PLANS = 128
"""Plans a session keeps; the least recently used goes first."""

_COMPLAINTS = (
    OpError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    TypeError,
    ValueError,
)
"""What a program raises where the reference may still succeed."""


class Session:
    """Runs a graph and holds the values of its variables.

    Args:
        target: TF's master; only "" (this process) works.
        graph: the graph to run; the default graph if None.
        config: a `ConfigProto`; recorded.
        backend: "auto", "numpy", "cupy" or "cupy:<device>"; the current backend if None. With
            "cupy", the first device of `config.gpu_options.visible_device_list` is taken.
        stream: where a device's work is queued. None: on the stream that is current when the
            session runs; "own": on a non-blocking stream of the session's; or a
            `cupy.cuda.Stream`. A stream of its own waits for what the current one was told before
            a run, and the current one for it after a run, so arrays may be fed from either.

    Raises:
        ValueError: there is no such backend, device or stream, or `target` is not "".
        RuntimeError: the backend is not usable.
    """

    def __init__(
        self,
        target: str = "",
        graph: Graph | None = None,
        config: ConfigProto | None = None,
        backend: str | None = None,
        stream: Any = None,
    ) -> None:
        if isinstance(target, Graph):
            raise TypeError("target: expected a string, got a Graph; pass it as graph=")
        if target:
            raise ValueError(f"target: optkit runs in this process only, got {target!r}")
        if graph is not None and not isinstance(graph, Graph):
            raise TypeError(f"graph: expected a Graph, got {graph!r}")
        self._graph = graph if graph is not None else get_default_graph()
        self.config = config
        self._backend = _visible(backends.resolve(backend), config)
        self._device = self._backend.device(stream)
        # A variable's operation -> its array; a random operation -> how often it has run.
        self._state: dict[Operation, Any] = {}
        self._entropy = secrets.randbits(63)
        self._plans: OrderedDict[Any, Plan] = OrderedDict()
        self._programs: dict[Plan, Program | DeviceProgram | None] = {}
        # What runs have been told by, so that fetches and feeds are looked up once.
        self._known: OrderedDict[Any, tuple[Plan, Rebuild, tuple[Tensor, ...]]] = OrderedDict()
        xp = self._backend.xp
        self._arenas = Arenas() if self._device is None else DeviceArenas(xp)
        self._lock = threading.RLock()
        self._closed = False
        self._running = False
        self._host = _Host()
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
        """Release the variables' memory; the session cannot run any more.

        In the middle of a run, by a kernel or a signal handler, that is done when the run ends.
        """
        with self._lock:
            self._closed = True
            if not self._running:
                self._release()

    def _release(self) -> None:
        self._state.clear()
        self._plans.clear()
        self._programs.clear()
        self._known.clear()
        self._arenas = Arenas()
        if self._device is not None:
            self._device.release()

    def as_default(self) -> Any:
        """Make this the session of `Tensor.eval` and `Operation.run`, inside a `with`."""
        return default_session(self)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"backend={self.backend}"
        return f"<optkit.{type(self).__name__} of {self._graph!r} {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(not_picklable(self))

    def __enter__(self) -> Session:
        if self._entered:
            raise RuntimeError(
                "the session is in a `with` already, and its end closes it; use "
                "`with session.as_default():` to make it the default once more"
            )
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
        while self._entered:
            self._entered.pop().__exit__(None, None, None)
        self.close()

    def list_devices(self) -> list[str]:
        """The device the session runs on."""
        if self._device is None:
            return ["/device:CPU:0"]
        return [f"/device:GPU:{self._device.index or 0}"]

    def synchronize(self) -> None:
        """Wait until the device has done all that runs asked of it; at once on the host.

        A run that fetches nothing returns before its work is done, so who measures time waits.

        Raises:
            InternalError: the device has failed, which ends the session; the cause is attached.
        """
        if self._device is not None:
            with self._lock:
                self._device.synchronize()

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
            InternalError: variables could not be written to the end, now or before.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("the session is closed; make a new Session")
            if self._running:
                raise RuntimeError(
                    "Session.run was called inside a run of the same session, by a kernel or a "
                    "signal handler; Session.value reads variables there"
                )
            try:
                self._running = True  # in here: a signal may come at once
                with self._active():
                    return self._run(fetches, feed_dict or {})
            finally:
                self._running = False
                if self._closed:
                    self._release()

    def _run(self, fetches: Any, feed_dict: Any) -> Any:
        key = self._key(fetches, feed_dict)
        found = self._known.get(key) if key is not None else None
        # A plan that was dropped may have been made anew for others.
        if found is not None and self._plans.get(found[0].key) is found[0]:
            plan, rebuild, tensors = found
            self._known.move_to_end(key)
            self._plans.move_to_end(plan.key)
            backend = self._backend
            fed = [
                as_fed(backend, tensor, value)
                for tensor, value in zip(tensors, feed_dict.values(), strict=True)
            ]
            return rebuild(self._results(plan, fed))
        elements: list[Tensor | Operation] = []
        rebuild = unpack(self._graph, fetches, elements)
        feeds = as_feeds(self._graph, self._backend, feed_dict)
        plan = self._plan(elements, list(feeds))
        if key is not None and len(feeds) == len(feed_dict) and is_plain(fetches, feed_dict):
            self._known[key] = plan, rebuild, tuple(feeds)
            if len(self._known) > _PLANS:
                self._known.popitem(last=False)
        return rebuild(self._results(plan, list(feeds.values())))

    def _key(self, fetches: Any, feed_dict: Any) -> Any:
        """What a run is known by, None where that cannot be hashed."""
        kind = type(fetches)
        leaves = tuple(fetches) if kind is list or kind is tuple else fetches
        key = kind, leaves, tuple(feed_dict), self._graph.generation
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def _results(self, plan: Plan, fed: list[Any]) -> list[Any]:
        """Run a plan: as a program where that pays and works, else by the reference."""
        program = self._program(plan)
        failure: Exception | None = None
        if program is not None:
            with np.errstate(all="ignore"):
                try:
                    write = program(self._state, self._arenas, self._entropy, fed)
                except Exception as error:  # nothing has changed: the reference tells
                    if is_fault(error):
                        raise
                    if isinstance(error, MemoryError):
                        clear_frames(error.__traceback__)  # they hold what the program has computed
                    failure = error
                else:
                    return write()  # from here on it counts, whatever a signal handler raises
        run = Run(self._graph, self._backend, plan, self._state, self._entropy, fed)
        results = run.compute()
        if failure is not None and not isinstance(failure, _COMPLAINTS):
            raise failure  # no operation raised it: a signal handler did, a time limit perhaps
        with HeldBack():
            self._arenas.commit(self._state, run.written)
        return results

    def _program(self, plan: Plan) -> Program | DeviceProgram | None:
        if plan not in self._programs:
            self._programs[plan] = compiled(plan, self._backend)
            program = self._programs[plan]
            # Most plans that write nothing in place, such as initialisers, run once.
            return program if program is not None and program.in_place else None
        return self._programs[plan]

    def make_callable(
        self, fetches: Any, feed_list: Sequence[Any] | None = None, accept_options: bool = False
    ) -> Callable[..., Any]:
        """A function of the fed values, in the order of `feed_list`, that runs `fetches`.

        With `accept_options` it takes `options` and `run_metadata` as `run` does.

        Raises:
            TypeError, ValueError: something cannot be fetched.
        """
        keys = list(feed_list or ())
        unpack(self._graph, fetches, [])

        def call(*values: Any, options: Any = None, run_metadata: Any = None) -> Any:
            if not accept_options and (options, run_metadata) != (None, None):
                raise TypeError("options, run_metadata: make the callable with accept_options=True")
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
        op = self._variable_op(variable)
        with self._lock:
            if op not in self._state:
                raise uninitialized(op)
            with self._active():
                return handed_out(self._backend.to_numpy(self._state[op]))

    def holds(self, variable: Any) -> bool:
        """Whether a variable holds a value now.

        Raises:
            TypeError: it is no variable.
        """
        op = self._variable_op(variable)
        with self._lock:
            return op in self._state

    def _variable_op(self, variable: Any) -> Operation:
        element = self._graph.as_graph_element(variable)
        op = element.op if isinstance(element, Tensor) else element
        if op.kind.access != "variable":
            raise TypeError(f"variable: expected a Variable of the graph, got {variable!r}")
        return op

    def export_state(self, names: Collection[str] | None = None) -> SessionState:
        """Copies of the session's variables, random counters and entropy, all of one moment.

        Args:
            names: names of variables' operations; all that hold a value if None.

        Raises:
            RuntimeError: the session is closed.
            FailedPreconditionError: a variable of `names` holds no value.
            NotFoundError: there is no variable of a name.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("the session is closed; it holds no state any more")
            with self._active():
                return exported(self._graph, self._state, self._entropy, names)

    def import_state(self, state: SessionState, *, copy: bool = True) -> None:
        """Put the values of `state` in place, all or none; what it does not name stays.

        With an entropy, random operations go on from the counters of `state`, and those that have
        none start anew.

        Args:
            state: the values; see `export_state`.
            copy: False when nobody else has the arrays, which the session then may keep.

        Raises:
            RuntimeError: the session is closed, or in the middle of a run.
            NotFoundError: the graph has no variable of a name.
            InvalidArgumentError: a value has another dtype or shape than its variable.
        """
        with self._lock:
            if self._closed or self._running:
                why = "closed" if self._closed else "in the middle of a run"
                raise RuntimeError(f"the session is {why}; its state cannot be set")
            counts: dict[Operation, int] = {}
            if state.entropy is not None:
                counts = {op: 0 for op in self._state if op.kind.random}
                counts |= random_counts(self._graph, state.counters)
            with self._active():
                # What is in an arena is copied there in any case.
                members = self._arenas.members
                written = imported(
                    self._graph, self._backend, state, lambda op: not copy or op in members
                )
                with HeldBack():
                    self._arenas.commit(self._state, {**written, **counts})
                    if state.entropy is not None:
                        self._entropy = state.entropy

    def _active(self) -> AbstractContextManager[Any]:
        """Where the session's arrays may be worked with.

        Raises:
            InternalError: what variables hold is not known, now or since an earlier run.
        """
        return self._host if self._device is None else self._device.active()

    def _plan(self, elements: list[Any], feeds: list[Tensor]) -> Plan:
        key = (tuple(elements), tuple(feeds))
        plan = self._plans.get(key)
        if plan is None:
            plan = Plan(self._graph, elements, feeds)
            self._warn_of_frozen_schedule(plan)
            self._plans[key] = plan
            if len(self._plans) > _PLANS:
                _, dropped = self._plans.popitem(last=False)
                self._programs.pop(dropped, None)
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


class _Host:
    """To arrays on the host what `Device.active` is to a device's."""

    def __init__(self) -> None:
        self._broken: BaseException | None = None

    def __enter__(self) -> None:
        if self._broken is not None:
            raise self._ended() from self._broken

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, BrokenStateError):
            self._broken = error.__cause__
            raise self._ended() from error

    def _ended(self) -> InternalError:
        return InternalError(
            "the session has ended: variables could not be written to the end, and what they hold "
            f"is unknown ({type(self._broken).__name__}: {self._broken}); restore a checkpoint in "
            "a new Session"
        )


def _visible(backend: backends.Backend, config: Any) -> backends.Backend:
    """The backend on the device that TF1's options name, where nothing else names one."""
    chosen = getattr(getattr(config, "gpu_options", None), "visible_device_list", "")
    if backend.name != "cupy" or backend.index is not None or not chosen:
        return backend
    first = str(chosen).split(",")[0].strip()
    if not first.isdigit():
        raise ValueError(
            f"config.gpu_options.visible_device_list: expected numbers of devices, got {chosen!r}"
        )
    return on_device(backend, int(first))


class InteractiveSession(Session):
    """A session that is the default from its creation until `close`, as at a prompt."""

    def __init__(
        self,
        target: str = "",
        graph: Graph | None = None,
        config: ConfigProto | None = None,
        backend: str | None = None,
        stream: Any = None,
    ) -> None:
        super().__init__(target, graph, config, backend, stream)
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
