import copy
import gc
import pickle
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend import process_graph

from summaries import EventLog, SummaryWriter, encode_scalar, event_file
from summaries._proto import tensorboardx_writer
from summaries.event_log import GraphNode

ONE = encode_scalar("a", 1.0)


def event_files(directory):
    return sorted(path for path in Path(directory).rglob("*") if path.is_file())


def test_a_file_begins_with_its_version(tmp_path, raw_events):
    with EventLog(tmp_path) as log:
        log.add_summary(ONE, 7, wall_time=12.5)
    version, start, event = raw_events(log.path)
    assert version.file_version == "brain.Event:2"
    assert start.session_log.status == start.session_log.START
    assert (event.step, event.wall_time) == (7, 12.5)
    assert event.summary.value[0].simple_value == 1.0


def test_p133_no_event_no_file(tmp_path):
    with EventLog(tmp_path / "new" / "run") as log:
        log.flush()
        log.add_summary(b"", 3)
    assert log.path is None
    assert event_files(tmp_path) == []
    assert (tmp_path / "new" / "run").is_dir()


def test_p094_the_home_directory_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with EventLog("~/x") as log:
        log.add_summary(ONE, 0)
    assert log.path.parent == log.logdir == tmp_path / "x"


def test_a_relative_directory_is_that_of_the_start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = EventLog("run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    log.add_summary(ONE, 0)
    log.close()
    assert event_files(tmp_path) == [log.path]
    assert log.path.parent == tmp_path / "run"


def test_p075_files_of_one_second_have_names_of_their_own_in_order(tmp_path, monkeypatch, load):
    monkeypatch.setattr("summaries.event_file.time.time", lambda: 1_700_000_000.0)
    paths = []
    for step in range(12):
        with EventLog(tmp_path, filename_suffix=".train") as log:
            log.add_summary(ONE, step)
        paths.append(log.path)
    assert event_files(tmp_path) == paths, "the names sort as the files were made"
    assert all(path.name.endswith(".train") for path in paths)
    assert [event.step for event in load(tmp_path).Scalars("a")] == list(range(12))


def test_p075_a_name_that_was_taken_meanwhile_is_not_written_over(tmp_path, monkeypatch):
    """As if other processes made their files between the look into the directory and ours."""
    monkeypatch.setattr("summaries.event_file.time.time", lambda: 1_700_000_000.0)
    monkeypatch.setattr("summaries.event_file.os.listdir", lambda _: [])
    monkeypatch.setattr("summaries.event_file._counter", iter([1, 1, 1, 2, 3]))
    paths = []
    for step in range(3):
        with EventLog(tmp_path) as log:
            log.add_summary(ONE, step)
        paths.append(log.path)
    assert event_files(tmp_path) == paths
    assert len({path.stat().st_size for path in paths[1:]}) == 1


def test_a_clock_that_went_back_does_not_hide_the_new_file(tmp_path):
    old = tmp_path / "events.out.tfevents.9999999998.host"
    old.touch()
    with EventLog(tmp_path) as log:
        log.add_summary(ONE, 0)
    assert event_files(tmp_path) == [old, log.path]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"flush_secs": -1}, "flush_secs"),
        ({"flush_secs": float("nan")}, "flush_secs"),
        ({"filename_suffix": "a/b"}, "filename_suffix"),
        ({"start_step": -3}, "step"),
        ({"on_error": "ignore"}, "on_error"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"max_bytes": float("nan")}, "max_bytes"),
        ({"filename_suffix": "a\0"}, "filename_suffix"),
        ({"filename_suffix": "\ud800"}, "filename_suffix"),
    ],
)
def test_arguments_are_checked(tmp_path, options, named):
    with pytest.raises(ValueError, match=named):
        EventLog(tmp_path, **options)


@pytest.mark.parametrize("name", ["flush_secs", "max_bytes", "filename_suffix"])
def test_kinds_of_arguments_are_checked(tmp_path, name):
    with pytest.raises(TypeError, match=f"{name} must be a"):
        EventLog(tmp_path, **{name: None})


@pytest.mark.parametrize(
    ("logdir", "error"),
    [("a\0b", ValueError), ("\ud800", ValueError), (b"run", TypeError), (None, TypeError)],
)
def test_what_is_no_path_is_refused(logdir, error):
    with pytest.raises(error, match="logdir must be a"):
        EventLog(logdir)


def test_the_home_of_nobody_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="names no user's directory"):
        EventLog("~nobody-of-this-name/run")


@pytest.mark.parametrize("kind", [EventLog, SummaryWriter])
@pytest.mark.parametrize("work", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_log_is_not_copied(tmp_path, kind, work):
    with kind(tmp_path) as log, pytest.raises(TypeError, match="cannot be copied or pickled"):
        work(log)


def test_a_url_is_no_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="'gs://bucket/run'"):
        EventLog("gs://bucket/run")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_named(tmp_path):
    path = tmp_path / "run"
    path.touch()
    with pytest.raises(FileExistsError, match=f"the directory cannot be made: .*'{path}'"):
        EventLog(path)


def test_a_directory_without_permission_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("summaries.event_log.os.access", lambda *_: False)
    with pytest.raises(PermissionError, match=f"cannot be written: '{tmp_path}'"):
        EventLog(tmp_path)


def test_a_directory_that_went_away_before_the_first_event_is_named(tmp_path):
    log = EventLog(tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(FileNotFoundError, match=f"no event file can be created: .*{log.logdir}"):
        log.add_summary(ONE, 0)
    log.logdir.mkdir()
    log.add_summary(ONE, 1)
    log.close()
    assert event_files(tmp_path) == [log.path]


@pytest.mark.parametrize("flush_secs", [0, 2])
def test_a_directory_that_was_deleted_is_told(tmp_path, flush_secs):
    log = EventLog(tmp_path / "run", flush_secs=flush_secs)
    log.add_summary(ONE, 0)
    log.flush()
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(FileNotFoundError, match=f"the event file was deleted.*: '{log.path}'"):
        add_and_flush(log, 1)
    with pytest.raises(FileNotFoundError, match="no event file can be created") as caught:
        add_and_flush(log, 2)
    if flush_secs:
        with pytest.raises(FileNotFoundError) as caught:
            log.close()
        assert caught.value.__notes__ == [f"2 events for {log.logdir} are lost"]
    else:
        log.close()


def add_and_flush_many(log, steps):
    for step in steps:
        add_and_flush(log, step)


def add_and_flush(log, step):
    log.add_summary(ONE, step)
    log.flush()


@pytest.mark.parametrize("change", ["deleted", "replaced", "moved"])
def test_a_directory_that_came_back_gets_a_new_file(tmp_path, scalars, change):
    log = EventLog(tmp_path / "run")
    add_and_flush(log, 0)
    if change == "moved":
        (tmp_path / "run").rename(tmp_path / "old")
        (tmp_path / "run").mkdir()
    else:
        log.path.unlink()
    if change == "replaced":
        log.path.touch()
    with pytest.raises(FileNotFoundError, match="was deleted, or its directory moved"):
        add_and_flush(log, 1)
    add_and_flush(log, 2)
    log.close()
    assert [step for step, _ in scalars(tmp_path / "run", "a")] == [1, 2]
    if change == "moved":
        assert [step for step, _ in scalars(tmp_path / "old", "a")] == [0]


def test_training_goes_on_without_its_directory(tmp_path):
    log = EventLog(tmp_path / "run", on_error="warn")
    add_and_flush(log, 0)
    shutil.rmtree(tmp_path / "run")
    with pytest.warns(RuntimeWarning, match="was deleted") as caught:
        add_and_flush_many(log, range(1, 100))
    assert [each.filename for each in caught] == [__file__]
    with pytest.warns(RuntimeWarning, match=f"99 events for {log.logdir} are lost"):
        log.close()


def test_p093_steps_are_checked_and_none_is_the_last_one(tmp_path, scalars):
    with EventLog(tmp_path) as log:
        log.add_summary(ONE)
        for step in (np.int64(5), None, 7.0, np.array(9), None):
            log.add_summary(ONE, step)
        for step in (5.7, -1, True, 2**63):
            with pytest.raises(ValueError, match="step"):
                log.add_summary(ONE, step)
        log.add_summary(ONE, None)
    assert [step for step, _ in scalars(tmp_path, "a")] == [0, 5, 5, 7, 9, 9, 9]
    assert log.last_step == 9


@pytest.mark.parametrize("data", [b"\xff\xff", b"text"])
def test_bytes_that_are_no_summary_are_refused(tmp_path, data, scalars):
    with EventLog(tmp_path) as log:
        log.add_summary(ONE, 0)
        with pytest.raises(ValueError, match="not a Summary message"):
            log.add_summary(data, 1)
        with pytest.raises(TypeError, match="a summary is given as bytes, not str"):
            log.add_summary("text", 1)
        log.add_summary(memoryview(ONE), 2)
    assert scalars(tmp_path, "a") == [(0, 1.0), (2, 1.0)]


def test_after_close_nothing_is_taken(tmp_path):
    log = EventLog(tmp_path)
    log.add_summary(ONE, 0)
    log.close()
    log.close()
    log.flush()
    assert log.closed
    for add in (lambda: log.add_summary(ONE, 1), lambda: log.add_summary(b"", 1)):
        with pytest.raises(ValueError, match=rf"the event log of {tmp_path} is closed; reopen\(\)"):
            add()
    with pytest.raises(ValueError, match="closed"):
        log.add_graph([])


# The server's loader takes the first mark of a run for its beginning, EventAccumulator does not.
@pytest.mark.parametrize("loader", ["load", "load_as_server"])
def test_p076_a_resumed_run_hides_what_it_repeats(tmp_path, request, loader):
    with EventLog(tmp_path) as log:
        for step in range(6):
            log.add_summary(encode_scalar("a", step), step)
    with EventLog(tmp_path, start_step=3) as log:
        log.add_summary(encode_scalar("a", 103), 3)
    run = request.getfixturevalue(loader)(tmp_path)
    if loader == "load":
        points = [(event.step, event.value) for event in run.Scalars("a")]
    else:
        points = [(event.step, event.tensor_proto.float_val[0]) for event in run.Tensors("a")]
    assert points == [(0, 0), (1, 1), (2, 2), (3, 103)]


@pytest.mark.parametrize("loader", ["load", "load_as_server"])
def test_p076_a_run_of_tensorboardx_is_resumed_too(tmp_path, request, loader):
    """Its files have no session start, of which TensorBoard's server heeds the second only."""
    other = tensorboardx_writer()(str(tmp_path))
    for step in range(6):
        other.add_scalar("a", step, step)
    other.close()
    with EventLog(tmp_path, start_step=3) as log:
        log.add_summary(encode_scalar("a", 103), 3)
    run = request.getfixturevalue(loader)(tmp_path)
    events = run.Scalars("a") if loader == "load" else run.Tensors("a")
    assert [event.step for event in events] == [0, 1, 2, 3]


def test_p076_a_session_may_start_later(tmp_path, scalars):
    with EventLog(tmp_path) as log:
        for step in range(6):
            log.add_summary(ONE, step)
        log.add_session_start(2)
        assert log.last_step == 2
        log.add_summary(ONE, 2)
    assert [step for step, _ in scalars(tmp_path, "a")] == [0, 1, 2]


def test_p077_a_resumed_run_goes_on_from_its_step(tmp_path, raw_events):
    with EventLog(tmp_path, start_step=10) as log:
        log.add_summary(ONE)
        log.add_summary(ONE, 11)
    assert {event.step for event in raw_events(log.path)[1:]} == {10, 11}


def test_p087_two_open_logs_of_one_directory_are_told(tmp_path, scalars):
    first = EventLog(tmp_path)
    with pytest.warns(RuntimeWarning, match=f"another event log is open in {tmp_path}") as caught:
        second = EventLog(tmp_path / ".." / tmp_path.name)
    assert len(caught) == 1
    for step in range(20):
        first.add_summary(encode_scalar("a", step), step)
        second.add_summary(encode_scalar("b", step), step)
    first.close()
    second.close()
    assert len(event_files(tmp_path)) == 2
    for tag in "ab":
        assert scalars(tmp_path, tag) == [(step, step) for step in range(20)]
    EventLog(tmp_path).close()


def test_p087_a_log_of_another_process_is_told(tmp_path, start_python):
    other = start_python(
        "import sys\n"
        "from summaries import EventLog, encode_scalar\n"
        "log = EventLog(sys.argv[1])\n"
        "log.add_summary(encode_scalar('a', 1), 0)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n",
        tmp_path,
    )
    assert other.stdout.readline() == "ready\n"
    with pytest.warns(RuntimeWarning, match="another event log is open"):
        EventLog(tmp_path).close()
    other.communicate()
    EventLog(tmp_path).close()


@pytest.mark.parametrize("error", [OSError(95, "no locks here"), None])
def test_files_without_locks_or_readers_are_no_hindrance(tmp_path, monkeypatch, error):
    """A file system without locks, or files of another user: nothing is told, all is written."""
    with EventLog(tmp_path) as log:
        log.add_summary(ONE, 0)

        def refuse(*_):
            raise error or PermissionError(13, "not yours")

        name = "fcntl.flock" if error else "os.open"
        with monkeypatch.context() as patch:
            patch.setattr(f"summaries.event_file.{name}", refuse)
            assert not event_file._is_live(log.path)


def test_many_threads_write_whole_events(tmp_path, scalars):
    with EventLog(tmp_path, flush_secs=1000) as log:
        threads = [
            threading.Thread(
                target=lambda tag=tag: [
                    log.add_summary(encode_scalar(tag, step), step) for step in range(200)
                ]
            )
            for tag in "abcdefgh"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for tag in "abcdefgh":
        assert scalars(tmp_path, tag) == [(step, step) for step in range(200)]


def test_a_log_that_is_dropped_is_written(tmp_path, scalars):
    log = EventLog(tmp_path, flush_secs=1000)
    log.add_summary(ONE, 0)
    del log
    assert scalars(tmp_path, "a") == [(0, 1.0)]


def test_threads_and_descriptors_do_not_pile_up(tmp_path):
    """One thread and one descriptor a log, from its first event to its close."""
    descriptors = Path("/proc/self/fd")
    if not descriptors.is_dir():
        pytest.skip("needs /proc")

    def used():
        return threading.active_count(), len(list(descriptors.iterdir()))

    gc.collect()  # logs that other tests have left go now, not in the midst of this one
    threads, files = used()
    logs = [EventLog(tmp_path / str(n)) for n in range(100)]
    assert used() == (threads, files)
    for log in logs:
        log.add_summary(ONE, 0)
    assert used() == (threads + 100, files + 100)
    for log in logs:
        log.close()
    assert used() == (threads, files)


def test_a_closed_log_may_go_on(tmp_path, scalars):
    log = EventLog(tmp_path, start_step=3)
    for step in (3, 4):
        log.add_summary(ONE, step)
        log.close()
        log.reopen()
        log.reopen()
        assert log.path is None
    log.add_summary(ONE)
    log.close()
    assert len(event_files(tmp_path)) == 3
    assert [step for step, _ in scalars(tmp_path, "a")] == [3, 4, 4]


@pytest.mark.parametrize("name", ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"])
@pytest.mark.parametrize(("rank", "files"), [("0", 1), ("1", 0), ("12", 0), ("x", 1), ("", 1)])
def test_p132_only_the_first_rank_writes(tmp_path, monkeypatch, name, rank, files):
    monkeypatch.setenv(name, rank)
    with EventLog(tmp_path / "run") as log:
        log.add_summary(ONE, 5)
        log.add_graph([GraphNode("x", "Placeholder")])
        log.add_session_start(6)
        log.flush()
        log.reopen()
    assert log.writes == bool(files)
    assert len(event_files(tmp_path)) == files
    assert (tmp_path / "run").exists() == bool(files)


def test_p132_another_rank_may_be_told_to_write(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    for n, writes in enumerate((True, False)):
        with EventLog(tmp_path / str(n), write_to_disk=writes) as log:
            log.add_summary(ONE, 5)
    assert len(event_files(tmp_path)) == 1
    EventLog(tmp_path / "1", write_to_disk=True).close()


def test_fsync_is_done_where_asked(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr("summaries.event_file.os.fsync", calls.append)
    for fsync in (False, True):
        with EventLog(tmp_path / str(fsync), fsync=fsync) as log:
            log.add_summary(ONE, 0)
            log.flush()
        assert len(calls) == fsync


@pytest.mark.parametrize("loader", ["load", "load_as_server"])
def test_a_graph_is_what_tensorboard_takes(tmp_path, request, loader):
    nodes = [
        GraphNode("x", "Placeholder"),
        GraphNode("dense/kernel", "VariableV2", device="/cpu:0"),
        ("dense/MatMul", "MatMul", ["x", "dense/kernel:0", "^init"], ""),
        GraphNode("init", "NoOp"),
    ]
    with EventLog(tmp_path) as log:
        log.add_summary(ONE, 4)
        log.add_graph(iter(nodes))
    graph = request.getfixturevalue(loader)(tmp_path).Graph()
    assert [(node.name, node.op, tuple(node.input), node.device) for node in graph.node] == [
        (name, op, tuple(inputs), device) for name, op, inputs, device in nodes
    ]
    process_graph.prepare_graph_for_ui(graph)
