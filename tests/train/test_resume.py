"""A run that was killed at any moment goes on as if nothing had happened."""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import time
import urllib.error
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator

import optkit as tf
from summaries import dashboard, read
from tests.train import survivor

ROOT = Path(__file__).parents[2]
SURVIVOR = Path(__file__).with_name("survivor.py")
SPEED = "global_step/sec"

pytestmark = pytest.mark.host("it trains in processes of their own")


def survive(folder, kills, seed, kind="plain", timeout=300):
    """Runs with so many kills, in `folder`; the directories of those that were disturbed."""
    result = subprocess.run(
        [sys.executable, "-W", "error", SURVIVOR, folder, str(kills), str(seed), kind],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    told = json.loads(result.stdout)
    assert told["kills"] >= kills
    assert told["runs"] > 0
    return [folder / str(i) for i in range(told["runs"])]


def event_sequence(logdir):
    """tag -> (step, value) pairs by our reader; of the speed, which differs, the steps."""
    (run,) = read(logdir)._runs.values()
    found = {}
    for tag, kind in run.tags().items():
        if kind == "scalar":
            points = run.scalars(tag)
            found[tag] = list(zip(points.steps.tolist(), points.values.tolist(), strict=True))
        elif kind == "histogram":
            points = run.histograms(tag)
            shapes = [(h.limits.tobytes(), h.counts.tobytes(), h.sum) for h in points.values]
            found[tag] = list(zip(points.steps.tolist(), shapes, strict=True))
    found[SPEED] = [step for step, _ in found[SPEED]]
    return found


def legacy_sequence(logdir, module):
    """tag -> its (step, value) pairs by a loader of TensorBoard's that is written in Python."""
    sizes = dict.fromkeys(event_accumulator.DEFAULT_SIZE_GUIDANCE, 0)
    if module is event_accumulator:
        loaded = module.EventAccumulator(str(logdir), sizes).Reload()
        scalars = {
            tag: [(event.step, event.value) for event in loaded.Scalars(tag)]
            for tag in loaded.Tags()["scalars"]
        }
    else:
        loaded = module.EventAccumulator(str(logdir)).Reload()
        scalars = {
            tag: [(e.step, e.tensor_proto.SerializeToString()) for e in loaded.Tensors(tag)]
            for tag in loaded.Tags()["tensors"]
        }
    scalars[SPEED] = [step for step, _ in scalars[SPEED]]
    return scalars


def check(folder, runs):
    """Every run ended as the undisturbed one did: variables, counters and events."""
    reference = folder / "reference"
    expected = np.load(reference / "final.npz")
    events = event_sequence(reference)
    assert events["OptimizeLoss/loss"][1][0] == 4  # summaries at 1, 4, 7, ...
    assert events[SPEED] == [11, 21]
    legacy = [
        legacy_sequence(reference, module)
        for module in (event_accumulator, plugin_event_accumulator)
    ]
    for run in runs:
        found = np.load(run / "final.npz")
        assert set(found.files) == set(expected.files)
        for name in expected.files:
            assert found[name].tobytes() == expected[name].tobytes(), (run.name, name)
        assert event_sequence(run) == events, run.name
        for module, sequence in zip(
            (event_accumulator, plugin_event_accumulator), legacy, strict=True
        ):
            assert legacy_sequence(run, module) == sequence, run.name
        hidden = [path.name for path in run.iterdir() if path.name.startswith(".")]
        assert hidden == []  # no lock, nothing half-written


def test_twenty_kills_change_nothing(tmp_path):
    check(tmp_path, survive(tmp_path, 20, seed=0))


def started(folder, *arguments):
    """A process that trains there, as soon as it does."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", SURVIVOR, "once", folder, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    line = process.stdout.readline()
    assert line == "started\n", process.communicate(timeout=60)
    return process


def test_sigterm_saves_and_exits_143_and_the_run_goes_on(tmp_path):
    process = started(tmp_path / "run", 100_000)
    with pytest.raises(RuntimeError, match=f"in another process: pid {process.pid};"):
        survivor.train(tmp_path / "run")
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (143, "")
    step = survivor.newest_step(tmp_path / "run")
    assert not (tmp_path / "run" / ".optkit.lock").exists()
    for name in ("run", "reference"):
        tf.summary.FileWriterCache.clear()
        survivor.train(tmp_path / name, step + 25)
    tf.summary.FileWriterCache.clear()
    found, expected = (np.load(tmp_path / n / "final.npz") for n in ("run", "reference"))
    for name in expected.files:
        assert found[name].tobytes() == expected[name].tobytes(), name
    assert event_sequence(tmp_path / "run") == event_sequence(tmp_path / "reference")


needs_numba = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="Numba is not installed"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "kills"), [("plain", 200), pytest.param("jit", 60, marks=needs_numba)]
)
def test_many_kills_change_nothing(tmp_path, kind, kills):
    check(tmp_path, survive(tmp_path, kills, seed=1, kind=kind))


@pytest.mark.slow
def test_kills_of_processes_change_nothing_and_both_servers_show_one_line(tmp_path):
    """Whole processes, with their threads; both loaders of TensorBoard, through its server."""
    process = started(tmp_path / "reference")
    start = time.monotonic()
    process.communicate(timeout=60)
    took = time.monotonic() - start
    rng = np.random.default_rng(3)
    killed = 0
    for run in range(8):
        while True:
            process = started(tmp_path / str(run))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(float(rng.uniform(0, took)))
            process.kill()
            process.communicate()
            if process.returncode == 0:
                break
            killed += 1
    assert killed > 4
    check(tmp_path, [tmp_path / str(run) for run in range(8)])
    for fast in ("true", "false"):
        arguments = [f"--load_fast={fast}"]
        with dashboard(tmp_path, show=False, reload_interval=0.1, arguments=arguments) as board:
            check_served(board)


def check_served(board):
    """What the server shows of every run is what it shows of the undisturbed one."""
    runs = {"reference", *map(str, range(8))}
    end = time.monotonic() + 60
    while True:
        with contextlib.suppress(urllib.error.HTTPError):
            tags = board.query("data/plugin/scalars/tags")
            if set(tags) == runs and len({frozenset(tags[run]) for run in runs}) == 1:
                lines = {
                    run: {tag: line(board, run, tag) for tag in tags["reference"]} for run in runs
                }
                # It may still be reading.
                if len(lines["reference"]["OptimizeLoss/loss"]) == 8 and all(
                    lines[run] == lines["reference"] for run in runs
                ):
                    return
        assert time.monotonic() < end, tags


def line(board, run, tag):
    answer = board.query("data/plugin/scalars/scalars", run=run, tag=tag)
    return [step if tag == SPEED else (step, value) for _, step, value in answer]
