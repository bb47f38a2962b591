"""TensorFlow's record framing: length, checksum of the length, data, checksum of the data.

A checksum is CRC-32C, rotated right by 15 bits and offset by a constant, in little-endian order.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from crc32c import crc32c

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_HEAD = struct.Struct("<QI")


def masked_crc(data: bytes) -> int:
    """The checksum of the format: rotate(crc32c(data), 15) + 0xa282ead8, modulo 2**32."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(data: bytes) -> bytes:
    """The record of some bytes: 16 bytes longer than they are."""
    return b"".join((_head(len(data)), data, _CHECKSUM.pack(masked_crc(data))))


# Records of one kind have one length, step after step.
@lru_cache(maxsize=1024)
def _head(size: int) -> bytes:
    length = _LENGTH.pack(size)
    return length + _CHECKSUM.pack(masked_crc(length))


@dataclass
class Damage:
    """Where the sound part of a record file ends, and why; `reason` is empty for a whole file."""

    offset: int = 0
    reason: str = ""


def read_records(path: Path, damage: Damage) -> Iterator[bytes]:
    """Yield the data of each record up to the end or the first record that is not whole.

    The rest behind such a record is not read, as its boundaries cannot be trusted; `damage` then
    tells the reason. Records are read one at a time.
    """
    with path.open("rb") as file:
        while True:
            damage.offset = file.tell()
            head = file.read(_HEAD.size)
            if not head:
                return
            data, damage.reason = _read_one(file, head)
            if damage.reason:
                return
            yield data


def _read_one(file: BinaryIO, head: bytes) -> tuple[bytes, str]:
    """The data of the record that starts with `head`, or the reason why there is none."""
    if len(head) < _HEAD.size:
        return b"", "the last record is cut off"
    length, checksum = _HEAD.unpack(head)
    if masked_crc(head[: _LENGTH.size]) != checksum:
        return b"", "a record's length does not match its checksum"
    data = file.read(length)
    tail = file.read(_CHECKSUM.size)
    if len(data) < length or len(tail) < _CHECKSUM.size:
        return b"", "the last record is cut off"
    if masked_crc(data) != _CHECKSUM.unpack(tail)[0]:
        return b"", "a record's data does not match its checksum"
    return data, ""
