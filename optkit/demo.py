"""The demo: a small network learns handwritten digits through `optimize_loss`.

`train` is a whole training script, written to be read and copied; `optkit demo` is its command
line. The digits are the 1797 images of 8x8 pixels that come with scikit-learn.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import optkit as tf
from optkit.contrib import training

__all__ = [
    "DECAYS",
    "OPTIMIZERS",
    "SCALED_BY_RATE",
    "Digits",
    "LogdirError",
    "Method",
    "Progress",
    "Result",
    "SettingError",
    "Settings",
    "load",
    "new_run",
    "train",
]


class Method(NamedTuple):
    """How an optimizer is made from a learning rate and the global step, and a rate that suits."""

    make: Callable[[Any, Any], tf.train.Optimizer]
    learning_rate: float


OPTIMIZERS = {
    "Adadelta": Method(lambda rate, step: tf.train.AdadeltaOptimizer(rate), 10.0),
    "Adagrad": Method(lambda rate, step: tf.train.AdagradOptimizer(rate), 0.2),
    "AdagradDA": Method(lambda rate, step: tf.train.AdagradDAOptimizer(rate, step), 0.3),
    "Adam": Method(lambda rate, step: tf.train.AdamOptimizer(rate), 0.005),
    "Ftrl": Method(lambda rate, step: tf.train.FtrlOptimizer(rate), 0.3),
    "Momentum": Method(lambda rate, step: tf.train.MomentumOptimizer(rate, momentum=0.9), 0.1),
    "ProximalAdagrad": Method(lambda rate, step: tf.train.ProximalAdagradOptimizer(rate), 0.2),
    "ProximalGradientDescent": Method(
        lambda rate, step: tf.train.ProximalGradientDescentOptimizer(rate), 0.6
    ),
    "RMSProp": Method(lambda rate, step: tf.train.RMSPropOptimizer(rate), 0.003),
    "SGD": Method(lambda rate, step: tf.train.GradientDescentOptimizer(rate), 0.6),
}
"""The ten optimizers by the names that `optimize_loss` and TF1 know them by."""

SCALED_BY_RATE = ("AdagradDA", "Ftrl")
"""Optimizers that compute a weight anew, as the current rate times a sum over all gradients, so
that a rate near zero brings every weight near zero."""

Decay = Callable[[Any, Any], Any]

DECAYS: dict[str, Callable[[int], Decay | None]] = {
    "none": lambda steps: None,
    "cosine": lambda steps: lambda rate, step: tf.train.cosine_decay(rate, step, steps),
    "cosine-restarts": lambda steps: (
        lambda rate, step: tf.train.cosine_decay_restarts(rate, step, math.ceil(steps / 7))
    ),
    "exponential": lambda steps: (
        lambda rate, step: tf.train.exponential_decay(rate, step, steps, 0.05)
    ),
    "inverse-time": lambda steps: (
        lambda rate, step: tf.train.inverse_time_decay(rate, step, steps, 9.0)
    ),
    "linear-cosine": lambda steps: (
        lambda rate, step: tf.train.linear_cosine_decay(rate, step, steps)
    ),
    "natural-exp": lambda steps: (
        lambda rate, step: tf.train.natural_exp_decay(rate, step, steps, 3.0)
    ),
    # The noise is kept small: with TF's default variance the rate would often be negative.
    "noisy-linear-cosine": lambda steps: (
        lambda rate, step: tf.train.noisy_linear_cosine_decay(
            rate, step, steps, initial_variance=0.01
        )
    ),
    "piecewise": lambda steps: (
        lambda rate, step: tf.train.piecewise_constant(
            step, [steps // 2, steps // 2 + math.ceil(steps / 4)], [rate, rate * 0.1, rate * 0.01]
        )
    ),
    "polynomial": lambda steps: (
        lambda rate, step: tf.train.polynomial_decay(rate, step, steps, end_learning_rate=0.0)
    ),
    "sgdr": lambda steps: lambda rate, step: training.sgdr_decay(rate, step, math.ceil(steps / 7)),
}
"""Decay functions for `optimize_loss` by name, made for a number of steps."""


class SettingError(ValueError):
    """A setting cannot be used.

    Attributes:
        setting: its name.
        reason: what was expected, and what came.
    """

    def __init__(self, setting: str, reason: str) -> None:
        super().__init__(f"{setting}: {reason}")
        self.setting = setting
        self.reason = reason


class LogdirError(OSError):
    """The directory of a run cannot be made."""


@dataclass(frozen=True)
class Settings:
    """What to train with.

    Args:
        optimizer: a name from OPTIMIZERS, in any case.
        learning_rate: None is the rate that suits the optimizer.
        decay: a name from DECAYS; the decay spans all steps.
        clip: the largest global norm of the gradients; None does not clip.
        noise: the scale of the noise on the gradients; None adds none.
        steps: how many steps to take.
        batch_size: how many images a step sees.
        seed: for the held-out images, the batches, the initial weights and the noise.

    Raises:
        SettingError: a value is unknown or out of its range.
    """

    optimizer: str = "Adam"
    learning_rate: float | None = None
    decay: str = "none"
    clip: float | None = None
    noise: float | None = None
    steps: int = 1000
    batch_size: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "optimizer", _known("optimizer", self.optimizer, OPTIMIZERS))
        object.__setattr__(self, "decay", _known("decay", self.decay, DECAYS))
        if self.learning_rate is None:
            object.__setattr__(self, "learning_rate", OPTIMIZERS[self.optimizer].learning_rate)
        for name in ("learning_rate", "clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise SettingError(name, f"expected a number above 0, got {value}")
        if self.noise is not None and not 0 <= self.noise < math.inf:
            raise SettingError("noise", f"expected a number >= 0, got {self.noise}")
        for name, least in (("steps", 1), ("batch_size", 1), ("seed", 0)):
            value = getattr(self, name)
            if value < least:
                raise SettingError(name, f"expected at least {least}, got {value}")


def _known(setting: str, name: str, choices: dict[str, Any]) -> str:
    """The choice that `name` spells, whatever its case and hyphens."""

    def plain(text: str) -> str:
        return text.lower().replace("-", "").replace("_", "")

    for choice in choices:
        if plain(choice) == plain(name):
            return choice
    raise SettingError(setting, f"expected one of {', '.join(choices)}, got {name!r}")


class Digits(NamedTuple):
    """Images as rows of 64 pixels in [0, 1], float32, and their digits, int64."""

    train_images: np.ndarray[Any, Any]
    train_labels: np.ndarray[Any, Any]
    test_images: np.ndarray[Any, Any]
    test_labels: np.ndarray[Any, Any]


def load(seed: int = 0) -> Digits:
    """scikit-learn's handwritten digits; a fifth of them, chosen by the seed, held out.

    Raises:
        ModuleNotFoundError: scikit-learn is not installed.
    """
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    labels = labels.astype(np.int64)
    order = np.random.default_rng(seed).permutation(len(images))
    test, rest = np.split(order, [len(images) // 5])
    return Digits(images[rest], labels[rest], images[test], labels[test])


def new_run(logdir: Path, optimizer: str) -> Path:
    """Create the directory `demo-<optimizer>-<n>` with the next free number.

    Raises:
        LogdirError: it cannot be created.
    """
    prefix = f"demo-{optimizer}-"
    try:
        logdir.mkdir(parents=True, exist_ok=True)
        taken = [path.name.removeprefix(prefix) for path in logdir.glob(f"{prefix}*")]
        number = max((int(text) for text in taken if text.isdecimal()), default=0)
        while True:
            number += 1
            run = logdir / f"{prefix}{number}"
            with contextlib.suppress(FileExistsError):  # another demo was faster
                run.mkdir()
                return run
    except OSError as error:
        raise LogdirError(f"no run can be made in {str(logdir)!r}: {error.strerror}") from error


class Progress(NamedTuple):
    """Where training is: the steps done, the newest loss, loss and accuracy on held-out images."""

    step: int
    loss: float
    test_loss: float
    test_accuracy: float


class Result(NamedTuple):
    """What came out: the run's directory, loss and accuracy on held-out images, and the speed."""

    directory: Path
    test_loss: float
    test_accuracy: float
    steps_per_second: float


SUMMARY_EVERY = 10
"""Steps from one set of optimizer summaries to the next."""


def train(
    settings: Settings,
    digits: Digits,
    logdir: Path,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Result:
    """Train a network with one hidden layer and write its summaries into a new directory.

    Args:
        settings: what to train with.
        digits: what to learn; see `load`.
        logdir: where the run's directory is made; see `new_run`.
        report: called before the first step and after each.

    Raises:
        SettingError: a batch is larger than the data.
        NanLossDuringTrainingError: the loss is NaN.
        LogdirError: the run's directory cannot be made.
        OSError: the event file cannot be written.
    """
    count = len(digits.train_images)
    if settings.batch_size > count:
        raise SettingError(
            "batch_size",
            f"expected at most {count}, the images to train on, got {settings.batch_size}",
        )

    with tf.Graph().as_default() as graph:
        tf.set_random_seed(settings.seed)

        # The network and its loss.
        images = tf.placeholder(tf.float32, [None, 64], name="images")
        labels = tf.placeholder(tf.int64, [None], name="labels")
        with tf.variable_scope("hidden"):
            hidden = tf.nn.relu(_linear(images, 64))
        with tf.variable_scope("output"):
            logits = _linear(hidden, 10)
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        )
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))

        # One training step: its value is the loss, its summaries are all that there are.
        step = tf.train.get_or_create_global_step()
        train_op = tf.optimize_loss(
            loss,
            step,
            settings.learning_rate,
            lambda rate: OPTIMIZERS[settings.optimizer].make(rate, step),
            gradient_noise_scale=settings.noise,
            clip_gradients=settings.clip,
            learning_rate_decay_fn=DECAYS[settings.decay](settings.steps),
            summaries=tf.contrib.layers.OPTIMIZER_SUMMARIES,
        )
        step_summary = tf.summary.merge_all()

        # The held-out images have summaries of their own.
        test_summary = tf.summary.merge(
            [
                tf.summary.scalar("test/loss", loss),
                tf.summary.scalar("test/accuracy", accuracy),
            ]
        )
        test_feed = {images: digits.test_images, labels: digits.test_labels}
        test_every = max(1, settings.steps // 20)

        directory = new_run(logdir, settings.optimizer)
        with (
            tf.Session() as session,
            tf.summary.FileWriter(directory, graph, flush_secs=1) as writer,
        ):
            session.run(tf.global_variables_initializer())

            def test(done: int) -> tuple[float, float]:
                summary, *values = session.run([test_summary, loss, accuracy], test_feed)
                writer.add_summary(summary, done)
                test_loss, test_accuracy = (float(value) for value in values)
                return test_loss, test_accuracy

            test_loss, test_accuracy = test(0)
            report(Progress(0, test_loss, test_loss, test_accuracy))
            batches = _batches(count, settings.batch_size, np.random.default_rng(settings.seed))
            start = time.perf_counter()
            for done in range(1, settings.steps + 1):
                rows = next(batches)
                feed = {images: digits.train_images[rows], labels: digits.train_labels[rows]}
                if done % SUMMARY_EVERY == 1:
                    value, summary = session.run([train_op, step_summary], feed)
                    writer.add_summary(summary, done)
                else:
                    value = session.run(train_op, feed)
                if math.isnan(value):
                    raise tf.errors.NanLossDuringTrainingError(f"the loss is NaN at step {done}")
                if done % test_every == 0 or done == settings.steps:
                    test_loss, test_accuracy = test(done)
                report(Progress(done, float(value), test_loss, test_accuracy))
            seconds = time.perf_counter() - start
    return Result(directory, test_loss, test_accuracy, settings.steps / seconds)


def _linear(x: tf.Tensor, units: int) -> tf.Tensor:
    """x·W + b, with new variables in the current scope."""
    weights = tf.get_variable("weights", [x.shape[1], units])
    biases = tf.get_variable("biases", [units], initializer=tf.zeros_initializer())
    return tf.nn.xw_plus_b(x, weights, biases)


def _batches(count: int, size: int, rng: np.random.Generator) -> Iterator[np.ndarray[Any, Any]]:
    """Row numbers of one batch after another, in a new order each time all rows have been seen."""
    while True:
        order = rng.permutation(count)
        for start in range(0, count - size + 1, size):
            yield order[start : start + size]
