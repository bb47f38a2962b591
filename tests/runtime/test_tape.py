"""GradientTape, in eager mode and in graphs."""

from __future__ import annotations

from collections import defaultdict
from types import MappingProxyType

import numpy as np
import pytest

import optkit as tf


@pytest.fixture
def eager_mode(graph):
    with tf.eager():
        yield


@pytest.mark.usefixtures("eager_mode")
class TestEager:
    def test_sources_come_back_in_their_nesting(self):
        w, b = tf.Variable(2.0), tf.Variable(3.0)
        with tf.GradientTape() as tape:
            y = w * w * b
        found = tape.gradient(y, {"weights": [w], "bias": (b,)})
        assert {key: [float(g) for g in value] for key, value in found.items()} == {
            "weights": [12],
            "bias": [4],
        }

    @pytest.mark.parametrize("kind", [lambda d: defaultdict(list, d), MappingProxyType])
    def test_mappings_of_other_kinds_come_back_as_dicts(self, kind):
        w = tf.Variable(2.0)
        with tf.GradientTape() as tape:
            y = w * w
        found = tape.gradient(y, kind({"w": w}))
        assert {key: float(value) for key, value in found.items()} == {"w": 4}

    def test_only_watched_tensors_have_gradients(self):
        x, z = tf.constant(3.0), tf.constant(2.0)
        frozen = tf.Variable(5.0, trainable=False)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x * x * z * frozen
        gradients = tape.gradient(y, [x, z, frozen])
        assert (float(gradients[0]), gradients[1:]) == (60, [None, None])

    def test_variables_are_watched_when_they_are_read(self):
        a, b = tf.Variable(1.0), tf.Variable(2.0)
        with tf.GradientTape() as tape:
            _ = a + 1
            assert tape.watched_variables() == [a]
            _ = b + 1
        assert tape.watched_variables() == [a, b]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(b)
            y = a * b
        assert [g if g is None else float(g) for g in tape.gradient(y, [a, b])] == [None, 1]

    def test_unconnected_sources(self):
        a, b = tf.Variable([1.0, 2.0]), tf.Variable([3.0])
        with tf.GradientTape(persistent=True) as tape:
            y = tf.reduce_sum(a)
        assert tape.gradient(y, b) is None
        zero = tape.gradient(y, b, unconnected_gradients="zero")
        np.testing.assert_array_equal(zero.numpy(), [0])
        with pytest.raises(ValueError, match="unconnected_gradients"):
            tape.gradient(y, b, unconnected_gradients="nan")

    def test_once_unless_persistent(self):
        x = tf.Variable(3.0)
        with tf.GradientTape() as tape:
            y = x * x
        assert float(tape.gradient(y, x)) == 6
        with pytest.raises(RuntimeError, match="persistent=True"):
            tape.gradient(y, x)
        with tf.GradientTape(persistent=True) as tape:
            y = x * x
            z = y * y
        assert (float(tape.gradient(y, x)), float(tape.gradient(z, x))) == (6, 108)

    def test_nested_tapes_give_second_derivatives(self):
        x = tf.Variable(2.0)
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                y = x * x * x
            first = inner.gradient(y, x)
        assert (float(first), float(outer.gradient(first, x))) == (12, 12)

    def test_stop_recording(self):
        x = tf.Variable(3.0)
        with tf.GradientTape() as tape:
            with tape.stop_recording():
                y = x * x
            z = y + x
        assert float(tape.gradient(z, x)) == 1

    def test_reset_forgets(self):
        x = tf.Variable(3.0)
        with tf.GradientTape() as tape:
            y = x * x
            tape.reset()
            z = x + 1
        assert tape.gradient([y, z], x).numpy() == 1

    def test_output_gradients_weigh(self):
        x = tf.Variable([1.0, 2.0])
        with tf.GradientTape() as tape:
            y = x * x
        weighted = tape.gradient(y, x, output_gradients=tf.constant([1.0, 10.0]))
        np.testing.assert_array_equal(weighted.numpy(), [2, 40])

    def test_gathered_rows_stay_rows(self):
        table = tf.Variable(np.ones((4, 2), np.float32))
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(tf.gather(table, [1, 1]))
        rows = tape.gradient(y, table)
        assert isinstance(rows, tf.IndexedSlices)
        np.testing.assert_array_equal(rows.indices.numpy(), [1, 1])

    @pytest.mark.parametrize("item", ["x", 3])
    def test_watching_something_else_is_refused(self, item):
        with tf.GradientTape() as tape, pytest.raises(TypeError, match="watch: expected"):
            tape.watch(item)

    def test_a_tape_outside_its_with(self):
        tape = tf.GradientTape()
        with pytest.raises(ValueError, match="not recording"):
            tape.watch(tf.constant(1.0))
        with pytest.raises(RuntimeError, match="recorded nothing"):
            tape.gradient(tf.constant(1.0), [])
        with tape, pytest.raises(ValueError, match="recording already"):
            tape.__enter__()


def test_a_tensor_of_the_other_mode_is_refused(graph):
    with graph.as_default():
        w = tf.Variable(2.0)
        y = w * w
    with tf.eager():
        x = tf.Variable(2.0)
        with tf.GradientTape(persistent=True) as tape:
            z = x * x
            with pytest.raises(RuntimeError, match="watch: the tape was entered in eager mode"):
                tape.watch(y)
        for target, source in ((y, x), (z, w), ([z, y], [x])):
            with pytest.raises(RuntimeError, match=r"eager mode, and .* was made in a graph"):
                tape.gradient(target, source)
        assert tape.gradient(z, x).numpy() == 4
    with graph.as_default():
        with tf.GradientTape() as tape, tf.eager():
            z = x * x
        with pytest.raises(RuntimeError, match=r"in a graph, and .* was made in eager mode"):
            tape.gradient(z, x)


class TestGraph:
    def test_it_builds_the_gradients(self, graph):
        w, x = tf.Variable(2.0), tf.placeholder(tf.float32, [])
        with tf.GradientTape() as tape:
            y = w * w * x
        dw, dx = tape.gradient(y, [w, x])
        with tf.Session() as session:
            session.run(w.initializer)
            assert session.run([dw, dx], {x: 3.0}) == [12, 4]
        assert tape.watched_variables() == [w]

    def test_a_callable_loss_trains_the_variables_it_reads(self, graph):
        w, unused = tf.Variable(2.0), tf.Variable(1.0)
        optimizer = tf.train.GradientDescentOptimizer(0.5)
        pairs = optimizer.compute_gradients(lambda: w * w)
        assert [variable for _, variable in pairs] == [w]
        train = optimizer.minimize(lambda: w * w)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(train)
            assert (session.value(w), session.value(unused)) == (0, 1)
