import csv
import errno
import io
import math
import os
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from summaries import (
    EventLog,
    SummaryWriter,
    _proto,
    encode_histogram,
    encode_scalar,
    encode_text,
    read,
    write_experiment,
)
from summaries.histogram import measure
from summaries.records import frame
from summaries.wire import event, pack_float, scalar_head

libraries = pytest.mark.parametrize("library", ["numpy", "pandas"])


def write(folder, values, tag="loss", start=0):
    with EventLog(folder) as log:
        for step, value in enumerate(values, start):
            log.add_summary(encode_scalar(tag, value), step, wall_time=100 + step)
    return folder


def hparams_record(values, group="", status=0):
    start, end = _proto.HParamsPluginData(), _proto.HParamsPluginData()
    start.session_start_info.group_name = group
    for name, value in values.items():
        kind = {bool: "bool_value", str: "string_value", float: "number_value"}[type(value)]
        setattr(start.session_start_info.hparams[name], kind, value)
    end.session_end_info.status = status
    summary = _proto.Summary()
    for name, data in (("start", start), ("end", end)):
        value = summary.value.add(tag=f"_hparams_/session_{name}_info")
        value.metadata.plugin_data.plugin_name = "hparams"
        value.metadata.plugin_data.content = data.SerializeToString()
    return summary.SerializeToString()


@pytest.fixture
def two(tmp_path):
    write(tmp_path / "adam", [3, 2, 1])
    write(tmp_path / "sgd" / "eval", [9.5])
    return tmp_path


@libraries
def test_scalars_of_all_runs_are_one_table(two, library):
    table = read(two).table(library=library)
    assert list(table["run"]) == ["adam"] * 3 + ["sgd/eval"]
    assert list(table["tag"]) == ["loss"] * 4
    assert list(table["step"]) == [0, 1, 2, 0]
    assert list(table["value"]) == [3, 2, 1, 9.5]
    assert list(table["wall_time"]) == [100, 101, 102, 100]
    assert [str(table[name].dtype) for name in ("step", "value")] == ["int64", "float64"]


@libraries
def test_an_empty_table_has_its_columns(two, library):
    table = read(two, tags="nothing").table(library=library)
    assert len(table) == 0
    names = table.dtype.names if library == "numpy" else tuple(table.columns)
    assert names == ("run", "tag", "step", "value", "wall_time")


def test_a_table_is_of_pandas_where_that_is_installed(two, monkeypatch):
    assert type(read(two).table()).__name__ == "DataFrame"
    monkeypatch.setattr("summaries.tables.find_spec", lambda name: None)
    assert isinstance(read(two).table(), np.ndarray)


@libraries
def test_histograms_are_a_table(tmp_path, library):
    arrays = np.random.default_rng(0).normal(2, 3, size=(4, 100))
    with EventLog(tmp_path) as log:
        for step, array in enumerate(arrays):
            log.add_summary(encode_histogram("w", array) + encode_scalar("x", 1), step)
    runs = read(tmp_path)
    table = runs.table("histogram", library=library)
    assert list(table["step"]) == [0, 1, 2, 3]
    assert list(table["num"]) == [100] * 4
    np.testing.assert_array_equal(table["min"], arrays.min(axis=1))
    np.testing.assert_array_equal(table["max"], arrays.max(axis=1))
    np.testing.assert_allclose(table["mean"], arrays.mean(axis=1))
    np.testing.assert_allclose(table["std"], arrays.std(axis=1))
    np.testing.assert_array_equal(table["value"][3].counts, measure(arrays[3]).counts)
    assert len(read(tmp_path).table("histogram", "other", library=library)) == 0


@libraries
def test_texts_are_a_table(tmp_path, library):
    with EventLog(tmp_path) as log:
        log.add_summary(encode_text("note", "one"), 4)
        log.add_summary(encode_text("note", [["a", "b"]]), 5)
    table = read(tmp_path).table("text", library=library)
    assert list(table["step"]) == [4, 5]
    assert table["value"][0] == "one"
    assert table["value"][1].tolist() == [["a", "b"]]


def test_histograms_of_a_tag_come_back(tmp_path):
    arrays = np.random.default_rng(0).normal(size=(6, 10))
    with EventLog(tmp_path) as log:
        for step, array in enumerate(arrays):
            log.add_summary(encode_histogram("w", array) + encode_histogram("ww", [1.0]), step)
    with EventLog(tmp_path, start_step=4) as log:
        log.add_summary(encode_histogram("w", arrays[0]), 4)
    steps, values, times = read(tmp_path).histograms("w")
    assert list(steps) == [0, 1, 2, 3, 4]  # P076: what was overwritten is left out
    assert [each.sum for each in values] == [measure(arrays[i]).sum for i in (0, 1, 2, 3, 0)]
    assert list(np.sort(times)) == list(times)
    assert list(read(tmp_path, stride=2).histograms("w").steps) == [0, 2, 4]
    with pytest.raises(KeyError, match="no histogram has the tag 'v'"):
        read(tmp_path).histograms("v")


def test_names_are_below_what_was_given(two, monkeypatch):
    assert read(two).names == ["adam", "sgd/eval"]
    assert read(two / "adam").names == ["."]
    assert read([two / "adam", two / "sgd"]).names == ["adam", "sgd/eval"]
    monkeypatch.chdir(two)
    assert read(["adam", "sgd/eval"]).names == ["adam", "sgd/eval"]
    assert read(["sgd/eval", "."]).names == ["sgd/eval", "adam"]
    assert read({"best": two / "adam", "rest": "sgd"}).names == ["best", "rest/eval"]


def test_files_may_be_given(two):
    files = sorted(two.rglob("events*"))
    assert read(files[0]).names == ["."]
    runs = read([*files, files[0]])
    assert runs.names == ["adam", "sgd/eval"]
    assert runs.paths == files
    assert len(runs.table(library="numpy")) == 4


def test_one_directory_is_one_run_however_it_is_spelled(two):
    assert read([two / "adam", two / "sgd" / ".." / "adam"]).names == ["."]
    assert read(two / "sgd" / "..").names == ["adam", "sgd/eval"]


def test_links_to_directories_are_followed(two, tmp_path_factory):
    other = write(tmp_path_factory.mktemp("other") / "deep" / "run", [7])
    (two / "best").symlink_to(other.parent, target_is_directory=True)
    (two / "latest").symlink_to(two / "adam", target_is_directory=True)
    (two / "adam" / "all").symlink_to(two, target_is_directory=True)
    (two / "gone").symlink_to(two / "nowhere")
    (other / "self").symlink_to(other, target_is_directory=True)
    assert read(two).names == ["adam", "best/run", "sgd/eval"], "each once, and none for ever"
    assert read(two / "latest").names == [".", "all/best/run", "all/sgd/eval"]


def test_a_directory_that_cannot_be_read_is_told(two, monkeypatch):
    scandir = os.scandir

    def refusing(path):
        if str(path).endswith("sgd"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr("os.scandir", refusing)
    with pytest.warns(RuntimeWarning, match=f"{two}/sgd is left out: Permission denied"):
        assert read(two).names == ["adam"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems want names that are text")
def test_a_name_that_is_no_text_is_written_as_one(tmp_path):
    folder = os.fsencode(tmp_path) + b"/run\xff"
    write(Path(os.fsdecode(folder)), [1])
    runs = read(tmp_path)
    assert runs.names == ["run\\xff"]
    runs.to_csv(tmp_path / "out.csv")
    assert "run\\xff,loss,0,1.0" in (tmp_path / "out.csv").read_text()


@pytest.mark.parametrize("source", [None, 3, b"logs", [b"logs"], {"a": ["logs"]}])
def test_what_is_no_path_is_named(source):
    with pytest.raises(TypeError, match="source: expected paths, or a mapping to paths, got"):
        read(source)


def test_two_runs_of_one_name_are_refused(two):
    with pytest.raises(ValueError, match="source: two runs are called 'a/sgd/eval'"):
        read({"a": two, "a/sgd": two / "sgd"})


def test_runs_are_found_by_name(two):
    runs = read(two)
    assert len(runs) == 2
    assert runs["adam"].scalars("loss").values.tolist() == [3, 2, 1]
    assert runs.scalars("loss", "sgd/eval").values.tolist() == [9.5]
    assert runs.select("sgd*").scalars("loss").values.tolist() == [9.5]
    assert runs.select(re.compile("da")).names == ["adam"]
    assert runs.select("nothing").names == []
    assert repr(runs) == "<summaries.Runs: adam, sgd/eval>"
    assert repr(runs.select()) == "<summaries.Runs: none>"
    with pytest.raises(KeyError, match="no run is called 'Adam'; there are: adam, sgd/eval"):
        runs["Adam"]
    with pytest.raises(ValueError, match="'loss' is in adam, sgd/eval; name one of them"):
        runs.scalars("loss")
    with pytest.raises(KeyError, match="no scalar has the tag 'accuracy'"):
        runs.scalars("accuracy")


def test_filters_are_names_patterns_or_expressions(tmp_path):
    everything = ["a/loss", "b/loss", "b/rate", "c[1]"]
    with EventLog(tmp_path) as log:
        for tag in everything:
            value = _proto.Summary.Value(tag=tag, simple_value=1)  # brackets, by another writer
            log.add_summary(_proto.Summary(value=[value]).SerializeToString())

    def tags(wanted):
        runs = read(tmp_path, tags=wanted)
        assert list(dict.fromkeys(record.tag for record in runs)) == list(runs.tags())
        assert set(runs.table(library="numpy")["tag"]) == set(runs.tags())
        return list(runs.tags())

    assert tags(None) == everything
    assert tags("b/loss") == ["b/loss"]
    assert tags("*/loss") == ["a/loss", "b/loss"]
    assert tags(["b/*", "c[1]"]) == ["b/loss", "b/rate", "c[1]"]
    assert tags(re.compile("^.[/[]")) == everything
    assert tags([]) == []
    with pytest.raises(TypeError, match="tags: expected strings or patterns, got 3"):
        read(tmp_path, tags=[3])


def test_p131_a_stride_takes_every_so_many_of_each_tag(tmp_path):
    with EventLog(tmp_path) as log:
        for step in range(1000):
            log.add_summary(encode_scalar("a", step) + encode_scalar("b", -step), step)
    runs = read(tmp_path, stride=100)
    assert runs.scalars("b").values.tolist() == [-step for step in range(0, 1000, 100)]
    assert len(runs.table(library="numpy")) == len(list(runs)) == 20
    with pytest.raises(ValueError, match="stride: expected at least 1, got 0"):
        read(tmp_path, stride=0)


def test_p131_a_million_scalars_are_read_in_five_seconds(tmp_path):
    """A tenth of them here, in a tenth of the time; the benchmarks read them all."""
    heads = [scalar_head(f"gradient_norm/dense_{index}/kernel_0") for index in range(10)]
    records = (
        frame(event(1e9 + step, step, heads[step % 10] + pack_float(step)))
        for step in range(100_000)
    )
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(b"".join(records))
    begin = time.process_time()
    table = read(tmp_path).table(library="numpy")
    spent = time.process_time() - begin
    assert len(table) == 100_000
    assert sorted(table["value"]) == list(range(100_000))
    assert spent < 0.5 or sys.gettrace() is not None  # a tracer's time is not the reader's


def test_a_run_that_grows_is_read_anew(tmp_path):
    """P122: what is written between two looks is there at the second."""
    runs = read(write(tmp_path, [1, 2]))
    assert runs.scalars("loss").values.tolist() == [1, 2]
    assert runs.tags() == {"loss": "scalar"}
    write(tmp_path, [3], start=2)
    assert runs.scalars("loss").values.tolist() == [1, 2, 3]


def test_csv_gives_back_every_digit(two, tmp_path):
    write(two / "odd", [0.1, math.nan, math.inf, -math.inf])
    text = read(two).to_csv()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == ["run", "tag", "step", "value", "wall_time"]
    assert [row["run"] for row in rows] == ["adam"] * 3 + ["odd"] * 4 + ["sgd/eval"]
    np.testing.assert_array_equal(
        [float(row["value"]) for row in rows], read(two).table(library="numpy")["value"]
    )
    path = tmp_path / "out.csv"
    assert read(two).to_csv(path, tags="nothing") is None
    assert path.read_text() == "run,tag,step,value,wall_time\n"
    with path.open("w") as file:
        read(two).select("adam").to_csv(file)
    assert len(path.read_text().splitlines()) == 4
    with pytest.raises(TypeError, match="target: expected a path or a file open for text, got 3"):
        read(two).to_csv(3)


def test_without_pandas_its_extra_is_named(two, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    runs = read(two).select("adam")
    for ask in (runs.table, runs.hparams, runs.bands().table):
        with pytest.raises(
            ImportError, match=r"^pandas is not .*: pip install 'optkit\[notebook\]'"
        ):
            ask(library="pandas")


@libraries
def test_p081_hyper_parameters_are_the_union_of_the_runs(tmp_path, library):
    for name, values, group, status in [
        ("a", {"lr": 0.1, "name": "x"}, "g", 1),
        ("b", {"lr": 0.2, "wd": 0.5}, "g", 2),
        ("c", {}, "", 0),
    ]:
        with EventLog(tmp_path / name) as log:
            log.add_summary(hparams_record(values, group, status) + encode_scalar("loss", 1), 0)
    runs = read(tmp_path)
    table = runs.hparams(library=library)
    assert list(table["run"]) == ["a", "b", "c"]
    assert list(table["group"]) == ["g", "g", ""]
    assert list(table["status"]) == ["success", "failure", ""]
    assert list(table["lr"][:2]) == [0.1, 0.2]
    np.testing.assert_array_equal(table["wd"], [math.nan, 0.5, math.nan])
    assert [name for name in table["name"] if isinstance(name, str)] == ["x"]
    assert {name: group.names for name, group in runs.groups().items()} == {
        "g": ["a", "b"],
        "c": ["c"],
    }
    assert runs.tags() == {"loss": "scalar"}
    assert runs["a"].hparams().values == {"lr": 0.1, "name": "x"}


def test_what_describes_a_sweep_is_no_run_of_it(tmp_path, recwarn):
    write_experiment(tmp_path, {"lr": float}, ["loss"])
    for seed in range(2):
        with SummaryWriter(tmp_path / f"seed{seed}") as writer:
            writer.hparams({"lr": 0.5, "seed": seed}, group="lr=0.5")
            writer.add_scalar("loss", seed, 0)
    runs = read(tmp_path)
    assert list(runs.hparams(library="numpy")["run"]) == ["seed0", "seed1"]
    assert list(runs.hparams(library="numpy")["seed"]) == [0, 1]
    assert {name: group.names for name, group in runs.groups().items()} == {
        "lr=0.5": ["seed0", "seed1"]
    }
    assert list(runs.bands()["loss"].mean) == [0.5]
    assert not recwarn


def test_a_hyper_parameter_may_be_called_as_a_column_is(tmp_path):
    with EventLog(tmp_path) as log:
        log.add_summary(hparams_record({"run": "mine", "flag": True}), 0)
    table = read(tmp_path).hparams(library="numpy")
    assert (table["run"][0], table["run_"][0], table["flag"][0]) == (".", "mine", True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda runs: runs.table("audio"), "kind: expected one of scalar, .*, got 'audio'"),
        (lambda runs: runs.table(library="R"), "library: expected one of auto, .*, got 'R'"),
        (lambda runs: runs.bands(steps="all"), "steps: expected one of common, any, got 'all'"),
    ],
)
def test_an_argument_out_of_its_choices_is_named(two, call, message):
    with pytest.raises(ValueError, match=message):
        call(read(two))


def test_no_path_is_no_run(tmp_path):
    for nothing in ([], {}):
        with pytest.raises(FileNotFoundError, match="source: expected at least one path"):
            read(nothing)
    with pytest.raises(FileNotFoundError, match=f"no event file or directory at {tmp_path}/b"):
        read([tmp_path, tmp_path / "b"])
