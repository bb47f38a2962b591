"""The hook that looks for NaN and infinity before anything is written."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optkit import logging
from optkit.errors import OpError
from optkit.graph import Operation, Tensor, get_default_graph
from optkit.runtime import Session
from optkit.train.guard import Anatomy, Guard, anatomy, guard
from optkit.train.nonfinite import check_policy, explain, explained, is_last, is_nonfinite
from optkit.train.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from optkit.train.summary_hooks import StepCounterHook, SummarySaverHook
from optkit.train.training_state import TrainingState, apply, capture, current_step

__all__ = ["NonFiniteHook"]


class NonFiniteHook(SessionRunHook):
    """Checks loss and gradients in the run of a train op; a run that fails it changes nothing.

    Args:
        train_op: what `optimize_loss`, `create_train_op` or `minimize` gave.
        on_nonfinite: "raise" explains where it came from and leaves a file for `optkit debug`;
            "skip" leaves the run out: no variable, slot, step or summary moves, and `run` gives
            None; "rollback" goes back to where training was up to `rollback_steps` before, while
            hooks that feed go on with new data; "ignore" does not look.
        loss: the loss, where the train op is an operation that `minimize` did not make.
        folder: where to leave the file; a temporary directory if None.
        rollback_steps: how often, in steps, the state is remembered, in memory.

    Raises:
        ValueError: `on_nonfinite` is none of the four, or `rollback_steps` below 1.
        NonFiniteError: in a run, by "raise"; by the others when nothing else comes any more.
    """

    saves = True  # what it remembers is to have been done by the others too

    def __init__(
        self,
        train_op: Any,
        on_nonfinite: str = "raise",
        loss: Tensor | None = None,
        folder: Any = None,
        rollback_steps: int = 100,
    ) -> None:
        self._train_op = train_op
        self._policy = check_policy(on_nonfinite)
        self._loss = loss
        self._folder = None if folder is None else Path(os.fspath(folder)).expanduser()
        if rollback_steps < 1:
            raise ValueError(f"rollback_steps: expected at least 1, got {rollback_steps}")
        self._every = rollback_steps
        self._parts: Anatomy | None = None
        self._check: Guard | None = None
        self._in_a_row = 0
        self._rollbacks = 0
        self._remembered: tuple[TrainingState, dict[int, dict[str, Any]]] | None = None
        self.others: Sequence[Any] = ()
        """The hooks beside this one; the session of the hook sets it."""

    def begin(self) -> None:
        """Add the check to the graph."""
        if self._policy == "ignore":
            return
        element = get_default_graph().as_graph_element(self._train_op)
        if not isinstance(element, Tensor | Operation):
            raise TypeError(f"train_op: expected a tensor or an operation, got {self._train_op!r}")
        self._parts = anatomy(element, self._loss)
        self._check = guard(element, self._parts)

    def after_create_session(self, session: Session, coord: Any) -> None:
        """Remember the state, for "rollback"."""
        if self._policy == "rollback":
            self._remember(session)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Have the check run with the train op."""
        wanted = run_context.original_args.fetches
        if self._check is None or not _has(wanted, self._train_op):
            return None
        return SessionRunArgs(self._check.tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Remember the state when it is time."""
        self._in_a_row = 0
        if self._policy != "rollback":
            return
        step = current_step(run_context.session) or 0
        assert self._remembered is not None
        if step - (self._remembered[0].step or 0) >= self._every:
            self._remember(run_context.session)

    def run_failed(
        self, run_context: SessionRunContext, feed_dict: Mapping[Any, Any], error: OpError
    ) -> bool:
        """Explain, leave out, or go back."""
        if self._parts is None or not is_nonfinite(error):
            return False
        session = run_context.session
        self._in_a_row += 1
        last = is_last(self._policy, self._in_a_row, self._rollbacks)
        before = current_step(session)
        batch = f"fed {', '.join(sorted(str(_name(key)) for key in feed_dict)) or 'nothing'}"
        found, path = explain(
            session,
            self._parts,
            feed_dict,
            step=None if before is None else before + 1,
            batch=lambda rows: batch,
            folder=self._folder,
            keep=last,
        )
        if last:
            raise explained(found, path, batch) from None
        if self._policy == "skip":
            level = logging.WARN if self._in_a_row == 1 else logging.DEBUG
            logging.log(level, "step %s is left out: %s", found.step, found.what)
        else:
            self._go_back(session, f"step {found.step}: {found.what}")
        return True

    # -- going back -------------------------------------------------------------------------

    def _remember(self, session: Session) -> None:
        self._remembered = (
            capture(session),
            {i: hook.state_dict() for i, hook in enumerate(self.others) if _writes(hook)},
        )
        self._rollbacks = 0

    def _go_back(self, session: Session, why: str) -> None:
        assert self._remembered is not None
        state, hooks = self._remembered
        self._rollbacks += 1
        logging.warning("%s; going back to step %s", why, state.step)
        apply(session, state)
        for i, own in hooks.items():
            self.others[i].load_state_dict(own)
            self.others[i].back_to(state.step or 0)


def _writes(hook: Any) -> bool:
    return isinstance(hook, SummarySaverHook | StepCounterHook)


def _has(fetches: Any, train_op: Any) -> bool:
    """Whether a nesting of fetches has the train op in it."""
    if isinstance(fetches, Mapping):
        return any(_has(item, train_op) for item in fetches.values())
    if isinstance(fetches, list | tuple):
        return any(_has(item, train_op) for item in fetches)
    same: bool = fetches is train_op or (isinstance(fetches, str) and fetches == _name(train_op))
    return same


def _name(item: Any) -> Any:
    return getattr(item, "name", item)
