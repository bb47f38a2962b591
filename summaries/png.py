"""PNG files (ISO/IEC 15948), written with zlib alone."""

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# channels -> PNG colour type: grey, grey with alpha, RGB, RGB with alpha
COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}


def encode_png(image: NDArray[np.uint8]) -> bytes:
    """The PNG file of a uint8 image of shape [height, width, channels], channels 1 to 4."""
    height, width, channels = image.shape
    header = struct.pack(">IIBBBBB", width, height, 8, COLOUR_TYPES[channels], 0, 0, 0)
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # column 0: no row is filtered
    rows[:, 1:] = image.reshape(height, -1)
    data = zlib.compress(rows.tobytes())
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
