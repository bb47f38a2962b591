"""Saving and restoring variables, as tf.train.Saver."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from optkit import logging
from optkit.global_step import global_step as step_in
from optkit.graph import GraphKeys, Operation, Tensor, get_default_graph
from optkit.runtime import Session, SessionState
from optkit.train.checkpoints import (
    SUFFIX,
    as_path,
    checkpoint_exists,
    remove_checkpoint,
    update_checkpoint_state,
)
from optkit.train.files import expanded
from optkit.train.matching import compared, kept_rates
from optkit.train.tensor_file import read_arrays, read_header
from optkit.train.training_state import TrainingState, capture, read_extra, save_state
from optkit.variables import Variable, variable_of

__all__ = ["Saver"]

_NAMED = 5
"""How many entries that nothing takes are named: of a large model there are thousands."""


class Saver:
    """Writes variables to a file, `<prefix>.safetensors`, and reads them back.

    Args:
        var_list: variables, or a dict from names in the file to variables; all global variables
            if None. Without a dict a variable is called by its operation's name.
        reshape: restore arrays of another shape with as many elements.
        sharded: accepted as in TF; a checkpoint is one file.
        max_to_keep: how many checkpoints to keep, the newest; all if 0 or None, of which then
            only the newest is on record.
        keep_checkpoint_every_n_hours: keep one more for good every so many hours.
        name: accepted as in TF; restoring needs nothing in the graph.
        restore_sequentially: accepted as in TF.
        saver_def: must be None, as must `builder`.
        builder: see `saver_def`.
        defer_build: choose the variables at `build()` or at the first use.
        allow_empty: allow that there are no variables.
        write_version: accepted as in TF.
        pad_step_number: write steps with eight digits, so that names sort.
        save_relative_paths: accepted as in TF; paths on record always are relative.
        filename: accepted as in TF.
        keep_best: how many checkpoints to keep for their metric, beside the newest.
        best: whether the least ("min") or the greatest ("max") metric is the best.

    Raises:
        TypeError: something in `var_list` is no variable.
        ValueError: there is nothing to save, two variables have one name or one has two, or
            `max_to_keep` or `keep_best` is negative, or `best` is neither of its values.
        RuntimeError: `var_list` is None in eager mode.
    """

    def __init__(
        self,
        var_list: Any = None,
        reshape: bool = False,
        sharded: bool = False,
        max_to_keep: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000.0,
        name: str | None = None,
        restore_sequentially: bool = False,
        saver_def: Any = None,
        builder: Any = None,
        defer_build: bool = False,
        allow_empty: bool = False,
        write_version: Any = 2,
        pad_step_number: bool = False,
        save_relative_paths: bool = False,
        filename: str | None = None,
        *,
        keep_best: int = 0,
        best: Literal["min", "max"] = "min",
    ) -> None:
        if saver_def is not None or builder is not None:
            raise ValueError("saver_def, builder: optkit has no protocol form of savers")
        if max_to_keep is not None and max_to_keep < 0:
            raise ValueError(f"max_to_keep: expected 0 or more, or None, got {max_to_keep}")
        if keep_best < 0:
            raise ValueError(f"keep_best: expected 0 or more, got {keep_best}")
        if best not in ("min", "max"):
            raise ValueError(f"best: expected 'min' or 'max', got {best!r}")
        if defer_build and var_list is not None:
            raise ValueError("defer_build: goes with var_list=None only")
        self._var_list = var_list
        self._reshape = bool(reshape)
        self._max_to_keep = max_to_keep or 0
        self._keep_for = keep_checkpoint_every_n_hours * 3600
        self._next_kept = time.time() + self._keep_for
        self._allow_empty = bool(allow_empty)
        self._digits = 8 if pad_step_number else 1
        self._last: list[str] = []
        self._keep_best = keep_best
        self._sign = 1.0 if best == "min" else -1.0
        self._best: dict[str, float] = {}
        self._made: set[str] = set()
        self._kept: set[str] = set()
        self._variables: dict[str, Variable] | None = None
        if not defer_build:
            self.build()

    def build(self) -> None:
        """Choose the variables; once."""
        if self._variables is not None:
            return
        if self._var_list is None and get_default_graph().eager:
            raise RuntimeError("var_list: needed in eager mode, which has no collections")
        self._variables = _named(
            _all_saveable() if self._var_list is None else self._var_list, self._allow_empty
        )

    @property
    def last_checkpoints(self) -> list[str]:
        """The prefixes of the checkpoints that are kept, oldest first."""
        return list(self._last)

    def set_last_checkpoints(self, last_checkpoints: Iterable[Any]) -> None:
        """Say which checkpoints there are, oldest first."""
        self._last = [os.fspath(path) for path in last_checkpoints]

    def set_last_checkpoints_with_time(
        self, last_checkpoints_with_time: Iterable[tuple[Any, float]]
    ) -> None:
        """Say which checkpoints there are, oldest first; their times are those of their files."""
        self.set_last_checkpoints(path for path, _ in last_checkpoints_with_time)

    def recover_last_checkpoints(self, checkpoint_paths: Iterable[Any]) -> None:
        """Go on after a restart: of these checkpoints, know those that exist."""
        self.set_last_checkpoints(path for path in checkpoint_paths if checkpoint_exists(path))

    def recover_best_checkpoints(self, metrics: Mapping[str, float]) -> None:
        """Go on after a restart: of these, prefix -> metric, best first, know those that exist."""
        self._best = {path: value for path, value in metrics.items() if checkpoint_exists(path)}

    # -- saving -----------------------------------------------------------------------------

    def save(
        self,
        sess: Any,
        save_path: Any,
        global_step: Any = None,
        latest_filename: str | None = None,
        meta_graph_suffix: str = "meta",
        write_meta_graph: bool = True,
        write_state: bool = True,
        strip_default_attrs: bool = False,
        save_debug_info: bool = False,
        *,
        extra: Mapping[str, Any] | None = None,
        metric: float | None = None,
    ) -> str:
        """Write the variables' values, all of one moment.

        Args:
            sess: the session that holds the values; None in eager mode.
            save_path: the prefix of the file's name, in a directory that exists.
            global_step: a number, or the variable that holds it, to end the prefix with.
            latest_filename: the name of the record of checkpoints; "checkpoint" if None.
            meta_graph_suffix: accepted as in TF, as is `write_meta_graph`: no graph is written.
            write_meta_graph: see there.
            write_state: keep the record, and delete what `max_to_keep` does not keep.
            strip_default_attrs: accepted as in TF, as is `save_debug_info`.
            save_debug_info: see there.
            extra: what a loop keeps beside the variables, in JSON's types, such as its position
                in the data; `training_state.read_extra` gives it back.
            metric: what `keep_best` goes by; None, and NaN, never count as best.

        Returns:
            The prefix `<save_path>-<step>`, or `save_path` without a step, for `restore`.

        Raises:
            TypeError: `sess` is no Session, or a variable's dtype cannot be saved.
            ValueError: there is no such directory, or a name is none.
            FailedPreconditionError: a variable holds no value.
        """
        variables = self._known()
        if latest_filename is not None and Path(latest_filename).name != latest_filename:
            raise ValueError(f"latest_filename: expected a bare name, got {latest_filename!r}")
        prefix = os.fspath(save_path)
        if global_step is not None:
            prefix = f"{prefix}-{_step(sess, global_step):0{self._digits}d}"
        path = as_path(prefix)
        if path.name == latest_filename:
            raise ValueError(f"save_path: {prefix!r} is the name of the record of checkpoints")
        if not path.parent.is_dir():
            raise ValueError(f"save_path: expected a directory that exists, got {path.parent}")
        saved = str(path).removesuffix(SUFFIX)
        save_state(path, _state(sess, variables, extra))
        self._made.add(saved)
        if write_state:
            before = {*self._last, *self._best}
            self._record(saved, metric)
            update_checkpoint_state(
                path.parent.absolute(),
                _absolute(saved),
                [_absolute(old) for old in self._last],
                latest_filename,
                best={_absolute(old): value for old, value in self._best.items()},
            )
            # After the record, which must not name what is gone.
            for old in sorted(before - {saved, *self._last, *self._best, *self._kept}):
                # What only a record names may be anywhere: it goes if it is beside its successor.
                if old in self._made or as_path(old).parent == path.parent:
                    remove_checkpoint(old)
        return saved

    def _record(self, saved: str, metric: float | None) -> None:
        """Count a checkpoint in, and out what is not kept any longer."""
        if self._max_to_keep:
            self._last = [*(old for old in self._last if old != saved), saved]
            while len(self._last) > self._max_to_keep:
                oldest = self._last.pop(0)
                file = as_path(oldest)
                if file.exists() and file.stat().st_mtime > self._next_kept:
                    self._next_kept += self._keep_for
                    self._kept.add(oldest)
        self._best.pop(saved, None)
        if self._keep_best and metric is not None and not math.isnan(metric):
            self._best[saved] = float(metric)
        # Of equal ones the older is better: it was so first.
        ranked = sorted(self._best.items(), key=lambda item: self._sign * item[1])
        self._best = dict(ranked[: self._keep_best])

    # -- restoring --------------------------------------------------------------------------

    def restore(self, sess: Any, save_path: Any) -> None:
        """Set the variables to what a checkpoint holds; all of them, or none on an error.

        A saver of all variables sets the random counters too, so that training goes on with the
        numbers that would have come. A learning rate that the code gives as another number than
        when the checkpoint was made is left to the code, which is told in the log.

        Args:
            sess: the session to hold the values; None in eager mode.
            save_path: what `save` returned, or `latest_checkpoint`.

        Raises:
            TypeError: `sess` is no Session.
            ValueError: there is no such checkpoint, or it is damaged.
            NotFoundError: a variable is not in it.
            InvalidArgumentError: a variable has another shape or dtype in it.
        """
        variables = self._known()
        if save_path is None:
            raise ValueError("save_path: expected a checkpoint, got None; is there one yet?")
        path = as_path(save_path)
        if not path.is_file():
            raise ValueError(f"save_path: no such checkpoint: {path}")
        header = read_header(path)
        wanted = {name: variable.op for name, variable in variables.items()}
        found = compared(wanted, header.entries, reshape=self._reshape)
        saved = read_extra(path)
        rates: dict[str, Any] = {}
        if saved is not None and variables and not _eager(variables):
            absent = [wanted[name].name for name in found.missing]
            graph = next(iter(variables.values())).graph
            rates = kept_rates(graph, saved.rates, absent)
            names = {op.name: name for name, op in wanted.items()}
            rates = {names[name]: rate for name, rate in rates.items() if name in names}
            found = found._replace(missing=[name for name in found.missing if name not in rates])
        found.require(path)
        if found.extra:
            logging.info("%s: nothing takes %s", path, _counted(sorted(found.extra)))
        arrays, _ = read_arrays(path, found.restored)
        arrays |= rates
        if self._reshape:
            for name, variable in variables.items():
                if variable.shape.is_fully_defined():
                    arrays[name] = arrays[name].reshape(variable.shape.as_list())
        if _eager(variables):
            for name, variable in variables.items():
                variable.assign(arrays[name])
            return
        random = SessionState({}) if saved is None or not _covers(wanted) else saved
        values = {wanted[name].name: array for name, array in arrays.items()}
        _session_of(sess, variables).import_state(
            SessionState(values, random.counters, random.entropy), copy=False
        )

    def _known(self) -> dict[str, Variable]:
        self.build()
        assert self._variables is not None
        return self._variables


def _absolute(prefix: str) -> str:
    return str(expanded("last_checkpoints", prefix).absolute())


def _all_saveable() -> list[Any]:
    graph = get_default_graph()
    return [
        *graph.get_collection(GraphKeys.GLOBAL_VARIABLES),
        *graph.get_collection(GraphKeys.SAVEABLE_OBJECTS),
    ]


def _named(var_list: Any, allow_empty: bool) -> dict[str, Variable]:
    """Variables by their name in the file."""
    pairs: Sequence[tuple[Any, Any]]
    if isinstance(var_list, Mapping):
        pairs = list(var_list.items())
    elif isinstance(var_list, Iterable) and not isinstance(var_list, (str, Variable, Tensor)):
        pairs = [(None, item) for item in var_list]
    else:
        raise TypeError(f"var_list: expected a list or dict of variables, got {var_list!r}")
    named: dict[str, Variable] = {}
    names: dict[Variable, str] = {}
    for key, item in pairs:
        variable = variable_of(item)
        if variable is None:
            raise TypeError(f"var_list: expected variables, got {item!r}")
        name = variable.op.name if key is None else key
        if not isinstance(name, str):
            raise TypeError(f"var_list: expected names as keys, got {name!r}")
        if name in named:
            raise ValueError(f"var_list: two variables are called {name!r}")
        if variable in names:
            raise ValueError(f"var_list: {variable!r} is called {names[variable]!r} and {name!r}")
        named[name] = variable
        names[variable] = name
    if len({variable.graph for variable in named.values()}) > 1:
        raise ValueError("var_list: expected variables of one graph")
    if not named and not allow_empty:
        raise ValueError("var_list: there are no variables to save")
    return named


def _counted(names: Sequence[str]) -> str:
    """Names in a line of the log: the first few, and how many there are where that is not all."""
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{len(names)} entries: {shown}, ..."


def _covers(wanted: Mapping[str, Operation]) -> bool:
    """Whether these are all variables that a checkpoint of their graph is expected to hold."""
    ops = {*wanted.values()}
    graphs = {op.graph for op in ops}
    return all(
        variable.op in ops
        for graph in graphs
        for variable in graph.get_collection(GraphKeys.GLOBAL_VARIABLES)
    )


def _eager(variables: Mapping[str, Variable]) -> bool:
    return any(variable.graph.eager for variable in variables.values())


def _session(sess: Any) -> Session:
    raw = getattr(sess, "_tf_sess", None)  # a MonitoredSession
    sess = raw() if callable(raw) else sess
    if not isinstance(sess, Session):
        raise TypeError(f"sess: expected a Session, got {sess!r}")
    return sess


def _session_of(sess: Any, variables: Mapping[str, Variable]) -> Session:
    """The session, of the variables' graph."""
    session = _session(sess)
    for variable in variables.values():
        if variable.graph is not session.graph:
            raise ValueError(f"sess: {variable!r} is of another graph than the session's")
    return session


def _state(
    sess: Any, variables: Mapping[str, Variable], extra: Mapping[str, Any] | None
) -> TrainingState:
    """What to write: the variables by their names in the file, and what goes with them."""
    if _eager(variables):
        values = {name: variable.numpy() for name, variable in variables.items()}
        return TrainingState(values, extra=dict(extra or {}))
    session = _session_of(sess, variables)
    state = capture(session, extra, [variable.op.name for variable in variables.values()])
    values = {name: state.variables[v.op.name] for name, v in variables.items()}
    return replace(state, variables=values)


def _step(sess: Any, step: Any) -> int:
    if isinstance(step, (int, np.integer)) and not isinstance(step, bool):
        return int(step)
    variable = variable_of(step)
    if variable is not None and variable.graph.eager:
        return int(variable.numpy())
    if variable is None and not isinstance(step, Tensor):
        raise TypeError(f"global_step: expected an int or the step's variable, got {step!r}")
    return step_in(_session(sess), step)
