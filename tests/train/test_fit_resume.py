"""A `fit` that was killed at any moment goes on as if nothing had happened (P076, P077)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing import event_accumulator

from summaries import read
from tests.train.fit_models import SPEED

ROOT = Path(__file__).parents[2]
SURVIVOR = Path(__file__).with_name("fit_survivor.py")


def survive(folder, kills, seed, kind="plain"):
    """Runs with so many kills, in `folder`; the directories of those that were disturbed."""
    result = subprocess.run(
        [sys.executable, "-W", "error", SURVIVOR, folder, str(kills), str(seed), kind],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    told = json.loads(result.stdout)
    assert told["kills"] >= kills
    return [folder / str(i) for i in range(told["runs"])]


def pairs(tag, steps, values):
    """(step, value) pairs; of the speed, which no two runs share, the steps."""
    return list(steps) if tag == SPEED else list(zip(steps, values, strict=True))


def by_our_reader(logdir):
    """run -> tag -> (step, value) pairs."""
    return {
        name: {
            tag: pairs(tag, run.scalars(tag).steps.tolist(), run.scalars(tag).values.tolist())
            for tag, kind in run.tags().items()
            if kind == "scalar"
        }
        for name, run in read(logdir)._runs.items()
    }


def by_tensorboard(logdir):
    """tag -> (step, value) pairs by TensorBoard's loader in Python."""
    sizes = dict.fromkeys(event_accumulator.DEFAULT_SIZE_GUIDANCE, 0)
    loaded = event_accumulator.EventAccumulator(str(logdir), sizes).Reload()
    return {
        tag: pairs(tag, *zip(*((x.step, x.value) for x in loaded.Scalars(tag)), strict=True))
        for tag in loaded.Tags()["scalars"]
    }


def check(folder, runs):
    """Every run ended as the undisturbed one did: variables, counters and events."""
    reference = folder / "reference"
    expected = np.load(reference / "final.npz")
    events = by_our_reader(reference)
    (train,) = (tags for name, tags in events.items() if not name.endswith("eval"))
    (held,) = (tags for name, tags in events.items() if name.endswith("eval"))
    assert [step for step, _ in train["OptimizeLoss/loss"]] == [1, 4, 7, 10, 13, 16, 19, 22]
    assert train[SPEED] == [1, 4, 7, 10, 13, 16, 19, 22]
    assert [step for step, _ in held["OptimizeLoss/loss"]] == [4, 8, 12, 16, 20, 24]
    for run in runs:
        found = np.load(run / "final.npz")
        assert set(found.files) == set(expected.files)
        for name in expected.files:
            assert found[name].tobytes() == expected[name].tobytes(), (run.name, name)
        assert list(by_our_reader(run).values()) == list(events.values()), run.name
        for sub in ("", "eval"):
            assert by_tensorboard(run / sub) == by_tensorboard(reference / sub), run.name
        assert [path.name for path in run.iterdir() if path.name.startswith(".")] == []


@pytest.mark.host("it trains in processes of their own")
def test_kills_change_nothing(tmp_path):
    check(tmp_path, survive(tmp_path, 4, seed=0))


@pytest.mark.slow
@pytest.mark.host("it trains in processes of their own")
def test_forty_kills_change_nothing(tmp_path):
    check(tmp_path, survive(tmp_path, 40, seed=1))
