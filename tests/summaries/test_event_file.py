"""What is in the file after an exit, a signal, a fork or a full disk: in another interpreter."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from summaries import EventLog, encode_scalar, read

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
LATER = "log = EventLog(directory)\n"  # by its thread
AT_ONCE = "log = EventLog(directory, flush_secs=0)\n"


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
    code = START + LATER + "write(log)\nlog.flush()\nos.kill(os.getpid(), signal.SIGKILL)"
    assert run_python(code, tmp_path, count)[0] == -signal.SIGKILL
    assert scalars(tmp_path, "a") == points(count)


# A kill that comes from outside, while the writer sleeps, is the same to the writer.
@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_p073_a_signal_loses_nothing(tmp_path, run_python, scalars, name):
    code = START + AT_ONCE + f"write(log)\nos.kill(os.getpid(), signal.{name})"
    assert run_python(code, tmp_path, 50)[0] == -getattr(signal, name)
    assert scalars(tmp_path, "a") == points(50)


@pytest.mark.parametrize("seconds", [0.5, pytest.param(3, marks=pytest.mark.slow)])
def test_p073_a_kill_loses_a_fifth_of_a_second(tmp_path, run_python, scalars, seconds):
    """The values are the times at which they were added; half a second is for a busy machine."""
    code = f"""
import time

start = now = time.monotonic()
step = 0
while now < start + {seconds}:
    log.add_summary(encode_scalar("a", now - start), step)
    step += 1
    now = time.monotonic()
print(now - start, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    status, output, _ = run_python(START + LATER + code, tmp_path, 0)
    assert status == -signal.SIGKILL
    *_, (_, last) = scalars(tmp_path, "a")
    assert float(output) - last < 0.2 + 0.5


TERM = """
log = EventLog(directory, flush_on_sigterm=True)
write(log)
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_p073_sigterm_may_be_asked_to_write_first(tmp_path, run_python, scalars):
    assert run_python(START + TERM, tmp_path, 50)[0] == -signal.SIGTERM
    assert scalars(tmp_path, "a") == points(50)


@pytest.mark.parametrize(
    ("handler", "said"),
    [("lambda *_: print('mine', end='')", "mine"), ("signal.SIG_IGN", "")],
    ids=["own", "ignored"],
)
def test_p073_what_sigterm_did_before_it_still_does(tmp_path, run_python, scalars, handler, said):
    """Events of a second log and those after the signal are there as well."""
    before = f"""
signal.signal(signal.SIGTERM, {handler})
other = EventLog(directory + "/other", flush_on_sigterm=True)
write(other)
"""
    after = "print(os.path.getsize(other.path) > 30 * count)\nwrite(log, 'b')"
    status, output, errors = run_python(START + before + TERM + after, tmp_path, 50)
    assert (status, output, errors) == (0, f"{said}True\n", "")
    assert scalars(tmp_path, "a") == scalars(tmp_path, "b") == points(50)


def test_p073_only_the_main_thread_may_ask(tmp_path, run_python):
    code = """
from concurrent.futures import ThreadPoolExecutor

try:
    ThreadPoolExecutor().submit(EventLog, directory, flush_on_sigterm=True).result()
except ValueError as error:
    print(error)
"""
    _, output, errors = run_python(START + code, tmp_path, 0)
    assert "flush_on_sigterm needs the main thread" in output
    assert errors == ""


def test_an_exit_is_quick(tmp_path, start_python):
    """Nothing waits for the next time that the thread would have written."""
    code = "write(log)\nprint('end', flush=True)"
    process = start_python(START + LATER + code, tmp_path, 1000)
    assert process.stdout.readline() == "end\n"
    start = time.monotonic()
    process.communicate(timeout=20)
    assert time.monotonic() - start < 1.5


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
    with log._queue.lock:
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


STRESS = """
import threading, time
from summaries import SummaryWriter

writer = SummaryWriter(directory, flush_secs=float(sys.argv[3]))
written = {"main": 0, "signal": 0, "child": 0}


def add(name):
    writer.add_scalar(name, written[name], written[name])
    written[name] += 1


def on_signal(*_):
    add("signal")
    if not written["signal"] % 10:
        writer.flush()


def work(name):
    while not stop.is_set():
        with writer.step(written[name]):
            add(name)
        if not written[name] % 500:
            writer.flush()


signal.signal(signal.SIGALRM, on_signal)
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
stop = threading.Event()
threads = []
for name in "abc":
    written[name] = 0
    threads.append(threading.Thread(target=work, args=(name,)))
    threads[-1].start()
end = time.monotonic() + count
while time.monotonic() < end:
    for _ in range(100):
        add("main")
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        for _ in range(5):
            add("child")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    written["child"] += 5
stop.set()
for thread in threads:
    thread.join()
signal.setitimer(signal.ITIMER_REAL, 0)
writer.close()
print(*(f"{name}={number}" for name, number in written.items()))
"""


@pytest.mark.parametrize("seconds", [1, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.parametrize("flush_secs", [2, 0])
def test_p085_threads_signals_and_forks_together_lose_nothing(
    tmp_path, run_python, seconds, flush_secs
):
    status, output, errors = run_python(START + STRESS, tmp_path, seconds, flush_secs)
    assert (status, errors) == (0, "")
    written = dict(pair.split("=") for pair in output.split())
    found = read(tmp_path)
    assert not found.damage
    numbers = {name: len(found.scalars(name).steps) for name in written}
    assert numbers == {name: int(number) for name, number in written.items()}
    assert numbers["child"] > 0


FULL = """
import resource

limit = 40 * 60 + 7  # not a whole number of records, so one is cut
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
log = EventLog(directory, flush_secs=0)
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


FULL_LATER = """
import resource, time

_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (4007, hard))
log = EventLog(directory, on_error=sys.argv[3], max_bytes=10_000)
start = time.monotonic()
"""


def test_a_full_disk_is_told_within_a_second(tmp_path, run_python, scalars):
    """Events that were taken before are kept, and written when there is room again."""
    code = """
step = 0
try:
    while time.monotonic() < start + 20:
        log.add_summary(encode_scalar("a", step), step)
        step += 1
except OSError as error:
    assert "File too large" in str(error), error
print(step, time.monotonic() - start)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
write(log, steps=range(step, step + count))
"""
    status, output, errors = run_python(START + FULL_LATER + code, tmp_path, 10, "raise")
    assert (status, errors) == (0, "")
    step, seconds = output.split()
    assert float(seconds) < 1
    assert scalars(tmp_path, "a") == points(int(step) + 10)


def test_training_goes_on_with_a_full_disk(tmp_path, run_python, scalars):
    """What fits into memory is written when there is room again; the rest is counted."""
    code = """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    while not caught:
        assert time.monotonic() < start + 1
        log.add_summary(encode_scalar("a", 0), 0)
    told = time.monotonic() - start
    write(log)
    assert time.monotonic() < start + told + 1, "no call waits"
assert [str(each.message).partition(":")[0] for each in caught] == [
    "[Errno 27] events cannot be written"
], caught[1:]
dropped = log.dropped
assert 0 < dropped <= count + 1
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.flush()
write(log, "b", range(3))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    log.close()
assert f"{dropped} events" in str(caught[0].message)
"""
    status, _, errors = run_python(START + FULL_LATER + code, tmp_path, 1000, "warn")
    assert (status, errors) == (0, "")
    assert scalars(tmp_path, "b") == points(3)
    assert len(scalars(tmp_path, "a")) > 100


@pytest.mark.slow
@pytest.mark.parametrize("on_error", ["raise", "warn"])
def test_a_file_system_of_64_kb_fills(tmp_path, run_python, scalars, on_error):
    """The real thing, where a test may mount one: no call hangs, and what is there is whole."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a file system")
    code = """
import time

log = EventLog(directory, on_error=sys.argv[3])
start = time.monotonic()
warnings.simplefilter("ignore", RuntimeWarning)
raised = None
step = 0
while raised is None and time.monotonic() < start + 2:
    try:
        log.add_summary(encode_scalar("a", step), step)
        step += 1
    except OSError as error:
        raised = time.monotonic() - start
print(step, raised)
os._exit(0)
"""
    try:
        status, output, errors = run_python(START + code, tmp_path, 0, on_error)
        assert (status, errors) == (0, "")
        step, raised = output.split()
        if on_error == "raise":
            assert float(raised) < 1
        else:
            assert raised == "None"
            assert int(step) > 10_000
        written = scalars(tmp_path, "a")
        assert written == points(len(written))
        assert len(written) > 1000
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_file_that_cannot_be_mended_is_left_for_a_new_one(tmp_path, monkeypatch, scalars):
    log = EventLog(tmp_path, flush_secs=0)
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


@pytest.mark.parametrize("window", [0, 2])
@pytest.mark.parametrize("room", range(0, 260, 13))
def test_what_fits_whole_is_kept(tmp_path, monkeypatch, scalars, window, room):
    """Whatever the room, whole records are in the file, and none twice when there is more."""
    log = EventLog(tmp_path, flush_secs=window, start_step=0)
    write, left = os.write, [room]

    def write_what_fits(fd, data):
        if not left[0]:
            raise OSError(28, "No space left on device")
        size = min(len(data), left[0])
        left[0] -= size
        return write(fd, data[:size])

    with monkeypatch.context() as patch:
        patch.setattr("summaries.event_file.os.write", write_what_fits)
        taken = []
        for step in range(5):
            with suppress(OSError):
                log.add_summary(encode_scalar("a", step), step)
                taken.append(step)
        with suppress(OSError):
            log.flush()
        assert not left[0]
        written = scalars_or_none(tmp_path, scalars)
        assert written == taken[: len(written)]
        assert room - 40 < log.path.stat().st_size <= room if room > 200 else len(written) < 4
    log.add_summary(encode_scalar("a", 9), 9)
    log.close()
    assert [step for step, _ in scalars(tmp_path, "a")] == [*taken, 9]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("room", [0, 70, 10_000])
def test_a_write_that_ctrl_c_ends_leaves_no_half_record(tmp_path, monkeypatch, scalars, room):
    log = EventLog(tmp_path, flush_secs=0)
    log.add_summary(encode_scalar("a", 0), 0)
    write = os.write

    def write_and_stop(fd, data):
        write(fd, data[:room])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("summaries.event_file.os.write", write_and_stop)
        with pytest.raises(KeyboardInterrupt):
            log.add_summary(encode_scalar("a", 1), 1)
    log.add_summary(encode_scalar("a", 2), 2)
    log.close()
    assert scalars(tmp_path, "a") == points(3)
    assert len(list(tmp_path.iterdir())) == 1


def scalars_or_none(logdir, scalars):
    try:
        return [step for step, _ in scalars(logdir, "a")]
    except (KeyError, ValueError):
        return []


@pytest.mark.parametrize("window", [0, 2])
def test_a_disk_that_fails_to_sync_is_told(tmp_path, monkeypatch, scalars, window):
    log = EventLog(tmp_path, flush_secs=window, fsync=True)
    with monkeypatch.context() as patch:
        patch.setattr("summaries.event_file.os.fsync", broken)
        with pytest.raises(OSError, match="Input/output error"):
            add_and_flush(log, encode_scalar("a", 0), 0)
    add_and_flush(log, encode_scalar("a", 1), 1)
    log.close()
    assert scalars(tmp_path, "a") == [(0, 0), (1, 1)]


def add_and_flush(log, summary, step):
    log.add_summary(summary, step)
    log.flush()


def broken(_):
    raise OSError(5, "Input/output error")
