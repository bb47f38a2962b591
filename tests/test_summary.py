"""tf.summary: nodes whose value is a serialised Summary, and the writer of event files."""

import inspect
import io
import shutil
import warnings

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.util.tensor_util import make_ndarray

import optkit as tf
from summaries._warn import forget_warnings


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


def fetched(node, feed=None):
    """The values of a node's summary."""
    with tf.Session() as sess:
        data = sess.run(node, feed)
    assert type(data) is bytes
    return list(Summary.FromString(data).value)


def tag(node, feed=None):
    (value,) = fetched(node, feed)
    return value.tag


# -- tags -----------------------------------------------------------------------------------------


def test_a_tag_is_the_name_in_its_scope(graph):
    assert tag(tf.summary.scalar("a", 1.0)) == "a"
    with tf.name_scope("outer"), tf.variable_scope("inner"):
        node = tf.summary.scalar("b/c", 1.0)
    assert tag(node) == "outer/inner/b/c"
    assert node.op.name == "outer/inner/b/c"


def test_tags_are_made_unique(graph):
    nodes = [tf.summary.scalar("a", 1.0) for _ in range(3)]
    assert [tag(node) for node in nodes] == ["a", "a_1", "a_2"]
    assert tag(tf.summary.histogram("a", [1.0])) == "a_3"


@pytest.mark.parametrize(
    ("name", "clean"),
    [("a b (c)%", "a_b__c__"), ("/lead", "lead"), ("x:0", "x_0"), ("a-b.c/d_e", "a-b.c/d_e")],
)
def test_names_are_cleaned(graph, name, clean):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        node = tf.summary.scalar(name, 1.0)
    assert tag(node) == clean


def test_a_colon_is_cleaned_without_a_word(graph, caplog):
    node = tf.summary.histogram("w:0", [1.0])
    assert tag(node) == "w_0"
    assert [record for record in caplog.records if "w:0" in record.getMessage()] == []


def test_a_family_is_in_front_and_in_the_scope(graph):
    assert tag(tf.summary.scalar("a", 1.0, family="f")) == "f/f/a"
    with tf.name_scope("outer"):
        assert tag(tf.summary.scalar("a", 1.0, family="f")) == "f/outer/f/a"
        assert tag(tf.summary.histogram("h", [1.0], family="f")) == "f/outer/f/h"


@pytest.mark.parametrize(
    "build",
    [
        lambda name: tf.summary.scalar(name, 1.0),
        lambda name: tf.summary.histogram(name, [1.0]),
        lambda name: tf.summary.text(name, "x"),
        lambda name: tf.summary.image(name, np.zeros((1, 1, 1, 1), np.float32)),
    ],
    ids=["scalar", "histogram", "text", "image"],
)
def test_bad_names_are_refused_without_a_trace(graph, build):
    with pytest.raises(TypeError, match=r"name.*3"):
        build(3)
    for empty in ("", "///"):
        with pytest.raises(ValueError, match="tag"):
            build(empty)
    assert graph.get_operations() == []
    assert graph.get_all_collection_keys() == []


# -- collections ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        lambda **given: tf.summary.scalar("a", 1.0, **given),
        lambda **given: tf.summary.histogram("a", [1.0], **given),
        lambda **given: tf.summary.text("a", "x", **given),
        lambda **given: tf.summary.image("a", np.zeros((1, 1, 1, 1), np.float32), **given),
    ],
    ids=["scalar", "histogram", "text", "image"],
)
def test_collections(graph, build):
    default = build()
    mine = build(collections=["mine"])
    both = build(collections=["mine", tf.GraphKeys.SUMMARIES])
    none = build(collections=[])
    assert tf.get_collection(tf.GraphKeys.SUMMARIES) == [default, both]
    assert tf.get_collection("mine") == [mine, both]
    assert none.dtype == tf.string
    assert none.shape == []


# -- scalar ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1.5, 1.5),
        (3, 3.0),
        (np.int64(202), 202.0),
        (np.uint8(7), 7.0),
        (np.float64(0.1), np.float32(0.1)),
        (np.float16(0.5), 0.5),
        (True, 1.0),
    ],
    ids=repr,
)
def test_scalars_of_every_kind(graph, value, written):
    (found,) = fetched(tf.summary.scalar("a", value))
    assert found.simple_value == written


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_scalars_that_are_not_finite_are_written_as_they_are(graph, value):
    (found,) = fetched(tf.summary.scalar("a", value))
    np.testing.assert_array_equal(found.simple_value, value)


def test_a_variable_is_a_scalar(graph):
    variable = tf.Variable(2.5, name="v")
    node = tf.summary.scalar("a", variable)
    with tf.Session() as sess:
        sess.run(variable.initializer)
        (value,) = Summary.FromString(sess.run(node)).value
    assert value.simple_value == 2.5


@pytest.mark.parametrize("value", [[1.0], [[1.0]], np.zeros(0)], ids=str)
def test_what_is_no_scalar_is_refused_when_built(graph, value):
    with pytest.raises(ValueError, match=r"'a'.*tensor.*scalar"):
        tf.summary.scalar("a", value)
    assert graph.get_operations() == []


def test_what_turns_out_to_be_no_scalar_is_refused_when_run(graph):
    x = tf.placeholder(tf.float32)
    node = tf.summary.scalar("a", x)
    assert tag(node, {x: 1.0}) == "a"
    with pytest.raises(tf.errors.InvalidArgumentError, match="'a'"):
        fetched(node, {x: [1.0]})


def test_text_is_no_scalar(graph):
    with pytest.raises(TypeError, match="string"):
        tf.summary.scalar("a", "text")


# -- histogram ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64", "uint8"])
def test_histograms_of_every_dtype(graph, dtype):
    (value,) = fetched(tf.summary.histogram("h", np.array([[1, 2], [3, 0]], dtype)))
    histogram = value.histo
    assert (histogram.num, histogram.min, histogram.max) == (4, 0, 3)
    assert (histogram.sum, histogram.sum_squares) == (6, 14)
    assert sum(histogram.bucket) == 4
    assert len(histogram.bucket) == len(histogram.bucket_limit)


def test_what_is_not_finite_is_counted_apart(graph):
    node = tf.summary.histogram("h", np.float32([1, np.nan, 2, np.inf]))
    with pytest.warns(RuntimeWarning, match="h_nonfinite"):
        histogram, count = fetched(node)
    assert (histogram.tag, histogram.histo.num, histogram.histo.sum) == ("h", 2, 3.0)
    assert (count.tag, count.simple_value) == ("h_nonfinite", 2.0)


# -- text and image -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["*one*", [["a", "b"], ["c", "d"]], np.array(["x", "y"])],
    ids=["lone", "table", "array"],
)
def test_texts(graph, text):
    (value,) = fetched(tf.summary.text("t", text))
    assert value.tag == "t"
    assert value.metadata.plugin_data.plugin_name == "text"
    expected = np.vectorize(lambda item: item.encode(), otypes=[object])(np.asarray(text, object))
    np.testing.assert_array_equal(make_ndarray(value.tensor), expected)


def test_numbers_are_no_text(graph):
    with pytest.raises(TypeError, match="float32"):
        tf.summary.text("t", 1.0)
    assert graph.get_operations() == []


@pytest.mark.parametrize(
    ("batch", "limit", "tags"),
    [
        (1, 1, ["i/image"]),
        (5, 1, ["i/image"]),
        (5, 3, ["i/image/0", "i/image/1", "i/image/2"]),
        (2, 3, ["i/image/0", "i/image/1"]),
    ],
)
def test_images_of_a_batch(graph, batch, limit, tags):
    pixels = np.full((batch, 4, 3, 3), 255, np.uint8)
    values = fetched(tf.summary.image("i", pixels, max_outputs=limit))
    assert [value.tag for value in values] == tags
    assert {(value.image.height, value.image.width) for value in values} == {(4, 3)}
    assert values[0].image.encoded_image_string.startswith(b"\x89PNG")


# Values: TensorFlow 2.21.
@pytest.mark.parametrize(
    ("pixels", "shown"),
    [
        ([0.0, 0.25, 0.5, 1.0], [0, 63, 127, 255]),
        ([0.3, 0.6, 0.7, 0.9], [85, 170, 198, 255]),
        ([0.0, 100.0, 200.0, 255.0], [0, 100, 200, 255]),
        ([-1.0, -0.5, 0.0, 1.0], [1, 64, 128, 255]),
        ([-4.0, 1.0, 2.0, 2.0], [1, 159, 191, 191]),
        ([0.0, 0.0, 0.0, 0.0], [0, 0, 0, 0]),
        ([-1e-7, 0.0, 0.0, 1e-7], [128, 128, 128, 128]),
        ([np.nan, 0.5, 1.0, np.inf], [255, 127, 255, 255]),
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("channels", [1, 3])
def test_floats_are_scaled_image_by_image(graph, pixels, shown, dtype, channels):
    image = np.array(pixels).reshape(2, 2, 1).repeat(channels, -1)
    # The other image has a scale of its own.
    batch = np.stack([np.full_like(image, 500.0), image]).astype(dtype)
    _, value = fetched(tf.summary.image("i", batch))
    expected = np.array(shown).reshape(2, 2, 1).repeat(channels, -1)
    expected[~np.isfinite(image).all(-1)] = [255, 0, 0][:channels]
    found = np.array(Image.open(io.BytesIO(value.image.encoded_image_string)))
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)


@pytest.mark.parametrize("shape", [(4,), (1, 2, 2, 5), (1, 0, 2, 3)])
def test_what_turns_out_to_be_no_image_is_told(graph, shape):
    pixels = tf.placeholder(tf.float32)
    node = tf.summary.image("i", pixels)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"'i/?.*' takes .*channels"):
        fetched(node, {pixels: np.ones(shape)})


@pytest.mark.parametrize("shape", [(4, 3, 3), (4, 3), ()])
def test_images_have_four_axes(graph, shape):
    with pytest.raises(ValueError, match=r"'i'.*tensor"):
        tf.summary.image("i", np.zeros(shape, np.float32))
    with pytest.raises(ValueError, match=r"max_outputs.*0"):
        tf.summary.image("i", np.zeros((1, 1, 1, 1), np.float32), max_outputs=0)
    assert graph.get_operations() == []


# -- merge, merge_all -----------------------------------------------------------------------------


def test_merge_keeps_the_order(graph):
    a, b = tf.summary.scalar("a", 1.0), tf.summary.histogram("b", [1.0])
    assert [value.tag for value in fetched(tf.summary.merge([b, a]))] == ["b", "a"]


def test_merge_is_in_no_collection_unless_asked_for(graph):
    a = tf.summary.scalar("a", 1.0)
    tf.summary.merge([a])
    assert tf.get_collection(tf.GraphKeys.SUMMARIES) == [a]
    merged = tf.summary.merge([a], collections=["mine"], name="together")
    assert tf.get_collection("mine") == [merged]
    assert merged.op.name == "together"


def test_merge_needs_summaries(graph):
    with pytest.raises(ValueError, match="inputs"):
        tf.summary.merge([])
    with pytest.raises(TypeError, match="float32"):
        tf.summary.merge([tf.constant(1.0)])


def test_merge_all_is_none_when_there_is_none(graph):
    assert tf.summary.merge_all() is None
    tf.summary.scalar("a", 1.0, collections=["mine"])
    assert tf.summary.merge_all() is None
    assert [value.tag for value in fetched(tf.summary.merge_all("mine"))] == ["a"]


def test_merge_all_takes_those_of_a_scope(graph):
    for scope in ("train", "test"):
        with tf.name_scope(scope):
            tf.summary.scalar("a", 1.0)
    assert [value.tag for value in fetched(tf.summary.merge_all())] == ["train/a", "test/a"]
    assert [value.tag for value in fetched(tf.summary.merge_all(scope="test"))] == ["test/a"]


def test_p054_merge_all_is_a_snapshot(graph):
    tf.summary.scalar("early", 1.0)
    merged = tf.summary.merge_all()
    tf.summary.scalar("late", 1.0)
    assert [value.tag for value in fetched(merged)] == ["early"]


def test_summaries_have_no_gradient(graph):
    x = tf.Variable(1.0, name="x")
    tf.summary.scalar("x", x)
    (gradient,) = tf.gradients(tf.square(x), [x])
    with tf.Session() as sess:
        sess.run(x.initializer)
        assert sess.run(gradient) == 2.0


# -- FileWriter -----------------------------------------------------------------------------------


def test_what_was_fetched_is_read_by_tensorboard(graph, tmp_path, load):
    x = tf.placeholder(tf.float32, [])
    tf.summary.scalar("x", x)
    tf.summary.histogram("h", tf.stack([x, x + 1.0]))
    merged = tf.summary.merge_all()
    with tf.Session() as sess, tf.summary.FileWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_summary(sess.run(merged, {x: step / 2}), step * 10)
    events = load(tmp_path)
    assert [(e.step, e.value) for e in events.Scalars("x")] == [(0, 0.0), (10, 0.5), (20, 1.0)]
    assert [e.histogram_value.sum for e in events.Histograms("h")] == [1.0, 2.0, 3.0]


def test_steps_of_every_kind_and_messages(graph, tmp_path, load):
    summary = Summary(value=[Summary.Value(tag="m", simple_value=2.0)])
    writer = tf.summary.FileWriter(str(tmp_path))
    for step in (np.int64(4), 5, np.array(6)):
        writer.add_summary(summary, global_step=step)
    writer.close()
    assert [e.step for e in load(tmp_path).Scalars("m")] == [4, 5, 6]


def test_flush_is_a_barrier(graph, tmp_path, load):
    node = tf.summary.scalar("a", 1.0)
    writer = tf.summary.FileWriter(tmp_path)
    with tf.Session() as sess:
        writer.add_summary(sess.run(node), 1)
    writer.flush()
    assert len(load(tmp_path).Scalars("a")) == 1
    writer.close()


def test_events_may_wait_as_long_as_was_asked_for(graph, tmp_path, load):
    node = tf.summary.scalar("a", 1.0)
    with tf.summary.FileWriter(tmp_path, flush_secs=3600) as writer, tf.Session() as sess:
        for step in range(5):
            writer.add_summary(sess.run(node), step)
        waiting = sum(file.stat().st_size for file in tmp_path.iterdir())
        writer.flush()
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) > waiting
        assert len(load(tmp_path).Scalars("a")) == 5


def test_a_writer_can_be_opened_again(graph, tmp_path, load):
    node = tf.summary.scalar("a", 1.0)
    writer = tf.summary.FileWriter(tmp_path)
    with tf.Session() as sess:
        data = sess.run(node)
    writer.add_summary(data, 1)
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.add_summary(data, 2)
    for _ in range(2):  # the second time it is open already
        writer.reopen()
    writer.add_summary(data, 3)
    writer.close()
    assert len(list(tmp_path.iterdir())) == 2
    # TensorBoard's accumulator follows the files of a directory in the order of their names.
    assert [e.step for e in load(tmp_path).Scalars("a")] == [1, 3]


def test_the_graph_is_written(graph, tmp_path, load):
    w = tf.Variable([1.0, 2.0], name="w")
    with tf.name_scope("model"):
        loss = tf.reduce_sum(tf.square(w), name="loss")
    train_op = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    with tf.summary.FileWriter(tmp_path, graph):
        pass
    written = load(tmp_path).Graph()
    assert isinstance(written, GraphDef)
    nodes = {node.name: node for node in written.node}
    assert nodes.keys() == {op.name for op in graph.get_operations()}
    assert nodes["model/loss"].op == loss.op.type
    assert train_op.name in nodes
    for node in written.node:
        for name in node.input:
            assert name.lstrip("^").partition(":")[0] in nodes
    ends = [name for node in written.node for name in node.input]
    assert any(name.startswith("^") for name in ends)
    assert "w" in nodes[w.initializer.name].input


def test_a_graph_can_be_added_later_or_with_the_session(graph, tmp_path, load):
    tf.constant(1.0, name="one")
    with tf.summary.FileWriter(tmp_path / "later") as writer:
        writer.add_graph(graph, global_step=7)
    with tf.Session() as sess, tf.summary.FileWriter(tmp_path / "session", session=sess):
        pass
    (file,) = (tmp_path / "later").iterdir()
    events = list(LegacyEventFileLoader(str(file)).Load())
    assert [event.step for event in events if event.HasField("graph_def")] == [7]
    for name in ("later", "session"):
        assert [node.name for node in load(tmp_path / name).Graph().node] == ["one"]
    with (
        pytest.raises(TypeError, match=r"graph.*3"),
        tf.summary.FileWriter(tmp_path / "bad") as bad,
    ):
        bad.add_graph(3)


def test_the_directory_and_the_suffix(graph, tmp_path):
    logdir = tmp_path / "deep" / "down"
    with tf.summary.FileWriter(logdir, filename_suffix=".mine") as writer, tf.Session() as sess:
        assert writer.get_logdir() == str(logdir)
        writer.add_summary(sess.run(tf.summary.scalar("a", 1.0)), 1)
    (file,) = logdir.iterdir()
    assert file.name.startswith("events.out.tfevents.")
    assert file.name.endswith(".mine")


@pytest.mark.parametrize("bad", [1.0, "text", None, [b""]], ids=repr)
def test_what_is_no_summary_is_refused(graph, tmp_path, bad):
    with tf.summary.FileWriter(tmp_path) as writer, pytest.raises(TypeError, match="summary"):
        writer.add_summary(bad, 1)
    assert list(tmp_path.iterdir()) == []


def test_bad_steps_are_refused(graph, tmp_path):
    with tf.Session() as sess, tf.summary.FileWriter(tmp_path) as writer:
        data = sess.run(tf.summary.scalar("a", 1.0))
        for bad in (-1, 5.7, 2**63):
            with pytest.raises(ValueError, match="step"):
                writer.add_summary(data, bad)


def test_summaries_made_by_hand(graph, tmp_path, load):
    with tf.Session() as sess, tf.summary.FileWriter(tmp_path) as writer:
        made = tf.Summary(value=[tf.Summary.Value(tag="by/hand", simple_value=0.5)])
        writer.add_summary(made, 1)
        more = tf.Summary()
        more.ParseFromString(sess.run(tf.summary.scalar("loss", 2.0)))
        more.value.add(tag="precision", simple_value=0.25)
        counts = tf.HistogramProto(min=0, max=2, num=3, sum=3, sum_squares=5)
        counts.bucket_limit.extend([1, 2])
        counts.bucket.extend([1, 2])
        more.value.add(tag="counts", histo=counts)
        writer.add_summary(more, global_step=2)
        writer.add_run_metadata(tf.RunMetadata(), "step2", 2)
    seen = load(tmp_path)
    assert {
        tag: (e.step, e.value) for tag in seen.Tags()["scalars"] for e in seen.Scalars(tag)
    } == {
        "by/hand": (1, 0.5),
        "loss": (2, 2.0),
        "precision": (2, 0.25),
    }
    (event,) = seen.Histograms("counts")
    assert (event.step, event.histogram_value.bucket) == (2, [1, 2])


def test_one_writer_a_directory_from_the_cache(graph, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    cache = tf.summary.FileWriterCache
    first = cache.get(tmp_path)
    assert cache.get(f"~/{tmp_path.name}") is first
    assert cache.get(str(tmp_path)) is first
    monkeypatch.chdir(tmp_path.parent)
    assert cache.get(tmp_path.name) is first
    assert cache.get(tmp_path / "other") is not first
    cache.clear()
    again = cache.get(tmp_path)
    assert again is not first
    cache.clear()


def test_a_deleted_directory_is_no_reason_to_fail(graph, tmp_path):
    """A checkpoint flushes all writers of the process, whoever made them."""
    writer = tf.summary.FileWriterCache.get(tmp_path / "run")
    with tf.Session() as sess:
        writer.add_summary(sess.run(tf.summary.scalar("a", 1.0)), 1)
    writer.flush()
    shutil.rmtree(tmp_path / "run")
    tf.summary.FileWriterCache.flush(durable=True)
    tf.summary.FileWriterCache.clear()


# -- signatures -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("scalar", ["name", "tensor", "collections", "family"]),
        ("histogram", ["name", "values", "collections", "family"]),
        ("image", ["name", "tensor", "max_outputs", "collections", "family"]),
        ("text", ["name", "tensor", "collections"]),
        ("merge", ["inputs", "collections", "name"]),
        ("merge_all", ["key", "scope", "name"]),
        (
            "FileWriter",
            [
                "logdir",
                "graph",
                "max_queue",
                "flush_secs",
                "graph_def",
                "filename_suffix",
                "session",
                "layout",  # ours, by keyword only
            ],
        ),
    ],
)
def test_the_signatures_are_tensorflows(name, parameters):
    assert list(inspect.signature(getattr(tf.summary, name)).parameters) == parameters


def test_repr_of_a_writer_tells_its_directory(tmp_path):
    with tf.summary.FileWriter(tmp_path) as writer:
        assert repr(writer) == f"<optkit.summary.FileWriter {str(tmp_path)!r}>"
