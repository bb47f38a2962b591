"""What is in the file after an exit, a signal, a fork or a full disk: in another interpreter."""

import signal
from pathlib import Path

import pytest

# Its arguments: the directory, and how many scalars to write.
START = """
import os, signal, sys, warnings
from summaries import EventLog, encode_scalar

# What Python 3.12 says of a fork beside threads, which a BLAS library has too, is right.
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
directory, count = sys.argv[1], int(sys.argv[2])


def write(log, tag="a", steps=range(count)):
    for step in steps:
        log.add_summary(encode_scalar(tag, step), step)

"""
LATER = "log = EventLog(directory, flush_secs=3600)\n"  # nothing is written before it has to be
AT_ONCE = "log = EventLog(directory)\n"


def points(count):
    return [(step, step) for step in range(count)]


@pytest.mark.parametrize("log", [LATER, AT_ONCE], ids=["later", "at once"])
def test_p071_an_exit_without_close_loses_nothing(tmp_path, run_python, scalars, log):
    status, _, errors = run_python(START + log + "write(log)", tmp_path, 500)
    assert (status, errors) == (0, "")
    assert scalars(tmp_path, "a") == points(500)


def test_p071_an_exception_loses_nothing(tmp_path, run_python, scalars):
    status, _, errors = run_python(START + LATER + "write(log)\n1 / 0", tmp_path, 30)
    assert status == 1
    assert errors.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert scalars(tmp_path, "a") == points(30)


COUNTS = [1, 5, 9, 50, 1000, pytest.param(100_000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("count", COUNTS)
def test_p072_flush_is_a_barrier(tmp_path, run_python, scalars, count):
    code = START + LATER + "write(log)\nlog.flush()\nos._exit(7)"
    assert run_python(code, tmp_path, count)[0] == 7
    assert scalars(tmp_path, "a") == points(count)


# A kill that comes from outside, while the writer sleeps, is the same to the writer.
@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_p073_a_signal_loses_nothing(tmp_path, run_python, scalars, name):
    code = START + AT_ONCE + f"write(log)\nos.kill(os.getpid(), signal.{name})"
    assert run_python(code, tmp_path, 50)[0] == -getattr(signal, name)
    assert scalars(tmp_path, "a") == points(50)


FORK = (
    LATER
    + """
write(log, "parent", range(10))
children = []
for tag in ("left", "right"):
    child = os.fork()
    if not child:
        write(log, tag)
        END
    children.append(child)
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
write(log, "parent", range(10, 20))
"""
)


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit()"])
def test_p085_forked_workers_write_files_of_their_own(tmp_path, run_python, scalars, end):
    status, _, errors = run_python(START + FORK.replace("END", end), tmp_path, 100)
    assert (status, errors) == (0, "")
    assert len(list(tmp_path.iterdir())) == 3
    assert scalars(tmp_path, "left") == scalars(tmp_path, "right") == points(100)
    assert scalars(tmp_path, "parent") == points(20)


def test_p085_a_fork_while_another_thread_writes_does_not_hang(tmp_path, run_python, scalars):
    code = (
        LATER
        + """
import threading

held, release = threading.Event(), threading.Event()


def hold():
    with log._file.lock:
        held.set()
        release.wait()


thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if not child:
    signal.alarm(20)
    write(log, "child")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
release.set()
thread.join()
"""
    )
    status, _, errors = run_python(START + code, tmp_path, 5)
    assert (status, errors) == (0, "")
    assert scalars(tmp_path, "child") == points(5)


def test_p085_a_forked_worker_of_a_resumed_run_hides_nothing(tmp_path, run_python, scalars):
    code = """
log = EventLog(directory, start_step=3)
write(log)
if not os.fork():
    write(log, "child")
    os._exit(0)
os.wait()
"""
    assert run_python(START + code, tmp_path, 6)[0] == 0
    assert scalars(tmp_path, "a") == scalars(tmp_path, "child") == points(6)


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_p085_a_log_of_a_worker_of_multiprocessing_is_written(
    tmp_path, run_python, scalars, method
):
    script = tmp_path / "script.py"
    script.write_text(
        START
        + "def work():\n    global log\n    "
        + LATER.replace("directory", "directory + '/run'")
        + "    write(log)\n\n"
        + "if __name__ == '__main__':\n"
        + "    import multiprocessing\n"
        + f"    context = multiprocessing.get_context({method!r})\n"
        + "    process = context.Process(target=work)\n"
        + "    process.start()\n    process.join()\n    sys.exit(process.exitcode)\n"
    )
    code = "import runpy, sys; script = sys.argv.pop(1); sys.argv[0] = script\n"
    code += "runpy.run_path(script, run_name='__main__')"
    status, _, errors = run_python(code, script, tmp_path, 20)
    assert (status, errors) == (0, "")
    assert scalars(tmp_path / "run", "a") == points(20)


FULL = """
import resource

limit = 40 * 60 + 7  # not a whole number of records, so one is cut
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
log = EventLog(directory)
try:
    write(log)
except OSError as error:
    assert error.filename == str(log.path), error.filename
    assert "events cannot be written: File too large" in str(error), error
    reached = log.last_step
try:
    write(log, steps=[reached + 1])
except OSError:
    print("full", reached)
assert os.stat(log.path).st_size <= limit
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
write(log, steps=range(reached + 1, count))
"""


def test_a_full_disk_is_an_error_and_leaves_no_half_record(tmp_path, run_python, scalars):
    status, output, errors = run_python(START + FULL, tmp_path, 100)
    assert (status, errors) == (0, "")
    word, reached = output.split()
    assert word == "full"
    assert 10 < int(reached) < 99
    assert scalars(tmp_path, "a") == points(100)


def test_a_file_that_cannot_be_mended_is_left_for_a_new_one(tmp_path, monkeypatch, scalars):
    from summaries import EventLog, encode_scalar

    log = EventLog(tmp_path)
    log.add_summary(encode_scalar("a", 0), 0)
    first = log.path

    def no_space(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("summaries.event_file.os.write", no_space)
        patch.setattr("summaries.event_file.os.ftruncate", no_space)
        with pytest.raises(OSError, match="No space left on device"):
            log.add_summary(encode_scalar("a", 1), 1)
    log.add_summary(encode_scalar("a", 2), 2)
    log.close()
    assert sorted(Path(tmp_path).iterdir()) == [first, log.path]
    assert scalars(tmp_path, "a") == [(0, 0), (2, 2)]
