"""From a tag and a value to the bytes of a Summary message.

The bytes of several summaries, joined, are one summary with all their values.
"""

import math
import struct
from functools import lru_cache
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from summaries import _proto
from summaries._arrays import real_array, to_numpy
from summaries._warn import warn_once
from summaries.histogram import Histogram, counter_for, measure
from summaries.metadata import TENSOR, delimited, metadata_bytes
from summaries.png import COLOUR_TYPES, encode_png
from summaries.tags import clean_tag, utf8
from summaries.wire import pack_float, scalar_head, varint

_HISTOGRAM_HEAD = struct.Struct("<BdBdBdBdBd")
_HISTOGRAM_KEYS = tuple(field << 3 | 1 for field in range(1, 6))  # eight bytes each
_BUCKET_LIMIT, _BUCKET = bytes((6 << 3 | 2,)), bytes((7 << 3 | 2,))
# TensorFlow's numbers of dtypes, by NumPy's kind and size
_TENSOR_DTYPES = {
    "f4": 1,
    "f8": 2,
    "i4": 3,
    "u1": 4,
    "i2": 5,
    "i1": 6,
    "i8": 9,
    "b1": 10,
    "u2": 17,
    "f2": 19,
    "u4": 22,
    "u8": 23,
}
_FLOAT_TENSOR, _DOUBLE_TENSOR = bytes((1 << 3, 1)), bytes((1 << 3, 2))


def encode_scalar(tag: str, value: object) -> bytes:
    """One number, stored as float32; NaN and infinities are stored as they are.

    Args:
        tag: the name, cleaned by `clean_tag`.
        value: a Python or NumPy number or a 0-d array of any integer or float dtype.

    Raises:
        TypeError: the value is a bool, a string or anything else that is not a real number.
        ValueError: it is an array of another shape, or an integer beyond float64.
    """
    tag = clean_tag(tag)
    return scalar_bytes(tag, real_scalar(tag, value))


def real_scalar(tag: str, value: object) -> float:
    """The value as a float; the errors of `encode_scalar` name the tag."""
    if type(value) is float:
        return value
    if isinstance(value, Real) and not isinstance(value, bool | np.generic):
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"{tag!r} takes a float64, which {value!r:.60} exceeds") from None
    array = real_array(tag, value)
    if array.dtype.kind == "b":
        raise TypeError(
            f"{tag!r} takes a number, not bool {value!r:.60}; write int(...) for 0 or 1"
        )
    if array.ndim:
        raise ValueError(f"{tag!r} takes one number, not an array of shape {array.shape}")
    return float(array)


def encode_histogram(tag: str, values: object, buckets: str | int = "fast") -> bytes:
    """The distribution of an array: exact bucket counts, min, max, num, Σx and Σx².

    NaN and infinite values are in no bucket and no moment; if there are any, the summary also holds
    their number, as the scalar `<tag>_nonfinite`, and a warning is issued once for each tag. An
    array without finite values yields no histogram, an empty one an empty summary.

    Args:
        tag: the name, cleaned by `clean_tag`.
        values: an array of any shape; integer, boolean or float.
        buckets: "fast", eight buckets an octave (at most 1600: neighbours are merged if need be), a
            number of buckets, 2 or more, down to which they are merged, or "tf", the grid of
            TensorFlow 1: ±1e-12·1.1^k.

    Raises:
        TypeError: the values are not real numbers.
        ValueError: `buckets` is none of these.
    """
    tag = clean_tag(tag)
    array = values if counter_for(values) is not None else real_array(tag, values)
    return histogram_bytes(tag, measure(array, buckets))


def histogram_bytes(tag: str, histogram: Histogram) -> bytes:
    """As `encode_histogram`, of a clean tag and a measured array."""
    data = _histogram_value(tag, histogram) if histogram.num else b""
    if histogram.nonfinite:
        count = f"{tag}_nonfinite"
        total = histogram.num + histogram.nonfinite
        message = (
            f"{histogram.nonfinite} of the {total} values of {tag!r} are NaN or infinite; "
            f"{count!r} holds their number, the histogram the others"
        )
        warn_once("nonfinite", tag, message=message)
        data += scalar_bytes(count, histogram.nonfinite)
    elif not data:
        warn_once("empty", tag, message=f"{tag!r} has no values, so no histogram is written")
    return data


def _histogram_value(tag: str, histogram: Histogram) -> bytes:
    numbers = (
        histogram.min,
        histogram.max,
        float(histogram.num),
        histogram.sum,
        histogram.sum_squares,
    )
    fields = (item for pair in zip(_HISTOGRAM_KEYS, numbers, strict=True) for item in pair)
    packed = varint(8 * histogram.limits.size)
    message = b"".join(
        (
            _HISTOGRAM_HEAD.pack(*fields),
            _BUCKET_LIMIT,
            packed,
            histogram.limits.astype("<f8", copy=False).tobytes(),
            _BUCKET,
            packed,
            histogram.counts.astype("<f8", copy=False).tobytes(),
        )
    )
    return delimited(1, _tag_field(tag) + delimited(5, message))


@lru_cache(maxsize=1 << 14)
def _tag_field(tag: str) -> bytes:
    return delimited(1, tag.encode())


_cached_scalar_head = lru_cache(maxsize=1 << 14)(scalar_head)


def scalar_bytes(tag: str, value: float) -> bytes:
    """As `encode_scalar`, of a clean tag and a number; what float32 cannot hold is infinite."""
    try:
        return _cached_scalar_head(tag) + pack_float(value)
    except OverflowError:
        return _cached_scalar_head(tag) + pack_float(math.copysign(math.inf, value))


def scalar_tensor_bytes(tag: str, value: float, double: bool, metadata: bytes) -> bytes:
    """As `scalar_bytes`, as a tensor of float32 or float64, which TensorFlow 2 writes."""
    if double:
        tensor = _DOUBLE_TENSOR + delimited(6, struct.pack("<d", value))
    else:
        tensor = _FLOAT_TENSOR + delimited(5, scalar_bytes("", value)[-4:])
    return delimited(1, _tag_field(tag) + delimited(8, tensor) + delimited(9, metadata))


def encode_tensor(tag: str, values: object) -> bytes:
    """An array of any shape as it is; TensorBoard keeps it, and shows it on no page.

    Args:
        tag: the name, cleaned by `clean_tag`.
        values: integer, boolean or float, under 2 GB; of what NumPy has no dtype for (bfloat16),
            float32.

    Raises:
        TypeError: the values are not real numbers.
        ValueError: the array is too large.
    """
    tag = clean_tag(tag)
    array = real_array(tag, values)
    number = _TENSOR_DTYPES.get(array.dtype.newbyteorder("=").str[1:])
    if number is None:
        raise TypeError(
            f"{tag!r} takes a tensor of integers, booleans or floats, not {array.dtype}"
        )
    if array.nbytes >= 1 << 31:
        raise ValueError(f"{tag!r} takes a tensor under 2 GB, not one of {array.nbytes} bytes")
    tensor = _proto.TensorProto(
        dtype=number,
        tensor_shape=_shape(array),
        tensor_content=array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes(),
    )
    metadata = _proto.SummaryMetadata.FromString(metadata_bytes("tensor", TENSOR))
    return _serialized([_proto.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])


def _shape(array: NDArray[Any]) -> Any:
    dimension = _proto.TensorShapeProto.Dim
    return _proto.TensorShapeProto(dim=[dimension(size=size) for size in array.shape])


def encode_text(tag: str, text: object) -> bytes:
    """A text, shown as Markdown; an array of texts is shown as a table.

    Args:
        tag: the name, cleaned by `clean_tag`.
        text: a string, UTF-8 bytes, or a list or array of them of any shape.

    Raises:
        TypeError: the value is not text.
        ValueError: a string has a lone surrogate, or the lists are of several lengths.
    """
    tag = clean_tag(tag)
    try:
        texts = np.asarray(text)
    except ValueError as error:
        raise ValueError(f"{tag!r} takes a text or a table: {error}") from error
    if texts.dtype.kind not in "USO" or not all(
        isinstance(each, str | bytes) for each in texts.flat
    ):
        raise TypeError(f"{tag!r} takes text, not {type(text).__name__} {text!r:.60}")
    # NumPy strips trailing NULs from its own strings, so a lone text goes past it.
    items = [text] if not texts.ndim and isinstance(text, str | bytes) else texts.flat
    tensor = _proto.TensorProto(
        dtype=_proto.DataType.Value("DT_STRING"),
        tensor_shape=_shape(texts),
        string_val=[
            utf8(f"the text of {tag!r}", item) if isinstance(item, str) else bytes(item)
            for item in items
        ],
    )
    metadata = _proto.SummaryMetadata.FromString(metadata_bytes("text", TENSOR))
    return _serialized([_proto.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])


def encode_image(tag: str, image: object, max_outputs: int = 3) -> bytes:
    """One image, or the first images of a batch, as PNG.

    A single image, and the only one where `max_outputs` is 1, gets the tag `<tag>/image`; those of
    a batch get `<tag>/image/0`, `<tag>/image/1` and so on, as in TensorFlow 1.

    Args:
        tag: the name, cleaned by `clean_tag`.
        image: [height, width, channels] or [batch, height, width, channels] with 1 (grey), 2 (grey,
            alpha), 3 (RGB) or 4 (RGB, alpha) channels; uint8, or float from 0 to 1.
        max_outputs: how many images of a batch are written.

    Raises:
        TypeError: the dtype is neither uint8 nor float.
        ValueError: the shape is not one of those, an axis is empty, or `max_outputs` is below 1.
    """
    tag = clean_tag(tag)
    if max_outputs < 1:
        raise ValueError(f"{tag!r}: max_outputs must be at least 1, not {max_outputs}")
    pixels = to_numpy(image)
    if pixels.ndim not in (3, 4):
        raise ValueError(f"{tag!r} takes [height, width, channels] or a batch, not {pixels.shape}")
    base = f"{tag}/image"
    if pixels.ndim == 3:
        return image_bytes([base], pixels[np.newaxis])
    count = min(max_outputs, pixels.shape[0])
    names = [base] if max_outputs == 1 else [f"{base}/{index}" for index in range(count)]
    return image_bytes(names, pixels)


def image_bytes(tags: list[str], batch: NDArray[Any]) -> bytes:
    """The summary of one image [height, width, channels] of a batch for each of the clean tags."""
    values = []
    for tag, image in zip(tags, batch, strict=False):
        height, width, channels = image.shape
        if not height or not width or channels not in COLOUR_TYPES:
            expected = "[height, width, channels] with 1 to 4 channels"
            raise ValueError(f"{tag!r} takes images {expected}, not {image.shape}")
        proto = _proto.Summary.Image(
            height=height,
            width=width,
            colorspace=channels,
            encoded_image_string=encode_png(_as_bytes(tag, image)),
        )
        values.append(_proto.Summary.Value(tag=tag, image=proto))
    return _serialized(values)


def _as_bytes(tag: str, image: NDArray[Any]) -> NDArray[np.uint8]:
    if image.dtype == np.uint8:
        return image
    if image.dtype.kind != "f":
        raise TypeError(f"{tag!r} takes an image of uint8 or float, not {image.dtype}")
    inside = (image >= 0) & (image <= 1)
    if not inside.all():
        low, high = float(image.min()), float(image.max())
        message = f"{tag!r} takes pixels from 0 to 1; those from {low} to {high} are clipped"
        warn_once("pixels", tag, message=message)
        image = np.where(np.isnan(image), 0, np.clip(image, 0, 1))
    scaled: NDArray[np.uint8] = np.rint(image.astype(np.float32) * 255).astype(np.uint8)
    return scaled


def _serialized(values: list[Any]) -> bytes:
    data: bytes = _proto.Summary(value=values).SerializeToString()
    return data
