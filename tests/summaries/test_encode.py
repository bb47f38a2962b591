import io
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from PIL import Image
from tensorboard.compat.proto.summary_pb2 import DATA_CLASS_TENSOR, Summary
from tensorboard.util.tensor_util import make_ndarray

from summaries import encode_histogram, encode_image, encode_scalar, encode_text
from summaries.histogram import measure


def values_of(data):
    """The values of a summary by their tags, as TensorBoard's own message."""
    values = Summary.FromString(data).value
    by_tag = {value.tag: value for value in values}
    assert len(by_tag) == len(values)
    return by_tag


@pytest.mark.parametrize(
    "value",
    [
        *(202, 202.0, Fraction(404, 2), np.int64(202), np.float16(202), np.uint8(202)),
        *(np.longdouble(202), np.array(202), np.array(202, ">f4")),
    ],
    ids=repr,
)
def test_p100_real_numbers_of_any_kind_are_scalars(value):
    assert values_of(encode_scalar("x", value))["x"].simple_value == 202.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_p091_scalars_that_are_not_finite_are_stored_as_they_are(value):
    stored = values_of(encode_scalar("x", np.float32(value)))["x"].simple_value
    assert stored == pytest.approx(value, nan_ok=True)


def test_scalars_beyond_float32_are_infinite():
    assert values_of(encode_scalar("x", -1e39))["x"].simple_value == -math.inf


@pytest.mark.parametrize("value", ["1.0", b"1", True, np.True_, np.array(False), None, 1j, {}])
def test_p090_what_is_no_number_names_the_tag(value):
    with pytest.raises(TypeError, match="'eval/note' takes"):
        encode_scalar("eval/note", value)


@pytest.mark.parametrize(
    ("value", "named"), [([1, 2], r"\(2,\)"), (np.ones((1, 1)), r"\(1, 1\)"), (10**400, "float64")]
)
def test_p090_what_is_not_one_number_names_tag_and_shape(value, named):
    with pytest.raises(ValueError, match=f"'vec' takes .*{named}"):
        encode_scalar("vec", value)


@pytest.mark.parametrize("encode", [encode_scalar, encode_histogram])
def test_p063_tags_are_clean(encode):
    assert list(values_of(encode("gradients/w:0", 1.5))) == ["gradients/w_0"]


def test_joined_summaries_are_one():
    data = encode_scalar("a", 1) + encode_histogram("b", [1.0]) + encode_text("c", "text")
    assert list(values_of(data)) == ["a", "b", "c"]


@pytest.mark.parametrize("buckets", ["fast", "tf"])
def test_a_histogram_is_written_as_it_was_measured(buckets):
    array = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    measured = measure(array, buckets)
    histo = values_of(encode_histogram("h", array, buckets))["h"].histo
    assert list(histo.bucket_limit) == measured.limits.tolist()
    assert list(histo.bucket) == measured.counts.tolist()
    assert (histo.num, histo.sum, histo.sum_squares) == (100, measured.sum, measured.sum_squares)
    assert (histo.min, histo.max) == (array.min(), array.max())


def test_p066_values_that_are_not_finite_are_counted_apart():
    with pytest.warns(RuntimeWarning, match="3 of the 5 values of 'g/w_0'"):
        values = values_of(encode_histogram("g/w:0", [1, np.nan, 2, np.inf, -np.inf]))
    assert values["g/w_0_nonfinite"].simple_value == 3
    histo = values["g/w_0"].histo
    assert (histo.num, histo.sum, sum(histo.bucket), histo.max) == (2, 3, 2, 2)


def test_p065_nothing_but_nan_leaves_the_count():
    with pytest.warns(RuntimeWarning, match="4 of the 4 values of 'g'"):
        values = values_of(encode_histogram("g", np.full((2, 2), np.nan)))
    assert list(values) == ["g_nonfinite"]
    assert values["g_nonfinite"].simple_value == 4


def test_p065_an_empty_array_is_skipped():
    with pytest.warns(RuntimeWarning, match="'g' has no values"):
        assert encode_histogram("g", np.empty((0, 3))) == b""


@pytest.mark.parametrize("array", [[], [np.nan]], ids=["empty", "nan"])
def test_p065_the_warning_comes_once_for_each_tag(array):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for tag in ("a", "b", "a"):
            encode_histogram(tag, array)
    assert len(caught) == 2


def test_a_histogram_of_other_things_names_the_tag():
    with pytest.raises(TypeError, match="'h' takes real numbers, not an array of dtype complex128"):
        encode_histogram("h", np.ones(3, complex))


def test_a_text_is_a_string_tensor_of_the_text_plugin():
    value = values_of(encode_text("note", "größer **x**"))["note"]
    assert value.metadata.plugin_data.plugin_name == "text"
    assert value.metadata.data_class == DATA_CLASS_TENSOR
    array = make_ndarray(value.tensor)
    assert array.shape == ()
    assert array.item().decode() == "größer **x**"


def test_a_table_of_texts_keeps_its_shape():
    value = values_of(encode_text("table", [["a", "b"], ["c", "d"], ["e", "f"]]))["table"]
    assert make_ndarray(value.tensor).tolist() == [[b"a", b"b"], [b"c", b"d"], [b"e", b"f"]]


@pytest.mark.parametrize("text", [5, None, ["a", 5, None], []])
def test_a_text_of_other_things_names_the_tag(text):
    with pytest.raises(TypeError, match="'note' takes text"):
        encode_text("note", text)


@pytest.mark.parametrize("text", ["\ud800", ["a", "\ud800"], [["a"], ["b", "c"]]])
def test_a_text_that_cannot_be_written_names_the_tag(text):
    with pytest.raises(ValueError, match="'note'"):
        encode_text("note", text)


def decoded(value):
    with Image.open(io.BytesIO(value.image.encoded_image_string)) as image:
        pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[..., np.newaxis]


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_an_image_comes_back_from_its_png(channels):
    image = np.random.default_rng(0).integers(0, 256, (5, 7, channels), np.uint8)
    value = values_of(encode_image("img", image))["img/image"]
    assert (value.image.height, value.image.width, value.image.colorspace) == (5, 7, channels)
    np.testing.assert_array_equal(decoded(value), image)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_float_image_spans_zero_to_one(dtype):
    image = np.array([0, 0.2, 0.5, 1]).astype(dtype).reshape(2, 2, 1)
    value = values_of(encode_image("img", image))["img/image"]
    np.testing.assert_array_equal(decoded(value).ravel(), [0, 51, 128, 255])


def test_pixels_outside_are_clipped_with_a_warning():
    image = np.array([-0.5, np.nan, 2, 1]).reshape(2, 2, 1)
    with pytest.warns(RuntimeWarning, match="'img/image' takes pixels from 0 to 1"):
        value = values_of(encode_image("img", image))["img/image"]
    np.testing.assert_array_equal(decoded(value).ravel(), [0, 0, 255, 255])


@pytest.mark.parametrize(
    ("outputs", "tags"),
    [(1, ["i/image"]), (2, ["i/image/0", "i/image/1"]), (9, [f"i/image/{n}" for n in range(4)])],
)
def test_a_batch_is_tagged_as_in_tensorflow(outputs, tags):
    batch = np.arange(4, dtype=np.uint8).reshape(4, 1, 1, 1)
    values = values_of(encode_image("i", batch, outputs))
    assert list(values) == tags
    assert [decoded(value).item() for value in values.values()] == list(range(len(tags)))


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 5), (0, 4, 3), (1, 1, 1, 1, 1), (3, 4, 4, 0)])
def test_images_of_other_shapes_name_tag_and_shape(shape):
    with pytest.raises(ValueError, match=r"'i.* takes .*height, width, channels"):
        encode_image("i", np.zeros(shape, np.uint8))


def test_images_of_other_dtypes_name_tag_and_dtype():
    with pytest.raises(TypeError, match="'i/image' takes an image of uint8 or float, not int64"):
        encode_image("i", np.zeros((2, 2, 1), np.int64))


def test_at_least_one_image_is_written():
    with pytest.raises(ValueError, match="max_outputs must be at least 1, not 0"):
        encode_image("i", np.zeros((1, 2, 2, 1), np.uint8), max_outputs=0)
