"""What TensorBoard shows beside values: display names, descriptions, and the layout of a dashboard.

They are written once, with the first value of a tag in a file: TensorBoard goes by that one, and
repeated at every step they would be most of the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Self

from summaries.tags import utf8
from summaries.wire import varint

SCALAR, TENSOR = 1, 2
"""TensorBoard's data classes."""

_FIRST = b"\x0a"  # field 1, length and bytes: a Summary's values, and a Value's tag


def delimited(field_number: int, data: bytes) -> bytes:
    """A field of bytes, text or a message in wire format; of the first 15 fields."""
    return bytes((field_number << 3 | 2,)) + varint(len(data)) + data


def metadata_bytes(
    plugin: str, data_class: int, display_name: str = "", description: str = ""
) -> bytes:
    """The bytes of a SummaryMetadata.

    TensorBoard's default loader drops all of it where the data class is missing, a field that is
    newer than tensorboardX's message.

    Args:
        plugin: TensorBoard's name of the page: "scalars", "histograms", ...
        data_class: SCALAR or TENSOR.
        display_name: the title of the chart; empty is the tag.
        description: in Markdown.

    Raises:
        TypeError, ValueError: a name or description is no text.
    """
    data = delimited(1, delimited(1, plugin.encode()))
    if display_name:
        data += delimited(2, utf8("a display name", display_name))
    if description:
        data += delimited(3, utf8("a description", description))
    return data + bytes((4 << 3, data_class))


@dataclass(frozen=True, eq=False)
class Notes:
    """What belongs to the values of a summary besides the numbers.

    Attributes:
        metadata: tag -> the bytes of its SummaryMetadata, see `metadata_bytes`.
        layout: whether the tags are those of an optimizer, which `layout_bytes` arranges.
    """

    metadata: Mapping[str, bytes] = field(default_factory=dict)
    layout: bool = False


class SummaryBytes(bytes):
    """The bytes of a Summary that also know their notes; equal to the bytes alone."""

    notes: Notes

    def __new__(cls, data: bytes, notes: Notes | None = None) -> Self:
        """Bytes and what belongs to them; pickle gives the notes afterwards."""
        made = super().__new__(cls, data)
        made.notes = Notes() if notes is None else notes
        return made


class Annotator:
    """Adds their notes to the summaries of one file, each note once.

    Args:
        layout: whether the layout of an optimizer's tags is written, before the first of them.
    """

    def __init__(self, *, layout: bool = True) -> None:
        self._layout = layout
        # The tags of each summary's notes that no value has been seen of so far.
        self._missing: dict[Notes, set[str]] = {}
        self._seen: set[str] = set()

    def __call__(self, summary: bytes) -> bytes:
        """The summary to write; bytes without notes, and those whose tags are known, as they are.

        Raises:
            ValueError: a summary with notes is no Summary message.
        """
        if not isinstance(summary, SummaryBytes):
            return summary
        notes = summary.notes
        missing = self._missing.get(notes)
        if missing is None:
            missing = self._missing[notes] = set(notes.metadata) - self._seen
        result: bytes = summary
        if missing:
            result = self._described(summary, notes, missing)
        if notes.layout and self._layout:
            self._layout = False
            result = layout_bytes() + result
        return result

    def _described(self, summary: bytes, notes: Notes, missing: set[str]) -> bytes:
        pieces = []
        for tag, value in _values(summary):
            if tag in missing:
                value += delimited(9, notes.metadata[tag])
                missing.discard(tag)
                self._seen.add(tag)
            pieces.append(delimited(1, value))
        return b"".join(pieces)


def _values(summary: bytes) -> list[tuple[str, bytes]]:
    """The tag and the bytes of each value of a summary whose values begin with their tags."""
    found = []
    at = 0
    while at < len(summary):
        value, at = _field(summary, at)
        tag, _ = _field(value, 0)
        found.append((tag.decode(), value))
    return found


def _field(data: bytes, at: int) -> tuple[bytes, int]:
    """The bytes of field 1 that starts here, and where the next one starts."""
    length = shift = 0
    start = at + 1
    while True:
        if data[at : at + 1] != _FIRST or start >= len(data):
            raise ValueError("the bytes are not a Summary message")
        byte = data[start]
        start += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return data[start : start + length], start + length


# -- the dashboard of an optimizer ----------------------------------------------------------------

LAYOUT_TAG = "custom_scalars__config__"  # TensorBoard's name for it
_CHARTS = (
    ("loss", (r"(.*/)?loss$",)),
    ("learning rate", (r"(.*/)?learning_rate$",)),
    ("global norm before and after clipping", (r"(.*/)?global_norm/(clipped_)?gradient_norm$",)),
    ("gradient norms", (r"(.*/)?gradient_norm/.*", r"(.*/)?summarize_grads/.*_gradient_norm$")),
)


@lru_cache(maxsize=1)
def layout_bytes() -> bytes:
    """A Summary that arranges an optimizer's scalars on TensorBoard's page of custom scalars.

    Its charts are the loss, the learning rate, the global norm of the gradients before and after
    clipping, and the norms of all gradients; they find the tags below any scope.
    """
    charts = b"".join(
        delimited(2, _text(1, title) + delimited(2, b"".join(_text(1, tag) for tag in patterns)))
        for title, patterns in _CHARTS
    )
    layout = delimited(2, _text(1, "optimizer") + charts)
    dtype = bytes((1 << 3, 7))  # DT_STRING
    tensor = dtype + delimited(2, b"") + delimited(8, layout)
    metadata = metadata_bytes("custom_scalars", TENSOR)
    return delimited(1, _text(1, LAYOUT_TAG) + delimited(8, tensor) + delimited(9, metadata))


def _text(field_number: int, text: str) -> bytes:
    return delimited(field_number, text.encode())
