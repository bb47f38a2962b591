"""One tag over several runs, as seeds of one experiment: mean and spread, step by step."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from summaries.reader import Scalars
from summaries.tables import joined, repeated, table

STEPS = ("common", "any")


class Band(NamedTuple):
    """A tag's mean over runs at each step, with the deviation, the extremes and how many had it."""

    steps: NDArray[np.int64]
    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    runs: NDArray[np.int64]


class Bands(Mapping[str, Band]):
    """The bands of several tags, and in `mismatches` a line for whatever the runs did not share."""

    def __init__(self, bands: Mapping[str, Band], mismatches: list[str]) -> None:
        self._bands = dict(bands)
        self.mismatches = mismatches

    def __getitem__(self, tag: str) -> Band:
        return self._bands[tag]

    def __iter__(self) -> Iterator[str]:
        return iter(self._bands)

    def __len__(self) -> int:
        return len(self._bands)

    def __repr__(self) -> str:
        return f"<summaries.bands.Bands of {len(self)} tags, {len(self.mismatches)} mismatches>"

    def table(self, library: str = "auto") -> Any:
        """All bands as one table with the columns tag, step, mean, std, low, high and runs."""
        dtypes = {"tag": object, "step": np.int64, "mean": float, "std": float}
        dtypes |= {"low": float, "high": float, "runs": np.int64}
        parts = (
            dict(zip(dtypes, (repeated(tag, len(band.steps)), *band), strict=True))
            for tag, band in self._bands.items()
        )
        return table(joined(parts, dtypes), library)


def make_bands(runs: Mapping[str, Mapping[str, Scalars]], steps: str, ddof: int) -> Bands:
    """The bands of all tags of runs, each run given by its scalars.

    Of several points of a run at one step the last counts. A value that is not finite makes mean
    and spread at its step what NumPy makes them.

    Args:
        runs: for each run the columns of its tags.
        steps: "common" keeps the steps that all runs with the tag have, "any" every step.
        ddof: what is subtracted from the number n of runs: std = √(Σ(x - mean)²/(n - ddof)).

    Raises:
        ValueError: `steps` is neither.
    """
    if steps not in STEPS:
        raise ValueError(f"steps: expected one of {', '.join(STEPS)}, got {steps!r}")
    bands: dict[str, Band] = {}
    mismatches: list[str] = []
    for tag in dict.fromkeys(tag for scalars in runs.values() for tag in scalars):
        series = {name: scalars[tag] for name, scalars in runs.items() if tag in scalars}
        missing = [name for name in runs if name not in series]
        if missing:
            mismatches.append(f"{tag!r} is not in {', '.join(missing)}")
        band, notes = _band(series, steps, ddof)
        mismatches += [f"{tag!r}: {note}" for note in notes]
        bands[tag] = band
    return Bands(bands, mismatches)


def _band(series: Mapping[str, Scalars], steps: str, ddof: int) -> tuple[Band, list[str]]:
    """The band of one tag, and a line for each way in which the runs differ in their steps."""
    notes = []
    columns = {}
    for name, scalars in series.items():
        unique, last = np.unique(scalars.steps[::-1], return_index=True)
        columns[name] = unique, scalars.values[::-1][last]
        if len(unique) < len(scalars.steps):
            more = len(scalars.steps) - len(unique)
            notes.append(f"{name} has {more} of its steps again; the last value counts")
    union = np.unique(np.concatenate([own for own, _ in columns.values()]))
    values = np.zeros((len(columns), len(union)))
    there = np.zeros(values.shape, bool)
    for row, (own, numbers) in enumerate(columns.values()):
        at = np.searchsorted(union, own)
        values[row, at] = numbers
        there[row, at] = True
    for name, has in zip(columns, there, strict=True):
        absent = int(np.count_nonzero(~has))
        if absent:
            what = "left out" if steps == "common" else "taken from the others"
            notes.append(f"{name} lacks {absent} of {len(union)} steps, {what}")
    if steps == "common":
        shared = there.all(axis=0)
        union, values, there = union[shared], values[:, shared], there[:, shared]
    return Band(union, *_spread(values, there, ddof)), notes


def _spread(
    values: NDArray[np.float64], there: NDArray[np.bool_], ddof: int
) -> tuple[
    NDArray[np.float64],
    NDArray[np.float64],
    NDArray[np.float64],
    NDArray[np.float64],
    NDArray[np.int64],
]:
    count = there.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.sum(values, axis=0, where=there) / count
        squares = np.sum(np.square(values - mean), axis=0, where=there)
        std = np.sqrt(squares / np.maximum(count - ddof, 0))
    low = np.min(values, axis=0, where=there, initial=np.inf)
    high = np.max(values, axis=0, where=there, initial=-np.inf)
    return mean, std, low, high, count
