"""Faults that users of such systems reported, as far as train ops are concerned; by their ids."""

import logging
import warnings

import numpy as np
import pytest

import optkit as tf
from tests.contrib.golden import parse_summary
from tests.contrib.models import (
    ALL,
    after,
    assert_same_state,
    linear,
    quadratic,
    session,
    state,
)

optimize_loss = tf.contrib.layers.optimize_loss
create_train_op = tf.contrib.training.create_train_op
SGD = tf.train.GradientDescentOptimizer


def counter_in_update_ops():
    c = tf.Variable(0.0, trainable=False, name="c")
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.assign_add(c, 1.0))


def tags():
    with session() as sess:
        data = sess.run(tf.summary.merge_all())
    return [tag for tag, _, _ in parse_summary(data)]


def test_p044_calls_without_a_name_have_scopes_of_their_own(graph):
    model = quadratic()
    for _ in range(2):
        optimize_loss(model.loss, model.step, 0.1, "SGD", summaries=["loss"])
    assert tags() == ["OptimizeLoss/loss", "OptimizeLoss_1/loss"]


def test_p044_the_same_name_twice_is_an_error_that_names_the_variable(graph):
    model = quadratic()
    optimize_loss(model.loss, model.step, 0.1, "SGD", name="opt")
    with pytest.raises(ValueError, match="opt/learning_rate"):
        optimize_loss(model.loss, model.step, 0.1, "SGD", name="opt")


P046 = {
    "GradientDescent": (lambda step: SGD(0.1), -0.4),
    "ProximalGradientDescent": (lambda step: tf.train.ProximalGradientDescentOptimizer(0.1), -0.4),
    "Momentum": (lambda step: tf.train.MomentumOptimizer(0.1, 0.9), -0.9049),
    "Adagrad": (lambda step: tf.train.AdagradOptimizer(0.1), -0.270535),
    "ProximalAdagrad": (lambda step: tf.train.ProximalAdagradOptimizer(0.1), -0.270535),
    "Adam": (lambda step: tf.train.AdamOptimizer(0.1), -0.399999),
    "Ftrl": (lambda step: tf.train.FtrlOptimizer(0.1), -0.270536),
    "RMSProp": (lambda step: tf.train.RMSPropOptimizer(0.1), -0.4),
    "Adadelta": (lambda step: tf.train.AdadeltaOptimizer(0.1), -0.000182),
    "AdagradDA": (lambda step: tf.train.AdagradDAOptimizer(0.1, step), -0.197546),
}


@pytest.mark.parametrize("way", ["optimize_loss", "create_train_op"])
@pytest.mark.parametrize("name", P046)
def test_p046_the_step_counts_once_a_run_for_dense_and_sparse(graph, name, way):
    make, expected = P046[name]
    w = tf.Variable(np.zeros((3, 1), np.float32), name="w")
    b = tf.Variable(0.0, name="b")
    step = tf.train.get_or_create_global_step()
    loss = tf.reduce_sum(tf.gather(w, [0, 2])) + b
    if way == "optimize_loss":
        train_op = optimize_loss(loss, step, None, make(step))
    else:
        train_op = create_train_op(loss, make(step), step)
    values = after(train_op, 4)
    assert values["global_step"] == 4
    np.testing.assert_allclose(values["w"][:, 0], [expected, 0.0, expected], rtol=0, atol=1e-5)
    if name != "RMSProp":  # the recipe states the rows; b alone starts with the same gradient
        np.testing.assert_allclose(values["b"], expected, rtol=0, atol=1e-5)


def test_p048_train_ops_run_the_update_ops_and_minimize_does_not(graph):
    model = quadratic()
    counter_in_update_ops()
    assert after(create_train_op(model.loss, SGD(0.1)), 3)["c"] == 3
    assert after(optimize_loss(model.loss, model.step, 0.1, "SGD"), 3)["c"] == 3
    assert after(SGD(0.1).minimize(model.loss), 3)["c"] == 0


def test_p048_leaving_them_out_warns_once(graph):
    model = quadratic()
    counter_in_update_ops()
    with pytest.warns(UserWarning, match="AssignAdd") as seen:
        train_op = create_train_op(model.loss, SGD(0.1), update_ops=[])
    assert len(seen) == 1
    assert after(train_op, 3)["c"] == 0


@pytest.mark.parametrize(("bad", "culprit"), [(-1.0, "logarithm"), (np.inf, None)])
def test_p050_the_error_names_the_step_and_the_operation(graph, bad, culprit):
    x = tf.placeholder(tf.float32, [], name="x")
    w = tf.Variable(1.0, name="w")
    train_op = create_train_op(w * tf.log(x, name="logarithm"), SGD(0.0))
    with session() as sess:
        for _ in range(17):
            sess.run(train_op, {x: 2.0})
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            sess.run(train_op, {x: bad})
    text = str(caught.value)
    assert "LossTensor is inf or nan" in text
    assert "17" in text
    assert "global_step" in text
    assert (f"{culprit!r}" if culprit else "'x") in text


def test_p050_false_lets_it_run(graph):
    x = tf.placeholder(tf.float32, [])
    w = tf.Variable(1.0, name="w")
    train_op = create_train_op(w + tf.log(x), SGD(0.5), check_numerics=False)
    assert after(train_op, feed={x: -1.0})["w"] == 0.5


@pytest.mark.parametrize("name", P046)
def test_p051_a_failed_check_changes_nothing(graph, name):
    """TensorFlow leaves w at -0.9 and the step at 1 here."""
    w = tf.Variable(-1.0, name="w")
    counter_in_update_ops()
    step = tf.train.get_or_create_global_step()
    train_op = create_train_op(tf.log(w), P046[name][0](step), summarize_gradients=True)
    with session() as sess:
        before = state(sess)
        with pytest.raises(tf.errors.InvalidArgumentError, match="LossTensor is inf or nan"):
            sess.run([train_op, tf.summary.merge_all()])
        assert_same_state(state(sess), before)
        assert before["w"] == -1.0
        assert before["global_step"] == 0


def test_p052_any_subset_of_the_five_names(graph):
    model = quadratic()
    optimize_loss(model.loss, model.step, 0.1, "SGD", summaries=["loss", "gradients"])
    assert tags() == [
        "OptimizeLoss/loss",
        "OptimizeLoss/gradients/w_0",
        "OptimizeLoss/gradients/b_0",
    ]


def test_p052_other_names_are_refused_with_the_five(graph):
    model = quadratic()
    with pytest.raises(ValueError, match="grads") as caught:
        optimize_loss(model.loss, model.step, 0.1, "SGD", summaries=["grads"])
    assert [name for name in ALL if name not in str(caught.value)] == []


def test_p052_no_names_mean_no_summaries(graph):
    model = quadratic()
    optimize_loss(model.loss, model.step, 0.1, "SGD", summaries=[])
    assert tf.summary.merge_all() is None
    assert not any("Summary" in op.type for op in graph.get_operations())


def test_p052_unknown_keywords_are_named(graph):
    model = quadratic()
    with pytest.raises(TypeError, match="clip_gradient_norm"):
        optimize_loss(model.loss, model.step, 0.1, "SGD", clip_gradient_norm=1.0)


def test_p054_merge_all_is_a_snapshot(graph):
    model = quadratic()
    tf.summary.scalar("mine", model.loss)
    early = tf.summary.merge_all()
    optimize_loss(model.loss, model.step, 0.1, "SGD", summaries=["loss"])
    with session() as sess:
        assert [tag for tag, _, _ in parse_summary(sess.run(early))] == ["mine"]
    assert tags() == ["mine", "OptimizeLoss/loss"]


def test_p063_tags_are_clean_from_the_start(graph, caplog):
    with tf.variable_scope("dense"):
        kernel = tf.get_variable("kernel", initializer=tf.constant([1.0, 2.0]))
    with warnings.catch_warnings(), caplog.at_level(logging.INFO):
        warnings.simplefilter("error")
        train_op = optimize_loss(tf.reduce_sum(kernel), None, 0.1, "SGD", summaries=ALL)
        with session() as sess:
            for _ in range(3):
                _, data = sess.run([train_op, tf.summary.merge_all()])
    found = [tag for tag, _, _ in parse_summary(data)]
    assert "OptimizeLoss/gradients/dense/kernel_0" in found
    assert "OptimizeLoss/gradient_norm/dense/kernel_0" in found
    assert not any(":" in tag for tag in found)
    assert [record for record in caplog.records if "kernel" in record.getMessage()] == []


def bad_gradient(bad):
    """A train op whose loss is finite and whose gradient has one bad element of three."""
    w = tf.Variable([1.0, 2.0, 3.0], name="kernel")
    by = tf.placeholder(tf.float32, [3])
    train_op = optimize_loss(
        tf.reduce_sum(w), None, 0.1, "SGD", summaries=ALL, gradient_multipliers={w: by}
    )
    return train_op, {by: [1.0, bad, 2.0]}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_p065_a_bad_gradient_is_counted_and_warned_of_once(graph, bad):
    """Row 20: the norm is written as it is, the histogram holds the finite values."""
    train_op, feed = bad_gradient(bad)
    merged = tf.summary.merge_all()
    with session() as sess:
        with pytest.warns(RuntimeWarning, match="kernel") as seen:
            results = [sess.run([train_op, merged], feed) for _ in range(3)]
        assert np.isfinite(state(sess)["kernel"]).tolist() == [True, False, True]
    assert len([w for w in seen if "OptimizeLoss/gradients/kernel_0" in str(w.message)]) == 1
    values = {tag: value for tag, _, value in parse_summary(results[-1][1])}
    assert not np.isfinite(values["OptimizeLoss/gradient_norm/kernel_0"])
    assert values["OptimizeLoss/gradients/kernel_0_nonfinite"] == 1.0
    histogram = values["OptimizeLoss/gradients/kernel_0"]
    assert (histogram["num"], histogram["min"], histogram["max"]) == (2.0, 1.0, 2.0)


def test_p096_no_tag_is_the_beginning_of_another(graph):
    model = quadratic()
    optimize_loss(
        model.loss, model.step, 0.1, "SGD",
        summaries=[*ALL, *tf.contrib.layers.EXTRA_SUMMARIES],
        clip_gradients=tf.contrib.layers.adaptive_clipping_fn(report_summary=True),
    )  # fmt: skip
    found = tags()
    assert len(found) == len(set(found))
    assert [(a, b) for a in found for b in found if b.startswith(f"{a}/")] == []


def test_p099_histograms_hold_the_gradient_and_none_has_no_tag(graph):
    model = linear([1.0, 2.0, 3.0])
    unused = tf.Variable([5.0], name="unused")
    train_op = optimize_loss(model.loss, model.step, 0.1, "SGD", summaries=ALL)
    with session() as sess:
        _, data = sess.run([train_op, tf.summary.merge_all()])
        assert sess.value(unused) == 5.0
    values = {tag: value for tag, _, value in parse_summary(data)}
    assert values["OptimizeLoss/gradients/w_0"] == {
        "num": 3, "sum": 6.0, "min": 1.0, "max": 3.0, "sum_squares": 14.0,
    }  # fmt: skip
    assert not any("unused" in tag for tag in values)


def test_p100_integers_are_scalars(graph):
    node = tf.summary.scalar("global_step", tf.constant(202, tf.int64))
    with warnings.catch_warnings(), tf.Session() as sess:
        warnings.simplefilter("error")
        assert parse_summary(sess.run(node)) == [("global_step", "scalar", 202.0)]


def test_p117_a_cell_run_twice_gives_the_same_graph(graph):
    """Names, summaries and numbers do not pile up in a graph of the cell's own."""

    def cell():
        with tf.Graph().as_default() as own:
            model = quadratic()
            train_op = optimize_loss(model.loss, model.step, 0.1, "Adam", summaries=ALL)
            return [op.name for op in own.get_operations()], tags(), after(train_op, 2)

    first, second = cell(), cell()
    assert first[:2] == second[:2]
    assert_same_state(first[2], second[2])
