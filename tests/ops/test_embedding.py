"""embedding_lookup: whole and sharded tables, their gradients, max_norm."""

import numpy as np
import pytest

from optkit.errors import InvalidArgumentError
from optkit.gradients import gradients
from optkit.graph import IndexedSlices
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.ops.embedding import embedding_lookup
from optkit.ops.sparse import densify
from optkit.runtime.session import Session

TABLE = np.arange(14, dtype=np.float32).reshape(7, 2)


def run(fetches, feed=None):
    return Session().run(fetches, feed)


def shards(strategy):
    """TABLE in three shards."""
    if strategy == "mod":
        return [TABLE[0::3], TABLE[1::3], TABLE[2::3]]
    return [TABLE[:3], TABLE[3:5], TABLE[5:]]


def test_one_table_is_gathered():
    found = embedding_lookup(constant(TABLE), [[1, 6], [0, 1]])
    assert found.shape == [2, 2, 2]
    np.testing.assert_array_equal(run(found), TABLE[[[1, 6], [0, 1]]])
    assert embedding_lookup([constant(TABLE)], [1]).shape == [1, 2]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("strategy", ["mod", "div"])
def test_shards_act_as_one_table(strategy, dtype):
    ids = np.array([[6, 0, 3, 2], [6, 1, 4, 5]], dtype)
    parts = [constant(part) for part in shards(strategy)]
    found = embedding_lookup(parts, ids, strategy)
    assert found.shape == [2, 4, 2]
    np.testing.assert_array_equal(run(found), TABLE[ids])


@pytest.mark.parametrize(("rows", "count"), [(4, 2), (5, 2), (9, 4)])
def test_shards_of_other_sizes(rows, count):
    table = np.arange(rows, dtype=np.float32)
    for strategy, parts in (
        ("mod", [table[i::count] for i in range(count)]),
        ("div", np.array_split(table, count)),
    ):
        found = embedding_lookup([constant(part) for part in parts], np.arange(rows), strategy)
        np.testing.assert_array_equal(run(found), table)


@pytest.mark.parametrize("strategy", ["mod", "div"])
def test_gradients_of_shards_are_sparse_and_name_only_rows_looked_up(strategy):
    values = shards(strategy)
    parts = [placeholder("float32", part.shape) for part in values]
    found = embedding_lookup(parts, [6, 6, 0], strategy)
    weights = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)
    dparts = gradients(found * weights, parts)
    assert all(isinstance(dpart, IndexedSlices) for dpart in dparts)
    feed = dict(zip(parts, values, strict=True))
    expected = np.zeros_like(TABLE)
    np.add.at(expected, [6, 6, 0], weights)
    whole = dict(
        zip(
            ("mod", "div"),
            ([np.s_[i::3] for i in range(3)], [np.s_[:3], np.s_[3:5], np.s_[5:]]),
            strict=True,
        )
    )
    for dpart, rows in zip(dparts, whole[strategy], strict=True):
        np.testing.assert_array_equal(run(densify(dpart), feed), expected[rows])
    assert sum(run(dpart, feed).indices.size for dpart in dparts) == 3


def test_rows_are_scaled_down_to_max_norm():
    table = constant([[3.0, 4.0], [0.3, 0.4]])
    np.testing.assert_allclose(
        run(embedding_lookup(table, [[0, 1]], max_norm=1.0)), [[[0.6, 0.8], [0.3, 0.4]]], rtol=1e-6
    )
    with pytest.raises(ValueError, match="max_norm: needs ids and params of known rank"):
        embedding_lookup(placeholder("float32"), [0], max_norm=1.0)


def test_ids_out_of_range_are_refused():
    for bad in (-1, 7):
        with pytest.raises(InvalidArgumentError, match="expected row numbers"):
            run(embedding_lookup(constant(TABLE), [bad]))
    with pytest.raises(InvalidArgumentError, match="expected row numbers"):
        run(embedding_lookup([constant(part) for part in shards("mod")], [7]))


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="params: expected at least one tensor"):
        embedding_lookup([], [0])
    with pytest.raises(ValueError, match="partition_strategy: expected 'mod' or 'div', got 'x'"):
        embedding_lookup(constant(TABLE), [0], "x")
    with pytest.raises(TypeError, match="ids: expected int32 or int64"):
        embedding_lookup(constant(TABLE), [0.5])
