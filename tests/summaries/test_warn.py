import warnings

import pytest

import optkit
import summaries
from summaries._warn import forget_warnings, warn_once


def test_a_warning_comes_once_for_each_key():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for key in ("a", "b", "a", "b"):
            warn_once("kind", key, message=f"about {key}")
    assert [str(each.message) for each in caught] == ["about a", "about b"]
    assert {each.category for each in caught} == {RuntimeWarning}


def test_forgotten_warnings_come_again():
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="it"):
            warn_once("kind", message="it")
        forget_warnings()


def test_a_warning_that_is_an_error_stays_one():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(RuntimeWarning, match="it"):
                warn_once("kind", message="it")


def test_a_warning_points_at_the_line_outside_the_package():
    with pytest.warns(RuntimeWarning) as caught:
        summaries.encode_scalar("a b", 1.0)
    assert caught[0].filename == __file__


def test_a_warning_points_at_the_line_of_a_script_that_uses_optkit(graph):
    with pytest.warns(RuntimeWarning) as caught:
        optkit.summary.scalar("a c", 1.0)
    assert caught[0].filename == __file__
