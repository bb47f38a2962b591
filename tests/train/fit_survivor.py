"""`survivor.py` with `fit` as its loop: `fit_survivor.py FOLDER KILLS SEED [plain|jit|sim]`."""

import sys
import warnings
from pathlib import Path

import numpy as np

from tests.train import survivor


def train(logdir, steps=survivor.STEPS, says=""):
    """Train from wherever the directory stands, and leave what the variables hold at the end."""
    import optkit as tf

    tf.reset_default_graph()
    tf.set_random_seed(11)
    rng = np.random.default_rng(0)
    images = rng.normal(size=(40, 3)).astype(np.float32)
    x = tf.placeholder(tf.float32, [None, 3], "x")
    hidden = tf.nn.dropout(tf.tanh(tf.layers.dense(x, 8)), 0.9)
    loss = tf.reduce_mean(tf.square(tf.layers.dense(hidden, 1) - tf.reduce_sum(x, 1, True)))
    train_op = tf.contrib.layers.optimize_loss(
        loss,
        tf.train.get_or_create_global_step(),
        0.05,
        tf.train.AdamOptimizer,
        clip_gradients=1.0,
        summaries=["loss", "learning_rate", "gradients", "global_gradient_norm"],
    )
    with warnings.catch_warnings():
        # One that was killed right after its last checkpoint has nothing left to do.
        warnings.simplefilter("ignore", RuntimeWarning)
        history = tf.fit(
            train_op,
            tf.batches(images, 7, seed=3),
            x,
            steps=steps,
            logdir=logdir,
            eval=([images], 4, {"loss": loss}),
            save_checkpoint_secs=None,
            save_checkpoint_steps=5,
            save_summaries_steps=3,
            prefetch=2,
            progress=False,
        )
    state = history.session.export_state()
    final = dict(state.variables)
    final["counters"] = np.array(sorted(state.counters.items()), np.object_).astype(str)
    with Path(logdir, "final.npz").open("wb") as file:
        np.savez(file, **{name.replace("/", "|"): value for name, value in final.items()})


if __name__ == "__main__":
    survivor.train = train
    survivor.main(
        Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), (sys.argv[4:] or ["plain"])[0]
    )
