"""`tf.contrib.slim.learning`: `create_train_op` with multipliers and clipping, and `train`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from optkit import logging
from optkit.contrib.training import train_op
from optkit.contrib.training.train_op import USE_GLOBAL_STEP
from optkit.errors import OutOfRangeError
from optkit.global_step import get_or_create_global_step
from optkit.graph import Graph, Tensor, get_default_graph
from optkit.ops.core import constant
from optkit.ops.logic import equal, greater_equal
from optkit.ops.math import mod
from optkit.runtime import Session
from optkit.train.checkpoint_hook import CheckpointSaverHook
from optkit.train.monitored_session import MonitoredSession, guarded_session
from optkit.train.optimizer import Optimizer
from optkit.train.saver import Saver
from optkit.train.scaffold import ChiefSessionCreator, Scaffold, WorkerSessionCreator
from optkit.train.summary_hooks import SummarySaverHook
from optkit.train.transforms import GradAndVar, clip_gradient_norms, multiply_gradients

__all__ = ["create_train_op", "train", "train_step"]

_USE_DEFAULT = 0


def create_train_op(
    total_loss: Any,
    optimizer: Any,
    global_step: Any = USE_GLOBAL_STEP,
    update_ops: Iterable[Any] | None = None,
    variables_to_train: Sequence[Any] | None = None,
    clip_gradient_norm: float = 0,
    summarize_gradients: bool = False,
    gate_gradients: int = Optimizer.GATE_OP,
    aggregation_method: int | None = None,
    colocate_gradients_with_ops: bool = False,
    gradient_multipliers: Any = None,
    check_numerics: bool = True,
) -> Tensor:
    """`tf.contrib.training.create_train_op`; gradients are first multiplied and then clipped.

    Args:
        total_loss: as there, like all that is not explained here.
        optimizer: as there.
        global_step: as there.
        update_ops: as there.
        variables_to_train: as there.
        clip_gradient_norm: the largest norm of each gradient; 0 clips nothing.
        summarize_gradients: as there.
        gate_gradients: as there.
        aggregation_method: as there.
        colocate_gradients_with_ops: as there.
        gradient_multipliers: Variable, "w:0" or "w" -> factor of its gradient.
        check_numerics: as there.

    Raises:
        TypeError, ValueError: as there, and as `clip_gradient_norms` and `multiply_gradients`.

    Source: tf.contrib.slim.learning.create_train_op.
    """

    def transform(pairs: list[GradAndVar]) -> list[GradAndVar]:
        graph = get_default_graph()
        if gradient_multipliers:
            with graph.name_scope("multiply_grads"):
                pairs = multiply_gradients(pairs, gradient_multipliers)
        if clip_gradient_norm > 0:
            with graph.name_scope("clip_grads"):
                pairs = clip_gradient_norms(pairs, clip_gradient_norm)
        return pairs

    return train_op.create_train_op(
        total_loss,
        optimizer,
        global_step,
        update_ops,
        variables_to_train,
        transform,
        summarize_gradients,
        gate_gradients,
        aggregation_method,
        colocate_gradients_with_ops,
        check_numerics,
    )


def train_step(
    sess: Any, train_op: Any, global_step: Any, train_step_kwargs: Mapping[str, Any]
) -> tuple[Any, bool]:
    """One step: run the train op, log it when that is due, see whether it was the last.

    Args:
        sess: the session.
        train_op: gives the loss.
        global_step: the step's variable.
        train_step_kwargs: tensors of shape (), bool, evaluated after the step: "should_log" and
            "should_stop".

    Returns:
        The loss, and whether to stop.

    Source: tf.contrib.slim.learning.train_step.
    """
    start = time.monotonic()
    loss = sess.run(train_op)
    seconds = time.monotonic() - start
    session = _raw(sess)  # without hooks: these are no steps
    if "should_log" in train_step_kwargs and session.run(train_step_kwargs["should_log"]):
        step = int(session.run(global_step))
        logging.info("global step %d: loss = %.4f (%.3f sec/step)", step, loss, seconds)
    if "should_stop" not in train_step_kwargs:
        return loss, False
    return loss, bool(session.run(train_step_kwargs["should_stop"]))


def _raw(sess: Any) -> Session:
    raw = getattr(sess, "_tf_sess", None)
    return raw() if callable(raw) else sess  # type: ignore[no-any-return]


def train(
    train_op: Any,
    logdir: Any,
    train_step_fn: Callable[[Any, Any, Any, Any], tuple[Any, bool]] = train_step,
    train_step_kwargs: Any = _USE_DEFAULT,
    log_every_n_steps: int = 1,
    graph: Graph | None = None,
    master: str = "",
    is_chief: bool = True,
    global_step: Any = None,
    number_of_steps: int | None = None,
    init_op: Any = _USE_DEFAULT,
    init_feed_dict: Mapping[Any, Any] | None = None,
    local_init_op: Any = _USE_DEFAULT,
    init_fn: Callable[[Session], Any] | None = None,
    ready_op: Any = _USE_DEFAULT,
    summary_op: Any = _USE_DEFAULT,
    save_summaries_secs: float = 600,
    summary_writer: Any = _USE_DEFAULT,
    startup_delay_steps: int = 0,
    saver: Any = None,
    save_interval_secs: float = 600,
    sync_optimizer: Any = None,
    session_config: Any = None,
    session_wrapper: Callable[[Any], Any] | None = None,
    trace_every_n_steps: int | None = None,
    ignore_live_threads: bool = False,
) -> Any:
    """Run `train_op` until `number_of_steps`, or the end of the data; gives the last loss.

    A run that ended, or was killed, goes on from its last checkpoint when it is started again, as
    `tf.contrib.training.train` does, on which it is built.

    Args:
        train_op: what to run; it gives the loss.
        logdir: the directory of checkpoints and event files; None writes nothing.
        train_step_fn: a function of session, train_op, global_step and train_step_kwargs that
            takes a step; it gives the loss and whether to stop.
        train_step_kwargs: what it is given; see `train_step`.
        log_every_n_steps: steps from one line in the log to the next; 0 for none.
        graph: the graph; the default graph if None.
        master: only "" works: this process.
        is_chief: whether this process saves and writes.
        global_step: the step's variable; the graph's if None.
        number_of_steps: the step to stop at; None for no end.
        init_op: sets variables where there is no checkpoint; all global variables by default.
        init_feed_dict: what to feed to it.
        local_init_op: sets what no checkpoint holds; all local variables by default.
        init_fn: a function of the session, called after init_op.
        ready_op: gives the names of variables that still hold nothing.
        summary_op: the summary to write; all of the collection by default, None for none.
        save_summaries_secs: seconds from one summary to the next.
        summary_writer: a writer to use; None writes no summaries.
        startup_delay_steps: accepted as in TF; a worker's session is its own.
        saver: the Saver; one of all variables if None.
        save_interval_secs: seconds from one checkpoint to the next.
        sync_optimizer: must be None: a session runs in one process.
        session_config: a `ConfigProto`.
        session_wrapper: a function of the session that gives what train_step_fn gets.
        trace_every_n_steps: must be None: no traces are recorded.
        ignore_live_threads: accepted as in TF.

    Raises:
        ValueError: an argument is bad, or goes with a logdir only.
        RuntimeError: another session trains in the directory.
        NotFoundError, InvalidArgumentError: the checkpoint does not fit the variables.

    Source: tf.contrib.slim.learning.train.
    """
    if train_op is None:
        raise ValueError("train_op: expected an operation, got None")
    if logdir is None:
        if not _is_default(summary_op):
            raise ValueError("summary_op: goes with a logdir")
        if saver is not None:
            raise ValueError("saver: goes with a logdir")
    if sync_optimizer is not None or trace_every_n_steps is not None:
        raise ValueError(
            "sync_optimizer, trace_every_n_steps: expected None: a session runs in one process and "
            "records no traces"
        )
    if number_of_steps is not None and number_of_steps <= 0:
        raise ValueError(f"number_of_steps: expected a number above 0, got {number_of_steps}")
    graph = graph if graph is not None else get_default_graph()
    with graph.as_default():
        step = global_step if global_step is not None else get_or_create_global_step()
        if _is_default(train_step_kwargs):
            train_step_kwargs = _step_tensors(step, number_of_steps, log_every_n_steps)
        scaffold = Scaffold(
            init_op=_or_none(init_op),
            init_feed_dict=init_feed_dict,
            init_fn=None if init_fn is None else lambda _, session: init_fn(session),
            ready_op=_or_none(ready_op),
            local_init_op=_or_none(local_init_op),
            summary_op=_or_none(summary_op),
            saver=saver if saver is not None else Saver(allow_empty=True),
        )
        hooks: list[Any] = []
        if logdir is not None and is_chief:
            if summary_op is not None and summary_writer is not None:
                own = None if _is_default(summary_writer) else summary_writer
                hooks.append(
                    SummarySaverHook(
                        save_secs=save_summaries_secs,
                        output_dir=logdir,
                        summary_writer=own,
                        scaffold=scaffold,
                    )
                )
            hooks.append(
                CheckpointSaverHook(logdir, save_secs=save_interval_secs, scaffold=scaffold)
            )
        creator = (
            ChiefSessionCreator(scaffold, master, session_config, logdir)
            if is_chief
            else WorkerSessionCreator(scaffold, master, session_config)
        )
        directories = [logdir] if logdir is not None and is_chief else []
        with guarded_session(creator, hooks, directories) as session:
            return _steps(
                session, session_wrapper, train_step_fn, train_op, step, train_step_kwargs
            )


def _steps(
    session: MonitoredSession,
    session_wrapper: Callable[[Any], Any] | None,
    train_step_fn: Callable[[Any, Any, Any, Any], tuple[Any, bool]],
    train_op: Any,
    step: Any,
    train_step_kwargs: Any,
) -> Any:
    """Steps until one is the last; the loss of that."""
    loss = None
    used = session if session_wrapper is None else session_wrapper(session)
    try:
        while not session.should_stop():
            loss, stop = train_step_fn(used, train_op, step, train_step_kwargs)
            if stop:
                break
    except OutOfRangeError as error:
        logging.info("the data is at its end: %s", error)
    return loss


def _step_tensors(step: Any, number_of_steps: int | None, every: int) -> dict[str, Any]:
    """What `train_step` evaluates after a step."""
    with get_default_graph().name_scope("train_step"):
        stop = constant(False) if number_of_steps is None else greater_equal(step, number_of_steps)
        tensors = {"should_stop": stop}
        if every > 0:
            tensors["should_log"] = equal(mod(step, every), 0)
        return tensors


def _is_default(value: Any) -> bool:
    return type(value) is int and value == _USE_DEFAULT


def _or_none(value: Any) -> Any:
    return None if _is_default(value) else value
