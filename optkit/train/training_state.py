"""The whole state of a training run, taken from a session, kept in a file, and put back.

A run that is continued from such a state goes on as if it had never ended: variables, slots and
random numbers are those that an uninterrupted run would have.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optkit.errors import NotFoundError
from optkit.global_step import get_global_step
from optkit.graph import Operation
from optkit.runtime import Session, SessionState
from optkit.train.matching import Comparison, compared, given_rates, kept_rates
from optkit.train.tensor_file import Entry, Header, read_arrays, read_header, write_arrays
from optkit.variables import variable_of
from optkit.version import __version__

__all__ = [
    "TrainingState",
    "apply",
    "capture",
    "current_step",
    "load_state",
    "read_extra",
    "save_state",
]

_VERSION = 1
"""Of the layout of a checkpoint's metadata; a file of a later one is refused."""
_STATE = "state"


@dataclass(frozen=True)
class TrainingState(SessionState):
    """A session's state, and what a training loop keeps beside it.

    Attributes:
        step: the global step; None where the graph has none.
        rates: the learning rates that the code gave as numbers, by the names of their variables.
        extra: what loops and hooks keep, in JSON's types: the position in the data, the step of
            the last summary, ...
    """

    step: int | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


def current_step(session: Session, step: Any = None) -> int | None:
    """The value of the global step (of `step`, if given) from storage; None where there is none.

    Raises:
        FailedPreconditionError: the step's variable holds no value.
    """
    found = get_global_step(session.graph) if step is None else step
    if found is None:
        return None
    variable = variable_of(found)
    return int(session.run(found) if variable is None else session.value(variable))


def capture(
    session: Session,
    extra: Mapping[str, Any] | None = None,
    names: Collection[str] | None = None,
) -> TrainingState:
    """The state of a session at this moment.

    Args:
        session: the session.
        extra: what the loop keeps, in JSON's types.
        names: the variables to take, by their operations' names; all that hold a value if None.

    Raises:
        FailedPreconditionError, NotFoundError: as `Session.export_state`.
    """
    state = session.export_state(names)
    step = get_global_step(session.graph)
    variable = None if step is None else variable_of(step)
    held = None if variable is None else state.variables.get(variable.op.name)
    return TrainingState(
        state.variables,
        state.counters,
        state.entropy,
        int(held) if held is not None else None,
        given_rates(session.graph),
        dict(extra or {}),
    )


def apply(
    session: Session,
    state: TrainingState,
    names: Mapping[str, str] | None = None,
    *,
    partial: bool = False,
) -> Comparison:
    """Put a state into a session: all of it, or nothing on an error.

    Random numbers go on from where the state was taken. A learning rate that the code now gives
    as another number is left to the code, which is told in the log.

    Args:
        session: the session.
        state: what `capture` or `load_state` gave.
        names: the variables to set: name in the graph -> name in the state; the graph's global
            variables, and others that the state has, by their own names if None.
        partial: take what fits, and leave the rest and the random numbers alone.

    Returns:
        What was restored, missing, extra and mismatched, by name.

    Raises:
        NotFoundError: the graph or, unless `partial`, the state lacks a variable.
        InvalidArgumentError: a value has another dtype or shape, unless `partial`.
    """
    graph = session.graph
    if names is None:
        wanted = [v.op for v in graph.get_collection("variables")]
        known = {op.name for op in wanted}
        others = (op for op in graph.get_operations() if op.kind.access == "variable")
        wanted += [op for op in others if op.name in state.variables and op.name not in known]
    else:
        wanted = [_variable(session, name) for name in names]
    entries = {name: Entry(a.dtype.name, a.shape) for name, a in state.variables.items()}
    found = compared({op.name: op for op in wanted}, entries, names)
    rates = kept_rates(graph, state.rates, found.missing)
    rates = {name: rate for name, rate in rates.items() if name in {op.name for op in wanted}}
    found = found._replace(missing=[name for name in found.missing if name not in rates])
    if not partial:
        found.require("the state")
    values = {name: state.variables[(names or {}).get(name, name)] for name in found.restored}
    values |= rates
    entropy = None if partial or names is not None else state.entropy
    session.import_state(SessionState(values, state.counters, entropy))
    return found


def _variable(session: Session, name: str) -> Operation:
    try:
        op = session.graph.get_operation_by_name(name)
    except KeyError:
        op = None
    if op is None or op.kind.access != "variable":
        raise NotFoundError(f"names: the graph has no variable {name!r}")
    return op


# -- files ----------------------------------------------------------------------------------------


def save_state(path: Path, state: TrainingState) -> None:
    """Write a state in one file, which is there whole, and on disk, or not at all.

    Raises:
        TypeError: a variable's dtype cannot be written, or `extra` is not of JSON's types.
        OSError: the disk is full, or refuses otherwise; a file that was there still is.
    """
    try:
        text = json.dumps(
            {
                "step": state.step,
                "entropy": state.entropy,
                "counters": dict(state.counters),
                "rates": dict(state.rates),
                "extra": dict(state.extra),
            },
            separators=(",", ":"),
        )
    except ValueError as error:
        raise TypeError(f"extra: expected what JSON can hold: {error}") from error
    except TypeError:
        where = _foreign("extra", dict(state.extra))
        raise TypeError(f"extra: expected what JSON can hold, but {where}") from None
    metadata = {"version": str(_VERSION), "optkit": __version__, _STATE: text}
    write_arrays(path, state.variables, metadata)


def _foreign(place: str, value: Any) -> str:
    """Where in a value something is that JSON does not know, and what."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        try:
            json.dumps({key: item})
        except TypeError:
            inner = f"{place}[{key!r}]"
            nested = isinstance(item, dict | list | tuple)
            return _foreign(inner, item) if nested else f"{inner} is {item!r:.80}"
    return f"{place} is {value!r:.80}"


def load_state(path: Path) -> TrainingState:
    """Read what `save_state` wrote; every byte is checked.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged, not optkit's, or of a later version.
    """
    arrays, header = read_arrays(path)
    return TrainingState(arrays, **_kept(path, header))


def read_extra(path: Path) -> TrainingState | None:
    """What a checkpoint says of its run, without its variables; None if it is not optkit's.

    Raises:
        FileNotFoundError, ValueError: as `load_state`.
    """
    header = read_header(path)
    return TrainingState({}, **_kept(path, header)) if header.own else None


def _kept(path: Path, header: Header) -> dict[str, Any]:
    """The fields of a state that are no arrays, checked."""
    if not header.own:
        raise ValueError(f"{path}: expected a checkpoint of optkit; it holds arrays alone")
    version = header.metadata.get("version", "")
    if version != str(_VERSION):
        raise ValueError(
            f"{path}: expected a checkpoint of version {_VERSION}, got {version!r}, written by "
            f"optkit {header.metadata.get('optkit')}"
        )
    try:
        kept = json.loads(header.metadata[_STATE])
        step, entropy = kept["step"], kept["entropy"]
        counters, rates, extra = kept["counters"], kept["rates"], kept["extra"]
        if not (
            (step is None or type(step) is int)
            and (entropy is None or (type(entropy) is int and 0 <= entropy < 2**64))
            and all(type(n) is int and 0 <= n < 2**64 for n in counters.values())
            and all(type(rate) in (int, float) for rate in rates.values())
            and isinstance(extra, dict)
        ):
            raise ValueError("a field has a wrong type")
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: expected a checkpoint: its state is damaged: {error}") from error
    return {"step": step, "entropy": entropy, "counters": counters, "rates": rates, "extra": extra}
