import pytest
from hypothesis import given
from hypothesis import strategies as st

from summaries.cadence import Cadence


def due(cadence, steps):
    return [step for step in steps if cadence.is_due(step)]


@given(st.integers(0, 10**6), st.integers(1, 50), st.integers(0, 300))
def test_steps_are_exactly_so_far_apart(first, n, count):
    steps = range(first, first + count)
    assert due(Cadence(n), steps) == list(steps)[::n]


def test_it_counts_from_the_first_step_whatever_it_is():
    assert due(Cadence(100), range(1, 302)) == [1, 101, 201, 301]


def test_every_step_is_the_default():
    assert due(Cadence(), range(5)) == [0, 1, 2, 3, 4]


def test_a_step_that_comes_again_gets_the_same_answer():
    assert due(Cadence(3), [0, 0, 1, 1, 3, 3, 4]) == [0, 0, 3, 3]


def test_a_step_that_was_jumped_over_is_made_up_for():
    assert due(Cadence(10), [0, 7, 14, 21, 23, 24]) == [0, 14, 24]


def test_a_run_that_goes_back_starts_anew():
    assert due(Cadence(10), [50, 55, 0, 5, 10]) == [50, 0, 10]


def test_seconds_count_from_the_last_written_step(monkeypatch):
    clock = iter([0.0, 4.0, 5.0, 5.0, 9.9, 10.0, 10.0]).__next__
    monkeypatch.setattr("summaries.cadence.time.monotonic", clock)
    assert due(Cadence(every_secs=5.0), range(5)) == [0, 2, 4]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"every_n_steps": 0}, "at least 1 step, not 0"),
        ({"every_secs": -1.0}, "not -1.0"),
        ({"every_secs": float("nan")}, "not nan"),
        ({"every_n_steps": 1, "every_secs": 1.0}, "not both"),
    ],
)
def test_arguments_are_checked(arguments, named):
    with pytest.raises(ValueError, match=named):
        Cadence(**arguments)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"every_n_steps": 2.5}, "whole steps, not 2.5"),
        ({"every_n_steps": True}, "whole steps, not True"),
        ({"every_secs": "1"}, "seconds, not '1'"),
    ],
)
def test_kinds_are_checked(arguments, named):
    with pytest.raises(TypeError, match=named):
        Cadence(**arguments)
