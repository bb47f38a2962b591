"""What ends a `fit` before its last step: no more progress, a loss that explodes, Ctrl-C."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Mapping
from types import FrameType, TracebackType
from typing import Any

from optkit.train.checks import require_plain

__all__ = ["Divergence", "EarlyStopping", "Interruption"]


class EarlyStopping:
    """Ends training when a measured quantity has not improved for a while.

    It is asked each time the quantity is measured: after each evaluation for "eval/...", after
    each step for the columns of training.

    Args:
        monitor: the name of a column of the History, e.g. "eval/loss".
        patience: how many measurements without improvement are too many, at least 1.
        min_delta: by how much a value must be better than the best one, >= 0.
        mode: "min" or "max", what is better.

    Raises:
        TypeError: `monitor` is no string, or another value no number.
        ValueError: a value is out of its range.
    """

    def __init__(
        self, monitor: str, patience: int = 5, min_delta: float = 0.0, mode: str = "min"
    ) -> None:
        if not isinstance(monitor, str):
            raise TypeError(f"EarlyStopping: monitor: expected a column's name, got {monitor!r}")
        require_plain("EarlyStopping", "patience", patience, whole=True, at_least=1)
        require_plain("EarlyStopping", "min_delta", min_delta, at_least=0)
        if mode not in ("min", "max"):
            raise ValueError(f"mode: expected 'min' or 'max', got {mode!r}")
        self.monitor = monitor
        self.patience = patience
        self.min_delta = min_delta
        self.mode = mode
        self.best: float | None = None
        self.best_step: int | None = None
        self.waited = 0

    def judge(self, step: int, value: float) -> bool:
        """Take a measurement; whether training is to end. NaN is no improvement."""
        better = not math.isnan(value) and (
            self.best is None
            or (self.best - value if self.mode == "min" else value - self.best) > self.min_delta
        )
        if better:
            self.best, self.best_step, self.waited = value, step, 0
        else:
            self.waited += 1
        return self.waited >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """What it has seen, as JSON values."""
        return {"best": self.best, "best_step": self.best_step, "waited": self.waited}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.best = None if state["best"] is None else float(state["best"])
        self.best_step = None if state["best_step"] is None else int(state["best_step"])
        self.waited = int(state["waited"])

    def reset(self) -> None:
        """Forget what was seen."""
        self.load_state_dict({"best": None, "best_step": None, "waited": 0})


class Divergence:
    """A loss is too large when it is not finite, or above m + (k − 1)·|m|, m the least so far.

    For positive losses that is k times the least.

    Args:
        factor: k, above 1; None judges nothing.

    Raises:
        TypeError: the factor is no number.
        ValueError: it is not above 1.
    """

    def __init__(self, factor: float | None) -> None:
        if factor is not None:
            require_plain("fit", "divergence", factor, above=1)
        self.factor = factor
        self.least = math.inf
        self.limit = math.inf

    def see(self, loss: float) -> bool:
        """Take a loss; whether it is too large."""
        if self.factor is None:
            return False
        if loss < self.least:
            self.least = loss
            self.limit = loss + (self.factor - 1) * abs(loss)
        # NaN is below nothing, and an infinite loss is too large from the first on.
        return not (loss <= self.limit and loss < math.inf)

    def state_dict(self) -> dict[str, Any]:
        """What it has seen, as JSON values."""
        return {"least": self.least if math.isfinite(self.least) else None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.least = self.limit = math.inf
        if state["least"] is not None:
            self.see(float(state["least"]))


class Interruption:
    """Turns the first Ctrl-C into a request; the second raises KeyboardInterrupt.

    It does nothing outside the main thread, where Python sets no handlers, and where the program
    has a handler of its own.

    Args:
        tell: called with what to tell the user at the first one.

    Attributes:
        requested: whether it came.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.requested = False
        self._tell = tell
        self._before: Any = None

    def __enter__(self) -> Interruption:
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._came)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    def _came(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self._tell("Ctrl-C: stopping after this step; once more stops at once")
