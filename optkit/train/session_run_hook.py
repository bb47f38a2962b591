"""Hooks: what to do before and after each run of a `MonitoredSession`, at its start and end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from optkit.errors import OpError
from optkit.runtime import Session

__all__ = [
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "listed_hooks",
]


class SessionRunArgs(NamedTuple):
    """What a hook wants of the next run, or what the caller asked for.

    Attributes:
        fetches: what to fetch too, in any nesting; None for nothing.
        feed_dict: what to feed too.
        options: a `RunOptions`.
    """

    fetches: Any
    feed_dict: Mapping[Any, Any] | None = None
    options: Any = None


class SessionRunValues(NamedTuple):
    """What a run gave a hook.

    Attributes:
        results: the values of the hook's fetches, in their nesting; None if it had none.
        options: the run's options.
        run_metadata: the run's metadata.
    """

    results: Any
    options: Any
    run_metadata: Any


class SessionRunContext:
    """What hooks know of a run, and how they ask that it be the last."""

    def __init__(self, original_args: SessionRunArgs, session: Session) -> None:
        self._original_args = original_args
        self._session = session
        self._stop_requested = False

    @property
    def original_args(self) -> SessionRunArgs:
        """What the caller asked for."""
        return self._original_args

    @property
    def session(self) -> Session:
        """The session that runs; its `value` reads variables without a run."""
        return self._session

    @property
    def stop_requested(self) -> bool:
        """Whether this run shall be the last."""
        return self._stop_requested

    def request_stop(self) -> None:
        """Ask that this run be the last: `should_stop` is true after it."""
        self._stop_requested = True


class SessionRunHook:
    """A hook that does nothing; one of your own overrides what it needs.

    A hook with `state_dict` and `load_state_dict` keeps its state in the checkpoints of a
    `CheckpointSaverHook`: `load_state_dict` is called before `after_create_session` when the
    session continues from one. One with `flush` has it called before a checkpoint is written.
    """

    saves = False
    """Whether the hook saves: its `after_run` and `end` come after those of other hooks, so that
    a checkpoint holds what they did."""

    def begin(self) -> None:
        """Called once, before the graph is finalized: the last chance to add operations."""

    def after_create_session(self, session: Session, coord: Any) -> None:
        """Called when the session holds the variables' values, new or restored."""

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Called before a run; the result is fetched and fed in the same run."""
        return None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Called after a run that succeeded."""

    def run_failed(
        self, run_context: SessionRunContext, feed_dict: Mapping[Any, Any], error: OpError
    ) -> bool:
        """Called when an operation failed in a run, which has changed nothing.

        Args:
            run_context: that of `before_run`.
            feed_dict: what the run was fed, by the caller and by all hooks.
            error: what was raised.

        Returns:
            Whether the run is to be left out: it gives None then, and `after_run` is not called.
        """
        return False

    def end(self, session: Session) -> None:
        """Called once at the end, unless the session ends with an exception."""

    def state_dict(self) -> dict[str, Any]:
        """What the hook needs to go on later, in JSON's types; {} for nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""


def listed_hooks(argument: str, hooks: Any) -> list[Any]:
    """The hooks that an argument holds; none if it is None.

    Raises:
        TypeError: it is no list of hooks.
    """
    if hooks is None:
        return []
    if isinstance(hooks, SessionRunHook) or not isinstance(hooks, Iterable):
        raise TypeError(f"{argument}: expected a list of SessionRunHooks, got {hooks!r}")
    listed = list(hooks)
    for hook in listed:
        if isinstance(hook, type):
            raise TypeError(f"{argument}: expected instances, got the class {hook.__name__}")
        if not callable(getattr(hook, "begin", None)):
            raise TypeError(f"{argument}: expected SessionRunHooks, got {hook!r} among them")
    return listed
