"""A step that went wrong runs again from a file, without its script (P050)."""

import json

import numpy as np
import pytest

import optkit as tf
from optkit.train.guard import anatomy
from optkit.train.nonfinite import explain, explained
from optkit.train.reproduction import load_reproduction
from optkit.train.tensor_file import read_arrays, write_arrays

F = np.float32


@pytest.fixture
def step(tmp_path):
    """A network with most kinds of attributes, and a step of it that is not finite."""
    x = tf.placeholder(tf.float32, [None, 4, 4, 1], name="x")
    y = tf.placeholder(tf.int32, [None], name="y")
    kernel = tf.get_variable("kernel", [3, 3, 1, 2])
    net = tf.nn.conv2d(x, kernel, [1, 1, 1, 1], "SAME")
    net = tf.nn.dropout(tf.reshape(net[:, ::2, :, :], [-1, 16]), 0.5)
    net = tf.concat([net, tf.py_func(lambda a: a * 2, [net], tf.float32)], 1)
    net.set_shape([None, 32])
    weights = tf.get_variable("weights", [32, 3])
    logits = tf.matmul(net, weights)
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
    ) + tf.reduce_mean(tf.log(x[:, 0, 0, 0], name="culprit"))
    train = tf.contrib.layers.optimize_loss(
        loss, tf.train.get_or_create_global_step(), 0.1, "Adam", clip_gradients=1.0
    )
    images = np.ones((3, 4, 4, 1), F)
    images[1, 0, 0, 0] = -1
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        found, path = explain(
            session,
            anatomy(train),
            {x: images, y: [0, 1, 2]},
            step=12,
            batch=lambda rows: f"batch 12 of the data, rows {rows}",
            folder=tmp_path / "run",
        )
    return found, path


@pytest.mark.host("the host's last bits are not the device's")
def test_the_file_gives_the_same_explanation(step):
    found, path = step
    assert path.name == "nonfinite-12.safetensors"
    assert found.origin.name == "culprit"
    again = load_reproduction(path)
    assert again.told == str(found) == str(again.report())
    assert again.differing == []
    assert again.failures == {}
    assert (again.step, again.batch) == (12, "batch 12 of the data, rows (1,)")
    assert again.path()[0].name == "culprit"


def test_it_holds_what_is_needed_and_no_more(step):
    _, path = step
    arrays, header = read_arrays(path)
    # Random numbers and functions of the user's are kept as values; Adam's slots are not needed.
    content = json.loads(header.metadata["reproduction"])
    kept = {node["name"] for node in content["nodes"] if node["attrs"] is None}
    assert {"x", "y", "kernel", "weights"} <= kept
    assert any("PyFunc" in name for name in kept)
    assert not any("Adam" in name for name in arrays)
    assert path.stat().st_size < 60_000


def test_the_error_says_what_to_do(step):
    found, path = step
    error = explained(found, path, "batch 12 of the data")
    assert isinstance(error, tf.errors.NanLossDuringTrainingError)
    assert error.report is found
    text = str(error)
    for part in (
        "LossTensor is inf or nan",
        "at step 12: the loss is nan",
        "'culprit' (Log), built at",
        "it was batch 12 of the data",
        "nothing has changed",
        f"optkit debug {path}",
    ):
        assert part in text


def test_a_value_that_changed_is_told(step):
    _, path = step
    arrays, header = read_arrays(path)
    arrays = {**arrays, "value/weights:0": arrays["value/weights:0"] * F(2)}
    metadata = {k: v for k, v in header.metadata.items() if k not in ("crc32c", "format")}
    write_arrays(path, arrays, metadata)
    assert load_reproduction(path).differing


@pytest.mark.parametrize(
    "change",
    [
        {"type": "PyFunc"},
        {"type": "NoSuchType"},
        {"type": "Assign"},
        {"attrs": {"message": 3}},
        {"inputs": ["missing:0"]},
    ],
)
def test_what_cannot_be_run_is_told_and_executes_nothing(step, change):
    _, path = step
    arrays, header = read_arrays(path)
    metadata = {k: v for k, v in header.metadata.items() if k not in ("crc32c", "format")}
    content = json.loads(metadata["reproduction"])
    node = next(node for node in content["nodes"] if node["name"] == "culprit")
    node |= change
    metadata["reproduction"] = json.dumps(content)
    write_arrays(path, arrays, metadata)
    assert "culprit" in load_reproduction(path).failures


def test_files_of_another_kind_are_refused(tmp_path, step):
    _, path = step
    with pytest.raises(FileNotFoundError):
        load_reproduction(tmp_path / "none")
    write_arrays(tmp_path / "a.safetensors", {"x": np.zeros(2)}, {})
    with pytest.raises(ValueError, match="expected a file that fit left behind"):
        load_reproduction(tmp_path / "a.safetensors")
    arrays, header = read_arrays(path)
    metadata = {k: v for k, v in header.metadata.items() if k not in ("crc32c", "format")}
    for name, value, message in (
        ("version", "99", "expected version 1, got '99'"),
        ("reproduction", "{}", "expected a file that fit left behind"),
        ("reproduction", "[]", "expected a file that fit left behind"),
        ("reproduction", '{"nodes": [{}]}', "expected a file that fit left behind"),
    ):
        write_arrays(tmp_path / "b.safetensors", arrays, {**metadata, name: value})
        with pytest.raises(ValueError, match=message):
            load_reproduction(tmp_path / "b.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="not what was written"):
        load_reproduction(path)


def test_a_file_that_cannot_be_written_costs_the_file_alone(tmp_path, caplog):
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    loss = tf.log(w - 1.0)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    (tmp_path / "file").write_text("in the way")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        parts = anatomy(train, loss)
        found, path = explain(
            session, parts, {}, step=None, batch=lambda _: "one batch", folder=tmp_path / "file"
        )
    assert path is None
    assert found.origin.type == "Log"
    assert "no file to run the step again" in caplog.text
    assert "optkit debug" not in str(explained(found, path, "the one batch"))
