"""Hooks that write to the event files: summaries, and the speed of training."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from optkit import logging, summary
from optkit.runtime import Session
from optkit.train.hooks import SecondOrStepTimer, required_step
from optkit.train.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from optkit.train.training_state import current_step

__all__ = ["StepCounterHook", "SummarySaverHook", "start_marked"]

_marked: weakref.WeakKeyDictionary[Any, weakref.ref[Session]] = weakref.WeakKeyDictionary()
"""Event file writer -> the session whose start it has marked."""


def start_marked(writer: Any, session: Session, step: int) -> None:
    """Mark in the event file, once a session, that it goes on after `step`.

    What a run that was killed wrote of later steps is written again; from here on it counts no
    more. What it wrote of `step` itself does: a checkpoint is written last in its step.
    """
    before = _marked.get(writer)
    mark = getattr(writer, "add_session_start", None)
    if (before is not None and before() is session) or mark is None:
        return
    mark(step + 1)
    _marked[writer] = weakref.ref(session)


class SummarySaverHook(SessionRunHook):
    """Writes summaries at the first step and then every so many steps or seconds: 1, 101, 201, ...

    They are computed in the run of the step whose number they carry.

    Args:
        save_steps: steps from one time to the next.
        save_secs: seconds from one time to the next.
        output_dir: the directory of the event file.
        summary_writer: a writer to use instead.
        scaffold: the Scaffold whose summary op to fetch.
        summary_op: a summary to fetch, or a list of them.

    Raises:
        ValueError: not exactly one of scaffold and summary_op, or of save_steps and save_secs, is
            given.
        RuntimeError: at the start, the graph has no global step.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: Any = None,
        summary_writer: Any = None,
        scaffold: Any = None,
        summary_op: Any = None,
    ) -> None:
        if (scaffold is None) is (summary_op is None):
            raise ValueError(
                "scaffold, summary_op: expected exactly one of them, got "
                f"{scaffold!r} and {summary_op!r}"
            )
        self._scaffold = scaffold
        self._summary_op = summary_op
        self._writer = summary_writer
        self._output_dir = output_dir
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)
        self._global_step: Any = None
        self._step = 0
        self._due = False

    def begin(self) -> None:
        """Open the event file and find the global step."""
        if self._writer is None and self._output_dir is not None:
            self._writer = summary.FileWriterCache.get(self._output_dir)
        self._global_step = required_step("SummarySaverHook")

    def after_create_session(self, session: Session, coord: Any) -> None:
        """Mark the start of the session in the event file."""
        self._step = current_step(session, self._global_step) or 0
        if self._writer is not None:
            start_marked(self._writer, session, self._step)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Fetch the summaries when they are due at the coming step."""
        self._due = self._timer.should_trigger_for_step(self._step + 1)
        op = self._wanted() if self._due else None
        return None if op is None else SessionRunArgs(op)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Write them."""
        step = current_step(run_context.session, self._global_step) or 0
        self._step = step
        if not self._due:
            return
        self._timer.update_last_triggered_step(step)
        results = run_values.results
        if self._writer is None or results is None:
            return
        for data in results if isinstance(results, list | tuple) else [results]:
            self._writer.add_summary(data, step)

    def flush(self) -> None:
        """Have all that was written in the file; called before a checkpoint is written."""
        if self._writer is not None:
            self._writer.flush()

    def end(self, session: Session | None = None) -> None:
        """Have all of it in the file."""
        self.flush()

    def state_dict(self) -> dict[str, Any]:
        """The step of the last summary."""
        return self._timer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._timer.load_state_dict(state)

    def back_to(self, step: int) -> None:
        """Mark that training has gone back: what was written of later steps counts no more."""
        self._step = step
        if self._writer is not None:
            self._writer.add_session_start(step + 1)

    def _wanted(self) -> Any:
        if self._summary_op is not None:
            return self._summary_op
        return self._scaffold.summary_op


class StepCounterHook(SessionRunHook):
    """Writes how fast training is, as the scalar `global_step/sec`; the first time at step 101.

    Args:
        every_n_steps: steps from one time to the next.
        every_n_secs: seconds from one time to the next.
        output_dir: the directory of the event file.
        summary_writer: a writer to use instead.

    Raises:
        ValueError: not exactly one of every_n_steps and every_n_secs is given.
        RuntimeError: at the start, the graph has no global step.
    """

    _STALE, _WARNINGS = 20, 5
    """Runs without a step before the first warning, and how many warnings there are."""

    def __init__(
        self,
        every_n_steps: int | None = 100,
        every_n_secs: float | None = None,
        output_dir: Any = None,
        summary_writer: Any = None,
    ) -> None:
        if every_n_steps is not None and every_n_secs is not None:
            raise ValueError(
                "every_n_steps, every_n_secs: expected exactly one of them, got "
                f"{every_n_steps!r} and {every_n_secs!r}; pass every_n_steps=None"
            )
        self._timer = SecondOrStepTimer(every_secs=every_n_secs, every_steps=every_n_steps)
        self._speed = SecondOrStepTimer(every_steps=1)
        self._writer = summary_writer
        self._output_dir = output_dir
        self._global_step: Any = None
        self._last: int | None = None
        self._stale = 0

    def begin(self) -> None:
        """Open the event file and find the global step."""
        if self._writer is None and self._output_dir is not None:
            self._writer = summary.FileWriterCache.get(self._output_dir)
        self._global_step = required_step("StepCounterHook")

    def after_create_session(self, session: Session, coord: Any) -> None:
        """Mark the start of the session, and start the clock of one that goes on."""
        step = current_step(session, self._global_step) or 0
        if self._writer is not None:
            start_marked(self._writer, session, step)
        self._speed.reset()
        if self._timer.last_triggered_step() is not None:
            self._speed.update_last_triggered_step(step)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Write the speed when it is due."""
        step = current_step(run_context.session, self._global_step) or 0
        before = self._timer.last_triggered_step()
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            seconds, steps = self._speed.update_last_triggered_step(step)
            if seconds is not None and steps is not None and before is not None:
                self._log(step, steps / seconds if seconds else float("inf"))
        self._stale = self._stale + 1 if step == self._last else 0
        self._last = step
        if self._STALE < self._stale <= self._STALE + self._WARNINGS:
            logging.warning("the global step stays at %d: does the train op get global_step?", step)

    def _log(self, step: int, speed: float) -> None:
        logging.info("global_step/sec: %g", speed)
        if self._writer is not None:
            from summaries import encode_scalar

            self._writer.add_summary(encode_scalar("global_step/sec", speed), step)

    def flush(self) -> None:
        """Have all that was written in the file; called before a checkpoint is written."""
        if self._writer is not None:
            self._writer.flush()

    def end(self, session: Session) -> None:
        """Have all of it in the file."""
        self.flush()

    def state_dict(self) -> dict[str, Any]:
        """The step at which the speed was last written."""
        return self._timer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; the time until now does not count."""
        self._timer.load_state_dict(state)

    def back_to(self, step: int) -> None:
        """Mark that training has gone back: what was written of later steps counts no more."""
        if self._writer is not None:
            self._writer.add_session_start(step + 1)
