"""Sessions that start themselves, call hooks around every run, and end well."""

from __future__ import annotations

import inspect
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any

from optkit import logging, summary
from optkit.errors import OpError, OutOfRangeError
from optkit.graph import Graph, get_default_graph, is_symbolic
from optkit.runtime import RunMetadata, RunOptions, Session
from optkit.train.checkpoint_hook import CheckpointSaverHook
from optkit.train.coordinator import Coordinator
from optkit.train.files import expanded, remove_leftovers
from optkit.train.logdir_lock import LogdirLock
from optkit.train.nonfinite_hook import NonFiniteHook
from optkit.train.scaffold import (
    ChiefSessionCreator,
    Scaffold,
    SessionCreator,
    WorkerSessionCreator,
)
from optkit.train.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunValues,
    listed_hooks,
)
from optkit.train.summary_hooks import StepCounterHook, SummarySaverHook
from optkit.train.termination import EXIT_STATUS, Termination

__all__ = [
    "MonitoredSession",
    "MonitoredTrainingSession",
    "SingularMonitoredSession",
    "guarded_session",
]

USE_DEFAULT = object()
_CLEAN = (OutOfRangeError, StopIteration)
"""Exceptions that end a session well."""


class _StopRequested(StopIteration):
    """`StepContext.request_stop` was called."""


class MonitoredSession:
    """A session with hooks, to be used in a `with`.

    Hooks begin, the graph is finalized, the session is made and holds values, hooks look at it.
    Then each `run` calls `before_run`, runs what the caller and the hooks want in one run, and
    calls `after_run`. At the end hooks are told, unless the body raised something other than
    OutOfRangeError and StopIteration, which end it well and go no further.

    Args:
        session_creator: makes the session; a `ChiefSessionCreator` if None.
        hooks: `SessionRunHook`s.
        stop_grace_period_secs: how long threads that registered may take to end.

    Raises:
        RuntimeError: a run is asked for after the stop, or hooks and caller feed one tensor.
    """

    class StepContext:
        """What a function run by `run_step_fn` works with."""

        def __init__(self, session: Session, run_with_hooks: Callable[..., Any]) -> None:
            self._session = session
            self._run_with_hooks = run_with_hooks

        @property
        def session(self) -> Session:
            """The session; its runs call no hooks."""
            return self._session

        def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
            """`MonitoredSession.run`."""
            return self._run_with_hooks(*args, **kwargs)

        def request_stop(self) -> None:
            """End the function here, and the training with it.

            Raises:
                StopIteration: always.
            """
            raise _StopRequested("step_fn asked for the end")

    def __init__(
        self,
        session_creator: SessionCreator | None = None,
        hooks: Iterable[Any] | None = None,
        stop_grace_period_secs: float = 120,
        *,
        guard: _Guard | None = None,
    ) -> None:
        self._guard = guard if guard is not None else _Guard(())
        self._graph = get_default_graph()
        if self._graph.eager:
            self._guard.release()
            raise RuntimeError(
                "MonitoredSession: eager mode has no graph to run; build one inside `with "
                "tf.Graph().as_default():`"
            )
        self._was_finalized = self._graph.finalized
        self._hooks = listed_hooks("hooks", hooks)
        # A checkpoint holds what the other hooks did at its step.
        self._others = [hook for hook in self._hooks if not getattr(hook, "saves", False)]
        self._savers = [hook for hook in self._hooks if getattr(hook, "saves", False)]
        self._grace = stop_grace_period_secs
        self._stop = False
        self._session: Session | None = None
        self._coord = Coordinator(clean_stop_exception_types=())
        try:
            creator = session_creator if session_creator is not None else ChiefSessionCreator()
            if not callable(getattr(creator, "create_session", None)):
                raise TypeError(f"session_creator: expected a SessionCreator, got {creator!r}")
            with self._guard.held():
                for hook in self._hooks:
                    hook.begin()
                self._session = self._created(creator)
        except BaseException:
            self._release()
            raise

    def _created(self, creator: SessionCreator) -> Session:
        session = creator.create_session()
        try:
            self._load(getattr(creator, "restored", None))
            for hook in self._hooks:
                if isinstance(hook, CheckpointSaverHook):
                    hook.collect, hook.flush = self._collect, self._flush
                if isinstance(hook, NonFiniteHook):
                    hook.others = self._hooks
            for hook in self._hooks:
                hook.after_create_session(session, self._coord)
        except BaseException:
            session.close()
            raise
        return session

    # -- what hooks keep in checkpoints -----------------------------------------------------

    def _named_hooks(self) -> list[tuple[str, Any]]:
        """Hooks with a name of their own: the class, and the how-manieth of it."""
        seen: Counter[str] = Counter()
        named = []
        for hook in self._hooks:
            kind = type(hook).__name__
            named.append((f"{kind}_{seen[kind]}", hook))
            seen[kind] += 1
        return named

    def _collect(self) -> Mapping[str, Any]:
        states = {}
        for name, hook in self._named_hooks():
            own = getattr(hook, "state_dict", None)
            state = own() if callable(own) else {}
            if state:
                states[name] = state
        return {"hooks": states}

    def _flush(self) -> None:
        """Have all events on the disk, and what other writers have that hooks were given."""
        summary.FileWriterCache.flush(durable=True)
        for hook in self._hooks:
            own = getattr(hook, "flush", None)
            if callable(own) and not isinstance(hook, CheckpointSaverHook):
                own()

    def _load(self, restored: Mapping[str, Any] | None) -> None:
        states = (restored or {}).get("hooks", {})
        for name, hook in self._named_hooks():
            if name in states and callable(getattr(hook, "load_state_dict", None)):
                hook.load_state_dict(states[name])

    # -- running ----------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """The graph that runs."""
        return self._graph

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> Any:
        """`Session.run`, with what the hooks fetch and feed in the same run.

        It gives None where the run failed and a hook says that it is left out.

        Raises:
            RuntimeError: a hook asked for the stop, the session is closed, or a tensor is fed
                twice.
            SystemExit: SIGTERM came in the run before.
        """
        session = self._open_session()
        if self._guard.stop_requested:
            raise SystemExit(EXIT_STATUS)
        if self._stop:
            raise RuntimeError("run was called after a stop had been asked for; see should_stop()")
        with self._guard.held():
            return self._run(session, fetches, feed_dict, options, run_metadata)

    def _run(
        self, session: Session, fetches: Any, feed_dict: Any, options: Any, run_metadata: Any
    ) -> Any:
        options = options if options is not None else RunOptions()
        run_metadata = run_metadata if run_metadata is not None else RunMetadata()
        context = SessionRunContext(SessionRunArgs(fetches, feed_dict), session)
        wanted: list[Any] = [fetches]
        places: dict[int, int] = {}
        feeds: dict[Any, Any] = dict(feed_dict or {})
        fed: set[Any] | None = None
        for i, hook in enumerate(self._hooks):
            request = hook.before_run(context)
            if request is None:
                continue
            if request.fetches is not None:
                places[i] = len(wanted)
                wanted.append(request.fetches)
            for key, value in (request.feed_dict or {}).items():
                if fed is None:
                    fed = {self._fed(key) for key in feeds}
                tensor = self._fed(key)
                if tensor in fed:
                    raise RuntimeError(
                        f"{key!r} is fed twice: by {type(hook).__name__} and by the caller or "
                        "another hook"
                    )
                fed.add(tensor)
                feeds[key] = value
        try:
            if len(wanted) == 1:
                results = [session.run(fetches, feeds, options, run_metadata)]
            else:
                results = session.run(wanted, feeds, options, run_metadata)
        except OpError as error:
            if not self._left_out(context, feeds, error):
                raise
            self._stop = self._stop or context.stop_requested
            return None
        values = {
            id(hook): SessionRunValues(
                results[places[i]] if i in places else None, options, run_metadata
            )
            for i, hook in enumerate(self._hooks)
        }
        for hook in [*self._others, *self._savers]:
            hook.after_run(context, values[id(hook)])
        self._stop = self._stop or context.stop_requested
        return results[0]

    def _left_out(self, context: SessionRunContext, feeds: Any, error: OpError) -> bool:
        """Whether a hook says that a run that failed is left out; all are told."""
        handlers = [getattr(hook, "run_failed", None) for hook in self._hooks]
        said = [bool(h(context, feeds, error)) for h in handlers if callable(h)]
        return any(said)

    def _fed(self, key: Any) -> Any:
        """What a key of a feed dict stands for; the key itself where that is told by the run."""
        if isinstance(key, str) or is_symbolic(key):
            try:
                return self._graph.as_graph_element(key)
            except (KeyError, TypeError, ValueError):
                return key
        return id(key)

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        """Call a function with a `StepContext`, for steps of several runs.

        SIGTERM waits until it returns.

        Args:
            step_fn: a function of `step_context`, or of `self` and `step_context`.

        Returns:
            What it returns.

        Raises:
            StopIteration: it asked for the stop, or its data ended; the session's `with` takes
                that for a good end.
            ValueError: it takes other arguments.
        """
        names = list(inspect.signature(step_fn).parameters)
        if inspect.ismethod(step_fn) or "self" not in names:
            expected = ["step_context"]
        else:
            expected = ["self", "step_context"]
        if names != expected:
            raise ValueError(
                f"step_fn: expected a function of `step_context`, perhaps after `self`, got one of "
                f"{', '.join(names) or 'nothing'}"
            )
        session = self._open_session()
        context = self.StepContext(session, self.run)
        try:
            with self._guard.held():
                return step_fn(context) if len(names) == 1 else step_fn(self, context)
        except _StopRequested:
            self._stop = True
            raise

    def should_stop(self) -> bool:
        """Whether the training is at its end."""
        closed = self._session is None
        return closed or self._stop or self._coord.should_stop() or self._guard.stop_requested

    def _open_session(self) -> Session:
        if self._session is None:
            raise RuntimeError("the session is closed; make a new one")
        return self._session

    def _tf_sess(self) -> Session:
        """The session itself; Saver takes a monitored session by it."""
        return self._open_session()

    # -- the end ----------------------------------------------------------------------------

    def close(self) -> None:
        """Tell the hooks of the end, and release the session.

        Raises:
            RuntimeError: it is closed already.
            SystemExit: SIGTERM came, with status 143.
        """
        self._close(None)

    def __enter__(self) -> MonitoredSession:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        clean = isinstance(error, _CLEAN)
        self._close(None if clean else error)
        return clean

    def _close(self, error: BaseException | None) -> None:
        session = self._open_session()
        terminated = isinstance(error, SystemExit) and self._guard.stop_requested
        # Each part takes place whatever happens in another one.
        with self._guard.held(), ExitStack() as parts:
            parts.callback(self._release)
            parts.callback(session.close)
            parts.callback(setattr, self, "_session", None)
            parts.callback(
                self._coord.join, stop_grace_period_secs=self._grace, ignore_live_threads=True
            )
            parts.callback(self._coord.request_stop)
            if error is not None:
                parts.callback(self._try_to_flush)
            if error is None or terminated:
                # What was trained is saved, also where another hook fails at the end.
                for hook in reversed(self._savers):
                    parts.callback(hook.end, session)
                for hook in self._others:
                    hook.end(session)
        if error is None and self._guard.stop_requested and self._guard.outermost:
            logging.info("SIGTERM: the training has ended")
            raise SystemExit(EXIT_STATUS)

    def _try_to_flush(self) -> None:
        """What led to an error is to be looked at now; the error itself comes first."""
        try:
            self._flush()
        except Exception as another:  # noqa: BLE001 - it may be the disk's or a hook's
            logging.error("events could not be written: %s", another)

    def _release(self) -> None:
        self._guard.release()
        if not self._was_finalized:
            self._graph.unfinalize()


class _Guard:
    """What a training session holds while it is at work: directories, and SIGTERM.

    It lets go of them at the latest when nothing refers to it any more.

    Args:
        directories: to lock; none to leave SIGTERM alone too.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        self._termination = Termination() if directories else None
        locks: list[LogdirLock] = []
        self.release = weakref.finalize(self, _let_go, self._termination, locks)
        try:
            for directory in directories:
                locks.append(LogdirLock(directory))
                # Nobody else writes there now.
                remove_leftovers(directory)
        except BaseException:
            self.release()
            raise

    @property
    def stop_requested(self) -> bool:
        """Whether SIGTERM came."""
        return self._termination is not None and self._termination.requested

    @property
    def outermost(self) -> bool:
        """Whether this training is within no other that SIGTERM ends."""
        return self._termination is None or self._termination.outermost

    def held(self) -> AbstractContextManager[None]:
        """SIGTERM waits for the end of the `with`."""
        return nullcontext() if self._termination is None else self._termination.held()


def _let_go(termination: Termination | None, locks: list[LogdirLock]) -> None:
    if termination is not None:
        termination.release()
    while locks:
        locks.pop().release()


class SingularMonitoredSession(MonitoredSession):
    """A `MonitoredSession` that shows the session itself.

    Args:
        hooks: `SessionRunHook`s.
        scaffold: a Scaffold; a new one if None.
        master: only "" works: this process.
        config: a `ConfigProto`.
        checkpoint_dir: the directory of the checkpoint to start from.
        stop_grace_period_secs: how long threads that registered may take to end.
        checkpoint_filename_with_path: the prefix of the checkpoint to start from instead.
    """

    def __init__(
        self,
        hooks: Iterable[Any] | None = None,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: Any = None,
        stop_grace_period_secs: float = 120,
        checkpoint_filename_with_path: Any = None,
    ) -> None:
        creator = ChiefSessionCreator(
            scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path
        )
        super().__init__(creator, hooks, stop_grace_period_secs)

    def raw_session(self) -> Session:
        """The session; its runs call no hooks."""
        return self._open_session()


def MonitoredTrainingSession(  # noqa: N802 - TF's name
    master: str = "",
    is_chief: bool = True,
    checkpoint_dir: Any = None,
    scaffold: Scaffold | None = None,
    hooks: Iterable[Any] | None = None,
    chief_only_hooks: Iterable[Any] | None = None,
    save_checkpoint_secs: Any = USE_DEFAULT,
    save_summaries_steps: Any = USE_DEFAULT,
    save_summaries_secs: Any = USE_DEFAULT,
    config: Any = None,
    stop_grace_period_secs: float = 120,
    log_step_count_steps: int | None = 100,
    max_wait_secs: float = 7200,
    save_checkpoint_steps: Any = USE_DEFAULT,
    summary_dir: Any = None,
    save_graph_def: bool = True,
) -> MonitoredSession:
    """A session for training that saves, writes summaries, and goes on where it was.

    What runs in `checkpoint_dir` can be killed at any moment: the next session there has the same
    variables and writes the same events as if nothing had happened. While it runs, no other
    session of this kind can use the directory. SIGTERM ends the step, saves, and exits with 143.

    Args:
        master: only "" works: this process.
        is_chief: whether this process saves and writes.
        checkpoint_dir: the directory of checkpoints; None saves nothing.
        scaffold: a Scaffold; a new one if None.
        hooks: `SessionRunHook`s.
        chief_only_hooks: those for the chief only.
        save_checkpoint_secs: seconds from one checkpoint to the next; 600 by default, None or 0
            for none.
        save_summaries_steps: steps from one summary to the next; 100 by default.
        save_summaries_secs: seconds from one summary to the next, instead.
        config: a `ConfigProto`.
        stop_grace_period_secs: how long threads that registered may take to end.
        log_step_count_steps: steps from one `global_step/sec` to the next; None or 0 for none.
        max_wait_secs: accepted as in TF; there is nothing to wait for.
        save_checkpoint_steps: steps from one checkpoint to the next, instead of seconds.
        summary_dir: the directory of the event file; `checkpoint_dir` if None.
        save_graph_def: whether to write the graph to the event file of a new run.

    Raises:
        TypeError: hooks, scaffold or a directory are of another kind.
        RuntimeError: another session trains in the directory; there is no global step.
        ValueError: the checkpoints on record cannot be read.
        NotFoundError, InvalidArgumentError: they do not fit the variables.
    """
    summaries_steps, summaries_secs = _either(
        save_summaries_steps, save_summaries_secs, (100, None)
    )
    save_steps, save_secs = _either(save_checkpoint_steps, save_checkpoint_secs, (None, 600))
    scaffold = scaffold if scaffold is not None else Scaffold()
    if not is_chief:
        worker = WorkerSessionCreator(scaffold, master, config, max_wait_secs)
        return MonitoredSession(worker, hooks, stop_grace_period_secs)
    all_hooks = listed_hooks("chief_only_hooks", chief_only_hooks)
    checkpoint_dir = expanded("checkpoint_dir", checkpoint_dir) if checkpoint_dir else None
    summary_dir = expanded("summary_dir", summary_dir) if summary_dir else checkpoint_dir
    if summary_dir:
        if log_step_count_steps and log_step_count_steps > 0:
            all_hooks.append(
                StepCounterHook(output_dir=summary_dir, every_n_steps=log_step_count_steps)
            )
        if summaries_steps or summaries_secs:
            all_hooks.append(
                SummarySaverHook(
                    scaffold=scaffold,
                    save_steps=summaries_steps,
                    save_secs=summaries_secs,
                    output_dir=summary_dir,
                )
            )
    if checkpoint_dir and (save_steps or save_secs):
        all_hooks.append(
            CheckpointSaverHook(
                checkpoint_dir,
                save_steps=save_steps,
                save_secs=save_secs,
                scaffold=scaffold,
                save_graph_def=save_graph_def,
            )
        )
    all_hooks += listed_hooks("hooks", hooks)
    creator = ChiefSessionCreator(scaffold, master, config, checkpoint_dir)
    directories = [each for each in (checkpoint_dir, summary_dir) if each]
    return guarded_session(creator, all_hooks, directories, stop_grace_period_secs)


def guarded_session(
    creator: SessionCreator,
    hooks: Iterable[Any],
    directories: Iterable[Any],
    stop_grace_period_secs: float = 120,
) -> MonitoredSession:
    """A `MonitoredSession` that has directories for itself, and ends well at SIGTERM.

    Raises:
        RuntimeError: another session is at work in one of the directories.
    """
    places = (expanded("directory", each).resolve() for each in directories)
    guard = _Guard(tuple(dict.fromkeys(places)))
    return MonitoredSession(creator, hooks, stop_grace_period_secs, guard=guard)


def _either(steps: Any, seconds: Any, default: tuple[int | None, float | None]) -> Any:
    """(steps, seconds): the default where neither is given; None for what is not positive."""
    if steps is USE_DEFAULT and seconds is USE_DEFAULT:
        return default
    return tuple(
        None if each is USE_DEFAULT or not each or each <= 0 else each for each in (steps, seconds)
    )
