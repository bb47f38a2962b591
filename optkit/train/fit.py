"""`fit`: a train op and data in, a trained session and its measurements out."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from optkit import logging, summary
from optkit.errors import InvalidArgumentError, NotFoundError
from optkit.global_step import get_global_step
from optkit.graph import (
    GraphKeys,
    Operation,
    Tensor,
    get_default_graph,
    get_default_session,
    is_symbolic,
)
from optkit.graph.ledger import Ledger
from optkit.runtime import Session
from optkit.runtime.plan import Plan
from optkit.train.checks import require_plain
from optkit.train.evaluation import Evaluation
from optkit.train.feeding import Feeder, Matcher
from optkit.train.files import expanded, remove_leftovers
from optkit.train.fitting import Fitting, Options
from optkit.train.guard import Anatomy, anatomy, guard
from optkit.train.history import History
from optkit.train.logdir_lock import LogdirLock
from optkit.train.nonfinite import check_policy
from optkit.train.plateau import ReduceOnPlateau
from optkit.train.progress import progress as new_progress
from optkit.train.run_log import RunLog, Tags
from optkit.train.saver import Saver
from optkit.train.scaffold import restore_latest
from optkit.train.session_run_hook import SessionRunHook
from optkit.train.stopping import Divergence, EarlyStopping
from optkit.train.termination import EXIT_STATUS, Termination
from optkit.variables import variable_of
from summaries._rank import is_chief

__all__ = ["fit"]

_BASENAME = "model.ckpt"


def fit(
    train_op: Any,
    data: Any,
    inputs: Any = None,
    steps: int | None = None,
    *,
    feed_dict: Mapping[Any, Any] | None = None,
    logdir: Any = None,
    eval: Any = None,  # noqa: A002 - what it is called everywhere
    hooks: Iterable[SessionRunHook] = (),
    session: Session | None = None,
    loss: Any = None,
    on_nonfinite: str = "raise",
    divergence: float | None = None,
    early_stopping: EarlyStopping | None = None,
    averages: Any = None,
    plateau: tuple[ReduceOnPlateau, str] | None = None,
    save_summaries_steps: int = 10,
    save_checkpoint_secs: float | None = 600.0,
    save_checkpoint_steps: int | None = None,
    max_to_keep: int = 5,
    rollback_steps: int = 100,
    resume: bool = True,
    prefetch: int | None = None,
    progress: bool | None = None,
) -> History:
    """Train until the global step is `steps`, or the data ends.

    A session is made, its variables are initialised, batches are fed one after another, and a bar
    shows loss, rate and norm. With a `logdir` the graph's summaries, evaluations and checkpoints
    go there, and the next `fit` with the same logdir goes on from the newest checkpoint as if
    there had been no break; where no step is left, it warns and only evaluates. Ctrl-C ends the
    step at hand, saves, and returns what was measured.

    Args:
        train_op: what `optimize_loss`, `create_train_op` or `minimize` gave.
        data: an iterable of batches (`optkit.batches`, a list, a generator, PyTorch's DataLoader),
            a function that gives one, or one batch for every step: a dict, or the arrays for
            `inputs`. What can be gone through again is, as often as needed.
        inputs: the placeholders that a batch's parts go to: a tuple of them, one alone, or a dict
            from a batch's keys to them. Not needed for batches that are feed dicts.
        steps: the global step to reach; None goes through the data once.
        feed_dict: what to feed with every batch, such as {keep_prob: 0.5}.
        logdir: the run's directory; `~` is expanded. Nothing is written if None.
        eval: (data, every, {name: tensor}): means over that data, every so many steps and at the
            end, in the columns `eval/<name>` and the run `<logdir>/eval`, there under the tag that
            the same quantity has in training. A fourth item is what to feed with every batch there,
            such as {keep_prob: 1.0}.
        hooks: `tf.train.SessionRunHook`s.
        session: the session to train in; if None the default one of the train op's graph, or a new
            one. Variables that hold values keep them. It stays open, as `History.session`.
        loss: the loss to show and to check, where the train op is an operation that `minimize` did
            not make.
        on_nonfinite: what to do when the loss or a gradient is NaN or infinite, which is found
            before anything is written. "raise" explains where it came from; "skip" leaves the step
            out, which moves nothing and counts for nothing; "rollback" goes back to where training
            was up to `rollback_steps` before, with new data; "ignore" does not look.
        divergence: k > 1: raise (or go back, under "rollback") once the loss is above k times the
            least so far.
        early_stopping: an `EarlyStopping`.
        averages: an `ExponentialMovingAverage` or `MovingAverageOptimizer`: evaluations are made
            with the averages in the places of the variables.
        plateau: (a `ReduceOnPlateau`, the name of a tensor of `eval` that it observes).
        save_summaries_steps: write summaries, and the speed as `global_step/sec`, at step 1 and
            every so many steps from there.
        save_checkpoint_secs: seconds between checkpoints; None saves none by time.
        save_checkpoint_steps: steps between checkpoints. One is always saved at the end, and when
            the data raises an error.
        max_to_keep: how many checkpoints to keep, the newest; 0 keeps all.
        rollback_steps: how often, in steps, "rollback" remembers the state, in memory.
        resume: whether to go on from a checkpoint in logdir; False starts anew beside it.
        prefetch: how many batches to make ready ahead in a thread; None does so for
            `optkit.batches` where it pays. Keep it at 0 for data that depends on the training.
        progress: False shows nothing; None and True a bar in terminals and notebooks, and a line
            every few seconds elsewhere.

    Returns:
        The measurements. `History.session.run(...)` uses what was trained.

    Raises:
        TypeError, ValueError: an argument, or a batch, is not what it should be.
        NonFiniteError: the loss or a gradient is not finite; nothing has changed.
        DivergedError: the loss is above k times its least value.
        RuntimeError: another process trains in `logdir`.
        SystemExit: SIGTERM came; the status is 143, and a checkpoint has been saved.
    """
    operation = _train_op(train_op)
    graph = operation.graph
    policy = check_policy(on_nonfinite)
    total = _whole("steps", steps, 0, optional=True)
    _whole("save_summaries_steps", save_summaries_steps, 1)
    _whole("save_checkpoint_steps", save_checkpoint_steps, 1, optional=True)
    _whole("rollback_steps", rollback_steps, 1)
    _whole("prefetch", prefetch, 0, optional=True)
    _whole("max_to_keep", max_to_keep, 0, optional=True)
    _switch("resume", resume)
    _switch("progress", progress, optional=True)
    if save_checkpoint_secs is not None:
        require_plain("fit", "save_checkpoint_secs", save_checkpoint_secs, above=0)
    diverged = Divergence(divergence)
    if early_stopping is not None and not isinstance(early_stopping, EarlyStopping):
        raise TypeError(f"early_stopping: expected an EarlyStopping, got {early_stopping!r}")
    hooks = _hooks(hooks)
    match = Matcher(graph, inputs, feed_dict)
    feeder = Feeder(data, match, again=total is not None, prefetch=prefetch)
    if total is None and feeder.endless:
        raise ValueError("steps: needed, since the data never ends")
    _check_averages(averages)
    evaluation = None if eval is None else Evaluation(graph, inputs, eval, averages)
    _check_plateau(plateau, evaluation, graph)
    parts = anatomy(operation, _loss(graph, loss, operation))
    if not parts.writes:
        raise ValueError(
            f"train_op: running {operation.name!r} changes no variable; pass what optimize_loss, "
            "create_train_op or minimize gives, not the loss"
        )
    if plateau is not None:
        _check_use(plateau[0], operation)
    if evaluation is not None:
        _check_evaluation(evaluation, graph)
    if logdir == "":
        raise ValueError("logdir: expected a directory or None, got ''")
    folder = None if logdir is None else expanded("logdir", logdir)
    chief = is_chief()

    with contextlib.ExitStack() as stack:
        stack.enter_context(graph.as_default())
        if folder is not None and chief:
            stack.enter_context(LogdirLock(folder))
            remove_leftovers(folder)
        for hook in hooks:
            hook.begin()
        check = None if policy == "ignore" else guard(operation, parts)
        merged = _merged(graph) if folder is not None and chief else None
        running = _session(session, graph)
        saver = Saver(max_to_keep=max_to_keep, allow_empty=True)
        counter = _counter(graph, parts)
        state = _start(running, saver, folder if resume else None, counter)
        step = _step(running, counter, state)
        if early_stopping is not None and state is None:
            early_stopping.reset()
        history = History(running, folder)
        if total is not None and step >= total:
            _tell_nothing_to_do(step, total, folder if state is not None else None)
            history.stopped = "steps"
            if evaluation is not None:  # what is trained is known as well as after training
                for name, value in _evaluated_again(running, evaluation).items():
                    history.record(step, f"eval/{name}", value)
            return history
        termination = Termination()
        stack.callback(termination.release)
        shown = new_progress(progress, step, total)
        stack.callback(shown.close)
        log = None
        if folder is not None and chief:
            tags = Tags(merged, parts.loss)
            log = RunLog(folder, step, tags, graph if state is None else None)
            stack.callback(log.close)
        fitting = Fitting(
            session=running,
            train_op=operation,
            parts=parts,
            check=check,
            feeder=feeder,
            options=Options(
                total,
                policy,
                save_summaries_steps,
                save_checkpoint_secs,
                save_checkpoint_steps,
                rollback_steps,
            ),
            history=history,
            progress=shown,
            counter=counter,
            step=step,
            saver=saver,
            prefix=None if folder is None or not chief else folder / _BASENAME,
            log=log,
            merged=merged,
            evaluation=evaluation,
            early=early_stopping,
            plateau=plateau,
            divergence=diverged,
            hooks=hooks,
            termination=termination,
        )
        if state is not None:
            fitting.load_state_dict(state)
        for hook in hooks:
            hook.after_create_session(running, None)
        fitting.run()
        if termination.requested:
            stack.close()
            raise SystemExit(EXIT_STATUS)
    if history.stopped == "data" and total is not None:
        logging.warning("the data ended at step %d, before steps=%d", fitting.step, total)
    _tell_of_slow_data(history, prefetch)
    return history


# -- arguments ------------------------------------------------------------------------------------


def _check_averages(averages: Any) -> None:
    if averages is not None and not callable(getattr(averages, "swapped", None)):
        raise TypeError(
            "averages: expected an ExponentialMovingAverage or a MovingAverageOptimizer, got "
            f"{averages!r}"
        )


def _check_evaluation(evaluation: Evaluation, graph: Any) -> None:
    """Refuse to train on what is for evaluations."""
    trained = {v.op for v in graph.get_collection("trainable_variables")}
    for name, tensor in evaluation.tensors.items():
        steps = Plan(graph, [tensor], []).steps
        if any(s.op.kind.access == "write" and trained.intersection(s.op.variables) for s in steps):
            raise ValueError(
                f"eval: {name!r}: computing {tensor.name!r} changes trainable variables; pass the "
                "loss itself, not what trains"
            )


def _check_plateau(plateau: Any, evaluation: Evaluation | None, graph: Any) -> None:
    if plateau is None:
        return
    if (
        not isinstance(plateau, tuple | list)
        or len(plateau) != 2
        or not isinstance(plateau[0], ReduceOnPlateau)
    ):
        raise TypeError(f"plateau: expected (a ReduceOnPlateau, a name of eval), got {plateau!r}")
    if plateau[0].scale.graph is not graph:
        raise ValueError(f"plateau: {plateau[0]!r} is of another graph than the train op")
    names = [] if evaluation is None else list(evaluation.tensors)
    if plateau[1] not in names:
        raise ValueError(f"plateau: expected one of eval's names {names}, got {plateau[1]!r}")


def _check_use(plateau: ReduceOnPlateau, operation: Tensor | Operation) -> None:
    """Refuse to lower a rate that the train op does not go by."""
    scale = plateau.scale.op
    steps = Plan(operation.graph, [operation], []).steps
    if not any(scale is step.op or scale in step.op.variables for step in steps):
        raise ValueError(
            f"plateau: {operation.name!r} does not read {plateau!r}, so lowering it would change "
            "nothing; build the train op with the rate that it gives, as plateau(0.1) or with "
            "learning_rate_decay_fn=plateau"
        )


def _train_op(value: Any) -> Tensor | Operation:
    if isinstance(value, Operation):
        return value
    if is_symbolic(value) and not value.graph.eager:
        element = value._as_graph_element()
        if isinstance(element, Tensor) and element.op.kind.access != "variable":
            return element
    raise TypeError(
        "train_op: expected what optimize_loss, create_train_op or minimize gives, got "
        f"{value!r}" + ("; build it in graph mode" if get_default_graph().eager else "")
    )


def _loss(graph: Any, loss: Any, train_op: Tensor | Operation) -> Tensor | None:
    if loss is None:
        return None
    try:
        element = graph.as_graph_element(loss, allow_operation=False)
    except (TypeError, ValueError, KeyError) as error:
        raise TypeError(f"loss: expected a tensor of the train op's graph: {error}") from None
    if not element.dtype.is_floating:
        raise TypeError(f"loss: expected a floating tensor, got {element!r}")
    found: Tensor = element
    return found


def _whole(name: str, value: Any, least: int, optional: bool = False) -> int | None:
    if value is None and optional:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name}: expected at least {least}, got {value}")
    return int(value)


def _switch(name: str, value: Any, optional: bool = False) -> None:
    if not isinstance(value, bool | np.bool_) and not (optional and value is None):
        choice = "True, False or None" if optional else "True or False"
        raise TypeError(f"{name}: expected {choice}, got {value!r}")


def _hooks(hooks: Any) -> list[SessionRunHook]:
    if not isinstance(hooks, Iterable | SessionRunHook):
        raise TypeError(f"hooks: expected SessionRunHooks, got {hooks!r}")
    listed = [hooks] if isinstance(hooks, SessionRunHook) else list(hooks)
    for hook in listed:
        if not isinstance(hook, SessionRunHook):
            raise TypeError(f"hooks: expected SessionRunHooks, got {hook!r} among them")
    # What saves comes last, when the others have done their part.
    return sorted(listed, key=lambda hook: hook.saves)


def _merged(graph: Any) -> Tensor | None:
    """All summaries as one; made once, so that a second `fit` adds nothing to the graph."""
    nodes = tuple(graph.get_collection(GraphKeys.SUMMARIES))
    made = graph.stores.setdefault("fit summaries", Ledger())
    if nodes and nodes not in made:
        made[nodes] = summary.merge(nodes)
    found: Tensor | None = made[nodes] if nodes else None
    return found


# -- where to start -------------------------------------------------------------------------------


def _session(given: Session | None, graph: Any) -> Session:
    if given is not None:
        if not isinstance(given, Session):
            raise TypeError(f"session: expected a Session, got {given!r}")
        if given.graph is not graph:
            raise ValueError("session: it is of another graph than the train op")
        return given
    default = get_default_session()
    if isinstance(default, Session) and default.graph is graph:
        return default
    return Session(graph=graph)


def _counter(graph: Any, parts: Anatomy) -> Any:
    """The global step, if the train op counts it."""
    found = get_global_step(graph)
    variable = None if found is None else variable_of(found)
    return variable if variable is not None and variable.op in parts.writes else None


def _start(
    session: Session, saver: Saver, folder: Path | None, counter: Any
) -> Mapping[str, Any] | None:
    """Give all variables values; what a checkpoint says of the run, None for a new one."""
    before = int(session.value(counter)) if counter is not None and session.holds(counter) else -1
    _initialise(session, "local_variables")
    if folder is not None and folder.is_dir():
        kept = session.export_state() if before >= 0 else None
        try:
            found = restore_latest(saver, session, folder)
        except (NotFoundError, InvalidArgumentError) as error:
            error.add_note("to start anew: fit(..., resume=False), or another logdir")
            raise
        if found is not None:
            path, extra = found
            state = extra.get("fit")
            step = -1 if not isinstance(state, Mapping) else int(state.get("step", -1))
            if kept is not None and before > step:
                # The session has gone further than the checkpoint.
                session.import_state(kept)
                logging.info("%s is of step %d; going on from the session's %d", path, step, before)
                return None
            logging.info("going on from %s", path)
            _initialise(session, "variables")
            return state if isinstance(state, Mapping) else {}
    _initialise(session, "variables")
    return None


def _initialise(session: Session, collection: str) -> None:
    variables = session.graph.get_collection(collection)
    missing = [v for v in variables if not session.holds(v)]
    if missing:
        session.run([v.initializer for v in missing])


def _step(session: Session, counter: Any, state: Mapping[str, Any] | None) -> int:
    if counter is not None:
        return int(session.value(counter))
    return 0 if not state else int(state.get("step", 0))


def _evaluated_again(session: Session, evaluation: Evaluation) -> dict[str, float]:
    """What an evaluation measures that is no part of the training and moves nothing.

    So a run that was killed at its very end, and is started again, ends like one that was not.
    """
    kept = session.export_state()
    try:
        return evaluation.run(session)
    finally:
        session.import_state(kept)


# -- what is told ---------------------------------------------------------------------------------


def _tell_nothing_to_do(step: int, total: int, folder: Path | None) -> None:
    where = "" if folder is None else f" in the checkpoint in {folder}"
    choice = "" if folder is None else ", or resume=False or another logdir to start anew"
    warnings.warn(
        f"fit: nothing to do: the global step is {step} already{where}, and steps={total} is the "
        f"step to reach; pass a larger one to train on{choice}",
        RuntimeWarning,
        stacklevel=3,
    )


def _tell_of_slow_data(history: History, prefetch: int | None) -> None:
    share = history.data_seconds / history.seconds if history.seconds else 0.0
    if share > 0.5 and history.seconds > 5 and not prefetch:
        logging.info(
            "%d %% of the time went into waiting for data; prefetch=2 makes batches in a thread",
            round(100 * share),
        )
