"""Slices, gather, where: static shapes, errors, sparse gradients, special cases.

Values and gradients are in the op table.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices

from optkit.errors import InvalidArgumentError
from optkit.gradients import gradients
from optkit.graph import IndexedSlices
from optkit.ops.array import placeholder, shape
from optkit.ops.core import constant
from optkit.ops.indexing import gather, gather_nd, scatter_nd, slice, where
from optkit.ops.linalg import matmul
from optkit.ops.reductions import reduce_sum
from optkit.ops.sparse import densify
from optkit.runtime.session import Session


def run(fetches, feed=None):
    return Session().run(fetches, feed)


# -- x[...] ---------------------------------------------------------------------------------------

KEYS = [
    (np.s_[0], [3, None]),
    (np.s_[-1, 1], [None]),
    (np.s_[1:], [3, 3, None]),
    (np.s_[:, ::2], [4, 2, None]),
    (np.s_[::-1], [4, 3, None]),
    (np.s_[3:0:-2], [2, 3, None]),
    (np.s_[..., 0], [4, 3]),
    (np.s_[..., :5], [4, 3, None]),
    (np.s_[None, 0, ..., None], [1, 3, None, 1]),
    (np.s_[:], [4, 3, None]),
    ((), [4, 3, None]),
    (np.s_[np.int64(2)], [3, None]),
    (np.array(2), [3, None]),
]


@pytest.mark.parametrize(("key", "after"), KEYS)
def test_slices_infer_what_they_can(key, after):
    assert placeholder("float32", [4, 3, None])[key].shape == after


def test_slices_of_unknown_rank_have_unknown_shape():
    x = placeholder("float32")
    assert x[0, ..., 1:].shape.ndims is None
    np.testing.assert_array_equal(run(x[1:, 0], {x: [[1.0], [2.0]]}), [2])


def test_constant_tensors_are_static_indices():
    x = placeholder("float32", [4, 3])
    assert x[: constant(2), constant(0)].shape == [2]
    assert x[shape(x)[1] :].shape == [1, 3]


def test_run_time_indices_may_have_any_integer_dtype():
    x = placeholder("float32", [4, 3])
    i, j = placeholder("int32", []), placeholder("int64", [])
    y = x[i:j, i]
    assert y.shape == [None]
    values = np.arange(12.0).reshape(4, 3)
    np.testing.assert_array_equal(run(y, {x: values, i: 1, j: 3}), values[1:3, 1])


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        (4, ValueError, "index 4 is out of range for axis 0 of size 4"),
        (np.s_[:, -4], ValueError, "index -4 is out of range for axis 1 of size 3"),
        ((0, 0, 0), ValueError, "3 indices for a tensor of rank 2"),
        (np.s_[..., ...], ValueError, r"at most one"),
        (np.s_[::0], ValueError, "step of 0"),
        ([0, 1], TypeError, "gather picks rows"),
        (True, TypeError, "got True"),
        (1.0, TypeError, r"got 1\.0"),
        (np.array([1, 2]), TypeError, "got array"),
        ("a", TypeError, "got 'a'"),
    ],
)
def test_bad_indices_are_refused(key, error, message):
    with pytest.raises(error, match=message):
        placeholder("float32", [4, 3])[key]


def test_tensors_that_are_no_scalar_integers_are_no_indices():
    x = placeholder("float32", [4])
    for index in (placeholder("float32", []), placeholder("int32", [2])):
        with pytest.raises(TypeError, match="integer tensors of shape"):
            x[index]


def test_indices_out_of_range_when_run():
    x = placeholder("float32", [None])
    i = placeholder("int32", [])
    feed = {x: [1.0, 2.0], i: 2}
    with pytest.raises(InvalidArgumentError, match="index 2 is out of range for axis 0 of size 2"):
        run(x[i], feed)
    with pytest.raises(InvalidArgumentError, match="index 5 is out of range"):
        run(x[5], feed)
    with pytest.raises(InvalidArgumentError, match="step of 0"):
        run(x[:: i - 2], feed)
    y = placeholder("float32")
    with pytest.raises(InvalidArgumentError, match="2 indices for a tensor of shape"):
        run(y[0, 0], {y: [1.0]})


@given(basic_indices((4, 3, 2), allow_newaxis=True))
def test_every_basic_index_is_numpys(key):
    x = np.arange(24.0, dtype=np.float32).reshape(4, 3, 2)
    found = constant(x)[key]
    np.testing.assert_array_equal(run(found), x[key])
    assert found.shape == x[key].shape


def test_a_variable_slice_is_a_slice_of_its_value(graph):
    from optkit.variables import Variable

    v = Variable([1.0, 2.0, 3.0])
    with Session() as session:
        session.run(v.initializer)
        np.testing.assert_array_equal(session.run(v[1:]), [2, 3])
        (dv,) = gradients(v[1:], v)
        np.testing.assert_array_equal(session.run(dv), [0, 1, 1])


# -- slice ----------------------------------------------------------------------------------------


def test_slice_infers_what_it_can():
    x = placeholder("float32", [None, 5])
    n = placeholder("int32", [2])
    assert slice(x, [1, 2], [-1, -1]).shape == [None, 3]
    assert slice(x, [1, 2], [2, 2]).shape == [2, 2]
    assert slice(x, [0, 0], n).shape == [None, None]
    assert slice(x, n, [3, 2]).shape == [3, 2]
    assert slice(placeholder("float32"), [0], [2]).shape == [2]
    assert slice(placeholder("float32"), placeholder("int32"), [2]).shape.ndims is None


@pytest.mark.parametrize(
    ("begin", "size", "message"),
    [
        ([3], [2], "axis 0 of size 4 has no slice of size 2 at 3"),
        ([-1], [1], "no slice of size 1 at -1"),
        ([0, 0], [1], "begin: expected 1 numbers"),
        ([0], [1, 1], "size: expected 1 numbers"),
    ],
)
def test_slice_refuses_what_does_not_fit(begin, size, message):
    with pytest.raises(ValueError, match=message):
        slice(placeholder("float32", [4]), begin, size)


def test_slice_that_does_not_fit_when_run():
    x = placeholder("float32", [None])
    n = placeholder("int32")
    with pytest.raises(InvalidArgumentError, match="axis 0 of size 1 has no slice of size 2 at 0"):
        run(slice(x, [0], [2]), {x: [1.0]})
    with pytest.raises(InvalidArgumentError, match="axis 0 of size 1 has no slice of size -2 at 1"):
        run(slice(x, [1], n), {x: [1.0], n: [-2]})
    with pytest.raises(InvalidArgumentError, match="expected 1 numbers each"):
        run(slice(x, n, n), {x: [1.0], n: [0, 0]})


# -- gather ---------------------------------------------------------------------------------------


def test_gather_infers_what_it_can():
    x = placeholder("float32", [None, 3, 2])
    assert gather(x, [[1, 2]]).shape == [1, 2, 3, 2]
    assert gather(x, placeholder("int64", [None]), axis=1).shape == [None, None, 2]
    assert gather(x, 0, axis=-1).shape == [None, 3]
    assert gather(x, placeholder("int32")).shape.ndims is None
    assert gather(placeholder("float32"), [0]).shape.ndims is None


@pytest.mark.parametrize("bad", [-1, 3, 2**31 - 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_gather_never_wraps_indices(bad, axis):
    x = constant(np.zeros((3, 3)))
    with pytest.raises(
        InvalidArgumentError, match=rf"indices: expected row numbers in \[0, 3\), got {bad} at"
    ):
        run(gather(x, [0, bad], axis=axis))


def test_gather_refuses_bad_arguments():
    with pytest.raises(TypeError, match="indices: expected one of int32, int64, got float32"):
        gather([1.0], [0.0])
    with pytest.raises(ValueError, match="axis: expected one in"):
        gather([1.0], [0], axis=1)


def test_gradient_of_gathered_rows_is_sparse():
    x = placeholder("float32", [4, 2])
    rows = constant([[3, 0], [3, 3]])
    (dx,) = gradients(gather(x, rows), x)
    assert isinstance(dx, IndexedSlices)
    value = run(dx, {x: np.zeros((4, 2))})
    np.testing.assert_array_equal(value.indices, [3, 0, 3, 3])
    np.testing.assert_array_equal(value.values, np.ones((4, 2)))
    np.testing.assert_array_equal(value.dense_shape, [4, 2])
    np.testing.assert_array_equal(
        run(densify(dx), {x: np.zeros((4, 2))}), [[1, 1], [0, 0], [0, 0], [3, 3]]
    )


def test_gradient_of_gathered_columns_is_dense():
    x = placeholder("float32", [2, 4])
    (dx,) = gradients(gather(x, [3, 3], axis=1), x)
    np.testing.assert_array_equal(run(dx, {x: np.zeros((2, 4))}), [[0, 0, 0, 2]] * 2)


def test_gradients_of_two_gathers_stay_sparse():
    x = placeholder("float32", [4, 1])
    (dx,) = gradients([gather(x, [1, 2]), gather(x, [2])], x)
    assert isinstance(dx, IndexedSlices)
    feed = {x: np.zeros((4, 1))}
    np.testing.assert_array_equal(sorted(run(dx, feed).indices), [1, 2, 2])
    np.testing.assert_array_equal(run(densify(dx), feed), [[0], [1], [2], [0]])


def test_p115_a_tied_embedding_gets_one_dense_gradient():
    x = placeholder("float32", [3, 2])
    loss = reduce_sum(gather(x, [0, 0])) + reduce_sum(matmul(x, np.ones((2, 1), np.float32)))
    (dx,) = gradients(loss, x)
    np.testing.assert_array_equal(
        run(dx, {x: [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]}), [[3, 3], [1, 1], [1, 1]]
    )


def test_gather_nd_infers_what_it_can():
    x = placeholder("float32", [3, None, 2])
    assert gather_nd(x, [[[0, 1]]]).shape == [1, 1, 2]
    assert gather_nd(x, placeholder("int32", [5, None])).shape.ndims is None
    assert gather_nd(x, placeholder("int32")).shape.ndims is None
    with pytest.raises(ValueError, match="indices: expected at most 3 coordinates, got 4"):
        gather_nd(x, [[0, 0, 0, 0]])
    with pytest.raises(ValueError, match="indices: expected rank >= 1"):
        gather_nd(x, 0)


@pytest.mark.parametrize("bad", [[-1, 0], [0, 2]])
def test_gather_nd_and_scatter_nd_never_wrap(bad):
    at = placeholder("int32", [1, 2])
    with pytest.raises(InvalidArgumentError, match=r"indices\[\.\.\., [01]\]: expected"):
        run(gather_nd(np.zeros((3, 2)), at), {at: [bad]})
    with pytest.raises(InvalidArgumentError, match=r"indices\[\.\.\., [01]\]: expected"):
        run(scatter_nd(at, [1.0], [3, 2]), {at: [bad]})


def test_scatter_nd_refuses_updates_that_do_not_fit():
    updates = placeholder("float32")
    with pytest.raises(InvalidArgumentError, match=r"updates: expected shape \(1, 2\), got \(2,\)"):
        run(scatter_nd([[0]], updates, [3, 2]), {updates: [1.0, 2.0]})
    at = placeholder("int32")
    with pytest.raises(InvalidArgumentError, match="vectors of at most 1 coordinates"):
        run(scatter_nd(at, [1.0], [3]), {at: [[0, 0]]})


# -- where ----------------------------------------------------------------------------------------


def test_where_chooses_rows_by_a_vector():
    chosen = constant([True, False])
    x, y = constant([[1.0, 2.0], [3.0, 4.0]]), constant([[5.0, 6.0], [7.0, 8.0]])
    np.testing.assert_array_equal(run(where(chosen, x, y)), [[1, 2], [7, 8]])


def test_where_of_unknown_rank_chooses_rows_by_a_vector():
    chosen, x = placeholder("bool"), placeholder("float32")
    y = where(chosen, x, -x)
    value = [[1.0, 2.0], [3.0, 4.0]]
    np.testing.assert_array_equal(run(y, {chosen: [True, False], x: value}), [[1, 2], [-3, -4]])
    (dx,) = gradients(y, x)
    np.testing.assert_array_equal(run(dx, {chosen: [True, False], x: value}), [[1, 1], [-1, -1]])


def test_where_refuses_a_vector_that_is_not_over_the_rows():
    x = placeholder("float32", [2, 3])
    with pytest.raises(ValueError, match=r"a vector over the rows of x, shape \(2,\)"):
        where([True, False, True], x, x)


def test_where_broadcasts_numbers():
    x = placeholder("float32", [None])
    np.testing.assert_array_equal(run(where(x > 1, x, 0), {x: [1.0, 2.0]}), [0, 2])
    np.testing.assert_array_equal(run(where(x > 1, 0, x), {x: [1.0, 2.0]}), [1, 0])
    # A vector and a scalar: NumPy's broadcasting, over the last axis.
    y = constant([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(run(where([True, False], y, 0.0)), [[1, 0], [3, 0]])


def test_where_passes_gradients_only_where_it_chose():
    x, y = placeholder("float32", [2]), placeholder("float32", [2])
    dx, dy = gradients(where([True, False], x, y), [x, y], [np.float32([np.inf, np.nan])])
    np.testing.assert_array_equal(run([dx, dy]), [[np.inf, 0], [0, np.nan]])


def test_where_alone_gives_places():
    chosen = placeholder("bool", [None, 2])
    places = where(chosen)
    assert places.shape == [None, 2]
    np.testing.assert_array_equal(
        run(places, {chosen: [[True, False], [True, True]]}), [[0, 0], [1, 0], [1, 1]]
    )


def test_where_refuses_bad_arguments():
    x = placeholder("float32", [2])
    with pytest.raises(ValueError, match="x and y: expected both or neither"):
        where([True, False], x)
    with pytest.raises(TypeError, match="bool"):
        where([1, 0], x, x)
    with pytest.raises(TypeError, match=r"y: expected float32, got .*float64"):
        where([True, False], x, placeholder("float64", [2]))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12))
def test_gradient_of_gather_counts_the_rows(rows):
    x = placeholder("float64", [5])
    (dx,) = gradients(gather(x, rows), x)
    np.testing.assert_array_equal(
        run(densify(dx), {x: np.zeros(5)}), np.bincount(rows, minlength=5)
    )
