"""The hook that saves, and listeners of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from optkit import logging, summary
from optkit.graph import GraphKeys, get_default_graph
from optkit.runtime import Session
from optkit.train.files import expanded
from optkit.train.hooks import SecondOrStepTimer, required_step
from optkit.train.saver import Saver
from optkit.train.session_run_hook import SessionRunContext, SessionRunHook, SessionRunValues
from optkit.train.summary_hooks import start_marked
from optkit.train.training_state import current_step

__all__ = ["CheckpointSaverHook", "CheckpointSaverListener", "broken_weights"]


class CheckpointSaverListener:
    """Is told of each checkpoint of a `CheckpointSaverHook`; a listener that does nothing."""

    def begin(self) -> None:
        """Called before the graph is finalized."""

    def before_save(self, session: Session, global_step_value: int) -> None:
        """Called before a checkpoint is written."""

    def after_save(self, session: Session, global_step_value: int) -> Any:
        """Called after a checkpoint has been written; what is true ends the training."""
        return None

    def end(self, session: Session, global_step_value: int) -> None:
        """Called at the end of the session, after the last checkpoint."""


class CheckpointSaverHook(SessionRunHook):
    """Saves at the start of a session, then every so many steps or seconds, and at the end.

    A checkpoint is written last in its step, after what other hooks do and after the event files
    have been flushed: what comes before it is in them, what comes after it is done again. Trained
    variables that are not finite are not saved; the checkpoint before stands.

    Args:
        checkpoint_dir: the directory, made if need be.
        save_secs: seconds from one checkpoint to the next.
        save_steps: steps from one checkpoint to the next.
        saver: a Saver; the scaffold's if None, or else the one in the collection SAVERS.
        checkpoint_basename: what the names of checkpoints start with.
        scaffold: the Scaffold whose saver to use.
        listeners: `CheckpointSaverListener`s.
        save_graph_def: whether to write the graph to the event file of a new run.
        metric: a function of the session that rates the checkpoint, for a Saver that keeps the
            best ones; None rates none.

    Raises:
        ValueError: saver and scaffold are both given, or not exactly one of save_secs and
            save_steps.
        RuntimeError: at the start, the graph has no global step.
    """

    saves = True

    def __init__(
        self,
        checkpoint_dir: Any,
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: Any = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: Any = None,
        listeners: Iterable[Any] | None = None,
        save_graph_def: bool = True,
        *,
        metric: Callable[[Session], float | None] | None = None,
    ) -> None:
        if saver is not None and scaffold is not None:
            raise ValueError("saver, scaffold: expected one of them, got both")
        self._folder = expanded("checkpoint_dir", checkpoint_dir)
        self._prefix = str(self._folder / checkpoint_basename)
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)
        self._saver = saver
        self._scaffold = scaffold
        self._listeners = list(listeners or ())
        self._graph_too = save_graph_def
        self._metric = metric
        self._writer: Any = None
        self._global_step: Any = None
        self._graph_step: int | None = None
        self._told = False
        self.collect: Callable[[], Mapping[str, Any]] | None = None
        """Gives what a checkpoint holds beside the variables; the hook's session sets it."""
        self.flush: Callable[[], object] = summary.FileWriterCache.flush
        """Has all events in their files before a checkpoint is; the hook's session sets it."""

    def begin(self) -> None:
        """Make the directory, open the event file and find the global step."""
        self._global_step = required_step("CheckpointSaverHook")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._writer = summary.FileWriterCache.get(self._folder)
        for listener in self._listeners:
            listener.begin()

    def after_create_session(self, session: Session, coord: Any) -> None:
        """Write the graph, and the first checkpoint."""
        step = current_step(session, self._global_step) or 0
        start_marked(self._writer, session, step)
        # At the step that is purged with it when the session starts there again.
        if self._graph_too and (self._graph_step is None or step < self._graph_step):
            self._graph_step = step + 1
            self._writer.add_graph(session.graph, self._graph_step)
        self._save(session, step)
        self._timer.update_last_triggered_step(step)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Save when it is due."""
        step = current_step(run_context.session, self._global_step) or 0
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            if self._save(run_context.session, step):
                run_context.request_stop()

    def end(self, session: Session) -> None:
        """Save what has not been saved."""
        step = current_step(session, self._global_step) or 0
        if step != self._timer.last_triggered_step():
            self._save(session, step)
        for listener in self._listeners:
            listener.end(session, step)

    def state_dict(self) -> dict[str, Any]:
        """The step that the graph was written with."""
        return {"graph_step": self._graph_step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Know that the graph is written."""
        self._graph_step = state.get("graph_step")

    def _save(self, session: Session, step: int) -> bool:
        """Write a checkpoint; whether a listener asks for the end."""
        broken = broken_weights(session)
        if broken:
            level = logging.DEBUG if self._told else logging.ERROR
            self._told = True
            logging.log(
                level,
                "no checkpoint at step %d: %s not finite; the checkpoint before stands",
                step,
                f"{', '.join(broken)} {'is' if len(broken) == 1 else 'are'}",
            )
            return False
        for listener in self._listeners:
            listener.before_save(session, step)
        self.flush()
        saver = self._saver_in_use()
        extra: dict[str, Any] = {}
        if isinstance(saver, Saver):
            extra["extra"] = dict(self.collect()) if self.collect is not None else None
            if self._metric is not None:
                extra["metric"] = self._metric(session)
        saver.save(session, self._prefix, global_step=step, **extra)
        # All are told, also when the first of them asks for the end.
        asked = [listener.after_save(session, step) for listener in self._listeners]
        return any(asked)

    def _saver_in_use(self) -> Any:
        if self._saver is not None:
            return self._saver
        if self._scaffold is not None:
            return self._scaffold.saver
        savers = get_default_graph().get_collection(GraphKeys.SAVERS)
        if len(savers) != 1:
            raise RuntimeError(
                "CheckpointSaverHook: expected a saver, a scaffold or one saver in the collection "
                f"{GraphKeys.SAVERS!r}, which has {len(savers)}"
            )
        return savers[0]


def broken_weights(session: Session) -> list[str]:
    """The names of trained variables that hold a NaN or an infinity."""
    return [
        variable.op.name
        for variable in session.graph.get_collection(GraphKeys.TRAINABLE_VARIABLES)
        if variable.dtype.is_floating
        and session.holds(variable)
        and not bool(np.isfinite(session.value(variable)).all())
    ]
