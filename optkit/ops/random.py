"""Random numbers: the same on every backend, in every NumPy, and in every repeat with a seed.

Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) with the key
(graph seed, operation seed) and a counter that holds the number of the run. Raw 64-bit words are
all that is taken from NumPy; the distributions are made of them here, on the host.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from optkit.dtypes import FLOATS, DType, as_dtype, float32, int32, int64
from optkit.errors import InvalidArgumentError
from optkit.graph import Tensor, get_default_graph, is_symbolic
from optkit.ops.arguments import checked_sizes, sizes_argument, target_shape
from optkit.ops.core import (
    ALL_TYPES,
    INDEX_TYPES,
    Array,
    ArrayModule,
    as_array,
    as_tensor,
    composite,
    op,
)
from optkit.shapes import Shape

__all__ = [
    "Stream",
    "get_seed",
    "random_normal",
    "random_shuffle",
    "random_uniform",
    "set_random_seed",
    "truncated_normal",
]

_WORD = (1 << 64) - 1
_DEFAULT_GRAPH_SEED = 87654321
_SEED_LIMIT = 2**31 - 1


class Stream:
    """The random numbers of one operation in one run.

    Args:
        key: (graph seed, operation seed); any ints, taken modulo 2**64.
        run: how often the operation has run before.
    """

    def __init__(self, key: tuple[int, int], run: int) -> None:
        self.run = run
        self._words = np.random.Philox(
            key=np.array([part & _WORD for part in key], np.uint64),
            counter=np.array([0, 0, 0, run & _WORD], np.uint64),
        )

    def bits(self, n: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """The next `n` words of 64 random bits."""
        return self._words.random_raw(n)

    def uniform(self, shape: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Uniform in [0, 1), multiples of 2**-53."""
        words = self.bits(int(np.prod(shape, dtype=np.int64)))
        unit = (words >> np.uint64(11)).astype(np.float64)
        unit *= 2.0**-53
        return unit.reshape(tuple(shape))

    def normal(self, shape: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Normal with mean 0 and deviation 1, two from each pair of uniforms (Box and Muller)."""
        count = int(np.prod(shape, dtype=np.int64))
        pairs = self.uniform((2, (count + 1) // 2))
        radius = np.sqrt(-2.0 * np.log1p(-pairs[0]))
        angle = 2.0 * np.pi * pairs[1]
        both = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
        return both[:count].reshape(tuple(shape))

    def truncated_normal(self, shape: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Normal, redrawn until it is within two deviations of the mean."""
        values = self.normal((int(np.prod(shape, dtype=np.int64)),))
        outside = np.flatnonzero(np.abs(values) >= 2.0)
        while outside.size:
            values[outside] = self.normal((outside.size,))
            outside = outside[np.abs(values[outside]) >= 2.0]
        return values.reshape(tuple(shape))


# -- seeds ----------------------------------------------------------------------------------------


def _seed(value: Any, argument: str) -> int | None:
    if value is None:
        return None
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{argument}: expected an int or None, got {value!r}") from None


def set_random_seed(seed: Any) -> None:
    """Set the default graph's seed; operations built from now on derive theirs from it."""
    get_default_graph().seed = _seed(seed, "seed")


def get_seed(op_seed: Any) -> tuple[int | None, int | None]:
    """The (graph seed, operation seed) of a random operation built now; TF1's rules.

    - Both set: both are used.
    - Only the graph's: the operation's is the number of operations so far.
    - Only the operation's: the graph's is a fixed default.
    - Neither: (None, None); each session then has numbers of its own.
    """
    graph = get_default_graph()
    own = _seed(op_seed, "seed")
    if graph.seed is not None:
        seeds = graph.seed, graph.version if own is None else own
    elif own is not None:
        seeds = _DEFAULT_GRAPH_SEED, own
    else:
        return None, None
    first, second = (seed % _SEED_LIMIT for seed in seeds)
    return (first, second) if (first, second) != (0, 0) else (0, _SEED_LIMIT)


# -- ops ------------------------------------------------------------------------------------------


def _dtype_attr(_: Sequence[Tensor], attrs: Mapping[str, Any]) -> DType:
    return attrs["dtype"]  # type: ignore[no-any-return]


def _rounded(xp: ArrayModule, values: np.ndarray[Any, Any], dtype: DType) -> Array:
    return xp.asarray(values.astype(dtype.dtype, copy=False))


def _number(value: Any, dtype: DType, argument: str) -> Any:
    """A parameter of a distribution: a float, or an int of an integer dtype, or a tensor."""
    try:
        if is_symbolic(value):
            return as_tensor(value, dtype)
        array = as_array(value, dtype)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{argument}: {error}") from error
    return array if array.ndim or dtype in INDEX_TYPES else array.item()


def _shape_argument(shape: Any) -> Any:
    return as_tensor(sizes_argument(shape, "shape"), name="shape")


@op(
    "RandomUniform",
    types=INDEX_TYPES,
    result=_dtype_attr,
    shape=target_shape(0),
    host=("shape",),
    differentiable=False,
    random=True,
)
def _uniform(
    xp: ArrayModule,
    shape: Array,
    *,
    low: float,
    high: float,
    dtype: DType,
    seed: tuple[int | None, int | None],
    stream: Stream,
) -> Array:
    values = stream.uniform(checked_sizes(shape, "shape"))
    values = (low + values * (high - low)).astype(dtype.dtype)
    if high > low:
        # Rounding may reach the limit, which is excluded.
        limit = np.asarray(high, dtype.dtype)
        values = np.minimum(values, np.nextafter(limit, np.asarray(low, dtype.dtype)))
    return xp.asarray(values)


@op(
    "RandomUniformInt",
    types={int32, int64},
    accepts={"shape": INDEX_TYPES},
    result=lambda inputs, _: inputs[1].dtype,
    shape=target_shape(0),
    host=("shape", "minval", "maxval"),
    differentiable=False,
    random=True,
)
def _uniform_int(
    xp: ArrayModule,
    shape: Array,
    minval: Array,
    maxval: Array,
    *,
    seed: tuple[int | None, int | None],
    stream: Stream,
) -> Array:
    low, high = int(minval), int(maxval)
    if low >= high:
        raise InvalidArgumentError(f"maxval: expected more than minval = {low}, got {high}")
    sizes = checked_sizes(shape, "shape")
    words = stream.bits(int(np.prod(sizes, dtype=np.int64)))
    # Modulo 2**64 throughout, so that the whole range of int64 works.
    values = (words % np.uint64(high - low) + np.uint64(low & _WORD)).view(np.int64)
    return xp.asarray(values.astype(minval.dtype).reshape(sizes))


@composite
def random_uniform(
    shape: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = float32,
    seed: Any = None,
    name: str | None = None,
) -> Tensor:
    """Uniform in [minval, maxval); floats, or int32 and int64, which need a maxval.

    With `maxval` None, floats lie in [0, 1).

    Raises:
        ValueError: an integer dtype without `maxval`, or a dtype that is neither.
        InvalidArgumentError: when run, an integer range is empty.
    """
    of = as_dtype(dtype)
    if of not in FLOATS | INDEX_TYPES:
        raise ValueError(f"dtype: expected a float, int32 or int64, got {of.name}")
    if maxval is None:
        if of in INDEX_TYPES:
            raise ValueError("maxval: expected an int for an integer dtype, got None")
        maxval = 1
    label = name or "random_uniform"
    with get_default_graph().name_scope(label) as scope:
        sizes = _shape_argument(shape)
        seeds = get_seed(seed)
        low, high = _number(minval, of, "minval"), _number(maxval, of, "maxval")
        if of in INDEX_TYPES:
            return _uniform_int(sizes, low, high, seed=seeds, name=scope)
        if isinstance(low, float) and isinstance(high, float):
            return _uniform(sizes, low=low, high=high, dtype=of, seed=seeds, name=scope)
        unit = _uniform(sizes, low=0.0, high=1.0, dtype=of, seed=seeds)
        return unit * (high - low) + low  # type: ignore[no-any-return]


def _normal_op(type_name: str, draw: Any) -> Any:
    """An op that draws from a distribution with mean 0 and deviation 1, and scales it."""

    @op(
        type_name,
        types=INDEX_TYPES,
        result=_dtype_attr,
        shape=target_shape(0),
        host=("shape",),
        differentiable=False,
        random=True,
    )
    def kernel(
        xp: ArrayModule,
        shape: Array,
        *,
        mean: float,
        stddev: float,
        dtype: DType,
        seed: tuple[int | None, int | None],
        stream: Stream,
    ) -> Array:
        values = draw(stream, checked_sizes(shape, "shape"))
        return _rounded(xp, mean + values * stddev, dtype)

    return kernel


_normal = _normal_op("RandomStandardNormal", Stream.normal)
_truncated = _normal_op("TruncatedNormal", Stream.truncated_normal)


def _scaled(
    kind: Any, shape: Any, mean: Any, stddev: Any, dtype: Any, seed: Any, label: str
) -> Tensor:
    of = as_dtype(dtype)
    if of not in FLOATS:
        raise ValueError(f"dtype: expected a float, got {of.name}")
    with get_default_graph().name_scope(label) as scope:
        sizes = _shape_argument(shape)
        seeds = get_seed(seed)
        centre, deviation = _number(mean, of, "mean"), _number(stddev, of, "stddev")
        if isinstance(centre, float) and isinstance(deviation, float):
            drawn: Tensor = kind(
                sizes, mean=centre, stddev=deviation, dtype=of, seed=seeds, name=scope
            )
            return drawn
        unit: Any = kind(sizes, mean=0.0, stddev=1.0, dtype=of, seed=seeds)
        return unit * deviation + centre  # type: ignore[no-any-return]


@composite
def random_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = float32,
    seed: Any = None,
    name: str | None = None,
) -> Tensor:
    """Normal with the given mean and standard deviation, through which gradients flow."""
    return _scaled(_normal, shape, mean, stddev, dtype, seed, name or "random_normal")


@composite
def truncated_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = float32,
    seed: Any = None,
    name: str | None = None,
) -> Tensor:
    """Normal, redrawn until within two `stddev` of the mean; its deviation is 0.8796·stddev."""
    return _scaled(_truncated, shape, mean, stddev, dtype, seed, name or "truncated_normal")


def _same_shape(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Shape:
    return inputs[0].sizes


@op("RandomShuffle", types=ALL_TYPES, shape=_same_shape, random=True, differentiable=False)
def _shuffle(
    xp: ArrayModule,
    value: Array,
    *,
    seed: tuple[int | None, int | None],
    stream: Stream,
) -> Array:
    if value.ndim == 0 or value.shape[0] < 2:
        return value
    order = np.argsort(stream.bits(value.shape[0]), kind="stable")
    return value[xp.asarray(order)]


@composite
def random_shuffle(value: Any, seed: Any = None, name: str | None = None) -> Tensor:
    """The rows of a tensor in random order."""
    return _shuffle(value, seed=get_seed(seed), name=name)
