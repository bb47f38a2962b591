"""A coordinator of threads."""

import re
import threading

import pytest

from optkit.errors import OutOfRangeError
from optkit.train import Coordinator


def threads(coordinator, *bodies):
    started = [threading.Thread(target=body, daemon=True) for body in bodies]
    for thread in started:
        thread.start()
    return started


def test_one_thread_stops_all():
    coordinator = Coordinator()
    seen = []

    def waits():
        seen.append(coordinator.wait_for_stop(30))

    def asks():
        coordinator.request_stop()

    assert not coordinator.should_stop()
    assert not coordinator.wait_for_stop(0)
    coordinator.join(threads(coordinator, waits, waits, asks))
    assert seen == [True, True]
    assert coordinator.should_stop()
    assert coordinator.joined


def test_what_a_thread_failed_with_is_raised_where_it_is_joined():
    coordinator = Coordinator()

    def fails():
        with coordinator.stop_on_exception():
            raise KeyError("first")

    (thread,) = threads(coordinator, fails)
    coordinator.register_thread(thread)
    with pytest.raises(KeyError, match="first"):
        coordinator.join()
    with pytest.raises(KeyError, match="first"):
        coordinator.raise_requested_exception()
    coordinator.clear_stop()
    coordinator.raise_requested_exception()
    assert not coordinator.should_stop()


def test_the_first_failure_counts_and_a_clean_stop_is_none():
    coordinator = Coordinator()
    coordinator.request_stop(OutOfRangeError("at its end"))
    coordinator.request_stop(ValueError("too late"))
    coordinator.join()
    own = Coordinator(clean_stop_exception_types=(ZeroDivisionError,))
    own.request_stop(ZeroDivisionError())
    own.join()
    error = ValueError("as sys.exc_info gives it")
    strict = Coordinator()
    strict.request_stop((ValueError, error, None))
    with pytest.raises(ValueError, match="as sys"):
        strict.join()


def test_a_failure_after_the_join_is_not_lost():
    coordinator = Coordinator()
    coordinator.request_stop()
    coordinator.join()
    coordinator.request_stop(OutOfRangeError("at its end"))
    with pytest.raises(ValueError, match="late"):
        coordinator.request_stop(ValueError("late"))


def test_threads_that_do_not_end_are_named():
    coordinator = Coordinator()
    release = threading.Event()
    (thread,) = threads(coordinator, release.wait)
    coordinator.request_stop()
    with pytest.raises(RuntimeError, match=re.escape(f"within 0 s: {thread.name}")):
        coordinator.join([thread], stop_grace_period_secs=0)
    coordinator.join([thread], stop_grace_period_secs=0, ignore_live_threads=True)
    release.set()
    thread.join()
