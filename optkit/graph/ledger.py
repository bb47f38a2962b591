"""A dict that can go back to how it was, without having been copied."""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = ["Ledger"]

_K = TypeVar("_K")
_V = TypeVar("_V")
_NOTHING = object()


class Ledger(dict[_K, _V]):
    """A dict whose assignments can be taken back; only `ledger[key] = value` may change it.

    >>> ledger = Ledger()
    >>> ledger["a"] = 1
    >>> mark = ledger.mark()
    >>> ledger["a"], ledger["b"] = 2, 3
    >>> ledger.undo(mark)
    >>> ledger
    {'a': 1}
    """

    def __init__(self) -> None:
        super().__init__()
        self._changes: list[tuple[_K, Any]] = []

    def __setitem__(self, key: _K, value: _V) -> None:
        self._changes.append((key, self.get(key, _NOTHING)))
        super().__setitem__(key, value)

    def mark(self) -> int:
        """How it stands; for `undo`."""
        return len(self._changes)

    def changed(self, mark: int) -> set[_K]:
        """The keys that were assigned since `mark`."""
        return {key for key, _ in self._changes[mark:]}

    def undo(self, mark: int) -> None:
        """Take back what was assigned since `mark`."""
        for key, before in reversed(self._changes[mark:]):
            if before is _NOTHING:
                del self[key]
            else:
                super().__setitem__(key, before)
        del self._changes[mark:]
