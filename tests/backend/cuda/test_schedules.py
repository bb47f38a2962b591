"""Training gives the same bits when streams are lazy and when threads take turns otherwise."""

import numpy as np
import pytest

import optkit as tf
from tests import cusim
from tests.conftest import DEVICE
from tests.train.rules import OPTIMIZERS, started

pytestmark = pytest.mark.cusim

if DEVICE == "sim":
    import cupy


class Model:
    """Dense and sparse gradients, a global norm, and what a step fetches."""

    def __init__(self, optimizer):
        rng = np.random.default_rng(0)
        table = tf.Variable(rng.standard_normal((50, 8)).astype("f4"), name="table")
        w = tf.Variable(rng.standard_normal((8, 3)).astype("f4"), name="w")
        b = tf.Variable(np.zeros(3, "f4"), name="b")
        self.rows = tf.placeholder(tf.int32, [None], name="rows")
        self.labels = tf.placeholder(tf.int32, [None], name="labels")
        logits = tf.matmul(tf.gather(table, self.rows), w) + b
        self.loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=self.labels, logits=logits)
        )
        pairs = optimizer.compute_gradients(self.loss)
        grads, self.norm = tf.clip_by_global_norm([g for g, _ in pairs], 0.1)
        step = tf.train.get_or_create_global_step()
        self.train_op = optimizer.apply_gradients(
            [(g, v) for g, (_, v) in zip(grads, pairs, strict=True)], step
        )
        tf.summary.scalar("loss", self.loss)
        tf.summary.histogram("table", table)
        self.summary = tf.summary.merge_all()

    def trained(self, steps=4):
        """What every step fetched, and every variable afterwards."""
        rng = np.random.default_rng(1)
        session = started()
        session._entropy = 0
        fetched = []
        for _ in range(steps):
            feed = {self.rows: rng.integers(0, 50, 64), self.labels: rng.integers(0, 3, 64)}
            loss, norm, summary, _ = session.run(
                [self.loss, self.norm, self.summary, self.train_op], feed
            )
            fetched += [loss.tobytes(), norm.tobytes(), summary]
        return fetched, [session.value(v).tobytes() for v in tf.global_variables()]


def guarded(make):
    """Each array in a block of its own, next to a page that nobody may touch."""
    before = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(None)
    try:
        return make()
    finally:
        cupy.cuda.set_allocator(before)


@pytest.mark.parametrize("name", ["Adam", "ProximalAdagrad", "RMSProp"])
def test_training_does_not_depend_on_the_schedule(name):
    model = Model(OPTIMIZERS[name](0.1, None))
    expected = guarded(model.trained)
    for changed in ({"lazy": True}, {"order": 1}, {"order": 7}, {"order": 3, "lazy": True}):
        with cusim.settings(**changed):
            assert model.trained() == expected, changed


def test_the_streams_were_lazy():
    """What the test above relies on: under this setting work does wait."""
    x = cupy.zeros(4, np.float32)
    with cusim.settings(lazy=True):
        before = cusim.stats()["launches"]
        x += 1
        event = cupy.cuda.get_current_stream().record()
        assert cusim.stats()["launches"] == before + 1
        assert not event.done
    assert x.get().tolist() == [1] * 4
