"""Checkpoints on disk: one safetensors file each, and a file that tells which is the latest.

`<prefix>.safetensors` holds arrays by name; `checkpoint`, beside it, is JSON: "latest" and "all"
name prefixes, relative to the directory. Both are written under another name, synchronised and
renamed, so that a reader, or a crash, never meets half a file.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from optkit import logging

__all__ = [
    "SUFFIX",
    "CheckpointState",
    "Entry",
    "as_path",
    "checkpoint_exists",
    "entries",
    "get_checkpoint_state",
    "latest_checkpoint",
    "read_arrays",
    "remove_checkpoint",
    "update_checkpoint_state",
    "write_arrays",
]

SUFFIX = ".safetensors"

_DTYPES = {
    "BOOL": "bool",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
"""safetensors' dtypes that NumPy has, and their names there."""


class Entry(NamedTuple):
    """What a checkpoint says of one array: the dtype's name and the shape."""

    dtype: str
    shape: tuple[int, ...]


class CheckpointState(NamedTuple):
    """The latest checkpoint of a directory, and all that are kept, oldest first."""

    model_checkpoint_path: str
    all_model_checkpoint_paths: list[str]


def as_path(prefix: Any) -> Path:
    """The file of a checkpoint's prefix; `~` is expanded, the suffix may be there already.

    Raises:
        TypeError: it is no path.
        ValueError: it ends without a name.
    """
    text = os.fspath(prefix)
    if not isinstance(text, str):
        raise TypeError(f"save_path: expected a path, got {prefix!r}")
    if not text or text.endswith(("/", os.sep)):
        raise ValueError(f"save_path: expected a directory and a name, got {prefix!r}")
    path = Path(text).expanduser()
    return path if path.name.endswith(SUFFIX) else path.with_name(path.name + SUFFIX)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A name to write a file under; at the end it is on disk and takes the place of `path`."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        _synchronise(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if os.name == "posix":  # elsewhere a directory cannot be opened
        _synchronise(path.parent)


def _synchronise(path: Path) -> None:
    # Windows flushes only what is open for writing; a directory opens only for reading.
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays by name.

    Raises:
        TypeError: the file has no dtype for an array.
    """
    from safetensors.numpy import save_file

    refused = [
        f"{name!r} is {np.asarray(array).dtype}"
        for name, array in arrays.items()
        if np.asarray(array).dtype.name not in _DTYPES.values()
    ]
    if refused:
        raise TypeError(f"checkpoints have no such dtype: {', '.join(refused)}")
    with _replacing(path) as temporary:
        save_file(
            {name: np.asarray(array, order="C") for name, array in arrays.items()},
            temporary,
            metadata={"format": "optkit", "version": "1"},
        )


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(f"{path}: expected a checkpoint: {error}") from error


def entries(path: Path) -> dict[str, Entry]:
    """What is in a checkpoint, without reading it all.

    Raises:
        ValueError: the file is damaged, or no checkpoint.
    """
    found: dict[str, Entry] = {}
    with _opened(path) as file:
        for name in file.keys():  # noqa: SIM118 - the file is no mapping
            view = file.get_slice(name)
            dtype = view.get_dtype()
            found[name] = Entry(_DTYPES.get(dtype, dtype), tuple(view.get_shape()))
    return found


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """The named arrays of a checkpoint, the caller's own."""
    with _opened(path) as file:
        return {name: file.get_tensor(name) for name in names}


def checkpoint_exists(checkpoint_prefix: Any) -> bool:
    """Whether there is a checkpoint of this prefix."""
    return as_path(checkpoint_prefix).is_file()


def remove_checkpoint(checkpoint_prefix: Any, *_: Any, **__: Any) -> None:
    """Delete a checkpoint, if it is there; TF's further arguments are accepted."""
    as_path(checkpoint_prefix).unlink(missing_ok=True)


def update_checkpoint_state(
    save_dir: Any,
    model_checkpoint_path: Any,
    all_model_checkpoint_paths: Sequence[Any] | None = None,
    latest_filename: str | None = None,
) -> None:
    """Record which checkpoint of a directory is the latest, and which are kept."""
    folder = Path(os.fspath(save_dir)).expanduser()
    latest = _relative(model_checkpoint_path, folder)
    kept = [_relative(path, folder) for path in all_model_checkpoint_paths or ()]
    if latest not in kept:
        kept.append(latest)
    with _replacing(folder / (latest_filename or "checkpoint")) as temporary:
        temporary.write_text(
            json.dumps({"latest": latest, "all": kept}, indent=1) + "\n", encoding="utf-8"
        )


def _relative(path: Any, folder: Path) -> str:
    """As seen from the directory, so that it can be moved as a whole."""
    given = Path(os.fspath(path)).expanduser()
    return str(given.relative_to(folder) if given.is_relative_to(folder) else given.absolute())


def get_checkpoint_state(
    checkpoint_dir: Any, latest_filename: str | None = None
) -> CheckpointState | None:
    """The checkpoints that a directory records; None where it records none.

    Raises:
        ValueError: the record is damaged, or was not written by optkit.
    """
    folder = Path(os.fspath(checkpoint_dir)).expanduser()
    record = folder / (latest_filename or "checkpoint")
    try:
        text = record.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        content = json.loads(text)
        latest, kept = str(folder / content["latest"]), [str(folder / x) for x in content["all"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f'{record}: expected JSON with "latest" and "all", as Saver.save writes it, got '
            f"{text[:60]!r}"
        ) from error
    return CheckpointState(latest, kept)


def latest_checkpoint(checkpoint_dir: Any, latest_filename: str | None = None) -> str | None:
    """The prefix of a directory's latest checkpoint; None where there is none.

    A record whose file is gone counts as none and is told in the log of "optkit".
    """
    state = get_checkpoint_state(checkpoint_dir, latest_filename)
    if state is None:
        return None
    if not checkpoint_exists(state.model_checkpoint_path):
        logging.error("no such checkpoint: %s", state.model_checkpoint_path)
        return None
    return state.model_checkpoint_path
