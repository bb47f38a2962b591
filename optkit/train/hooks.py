"""The hooks of `tf.train` that watch a session and end it; and the timer that they share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from optkit import logging
from optkit.errors import NanLossDuringTrainingError
from optkit.global_step import get_global_step
from optkit.graph import Operation, get_default_graph, is_symbolic
from optkit.runtime import Session
from optkit.train.checks import require_plain
from optkit.train.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from optkit.train.training_state import current_step

__all__ = [
    "FeedFnHook",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "LoggingTensorHook",
    "NanTensorHook",
    "SecondOrStepTimer",
    "StopAtStepHook",
    "required_step",
]


def required_step(hook: str) -> Any:
    """The default graph's global step.

    Raises:
        RuntimeError: there is none.
    """
    step = get_global_step()
    if step is None:
        raise RuntimeError(
            f"{hook}: the graph has no global step; call get_or_create_global_step() and pass it "
            "to the train op"
        )
    return step


def _check_interval(owner: str, **given: float | None) -> None:
    """Of a number of seconds and one of steps exactly one is given, and is above 0."""
    chosen = {name: value for name, value in given.items() if value is not None}
    if len(chosen) != 1:
        raise ValueError(
            f"{owner}: {', '.join(given)}: expected exactly one of them, got "
            f"{' and '.join(repr(value) for value in given.values())}"
        )
    ((name, value),) = chosen.items()
    require_plain(owner, name, value, whole="secs" not in name, above=0)


class SecondOrStepTimer:
    """Tells when something that is done every so many seconds or steps is due.

    It is due at the first step that it is asked for, and never twice at one step.

    Args:
        every_secs: seconds from one time to the next.
        every_steps: steps from one time to the next.

    Raises:
        TypeError: one is no number, or the steps are no integer.
        ValueError: not exactly one of them is given, or it is not above 0.
    """

    def __init__(self, every_secs: float | None = None, every_steps: int | None = None) -> None:
        _check_interval("SecondOrStepTimer", every_secs=every_secs, every_steps=every_steps)
        self._every_secs = every_secs
        self._every_steps = every_steps
        self.reset()

    def reset(self) -> None:
        """Forget when it was last done."""
        self._last_step: int | None = None
        self._last_time: float | None = None

    def should_trigger_for_step(self, step: int) -> bool:
        """Whether it is due at `step`."""
        if self._last_step is None:
            return True
        if step == self._last_step:
            return False
        if self._every_secs is not None:
            # The time is unknown after a restart: it counts from then on.
            if self._last_time is None:
                self._last_time = time.monotonic()
            return time.monotonic() >= self._last_time + self._every_secs
        assert self._every_steps is not None
        return step >= self._last_step + self._every_steps

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Note that it was done at `step`; the seconds and steps since the time before, or Nones.

        The seconds are of a clock that nobody sets.
        """
        now = time.monotonic()
        seconds = None if self._last_time is None else now - self._last_time
        steps = None if self._last_step is None else step - self._last_step
        self._last_time, self._last_step = now, step
        return (seconds, steps) if seconds is not None and steps is not None else (None, None)

    def last_triggered_step(self) -> int | None:
        """The step at which it was last done; None before."""
        return self._last_step

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` takes: the step at which it was last done."""
        return {"last_step": self._last_step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on as if it had last been done at that step."""
        step = state.get("last_step")
        self._last_step = None if step is None else int(step)
        self._last_time = None


class StopAtStepHook(SessionRunHook):
    """Stops after so many steps, or at a step.

    It looks after each run, so one run always takes place; but a run that is started again, and
    had come as far as `last_step`, is at its end at once: it takes no further step.

    Args:
        num_steps: how many steps to take from where the session starts.
        last_step: the step to stop at.

    Raises:
        ValueError: not exactly one of them is given.
        RuntimeError: at the start, the graph has no global step.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if (num_steps is None) is (last_step is None):
            raise ValueError(
                "num_steps, last_step: expected exactly one of them, got "
                f"{num_steps!r} and {last_step!r}"
            )
        self._num_steps = num_steps
        self._last_step = last_step
        self._global_step: Any = None

    def begin(self) -> None:
        """Find the global step."""
        self._global_step = required_step("StopAtStepHook")

    def after_create_session(self, session: Session, coord: Any) -> None:
        """Work out where to stop."""
        step = _step(session, self._global_step)
        if self._num_steps is not None:
            self._last_step = step + self._num_steps
        elif self._last_step is not None and step > 0 and self._last_step <= step:
            coord.request_stop()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Ask for the stop."""
        assert self._last_step is not None
        if _step(run_context.session, self._global_step) >= self._last_step:
            run_context.request_stop()


def _step(session: Session, step: Any) -> int:
    found = current_step(session, step)
    assert found is not None
    return found


class NanTensorHook(SessionRunHook):
    """Ends the training when the loss is NaN.

    Args:
        loss_tensor: the loss, shape ().
        fail_on_nan_loss: whether to raise; else training stops, with a warning.

    Raises:
        NanLossDuringTrainingError: after a run with a NaN loss.
        ValueError: the loss is no scalar.
    """

    def __init__(self, loss_tensor: Any, fail_on_nan_loss: bool = True) -> None:
        self._loss = loss_tensor
        self._fails = fail_on_nan_loss

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Fetch the loss."""
        return SessionRunArgs(self._loss)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Look at it."""
        loss = np.asarray(run_values.results)
        if loss.ndim:
            raise ValueError(f"loss_tensor: expected a scalar, got shape {loss.shape}")
        if not np.isnan(loss):
            return
        step = current_step(run_context.session)
        at = "" if step is None else f" at step {step}"
        if self._fails:
            raise NanLossDuringTrainingError(f"the loss {_name(self._loss)} is NaN{at}")
        logging.warning("the loss %s is NaN%s: training stops", _name(self._loss), at)
        run_context.request_stop()


def _name(item: Any) -> str:
    return item if isinstance(item, str) else str(getattr(item, "name", item))


class LoggingTensorHook(SessionRunHook):
    """Writes values of tensors to the log of "optkit", at the level INFO.

    Args:
        tensors: tensors or names of them, or a dict from what they are called in the log.
        every_n_iter: runs from one time to the next.
        every_n_secs: seconds from one time to the next.
        at_end: whether to write them once more at the end, or only then.
        formatter: a function from a dict, name -> value, to the line.

    Raises:
        TypeError: tensors is no list or dict, or one of every_n_iter and every_n_secs no number.
        ValueError: both or, without at_end, none of them are given, or one is not above 0; at the
            start, an operation has no output, or several.
        KeyError: at the start, the graph has nothing of a name.
    """

    def __init__(
        self,
        tensors: Any,
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[Mapping[str, Any]], str] | None = None,
    ) -> None:
        if not at_end or every_n_iter is not None or every_n_secs is not None:
            _check_interval(
                "LoggingTensorHook", every_n_secs=every_n_secs, every_n_iter=every_n_iter
            )
        if isinstance(tensors, str) or is_symbolic(tensors) or not isinstance(tensors, Iterable):
            raise TypeError(f"tensors: expected a list or dict of tensors, got {tensors!r}")
        named = tensors if isinstance(tensors, Mapping) else {_name(item): item for item in tensors}
        self._tensors = dict(named)
        self._order = sorted(named) if isinstance(tensors, Mapping) else list(named)
        self._formatter = formatter
        self._at_end = at_end
        self._timer: SecondOrStepTimer | None = None
        if every_n_iter is not None or every_n_secs is not None:
            self._timer = SecondOrStepTimer(every_secs=every_n_secs, every_steps=every_n_iter)
        self._found: dict[str, Any] = {}
        self._runs = 0
        self._due = False

    def begin(self) -> None:
        """Look the tensors up."""
        self._found = {key: _element(item) for key, item in self._tensors.items()}
        self._runs = 0
        if self._timer is not None:
            self._timer.reset()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Fetch the tensors when they are due."""
        self._due = self._timer is not None and self._timer.should_trigger_for_step(self._runs)
        return SessionRunArgs(self._found) if self._due else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Write them."""
        if self._due:
            self._log(run_values.results)
        self._runs += 1

    def end(self, session: Session) -> None:
        """Write them once more, when asked to."""
        if self._at_end:
            self._log(session.run(self._found))

    def _log(self, values: Mapping[str, Any]) -> None:
        seconds = None
        if self._timer is not None:
            seconds, _ = self._timer.update_last_triggered_step(self._runs)
        if self._formatter is not None:
            logging.info("%s", self._formatter(values))
            return
        line = ", ".join(f"{key} = {values[key]}" for key in self._order)
        logging.info("%s%s", line, "" if seconds is None else f" ({seconds:.3f} sec)")


def _element(item: Any) -> Any:
    """A tensor of the default graph; an operation's name stands for its one output."""
    element = get_default_graph().as_graph_element(item)
    if not isinstance(item, str) or not isinstance(element, Operation):
        return element
    if len(element.outputs) != 1:
        raise ValueError(
            f"tensors: {item!r} is an operation with {len(element.outputs)} outputs; name a "
            f"tensor, such as '{item}:0'"
        )
    return element.outputs[0]


class FinalOpsHook(SessionRunHook):
    """Evaluates tensors at the end of a session that ends well.

    Args:
        final_ops: what to fetch, in any nesting.
        final_ops_feed_dict: what to feed.
    """

    def __init__(self, final_ops: Any, final_ops_feed_dict: Any = None) -> None:
        self._final_ops = final_ops
        self._feed_dict = final_ops_feed_dict
        self._values: Any = None

    @property
    def final_ops_values(self) -> Any:
        """The values; None before the end."""
        return self._values

    def end(self, session: Session) -> None:
        """Evaluate them."""
        if self._final_ops is not None:
            self._values = session.run(self._final_ops, self._feed_dict)


class GlobalStepWaiterHook(SessionRunHook):
    """Holds the first run back until the global step has come so far.

    Something else has to count it: another thread that uses the session.

    Args:
        wait_until_step: the step; 0 and less hold nothing back.

    Raises:
        RuntimeError: at the start, the graph has no global step.
    """

    def __init__(self, wait_until_step: int) -> None:
        self._until = wait_until_step
        self._waited = False
        self._global_step: Any = None

    def begin(self) -> None:
        """Find the global step."""
        self._global_step = required_step("GlobalStepWaiterHook")

    def before_run(self, run_context: SessionRunContext) -> None:
        """Wait, looking twice a second."""
        if self._waited or self._until <= 0:
            return
        logging.info("waiting for the global step %d", self._until)
        told = time.monotonic()
        while (step := _step(run_context.session, self._global_step)) < self._until:
            if time.monotonic() - told >= 60:
                told = time.monotonic()
                logging.info("the global step is %d; waiting for %d", step, self._until)
            time.sleep(0.5)
        self._waited = True


class FeedFnHook(SessionRunHook):
    """Feeds what a function gives, anew for each run.

    A function that has `state_dict` and `load_state_dict` keeps its position in checkpoints.

    Args:
        feed_fn: a function without arguments that gives a feed dict.

    Raises:
        TypeError: it is no function.
    """

    def __init__(self, feed_fn: Callable[[], Mapping[Any, Any]]) -> None:
        if not callable(feed_fn):
            raise TypeError(f"feed_fn: expected a function, got {feed_fn!r}")
        self.feed_fn = feed_fn

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Call it."""
        return SessionRunArgs(None, self.feed_fn())

    def state_dict(self) -> dict[str, Any]:
        """The function's own, if it has one."""
        own = getattr(self.feed_fn, "state_dict", None)
        return dict(own()) if callable(own) else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give the function its state back."""
        own = getattr(self.feed_fn, "load_state_dict", None)
        if callable(own):
            own(state)
