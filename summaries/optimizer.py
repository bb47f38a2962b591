"""The summaries of an optimizer's steps, for a training loop of any kind."""

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, SupportsFloat

from summaries.cadence import Cadence
from summaries.event_log import EventLog
from summaries.event_queue import PATIENCE
from summaries.metadata import Annotator, Notes, SummaryBytes
from summaries.quantities import EXTRA_SUMMARIES
from summaries.step_parts import Arrays, Quantities, StepParts
from summaries.steps import Step, check_step
from summaries.writer import SummaryWriter

OPTIMIZER_SUMMARIES = [
    "learning_rate",
    "loss",
    "gradients",
    "gradient_norm",
    "global_gradient_norm",
]

_KNOWN = (*OPTIMIZER_SUMMARIES, *EXTRA_SUMMARIES)
# What a step is given of the variables has no other use: giving it is asking for these.
_DEFAULT = (*OPTIMIZER_SUMMARIES, "weights", "weight_norm", "update_ratio")


class OptimizerSummaries:
    """Writes loss, learning rate, gradients, weights and their norms, in one event a step.

    The tags are those of TensorFlow 1's `optimize_loss`, with `:` in a name written as `_`:
    `loss`, `learning_rate`, `global_norm/gradient_norm`, and for each variable `gradients/<name>`
    (a histogram) and `gradient_norm/<name>`; those of EXTRA_SUMMARIES are `<summary>/<name>`.

    Arrays may be NumPy's, CuPy's, PyTorch's, JAX's, or any that NumPy or DLPack takes. One that
    lives on a device is copied to the host, or counted where it is if a counter for its kind is
    registered, as `import optkit` does for CuPy.

    Args:
        logdir: the directory of the run, or the EventLog or SummaryWriter that is open there, which
            is then not closed with this object. In a writer's `step` the summaries are part of
            that step's event, and of its cadence.
        summaries: which of OPTIMIZER_SUMMARIES and EXTRA_SUMMARIES are written. None is all of
            the former and, of steps that are given weights, `weights` and `weight_norm`, and given
            updates too `update_ratio`; an empty list is none.
        scope: comes before each tag, with a slash; TensorFlow's is "OptimizeLoss".
        buckets: the grid of the histograms, see `encode_histogram`.
        layout: whether a layout of TensorBoard's page of custom scalars is written with the first
            step.
        every_n_steps: write scalars every so many steps; what is left out is not looked at.
        every_secs: the same in seconds.
        histograms_every_n_steps: the same for histograms.
        histograms_every_secs: the same in seconds.
        resume_step: the step at which a resumed run goes on, see `EventLog` (`start_step`).
        on_error: "raise", or "warn" to issue warnings for errors of the disk, and for values that
            are refused, and go on.
        write_to_disk: see `EventLog`.

    Raises:
        OSError: the directory cannot be created or written.
        ValueError: an unknown summary, or an argument is out of its range.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str] | EventLog | SummaryWriter,
        summaries: Iterable[str] | None = None,
        *,
        scope: str | None = None,
        buckets: str | int = "fast",
        layout: bool = True,
        every_n_steps: int | None = None,
        every_secs: float | None = None,
        histograms_every_n_steps: int | None = None,
        histograms_every_secs: float | None = None,
        resume_step: Step | None = None,
        on_error: Literal["raise", "warn"] = "raise",
        write_to_disk: bool | None = None,
    ) -> None:
        self._quantities = Quantities(
            _checked_names(_DEFAULT if summaries is None else summaries),
            f"{scope}/" if scope else "",
            buckets,
            warns=on_error == "warn",
        )
        self._scalar_cadence = Cadence(every_n_steps, every_secs)
        self._histogram_cadence = Cadence(histograms_every_n_steps, histograms_every_secs)
        self._layout = layout
        self._writer = logdir if isinstance(logdir, SummaryWriter) else None
        self._owns_log = not isinstance(logdir, EventLog | SummaryWriter)
        if isinstance(logdir, SummaryWriter):
            self._log = logdir.log
        elif isinstance(logdir, EventLog):
            self._log = logdir
        else:
            self._log = EventLog(
                logdir, start_step=resume_step, on_error=on_error, write_to_disk=write_to_disk
            )
        self._annotated = Annotator(layout=layout)

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
        gradients: Arrays | None = None,
        weights: Arrays | None = None,
        updates: Arrays | None = None,
        unclipped: Arrays | None = None,
        global_norm: object = None,
        wall_time: SupportsFloat | None = None,
    ) -> None:
        """Write the summaries of step n, as far as they were asked for and their value is given.

        In the mappings from a variable's name to an array of any shape, None is a variable that
        has none.

        Args:
            n: the step, see `EventLog.add_summary`.
            loss: a number or 0-d array.
            learning_rate: a number or 0-d array.
            gradients: the gradients, as the optimizer gets them.
            weights: the variables before the step: for `weights`, `weight_norm`, `sparsity` and
                `update_ratio`.
            updates: what the step adds to the variables, for `update_ratio` (‖update‖ / ‖weight‖).
            unclipped: the gradients before they were clipped: the global norm and `nonfinite` are
                then theirs, the norm of `gradients` is `global_norm/clipped_gradient_norm`, and
                `clip_fraction` is 1 - ‖gradient‖ / ‖unclipped gradient‖.
            global_norm: √Σ‖g‖² where it is known already, say from before clipping; None computes
                it.
            wall_time: seconds since 1970; None is now.

        Raises:
            OSError, TypeError, ValueError: as `encode_scalar`, `encode_histogram` and
                `EventLog.add_summary` do; nothing is written then.
        """
        if not self._log.writes:
            return
        scalars, histograms = self._due(n)
        if not scalars and not histograms:
            return
        step = StepParts(self._quantities, scalars, histograms)
        step.scalar("loss", loss)
        step.scalar("learning_rate", learning_rate)
        step.gradients(gradients or {}, unclipped, global_norm)
        step.weights(weights or {}, updates or {})
        self._write(step.parts, n, wall_time)

    def flush(self, timeout: float = PATIENCE) -> None:
        """Return when everything written so far is in the file; see `EventLog.flush`."""
        self._log.flush(timeout)

    def close(self, timeout: float = PATIENCE) -> None:
        """Close the event log, unless it was given; see `EventLog.close`."""
        if self._owns_log:
            self._log.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _due(self, n: Step | None) -> tuple[bool, bool]:
        """Whether scalars, and whether histograms, are written at this step."""
        if n is None:
            number = self._log.last_step if self._writer is None else self._writer.current_step
        else:
            number = check_step(n)
        scalars = self._scalar_cadence.is_due(number)
        histograms = self._histogram_cadence.is_due(number)
        if self._writer is not None:
            scalars = scalars and self._writer.is_due(n, scalar=True)
            histograms = histograms and self._writer.is_due(n)
        return scalars, histograms

    def _write(
        self, parts: list[tuple[str, bytes]], n: Step | None, wall_time: SupportsFloat | None
    ) -> None:
        data = b"".join([part for _, part in parts])
        new = self._quantities.new
        metadata = {tag: new[tag] for tag, _ in parts if tag in new} if new else {}
        if metadata:
            data = SummaryBytes(data, Notes(metadata, self._layout))
        if self._writer is not None:
            self._writer.add_encoded(data, n, wall_time)
        else:
            self._log.add_encoded(self._annotated(data), n, wall_time)
        for tag in metadata:
            del new[tag]


def _checked_names(summaries: Iterable[str]) -> frozenset[str]:
    names = [summaries] if isinstance(summaries, str) else list(summaries)
    for name in names:
        if name not in _KNOWN:
            raise ValueError(f"summaries must be among {', '.join(_KNOWN)}, not {name!r}")
    return frozenset(names)
