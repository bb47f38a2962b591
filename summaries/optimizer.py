"""The summaries of an optimizer's steps, for a training loop of any kind."""

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, SupportsFloat

from summaries import encode
from summaries._arrays import real_array
from summaries._warn import warn_once
from summaries.event_log import EventLog
from summaries.histogram import measure, sum_squares
from summaries.steps import Step
from summaries.tags import TagBook
from summaries.writer import SummaryWriter

OPTIMIZER_SUMMARIES = [
    "learning_rate",
    "loss",
    "gradients",
    "gradient_norm",
    "global_gradient_norm",
]


class OptimizerSummaries:
    """Writes loss, learning rate, gradients and their norms, in one event a step.

    The tags are those of TensorFlow 1's `optimize_loss`, with `:` in a name written as `_`:
    `loss`, `learning_rate`, `global_norm/gradient_norm`, and for each variable `gradients/<name>`
    (a histogram) and `gradient_norm/<name>`.

    Args:
        logdir: the directory of the run, or the EventLog or SummaryWriter that is open there, which
            is then not closed with this object.
        summaries: which of OPTIMIZER_SUMMARIES are written; None is all of them.
        scope: comes before each tag, with a slash; TensorFlow's is "OptimizeLoss".
        buckets: the grid of the histograms, see `encode_histogram`.

    Raises:
        OSError: the directory cannot be created or written.
        ValueError: an unknown summary.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str] | EventLog | SummaryWriter,
        summaries: Iterable[str] | None = None,
        *,
        scope: str | None = None,
        buckets: str = "fast",
    ) -> None:
        self._wanted = _checked_names(OPTIMIZER_SUMMARIES if summaries is None else summaries)
        self._prefix = f"{scope}/" if scope else ""
        self._buckets = buckets
        self._tags = TagBook()
        self._owns_log = not isinstance(logdir, EventLog | SummaryWriter)
        if isinstance(logdir, SummaryWriter):
            self._log = logdir.log
        else:
            self._log = logdir if isinstance(logdir, EventLog) else EventLog(logdir)

    @property
    def logdir(self) -> Path:
        """The directory of the run."""
        return self._log.logdir

    def step(
        self,
        n: Step | None,
        *,
        loss: object = None,
        learning_rate: object = None,
        gradients: Mapping[str, object] | None = None,
        global_norm: object = None,
        wall_time: SupportsFloat | None = None,
    ) -> None:
        """Write the summaries of step n, as far as they were asked for and their value is given.

        Args:
            n: the step, see `EventLog.add_summary`.
            loss: a number or 0-d array.
            learning_rate: a number or 0-d array.
            gradients: the gradient of each variable by its name, arrays of any kind and shape; None
                is a variable without one.
            global_norm: √Σ‖g‖² where it is known already, say from before clipping; None computes
                it from the gradients.
            wall_time: seconds since 1970; None is now.

        Raises:
            OSError, TypeError, ValueError: as `encode_scalar`, `encode_histogram` and
                `EventLog.add_summary` do; nothing is written then.
        """
        parts = []
        for name, value in (("loss", loss), ("learning_rate", learning_rate)):
            if value is not None and name in self._wanted:
                parts.append(self._scalar(name, value))
        present = {name: g for name, g in (gradients or {}).items() if g is not None}
        squares, variable_parts = self._variables(present)
        if "global_gradient_norm" in self._wanted:
            norm = "global_norm/gradient_norm"
            if global_norm is not None:
                parts.append(self._scalar(norm, global_norm))
            elif present:
                tag = self._tags.clean(self._prefix + norm)
                parts.append(encode.encode_scalar(tag, math.sqrt(squares)))
        self._log.add_summary(b"".join(parts + variable_parts), n, wall_time)

    def flush(self) -> None:
        """Return when everything written so far is in the file, for any process to read."""
        self._log.flush()

    def close(self) -> None:
        """Close the event log, unless it was given."""
        if self._owns_log:
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _scalar(self, name: str, value: object) -> bytes:
        tag = self._tags.clean(self._prefix + name)
        number = encode.real_scalar(tag, value)
        if not math.isfinite(number):
            warn_once("scalar", tag, message=f"the scalar {tag!r} is {number}")
        return encode.encode_scalar(tag, number)

    def _variables(self, gradients: Mapping[str, object]) -> tuple[float, list[bytes]]:
        """Σ‖g‖² over the gradients, and the summaries of each; an array is read once."""
        wanted = self._wanted
        if wanted.isdisjoint({"gradients", "gradient_norm", "global_gradient_norm"}):
            return 0.0, []
        total, parts = 0.0, []
        for name, gradient in gradients.items():
            tag = self._tags.clean(f"{self._prefix}gradients/{name}")
            array = real_array(tag, gradient)
            if "gradients" in wanted:
                histogram = measure(array, self._buckets)
                parts.append(encode.histogram_bytes(tag, histogram))
                squares = histogram.norm**2
            else:
                squares = sum_squares(array)
                if not math.isfinite(squares):
                    warn_once("nonfinite", tag, message=f"values of {tag!r} are NaN or infinite")
            if "gradient_norm" in wanted:
                norm_tag = self._tags.clean(f"{self._prefix}gradient_norm/{name}")
                parts.append(encode.encode_scalar(norm_tag, math.sqrt(squares)))
            total += squares
        return total, parts


def _checked_names(summaries: Iterable[str]) -> frozenset[str]:
    names = [summaries] if isinstance(summaries, str) else list(summaries)
    for name in names:
        if name not in OPTIMIZER_SUMMARIES:
            known = ", ".join(OPTIMIZER_SUMMARIES)
            raise ValueError(f"summaries must be among {known}, not {name!r}")
    return frozenset(names)
