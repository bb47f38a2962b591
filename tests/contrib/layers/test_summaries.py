"""Summaries of tensors, activations, collections; names observed with tf_slim 1.1 on TF 2.21."""

import numpy as np
import pytest

import optkit as tf
from optkit.contrib import layers
from tests.contrib.golden import parse_summary


def names(items):
    return [item.name for item in items]


def values(nodes):
    with tf.Session() as sess:
        return {tag: value for data in sess.run(nodes) for tag, _, value in parse_summary(data)}


def test_tensors():
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    s = tf.constant(1.0, name="s")
    found = [
        layers.summarize_tensor(x),
        layers.summarize_tensor(s),
        layers.summarize_tensor(x, tag="mine"),
    ]
    assert [(node.name, node.op.type) for node in found] == [
        ("x_summary:0", "HistogramSummary"),
        ("s_summary:0", "ScalarSummary"),
        ("mine:0", "HistogramSummary"),
    ]
    assert names(layers.summarize_tensors([x, s])) == ["x_summary_1:0", "s_summary_1:0"]
    with pytest.raises(ValueError, match=r"tensor: expected a known rank, got .*shape=<unknown>"):
        layers.summarize_tensor(tf.placeholder(tf.float32))


X = np.float32([[-1, 0, 7, 3]])


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (tf.nn.relu, {"a/zeros": 0.25}),
        (tf.nn.softplus, {"a/zeros": 0.25}),
        (tf.nn.relu6, {"a/zeros": 0.25, "a/sixes": 0.25}),
        (tf.nn.sigmoid, {}),
    ],
)
def test_activations(graph, function, expected):
    y = function(tf.constant(X), name="a")
    assert layers.summarize_activation(y).name == "a/activation:0"
    nodes = graph.get_collection(tf.GraphKeys.SUMMARIES)
    assert names(nodes) == [f"{tag}:0" for tag in (*expected, "a/activation")]
    found = values(nodes)
    assert found.pop("a/activation")["num"] == 4
    assert found == expected


def test_collections():
    with tf.variable_scope("m"):
        for name in ("weights", "biases"):
            tf.contrib.framework.model_variable(name, [2], collections=[name])
    a = tf.nn.relu(tf.constant(X), name="act")
    tf.add_to_collection(tf.GraphKeys.ACTIVATIONS, a)
    assert names(layers.summarize_collection("weights")) == ["m/weights_summary:0"]
    assert names(layers.summarize_variables()) == ["m/weights_summary_1:0", "m/biases_summary:0"]
    assert names(layers.summarize_variables("m/b")) == ["m/biases_summary_1:0"]
    assert layers.summarize_variables(name_filter="b") == []
    assert names(layers.summarize_weights()) == ["m/weights_summary_2:0"]
    assert names(layers.summarize_biases()) == ["m/biases_summary_2:0"]
    assert names(layers.summarize_activations()) == ["act/activation:0"]
    assert layers.summarize_collection("weights", summarizer=lambda v: v.op.name) == ["m/weights"]
