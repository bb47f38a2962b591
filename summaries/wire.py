"""Events and scalar values in protobuf's wire format, without the message objects.

Building a message object costs several times what its bytes do, and a scalar has seven of them. The
layout is that of TensorBoard's Event and Summary messages; everything richer goes through `_proto`.
"""

import struct

_EVENT = struct.Struct("<Bd")
_FLOAT = struct.Struct("<f")

# Keys: field number << 3 | wire type (0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes)
_WALL_TIME = 1 << 3 | 1
_STEP = bytes((2 << 3 | 0,))
_FILE_VERSION = bytes((3 << 3 | 2,))
_SUMMARY = bytes((5 << 3 | 2,))
_SESSION_LOG = bytes((7 << 3 | 2,))
_START = bytes((1 << 3 | 0, 1))  # SessionLog.status = START
_VALUE = bytes((1 << 3 | 2,))
_TAG = bytes((1 << 3 | 2,))
_SIMPLE_VALUE = bytes((2 << 3 | 5,))
_METADATA = bytes((9 << 3 | 2,))


def varint(number: int) -> bytes:
    """A non-negative integer, seven bits a byte, the lowest first."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def event(wall_time: float, step: int, summary: bytes) -> bytes:
    """An Event with the bytes of a Summary; the step is in [0, 2**63)."""
    return _event(wall_time, step, _SUMMARY, summary)


def file_version(wall_time: float, version: str) -> bytes:
    """The Event that a file begins with."""
    return _event(wall_time, 0, _FILE_VERSION, version.encode())


def session_start(wall_time: float, step: int) -> bytes:
    """An Event that marks the start of a session at a step."""
    return _event(wall_time, step, _SESSION_LOG, _START)


def _event(wall_time: float, step: int, key: bytes, content: bytes) -> bytes:
    head = _EVENT.pack(_WALL_TIME, wall_time)
    return b"".join((head, _STEP, varint(step), key, varint(len(content)), content))


def scalar_head(tag: str, metadata: bytes = b"") -> bytes:
    """A Summary with one scalar value under a tag, up to the four bytes of the number.

    Args:
        tag: the tag.
        metadata: the bytes of a SummaryMetadata, if the value carries one.
    """
    name = tag.encode()
    inner = _TAG + varint(len(name)) + name
    if metadata:
        inner += _METADATA + varint(len(metadata)) + metadata
    inner += _SIMPLE_VALUE
    return _VALUE + varint(len(inner) + _FLOAT.size) + inner


pack_float = _FLOAT.pack
"""The bytes of a number as float32; OverflowError beyond its range."""
