"""Loss scaling for float16, static and dynamic."""

import numpy as np
import pytest

import optkit as tf

mp = tf.contrib.mixed_precision
F16 = np.float16


def dynamic(start=2.0**15, every=3, **options):
    return mp.ExponentialUpdateLossScaleManager(start, every, 1, 2.0, 0.5, **options)


def half(x, w):
    """x·w in float16, back in float32."""
    return tf.cast(tf.cast(x, tf.float16) * tf.cast(w, tf.float16), tf.float32)


def trained(loss, optimizer, steps, **feeds):
    step = tf.train.get_or_create_global_step()
    train_op = optimizer.minimize(loss, global_step=step)
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    for _ in range(steps):
        session.run(train_op)
    return session


@pytest.mark.parametrize("scale", [1.0, 2.0**15, 0.25])
@pytest.mark.parametrize("make", [tf.train.AdamOptimizer, tf.train.GradientDescentOptimizer])
def test_a_scale_changes_nothing_where_float16_does_not_matter(graph, scale, make):
    w = tf.get_variable("w", initializer=np.float32([1, 2]))
    loss = tf.reduce_sum(tf.square(w))
    plain = trained(loss, make(0.1), 3).value(w)
    tf.reset_default_graph()
    w = tf.get_variable("w", initializer=np.float32([1, 2]))
    loss = tf.reduce_sum(tf.square(w))
    session = trained(loss, mp.LossScaleOptimizer(make(0.1), scale), 3)
    assert (session.value(w) == plain).all()  # powers of two are exact
    assert session.run(tf.train.get_global_step()) == 3


def test_gradients_that_float16_rounds_to_zero_are_kept():
    w = tf.get_variable("w", initializer=np.float32(1))
    loss = half(1.0, w) * 1e-8  # the gradient within float16 is 1e-8, below its least number
    plain = tf.gradients(loss, [w])[0]
    optimizer = mp.LossScaleOptimizer(tf.train.GradientDescentOptimizer(1.0), 2.0**15)
    ((scaled, _),) = optimizer.compute_gradients(loss, [w])
    with tf.Session() as session:
        session.run(w.initializer)
        assert session.run(plain) == 0
        np.testing.assert_allclose(session.run(scaled), 1e-8, rtol=1e-3)


def test_p058_the_scale_falls_below_1_and_training_proceeds():
    w = tf.get_variable("w", initializer=np.float32(1))
    loss = half(1.0, w) * 1e6  # the gradient within float16 is 1e6, beyond its largest number
    scale = dynamic()
    optimizer = mp.LossScaleOptimizer(tf.train.GradientDescentOptimizer(1e-7), scale)
    step = tf.train.get_or_create_global_step()
    train_op = optimizer.minimize(loss, global_step=step)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(40):
            session.run(train_op)
        assert session.run(scale.get_loss_scale()) < 1
        assert 0 < session.value(step) < 40
        assert session.value(w) == pytest.approx(1 - 0.1 * session.value(step), rel=1e-2)


def test_the_lower_bound_can_be_set():
    w = tf.get_variable("w", initializer=np.float32(1))
    scale = dynamic(4.0, min_loss_scale=1.0)
    optimizer = mp.LossScaleOptimizer(tf.train.GradientDescentOptimizer(1e-7), scale)
    session = trained(half(1.0, w) * 1e6, optimizer, 5)
    assert session.run(scale.get_loss_scale()) == 1.0
    assert session.value(w) == 1.0


def test_the_scale_grows_after_finite_steps_and_shrinks_after_others():
    x = tf.placeholder(tf.float32, [])
    w = tf.get_variable("w", initializer=np.float32(1))
    scale = mp.ExponentialUpdateLossScaleManager(8.0, 2, 2, 2.0, 0.25, max_loss_scale=16.0)
    train_op = mp.LossScaleOptimizer(tf.train.GradientDescentOptimizer(0.0), scale).minimize(x * w)
    seen = []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for value in (1, 1, 1, 1, np.inf, 1, np.inf, np.nan, np.inf, np.inf):
            session.run(train_op, {x: value})
            seen.append(float(session.run(scale.get_loss_scale())))
    assert seen == [8, 16, 16, 16, 16, 16, 16, 4, 4, 1]


@pytest.mark.parametrize(
    "make",
    [
        tf.train.FtrlOptimizer,
        tf.train.AdamOptimizer,
        lambda rate: tf.train.AdagradDAOptimizer(rate, tf.train.get_or_create_global_step()),
        lambda rate: tf.train.MomentumOptimizer(rate, 0.9),
    ],
    ids=["Ftrl", "Adam", "AdagradDA", "Momentum"],
)
def test_a_run_that_is_not_finite_moves_nothing(make):
    x = tf.placeholder(tf.float32, [])
    w = tf.get_variable("w", initializer=np.float32(1))
    step = tf.train.get_or_create_global_step()
    optimizer = mp.LossScaleOptimizer(make(0.1), 2.0**10)
    train_op = optimizer.minimize(x * tf.square(w), global_step=step)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train_op, {x: 1})
        before = session.export_state().variables
        session.run(train_op, {x: np.inf})
        after = session.export_state().variables
        assert all(np.array_equal(before[name], after[name]) for name in before)
        session.run(train_op, {x: 1})
        assert session.value(step) == 2
        assert session.value(w) != before["w"]
    assert tf.get_collection(tf.GraphKeys.TRAIN_OP) == [train_op]
    names = {v.op.name for v in optimizer.variables()}
    assert all(name.startswith(("w/", "beta", "Adagrad")) for name in names), names


def test_rows_float16_variables_and_weights_of_the_loss():
    table = tf.get_variable("table", initializer=np.ones((4, 2), F16))
    rows = tf.gather(table, [0, 2, 2])
    loss = tf.reduce_sum(tf.square(rows), axis=1)
    optimizer = mp.LossScaleOptimizer(tf.train.GradientDescentOptimizer(0.125), 64.0)
    train_op = optimizer.minimize(loss, grad_loss=[1.0, 1.0, 2.0])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train_op)
        assert session.value(table)[:, 0].tolist() == [0.75, 1, 0.25, 1]


def test_optimize_loss_takes_it_with_its_summaries(tmp_path):
    x = tf.placeholder(tf.float32, [])
    w = tf.get_variable("w", initializer=np.float32(1))
    scale = dynamic()
    step = tf.train.get_or_create_global_step()
    train_op = tf.contrib.layers.optimize_loss(
        half(x, w) ** 2,
        step,
        None,
        mp.LossScaleOptimizer(tf.train.AdamOptimizer(0.1), scale),
        clip_gradients=1.0,
        summaries=tf.contrib.layers.OPTIMIZER_SUMMARIES,
    )
    # fit does not call what scaling looks for an error.
    history = tf.fit(train_op, [{x: 1.0}] * 10 + [{x: 100.0}] * 10, steps=6, progress=False)
    assert history.stopped == "steps"
    assert history.final["loss"] < history["loss"][0]
    assert len(history) >= 6
    assert history.session.value(step) == 6


def test_a_loss_that_is_nan_is_still_an_error():
    x = tf.placeholder(tf.float32, [])
    w = tf.get_variable("w", initializer=np.float32(1))
    optimizer = mp.LossScaleOptimizer(tf.train.AdamOptimizer(0.1), dynamic())
    train_op = tf.contrib.training.create_train_op(tf.log(x * w), optimizer)
    with pytest.raises(tf.errors.NonFiniteError, match=r"\(Log\)"):
        tf.fit(train_op, [-1.0], x, steps=1, progress=False)


def test_a_checkpoint_holds_the_scale(tmp_path):
    def model():
        tf.reset_default_graph()
        w = tf.get_variable("w", initializer=np.float32(1))
        scale = dynamic()
        optimizer = mp.LossScaleOptimizer(tf.train.GradientDescentOptimizer(1e-7), scale)
        loss = half(1.0, w) * 1e6
        return tf.contrib.training.create_train_op(loss, optimizer), scale

    train_op, scale = model()
    history = tf.fit(train_op, [{}], steps=2, logdir=tmp_path, progress=False)
    found = history.session.run(scale.get_loss_scale())
    train_op, scale = model()
    history = tf.fit(train_op, [{}], steps=3, logdir=tmp_path, progress=False)
    assert len(history) == 1  # no run was lost to finding the scale again
    assert found < 1


def outside_accumulation():
    inside = tf.train.GradientAccumulationOptimizer(tf.train.AdamOptimizer(), 2)
    return mp.LossScaleOptimizer(tf.contrib.opt.MovingAverageOptimizer(inside), 8.0)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: mp.FixedLossScaleManager(0), ValueError, "loss_scale: expected > 0"),
        (lambda: dynamic(0), ValueError, "init_loss_scale"),
        (lambda: dynamic(every=0), ValueError, "incr_every_n_steps: expected >= 1"),
        (lambda: dynamic(min_loss_scale=0), ValueError, "min_loss_scale: expected > 0"),
        (
            lambda: mp.ExponentialUpdateLossScaleManager(1.0, 1, 1, 2.0, 1.0),
            ValueError,
            "decr_ratio: expected > 0 and < 1",
        ),
        (
            lambda: mp.LossScaleOptimizer(tf.train.AdamOptimizer(), "dynamic"),
            TypeError,
            "loss_scale_manager: expected a LossScaleManager or a number, got 'dynamic'",
        ),
        (lambda: mp.LossScaleOptimizer("Adam", 1.0), TypeError, "expected an Optimizer"),
        (outside_accumulation, TypeError, "gradients of different scales; put it around"),
        (lambda: mp.LossScaleManager().get_loss_scale(), NotImplementedError, "no get_loss_scale"),
    ],
)
def test_what_is_refused(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


def test_eager_mode_is_refused():
    optimizer = mp.LossScaleOptimizer(tf.train.AdamOptimizer(), 2.0)
    with pytest.raises(RuntimeError, match="works in graph mode"):
        optimizer.compute_gradients(lambda: 1.0)
