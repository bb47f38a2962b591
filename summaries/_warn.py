"""Warnings at the caller's line; once where a step loop would repeat them at every step."""

import os
import sys
import threading
import warnings

# optkit.summary hands on what its caller wrote, at times by way of a decorator of contextlib.
_LIBRARY = ("summaries", "optkit", "contextlib")

_given: set[tuple[str, ...]] = set()
# Reentrant: a user's `warnings.showwarning` may itself log a summary.
_lock = threading.RLock()


def _after_fork() -> None:
    """A thread that is not in the child may have held the lock."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def warn(message: str) -> None:
    """Issue a RuntimeWarning at the line that called into the library."""
    warnings.warn(message, RuntimeWarning, stacklevel=_caller_level())


def warn_once(*key: str, message: str) -> None:
    """As `warn`, unless a warning with this key was issued before.

    The memory is the process's. Where filters turn the warning into an exception it is not
    remembered, so the error is raised every time.
    """
    with _lock:
        if key not in _given:
            warn(message)
            _given.add(key)


def forget_warnings() -> None:
    """Let every warning come once more."""
    with _lock:
        _given.clear()


def _caller_level() -> int:
    """The stack level, seen from `warn`, of the first frame outside the library."""
    level = 1
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARY:
        if frame.f_back is None:
            break
        frame = frame.f_back
        level += 1
    return level
