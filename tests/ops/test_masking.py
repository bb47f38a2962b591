"""Masks, reversal, grids and norms: values, static shapes, errors."""

import numpy as np
import pytest

from optkit.errors import InvalidArgumentError
from optkit.gradients import gradients
from optkit.ops import masking
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.runtime.session import Session


def run(fetches, feed=None):
    return Session().run(fetches, feed)


def test_sequence_mask():
    mask = masking.sequence_mask([[1, 0], [3, 2]], 3)
    assert mask.shape == [2, 2, 3]
    np.testing.assert_array_equal(run(mask), [[[1, 0, 0], [0, 0, 0]], [[1, 1, 1], [1, 1, 0]]])
    open_ended = masking.sequence_mask(constant([1, 3]), dtype="float32")
    assert open_ended.dtype == "float32"
    np.testing.assert_array_equal(run(open_ended), [[1, 0, 0], [1, 1, 1]])
    n = placeholder("int32", [])
    assert run(masking.sequence_mask([2], n), {n: 4}).tolist() == [[True, True, False, False]]
    with pytest.raises(TypeError, match="lengths: expected int32 or int64"):
        masking.sequence_mask([1.0])
    with pytest.raises(ValueError, match="maxlen: expected a scalar"):
        masking.sequence_mask([1], [3])


@pytest.mark.parametrize(("shape", "axis"), [((2,), 0), ((2, 3), None), ((3,), 1), ((3, 4), -2)])
def test_boolean_mask_is_numpys(shape, axis):
    x = np.arange(24.0).reshape(2, 3, 4)
    mask = np.random.default_rng(3).random(shape) < 0.6
    first = (axis or 0) % 3
    expected = x[(slice(None),) * first + (mask,)]
    fixed = masking.boolean_mask(x, mask, axis=axis)
    assert fixed.shape.ndims == expected.ndim
    assert fixed.shape[first].value in (None, expected.shape[first])
    np.testing.assert_array_equal(run(fixed), expected)
    a, b = placeholder("float64", [None] * 3), placeholder("bool", [None] * len(shape))
    y = masking.boolean_mask(a, b, axis=axis)
    np.testing.assert_array_equal(run(y, {a: x, b: mask}), expected)
    (dx,) = gradients(y, [a])
    along = mask.reshape((1,) * first + shape + (1,) * (3 - first - len(shape)))
    np.testing.assert_array_equal(run(dx, {a: x, b: mask}), np.broadcast_to(along, x.shape))


def test_boolean_mask_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match=r"mask: expected shape \(2,\), got"):
        masking.boolean_mask([1, 2], [True])
    with pytest.raises(ValueError, match="mask: expected a known rank of at least 1"):
        masking.boolean_mask([1, 2], True)
    with pytest.raises(TypeError, match="mask: expected bool"):
        masking.boolean_mask([1, 2], [1, 0])
    a, b = placeholder("float32", [None]), placeholder("bool", [None])
    y = masking.boolean_mask(a, b)
    with pytest.raises(InvalidArgumentError, match=r"mask: expected shape \(3,\), got \(2,\)"):
        run(y, {a: [1, 2, 3], b: [True, False]})


def test_reverse_sequence():
    x = np.arange(12).reshape(3, 4)
    y = masking.reverse_sequence(x, [2, 4, 0], seq_dim=1, batch_dim=0)
    np.testing.assert_array_equal(run(y), [[1, 0, 2, 3], [7, 6, 5, 4], [8, 9, 10, 11]])
    lengths = placeholder("int32", [None])
    with pytest.raises(InvalidArgumentError, match=r"seq_lengths: expected numbers in \[0, 4\]"):
        run(masking.reverse_sequence(x, lengths, 1), {lengths: [5, 0, 0]})
    with pytest.raises(ValueError, match="seq_lengths: expected 3 of them"):
        masking.reverse_sequence(x, [1], 1)
    with pytest.raises(ValueError, match="expected different axes"):
        masking.reverse_sequence(x, [1, 1, 1], 0)
    with pytest.raises(ValueError, match="seq_axis: expected an axis"):
        masking.reverse_sequence(x, [1, 1, 1])


@pytest.mark.parametrize("indexing", ["xy", "ij"])
def test_meshgrid_is_numpys(indexing):
    vectors = [[1, 2, 3], [4, 5], [6, 7]]
    found = masking.meshgrid(*vectors, indexing=indexing)
    for grid, expected in zip(found, np.meshgrid(*vectors, indexing=indexing), strict=True):
        assert grid.shape == list(expected.shape)
        np.testing.assert_array_equal(run(grid), expected)
    assert masking.meshgrid() == []
    with pytest.raises(ValueError, match="indexing: expected 'xy' or 'ij'"):
        masking.meshgrid([1], indexing="yx")
    with pytest.raises(ValueError, match=r"args\[0\]: expected a vector"):
        masking.meshgrid([[1]])


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize(
    ("order", "axis", "numpys"),
    [
        ("euclidean", None, None),
        ("euclidean", 1, 2),
        (2, [0], 2),
        (1, 0, 1),
        (3, 1, 3),
        (np.inf, 1, np.inf),
        ("euclidean", [0, 1], "fro"),
        ("fro", [-2, -1], "fro"),
        (1, [0, 1], 1),
        (np.inf, [0, 1], np.inf),
    ],
)
def test_norm_is_numpys(order, axis, numpys, keep):
    x = np.random.default_rng(4).normal(size=(3, 4))
    along = tuple(axis) if isinstance(axis, list) and len(axis) > 1 else axis
    along = along[0] if isinstance(along, list) else along
    expected = np.linalg.norm(x, numpys, along, keepdims=keep)
    found = masking.norm(x, order, axis, keepdims=keep)
    assert found.shape == list(np.shape(expected))
    np.testing.assert_allclose(run(found), expected, rtol=1e-12)


def test_norm_refuses_what_is_none():
    with pytest.raises(ValueError, match="ord: expected one of"):
        masking.norm([1.0], "nuclear")
    with pytest.raises(ValueError, match="ord: expected one of"):
        masking.norm([[1.0]], 2, [0, 1])
    with pytest.raises(ValueError, match="axis: expected an int, a pair"):
        masking.norm([[[1.0]]], axis=[0, 1, 2])
