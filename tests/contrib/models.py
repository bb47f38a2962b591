"""Small models whose gradients are known, and what a graph looks like from outside."""

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np

import optkit as tf

W, B = np.float32([1.0, -2.0, 0.5]), np.float32(0.25)
DW, DB = np.float32([0.5, -2.5, 0.0]), np.float32(1.25)
"""The start of the quadratic's variables, and its gradients there."""
LOSS = 4.03125
NORM = float(np.sqrt((DW**2).sum() + DB**2))

ALL = ["learning_rate", "loss", "gradients", "gradient_norm", "global_gradient_norm"]


@dataclass
class Model:
    """A loss, its variables by name and the global step (None where there is none)."""

    loss: Any
    variables: dict[str, Any]
    step: Any

    def __getattr__(self, name):
        try:
            return self.__dict__["variables"][name]
        except KeyError:
            raise AttributeError(name) from None


def _step(wanted):
    return tf.train.get_or_create_global_step() if wanted else None


def quadratic(step=True, dtype=tf.float32, unused=False):
    """0.5·Σ(w − 0.5)² + 0.5·(b + 1)², with the gradients DW and DB at the start."""
    w = tf.Variable(W.astype(dtype.as_numpy_dtype), name="w")
    b = tf.Variable(B.astype(dtype.as_numpy_dtype), name="b")
    held = {"w": w, "b": b}
    if unused:
        held["unused"] = tf.Variable(7.0, name="unused", dtype=dtype)
    loss = 0.5 * tf.reduce_sum(tf.square(w - 0.5)) + 0.5 * tf.square(b + 1.0)
    return Model(loss, held, _step(step))


def embedding(rows=(0, 3, 3), step=True, dtype=tf.float32, size=(5, 2)):
    """Σ emb[rows]: the gradient counts how often a row is named, as IndexedSlices."""
    emb = tf.Variable(np.zeros(size, dtype.as_numpy_dtype), name="emb")
    loss = tf.reduce_sum(tf.gather(emb, np.int32(rows)))
    return Model(loss, {"emb": emb}, _step(step))


def linear(gradient, step=True, dtype=tf.float32, name="w"):
    """Σ w·gradient at w = 0: the gradient is whatever is wanted."""
    gradient = np.asarray(gradient, dtype.as_numpy_dtype)
    w = tf.Variable(np.zeros_like(gradient), name=name)
    return Model(tf.reduce_sum(w * gradient), {name: w}, _step(step))


@contextlib.contextmanager
def session():
    """A session with all global variables initialised."""
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        yield sess


def state(sess):
    """The values of all variables by name."""
    held = tf.global_variables() + tf.local_variables()
    return {variable.op.name: sess.value(variable) for variable in held}


def after(train_op, steps=1, feed=None):
    """The values of all variables after some steps."""
    with session() as sess:
        for _ in range(steps):
            sess.run(train_op, feed)
        return state(sess)


def assert_same_state(actual, expected):
    """Bit for bit."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert np.asarray(actual[name]).tobytes() == np.asarray(value).tobytes(), name


def outline(graph):
    """All that building changes in a graph: its operations, its collections, its variables."""
    return {
        "operations": [(op.name, op.type) for op in graph.get_operations()],
        "control inputs": [op.control_inputs for op in graph.get_operations()],
        "collections": {key: graph.get_collection(key) for key in graph.get_all_collection_keys()},
        "scope": graph.get_name_scope(),
    }
