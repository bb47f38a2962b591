"""A training run that is killed again and again, in processes forked from one that has imported.

`python survivor.py once FOLDER [STEPS]` trains there from wherever it stands and says so.

`python survivor.py FOLDER KILLS SEED [plain|jit|sim]` trains once in FOLDER/reference without being
disturbed. Then it trains in FOLDER/0, FOLDER/1, ... with a SIGKILL at a random moment, or at a
random one of the calls by which files change, and starts again until the run is through, until
there have been so many kills. It checks that no kill has cost a checkpoint, and prints how many
runs there were. What the runs hold in the end, tests compare. `plain` leaves Numba out; `sim` is
CuPy over tests/cusim, which unlike a device can be forked.
"""

import importlib.util
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

import numpy as np

STEPS = 24
_CALLS = ("open", "os.rename", "os.remove", "os.truncate", "os.mkdir", "os.link")


class Data:
    """Batches in an order of its own; it knows where it is."""

    def __init__(self, x):
        self.x = x
        self.position = 0

    def __call__(self):
        rng = np.random.default_rng([7, self.position])
        self.position += 1
        return {self.x: rng.normal(size=(5, 3)).astype(np.float32)}

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


def build():
    """Two layers, dropout, gradient noise, adaptive clipping, a decaying rate, averages."""
    import optkit as tf

    tf.reset_default_graph()
    tf.set_random_seed(11)
    x = tf.placeholder(tf.float32, [None, 3], "x")
    step = tf.train.get_or_create_global_step()
    hidden = tf.nn.dropout(tf.tanh(tf.layers.dense(x, 8)), 0.9)
    loss = tf.reduce_mean(tf.square(tf.layers.dense(hidden, 1) - tf.reduce_sum(x, 1, True)))
    train_op = tf.contrib.layers.optimize_loss(
        loss,
        step,
        0.05,
        tf.train.AdamOptimizer,
        gradient_noise_scale=0.01,
        clip_gradients=tf.contrib.layers.adaptive_clipping_fn(report_summary=True),
        learning_rate_decay_fn=lambda rate, s: tf.train.exponential_decay(rate, s, 5, 0.9),
        summaries=["loss", "learning_rate", "gradients", "global_gradient_norm"],
    )
    average = tf.train.ExponentialMovingAverage(0.9)
    with tf.control_dependencies([train_op]):
        return average.apply(tf.trainable_variables()), x


def train(logdir, steps=STEPS, says="", hooks=()):
    """Train from wherever the directory stands, and leave what the variables hold at the end."""
    import optkit as tf

    train_op, x = build()
    feed = tf.train.FeedFnHook(Data(x))
    final = {}

    class Final(tf.train.SessionRunHook):
        def after_create_session(self, session, coord):
            sys.stdout.write(says)
            sys.stdout.flush()

        def end(self, session):
            state = session.export_state()
            final.update(state.variables)
            final["counters"] = np.array(sorted(state.counters.items()), np.object_).astype(str)

    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=logdir,
        hooks=[feed, Final(), *hooks, tf.train.StopAtStepHook(last_step=steps)],
        save_checkpoint_secs=None,
        save_checkpoint_steps=5,
        save_summaries_steps=3,
        log_step_count_steps=10,
    ) as session:
        while not session.should_stop():
            session.run(train_op)
    with Path(logdir, "final.npz").open("wb") as file:
        np.savez(file, **{name.replace("/", "|"): value for name, value in final.items()})


def kill_at(call):
    """Have the process killed just before the `call`-th change of a file."""
    left = [call]

    def count(*_):
        left[0] -= 1
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event, arguments):
        if event in _CALLS and not (event == "open" and arguments[1] in ("r", "rb")):
            count()

    sys.addaudithook(hook)
    os.fsync = count


def forked(logdir, call=None, after=None):
    """Train in a child; its exit status, negative where a signal ended it."""
    pid = os.fork()
    if pid == 0:
        status = 1
        os.fsync = lambda _: None  # what a killed process wrote is there without it
        try:
            if call is not None:
                kill_at(call)
            train(logdir)
            status = 0
        except BaseException:  # noqa: BLE001 - the child ends here
            traceback.print_exc()
        finally:
            os._exit(status)
    if after is not None:
        # A child that ends first is not there to be killed any more: it is not waited for yet.
        time.sleep(after)
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def newest_step(logdir):
    """The step of the newest checkpoint, read as a whole; None where there is none yet."""
    import optkit as tf
    from optkit.train import training_state

    prefix = tf.train.latest_checkpoint(logdir)
    if prefix is None:
        return None
    return training_state.load_state(Path(prefix + ".safetensors")).step


def main(folder, kills, seed, kind):
    if kind == "sim":
        from tests import cusim

        cusim.install()
        import optkit as tf

        tf.use_backend("cupy")
    elif kind == "plain":  # as where Numba is not installed
        found = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: (
            None if name == "numba" else found(name, *rest)
        )
    rng = np.random.default_rng(seed)
    start = time.monotonic()
    assert forked(folder / "reference") == 0
    took = time.monotonic() - start
    done, runs = 0, 0
    while done < kills:
        logdir, before, tries = folder / str(runs), -1, 0
        while True:
            tries += 1
            if done >= kills or tries > 50:
                status = forked(logdir)
            elif rng.random() < 0.6:
                status = forked(logdir, call=int(rng.integers(1, 90)))
            else:
                status = forked(logdir, after=float(rng.uniform(0, took)))
            step = newest_step(logdir)
            # Whatever happened: there is a checkpoint as soon as there was one, and no older one.
            assert step is None or step >= before, (logdir, step, before)
            assert step is not None or before == -1, (logdir, before)
            before = -1 if step is None else step
            if status == 0:
                break
            assert status == -signal.SIGKILL, status
            done += 1
        runs += 1
    sys.stdout.write(json.dumps({"runs": runs, "kills": done}) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "once":
        train(Path(sys.argv[2]), *map(int, sys.argv[3:]), says="started\n")
    else:
        main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), (sys.argv[4:] or ["plain"])[0])
