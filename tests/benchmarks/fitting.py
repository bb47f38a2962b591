"""What `fit` adds to the runs of a session: checks, measurements, the loop itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import optkit as tf
from tests.benchmarks.harness import Case

F = np.float32


def cases(scale: float = 1.0) -> Iterator[Case]:
    """Both cases; `scale` below 1 takes fewer steps."""
    count = max(2, int(1000 * scale))
    rng = np.random.default_rng(1)
    x_data = rng.standard_normal((1024, 4)).astype(F)
    y_data = rng.integers(0, 3, 1024).astype(np.int32)
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 4])
        y = tf.placeholder(tf.int32, [None])
        logits = x @ tf.Variable(rng.standard_normal((4, 3)).astype(F)) + tf.Variable(
            np.zeros(3, F)
        )
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
        )
        step = tf.train.create_global_step()
        train_op = tf.contrib.layers.optimize_loss(loss, step, 0.001, "SGD")
        session = tf.Session()
        session.run(tf.global_variables_initializer())
    batch = x_data[:16], y_data[:16]

    def fit(data: object) -> None:
        until = int(session.value(step)) + count
        tf.fit(train_op, data, (x, y), steps=until, session=session, progress=False)

    def by_hand(data: Iterator[tuple[np.ndarray, np.ndarray]]) -> None:
        for _ in range(count):
            x_batch, y_batch = next(data)
            session.run(train_op, {x: x_batch, y: y_batch})

    def same() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        while True:
            yield batch

    yield Case(
        f"fit, {count} steps of softmax regression 4→3, batch 16, SGD, one batch",
        lambda: fit(batch),
        {"session.run in a loop": lambda: by_hand(same())},
        1,
        {"session.run in a loop": 1.2},
    )
    yield Case(
        f"fit, {count} steps of softmax regression 4→3, batch 16, SGD, optkit.batches",
        lambda: fit(tf.batches((x_data, y_data), 16, seed=0)),
        {"session.run in a loop": lambda: by_hand(iter(tf.batches((x_data, y_data), 16, seed=0)))},
        1,
        {"session.run in a loop": 1.2},
    )
