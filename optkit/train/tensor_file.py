"""Arrays by name in one file, in the safetensors format, with checksums where optkit wrote it.

Eight bytes give the length of a header in JSON; then comes the data. The header maps a name to a
dtype, a shape and the data's offsets, and "__metadata__" to a dict of strings. Nothing in it is
ever executed or used as a path. Files of optkit hold "crc32c" in the metadata: the checksum of the
header, taken with zeros in its place, and that of the data; a file with one wrong bit is refused.

Source: https://github.com/huggingface/safetensors (the format); RFC 3720, appendix B.4 (CRC32C).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

import numpy as np

from optkit.dtypes import as_dtype
from optkit.train.files import replacing

__all__ = ["FORMAT", "Entry", "Header", "read_arrays", "read_header", "write_arrays"]

FORMAT = "optkit"
"""What optkit's files say they are."""

_DTYPES = {
    "BOOL": "bool",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
"""safetensors' dtypes, and their names here."""
_CODES = {name: code for code, name in _DTYPES.items()}
_SIZES = {"BOOL": 1, "BF16": 2} | {
    code: np.dtype(name).itemsize for code, name in _DTYPES.items() if code not in ("BOOL", "BF16")
}
_FOREIGN = ({}, *({"format": name} for name in ("pt", "np", "tf", "flax", "mlx")))
"""The metadata of files that other libraries write."""
_HEADER_LIMIT = 100_000_000  # bytes, as in the format's own library
_DIMENSIONS = 64
_CHUNK = 1 << 20
_UNKNOWN = "0" * 16


class Entry(NamedTuple):
    """What a file says of one array: the dtype's name and the shape."""

    dtype: str
    shape: tuple[int, ...]


class Header(NamedTuple):
    """What a file says of itself.

    Attributes:
        entries: name -> dtype and shape.
        metadata: the strings that were written with the arrays; {} in a file that others wrote.
        own: whether optkit wrote the file.
    """

    entries: dict[str, Entry]
    metadata: dict[str, str]
    own: bool


class _Layout(NamedTuple):
    header: Header
    stretches: list[tuple[str, int, int]]
    """(name, first byte, end), from the front of the data to its end without holes."""
    start: int
    checksum: str | None
    """Of the data, eight digits; None where there is none."""


# -- writing --------------------------------------------------------------------------------------


def write_arrays(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """Write arrays by name, in a file that replaces `path` once it is whole and on disk.

    Raises:
        TypeError: the format has no dtype for an array.
        OSError: the disk is full, or refuses otherwise; `path` is as it was.
    """
    from crc32c import crc32c

    ready = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    refused = [
        f"{name!r} is {array.dtype}"
        for name, array in ready.items()
        if array.dtype.name not in _CODES
    ]
    if refused:
        raise TypeError(f"checkpoints have no such dtype: {', '.join(refused)}")
    # Wide elements first, so that all lie at multiples of their size.
    order = sorted(ready, key=lambda name: (-ready[name].dtype.itemsize, name))
    content: dict[str, Any] = {"__metadata__": {"format": FORMAT, **metadata, "crc32c": _UNKNOWN}}
    offset = 0
    for name in order:
        array = ready[name]
        stop = offset + array.nbytes
        content[name] = {
            "dtype": _CODES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, stop],
        }
        offset = stop
    text = json.dumps(content, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    head = struct.pack("<Q", len(text)) + text
    if len(text) > _HEADER_LIMIT:
        raise ValueError(f"the header would have {len(text)} bytes; at most {_HEADER_LIMIT} can be")
    with replacing(path) as temporary, temporary.open("xb") as file:
        file.write(head)
        checksum = 0
        for name in order:
            data = ready[name].reshape(-1).view(np.uint8).data
            checksum = crc32c(data, checksum)
            file.write(data)
        both = f"{crc32c(head):08x}{checksum:08x}"
        file.seek(_checksum_place(head))
        file.write(both.encode())


def _checksum_place(head: bytes) -> int:
    """Where in the head the checksum's digits are; the metadata comes first, and it ends them."""
    place = head.find(b'"crc32c":"')
    return place + len(b'"crc32c":"')


# -- reading --------------------------------------------------------------------------------------


def read_header(path: Path) -> Header:
    """What is in a file, without reading its arrays.

    Raises:
        ValueError: the file is damaged, or no such file.
    """
    with _opened(path) as (_, layout):
        return layout.header


def read_arrays(path: Path, names: Collection[str] | None = None) -> tuple[dict[str, Any], Header]:
    """The named arrays of a file (all if None), the caller's own, and its header.

    Of a file that optkit wrote, every byte is read and checked.

    Raises:
        ValueError: the file is damaged, or no such file.
        KeyError: it has no array of a name.
    """
    with _opened(path) as (file, layout):
        wanted = layout.header.entries.keys() if names is None else set(names)
        absent = wanted - layout.header.entries.keys()
        if absent:
            raise KeyError(f"{path} has no {', '.join(map(repr, sorted(absent)))}")
        arrays: dict[str, Any] = {}
        checksum = 0
        file.seek(layout.start)
        for name, first, stop in layout.stretches:
            if name in wanted:
                data = np.empty(stop - first, np.uint8)
                if file.readinto(data.data) != data.size:  # type: ignore[attr-defined]
                    _refuse(path, "it ends early")
                arrays[name] = _as_array(path, data, layout.header.entries[name])
                checksum = _added(layout, checksum, data)
            elif layout.checksum is None:
                file.seek(stop - first, os.SEEK_CUR)
            else:
                for _ in range(0, stop - first, _CHUNK):
                    left = stop + layout.start - file.tell()
                    checksum = _added(layout, checksum, file.read(min(left, _CHUNK)))
        if layout.checksum not in (None, f"{checksum:08x}"):
            _refuse(path, "its data is not what was written")
        return arrays, layout.header


def _added(layout: _Layout, checksum: int, data: Any) -> int:
    if layout.checksum is None:
        return 0
    from crc32c import crc32c

    return crc32c(data, checksum)


def _as_array(path: Path, data: np.ndarray[Any, Any], entry: Entry) -> np.ndarray[Any, Any]:
    dtype = as_dtype(entry.dtype).dtype
    if entry.dtype == "bool" and data.size and data.max() > 1:
        _refuse(path, "a bool is neither 0 nor 1")
    try:
        return data.view(dtype).reshape(entry.shape)
    except ValueError as error:
        _refuse(path, str(error))


def _refuse(path: Path, why: str) -> NoReturn:
    raise ValueError(f"{path}: expected a checkpoint: {why}")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, _Layout]]:
    with path.open("rb") as file:
        yield file, _layout(path, file)


def _layout(path: Path, file: BinaryIO) -> _Layout:
    """The header, checked in every respect."""
    size = os.fstat(file.fileno()).st_size
    prefix = file.read(8)
    if len(prefix) < 8:
        _refuse(path, f"it has {size} bytes only")
    (length,) = struct.unpack("<Q", prefix)
    if length > min(_HEADER_LIMIT, size - 8):
        _refuse(path, f"its header would have {length} bytes")
    text = file.read(length)
    try:
        content = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        _refuse(path, f"its header is damaged: {error}")
    if not isinstance(content, dict):
        _refuse(path, "its header is no JSON object")
    metadata = content.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        _refuse(path, "its metadata is no dict of strings")
    own = metadata.get("format") == FORMAT
    checksum = None
    if own:
        checksum = _checked(path, prefix + text, metadata.get("crc32c", ""))
    elif metadata not in _FOREIGN:
        _refuse(path, "its metadata is neither optkit's nor that of a library known here")
    entries, stretches = {}, []
    for name, item in content.items():
        entries[name], first, stop = _entry(path, name, item)
        stretches.append((name, first, stop))
    stretches.sort(key=lambda stretch: stretch[1:])
    end = 0
    for name, first, stop in stretches:
        if first != end:
            _refuse(path, f"the data of {name!r} starts at {first}, and {end} was expected")
        end = stop
    if 8 + length + end != size:
        _refuse(path, f"it has {size} bytes, and {8 + length + end} were expected")
    return _Layout(Header(entries, metadata if own else {}, own), stretches, 8 + length, checksum)


def _checked(path: Path, head: bytes, digits: str) -> str:
    """The data's checksum, once the header has been held against its own."""
    from crc32c import crc32c

    place = _checksum_place(head)
    plain = head[:place] + _UNKNOWN.encode() + head[place + len(_UNKNOWN) :]
    if len(digits) != len(_UNKNOWN) or digits[:8] != f"{crc32c(plain):08x}":
        _refuse(path, "its header is not what was written")
    return digits[8:]


def _entry(path: Path, name: str, item: Any) -> tuple[Entry, int, int]:
    if not isinstance(item, dict) or item.keys() != {"dtype", "shape", "data_offsets"}:
        _refuse(path, f"{name!r} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = item["dtype"], item["shape"], item["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        _refuse(path, f"{name!r} has the dtype {dtype!r}, which is not known here")
    if not _sizes(shape) or not _sizes(offsets) or len(offsets) != 2 or len(shape) > _DIMENSIONS:
        _refuse(path, f"{name!r} has the shape {shape!r:.60} and the offsets {offsets!r:.60}")
    if math.prod(max(size, 1) for size in shape) >= 2**48:  # NumPy has none, empty or not
        _refuse(path, f"{name!r} has the shape {shape!r:.60}")
    first, stop = offsets
    if stop - first != math.prod(shape) * _SIZES[dtype]:
        _refuse(path, f"{name!r} has {stop - first} bytes, which are not its shape's")
    return Entry(_DTYPES[dtype], tuple(shape)), first, stop


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(x) is int and 0 <= x < 2**48 for x in value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number here")
