"""Batch normalisation from given moments, of images, and weighted moments; refusals."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from optkit import nn
from optkit.ops.array import placeholder
from optkit.ops.batch_norm import normalized_batch
from optkit.ops.core import constant
from optkit.runtime.session import Session

IMAGES = np.arange(48, dtype=np.float32).reshape(2, 2, 4, 3) ** 2 / 100
SCALE, OFFSET = np.float32([1, 2, 3]), np.float32([-1, 0, 1])


def value(fetches, feed=None):
    with Session() as session:
        return session.run(fetches, feed)


@pytest.mark.parametrize("scale", [SCALE, None])
@pytest.mark.parametrize("offset", [OFFSET, None])
def test_batch_normalization(scale, offset):
    mean, variance = np.float32([3, 2, 1]), np.float32([4, 0, 1])
    y = nn.batch_normalization(IMAGES, mean, variance, offset, scale, 0.25)
    expected = (IMAGES - mean) / np.sqrt(variance + 0.25)
    expected = expected * (1 if scale is None else scale) + (0 if offset is None else offset)
    assert y.name == "batchnorm/add_1:0"
    assert_allclose(value(y), expected, rtol=1e-5, atol=1e-5)


def test_16_bit_floats_beside_parameters_of_float32():
    x = IMAGES.astype(np.float16)
    y = nn.batch_normalization(x, SCALE, SCALE, OFFSET, None, 0.0)
    assert y.dtype == np.float16
    y, mean, variance = nn.fused_batch_norm(x, SCALE, OFFSET)
    assert [each.dtype for each in (y, mean, variance)] == ["float16", "float32", "float32"]


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_fused_batch_norm(data_format):
    x = IMAGES if data_format == "NHWC" else IMAGES.transpose(0, 3, 1, 2)
    rows = IMAGES.reshape(-1, 3).astype(np.float64)
    y, mean, variance = value(nn.fused_batch_norm(x, SCALE, OFFSET, data_format=data_format))
    expected = (IMAGES - rows.mean(0)) / np.sqrt(rows.var(0) + 0.001) * SCALE + OFFSET
    assert_allclose(y if data_format == "NHWC" else y.transpose(0, 2, 3, 1), expected, rtol=1e-5)
    assert_allclose(mean, rows.mean(0), rtol=1e-6)
    assert_allclose(variance, rows.var(0, ddof=1), rtol=1e-6)
    # At the moments of the whole, inference does what training did.
    moments = {"mean": rows.mean(0).astype("f4"), "variance": rows.var(0).astype("f4")}
    again = nn.fused_batch_norm(
        x, SCALE, OFFSET, **moments, data_format=data_format, is_training=False
    )
    assert_allclose(value(again[0]), y, rtol=1e-5, atol=1e-5)
    assert_allclose(value(again[1:]), list(moments.values()))


def test_epsilon_has_a_lower_bound():
    """TensorFlow 2.21: 1.001e-5 is used for any smaller epsilon."""
    x = np.zeros((1, 1, 1, 1), np.float32)
    y, _, _ = nn.fused_batch_norm(
        x + 1, np.float32([1]), np.float32([0]), np.float32([0]), np.float32([0]), 1e-9,
        is_training=False,
    )  # fmt: skip
    assert_allclose(value(y), 1 / np.sqrt(1.001e-5), rtol=1e-5)


def test_one_row_has_no_spread():
    y, mean, variance = normalized_batch(constant([[2.0, 3.0]]), SCALE[:2], OFFSET[:2], [0], 0.1, 1)
    found = value([y, mean, variance])
    assert_allclose(found[0], [OFFSET[:2]])
    assert_allclose(found[1:], [[2, 3], [0, 0]])


def test_no_rows_have_no_moments():
    x = placeholder("float32", [None, 2])
    y, mean, variance = normalized_batch(x, SCALE[:2], OFFSET[:2], [0], 0.1)
    found = value([y, mean, variance], {x: np.zeros((0, 2))})
    assert found[0].shape == (0, 2)
    assert np.isnan(found[1:]).all()


def test_a_large_mean_leaves_the_variance_alone():
    x = np.float32([[4097.0], [4095.0], [4096.0], [4096.0]])
    _, mean, variance = normalized_batch(constant(x), SCALE[:1], OFFSET[:1], [0], 0.0)
    assert_allclose(value([mean, variance]), [[4096.0], [0.5]])


@pytest.mark.parametrize("keepdims", [True, False])
def test_weighted_moments(keepdims):
    x, w = IMAGES[0], np.float32([[[2], [0], [1], [1]]])
    mean, variance = value(nn.weighted_moments(x, [0, 1], w, keepdims=keepdims))
    repeated = np.concatenate([x[:, [0, 0, 2, 3]]]).reshape(-1, 3).astype(np.float64)
    assert mean.shape == ((1, 1, 3) if keepdims else (3,))
    assert_allclose(mean.reshape(3), repeated.mean(0), rtol=1e-6)
    assert_allclose(variance.reshape(3), repeated.var(0), rtol=1e-5)


REFUSED = [
    (ValueError, "data_format.*'NCWH'", {"data_format": "NCWH"}),
    (ValueError, "mean, variance: expected None", {"mean": SCALE}),
    (ValueError, "mean, variance: expected tensors", {"is_training": False, "mean": SCALE}),
    (ValueError, "x: expected four axes", {"x": IMAGES[0]}),
    (ValueError, r"scale: expected shape \(3,\).*shape=\(2,\)", {"scale": SCALE[:2]}),
    (ValueError, r"offset: expected shape \(3,\)", {"offset": OFFSET[:2]}),
    (TypeError, "scale: expected float32.*float64", {"scale": SCALE.astype(float)}),
    (TypeError, "x: .*int32", {"x": IMAGES.astype(np.int32)}),
]


@pytest.mark.parametrize(("error", "message", "changed"), REFUSED)
def test_refusals(error, message, changed):
    with pytest.raises(error, match=message):
        nn.fused_batch_norm(**({"x": IMAGES, "scale": SCALE, "offset": OFFSET} | changed))


def test_the_rank_must_be_known():
    with pytest.raises(ValueError, match="x: expected a known rank"):
        nn.fused_batch_norm(placeholder("float32"), SCALE, OFFSET)
