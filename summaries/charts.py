"""Charts of event files as pictures: they need no server and stay in a saved notebook."""

import io
import math
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from summaries.bands import Band
from summaries.histogram import Histogram
from summaries.reader import Histograms, Patterns, Selection
from summaries.runs import EVAL, Runs, Source, read

KINDS = ("scalars", "histograms", "distributions")
X_AXES = ("step", "time")
_QUANTILES = (0, 0.07, 0.16, 0.31, 0.5, 0.69, 0.84, 0.93, 1)  # 0, ±0.5, ±1 and ±1.5 sigma, the ends
_RIDGES = 24  # more lines hide each other
_GRID = 160  # points across a ridge
_DPI = 100


class Chart:
    """A picture of one panel a tag, which Jupyter shows and saves; `figure` is matplotlib's."""

    def __init__(self, figure: Any, tags: list[str]) -> None:
        self.figure = figure
        self.tags = tags

    def __repr__(self) -> str:
        return f"<summaries.Chart of {', '.join(self.tags)}>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture; the ending of the name says how: png, svg or pdf."""
        self.figure.savefig(Path(path).expanduser())

    def show(self) -> None:
        """Display the picture below a notebook's cell, where it is not the cell's value.

        Raises:
            ImportError: IPython is not installed.
        """
        import_module("IPython.display").display(self)

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """The picture in more pixels than it is shown with, for dense screens."""
        file = io.BytesIO()
        self.figure.savefig(file, format="png", dpi=1.5 * _DPI)
        width, height = self.figure.get_size_inches() * _DPI
        return file.getvalue(), {"width": int(width), "height": int(height)}


def plot(
    source: Source | Runs,
    tags: Patterns | None = None,
    *,
    kind: str | None = None,
    x: str = "step",
    smoothing: float = 0.0,
    band: bool = False,
    log: bool = False,
    columns: int = 3,
    size: tuple[float, float] = (4.2, 2.9),
) -> Chart:
    """Draw a panel for each tag: scalars as lines, one a run; histograms over the steps.

    The chart is a PNG in the notebook, so it is there when the notebook is opened elsewhere.
    Scalars with more than 2000 points are drawn with those that matter to the eye: the lowest and
    highest of each 1000th part.

    Args:
        source: runs, or what `read` takes.
        tags: which tags, as in `read`, and in that order; None is every tag of the kind.
        kind: "scalars"; "histograms", one curve for each of some steps, the newest in front;
            "distributions", the median and bands with 38, 68, 86 and 100 % of the values; None is
            scalars if the tags have any, else histograms.
        x: "step", or "time" in seconds since a run's first point.
        smoothing: s in [0, 1): draws the average m ← s·m + (1 - s)·x, without bias at its start,
            before the points themselves, which turn pale.
        band: draw mean ± standard deviation over the runs of a group (see `Runs.groups`), or over
            all runs if they name no group, instead of each run.
        log: a logarithmic axis for the values of scalars.
        columns: how many panels stand beside each other.
        size: width and height of a panel in inches; there are 100 pixels an inch.

    Raises:
        FileNotFoundError: there is no such path, or no event file in it.
        ImportError: matplotlib is not installed.
        KeyError: no tag of the kind matches.
        ValueError: an argument is out of its range.
    """
    if kind not in (None, *KINDS):
        raise ValueError(f"kind: expected one of {', '.join(KINDS)} or None, got {kind!r}")
    if x not in X_AXES:
        raise ValueError(f"x: expected one of {', '.join(X_AXES)}, got {x!r}")
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing: expected a number in [0, 1), got {smoothing!r}")
    if columns < 1:
        raise ValueError(f"columns: expected at least 1, got {columns!r}")
    runs = source if isinstance(source, Runs) else read(source)
    kind, names = _chosen(runs, Selection(tags), kind)
    draw: Callable[[Any, str, str], None]
    if kind == "scalars":
        bands = _mean_bands(runs, names) if band else {}
        panels = [("", tag) for tag in names]

        def draw(axes: Any, _: str, tag: str) -> None:
            if band:
                _draw_bands(axes, bands[tag])
            else:
                _draw_lines(axes, runs, tag, x, smoothing)
            if log:
                axes.set_yscale("log")
            axes.set_xlabel("step" if x == "step" or band else "seconds")
    else:
        panels = [(name, tag) for tag in names for name in runs.names if runs[name].tags().get(tag)]
        paint = _draw_ridges if kind == "histograms" else _draw_distribution

        def draw(axes: Any, name: str, tag: str) -> None:
            paint(axes, runs[name].histograms(tag), f"C{runs.names.index(name) % 10}")

    return Chart(_figure(panels, draw, columns, size, len(runs) > 1), names)


def _chosen(runs: Runs, selection: Selection, kind: str | None) -> tuple[str, list[str]]:
    """The kind to draw and its tags."""
    kinds = {tag: each for tag, each in runs.tags().items() if selection.wants(tag)}
    if kind is None:
        kind = "scalars" if "scalar" in kinds.values() else "histograms"
    of = "scalar" if kind == "scalars" else "histogram"
    names = sorted((tag for tag, each in kinds.items() if each == of), key=selection.rank)
    if not names:
        some = ", ".join([*runs.tags()][:8]) or "none"
        raise KeyError(f"no {of} has a tag that matches; there are: {some}")
    return kind, names


def _figure(
    panels: Sequence[tuple[str, str]],
    draw: Callable[[Any, str, str], None],
    columns: int,
    size: tuple[float, float],
    several: bool,
) -> Any:
    """A figure with a panel for each run (or "" for all of them) and tag."""
    # Not pyplot: that keeps figures alive, and shows them a second time in a notebook.
    figures = import_module("matplotlib.figure")
    columns = min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = figures.Figure(
        figsize=(size[0] * columns, size[1] * rows), dpi=_DPI, layout="constrained"
    )
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (name, tag) in zip(grid, panels, strict=False):
        draw(axes, name, tag)
        title = _shortened(tag, int(size[0] * 13))  # about 13 letters an inch
        axes.set_title(f"{title}\n{name}" if name and several else title, fontsize=9)
        axes.tick_params(which="both", labelsize=8)
        axes.xaxis.label.set_fontsize(8)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    handles, labels = grid[0].get_legend_handles_labels()
    for axes in grid[1 : len(panels)]:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            if label not in labels:
                handles.append(handle)
                labels.append(label)
    if len(labels) > 1:
        figure.legend(
            handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False
        )
    return figure


def _shortened(text: str, most: int) -> str:
    """The text, or its end where it is too long."""
    return text if len(text) <= most else f"…{text[1 - most :]}"


def _draw_lines(axes: Any, runs: Runs, tag: str, x: str, smoothing: float) -> None:
    for index, name in enumerate(runs.names):
        columns = runs[name].all_scalars().get(tag)
        if columns is None:
            continue
        at = columns.steps if x == "step" else columns.wall_times - columns.wall_times[:1]
        colour = f"C{index % 10}"
        few_at, few = thinned(at, columns.values)
        if not smoothing:
            axes.plot(few_at, few, color=colour, linewidth=1.2, label=name)
            continue
        axes.plot(few_at, few, color=colour, linewidth=0.8, alpha=0.25)
        smooth_at, smooth = thinned(at, smoothed(columns.values, smoothing))
        axes.plot(smooth_at, smooth, color=colour, linewidth=1.4, label=name)
    axes.grid(alpha=0.25)


def _mean_bands(runs: Runs, tags: list[str]) -> dict[str, dict[str, Band]]:
    """For each tag the bands of the groups, those of their evaluations apart."""
    groups = runs.groups()
    if groups.keys() <= set(runs.names):  # none is named
        groups = {f"mean of {len(groups)} runs": runs}
    found: dict[str, dict[str, Band]] = {tag: {} for tag in tags}
    for name, group in groups.items():
        bands = group.bands([*tags, *(f"{EVAL}/{tag}" for tag in tags)])
        for tag in tags:
            for key, label in ((tag, name), (f"{EVAL}/{tag}", f"{name}, eval")):
                if key in bands:
                    found[tag][label] = bands[key]
    return found


def _draw_bands(axes: Any, bands: dict[str, Band]) -> None:
    for index, (name, each) in enumerate(bands.items()):
        colour = f"C{index % 10}"
        axes.plot(each.steps, each.mean, color=colour, linewidth=1.4, label=name)
        axes.fill_between(
            each.steps, each.mean - each.std, each.mean + each.std, color=colour, alpha=0.2, lw=0
        )
    axes.grid(alpha=0.25)


def _draw_ridges(axes: Any, histograms: Histograms, colour: str) -> None:
    """Densities over the values, one for each step, moved up with the step's age."""
    steps, values = _some(histograms, _RIDGES)
    if not values:
        return
    low = min(quantile(each, 0.001) for each in values)
    high = max(quantile(each, 0.999) for each in values)
    if not low < high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, _GRID + 1)
    middles = (edges[:-1] + edges[1:]) / 2
    curves = [np.diff(counts_below(each, edges)) / max(each.num, 1) for each in values]
    tallest = max(float(curve.max()) for curve in curves) or 1.0
    gap = 1.0 / len(curves)
    for rank, curve in enumerate(curves):  # the newest is drawn last, in front and lowest
        base = (len(curves) - 1 - rank) * gap
        shade = 0.25 + 0.65 * (rank + 1) / len(curves)
        top = base + curve / tallest * 0.6
        axes.fill_between(middles, base, top, color=colour, alpha=shade, linewidth=0, zorder=rank)
        axes.plot(middles, top, color="white", linewidth=0.6, zorder=rank + 0.5)
    ticks = np.unique(np.linspace(0, len(curves) - 1, 5).astype(int))
    axes.set_yticks([(len(curves) - 1 - rank) * gap for rank in ticks], [steps[i] for i in ticks])
    axes.set_ylabel("step", fontsize=8)


def _draw_distribution(axes: Any, histograms: Histograms, colour: str) -> None:
    """Bands between equally rare quantiles, over the steps."""
    steps, values = _some(histograms, 500)
    if not values:
        return
    lines = np.array([[quantile(each, q) for q in _QUANTILES] for each in values]).T
    middle = len(_QUANTILES) // 2
    for i in range(middle):
        axes.fill_between(steps, lines[i], lines[-1 - i], color=colour, alpha=0.17, linewidth=0)
    axes.plot(steps, lines[middle], color=colour, linewidth=1.4)
    axes.grid(alpha=0.25)
    axes.set_xlabel("step")


def _some(histograms: Histograms, most: int) -> tuple[NDArray[np.int64], list[Histogram]]:
    """At most so many of the histograms that hold something, evenly spread, with the last one."""
    full = [index for index, each in enumerate(histograms.values) if each.num]
    kept = (
        [full[i] for i in np.unique(np.linspace(0, len(full) - 1, most).astype(int))]
        if full
        else []
    )
    return histograms.steps[kept], [histograms.values[index] for index in kept]


def counts_below(histogram: Histogram, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many values lie below each edge, if those of a bucket are spread evenly over it."""
    limits = np.clip(
        np.concatenate(([histogram.min], histogram.limits)), histogram.min, histogram.max
    )
    sums = np.concatenate(([0.0], np.cumsum(histogram.counts)))
    # Buckets beyond the extremes have no width left; of equal limits the last sum counts.
    limits, last = np.unique(limits[::-1], return_index=True)
    return np.interp(edges, limits, sums[::-1][last], left=0.0)


def quantile(histogram: Histogram, share: float) -> float:
    """The value below which a share of the values lies, by the same assumption."""
    sums = np.concatenate(([0.0], np.cumsum(histogram.counts)))
    limits = np.clip(
        np.concatenate(([histogram.min], histogram.limits)), histogram.min, histogram.max
    )
    target = share * sums[-1]
    at = int(np.searchsorted(sums, target, side="left"))
    if at == 0:
        return float(histogram.min)
    low, high = sums[at - 1], sums[at]
    part = (target - low) / (high - low) if high > low else 1.0
    return float(limits[at - 1] + part * (limits[at] - limits[at - 1]))


def smoothed(values: NDArray[np.float64], weight: float) -> NDArray[np.float64]:
    """The moving average m ← weight·m + (1 - weight)·x, divided by the sum of its weights.

    Values that are not finite are left out of it and stay where they are.
    """
    out = np.empty(len(values))
    average = total = 0.0
    for index, value in enumerate(values.tolist()):
        if math.isfinite(value):
            average = weight * average + (1 - weight) * value
            total = weight * total + (1 - weight)
            out[index] = average / total
        else:
            out[index] = value
    return out


def thinned(
    at: NDArray[Any], values: NDArray[np.float64], parts: int = 1000
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """The points, or the lowest and highest of each part where there are more than two a part."""
    if len(values) <= 2 * parts:
        return at, values
    kept = []
    for part in np.array_split(np.arange(len(values)), parts):
        inner = values[part]
        if np.isnan(inner).any():
            kept += [part[0], part[-1]] if np.isnan(inner).all() else _ends(part, inner)
        else:
            kept += [part[inner.argmin()], part[inner.argmax()]]
    index = np.unique([0, *kept, len(values) - 1])
    return at[index], values[index]


def _ends(part: NDArray[np.intp], values: NDArray[np.float64]) -> list[Any]:
    """The lowest and highest number of a part, and its first NaN, which breaks the line."""
    return [
        part[np.nanargmin(values)],
        part[np.nanargmax(values)],
        part[np.flatnonzero(np.isnan(values))[0]],
    ]
