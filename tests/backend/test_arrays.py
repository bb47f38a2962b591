"""Changing rows of arrays: each mode against one change after the other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optkit.backend import arrays
from optkit.backend.arrays import scatter_rows

CHANGES = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "sub": lambda old, new: old - new,
    "mul": lambda old, new: old * new,
    "div": lambda old, new: old / new,
    "min": np.minimum,
    "max": np.maximum,
}


def one_by_one(current, rows, values, mode):
    result = current.copy()
    for row, value in zip(rows, values, strict=True):
        result[row] = CHANGES[mode](result[row], value)
    return result


@pytest.mark.parametrize("mode", CHANGES)
@given(rows=st.lists(st.integers(0, 3), max_size=9))
def test_rows_change_one_after_the_other(mode, rows):
    # Powers of two, so that products and quotients are exact.
    current = 2.0 ** np.arange(8).reshape(4, 2)
    values = 2.0 ** np.random.default_rng(0).integers(-3, 4, (len(rows), 2))
    numbers = np.array(rows, np.int32)
    expected = one_by_one(current, rows, values, mode)
    untouched = current.copy()
    np.testing.assert_array_equal(scatter_rows(np, current, numbers, values, mode), expected)
    np.testing.assert_array_equal(current, untouched)
    # What CuPy does, which has no ufunc.at for all of them.
    if mode not in ("add", "sub"):
        found = arrays._scatter_sorted(np, current.copy(), numbers, values, mode)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("mode", CHANGES)
def test_one_value_for_all_rows(mode):
    current = np.full((3, 2), 8.0, np.float32)
    found = scatter_rows(np, current, np.array([[0, 2]]), np.float32(2), mode)
    expected = current.copy()
    expected[[0, 2]] = CHANGES[mode](np.float32(8), np.float32(2))
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == np.float32
