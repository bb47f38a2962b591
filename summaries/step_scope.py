"""The step of a training loop as a context: what is added in it becomes one event."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self, SupportsFloat

from summaries.cadence import Cadence
from summaries.steps import Step, check_step

_Emit = Callable[[bytes, Step | None, SupportsFloat | None], None]


class Current(threading.local):
    """What holds in this thread: the innermost step, and the step and time of what has none."""

    scope: "StepScope | None" = None
    step: Step | None = None
    wall_time: SupportsFloat | None = None


class StepScope:
    """One step of a writer; true if anything of it is written.

    Attributes:
        step: the step.
        scalars: whether its scalars are written.
        histograms: whether all the rest is written.
        parts: the summaries so far.
    """

    __slots__ = (
        "_current",
        "_emit",
        "_outer",
        "_wall_time",
        "histograms",
        "parts",
        "scalars",
        "step",
    )

    def __init__(
        self,
        current: Current,
        step: Step,
        wall_time: SupportsFloat | None,
        cadences: tuple[Cadence, Cadence] | None,
        emit: _Emit,
    ) -> None:
        self._current = current
        self._wall_time = wall_time
        self._emit = emit
        self._outer: StepScope | None = None
        self.parts: list[bytes] = []
        self.step = number = check_step(step)
        self.scalars = cadences is not None and cadences[0].is_due(number)
        self.histograms = cadences is not None and cadences[1].is_due(number)

    def __bool__(self) -> bool:
        return self.scalars or self.histograms

    def __enter__(self) -> Self:
        self._outer = self._current.scope
        self._current.scope = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._current.scope = self._outer
        if not self.parts:
            return
        summary = b"".join(self.parts)
        self.parts.clear()
        try:
            self._emit(summary, self.step, self._wall_time)
        except OSError:
            # The error of the body is the one to see; the next call tells of the disk again.
            if kind is None:
                raise
