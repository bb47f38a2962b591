"""Event files read back: streaming, with checksums, and scalars as columns."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from summaries import _proto
from summaries.event_file import PREFIX
from summaries.histogram import Histogram
from summaries.records import Damage, read_records


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


_START = 1  # SessionLog.START; an attribute of the message class is a slow look-up
# TensorBoard's name of a dtype -> NumPy's, little-endian, and the field of its single numbers
_NUMBERS = {
    "DT_FLOAT": ("<f4", "float_val"),
    "DT_DOUBLE": ("<f8", "double_val"),
    "DT_INT32": ("<i4", "int_val"),
    "DT_INT64": ("<i8", "int64_val"),
    "DT_BOOL": ("?", "bool_val"),
}


class Events:
    """The summary values in the event files of one run; each iteration reads the files anew.

    A file is read up to its end or to the first record that is not whole, as one may be while a
    writer is at work. What is whole is returned; `truncated` and `damage` then tell of the rest.
    """

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self._damage: dict[Path, str] | None = None

    def __iter__(self) -> Iterator[Record]:
        for event in self._events():
            for value in event.summary.value:
                kind, content = _content(value)
                if kind:
                    yield Record(value.tag, event.step, event.wall_time, kind, content)

    @property
    def damage(self) -> dict[Path, str]:
        """For each file that ends in a record which is not whole: where, and what is wrong."""
        if self._damage is None:
            for _ in self._events():
                pass
        return dict(self._damage or {})

    @property
    def truncated(self) -> bool:
        """Whether some file ends in a record that is not whole."""
        return bool(self.damage)

    def tags(self) -> dict[str, str]:
        """The kind of each tag, in the order of their first values."""
        kinds: dict[str, str] = {}
        for record in self:
            kinds.setdefault(record.tag, record.kind)
        return kinds

    def scalars(self, tag: str) -> Scalars:
        """The columns of a scalar tag; what a resumed run overwrote is left out.

        Raises:
            KeyError: no scalar has this tag.
        """
        points: list[tuple[int, float, float]] = []
        found = False
        for event in self._events():
            if event.HasField("session_log") and event.session_log.status == _START:
                points = [point for point in points if point[0] < event.step]
            for value in event.summary.value:
                if value.tag == tag:
                    kind, number = _content(value)
                    if kind == "scalar":
                        found = True
                        points.append((event.step, number, event.wall_time))
        if not found:
            raise KeyError(f"no scalar has the tag {tag!r}")
        steps, values, wall_times = zip(*points, strict=True) if points else ((), (), ())
        return Scalars(
            np.array(steps, np.int64),
            np.array(values, np.float64),
            np.array(wall_times, np.float64),
        )

    def _events(self) -> Iterator[Any]:
        damages: dict[Path, str] = {}
        for path in self.paths:
            damage = Damage()
            for data in read_records(path, damage):
                try:
                    event = _proto.Event.FromString(data)
                except _proto.data_error():
                    damage.reason = "a record is not an event"
                    break
                yield event
            if damage.reason:
                damages[path] = f"{damage.reason}, at byte {damage.offset}"
        self._damage = damages


def read(path: str | os.PathLike[str]) -> Events:
    """The events of a file, or of the event files of a directory in the order of their names.

    Files in directories below are other runs and are not read.

    Raises:
        FileNotFoundError: there is no such path, or no event file in the directory.
    """
    path = Path(path).expanduser()
    if not path.is_dir():
        if not path.exists():
            raise FileNotFoundError(f"no event file or directory at {path}")
        return Events([path])
    paths = sorted(each for each in path.iterdir() if "tfevents" in each.name and each.is_file())
    if not paths:
        raise FileNotFoundError(f"no event file ({PREFIX}*) in {path}")
    return Events(paths)


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
    return Histogram(
        np.array(proto.bucket_limit),
        np.array(proto.bucket),
        proto.min,
        proto.max,
        int(proto.num),
        proto.sum,
        proto.sum_squares,
    )


def _tensor(proto: Any, plugin: str) -> tuple[str, Any]:
    """A text, a scalar where the tensor is one number, else an array; strings as bytes objects."""
    shape = tuple(dim.size for dim in proto.tensor_shape.dim)
    dtype = _proto.DataType.Name(proto.dtype)
    if dtype == "DT_STRING":
        texts = np.empty(len(proto.string_val), object)
        texts[:] = proto.string_val
        if plugin != "text":
            return "tensor", texts.reshape(shape)
        texts[:] = [text.decode(errors="replace") for text in proto.string_val]
        return "text", texts.reshape(shape) if shape else texts[0]
    if dtype not in _NUMBERS:
        return "", None
    numpy_dtype, field = _NUMBERS[dtype]
    if proto.tensor_content:
        array = np.frombuffer(proto.tensor_content, numpy_dtype).reshape(shape)
    else:
        # A tensor of equal numbers may be stored as one of them.
        array = np.empty(shape, numpy_dtype)
        array.reshape(-1)[:] = getattr(proto, field)
    return ("tensor", array) if shape else ("scalar", float(array))
