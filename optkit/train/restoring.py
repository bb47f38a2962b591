"""Restoring what fits: after another optimizer, a renamed layer, a new head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optkit import logging
from optkit.errors import NotFoundError
from optkit.runtime import Session
from optkit.train.checkpoints import as_path
from optkit.train.matching import Comparison
from optkit.train.tensor_file import read_arrays
from optkit.train.training_state import TrainingState, apply, read_extra
from optkit.variables import variable_of

__all__ = ["restore_partial"]


def restore_partial(sess: Any, save_path: Any, var_list: Any = None) -> Comparison:
    """Set the variables that a checkpoint has values for; the others stay as they are.

        session.run(tf.global_variables_initializer())
        report = tf.train.restore_partial(session, "runs/adagrad/model.ckpt-1000")
        print(report.missing)       # the new optimizer's slots

    Random numbers are left alone. A learning rate that the code gives as another number than when
    the checkpoint was made is left to the code, which is told in the log.

    Args:
        sess: the session to hold the values, in which the variables have been initialised.
        save_path: the prefix of a checkpoint.
        var_list: variables, or a dict from names in the checkpoint to variables; all global
            variables if None.

    Returns:
        By name: `restored`; `missing` in the checkpoint; `extra` there; and `mismatched`, where
        dtype or shape differ, with how. The log has the same.

    Raises:
        TypeError: `sess` is no Session, or something in var_list no variable.
        NotFoundError: there is no such checkpoint.
        ValueError: it is damaged.
    """
    if not isinstance(sess, Session):
        raise TypeError(f"sess: expected a Session, got {sess!r}")
    path = as_path(save_path)
    if not path.is_file():
        raise NotFoundError(f"save_path: no such checkpoint: {path}")
    saved = read_extra(path)
    arrays, _ = read_arrays(path)
    state = TrainingState(arrays, rates={} if saved is None else saved.rates)
    report = apply(sess, state, _names(var_list), partial=True)
    for what, names in (
        ("restored", report.restored),
        ("missing in it, left as they are", report.missing),
        ("only there", report.extra),
        ("of another dtype or shape, left", [f"{n}: {w}" for n, w in report.mismatched.items()]),
    ):
        if names:
            logging.info("%s: %s: %s", path, what, ", ".join(names))
    return report


def _names(var_list: Any) -> dict[str, str] | None:
    """Name in the graph -> name in the checkpoint; None for all by their own names."""
    if var_list is None:
        return None
    items = (
        list(var_list.items())
        if isinstance(var_list, Mapping)
        else [(None, item) for item in var_list]
    )
    names = {}
    for key, item in items:
        variable = variable_of(item)
        if variable is None:
            raise TypeError(f"var_list: expected variables, got {item!r}")
        names[variable.op.name] = variable.op.name if key is None else key
    return names
