import json
import os
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from typer.testing import CliRunner

import optkit
from optkit import cli, demo
from optkit.backend import select
from optkit.train.tensor_file import read_arrays, write_arrays

ROOT = Path(__file__).parents[1]
START = "import sys; from optkit.cli import main; sys.exit(main())"

runner = CliRunner()


@pytest.fixture(autouse=True)
def _no_backend_preset(monkeypatch):
    monkeypatch.delenv("OPTKIT_BACKEND", raising=False)


@pytest.fixture
def inside(tmp_path, monkeypatch):
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def start(tmp_path):
    """Start the command line in a process of its own, in tmp_path; it is ended if need be."""
    processes = []

    def start(*arguments, **options):
        process = subprocess.Popen(
            [sys.executable, "-u", "-W", "error", "-c", START, *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def scalars(directory):
    return set(EventAccumulator(str(directory)).Reload().Tags()["scalars"])


# -- what works -----------------------------------------------------------------------------------


def test_demo_trains_and_tells_where_to_look(inside):
    result = runner.invoke(cli.app, ["demo", "--steps", "20", "--clip", "1", "--logdir", "my logs"])
    assert result.exit_code == 0
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert re.fullmatch(r"step 0/20: loss 2\.\d{4}, test accuracy \d+\.\d\d%", lines[0])
    assert [line.split(":")[0] for line in lines[:-2]] == [f"step {n}/20" for n in range(0, 21, 2)]
    assert re.fullmatch(
        r"Adam: test loss \d\.\d{4}, test accuracy \d+\.\d\d%, \d+ steps/s, "
        r"run in my logs/demo-Adam-1",
        lines[-2],
    )
    assert lines[-1] == "To look at it: tensorboard --logdir 'my logs'"
    assert "OptimizeLoss/global_norm/clipped_gradient_norm" in scalars("my logs/demo-Adam-1")


def test_demo_hands_every_option_on(inside, monkeypatch):
    seen = []

    def train(settings, digits, logdir, report):
        seen.append((settings, logdir, optkit.get_backend()))
        return demo.Result(logdir / "demo-SGD-1", 0.25, 0.5, 9.0)

    monkeypatch.setattr(demo, "train", train)
    arguments = (
        "demo --optimizer sgd --learning-rate 0.5 --decay Cosine --clip 2 --noise 0.1 --steps 7 "
        "--batch-size 5 --seed 3 --logdir ~/x --backend numpy"
    )
    result = runner.invoke(cli.app, arguments.split())
    assert result.exit_code == 0
    settings = demo.Settings("SGD", 0.5, "cosine", 2.0, 0.1, 7, 5, 3)
    assert seen == [(settings, Path("~/x").expanduser(), "numpy")]


def test_demo_has_the_defaults_of_the_settings(inside, monkeypatch):
    seen = []

    def train(settings, digits, logdir, report):
        seen.append((settings, logdir))
        return demo.Result(logdir / "demo-Adam-1", 0.25, 0.5, 9.0)

    monkeypatch.setattr(demo, "train", train)
    assert runner.invoke(cli.app, ["demo"]).exit_code == 0
    assert seen == [(demo.Settings(), Path("runs"))]


def test_demo_leaves_the_backend_as_it_was(inside):
    before = select._chosen
    runner.invoke(cli.app, ["demo", "--steps", "1", "--backend", "numpy"])
    assert select._chosen == before


@pytest.mark.parametrize("name", demo.SCALED_BY_RATE)
def test_demo_warns_of_a_decay_that_makes_all_weights_small(name, inside):
    arguments = ["demo", "--steps", "1", "--optimizer", name]
    assert runner.invoke(cli.app, arguments).stderr == ""
    result = runner.invoke(cli.app, [*arguments, "--decay", "cosine"])
    assert result.exit_code == 0
    assert result.stderr.startswith(f"note: the weights of {name} are proportional to the rate;")


def test_version_is_told(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr() == (f"optkit {optkit.__version__}\n", "")


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"]])
def test_help_is_told(arguments, capsys):
    assert cli.main(arguments) == 0
    out, err = capsys.readouterr()
    assert "Usage: optkit" in out
    assert err == ""


def test_help_names_every_option(capsys):
    cli.main(["demo", "--help"])
    out = capsys.readouterr().out
    names = "optimizer learning-rate decay clip noise steps batch-size seed logdir backend"
    for name in names.split():
        assert f"--{name} " in out


def test_without_a_command_the_help_is_told(capsys):
    cli.main([])  # the status depends on the version of Typer
    out, err = capsys.readouterr()
    assert "Usage: optkit" in out + err


# -- what does not --------------------------------------------------------------------------------

BAD_OPTIONS = {
    "--steps 0": "--steps: expected at least 1, got 0",
    "--steps x": "optkit: Invalid value for '--steps'",
    "--steps 1.5": "optkit: Invalid value for '--steps'",
    "--optimizer Lion": "--optimizer: expected one of Adadelta, Adagrad, AdagradDA, Adam, Ftrl, "
    "Momentum, ProximalAdagrad, ProximalGradientDescent, RMSProp, SGD, got 'Lion'",
    "--decay linear": "--decay: expected one of none, cosine, ",
    "--learning-rate -0.1": "--learning-rate: expected a number above 0, got -0.1",
    "--learning-rate nan": "--learning-rate: expected a number above 0, got nan",
    "--learning-rate fast": "optkit: Invalid value for '--learning-rate'",
    "--clip -1": "--clip: expected a number above 0, got -1.0",
    "--noise -1": "--noise: expected a number >= 0, got -1.0",
    "--batch-size 0": "--batch-size: expected at least 1, got 0",
    "--batch-size 1439": "--batch-size: expected at most 1438, the images to train on, got 1439",
    "--seed -1": "--seed: expected at least 0, got -1",
    "--backend gpu": "--backend: expected one of auto, numpy, cupy, got 'gpu'",
    "--logdir file": "--logdir: no run can be made in 'file': File exists",
    "--logdir file/x": "--logdir: no run can be made in 'file/x': Not a directory",
    "--colour red": "optkit: No such option",
    "more": "optkit: Got unexpected extra argument",
}


@pytest.mark.parametrize("options", BAD_OPTIONS)
def test_a_bad_option_is_told_in_one_line(options, inside, capsys):
    (inside / "file").touch()
    assert cli.main(["demo", *options.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert BAD_OPTIONS[options] in err
    assert err.startswith("optkit")
    assert [path.name for path in inside.iterdir()] == ["file"]


def test_an_unknown_command_is_told_in_one_line(capsys):
    assert cli.main(["dance"]) == 2
    assert re.fullmatch("optkit: No such command 'dance'.*\n", capsys.readouterr().err)


def test_a_backend_that_is_not_usable_is_told_with_its_cause(inside, monkeypatch, capsys):
    monkeypatch.setattr(select, "_cupy", (None, ImportError("no libcuda.so.1")))
    assert cli.main(["demo", "--backend", "cupy"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "--backend: backend 'cupy' is not usable: ImportError: no libcuda.so.1" in err
    assert list(inside.iterdir()) == []


def test_without_scikit_learn_the_command_to_install_it_is_told(inside, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert cli.main(["demo"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "pip install 'optkit[demo]'" in err
    assert list(inside.iterdir()) == []


def test_another_missing_module_is_not_taken_for_scikit_learn(inside, monkeypatch):
    def load(seed):
        raise ModuleNotFoundError("No module named 'scipy'", name="scipy")

    monkeypatch.setattr(demo, "load", load)
    with pytest.raises(ModuleNotFoundError, match="scipy"):
        cli.main(["demo"])


def test_a_loss_that_is_nan_ends_in_one_line(inside, capsys):
    arguments = "demo --optimizer sgd --learning-rate 1e30 --steps 20"
    assert cli.main(arguments.split()) == 1
    assert re.fullmatch(r"optkit demo: the loss is NaN at step \d+\n", capsys.readouterr().err)


def test_a_disk_that_fills_up_ends_in_one_line(inside, monkeypatch, capsys):
    def train(*_):
        raise OSError(28, "No space left on device", "runs/x")

    monkeypatch.setattr(demo, "train", train)
    assert cli.main(["demo"]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "No space left on device" in err


# -- processes ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_process_trains_and_prints_plain_lines(start, tmp_path):
    process = start("demo", "--steps", 20, stdout=subprocess.PIPE)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    assert "\x1b" not in out
    assert "\r" not in out
    assert out.endswith("To look at it: tensorboard --logdir runs\n")
    assert "OptimizeLoss/loss" in scalars(tmp_path / "runs" / "demo-Adam-1")


@pytest.mark.slow
def test_an_interrupted_process_leaves_a_complete_run(start, tmp_path):
    process = start("demo", "--steps", 10**7, stdout=subprocess.PIPE)
    assert process.stdout.readline().startswith("step 0/")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert err == "optkit demo: interrupted; what it wrote is complete up to here\n"
    assert "test/loss" in scalars(tmp_path / "runs" / "demo-Adam-1")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_terminal_shows_a_bar_and_a_table(start):
    import pty
    import termios

    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 100))
    process = start("demo", "--steps", 20, stdout=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            some = os.read(ours, 4096)
        except OSError:  # the other end is closed, as Linux tells it
            some = b""
        if not some:
            break
        shown += some
    os.close(ours)
    assert process.wait(timeout=120) == 0
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    assert "Adam: 100%" in text
    for column in ("optimizer", "test loss", "test accuracy", "steps/s", "run directory"):
        assert column in text
    assert "demo-Adam-1" in text


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="pipes break in other ways")
def test_a_reader_that_goes_away_ends_it_without_a_word(start):
    process = start("demo", "--steps", 10**5, stdout=subprocess.PIPE)
    assert process.stdout.readline().startswith("step 0/")
    process.stdout.close()
    assert process.wait(timeout=120) == 1
    assert process.stderr.read() == ""


def test_the_package_itself_can_be_run(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["optkit", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("optkit", run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"optkit {optkit.__version__}\n"


# -- debug ----------------------------------------------------------------------------------------


@pytest.fixture
def left_behind(inside):
    """The file that a step with a NaN leaves behind."""
    x = optkit.placeholder("float32", [None], name="x")
    w = optkit.get_variable("w", [], initializer=optkit.ones_initializer())
    loss = optkit.reduce_mean(optkit.log(x * w, name="culprit"))
    train_op = optkit.create_train_op(loss, optkit.train.AdamOptimizer(0.1))
    with pytest.raises(optkit.errors.NonFiniteError) as caught:
        optkit.fit(train_op, [[1.0, -1.0]], x, steps=1, logdir="run", progress=False)
    return caught.value.path


def test_p050_debug_runs_the_step_again(left_behind):
    result = runner.invoke(cli.app, ["debug", str(left_behind), "--tensor", "x:0"])
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0] == "step 1: the loss is nan"
    assert "came from operation 'culprit' (Log), built at" in lines[1]
    assert "  it was batch 1 of the data, counted from 1" in lines
    assert any(line.startswith("  Mean: Mean:0: float32 (), 1 NaN of 1") for line in lines)
    assert lines[-3:] == [
        "x:0:",
        "[ 1. -1.]",
        "the step gave the same values again, bit for bit",
    ]


@pytest.mark.parametrize("place", ["batch", "told", "name"])
def test_debug_shows_what_a_terminal_would_obey(left_behind, place):
    arrays, header = read_arrays(left_behind)
    content = json.loads(header.metadata["reproduction"])
    hostile = "\x1b]0;title\x07\rgone\x9b2J"
    if place == "batch":
        content["batch"] = hostile
    else:
        (node,) = [node for node in content["nodes"] if node["type"] == "Log"]
        node[place] = hostile
    metadata = header.metadata | {"reproduction": json.dumps(content)}
    write_arrays(left_behind, arrays, metadata)
    result = runner.invoke(cli.app, ["debug", str(left_behind)])
    told = result.stdout + result.stderr
    assert not [c for c in told if c != "\n" and not c.isprintable()]
    assert place == "name" or r"\x1b]0;title\x07\rgone\x9b2J" in told


def test_debug_tells_mistakes_in_one_line(left_behind, inside):
    for arguments, status, text in (
        (["none"], 2, "optkit debug: there is no file 'none'\n"),
        ([str(left_behind), "--tensor", "z:0"], 2, "optkit debug: --tensor: the step has no z:0\n"),
        ([str(Path(__file__))], 1, "expected a checkpoint"),
    ):
        result = runner.invoke(cli.app, ["debug", *arguments])
        assert result.exit_code == status
        assert text in result.stderr
        assert result.stdout == ""
        assert len(result.stderr.splitlines()) == 1


def test_debug_tells_when_the_values_are_others(left_behind):
    arrays, header = read_arrays(left_behind)
    metadata = {k: v for k, v in header.metadata.items() if k not in ("crc32c", "format")}
    write_arrays(left_behind, {**arrays, "value/x:0": arrays["value/x:0"] * 0}, metadata)
    result = runner.invoke(cli.app, ["debug", str(left_behind)])
    assert result.exit_code == 1
    assert "other values than when the file was written: Mean:0" in result.stderr
