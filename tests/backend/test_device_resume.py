"""A run on a device that was killed at any moment goes on as if nothing had happened."""

import pytest

from tests.train import test_fit_resume, test_resume

pytestmark = pytest.mark.cusim


@pytest.mark.parametrize("loop", [test_resume, test_fit_resume], ids=["session", "fit"])
def test_kills_change_nothing(tmp_path, loop):
    """Variables, random counters and events are those of a run that nobody disturbed."""
    loop.check(tmp_path, loop.survive(tmp_path, 6, seed=0, kind="sim"))
