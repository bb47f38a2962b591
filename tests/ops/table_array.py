"""Rows of the op table: shapes, joining, indexing, padding, sequences, sparse rows, clipping."""

from typing import Any

import numpy as np

from optkit.graph import IndexedSlices
from optkit.ops import (
    array,
    broadcasting,
    clip,
    indexing,
    rearranging,
    sequences,
    sparse,
)
from optkit.ops.core import REGISTRY
from tests.ops.rows import (
    FLOATS,
    Case,
    Elsewhere,
    Table,
    distinct,
    given,
    inputs,
    normal,
    uniform,
)

ANY = (*FLOATS, "int32", "int64", "uint8", "bool")
RNG_TESTS = "tests/ops/test_random.py"
CONTROL_TESTS = "tests/ops/test_control.py"


def indices(values: Any, dtype: Any = np.int32) -> Any:
    """A builder of row numbers, which keep their dtype."""
    return given(values, dtype)


def integers(case: Case, dtypes: Any = ("int32", "int64", "uint8")) -> Case:
    """The same case for dtypes without gradient."""
    values = {**case.__dict__, "name": f"{case.name}, whole", "dtypes": dtypes, "wrt": ()}
    return Case(**values)


def both(case: Case) -> list[Case]:
    return [case, integers(case)]


# -- shapes ---------------------------------------------------------------------------------------


def same(x: Any) -> Any:
    return x


def no_array(value: Any) -> Any:
    """References of ops that give a shape get the array that has it."""
    return lambda x: np.asarray(value(x))


SHAPES: Table = {
    "Placeholder" if False else "Identity": both(
        Case("plain", inputs(normal(2, 3)), array.identity, same)
    ),
    "PlaceholderWithDefault": [
        Case(
            "not fed",
            inputs(normal(2, 3)),
            lambda x: array.placeholder_with_default(x, [None, 3]),
            same,
            shape_known=False,
        )
    ],
    "StopGradient": [Case("plain", inputs(normal(2, 3)), array.stop_gradient, same, wrt=())],
    "Shape": [
        Case(
            "of unknown",
            inputs(normal(2, 3)),
            lambda x: REGISTRY["Shape"](x, out_type=_INT64),
            lambda x: np.array(x.shape),
            result="int64",
            wrt=(),
        )
    ],
    "Size": [
        Case(
            "of unknown",
            inputs(normal(2, 3)),
            lambda x: REGISTRY["Size"](x, out_type=_INT64),
            lambda x: np.array(x.size),
            result="int64",
            wrt=(),
        )
    ],
    "Rank": [
        Case(
            "of unknown",
            inputs(normal(2, 3)),
            REGISTRY["Rank"],
            lambda x: np.array(x.ndim),
            result="int32",
            wrt=(),
        )
    ],
}
