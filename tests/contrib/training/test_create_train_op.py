"""create_train_op, parameter by parameter; TensorFlow's own numbers are in the golden cases."""

import inspect
import logging
import warnings

import numpy as np
import pytest

import optkit as tf
from tests.contrib.golden import names, parse_summary
from tests.contrib.models import (
    DB,
    DW,
    LOSS,
    B,
    W,
    after,
    assert_same_state,
    embedding,
    linear,
    outline,
    quadratic,
    session,
    state,
)

create_train_op = tf.contrib.training.create_train_op
SGD = tf.train.GradientDescentOptimizer


def counting(name="counter", collect=True):
    """A counter, and the op that counts, in UPDATE_OPS if wanted."""
    counter = tf.Variable(0.0, trainable=False, name=name)
    op = counter.assign_add(1.0, name=f"count_{name}")
    if collect:
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, op)
    return op


# -- the signature, the value, the names ----------------------------------------------------------


def test_the_signature_is_tensorflows():
    parameters = inspect.signature(create_train_op).parameters
    assert {name: p.default for name, p in parameters.items()} == {
        **dict.fromkeys(["total_loss", "optimizer"], inspect.Parameter.empty),
        "global_step": 0,
        **dict.fromkeys(["update_ops", "variables_to_train", "transform_grads_fn"]),
        "summarize_gradients": False,
        "gate_gradients": tf.train.Optimizer.GATE_OP,
        "aggregation_method": None,
        "colocate_gradients_with_ops": False,
        "check_numerics": True,
    }
    assert list(parameters) == [
        "total_loss", "optimizer", "global_step", "update_ops", "variables_to_train",
        "transform_grads_fn", "summarize_gradients", "gate_gradients", "aggregation_method",
        "colocate_gradients_with_ops", "check_numerics",
    ]  # fmt: skip


def test_the_short_name_is_the_same_function():
    assert tf.create_train_op is create_train_op


def test_the_value_is_the_loss_before_the_step(graph):
    model = quadratic()
    train_op = create_train_op(model.loss, SGD(0.1))
    assert isinstance(train_op, tf.Tensor)
    with session() as sess:
        assert sess.run(train_op) == LOSS
        np.testing.assert_allclose(sess.value(model.w), W - 0.1 * DW, rtol=1e-6)
        np.testing.assert_allclose(sess.value(model.b), B - 0.1 * DB, rtol=1e-6)
        assert sess.run(train_op) < LOSS


def test_a_vector_is_a_loss_and_its_sum_is_minimised(graph):
    w = tf.Variable([1.0, 2.0], name="w")
    train_op = create_train_op(tf.square(w), SGD(0.25))
    with session() as sess:
        np.testing.assert_array_equal(sess.run(train_op), [1.0, 4.0])
        np.testing.assert_array_equal(sess.value(w), [0.5, 1.0])


def test_slots_are_beside_their_variables(graph):
    model = quadratic()
    create_train_op(model.loss, tf.train.AdamOptimizer(0.1))
    assert [v.op.name for v in tf.global_variables()] == [
        "w", "b", "global_step", "beta1_power", "beta2_power",
        "w/Adam", "w/Adam_1", "b/Adam", "b/Adam_1",
    ]  # fmt: skip


def test_the_collection_gets_the_update_and_the_tensor(graph):
    model = quadratic()
    first, second = (create_train_op(model.loss, SGD(0.1)) for _ in range(2))
    assert names(tf.get_collection(tf.GraphKeys.TRAIN_OP)) == [
        "GradientDescent", first.name, "GradientDescent_1", second.name,
    ]  # fmt: skip
    assert first.name == "train_op/control_dependency:0"


# -- optimizer ------------------------------------------------------------------------------------


def test_anything_with_the_two_methods_is_an_optimizer(graph):
    class Wrapped:
        def __init__(self, inner):
            self.inner = inner

        def compute_gradients(self, loss, var_list=None, **options):
            pairs = self.inner.compute_gradients(loss, var_list, **options)
            return [(2 * g, v) for g, v in pairs]

        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            return self.inner.apply_gradients(grads_and_vars, global_step, name)

    model = linear([1.0])
    assert after(create_train_op(model.loss, Wrapped(SGD(0.25))))["w"] == -0.5


# -- global_step ----------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{}, {"global_step": 0}], ids=str)
def test_the_default_step_is_made_where_there_is_none(graph, given):
    model = quadratic(step=False)
    train_op = create_train_op(model.loss, SGD(0.1), **given)
    assert after(train_op, 2)["global_step"] == 2
    assert tf.train.get_global_step().dtype == tf.int64


def test_none_counts_nothing(graph):
    model = quadratic()
    assert after(create_train_op(model.loss, SGD(0.1), None))["global_step"] == 0
    bare = quadratic  # a graph without a step stays without one
    with tf.Graph().as_default():
        create_train_op(bare(step=False).loss, SGD(0.1), global_step=None)
        assert tf.train.get_global_step() is None


def test_a_step_of_ones_own_counts(graph):
    model = quadratic(step=False)
    step = tf.Variable(7, trainable=False, dtype=tf.int32, name="steps")
    assert after(create_train_op(model.loss, SGD(0.1), step), 3)["steps"] == 10


# -- update_ops -----------------------------------------------------------------------------------


def test_update_ops_of_the_collection_run(graph):
    model = quadratic()
    counting()
    assert after(create_train_op(model.loss, SGD(0.1)), 3)["counter"] == 3.0


def test_a_generator_of_update_ops_will_do(graph):
    model = quadratic()
    ops = [counting("one", collect=False), counting("two", collect=False)]
    values = after(create_train_op(model.loss, SGD(0.1), update_ops=(op for op in ops)), 2)
    assert (values["one"], values["two"]) == (2.0, 2.0)


def test_ops_left_out_are_warned_of_by_name(graph):
    model = quadratic()
    kept, left = counting("kept"), counting("left")
    with pytest.warns(UserWarning, match=left.op.name) as seen:
        train_op = create_train_op(model.loss, SGD(0.1), update_ops=[kept])
    assert len(seen) == 1
    assert kept.op.name not in str(seen[0].message)
    assert seen[0].filename == __file__
    values = after(train_op)
    assert (values["kept"], values["left"]) == (1.0, 0.0)


def test_more_than_the_collection_warns_of_nothing(graph):
    model = quadratic()
    collected, more = counting("collected"), counting("more", collect=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train_op = create_train_op(model.loss, SGD(0.1), update_ops=[more, collected])
    values = after(train_op)
    assert (values["collected"], values["more"]) == (1.0, 1.0)


# -- variables_to_train ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", [lambda m: [m.b], lambda m: (m.b,), lambda m: m.b], ids=["list", "tuple", "lone"]
)
def test_only_the_variables_asked_for_move(graph, given):
    model = quadratic()
    values = after(create_train_op(model.loss, SGD(0.1), variables_to_train=given(model)))
    np.testing.assert_array_equal(values["w"], W)
    np.testing.assert_allclose(values["b"], B - 0.1 * DB, rtol=1e-6)


# -- transform_grads_fn, summarize_gradients ------------------------------------------------------


def test_the_transform_gets_the_pairs_and_gives_those_applied(graph):
    model = quadratic(unused=True)
    seen = []

    def transform(pairs):
        seen.extend(pairs)
        return [(None if g is None else 2 * g, v) for g, v in pairs if v is not model.b]

    values = after(create_train_op(model.loss, SGD(0.1), transform_grads_fn=transform))
    assert [v for _, v in seen] == [model.w, model.b, model.unused]
    np.testing.assert_allclose(values["w"], W - 0.2 * DW, rtol=1e-6)
    assert values["b"] == B


def test_summaries_are_of_the_gradients_applied(graph):
    model = linear([3.0, -4.0, 0.0])
    other = tf.Variable(1.0, name="other")
    train_op = create_train_op(
        model.loss,
        SGD(1.0),
        transform_grads_fn=tf.contrib.training.clip_gradient_norms_fn(2.5),
        summarize_gradients=True,
    )
    with session() as sess:
        _, data = sess.run([train_op, tf.summary.merge_all()])
    histogram, norm = parse_summary(data)
    assert other in tf.trainable_variables()
    assert histogram[:2] == ("summarize_grads/w_gradient", "histogram")
    assert histogram[2] == pytest.approx(
        {"num": 3, "min": -2.0, "max": 1.5, "sum": -0.5, "sum_squares": 6.25}, rel=1e-6
    )
    assert norm == ("summarize_grads/w_gradient_norm", "scalar", pytest.approx(2.5))


def test_no_summaries_unless_asked_for(graph):
    create_train_op(quadratic().loss, SGD(0.1))
    assert tf.get_collection(tf.GraphKeys.SUMMARIES) == []


# -- gates, aggregation, colocation: no number depends on them ------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        *({"gate_gradients": gate} for gate in (0, 1, 2)),
        *({"aggregation_method": method} for method in (None, 0, 1, 2)),
        {"colocate_gradients_with_ops": True},
    ],
    ids=str,
)
def test_options_that_change_no_number(graph, options):
    w = tf.Variable(1.0, name="w")
    total = w * 2.0 + tf.square(w) + w / 2.0
    assert after(create_train_op(total, SGD(0.5), **options))["w"] == 1.0 - 0.5 * 4.5


# -- check_numerics -------------------------------------------------------------------------------


def logarithm(optimizer=None, **options):
    """A train op on log(w·x): x decides whether the loss is finite."""
    x = tf.placeholder(tf.float32, [], name="x")
    w = tf.Variable(1.0, name="w")
    counting()
    optimizer = tf.train.AdamOptimizer(0.1) if optimizer is None else optimizer
    loss = tf.log(w * x, name="logarithm")
    return create_train_op(loss, optimizer, summarize_gradients=True, **options), x, w


@pytest.mark.parametrize("bad", [-1.0, 0.0, np.inf, np.nan], ids=str)
def test_a_bad_loss_raises_and_nothing_moves(graph, bad):
    """Row 11: no variable, slot, power, counter or step has moved, and training can go on."""
    train_op, x, _ = logarithm()
    merged = tf.summary.merge_all()
    with session() as sess:
        sess.run(train_op, {x: 2.0})
        before = state(sess)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of the gradient's histogram
            with pytest.raises(tf.errors.InvalidArgumentError, match="LossTensor is inf or nan"):
                sess.run([train_op, merged], {x: bad})
        assert_same_state(state(sess), before)
        sess.run(train_op, {x: 2.0})
        assert state(sess)["global_step"] == 2
        assert np.isfinite(state(sess)["w"])


def test_without_the_check_a_bad_loss_goes_through(graph):
    train_op, x, w = logarithm(check_numerics=False)
    with session() as sess:
        assert np.isnan(sess.run(train_op, {x: -1.0}))
        assert np.isfinite(sess.value(w))  # 1/w is finite: only the loss is not
        assert sess.run(train_op, {x: np.inf}) == np.inf
        assert state(sess)["global_step"] == 2


def test_only_the_loss_is_checked(graph):
    """The gradient of sqrt at 0 is infinite, its value is not."""
    w = tf.Variable(0.0, name="w")
    train_op = create_train_op(tf.sqrt(w), SGD(0.1))
    with session() as sess:
        assert sess.run(train_op) == 0.0
        assert not np.isfinite(sess.value(w))


def test_one_bad_element_of_a_vector_is_enough(graph):
    w = tf.Variable([1.0, -1.0], name="w")
    train_op = create_train_op(tf.log(w), SGD(0.1))
    with session() as sess:
        with pytest.raises(tf.errors.InvalidArgumentError, match="LossTensor is inf or nan"):
            sess.run(train_op)
        np.testing.assert_array_equal(sess.value(w), [1.0, -1.0])


# -- add_gradients_summaries ----------------------------------------------------------------------


def test_add_gradients_summaries_gives_the_nodes(graph, caplog):
    model = quadratic(unused=True)
    pairs = SGD(0.1).compute_gradients(model.loss)
    with caplog.at_level(logging.INFO):
        nodes = tf.contrib.training.add_gradients_summaries(pairs)
    assert any("unused" in record.getMessage() for record in caplog.records)
    with session() as sess:
        found = [entry for data in sess.run(nodes) for entry in parse_summary(data)]
    assert [(tag, kind) for tag, kind, _ in found] == [
        ("w_gradient", "histogram"),
        ("w_gradient_norm", "scalar"),
        ("b_gradient", "histogram"),
        ("b_gradient_norm", "scalar"),
    ]
    assert found[0][2]["sum"] == DW.sum()
    assert found[3][2] == DB
    assert tf.get_collection(tf.GraphKeys.SUMMARIES) == nodes


def test_summaries_of_rows_are_of_their_sums(graph):
    model = embedding()
    pairs = SGD(0.1).compute_gradients(model.loss)
    histogram, norm = tf.contrib.training.add_gradients_summaries(pairs)
    with session() as sess:
        ((_, _, moments),), ((_, _, value),) = map(parse_summary, sess.run([histogram, norm]))
    assert moments == {"num": 4, "min": 1.0, "max": 2.0, "sum": 6.0, "sum_squares": 10.0}
    assert value == pytest.approx(10**0.5)


# -- a call that fails -----------------------------------------------------------------------------


def test_a_transform_that_raises_leaves_the_graph_as_it_was(graph):
    model = quadratic(step=False)
    before = outline(graph)

    def fail(pairs):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        create_train_op(model.loss, SGD(0.1), transform_grads_fn=fail)
    assert outline(graph) == before


def test_a_loss_without_gradients_is_told_with_what_is_in_the_way():
    w = tf.Variable(1.5)
    with pytest.raises(ValueError, match=r"no variable has a gradient of the loss.*'Round'"):
        tf.contrib.training.create_train_op(tf.round(w), tf.train.AdamOptimizer())
