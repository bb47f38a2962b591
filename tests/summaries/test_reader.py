import math
import re

import numpy as np
import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.util.tensor_util import make_tensor_proto

from summaries import (
    EventLog,
    OptimizerSummaries,
    encode_histogram,
    encode_image,
    encode_scalar,
    encode_text,
    read,
)
from summaries.histogram import measure
from summaries.records import frame


@pytest.fixture
def ten(tmp_path):
    with EventLog(tmp_path) as log:
        for step in range(10):
            log.add_summary(encode_scalar("loss", step / 2), step, wall_time=100 + step)
    return log.path


def test_records_of_every_kind_come_back(tmp_path):
    array = np.random.default_rng(0).normal(size=50)
    image = np.zeros((2, 3, 3), np.uint8)
    with EventLog(tmp_path) as log:
        log.add_summary(encode_scalar("s", 0.5) + encode_histogram("h", array), 3, wall_time=9.5)
        log.add_summary(encode_image("i", image) + encode_text("t", "größer"), 4)
        log.add_summary(encode_text("table", [["a", "b"]]))
    scalar, histogram, picture, text, table = read(tmp_path)
    assert scalar == ("s", 3, 9.5, "scalar", 0.5)
    assert (histogram.tag, histogram.step, histogram.kind) == ("h", 3, "histogram")
    expected = measure(array)
    for name in ("min", "max", "num", "sum", "sum_squares"):
        assert getattr(histogram.value, name) == getattr(expected, name)
    np.testing.assert_array_equal(histogram.value.limits, expected.limits)
    np.testing.assert_array_equal(histogram.value.counts, expected.counts)
    assert (picture.tag, picture.kind) == ("i/image", "image")
    assert (picture.value.height, picture.value.width, picture.value.channels) == (2, 3, 3)
    assert picture.value.data.startswith(b"\x89PNG")
    assert (text.kind, text.value, text.step) == ("text", "größer", 4)
    assert type(text.value) is str
    assert (table.kind, table.value.tolist()) == ("text", [["a", "b"]])
    assert read(tmp_path).tags() == {
        "s": "scalar",
        "h": "histogram",
        "i/image": "image",
        "t": "text",
        "table": "text",
    }


def test_scalars_are_columns(ten):
    columns = read(ten).scalars("loss")
    assert [column.dtype for column in columns] == [np.int64, np.float64, np.float64]
    np.testing.assert_array_equal(columns.steps, np.arange(10))
    np.testing.assert_array_equal(columns.values, np.arange(10) / 2)
    np.testing.assert_array_equal(columns.wall_times, np.arange(100, 110))


def test_p091_what_is_not_finite_comes_back(tmp_path):
    with EventLog(tmp_path) as log:
        for value in (1, math.nan, math.inf, 2):
            log.add_summary(encode_scalar("x", value))
    np.testing.assert_array_equal(read(tmp_path).scalars("x").values, [1, math.nan, math.inf, 2])


def test_an_unknown_tag_is_named(ten):
    with pytest.raises(KeyError, match="no scalar has the tag 'accuracy'"):
        read(ten).scalars("accuracy")


def test_p098_a_cut_record_is_left_out_and_told(ten):
    ten.write_bytes(ten.read_bytes()[:-7])
    events = read(ten)
    assert events.truncated
    assert len(list(events)) == 9
    assert list(events.scalars("loss").steps) == list(range(9))
    ((path, reason),) = events.damage.items()
    assert path == ten
    assert reason.startswith("the last record is cut off, at byte ")


def test_a_whole_file_is_not_truncated(ten):
    events = read(ten)
    assert not events.truncated
    assert events.damage == {}


def test_p098_damage_is_that_of_the_last_reading(ten):
    whole = ten.read_bytes()
    ten.write_bytes(whole[:-1])
    events = read(ten)
    assert events.truncated
    ten.write_bytes(whole)
    assert len(list(events)) == 10
    assert not events.truncated


def test_p098_a_flipped_bit_costs_one_record_and_is_told(ten):
    data = bytearray(ten.read_bytes())
    data[len(data) // 2] ^= 0x10
    ten.write_bytes(data)
    with EventLog(ten.parent) as log:
        log.add_summary(encode_scalar("loss", 99), 99)
    events = read(ten.parent)
    with pytest.warns(RuntimeWarning, match=f"{ten} is damaged: a record's .* sound is read"):
        steps = list(events.scalars("loss").steps)
    assert steps[0] == 0
    assert steps[-2:] == [9, 99]
    assert len(steps) == len(list(events)) == 10
    assert list(events.damage) == [ten]
    assert "does not match its checksum, at byte " in events.damage[ten]
    assert not events.truncated


def test_several_damages_are_counted(ten):
    data = bytearray(ten.read_bytes())
    data[len(data) // 3] ^= 1
    data[2 * len(data) // 3] ^= 1
    ten.write_bytes(data[:-1])
    events = read(ten)
    with pytest.warns(RuntimeWarning, match="and 2 more; what is sound is read"):
        assert len(events.scalars("loss").steps) == 7
    assert events.damage[ten].endswith(", and 2 more")
    assert events.truncated


def test_a_record_that_is_no_event_is_damage(ten):
    size = ten.stat().st_size
    ten.write_bytes(ten.read_bytes() + frame(b"\xff\xff\xff") + ten.read_bytes())
    events = read(ten)
    with pytest.warns(RuntimeWarning, match="a record is not an event") as caught:
        assert len(list(events)) == len(events.scalars("loss").steps) == 20
    assert len(caught) == 1
    assert events.damage == {ten: f"a record is not an event, at byte {size}"}
    assert read(ten).tags() == {"loss": "scalar"}


def test_p076_what_a_resumed_run_repeats_is_left_out_of_the_columns(tmp_path):
    with EventLog(tmp_path) as log:
        for step in range(6):
            log.add_summary(encode_scalar("a", step), step)
    with EventLog(tmp_path, start_step=3) as log:
        log.add_summary(encode_scalar("a", 103), 3)
    steps, values, _ = read(tmp_path).scalars("a")
    assert list(zip(steps, values, strict=True)) == [(0, 0), (1, 1), (2, 2), (3, 103)]
    assert len(list(read(tmp_path))) == 7


def test_a_tag_that_a_resumed_run_emptied_has_empty_columns(ten):
    with EventLog(ten.parent, start_step=0) as log:
        log.add_summary(encode_scalar("other", 1))
    assert [column.size for column in read(ten.parent).scalars("loss")] == [0, 0, 0]


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (np.float32(0.25), "scalar"),
        (np.float64(0.1), "scalar"),
        (np.int64(2**40), "scalar"),
        (np.arange(6, dtype=np.float64).reshape(2, 3), "tensor"),
        (np.full((2, 2), 7, np.int32), "tensor"),
        (np.array([True, False]), "tensor"),
    ],
)
def test_tensors_of_other_writers_come_back(tmp_path, array, kind):
    value = Summary.Value(tag="x", tensor=make_tensor_proto(array))
    event = Event(step=1, wall_time=2, summary=Summary(value=[value]))
    path = tmp_path / "events.out.tfevents.1.other"
    path.write_bytes(frame(event.SerializeToString()))
    (record,) = read(path)
    assert record.kind == kind
    np.testing.assert_array_equal(record.value, array)


def test_a_tensor_of_equal_numbers_may_be_stored_as_one(tmp_path):
    value = Summary.Value(tag="x", tensor=make_tensor_proto(np.float32([5]), shape=[4]))
    value.tensor.float_val[:] = [5]
    event = Event(summary=Summary(value=[value]))
    path = tmp_path / "events.out.tfevents.1.other"
    path.write_bytes(frame(event.SerializeToString()))
    (record,) = read(path)
    assert record.value.tolist() == [5, 5, 5, 5]


def test_histograms_of_tensorflow_2_come_back(tmp_path):
    rows = [[-1, 0, 0], [0, 1, 2], [1, 3, 1], [3, 4, 0]]
    values = []
    for tag, table in (("h", rows), ("empty", np.zeros((0, 3)))):
        value = Summary.Value(tag=tag, tensor=make_tensor_proto(np.array(table, np.float64)))
        value.metadata.plugin_data.plugin_name = "histograms"
        values.append(value)
    path = tmp_path / "events.out.tfevents.1.other"
    path.write_bytes(frame(Event(summary=Summary(value=values)).SerializeToString()))
    (first, empty) = read(path)
    found = first.value
    assert first.kind == empty.kind == "histogram"
    assert (found.num, found.min, found.max) == (3, 0, 3)
    assert list(found.limits) == [0, 1, 3, 4]
    assert list(found.counts) == [0, 2, 1, 0]
    assert (found.sum, found.sum_squares) == (2 * 0.5 + 2, 2 * 0.25 + 4)
    assert empty.value.num == 0
    assert read(path).histograms("h").values[0].num == 3


def test_other_strings_stay_bytes(tmp_path):
    value = Summary.Value(tag="x", tensor=make_tensor_proto([b"\xff\x00", b"b"]))
    path = tmp_path / "events.out.tfevents.1.other"
    path.write_bytes(frame(Event(summary=Summary(value=[value])).SerializeToString()))
    (record,) = read(path)
    assert (record.kind, record.value.tolist()) == ("tensor", [b"\xff\x00", b"b"])


@pytest.mark.parametrize(
    "value", [{"audio": Summary.Audio()}, {"tensor": make_tensor_proto(np.ones(2, complex))}]
)
def test_kinds_that_are_not_known_are_passed_over(tmp_path, value):
    values = [Summary.Value(tag="x", **value), Summary.Value(tag="y", simple_value=1)]
    path = tmp_path / "events.out.tfevents.1.other"
    path.write_bytes(frame(Event(summary=Summary(value=values)).SerializeToString()))
    assert read(path).tags() == {"y": "scalar"}
    assert list(read(path).scalars("y").values) == [1]


def tensor(**fields):
    value = Summary.Value(tag="x")
    for name, content in fields.items():
        if name == "shape":
            value.tensor.tensor_shape.MergeFrom(
                TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in content])
            )
        elif isinstance(content, list):
            getattr(value.tensor, name).extend(content)
        else:
            setattr(value.tensor, name, content)
    return value


@pytest.mark.parametrize(
    "value",
    [
        tensor(dtype=1, shape=[3], float_val=[1, 2]),
        tensor(dtype=2, shape=[2], tensor_content=bytes(17)),
        tensor(dtype=3, shape=[2, -5], int_val=[1, 2]),
        tensor(dtype=7, shape=[4], string_val=[b"a"]),
        tensor(dtype=9, shape=[]),
        Summary.Value(tag="x", histo=HistogramProto(num=2, bucket_limit=[1, 2], bucket=[2])),
        Summary.Value(tag="x", histo=HistogramProto(num=math.inf)),
        Summary.Value(tag="x", histo=HistogramProto(num=-1)),
    ],
)
def test_numbers_that_do_not_fit_together_are_damage(tmp_path, value):
    """What another writer may have written, with right checksums; each way of reading tells it."""
    good = Summary.Value(tag="y", simple_value=1)
    events = [Event(summary=Summary(value=values)) for values in ([good, value], [good])]
    path = tmp_path / "events.out.tfevents.1.other"
    path.write_bytes(b"".join(frame(event.SerializeToString()) for event in events))
    run = read(path)["."]
    with pytest.warns(RuntimeWarning, match="a record is not an event, at byte 0; what is sound"):
        assert [record.tag for record in run] == ["y", "y"]
    assert len(run.scalars("y").steps) == 2
    assert run.damage == {path: "a record is not an event, at byte 0"}
    assert run.tags() == {"y": "scalar"}


def test_a_tensor_takes_no_more_memory_than_it_brings(tmp_path):
    path = tmp_path / "events.out.tfevents.1.other"
    value = tensor(dtype=1, shape=[1 << 30, 1 << 20], float_val=[2.5])
    path.write_bytes(frame(Event(summary=Summary(value=[value])).SerializeToString()))
    (record,) = read(path)
    assert record.value.shape == (1 << 30, 1 << 20)
    assert record.value[-1, -1] == 2.5


def test_a_dtype_of_tomorrow_is_passed_over(tmp_path):
    path = tmp_path / "events.out.tfevents.1.other"
    values = [tensor(dtype=99, shape=[], float_val=[1]), Summary.Value(tag="y", simple_value=1)]
    path.write_bytes(frame(Event(summary=Summary(value=values)).SerializeToString()))
    runs = read(path)
    assert [record.tag for record in runs] == ["y"]
    assert runs.damage == {}


@pytest.mark.parametrize("stride", [1.5, "2", None])
def test_a_stride_is_an_integer(ten, stride):
    with pytest.raises(TypeError, match=f"stride: expected an integer, got {stride!r}"):
        read(ten, stride=stride)
    assert len(list(read(ten, stride=np.int64(5)))) == 2


@pytest.mark.parametrize("tags", [3, b"loss", [None], re.compile(b"loss")])
def test_what_is_no_pattern_is_named(ten, tags):
    item = tags[0] if isinstance(tags, list) else tags
    with pytest.raises(TypeError, match=re.escape(f"expected strings or patterns, got {item!r}")):
        read(ten, tags=tags)
    with pytest.raises(TypeError, match="patterns: expected strings or patterns"):
        read(ten).select(item)


@pytest.mark.parametrize("pattern", ["[", "[!", "(", "\\", "a{", "", "**/", "l(oss"])
def test_an_odd_pattern_is_a_name_that_no_tag_has(ten, pattern):
    assert read(ten, tags=pattern).tags() == {}


def test_other_files_are_left_alone(ten):
    (ten.parent / "notes.txt").write_text("not an event file")
    (ten.parent / "events.out.tfevents.old").mkdir()
    assert read(ten.parent).paths == [ten]
    assert len(list(read(str(ten.parent)))) == 10


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"no event file or directory at {tmp_path}/gone"):
        read(tmp_path / "gone")
    with pytest.raises(FileNotFoundError, match=f"no event file .* in {tmp_path}"):
        read(tmp_path)


def test_scalars_of_every_shape_of_message_are_the_same_columns(tmp_path):
    """The short cuts of the reader give what parsed messages give."""
    rng = np.random.default_rng(0)
    events = []
    for step in [0, 1, 127, 128, 300, 2**40, 2**63 - 1, -1]:
        values = [Summary.Value(tag="a", simple_value=rng.normal())]
        events.append(Event(step=step, wall_time=step / 8, summary=Summary(value=values)))
        values = [
            Summary.Value(tag=tag, simple_value=rng.normal()) for tag in ("a", "b" * 200, "ü")
        ]
        if step % 2:
            values[1].metadata.plugin_data.plugin_name = "scalars"
            values.append(Summary.Value(tag="a", tensor=make_tensor_proto(np.float64(step))))
            values.append(Summary.Value(tag="h", histo=HistogramProto(num=1)))
        events.append(Event(step=step, wall_time=rng.normal(), summary=Summary(value=values)))
        events.append(Event(step=step, summary=Summary(value=values[:1]), source_metadata={}))
    path = tmp_path / "events.out.tfevents.1.other"
    path.write_bytes(b"".join(frame(event.SerializeToString()) for event in events))
    records = list(read(path))
    assert {record.tag for record in records} == {"a", "b" * 200, "ü", "h"}
    assert read(path).tags() == {
        "a": "scalar",
        "b" * 200: "scalar",
        "ü": "scalar",
        "h": "histogram",
    }
    for tag in ("a", "b" * 200, "ü"):
        points = [(r.step, r.value, r.wall_time) for r in records if r.tag == tag]
        assert list(zip(*read(path).scalars(tag), strict=True)) == points


def test_the_layout_of_a_dashboard_is_no_quantity(tmp_path):
    with OptimizerSummaries(tmp_path) as summaries:
        summaries.step(0, loss=1.0)
    assert len(list(read(tmp_path))) == 2
    assert read(tmp_path).tags() == {"loss": "scalar"}
