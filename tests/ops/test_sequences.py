"""range, linspace, one_hot, unique: dtypes, static shapes, errors. Values are in the op table."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optkit.errors import InvalidArgumentError
from optkit.ops.array import placeholder, shape
from optkit.ops.core import constant
from optkit.ops.sequences import invert_permutation, linspace, one_hot, range, unique
from optkit.runtime.session import Session


def run(fetches, feed=None):
    return Session().run(fetches, feed)


@pytest.mark.parametrize(
    ("arguments", "dtype", "values"),
    [
        ((3,), "int32", [0, 1, 2]),
        ((1, 4), "int32", [1, 2, 3]),
        ((1, 8, 3), "int32", [1, 4, 7]),
        ((5, 0, -2), "int32", [5, 3, 1]),
        ((2, 2), "int32", []),
        ((0.0, 1.0, 0.25), "float32", [0, 0.25, 0.5, 0.75]),
        ((np.float64(2),), "float64", [0, 1]),
        ((0, np.int64(2)), "int64", [0, 1]),
        ((3.0,), "float32", [0, 1, 2]),
    ],
)
def test_range_is_static_for_numbers(arguments, dtype, values):
    found = range(*arguments)
    assert found.dtype == dtype
    assert found.shape == [len(values)]
    np.testing.assert_array_equal(run(found), values)


def test_range_takes_the_dtype_asked_for():
    assert range(3, dtype="float64").dtype == "float64"
    with pytest.raises(TypeError, match="expected int32"):
        range(0.5, dtype="int32")


def test_range_of_tensors():
    n = placeholder("int32", [])
    assert range(n).shape == [None]
    found = range(0, n, np.int64(2))
    assert found.dtype == "int64"
    np.testing.assert_array_equal(run(found, {n: 5}), [0, 2, 4])
    assert range(shape(constant([1.0, 2.0]))[0]).shape == [2]


def test_range_refuses_what_has_no_end():
    with pytest.raises(ValueError, match="delta: expected a step other than 0"):
        range(0, 3, 0)
    with pytest.raises(ValueError, match="limit: 3 is not reached from 0 in steps of -1"):
        range(0, 3, -1)
    with pytest.raises(TypeError, match="limit: expected int32, int64, float32 or float64"):
        range(np.int8(3))
    n = placeholder("int32", [])
    with pytest.raises(InvalidArgumentError, match="limit: -1 is not reached"):
        run(range(n), {n: -1})


@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(-4, 4).filter(bool))
def test_range_is_pythons(start, limit, delta):
    import builtins

    expected = list(builtins.range(start, limit, delta))
    if (limit - start) * delta < 0:
        with pytest.raises(ValueError, match="is not reached"):
            range(start, limit, delta)
    else:
        found = range(start, limit, delta)
        assert found.shape == [len(expected)]
        np.testing.assert_array_equal(run(found), expected)


def test_linspace_ends_at_its_end():
    found = linspace(0.0, 1.0, 11)
    assert found.shape == [11]
    assert run(found)[-1] == 1
    assert run(linspace(0.1, 0.3, 7))[-1] == np.float32(0.3)
    n = placeholder("int32", [])
    assert linspace(0.0, 1.0, n).shape == [None]
    with pytest.raises(InvalidArgumentError, match="num: expected at least 1, got 0"):
        run(linspace(0.0, 1.0, n), {n: 0})


def test_one_hot_chooses_the_dtype():
    assert one_hot([1], 3).dtype == "float32"
    assert one_hot([1], 3, dtype="int64").dtype == "int64"
    assert one_hot([1], 3, 5, 2).dtype == "int32"
    assert one_hot([1], 3, on_value=np.float64(5)).dtype == "float64"
    assert one_hot([1], 3, dtype="bool").dtype == "bool"
    assert one_hot([1], 3, off_value=placeholder("float16", [])).dtype == "float16"
    np.testing.assert_array_equal(run(one_hot([1], 3, dtype="bool")), [[False, True, False]])


def test_one_hot_infers_what_it_can():
    n = placeholder("int32", [])
    x = placeholder("int32", [None, 2])
    assert one_hot(x, 3).shape == [None, 2, 3]
    assert one_hot(x, 3, axis=1).shape == [None, 3, 2]
    assert one_hot(x, n).shape == [None, 2, None]
    assert one_hot(placeholder("uint8"), 3).shape.ndims is None
    assert run(one_hot([1], n), {n: 0}).shape == (1, 0)
    with pytest.raises(InvalidArgumentError, match="depth: expected a size >= 0, got -1"):
        run(one_hot([1], n), {n: -1})


def test_one_hot_refuses_bad_arguments():
    with pytest.raises(TypeError, match="on_value: expected int32"):
        one_hot([1], 3, on_value=1.5, dtype="int32")
    with pytest.raises(TypeError, match="indices"):
        one_hot([1.5], 3)
    with pytest.raises(ValueError, match="axis: expected one in"):
        one_hot([1], 3, axis=2)


@given(st.lists(st.integers(-3, 3), max_size=10))
def test_unique_gives_first_occurrences(values):
    found = unique(np.array(values, np.int32))
    y, idx = run(found)
    assert y.tolist() == list(dict.fromkeys(values))
    np.testing.assert_array_equal(y[idx], values)
    assert found.y.shape == [None]
    assert found.idx.shape == [len(values)]


def test_unique_takes_vectors():
    with pytest.raises(ValueError, match="x: expected a vector"):
        unique([[1]])
    y, idx = run(unique(["b", "a", "b"]))
    assert y.tolist() == [b"b", b"a"]
    assert idx.tolist() == [0, 1, 0]


@pytest.mark.parametrize("bad", [[0, 0], [1, 2], [[0]], [-1, 0]])
def test_invert_permutation_refuses_what_is_none(bad):
    x = placeholder("int32")
    last = np.size(bad) - 1
    with pytest.raises(InvalidArgumentError, match=f"expected each of 0 to {last} once"):
        run(invert_permutation(x), {x: bad})
