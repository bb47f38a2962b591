"""The stacks of default graphs and default sessions, one of each a thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from optkit.graph.graph import Graph

__all__ = [
    "GRAPHS",
    "SESSIONS",
    "SessionLike",
    "default_session",
    "get_default_session",
    "push_default_session",
    "remove_default_session",
]


class SessionLike(Protocol):
    """What the graph asks of a session."""

    @property
    def graph(self) -> Graph:
        """The graph the session runs."""

    def run(self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None) -> Any:
        """Compute `fetches`."""


class Stack:
    """A stack of defaults, one a thread."""

    def __init__(self) -> None:
        self._local = threading.local()

    @property
    def items(self) -> list[Any]:
        if not hasattr(self._local, "items"):
            self._local.items = []
        return self._local.items  # type: ignore[no-any-return]

    def top(self) -> Any:
        return self.items[-1] if self.items else None

    @contextlib.contextmanager
    def pushed(self, item: Any) -> Iterator[Any]:
        items = self.items
        items.append(item)
        try:
            yield item
        finally:
            # Not always the last: an InteractiveSession stays until it is closed.
            for place in reversed(range(len(items))):
                if items[place] is item:
                    del items[place]
                    break


GRAPHS = Stack()
SESSIONS = Stack()


def default_session(session: Any) -> contextlib.AbstractContextManager[Any]:
    """Make `session` the default inside a `with`."""
    return SESSIONS.pushed(session)


def push_default_session(session: Any) -> None:
    """Make `session` the default until it is removed (InteractiveSession)."""
    SESSIONS.items.append(session)


def remove_default_session(session: Any) -> None:
    """Take `session` out of the defaults, wherever it is."""
    SESSIONS.items[:] = [item for item in SESSIONS.items if item is not session]


def get_default_session() -> Any:
    """The innermost default session, or None."""
    return SESSIONS.top()
