"""Faults that users of such systems reported, as far as optimizers are concerned; by their ids.

Those of the schedules are in test_decay.py, those of clipping in tests/ops/test_clip.py.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import optkit as tf
from tests.train.rules import (
    FORGETS_THE_VARIABLE,
    OPTIMIZERS,
    new_step,
    run_steps,
    started,
    state,
)

T = tf.train

every_optimizer = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)


def after(optimizer, initial, grads):
    """The variable `w` and the slots after one step with each gradient; float32."""
    return run_steps(lambda *_: optimizer, np.asarray(initial, np.float32), grads)


# -- the rules -----------------------------------------------------------------------------------


def test_p001_ftrl_accumulates_the_gradient_without_shrinkage():
    optimizer = T.FtrlOptimizer(
        3.0, initial_accumulator_value=0.0, l2_shrinkage_regularization_strength=0.5
    )
    found = after(optimizer, 1.0, [0.1])
    assert_allclose(found["w/Ftrl"], 0.01, rtol=1e-6)
    assert_allclose(found["w/Ftrl_1"], 1.0666667, rtol=1e-6)
    assert_allclose(found["w"], -32.0, rtol=1e-6)


def test_p002_ftrl_is_exactly_zero_where_linear_is_within_l1():
    optimizer = T.FtrlOptimizer(3.0, initial_accumulator_value=0.1, l1_regularization_strength=2.0)
    found = after(optimizer, 1.0, [0.1])
    assert_allclose(found["w/Ftrl_1"], 0.0948551, rtol=1e-6)
    assert found["w"] == 0.0


def test_p003_ftrl_moves_named_rows_as_it_does_all_and_leaves_the_others():
    def run(grads):
        return after(T.FtrlOptimizer(0.5, l1_regularization_strength=0.1), [1.0, 2.0, 3.0], grads)

    dense = run([[0.1 * k, 0.0, 0.2 * k] for k in range(1, 6)])
    sparse = run([([0.1 * k, 0.2 * k], [0, 2]) for k in range(1, 6)])
    for found in (dense, sparse):
        assert_allclose(found["w"][[0, 2]], [-1.150847, -1.168717], rtol=1e-6)
        assert_allclose(found["w/Ftrl"][[0, 2]], [0.65, 2.3], rtol=1e-6)
        assert_allclose(found["w/Ftrl_1"][[0, 2]], [1.955686, 3.644893], rtol=1e-6)
    assert (dense["w"][1], sparse["w"][1]) == (0.0, 2.0)
    assert_array_equal([sparse["w/Ftrl"][1], sparse["w/Ftrl_1"][1]], np.float32([0.1, 0.0]))


def test_p004_proximal_adagrad_shrinks_at_the_rate_of_the_coordinate():
    optimizer = T.ProximalAdagradOptimizer(1.0, 0.1, 0.5, 0.1)
    found = after(optimizer, [1.0, 2.0], [[0.1, 0.2]])
    assert_allclose(found["w"], [0.0, 0.1019295], rtol=1e-6)
    optimizer = T.ProximalAdagradOptimizer(3.0, l1_regularization_strength=0.001)
    for initial, grad, expected in (
        ([1.0, 2.0], [0.1, 0.2], [-6.6636343, -9.1903307]),
        ([4.0, 3.0], [0.01, 0.02], [2.9593032, 1.0292312]),
    ):
        assert_allclose(after(optimizer, initial, [grad] * 10)["w"], expected, rtol=1e-6)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "rows"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", OPTIMIZERS.keys() - FORGETS_THE_VARIABLE)
def test_p007_zero_gradients_leave_the_variable_as_it_was(name, dtype, sparse):
    initial = np.array([1.0, 0.1], dtype)
    zero = ([0.0, 0.0], [0, 1]) if sparse else [0.0, 0.0]
    found = run_steps(OPTIMIZERS[name], initial, [zero] * 3)
    assert_array_equal(found["w"], initial)
    assert all(np.isfinite(value).all() for value in found.values())
    if "Adagrad" in name:
        assert_array_equal(found[f"w/{name}"], np.full(2, 0.1, dtype))


def test_p007_ftrl_without_a_start_value_stays_finite():
    found = after(T.FtrlOptimizer(0.1, initial_accumulator_value=0.0), [1.0, 2.0], [[0.0, 0.1]] * 2)
    assert found["w"][0] == 0.0
    assert all(np.isfinite(value).all() for value in found.values())


def test_p008_epsilon_of_adam_is_epsilon_hat():
    found = after(T.AdamOptimizer(0.1, epsilon=1.0), 0.0, [1.0])
    assert_allclose(found["w"], -0.00306534, rtol=1e-5)


@pytest.mark.parametrize(("kwargs", "moved"), [({}, 0.17541160), ({"epsilon": 1.0}, 0.13187609)])
def test_p009_rms_starts_at_one_and_epsilon_is_inside_the_root(kwargs, moved):
    found = after(T.RMSPropOptimizer(0.1, 0.9, **kwargs), 0.0, [2.0])
    assert_allclose(found["w"], -moved, rtol=1e-6)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "rows"])
def test_p010_centered_rms_prop_stays_finite(sparse):
    w = tf.Variable([0.0], name="w")
    fed = tf.placeholder(tf.float32, [1])
    grad = tf.IndexedSlices(fed, tf.constant([0])) if sparse else fed
    optimizer = T.RMSPropOptimizer(0.1, 0.9, centered=True)
    train_op = optimizer.apply_gradients([(grad, w)])
    session = started()
    for i in range(400):
        session.run(train_op, {fed: [2.0 if i < 50 else 1.0]})
    assert all(np.isfinite(value).all() for value in state(session, optimizer, w).values())


def test_p012_the_velocity_of_momentum_is_not_scaled_by_the_rate():
    rate = tf.Variable(1.0, trainable=False)
    w = tf.Variable(0.0)
    train_op = T.MomentumOptimizer(rate, 0.9).apply_gradients([(1.0, w)])
    session = started()
    session.run(train_op)
    before = session.value(w)
    rate.load(0.1, session)
    session.run(train_op)
    assert_allclose(before - session.value(w), 0.19, rtol=1e-6)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "rows"])
@pytest.mark.parametrize("name", OPTIMIZERS.keys() - FORGETS_THE_VARIABLE)
def test_p014_zero_gradients_leave_half_precision_as_it_was(name, sparse):
    zero = ([0.0, 0.0], [0, 1]) if sparse else [0.0, 0.0]
    found = run_steps(OPTIMIZERS[name], np.float16([1.0, 2.0]), [zero] * 3)
    assert_array_equal(found["w"], np.float16([1.0, 2.0]))
    assert all(np.isfinite(value).all() for value in found.values())


def test_p014_the_denominator_is_computed_in_float32():
    # g² = 1e-8 is zero in float16: the step would be 1e-4/1e-8 or infinite.
    found = run_steps(OPTIMIZERS["Adam"], np.float16([1.0]), [np.float16([1e-4])])
    assert np.isfinite(found["w"]).all()
    assert 0.5 < found["w"][0] < 1.0


# -- rows that are named twice -------------------------------------------------------------------

# Optimizer, w[1], slots by name.
REPEATED = {
    "GradientDescent": (-0.02, {}),
    "ProximalGradientDescent": (-0.02, {}),
    "Momentum": (-0.02, {"w/Momentum": 0.2}),
    "Adagrad": (-0.05345225, {"w/Adagrad": 0.14}),
    "ProximalAdagrad": (-0.05345225, {"w/ProximalAdagrad": 0.14}),
    "Ftrl": (-0.05345225, {"w/Ftrl": 0.14}),
    "RMSProp": (-0.02103516, {"w/RMSProp": 0.904}),
    "Adadelta": (None, {"w/Adadelta": 0.002}),
    "Adam": (None, {"w/Adam": 0.02, "w/Adam_1": 4e-5}),
    # G = 0.2, A = 0.14: −0.1·0.2/√0.14
    "AdagradDA": (-0.05345225, {"w/AdagradDA": 0.2, "w/AdagradDA_1": 0.14}),
}


@pytest.mark.parametrize("name", REPEATED)
def test_p017_rows_named_twice_are_summed_before_the_update(name):
    moved, slots = REPEATED[name]
    found = run_steps(OPTIMIZERS[name], np.zeros(2, np.float32), [([0.1, 0.1], [1, 1])])
    assert found["w"][0] == 0.0
    if moved is not None:
        assert_allclose(found["w"][1], moved, rtol=1e-6)
    for slot, value in slots.items():
        assert_allclose(found[slot][1], value, rtol=2e-5, err_msg=slot)


def test_p018_rows_named_twice_both_count():
    found = after(T.GradientDescentOptimizer(1.0), np.zeros(3), [([1.0, 1.0, 1.0], [0, 0, 1])])
    assert_array_equal(found["w"], [-2.0, -1.0, 0.0])


# -- gradients that are missing ------------------------------------------------------------------


def test_p025_running_a_gradient_that_is_none_names_its_variable():
    w, _ = tf.Variable(1.0, name="w"), tf.Variable(1.0, name="unused")
    pairs = T.GradientDescentOptimizer(0.1).compute_gradients(w * w)
    session = started()
    with pytest.raises(TypeError, match=r"None cannot be fetched.* no gradient for unused"):
        session.run([grad for grad, _ in pairs])
    with pytest.raises(TypeError, match="unused"):
        session.run(pairs)


def test_p026_a_blocked_gradient_names_the_variables_and_the_operation():
    w = tf.Variable([1.0, 2.0], name="w")
    loss = tf.reduce_mean(tf.abs(1.0 - tf.floor(tf.sigmoid(w), name="rounded")))
    with pytest.raises(
        ValueError,
        match=r"variables are 'w'.*not differentiable: operation 'rounded' \(Floor\), built at .*"
        r"test_faults\.py",
    ):
        T.AdamOptimizer().minimize(loss)


# -- variables of the optimizer ------------------------------------------------------------------


def test_p027_the_powers_of_adam_are_among_its_variables():
    w, b = tf.Variable([1.0], name="w"), tf.Variable(1.0, name="b")
    optimizer = T.AdamOptimizer()
    train_op = optimizer.minimize(w * b)
    assert optimizer.get_slot_names() == ["m", "v"]
    assert len(optimizer.variables()) == 2 * 2 + 2
    session = tf.Session()
    session.run(tf.variables_initializer([w, b, *optimizer.variables()]))
    session.run(train_op)


def test_p029_an_initializer_that_was_run_too_early_is_explained():
    w = tf.Variable([1.0], name="w")
    session = started()
    w.load([5.0], session)
    train_op = T.AdamOptimizer(0.5).minimize(w * w)
    with pytest.raises(tf.errors.FailedPreconditionError) as caught:
        session.run(train_op)
    assert "is not initialised; run global_variables_initializer()" in str(caught.value)
    names = session.run(tf.report_uninitialized_variables()).tolist()
    assert sorted(names) == [b"beta1_power", b"beta2_power", b"w/Adam", b"w/Adam_1"]
    missing = [v for v in tf.global_variables() if v.op.name.encode() in names]
    session.run(tf.variables_initializer(missing))
    session.run(train_op)
    assert_allclose(session.value(w), [4.5], rtol=1e-6)


# -- hyper-parameters ----------------------------------------------------------------------------


@every_optimizer
def test_p032_a_variable_as_rate_is_read_at_every_step(make):
    rate = tf.Variable(0.1, trainable=False)
    w = tf.Variable(np.float32([1.0]), name="w")
    step = new_step()
    train_op = make(rate, step).apply_gradients([([1.0], w)], step)
    session = started()
    for value in (0.1, 0.2):
        rate.load(value, session)
        session.run(train_op)
    unchanged = run_steps(make, np.float32([1.0]), [[1.0]] * 2, rate=0.1)["w"]
    assert session.value(w) != unchanged


def test_p032_a_rate_of_zero_freezes_the_weights():
    rate = tf.Variable(0.1, trainable=False)
    w = tf.Variable(1.0)
    train_op = T.GradientDescentOptimizer(rate).minimize(w)
    session = started()
    session.run(train_op)
    assert_allclose(session.value(w), 0.9, rtol=1e-6)
    rate.load(0.0, session)
    session.run(train_op)
    assert_allclose(session.value(w), 0.9, rtol=1e-6)


@pytest.mark.parametrize(
    ("optimizer", "moved", "tolerance"),
    [("SGD", [0.03, 0.04], 1e-7), ("Adam", [0.1, 0.1], 1e-6)],
)
def test_p035_a_multiplier_scales_the_gradient_and_not_the_rate(optimizer, moved, tolerance):
    w = tf.Variable([0.0, 0.0], name="w")
    train_op = tf.contrib.layers.optimize_loss(
        tf.reduce_sum(w * [3.0, 4.0]),
        new_step(),
        0.1,
        optimizer,
        gradient_multipliers={w: 0.1},
        summaries=[],
    )
    session = started()
    session.run(train_op)
    assert_allclose(-session.value(w), moved, atol=tolerance)


def test_p035_a_multiplier_of_an_unknown_variable_is_refused():
    w = tf.Variable([0.0, 0.0], name="w")
    with pytest.raises(ValueError, match=r"weight.*'?w"):
        tf.contrib.layers.optimize_loss(
            tf.reduce_sum(w * [3.0, 4.0]),
            new_step(),
            0.1,
            "SGD",
            gradient_multipliers={"weight": 0.1},
        )


# -- the step ------------------------------------------------------------------------------------

STEPPED = {
    "GradientDescent": -0.4,
    "ProximalGradientDescent": -0.4,
    "Momentum": -0.9049,
    "Adagrad": -0.270535,
    "ProximalAdagrad": -0.270535,
    "Adam": -0.399999,
    "Ftrl": -0.270536,
    "Adadelta": -0.000182,
    "AdagradDA": -0.197546,
}


@pytest.mark.parametrize("kind", ["dense", "rows", "mixed"])
@pytest.mark.parametrize("name", STEPPED)
def test_p046_the_step_grows_once_a_run_whatever_the_gradients(name, kind):
    w, b = tf.Variable(np.zeros((3, 1), np.float32), name="w"), tf.Variable(0.0, name="b")
    step = new_step()
    sparse = tf.reduce_sum(tf.gather(w, [0, 2]))
    dense = tf.reduce_sum(w * [[1.0], [0.0], [1.0]]) + b
    loss = {"dense": dense, "rows": sparse, "mixed": sparse + b}[kind]
    train_op = OPTIMIZERS[name](0.1, step).minimize(loss, step)
    session = started()
    for _ in range(4):
        session.run(train_op)
    assert session.value(step) == 4
    expected = [[STEPPED[name]], [0.0], [STEPPED[name]]]
    assert_allclose(session.value(w), expected, atol=1e-5)
    if kind != "rows":
        assert_allclose(session.value(b), STEPPED[name], atol=1e-5)


# -- dtypes --------------------------------------------------------------------------------------

RATES = {
    "float": lambda step: 0.5,
    "float64": lambda step: np.float64(0.5),
    "decay": lambda step: T.exponential_decay(0.5, step, 10, 0.5),
    "float64 decay": lambda step: T.cosine_decay(np.float64(0.5), step, 10),
}


@pytest.mark.parametrize("rate", RATES.values(), ids=RATES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "rows"])
@every_optimizer
def test_p111_variables_and_slots_keep_their_dtype(make, rate, dtype, sparse):
    w = tf.Variable(np.zeros(3, dtype), name="w")
    step = new_step()
    optimizer = make(rate(step), step)
    loss = tf.reduce_sum(tf.gather(w, [0, 2]) if sparse else 3.0 * w)
    ((grad, _),) = optimizer.compute_gradients(loss)
    train_op = optimizer.apply_gradients([(grad, w)], step)
    session = started()
    session.run(train_op)
    assert grad.dtype == dtype
    found = state(session, optimizer, w)
    powers = {found.pop(name).dtype for name in list(found) if name.endswith("_power")}
    assert {value.dtype for value in found.values()} == {np.dtype(dtype)}
    assert powers <= {np.dtype("float64" if dtype == "float64" else "float32")}
    assert (found["w"][[0, 2]] < 0).all()
