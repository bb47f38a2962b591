"""TensorFlow's record framing: length, checksum of the length, data, checksum of the data.

A checksum is CRC-32C, rotated right by 15 bits and offset by a constant, in little-endian order.
"""

import struct
from functools import lru_cache

from crc32c import crc32c

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")


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
