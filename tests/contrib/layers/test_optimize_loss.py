"""optimize_loss, parameter by parameter; TensorFlow's own numbers are in the golden cases."""

import inspect
import warnings
from functools import partial

import numpy as np
import pytest

import optkit as tf
from tests.contrib.golden import names, parse_summary
from tests.contrib.models import (
    ALL,
    DB,
    DW,
    LOSS,
    NORM,
    B,
    W,
    after,
    embedding,
    linear,
    quadratic,
    session,
)

optimize_loss = tf.contrib.layers.optimize_loss
SGD = tf.train.GradientDescentOptimizer


def moved(values, rate=0.1, w=DW, b=DB):
    """Whether the quadratic took one step of gradient descent from its start."""
    np.testing.assert_allclose(values["w"], W - rate * np.asarray(w), rtol=1e-6)
    np.testing.assert_allclose(values["b"], B - rate * np.asarray(b), rtol=1e-6)
    return True


def summary_of(train_op, feed=None, steps=1):
    """The tags and values of the last of some steps."""
    merged = tf.summary.merge_all()
    with session() as sess:
        for _ in range(steps):
            _, data = sess.run([train_op, merged], feed)
    return {tag: value for tag, _, value in parse_summary(data)}


def tags(collection=tf.GraphKeys.SUMMARIES):
    """The tags of all summaries so far."""
    with session() as sess:
        found = [sess.run(item) for item in tf.get_collection(collection)]
    return [tag for data in found for tag, _, _ in parse_summary(data)]


# -- the signature --------------------------------------------------------------------------------


NAMES = [
    "loss", "global_step", "learning_rate", "optimizer",
    "gradient_noise_scale", "gradient_multipliers", "clip_gradients", "learning_rate_decay_fn",
    "update_ops", "variables", "name", "summaries",
    "colocate_gradients_with_ops", "increment_global_step",
]  # fmt: skip


def test_the_signature_is_tensorflows():
    parameters = inspect.signature(optimize_loss).parameters
    assert {name: p.default for name, p in parameters.items()} == {
        **dict.fromkeys(NAMES[:4], inspect.Parameter.empty),
        **dict.fromkeys(NAMES[4:12]),
        "colocate_gradients_with_ops": False,
        "increment_global_step": True,
    }
    assert list(parameters) == NAMES


def test_the_short_name_is_the_same_function():
    assert tf.optimize_loss is optimize_loss


# -- loss -----------------------------------------------------------------------------------------


def test_the_value_is_the_loss_before_the_step(graph):
    model = quadratic()
    train_op = optimize_loss(model.loss, model.step, 0.1, "SGD")
    assert isinstance(train_op, tf.Tensor)
    assert train_op.dtype == tf.float32
    assert train_op.shape == []
    with session() as sess:
        assert sess.run(train_op) == LOSS
        assert sess.run(train_op) < LOSS


def test_anything_convertible_is_a_loss(graph):
    w = tf.Variable(3.0, name="w")
    assert after(optimize_loss(w, None, 0.5, "SGD"))["w"] == 2.5


@pytest.mark.parametrize("dtype", [tf.float16, tf.float32, tf.float64])
def test_every_float_dtype_trains(graph, dtype):
    model = quadratic(dtype=dtype)
    train_op = optimize_loss(model.loss, model.step, 0.5, "SGD", clip_gradients=100.0)
    assert train_op.dtype == dtype
    values = after(train_op)
    assert values["w"].dtype == dtype
    np.testing.assert_allclose(values["w"], W - 0.5 * DW, rtol=1e-3)


@pytest.mark.parametrize(
    ("loss_dtype", "rate_dtype"),
    [(tf.float16, tf.float32), (tf.float32, tf.float32), (tf.float64, tf.float64)],
)
def test_the_rate_variable_has_the_dtype_of_the_loss(graph, loss_dtype, rate_dtype):
    model = quadratic(dtype=loss_dtype)
    optimize_loss(model.loss, model.step, 0.1, "SGD")
    (rate,) = [v for v in tf.global_variables() if v.op.name == "OptimizeLoss/learning_rate"]
    assert rate.dtype == rate_dtype
    assert rate not in tf.trainable_variables()


# -- global_step, increment_global_step -----------------------------------------------------------


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_the_step_counts(graph, dtype):
    model = quadratic(step=False)
    step = tf.Variable(5, trainable=False, dtype=dtype, name="steps")
    values = after(optimize_loss(model.loss, step, 0.1, "SGD"), 3)
    assert values["steps"] == 8
    assert values["steps"].dtype == dtype


def test_without_a_step_the_existing_one_counts(graph):
    model = quadratic()
    assert after(optimize_loss(model.loss, None, 0.1, "SGD"), 3)["global_step"] == 3


def test_without_any_step_none_is_made(graph):
    model = quadratic(step=False)
    train_op = optimize_loss(model.loss, None, 0.1, "SGD")
    assert tf.train.get_global_step() is None
    assert moved(after(train_op))


def test_the_step_need_not_count_but_still_drives_the_decay(graph):
    model = quadratic()
    train_op = optimize_loss(
        model.loss,
        model.step,
        1.0,
        "SGD",
        learning_rate_decay_fn=lambda lr, step: lr / tf.cast(step + 10, tf.float32),
        increment_global_step=False,
    )
    values = after(train_op)
    assert moved(values, 0.1)
    assert values["global_step"] == 0


def test_a_constant_step_is_fine_where_it_does_not_count(graph):
    model = quadratic(step=False)
    train_op = optimize_loss(
        model.loss,
        tf.constant(9, tf.int64),
        1.0,
        "SGD",
        learning_rate_decay_fn=lambda lr, step: lr / tf.cast(step + 1, tf.float32),
        increment_global_step=False,
    )
    assert moved(after(train_op), 0.1)


# -- learning_rate --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "value"),
    [
        (0.5, 0.5),
        (0.0, 0.0),
        (1, 1.0),
        (0, 0.0),
        (np.float64(0.5), 0.5),
        (np.float32(0.5), 0.5),
        (np.float16(0.5), 0.5),
        (np.int64(2), 2.0),
        (np.array(0.5), 0.5),
    ],
    ids=repr,
)
def test_rates_that_are_numbers(graph, rate, value):
    model = quadratic()
    train_op = optimize_loss(model.loss, model.step, rate, "SGD")
    assert summary_of(train_op)["OptimizeLoss/learning_rate"] == value
    values = after(train_op)
    assert moved(values, value)
    assert values["OptimizeLoss/learning_rate"] == np.float32(value)


def rate_tensor():
    return tf.constant(0.1)


def rate_float64():
    return tf.constant(0.1, tf.float64)


def rate_variable():
    return tf.Variable(0.1, trainable=False, name="rate")


def rate_variable_float64():
    return tf.Variable(np.float64(0.1), trainable=False, name="rate")


@pytest.mark.parametrize(
    "rate",
    [rate_tensor, rate_float64, rate_variable, rate_variable_float64],
    ids=lambda f: f.__name__,
)
def test_rates_that_live_in_the_graph(graph, rate):
    model = quadratic()
    train_op = optimize_loss(model.loss, model.step, rate(), "SGD")
    assert "OptimizeLoss/learning_rate" not in [v.op.name for v in tf.global_variables()]
    assert summary_of(train_op)["OptimizeLoss/learning_rate"] == np.float32(0.1)
    values = after(train_op)
    assert moved(values)
    assert values["w"].dtype == np.float32


def test_a_rate_variable_is_read_at_every_step(graph):
    """P032: an assignment between two steps takes effect."""
    model = linear([1.0])
    rate = tf.Variable(0.25, trainable=False, name="rate")
    train_op = optimize_loss(model.loss, model.step, rate, "SGD")
    stop = rate.assign(0.0)
    merged = tf.summary.merge_all()
    with session() as sess:
        sess.run(train_op)
        assert sess.value(model.w) == -0.25
        sess.run(stop)
        _, data = sess.run([train_op, merged])
        assert sess.value(model.w) == -0.25
        assert ("OptimizeLoss/learning_rate", "scalar", 0.0) in parse_summary(data)


@pytest.mark.parametrize("rate", [lambda: tf.constant(2), lambda: tf.Variable(2, trainable=False)])
def test_rates_of_whole_numbers_may_live_in_the_graph(graph, rate):
    model = quadratic()
    train_op = optimize_loss(model.loss, model.step, rate(), "SGD")
    assert summary_of(train_op)["OptimizeLoss/learning_rate"] == 2.0
    assert moved(after(train_op), 2.0)


def test_a_fed_rate_is_used(graph):
    model = linear([1.0])
    rate = tf.placeholder(tf.float32, [])
    train_op = optimize_loss(model.loss, model.step, rate, "SGD")
    assert after(train_op, feed={rate: 0.5})["w"] == -0.5


def test_a_rate_of_static_shape_unknown_but_rank_known_is_no_scalar(graph):
    model = linear([1.0])
    with pytest.raises(ValueError, match="learning_rate"):
        optimize_loss(model.loss, model.step, tf.placeholder(tf.float32, [None]), "SGD")


# -- learning_rate_decay_fn -----------------------------------------------------------------------


def test_the_decay_starts_at_step_zero_and_is_logged(graph):
    model = linear([1.0])
    train_op = optimize_loss(
        model.loss, model.step, 1.0, "SGD",
        learning_rate_decay_fn=lambda lr, step: tf.train.exponential_decay(lr, step, 1, 0.5),
    )  # fmt: skip
    seen = [summary_of(train_op, steps=n)["OptimizeLoss/learning_rate"] for n in (1, 2, 3)]
    assert seen == [1.0, 0.5, 0.25]
    assert after(train_op, 3)["w"] == -1.75


def test_the_decay_gets_the_rate_and_the_step(graph):
    model = linear([1.0])
    got = []

    def decay(learning_rate, global_step):
        got.append((learning_rate, global_step))
        return 0.5

    train_op = optimize_loss(
        model.loss, model.step, tf.constant(0.1), "SGD", learning_rate_decay_fn=decay
    )
    assert len(got) == 1
    assert got[0][1] is model.step
    assert after(train_op)["w"] == -0.5


def test_without_a_rate_the_decay_is_not_called(graph):
    def uncalled(learning_rate, global_step):
        raise AssertionError("the decay was called")

    model = linear([1.0])
    train_op = optimize_loss(model.loss, model.step, None, SGD(0.5), learning_rate_decay_fn=None)
    assert after(train_op)["w"] == -0.5
    train_op = optimize_loss(
        model.loss, model.step, None, SGD(0.5), learning_rate_decay_fn=uncalled
    )
    assert after(train_op)["w"] == -0.5


# -- optimizer ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "optimizer"),
    [
        (0.1, "SGD"),
        (0.1, SGD),
        (None, SGD(0.1)),
        (0.1, lambda lr: SGD(lr)),
        (0.1, partial(SGD, name="mine")),
        (None, lambda: SGD(0.1)),
        (None, partial(SGD, 0.1)),
    ],
    ids=["name", "class", "instance", "callable", "partial", "callable()", "partial()"],
)
def test_every_spelling_of_the_optimizer_gives_the_same_numbers(graph, rate, optimizer):
    model = quadratic()
    train_op = optimize_loss(model.loss, model.step, rate, optimizer)
    assert summary_of(train_op)["OptimizeLoss/learning_rate"] == np.float32(0.1)
    assert moved(after(train_op))


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("Adagrad", lambda: tf.train.AdagradOptimizer(0.1)),
        ("Adam", lambda: tf.train.AdamOptimizer(0.1)),
        ("Ftrl", lambda: tf.train.FtrlOptimizer(0.1)),
        ("Momentum", lambda: tf.train.MomentumOptimizer(0.1, 0.9)),
        ("RMSProp", lambda: tf.train.RMSPropOptimizer(0.1)),
        ("SGD", lambda: SGD(0.1)),
    ],
)
def test_names_stand_for_optimizers_with_their_defaults(graph, name, make):
    model = quadratic()
    by_name = after(optimize_loss(model.loss, model.step, 0.1, name), 3)
    by_instance = after(optimize_loss(model.loss, model.step, None, make()), 3)
    np.testing.assert_allclose(by_name["w"], by_instance["w"], rtol=1e-6)
    np.testing.assert_allclose(by_name["b"], by_instance["b"], rtol=1e-6)
    assert set(tf.contrib.layers.OPTIMIZER_CLS_NAMES) == {
        "Adagrad", "Adam", "Ftrl", "Momentum", "RMSProp", "SGD",
    }  # fmt: skip


def test_an_instance_keeps_its_rate_and_logs_it(graph):
    """Row R11: the rate in use is logged, not the one given beside it."""
    model = quadratic()
    train_op = optimize_loss(model.loss, model.step, 0.9, SGD(0.1))
    assert summary_of(train_op)["OptimizeLoss/learning_rate"] == np.float32(0.1)
    assert moved(after(train_op))


def test_an_optimizer_that_tells_no_rate_logs_the_one_given(graph):
    class Halving(tf.train.Optimizer):
        def __init__(self):
            super().__init__(False, "Halving")

        def update(self, xp, w, g):
            return w / 2

    model = quadratic()
    train_op = optimize_loss(model.loss, model.step, 0.25, Halving())
    assert summary_of(train_op)["OptimizeLoss/learning_rate"] == 0.25
    np.testing.assert_array_equal(after(train_op)["w"], W / 2)


def test_where_no_rate_is_known_none_is_logged(graph):
    class Halving(tf.train.Optimizer):
        def __init__(self):
            super().__init__(False, "Halving")

        def update(self, xp, w, g):
            return w / 2

    model = quadratic()
    train_op = optimize_loss(model.loss, model.step, None, Halving(), summaries=ALL)
    assert "OptimizeLoss/learning_rate" not in summary_of(train_op)


# -- gradient_multipliers -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "multipliers",
    [
        lambda m: {m.w: 3.0},
        lambda m: {"w:0": 3.0},
        lambda m: {"w": 3.0},
        lambda m: {m.w: 3},
        lambda m: {"w": np.float64(3)},
        lambda m: {"w": tf.constant(3.0)},
        lambda m: {"w": tf.constant(3.0, tf.float64)},
        lambda m: {"w": tf.Variable(3.0, trainable=False, name="by")},
        lambda m: {"w": [3.0, 3.0, 3.0]},
    ],
    ids=["variable", "w:0", "w", "int", "numpy", "tensor", "float64", "Variable", "vector"],
)
def test_multipliers_by_every_key_and_kind(graph, multipliers):
    model = quadratic()
    train_op = optimize_loss(
        model.loss, model.step, 0.1, "SGD", gradient_multipliers=multipliers(model)
    )
    values = after(train_op)
    assert moved(values, w=3 * DW)
    assert values["w"].dtype == np.float32


def test_a_variable_key_wins_over_a_name(graph):
    model = quadratic()
    train_op = optimize_loss(
        model.loss, model.step, 0.1, "SGD", gradient_multipliers={"w:0": 5.0, model.w: 2.0}
    )
    assert moved(after(train_op), w=2 * DW)


def test_no_multipliers_and_a_variable_without_a_gradient(graph):
    model = quadratic(unused=True)
    assert moved(after(optimize_loss(model.loss, model.step, 0.1, "SGD", gradient_multipliers={})))
    by = {"unused": 2.0, "b": 0.0}
    train_op = optimize_loss(model.loss, model.step, 0.1, "SGD", gradient_multipliers=by)
    values = after(train_op)
    assert moved(values, b=0.0)
    assert values["unused"] == 7.0


def test_multipliers_keep_rows_sparse(graph):
    model = embedding()
    train_op = optimize_loss(
        model.loss, model.step, 1.0, "SGD",
        gradient_multipliers={"emb": tf.constant(2.0, tf.float64)},
    )  # fmt: skip
    expected = np.float32([[-2, -2], [0, 0], [0, 0], [-4, -4], [0, 0]])
    np.testing.assert_array_equal(after(train_op)["emb"], expected)


def test_unknown_keys_are_told_with_the_known_ones(graph):
    model = quadratic()
    with pytest.raises(ValueError, match=r"gradient_multipliers.*'bias'.*'b', 'w'"):
        optimize_loss(model.loss, model.step, 0.1, "SGD", gradient_multipliers={"bias": 2.0})


# -- clip_gradients -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limit",
    [1.0, 1, np.float32(1), np.float64(1), np.int64(1), lambda: tf.constant(1.0),
     lambda: tf.constant(1.0, tf.float64)],
    ids=["float", "int", "float32", "float64", "int64", "tensor", "float64 tensor"],
)  # fmt: skip
def test_clipping_to_every_kind_of_number(graph, limit):
    model = quadratic()
    limit = limit() if callable(limit) and not isinstance(limit, np.generic) else limit
    train_op = optimize_loss(model.loss, model.step, 0.1, "SGD", clip_gradients=limit)
    seen = summary_of(train_op)
    assert seen["OptimizeLoss/global_norm/gradient_norm"] == pytest.approx(NORM)
    assert seen["OptimizeLoss/global_norm/clipped_gradient_norm"] == pytest.approx(1.0)
    assert moved(after(train_op), 0.1 / NORM)


@pytest.mark.parametrize("limit", [float("inf"), np.float32("inf"), 100, NORM * 2])
def test_a_limit_above_the_norm_changes_nothing(graph, limit):
    model = quadratic()
    train_op = optimize_loss(model.loss, model.step, 0.1, "SGD", clip_gradients=limit)
    seen = summary_of(train_op)
    assert seen["OptimizeLoss/global_norm/clipped_gradient_norm"] == pytest.approx(NORM)
    assert moved(after(train_op))


def test_a_limit_of_zero_stops(graph):
    model = quadratic()
    train_op = optimize_loss(model.loss, model.step, 0.1, "SGD", clip_gradients=0)
    assert moved(after(train_op), 0.0)


def test_p023_a_zero_gradient_stays_zero(graph):
    model = linear([0.0, 0.0])
    train_op = optimize_loss(model.loss, model.step, 0.1, "SGD", clip_gradients=1.0)
    seen = summary_of(train_op)
    assert seen["OptimizeLoss/global_norm/gradient_norm"] == 0.0
    assert seen["OptimizeLoss/global_norm/clipped_gradient_norm"] == 0.0
    np.testing.assert_array_equal(after(train_op)["w"], [0.0, 0.0])


def test_clipping_by_a_function_of_the_pairs(graph):
    model = quadratic(unused=True)
    seen = []

    def halve(pairs):
        seen.extend(pairs)
        return [(None if g is None else g / 2, v) for g, v in pairs]

    train_op = optimize_loss(model.loss, model.step, 0.1, "SGD", clip_gradients=halve)
    assert [v for _, v in seen] == [model.w, model.b, model.unused]
    assert seen[2][0] is None
    values = summary_of(train_op)
    assert values["OptimizeLoss/global_norm/gradient_norm"] == pytest.approx(NORM)
    assert values["OptimizeLoss/global_norm/clipped_gradient_norm"] == pytest.approx(NORM / 2)
    assert moved(after(train_op), 0.05)


def test_clipping_leaves_variables_without_a_gradient_alone(graph):
    model = quadratic(unused=True)
    train_op = optimize_loss(model.loss, model.step, 0.1, "SGD", clip_gradients=1.0)
    values = after(train_op)
    assert moved(values, 0.1 / NORM)
    assert values["unused"] == 7.0


def test_the_norm_of_rows_named_twice_is_that_of_their_sum(graph):
    """Row R6: gradients of 1 and 2 per element have the norm sqrt(2·1 + 2·4)."""
    model = embedding()
    train_op = optimize_loss(model.loss, model.step, 1.0, "SGD", clip_gradients=1.0)
    assert summary_of(train_op)["OptimizeLoss/global_norm/gradient_norm"] == pytest.approx(10**0.5)
    expected = -np.float32([[1, 1], [0, 0], [0, 0], [2, 2], [0, 0]]) / 10**0.5
    np.testing.assert_allclose(after(train_op)["emb"], expected, rtol=1e-6)


def test_multipliers_come_before_clipping(graph):
    model = linear([3.0])
    train_op = optimize_loss(
        model.loss, model.step, 1.0, "SGD", gradient_multipliers={"w": 10.0}, clip_gradients=6.0
    )
    assert summary_of(train_op)["OptimizeLoss/global_norm/gradient_norm"] == 30.0
    assert after(train_op)["w"] == pytest.approx(-6.0)


# -- update_ops -----------------------------------------------------------------------------------


def counting(name="counter", collect=True):
    """A counter, and the op that counts, in UPDATE_OPS if wanted."""
    counter = tf.Variable(0.0, trainable=False, name=name)
    op = counter.assign_add(1.0)
    if collect:
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, op)
    return op


def test_update_ops_of_the_collection_run(graph):
    model = quadratic()
    counting("one"), counting("two")
    values = after(optimize_loss(model.loss, model.step, 0.1, "SGD"), 3)
    assert (values["one"], values["two"]) == (3.0, 3.0)
    assert values["global_step"] == 3


def test_a_list_of_update_ops_replaces_the_collection(graph):
    model = quadratic()
    counting("collected")
    wanted = counting("wanted", collect=False)
    values = after(optimize_loss(model.loss, model.step, 0.1, "SGD", update_ops=[wanted]), 3)
    assert (values["collected"], values["wanted"]) == (0.0, 3.0)


def test_an_empty_list_means_no_update_ops(graph):
    model = quadratic()
    counting()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train_op = optimize_loss(model.loss, model.step, 0.1, "SGD", update_ops=[])
    assert after(train_op)["counter"] == 0.0


def test_update_ops_may_be_operations_tensors_or_a_set(graph):
    model = quadratic()
    as_op, as_tensor = counting("op", collect=False), counting("tensor", collect=False)
    train_op = optimize_loss(model.loss, model.step, 0.1, "SGD", update_ops={as_op.op, as_tensor})
    values = after(train_op, 2)
    assert (values["op"], values["tensor"]) == (2.0, 2.0)


# -- variables ------------------------------------------------------------------------------------


def test_only_the_variables_asked_for_move(graph):
    model = quadratic()
    train_op = optimize_loss(
        model.loss, model.step, 0.1, "Adam", variables=[model.b], summaries=ALL
    )
    seen = summary_of(train_op)
    assert seen["OptimizeLoss/global_norm/gradient_norm"] == pytest.approx(DB)
    assert not any("w_0" in tag for tag in seen)
    values = after(train_op)
    np.testing.assert_array_equal(values["w"], W)
    assert values["b"] == pytest.approx(B - 0.1, rel=1e-5)
    assert "OptimizeLoss/w/Adam" not in values


def test_variables_that_are_not_trainable_may_be_asked_for(graph):
    hidden = tf.Variable(1.0, trainable=False, name="hidden")
    train_op = optimize_loss(tf.square(hidden), None, 0.25, "SGD", variables=[hidden])
    assert after(train_op)["hidden"] == 0.5


def test_multipliers_know_the_variables_asked_for_only(graph):
    model = quadratic()
    with pytest.raises(ValueError, match=r"gradient_multipliers.*'w'.*\['b'\]"):
        optimize_loss(
            model.loss, model.step, 0.1, "SGD",
            variables=[model.b], gradient_multipliers={"w": 2.0},
        )  # fmt: skip


# -- name and scopes ------------------------------------------------------------------------------


def test_slots_and_powers_are_in_the_scope(graph):
    model = quadratic()
    optimize_loss(model.loss, model.step, 0.1, "Adam")
    assert [v.op.name for v in tf.global_variables()][3:] == [
        "OptimizeLoss/learning_rate",
        "OptimizeLoss/beta1_power",
        "OptimizeLoss/beta2_power",
        "OptimizeLoss/w/Adam",
        "OptimizeLoss/w/Adam_1",
        "OptimizeLoss/b/Adam",
        "OptimizeLoss/b/Adam_1",
    ]
    assert tf.trainable_variables() == [model.w, model.b]


def test_a_given_name_is_the_scope(graph):
    model = quadratic()
    train_op = optimize_loss(model.loss, model.step, 0.1, "Adagrad", name="fit")
    assert train_op.op.name.startswith("fit/")
    assert set(summary_of(train_op)) == {
        "fit/learning_rate", "fit/global_norm/gradient_norm", "fit/loss",
    }  # fmt: skip
    assert {"fit/learning_rate", "fit/w/Adagrad", "fit/b/Adagrad"} <= after(train_op).keys()


def test_an_empty_name_is_the_root(graph):
    model = linear([1.0])
    train_op = optimize_loss(model.loss, model.step, 0.5, "Adagrad", name="", summaries=ALL)
    assert set(summary_of(train_op)) == {
        "learning_rate", "loss", "global_norm/gradient_norm", "gradients/w_0", "gradient_norm/w_0",
    }  # fmt: skip
    assert {"learning_rate", "w/Adagrad"} <= after(train_op).keys()


def test_scopes_around_it_are_prefixes(graph):
    model = quadratic()
    with tf.variable_scope("outer"):
        train_op = optimize_loss(model.loss, model.step, 0.1, "Adagrad")
    assert train_op.op.name.startswith("outer/OptimizeLoss/")
    assert "outer/OptimizeLoss/loss" in summary_of(train_op)
    assert "outer/OptimizeLoss/w/Adagrad" in after(train_op)


def test_a_scope_that_reuses_is_no_obstacle_to_slots(graph):
    """P030: slots never depend on reuse."""
    with tf.variable_scope("net"):
        tf.get_variable("w", initializer=tf.constant(2.0))
    with tf.variable_scope("net", reuse=True):
        w = tf.get_variable("w")
        train_op = optimize_loss(tf.square(w), None, tf.constant(0.1), "Adagrad")
    assert after(train_op)["net/w"] < 2.0


def test_the_variables_of_one_call_are_not_trained_by_the_next(graph):
    model = quadratic()
    for _ in range(2):
        optimize_loss(model.loss, model.step, 0.1, "Momentum")
    assert tf.trainable_variables() == [model.w, model.b]
    assert names(tf.get_collection(tf.GraphKeys.TRAIN_OP)) == [
        "OptimizeLoss/train", "OptimizeLoss_1/train",
    ]  # fmt: skip


# -- summaries ------------------------------------------------------------------------------------


TAGS = {
    "learning_rate": ["learning_rate"],
    "loss": ["loss"],
    "gradients": ["gradients/w_0", "gradients/b_0"],
    "gradient_norm": ["global_norm/gradient_norm", "gradient_norm/w_0", "gradient_norm/b_0"],
    "global_gradient_norm": ["global_norm/gradient_norm"],
}


@pytest.mark.parametrize("name", ALL)
def test_each_summary_has_its_tags(graph, name):
    model = quadratic(unused=True)
    optimize_loss(model.loss, model.step, 0.1, "SGD", summaries=[name])
    assert tags() == [f"OptimizeLoss/{tag}" for tag in TAGS[name]]


@pytest.mark.parametrize("kind", [list, tuple, set, iter], ids=lambda kind: kind.__name__)
def test_any_iterable_of_names_will_do(graph, kind):
    model = quadratic()
    optimize_loss(
        model.loss, model.step, 0.1, "SGD", clip_gradients=1.0, summaries=kind(reversed(ALL))
    )
    assert tags() == [
        f"OptimizeLoss/{tag}"
        for tag in [
            "learning_rate",
            "global_norm/gradient_norm",
            "loss",
            "gradients/w_0",
            "gradient_norm/w_0",
            "gradients/b_0",
            "gradient_norm/b_0",
            "global_norm/clipped_gradient_norm",
        ]
    ]


@pytest.mark.parametrize("none", [[], ()])
def test_no_names_mean_no_summaries(graph, none):
    model = quadratic()
    train_op = optimize_loss(model.loss, model.step, 0.1, "SGD", clip_gradients=1.0, summaries=none)
    assert tf.get_collection(tf.GraphKeys.SUMMARIES) == []
    assert tf.summary.merge_all() is None
    assert moved(after(train_op), 0.1 / NORM)


def test_the_default_is_loss_rate_and_global_norm(graph):
    model = quadratic()
    optimize_loss(model.loss, model.step, 0.1, "SGD")
    assert tags() == [
        "OptimizeLoss/learning_rate", "OptimizeLoss/global_norm/gradient_norm", "OptimizeLoss/loss",
    ]  # fmt: skip


def test_nodes_are_named_by_their_tags(graph):
    model = quadratic()
    optimize_loss(model.loss, model.step, 0.1, "SGD", summaries=["loss", "gradients"])
    assert names(tf.get_collection(tf.GraphKeys.SUMMARIES)) == [
        "OptimizeLoss/loss:0", "OptimizeLoss/gradients/w_0:0", "OptimizeLoss/gradients/b_0:0",
    ]  # fmt: skip


def test_values_of_gradients_are_those_applied(graph):
    model = linear([3.0, -4.0, 0.0])
    train_op = optimize_loss(model.loss, model.step, 1.0, "SGD", clip_gradients=2.5, summaries=ALL)
    seen = summary_of(train_op)
    assert seen["OptimizeLoss/global_norm/gradient_norm"] == 5.0
    assert seen["OptimizeLoss/gradient_norm/w_0"] == pytest.approx(2.5)
    assert seen["OptimizeLoss/global_norm/clipped_gradient_norm"] == pytest.approx(2.5)
    assert seen["OptimizeLoss/gradients/w_0"] == pytest.approx(
        {"num": 3, "min": -2.0, "max": 1.5, "sum": -0.5, "sum_squares": 6.25}, rel=1e-6
    )


# -- colocate_gradients_with_ops ------------------------------------------------------------------


@pytest.mark.parametrize("colocate", [False, True])
def test_colocation_is_recorded_and_changes_no_number(graph, colocate):
    model = quadratic()
    forward_count = len(graph.get_operations())
    train_op = optimize_loss(
        model.loss, model.step, 0.1, "SGD", colocate_gradients_with_ops=colocate
    )
    assert moved(after(train_op))
    forward = {f"loc:@{op.name}".encode() for op in graph.get_operations()[:forward_count]}
    backward = graph.get_operations()[forward_count:]
    groups = {group for op in backward if op.type != "Update" for group in op.colocation_groups()}
    variables = {b"loc:@w", b"loc:@b", b"loc:@global_step"}
    assert bool(groups & forward - variables) == colocate


# -- variables of several dtypes ------------------------------------------------------------------


def test_gradients_of_several_dtypes_have_one_norm(graph):
    wide = tf.Variable(np.zeros(1), name="wide")
    narrow = tf.Variable(np.zeros(1, np.float32), name="narrow")
    loss = 3.0 * tf.reduce_sum(narrow) + 4.0 * tf.cast(tf.reduce_sum(wide), tf.float32)
    train_op = optimize_loss(loss, None, 1.0, "SGD", clip_gradients=1.0)
    assert summary_of(train_op)["OptimizeLoss/global_norm/gradient_norm"] == 5.0
    values = after(train_op)
    assert (values["wide"].dtype, values["narrow"].dtype) == (np.float64, np.float32)
    np.testing.assert_allclose([values["narrow"][0], values["wide"][0]], [-0.6, -0.8], rtol=1e-6)


# -- eager mode -----------------------------------------------------------------------------------


def test_eager_mode_is_refused():
    with tf.eager():
        w = tf.Variable(1.0, name="w")
        with pytest.raises(RuntimeError, match="eager"):
            optimize_loss(w * w, None, 0.1, "SGD")


def test_a_loss_without_gradients_is_told_with_what_is_in_the_way():
    w = tf.Variable(1.5)
    with pytest.raises(ValueError, match=r"no variable has a gradient of the loss.*'Round'"):
        tf.contrib.layers.optimize_loss(tf.round(w), None, 0.1, "SGD")
