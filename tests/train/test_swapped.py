"""Evaluating averages in place: an exact swap that is always undone."""

import numpy as np
import pytest

import optkit as tf
from tests.train.rules import started


class Trained:
    """Two variables with averages that differ from them."""

    def __init__(self, dtype="float32"):
        self.w = tf.Variable(np.asarray([1.0, 2.0], dtype), name="w")
        self.b = tf.Variable(np.asarray(0.1, dtype), name="b")
        self.averages = tf.train.ExponentialMovingAverage(0.7)
        loss = tf.reduce_sum(self.w * self.w) + self.b
        train_op = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        with tf.control_dependencies([train_op]):
            self.step = self.averages.apply()
        self.session = started()
        for _ in range(3):
            self.session.run(self.step)

    def values(self):
        pairs = [(v, self.averages.average(v)) for v in (self.w, self.b)]
        return [tuple(self.session.value(v).tobytes() for v in pair) for pair in pairs]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_variables_and_averages_change_places_and_back_to_the_bit(dtype):
    trained = Trained(dtype)
    before = trained.values()
    assert all(own != other for own, other in before)
    with trained.averages.swapped(trained.session):
        assert trained.values() == [(other, own) for own, other in before]
    assert trained.values() == before
    trained.session.run(trained.step)  # and training goes on with them
    assert trained.values() != before


def test_an_exception_is_let_through_after_the_swap_back():
    trained = Trained()
    before = trained.values()
    with pytest.raises(KeyError, match="evaluation"), trained.averages.swapped(trained.session):
        raise KeyError("evaluation")
    assert trained.values() == before


def test_it_adds_nothing_to_a_graph_that_may_be_finalized():
    trained = Trained()
    operations = len(trained.w.graph.get_operations())
    trained.w.graph.finalize()
    with trained.session.as_default(), trained.averages.swapped():
        pass
    assert len(trained.w.graph.get_operations()) == operations


def test_some_of_the_variables():
    trained = Trained()
    (w, average), b = trained.values()
    with trained.averages.swapped(trained.session, [trained.w]):
        assert trained.values() == [(average, w), b]


def test_a_step_in_the_block_moves_the_averages_that_the_variables_hold():
    trained = Trained()
    w = trained.session.value(trained.w)
    with trained.averages.swapped(trained.session):
        trained.session.run(trained.w.assign([5.0, 6.0]))
    np.testing.assert_array_equal(trained.session.value(trained.w), w)
    average = trained.averages.average(trained.w)
    assert trained.session.value(average).tolist() == [5.0, 6.0]


def test_swapping_twice_is_refused_and_leaves_the_first_swap():
    trained = Trained()
    before = trained.values()
    with trained.averages.swapped(trained.session):
        with (
            pytest.raises(RuntimeError, match="swapped already"),
            trained.averages.swapped(trained.session),
        ):
            pass
        assert trained.values() == [(other, own) for own, other in before]
    assert trained.values() == before


def test_another_session_may_be_swapped_too():
    trained = Trained()
    other = started()
    with trained.averages.swapped(trained.session), trained.averages.swapped(other):
        pass


def test_eager_variables():
    with tf.eager():
        w = tf.Variable([1.0])
        averages = tf.train.ExponentialMovingAverage(0.5)
        averages.apply([w])
        w.assign([3.0])
        averages.apply([w])
        with averages.swapped():
            assert (w.numpy(), averages.average(w).numpy()) == ([2.0], [3.0])
        assert (w.numpy(), averages.average(w).numpy()) == ([3.0], [2.0])


def test_what_cannot_be_swapped_is_refused():
    trained = Trained()
    c = tf.Variable(1.0, name="c")
    swapped = trained.averages.swapped
    with (
        pytest.raises(ValueError, match=r"expected Variables with averages.*'c:0'"),
        swapped(trained.session, [c]),
    ):
        pass
    with pytest.raises(TypeError, match="session: expected a Session"), swapped("here"):
        pass
    with pytest.raises(ValueError, match="session: expected one, got None"), swapped():
        pass
    uninitialised = tf.errors.FailedPreconditionError
    with pytest.raises(uninitialised, match="not initialised"), swapped(tf.Session()):
        pass
    with trained.averages.swapped(trained.session):  # a refused swap does not count as one
        pass
