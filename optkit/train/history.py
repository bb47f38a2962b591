"""What `fit` measured, step by step."""

from __future__ import annotations

import html
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["History"]

_SHOWN = 8
"""Rows that `repr` shows, the first and the last ones."""


class History:
    """The measurements of a `fit`: one row a step, one column a quantity, 8 bytes each.

    Attributes:
        session: the session that trained; its variables hold the result.
        logdir: the run's directory, or None.
        stopped: why training ended: "steps", "data", "early stopping", "interrupt" or "hook"; ""
            while it goes on, and after an error.
        seconds: how long it took; data_seconds: how much of it went into getting batches.
        skipped: the steps that were skipped because something was not finite.
    """

    def __init__(self, session: Any = None, logdir: Path | None = None) -> None:
        self.session = session
        self.logdir = logdir
        self.stopped = ""
        self.seconds = 0.0
        self.data_seconds = 0.0
        self.skipped: list[int] = []
        self._steps = array("q")
        # Dense columns have a value for each step, the others only where one was measured.
        self._dense: dict[str, array[float]] = {}
        self._sparse: dict[str, tuple[array[int], array[float]]] = {}

    # -- recording --------------------------------------------------------------------------

    def dense(self, name: str) -> array[float]:
        """The column to append one value to with each step; for `fit`."""
        return self._dense.setdefault(name, array("d"))

    def record(self, step: int, name: str, value: float) -> None:
        """A value of a column that has none for most steps."""
        rows, values = self._sparse.setdefault(name, (array("q"), array("d")))
        rows.append(step)
        values.append(value)

    def rewind(self, step: int) -> None:
        """Forget what was measured after `step`."""
        keep = int(np.searchsorted(self.steps, step, side="right"))
        del self._steps[keep:]
        for values in self._dense.values():
            del values[keep:]
        for rows, values in self._sparse.values():
            kept = int(np.searchsorted(np.frombuffer(rows, np.int64), step, side="right"))
            del rows[kept:]
            del values[kept:]

    # -- reading ----------------------------------------------------------------------------

    @property
    def steps(self) -> np.ndarray[Any, Any]:
        """The steps, int64: the value of the global step after each."""
        return np.array(self._steps, np.int64)

    @property
    def columns(self) -> dict[str, np.ndarray[Any, Any]]:
        """Each column by its name: float64, a value a step, NaN where nothing was measured."""
        return {name: self[name] for name in (*self._dense, *self._sparse)}

    @property
    def final(self) -> dict[str, float]:
        """The newest value of each column."""
        newest = {name: values[-1] for name, values in self._dense.items() if values}
        newest |= {name: values[-1] for name, (_, values) in self._sparse.items() if values}
        return newest

    @property
    def steps_per_second(self) -> float:
        """Steps a second, all included."""
        return len(self._steps) / self.seconds if self.seconds else 0.0

    def curve(self, name: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The steps at which a column was measured, and its values.

        Raises:
            KeyError: there is no such column.
        """
        if name in self._sparse:
            rows, values = self._sparse[name]
            return np.array(rows, np.int64), np.array(values)
        return self.steps, self[name]

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        if name in self._dense:
            return np.array(self._dense[name])
        if name not in self._sparse:
            known = ", ".join([*self._dense, *self._sparse])
            raise KeyError(f"no column {name!r}; there are {known or 'none'}")
        column = np.full(len(self._steps), np.nan)
        rows, values = self.curve(name)
        places = np.searchsorted(self._steps, rows)
        within = places < len(column)  # an evaluation before the first step has no row
        within[within] = self.steps[places[within]] == rows[within]
        column[places[within]] = values[within]
        return column

    def __contains__(self, name: object) -> bool:
        return name in self._dense or name in self._sparse

    def __iter__(self) -> Iterator[str]:
        return iter([*self._dense, *self._sparse])

    def __len__(self) -> int:
        return len(self._steps)

    def to_pandas(self) -> Any:
        """A data frame with the steps as its index.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "to_pandas needs pandas: pip install 'optkit[notebook]'; columns are NumPy arrays "
                "without it",
                name="pandas",
            ) from error
        return pd.DataFrame(self.columns, index=pd.Index(self.steps, name="step"))

    # -- showing ----------------------------------------------------------------------------

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """The header, and the rows that are shown; evaluations fill the gaps before them."""
        count = len(self._steps)
        names = list(self)
        rows = np.arange(count)
        if count > _SHOWN:
            rows = np.unique(np.linspace(0, count - 1, _SHOWN).astype(int))
        table = []
        for row in rows:
            step = self._steps[row]
            texts = [str(step)]
            for name in names:
                if name in self._dense:
                    value = self._dense[name][row]
                else:
                    at, values = self._sparse[name]
                    place = int(np.searchsorted(np.array(at), step, side="right")) - 1
                    value = values[place] if place >= 0 else float("nan")
                empty = value != value and name in self._sparse
                texts.append("" if empty else f"{value:.4g}")
            table.append(texts)
        return ["step", *names], table

    def _title(self) -> str:
        count = len(self._steps)
        text = f"{count} step{'' if count == 1 else 's'}"
        if self.seconds:
            text += f" in {self.seconds:.3g} s, {self.steps_per_second:.4g} steps/s"
        if self.stopped:
            text += f"; ended by {self.stopped}"
        if self.skipped:
            text += f"; {len(self.skipped)} skipped"
        return text

    def __repr__(self) -> str:
        header, rows = self._table()
        lines = [f"<optkit.History: {self._title()}"]
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        for texts in (header, *rows):
            cells = (text.rjust(width) for text, width in zip(texts, widths, strict=True))
            lines.append("  " + "  ".join(cells).rstrip())
        return "\n".join(lines) + ">"

    def _repr_html_(self) -> str:
        header, rows = self._table()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in texts) + "</tr>"
            for texts in rows
        )
        return (
            f"<p>optkit.History: {html.escape(self._title())}</p>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )
