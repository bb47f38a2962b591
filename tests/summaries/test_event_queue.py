"""The queue before an event file, with a file that the test controls."""

import errno
import gc
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from summaries import event_queue
from summaries.event_queue import WINDOW, EventQueue


class File:
    """Keeps what is written; `fail` errors come first, and `gate` holds writes back."""

    def __init__(self):
        self.logdir = self.path = Path("run")
        self.batches = []
        self.fail = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.is_open = False

    def open(self):
        self.is_open = True

    def write(self, records):
        self.entered.set()
        assert self.gate.wait(20)
        if self.fail:
            raise self.fail.pop(0)
        self.batches.append(list(records))

    def abandon(self):
        self.is_open = False

    @property
    def records(self):
        return [record for batch in self.batches for record in batch]


def full():
    return OSError(errno.ENOSPC, "No space left on device", "run")


@pytest.fixture
def file():
    file = File()
    yield file
    file.gate.set()


def queue_of(file, window=WINDOW, max_bytes=1000, on_error="raise"):
    return EventQueue(file, window, max_bytes, on_error)


def repeat(times, function, *arguments):
    for _ in range(times):
        function(*arguments)


def test_records_that_come_together_are_written_together(file):
    queue = queue_of(file, window=20)
    for n in range(5):
        queue.append(bytes([n]))
    assert file.batches == []
    queue.flush()
    queue.append(b"x")
    queue.close()
    assert file.batches == [[bytes([n]) for n in range(5)], [b"x"]]
    assert not file.is_open


def test_a_record_is_written_unasked(file):
    queue = queue_of(file, window=0.01)
    queue.append(b"a")
    with queue.lock:
        assert queue._changed.wait_for(lambda: queue._written == 1, 10)
    assert file.records == [b"a"]
    queue.close()


def test_without_a_window_a_record_is_written_at_once(file):
    threads = set(threading.enumerate())
    queue = queue_of(file, window=0)
    queue.append(b"a")
    assert file.batches == [[b"a"]]
    assert set(threading.enumerate()) <= threads
    file.fail = [full()]
    with pytest.raises(OSError, match="No space"):
        queue.append(b"b")
    queue.append(b"c")
    assert file.records == [b"a", b"c"]
    queue.close()


def test_without_a_thread_a_record_is_written_at_once(file, monkeypatch):
    """As at the end of the interpreter."""

    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    queue = queue_of(file)
    queue.append(b"a")
    assert file.records == [b"a"]
    queue.close()


def test_large_batches_are_cut(file):
    record = bytes(event_queue._BATCH_BYTES // 2)
    queue = queue_of(file, window=20, max_bytes=10 * len(record))
    for _ in range(5):
        queue.append(record)
    queue.close()
    assert [len(batch) for batch in file.batches] == [2, 2, 1]


def test_p072_flush_waits_for_what_was_taken(file):
    queue = queue_of(file, window=20)
    file.gate.clear()
    queue.append(b"a")
    done = threading.Event()
    thread = threading.Thread(target=lambda: (queue.flush(), done.set()))
    thread.start()
    assert file.entered.wait(10)
    assert not done.is_set()
    file.gate.set()
    thread.join(10)
    assert done.is_set()
    queue.close()


def test_a_disk_that_hangs_is_not_waited_for(file, monkeypatch):
    monkeypatch.setattr(event_queue, "PATIENCE", 0.05)
    queue = queue_of(file, max_bytes=10)
    file.gate.clear()
    queue.append(b"0123456789")
    with pytest.raises(TimeoutError, match=r"was not written within 0\.02 s: 'run'"):
        queue.flush(0.02)
    with pytest.raises(TimeoutError, match="was not written"):
        queue.append(b"a")
    with pytest.raises(TimeoutError, match="was not written") as caught:
        queue.close(0.02)
    assert caught.value.__notes__ == ["1 events for run are lost"]
    thread = queue._thread
    file.gate.set()
    thread.join(10)
    assert not thread.is_alive()
    assert not file.is_open


def test_training_goes_on_beside_a_disk_that_hangs(file, monkeypatch):
    monkeypatch.setattr(event_queue, "PATIENCE", 0.05)
    queue = queue_of(file, max_bytes=10, on_error="warn")
    file.gate.clear()
    queue.append(b"0123456789")
    start = time.monotonic()
    with pytest.warns(RuntimeWarning, match="was not written") as caught:
        repeat(1000, queue.append, b"a")
    assert len(caught) == 1
    assert time.monotonic() - start < 5, "the first one waits"
    assert queue.dropped == 1000
    file.gate.set()
    queue.flush()
    queue.append(b"b")
    with pytest.warns(RuntimeWarning, match="1000 events for run are lost"):
        queue.close()
    assert file.records == [b"0123456789", b"b"]


def test_a_full_queue_waits_for_room(file):
    queue = queue_of(file, window=20, max_bytes=10)
    for n in range(100):
        queue.append(bytes([n]) * 4)
    queue.append(b"longer than the queue is")
    queue.close()
    assert [record[0] for record in file.records[:-1]] == list(range(100))
    assert queue.dropped == 0


def test_an_error_is_raised_by_the_next_call_and_nothing_is_lost(file):
    queue = queue_of(file, window=20)
    file.fail = [full(), full()]
    queue.append(b"a")
    with pytest.raises(OSError, match="No space"):
        queue.flush()
    queue.append(b"b")
    with pytest.raises(OSError, match="No space"):
        queue.flush()
    queue.append(b"c")
    queue.close()
    assert file.records == [b"a", b"b", b"c"]


def test_an_error_that_no_call_met_is_raised_by_the_next(file):
    queue = queue_of(file, window=0.001)
    file.fail = [full()]
    queue.append(b"a")
    with queue.lock:
        assert queue._changed.wait_for(lambda: queue._failures, 10)
    with pytest.raises(OSError, match="No space"):
        queue.append(b"b")
    queue.flush()
    queue.close()
    assert file.records == [b"a"]


def test_close_tells_what_is_lost(file):
    queue = queue_of(file, window=20)
    file.fail = [full()]
    queue.append(b"a")
    queue.append(b"b")
    with pytest.raises(OSError, match="No space") as caught:
        queue.close()
    assert caught.value.__notes__ == ["2 events for run are lost"]
    queue.close()
    with pytest.raises(ValueError, match="closed"):
        queue.append(b"c")


def test_a_failing_disk_is_warned_of_once(file):
    queue = queue_of(file, window=20, on_error="warn")
    file.fail = [full(), full(), full()]
    queue.append(b"a")
    with pytest.warns(RuntimeWarning, match="No space") as caught:
        repeat(3, queue.flush)
    assert len(caught) == 1
    queue.flush()
    file.fail = [full()]
    queue.append(b"b")
    with pytest.warns(RuntimeWarning, match="No space"):
        queue.flush()
    queue.close()
    assert file.records == [b"a", b"b"]


def test_without_a_window_a_failing_disk_is_warned_of_once_too(file):
    queue = queue_of(file, window=0, on_error="warn")
    file.fail = [full()] * 5
    with pytest.warns(RuntimeWarning, match="No space") as caught:
        repeat(5, queue.append, b"a")
    assert len(caught) == 1
    queue.append(b"b")
    assert file.records == [b"b"]
    with pytest.warns(RuntimeWarning, match="5 events for run are lost"):
        queue.close()


def test_close_tells_what_is_wrong_also_where_it_was_warned_of(file):
    queue = queue_of(file, window=20, on_error="warn")
    file.fail = [full(), full()]
    queue.append(b"a")
    with pytest.warns(RuntimeWarning, match="No space"):
        queue.flush()
    with pytest.warns(RuntimeWarning, match="No space.*; 1 events for run are lost"):
        queue.close()


@pytest.mark.parametrize("on_error", ["raise", "warn"])
def test_an_exception_in_the_thread_surfaces(file, on_error):
    queue = queue_of(file, window=20, on_error=on_error)
    file.fail = [MemoryError("no memory")]
    queue.append(b"a")
    if on_error == "raise":
        with pytest.raises(MemoryError, match="no memory"):
            queue.flush()
    else:
        with pytest.warns(RuntimeWarning, match="no memory"):
            queue.flush()
    queue.append(b"b")
    queue.close()
    assert file.records == [b"a", b"b"]


def test_closing_in_the_thread_itself_does_not_hang(file):
    """As when the collector, which may run in any thread, ends the log's life there."""
    queue = queue_of(file, window=0.001)
    write = file.write

    def write_and_close(records):
        queue.close()
        write(records)

    file.write = write_and_close
    queue.append(b"a")
    thread = queue._thread
    thread.join(10)
    assert not thread.is_alive()
    assert file.records == [b"a"]
    assert not file.is_open


@pytest.mark.parametrize("window", [0, 0.001])
@pytest.mark.parametrize("action", ["flush", "close"])
def test_calls_in_the_middle_of_a_write_neither_hang_nor_write(file, window, action):
    """As those of a signal's handler, or of what the collector runs in the writer's thread."""
    queue = queue_of(file, window=window, max_bytes=2)
    write = file.write

    def write_and_call(records):
        file.write = write
        queue.append(b"bbb")
        getattr(queue, action)()
        assert file.batches == []
        assert file.is_open
        write(records)

    file.write = write_and_call
    queue.append(b"a")
    if action == "flush":
        queue.flush()
        queue.close()
    elif queue._thread:
        queue._thread.join(10)
    assert file.records == [b"a", b"bbb"]
    assert not file.is_open


def test_calls_in_the_middle_of_the_opening_do_not_open_again(file):
    queue = queue_of(file, window=20)

    def open_and_call():
        file.open = lambda: None
        queue.append(b"b")
        assert queue._thread is None
        file.open = File.open.__get__(file)

    file.open = open_and_call
    queue.append(b"a")
    queue.close()
    assert sorted(file.records) == [b"a", b"b"]


def interrupted(function, after):
    """The function, which Ctrl-C ends before or after its work, this once."""

    def call(*arguments):
        if after:
            function(*arguments)
        raise KeyboardInterrupt

    return call


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("where", ["start", "notify_all"])
def test_a_call_that_ctrl_c_ends_leaves_a_queue_that_goes_on(file, monkeypatch, where, after):
    others = set(threading.enumerate())  # of logs that other tests have left to the collector
    queue = queue_of(file, window=0.001)
    owner = threading.Thread if where == "start" else queue._changed
    with monkeypatch.context() as patch:
        patch.setattr(owner, where, interrupted(getattr(owner, where), after))
        with pytest.raises(KeyboardInterrupt):
            queue.append(b"a")
    queue.append(b"b")
    with queue.lock:
        assert queue._changed.wait_for(lambda: len(file.records) == 2, 10), "unasked"
    started = set(threading.enumerate()) - others
    writers = [each for each in started if each.name == "summaries-writer"]
    queue.append(b"c")
    queue.flush()
    queue.close()
    assert file.records == [b"a", b"b", b"c"]
    assert len(writers) == 1


def test_what_ctrl_c_leaves_uncounted_is_waited_for(file):
    queue = queue_of(file, window=20)
    queue._waiting = Interrupting(queue._waiting)
    with pytest.raises(KeyboardInterrupt):
        queue.append(b"a")
    for data in (b"b", b"c"):
        queue.append(data)
        queue.flush()
        assert file.records[-1] == data
    assert queue._bytes == 0
    queue.close()
    assert file.records == [b"a", b"b", b"c"]


class Interrupting(deque):
    """Ctrl-C arrives when the first record has just been added."""

    def append(self, data):
        super().append(data)
        if len(self) == 1 and data == b"a":
            raise KeyboardInterrupt


def test_a_queue_that_was_closed_can_be_collected(file):
    queue = queue_of(file)
    queue.append(b"a")
    queue.close()
    gone = weakref.ref(queue)
    del queue
    gc.collect()
    assert gone() is None


def test_close_and_reopen(file):
    queue = queue_of(file)
    for name in (b"a", b"b"):
        queue.append(name)
        queue.close()
        queue.reopen()
        assert file.path is None
    queue.append(b"c")
    queue.close()
    assert file.records == [b"a", b"b", b"c"]


ACTIONS = st.lists(
    st.one_of(st.binary(min_size=1, max_size=30), st.just("fail"), st.just("flush")), max_size=40
)


@settings(max_examples=50, deadline=None)
@given(ACTIONS, st.sampled_from([0.0, 0.001]))
def test_every_record_that_was_taken_is_written_once_and_in_order(actions, window):
    file = File()
    queue = queue_of(file, window=window, max_bytes=64)
    taken = []
    for action in actions:
        with suppress(OSError):
            if action == "fail":
                with queue.lock:
                    file.fail.append(full())
            elif action == "flush":
                queue.flush()
            else:
                queue.append(action)
                taken.append(action)
    file.fail.clear()
    with suppress(OSError):  # of a failure that no call had met
        queue.flush()
    queue.flush()
    queue.close()
    assert file.records == taken
