"""The real thing where there is no device: CuPy not installed, or installed without a driver.

Each in a process of its own, as a user would start it. CI runs this file in both environments.
"""

import importlib.util
import os
import subprocess
import sys
import textwrap

import pytest

from tests.conftest import DEVICE

INSTALLED = importlib.util.find_spec("cupy") is not None

pytestmark = pytest.mark.skipif(bool(DEVICE), reason="OPTKIT_TEST_CUPY says that there is one")

SHOWN = """
    import logging, warnings
    import optkit as tf

    class Told(logging.Handler):
        def emit(self, record):
            print("info:", record.getMessage())

    logging.getLogger("optkit").addHandler(Told())
    logging.getLogger("optkit").setLevel(logging.INFO)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        names = [tf.Session(backend="auto").backend, tf.Session().backend, tf.get_backend()]
    for warning in seen:
        print(f"{warning.category.__name__}: {warning.message}")
    print(*names)
    w = tf.Variable(1.0)
    train_op = tf.train.GradientDescentOptimizer(0.25).minimize(w * w)
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    session.run(train_op)
    print(session.value(w))
    for ask in (tf.use_backend, lambda name: tf.Session(backend=name)):
        try:
            ask("cupy")
        except RuntimeError as error:
            print(f"{type(error.__cause__).__name__}: {error}")
"""


@pytest.fixture(scope="module")
def lines():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SHOWN)],
        capture_output=True,
        text=True,
        check=False,
        env={key: value for key, value in os.environ.items() if key != "OPTKIT_BACKEND"},
    )
    assert done.returncode == 0, done.stderr
    if "cupy cupy cupy" in done.stdout:
        pytest.skip("a device answers here")
    return done.stdout.splitlines()


def test_p106_auto_falls_back_with_one_message(lines):
    told, names, trained, *_ = lines
    if INSTALLED:
        assert told.startswith("RuntimeWarning: CuPy is installed but not usable (CUDARuntimeError")
        assert "cudaErrorInsufficientDriver" in told or "cudaErrorNoDevice" in told
        assert told.endswith("; using NumPy")
    else:
        assert told == "info: CuPy is not installed; arrays are NumPy's"
    assert names == "numpy numpy numpy"
    assert trained == "0.5"


def test_p106_cupy_raises_the_cause(lines):
    cause = "CUDARuntimeError" if INSTALLED else "ModuleNotFoundError"
    asked = lines[3:]
    assert len(asked) == 2
    for line in asked:
        assert line.startswith(f"{cause}: backend 'cupy' is not usable: {cause}: ")
        assert "install the extra cuda12 or cuda13 and check the driver" in line
