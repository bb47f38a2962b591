"""Rows of the op table: segments, the largest elements, contractions, diagonals, masks, samples."""

from collections.abc import Callable
from typing import Any

import numpy as np

from optkit.ops import contractions, diagonals, masking, ranking, segments
from optkit.ops.core import REGISTRY
from tests.ops.rows import Case, Elsewhere, Table, distinct, given, inputs, normal

NUMBERS = [0, 0, 2, 2, 2]


def whole(values: Any, dtype: Any = np.int32) -> Callable[..., np.ndarray]:
    """A builder of numbers that keep their dtype."""
    return given(values, dtype)


# -- segments -------------------------------------------------------------------------------------


def by_segment(reduce: Callable[..., np.ndarray], empty: float) -> Callable[..., np.ndarray]:
    """The rows of each segment reduced, one segment after the other."""

    def reference(x: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        rows = [x[numbers == i] for i in range(int(numbers.max()) + 1)]
        return np.stack(
            [reduce(part, axis=0) if len(part) else np.full(x.shape[1:], empty) for part in rows]
        )

    return reference


def segmented(function: Any, reduce: Any, empty: float = 0.0, **settings: Any) -> list[Case]:
    reference = by_segment(reduce, empty)
    settings = {"shape_known": False} | settings
    return [
        Case("a gap", inputs(distinct(5, 2), whole(NUMBERS)), function, reference, **settings),
        Case(
            "int64 numbers of a vector",
            inputs(distinct(3), whole([0, 1, 1], np.int64)),
            function,
            reference,
            **settings,
        ),
    ]


SEGMENTS: Table = {
    "SegmentSum": segmented(segments.segment_sum, np.sum),
    "SegmentMean": segmented(segments.segment_mean, np.mean),
    "SegmentMax": segmented(segments.segment_max, np.max),
    "SegmentMin": segmented(segments.segment_min, np.min),
    "SegmentProd": segmented(
        segments.segment_prod, np.prod, 1.0, tolerance=4, gradient_tolerance=4
    ),
}

# -- the largest ----------------------------------------------------------------------------------


def largest(x: np.ndarray, k: int) -> np.ndarray:
    return -np.sort(-x, axis=-1)[..., :k]


def put(y: np.ndarray, places: np.ndarray, like: np.ndarray) -> np.ndarray:
    result = np.zeros(like.shape)
    np.put_along_axis(result, places, y, -1)
    return result


PLACES = [[2, 0], [1, 3]]

RANKING: Table = {
    "TopKV2": [
        Case(
            "of a matrix",
            inputs(distinct(2, 5)),
            lambda x, k: ranking.top_k(x, k).values,
            largest,
            {"k": 3},
        ),
        Case(
            "of a vector, all",
            inputs(distinct(4)),
            lambda x, k: ranking.top_k(x, k).values,
            largest,
            {"k": 4},
        ),
    ],
    "SpreadLast": [
        Case(
            "rows",
            inputs(normal(2, 2), whole(PLACES), normal(2, 4)),
            REGISTRY["SpreadLast"],
            put,
            wrt=(0,),
        )
    ],
    "PickLast": [
        Case(
            "rows",
            inputs(normal(2, 4), whole(PLACES)),
            REGISTRY["PickLast"],
            lambda x, places: np.take_along_axis(x, places, -1),
        )
    ],
    "InTopKV2": [
        Case(
            "ties count as in",
            inputs(given([[0.5, 0.25, 0.25], [1, 3, 2], [1, 2, 3]]), whole([2, 2, 0])),
            lambda x, targets: ranking.in_top_k(x, targets, 2),
            lambda x, targets: np.array([True, True, False]),
            dtypes=("float32",),
            result="bool",
            wrt=(),
        )
    ],
}

# -- contractions ---------------------------------------------------------------------------------


def einsum(*arrays: Any, equation: str) -> Any:
    return contractions.einsum(equation, *arrays)


def numpys(*arrays: np.ndarray, equation: str) -> np.ndarray:
    return np.einsum(equation, *arrays)


def contracted(name: str, equation: str, *shapes: tuple[int, ...], **settings: Any) -> Case:
    builders = [normal(*shape) for shape in shapes]
    settings = {"tolerance": 2, "gradient_tolerance": 4} | settings
    return Case(name, inputs(*builders), einsum, numpys, {"equation": equation}, **settings)


def tensordot(a: Any, b: Any, axes: Any) -> Any:
    return contractions.tensordot(a, b, axes)


def doubled(name: str, axes: Any, a: tuple[int, ...], b: tuple[int, ...]) -> Case:
    return Case(
        f"tensordot, {name}",
        inputs(normal(*a), normal(*b)),
        tensordot,
        lambda x, y, axes: np.tensordot(x, y, axes),
        {"axes": axes},
        tolerance=2,
        gradient_tolerance=4,
        unknown_rank=False,
    )


CONTRACTIONS: Table = {
    "Einsum": [
        contracted("a product of matrices", "ij,jk->ik", (2, 3), (3, 4)),
        contracted("a batch", "bij,bkj->bik", (2, 2, 3), (2, 4, 3)),
        contracted("an outer product", "i,j->ij", (2,), (3,)),
        contracted("sums of one input", "ijk->j", (2, 3, 2)),
        contracted("a transposition", "ij->ji", (2, 3)),
        contracted("an axis summed out of one", "ij,k->k", (2, 3), (2,)),
        contracted("three inputs", "ij,jk,kl->il", (2, 3), (3, 2), (2, 2)),
        contracted("no arrow", "ij,jk", (2, 3), (3, 2)),
        contracted("dots", "...ij,jk->...ik", (2, 2, 3), (3, 2), unknown_rank=False),
        contracted("dots that broadcast", "...i,...i->...", (3, 1, 2), (4, 2), unknown_rank=False),
        doubled("a count", 1, (2, 3), (3, 4)),
        doubled("lists", [[0, 2], [1, 0]], (2, 3, 4), (4, 2)),
        doubled("an outer product", 0, (2,), (3,)),
    ],
}

# -- diagonals ------------------------------------------------------------------------------------


def spread(dy: np.ndarray, like: np.ndarray) -> np.ndarray:
    result = np.zeros(like.shape)
    for i in range(dy.shape[-1]):
        result[..., i, i] = dy[..., i]
    return result


DIAGONALS: Table = {
    "MatrixDiag": [
        Case(
            "a batch",
            inputs(normal(2, 3)),
            diagonals.matrix_diag,
            lambda x: np.stack([np.diag(row) for row in x]),
        )
    ],
    "MatrixDiagPart": [
        Case(
            "wide matrices",
            inputs(normal(2, 3, 4)),
            diagonals.matrix_diag_part,
            lambda x: np.stack([np.diag(matrix) for matrix in x]),
        ),
        Case("trace", inputs(normal(3, 3)), diagonals.trace, np.trace),
    ],
    "MatrixDiagPartGrad": [
        Case(
            "tall matrices",
            inputs(normal(2, 3), normal(2, 4, 3)),
            REGISTRY["MatrixDiagPartGrad"],
            spread,
            wrt=(0,),
        )
    ],
    "Diag": [
        Case("of a vector", inputs(normal(3)), diagonals.diag, np.diag),
        Case(
            "of a matrix",
            inputs(normal(2, 3)),
            diagonals.diag,
            lambda x: np.diag(x.ravel()).reshape(2, 3, 2, 3),
        ),
    ],
    "DiagPart": [
        Case("of a matrix", inputs(normal(3, 3)), diagonals.diag_part, np.diag),
        Case(
            "of four axes",
            inputs(normal(2, 3, 2, 3)),
            diagonals.diag_part,
            lambda x: np.diag(x.reshape(6, 6)).reshape(2, 3),
        ),
    ],
}

# -- masks ----------------------------------------------------------------------------------------


def turned(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Rows along axis 1, steps along axis 0."""
    result = x.copy()
    for row, n in enumerate(lengths):
        result[:n, row] = x[:n, row][::-1]
    return result


MASKS: Table = {
    "ReverseSequence": [
        Case(
            "time first",
            inputs(normal(4, 3, 2), whole([0, 3, 4])),
            lambda x, n: masking.reverse_sequence(x, n, seq_axis=0, batch_axis=1),
            turned,
        )
    ],
    "CheckedMask": [
        Case(
            "fits",
            inputs(whole([True, False], np.bool_), whole([3, 2]), whole([2])),
            lambda *xs: REGISTRY["CheckedMask"](*xs, axis=1),
            lambda mask, *_: mask,
            dtypes=("float32",),
            result="bool",
            wrt=(),
        )
    ],
}

# -- without a formula ----------------------------------------------------------------------------

SAMPLES = "tests/ops/test_sampling.py"
CHECKS = "tests/ops/test_checks.py"

OTHERS: Table = {
    "Multinomial": Elsewhere(SAMPLES, "random", "multinomial"),
    "UniformCandidateSampler": Elsewhere(SAMPLES, "random", "uniform_candidate_sampler"),
    "LogUniformCandidateSampler": Elsewhere(SAMPLES, "random", "log_uniform_candidate_sampler"),
    "FixedUnigramCandidateSampler": Elsewhere(SAMPLES, "random", "fixed_unigram_candidate_sampler"),
    "ComputeAccidentalHits": Elsewhere(SAMPLES, "three vectors", "compute_accidental_hits"),
    "Print": Elsewhere(CHECKS, "it prints"),
    "Assert": Elsewhere(CHECKS, "it raises"),
    "PyFunc": Elsewhere("tests/ops/test_host.py", "the user's function", "py_func"),
    "PyFuncStateless": Elsewhere("tests/ops/test_host.py", "the user's function", "stateful=False"),
}

TABLE: Table = {
    **SEGMENTS,
    **RANKING,
    **CONTRACTIONS,
    **DIAGONALS,
    **MASKS,
    **OTHERS,
}
