"""One optimizer on CuPy itself, run on the CPU by a simulator of the CUDA driver.

To turn it on: a Python with CuPy, a module `cusim` on PYTHONPATH that lets CuPy run without a
device once it is imported before CuPy, and

    OPTKIT_TEST_CUPY=sim python -m pytest -m slow tests/backend/test_cupy_sim.py
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

asked_for = os.environ.get("OPTKIT_TEST_CUPY") == "sim"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not asked_for, reason="set OPTKIT_TEST_CUPY=sim to run CuPy on a simulated device"
    ),
    pytest.mark.skipif(
        asked_for and importlib.util.find_spec("cusim") is None,
        reason="OPTKIT_TEST_CUPY=sim needs the module cusim on PYTHONPATH",
    ),
]

REPLAY = """
import cusim  # before CuPy, in a process of its own
import cupy

import optkit
from tests.train.test_optimizers_golden import CASES, Replay

optkit.use_backend("cupy")
case = CASES["{case}"]
replay = Replay(case)
assert replay.session.backend == "cupy"
replay.check(case["initial_state"])
for step in case["steps"]:
    replay.run(step)
    replay.check(step["expected"])
replay.check_names()
held = [replay.session._state[v.op] for v in replay.variables]
assert all(isinstance(array, cupy.ndarray) for array in held), held
print("steps:", len(case["steps"]))
"""


@pytest.mark.parametrize("case", ["adam_default", "adam_f16", "adam_sparse_2d_dup"])
def test_golden_steps_on_cupy(case):
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-c", REPLAY.format(case=case)],
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "steps: " in done.stdout
