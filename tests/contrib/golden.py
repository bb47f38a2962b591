"""What TensorFlow 2.21 gave for whole train ops: the cases, and how to build and compare them."""

import json
from pathlib import Path

import numpy as np
from tensorboard.compat.proto.summary_pb2 import Summary

import optkit as tf

DATA = json.loads(
    (Path(__file__).parents[1] / "golden" / "train_ops.json").read_text(encoding="utf-8")
)
MOMENTS = ("min", "max", "sum", "sum_squares")


def by_id(cases):
    """The cases as `pytest.mark.parametrize` takes them: (values, ids)."""
    return {"argvalues": cases, "ids": [case["id"] for case in cases]}


def numbers(value):
    """The data's numbers as an array; non-finite ones are strings there."""
    return np.asarray(value, np.float64)


def assert_close(actual, expected, what):
    """Within the tolerance that the data states; NaN equals NaN, infinities equal themselves."""
    expected, actual = numbers(expected), np.asarray(actual, np.float64)
    assert actual.shape == expected.shape, what
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite], err_msg=what)
    allowed = 2e-6 * np.maximum(1, np.abs(expected[finite]))
    difference = np.abs(actual[finite] - expected[finite])
    assert (difference <= allowed).all(), f"{what}: {actual} for {expected}"


def build_loss(problem):
    """The loss of a problem and its placeholders by name; the variables have the data's names."""
    data = DATA["problems"][problem]
    held = {
        name: tf.Variable(np.asarray(value, np.float32), name=name)
        for name, value in data["variables"].items()
    }
    known = {
        name: tf.constant(value, tf.float32) for name, value in data.get("constants", {}).items()
    }
    if problem == "abs_scalar":
        x = tf.placeholder(tf.float32, [], name="x")
        return tf.abs(held["test"] * x), {"x": x}
    if problem == "embedding":
        idx = tf.placeholder(tf.int32, [None], name="idx")
        return tf.reduce_sum(tf.square(tf.gather(held["emb"], idx))), {"idx": idx}
    if problem == "linreg":
        residual = tf.matmul(known["X"], held["w"]) + held["b"] - known["y"]
        return tf.reduce_mean(tf.square(residual)), {}
    w_part = 0.5 * tf.reduce_sum(tf.square(held["w"] - known["a"]))
    return w_part + 0.5 * tf.square(held["b"] - known["c"]), {}


def names(items):
    return [item.name for item in items]


def parse_summary(data):
    """The values of a serialized summary in order: (tag, kind, number or moments)."""
    parsed = []
    for value in Summary.FromString(data).value:
        if value.HasField("histo"):
            moments = {key: getattr(value.histo, key) for key in (*MOMENTS, "num")}
            parsed.append((value.tag, "histogram", moments))
        else:
            assert value.HasField("simple_value"), value
            parsed.append((value.tag, "scalar", value.simple_value))
    return parsed


def assert_same_summaries(data, expected):
    """Tags, kinds and values, in order; of histograms the moments, for the buckets are ours."""
    found = parse_summary(data) if data is not None else []
    assert [(tag, kind) for tag, kind, _ in found] == [(e["tag"], e["kind"]) for e in expected]
    for (tag, kind, value), entry in zip(found, expected, strict=True):
        if kind == "scalar":
            assert_close(value, entry["value"], tag)
        else:
            assert value["num"] == entry["value"]["num"], tag
            for moment in MOMENTS:
                assert_close(value[moment], entry["value"][moment], f"{moment} of {tag}")


def assert_steps(train_op, feeds, steps):
    """Run the train op with all summaries, and compare value, summaries and variables each time."""
    merged = tf.summary.merge_all()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for number, step in enumerate(steps):
            feed = {feeds[name]: _fed(value) for name, value in step["feed"].items()}
            fetches = {"value": train_op} | ({} if merged is None else {"summary": merged})
            got = sess.run(fetches, feed)
            assert_close(got["value"], step["train_op_value"], f"the loss of step {number}")
            assert_same_summaries(got.get("summary"), step["summaries"])
            held = {variable.op.name: variable for variable in tf.global_variables()}
            assert held.keys() == step["after"].keys()
            for name, value in step["after"].items():
                assert_close(sess.value(held[name]), value, f"{name} after step {number}")


def _fed(value):
    return float(value) if isinstance(value, str) else value
