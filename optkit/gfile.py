"""`tf.gfile`: files and directories of this machine, over the standard library.

Failures are Python's own (FileNotFoundError, FileExistsError and other kinds of OSError).
"""

from __future__ import annotations

import errno
import glob
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, TypeAlias

__all__ = [
    "Copy",
    "DeleteRecursively",
    "Exists",
    "FastGFile",
    "GFile",
    "Glob",
    "IsDirectory",
    "ListDirectory",
    "MakeDirs",
    "MkDir",
    "Open",
    "Remove",
    "Rename",
    "Stat",
    "Walk",
]

_Path: TypeAlias = str | os.PathLike[str]


def GFile(name: _Path, mode: str = "r") -> IO[Any]:  # noqa: N802 - TF1's name
    """The file, opened: text in UTF-8, or bytes where `mode` has a b."""
    return Path(name).open(mode, encoding=None if "b" in mode else "utf-8")


FastGFile = Open = GFile


def Exists(filename: _Path) -> bool:  # noqa: N802
    """Whether there is a file or directory."""
    return Path(filename).exists()


def IsDirectory(dirname: _Path) -> bool:  # noqa: N802
    """Whether it is a directory."""
    return Path(dirname).is_dir()


def ListDirectory(dirname: _Path) -> list[str]:  # noqa: N802
    """The names of what is in a directory, sorted."""
    return sorted(os.listdir(dirname))  # noqa: PTH208 - names, not paths


def Glob(filename: _Path | list[_Path]) -> list[str]:  # noqa: N802
    """The files that match a pattern, or one of several, sorted."""
    patterns = filename if isinstance(filename, list) else [filename]
    return [path for pattern in patterns for path in sorted(glob.glob(os.fspath(pattern)))]  # noqa: PTH207


def Walk(top: _Path, in_order: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:  # noqa: N802
    """Each directory below `top` with its directories and files; it comes before what it holds.

    With in_order=False it comes after.
    """
    return os.walk(os.fspath(top), topdown=in_order)


def Stat(filename: _Path) -> os.stat_result:  # noqa: N802
    """What the system knows of a file, as `os.stat`: st_size in bytes, st_mtime in seconds."""
    return Path(filename).stat()


def MkDir(dirname: _Path) -> None:  # noqa: N802
    """Make a directory; its parent is there."""
    Path(dirname).mkdir()


def MakeDirs(dirname: _Path) -> None:  # noqa: N802
    """Make a directory and its parents, where they are not there."""
    Path(dirname).mkdir(parents=True, exist_ok=True)


def Remove(filename: _Path) -> None:  # noqa: N802
    """Delete a file."""
    Path(filename).unlink()


def DeleteRecursively(dirname: _Path) -> None:  # noqa: N802
    """Delete a directory and all that is in it."""
    shutil.rmtree(dirname)


def Copy(oldpath: _Path, newpath: _Path, overwrite: bool = False) -> None:  # noqa: N802
    """Copy a file; FileExistsError where there is one and `overwrite` is false."""
    _refuse_existing(newpath, overwrite)
    shutil.copyfile(oldpath, newpath)


def Rename(oldname: _Path, newname: _Path, overwrite: bool = False) -> None:  # noqa: N802
    """Rename a file or directory; FileExistsError as `Copy`."""
    _refuse_existing(newname, overwrite)
    Path(oldname).replace(newname)


def _refuse_existing(path: _Path, overwrite: bool) -> None:
    if Path(path).exists() and not overwrite:
        raise FileExistsError(errno.EEXIST, "File exists; overwrite=True replaces it", str(path))
