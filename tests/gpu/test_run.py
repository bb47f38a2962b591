"""The script for a device: that all of it runs, over the simulated one."""

import importlib.machinery
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.timings import Row, table

SCRIPT = Path(__file__).parent / "run"


@pytest.fixture(scope="module")
def script():
    loader = importlib.machinery.SourceFileLoader("gpu_run", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_run", loader))
    sys.modules["gpu_run"] = module
    loader.exec_module(module)
    yield module
    del sys.modules["gpu_run"]


@pytest.mark.cusim
def test_every_part_runs_dry(tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--dry", "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["dry"]
    assert all(part["fine"] for part in summary["parts"].values())
    assert json.loads(summary["parts"]["status"]["said"][0])["backend"] == "cupy"
    assert "47 of 47 cases as recorded" in done.stdout
    timings = json.loads((tmp_path / "out" / "timings.json").read_text())
    assert timings["simulated"]
    assert len(timings["rows"]) == 5
    for row in timings["rows"]:  # nobody may take a simulator's time for a device's
        assert row["device"] is row["wall"] is row["of_copy"] is None


def test_the_limits_leave_time_to_spare(script):
    assert sum(script.LIMITS.values()) <= 450
    assert set(script.PARTS) == set(script.LIMITS)


def test_every_file_of_the_suite_is_in_one_lot(script):
    lots = script.shards(4)
    files = [file for lot in lots for file in lot]
    assert len(files) == len(set(files)) > 50
    assert len(lots) == 4
    assert "tests/ops/test_table.py" in files
    assert all(any(file.startswith(line) for file in files) for line in suite_lines(script))


def suite_lines(script):
    lines = script.SUITE.read_text().split()
    assert all((script.ROOT / line).exists() for line in lines)
    return lines


def test_parts_that_do_not_exist():
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "speed"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "no part speed; there are status, recorded, suite" in done.stderr


def test_what_fails_or_takes_too_long_is_told(script, tmp_path):
    run = script.Runner(tmp_path, dry=False)
    assert run.run("a", [sys.executable, "-c", "print('one\\ntwo'); raise SystemExit(3)"], 60) == 3
    assert run.tail("a") == ["two"]
    assert run.run("b", [sys.executable, "-c", "input()"], 60) == 1
    wait = "import threading; threading.Event().wait()"
    assert run.run("c", [sys.executable, "-c", wait], 0.1) == 124


def test_the_table():
    rows = [
        Row("Adam 1 x 10", 2e-6, 3e-6, 280, 0.5, "torch fused", 4e-6, 5e-6),
        Row("MLP", 1e-3, 1.2e-3),
    ]
    first, second = table(rows).splitlines()[2:]
    assert first == "| Adam 1 x 10 | 2.0 | 3.0 | 50% | torch fused | 4.0 | 5.0 | 0.50 |"
    assert second == "| MLP | 1,000.0 | 1,200.0 | - | - | - | - | - |"
