"""The runs of a log directory as tables."""

import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from summaries._warn import warn
from summaries.bands import Bands, make_bands
from summaries.event_file import PREFIX
from summaries.reader import (
    Histograms,
    Patterns,
    Record,
    Run,
    Scalars,
    Selection,
    event_files,
    listed,
)
from summaries.tables import joined, objects, repeated, table, write_csv

StrPath: TypeAlias = str | os.PathLike[str]
Source: TypeAlias = StrPath | Iterable[StrPath] | Mapping[str, StrPath]

_KINDS = ("scalar", "histogram", "text", "image", "tensor")
EVAL = "eval"  # the directory of a run's evaluations, below the run's own
_SCALARS = {"run": object, "tag": object, "step": np.int64, "value": float, "wall_time": float}


class Runs:
    """Runs by their names, and what they hold as tables; nothing is read before it is asked for.

    Iterating yields the records of one run after another. A run that is still being written may be
    read over and over: what is new is there.
    """

    def __init__(self, runs: Mapping[str, Run]) -> None:
        self._runs = dict(runs)

    def __repr__(self) -> str:
        names = ", ".join([*self._runs][:5]) + (", ..." if len(self._runs) > 5 else "")
        return f"<summaries.Runs: {names}>" if self._runs else "<summaries.Runs: none>"

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, name: str) -> Run:
        if name not in self._runs:
            known = ", ".join(self._runs) or "none"
            raise KeyError(f"no run is called {name!r}; there are: {known}")
        return self._runs[name]

    def __iter__(self) -> Iterator[Record]:
        for run in self._runs.values():
            yield from run

    @property
    def names(self) -> list[str]:
        """The names of the runs: their directories, below the one that was given."""
        return [*self._runs]

    @property
    def paths(self) -> list[Path]:
        """Every event file."""
        return [path for run in self._runs.values() for path in run.paths]

    @property
    def damage(self) -> dict[Path, str]:
        """For each file with records that are not sound: what is wrong, and where, of the first."""
        return {path: text for run in self._runs.values() for path, text in run.damage.items()}

    @property
    def truncated(self) -> bool:
        """Whether some file ends in a record that is not whole."""
        return any(run.truncated for run in self._runs.values())

    def tags(self) -> dict[str, str]:
        """The kind of each tag of any run, in the order of their first values."""
        kinds: dict[str, str] = {}
        for run in self._runs.values():
            for tag, kind in run.tags().items():
                kinds.setdefault(tag, kind)
        return kinds

    def select(self, *patterns: str | re.Pattern[str]) -> "Runs":
        """The runs whose names match one of the patterns, which are as those of tags in `read`."""
        wanted = Selection(patterns, argument="patterns")
        return Runs({name: run for name, run in self._runs.items() if wanted.wants(name)})

    def scalars(self, tag: str, run: str | None = None) -> Scalars:
        """The columns of a scalar tag: steps, values, wall times.

        Args:
            tag: the tag.
            run: the name of the run; None where only one run has the tag.

        Raises:
            KeyError: no scalar has this tag, or no run this name.
            ValueError: several runs have the tag and none is named.
        """
        return self._only(tag, run, "scalar").scalars(tag)

    def histograms(self, tag: str, run: str | None = None) -> Histograms:
        """The histograms of a tag: steps, values, wall times; arguments and errors as `scalars`."""
        return self._only(tag, run, "histogram").histograms(tag)

    def _only(self, tag: str, run: str | None, kind: str) -> Run:
        if run is not None:
            return self[run]
        found = [name for name, each in self._runs.items() if each.tags().get(tag) == kind]
        if not found:
            raise KeyError(f"no {kind} has the tag {tag!r}")
        if len(found) > 1:
            raise ValueError(f"run: {tag!r} is in {', '.join(found)}; name one of them")
        return self._runs[found[0]]

    def table(
        self, kind: str = "scalar", tags: Patterns | None = None, *, library: str = "auto"
    ) -> Any:
        """The points of all runs as one table: a row for each, with run, tag, step and wall time.

        Args:
            kind: "scalar" has the number as `value`; "histogram" has num, min, max, mean, std and
                the Histogram as `value`; "text", "image" and "tensor" have the object as `value`.
            tags: which tags, as in `read`; None is every tag of the kind.
            library: "pandas" for a DataFrame, "numpy" for a structured array, or "auto" for pandas
                where it is installed.

        Raises:
            ImportError: pandas is asked for and not installed.
            ValueError: `kind` or `library` is unknown.
        """
        if kind not in _KINDS:
            raise ValueError(f"kind: expected one of {', '.join(_KINDS)}, got {kind!r}")
        selection = Selection(tags)
        if kind == "scalar":
            return table(joined(self._scalar_parts(selection), _SCALARS), library)
        dtypes = _SCALARS | {"value": object}
        if kind == "histogram":
            dtypes |= {"num": np.int64, "min": float, "max": float, "mean": float, "std": float}
        parts = []
        for name, run in self._runs.items():
            records = [each for each in run if each.kind == kind and selection.wants(each.tag)]
            part = {
                "run": repeated(name, len(records)),
                "tag": objects([each.tag for each in records]),
                "step": np.array([each.step for each in records], np.int64),
                "value": objects([each.value for each in records]),
                "wall_time": np.array([each.wall_time for each in records], float),
            }
            if kind == "histogram":
                part |= _moments(part["value"])
            parts.append(part)
        return table(joined(parts, dtypes), library)

    def _scalar_parts(self, selection: Selection) -> Iterator[dict[str, NDArray[Any]]]:
        for name, tag, (steps, values, times) in self._all_scalars(selection):
            yield {
                "run": repeated(name, len(steps)),
                "tag": repeated(tag, len(steps)),
                "step": steps,
                "value": values,
                "wall_time": times,
            }

    def _all_scalars(self, selection: Selection) -> Iterator[tuple[str, str, Scalars]]:
        for name, run in self._runs.items():
            for tag, scalars in run.all_scalars().items():
                if selection.wants(tag):
                    yield name, tag, scalars

    def to_csv(
        self, target: StrPath | TextIO | None = None, tags: Patterns | None = None
    ) -> str | None:
        """Write the scalars of all runs as CSV: run, tag, step, value, wall time, with a header.

        Numbers have every digit that they need to be read back as they are.

        Args:
            target: a path or a file open for text; None returns the text.
            tags: which tags, as in `read`; None is every one.

        Raises:
            OSError: the file cannot be written.
            TypeError: `target` is neither.
        """
        if target is None:
            text = io.StringIO()
            self.to_csv(text, tags)
            return text.getvalue()
        rows = (
            (name, tag, *point)
            for name, tag, scalars in self._all_scalars(Selection(tags))
            for point in zip(*(column.tolist() for column in scalars), strict=True)
        )
        write_csv(target, [*_SCALARS], rows)
        return None

    def hparams(self, *, library: str = "auto") -> Any:
        """The hyper-parameters as a table: a row for each run, a column for each that a run has.

        The columns run, group (of seeds) and status ("success" where the run says so) come first;
        what a run does not have is NaN in a column of numbers, else missing. Numbers are floats,
        also those that were written as integers: event files have no other. Evaluations in the
        directory `eval` of a run are no row of their own, unless they tell hyper-parameters.
        """
        found = {name: run.hparams() for name, run in self._trials().items()}
        columns = {
            "run": objects([*found]),
            "group": objects([each.group for each in found.values()]),
            "status": objects([each.status for each in found.values()]),
        }
        for key in dict.fromkeys(key for each in found.values() for key in each.values):
            values = [each.values.get(key) for each in found.values()]
            name = key if key not in columns else f"{key}_"
            numbers = {type(value) for value in values} <= {float, type(None)}
            columns[name] = np.array(values, float) if numbers else objects(values)
        return table(columns, library)

    def _trials(self) -> dict[str, Run]:
        """The runs without those that only describe their sweep, or evaluate another run."""
        return {name: run for name, run in self._runs.items() if self._trial_of(name) == name}

    def _trial_of(self, name: str) -> str | None:
        """The run that one evaluates, else itself; None for one that only describes its sweep."""
        run = self._runs[name]
        hparams = run.hparams()
        if hparams.of_sweep and not run.tags():
            return None
        folder, _, last = name.rpartition("/")
        above = folder or "."
        evaluates = last == EVAL and above in self._runs and not hparams.values
        return above if evaluates and self._trial_of(above) == above else name

    def groups(self) -> dict[str, "Runs"]:
        """The runs by the group their hyper-parameters name; a run without one is its own.

        Evaluations in the directory `eval` of a run are in the group of the run.
        """
        groups: dict[str, dict[str, Run]] = {}
        for name, run in self._runs.items():
            trial = self._trial_of(name)
            if trial is not None:
                group = self._runs[trial].hparams().group or trial
                groups.setdefault(group, {})[name] = run
        return {name: Runs(runs) for name, runs in groups.items()}

    def bands(self, tags: Patterns | None = None, *, steps: str = "common", ddof: int = 0) -> Bands:
        """Mean and spread over the runs, as seeds of one experiment, for each scalar tag.

        Tags and steps that some run lacks are listed in the result's `mismatches`, and warned of.
        Evaluations in the directory `eval` of a run belong to that run, where their tags are
        `eval/<tag>`.

        Args:
            tags: which of these tags, as in `read`; None is every scalar.
            steps: "common" keeps, for each tag, the steps that all runs with the tag have; "any"
                keeps every step, with the mean of the runs that have it.
            ddof: what is subtracted from the number n of runs: std = √(Σ(x - mean)²/(n - ddof)).

        Raises:
            ValueError: `steps` is neither.
        """
        selection = Selection(tags)
        runs: dict[str, dict[str, Scalars]] = {name: {} for name in self._trials()}
        for name, run in self._runs.items():
            trial = self._trial_of(name)
            if trial is None:
                continue
            for tag, scalars in run.all_scalars().items():
                full = tag if trial == name else f"{EVAL}/{tag}"
                if selection.wants(full):
                    runs[trial].setdefault(full, scalars)
        bands = make_bands(runs, steps, ddof)
        if bands.mismatches:
            more = len(bands.mismatches) - 1
            rest = f"; {more} more in `mismatches`" if more else ""
            warn(f"the runs differ: {bands.mismatches[0]}{rest}")
        return bands


def read(source: Source, *, tags: Patterns | None = None, stride: int = 1) -> Runs:
    """The runs below one or several paths; each directory with event files is one run.

    A run is called by its directory, below the one given (which itself is "."), or below the one
    that all the given paths share; a mapping gives names of its own. Links to directories are
    followed, and a directory that they lead to a second time is not a run again.

    Args:
        source: a directory, an event file, several of these, or a mapping from names to these.
        tags: which tags are read: a tag, with `*`, `?` and `[...]` as in file names, a compiled
            regular expression that is found in the tag, or several of these; None is every tag.
        stride: of each tag only every `stride`-th value is read, beginning with the first.

    Raises:
        FileNotFoundError: there is no such path, or no event file in it.
        TypeError, ValueError: an argument is not as it should be.
    """
    selection = Selection(tags, stride)
    found: dict[str, Path | list[Path]] = {}
    if isinstance(source, Mapping):
        for name, each in source.items():
            path = _path(each)
            own = _run_sources([path], _folder(path))
            for sub, run in own.items():
                full = name if sub == "." else f"{name}/{sub}"
                if full in found:
                    raise ValueError(f"source: two runs are called {full!r}")
                found[full] = run
    else:
        paths = [_path(each) for each in listed(source)]
        if paths:
            found = _run_sources(paths, os.path.commonpath([_folder(path) for path in paths]))
    if not found:
        raise FileNotFoundError("source: expected at least one path, got none")
    return Runs({name: Run(each, selection) for name, each in found.items()})


def _path(path: StrPath) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"source: expected paths, or a mapping to paths, got {path!r:.60}")
    found = Path(path).expanduser()
    if not found.exists():
        raise FileNotFoundError(f"no event file or directory at {found}")
    return found


def _folder(path: Path) -> str:
    """The directory that a path is, or that its file is in."""
    return os.path.normpath((path if path.is_dir() else path.parent).absolute())


def _run_sources(paths: list[Path], root: str) -> dict[str, Path | list[Path]]:
    """The runs below some paths by their names: a directory, or the files that were named."""
    found: dict[str, Path | list[Path]] = {}
    for path in paths:
        name = _name(_folder(path), root)
        if path.is_dir():
            folders = sorted(_folders(path, set()))
            runs = {_name(folder, root): folder for folder in folders if event_files(folder)}
            if not runs:
                raise FileNotFoundError(f"no event file ({PREFIX}*) in {path}")
            found |= runs
        else:
            files = found.setdefault(name, [])
            if isinstance(files, list) and path not in files:
                files.append(path)
    return found


def _folders(top: Path, seen: set[str]) -> Iterator[Path]:
    """A directory and those below it; one that links lead to again is passed over."""
    links = []
    for folder, names, _ in os.walk(top, onerror=_warn_of):
        real = os.path.realpath(folder)
        if real in seen:
            names.clear()
            continue
        seen.add(real)
        inner = [Path(folder, name) for name in names]
        links += [each for each in inner if each.is_symlink()]
        yield Path(folder)
    for link in sorted(links):
        yield from _folders(link, seen)


def _warn_of(error: OSError) -> None:
    warn(f"{error.filename} is left out: {error.strerror}")


def _name(folder: StrPath, root: str) -> str:
    """A directory as seen from another; bytes that are no text are written as their numbers."""
    name = Path(os.path.relpath(folder, root)).as_posix()
    return os.fsencode(name).decode(errors="backslashreplace")


def _moments(values: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The columns that describe histograms; mean and std are NaN for an empty one."""
    numbers: dict[str, Callable[[Any], float]] = {
        "min": lambda each: each.min,
        "max": lambda each: each.max,
        "mean": lambda each: each.sum / each.num if each.num else np.nan,
    }
    columns = {
        name: np.array([get(each) for each in values], float) for name, get in numbers.items()
    }
    squares = [each.sum_squares / each.num if each.num else np.nan for each in values]
    variance = np.array(squares, float) - np.square(columns["mean"])
    columns["std"] = np.sqrt(np.maximum(variance, 0))
    columns["num"] = np.array([each.num for each in values], np.int64)
    return columns
