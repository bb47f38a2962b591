"""contrib's functions that set variables from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from optkit import logging
from optkit.contrib.framework.variables import assignments
from optkit.graph import Operation
from optkit.train.checkpoint_reader import CheckpointReader
from optkit.train.saver import Saver
from optkit.variables import Variable

__all__ = ["assign_from_checkpoint", "assign_from_checkpoint_fn"]


def assign_from_checkpoint(
    model_path: Any, var_list: Any, ignore_missing_vars: bool = False
) -> tuple[Operation, dict[Any, Any]]:
    """An operation that sets variables from a checkpoint, and the feed that it must be run with.

    Args:
        model_path: the prefix of the checkpoint.
        var_list: variables, or a dict from names in the checkpoint to variables.
        ignore_missing_vars: leave variables that the checkpoint lacks as they are, with a warning
            in the log.

    Raises:
        ValueError: the checkpoint lacks a variable, or one has another size there.
        TypeError: a value is of another kind.
        NotFoundError: there is no such checkpoint.

    Source: tf.contrib.framework.assign_from_checkpoint.
    """
    reader = CheckpointReader(model_path)
    chosen = _present(reader, model_path, _by_name(var_list), ignore_missing_vars)
    return assignments([(variable, reader.get_tensor(name)) for name, variable in chosen.items()])


def assign_from_checkpoint_fn(
    model_path: Any,
    var_list: Any,
    ignore_missing_vars: bool = False,
    reshape_variables: bool = False,
) -> Callable[[Any], None] | None:
    """A function that sets variables from a checkpoint in the session it is given.

    Args:
        model_path: the prefix of the checkpoint.
        var_list: variables, or a dict from names in the checkpoint to variables.
        ignore_missing_vars: leave variables that the checkpoint lacks as they are, with a warning
            in the log; where it lacks all of them the result is None.
        reshape_variables: take arrays of another shape with as many elements.

    Raises:
        ValueError: there are no variables.
        NotFoundError: there is no such checkpoint; when called, it lacks a variable.
        InvalidArgumentError: when called, a variable has another shape or dtype there.

    Source: tf.contrib.framework.assign_from_checkpoint_fn.
    """
    chosen = _by_name(var_list)
    if not chosen:
        raise ValueError("var_list: expected variables, got none")
    if ignore_missing_vars:
        chosen = _present(CheckpointReader(model_path), model_path, chosen, ignore=True)
        if not chosen:
            logging.warning("no variables to restore from %s", model_path)
            return None
    saver = Saver(chosen, reshape=reshape_variables)

    def assign(session: Any) -> None:
        saver.restore(session, model_path)

    return assign


def _by_name(var_list: Any) -> dict[str, Variable]:
    if isinstance(var_list, Mapping):
        return dict(var_list)
    return {variable.op.name: variable for variable in var_list}


def _present(
    reader: CheckpointReader, model_path: Any, chosen: Mapping[str, Variable], ignore: bool
) -> dict[str, Variable]:
    """Those that the checkpoint has."""
    absent = [name for name in chosen if not reader.has_tensor(name)]
    if absent and not ignore:
        raise ValueError(f"var_list: {model_path} lacks {', '.join(map(repr, absent))}")
    for name in absent:
        logging.warning("variable %s is missing in %s and stays as it is", name, model_path)
    return {name: variable for name, variable in chosen.items() if name not in absent}
