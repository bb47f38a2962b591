"""NumPy's functions on graph tensors give what NumPy gives."""

import numpy as np
import pytest

from optkit.graph import Tensor
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.runtime.session import Session
from optkit.variables import Variable

X = np.arange(12.0, dtype=np.float32).reshape(3, 4)
ROW = X[:1]

CALLS = {
    "reshape": lambda x: np.reshape(x, (2, -1)),
    "reshape order": lambda x: np.reshape(x, (2, 6), order="C"),
    "ravel": np.ravel,
    "transpose": np.transpose,
    "transpose axes": lambda x: np.transpose(x, (1, 0)),
    "concatenate": lambda x: np.concatenate([x, ROW]),
    "concatenate axis": lambda x: np.concatenate((x, x), axis=1),
    "concatenate flat": lambda x: np.concatenate([x, ROW], axis=None),
    "stack": lambda x: np.stack([x, x], axis=1),
    "hstack": lambda x: np.hstack([x, x]),
    "hstack vectors": lambda x: np.hstack([x[0], x[1]]),
    "hstack scalars": lambda x: np.hstack([x[0, 0], x[1, 1]]),
    "vstack": lambda x: np.vstack([x, ROW]),
    "vstack vectors": lambda x: np.vstack([x[0], x[1]]),
    "split": lambda x: np.split(x, 2, axis=1),
    "split rows": lambda x: np.split(x, 3),
    "split at": lambda x: np.split(x, [1, 2], axis=1),
    "expand_dims": lambda x: np.expand_dims(x, 1),
    "expand_dims several": lambda x: np.expand_dims(x, (0, -1)),
    "squeeze": lambda x: np.squeeze(x[:1]),
    "squeeze axis": lambda x: np.squeeze(x[:1], axis=0),
    "zeros_like": np.zeros_like,
    "ones_like": lambda x: np.ones_like(x, dtype=np.int32),
    "full_like": lambda x: np.full_like(x, 7),
    "full_like dtype": lambda x: np.full_like(x, 7, dtype=np.int64),
    "broadcast_to": lambda x: np.broadcast_to(x, (2, 3, 4)),
    "clip": lambda x: np.clip(x, 2, 5),
    "clip below": lambda x: np.clip(x, 2, None),
    "clip above": lambda x: np.clip(x, None, 5),
    "pad": lambda x: np.pad(x, ((1, 0), (2, 3))),
    "pad pair": lambda x: np.pad(x, (1, 2)),
    "pad one pair": lambda x: np.pad(x, ((1, 2),)),
    "pad number": lambda x: np.pad(x, 1, constant_values=-1),
    "pad mode": lambda x: np.pad(x, 1, "reflect"),
    "tile": lambda x: np.tile(x, (2, 1)),
    "tile last": lambda x: np.tile(x, 2),
    "tile more": lambda x: np.tile(x, (2, 1, 2)),
    "take": lambda x: np.take(x, [2, 0], axis=0),
    "take columns": lambda x: np.take(x, [2, 0], axis=1),
    "take flat": lambda x: np.take(x, [[5, 0]]),
    "flip": np.flip,
    "flip axis": lambda x: np.flip(x, axis=1),
    "swapaxes": lambda x: np.swapaxes(x, 0, -1),
    "moveaxis": lambda x: np.moveaxis(np.expand_dims(x, 0), 2, 0),
    "moveaxis several": lambda x: np.moveaxis(np.expand_dims(x, 0), [0, 1], [-1, 0]),
    "where": lambda x: np.where(np.greater(x, 3), x, -1),
    "where columns": lambda x: np.where(np.array([True, False, True, True]), x, 0),
    "where places": lambda x: np.where(np.greater(x, 3)),
    "copy": np.copy,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_functions_are_numpys(call):
    x = placeholder("float32", X.shape)
    found, expected = call(x), call(X)
    several = isinstance(expected, list | tuple)
    pairs = list(zip(found, expected, strict=True)) if several else [(found, expected)]
    for tensor, value in pairs:
        assert isinstance(tensor, Tensor)
        array = Session().run(tensor, {x: X})
        np.testing.assert_array_equal(array, value)
        assert tensor.shape.is_compatible_with(value.shape)
        assert tensor.dtype == value.dtype


def test_a_square_condition_of_rank_one_goes_over_columns_as_in_numpy():
    square = X[:, :3]
    chosen = np.array([True, False, True])
    found = np.where(constant(chosen), constant(square), 0 * constant(square))
    np.testing.assert_array_equal(Session().run(found), np.where(chosen, square, 0))


def test_shapes_are_tuples_where_they_are_static():
    x = placeholder("float32", [3, 4])
    assert np.shape(x) == (3, 4)
    assert np.ndim(x) == 2
    assert np.size(x) == 12
    assert np.size(x, 1) == 4


def test_shapes_are_tensors_where_they_are_not():
    x = placeholder("float32", [None, 4])
    session = Session()
    np.testing.assert_array_equal(session.run(np.shape(x), {x: X}), [3, 4])
    assert session.run(np.size(x), {x: X}) == 12
    assert session.run(np.size(x, 0), {x: X}) == 3
    assert np.size(x, 1) == 4
    with pytest.raises(ValueError, match=r"np\.ndim: needs a static rank"):
        np.ndim(placeholder("float32"))


def test_variables_take_part():
    v = Variable(X)
    session = Session()
    session.run(v.initializer)
    np.testing.assert_array_equal(session.run(np.reshape(v, -1)), X.ravel())
    np.testing.assert_array_equal(session.run(np.concatenate([v, ROW])), np.vstack([X, ROW]))


def test_clip_without_limits_is_nothing():
    x = constant(X)
    assert np.clip(x, None, None) is x


def test_what_has_no_graph_form_is_refused():
    x = constant(X)
    with pytest.raises(ValueError, match="order: only 'C'"):
        np.reshape(x, (4, 3), order="F")
    with pytest.raises(TypeError, match=r"np\.clip: \['casting'\] have no graph form"):
        np.clip(x, 0, 1, casting="safe")
    with pytest.raises(ValueError, match="destination: expected 1 axes, got 2"):
        np.moveaxis(x, 0, [0, 1])
    with pytest.raises(TypeError, match=r"np\.det has no graph form"):
        np.linalg.det(x)
