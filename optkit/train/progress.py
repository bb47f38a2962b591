"""How `fit` shows where it is: a bar in a terminal or notebook, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any, Protocol, TextIO

from summaries._rank import is_chief

__all__ = ["Lines", "NoProgress", "Progress", "progress"]


class Progress(Protocol):
    """What shows progress; `every` is how many seconds apart it wants to hear."""

    every: float

    def show(self, step: int, values: dict[str, float]) -> None:
        """The newest step and its values."""

    def write(self, text: str) -> None:
        """A line of its own."""

    def close(self) -> None:
        """The end; may be called twice."""


class NoProgress:
    """Shows nothing."""

    every = float("inf")

    def show(self, step: int, values: dict[str, float]) -> None:
        """Nothing."""

    def write(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Lines:
    """A line every few seconds, for log files and pipes."""

    def __init__(self, start: int, total: int | None, stream: TextIO, every: float = 5.0) -> None:
        self.every = every
        self._start = start
        self._total = total
        self._stream = stream
        self._begin = time.perf_counter()
        self._last: tuple[int, dict[str, float]] | None = None
        self._shown = start

    def show(self, step: int, values: dict[str, float]) -> None:
        """Write the line."""
        self._last = step, values
        seconds = time.perf_counter() - self._begin
        rate = (step - self._start) / seconds if seconds else 0.0
        of = "" if self._total is None else f"/{self._total}"
        texts = [f"{name} {_short(value)}" for name, value in values.items()]
        self.write(f"step {step}{of}: {', '.join([*texts, f'{rate:.4g} steps/s'])}")
        self._shown = step

    def write(self, text: str) -> None:
        """Write a line."""
        try:
            self._stream.write(text + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # nobody reads any more, which is no reason to stop training
            self.every = float("inf")

    def close(self) -> None:
        """Nothing is left to write."""


class _Bar:
    """tqdm's bar."""

    every = 0.1

    def __init__(self, start: int, total: int | None, stream: TextIO) -> None:
        # tqdm warns where a notebook has no widgets, and shows a plain bar then.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from tqdm.auto import tqdm

            self._bar: Any = tqdm(
                total=total,
                initial=start,
                unit="step",
                file=None if _in_notebook() else stream,
                dynamic_ncols=True,
                mininterval=0,
                smoothing=0.1,
            )

    def show(self, step: int, values: dict[str, float]) -> None:
        """Move the bar."""
        texts = [f"{name} {_short(value)}" for name, value in values.items()]
        self._bar.set_postfix_str(", ".join(texts), refresh=False)
        self._bar.update(step - self._bar.n)

    def write(self, text: str) -> None:
        """A line above the bar."""
        self._bar.write(text, file=None if _in_notebook() else self._bar.fp)

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.close()


def progress(wanted: bool | None, start: int, total: int | None) -> Progress:
    """A bar where there is a terminal or notebook, lines elsewhere, nothing where not wanted.

    Args:
        wanted: None shows something unless this is another rank than 0 of a parallel run.
        start: the step to start from.
        total: the step to reach, if it is known.
    """
    if wanted is False or not is_chief():
        return NoProgress()
    stream = sys.stderr
    if stream is None:  # a program without a console
        return NoProgress()
    if _in_notebook() or stream.isatty():
        return _Bar(start, total, stream)
    return Lines(start, total, stream)


def _short(value: float) -> str:
    return f"{value:.4g}"


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    found = shell.get_ipython() if shell is not None else None
    # Colab's and others' shells are subclasses of Jupyter's.
    return any(kind.__name__ == "ZMQInteractiveShell" for kind in type(found).__mro__)
