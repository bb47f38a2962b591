"""Half-precision variables in each optimizer: computed in float32, kept in their own dtype."""

from __future__ import annotations

import numpy as np
import pytest

import optkit as tf

MAKERS = {
    "sgd": lambda step: tf.train.GradientDescentOptimizer(0.1),
    "momentum": lambda step: tf.train.MomentumOptimizer(0.1, 0.9),
    "adagrad": lambda step: tf.train.AdagradOptimizer(0.1),
    "adagrad_da": lambda step: tf.train.AdagradDAOptimizer(0.1, step),
    "adam": lambda step: tf.train.AdamOptimizer(0.1),
    "adadelta": lambda step: tf.train.AdadeltaOptimizer(1.0),
    "rmsprop": lambda step: tf.train.RMSPropOptimizer(0.1, centered=True),
    "ftrl": lambda step: tf.train.FtrlOptimizer(0.1),
    "proximal_adagrad": lambda step: tf.train.ProximalAdagradOptimizer(0.1),
    "proximal_sgd": lambda step: tf.train.ProximalGradientDescentOptimizer(0.1),
}


def trained(make, dtype, sparse):
    """Variables and slots after three steps, as float32."""
    tf.reset_default_graph()
    step = tf.train.create_global_step()
    w = tf.Variable(tf.cast(tf.constant([[1.0, -2.0], [0.5, 3.0]]), dtype))
    factor = tf.cast(tf.constant([[0.5, 0.25], [1.0, 2.0]]), dtype)
    value = tf.gather(w, [1, 1]) if sparse else w * factor
    loss = tf.reduce_sum(value * value)
    optimizer = make(step)
    train = optimizer.minimize(loss, global_step=step)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(3):
            session.run(train)
        held = [
            session.value(v)
            for v in (w, *(optimizer.get_slot(w, s) for s in optimizer.get_slot_names()))
        ]
    assert {array.dtype for array in held} == {tf.as_dtype(dtype).dtype}
    return [array.astype(np.float32) for array in held]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "rows"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", MAKERS)
def test_half_precision_follows_float32(name, dtype, sparse):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    expected = trained(MAKERS[name], "float32", sparse)
    tolerance = 0.05 if dtype == "bfloat16" else 0.01
    for got, wanted in zip(trained(MAKERS[name], dtype, sparse), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)
