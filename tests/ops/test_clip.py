"""Clipping by value and norm: the faults users reported, dtypes, sparse rows, thresholds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optkit.gradients import gradients
from optkit.graph import IndexedSlices
from optkit.ops.array import placeholder, zeros
from optkit.ops.clip import (
    clip_by_average_norm,
    clip_by_global_norm,
    clip_by_norm,
    clip_by_value,
    global_norm,
)
from optkit.ops.core import constant
from optkit.runtime.session import Session
from tests.gradcheck import check_gradients


def run(fetches, feed=None):
    return Session().run(fetches, feed)


def rows(values, indices, count=5, dtype="float32"):
    values = np.array(values, dtype)
    return IndexedSlices(constant(values), constant(indices), constant([count, *values.shape[1:]]))


# -- reported faults ------------------------------------------------------------------------------


def test_p019_sparse_gradients_stay_sparse():
    slices = rows([[3.0], [4.0]], [4, 1])
    for clipped in (
        clip_by_norm(slices, 2.5),
        clip_by_global_norm([slices], 2.5)[0][0],
        clip_by_value(slices, -1.0, 3.5),
    ):
        assert isinstance(clipped, IndexedSlices)
        np.testing.assert_array_equal(run(clipped).indices, [4, 1])
        np.testing.assert_array_equal(run(clipped).dense_shape, [5, 1])
    np.testing.assert_array_equal(run(clip_by_norm(slices, 2.5)).values, [[1.5], [2.0]])
    dense = clip_by_norm(constant([3.0, 4.0]), 2.5)
    np.testing.assert_array_equal(run(dense), [1.5, 2.0])
    assert clip_by_norm(None, 2.5) is None
    clipped, _ = clip_by_global_norm([None, slices, constant([1.0]), None], 2.5)
    assert [type(item).__name__ for item in clipped] == [
        "NoneType",
        "IndexedSlices",
        "Tensor",
        "NoneType",
    ]


def test_p020_the_gradient_at_the_zero_vector_is_ones():
    x = zeros([3])
    for clipped in (
        clip_by_norm(x, 1.0),
        clip_by_norm(x, 1.0, axes=[0]),
        clip_by_global_norm([x], 1.0)[0][0],
        clip_by_average_norm(x, 1.0),
    ):
        np.testing.assert_array_equal(run(gradients(clipped, x)[0]), [1, 1, 1])
    np.testing.assert_array_equal(run(gradients(global_norm([x]), x)[0]), [0, 0, 0])


def test_p021_an_infinite_norm_gives_nan_everywhere_and_is_returned():
    clipped, norm = clip_by_global_norm([constant([np.inf, 1.0]), constant([2.0])], 6.0)
    values, infinite = run([clipped, norm])
    assert np.isnan(values[0]).all()
    assert np.isnan(values[1]).all()
    assert infinite == np.inf
    clipped, norm = clip_by_global_norm([constant([3.0]), constant([4.0])], 2.5)
    assert run([clipped, norm]) == [[[1.5], [2.0]], 5.0]


def test_p022_an_infinite_threshold_clips_nothing():
    x, y = constant([3.0, 4.0]), constant([np.inf, 1.0])
    for threshold in (np.inf, constant(np.inf)):
        np.testing.assert_array_equal(run(clip_by_norm(x, threshold)), [3, 4])
        np.testing.assert_array_equal(run(clip_by_norm(y, threshold)), [np.inf, 1])
        np.testing.assert_array_equal(run(clip_by_average_norm(x, threshold)), [3, 4])
        clipped, norm = run(clip_by_global_norm([x, y], threshold))
        np.testing.assert_array_equal(clipped, [[3, 4], [np.inf, 1]])
        assert norm == np.inf


def test_p023_zero_gradients_stay_zero():
    x = zeros([2])
    for threshold in (1.0, 0.0):
        clipped, norm = clip_by_global_norm([x, rows([[0.0]], [1])], threshold)
        values, zero = run([clipped, norm])
        np.testing.assert_array_equal(values[0], [0, 0])
        np.testing.assert_array_equal(values[1].values, [[0]])
        assert zero == 0
        np.testing.assert_array_equal(run(clip_by_norm(x, threshold)), [0, 0])
        np.testing.assert_array_equal(run(clip_by_average_norm(x, threshold)), [0, 0])


# -- duplicates -----------------------------------------------------------------------------------


def test_norms_are_of_merged_rows():
    slices = rows([[3.0], [4.0]], [2, 2])
    assert run(global_norm([slices])) == 7
    found = run(clip_by_norm(slices, 3.5))
    np.testing.assert_array_equal(found.indices, [2])
    np.testing.assert_array_equal(found.values, [[3.5]])
    clipped, norm = run(clip_by_global_norm([slices, constant([24.0])], 12.5))
    assert norm == 25
    np.testing.assert_array_equal(clipped[0].values, [[3.5]])
    np.testing.assert_array_equal(run(clip_by_value(slices, -5.0, 5.0)).values, [[5]])


# -- by norm --------------------------------------------------------------------------------------


def test_clip_by_norm_leaves_what_is_short_enough_as_it_is():
    x = np.random.default_rng(0).standard_normal(50).astype(np.float32)
    threshold = float(np.linalg.norm(x.astype(np.float64))) * 1.001
    np.testing.assert_array_equal(run(clip_by_norm(constant(x), threshold)), x)
    np.testing.assert_array_equal(run(clip_by_global_norm([constant(x)], threshold))[0][0], x)


def test_clip_by_norm_over_axes():
    x = constant([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    np.testing.assert_allclose(
        run(clip_by_norm(x, 1.0, axes=[-1])), [[0.6, 0.8], [0.3, 0.4], [0, 0]], rtol=1e-6
    )
    assert clip_by_norm(placeholder("float32", [None, 2]), 1.0, 1).shape == [None, 2]
    with pytest.raises(ValueError, match="axes: expected one in"):
        clip_by_norm(x, 1.0, axes=[2])


def test_clip_by_norm_of_infinite_and_negative():
    found = run(clip_by_norm(constant([np.inf, 4.0]), 1.0))
    np.testing.assert_array_equal(found, [np.nan, 0])
    np.testing.assert_array_equal(run(clip_by_norm(constant([3.0, 4.0]), -1.0)), [0, 0])
    np.testing.assert_array_equal(run(clip_by_norm(constant([3.0, 4.0]), 0.0)), [0, 0])
    np.testing.assert_array_equal(run(clip_by_norm(constant([np.nan, 4.0]), 1.0)), [np.nan] * 2)


def test_clip_by_average_norm_divides_by_the_number_of_elements():
    # The average norm is 5/2; to make it 1, the factor is 0.4.
    np.testing.assert_allclose(
        run(clip_by_average_norm(constant([3.0, 4.0]), 1.0)), [1.2, 1.6], rtol=1e-6
    )
    np.testing.assert_array_equal(run(clip_by_average_norm(constant([3.0, 4.0]), 3.0)), [3, 4])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_clipping_keeps_the_dtype(dtype):
    x = constant(np.array([3.0, 4.0], dtype))
    assert clip_by_norm(x, 2).dtype == dtype
    assert clip_by_value(x, -1, 1).dtype == dtype
    assert global_norm([x]).dtype == dtype
    clipped, norm = clip_by_global_norm([x], np.float64(2.5))
    assert clipped[0].dtype == norm.dtype == dtype
    np.testing.assert_array_equal(run(clipped[0]), [1.5, 2])


def test_float16_is_measured_in_float32():
    # The sum of squares, 4e8, and the product with a large threshold are beyond float16.
    x = constant(np.full(4, 1e4, np.float16))
    np.testing.assert_allclose(run(clip_by_norm(x, 2e4)), [1e4] * 4)
    np.testing.assert_allclose(run(clip_by_norm(x, 1e4)), [5e3] * 4)
    assert run(global_norm([x])) == np.float16(2e4)
    # A norm of 1.2e5 is beyond float16 itself; what is clipped stays finite.
    large = constant(np.full(4, 6e4, np.float16))
    clipped, norm = run(clip_by_global_norm([large], 1.0))
    np.testing.assert_allclose(clipped[0], [0.5] * 4, rtol=1e-3)
    assert norm == np.inf


def test_small_factors_do_not_vanish_in_float16():
    x = constant(np.array([6e4, 0], np.float16))
    # The factor 5e-9 is 0 in float16.
    np.testing.assert_allclose(run(clip_by_norm(x, 3e-4)), [3e-4, 0], rtol=1e-3)


@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=9), st.floats(0.01, 50))
def test_clipped_norms_are_the_smaller_of_norm_and_threshold(values, threshold):
    x = np.array(values, np.float64)
    expected = min(float(np.linalg.norm(x)), threshold)
    for clipped in (
        run(clip_by_norm(constant(x), threshold)),
        run(clip_by_global_norm([constant(x)], threshold))[0][0],
    ):
        np.testing.assert_allclose(np.linalg.norm(clipped), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("threshold", [0.5, 50.0])
def test_gradients_flow_through_the_norm(threshold):
    x, y = np.array([1.0, -2.0, 0.5]), np.array([[3.0], [0.25]])
    options = {"order": 2, "step": 1e-3}
    check_gradients(lambda t: clip_by_norm(t, threshold), [x], **options)
    check_gradients(lambda t: clip_by_norm(t, threshold, axes=[1]), [y], **options)
    check_gradients(lambda t: clip_by_average_norm(t, threshold), [x], **options)
    check_gradients(lambda s, t: clip_by_global_norm([s, t], threshold)[0], [x, y], **options)


def test_gradients_flow_to_the_threshold():
    check_gradients(
        lambda t, c: clip_by_global_norm([t], c)[0],
        [np.array([3.0, 4.0]), np.array(2.0)],
        order=2,
    )


# -- several tensors ------------------------------------------------------------------------------


def test_lists_without_tensors_have_norm_zero():
    for empty in ([], [None, None]):
        assert run(global_norm(empty)) == 0
        clipped, norm = clip_by_global_norm(empty, 1.0)
        assert clipped == empty
        assert run(norm) == 0


def test_a_known_norm_is_used():
    x = constant([3.0, 4.0])
    clipped, norm = clip_by_global_norm([x, None], 2.5, use_norm=constant(10.0))
    np.testing.assert_array_equal(run(clipped[0]), [0.75, 1.0])
    assert run(norm) == 10


def test_a_negative_threshold_clips_nothing_as_in_tf():
    clipped, _ = clip_by_global_norm([constant([3.0, 4.0])], -1.0)
    np.testing.assert_array_equal(run(clipped[0]), [3, 4])


@pytest.mark.parametrize(
    ("dtypes", "wide"),
    [
        (("float32", "float64"), "float64"),
        (("float16", "float32"), "float32"),
        (("float16", "float64"), "float64"),
    ],
)
def test_dtypes_may_differ(dtypes, wide):
    x, y = (constant(np.array([value], of)) for value, of in zip((3.0, 4.0), dtypes, strict=True))
    clipped, norm = clip_by_global_norm([x, y], 2.5)
    assert [tensor.dtype.name for tensor in clipped] == list(dtypes)
    assert norm.dtype == wide
    assert run([*clipped, norm]) == [[1.5], [2.0], 5.0]


@pytest.mark.parametrize("function", [global_norm, lambda t_list: clip_by_global_norm(t_list, 1.0)])
def test_lists_are_asked_for(function):
    for bad in (constant([1.0]), "gradients", 3):
        with pytest.raises(TypeError, match="t_list: expected a list of tensors"):
            function(bad)
    with pytest.raises(TypeError, match="float"):
        function([constant([1])])


@pytest.mark.parametrize("bad", ["a", None, True, [1.0, "b"]])
def test_thresholds_are_numbers(bad):
    with pytest.raises(TypeError, match="clip_norm: expected"):
        clip_by_norm(constant([1.0]), bad)
    with pytest.raises(TypeError, match="clip_norm: expected"):
        clip_by_global_norm([constant([1.0])], bad)


def test_thresholds_may_be_tensors_of_another_dtype():
    c = placeholder("float64", [])
    x = constant([3.0, 4.0])
    np.testing.assert_array_equal(run(clip_by_norm(x, c), {c: 2.5}), [1.5, 2])
    np.testing.assert_array_equal(run(clip_by_global_norm([x], c)[0][0], {c: 2.5}), [1.5, 2])


# -- by value -------------------------------------------------------------------------------------


def test_clip_by_value_has_no_gradient_outside():
    x = placeholder("float32", [5])
    low, high = placeholder("float32", []), placeholder("float32", [])
    dx, dlow, dhigh = gradients(clip_by_value(x, low, high), [x, low, high])
    feed = {x: [-2.0, -1.0, 0.0, 1.0, 2.0], low: -1.0, high: 1.0}
    np.testing.assert_array_equal(run(dx, feed), [0, 1, 1, 1, 0])
    assert run([dlow, dhigh], feed) == [1, 1]


def test_clip_by_value_keeps_nan():
    np.testing.assert_array_equal(run(clip_by_value([np.nan, 2.0], -1.0, 1.0)), [np.nan, 1])


def test_clip_by_value_refuses_bad_limits():
    with pytest.raises(TypeError, match="clip_value_min: expected int32"):
        clip_by_value(constant([1]), 0.5, 2)
    with pytest.raises(ValueError, match="expected limits that broadcast to"):
        clip_by_value(constant([1.0]), [0.0, 0.0], 2.0)
    assert clip_by_value(placeholder("float32", [None, 2]), [0.0, 1.0], 2.0).shape == [None, 2]


def test_names_are_those_of_tf():
    x = constant([1.0])
    assert clip_by_value(x, 0.0, 1.0).name == "clip_by_value:0"
    assert clip_by_norm(x, 1.0).name.startswith("clip_by_norm/")
    assert global_norm([x]).name.startswith("global_norm/")
    assert clip_by_global_norm([x], 1.0)[0][0].name.startswith("clip_by_global_norm/")
    assert clip_by_norm(x, 1.0, name="short").name.startswith("short/")
