"""What every test shares: the hypothesis profiles, an empty default graph, a fresh logger.

HYPOTHESIS_PROFILE=ci is the thorough, repeatable one.

OPTKIT_TEST_CUPY=sim runs the tests on CuPy over tests/cusim, =real on CuPy over a device: sessions
that name no backend get CuPy. tests/backend/suite.txt lists the files that are meant to run so.
"""

import logging
import os

import pytest
from hypothesis import settings

from optkit.backend import release_memory, use_backend
from optkit.graph import get_default_graph, reset_default_graph
from tests import cusim

DEVICE = os.environ.get("OPTKIT_TEST_CUPY", "")
if DEVICE not in ("", "sim", "real"):
    raise pytest.UsageError(f"OPTKIT_TEST_CUPY: expected sim, real or nothing, got {DEVICE!r}")
if DEVICE == "sim":
    cusim.install()  # before any test imports CuPy

collect_ignore_glob = ["scripts/*.py"]  # scripts train when they are imported

settings.register_profile("dev", max_examples=20, deadline=None)
settings.register_profile("ci", max_examples=200, deadline=None, derandomize=True)
settings.register_profile("device", max_examples=10, deadline=None, derandomize=True)
settings.load_profile("device" if DEVICE else os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_collection_modifyitems(config, items):
    """Skip what the backend of this run is not for."""
    for item in items:
        host = item.get_closest_marker("host")
        if DEVICE and host:
            item.add_marker(pytest.mark.skip(reason=f"NumPy only: {host.args[0]}"))
        if not DEVICE and item.get_closest_marker("cupy"):
            item.add_marker(pytest.mark.skip(reason="needs OPTKIT_TEST_CUPY=sim or =real"))
        if DEVICE != "sim" and item.get_closest_marker("cusim"):
            item.add_marker(pytest.mark.skip(reason="needs OPTKIT_TEST_CUPY=sim"))


@pytest.fixture(autouse=True)
def backend():
    """Sessions of a test use CuPy where OPTKIT_TEST_CUPY asks for it; the choice ends with it."""
    if not DEVICE:
        yield
        return
    with use_backend("cupy"):
        yield


@pytest.fixture(autouse=True, scope="module")
def memory():
    """A device gets its memory back after each file: a process may have only so many blocks."""
    yield
    if DEVICE:
        release_memory("cupy")


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
