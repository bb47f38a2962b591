"""`train`: the loop around a train op."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from optkit.train.monitored_session import MonitoredTrainingSession
from optkit.train.nonfinite import check_policy
from optkit.train.nonfinite_hook import NonFiniteHook
from optkit.train.scaffold import Scaffold
from optkit.train.session_run_hook import listed_hooks

__all__ = ["train"]


def train(
    train_op: Any,
    logdir: Any,
    master: str = "",
    is_chief: bool = True,
    scaffold: Scaffold | None = None,
    hooks: Iterable[Any] | None = None,
    chief_only_hooks: Iterable[Any] | None = None,
    save_checkpoint_secs: float | None = 600,
    save_summaries_steps: int | None = 100,
    config: Any = None,
    max_wait_secs: float = 7200,
    run_metadata: Any = None,
    *,
    on_nonfinite: str = "ignore",
) -> Any:
    """Run `train_op` until a hook asks for the end; gives its last value, None if it never ran.

    A run that ended, or was killed, goes on from its last checkpoint when it is started again:
    with the same variables, and the same events, as one that was not.

    Args:
        train_op: what to run, such as `create_train_op` gives.
        logdir: the directory of checkpoints and event files; None writes nothing.
        master: only "" works: this process.
        is_chief: whether this process saves and writes.
        scaffold: a `tf.train.Scaffold`; a new one if None.
        hooks: `tf.train.SessionRunHook`s; a `StopAtStepHook`, say, ends the training.
        chief_only_hooks: those for the chief only.
        save_checkpoint_secs: seconds from one checkpoint to the next; None saves none.
        save_summaries_steps: steps from one summary to the next; None writes none.
        config: a `ConfigProto`.
        max_wait_secs: accepted as in TF; there is nothing to wait for.
        run_metadata: a `RunMetadata`.
        on_nonfinite: what to do when the loss or a gradient is not finite, which is found before
            anything is written: "ignore" (as TF: only `create_train_op`'s check_numerics raises),
            "raise" to explain where it came from, "skip" to leave the step out, "rollback" to go
            back to where training was up to 100 steps before; see `NonFiniteHook`.

    Raises:
        ValueError: logdir is None and a save_ argument is not; on_nonfinite is none of its values.
        NonFiniteError: the loss or a gradient is not finite; nothing has changed.
        RuntimeError: another session trains in the directory; there is no global step.
        NotFoundError, InvalidArgumentError: the checkpoint does not fit the variables.

    Source: tf.contrib.training.train.
    """
    if logdir is None and is_chief:
        for name, value in (
            ("save_summaries_steps", save_summaries_steps),
            ("save_checkpoint_secs", save_checkpoint_secs),
        ):
            if value:
                raise ValueError(f"logdir: expected a directory, got None with {name}={value!r}")
    hooks = listed_hooks("hooks", hooks)
    if check_policy(on_nonfinite) != "ignore":
        hooks.append(NonFiniteHook(train_op, on_nonfinite, folder=logdir if is_chief else None))
    loss = None
    with MonitoredTrainingSession(
        master=master,
        is_chief=is_chief,
        checkpoint_dir=logdir,
        scaffold=scaffold,
        hooks=hooks,
        chief_only_hooks=chief_only_hooks,
        save_checkpoint_secs=save_checkpoint_secs,
        save_summaries_steps=save_summaries_steps,
        config=config,
        max_wait_secs=max_wait_secs,
    ) as session:
        while not session.should_stop():
            value = session.run(train_op, run_metadata=run_metadata)
            loss = loss if value is None else value
    return loss
