"""adaptive_clipping_fn against its formula in NumPy."""

import inspect
import math

import numpy as np
import pytest

import optkit as tf
from tests.contrib.golden import parse_summary
from tests.contrib.models import after, embedding, outline, session, state

adaptive_clipping_fn = tf.contrib.layers.adaptive_clipping_fn
optimize_loss = tf.contrib.layers.optimize_loss

NORMS = [2.0, 2.5, 0.5, 40.0, 3.0, 0.0, 700.0, 1.0]


class Reference:
    """The averages and the factor, as behaviour that TensorFlow shows; float64."""

    def __init__(
        self, std_factor=2.0, decay=0.95, static_max_norm=None, epsilon=1e-8, stepped=False
    ):
        self.mean = self.sq_mean = 0.0
        self.std_factor, self.decay, self.epsilon = std_factor, decay, epsilon
        self.static_max_norm, self.stepped = static_max_norm, stepped

    def factor(self, norm, step):
        """What the gradients are multiplied by at this norm; the averages move first."""
        if not math.isfinite(norm):
            return 1.0
        log_norm = math.log(norm + self.epsilon)
        decay = min(self.decay, step / (step + 1)) if self.stepped else self.decay
        self.mean -= (1 - decay) * (self.mean - log_norm)
        self.sq_mean -= (1 - decay) * (self.sq_mean - log_norm**2)
        std = math.sqrt(max(self.epsilon, self.sq_mean - self.mean**2))
        self.max_norm = math.exp(self.mean + self.std_factor * std)
        factor = 1.0 if norm < self.max_norm else math.exp(self.mean) / norm
        if self.static_max_norm is not None:
            static = self.static_max_norm / norm if norm else math.inf
            factor = min(static, factor)
        return factor


def problem(dtype=tf.float32):
    """Σ w·x with the gradient (0.6, 0.8)·x, whose norm is x."""
    x = tf.placeholder(dtype, [], name="x")
    w = tf.Variable(np.zeros(2, dtype.as_numpy_dtype), name="w")
    direction = tf.constant(np.asarray([0.6, 0.8], dtype.as_numpy_dtype))
    return tf.reduce_sum(w * direction) * x, x


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("stepped", [False, True], ids=["no step", "step"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"std_factor": 0.5},
        {"decay": 0.5},
        {"static_max_norm": 1.5},
        {"epsilon": 0.1},
        {"std_factor": 0.1, "decay": 0.2, "static_max_norm": 100.0, "epsilon": 1e-3},
    ],
    ids=str,
)
def test_the_formula(graph, dtype, stepped, options):
    loss, x = problem(dtype)
    step = tf.train.get_or_create_global_step()
    clip = adaptive_clipping_fn(**options, **({"global_step": step} if stepped else {}))
    train_op = optimize_loss(loss, step, 1.0, "SGD", clip_gradients=clip)
    reference = Reference(**options, stepped=stepped)
    expected = np.zeros(2)
    with session() as sess:
        for number, norm in enumerate(NORMS):
            sess.run(train_op, {x: norm})
            expected -= np.array([0.6, 0.8]) * norm * reference.factor(norm, number)
            held = state(sess)
            rtol = 3e-5 if dtype == tf.float32 else 1e-12
            scope = "OptimizeLoss/AdaptiveMaxNorm"
            np.testing.assert_allclose(held[f"{scope}/mean"], reference.mean, rtol, atol=1e-6)
            np.testing.assert_allclose(held[f"{scope}/sq_mean"], reference.sq_mean, rtol, atol=1e-6)
            np.testing.assert_allclose(held["w"], expected, rtol=rtol, atol=1e-5)
            assert held["w"].dtype == dtype


def test_the_signature_is_tensorflows():
    parameters = inspect.signature(adaptive_clipping_fn).parameters
    assert {name: p.default for name, p in parameters.items()} == {
        "std_factor": 2.0, "decay": 0.95, "static_max_norm": None, "global_step": None,
        "report_summary": False, "epsilon": 1e-8, "name": None,
    }  # fmt: skip
    assert list(parameters) == [
        "std_factor", "decay", "static_max_norm", "global_step", "report_summary", "epsilon",
        "name",
    ]  # fmt: skip


def test_without_a_step_the_first_norm_is_clipped_hard(graph):
    loss, x = problem()
    train_op = optimize_loss(loss, None, 1.0, "SGD", clip_gradients=adaptive_clipping_fn())
    assert np.linalg.norm(after(train_op, feed={x: 5.0})["w"]) == pytest.approx(1.0838, rel=1e-4)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_norm_that_is_not_finite_leaves_the_averages(graph, bad):
    """Row 9: and that step's gradient passes as it is."""
    loss, x = problem()
    step = tf.train.get_or_create_global_step()
    clip = adaptive_clipping_fn(global_step=step)
    seen = []

    def keep(pairs):
        seen.extend(clip(pairs))
        return seen

    train_op = optimize_loss(loss, step, 0.0, "SGD", clip_gradients=keep)
    ((gradient, _),) = seen
    with session() as sess:
        sess.run(train_op, {x: 2.0})
        before = state(sess)
        passed, _ = sess.run([gradient, train_op], {x: bad})
        after_bad = state(sess)
        np.testing.assert_array_equal(passed, np.float32([bad, bad]))
        for name in ("OptimizeLoss/AdaptiveMaxNorm/mean", "OptimizeLoss/AdaptiveMaxNorm/sq_mean"):
            assert after_bad[name] == before[name]
            assert np.isfinite(before[name])
        assert after_bad["global_step"] == 2
        passed, _ = sess.run([gradient, train_op], {x: 2.0})
        assert np.isfinite(passed).all()


def test_p023_a_zero_gradient_stays_zero(graph):
    loss, x = problem()
    clip = adaptive_clipping_fn(static_max_norm=1.0)
    train_op = optimize_loss(loss, None, 1.0, "SGD", clip_gradients=clip)
    merged = tf.summary.merge_all()
    with session() as sess:
        _, data = sess.run([train_op, merged], {x: 0.0})
        values = {tag: value for tag, _, value in parse_summary(data)}
        assert values["OptimizeLoss/global_norm/gradient_norm"] == 0.0
        np.testing.assert_array_equal(state(sess)["w"], [0.0, 0.0])
        mean = state(sess)["OptimizeLoss/AdaptiveMaxNorm/mean"]
        assert mean == pytest.approx(0.05 * math.log(1e-8), rel=1e-5)


def test_the_summary_holds_the_limit(graph):
    loss, x = problem()
    clip = adaptive_clipping_fn(report_summary=True)
    train_op = optimize_loss(loss, None, 1.0, "SGD", clip_gradients=clip, summaries=[])
    reference = Reference()
    reference.factor(5.0, 0)
    with session() as sess:
        _, data = sess.run([train_op, tf.summary.merge_all()], {x: 5.0})
    ((tag, kind, value),) = parse_summary(data)
    assert (tag, kind) == ("OptimizeLoss/global_norm/adaptive_max_gradient_norm", "scalar")
    assert value == pytest.approx(reference.max_norm, rel=1e-5)


def test_the_deviation_is_at_least_the_root_of_epsilon(graph):
    """At the first step the averages are of one norm, which deviates from nothing."""
    loss, x = problem()
    step = tf.train.get_or_create_global_step()
    clip = adaptive_clipping_fn(global_step=step, epsilon=0.25, report_summary=True)
    train_op = optimize_loss(loss, step, 1.0, "SGD", clip_gradients=clip, summaries=[])
    with session() as sess:
        _, data = sess.run([train_op, tf.summary.merge_all()], {x: 5.0})
    ((_, _, limit),) = parse_summary(data)
    assert limit == pytest.approx((5.0 + 0.25) * math.exp(2 * 0.5), rel=1e-5)


@pytest.mark.parametrize(
    ("argument", "value", "error"),
    [
        ("std_factor", "2", TypeError),
        ("std_factor", float("nan"), ValueError),
        ("decay", 1.5, ValueError),
        ("decay", -0.1, ValueError),
        ("epsilon", 0.0, ValueError),
        ("static_max_norm", 0.0, ValueError),
        ("static_max_norm", -1.0, ValueError),
        ("static_max_norm", True, TypeError),
    ],
)
def test_bad_arguments_are_refused(argument, value, error):
    with pytest.raises(error, match=f"{argument}.*{value!r}"):
        adaptive_clipping_fn(**{argument: value})


def test_what_is_no_pairs_is_refused(graph):
    with pytest.raises(TypeError, match=r"grads_and_vars.*3"):
        adaptive_clipping_fn()(3)


def test_a_function_used_twice_keeps_two_averages(graph):
    loss, _ = problem()
    clip = adaptive_clipping_fn(name="limit")
    for _ in range(2):
        optimize_loss(loss, None, tf.constant(0.1), "SGD", clip_gradients=clip)
    assert [v.op.name for v in tf.global_variables()] == [
        "w",
        "OptimizeLoss/limit/mean",
        "OptimizeLoss/limit/sq_mean",
        "OptimizeLoss_1/limit/mean",
        "OptimizeLoss_1/limit/sq_mean",
    ]
    assert [v.op.name for v in tf.trainable_variables()] == ["w"]


def test_the_step_is_read_before_it_counts(graph):
    """At step 0 the decay is 0, so that the mean is the logarithm itself."""
    loss, x = problem()
    step = tf.train.get_or_create_global_step()
    clip = adaptive_clipping_fn(global_step=step)
    train_op = optimize_loss(loss, step, 1.0, "SGD", clip_gradients=clip)
    held = after(train_op, feed={x: 5.0})
    assert held["OptimizeLoss/AdaptiveMaxNorm/mean"] == pytest.approx(math.log(5.0), rel=1e-6)
    assert held["global_step"] == 1


def test_rows_stay_rows_and_none_stays_none(graph):
    """Row R6: the norm of rows 0 and 3 (named twice) is sqrt(2·1 + 2·4)."""
    model = embedding()
    unused = tf.Variable(1.0, name="unused")
    pairs = tf.train.GradientDescentOptimizer(1.0).compute_gradients(model.loss)
    before = outline(graph)["operations"]
    clipped = adaptive_clipping_fn(static_max_norm=1.0, global_step=model.step)(pairs)
    assert len(outline(graph)["operations"]) > len(before)
    assert clipped[1] == (None, unused)
    gradient, variable = clipped[0]
    assert variable is model.emb
    assert isinstance(gradient, tf.IndexedSlices)
    with session() as sess:
        rows = sess.run(gradient)
    dense = np.zeros((5, 2))
    np.add.at(dense, rows.indices, rows.values)
    expected = np.float32([[1, 1], [0, 0], [0, 0], [2, 2], [0, 0]]) / 10**0.5
    np.testing.assert_allclose(dense, expected, rtol=1e-6)
