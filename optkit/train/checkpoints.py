"""Checkpoints on disk: one safetensors file each, and a file that tells which is the latest.

`<prefix>.safetensors` holds arrays by name; `checkpoint`, beside it, is JSON: "latest" and "all"
name prefixes, relative to the directory, and "best" maps some of them to their metrics. Both are
written under another name, synchronised and renamed, so that a reader, or a crash, never meets
half a file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from optkit import logging
from optkit.train.files import expanded, replacing

__all__ = [
    "SUFFIX",
    "CheckpointState",
    "as_path",
    "best_checkpoint",
    "checkpoint_exists",
    "get_checkpoint_state",
    "latest_checkpoint",
    "remove_checkpoint",
    "update_checkpoint_state",
]

SUFFIX = ".safetensors"


class CheckpointState(NamedTuple):
    """The latest checkpoint of a directory, and all that are kept, oldest first.

    Attributes:
        model_checkpoint_path: the latest.
        all_model_checkpoint_paths: all of the newest, oldest first.
        best_model_checkpoint_paths: prefix -> metric of those kept for it, best first.
    """

    model_checkpoint_path: str
    all_model_checkpoint_paths: list[str]
    best_model_checkpoint_paths: Mapping[str, float] = MappingProxyType({})


def as_path(prefix: Any) -> Path:
    """The file of a checkpoint's prefix; `~` is expanded, the suffix may be there already.

    Raises:
        TypeError: it is no path.
        ValueError: it ends without a name.
    """
    path = expanded("save_path", prefix)
    if str(prefix) == "" or str(prefix).endswith(("/", os.sep)):
        raise ValueError(f"save_path: expected a directory and a name, got {prefix!r}")
    return path if path.name.endswith(SUFFIX) else path.with_name(path.name + SUFFIX)


def checkpoint_exists(checkpoint_prefix: Any) -> bool:
    """Whether there is a checkpoint of this prefix."""
    return as_path(checkpoint_prefix).is_file()


def remove_checkpoint(
    checkpoint_prefix: Any, checkpoint_format_version: Any = 2, meta_graph_suffix: str = "meta"
) -> None:
    """Delete a checkpoint, if it is there; the further arguments are accepted as in TF."""
    as_path(checkpoint_prefix).unlink(missing_ok=True)


def update_checkpoint_state(
    save_dir: Any,
    model_checkpoint_path: Any,
    all_model_checkpoint_paths: Sequence[Any] | None = None,
    latest_filename: str | None = None,
    all_model_checkpoint_timestamps: Any = None,
    last_preserved_timestamp: Any = None,
    *,
    best: Mapping[str, float] | None = None,
) -> None:
    """Record which checkpoint of a directory is the latest, and which are kept.

    Relative paths are seen from `save_dir` where that is absolute. `best` maps prefixes to metrics,
    best first. Times are accepted as in TF: files have their own.
    """
    folder = expanded("save_dir", save_dir)
    latest = _relative(model_checkpoint_path, folder)
    kept = [_relative(path, folder) for path in all_model_checkpoint_paths or ()]
    if latest not in kept:
        kept.append(latest)
    content: dict[str, Any] = {"latest": latest, "all": kept}
    if best:
        content["best"] = {_relative(path, folder): metric for path, metric in best.items()}
    with replacing(folder / (latest_filename or "checkpoint")) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _relative(path: Any, folder: Path) -> str:
    """As seen from the directory, so that it can be moved as a whole."""
    given = expanded("model_checkpoint_path", path)
    # As in TF: beside an absolute directory a relative path is seen from there.
    given = folder / given if folder.is_absolute() else given.absolute()
    folder = folder.absolute()
    return str(given.relative_to(folder) if given.is_relative_to(folder) else given)


def get_checkpoint_state(
    checkpoint_dir: Any, latest_filename: str | None = None
) -> CheckpointState | None:
    """The checkpoints that a directory records; None where it records none.

    Raises:
        ValueError: the record is damaged, or was not written by optkit.
    """
    folder = expanded("checkpoint_dir", checkpoint_dir)
    record = folder / (latest_filename or "checkpoint")
    try:
        text = record.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        content = json.loads(text)
        latest, kept = str(folder / content["latest"]), [str(folder / x) for x in content["all"]]
        best = {str(folder / x): float(y) for x, y in content.get("best", {}).items()}
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(
            f'{record}: expected JSON with "latest" and "all", as Saver.save writes it, got '
            f"{text[:60]!r}"
        ) from error
    return CheckpointState(latest, kept, best)


def best_checkpoint(checkpoint_dir: Any, latest_filename: str | None = None) -> str | None:
    """The prefix of the checkpoint with the best metric; None where none is kept for its metric."""
    state = get_checkpoint_state(checkpoint_dir, latest_filename)
    found = () if state is None else state.best_model_checkpoint_paths
    return next((prefix for prefix in found if checkpoint_exists(prefix)), None)


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
