"""The step of a training loop as a context: what is added in it becomes one event."""

import threading
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Self, SupportsFloat, TypeVar

from summaries.cadence import Cadence
from summaries.steps import Step, check_step, check_wall_time

_Emit = Callable[[bytes, Step | None, SupportsFloat | None], None]
_AnyBlock = TypeVar("_AnyBlock", bound="Block")

# The block of this thread or asyncio task that was entered last. It may be closed: tasks and
# generators leave theirs in any order.
_newest: ContextVar["Block | None"] = ContextVar("newest", default=None)


class Block:
    """A `with` block of a writer; it holds for the thread, and the asyncio task, that is in it."""

    __slots__ = ("_before", "_owner", "_thread")

    def __init__(self, owner: object) -> None:
        self._owner = owner
        self._before: Block | None = None
        self._thread: int | None = None  # None outside the block

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise RuntimeError("the block was entered already, and not left yet")
        self._thread = threading.get_ident()
        self._before = _newest.get()
        _newest.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread = None
        newest = _newest.get()
        while newest is not None and newest._thread is None:
            newest = newest._before
        _newest.set(newest)


def innermost(kind: type[_AnyBlock], owner: object) -> _AnyBlock | None:
    """The owner's innermost block of a kind that this call is in."""
    block = _newest.get()
    while block is not None:
        if (
            block._owner is owner
            and block._thread == threading.get_ident()
            and isinstance(block, kind)
        ):
            return block
        block = block._before
    return None


class Defaults(Block):
    """The step and the time of what has none."""

    __slots__ = ("step", "wall_time")

    def __init__(self, owner: object, step: Step | None, wall_time: SupportsFloat | None) -> None:
        super().__init__(owner)
        self.step = None if step is None else check_step(step)
        self.wall_time = None if wall_time is None else check_wall_time(wall_time)


class StepScope(Block):
    """One step of a writer; true if anything of it is written.

    Attributes:
        step: the step.
        scalars: whether its scalars are written.
        histograms: whether all the rest is written.
        parts: the summaries so far.
    """

    __slots__ = ("_emit", "_wall_time", "histograms", "parts", "scalars", "step")

    def __init__(
        self,
        owner: object,
        step: Step,
        wall_time: SupportsFloat | None,
        cadences: tuple[Cadence, Cadence] | None,
        emit: _Emit,
    ) -> None:
        super().__init__(owner)
        self._wall_time = None if wall_time is None else check_wall_time(wall_time)
        self._emit = emit
        self.parts: list[bytes] = []
        self.step = number = check_step(step)
        self.scalars = cadences is not None and cadences[0].is_due(number)
        self.histograms = cadences is not None and cadences[1].is_due(number)

    def __bool__(self) -> bool:
        return self.scalars or self.histograms

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        if not self.parts:
            return
        summary = b"".join(self.parts)
        self.parts.clear()
        try:
            self._emit(summary, self.step, self._wall_time)
        except (OSError, ValueError):
            # The error of the body is the one to see; the next call tells of the disk again, or
            # that the writer is closed.
            if kind is None:
                raise
