"""IndexedSlices: duplicates added up, made dense; the same sums in every run."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optkit.backend.segments import merge_rows, segment_sum
from optkit.errors import InvalidArgumentError
from optkit.gradients import gradients
from optkit.graph import IndexedSlices
from optkit.ops.array import placeholder, unstack
from optkit.ops.core import as_tensor, constant
from optkit.ops.sparse import deduplicate, densify, unsorted_segment_sum
from optkit.runtime.session import Session


def run(fetches, feed=None):
    return Session().run(fetches, feed)


def slices(values, indices, dense_shape=None):
    return IndexedSlices(
        constant(values),
        constant(indices),
        None if dense_shape is None else constant(dense_shape),
    )


# -- kernels --------------------------------------------------------------------------------------

ROWS = st.lists(st.integers(0, 6), max_size=20)


@given(ROWS)
def test_segment_sum_adds_rows(rows):
    values = np.random.default_rng(0).integers(-9, 9, (len(rows), 2)).astype(np.float32)
    expected = np.zeros((7, 2), np.float32)
    np.add.at(expected, rows, values)
    untouched = values.copy()
    found = segment_sum(np, values, np.array(rows, np.int32), 7)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(values, untouched)


@given(ROWS)
def test_merge_rows_keeps_the_order_of_first_occurrence(rows):
    values = np.random.default_rng(0).integers(-9, 9, (len(rows), 2)).astype(np.float32)
    merged = merge_rows(np, values, np.array(rows, np.int64))
    assert merged.rows.tolist() == list(dict.fromkeys(rows))
    assert merged.rows.dtype == np.int64
    assert merged.values.dtype == np.float32
    np.testing.assert_array_equal(merged.rows[merged.places], rows)
    for row, total in zip(merged.rows, merged.values, strict=True):
        np.testing.assert_array_equal(total, values[np.array(rows) == row].sum(0))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "float64", "complex64"])
def test_sums_keep_the_dtype(dtype):
    values = np.array([1, 2, 3], dtype)
    rows = np.array([1, 0, 1])
    np.testing.assert_array_equal(segment_sum(np, values, rows, 2), [2, 4])
    assert segment_sum(np, values, rows, 2).dtype == dtype
    assert merge_rows(np, values, rows).values.dtype == dtype


def test_float16_is_added_up_in_float32():
    # In float16, 2048 + 1 is 2048 and the sum would not move.
    values = np.ones(4096, np.float16)
    values[0] = 2048
    found = segment_sum(np, values, np.zeros(4096, np.int32), 1)
    assert found.dtype == np.float16
    assert found[0] == np.float16(2048 + 4095)
    # And 60000 + 60000 would be infinite.
    values = np.array([60000, 60000, -60000, -49984], np.float16)
    assert segment_sum(np, values, np.zeros(4, np.int32), 1) == 10016
    assert merge_rows(np, values, np.zeros(4, np.int32)).values == 10016


def test_p112_many_repeats_give_equal_bits():
    rng = np.random.default_rng(1)
    values = rng.standard_normal((100_000, 2)).astype(np.float32)
    rows = rng.integers(0, 3, 100_000).astype(np.int32)
    first = segment_sum(np, values, rows, 3)
    for _ in range(4):
        np.testing.assert_array_equal(segment_sum(np, values, rows, 3), first)
    np.testing.assert_allclose(
        first, [values[rows == i].astype(np.float64).sum(0) for i in range(3)], rtol=0, atol=1e-3
    )


# -- ops ------------------------------------------------------------------------------------------


def test_deduplicate_adds_up_and_keeps_the_order():
    found = deduplicate(slices([[1.0], [2.0], [3.0], [4.0]], [3, 1, 3, 0], [5, 1]))
    value = run(found)
    np.testing.assert_array_equal(value.indices, [3, 1, 0])
    np.testing.assert_array_equal(value.values, [[4], [2], [4]])
    np.testing.assert_array_equal(value.dense_shape, [5, 1])
    assert found.values.shape == [None, 1]


def test_p018_every_duplicate_counts():
    found = deduplicate(slices([1.0, 1.0, 1.0], [0, 0, 1], [3]))
    np.testing.assert_array_equal(run(densify(found)), [2, 1, 0])


def test_deduplicated_slices_are_not_merged_again():
    once = deduplicate(slices([1.0, 2.0], [0, 0], [3]))
    assert deduplicate(once) is once
    scaled = IndexedSlices(once.values * 2, once.indices, once.dense_shape)
    assert deduplicate(scaled) is scaled
    # Only rows that were merged here: this second output is not.
    _, indices = unstack(constant([[0, 0], [1, 1]]))
    np.testing.assert_array_equal(
        run(deduplicate(IndexedSlices(constant([1.0, 2.0]), indices))).values, [3]
    )


def test_deduplicate_of_nothing():
    values, indices = placeholder("float32", [None, 2]), placeholder("int64", [None])
    found = run(
        deduplicate(IndexedSlices(values, indices)),
        {values: np.zeros((0, 2)), indices: np.zeros(0)},
    )
    assert found.values.shape == (0, 2)
    assert found.indices.dtype == np.int64
    assert found.dense_shape is None


def test_deduplicate_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match=r"values of shape .* do not fit indices of shape"):
        deduplicate(slices([1.0, 2.0], [0, 1, 2]))


def test_gradient_of_merged_rows_goes_to_each_duplicate():
    x = placeholder("float32", [3])
    merged = deduplicate(IndexedSlices(x, constant([2, 0, 2]), constant([3])))
    (dx,) = gradients(merged.values * constant([10.0, 100.0]), x)
    np.testing.assert_array_equal(run(densify(dx), {x: np.ones(3)}), [10, 100, 10])


def test_densify_is_what_tensors_are_made_with():
    found = as_tensor(slices([[1.0, 2.0], [3.0, 4.0]], [2, 2], [4, 2]))
    assert found.shape == [4, 2]
    np.testing.assert_array_equal(run(found), [[0, 0], [0, 0], [4, 6], [0, 0]])


def test_densify_of_a_computed_shape():
    size = placeholder("int64", [2])
    found = densify(IndexedSlices(constant([[1.0]]), constant([1]), size))
    assert found.shape == [None, 1]
    np.testing.assert_array_equal(run(found, {size: [3, 1]}), [[0], [1], [0]])


def test_densify_needs_the_shape():
    with pytest.raises(ValueError, match="has no dense_shape"):
        densify(slices([1.0], [0]))
    x = constant([1.0])
    assert densify(x) is x


@pytest.mark.parametrize("bad", [-1, 3])
def test_rows_out_of_range_are_refused(bad):
    with pytest.raises(
        InvalidArgumentError, match=rf"segment_ids: expected row numbers in \[0, 3\), got {bad}"
    ):
        run(densify(slices([1.0, 2.0], [0, bad], [3])))


def test_segment_sum_infers_what_it_can():
    x, n = placeholder("float32", [None, 3, 2]), placeholder("int32", [])
    assert unsorted_segment_sum(x, placeholder("int32", [None]), 4).shape == [4, 3, 2]
    assert unsorted_segment_sum(x, placeholder("int32", [5, 3]), n).shape == [None, 2]
    assert unsorted_segment_sum(x, placeholder("int32"), 4).shape.ndims is None
    with pytest.raises(ValueError, match="segment_ids: expected the first sizes of"):
        unsorted_segment_sum(x, [[0, 1]], 4)


def test_segment_sum_leaves_rows_with_negative_numbers_out():
    x = constant(np.arange(1.0, 9.0).reshape(2, 2, 2))
    rows = constant([[1, -1], [-7, 1]])
    y = unsorted_segment_sum(x, rows, 2)
    np.testing.assert_array_equal(run(y), [[0, 0], [8, 10]])
    (dx,) = gradients(y * constant([[np.inf, np.nan], [2.0, 3.0]], "float64"), [x])
    np.testing.assert_array_equal(run(dx), [[[2, 3], [0, 0]], [[0, 0], [2, 3]]])
