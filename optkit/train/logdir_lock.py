"""One process a directory: a lock that ends with the process that holds it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from optkit.train.files import expanded

if sys.platform != "win32":
    import fcntl

__all__ = ["LogdirLock"]

_NAME = ".optkit.lock"
_held: dict[str, int] = {}
"""Directories that this process has locked -> its id; a forked child finds its parent's there."""


class LogdirLock:
    """Keeps others from training in a directory, until `release` or the end of the process.

    The system drops the lock with the process that holds it, also when that is killed, and a child
    does not inherit it. Where a file system has no locks, the file's owner must have ended.

    Args:
        directory: the directory, made if need be.

    Raises:
        RuntimeError: another session trains there; the message names the id of its process.
        OSError: the directory cannot be made or written.
    """

    def __init__(self, directory: Any) -> None:
        folder = expanded("directory", directory)
        folder.mkdir(parents=True, exist_ok=True)
        self._key = str(folder.resolve())
        self._path = folder / _NAME
        self._descriptor: int | None = None
        self._owner = os.getpid()
        if _held.get(self._key) == self._owner:
            raise _refusal(folder, {"pid": self._owner}, "in a session of this process")
        while self._descriptor is None:
            self._descriptor = self._taken(folder)
        _held[self._key] = self._owner

    def _taken(self, folder: Path) -> int | None:
        """The locked file's descriptor; None where the file was removed in between."""
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(self._path, flags, 0o644)
        try:
            if not _locked(descriptor):
                raise _refusal(folder, _read(descriptor), "in another process")
            if not _is_at(self._path, descriptor):
                os.close(descriptor)
                return None
            owner = {"pid": self._owner, "host": socket.gethostname()}
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps(owner).encode())
        except BaseException:
            with contextlib.suppress(OSError):
                os.close(descriptor)
            raise
        return descriptor

    def release(self) -> None:
        """Let others have the directory; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None or self._owner != os.getpid():
            return
        _held.pop(self._key, None)
        # While it is locked: a new owner's file is another one.
        if _is_at(self._path, descriptor):
            self._path.unlink(missing_ok=True)
        os.close(descriptor)

    def __enter__(self) -> LogdirLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def _locked(descriptor: int) -> bool:
    """Whether the lock is this process's now."""
    if sys.platform != "win32":
        try:
            # Of the process, not of the open file: children that outlive it do not keep it.
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        except OSError:  # a file system without locks
            return not _is_alive(_read(descriptor))
        return True
    return not _is_alive(_read(descriptor))


def _is_alive(owner: dict[str, Any]) -> bool:
    """Whether the process that wrote the file may still be at work."""
    pid = owner.get("pid")
    if type(pid) is not int or pid <= 0 or pid == os.getpid():
        return False
    if owner.get("host") != socket.gethostname():
        return True  # nothing is known of processes elsewhere
    if sys.platform == "win32":
        # os.kill would end it there.
        return _windows_alive(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _windows_alive(pid: int) -> bool:
    import ctypes

    kernel = ctypes.windll.kernel32  # type: ignore[attr-defined]
    handle = kernel.OpenProcess(0x00100000, False, pid)  # SYNCHRONIZE
    if not handle:
        return False
    alive = kernel.WaitForSingleObject(handle, 0) == 0x00000102  # WAIT_TIMEOUT
    kernel.CloseHandle(handle)
    return bool(alive)


def _read(descriptor: int) -> dict[str, Any]:
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        content = json.loads(os.read(descriptor, 4096))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the open file is the one of this name."""
    try:
        found, own = path.stat(follow_symlinks=False), os.fstat(descriptor)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)


def _refusal(folder: Path, owner: dict[str, Any], where: str) -> RuntimeError:
    pid, host = owner.get("pid", "unknown"), owner.get("host")
    place = f" on {host}" if host and host != socket.gethostname() else ""
    return RuntimeError(
        f"{folder}: a run is at work there already, {where}: pid {pid}{place}; use another "
        "directory, or end that run first"
    )
