"""Merged summaries: made of what their parts are made of, with the parts' errors and conditions."""

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.summary_pb2 import Summary

import optkit as tf
from optkit import summary
from optkit.ops import summary_ops
from summaries.metadata import SummaryBytes
from summaries.quantities import quantity_metadata
from tests.contrib.golden import parse_summary
from tests.contrib.models import session


def fetched(*fetches, feed=None):
    with session() as sess:
        return sess.run(list(fetches), feed)


def tags(data):
    return [value.tag for value in Summary.FromString(data).value]


def several():
    x = tf.constant(np.array([1.0, 2.0, 2.5], np.float32))
    return [
        tf.summary.scalar("s", x[1]),
        tf.summary.histogram("h", x),
        tf.summary.text("t", tf.constant("text")),
        tf.summary.image("i", tf.zeros([1, 2, 2, 1])),
        tf.summary.scalar("count", tf.constant(7, tf.int64)),
        tf.summary.scalar("flag", tf.constant(True)),
    ]


def test_a_merged_summary_is_its_parts_joined():
    parts = several()
    merged = tf.summary.merge(parts)
    whole, *pieces = fetched(merged, *parts)
    assert isinstance(whole, bytes)
    assert whole == b"".join(pieces)
    assert tags(whole) == ["s", "h", "t", "i/image/0", "count", "flag"]


def test_a_merged_summary_takes_what_its_parts_take():
    parts = several()
    merged = tf.summary.merge(parts)
    assert merged.op.inputs[:2] == (parts[0].op.inputs[0], parts[1].op.inputs[0])
    assert parts[2] in merged.op.inputs  # text stays as it is


def test_merging_the_merged_joins_again():
    first = tf.summary.merge(several()[:2])
    second = tf.summary.merge([first, tf.summary.scalar("last", 3.0)])
    assert first not in second.op.inputs
    assert tags(fetched(second)[0]) == ["s", "h", "last"]


def test_what_must_run_before_a_part_runs_before_the_whole():
    count = tf.Variable(0, name="count")
    value = tf.constant(1.0)
    with tf.control_dependencies([tf.assign_add(count, 1)]):
        part = tf.summary.scalar("x", value)
    merged = tf.summary.merge([tf.summary.merge([part])])
    with session() as sess:
        sess.run(merged)
        assert sess.run(count) == 1


def test_a_part_inside_a_branch_is_merged_there():
    flag = tf.placeholder(tf.bool, [])

    def branch():
        return tf.summary.merge([tf.summary.scalar("inside", 1.0)])

    data = tf.cond(flag, branch, lambda: tf.constant(b""))
    merged = tf.summary.merge([data, tf.summary.scalar("outside", 2.0)])
    with session() as sess:
        assert [tag.split("/")[-1] for tag in tags(sess.run(merged, {flag: True}))] == [
            "inside",
            "outside",
        ]
        assert tags(sess.run(merged, {flag: False})) == ["outside"]


def test_a_bad_value_names_the_summary_and_its_line():
    x = tf.placeholder(tf.float32, None)
    bad = tf.summary.scalar("bad", x)
    merged = tf.summary.merge([tf.summary.scalar("good", 1.0), bad])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"'bad'.*scalar.*\(2,\)") as caught:
        fetched(merged, feed={x: [1.0, 2.0]})
    assert caught.value.op is bad.op
    assert "test_summary_ops.py" in str(caught.value)


@pytest.mark.parametrize("item", [1.0, tf.Graph], ids=["number", "class"])
def test_what_is_no_summary_cannot_be_merged(item):
    with pytest.raises(TypeError):
        tf.summary.merge([item])


def test_a_number_is_told_apart_by_its_place():
    with pytest.raises(TypeError, match=r"inputs\[1\]: expected a summary"):
        tf.summary.merge([tf.summary.scalar("a", 1.0), tf.constant(2.0)])


def test_eager_summaries_can_be_merged():
    with tf.eager():
        merged = tf.summary.merge([tf.summary.scalar("a", tf.constant(1.5))])
        assert parse_summary(bytes(merged.numpy())) == [("a", "scalar", 1.5)]


# -- conditions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("merged", [False, True])
def test_a_conditional_summary_is_empty_otherwise(merged, monkeypatch):
    flag = tf.placeholder(tf.bool, [])
    counted = []
    measure = summary_ops.measure
    monkeypatch.setattr(
        summary_ops, "measure", lambda *a, **k: counted.append(a) or measure(*a, **k)
    )
    with summary.written_when(flag):
        part = tf.summary.histogram("h", tf.constant([1.0, 2.0]))
        tf.summary.scalar("s", 1.0)
    fetch = tf.summary.merge_all() if merged else tf.get_collection(tf.GraphKeys.SUMMARIES)[0]
    with session() as sess:
        assert sess.run(fetch, {flag: False}) == b""
        if merged:
            assert not counted, "what is not written is not counted"
        assert tags(sess.run(fetch, {flag: True})) == (["h", "s"] if merged else ["h"])
    assert part.graph is flag.graph


# -- norms ----------------------------------------------------------------------------------------


def test_a_norm_comes_from_its_own_histogram_alone():
    """Only where it follows it: there the norm that was passed is not computed."""
    note = quantity_metadata("gradients", "w")
    a = summary.tagged_histogram("a", tf.constant([3.0, 4.0]), metadata=note)
    b = summary.tagged_histogram("b", tf.constant([1.0, 0.0]))
    passed = tf.constant(7.0)
    norm = summary.tagged_scalar("norm", passed, note, norm_of=a)
    together, apart, alone = (tf.summary.merge(part) for part in ([a, norm], [a, b, norm], [norm]))
    assert passed not in together.op.inputs
    seen = [parse_summary(data) for data in fetched(together, apart, alone)]
    assert [values[-1][::2] for values in seen] == [("norm", 5.0), ("norm", 7.0), ("norm", 7.0)]
    again = tf.summary.merge([together, b])
    assert [tag for tag, _, _ in parse_summary(fetched(again)[0])] == ["a", "norm", "b"]


@pytest.mark.parametrize("same", [True, False])
def test_a_norm_needs_the_condition_of_its_histogram(same):
    one, other = tf.placeholder(tf.bool, []), tf.placeholder(tf.bool, [])
    with summary.written_when(one):
        histogram = summary.tagged_histogram("h", tf.constant([3.0, 4.0]))
    with summary.written_when(one if same else other):
        summary.tagged_scalar("norm", 7.0, norm_of=histogram)
    data = fetched(tf.summary.merge_all(), feed={one: True, other: False})[0]
    assert tags(data) == (["h", "norm"] if same else ["h"])


# -- notes ----------------------------------------------------------------------------------------


def test_notes_of_the_parts_are_those_of_the_whole():
    note = quantity_metadata("loss")
    parts = [summary.tagged_scalar("loss", 1.0, note), tf.summary.scalar("mine", 2.0)]
    one, whole, plain = fetched(parts[0], tf.summary.merge(parts), parts[1])
    assert isinstance(one, SummaryBytes)
    assert whole.notes.metadata == {"loss": note}
    assert whole.notes.layout
    assert type(plain) is bytes


def events(folder):
    """The events with summaries of each file, oldest file first."""
    return [
        [event for event in LegacyEventFileLoader(str(file)).Load() if event.HasField("summary")]
        for file in sorted(folder.iterdir())
    ]


@pytest.mark.parametrize("layout", [True, False])
def test_a_file_has_notes_once(tmp_path, layout):
    w = tf.Variable([1.0, 2.0], name="w")
    train_op = tf.contrib.layers.optimize_loss(
        tf.reduce_sum(w * w), None, 0.1, "SGD", summaries=tf.contrib.layers.OPTIMIZER_SUMMARIES
    )
    merged = tf.summary.merge_all()
    with tf.summary.FileWriter(tmp_path, layout=layout) as writer, session() as sess:
        for step in range(3):
            writer.add_summary(sess.run([train_op, merged])[1], step)
    ((first, *others),) = events(tmp_path)
    described = {v.tag: v.metadata for v in first.summary.value if v.HasField("metadata")}
    assert ("custom_scalars__config__" in described) == layout
    described.pop("custom_scalars__config__", None)
    quantities = ["loss", "learning_rate", "global_norm/gradient_norm"]
    quantities += ["gradients/w_0", "gradient_norm/w_0"]
    assert set(described) == {f"OptimizeLoss/{quantity}" for quantity in quantities}
    assert described["OptimizeLoss/gradient_norm/w_0"].display_name == "gradient norm of w"
    assert described["OptimizeLoss/gradients/w_0"].plugin_data.plugin_name == "histograms"
    assert not any(v.HasField("metadata") for e in others for v in e.summary.value)
    assert [e.step for e in others] == [1, 2]


def test_a_reopened_writer_describes_again(tmp_path):
    part = summary.tagged_scalar("loss", 1.0, quantity_metadata("loss"))
    (data,) = fetched(part)
    writer = tf.summary.FileWriter(tmp_path)
    writer.add_summary(data, 1)
    writer.close()
    writer.reopen()
    writer.add_summary(data, 2)
    writer.close()
    for found in events(tmp_path):
        assert found[0].summary.value[-1].metadata.display_name == "loss"
    assert len(events(tmp_path)) == 2
