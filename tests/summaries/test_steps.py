import time
from datetime import datetime
from enum import IntEnum

import numpy as np
import pytest

from summaries.steps import check_step, check_wall_time


@pytest.mark.parametrize(
    "step",
    [5, 5.0, np.int64(5), np.uint8(5), np.float32(5), np.array(5), np.array(5.0, np.float16)],
    ids=lambda step: f"{type(step).__name__}-{getattr(step, 'dtype', '')}",
)
def test_p093_integers_of_any_kind_are_steps(step):
    checked = check_step(step)
    assert (checked, type(checked)) == (5, int)


def test_p093_a_named_number_is_a_step():
    step = IntEnum("Phase", {"LATE": 2**53 + 1}).LATE
    assert type(check_step(step)) is int
    assert check_step(step) == 2**53 + 1


@pytest.mark.parametrize("step", [0, 2**53 + 1, np.int64(2**53 + 1), 2**63 - 1])
def test_p093_the_range_is_exact(step):
    assert check_step(step) == int(step)


@pytest.mark.parametrize(
    "step",
    [
        *(5.7, -1, -1.0, 2**63, 2.0**63, np.uint64(2**63), 10**30, float("nan"), float("inf")),
        *(True, False, np.True_, np.array(True), np.array([5]), np.array(-2)),
    ],
    ids=repr,
)
def test_p093_other_numbers_are_refused(step):
    with pytest.raises(ValueError, match="step must be"):
        check_step(step)


@pytest.mark.parametrize("step", ["5", 5j, None, object()], ids=repr)
def test_p093_what_is_no_number_is_refused(step):
    with pytest.raises(TypeError, match="step must be an integer"):
        check_step(step)


def test_a_time_is_now_or_the_one_given():
    before = time.time()
    assert before <= check_wall_time(None) <= time.time()
    for time_given in (12.5, np.float64(12.5), np.array(12.5)):
        assert check_wall_time(time_given) == 12.5
    assert check_wall_time(12) == 12.0


@pytest.mark.parametrize("wall_time", [float("nan"), float("inf"), np.array([1.0])])
def test_a_time_is_finite(wall_time):
    with pytest.raises(ValueError, match="wall_time must be one finite number"):
        check_wall_time(wall_time)


@pytest.mark.parametrize(
    "wall_time", ["12.5", b"1", True, 1j, datetime(2020, 1, 1), 10**400], ids=type
)
def test_a_time_is_a_number(wall_time):
    with pytest.raises(TypeError, match="wall_time must be a number of seconds, not"):
        check_wall_time(wall_time)
