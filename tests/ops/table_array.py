"""Rows of the op table: shapes, joining, indexing, padding, sequences, sparse rows, clipping."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from optkit.dtypes import int64
from optkit.graph import IndexedSlices
from optkit.ops import array, broadcasting, clip, indexing, rearranging, sequences, sparse
from optkit.ops.core import REGISTRY
from tests.ops.rows import FLOATS, Case, Elsewhere, Table, distinct, given, inputs, normal

ANY = (*FLOATS, "int32", "int64", "uint8")
ROWS = [3, 1, 3, 0]


def whole(values: Any, dtype: Any = np.int32) -> Callable[..., np.ndarray]:
    """A builder of row numbers, sizes or axes, which keep their dtype."""
    return given(values, dtype)


def truth(*shape: int) -> Callable[..., np.ndarray]:
    """A builder of truth values, of both kinds."""
    return lambda rng: np.arange(int(np.prod(shape))).reshape(shape) % 3 > 0


def moved(case: Case) -> list[Case]:
    """A case for floats, and for integers, which have no gradient."""
    name = f"{case.name}, integers"
    return [case, replace(case, name=name, dtypes=("int32", "int64", "uint8"), wrt=())]


def built(type_name: str, **attrs: Any) -> Callable[..., Any]:
    """The op itself, where no public function stands for it alone."""
    return lambda *xs: REGISTRY[type_name](*xs, **attrs)


def zeros_with(shape: Any, key: Any, values: np.ndarray) -> np.ndarray:
    """Zeros of a shape with `values` added at a key, one after the other."""
    result = np.zeros(shape, values.dtype)
    np.add.at(result, key, values)
    return result


# -- shapes ---------------------------------------------------------------------------------------

SHAPES: Table = {
    "Identity": moved(Case("plain", inputs(normal(2, 3)), array.identity, lambda x: x)),
    "PlaceholderWithDefault": [
        Case(
            "not fed",
            inputs(normal(2, 3)),
            lambda x: array.placeholder_with_default(x, [None, 3]),
            lambda x: x,
            shape_known=False,
        )
    ],
    "StopGradient": [Case("plain", inputs(normal(2, 3)), array.stop_gradient, lambda x: x, wrt=())],
    "Shape": [
        Case(
            "of unknown",
            inputs(normal(2, 3)),
            built("Shape", out_type=int64),
            lambda x: np.array(x.shape),
            result="int64",
            wrt=(),
        )
    ],
    "Size": [
        Case(
            "of unknown",
            inputs(normal(2, 3)),
            built("Size", out_type=int64),
            lambda x: np.array(x.size),
            result="int64",
            wrt=(),
        )
    ],
    "Rank": [
        Case(
            "of unknown",
            inputs(normal(2, 3)),
            built("Rank"),
            lambda x: np.array(x.ndim),
            result="int32",
            wrt=(),
        )
    ],
    "Reshape": [
        *moved(
            Case(
                "open size",
                inputs(normal(2, 6)),
                lambda x: array.reshape(x, [3, -1]),
                lambda x: x.reshape(3, -1),
            )
        ),
        Case("vector", inputs(normal(2, 3)), lambda x: array.reshape(x, -1), np.ravel),
        Case("scalar", inputs(normal(1, 1)), lambda x: array.reshape(x, []), lambda x: x[0, 0]),
        Case(
            "computed",
            inputs(normal(2, 6), whole([4, 3])),
            array.reshape,
            lambda x, shape: x.reshape(shape),
            shape_known=False,
        ),
        Case(
            "in part computed",
            inputs(normal(2, 6)),
            lambda x: array.reshape(x, [array.shape(x)[0], 2, 3]),
            lambda x: x.reshape(2, 2, 3),
        ),
    ],
    "Transpose": [
        *moved(Case("reversed", inputs(normal(2, 3, 4)), array.transpose, np.transpose)),
        Case(
            "in an order",
            inputs(normal(2, 3, 4)),
            lambda x: array.transpose(x, [1, -1, 0]),
            lambda x: x.transpose(1, 2, 0),
        ),
    ],
    "ExpandDims": [
        *moved(
            Case(
                "inside",
                inputs(normal(2, 3)),
                lambda x: array.expand_dims(x, 1),
                lambda x: x[:, None],
            )
        ),
        Case(
            "at the end",
            inputs(normal(2, 3)),
            lambda x: array.expand_dims(x, -1),
            lambda x: x[..., None],
        ),
    ],
    "Squeeze": [
        *moved(Case("all", inputs(normal(1, 3, 1)), array.squeeze, np.squeeze)),
        Case(
            "one",
            inputs(normal(1, 3, 1)),
            lambda x: array.squeeze(x, [-1]),
            lambda x: x[..., 0],
        ),
    ],
    "BroadcastTo": moved(
        Case(
            "new axis and old",
            inputs(normal(3, 1)),
            lambda x: array.broadcast_to(x, [2, 3, 4]),
            lambda x: np.broadcast_to(x, (2, 3, 4)),
        )
    ),
    "SumToLike": [
        Case(
            "new axis and old",
            inputs(normal(2, 3, 4), normal(3, 1)),
            broadcasting.sum_to_like,
            lambda x, like: x.sum((0, 2))[:, None],
            wrt=(0,),
        )
    ],
    "BroadcastLike": [
        Case(
            "new axis and old",
            inputs(normal(3, 1), normal(2, 3, 4)),
            broadcasting.broadcast_like,
            lambda x, like: np.broadcast_to(x, like.shape),
            wrt=(0,),
        )
    ],
    "Fill": moved(
        Case(
            "scalar",
            inputs(normal()),
            lambda x: array.fill([2, 3], x),
            lambda x: np.full((2, 3), x),
        )
    ),
    "ZerosLike": [
        Case(
            "of unknown",
            inputs(normal(2, 3)),
            lambda x: array.zeros_like(x, optimize=False),
            np.zeros_like,
            dtypes=(*ANY, "bool"),
            wrt=(),
        )
    ],
    "OnesLike": [
        Case(
            "another dtype",
            inputs(normal(2, 3)),
            lambda x: array.ones_like(x, "int32", optimize=False),
            np.ones_like,
            dtypes=(*ANY, "bool"),
            result="int32",
            wrt=(),
        )
    ],
}

# -- joining --------------------------------------------------------------------------------------

JOINING: Table = {
    "ConcatV2": [
        *moved(
            Case(
                "columns",
                inputs(normal(2, 3), normal(2, 1), normal(2, 2)),
                lambda *xs: array.concat(xs, 1),
                lambda *xs: np.concatenate(xs, 1),
            )
        ),
        Case(
            "from the end",
            inputs(normal(2, 3), normal(1, 3)),
            lambda *xs: array.concat(list(xs), axis=-2),
            lambda *xs: np.concatenate(xs, -2),
        ),
    ],
    "SplitLike": moved(
        Case(
            "columns",
            inputs(normal(2, 3), normal(2, 1), normal(2, 2)),
            lambda *xs: REGISTRY["SplitLike"].node(*xs, axis=1).outputs,
            lambda x, *_: np.split(x, [1], 1),
            wrt=(0,),
        )
    ),
    "Split": [
        *moved(
            Case(
                "columns",
                inputs(normal(2, 6)),
                lambda x: array.split(x, 3, 1),
                lambda x: np.split(x, 3, 1),
            )
        ),
        Case("one", inputs(normal(2, 6)), lambda x: array.split(x, 1), lambda x: x),
    ],
    "SplitV": [
        Case(
            "one open",
            inputs(normal(5, 2)),
            lambda x: array.split(x, [1, -1, 2]),
            lambda x: np.split(x, [1, 3]),
        ),
        Case(
            "computed",
            inputs(normal(5, 2), whole([2, 3])),
            lambda x, sizes: array.split(x, sizes, num=2),
            lambda x, sizes: np.split(x, [2]),
            shape_known=False,
        ),
        Case("one", inputs(normal(2, 6)), lambda x: array.split(x, [2]), lambda x: x),
    ],
    "Pack": [
        *moved(
            Case(
                "rows",
                inputs(normal(2, 3), normal(2, 3)),
                lambda *xs: array.stack(xs),
                lambda *xs: np.stack(xs),
            )
        ),
        Case(
            "last axis",
            inputs(normal(2, 3), normal(2, 3)),
            lambda *xs: array.stack(list(xs), -1),
            lambda *xs: np.stack(xs, -1),
        ),
        Case(
            "scalars",
            inputs(normal(), normal()),
            lambda *xs: array.stack(xs),
            lambda *xs: np.stack(xs),
        ),
    ],
    "Unpack": [
        *moved(
            Case(
                "rows",
                inputs(normal(3, 2)),
                lambda x: array.unstack(x, 3),
                lambda x: [x[0], x[1], x[2]],
            )
        ),
        Case(
            "last axis",
            inputs(normal(2, 3)),
            lambda x: array.unstack(x, 3, axis=-1),
            lambda x: [x[:, 0], x[:, 1], x[:, 2]],
        ),
        Case("scalar", inputs(normal(1)), lambda x: array.unstack(x, 1), lambda x: x[0]),
    ],
}

# -- indexing -------------------------------------------------------------------------------------


def sliced(name: str, key: Callable[..., Any], *bounds: int, **more: Any) -> Case:
    """x[key(bounds)] of a tensor of shape (4, 3, 2)."""
    builders = [whole(bound) for bound in bounds]
    return Case(
        name,
        inputs(normal(4, 3, 2), *builders),
        lambda x, *ends: x[key(*ends)],
        lambda x, *ends: x[key(*ends)],
        **more,
    )


INDEXING: Table = {
    "StridedSlice": [
        *moved(sliced("number", lambda: 1)),
        sliced("all numbers", lambda: (-1, 0, 1)),
        sliced("slices", lambda: (slice(1, 3), slice(None, None, 2))),
        sliced("backwards", lambda: (slice(None, None, -1), slice(2, 0, -1))),
        sliced("beyond the end", lambda: slice(2, 99)),
        sliced("empty", lambda: slice(3, 1)),
        sliced("dots", lambda: (..., 0)),
        sliced("new axes", lambda: (None, 1, ..., None)),
        sliced("run-time number", lambda i: i, 2),
        sliced("run-time slice", lambda i, j: (slice(i, j), 1), 1, 3, shape_known=False),
        sliced("run-time step", lambda i: slice(None, None, i), -2, shape_known=False),
    ],
    "StridedSliceGrad": [
        Case(
            "backwards",
            inputs(normal(2, 2)),
            lambda dy: REGISTRY["StridedSliceGrad"](
                dy, [4, 2], np.zeros(0, np.int64), key=(slice(None, None, -2),)
            ),
            lambda dy: zeros_with((4, 2), slice(None, None, -2), dy),
        )
    ],
    "Slice": [
        *moved(
            Case(
                "block",
                inputs(normal(4, 3)),
                lambda x: indexing.slice(x, [1, 0], [2, -1]),
                lambda x: x[1:3],
            )
        ),
        Case(
            "computed",
            inputs(normal(4, 3), whole([1, 2]), whole([3, 1])),
            indexing.slice,
            lambda x, begin, size: x[1:4, 2:],
            shape_known=False,
        ),
    ],
    "SliceGrad": [
        Case(
            "block",
            inputs(normal(2, 1)),
            lambda dy: REGISTRY["SliceGrad"](dy, [1, 2], [4, 3]),
            lambda dy: zeros_with((4, 3), np.s_[1:3, 2:3], dy),
        )
    ],
    "GatherV2": [
        # "+ 0" makes the IndexedSlices of the gradient a tensor.
        *moved(
            Case(
                "rows",
                inputs(normal(4, 2), whole(ROWS)),
                lambda x, rows: indexing.gather(x + 0, rows),
                lambda x, rows: x[rows],
            )
        ),
        Case(
            "rows by a matrix",
            inputs(normal(4, 2, 2), whole([[3, 0], [3, 3]], np.int64)),
            lambda x, rows: indexing.gather(x + 0, rows),
            lambda x, rows: x[rows],
        ),
        Case(
            "elements",
            inputs(normal(4), whole(2)),
            lambda x, rows: indexing.gather(x + 0, rows),
            lambda x, rows: x[rows],
        ),
        Case(
            "columns",
            inputs(normal(2, 4), whole(ROWS)),
            lambda x, rows: indexing.gather(x, rows, axis=-1),
            lambda x, rows: x[:, rows],
        ),
        Case(
            "inner axis by a matrix",
            inputs(normal(2, 3, 2), whole([[2, 0], [2, 2]])),
            lambda x, rows: indexing.gather(x, rows, axis=1),
            lambda x, rows: x[:, rows],
        ),
    ],
    "GatherGrad": [
        Case(
            "columns",
            inputs(normal(2, 4), whole(ROWS)),
            lambda dy, rows: REGISTRY["GatherGrad"](dy, rows, [2, 5], axis=1),
            lambda dy, rows: zeros_with((2, 5), np.s_[:, ROWS], dy),
        )
    ],
    "GatherNd": [
        *moved(
            Case(
                "elements",
                inputs(normal(3, 2), whole([[2, 1], [0, 0], [2, 1]])),
                indexing.gather_nd,
                lambda x, at: x[tuple(at.T)],
            )
        ),
        Case(
            "rows",
            inputs(normal(3, 2), whole([[[2], [2]]])),
            indexing.gather_nd,
            lambda x, at: x[at[..., 0]],
        ),
        Case(
            "everything",
            inputs(normal(3, 2), whole(np.zeros((2, 0)))),
            indexing.gather_nd,
            lambda x, at: np.stack([x, x]),
        ),
    ],
    "ScatterNd": [
        Case(
            "elements",
            inputs(normal(3), whole([[2, 1], [0, 0], [2, 1]])),
            lambda x, at: indexing.scatter_nd(at, x, [3, 2]),
            lambda x, at: zeros_with((3, 2), tuple(at.T), x),
            wrt=(0,),
        ),
        Case(
            "rows",
            inputs(normal(2, 2), whole([[1], [1]])),
            lambda x, at: indexing.scatter_nd(at, x, [3, 2]),
            lambda x, at: zeros_with((3, 2), (at[:, 0],), x),
            wrt=(0,),
        ),
    ],
    "Where": [
        Case(
            "matrix",
            inputs(truth(2, 3)),
            indexing.where,
            np.argwhere,
            dtypes=("bool",),
            result="int64",
            wrt=(),
            shape_known=False,
        )
    ],
    "Select": [
        Case(
            "rows",
            inputs(truth(3), normal(3, 2), normal(3, 2)),
            built("Select"),
            lambda chosen, x, y: np.where(chosen[:, None], x, y),
            shape_known=False,
        ),
        Case(
            "elements",
            inputs(truth(3, 2), normal(3, 2), normal(3, 2)),
            built("Select"),
            np.where,
            shape_known=False,
        ),
        Case(
            "broadcast",
            inputs(truth(2), normal(2), normal()),
            built("Select"),
            np.where,
            shape_known=False,
        ),
    ],
}

# -- padding, repeating, reversing ----------------------------------------------------------------

MARGINS = [[2, 1], [0, 2]]

REARRANGING: Table = {
    "Pad": [
        *moved(
            Case(
                "zeros",
                inputs(normal(2, 3)),
                lambda x: rearranging.pad(x, MARGINS),
                lambda x: np.pad(x, MARGINS),
            )
        ),
        Case(
            "a number, computed",
            inputs(normal(2, 3), whole(MARGINS)),
            lambda x, margins: rearranging.pad(x, margins, constant_values=-1.5),
            lambda x, margins: np.pad(x, MARGINS, constant_values=-1.5),
            shape_known=False,
            unknown_rank=False,
        ),
    ],
    "MirrorPad": [
        *moved(
            Case(
                "without the edge",
                inputs(normal(3, 3)),
                lambda x: rearranging.pad(x, MARGINS, "REFLECT"),
                lambda x: np.pad(x, MARGINS, "reflect"),
            )
        ),
        Case(
            "with the edge",
            inputs(normal(2, 3)),
            lambda x: rearranging.pad(x, MARGINS, "symmetric"),
            lambda x: np.pad(x, MARGINS, "symmetric"),
        ),
    ],
    "MirrorPadGrad": [
        Case(
            "with the edge",
            inputs(normal(5)),
            lambda dy: REGISTRY["MirrorPadGrad"](dy, [[1, 2]], [2], mode="symmetric"),
            lambda dy: np.array([dy[0] + dy[1] + dy[4], dy[2] + dy[3]]),
            gradient_tolerance=2,
        ),
        Case(
            "without the edge",
            inputs(normal(6)),
            lambda dy: REGISTRY["MirrorPadGrad"](dy, [[2, 1]], [3], mode="reflect"),
            lambda dy: np.array([dy[2], dy[1] + dy[3] + dy[5], dy[0] + dy[4]]),
        ),
    ],
    "Tile": [
        *moved(
            Case(
                "both axes",
                inputs(normal(2, 3)),
                lambda x: rearranging.tile(x, [2, 3]),
                lambda x: np.tile(x, (2, 3)),
            )
        ),
        Case(
            "computed",
            inputs(normal(2, 3), whole([1, 2], np.int64)),
            rearranging.tile,
            np.tile,
            shape_known=False,
        ),
    ],
    "TileGrad": [
        Case(
            "both axes",
            inputs(normal(4, 9)),
            lambda dy: REGISTRY["TileGrad"](dy, [2, 3], [2, 3]),
            lambda dy: sum(dy[i : i + 2, j : j + 3] for i in (0, 2) for j in (0, 3, 6)),
        )
    ],
    "ReverseV2": moved(
        Case(
            "two axes",
            inputs(normal(2, 3, 2)),
            lambda x: rearranging.reverse(x, [0, -1]),
            lambda x: x[::-1, :, ::-1],
        )
    ),
}

# -- sequences ------------------------------------------------------------------------------------

SEQUENCES: Table = {
    "Range": [
        Case(
            "computed",
            inputs(given(1.0), given(3.2), given(0.5)),
            lambda *ends: sequences.range(*ends),
            lambda *_: np.array([1.0, 1.5, 2.0, 2.5, 3.0]),
            dtypes=("float32", "float64"),
            wrt=(),
            shape_known=False,
        ),
        Case(
            "backwards",
            inputs(given(5.0), given(-1.0), given(-2.0)),
            lambda *ends: sequences.range(*ends),
            lambda *_: np.array([5, 3, 1]),
            dtypes=("int32", "int64"),
            wrt=(),
            shape_known=False,
        ),
    ],
    "LinSpace": [
        Case(
            "five",
            inputs(normal(), normal()),
            lambda a, b: sequences.linspace(a, b, 5),
            lambda a, b: np.linspace(a, b, 5),
        ),
        Case(
            "one",
            inputs(given(2.5), given(7.0)),
            lambda a, b: sequences.linspace(a, b, 1),
            lambda a, b: np.linspace(a, b, 1),
        ),
    ],
    "OneHot": [
        Case(
            "last axis",
            inputs(whole([[0, 2], [-1, 3]]), given(2.0), given(-0.5)),
            lambda i, on, off: sequences.one_hot(i, 3, on, off),
            lambda i, on, off: np.where(i[..., None] == np.arange(3), on, off),
            wrt=(),
        ),
        Case(
            "first axis",
            inputs(whole([0, 2], np.int64), given(2.0), given(-0.5)),
            lambda i, on, off: sequences.one_hot(i, 3, on, off, axis=0),
            lambda i, on, off: np.where(i == np.arange(3)[:, None], on, off),
            wrt=(),
        ),
    ],
    "Unique": [
        Case(
            "by first occurrence",
            inputs(given([4.0, 1.0, 4.0, 7.0, 1.0])),
            lambda x: sequences.unique(x).y,
            lambda x: np.array([4, 1, 7]),
            dtypes=(*FLOATS, "int32"),
            wrt=(),
            shape_known=False,
        ),
        Case(
            "places",
            inputs(given([4.0, 1.0, 4.0, 7.0, 1.0])),
            lambda x: sequences.unique(x, "int64").idx,
            lambda x: np.array([0, 1, 0, 2, 1]),
            result="int64",
            wrt=(),
        ),
    ],
    "InvertPermutation": [
        Case(
            "plain",
            inputs(whole([2, 0, 1])),
            sequences.invert_permutation,
            np.argsort,
            dtypes=("int32",),
            wrt=(),
        )
    ],
}

# -- sparse rows ----------------------------------------------------------------------------------


def merged(x: Any, rows: Any) -> Any:
    """The merged rows and their numbers."""
    slices = sparse.deduplicate(IndexedSlices(x, rows))
    return slices.values


SPARSE: Table = {
    "UnsortedSegmentSum": [
        Case(
            "vector",
            inputs(normal(4, 2), whole(ROWS)),
            lambda x, rows: sparse.unsorted_segment_sum(x, rows, 5),
            lambda x, rows: zeros_with((5, 2), rows, x),
        ),
        Case(
            "matrix",
            inputs(normal(2, 3), whole([[1, 0, 1], [1, 1, 1]], np.int64)),
            lambda x, rows: sparse.unsorted_segment_sum(x, rows, 2),
            lambda x, rows: zeros_with(2, rows, x),
        ),
        Case(
            "integers",
            inputs(given([1.0, 2.0, 3.0, 4.0]), whole(ROWS)),
            lambda x, rows: sparse.unsorted_segment_sum(x, rows, 4),
            lambda x, rows: np.array([4, 2, 0, 4]),
            dtypes=("int32", "uint8"),
            wrt=(),
        ),
    ],
    "UniqueRows": [
        Case(
            "duplicates",
            inputs(normal(4, 2), whole(ROWS)),
            merged,
            lambda x, rows: np.stack([x[0] + x[2], x[1], x[3]]),
            shape_known=False,
        ),
        Case(
            "none double",
            inputs(normal(3, 2), whole([2, 0, 1])),
            merged,
            lambda x, rows: x,
            shape_known=False,
        ),
    ],
}

# -- clipping -------------------------------------------------------------------------------------


def norm(*xs: np.ndarray, axis: Any = None) -> Any:
    """The root of the sum of squares."""
    if axis is not None:
        return np.linalg.norm(xs[0], axis=axis, keepdims=True)
    return np.linalg.norm(np.concatenate([x.ravel() for x in xs]))


WIDE = ("float32", "float64")
CLIPPED_AXIS = {"axes": (1,)}

CLIPPING: Table = {
    "ClipByValue": [
        Case(
            "numbers",
            inputs(distinct(3, 4)),
            lambda x: clip.clip_by_value(x, -0.8, 0.6),
            lambda x: np.clip(x, -0.8, 0.6),
        ),
        Case(
            "tensors",
            inputs(distinct(3, 4), given([-0.8, -0.1, 0.1, -1.0]), given(0.6)),
            clip.clip_by_value,
            np.clip,
        ),
        Case(
            "integers",
            inputs(given([0.0, 2.0, 9.0])),
            lambda x: clip.clip_by_value(x, 1, 5),
            lambda x: np.clip(x, 1, 5),
            dtypes=("int32", "int64", "uint8"),
            wrt=(),
        ),
    ],
    "GlobalNorm": [
        Case(
            "several",
            inputs(normal(3, 2), normal(), normal(4)),
            lambda *xs: clip.global_norm(xs),
            norm,
            gradient_tolerance=2,
        )
    ],
    "L2Norm": [
        Case(
            "rows",
            inputs(normal(3, 2)),
            built("L2Norm", axes=(1,)),
            lambda x: norm(x, axis=1),
            dtypes=WIDE,
            gradient_tolerance=2,
        ),
        Case(
            "float16",
            inputs(normal(3, 2)),
            built("L2Norm", axes=(1,)),
            lambda x: norm(x, axis=1),
            dtypes=("float16",),
            result="float32",
            gradient_tolerance=4,
        ),
    ],
    "ClipFactor": [
        Case(
            "above and below",
            inputs(given([[0.5], [3.0], [8.0]]), given(2.0)),
            built("ClipFactor", negative=0, strict=False),
            lambda n, c: np.minimum(1, c / n),
        )
    ],
}

# -- the rest -------------------------------------------------------------------------------------

RANDOM = {
    name: Elsewhere("tests/ops/test_random.py", "random")
    for name in (
        "RandomUniform",
        "RandomUniformInt",
        "RandomStandardNormal",
        "TruncatedNormal",
        "RandomShuffle",
    )
}
CONTROL = {
    name: Elsewhere("tests/ops/test_control.py", "chooses what runs")
    for name in ("Merge", "FirstTrue", "NoOp")
}

TABLE: Table = {
    **SHAPES,
    **JOINING,
    **INDEXING,
    **REARRANGING,
    **SEQUENCES,
    **SPARSE,
    **CLIPPING,
    **RANDOM,
    **CONTROL,
}
