"""The summaries of a training step against their formulas, and what they leave alone."""

import math

import numpy as np
import pytest

import optkit as tf
from optkit.contrib.layers import EXTRA_SUMMARIES, OPTIMIZER_SUMMARIES, optimize_loss
from optkit.ops.update import UPDATE
from optkit.train.step_summaries import factored
from tests.contrib.golden import parse_summary
from tests.contrib.models import linear, quadratic, session

EVERY = [*OPTIMIZER_SUMMARIES, *EXTRA_SUMMARIES]
F = np.float32


def told(train_op, feed=None, steps=1):
    """The tags, without the scope, and values of the last of some steps, and the variables then."""
    merged = tf.summary.merge_all()
    with session() as sess:
        for _ in range(steps):
            before = {v.op.name: sess.value(v) for v in tf.trainable_variables()}
            _, data = sess.run([train_op, merged], feed)
        after = {v.op.name: sess.value(v) for v in tf.trainable_variables()}
    seen = {tag.removeprefix("OptimizeLoss/"): value for tag, _, value in parse_summary(data)}
    return seen, before, after


def norm(*arrays):
    return math.sqrt(sum(float(np.square(np.float64(a)).sum()) for a in arrays))


@pytest.mark.parametrize("clip", [None, 0.5, 100.0], ids=["no clip", "clip", "loose clip"])
@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "Ftrl"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_every_quantity_is_its_formula(optimizer, dtype, clip):
    rng = np.random.default_rng(0)
    start, slope = rng.normal(size=(2, 3, 4)).astype(dtype)
    start[0, 0] = slope[1, 1] = 0
    w = tf.Variable(start, name="w")
    train_op = optimize_loss(
        tf.reduce_sum(w * slope), None, 0.1, optimizer, clip_gradients=clip, summaries=EVERY
    )
    seen, before, after = told(train_op, steps=2)
    size = norm(slope)
    given = slope.astype(np.float64) * (min(1.0, clip / size) if clip else 1.0)
    rel = 2e-2 if dtype == "float16" else 1e-5
    w_before, w_after = np.float64(before["w"]), np.float64(after["w"])
    expected = {
        "gradient_norm/w_0": norm(given),
        "global_norm/gradient_norm": size,
        "weight_norm/w_0": norm(w_before),
        "update_ratio/w_0": norm(w_after - w_before) / norm(w_before),
        "sparsity/w_0": float((w_before == 0).mean()),
        "nonfinite/w_0": 0.0,
    }
    if clip:
        expected["clip_fraction/w_0"] = 1 - min(1.0, clip / size)
        expected["global_norm/clipped_gradient_norm"] = norm(given)
    for tag, value in expected.items():
        assert seen[tag] == pytest.approx(value, rel=rel, abs=rel / 10), tag
    gradients = seen["gradients/w_0"]
    assert gradients["num"] == 12
    assert gradients["sum_squares"] == pytest.approx(norm(given) ** 2, rel=rel)
    assert gradients["max"] == pytest.approx(given.max(), rel=rel)
    weights = seen["weights/w_0"]
    assert (weights["min"], weights["max"]) == (before["w"].min(), before["w"].max())
    assert ("clip_fraction/w_0" in seen) == (clip is not None)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
@pytest.mark.parametrize("clip", [None, 1.0])
def test_r6_rows_named_twice_are_one_row_everywhere(optimizer, clip):
    table = tf.Variable(np.arange(1, 11, dtype=F).reshape(5, 2), name="table")
    loss = tf.reduce_sum(tf.gather(table, np.int32([0, 3, 3])))
    train_op = optimize_loss(loss, None, 0.1, optimizer, clip_gradients=clip, summaries=EVERY)
    seen, before, after = told(train_op, steps=2)
    size = norm([1, 1, 2, 2])
    factor = min(1, clip / size) if clip else 1
    assert seen["global_norm/gradient_norm"] == pytest.approx(size)
    assert seen["gradient_norm/table_0"] == pytest.approx(factor * size)
    assert seen["gradients/table_0"]["num"] == 4
    assert seen["gradients/table_0"]["sum"] == pytest.approx(6 * factor)
    change = norm(np.float64(after["table"]) - np.float64(before["table"]))
    expected = change / norm(before["table"])
    assert seen["update_ratio/table_0"] == pytest.approx(expected, rel=1e-4)
    merges = [op for op in tf.get_default_graph().get_operations() if op.type == "UniqueRows"]
    assert len(merges) == 1, "rows are merged once, for norms, histograms and the update"


def accumulated(optimizer):
    return tf.train.GradientAccumulationOptimizer(optimizer, 2)


OPTIMIZERS = {
    "AMSGrad": lambda: tf.contrib.opt.AMSGradOptimizer(0.1),
    "AdaMax": lambda: tf.contrib.opt.AdaMaxOptimizer(0.1),
    "Adadelta": lambda: tf.train.AdadeltaOptimizer(0.1),
    "Adagrad": lambda: tf.train.AdagradOptimizer(0.1),
    "AdagradDA": lambda: tf.train.AdagradDAOptimizer(0.1, tf.train.get_global_step()),
    "Adam": lambda: tf.train.AdamOptimizer(0.1),
    "AdamW": lambda: tf.contrib.opt.AdamWOptimizer(0.1, 0.1),
    "AddSign": lambda: tf.contrib.opt.AddSignOptimizer(0.1),
    "Ftrl": lambda: tf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.2),
    "GradientAccumulation": lambda: accumulated(tf.contrib.opt.AdamWOptimizer(0.1, 0.1)),
    "GradientDescent": lambda: tf.train.GradientDescentOptimizer(0.1),
    "LazyAdam": lambda: tf.contrib.opt.LazyAdamOptimizer(0.1),
    "Lion": lambda: tf.contrib.opt.LionOptimizer(0.1, weight_decay=0.1),
    "Momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "MomentumW": lambda: tf.contrib.opt.MomentumWOptimizer(0.1, 0.1, 0.9),
    "MovingAverage": lambda: tf.contrib.opt.MovingAverageOptimizer(tf.train.AdamOptimizer(0.1)),
    "Nadam": lambda: tf.contrib.opt.NadamOptimizer(0.1),
    "PowerSign": lambda: tf.contrib.opt.PowerSignOptimizer(0.1),
    "ProximalAdagrad": lambda: tf.train.ProximalAdagradOptimizer(
        0.1, l1_regularization_strength=0.5
    ),
    "ProximalGradientDescent": lambda: tf.train.ProximalGradientDescentOptimizer(
        0.1, l1_regularization_strength=0.5
    ),
    "RMSProp": lambda: tf.train.RMSPropOptimizer(0.1, momentum=0.5, centered=True),
}


def test_every_optimizer_is_here():
    known = {name for module in (tf.train, tf.contrib.opt) for name in vars(module)}
    known = {name.removesuffix("Optimizer") for name in known if name.endswith("Optimizer")}
    assert known - {""} == OPTIMIZERS.keys()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_variables_and_updates_are_told_for_every_optimizer(name):
    """With noise, multipliers and clipping by a function; dense and sparse gradients."""
    rng = np.random.default_rng(0)
    w = tf.Variable(rng.normal(size=(3, 4)).astype(F), name="w")
    table = tf.Variable(rng.normal(size=(5, 2)).astype(F), name="table")
    loss = tf.reduce_sum(tf.square(w)) + tf.reduce_sum(tf.gather(table, np.int32([0, 3, 3])))
    step = tf.train.create_global_step()

    def clipped(pairs):
        gradients, _ = tf.clip_by_global_norm([gradient for gradient, _ in pairs], 0.5)
        return [(g, v) for g, (_, v) in zip(gradients, pairs, strict=True)]

    train_op = optimize_loss(
        *(loss, step, None, OPTIMIZERS[name]()),
        gradient_noise_scale=0.1,
        gradient_multipliers={"w": 2.0},
        clip_gradients=clipped,
        summaries=EVERY,
    )
    seen, before, after = told(train_op, steps=4)
    assert seen["global_norm/clipped_gradient_norm"] == pytest.approx(0.5, rel=1e-5)
    for variable in ("w", "table"):
        weights = np.float64(before[variable])
        change = norm(np.float64(after[variable]) - weights)
        assert change > 0
        expected = {
            "update_ratio": change / norm(weights),
            "weight_norm": norm(weights),
            "sparsity": float((weights == 0).mean()),
            "nonfinite": 0.0,
            "clip_fraction": 1 - 0.5 / seen["global_norm/gradient_norm"],
            "gradient_norm": math.sqrt(seen[f"gradients/{variable}_0"]["sum_squares"]),
        }
        for quantity, value in expected.items():
            found = seen[f"{quantity}/{variable}_0"]
            assert found == pytest.approx(value, rel=1e-4, abs=1e-7), quantity
        assert seen[f"weights/{variable}_0"]["num"] == weights.size


def test_tags_are_scope_name_variable():
    model = quadratic(unused=True)
    optimize_loss(model.loss, model.step, 0.1, "SGD", clip_gradients=1.0, summaries=EXTRA_SUMMARIES)
    merged = tf.summary.merge_all()
    with session() as sess:
        tags = [tag for tag, _, _ in parse_summary(sess.run(merged))]
    assert sorted(tags) == sorted(
        f"OptimizeLoss/{name}/{variable}_0" for name in EXTRA_SUMMARIES for variable in ("w", "b")
    )


def test_an_unknown_name_is_refused_with_all_that_are_known():
    model = quadratic()
    with pytest.raises(ValueError, match=r"learning_rate, .*update_ratio, .*got 'weight'"):
        optimize_loss(model.loss, model.step, 0.1, "SGD", summaries=["weight"])


def test_zero_norms_give_zero():
    w = tf.Variable(np.zeros(3, F), name="w")
    train_op = optimize_loss(
        tf.reduce_sum(w * w), None, 0.1, "SGD", clip_gradients=1.0, summaries=EVERY
    )
    seen, _, _ = told(train_op)
    assert seen["update_ratio/w_0"] == seen["clip_fraction/w_0"] == 0
    assert seen["sparsity/w_0"] == 1


@pytest.mark.filterwarnings("ignore:.*NaN or infinite:RuntimeWarning")
def test_values_that_are_not_finite_are_counted_where_they_came_from():
    """Clipping spreads a NaN to all gradients; the count is from before."""
    w = tf.Variable(np.array([4.0, 0.0, 0.0], F), name="w")
    v = tf.Variable(np.array([1.0, 2.0], F), name="v")
    loss = tf.reduce_sum(tf.sqrt(w)) + tf.reduce_sum(v * v)
    train_op = optimize_loss(loss, None, 0.1, "SGD", clip_gradients=1.0, summaries=EVERY)
    seen, _, _ = told(train_op)
    assert (seen["nonfinite/w_0"], seen["nonfinite/v_0"]) == (2, 0)
    assert math.isnan(seen["gradient_norm/v_0"])
    assert seen["gradients/v_0_nonfinite"] == 2


class ByHand(tf.train.Optimizer):
    """An optimizer that assigns, as one written for TensorFlow 1 may."""

    def __init__(self):
        super().__init__(False, "ByHand")

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        moves = [tf.assign_sub(v, 0.5 * g) for g, v in grads_and_vars if g is not None]
        return tf.group(*moves, name=name)


def test_an_optimizer_of_its_own_operations_has_an_update_ratio():
    w = tf.Variable(np.array([3.0, 4.0], F), name="w")
    train_op = optimize_loss(
        tf.reduce_sum(w * w), None, None, ByHand(), summaries=["update_ratio", "weights"]
    )
    seen, before, after = told(train_op)
    np.testing.assert_array_equal(after["w"], [0, 0])
    assert seen["update_ratio/w_0"] == 1
    assert seen["weights/w_0"]["max"] == before["w"].max() == 4


@pytest.mark.parametrize("clip", [None, 0.1])
@pytest.mark.parametrize("optimizer", ["Adam", "Momentum"])
def test_training_is_the_same_bit_for_bit_with_and_without(optimizer, clip):
    def trained(summaries):
        with tf.Graph().as_default():
            rng = np.random.default_rng(3)
            x = tf.constant(rng.normal(size=(8, 5)).astype(F))
            w = tf.Variable(rng.normal(size=(5, 4)).astype(F), name="w")
            b = tf.Variable(np.zeros(4, F), name="b")
            loss = tf.reduce_mean(tf.square(tf.tanh(x @ w + b) - 0.5))
            train_op = optimize_loss(
                loss, None, 0.05, optimizer, clip_gradients=clip, summaries=summaries
            )
            merged = tf.summary.merge_all()
            with session() as sess:
                for step in range(12):
                    sess.run([train_op, merged] if merged is not None and step % 3 else train_op)
                return [sess.value(v) for v in (w, b)]

    for plain, watched in zip(trained([]), trained(EVERY), strict=True):
        np.testing.assert_array_equal(plain, watched)


# -- what is not computed -------------------------------------------------------------------------


def needed(fetches):
    """The operations that fetches stand on."""
    seen = set()
    waiting = [item.op if hasattr(item, "op") else item for item in fetches]
    while waiting:
        op = waiting.pop()
        if op not in seen:
            seen.add(op)
            waiting += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return seen


def test_clipped_gradients_are_for_the_optimizer_alone():
    model = linear([3.0, -4.0, 0.0])
    train_op = optimize_loss(
        model.loss, model.step, 0.1, "Adam", clip_gradients=2.5, summaries=OPTIMIZER_SUMMARIES
    )
    (update,) = (op for op in model.loss.graph.get_operations() if op.kind is UPDATE)
    product = update.inputs[0]
    base, factor = factored(product)
    assert product.op.type == "Mul"
    assert (base, factor) == product.op.inputs
    readers = [op for op in needed([train_op, tf.summary.merge_all()]) if product in op.inputs]
    assert readers == [update]


def test_without_a_fetch_there_is_no_summary_in_the_plan():
    model = quadratic()
    train_op = optimize_loss(
        model.loss, model.step, 0.1, "SGD", clip_gradients=1.0, summaries=EVERY
    )
    tf.summary.merge_all()
    kinds = {op.type for op in needed([train_op])}
    assert not any("Summary" in kind for kind in kinds)
    assert "UpdateNorm" not in kinds
    assert sum(op.type == "GlobalNorm" for op in needed([train_op])) == 1


def test_a_product_of_other_shapes_is_no_factor():
    g = tf.constant(np.ones((2, 3), F))
    for product in (g * np.ones((1, 3), F), tf.constant(2.0) * g, tf.negative(g)):
        assert factored(product) == (product, None)
    half = tf.cast(g, tf.float16)
    assert factored(half * tf.constant(2.0, tf.float16))[1] is None
    assert factored(g * tf.constant(2.0))[0] is g


@pytest.mark.parametrize("wanted", [["gradients", "gradient_norm"], ["gradient_norm"]])
@pytest.mark.parametrize("scale", [-2.0, 0.5])
def test_a_negative_factor_leaves_a_norm_positive(scale, wanted):
    w = tf.Variable(np.array([3.0, 4.0], F), name="w")
    multipliers = {"w": tf.constant(scale)}
    train_op = optimize_loss(
        tf.reduce_sum(w), None, 0.1, "SGD", gradient_multipliers=multipliers, summaries=wanted
    )
    seen, _, _ = told(train_op)
    assert seen["gradient_norm/w_0"] == pytest.approx(abs(scale) * math.sqrt(2))
    if "gradients" in wanted:
        assert seen["gradients/w_0"]["sum"] == 2 * scale


def test_summaries_alone_take_no_step():
    """An update's size is worked out beside the update."""
    model = quadratic()
    optimize_loss(model.loss, model.step, 0.1, "Adam", clip_gradients=1.0, summaries=EVERY)
    merged = tf.summary.merge_all()
    assert not any(op.kind is UPDATE for op in needed([merged]))
    with session() as sess:
        first = sess.run(merged)
        assert sess.run(merged) == first
        assert sess.value(model.step) == 0
