"""The scripts in tests/scripts: TensorFlow 1's idiom, of which one line names optkit.

Where TensorFlow is installed, the same text with that line changed must give the same numbers.
"""

import importlib.util
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import optkit as tf

FOLDER = Path(__file__).parent / "scripts"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))
OURS = "import optkit as tf\n"

# TensorFlow 2 runs these too, as `tensorflow.compat.v1`, and draws no random numbers of its own in
# them. The tolerance is relative; the losses of 2.21 agreed to 4e-6 or better.
COMPARED = {
    "autoencoder": 1e-4,
    "conv_raw": 1e-4,
    "custom_optimizer": 1e-6,
    "flags_and_saver": 1e-4,
    "gan": 1e-4,
    "gradient_tape": 1e-4,
    "kmeans": 1e-5,
    "linear_regression": 1e-5,
    "logistic_regression": 1e-4,
    "lstm_classifier": 1e-4,
    "mlp_raw": 1e-4,
    "monitored_training": 1e-4,
    "moving_averages": 1e-4,
}
ONLY_OURS = {
    "conv_layers": "tf.contrib.training is gone from TensorFlow 2; kernels start at random",
    "dqn": "tf.contrib.layers is gone from TensorFlow 2",
    "mlp_layers": "tf.contrib.layers is gone from TensorFlow 2; kernels and dropout are random",
    "variational_autoencoder": "tf.contrib.layers is gone from TensorFlow 2; the noise is random",
    "word2vec": "the sampler, the embeddings and the weights are random",
}
KERAS = {"flags_and_saver", "lstm_classifier"}
"""Scripts with layers or cells, which TensorFlow 2 takes from tf_keras."""

ON_TENSORFLOW = """
import pickle, sys
source, out = sys.argv[1:]
names = {"__name__": "__main__"}
try:
    exec(compile(sys.stdin.read(), source, "exec"), names)
except SystemExit as end:
    assert not end.code, end
with open(out, "wb") as file:
    pickle.dump((names["losses"], names["weights"]), file)
"""


def text_of(script):
    return (FOLDER / f"{script}.py").read_text(encoding="utf-8")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a script here; return its losses and weights."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("optkit.flags.FLAGS", type(tf.flags.FLAGS)())  # as in a new process

    def run(script):
        names = {"__name__": "__main__"}
        monkeypatch.setattr("sys.argv", [f"{script}.py"])
        code = None
        try:
            exec(compile(text_of(script), f"{script}.py", "exec"), names)
        except SystemExit as end:  # how tf.app.run ends
            code = end.code
        finally:
            tf.disable_eager_execution()
        assert not code
        return names["losses"], names["weights"]

    return run


def test_every_script_is_in_one_table():
    assert len(SCRIPTS) >= 15
    assert sorted([*COMPARED, *ONLY_OURS]) == SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS)
def test_one_line_of_a_script_names_optkit(script):
    lines = text_of(script).splitlines(keepends=True)
    assert [line for line in lines if "optkit" in line] == [OURS]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_trains(script, run, capsys):
    losses, weights = run(script)
    assert np.isfinite(losses).all()
    assert all(np.isfinite(weight).all() for weight in weights)
    if script != "gan":  # a game has no loss that falls
        assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:2])
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"
)
@pytest.mark.parametrize("script", COMPARED)
def test_tensorflow_gives_the_same_numbers(script, run, tmp_path):
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    if script in KERAS:
        if importlib.util.find_spec("tf_keras") is None:
            pytest.skip("tf_keras is not installed")
        environment["TF_USE_LEGACY_KERAS"] = "1"
    theirs = "import tensorflow.compat.v1 as tf"
    if script != "gradient_tape":
        theirs += "; tf.disable_v2_behavior()"
    out = tmp_path / "numbers.pickle"
    done = subprocess.run(
        [sys.executable, "-c", ON_TENSORFLOW, f"{script}.py", str(out)],
        input=text_of(script).replace(OURS, f"{theirs}\n"),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected_losses, expected_weights = pickle.loads(out.read_bytes())
    losses, weights = run(script)
    tolerance = COMPARED[script]
    np.testing.assert_allclose(losses, expected_losses, rtol=tolerance, atol=1e-7)
    assert len(weights) == len(expected_weights)
    for ours, expected in zip(weights, expected_weights, strict=True):
        assert np.asarray(ours).dtype == np.asarray(expected).dtype
        np.testing.assert_allclose(ours, expected, rtol=tolerance, atol=tolerance / 10)
