"""`tf.random`: random numbers, under the names that TF 1.5 and later use."""

from typing import TYPE_CHECKING

from optkit.names import missing
from optkit.ops.random import (
    get_seed,
    random_normal,
    random_shuffle,
    random_uniform,
    set_random_seed,
    truncated_normal,
)
from optkit.ops.sampling import multinomial

normal = random_normal
shuffle = random_shuffle
uniform = random_uniform

__all__ = [
    "get_seed",
    "multinomial",
    "normal",
    "set_random_seed",
    "shuffle",
    "truncated_normal",
    "uniform",
]


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__ = missing("random", __all__)
