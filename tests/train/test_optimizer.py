"""Gradients and `minimize`: what all optimizers share before anything is applied."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import optkit as tf
from tests.train.rules import OPTIMIZERS, new_step, picture, started

T = tf.train

every_optimizer = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)

# -- compute_gradients ---------------------------------------------------------------------------


def test_compute_gradients_gives_pairs_in_the_order_of_var_list():
    a, b, unused = tf.Variable(2.0), tf.Variable(3.0), tf.Variable(1.0)
    pairs = T.GradientDescentOptimizer(0.1).compute_gradients(a * b, [b, unused, a])
    assert [v for _, v in pairs] == [b, unused, a]
    assert pairs[1][0] is None
    assert started().run([pairs[0][0], pairs[2][0]]) == [2.0, 3.0]


def test_compute_gradients_takes_the_trainable_variables_by_default():
    a, _, c = tf.Variable(2.0), tf.Variable(3.0, trainable=False), tf.Variable(4.0)
    pairs = T.GradientDescentOptimizer(0.1).compute_gradients(a * c)
    assert [v for _, v in pairs] == [a, c]


def test_var_list_may_be_nested_and_hold_what_is_not_trained():
    a, b, c = tf.Variable(2.0), tf.Variable(3.0, trainable=False), tf.Variable(4.0)
    optimizer = T.GradientDescentOptimizer(0.1)
    for var_list in ([a, (b, [c])], {"x": [a, b], "y": c}, iter([a, b, c])):
        assert [v for _, v in optimizer.compute_gradients(a * b * c, var_list)] == [a, b, c]
    assert [v for _, v in optimizer.compute_gradients(a * b, b)] == [b]


def test_var_list_may_hold_tensors_until_they_are_to_be_updated():
    a = tf.Variable(2.0)
    double = 2.0 * a
    optimizer = T.GradientDescentOptimizer(0.1)
    pairs = optimizer.compute_gradients(double * double, [double])
    assert started().run(pairs[0][0]) == 8.0
    with pytest.raises(NotImplementedError, match="is no Variable and cannot be updated"):
        optimizer.apply_gradients(pairs)


@pytest.mark.parametrize(
    "bad", [1.0, "w", object(), np.zeros(2)], ids=["float", "str", "object", "array"]
)
def test_var_list_with_something_else_is_refused(graph, bad):
    a = tf.Variable(2.0, name="a")
    loss = a * a
    before = picture(graph)
    with pytest.raises(TypeError, match="var_list: expected Variables, got"):
        T.GradientDescentOptimizer(0.1).compute_gradients(loss, [a, bad])
    with pytest.raises(TypeError, match="var_list: expected Variables, got"):
        T.GradientDescentOptimizer(0.1).minimize(loss, var_list=[a, bad])
    assert picture(graph) == before


def test_no_variables_are_refused():
    loss = tf.constant(1.0)
    with pytest.raises(ValueError, match="var_list: expected variables, got none"):
        T.GradientDescentOptimizer(0.1).compute_gradients(loss, [])
    with pytest.raises(ValueError, match="there are no trainable variables"):
        T.GradientDescentOptimizer(0.1).compute_gradients(loss)


def test_loss_and_variables_must_be_floating(graph):
    w, count = tf.Variable(2.0), tf.Variable(3)
    optimizer = T.GradientDescentOptimizer(0.1)
    loss, counted = w * w, count * count
    before = picture(graph)
    with pytest.raises(ValueError, match=r"loss: expected one of bfloat16, float16, .*int32"):
        optimizer.compute_gradients(counted, [w])
    with pytest.raises(ValueError, match=r"var_list: expected one of .*int32"):
        optimizer.compute_gradients(loss, [w, count])
    with pytest.raises(ValueError, match=r"grad_loss: expected one of .*int32"):
        optimizer.compute_gradients(loss, [w], grad_loss=1)
    with pytest.raises(ValueError, match="got None"):
        optimizer.compute_gradients(None, [w])
    assert picture(graph) == before


def test_grad_loss_weighs_the_elements_of_the_loss():
    w = tf.Variable([1.0, 2.0])
    optimizer = T.GradientDescentOptimizer(0.1)
    ((grad, _),) = optimizer.compute_gradients(w * w, grad_loss=tf.constant([10.0, 1.0]))
    train_op = optimizer.minimize(w * w, grad_loss=[10.0, 1.0])
    session = started()
    assert_array_equal(session.run(grad), [20.0, 4.0])
    session.run(train_op)
    assert_allclose(session.value(w), [-1.0, 1.6], rtol=1e-6)
    with pytest.raises(ValueError, match="expected shape"):
        optimizer.compute_gradients(w * w, grad_loss=tf.constant([1.0, 2.0, 3.0]))


def test_a_callable_loss_trains_what_it_depends_on():
    a, b = tf.Variable(2.0), tf.Variable(3.0)
    optimizer = T.GradientDescentOptimizer(0.1)
    pairs = optimizer.compute_gradients(lambda: a * a)
    assert [v for _, v in pairs] == [a]
    pairs = optimizer.compute_gradients(lambda: a * a, [a, b])
    assert [v for _, v in pairs] == [a, b]
    assert pairs[1][0] is None
    ((grad, _),) = optimizer.compute_gradients(lambda: a * a, grad_loss=tf.constant(10.0))
    assert started().run(grad) == 40.0
    with pytest.raises(ValueError, match="loss: the function reads no trainable variable"):
        optimizer.compute_gradients(lambda: tf.constant(1.0))


@pytest.mark.parametrize(
    "gate", [T.Optimizer.GATE_NONE, T.Optimizer.GATE_OP, T.Optimizer.GATE_GRAPH]
)
def test_gates_have_no_effect_on_numbers(gate):
    w = tf.Variable([1.0, 2.0])
    train_op = T.GradientDescentOptimizer(0.1).minimize(w * w, gate_gradients=gate)
    session = started()
    session.run(train_op)
    assert_allclose(session.value(w), [0.8, 1.6], rtol=1e-6)


@pytest.mark.parametrize("gate", [3, -1, "op", None])
def test_another_gate_is_refused(gate):
    w = tf.Variable(1.0)
    with pytest.raises(ValueError, match=r"gate_gradients: expected Optimizer.GATE_NONE"):
        T.GradientDescentOptimizer(0.1).compute_gradients(w * w, gate_gradients=gate)


@pytest.mark.parametrize("method", [None, 0, 1, 2])
def test_aggregation_methods_give_the_same_sum(method):
    w = tf.Variable(3.0)
    loss = w + w * w + 2.0 * w + tf.exp(0.0 * w)
    ((grad, _),) = T.GradientDescentOptimizer(0.1).compute_gradients(
        loss, aggregation_method=method
    )
    assert started().run(grad) == 9.0


def test_another_aggregation_method_is_refused():
    w = tf.Variable(3.0)
    with pytest.raises(ValueError, match="aggregation_method: expected an AggregationMethod"):
        T.GradientDescentOptimizer(0.1).compute_gradients(w * w, aggregation_method=3)


def test_colocated_gradients_say_so():
    w = tf.Variable(3.0, name="w")
    optimizer = T.GradientDescentOptimizer(0.1)
    ((grad, _),) = optimizer.compute_gradients(
        tf.exp(w, name="e"), colocate_gradients_with_ops=True
    )
    assert grad.op.colocation_groups() == [b"loc:@e"]


# -- minimize ------------------------------------------------------------------------------------


@every_optimizer
def test_minimize_lowers_the_loss(make):
    w = tf.Variable([1.0, -2.0])
    loss = tf.reduce_sum(tf.square(w - [0.5, 0.5]))
    step = new_step()
    rate = 100.0 if make is OPTIMIZERS["Adadelta"] else 0.1
    train_op = make(rate, step).minimize(loss, step)
    session = started()
    start = session.run(loss)
    for _ in range(40):
        session.run(train_op)
    assert session.run(loss) < start / 2


def test_minimize_returns_what_apply_gradients_does():
    a, b = tf.Variable(2.0), tf.Variable(3.0)
    optimizer = T.GradientDescentOptimizer(0.5)
    train_op = optimizer.minimize(a * b, var_list=[a], name="only_a")
    assert train_op.name == "only_a"
    session = started()
    session.run(train_op)
    assert session.run([a, b]) == [0.5, 3.0]


def test_a_missing_gradient_names_the_variables(graph):
    w = tf.Variable(1.0, name="w")
    tf.Variable(1.0, name="b")
    loss = tf.constant(1.0, name="unrelated")
    before = picture(graph)
    with pytest.raises(ValueError, match=r"the variables are 'w', 'b'.* does not depend on them"):
        T.AdamOptimizer().minimize(loss)
    with pytest.raises(ValueError, match="the variables are 'w'"):
        T.AdamOptimizer().minimize(loss, var_list=[w])
    assert picture(graph) == before


# -- errors leave things as they were ------------------------------------------------------------


class FailsLate(T.AdamOptimizer):
    """Builds everything, then raises."""

    def _finish(self, update_ops, name_scope):
        super()._finish(update_ops, name_scope)
        raise KeyError("late")


def test_an_error_at_the_very_end_leaves_everything_as_it_was(graph):
    w = tf.Variable([1.0], name="w")
    loss = w * w
    optimizer = FailsLate()
    before = picture(graph, optimizer)
    with pytest.raises(KeyError, match="late"):
        optimizer.minimize(loss)
    assert picture(graph, optimizer) == before
