"""What the tests of `fit` train, and how they read what was written."""

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import optkit as tf
from optkit.train.batches import batches
from optkit.train.fit import fit

__all__ = ["SPEED", "Model", "X", "Y", "create", "scalars"]

SPEED = "global_step/sec"

F = np.float32
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)).astype(F)
Y = (X @ F([1, -2, 0.5])).astype(F)


class Model:
    """Linear regression; `make` is what its train op is made with."""

    def __init__(self, make=None, summaries=()):
        self.x = tf.placeholder(tf.float32, [None, 3], name="x")
        self.y = tf.placeholder(tf.float32, [None], name="y")
        self.w = tf.get_variable("w", [3], initializer=tf.zeros_initializer())
        error = tf.reduce_sum(self.x * self.w, axis=1) - self.y
        self.loss = tf.reduce_mean(tf.square(error), name="loss")
        self.step = tf.train.get_or_create_global_step()
        if make is None:
            self.train_op = tf.contrib.layers.optimize_loss(
                self.loss, self.step, 0.1, "Adam", clip_gradients=5.0, summaries=list(summaries)
            )
        else:
            self.train_op = make(self)
        self.inputs = (self.x, self.y)

    def data(self, **options):
        return batches((X, Y), 10, **{"seed": 1, **options})

    def fit(self, data=None, *args, **options):
        data = self.data() if data is None else data
        return fit(self.train_op, data, *args or (self.inputs,), **{"progress": False, **options})


def create(optimizer):
    return lambda m: tf.contrib.training.create_train_op(m.loss, optimizer)


def scalars(folder):
    """tag -> (step, value) pairs, by TensorBoard; without the speed, which no two runs share."""
    loaded = EventAccumulator(str(folder)).Reload()
    return {
        tag: [(event.step, event.value) for event in loaded.Scalars(tag)]
        for tag in loaded.Tags()["scalars"]
        if tag != SPEED
    }
