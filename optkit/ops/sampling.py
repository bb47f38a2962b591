"""Drawing classes: from logits, and as candidates for losses over many classes.

A candidate sampler draws class numbers and tells how often it expects to draw each: from the
probability p of a class, p·n where n are drawn with repetition, 1 - (1 - p)^tries where draws are
repeated until n different ones are found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from optkit.dtypes import FLOATS, DType, as_dtype, float32, int32, int64
from optkit.errors import InvalidArgumentError
from optkit.graph import Tensor, is_symbolic
from optkit.ops.arguments import static_int
from optkit.ops.core import (
    INDEX_TYPES,
    Array,
    ArrayModule,
    Op,
    as_tensor,
    composite,
    constant_value,
    op,
)
from optkit.ops.random import Stream, get_seed
from optkit.shapes import Shape

__all__ = [
    "AccidentalHits",
    "Candidates",
    "compute_accidental_hits",
    "fixed_unigram_candidate_sampler",
    "log_uniform_candidate_sampler",
    "multinomial",
    "uniform_candidate_sampler",
]

# -- from logits ----------------------------------------------------------------------------------


def _drawn_shape(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Shape:
    logits, count = inputs
    if logits.shape.ndims not in (None, 2):
        raise ValueError(f"logits: expected two axes, got {logits!r}")
    known = constant_value(count)
    rows = None if logits.sizes is None else logits.sizes[0]
    return (rows, None if known is None else int(known))


@op(
    "Multinomial",
    types=FLOATS,
    accepts={"num_samples": INDEX_TYPES},
    result=lambda _, attrs: attrs["output_dtype"],
    shape=_drawn_shape,
    host=("logits", "num_samples"),
    differentiable=False,
    random=True,
)
def _multinomial(
    xp: ArrayModule,
    logits: Array,
    num_samples: Array,
    *,
    output_dtype: DType,
    seed: tuple[int | None, int | None],
    stream: Stream,
) -> Array:
    rows, classes = logits.shape
    count = int(num_samples)
    if count < 0 or (not classes and rows):
        raise InvalidArgumentError(
            f"logits, num_samples: expected at least one class and a count >= 0, got shape "
            f"{logits.shape} and {count}"
        )
    wide = logits.astype(np.float64)
    sums = np.cumsum(np.exp(wide - wide.max(axis=1, keepdims=True, initial=-np.inf)), axis=1)
    # One search for all rows: row i's sums lie in (i, i + 1].
    sums = sums / sums[:, -1:] + np.arange(rows)[:, None]
    points = stream.uniform((rows, count)) + np.arange(rows)[:, None]
    places = np.searchsorted(sums.reshape(-1), points.reshape(-1), side="right")
    drawn = places.reshape(rows, count) - np.arange(rows)[:, None] * classes
    return xp.asarray(np.clip(drawn, 0, classes - 1).astype(output_dtype.dtype))


@composite
def multinomial(
    logits: Any,
    num_samples: Any,
    seed: Any = None,
    name: str | None = None,
    output_dtype: Any = None,
) -> Tensor:
    """Class numbers drawn with probability softmax(logits); shape (rows, num_samples).

    Args:
        logits: floats of shape (rows, classes).
        num_samples: how many to draw for each row.
        seed: the operation's seed.
        name: the node's name.
        output_dtype: int32 or int64; int64 if None.
    """
    wanted = int64 if output_dtype is None else as_dtype(output_dtype)
    if wanted not in INDEX_TYPES:
        raise TypeError(f"output_dtype: expected int32 or int64, got {wanted.name}")
    return _multinomial(
        logits,
        as_tensor(num_samples, name="num_samples"),
        output_dtype=wanted,
        seed=get_seed(seed),
        name=name or "multinomial",
    )


# -- candidates -----------------------------------------------------------------------------------


class Candidates(NamedTuple):
    """What a sampler gives: classes, and the expected counts of the true and of those classes."""

    sampled_candidates: Tensor
    true_expected_count: Tensor
    sampled_expected_count: Tensor


def _candidate_types(
    inputs: Sequence[Tensor], attrs: Mapping[str, Any]
) -> list[tuple[DType, Shape]]:
    (true_classes,) = inputs
    if not true_classes.shape.is_compatible_with([None, attrs["num_true"]]):
        raise ValueError(
            f"true_classes: expected shape (batch, num_true = {attrs['num_true']}), got "
            f"{true_classes!r}"
        )
    rows = None if true_classes.sizes is None else true_classes.sizes[0]
    count = (attrs["num_sampled"],)
    return [(int64, count), (float32, (rows, attrs["num_true"])), (float32, count)]


_Draw = Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]


def _candidates(
    xp: ArrayModule,
    true_classes: Array,
    draw: _Draw,
    probability: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]],
    count: int,
    unique: bool,
    stream: Stream,
) -> tuple[Array, Array, Array]:
    """Draws from the quantile function `draw`, and what is expected of them."""
    drawn = draw(stream.uniform((count,)))
    tries = count
    if unique:
        more = count
        while True:
            _, first = np.unique(drawn, return_index=True)
            if first.size >= count:
                break
            drawn = np.concatenate([drawn, draw(stream.uniform((more,)))])
            more *= 2
        first = np.sort(first)[:count]
        drawn, tries = drawn[first], int(first[-1]) + 1 if count else 0

    def expected(classes: np.ndarray[Any, Any]) -> Array:
        p = probability(classes.astype(np.float64))
        counts = p * count if tries == count else -np.expm1(tries * np.log1p(-p))
        return xp.asarray(counts.astype(np.float32))

    return xp.asarray(drawn.astype(np.int64)), expected(true_classes), expected(drawn)


@op(
    "UniformCandidateSampler",
    types={int64},
    infer=_candidate_types,
    host=("true_classes",),
    differentiable=False,
    random=True,
)
def _uniform_candidates(
    xp: ArrayModule,
    true_classes: Array,
    *,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: tuple[int | None, int | None],
    stream: Stream,
) -> tuple[Array, Array, Array]:
    return _candidates(
        xp,
        true_classes,
        lambda u: np.floor(u * range_max).astype(np.int64),
        lambda classes: np.full(classes.shape, 1 / range_max),
        num_sampled,
        unique,
        stream,
    )


@op(
    "LogUniformCandidateSampler",
    types={int64},
    infer=_candidate_types,
    host=("true_classes",),
    differentiable=False,
    random=True,
)
def _log_uniform_candidates(
    xp: ArrayModule,
    true_classes: Array,
    *,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: tuple[int | None, int | None],
    stream: Stream,
) -> tuple[Array, Array, Array]:
    span = np.log(range_max + 1)
    return _candidates(
        xp,
        true_classes,
        # Rounding may reach the limit, which is excluded.
        lambda u: np.minimum(np.exp(u * span).astype(np.int64) - 1, range_max - 1),
        lambda classes: np.log1p(1 / (classes + 1)) / span,
        num_sampled,
        unique,
        stream,
    )


@op(
    "FixedUnigramCandidateSampler",
    types={int64},
    infer=_candidate_types,
    host=("true_classes",),
    differentiable=False,
    random=True,
)
def _unigram_candidates(
    xp: ArrayModule,
    true_classes: Array,
    *,
    num_true: int,
    num_sampled: int,
    unique: bool,
    weights: np.ndarray[Any, Any],
    seed: tuple[int | None, int | None],
    stream: Stream,
) -> tuple[Array, Array, Array]:
    shares = weights / weights.sum()
    sums = np.cumsum(shares)
    last = int(np.flatnonzero(shares)[-1])

    def probability(classes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        numbers = classes.astype(np.int64)
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < shares.size:
            raise InvalidArgumentError(
                f"true_classes: expected numbers in [0, {shares.size}), got {numbers.tolist()}"
            )
        found: np.ndarray[Any, Any] = shares[numbers]
        return found

    return _candidates(
        xp,
        true_classes,
        lambda u: np.minimum(np.searchsorted(sums, u, side="right"), last),
        probability,
        num_sampled,
        unique,
        stream,
    )


def _sampled(
    kind: Op,
    true_classes: Any,
    num_true: Any,
    num_sampled: Any,
    unique: Any,
    possible: int,
    seed: Any,
    name: str,
    **attrs: Any,
) -> Candidates:
    truths = static_int(num_true, "num_true")
    count = static_int(num_sampled, "num_sampled")
    if truths < 1 or count < 1:
        raise ValueError(f"num_true, num_sampled: expected at least 1, got {truths} and {count}")
    if unique and count > possible:
        raise ValueError(
            f"num_sampled: {count} different classes cannot be drawn from {possible}; pass "
            "unique=False, or draw fewer"
        )
    node = kind.node(
        _classes(true_classes, "true_classes"),
        num_true=truths,
        num_sampled=count,
        unique=bool(unique),
        seed=get_seed(seed),
        name=name,
        **attrs,
    )
    return Candidates(*node.outputs)


def _classes(value: Any, argument: str) -> Tensor:
    """Class numbers, as int64 where they are no tensor yet."""
    return as_tensor(value) if is_symbolic(value) else as_tensor(value, int64, argument)


def _positive(range_max: Any) -> int:
    classes = static_int(range_max, "range_max")
    if classes < 1:
        raise ValueError(f"range_max: expected at least 1, got {classes}")
    return classes


@composite
def uniform_candidate_sampler(
    true_classes: Any,
    num_true: Any,
    num_sampled: Any,
    unique: Any,
    range_max: Any,
    seed: Any = None,
    name: str | None = None,
) -> Candidates:
    """Classes from [0, range_max), each with the same probability.

    Args:
        true_classes: int64 of shape (batch, num_true).
        num_true: how many true classes an example has.
        num_sampled: how many classes to draw, for the whole batch.
        unique: whether they are all different.
        range_max: the number of classes.
        seed: the operation's seed.
        name: the node's name.

    Raises:
        ValueError: more different classes are wanted than there are.
    """
    classes = _positive(range_max)
    return _sampled(
        _uniform_candidates,
        true_classes,
        num_true,
        num_sampled,
        unique,
        classes,
        seed,
        name or "UniformCandidateSampler",
        range_max=classes,
    )


@composite
def log_uniform_candidate_sampler(
    true_classes: Any,
    num_true: Any,
    num_sampled: Any,
    unique: Any,
    range_max: Any,
    seed: Any = None,
    name: str | None = None,
) -> Candidates:
    """Classes from [0, range_max) with P(k) = log((k + 2)/(k + 1))/log(range_max + 1).

    About Zipf's law, for classes numbered from the most frequent down. Arguments as of
    `uniform_candidate_sampler`.
    """
    classes = _positive(range_max)
    return _sampled(
        _log_uniform_candidates,
        true_classes,
        num_true,
        num_sampled,
        unique,
        classes,
        seed,
        name or "LogUniformCandidateSampler",
        range_max=classes,
    )


@composite
def fixed_unigram_candidate_sampler(
    true_classes: Any,
    num_true: Any,
    num_sampled: Any,
    unique: Any,
    range_max: Any,
    vocab_file: str = "",
    distortion: float = 1.0,
    num_reserved_ids: int = 0,
    num_shards: int = 1,
    shard: int = 0,
    unigrams: Any = (),
    seed: Any = None,
    name: str | None = None,
) -> Candidates:
    """Classes with probability proportional to unigrams[k]**distortion.

    Args:
        true_classes: as of `uniform_candidate_sampler`, as all that is not told here.
        num_true: see there.
        num_sampled: see there.
        unique: see there.
        range_max: the number of classes: the reserved ones and those of `unigrams`.
        vocab_file: a file whose lines end in ",<count>", in place of `unigrams`.
        distortion: 1 for the counts as they are, 0 for uniform.
        num_reserved_ids: how many classes before those of `unigrams` are never drawn.
        num_shards: only 1 works.
        shard: only 0 works.
        unigrams: a count or probability for each class.
        seed: see there.
        name: the node's name.

    Raises:
        ValueError: both or neither of `vocab_file` and `unigrams`, or another number of them.
    """
    if (num_shards, shard) != (1, 0):
        raise ValueError(f"num_shards, shard: optkit has one, got {num_shards} and {shard}")
    if bool(vocab_file) == bool(len(unigrams)):
        raise ValueError("vocab_file, unigrams: expected exactly one of them")
    if vocab_file:
        lines = Path(vocab_file).read_text(encoding="utf-8").splitlines()
        unigrams = [float(line.rpartition(",")[2]) for line in lines if line.strip()]
    reserved = static_int(num_reserved_ids, "num_reserved_ids")
    counts = np.asarray(unigrams, np.float64)
    classes = _positive(range_max)
    if counts.ndim != 1 or counts.size + reserved != classes:
        raise ValueError(
            f"range_max: expected {reserved} reserved classes and {counts.size} of unigrams, got "
            f"{classes}"
        )
    if bool((counts < 0).any()) or not counts.any():
        raise ValueError("unigrams: expected numbers >= 0, not all 0")
    weights = np.concatenate([np.zeros(reserved), counts ** float(distortion)])
    return _sampled(
        _unigram_candidates,
        true_classes,
        num_true,
        num_sampled,
        unique,
        int(np.count_nonzero(weights)),
        seed,
        name or "FixedUnigramCandidateSampler",
        weights=weights,
    )


# -- accidental hits ------------------------------------------------------------------------------


class AccidentalHits(NamedTuple):
    """Where a drawn class is a true one: rows, places among the drawn, and weights of -max."""

    indices: Tensor
    ids: Tensor
    weights: Tensor


def _hit_types(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> list[tuple[DType, Shape]]:
    true_classes, candidates = inputs
    if not true_classes.shape.is_compatible_with([None, attrs["num_true"]]):
        raise ValueError(
            f"true_classes: expected shape (batch, num_true = {attrs['num_true']}), got "
            f"{true_classes!r}"
        )
    if candidates.shape.ndims not in (None, 1):
        raise ValueError(f"sampled_candidates: expected a vector, got {candidates!r}")
    return [(int32, (None,)), (int64, (None,)), (float32, (None,))]


@op("ComputeAccidentalHits", types={int64}, infer=_hit_types, differentiable=False)
def _hits(
    xp: ArrayModule, true_classes: Array, sampled_candidates: Array, *, num_true: int
) -> tuple[Array, Array, Array]:
    rows, _, places = xp.nonzero(true_classes[:, :, None] == sampled_candidates)
    weights = xp.full(rows.shape, np.finfo(np.float32).min, np.float32)
    return rows.astype(np.int32), places.astype(np.int64), weights


@composite
def compute_accidental_hits(
    true_classes: Any,
    sampled_candidates: Any,
    num_true: Any,
    seed: Any = None,
    name: str | None = None,
) -> AccidentalHits:
    """Where drawn classes are true ones, to take them out of a loss.

    Args:
        true_classes: int64 of shape (batch, num_true).
        sampled_candidates: int64, a vector.
        num_true: how many true classes an example has.
        seed: accepted as in TF; nothing is drawn.
        name: the node's name.

    Returns:
        Vectors of one length: the example (int32), the place in `sampled_candidates` (int64), and
        the most negative float32, to be added to the logit there.
    """
    node = _hits.node(
        _classes(true_classes, "true_classes"),
        _classes(sampled_candidates, "sampled_candidates"),
        num_true=static_int(num_true, "num_true"),
        name=name or "ComputeAccidentalHits",
    )
    return AccidentalHits(*node.outputs)
