"""The loop behind `fit`: one step after another, and what happens between them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from optkit import logging
from optkit.errors import DivergedError, OpError
from optkit.graph import Operation, Tensor
from optkit.runtime import Session
from optkit.train.checkpoint_hook import broken_weights
from optkit.train.evaluation import Evaluation
from optkit.train.feeding import Feeder, Feeds
from optkit.train.guard import Anatomy, Guard
from optkit.train.history import History
from optkit.train.nonfinite import ROLLBACKS, explain, explained, is_last, is_nonfinite
from optkit.train.plateau import ReduceOnPlateau
from optkit.train.progress import Progress
from optkit.train.run_log import RunLog
from optkit.train.saver import Saver
from optkit.train.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from optkit.train.stopping import Divergence, EarlyStopping, Interruption
from optkit.train.termination import Termination
from optkit.train.training_state import TrainingState, apply, capture

__all__ = ["Fitting", "Options"]


_STILL = 1000
"""Runs without a step after which that is told."""


def _passed(every: int, before: int, now: int) -> bool:
    """Whether a multiple of `every` lies after `before` and not after `now`."""
    return now // every > before // every


@dataclass(frozen=True)
class Options:
    """What `fit` was told about how to train; see there."""

    steps: int | None
    on_nonfinite: str
    save_summaries_steps: int
    save_checkpoint_secs: float | None
    save_checkpoint_steps: int | None
    rollback_steps: int


@dataclass(eq=False, repr=False)
class Fitting:
    """A training in progress.

    Attributes:
        session: the session that trains.
        train_op: what takes a step.
        parts: the train op, taken apart.
        check: its check for finite values, None where nothing is checked.
        feeder: gives the feeds.
        options: how to train.
        history: what was measured.
        progress: shows it.
        counter: the variable that counts the steps, None where the train op counts none.
        step: the steps done.
        prefix: of the names of checkpoints, None where none are written.
    """

    session: Session
    train_op: Tensor | Operation
    parts: Anatomy
    check: Guard | None
    feeder: Feeder
    options: Options
    history: History
    progress: Progress
    counter: Any
    step: int
    saver: Saver
    prefix: Path | None
    log: RunLog | None
    merged: Tensor | None
    evaluation: Evaluation | None
    early: EarlyStopping | None
    plateau: tuple[ReduceOnPlateau, str] | None
    divergence: Divergence
    hooks: Sequence[SessionRunHook]
    termination: Termination
    columns: list[str] = field(default_factory=list)
    _evaluated: int | None = None
    _saved: int | None = None
    _snapshot: tuple[int, TrainingState] | None = None
    _rollbacks: int = 0
    _in_a_row: int = 0
    _still: int = 0

    def run(self) -> None:
        """Train until something says that it is enough."""
        self._fetches = self._list_fetches()
        self._check_early()
        begin = time.perf_counter()
        with contextlib.ExitStack() as stack:
            interruption = stack.enter_context(Interruption(self.progress.write))
            stack.enter_context(self.termination.held())
            self.feeder.given_up = lambda: interruption.requested or self.termination.requested
            try:
                self.history.stopped = self._loop(interruption)
            finally:
                self.history.seconds += time.perf_counter() - begin
                self.history.data_seconds = self.feeder.seconds
                self.feeder.close()
            regular = self.history.stopped not in ("interrupt", "SIGTERM")
            if regular and self.evaluation is not None and self._evaluated != self.step:
                self._evaluate()
            if self.prefix is not None and self._saved != self.step:
                self.save()
            for hook in self.hooks:
                hook.end(self.session)
            self._show()

    def _list_fetches(self) -> tuple[Any, ...]:
        """What each step computes: the train op, the loss and what is shown for nothing."""
        op = self.train_op.op if isinstance(self.train_op, Tensor) else self.train_op
        fetches: list[Any] = [op]
        measured: list[tuple[str, Tensor]] = []
        loss = self.parts.loss
        if loss is not None:
            # The check gives the loss on: one value less to hand out.
            measured.append(("loss", self.check.tensor if self.check is not None else loss))
        elif self.check is not None:
            fetches.append(self.check.tensor)
        if self.parts.rate is not None:
            measured.append(("learning_rate", self.parts.rate))
        norm = self.check.norm if self.check is not None else self.parts.norm
        if norm is not None:
            measured.append(("gradient_norm", norm))
        self.columns = [name for name, _ in measured]
        self._first = len(fetches)
        return (*fetches, *(tensor for _, tensor in measured))

    def _check_early(self) -> None:
        """Refuse to wait for what is never measured."""
        evaluated = [] if self.evaluation is None else self.evaluation.tensors
        known = [*self.columns, *(f"eval/{name}" for name in evaluated)]
        if self.early is not None and self.early.monitor not in known:
            raise ValueError(
                f"early_stopping: monitor: expected one of {known}, got {self.early.monitor!r}"
            )

    def _loop(self, interruption: Interruption) -> str:
        options, session, feeder = self.options, self.session, self.feeder
        fetches, first = self._fetches, self._first
        summarised = fetches if self.merged is None else (*fetches, self.merged)
        every = options.save_summaries_steps
        total = options.steps
        steps = self.history._steps.append
        appends = [self.history.dense(name).append for name in self.columns]
        width = len(appends)
        has_loss = self.columns[:1] == ["loss"]
        scalars = all(tensor.sizes == () for tensor in fetches[first:])
        evaluate_every = 0 if self.evaluation is None else self.evaluation.every
        save_steps = options.save_checkpoint_steps if self.prefix is not None else None
        save_secs = options.save_checkpoint_secs if self.prefix is not None else None
        watched = None if self.early is None else self.early.monitor
        column = self.columns.index(watched) if watched in self.columns else None
        judged = self.divergence.factor is not None and has_loss
        back = options.rollback_steps if options.on_nonfinite == "rollback" else 0
        clock = time.perf_counter
        show_at = clock() + min(self.progress.every, 1e9)
        save_at = clock() + (1e9 if save_secs is None else save_secs)
        known = self._counts_by_one()
        if back:
            self._remember()
        while True:
            if total is not None and self.step >= total:
                return "steps"
            if interruption.requested:
                return "interrupt"
            if self.termination.requested:
                return "SIGTERM"
            try:
                feeds = feeder.next()
            except StopIteration:
                if feeder.given_up():
                    continue
                if feeder.untouched:
                    raise ValueError(
                        "data: expected at least one batch, got none; a generator that was used "
                        "up, perhaps: pass the function that makes it"
                    ) from None
                return "data"
            except Exception:
                if feeder.broken:
                    self._save_what_is_done()
                raise
            due = self.log is not None and self.step % every == 0
            wanted = summarised if due else fetches
            try:
                if self.hooks:
                    results, stop = self._run_with_hooks(wanted, feeds)
                else:
                    results, stop = session.run(wanted, feeds), False
            except OpError as error:
                if not is_nonfinite(error):
                    raise
                results, stop = self._nonfinite(wanted, feeds), False
                if results is None:
                    continue
            self._in_a_row = 0
            before = self.step
            if known:
                self.step += 1
            elif not self._follow():  # one of several runs a step, or one that was left out
                if stop:
                    return "hook"
                continue
            step = self.step
            values = results[first : first + width]
            if not scalars:
                values = [np.mean(value) for value in values]
            steps(step)
            for append, value in zip(appends, values, strict=True):
                append(value)
            if due:
                self._write(step, results, values)
            if judged and self.divergence.see(float(values[0])):
                self._diverged(float(values[0]))
                continue
            if column is not None and self._is_enough(step, float(values[column])):
                return "early stopping"
            # A step may count by more than one.
            if evaluate_every and _passed(evaluate_every, before, step) and self._evaluate():
                return "early stopping"
            if back and _passed(back, before, step):
                self._remember()
            now = clock()
            if now >= show_at:
                self._show()
                show_at = now + self.progress.every
                known = known and self._count() == step
            wants = (save_steps and _passed(save_steps, before, step)) or now >= save_at
            # The checkpoint of the last step comes after its evaluation: nothing goes on from it.
            if wants and (total is None or step < total):
                self.save()
                save_at = clock() + (1e9 if save_secs is None else save_secs)
            if stop:
                return "hook"

    # -- counting ---------------------------------------------------------------------------

    def _counts_by_one(self) -> bool:
        """Whether the first step can be counted here; the counter itself is asked now and then."""
        return self.counter is None or self.parts.counts_by_one(self.counter.op)

    def _follow(self) -> bool:
        """Ask the counter whether it has moved; tell if it does not for long."""
        before, self.step = self.step, self._count()
        self._still = self._still + 1 if self.step == before else 0
        if self._still == _STILL:
            logging.warning(
                "the global step has been %d for %d runs: gradients that are never finite with "
                "any loss scale, or more runs a step than that?",
                self.step,
                _STILL,
            )
        return self.step != before

    def _count(self) -> int:
        if self.counter is None:
            return self.step
        return int(self.session.value(self.counter))

    # -- hooks ------------------------------------------------------------------------------

    def _run_with_hooks(self, wanted: tuple[Any, ...], feeds: Feeds) -> tuple[Any, bool]:
        context = SessionRunContext(SessionRunArgs(self.train_op, feeds), self.session)
        fetches: dict[Any, Any] = {"fit": list(wanted)}
        given = dict(feeds)
        for i, hook in enumerate(self.hooks):
            args = hook.before_run(context)
            if args is None:
                continue
            if args.fetches is not None:
                fetches[i] = args.fetches
            for key, value in (args.feed_dict or {}).items():
                if key in given:
                    raise RuntimeError(
                        f"{type(hook).__name__} feeds {key!r}, which is fed already by the data or "
                        "another hook"
                    )
                given[key] = value
        results = self.session.run(fetches, given)
        for i, hook in enumerate(self.hooks):
            hook.after_run(context, SessionRunValues(results.get(i), None, None))
        return results["fit"], context.stop_requested

    # -- measuring --------------------------------------------------------------------------

    def _write(self, step: int, results: Sequence[Any], values: Sequence[Any]) -> None:
        assert self.log is not None
        merged = results[-1] if self.merged is not None else None
        measured = dict(zip(self.columns, map(float, values), strict=True))
        self.log.step(step, merged, measured)

    def _evaluate(self) -> bool:
        """Evaluate now; whether that was enough training."""
        assert self.evaluation is not None
        self._evaluated = self.step
        values = self.evaluation.run(self.session)
        enough = False
        for name, value in values.items():
            self.history.record(self.step, f"eval/{name}", value)
            enough |= self.early is not None and (
                self.early.monitor == f"eval/{name}" and self._is_enough(self.step, value)
            )
        if self.log is not None:
            tensors = self.evaluation.tensors
            self.log.evaluation(
                self.step, {name: (tensors[name], value) for name, value in values.items()}
            )
        if self.plateau is not None:
            plateau, name = self.plateau
            plateau.observe(values[name], self.session)
        return enough

    def _is_enough(self, step: int, value: float) -> bool:
        assert self.early is not None
        return self.early.judge(step, value)

    def _show(self) -> None:
        values = self.history.final
        short = {"loss": "loss", "learning_rate": "rate", "gradient_norm": "norm"}
        shown = {short[name]: values[name] for name in short if name in values}
        shown |= {name: value for name, value in values.items() if name.startswith("eval/")}
        self.progress.show(self.step, shown)

    # -- what is not finite -----------------------------------------------------------------

    def _nonfinite(self, wanted: tuple[Any, ...], feeds: Feeds) -> Any:
        """Deal with a step that was not taken: its results after all, or None where it is left.

        Raises:
            NonFiniteError: the policy is to raise, or nothing else helps any more.
        """
        policy = self.options.on_nonfinite
        told = self._in_a_row > 0
        self._in_a_row += 1
        last = is_last(policy, self._in_a_row, self._rollbacks)
        number = self.step + 1
        found, path = explain(
            self.session,
            self.parts,
            feeds,
            step=number,
            batch=self.feeder.told,
            folder=None if self.prefix is None else self.prefix.parent,
            keep=last,
        )
        if found.origin is None and self.check is not None and not self.hooks:
            # The norm is too large for its dtype, and all gradients are finite.
            plain = [self.parts.loss if x is self.check.tensor else x for x in wanted]
            values = iter(self.session.run([x for x in plain if x is not None], feeds))
            return [None if x is None else next(values) for x in plain]
        if last:
            raise explained(found, path, self.feeder.told(found.rows)) from None
        if policy == "skip":
            self.history.skipped.append(number)
            level = logging.DEBUG if told else logging.WARN
            logging.log(level, "step %d is left out: %s", number, found.what)
        else:
            self._back(f"step {number}: {found.what}")
        return None

    def _diverged(self, loss: float) -> None:
        what = (
            f"step {self.step}: the loss is {loss:g}, above {self.divergence.limit:g}, which is "
            f"{self.divergence.factor:g} times the least so far, {self.divergence.least:g}"
        )
        if self.options.on_nonfinite != "rollback" or self._rollbacks >= ROLLBACKS:
            raise DivergedError(what)
        self._back(what)

    def _remember(self) -> None:
        if self._snapshot is None or self._snapshot[0] != self.step:
            self._snapshot = self.step, capture(self.session)
            self._rollbacks = 0

    def _back(self, why: str) -> None:
        """Put the remembered state back; the data goes on from where it is."""
        assert self._snapshot is not None
        step, state = self._snapshot
        self._rollbacks += 1
        logging.warning("%s; going back to step %d", why, step)
        apply(self.session, state)
        self.step = step
        self._saved = None
        self.history.rewind(step)
        if self.log is not None:
            self.log.back_to(step)

    # -- checkpoints ------------------------------------------------------------------------

    def save(self) -> None:
        """Write a checkpoint, unless weights are not finite."""
        assert self.prefix is not None
        broken = broken_weights(self.session)
        if broken:
            logging.error(
                "no checkpoint at step %d: not finite: %s; the one before stands",
                self.step,
                ", ".join(broken),
            )
            return
        if self.log is not None:
            self.log.flush()
        self.saver.save(
            self.session, self.prefix, global_step=self.step, extra={"fit": self.state_dict()}
        )
        self._saved = self.step

    def _save_what_is_done(self) -> None:
        """Save before an error of the data ends training: the next `fit` asks for that batch."""
        if self.prefix is None or self._saved == self.step or not len(self.history):
            return
        try:
            self.save()
        except Exception as error:  # noqa: BLE001 - it is not to hide that of the data
            logging.error("no checkpoint at step %d: %s", self.step, error)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds beside the variables."""
        return {
            "step": self.step,
            "data": self.feeder.position(),
            "divergence": self.divergence.state_dict(),
            "early": None if self.early is None else self.early.state_dict(),
            "hooks": [hook.state_dict() for hook in self.hooks],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.feeder.go_to(state["data"])
        self.divergence.load_state_dict(state["divergence"])
        if self.early is not None and state["early"] is not None:
            self.early.load_state_dict(state["early"])
        for hook, own in zip(self.hooks, state["hooks"], strict=False):
            hook.load_state_dict(own)
        self._saved = self.step
