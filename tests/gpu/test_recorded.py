"""The recorded results, on whatever device the tests run."""

import pytest

from tests.gpu.cases import cases, differences, recorded

pytestmark = pytest.mark.cupy

CASES = cases()


@pytest.fixture(scope="module")
def wanted():
    return recorded()


def test_every_case_is_recorded(wanted):
    assert wanted.keys() == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_the_recorded_results(wanted, name):
    case = CASES[name]
    fine, off = differences(case, case.make(), wanted[name])
    assert fine, f"{off:.3g} units in the last place away, expected {case.asks_for}"


def test_differences_are_seen(wanted):
    case, target = CASES["update adam float32"], wanted["update adam float32"]
    near = {key: array.copy() for key, array in target.items()}
    near["w"][3] += 2.0**-22 * abs(near["w"]).max()
    fine, off = differences(case, near, target)
    assert not fine
    assert 0.5 < off < 4
    with pytest.raises(KeyError, match="record again"):
        differences(case, {}, target)
