"""`tf.contrib`: layers, losses, training, framework, opt, rnn, seq2seq, slim, mixed_precision."""

from typing import TYPE_CHECKING

from optkit.contrib import equations as _equations  # noqa: F401 - registers them
from optkit.contrib import (
    framework,
    layers,
    losses,
    mixed_precision,
    opt,
    rnn,
    seq2seq,
    slim,
    training,
)
from optkit.names import missing

__all__ = [
    "framework",
    "layers",
    "losses",
    "mixed_precision",
    "opt",
    "rnn",
    "seq2seq",
    "slim",
    "training",
]


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__ = missing("contrib", __all__)
