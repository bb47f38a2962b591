"""The op table: every op of `optkit.ops.core.REGISTRY` with the cases that test it."""

from collections import Counter

from tests.ops import (
    table_array,
    table_convolution,
    table_layers,
    table_math,
    table_reductions,
    table_sequences,
    table_variables,
)
from tests.ops.rows import Case, Table

_PARTS = (
    table_array.TABLE,
    table_convolution.TABLE,
    table_layers.TABLE,
    table_math.TABLE,
    table_reductions.TABLE,
    table_sequences.TABLE,
    table_variables.TABLE,
)

TABLE: Table = {type_name: row for part in _PARTS for type_name, row in part.items()}
"""Op type -> its cases, or where else it is tested."""

DOUBLED = [name for name, n in Counter(name for part in _PARTS for name in part).items() if n > 1]
"""Types with more than one row."""

CASES: list[tuple[str, Case]] = [
    (type_name, case)
    for type_name, row in TABLE.items()
    if isinstance(row, list | tuple)
    for case in row
]
