"""Columns as a table: pandas where it is installed, else a structured NumPy array."""

import csv
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from summaries._optional import optional

Columns: TypeAlias = Mapping[str, NDArray[Any]]

LIBRARIES = ("auto", "pandas", "numpy")


def table(columns: Columns, library: str = "auto") -> Any:
    """The columns as a DataFrame, or as a structured array; both give a column by its name.

    Args:
        columns: arrays of one length; texts as arrays of objects.
        library: "pandas", "numpy", or "auto" for pandas where it is installed.

    Raises:
        ImportError: pandas is asked for and not installed.
        ValueError: `library` is none of those.
    """
    if library not in LIBRARIES:
        raise ValueError(f"library: expected one of {', '.join(LIBRARIES)}, got {library!r}")
    if library == "pandas" or (library == "auto" and find_spec("pandas") is not None):
        return optional("pandas", "notebook").DataFrame(dict(columns))
    size = max((len(column) for column in columns.values()), default=0)
    rows = np.empty(size, [(name, column.dtype) for name, column in columns.items()])
    for name, column in columns.items():
        rows[name] = column
    return rows


def objects(values: Sequence[Any]) -> NDArray[Any]:
    """Values as a one-dimensional array of objects, whatever they are."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def repeated(name: str, count: int) -> NDArray[Any]:
    """A text as a column."""
    array = np.empty(count, object)
    array.fill(name)
    return array


def joined(parts: Iterable[Columns], names: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Tables below each other; `names` has the dtype of each column, for when there are none."""
    pieces = list(parts)
    return {
        name: np.concatenate([np.empty(0, dtype), *(piece[name] for piece in pieces)])
        if pieces
        else np.empty(0, dtype)
        for name, dtype in names.items()
    }


def write_csv(
    target: str | os.PathLike[str] | TextIO, header: Sequence[str], rows: Iterator[Sequence[Any]]
) -> None:
    """Write rows as CSV, numbers with every digit that they have, to a path or an open file."""
    if isinstance(target, str | os.PathLike):
        with Path(target).expanduser().open("w", newline="", encoding="utf-8") as file:
            write_csv(file, header, rows)
        return
    if not hasattr(target, "write"):
        raise TypeError(f"target: expected a path or a file open for text, got {target!r:.60}")
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
