"""What the tests of summaries share: TensorBoard's own readers, and a second interpreter."""

import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

from summaries._warn import forget_warnings

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _every_warning_is_new():
    forget_warnings()


@pytest.fixture
def load():
    """Read a directory as TensorBoard's EventAccumulator, with every point."""

    def load(logdir):
        everything = dict.fromkeys(event_accumulator.DEFAULT_SIZE_GUIDANCE, 0)
        return event_accumulator.EventAccumulator(str(logdir), everything).Reload()

    return load


@pytest.fixture
def load_as_server():
    """Read a directory as TensorBoard's server does with --load_fast=false."""

    def load(logdir):
        return plugin_event_accumulator.EventAccumulator(str(logdir)).Reload()

    return load


@pytest.fixture
def raw_events():
    """All events of one file, by TensorBoard's loader."""

    def raw_events(path):
        return list(LegacyEventFileLoader(str(path)).Load())

    return raw_events


@pytest.fixture
def scalars(load):
    """The (step, value) pairs of a scalar tag, by TensorBoard's EventAccumulator."""

    def scalars(logdir, tag):
        return [(event.step, event.value) for event in load(logdir).Scalars(tag)]

    return scalars


@pytest.fixture
def start_python():
    """Start code in another interpreter, with `summaries` importable; it is ended if need be."""
    processes = []

    def start_python(code, *arguments):
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield start_python
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def run_python(start_python):
    """Run code in another interpreter; return its exit status, output and errors."""

    def run_python(code, *arguments):
        process = start_python(code, *arguments)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    return run_python
