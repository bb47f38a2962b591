import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend import process_graph

from summaries import EventLog, encode_scalar, event_file
from summaries.event_log import GraphNode

ONE = encode_scalar("a", 1.0)


def event_files(directory):
    return sorted(path for path in Path(directory).rglob("*") if path.is_file())


def test_a_file_begins_with_its_version(tmp_path, raw_events):
    with EventLog(tmp_path) as log:
        log.add_summary(ONE, 7, wall_time=12.5)
    first, event = raw_events(log.path)
    assert first.file_version == "brain.Event:2"
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
    ],
)
def test_arguments_are_checked(tmp_path, options, named):
    with pytest.raises(ValueError, match=named):
        EventLog(tmp_path, **options)


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


def test_a_file_that_was_deleted_is_named(tmp_path):
    log = EventLog(tmp_path / "run")
    log.add_summary(ONE, 0)
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(FileNotFoundError, match=f"the event file was deleted: '{log.path}'"):
        log.add_summary(ONE, 1)
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
        with pytest.raises(ValueError, match=f"the event log of {tmp_path} is closed"):
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
    assert not event_files(tmp_path)
    del log
    assert scalars(tmp_path, "a") == [(0, 1.0)]


def test_files_and_descriptors_do_not_pile_up(tmp_path):
    descriptors = Path("/proc/self/fd")
    if not descriptors.is_dir():
        pytest.skip("needs /proc")
    before = len(list(descriptors.iterdir()))
    logs = [EventLog(tmp_path / str(n)) for n in range(20)]
    for log in logs:
        log.add_summary(ONE, 0)
    assert len(list(descriptors.iterdir())) == before + 20
    for log in logs:
        log.close()
    assert len(list(descriptors.iterdir())) == before


def test_events_gather_for_as_long_as_asked(tmp_path, monkeypatch):
    clock = iter([100.0, 100.0, 101.0, 103.0]).__next__
    monkeypatch.setattr("summaries.event_file.time.monotonic", clock)
    log = EventLog(tmp_path, flush_secs=2.5)
    log.add_summary(ONE, 0)
    log.add_summary(ONE, 1)
    assert log.path is None
    log.add_summary(ONE, 2)
    assert log.path is not None
    log.close()


def test_a_full_buffer_is_written(tmp_path):
    log = EventLog(tmp_path, flush_secs=1000)
    for _ in range(100):
        if log.path is None:
            log.add_summary(ONE * 1000, 0)
    assert 1 << 16 <= log.path.stat().st_size < 1 << 17
    log.close()


def test_fsync_is_done_where_asked(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr("summaries.event_file.os.fsync", calls.append)
    for fsync in (False, True):
        with EventLog(tmp_path / str(fsync), fsync=fsync) as log:
            log.add_summary(ONE, 0)
            log.flush()
    assert len(calls) == 2, "at flush and at close of the second log"


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
