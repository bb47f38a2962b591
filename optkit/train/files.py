"""Files that take another's place whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

__all__ = ["remove_leftovers", "replacing"]

_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")


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
        _synchronise(path.parent)


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
