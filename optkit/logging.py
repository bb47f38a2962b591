"""`tf.logging`: TF1's logger and its levels, over the standard library's.

The logger is called "optkit" and is silent below WARN until `set_verbosity`.
"""

from __future__ import annotations

import logging
from typing import Any

__all__ = [
    "DEBUG",
    "ERROR",
    "FATAL",
    "INFO",
    "WARN",
    "debug",
    "error",
    "fatal",
    "get_verbosity",
    "info",
    "log",
    "set_verbosity",
    "warn",
    "warning",
]

DEBUG = logging.DEBUG
INFO = logging.INFO
WARN = logging.WARNING
ERROR = logging.ERROR
FATAL = logging.CRITICAL

_log = logging.getLogger("optkit")


def set_verbosity(level: int | str) -> None:
    """Show messages of `level` and above."""
    _log.setLevel(level)
    # Without a handler of its own, nothing below WARN would be shown in a plain script.
    if not _log.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s:%(name)s:%(message)s"))
        _log.addHandler(handler)


def get_verbosity() -> int:
    """The level from which on messages are shown."""
    return _log.getEffectiveLevel()


def log(level: int, message: str, *args: Any) -> None:
    """A message of any level, `%`-formatted with args."""
    _log.log(level, message, *args)


def debug(message: str, *args: Any) -> None:
    """A message for developers."""
    _log.debug(message, *args)


def info(message: str, *args: Any) -> None:
    """A message about normal work."""
    _log.info(message, *args)


def warn(message: str, *args: Any) -> None:
    """A message about something suspicious."""
    _log.warning(message, *args)


def warning(message: str, *args: Any) -> None:
    """A message about something suspicious."""
    _log.warning(message, *args)


def error(message: str, *args: Any) -> None:
    """A message about a failure."""
    _log.error(message, *args)


def fatal(message: str, *args: Any) -> None:
    """A message about a failure that ends the program (which is the caller's to end)."""
    _log.critical(message, *args)
