"""What README.md says is tried out."""

import importlib
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import optkit as tf

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the block that holds `text`, in an empty directory; return its names."""
    monkeypatch.chdir(tmp_path)

    def run(text):
        (block,) = [block for block in BLOCKS if text in block]
        names = {"__name__": "readme"}
        exec(compile(block, "README.md", "exec"), names)
        return names

    return run


def test_the_example_trains_and_writes_every_summary(run, capsys):
    names = run("optimize_loss(\n")
    assert names["value"] < 1e-4
    printed = [
        float(number) for number in re.findall(r"-?[\d.]+(?:e-\d+)?", capsys.readouterr().out)
    ]
    np.testing.assert_allclose(printed[1:], [1.0, -2.0, 0.5], atol=0.02)
    tags = EventAccumulator("runs/example").Reload().Tags()
    assert set(tags["scalars"]) == {
        "OptimizeLoss/loss",
        "OptimizeLoss/learning_rate",
        "OptimizeLoss/global_norm/gradient_norm",
        "OptimizeLoss/global_norm/clipped_gradient_norm",
        "OptimizeLoss/gradient_norm/w_0",
    }
    assert tags["histograms"] == ["OptimizeLoss/gradients/w_0"]


def test_the_example_is_short():
    (example,) = [block for block in BLOCKS if "optimize_loss(\n" in block]
    assert len([line for line in example.splitlines() if line]) <= 21


def test_an_optimizer_of_ones_own_moves_to_the_minimum(run, capsys):
    names = run("class Lion")
    assert len(capsys.readouterr().out.splitlines()) == 1
    w, optimizer = tf.trainable_variables()[0], names["Lion"]()
    assert optimizer.get_slot_names() == []
    optimizer.minimize(tf.nn.l2_loss(w))
    assert optimizer.get_slot_names() == ["m"]


def test_the_printed_minimum_is_near_zero(run, capsys):
    run("class Lion")
    numbers = re.findall(r"-?\d+\.\d*(?:e-\d+)?", capsys.readouterr().out)
    np.testing.assert_allclose([float(number) for number in numbers], [0, 0], atol=0.05)


def test_a_loop_learns_and_writes(run, capsys):
    names = run("tf.fit(")
    assert names["history"].final["eval/loss"] < 1e-3
    printed = capsys.readouterr().out.splitlines()[-1]
    assert float(printed) == pytest.approx(names["history"].final["eval/loss"], rel=1e-4)
    assert tf.train.latest_checkpoint("runs/fit") is not None
    tags = EventAccumulator("runs/fit/eval").Reload().Tags()["scalars"]
    assert len(tags) == 1


def test_a_loop_of_ones_own_writes_each_step(run):
    run("OptimizerSummaries(")
    loaded = EventAccumulator("runs/loose", {"scalars": 0}).Reload()
    assert [event.step for event in loaded.Scalars("OptimizeLoss/loss")] == list(range(1, 101))


def test_every_block_of_python_is_tried():
    assert len(BLOCKS) == 4


@pytest.mark.parametrize(
    "command",
    [
        "python -m pip install '.[demo,dashboard]' && optkit demo",
        "python -m pip install -e '.[test]' && python -m pytest",
    ],
)
def test_the_commands_stand_on_lines_of_their_own(command):
    assert command in README.splitlines()


def test_links_lead_to_files_of_the_project():
    targets = re.findall(r"\]\(([^)]+)\)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).is_file()] == []


def test_the_picture_is_a_small_png():
    picture = (ROOT / "notebooks" / "images" / "dashboard.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 200_000
    width, height = struct.unpack(">II", picture[16:24])
    assert min(width, height) > 500


def table(heading):
    """The rows, as lists of cells, of the first table with this text in its head."""
    start = README.index(heading)
    lines = README[README.rindex("\n", 0, start) + 1 :].splitlines()
    rows = []
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


def test_packages_hold_the_names_they_are_said_to_hold():
    rows = table("| package |")
    assert len(rows) > 5
    missing = []
    for package, text in rows:
        module = importlib.import_module(package.strip("`"))
        names = re.findall(r"`(\w+)`", text)
        missing += [f"{package}.{name}" for name in names if not hasattr(module, name)]
    assert missing == []


def test_summaries_are_the_ones_there_are():
    names = [row[0].strip("`") for row in table("| name in `summaries=` |")]
    assert sorted(names) == sorted(tf.OPTIMIZER_SUMMARIES)


def test_extras_are_the_ones_there_are():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [name for row in table("| extra |") for name in re.findall(r"`([\w-]+)`", row[0])]
    assert sorted(named) == sorted(project["optional-dependencies"])
