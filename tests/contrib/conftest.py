"""What the tests of train ops share."""

import pytest

from summaries._warn import forget_warnings


@pytest.fixture(autouse=True)
def _every_warning_is_new():
    forget_warnings()
