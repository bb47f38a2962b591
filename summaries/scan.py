"""Event files scanned fast: their sound records, and the fields of an event without parsing it all.

Damage costs the records that it touches: where a checksum fails the scan goes on at the next record
that is sound in both of its checksums.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from summaries.records import masked_crc

_BLOCK = 1 << 20
_MOST = 1 << 26  # a length may be wrong, so that not all is asked for at once
_HEAD = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_DOUBLE = struct.Struct("<d")
_OVERHEAD = _HEAD.size + _CHECKSUM.size
_NONZERO = re.compile(rb"[^\0]")

CUT_OFF = "the last record is cut off"
BROKEN_OFF = "a record is cut off"
BAD_LENGTH = "a record's length does not match its checksum"
BAD_DATA = "a record's data does not match its checksum"
NO_EVENT = "a record is not an event"


@dataclass(frozen=True, slots=True)
class Damage:
    """A place of a file that is no sound record: its first byte, and what is wrong with it."""

    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.reason}, at byte {self.offset}"


class Scan:
    """The sound records of a file, read in blocks of a megabyte; iterated once.

    What is no sound record is listed in `damages`. An end without a whole record, as a writer at
    work may leave it, is the damage CUT_OFF.
    """

    # `block` is the part of the file in memory, from byte `base` on; `at` is the position in it.

    def __init__(self, path: Path) -> None:
        self.damages: list[Damage] = []
        self.path = path
        self.block = b""
        self.base = 0
        self.at = 0
        # Most records have one of a few lengths; a head seen once needs no checksum again.
        self.heads: dict[bytes, int] = {}

    def __iter__(self) -> Iterator[bytes]:
        """Yield the data of each record."""
        try:
            with self.path.open("rb") as self.file:
                yield from self.sound_records()
        except OSError as error:
            reason = f"it cannot be read ({error.strerror})"
            self.damages.append(Damage(self.base + self.at, reason))

    def sound_records(self) -> Iterator[bytes]:
        """The records to the end of the file, over what is not sound."""
        while True:
            yield from self.whole_records()
            if not self.fill():
                if self.at == len(self.block):
                    return
                damage = Damage(self.base + self.at, self.reason())
                ended = not self.seek_sound()
                if damage.reason == CUT_OFF and not ended:
                    damage = Damage(damage.offset, BROKEN_OFF)
                self.damages.append(damage)
                if ended:
                    return

    def reject(self, data: bytes) -> None:
        """List the record that was yielded last, and had this data, as no event."""
        self.damages.append(Damage(self.base + self.at - len(data) - _OVERHEAD, NO_EVENT))

    def whole_records(self) -> Iterator[bytes]:
        """The records from the position on that are sound and whole in the block."""
        block, heads = self.block, self.heads
        end = len(block)
        while end - self.at >= _OVERHEAD:
            start = self.at + 12
            length = heads.get(block[self.at : start])
            if length is None:
                length = self.length()
                if length is None:
                    return
            stop = start + length
            if stop + 4 > end:
                return
            data = block[start:stop]
            if masked_crc(data) != _CHECKSUM.unpack_from(block, stop)[0]:
                return
            self.at = stop + 4
            yield data

    def length(self) -> int | None:
        """The length that the head at the position tells, if its checksum is right."""
        head = self.block[self.at : self.at + 12]
        length: int
        length, checksum = _HEAD.unpack(head)
        if masked_crc(head[:8]) != checksum:
            return None
        if len(self.heads) < 1 << 12:
            self.heads[head] = length
        return length

    def fill(self) -> bool:
        """Read on where the record at the position may become whole by that; whether it may."""
        left = len(self.block) - self.at
        length = self.length() if left >= 12 else 0
        if length is None or left >= length + _OVERHEAD:
            return False
        more = self.file.read(min(max(_BLOCK, length + _OVERHEAD - left), _MOST))
        if more:
            self.keep(self.at, more)
            self.at = 0
        return bool(more)

    def keep(self, start: int, more: bytes) -> None:
        """Drop the block up to a position and append what was read."""
        self.base += start
        self.block = self.block[start:] + more

    def reason(self) -> str:
        """What is wrong with the record at the position."""
        left = len(self.block) - self.at
        if left < 12:
            return CUT_OFF
        length = self.length()
        if length is None:
            return BAD_LENGTH
        return CUT_OFF if left < length + _OVERHEAD else BAD_DATA

    def seek_sound(self) -> bool:
        """Move to the next sound record behind the position; whether there is one."""
        start = self.at + 1
        while True:
            # A length below 2**32 has four zero bytes, behind four that are not all zero.
            zeros = self.block.find(b"\0\0\0\0", start + 4)
            at = zeros - 4
            if zeros < 0 or zeros + 8 > len(self.block):
                start = max(start, len(self.block) - 11) if zeros < 0 else at
                more = self.file.read(_BLOCK)
                if not more:
                    return False
                self.keep(start, more)
                start = 0
                continue
            if not any(self.block[at:zeros]):
                nonzero = _NONZERO.search(self.block, zeros)
                # No head starts in a run of zeros, up to its last three.
                start = max(at + 1, (nonzero.start() if nonzero else len(self.block)) - 3)
                continue
            self.at = at
            if self.is_sound():
                return True
            start = self.at + 1

    def is_sound(self) -> bool:
        """Whether a whole record with right checksums is at the position, reading on if need be."""
        while self.fill():
            pass
        if len(self.block) - self.at < _OVERHEAD:
            return False
        length = self.length()
        if length is None or len(self.block) - self.at < length + _OVERHEAD:
            return False
        stop = self.at + 12 + length
        data = self.block[self.at + 12 : stop]
        return bool(masked_crc(data) == _CHECKSUM.unpack_from(self.block, stop)[0])


class Parts(NamedTuple):
    """An event taken apart: `summary` and `session` are messages in wire form, empty if absent."""

    wall_time: float
    step: int
    summary: bytes
    session: bytes


def split_event(data: bytes) -> Parts:
    """The parts of an Event message.

    Raises:
        ValueError: the bytes are no message.
    """
    wall_time, step, summary, session = 0.0, 0, b"", b""
    for field, value in fields(data):
        if field == 1 and isinstance(value, bytes) and len(value) == 8:
            wall_time = _DOUBLE.unpack(value)[0]
        elif field == 2 and isinstance(value, int):
            step = value - (1 << 64) if value >> 63 else value
        elif field == 5 and isinstance(value, bytes):
            summary += value
        elif field == 7 and isinstance(value, bytes):
            session = value
    return Parts(wall_time, step, summary, session)


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message in wire form: number, and the bytes or, for a varint, the integer.

    Raises:
        ValueError: the bytes are no message.
    """
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        kind = key & 7
        if key < 8:
            raise ValueError("a field is without a number")
        if kind == 0:
            number, at = _varint(data, at)
            yield key >> 3, number
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("a field is of no kind that is known")
        if at + size > end:
            raise ValueError("a field is cut off")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The integer at a position, seven bits a byte, and the position behind it."""
    number = shift = 0
    while shift < 70 and at < len(data):
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise ValueError("an integer is cut off")
