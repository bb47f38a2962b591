"""One process a directory."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from optkit.train import LogdirLock, logdir_lock

ROOT = Path(__file__).parents[2]
HOLD = """
import sys, os
from optkit.train.logdir_lock import LogdirLock
lock = LogdirLock(sys.argv[1])
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds the directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.communicate()


def test_the_second_process_is_told_of_the_first_and_a_killed_one_is_succeeded(tmp_path, holder):
    with pytest.raises(RuntimeError, match=f"in another process: pid {holder.pid};"):
        LogdirLock(tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / ".optkit.lock").exists()  # a stale one
    with LogdirLock(tmp_path):
        owner = json.loads((tmp_path / ".optkit.lock").read_text())
        assert owner == {"pid": os.getpid(), "host": socket.gethostname()}
    assert not (tmp_path / ".optkit.lock").exists()


def test_a_process_has_a_directory_once_by_any_name(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "new")
    lock = LogdirLock(tmp_path / "new")
    with pytest.raises(RuntimeError, match=f"in a session of this process: pid {os.getpid()}"):
        LogdirLock(tmp_path / "link")
    LogdirLock(tmp_path).release()  # another directory
    lock.release()
    lock.release()
    LogdirLock(tmp_path / "link").release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_does_not_keep_its_parents_directory(tmp_path):
    lock = LogdirLock(tmp_path)
    ready, go = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(go[1])
            try:
                LogdirLock(tmp_path)
            except RuntimeError as error:
                refused = f"pid {os.getppid()}" in str(error)
            else:
                refused = False
            lock.release()  # the parent's: nothing happens
            os.write(ready[1], b"1" if refused else b"0")
            os.read(go[0], 1)
        finally:
            os._exit(0)
    try:
        assert os.read(ready[0], 1) == b"1"
        assert (tmp_path / ".optkit.lock").exists()
        lock.release()
        LogdirLock(tmp_path).release()  # while the child lives
    finally:
        for descriptor in (*ready, *go):
            os.close(descriptor)
        os.waitpid(pid, 0)


def test_a_foreign_file_of_the_name_is_overwritten_and_a_link_not_followed(tmp_path):
    (tmp_path / ".optkit.lock").write_bytes(b"\xff[[[")
    with LogdirLock(tmp_path):
        pass
    (tmp_path / "precious").write_bytes(b"mine")
    (tmp_path / ".optkit.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic link"):
        LogdirLock(tmp_path)
    assert (tmp_path / "precious").read_bytes() == b"mine"


class TestWithoutLocks:
    """File systems that have none: the owner of the file must have ended."""

    @pytest.fixture(autouse=True)
    def _no_locks(self, monkeypatch):
        def none(*_):
            raise OSError(37, "No locks available")

        monkeypatch.setattr(logdir_lock.fcntl, "lockf", none)

    def put(self, folder, **owner):
        (folder / ".optkit.lock").write_text(json.dumps(owner))

    def test_a_living_owner_keeps_it(self, tmp_path):
        self.put(tmp_path, pid=os.getppid(), host=socket.gethostname())
        with pytest.raises(RuntimeError, match=f"pid {os.getppid()}"):
            LogdirLock(tmp_path)

    def test_a_dead_owner_is_succeeded(self, tmp_path):
        child = subprocess.Popen([sys.executable, "-c", ""])
        child.wait()
        self.put(tmp_path, pid=child.pid, host=socket.gethostname())
        LogdirLock(tmp_path).release()

    def test_an_owner_elsewhere_is_believed(self, tmp_path):
        self.put(tmp_path, pid=1, host="elsewhere.example")
        with pytest.raises(RuntimeError, match=r"pid 1 on elsewhere\.example"):
            LogdirLock(tmp_path)

    def test_what_names_no_owner_has_none(self, tmp_path):
        self.put(tmp_path, pid="1")
        LogdirLock(tmp_path).release()
