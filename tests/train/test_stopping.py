import math
import signal
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optkit.train.stopping import Divergence, EarlyStopping, Interruption


def test_no_improvement_for_a_while_ends():
    early = EarlyStopping("eval/loss", patience=2)
    assert [early.judge(i, v) for i, v in enumerate([3, 2, 2.5, 1, 1, 1])] == [False] * 5 + [True]
    assert (early.best, early.best_step) == (1, 3)


def test_more_is_better_and_by_how_much():
    early = EarlyStopping("eval/accuracy", patience=1, min_delta=0.1, mode="max")
    assert [early.judge(i, v) for i, v in enumerate([0.5, 0.7, 0.75])] == [False, False, True]
    assert early.best == 0.7


def test_nan_is_no_improvement():
    early = EarlyStopping("loss", patience=2)
    assert [early.judge(i, math.nan) for i in range(2)] == [False, True]
    assert early.best is None


def test_early_stopping_goes_on_from_its_state():
    early = EarlyStopping("loss", patience=3)
    for i, value in enumerate([1.0, 2.0, 2.0]):
        early.judge(i, value)
    other = EarlyStopping("loss", patience=3)
    other.load_state_dict(early.state_dict())
    assert other.judge(3, 2.0)
    other.reset()
    assert (other.best, other.best_step, other.waited) == (None, None, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patience": 0}, "patience: expected >= 1, got 0"),
        ({"min_delta": -1}, "min_delta: expected >= 0, got -1"),
        ({"min_delta": math.nan}, "min_delta"),
        ({"mode": "least"}, "mode: expected 'min' or 'max', got 'least'"),
    ],
)
def test_early_stopping_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        EarlyStopping("loss", **options)


def test_a_loss_above_k_times_the_least_diverges():
    rule = Divergence(3)
    assert [rule.see(x) for x in (2.0, 5.9, 1.0, 3.0, 3.1)] == [False, False, False, False, True]


@given(st.floats(-1e6, 1e6), st.floats(1.5, 10))
def test_losses_may_be_negative(least, factor):
    rule = Divergence(factor)
    assert not rule.see(least)
    assert not rule.see(least)
    assert rule.see(least + (factor - 1) * abs(least) * 1.01 + 1e-9 + abs(least) * 1e-6)


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_diverges(loss):
    assert Divergence(2).see(loss)
    assert not Divergence(None).see(loss)


def test_divergence_goes_on_from_its_state():
    rule, other = Divergence(2), Divergence(2)
    assert rule.state_dict() == {"least": None}
    other.load_state_dict(rule.state_dict())
    assert not other.see(100.0)
    rule.see(1.0)
    other.load_state_dict(rule.state_dict())
    assert other.see(2.1)


@pytest.mark.parametrize("factor", [1, 0.5, math.nan, -3])
def test_divergence_refuses(factor):
    with pytest.raises(ValueError, match="divergence: expected > 1, got"):
        Divergence(factor)


def test_the_first_interrupt_asks_and_the_second_raises():
    told = []
    with Interruption(told.append) as interruption:
        signal.raise_signal(signal.SIGINT)
        assert interruption.requested
        assert len(told) == 1
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_programs_own_handler_stays():
    came = []
    before = signal.signal(signal.SIGINT, lambda *_: came.append(1))
    try:
        with Interruption(print) as interruption:
            signal.raise_signal(signal.SIGINT)
        assert came == [1]
        assert not interruption.requested
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_set_no_handlers():
    failures = []

    def work():
        try:
            with Interruption(print):
                pass
        except ValueError as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failures == []
