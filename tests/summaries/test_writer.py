import asyncio
import inspect
import json
import re
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import copy_context

import numpy as np
import pytest
from tensorboard.util.tensor_util import make_ndarray

from summaries import OptimizerSummaries, SummaryWriter, _proto, encode_scalar, read
from summaries.metadata import Notes, SummaryBytes, metadata_bytes


def test_every_kind_is_written(tmp_path, load):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", 0.5, 1, walltime=7.5)
        writer.add_histogram("h", [1.0, 2.0, 3.0], 2)
        writer.add_histogram("tf", [1.0, 2.0, 3.0], 2, buckets="tf")
        writer.add_text("note", "**x**", 3)
        writer.add_image("img", np.zeros((3, 4, 5)), 4)
        writer.add_summary(encode_scalar("own", 2), 5)
    run = load(tmp_path)
    (scalar,) = run.Scalars("loss")
    assert (scalar.wall_time, scalar.step, scalar.value) == (7.5, 1, 0.5)
    (histogram,) = run.Histograms("h")
    value = histogram.histogram_value
    assert (histogram.step, value.num, value.sum, value.min, value.max) == (2, 3, 6, 1, 3)
    assert run.Histograms("tf")[0].histogram_value.bucket_limit != value.bucket_limit
    (text,) = run.Tensors("note")
    assert (text.step, text.tensor_proto.string_val[0]) == (3, b"**x**")
    (image,) = run.Images("img")
    assert (image.step, image.height, image.width) == (4, 4, 5)
    assert run.Scalars("own")[0].step == 5


def test_p078_an_event_without_step_has_the_last_one(tmp_path, load):
    with SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_scalar("loss", step, step)
        writer.add_text("config", "lr: 0.1")
    run = load(tmp_path)
    assert run.Tensors("config")[0].step == 2
    assert [event.step for event in run.Scalars("loss")] == [0, 1, 2]


def test_p091_a_scalar_that_is_not_finite_is_stored_and_told_once(tmp_path, scalars):
    with SummaryWriter(tmp_path) as writer, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step, value in enumerate([1, np.nan, np.inf, 2, 1e39]):
            writer.add_scalar("loss", value, step)
    assert [str(each.message) for each in caught] == ["the scalar 'loss' is nan as a float32"]
    values = [value for _, value in scalars(tmp_path, "loss")]
    np.testing.assert_array_equal(values, [1, np.nan, np.inf, 2, np.inf])


def test_p065_a_histogram_of_nan_does_not_stop_the_run(tmp_path, scalars, load):
    with SummaryWriter(tmp_path) as writer, pytest.warns(RuntimeWarning, match="'g/w_0'"):
        writer.add_histogram("g/w:0", np.full(5, np.nan), 1)
    assert scalars(tmp_path, "g/w_0_nonfinite") == [(1, 5.0)]
    assert load(tmp_path).Tags()["histograms"] == []


def test_p090_a_refused_value_leaves_the_writer_usable(tmp_path, scalars):
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(TypeError, match="'note'"):
            writer.add_scalar("note", "x", 0)
        with pytest.raises(ValueError, match="'vec'"):
            writer.add_scalar("vec", [1, 2], 0)
        writer.add_scalar("loss", 1.0, 0)
    assert scalars(tmp_path, "loss") == [(0, 1.0)]


def test_p064_two_names_of_one_tag_are_told(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("a:0", 1, 0)
        with pytest.warns(RuntimeWarning, match="'a:0' and 'a_0'"):
            writer.add_histogram("a_0", [1.0], 0)


@pytest.mark.parametrize(
    ("layout", "shape"), [("CHW", (3, 4, 5)), ("HWC", (4, 5, 3)), ("HW", (4, 5))]
)
def test_images_of_every_layout(tmp_path, load, layout, shape):
    with SummaryWriter(tmp_path) as writer:
        writer.add_image("img", np.zeros(shape, np.uint8), 0, dataformats=layout)
    (image,) = load(tmp_path).Images("img")
    assert (image.height, image.width) == (4, 5)


@pytest.mark.parametrize(
    ("layout", "shape", "named"),
    [
        ("NCHW", (1, 3, 4, 5), "dataformats must be one of HW, HWC, CHW: 'NCHW'"),
        ("CHW", (4, 5), r"\[CHW\], not shape \(4, 5\)"),
        ("CHW", (40, 50, 3), r"1 to 4 channels, not \(50, 3, 40\)"),
    ],
)
def test_images_of_other_layouts_are_refused(tmp_path, layout, shape, named):
    with SummaryWriter(tmp_path) as writer, pytest.raises(ValueError, match=named):
        writer.add_image("img", np.zeros(shape, np.uint8), 0, dataformats=layout)


def test_p076_a_resumed_run_hides_what_it_repeats(tmp_path, scalars):
    with SummaryWriter(tmp_path) as writer:
        for step in range(6):
            writer.add_scalar("a", step, step)
    with SummaryWriter(tmp_path, purge_step=3) as writer:
        writer.add_scalar("a", 103, 3)
    assert scalars(tmp_path, "a") == [(0, 0), (1, 1), (2, 2), (3, 103)]


def test_p075_two_writers_of_one_directory_lose_nothing(tmp_path, scalars):
    first = SummaryWriter(tmp_path)
    with pytest.warns(RuntimeWarning, match="another event log is open") as caught:
        second = SummaryWriter(tmp_path)
    for step in range(20):
        first.add_scalar("a", step, step)
        second.add_scalar("b", step, step)
    first.close()
    second.close()
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert len(list(tmp_path.iterdir())) == 2
    assert len(scalars(tmp_path, "a")) == len(scalars(tmp_path, "b")) == 20


def test_p095_a_name_that_is_made_up_is_safe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("summaries.writer.socket.gethostname", lambda: "h:o/s t")
    with SummaryWriter(comment="_lr=0.1/ü:" + "x" * 200) as writer:
        writer.add_scalar("a", 1, 0)
    (directory,) = (tmp_path / "runs").iterdir()
    assert directory.samefile(writer.logdir)
    name = r"[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_h-o-s-t_lr=0\.1---x*"
    assert re.fullmatch(name, directory.name)
    assert len(directory.name) < 100


def test_after_close_nothing_is_taken(tmp_path):
    writer = SummaryWriter(tmp_path)
    writer.close()
    writer.flush()
    with pytest.raises(ValueError, match="is closed"):
        writer.add_scalar("a", 1, 0)


# -- steps ----------------------------------------------------------------------------------------


def tags_of_events(writer, raw_events):
    """Of each event with a summary: its step and its tags."""
    events = raw_events(writer.log.path)
    return [
        (event.step, [value.tag for value in event.summary.value])
        for event in events
        if event.HasField("summary")
    ]


def test_a_step_is_one_event(tmp_path, raw_events, scalars):
    with SummaryWriter(tmp_path) as writer:
        for n in range(3):
            with writer.step(n) as due:
                assert due
                assert due.step == n
                writer.add_scalar("loss", n + 0.5)
                writer.add_scalar("rate", 0.1, n)
                writer.add_histogram("h", [1.0, 2.0])
                writer.add_text("note", "x")
                writer.add_summary(encode_scalar("own", 1))
        writer.add_scalar("after", 1)
    step = ["loss", "rate", "h", "note", "own"]
    assert tags_of_events(writer, raw_events) == [(n, step) for n in range(3)] + [(2, ["after"])]
    assert scalars(tmp_path, "loss") == [(n, n + 0.5) for n in range(3)]


def test_what_has_another_step_is_an_event_of_its_own(tmp_path, raw_events):
    with SummaryWriter(tmp_path) as writer:
        with writer.step(5):
            writer.add_scalar("a", 1)
            writer.add_scalar("old", 1, 4)
        with writer.step(6):
            pass
    assert tags_of_events(writer, raw_events) == [(4, ["old"]), (5, ["a"])]


def test_steps_nest_and_belong_to_their_thread(tmp_path, raw_events):
    with SummaryWriter(tmp_path) as writer, writer.step(1):
        writer.add_scalar("outer", 1)
        with writer.step(7):
            writer.add_scalar("inner", 1)
        thread = threading.Thread(target=writer.add_scalar, args=("thread", 1))
        thread.start()
        thread.join()
        writer.add_scalar("outer2", 1)
    assert tags_of_events(writer, raw_events) == [
        (7, ["inner"]),
        (7, ["thread"]),
        (1, ["outer", "outer2"]),
    ]


def test_steps_of_asyncio_tasks_are_their_own(tmp_path, raw_events):
    """Whichever ends first; a task that a step starts is part of it, while it is open."""

    async def train(writer, n, own, other):
        with writer.step(n):
            writer.add_scalar("begin", n)
            other.set()
            await own.wait()
            await asyncio.create_task(add(writer, "task", n))
            late = asyncio.create_task(add(writer, "late", n, n))
        await late
        writer.add_scalar("after", n, n)

    async def add(writer, *arguments):
        writer.add_scalar(*arguments)

    async def both(writer):
        first, second = asyncio.Event(), asyncio.Event()
        await asyncio.gather(train(writer, 1, first, second), train(writer, 2, second, first))

    with SummaryWriter(tmp_path) as writer:
        asyncio.run(both(writer))
        writer.add_scalar("end", 0, 3)
    events = tags_of_events(writer, raw_events)
    assert [tags for step, tags in events if step == 1] == [["begin", "task"], ["late"], ["after"]]
    assert [tags for step, tags in events if step == 2] == [["begin", "task"], ["late"], ["after"]]
    assert events[-1] == (3, ["end"])


def test_a_step_left_open_by_a_generator_swallows_nothing(tmp_path, raw_events):
    def training(writer):
        with writer.step(1), writer.use_metadata(global_step=9):
            writer.add_scalar("inside", 1)
            yield

    with SummaryWriter(tmp_path) as writer:
        generator = training(writer)
        next(generator)
        with writer.step(2):
            writer.add_scalar("a", 1)
            generator.close()
            writer.add_scalar("b", 1)
        writer.add_scalar("c", 1)
        writer.add_scalar("d", 1, 3)
    assert tags_of_events(writer, raw_events) == [
        (1, ["inside"]),
        (2, ["a", "b"]),
        (2, ["c"]),
        (3, ["d"]),
    ]


def test_steps_of_two_writers_are_apart(tmp_path, raw_events):
    with (
        SummaryWriter(tmp_path / "one") as one,
        SummaryWriter(tmp_path / "two") as two,
        one.step(1),
    ):
        two.add_scalar("a", 1, 7)
        with two.step(2):
            one.add_scalar("b", 1)
            two.add_scalar("c", 1)
    assert tags_of_events(one, raw_events) == [(1, ["b"])]
    assert tags_of_events(two, raw_events) == [(7, ["a"]), (2, ["c"])]


def test_a_context_that_is_given_to_a_thread_does_not_bring_the_step(tmp_path, raw_events):
    with SummaryWriter(tmp_path) as writer, ThreadPoolExecutor() as pool, writer.step(1):
        pool.submit(copy_context().run, writer.add_scalar, "thread", 1, 5).result()
        pool.submit(copy_context().run, writer.add_scalar, "thread", 1).result()
    assert tags_of_events(writer, raw_events) == [(5, ["thread"])] * 2


def test_a_step_may_be_entered_again_but_not_twice(tmp_path, raw_events):
    with SummaryWriter(tmp_path) as writer:
        step = writer.step(3)
        for _ in range(2):
            with step:
                writer.add_scalar("a", 1)
                with pytest.raises(RuntimeError, match="entered already"):
                    step.__enter__()
    assert tags_of_events(writer, raw_events) == [(3, ["a"])] * 2


def test_a_writer_that_is_closed_does_not_hide_the_error_of_a_step(tmp_path):
    writer = SummaryWriter(tmp_path)
    writer.close()
    with pytest.raises(ZeroDivisionError):
        add_and_fail(writer, writer.step(3))
    with pytest.raises(ValueError, match="is closed"), writer.step(3):
        writer.add_scalar("loss", 1.0)


def test_the_current_step_is_that_of_what_has_none(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("a", 1, 4)
        assert writer.current_step == 4
        with writer.use_metadata(walltime=1.5):
            assert writer.current_step == 4
        with writer.use_metadata(global_step=7):
            assert writer.current_step == 7
            with writer.step(8):
                assert writer.current_step == 8


@pytest.mark.parametrize("where", ["step", "use_metadata"])
def test_a_bad_time_is_refused_before_the_block(tmp_path, where):
    with SummaryWriter(tmp_path) as writer:
        block = {
            "step": lambda time: writer.step(1, walltime=time),
            "use_metadata": lambda time: writer.use_metadata(walltime=time),
        }[where]
        with pytest.raises(TypeError, match="wall_time must be a number of seconds"), block("now"):
            pytest.fail("the block was entered")


def add_and_fail(writer, context):
    with context:
        writer.add_scalar("loss", 1.0)
        raise ZeroDivisionError


def test_a_step_that_fails_is_written(tmp_path, scalars):
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(ZeroDivisionError):
            add_and_fail(writer, writer.step(3, walltime=2.5))
        writer.add_scalar("a", 1, 4)
    assert scalars(tmp_path, "loss") == [(3, 1.0)]
    assert read(tmp_path).scalars("loss").wall_times == [2.5]


def test_a_step_that_fails_on_a_full_disk_shows_its_own_error(tmp_path, monkeypatch):
    writer = SummaryWriter(tmp_path, flush_secs=0)
    monkeypatch.setattr("summaries.event_file.os.write", no_space)
    with pytest.raises(ZeroDivisionError):
        add_and_fail(writer, writer.step(3))
    with pytest.raises(OSError, match="No space"), writer.step(3):
        writer.add_scalar("loss", 1.0)
    writer.close()


def no_space(*_):
    raise OSError(28, "No space left on device")


class Untouchable:
    """A value that must not be looked at."""

    def __getattr__(self, name):
        raise AssertionError(name)


def test_steps_that_are_left_out_are_not_looked_at(tmp_path, raw_events):
    with SummaryWriter(tmp_path, every_n_steps=2, histograms_every_n_steps=4) as writer:
        for n in range(1, 8):
            with writer.step(n) as due:
                assert due.scalars == (n % 2 == 1)
                assert due.histograms == (n % 4 == 1)
                writer.add_scalar("s", n if due.scalars else Untouchable())
                writer.add_scalars("m", {"s": n if due.scalars else Untouchable()})
                writer.add_histogram("h", [1.0] if due.histograms else Untouchable())
                writer.add_text("t", "x" if due.histograms else Untouchable())
                image = np.zeros((3, 4, 5)) if due.histograms else Untouchable()
                writer.add_image("i", image)
                labels = np.ones(3) if due.histograms else Untouchable()
                writer.add_pr_curve("p", labels, labels)
    both, scalars = ["s", "m/s", "h", "t", "i", "p"], ["s", "m/s"]
    assert tags_of_events(writer, raw_events) == [(1, both), (3, scalars), (5, both), (7, scalars)]


def test_p093_a_step_must_be_one(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        for bad in (5.7, -1, 2**63):
            with pytest.raises(ValueError, match="step"):
                writer.step(bad)
        assert writer.step(np.int64(5)).step == 5
        with writer.step(5):
            for bad in (5.7, np.array([5, 6])):
                with pytest.raises(ValueError, match="step must be one integer"):
                    writer.add_scalar("a", 1.0, bad)


def test_defaults_of_step_and_time_end_with_their_block(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        with writer.use_metadata(global_step=7, walltime=1.5):
            writer.add_scalar("a", 1)
            writer.add_scalar("a", 2, 8, 2.5)
        with pytest.raises(ZeroDivisionError):
            add_and_fail(writer, writer.use_metadata(global_step=9, walltime=3.5))
        writer.add_scalar("b", 1)
    run = read(tmp_path)
    assert list(run.scalars("a").steps) == [7, 8]
    assert list(run.scalars("a").wall_times) == [1.5, 2.5]
    assert list(run.scalars("loss").wall_times) == [3.5]
    assert run.scalars("b").wall_times[0] > 1e9


# -- tensorboardX's methods -----------------------------------------------------------------------


def test_every_public_method_of_tensorboardx_is_there():
    theirs = {name for name in dir(_proto.tensorboardx_writer()) if not name.startswith("_")}
    assert theirs - set(dir(SummaryWriter)) == set()


@pytest.mark.parametrize(
    ("method", "package", "project"),
    [
        ("add_audio", "soundfile", "soundfile"),
        ("add_figure", "matplotlib", "matplotlib"),
        ("add_image_with_boxes", "PIL", "Pillow"),
        ("add_images", "PIL", "Pillow"),
        ("add_onnx_graph", "onnx", "onnx"),
        ("add_video", "moviepy", "moviepy"),
    ],
)
def test_a_method_whose_package_is_missing_names_it(
    tmp_path, monkeypatch, method, package, project
):
    monkeypatch.setitem(sys.modules, package, None)
    message = f"^{method} needs {package}, which is not installed: pip install {project}$"
    with SummaryWriter(tmp_path) as writer, pytest.raises(ModuleNotFoundError, match=message):
        getattr(writer, method)("tag", np.zeros((1, 2, 3, 4, 4)), 0)


def test_what_tensorboardx_encodes_goes_into_the_one_file(tmp_path, load, raw_events):
    pytest.importorskip("PIL")
    plots = pytest.importorskip("matplotlib.figure")
    figure = plots.Figure(figsize=(1, 1))
    figure.subplots().plot([1, 2])
    labels, scores = np.array([0, 1, 1]), np.array([0.1, 0.6, 0.9])
    with SummaryWriter(tmp_path) as writer:
        writer.add_figure("figure", figure, 1)
        writer.add_images("images", np.zeros((2, 3, 4, 5)), 2)
        writer.add_image_with_boxes("boxes", np.zeros((3, 9, 9)), np.array([[1, 1, 5, 5]]), 3)
        writer.add_pr_curve("curve", labels, scores, 4)
        writer.add_histogram_raw("raw", 0, 1, 2, 1, 1, [0.5, 1.0], [1, 1], 5)
        writer.add_mesh("mesh", np.zeros((1, 3, 3)), global_step=6)
        writer.add_custom_scalars({"all": {"losses": ["Multiline", ["loss"]]}})
        OptimizerSummaries(writer).step(7, loss=1.0)
        assert writer.file_writer.get_logdir() == writer.get_logdir() == writer.log_dir
    assert [path.name for path in tmp_path.iterdir()] == [writer.log.path.name]
    layouts = [tags for _, tags in tags_of_events(writer, raw_events) if "config" in tags[0]]
    assert layouts == [["custom_scalars__config__"]], "theirs, and not that of the optimizer"
    run = load(tmp_path)
    assert {tag: run.Images(tag)[0].step for tag in run.Tags()["images"]} == {
        "figure": 1,
        "images": 2,
        "boxes": 3,
    }
    assert run.Histograms("raw")[0].step == 5
    steps = {tag: run.Tensors(tag)[0].step for tag in run.Tags()["tensors"]}
    assert steps == {
        "curve": 4,
        "mesh_1": 6,
        "custom_scalars__config__": 6,
    }


def test_a_graph_and_its_statistics_are_events(tmp_path, raw_events):
    with SummaryWriter(tmp_path) as writer:
        graph = _proto.GraphDef(node=[_proto.NodeDef(name="x", op="Placeholder")])
        writer.file_writer.add_graph((graph, _proto.GraphDef()), 1.5)
        writer.file_writer.add_onnx_graph(graph)
        writer.file_writer.add_event(_proto.Event(graph_def=b""), 3)
    events = raw_events(writer.log.path)[2:]
    kinds = [event.WhichOneof("what") for event in events]
    assert kinds == ["graph_def", "tagged_run_metadata", "graph_def", "graph_def"]
    assert [events[0].wall_time, events[3].step] == [1.5, 3]


def test_a_tag_of_theirs_is_cleaned_as_ours(tmp_path, load):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("raw:0", 1, 0)
        with pytest.warns(RuntimeWarning, match="'raw:0' and 'raw_0'"):
            writer.add_histogram_raw("raw_0", 0, 1, 2, 1, 1, [0.5, 1.0], [1, 1], 5)


def test_p083_series_in_a_group_are_one_event_of_one_file(tmp_path, raw_events):
    series = {f"s{n}": n / 4 for n in range(300)}
    before = threading.active_count()
    with SummaryWriter(tmp_path) as writer:
        for step in range(2):
            writer.add_scalars("group", series, step)
        assert threading.active_count() <= before + 1
    assert len(list(tmp_path.rglob("*"))) == 1
    tags = [f"group/{name}" for name in series]
    assert tags_of_events(writer, raw_events) == [(0, tags), (1, tags)]


def test_p090_a_refused_value_is_left_out_where_asked(tmp_path, raw_events):
    writer = SummaryWriter(tmp_path, on_error="warn")
    with writer, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(2):
            writer.add_scalars("m", {"loss": 1.0, "note": "x", "vec": [1, 2]}, step)
            writer.add_histogram("h", "text", step)
            writer.add_image("i", np.zeros(3), step)
    named = [re.match(r"'(\S+)'", str(each.message))[1] for each in caught]
    assert named == ["m/note", "m/vec", "h", "i"]
    assert {each.filename for each in caught} == {__file__}
    assert tags_of_events(writer, raw_events) == [(0, ["m/loss"]), (1, ["m/loss"])]


@pytest.mark.parametrize(
    ("options", "buckets"),
    [
        ({"bins": "tensorflow"}, "tf"),
        ({"buckets": "tensorflow"}, "tf"),
        ({"bins": "auto"}, "fast"),
        ({"bins": "fd", "max_bins": 9}, 9),
        ({"buckets": 9}, 9),
    ],
)
def test_bins_of_tensorboardx_are_understood(tmp_path, options, buckets):
    values = np.random.default_rng(0).normal(size=1000)
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("h", values, 0, **options)
        writer.add_histogram("same", values, 0, buckets)
    run = read(tmp_path)
    (one,), (same,) = run.histograms("h").values, run.histograms("same").values
    np.testing.assert_array_equal(one.limits, same.limits)


def test_scalars_are_exported_as_tensorboardx_does(tmp_path):
    with SummaryWriter(tmp_path / "run") as writer:
        writer.export_scalars_to_json(tmp_path / "none.json")
        writer.add_scalar("a", 0.5, 3, 1.5)
        writer.add_scalar("a", 1.5, 4, 2.5)
        writer.export_scalars_to_json(tmp_path / "all.json")
    assert json.loads((tmp_path / "none.json").read_text()) == {}
    points = json.loads((tmp_path / "all.json").read_text())
    assert points == {f"{tmp_path}/run/a": [[1.5, 3, 0.5], [2.5, 4, 1.5]]}


# -- what belongs to a tag ------------------------------------------------------------------------


def test_a_name_and_a_description_come_with_the_first_value(tmp_path, raw_events):
    with SummaryWriter(tmp_path) as writer:
        for step in range(2):
            writer.add_scalar("loss", step, step, None, "the loss", "**low** is good")
        writer.close()
        writer.reopen()
        writer.add_scalar("loss", 2, 2, None, "the loss")
    first, second = sorted(tmp_path.iterdir())
    metadata = [
        event.summary.value[0].metadata
        for path in (first, second)
        for event in raw_events(path)
        if event.HasField("summary")
    ]
    assert [each.display_name for each in metadata] == ["the loss", "", "the loss"]
    assert [each.summary_description for each in metadata] == ["**low** is good", "", ""]
    assert [each.data_class for each in metadata] == [1, 0, 1]


def test_notes_of_a_summary_are_written_once(tmp_path, raw_events):
    notes = Notes({"a": metadata_bytes("scalars", 1, "A")}, layout=True)
    with SummaryWriter(tmp_path) as writer:
        for _ in range(2):
            writer.reopen()
            for step in range(2):
                writer.add_summary(SummaryBytes(encode_scalar("a", step), notes), step)
            writer.close()
            assert tags_of_events(writer, raw_events) == [
                (0, ["custom_scalars__config__", "a"]),
                (1, ["a"]),
            ]


# -- hyper-parameters -----------------------------------------------------------------------------


def hparams_of(writer, raw_events):
    """What the events of the hparams plugin hold, in order."""
    return [
        _proto.HParamsPluginData.FromString(value.metadata.plugin_data.content)
        for event in raw_events(writer.log.path)
        for value in event.summary.value
        if value.metadata.plugin_data.plugin_name == "hparams"
    ]


def test_p079_hparams_are_in_the_run_itself(tmp_path, raw_events):
    with SummaryWriter(tmp_path) as writer:
        writer.hparams({"lr": 0.1, "seed": np.int64(3)})
        writer.hparams({"name": "adam", "seed": 4}, group="adam")
        for step in range(3):
            writer.add_scalar("loss", 1.0, step)
    assert [path.name for path in tmp_path.rglob("*")] == [writer.log.path.name]
    assert tags_of_events(writer, raw_events)[0][1] == ["_hparams_/session_start_info"]
    start, end = hparams_of(writer, raw_events)
    assert dict(start.session_start_info.hparams).keys() == {"lr", "seed", "name"}
    assert start.session_start_info.hparams["seed"].number_value == 4
    assert start.session_start_info.group_name == "adam"
    assert start.session_start_info.start_time_secs > 1e9
    assert end.session_end_info.status == 1


def test_p079_tensorboardx_s_way_makes_no_run_either(tmp_path, raw_events, scalars):
    with SummaryWriter(tmp_path) as writer:
        for n in range(3):
            writer.add_hparams({"lr": 0.1}, {"accuracy": n}, global_step=n)
    assert len(list(tmp_path.rglob("*"))) == 1
    assert scalars(tmp_path, "accuracy") == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize("argument", ["name", "run_name"])
def test_a_run_that_is_named_is_made(tmp_path, argument):
    """One writer for a whole sweep: a run below it for each set, and itself has none."""
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", 1.0, 7)
        for n, rate in enumerate([0.5, 0.25]):
            sweep = {argument: f"trial{n}"}
            writer.add_hparams({"lr": rate}, {"accuracy": n}, **sweep)
    runs = read(tmp_path)
    assert {name: runs[name].hparams().values for name in [".", "trial0", "trial1"]} == {
        ".": {},
        "trial0": {"lr": 0.5},
        "trial1": {"lr": 0.25},
    }
    for n in range(2):
        run = runs[f"trial{n}"]
        assert run.hparams().status == "success"
        steps, numbers, _ = run.scalars("accuracy")
        assert (list(steps), list(numbers)) == ([7], [n])


def test_a_named_run_of_another_rank_is_not_written(tmp_path):
    with SummaryWriter(tmp_path, write_to_disk=False) as writer:
        writer.add_hparams({"lr": 0.5}, {"accuracy": 1}, "trial")
    assert not list(tmp_path.iterdir())


def test_the_values_that_a_sweep_takes_are_told(tmp_path, raw_events):
    with SummaryWriter(tmp_path) as writer:
        writer.add_hparams(
            {"lr": 0.5, "kind": "adam", "nesterov": True, "n": 3},
            {"accuracy": 1},
            hparam_domain_discrete={"kind": ["adam", "sgd"], "lr": (0.5, 0.25)},
        )
    start, sweep, end = hparams_of(writer, raw_events)
    assert start.session_start_info.hparams["n"].number_value == 3
    assert [metric.name.tag for metric in sweep.experiment.metric_infos] == ["accuracy"]
    infos = {info.name: info for info in sweep.experiment.hparam_infos}
    assert {name: info.type for name, info in infos.items()} == {
        "kind": 1,
        "nesterov": 2,
        "lr": 3,
        "n": 3,
    }
    assert [each.string_value for each in infos["kind"].domain_discrete.values] == ["adam", "sgd"]
    assert [each.number_value for each in infos["lr"].domain_discrete.values] == [0.5, 0.25]
    assert not infos["n"].domain_discrete.values
    assert end.session_end_info.status == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"hparam_domain_discrete": {"rate": [1]}}, "hparam_domain_discrete has 'rate'"),
        ({"hparam_domain_discrete": {"lr": []}}, "'lr' has no values"),
        ({"name": {"lr": [1]}}, "the name of a run is a str, not dict"),
        ({"name": "a", "run_name": "b"}, "give name or run_name"),
    ],
    ids=str,
)
def test_hparams_of_a_sweep_that_are_refused_leave_nothing(tmp_path, arguments, named):
    with SummaryWriter(tmp_path) as writer, pytest.raises((TypeError, ValueError), match=named):
        writer.add_hparams({"lr": 1}, {"accuracy": 1}, **arguments)
    assert not list(tmp_path.iterdir())


# The arguments of torch.utils.tensorboard.SummaryWriter (PyTorch 2.13), but for `self`. In
# parentheses those that both tensorboardX and we take at another place: by name alone.
TORCH = {
    "__init__": "log_dir comment purge_step max_queue flush_secs filename_suffix",
    "add_audio": "tag snd_tensor global_step sample_rate walltime",
    "add_custom_scalars": "layout",
    "add_custom_scalars_marginchart": "tags category title",
    "add_custom_scalars_multilinechart": "tags category title",
    "add_embedding": "mat metadata label_img global_step tag metadata_header",
    "add_figure": "tag figure global_step close walltime",
    "add_graph": "model input_to_model verbose use_strict_trace",
    "add_histogram": "tag values global_step (bins) walltime max_bins",
    "add_histogram_raw": "tag min max num sum sum_squares bucket_limits bucket_counts global_step "
    "walltime",
    "add_hparams": "hparam_dict metric_dict (hparam_domain_discrete) (run_name) (global_step)",
    "add_image": "tag img_tensor global_step walltime dataformats",
    "add_image_with_boxes": "tag img_tensor box_tensor global_step walltime (rescale) "
    "(dataformats) (labels)",
    "add_images": "tag img_tensor global_step walltime dataformats",
    "add_mesh": "tag vertices colors faces config_dict global_step walltime",
    "add_onnx_graph": "",
    "add_pr_curve": "tag labels predictions global_step num_thresholds weights walltime",
    "add_pr_curve_raw": "tag true_positive_counts false_positive_counts true_negative_counts "
    "false_negative_counts precision recall global_step num_thresholds weights walltime",
    "add_scalar": "tag scalar_value global_step walltime (new_style) (double_precision)",
    "add_scalars": "main_tag tag_scalar_dict global_step walltime",
    "add_tensor": "tag tensor global_step walltime",
    "add_text": "tag text_string global_step walltime",
    "add_video": "tag vid_tensor global_step fps walltime",
    "close": "",
    "flush": "",
    "get_logdir": "",
}


@pytest.mark.parametrize("method", TORCH)
def test_pytorchs_calls_are_taken(method):
    parameters = inspect.signature(getattr(SummaryWriter, method)).parameters
    places = [name for name in parameters if name != "self"]
    others = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    for place, name in enumerate(TORCH[method].split()):
        if name.startswith("("):
            assert name[1:-1] in parameters or others
        elif (method, name) == ("__init__", "log_dir"):
            assert name in parameters
        elif (method, name) != ("add_histogram", "bins"):
            assert places[place] == name


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"new_style": True}, float(np.float32(0.1))),
        ({"double_precision": True}, 0.1),
        ({"new_style": True, "double_precision": True}, 0.1),
    ],
    ids=str,
)
def test_a_scalar_may_be_a_tensor(tmp_path, load, raw_events, arguments, expected):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", 0.1, 3, 5.0, "The loss", "of *all*", **arguments)
        with writer.step(4):
            writer.add_scalar("loss", np.float64(0.1), **arguments)
            writer.add_scalar("rate", 0.5)
    events = raw_events(writer.log.path)
    assert len(events) == 4  # one a step
    metadata = events[2].summary.value[0].metadata
    assert metadata.plugin_data.plugin_name == "scalars"
    assert (metadata.display_name, metadata.summary_description) == ("The loss", "of *all*")
    steps, numbers, _ = read(tmp_path).scalars("loss")
    assert (list(steps), list(numbers)) == ([3, 4], [expected, expected])
    shown = load(tmp_path).Tensors("loss")
    assert [make_ndarray(event.tensor_proto).item() for event in shown] == [expected, expected]


@pytest.mark.parametrize(
    ("value", "double", "stored"),
    [(1e39, False, np.inf), (np.nan, True, np.nan), (-np.inf, True, -np.inf)],
)
def test_p091_a_tensor_s_scalar_that_is_not_finite_is_told(tmp_path, value, double, stored):
    with SummaryWriter(tmp_path) as writer, pytest.warns(RuntimeWarning, match="scalar 'a' is"):
        writer.add_scalar("a", value, 0, new_style=True, double_precision=double)
    (number,) = read(tmp_path).scalars("a")[1]
    assert number == pytest.approx(stored, nan_ok=True)


def test_p090_a_tensor_s_scalar_is_one_number(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(TypeError, match="'a' takes real numbers"):
            writer.add_scalar("a", "much", 0, new_style=True)
        with pytest.raises(ValueError, match=r"'a' takes one number, not .* \(2,\)"):
            writer.add_scalar("a", [1.0, 2.0], 0, double_precision=True)
        with pytest.raises(TypeError, match="'a' takes a number, not bool"):
            writer.add_scalar("a", True, 0, new_style=True)


@pytest.mark.parametrize(
    "dtype",
    [
        "float16",
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "bool",
    ],
)
@pytest.mark.parametrize("shape", [(2, 3), (1,), (4, 0)], ids=str)
def test_a_tensor_is_kept_as_it_is(tmp_path, load, dtype, shape):
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    with SummaryWriter(tmp_path) as writer:
        writer.add_tensor("t", array, 3)
        writer.add_tensor("big", array.astype(array.dtype.newbyteorder(">")), 4)
    found = {record.tag: record for record in read(tmp_path)}
    if array.size or dtype not in ("uint32", "uint64"):
        for tag, step in (("t", 3), ("big", 4)):
            assert (found[tag].step, found[tag].kind) == (step, "tensor")
            assert found[tag].value.dtype == array.dtype
            np.testing.assert_array_equal(found[tag].value, array)
    if array.size:
        (event,) = load(tmp_path).Tensors("t")
        np.testing.assert_array_equal(make_ndarray(event.tensor_proto), array)


def test_a_tensor_that_cannot_be_kept_is_refused_by_its_tag(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(TypeError, match="'t' takes real numbers"):
            writer.add_tensor("t", np.array([1j]), 0)
        with pytest.raises(ValueError, match="'t' takes a tensor under 2 GB"):
            writer.add_tensor("t", np.broadcast_to(np.uint8(0), (2**31,)), 0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments", [({"lr": 0.5, "n": 10**400},), ({"n": "\ud800"},), ({"lr": 1}, 5), ([1],)], ids=str
)
def test_hparams_that_are_refused_leave_the_others(tmp_path, raw_events, arguments):
    with SummaryWriter(tmp_path) as writer:
        writer.hparams({"lr": 0.1}, group="one")
        with pytest.raises((TypeError, ValueError), match=r"hyper-parameter|group"):
            writer.hparams(*arguments)
        writer.add_scalar("a", 1, 0)
    start, _ = hparams_of(writer, raw_events)
    assert start.session_start_info.group_name == "one"
    assert {k: v.number_value for k, v in start.session_start_info.hparams.items()} == {"lr": 0.1}


def test_hparams_are_not_lost_on_a_full_disk(tmp_path, monkeypatch, raw_events):
    writer = SummaryWriter(tmp_path, flush_secs=0)
    writer.hparams({"lr": 0.1})
    with monkeypatch.context() as patch:
        patch.setattr("summaries.event_file.os.write", no_space)
        with pytest.raises(OSError, match="No space"):
            writer.add_scalar("a", 1, 0)
    writer.add_scalar("a", 1, 0)
    writer.close()
    start, _ = hparams_of(writer, raw_events)
    assert start.session_start_info.hparams["lr"].number_value == 0.1


def test_a_status_is_one_of_three(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(ValueError, match="status must be one of success, failure, unknown"):
            writer.close("done")
        writer.add_scalar("a", 1, 0)


def test_a_description_that_is_refused_may_be_given_again(tmp_path, raw_events):
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(ValueError, match="a description has a lone surrogate"):
            writer.add_scalar("a", 1, 0, None, "A", "\ud800")
        with pytest.raises(TypeError, match="a display name is a string, not int 5"):
            writer.add_scalar("a", 1, 0, None, 5)
        writer.add_scalar("a", 1, 0, None, "A", "text")
    (value,) = raw_events(writer.log.path)[2].summary.value
    assert value.metadata.summary_description == "text"


def test_a_change_after_they_were_written_is_told(tmp_path, raw_events):
    with SummaryWriter(tmp_path) as writer:
        writer.hparams({"lr": 0.1})
        writer.flush()
        writer.hparams({"lr": 0.1})
        with pytest.warns(RuntimeWarning, match="TensorBoard shows the first ones"):
            writer.hparams({"lr": 0.2})
    *_, last, _ = hparams_of(writer, raw_events)
    assert last.session_start_info.hparams["lr"].number_value == 0.2


@pytest.mark.parametrize(
    ("end", "statuses"),
    [
        (lambda writer: writer.close(), [1]),
        (lambda writer: writer.close("failure"), [2]),
        (lambda writer: writer.close("unknown"), []),
        (lambda writer: fail(writer, in_block=True), []),
        (lambda writer: fail(writer, in_block=False), []),
    ],
)
def test_only_a_clean_end_is_a_success(tmp_path, raw_events, end, statuses):
    writer = SummaryWriter(tmp_path)
    writer.hparams({"lr": 0.1})
    end(writer)
    ends = [each for each in hparams_of(writer, raw_events) if each.HasField("session_end_info")]
    assert [each.session_end_info.status for each in ends] == statuses
    writer.close("failure")


def fail(writer, *, in_block):
    with pytest.raises(ZeroDivisionError):
        add_and_fail(writer, writer if in_block else closing(writer))


def test_a_run_without_hparams_tells_no_end(tmp_path, raw_events):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("a", 1, 0)
    assert hparams_of(writer, raw_events) == []


def test_p132_another_rank_looks_at_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "2")
    with SummaryWriter(tmp_path / "run") as writer:
        assert not writer.step(0)
        writer.add_scalar("a", Untouchable(), 0)
        writer.add_scalars("b", {"a": Untouchable()}, 0)
        writer.add_histogram("h", Untouchable(), 0)
        writer.add_figure("f", Untouchable(), 0)
        with writer.step(1):
            writer.add_scalar("a", Untouchable())
        writer.hparams({"lr": 1})
        writer.flush()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        {"logdir": "a", "log_dir": "b"},
        {"logdir": "a", "purge_step": 1, "resume_step": 1},
        {"logdir": "a", "every_n_steps": 1, "every_secs": 1.0},
    ],
)
def test_one_of_two_is_enough(tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="not both"):
        SummaryWriter(**options)
    assert list(tmp_path.iterdir()) == []


def test_a_closed_writer_may_go_on(tmp_path, scalars):
    writer = SummaryWriter(log_dir=tmp_path)
    for step in range(3):
        writer.add_scalar("a", step, step)
        writer.reopen()
        writer.close()
        writer.reopen()
    writer.close()
    assert scalars(tmp_path, "a") == [(0, 0), (1, 1), (2, 2)]
    assert len(list(tmp_path.iterdir())) == 3


def test_p085_a_forked_worker_writes_a_file_of_its_own(tmp_path, run_python, scalars):
    code = """
import os, sys, warnings
from summaries import SummaryWriter

warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
writer = SummaryWriter(sys.argv[1])
writer.add_scalar("parent", 0, 0)
if not os.fork():
    with writer.step(1):
        writer.add_scalar("child", 1)
    os._exit(0)
os.wait()
writer.add_scalar("parent", 1, 1)
"""
    assert run_python(code, tmp_path) == (0, "", "")
    assert scalars(tmp_path, "parent") == [(0, 0), (1, 1)]
    assert scalars(tmp_path, "child") == [(1, 1)]


CELL = """
writer = SummaryWriter(directory)
for step in range(10):
    with writer.step(step):
        writer.add_scalar(name, step)
"""


def test_p075_a_cell_of_a_notebook_may_be_run_again(tmp_path, scalars):
    """The writer of the first run is dropped, unclosed, when its name is bound anew."""
    scope = {"SummaryWriter": SummaryWriter, "directory": tmp_path}
    exec(CELL, scope | {"name": "other"})
    scope["name"] = "first"
    exec(CELL, scope)
    scope["name"] = "second"
    with pytest.warns(RuntimeWarning, match="another event log is open"):
        exec(CELL, scope)
    scope["writer"].flush()
    for name in ("other", "first", "second"):
        assert scalars(tmp_path, name) == [(step, step) for step in range(10)]
    assert len(list(tmp_path.iterdir())) == 3
