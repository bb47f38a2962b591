"""Charts of event files as pictures: they need no server and stay in a saved notebook."""

import io
import math
import os
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from summaries._optional import optional
from summaries.bands import Band
from summaries.histogram import Histogram
from summaries.reader import Histograms, Patterns, Selection
from summaries.runs import EVAL, Runs, Source, read

KINDS = ("scalars", "histograms", "distributions")
X_AXES = ("step", "time")
_QUANTILES = (0, 0.07, 0.16, 0.31, 0.5, 0.69, 0.84, 0.93, 1)  # 0, ±0.5, ±1 and ±1.5 sigma, the ends
_RIDGES = 24  # more lines hide each other
_GRID = 80  # points across a ridge
_PANELS = 60  # each takes a fifth of a second
_FAR = 1e307  # matplotlib's axes overflow beyond
_LETTERS = 13  # an inch, of a title or the legend
_DASHES = ("solid", (0, (4, 2)), (0, (1.5, 1.5)), (0, (6, 1.5, 1, 1.5)))
_DPI = 100

_Lines: TypeAlias = dict[str, Any]
_Draw: TypeAlias = Callable[[Any, str, str], _Lines]


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
        optional("IPython.display", "notebook").display(self)

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """The picture in more pixels than it is shown with, for dense screens."""
        file = io.BytesIO()
        self.figure.savefig(file, format="png", dpi=1.5 * _DPI)
        width, height = self.figure.get_size_inches() * _DPI
        return file.getvalue(), {"width": round(width), "height": round(height)}


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
    highest of each 1000th part. Infinite values, and those beyond ±1e307, leave a gap. Of more than
    60 panels the first ones are drawn, and of a long legend the first names; either says so.

    Args:
        source: runs, or what `read` takes.
        tags: which tags, as in `read`, and in that order; None is every tag of the kind.
        kind: "scalars"; "histograms", a curve for each of some steps, the newest in front, as high
            as the square root of the density, and as wide as 99 % of all values;
            "distributions", the median and bands with 38, 68, 86 and 100 % of the values; None is
            scalars if the tags have any, else histograms.
        x: "step", or "time" in seconds since a run's first point.
        smoothing: s in [0, 1): draws the average m ← s·m + (1 - s)·x, without bias at its start,
            before the points themselves, which turn pale.
        band: draw mean ± standard deviation over the runs of a group (see `Runs.groups`), or over
            all runs if they name no group, instead of each run.
        log: a logarithmic axis for the values of scalars, where some are above zero.
        columns: how many panels stand beside each other.
        size: width and height of a panel in inches, 1.5 or more; there are 100 pixels an inch.

    Raises:
        FileNotFoundError: there is no such path, or no event file in it.
        ImportError: matplotlib is not installed.
        KeyError: no tag of the kind matches.
        TypeError, ValueError: an argument is not as it should be.
    """
    if kind not in (None, *KINDS):
        raise ValueError(f"kind: expected one of {', '.join(KINDS)} or None, got {kind!r}")
    if x not in X_AXES:
        raise ValueError(f"x: expected one of {', '.join(X_AXES)}, got {x!r}")
    if not (isinstance(smoothing, Real) and 0 <= smoothing < 1):
        raise ValueError(f"smoothing: expected a number in [0, 1), got {smoothing!r}")
    if not (isinstance(columns, Integral) and columns >= 1):
        raise ValueError(f"columns: expected a whole number of at least 1, got {columns!r}")
    if not _is_size(size):
        raise ValueError(f"size: expected width and height, from 1.5 to 100 inches, got {size!r}")
    runs = source if isinstance(source, Runs) else read(source)
    kind, names = _chosen(runs, Selection(tags), kind)
    draw: _Draw
    if kind == "scalars":
        bands = _mean_bands(runs, names) if band else {}
        panels = [("", tag) for tag in names]

        def draw(axes: Any, _: str, tag: str) -> _Lines:
            if band:
                lines = _draw_bands(axes, bands[tag])
            else:
                lines = _draw_lines(axes, runs, tag, x, smoothing)
            if log:
                _make_logarithmic(axes)
            if x == "step" or band:
                _mark_steps(axes)
            else:
                axes.set_xlabel("seconds")
            return lines
    else:
        panels = [
            (name, tag)
            for tag in names
            for name in runs.names
            if runs[name].tags().get(tag) == "histogram"
        ]
        paint = _draw_ridges if kind == "histograms" else _draw_distribution

        def draw(axes: Any, name: str, tag: str) -> _Lines:
            paint(axes, runs[name].histograms(tag), f"C{runs.names.index(name) % 10}")
            return {}

    return Chart(_figure(panels, draw, columns, size, len(runs) > 1), names)


def _is_size(size: Any) -> bool:
    pair = isinstance(size, Sequence | np.ndarray) and len(size) == 2
    return pair and all(isinstance(inches, Real) and 1.5 <= float(inches) <= 100 for inches in size)


def _chosen(runs: Runs, selection: Selection, kind: str | None) -> tuple[str, list[str]]:
    """The kind to draw and its tags; a tag may be of one kind in one run, of another in another."""
    kinds = [pair for name in runs.names for pair in runs[name].tags().items()]
    wanted = dict.fromkeys(pair for pair in kinds if selection.wants(pair[0]))
    if kind is None:
        kind = "scalars" if any(each == "scalar" for _, each in wanted) else "histograms"
    of = "scalar" if kind == "scalars" else "histogram"
    names = sorted((tag for tag, each in wanted if each == of), key=selection.rank)
    if not names:
        some = ", ".join([*runs.tags()][:8]) or "none"
        raise KeyError(f"no {of} has a tag that matches; there are: {some}")
    return kind, names


def _figure(
    panels: Sequence[tuple[str, str]],
    draw: _Draw,
    columns: int,
    size: tuple[float, float],
    several: bool,
) -> Any:
    """A figure with a panel for each run (or "" for all of them) and tag."""
    # Not pyplot: that keeps figures alive, and shows them a second time in a notebook.
    figures = optional("matplotlib.figure", "notebook")
    drawn = panels[:_PANELS]
    columns = min(columns, len(drawn))
    rows = math.ceil(len(drawn) / columns)
    figure = figures.Figure(
        figsize=(size[0] * columns, size[1] * rows), dpi=_DPI, layout="constrained"
    )
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    lines: _Lines = {}
    for axes, (name, tag) in zip(grid, drawn, strict=False):
        for label, line in draw(axes, name, tag).items():
            lines.setdefault(label, line)
        wide = int(size[0] * _LETTERS)
        title = _shortened(tag, wide)
        if name and several:
            title = f"{title}\n{_shortened(name, wide)}"
        axes.set_title(title, fontsize=9, parse_math=False)
        axes.tick_params(which="both", labelsize=8)
        axes.xaxis.label.set_fontsize(8)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[len(drawn) :]:
        axes.set_visible(False)
    if len(panels) > len(drawn):
        text = f"the first {len(drawn)} of {len(panels)} panels: name fewer tags or runs"
        figure.suptitle(text, fontsize=9)
    if len(lines) > 1:
        _add_legend(figure, lines)
    return figure


def _add_legend(figure: Any, lines: _Lines) -> None:
    """A legend below the panels, over at most a quarter of the picture."""
    width, height = figure.get_size_inches()
    letters = int(width * _LETTERS) - 6  # beside the line
    names = [_shortened(name, letters) for name in lines]
    columns = max(1, min(4, letters // (max(map(len, names)) + 6)))
    most = columns * max(2, int(height * 1.5))  # a row is a sixth of an inch
    if len(names) > most:
        names[most - 1 :] = [f"and {len(names) - most + 1} more"]
    handles = [*lines.values()][: len(names)]
    # Names that begin with "_" would be left out: they are written into a legend of numbers.
    legend = figure.legend(
        handles,
        [*map(str, range(len(names)))],
        loc="outside lower center",
        ncols=columns,
        fontsize=8,
        frameon=False,
    )
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_text(name)
        text.set_parse_math(False)
    if len(names) < len(lines):
        legend.legend_handles[-1].set_visible(False)


def _shortened(text: str, most: int) -> str:
    """The text, or its end where it is too long."""
    return text if len(text) <= most else f"…{text[1 - most :]}"


def _line(axes: Any, at: NDArray[Any], values: NDArray[np.float64], **style: Any) -> Any:
    """A line with a dot at each point that has no neighbour; what is too far out is left out."""
    values = _placeable(values)
    there = np.concatenate(([False], np.isfinite(values), [False]))
    alone = np.flatnonzero(there[1:-1] & ~there[:-2] & ~there[2:])
    if alone.size:
        style |= {"marker": ".", "markevery": alone.tolist()}
    (line,) = axes.plot(at, values, **style)
    return line


def _placeable(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values, NaN for those that no axis has room for."""
    return np.where(np.abs(values) <= _FAR, values, np.nan)


def _style(index: int) -> dict[str, Any]:
    """How the line of a run looks; later ones have gaps, through which equal ones below show."""
    return {"color": f"C{index % 10}", "linestyle": _DASHES[index % len(_DASHES)], "linewidth": 1.3}


def _draw_lines(axes: Any, runs: Runs, tag: str, x: str, smoothing: float) -> _Lines:
    lines = {}
    for index, name in enumerate(runs.names):
        if runs[name].tags().get(tag) != "scalar":
            continue
        steps, values, times = runs[name].scalars(tag)
        at = steps if x == "step" else times - times[:1]
        style = _style(index)
        if smoothing:
            pale = {"color": style["color"], "linewidth": 0.8, "alpha": 0.25}
            _line(axes, *thinned(at, values), **pale)
            values = smoothed(values, smoothing)
        lines[name] = _line(axes, *thinned(at, values), label=name, **style)
    axes.grid(alpha=0.25)
    return lines


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


def _draw_bands(axes: Any, bands: dict[str, Band]) -> _Lines:
    lines = {}
    for index, (name, each) in enumerate(bands.items()):
        style = _style(index)
        with np.errstate(over="ignore"):
            edges = _placeable(np.array([each.mean - each.std, each.mean + each.std]))
        lines[name] = _line(axes, each.steps, each.mean, label=name, **style)
        steps, (low, high) = _as_area(each.steps, edges)
        axes.fill_between(steps, low, high, color=style["color"], alpha=0.2, linewidth=0)
    axes.grid(alpha=0.25)
    return lines


def _as_area(
    steps: NDArray[Any], lines: NDArray[np.float64]
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Lines to fill between; a single point is made as wide as a step, or it would not be seen."""
    if len(steps) != 1:
        return steps, lines
    return steps + np.array([-0.5, 0.5]), lines.repeat(2, axis=1)


def _mark_steps(axes: Any) -> None:
    """Steps along the panel, ticks at whole ones."""
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("step")


def _make_logarithmic(axes: Any) -> None:
    """A logarithmic axis for the values; where it spans under two decades, with plain numbers."""
    low, high = axes.dataLim.minposy, axes.dataLim.y1
    if not 0 < low <= high < math.inf:
        axes.set_ylabel("linear: nothing is above 0", fontsize=8)
        return
    axes.set_yscale("log")
    ticker = optional("matplotlib.ticker", "notebook")
    bottom, top = axes.get_ylim()
    if top >= 100 * bottom:
        return
    if top < 10 * bottom:
        axes.yaxis.set_major_locator(ticker.AutoLocator())
        axes.yaxis.set_major_formatter(ticker.ScalarFormatter())
    else:
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())


def _draw_ridges(axes: Any, histograms: Histograms, colour: str) -> None:
    """Roots of densities over the values, one for each step, moved up with the step's age."""
    steps, values = _some(histograms, _RIDGES)
    if not values:
        return
    pooled = np.concatenate([quantiles(each, np.linspace(0, 1, 201)) for each in values])
    low, high = np.quantile(pooled, (0.005, 0.995))
    if not low < high:
        low, high = pooled.min(), pooled.max()
    if not low < high:
        room = abs(low) / 2 or 0.5
        low, high = low - room, high + room
    beyond = (high - low) / _GRID  # so that a peak at an end, as zero of relu, is seen whole
    edges = np.linspace(low - beyond, high + beyond, _GRID + 3)
    middles = edges[:-1] / 2 + edges[1:] / 2
    curves = [np.sqrt(np.diff(counts_below(each, edges)) / each.num) for each in values]
    gap = 1.0 / len(curves)
    unit = max(0.25, gap) / (max(float(curve.max()) for curve in curves) or 1.0)
    full = np.array(optional("matplotlib.colors", "notebook").to_rgb(colour))
    for rank, curve in enumerate(curves):  # the newest is drawn last, in front and lowest
        base = (len(curves) - 1 - rank) * gap
        top = base + unit * curve
        shade = 1 - (0.3 + 0.7 * (rank + 1) / len(curves)) * (1 - full)
        axes.fill_between(middles, base, top, color=shade, linewidth=0, zorder=rank)
        # Darker than the fill: where peaks stand behind each other, light lines would hide them.
        outline = np.where(curve > 0, top, np.nan)
        axes.plot(middles, outline, color=0.6 * shade, linewidth=0.4, zorder=rank + 0.5)
    ticks = np.unique(np.linspace(0, len(curves) - 1, 5).astype(int))
    axes.set_yticks([(len(curves) - 1 - rank) * gap for rank in ticks], [steps[i] for i in ticks])
    axes.set_ylabel("step", fontsize=8)


def _draw_distribution(axes: Any, histograms: Histograms, colour: str) -> None:
    """Bands between equally rare quantiles, over the steps."""
    steps, values = _some(histograms, 500)
    if not values:
        return
    lines = np.array([quantiles(each, _QUANTILES) for each in values]).T
    steps, lines = _as_area(steps, lines)
    middle = len(_QUANTILES) // 2
    for i in range(middle):
        axes.fill_between(steps, lines[i], lines[-1 - i], color=colour, alpha=0.17, linewidth=0)
    axes.plot(steps, lines[middle], color=colour, linewidth=1.4)
    axes.grid(alpha=0.25)
    _mark_steps(axes)


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
    limits, sums = _cumulated(histogram)
    return _interpolated(edges, limits, sums, "right")


def quantiles(histogram: Histogram, shares: ArrayLike) -> NDArray[np.float64]:
    """The values below which these shares of the values lie, by the same assumption."""
    limits, sums = _cumulated(histogram)
    return _interpolated(np.asarray(shares) * sums[-1], sums, limits, "left")


def _cumulated(histogram: Histogram) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The edges of the buckets, between the extremes, and how many values lie below each."""
    ends = np.clip((histogram.min, histogram.max), -_FAR, _FAR)
    limits = np.clip(np.concatenate(([histogram.min], histogram.limits)), *ends)
    return limits, np.concatenate(([0.0], np.cumsum(histogram.counts)))


def _interpolated(
    x: NDArray[np.float64],
    xs: NDArray[np.float64],
    ys: NDArray[np.float64],
    side: Literal["left", "right"],
) -> NDArray[np.float64]:
    """y at x, linear between neighbours; of equal xs the first counts, or the last ("right").

    Unlike `np.interp` it has no slope, which overflows where neighbours are as close as 1e-320.
    """
    after = np.searchsorted(xs, x, side)
    left, right = np.maximum(after - 1, 0), np.minimum(after, len(xs) - 1)
    width = xs[right] - xs[left]
    part = np.divide(x - xs[left], width, out=np.zeros(x.shape), where=width > 0)
    return ys[left] + part * (ys[right] - ys[left])


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
