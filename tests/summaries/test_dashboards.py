import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from summaries import SummaryWriter, dashboard, dashboards
from summaries.charts import Chart
from summaries.dashboards import Dashboard, clean_info, in_jupyter, own_directory


@pytest.fixture
def process():
    """A process that stands for a server and waits for its end."""
    code = "import sys; sys.stdin.read()"
    started = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, text=True)
    yield started
    if started.poll() is None:
        started.kill()
        started.wait()
    if started.stdin is not None:
        started.stdin.close()


@pytest.fixture
def board(process):
    return Dashboard("/logs/<a>", process, 6006, 700)


@pytest.fixture
def shown(monkeypatch):
    """What would be displayed in a notebook."""
    found = []
    monkeypatch.setattr("IPython.display.display", found.append)
    return found


def dead_pid():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_dashboard_tells_where_it_is_and_ends(board, process):
    assert repr(board) == "<summaries.Dashboard of /logs/<a> at http://127.0.0.1:6006/>"
    assert (board.pid, board.running) == (process.pid, True)
    with board:
        pass
    assert not board.running
    assert process.returncode == -signal.SIGTERM
    board.close()
    assert repr(board) == "<summaries.Dashboard of /logs/<a> closed>"


def test_a_server_that_does_not_end_is_killed(process, monkeypatch):
    monkeypatch.setattr(process, "terminate", lambda: None)
    waits = iter([0.01, 60])
    wait = process.wait
    monkeypatch.setattr(process, "wait", lambda _: wait(next(waits)))
    Dashboard("/logs", process, 6006, 700).close()
    assert process.returncode == -signal.SIGKILL


def test_a_forked_child_leaves_the_server_to_its_parent(board, monkeypatch):
    pid = os.getpid()
    monkeypatch.setattr("os.getpid", lambda: pid + 1)
    board.close()
    assert board.running


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_sees_whether_the_server_runs(board, process):
    child = os.fork()
    if not child:
        os._exit(not board.running)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    board.close()
    child = os.fork()
    if not child:
        os._exit(board.running)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_frame_is_self_contained_html(board, monkeypatch):
    monkeypatch.delenv("TENSORBOARD_PROXY_URL", raising=False)
    html = board.html()
    assert '<iframe src="http://127.0.0.1:6006/" width="100%" height="700"' in html
    assert "TensorBoard of /logs/&lt;a&gt;" in html
    assert 'height="90"' in board.html(90)


def test_p121_a_proxy_is_honoured(board, monkeypatch, shown):
    monkeypatch.setenv("TENSORBOARD_PROXY_URL", "/user/me/proxy/%PORT%/")
    assert board.url == "http://127.0.0.1:6006/"
    assert board.public_url == "/user/me/proxy/6006/"
    board.show()
    (frame,) = shown
    assert '<iframe src="/user/me/proxy/6006/"' in frame.data


def test_p121_without_a_server_a_chart_is_shown(tmp_path, monkeypatch, shown):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", 1, 0)
    monkeypatch.setattr(dashboards, "find_spec", lambda name: None)
    monkeypatch.setattr(dashboards, "in_jupyter", lambda: True)
    with pytest.warns(RuntimeWarning, match="no dashboard, so a chart is shown: tensorboard is no"):
        assert dashboard(tmp_path) is None
    (chart,) = shown
    assert isinstance(chart, Chart)
    assert chart.tags == ["loss"]


def test_without_tensorboard_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(dashboards, "find_spec", lambda name: None)
    for show in (False, None, True):  # True: there is nothing that a chart could show
        with pytest.raises(ImportError, match=r"pip install 'optkit\[dashboard\]'"):
            dashboard(tmp_path, show=show)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"port": 70000}, "port: expected 0 to 65535, got 70000"),
        ({"reload_interval": 0}, "reload_interval: expected seconds above 0, got 0"),
        ({"reload_interval": float("inf")}, "reload_interval: expected seconds above 0, got inf"),
        ({"port": "6006"}, "port: expected 0 to 65535, got '6006'"),
        ({"timeout": float("nan")}, "timeout: expected seconds above 0, got nan"),
        ({"timeout": None}, "timeout: expected seconds above 0, got None"),
        ({"arguments": ["--port", 3]}, "arguments: expected texts such as .*, got 3"),
        ({"logdir": b"runs"}, "logdir: expected a path, got b'runs'"),
        ({"logdir": "a\0b"}, r"logdir: expected a path, got 'a\\x00b'"),
    ],
)
def test_bad_arguments_are_named(tmp_path, arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        dashboard(**{"logdir": tmp_path} | arguments)


def test_one_argument_may_be_a_text(tmp_path, monkeypatch):
    found = []
    monkeypatch.setattr(dashboards, "_start", lambda *given: found.append(given[4]))
    dashboard(tmp_path, show=False, arguments="--load_fast=false")
    assert found == [["--load_fast=false"]]


def test_what_a_server_says_before_it_ends_is_told():
    lines = queue.SimpleQueue()
    for line in ("a warning of http://example.com:1/\n", "address in use\n", None):
        lines.put(line)
    with pytest.raises(
        RuntimeError, match=r"ended as it started:\na warning of .*\naddress in use"
    ):
        dashboards._await_port(lines, 10)
    lines.put("slow\n")
    with pytest.raises(RuntimeError, match=r"did not start in 0.01 s:\nslow"):
        dashboards._await_port(lines, 0.01)
    lines.put("TensorBoard 2.21.0 at http://localhost:41234/ (Press CTRL+C to quit)\n")
    assert dashboards._await_port(lines, 10) == 41234


def test_p119_entries_of_dead_servers_are_removed(tmp_path):
    def entry(name, **content):
        path = tmp_path / f"{name}.info"
        path.write_text(json.dumps(content))
        return path

    dead = entry("pid-1", pid=dead_pid(), port=6006, logdir="/logs")
    silent = entry("pid-2", pid=os.getpid(), port=1, logdir="/logs")
    beyond = entry("pid-4", pid=2**80, port=2**20, logdir="/logs")
    odd = tmp_path / "pid-3.info"
    odd.write_text("no JSON")
    texts = ["[]", "null", "[" * 100_000, '{"pid": 1e400, "port": 1}', '{"pid": NaN, "port": 1}']
    for number, text in enumerate(texts):
        (tmp_path / f"pid-odd{number}.info").write_text(text)
    (tmp_path / "pid-bytes.info").write_bytes(b"\xff\xfe")
    note = tmp_path / "note.txt"
    note.write_text("of somebody else")
    clean_info(tmp_path)
    assert [path for path in (dead, silent, beyond, odd) if path.exists()] == []
    assert [*tmp_path.iterdir()] == [note]
    clean_info(tmp_path / "gone")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
def test_an_entry_that_is_no_file_is_left_alone(tmp_path):
    os.mkfifo(tmp_path / "pid-1.info")
    (tmp_path / "pid-2.info").mkdir()
    (tmp_path / "pid-3.info").symlink_to(tmp_path / "pid-1.info")
    clean_info(tmp_path)
    assert len([*tmp_path.iterdir()]) == 3


def test_p120_temporary_files_are_in_a_directory_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = own_directory()
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700
    assert own_directory() == folder


def test_p120_another_users_directory_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    taken = own_directory()
    taken.rmdir()
    taken.symlink_to(tmp_path / "elsewhere")  # as somebody else may have laid it there
    made = []
    monkeypatch.setattr("atexit.register", lambda *call, **_: made.append(call))
    folder = own_directory()
    assert folder != taken
    assert folder.is_dir()
    assert made[0][1] == folder


def test_p120_a_directory_that_somebody_else_made_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    user = os.getuid() + 1
    monkeypatch.setattr("os.getuid", lambda: user)
    taken = tmp_path / f"summaries-{user}"
    taken.mkdir()
    assert own_directory() not in (taken, tmp_path)


def test_this_is_no_notebook():
    assert not in_jupyter()


SCRIPT = """
import os, sys
import summaries

board = summaries.dashboard(sys.argv[1])
print(board.pid, board.port, flush=True)
sys.stdin.read(1)
"""


def is_alive(pid):
    """Whether a process runs: not one that has ended and that nobody has waited for."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads the states of processes in /proc")
@pytest.mark.parametrize(
    "end", [signal.SIGKILL, signal.SIGTERM, None], ids=["kill", "term", "exit"]
)
def test_a_server_ends_with_its_process(tmp_path, start_python, end):
    process = start_python(SCRIPT, tmp_path)
    pid = int(process.stdout.readline().split()[0])
    assert is_alive(pid)
    if end is None:
        process.stdin.write("x")
        process.stdin.flush()
    else:
        process.send_signal(end)
    process.wait(30)
    stop = time.monotonic() + 30
    while is_alive(pid):
        assert time.monotonic() < stop, "the server is still there"


@pytest.mark.slow
def test_p119_a_dead_entry_does_not_keep_a_server_from_starting(tmp_path, monkeypatch):
    """P119, P120: within ten seconds, though the common folder has an entry of a dead server."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    info = tmp_path / ".tensorboard-info"
    info.mkdir()
    stale = info / "pid-1.info"
    stale.write_text(json.dumps({"pid": dead_pid(), "port": 6006, "logdir": "/logs"}))
    begin = time.monotonic()
    with dashboard(tmp_path, show=False) as board:
        assert time.monotonic() - begin < 10
        assert not stale.exists()
        assert board.query("data/logdir") == {"logdir": str(tmp_path)}
        (own,) = own_directory().glob(".tensorboard-info/*.info")
        assert json.loads(own.read_text())["pid"] == board.pid
        assert dashboard(tmp_path, show=False) is board
    with dashboard(tmp_path, show=False) as other:
        assert other is not board


@pytest.mark.slow
def test_p119_a_port_that_somebody_else_has_now_is_no_server(tmp_path):
    path = tmp_path / "pid-1.info"
    with socket.create_server(("127.0.0.1", 0)) as server:
        path.write_text(json.dumps({"pid": os.getpid(), "port": server.getsockname()[1]}))

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 mail.example.com ESMTP\r\n")

        other = threading.Thread(target=answer)
        other.start()
        clean_info(tmp_path)
        other.join(10)
    assert not path.exists()


@pytest.mark.slow
def test_a_server_that_cannot_start_says_why(tmp_path):
    with pytest.raises(RuntimeError, match=r"TensorBoard ended as it started:(.|\n)*no-such-flag"):
        dashboard(tmp_path, arguments=["--no-such-flag=1"], show=False)
