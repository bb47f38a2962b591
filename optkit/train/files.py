"""Paths as users give them, and files that take another's place whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["expanded", "remove_leftovers", "replacing"]

_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
_CANNOT = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM, errno.EBADF}
"""What file systems say that cannot synchronise a directory, or not for this user."""


def expanded(argument: str, path: Any) -> Path:
    """The path that an argument gives; `~` is the home directory.

    Raises:
        TypeError: it is no path.
        ValueError: there is no such home directory.
    """
    text = path.__fspath__() if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise TypeError(f"{argument}: expected a path, got {path!r}")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{argument}: {text!r}: {error}") from None


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write a file under; at the end it is on disk and takes the place of `path`.

    A crash leaves the old file, and perhaps one of the other name. Where `path` is a link, the
    link is replaced: nothing is written where it leads.

    Raises:
        OSError: the disk is full, or refuses otherwise; the old file is as it was.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        _synchronise(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if os.name == "posix":  # elsewhere a directory cannot be opened
        try:
            _synchronise(path.parent)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise


def remove_leftovers(folder: Path) -> None:
    """Delete what processes that were killed while they wrote have left in a directory."""
    for path in folder.iterdir():
        if _LEFTOVER.fullmatch(path.name):
            path.unlink(missing_ok=True)


def _synchronise(path: Path) -> None:
    # Windows flushes only what is open for writing; a directory opens only for reading.
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
