"""What every test shares: the hypothesis profiles, an empty default graph, a fresh logger.

HYPOTHESIS_PROFILE=ci is the thorough, repeatable one.
"""

import logging
import os

import pytest
from hypothesis import settings

from optkit.graph import get_default_graph, reset_default_graph

collect_ignore_glob = ["scripts/*.py"]  # scripts train when they are imported

settings.register_profile("dev", max_examples=20, deadline=None)
settings.register_profile("ci", max_examples=200, deadline=None, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture(autouse=True)
def graph():
    """The default graph, new for each test."""
    reset_default_graph()
    yield get_default_graph()
    reset_default_graph()


@pytest.fixture(autouse=True)
def logger():
    """optkit's logger, which a script's `tf.logging.set_verbosity` changes for the process."""
    found = logging.getLogger("optkit")
    level, handlers = found.level, list(found.handlers)
    yield found
    found.setLevel(level)
    found.handlers[:] = handlers
