"""The event files of one run read back: record by record, or its scalars as columns."""

import math
import re
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from functools import partial
from operator import index
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from summaries import _proto
from summaries._warn import warn_once
from summaries.histogram import Histogram
from summaries.metadata import LAYOUT_TAG
from summaries.scan import CUT_OFF, Damage, Scan, fields, split_event
from summaries.wire import varint

Patterns: TypeAlias = str | re.Pattern[str] | Iterable[str | re.Pattern[str]]
_Taken = TypeVar("_Taken")


@dataclass(frozen=True, slots=True)
class Image:
    """An image of an event file: `data` is the PNG (or other) file."""

    height: int
    width: int
    channels: int
    data: bytes


class Record(NamedTuple):
    """One summary value.

    Its kind tells what the value is: scalar, a float; histogram, a Histogram; image, an Image;
    text, a str, or an object array of them for a table; tensor, any other array.
    """

    tag: str
    step: int
    wall_time: float
    kind: str
    value: Any


class Scalars(NamedTuple):
    """The points of one tag, in the order they were written; one column each."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    wall_times: NDArray[np.float64]


class Histograms(NamedTuple):
    """The histograms of one tag, in the order they were written."""

    steps: NDArray[np.int64]
    values: list[Histogram]
    wall_times: NDArray[np.float64]


@dataclass
class HParams:
    """What a run says of itself: hyper-parameters, the group it is a seed of, how it ended.

    `of_sweep` tells that it describes a sweep: it is the directory above the runs.
    """

    values: dict[str, str | float | bool] = field(default_factory=dict)
    group: str = ""
    status: str = ""
    start_time: float | None = None
    of_sweep: bool = False


class Selection:
    """Which values are read: those of tags that match, and of each tag every `stride`-th.

    A pattern is a tag, with `*`, `?` and `[...]` as in file names, or a compiled regular expression
    that is found somewhere in the tag. None is every tag.

    Raises:
        TypeError: a pattern is neither, or the stride no integer.
        ValueError: the stride is below 1.
    """

    def __init__(
        self, tags: Patterns | None = None, stride: int = 1, argument: str = "tags"
    ) -> None:
        try:
            self.stride = index(stride)
        except TypeError:
            raise TypeError(f"stride: expected an integer, got {stride!r}") from None
        if self.stride < 1:
            raise ValueError(f"stride: expected at least 1, got {stride!r}")
        self._matchers = None if tags is None else [*_matchers(tags, argument)]
        self._ranks: dict[str, int] = {}

    def wants(self, tag: str) -> bool:
        """Whether the tag is one of those."""
        return self.rank(tag) >= 0

    def rank(self, tag: str) -> int:
        """The place of the first pattern that the tag matches, or -1."""
        if self._matchers is None:
            return 0
        if tag not in self._ranks:
            found = (i for i, matches in enumerate(self._matchers) if matches(tag))
            self._ranks[tag] = next(found, -1)
        return self._ranks[tag]


def listed(one_or_several: object) -> list[Any]:
    """The items of what has some; a text, or what is no collection, as the only item."""
    if isinstance(one_or_several, Iterable) and not isinstance(one_or_several, str | bytes):
        return [*one_or_several]
    return [one_or_several]


def _matchers(tags: Patterns, argument: str) -> Iterator[Callable[[str], object]]:
    for pattern in listed(tags):
        if isinstance(pattern, re.Pattern) and isinstance(pattern.pattern, str):
            yield pattern.search
        elif isinstance(pattern, str):
            # A tag of another writer may have brackets of its own.
            yield re.compile(f"{re.escape(pattern)}\\Z|{translate(pattern)}").match
        else:
            raise TypeError(f"{argument}: expected strings or patterns, got {pattern!r:.60}")


_START = 1  # SessionLog.START; an attribute of the message class is a slow look-up
_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")
_SUMMARY = bytes((5 << 3 | 2,))  # the key of an event's summary
_STATUSES = {1: "success", 2: "failure", 3: "running"}
_HPARAMS = "_hparams_/"
# TensorFlow's number of a dtype -> NumPy's, little-endian, and the field of its single numbers
_NUMBERS = {
    1: ("<f4", "float_val"),
    2: ("<f8", "double_val"),
    3: ("<i4", "int_val"),
    4: ("u1", "int_val"),
    5: ("<i2", "int_val"),
    6: ("i1", "int_val"),
    9: ("<i8", "int64_val"),
    10: ("?", "bool_val"),
    17: ("<u2", "int_val"),
    19: ("<f2", "half_val"),
    22: ("<u4", "uint32_val"),  # and the next: fields that tensorboardX's message lacks
    23: ("<u8", "uint64_val"),
}
_STRING = 7


class Run:
    """The summary values in the event files of one run; each iteration reads the files anew.

    What is sound in a file is returned, also behind a record that is not: a warning and `damage`
    tell of those, `truncated` of an end that is not whole, as a writer at work may leave it.
    Columns are kept and read again when a file has changed.

    Args:
        source: the run's directory, or some of its files.
        selection: which values are read.
    """

    def __init__(self, source: Path | list[Path], selection: Selection | None = None) -> None:
        self._source = source
        self._selection = selection or Selection()
        self._damages: dict[Path, list[Damage]] | None = None
        self._columns: _Columns | None = None
        self._state: list[tuple[Path, int, int]] = []

    def __repr__(self) -> str:
        return f"<summaries.reader.Run of {self._source}>"

    @property
    def paths(self) -> list[Path]:
        """The event files, in the order in which they were begun."""
        return event_files(self._source) if isinstance(self._source, Path) else self._source

    def __iter__(self) -> Iterator[Record]:
        stride = self._selection.stride
        seen: dict[str, int] = {}
        for record in self._taken(partial(_records_of, self._selection.wants)):
            count = seen[record.tag] = seen.get(record.tag, -1) + 1
            if not count % stride:
                yield record

    @property
    def damage(self) -> dict[Path, str]:
        """For each file with records that are not sound: what is wrong, and where, of the first."""
        return {path: _told(damages) for path, damages in self._all_damages().items()}

    @property
    def truncated(self) -> bool:
        """Whether some file ends in a record that is not whole."""
        return any(each[-1].reason == CUT_OFF for each in self._all_damages().values())

    def tags(self) -> dict[str, str]:
        """The kind of each tag, in the order of their first values; a layout is no tag."""
        return dict(self._read().kinds)

    def scalars(self, tag: str) -> Scalars:
        """The columns of a scalar tag; what a resumed run overwrote is left out.

        Raises:
            KeyError: no scalar has this tag.
        """
        columns = self._read().scalars
        if tag not in columns:
            raise KeyError(f"no scalar has the tag {tag!r}")
        return columns[tag].arrays()

    def all_scalars(self) -> dict[str, Scalars]:
        """The columns of every scalar tag, in the order of their first values."""
        return {tag: column.arrays() for tag, column in self._read().scalars.items()}

    def histograms(self, tag: str) -> Histograms:
        """The histograms of a tag; what a resumed run overwrote is left out.

        Raises:
            KeyError: no histogram has this tag.
        """
        if self._read().kinds.get(tag) != "histogram":
            raise KeyError(f"no histogram has the tag {tag!r}")
        records: list[Record] = []
        for found in self._taken(partial(_histograms_of, tag)):
            if isinstance(found, Record):
                records.append(found)
            else:  # a session starts at this step
                records = [record for record in records if record.step < found]
        records = records[:: self._selection.stride]
        return Histograms(
            np.array([record.step for record in records], np.int64),
            [record.value for record in records],
            np.array([record.wall_time for record in records], np.float64),
        )

    def hparams(self) -> HParams:
        """The run's hyper-parameters; empty where it tells none."""
        return self._read().hparams

    def _all_damages(self) -> dict[Path, list[Damage]]:
        if self._damages is None:
            self._read()
        return self._damages or {}

    def _scanned(self) -> Iterator[Scan]:
        """A scan of each file; what they find is kept when all were consumed."""
        scans = [Scan(path) for path in self.paths]
        yield from scans
        self._damages = {scan.path: scan.damages for scan in scans if scan.damages}
        for path, damages in self._damages.items():
            if damages[0].reason != CUT_OFF:  # that alone is what a writer at work leaves
                message = f"{path} is damaged: {_told(damages)}; what is sound is read"
                warn_once("damage", message, message=message)

    def _taken(self, take: Callable[[bytes], Iterable[_Taken]]) -> Iterator[_Taken]:
        """What a function finds in each event; where it refuses one, that is damage."""
        for scan in self._scanned():
            for data in scan:
                try:
                    yield from take(data)
                except _refusals():
                    scan.reject(data)

    def _read(self) -> "_Columns":
        state = [(path, (stat := path.stat()).st_size, stat.st_mtime_ns) for path in self.paths]
        if self._columns is None or state != self._state:
            columns = _Columns(self._selection)
            for scan in self._scanned():
                for data in scan:
                    try:
                        columns.add(data)
                    except _refusals():
                        scan.reject(data)
            self._columns, self._state = columns, state
        return self._columns


def _refusals() -> tuple[type[Exception], ...]:
    """What is raised for an event whose bytes, or numbers, make no sense."""
    return ValueError, IndexError, OverflowError, _proto.data_error()


def _told(damages: list[Damage]) -> str:
    more = f", and {len(damages) - 1} more" if len(damages) > 1 else ""
    return f"{damages[0]}{more}"


class _Column:
    """The points of a tag as they come; `every` is the stride."""

    __slots__ = ("every", "seen", "steps", "values", "wall_times")

    def __init__(self, every: int) -> None:
        self.every = every
        self.seen = 0
        self.steps = array("q")
        self.values = array("d")
        self.wall_times = array("d")

    def add(self, step: int, value: float, wall_time: float) -> None:
        if not self.seen % self.every:
            self.steps.append(step)
            self.values.append(value)
            self.wall_times.append(wall_time)
        self.seen += 1

    def drop_from(self, step: int) -> None:
        """Forget the points at this step and later ones."""
        steps = np.frombuffer(self.steps, np.int64)
        keep = steps < step
        if not keep.all():
            kept = [np.asarray(column)[keep] for column in self.arrays()]
            self.steps = array("q", kept[0].tobytes())
            self.values = array("d", kept[1].tobytes())
            self.wall_times = array("d", kept[2].tobytes())

    def arrays(self) -> Scalars:
        """Copies, so that the column may go on growing."""
        return Scalars(
            np.array(self.steps, np.int64),
            np.array(self.values, np.float64),
            np.array(self.wall_times, np.float64),
        )


_UNKNOWN = _Column(1)


class _Columns:
    """What one pass over a run's files gathers: scalars, the kinds of tags, hyper-parameters.

    Messages are parsed only where they are new in kind: scalars of one tag differ in the last four
    bytes, so what comes before these is looked up.
    """

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.scalars: dict[str, _Column] = {}
        self.kinds: dict[str, str] = {}
        self.hparams = HParams()
        # What a summary value is up to its number -> its column; None if it is not wanted.
        self.known: dict[bytes, _Column | None] = {}

    def add(self, data: bytes) -> None:
        """Take in an event.

        Raises:
            ValueError, IndexError, OverflowError: the bytes are no event.
        """
        known = self.known
        # The common event, one scalar: 9 and the time, 16 and the step, 42 and the summary.
        if len(data) > 16 and data[0] == 9 and data[-5] == 21:
            at, step = 9, 0
            if data[9] == 16:
                at = 10
                shift = 0
                while True:
                    byte = data[at]
                    at += 1
                    step |= (byte & 127) << shift
                    if byte < 128:
                        break
                    shift += 7
            column = known.get(data[at:-4], _UNKNOWN)
            if column is None:
                return
            if column is not _UNKNOWN:
                if step >> 63:
                    step -= 1 << 64
                number = _FLOAT.unpack_from(data, len(data) - 4)[0]
                column.add(step, number, _DOUBLE.unpack_from(data, 1)[0])
                return
        event = split_event(data)
        for number, session in fields(event.session):
            if number == 1 and session == _START:
                for column in self.scalars.values():
                    column.drop_from(event.step)
        if event.summary:
            values = [value for number, value in fields(event.summary) if number == 1]
            for value in values:
                if isinstance(value, bytes):
                    self.add_value(value, event.step, event.wall_time)
            if len(values) == 1 and data.endswith(event.summary):
                self.learn(data, event.summary)

    def learn(self, data: bytes, summary: bytes) -> None:
        """Know events by what comes before their number, if they hold one plain scalar."""
        (value,) = (value for _, value in fields(summary))
        if isinstance(value, bytes) and value[:-4] in self.known:
            lead = _SUMMARY + varint(len(summary))
            if data.endswith(lead + summary):
                self.known[(lead + summary)[:-4]] = self.known[value[:-4]]

    def add_value(self, value: bytes, step: int, wall_time: float) -> None:
        """Take in a summary value in wire form."""
        key = value[:-4]
        if key in self.known:
            column = self.known[key]
            if column is not None:
                column.add(step, _FLOAT.unpack(value[-4:])[0], wall_time)
            return
        parts = dict(fields(value))
        tag = _bytes_of(parts, 1).decode()
        if tag.startswith(_HPARAMS):
            _take_hparams(self.hparams, parts)
            return
        if not self.selection.wants(tag):
            if _ends_in_number(value, parts):
                self.known[key] = None
            return
        if 8 not in parts and tag in self.kinds and 2 not in parts:
            return  # only the kind is kept of what is no scalar
        message = _proto.Summary.Value.FromString(value)
        kind, content = _content(message)
        if kind and tag != LAYOUT_TAG:
            self.kinds.setdefault(tag, kind)
        if kind == "scalar":
            column = self.scalars.setdefault(tag, _Column(self.selection.stride))
            column.add(step, content, wall_time)
            if _ends_in_number(value, parts):
                self.known[key] = column


def _ends_in_number(value: bytes, parts: Mapping[int, object]) -> bool:
    """Whether a summary value in wire form is a scalar whose last four bytes are its number."""
    return value[-5] == 21 and [*parts][-1] == 2


def event_files(directory: Path) -> list[Path]:
    """The event files of a directory itself, in the order of their names."""
    return sorted(
        each for each in directory.iterdir() if "tfevents" in each.name and each.is_file()
    )


def _records_of(wants: Callable[[str], bool], data: bytes) -> Iterator[Record]:
    """The values in an event of the tags that are wanted."""
    event = _proto.Event.FromString(data)
    for value in event.summary.value:
        if wants(value.tag):
            kind, content = _content(value)
            if kind:
                yield Record(value.tag, event.step, event.wall_time, kind, content)


def _histograms_of(tag: str, data: bytes) -> Iterator[Record | int]:
    """The histograms of a tag in an event, and the step of a session that starts with it.

    Values of other tags are not parsed.
    """
    event = split_event(data)
    if dict(fields(event.session)).get(1) == _START:
        yield event.step
    name = tag.encode()
    for number, value in fields(event.summary):
        if number == 1 and isinstance(value, bytes) and dict(fields(value)).get(1) == name:
            kind, content = _content(_proto.Summary.Value.FromString(value))
            if kind == "histogram":
                yield Record(tag, event.step, event.wall_time, kind, content)


def _bytes_of(message: Mapping[int, int | bytes], field: int) -> bytes:
    """A text or message in a message; empty where it is absent."""
    content = message.get(field, b"")
    return content if isinstance(content, bytes) else b""


def _take_hparams(hparams: HParams, value: Mapping[int, int | bytes]) -> None:
    """Enter what a value of the hparams plugin tells: metadata, plugin data, its content."""
    plugin_data = _bytes_of(dict(fields(_bytes_of(value, 9))), 1)
    content = _bytes_of(dict(fields(plugin_data)), 2)
    data = _proto.HParamsPluginData.FromString(content)
    hparams.of_sweep |= data.HasField("experiment")
    if data.HasField("session_start_info"):
        start = data.session_start_info
        hparams.values = {
            name: getattr(number, number.WhichOneof("kind") or "string_value")
            for name, number in sorted(start.hparams.items())
        }
        hparams.group = start.group_name
        hparams.start_time = start.start_time_secs or None
    if data.HasField("session_end_info"):
        hparams.status = _STATUSES.get(data.session_end_info.status, "")


def _content(value: Any) -> tuple[str, Any]:
    """The kind of a summary value and what it holds; no kind for what is not known."""
    field = value.WhichOneof("value")
    if field == "simple_value":
        return "scalar", value.simple_value
    if field == "histo":
        return "histogram", _histogram(value.histo)
    if field == "image":
        image = value.image
        return "image", Image(
            image.height, image.width, image.colorspace, image.encoded_image_string
        )
    if field == "tensor":
        return _tensor(value.tensor, value.metadata.plugin_data.plugin_name)
    return "", None


def _histogram(proto: Any) -> Histogram:
    limits, counts = np.array(proto.bucket_limit), np.array(proto.bucket)
    if limits.size != counts.size:
        raise ValueError("a histogram has as many limits as counts")
    return Histogram(
        limits,
        counts,
        proto.min,
        proto.max,
        _number(proto.num),
        proto.sum,
        proto.sum_squares,
    )


def _number(values: float) -> int:
    """How many values a histogram says that it counts."""
    if not 0 <= values < 1 << 63:
        raise ValueError("a number of values is out of its range")
    return int(values)


def _tensor(proto: Any, plugin: str) -> tuple[str, Any]:
    """A text, a scalar where the tensor is one number, else an array; strings as bytes objects."""
    shape = tuple(dim.size for dim in proto.tensor_shape.dim)
    if min(shape, default=0) < 0:
        raise ValueError("a tensor has a size that is negative")
    if proto.dtype == _STRING:
        texts = np.empty(len(proto.string_val), object)
        texts[:] = proto.string_val
        if plugin != "text":
            return "tensor", texts.reshape(shape)
        texts[:] = [text.decode(errors="replace") for text in proto.string_val]
        return "text", texts.reshape(shape) if shape else texts[0]
    if proto.dtype not in _NUMBERS:
        return "", None
    dtype, field = _NUMBERS[proto.dtype]
    if not proto.tensor_content and not hasattr(proto, field):
        return "", None
    if proto.tensor_content:
        array = np.frombuffer(proto.tensor_content, dtype)
    elif field == "half_val":  # their bits
        array = np.array(proto.half_val, "<u2").view(dtype)
    else:
        array = np.array(getattr(proto, field), dtype)
    # A tensor of equal numbers may be stored as one of them: it is not taken as large as it claims.
    array = np.broadcast_to(array[0], shape) if array.size == 1 else array.reshape(shape)
    if plugin == "histograms" and array.ndim == 2 and shape[1] == 3:
        return "histogram", _histogram_of_rows(array.astype(np.float64))
    return ("tensor", array) if shape else ("scalar", float(array))


def _histogram_of_rows(rows: NDArray[np.float64]) -> Histogram:
    """TensorFlow 2's form: left edge, right edge and count of each bucket.

    It has no moments: Σx and Σx² are those of values in the middles of their buckets.
    """
    left, right, counts = rows.T
    used = np.flatnonzero(counts)
    middles = (left + right) / 2
    return Histogram(
        right.copy(),
        counts.copy(),
        float(left[used[0]]) if used.size else math.inf,
        float(right[used[-1]]) if used.size else -math.inf,
        _number(counts.sum()),
        float(counts @ middles),
        float(counts @ middles**2),
    )
