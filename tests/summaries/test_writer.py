import re
import warnings

import numpy as np
import pytest

from summaries import SummaryWriter, encode_scalar


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
