"""What a checkpoint holds against what a graph wants of it, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from optkit import logging
from optkit.errors import InvalidArgumentError, NotFoundError
from optkit.graph import Graph, Operation
from optkit.shapes import TensorShape, fits
from optkit.train.tensor_file import Entry

__all__ = ["Comparison", "compared", "given_rates", "kept_rates", "number_given"]

_LISTED = 20
_RATES = "given_rates"


class Comparison(NamedTuple):
    """What of a checkpoint goes where; all by name.

    Attributes:
        restored: names in the graph whose values are taken.
        missing: names in the graph that the checkpoint lacks.
        extra: names in the checkpoint that nothing in the graph takes.
        mismatched: name in the graph -> how its dtype or shape differs.
    """

    restored: list[str]
    missing: list[str]
    extra: list[str]
    mismatched: dict[str, str]

    def require(self, where: Any) -> None:
        """Refuse what is missing or does not fit; the error names all of it.

        Raises:
            NotFoundError: something is missing.
            InvalidArgumentError: something has another dtype or shape.
        """
        if not self.missing and not self.mismatched:
            return
        complaints = [f"{name!r} is missing" for name in self.missing]
        complaints += [f"{name!r}: {why}" for name, why in self.mismatched.items()]
        message = f"{where} does not fit the variables: {'; '.join(complaints)}"
        if self.missing:
            others = ", ".join(sorted(self.extra)[:_LISTED])
            raise NotFoundError(f"{message}; else it has {others or 'nothing'}")
        raise InvalidArgumentError(message)


def compared(
    wanted: Mapping[str, Operation],
    found: Mapping[str, Entry],
    names: Mapping[str, str] | None = None,
    reshape: bool = False,
) -> Comparison:
    """Hold variables against the entries of a checkpoint.

    Args:
        wanted: name in the graph -> the variable's operation.
        found: name in the checkpoint -> dtype and shape.
        names: name in the graph -> name in the checkpoint, where they differ.
        reshape: take arrays of another shape with as many elements.
    """
    of = {name: (names or {}).get(name, name) for name in wanted}
    taken = set(of.values())
    result = Comparison([], [], [name for name in found if name not in taken], {})
    for name, op in wanted.items():
        entry = found.get(of[name])
        if entry is None:
            result.missing.append(name)
            continue
        handle = op.outputs[0]
        why = []
        if entry.dtype != handle.dtype.name:
            why.append(f"expected {handle.dtype.name}, got {entry.dtype}")
        shape = TensorShape(handle.sizes)
        as_many = reshape and shape.num_elements() == np.prod(entry.shape, dtype=int)
        if not fits(handle.sizes, entry.shape) and not as_many:
            why.append(f"expected shape {shape}, got {entry.shape}")
        if why:
            result.mismatched[name] = "; ".join(why)
        else:
            result.restored.append(name)
    return result


# -- learning rates -------------------------------------------------------------------------------
# A rate that is given as a number is a variable, so that it can be changed while training goes on.
# A number given anew in the code must win over what an old checkpoint says.


def number_given(variable: Operation, number: float) -> None:
    """Note that `variable` holds a rate, and that the code gives it as this number."""
    variable.graph.table(_RATES)[variable] = number


def given_rates(graph: Graph) -> dict[str, float]:
    """The numbers that the code gives as rates, by the names of their variables."""
    return {op.name: number for op, number in graph.table(_RATES).items()}


def kept_rates(graph: Graph, saved: Mapping[str, float], missing: list[str]) -> dict[str, Any]:
    """The rates that a restore leaves to the code, with their values; each is told in the log.

    They are those whose number in the code is not the one that the checkpoint was made with, and
    those that the checkpoint lacks.

    Args:
        graph: the graph whose rates are meant.
        saved: `given_rates` when the checkpoint was made.
        missing: names that the checkpoint lacks.
    """
    kept = {}
    for op, number in graph.table(_RATES).items():
        if op.name in missing:
            logging.info("%s: not in the checkpoint; the code's %g is used", op.name, number)
        elif op.name not in saved or saved[op.name] == number:
            continue
        else:
            logging.warning(
                "%s: %g in the checkpoint, %g in the code; the code's is used",
                op.name,
                saved[op.name],
                number,
            )
        kept[op.name] = np.asarray(number, op.outputs[0].dtype.dtype)
    return kept
