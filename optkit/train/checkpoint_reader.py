"""Looking into checkpoints: what they hold, and starting variables from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from optkit.dtypes import DType, as_dtype
from optkit.errors import NotFoundError
from optkit.graph import GraphKeys, Kind, get_default_graph
from optkit.train.checkpoints import as_path, latest_checkpoint
from optkit.train.files import expanded
from optkit.train.matching import compared
from optkit.train.tensor_file import read_arrays, read_header
from optkit.variables import Variable

__all__ = [
    "CheckpointReader",
    "NewCheckpointReader",
    "checkpoints_iterator",
    "get_checkpoint_mtimes",
    "init_from_checkpoint",
    "list_variables",
    "load_checkpoint",
    "load_variable",
    "wait_for_new_checkpoint",
]


class CheckpointReader:
    """What a checkpoint holds.

    Args:
        filepattern: the prefix of the checkpoint.

    Raises:
        NotFoundError: there is no such checkpoint.
        ValueError: it is damaged.
    """

    def __init__(self, filepattern: Any) -> None:
        self._path = as_path(filepattern)
        if not self._path.is_file():
            raise NotFoundError(f"no such checkpoint: {self._path}")
        self._entries = read_header(self._path).entries

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Name -> shape."""
        return {name: list(entry.shape) for name, entry in self._entries.items()}

    def get_variable_to_dtype_map(self) -> dict[str, DType]:
        """Name -> dtype."""
        return {name: as_dtype(entry.dtype) for name, entry in self._entries.items()}

    def has_tensor(self, tensor_str: str) -> bool:
        """Whether there is a variable of this name."""
        return tensor_str in self._entries

    def get_tensor(self, tensor_str: str) -> np.ndarray[Any, Any]:
        """A variable's value.

        Raises:
            NotFoundError: there is none of this name.
            ValueError: the file is damaged.
        """
        if tensor_str not in self._entries:
            raise NotFoundError(
                f"{self._path} has no {tensor_str!r}; it has {', '.join(sorted(self._entries))}"
            )
        arrays, _ = read_arrays(self._path, [tensor_str])
        return arrays[tensor_str]  # type: ignore[no-any-return]

    def debug_string(self) -> str:
        """A line a variable: name, dtype and shape."""
        return "\n".join(
            f"{name} ({entry.dtype}) {list(entry.shape)}"
            for name, entry in sorted(self._entries.items())
        )


def NewCheckpointReader(filepattern: Any) -> CheckpointReader:  # noqa: N802 - TF's name
    """A reader of a checkpoint, by its prefix; see `CheckpointReader`."""
    return CheckpointReader(filepattern)


def load_checkpoint(ckpt_dir_or_file: Any) -> CheckpointReader:
    """A reader of a checkpoint, or of the latest one of a directory.

    Raises:
        ValueError: the directory has none.
        NotFoundError: there is no such checkpoint.
    """
    return CheckpointReader(_prefix(ckpt_dir_or_file))


def _prefix(ckpt_dir_or_file: Any) -> str:
    path = expanded("ckpt_dir_or_file", ckpt_dir_or_file)
    if not path.is_dir():
        return str(path)
    found = latest_checkpoint(path)
    if found is None:
        raise ValueError(f"ckpt_dir_or_file: there is no checkpoint in {path}")
    return found


def list_variables(ckpt_dir_or_file: Any) -> list[tuple[str, list[int]]]:
    """The (name, shape) pairs of a checkpoint, by name; see `load_checkpoint`."""
    return sorted(load_checkpoint(ckpt_dir_or_file).get_variable_to_shape_map().items())


def load_variable(ckpt_dir_or_file: Any, name: str) -> np.ndarray[Any, Any]:
    """A variable's value in a checkpoint; `name` may end in ":0". See `load_checkpoint`."""
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name.removesuffix(":0"))


# -- starting from a checkpoint -------------------------------------------------------------------


def _restored(xp: Any, *, path: Path, names: tuple[str, ...], types: Any) -> Any:
    """The arrays of a checkpoint, read when it is run."""
    arrays, _ = read_arrays(path, names)
    values = [xp.asarray(arrays[name]) for name in names]
    return values[0] if len(values) == 1 else values


_RESTORE = Kind(
    "RestoreV2", _restored, infer=lambda _, attrs: list(attrs["types"]), differentiable=False
)


def init_from_checkpoint(ckpt_dir_or_file: Any, assignment_map: Any) -> None:
    """Make variables start from what a checkpoint holds: their initializers read it.

    To be called before `global_variables_initializer` and the session.

    Args:
        ckpt_dir_or_file: the prefix of a checkpoint, or a directory, of which the latest is taken.
        assignment_map: what in the checkpoint -> what here: a name -> a Variable or the name of
            one, or a scope -> a scope, both ending in "/", for all variables of the scope here;
            "/" is the scope of everything. A list of such pairs does too.

    Raises:
        ValueError: the checkpoint lacks something, a variable has another shape or dtype there, or
            there is no such variable here.
        NotFoundError: there is no such checkpoint.
    """
    prefix = _prefix(ckpt_dir_or_file)
    reader = CheckpointReader(prefix)
    path = as_path(prefix)
    here = {
        variable.op.name: variable
        for variable in get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES)
    }
    pairs = assignment_map.items() if isinstance(assignment_map, Mapping) else assignment_map
    chosen: dict[Variable, str] = {}
    for name, target in pairs:
        for variable, source in _targets(name, target, here):
            if not reader.has_tensor(source):
                raise ValueError(
                    f"assignment_map: {path} has no {source!r}, for variable {variable.op.name!r}"
                )
            chosen[variable] = source
    if not chosen:
        return
    entries = read_header(path).entries
    found = compared(
        {variable.op.name: variable.op for variable in chosen},
        entries,
        {variable.op.name: source for variable, source in chosen.items()},
    )
    if found.mismatched:
        text = "; ".join(f"{name!r}: {why}" for name, why in found.mismatched.items())
        raise ValueError(f"assignment_map: {path} does not fit the variables: {text}")
    graph = next(iter(chosen)).graph
    names = tuple(dict.fromkeys(chosen.values()))
    types = [(as_dtype(entries[name].dtype), entries[name].shape) for name in names]
    with graph.as_default(), graph.all_or_nothing(), graph.outside_control_flow():
        restored = graph.create_operation(
            _RESTORE, (), {"path": path, "names": names, "types": types}, name="checkpoint_values"
        )
        for variable, source in chosen.items():
            variable.start_from(restored.outputs[names.index(source)])


def _targets(name: str, target: Any, here: Mapping[str, Variable]) -> list[tuple[Variable, str]]:
    """The variables that an entry of the map means, each with its name in the checkpoint."""
    if isinstance(target, Variable):
        return [(target, name)]
    if not isinstance(target, str):
        raise ValueError(  # noqa: TRY004 - the reference's class
            f"assignment_map: {name!r}: expected a Variable or a name, got {target!r}"
        )
    if target in here:
        return [(here[target], name)]
    if not target.endswith("/"):
        raise ValueError(f"assignment_map: {name!r}: there is no variable {target!r} here")
    if not name.endswith("/"):
        raise ValueError(
            f"assignment_map: {name!r}: expected a scope, as {target!r} is one: 'scope/'"
        )
    inside = "" if target == "/" else target
    source = "" if name == "/" else name
    found = [
        (variable, source + own.removeprefix(inside))
        for own, variable in sorted(here.items())
        if own.startswith(inside)
    ]
    if not found:
        raise ValueError(f"assignment_map: {name!r}: there is no variable in {target!r} here")
    return found


# -- waiting for checkpoints ----------------------------------------------------------------------


def get_checkpoint_mtimes(checkpoint_prefixes: Any) -> list[float]:
    """When checkpoints were written, in seconds since 1970; those that are gone are left out."""
    times = []
    for prefix in checkpoint_prefixes:
        path = as_path(prefix)
        if path.is_file():
            times.append(path.stat().st_mtime)
    return times


def wait_for_new_checkpoint(
    checkpoint_dir: Any,
    last_checkpoint: str | None = None,
    seconds_to_sleep: float = 1,
    timeout: float | None = None,
) -> str | None:
    """The latest checkpoint of a directory, as soon as it is another than `last_checkpoint`.

    Args:
        checkpoint_dir: the directory.
        last_checkpoint: the one that is known; None takes any.
        seconds_to_sleep: how long to wait between two looks.
        timeout: how long to wait in all, in seconds; for ever if None.

    Returns:
        Its prefix; None when the time is over.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        found = latest_checkpoint(checkpoint_dir)
        if found is not None and found != last_checkpoint:
            return found
        if deadline is not None and time.monotonic() + seconds_to_sleep > deadline:
            return None
        time.sleep(seconds_to_sleep)


def checkpoints_iterator(
    checkpoint_dir: Any,
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
) -> Iterator[str]:
    """The prefixes of a directory's checkpoints as they come, for an evaluation beside a training.

    Args:
        checkpoint_dir: the directory.
        min_interval_secs: seconds from one to the next, at least.
        timeout: how long to wait for one, in seconds; for ever if None.
        timeout_fn: called then; the end, if it gives True. Without it a timeout is the end.
    """
    found = None
    while True:
        newer = wait_for_new_checkpoint(checkpoint_dir, found, timeout=timeout)
        if newer is None:
            if timeout_fn is None or timeout_fn():
                return
            continue
        start = time.monotonic()
        found = newer
        yield found
        left = start + min_interval_secs - time.monotonic()
        if left > 0:
            time.sleep(left)
