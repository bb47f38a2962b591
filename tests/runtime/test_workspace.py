"""Places for values in memory that they share."""

import gc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from optkit.runtime.workspace import Life, Workspace, placed

lives = st.builds(
    lambda first, length, size: Life(first, first + length, size),
    st.integers(0, 20),
    st.integers(0, 8),
    st.integers(1, 1000),
)


@given(st.lists(lives, max_size=15))
def test_no_two_values_that_live_at_once_overlap(values):
    starts, total = placed(values)
    for i, (a, start) in enumerate(zip(values, starts, strict=True)):
        assert start % 64 == 0
        assert start + a.size <= total
        for b, other in zip(values[:i], starts[:i], strict=True):
            if a.first <= b.last and b.first <= a.last:
                assert start + a.size <= other or other + b.size <= start


def test_values_that_follow_each_other_share_their_place():
    chain = [Life(i, i + 1, 640) for i in range(10)]
    starts, total = placed(chain)
    assert total == 2 * 640
    assert set(starts) == {0, 640}
    assert placed([]) == ([], 0)


class Tenant:
    def __init__(self):
        self.left = 0

    def leave(self):
        self.left += 1


def test_a_workspace_that_grows_tells_those_that_hold_arrays_of_it():
    workspace, first, second = Workspace(), Tenant(), Tenant()
    workspace.reserve(128, first)
    array = workspace.array(64, (2, 4), np.float64)
    assert array.ctypes.data % 64 == 0
    assert array.shape == (2, 4)
    workspace.reserve(100, second)
    assert np.shares_memory(workspace.array(0, (128,), np.uint8), array)
    workspace.reserve(129, second)
    assert (first.left, second.left) == (1, 1)
    assert not np.shares_memory(workspace.array(0, (129,), np.uint8), array)
    workspace.reserve(1000, second)
    assert (first.left, second.left) == (1, 2)


def test_a_workspace_keeps_no_tenant_alive():
    workspace = Workspace()
    workspace.reserve(1, Tenant())
    gc.collect()
    assert len(workspace._tenants) == 0
