"""Padding, repeating, reversing: static shapes and errors. Values are in the op table."""

import numpy as np
import pytest

from optkit.errors import InvalidArgumentError
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.ops.rearranging import pad, reverse, tile
from optkit.runtime.session import Session


def run(fetches, feed=None):
    return Session().run(fetches, feed)


def test_pad_infers_what_it_can():
    x = placeholder("float32", [None, 3])
    n = placeholder("int32", [2, 2])
    assert pad(x, [[1, 2], [0, 4]]).shape == [None, 7]
    assert pad(x, n).shape == [None, None]
    assert pad(placeholder("float32"), n).shape == [None, None]
    assert pad(placeholder("float32"), placeholder("int32")).shape.ndims is None
    assert pad(x, [[0, 0], [1, 1]], "reflect").shape == [None, 5]


@pytest.mark.parametrize(
    ("paddings", "message"),
    [
        ([[1, 1]], "paddings: expected 2 rows, got 1"),
        ([[1], [1]], r"paddings: expected shape \(rank, 2\)"),
        ([[-1, 0], [0, 0]], "paddings: expected numbers >= 0"),
    ],
)
def test_pad_refuses_what_does_not_fit(paddings, message):
    with pytest.raises(ValueError, match=message):
        pad(placeholder("float32", [2, 3]), paddings)


def test_pad_refuses_bad_arguments():
    with pytest.raises(ValueError, match="mode: expected CONSTANT, REFLECT or SYMMETRIC, got 'x'"):
        pad([1.0], [[1, 1]], "x")
    with pytest.raises(TypeError, match="constant_values: expected a number"):
        pad([1.0], [[1, 1]], constant_values=[1.0, 2.0])
    with pytest.raises(TypeError, match="constant_values: expected a number"):
        pad([1.0], [[1, 1]], constant_values=placeholder("float32", []))
    with pytest.raises(TypeError, match="constant_values: expected int32"):
        pad([1], [[1, 1]], constant_values=0.5)
    with pytest.raises(TypeError, match="constant_values: expected float32"):
        pad([1.0], [[1, 1]], constant_values=constant(2))


def test_pad_takes_text_and_constants():
    assert run(pad(["a"], [[1, 0]])).tolist() == [b"", b"a"]
    assert run(pad(["a"], [[1, 0]], constant_values="b")).tolist() == [b"b", b"a"]
    np.testing.assert_array_equal(run(pad([1.0], [[1, 0]], constant_values=constant(2.0))), [2, 1])


def test_pad_that_does_not_fit_when_run():
    x, n = placeholder("float32"), placeholder("int32")
    with pytest.raises(InvalidArgumentError, match="paddings: expected 1 pairs"):
        run(pad(x, n), {x: [1.0], n: [[1, 1], [1, 1]]})
    with pytest.raises(InvalidArgumentError, match="paddings: expected 1 pairs of numbers >= 0"):
        run(pad(x, n), {x: [1.0], n: [[-1, 1]]})


@pytest.mark.parametrize(("mode", "most"), [("REFLECT", 2), ("SYMMETRIC", 3)])
def test_mirrors_reach_no_further_than_the_axis(mode, most):
    x = placeholder("float32", [None])
    feed = {x: [1.0, 2.0, 3.0]}
    assert run(pad(x, [[most, 0]], mode), feed).shape == (3 + most,)
    with pytest.raises(InvalidArgumentError, match=f"can be mirrored by at most {most}"):
        run(pad(x, [[0, most + 1]], mode), feed)


def test_tile_infers_what_it_can():
    x = placeholder("float32", [None, 3])
    assert tile(x, [2, 3]).shape == [None, 9]
    assert tile(x, placeholder("int32", [2])).shape == [None, None]
    assert tile(placeholder("float32"), [2]).shape.ndims is None
    with pytest.raises(ValueError, match="multiples: expected 2 numbers"):
        tile(x, [2])
    with pytest.raises(ValueError, match="multiples: expected numbers >= 0"):
        tile(x, [2, -1])


def test_tile_that_does_not_fit_when_run():
    x, n = placeholder("float32"), placeholder("int32")
    with pytest.raises(
        InvalidArgumentError, match=r"multiples: expected 1 numbers >= 0, got \[1, 1"
    ):
        run(tile(x, n), {x: [1.0], n: [1, 1]})
    assert run(tile(x, n), {x: [1.0], n: [0]}).shape == (0,)


def test_reverse_refuses_bad_axes():
    x = placeholder("float32", [2, 3])
    with pytest.raises(ValueError, match="axis: expected one in"):
        reverse(x, [2])
    with pytest.raises(ValueError, match="axis: expected each axis once"):
        reverse(x, [1, -1])
    assert reverse(x, 0).shape == [2, 3]
    assert reverse(placeholder("float32"), [0]).shape.ndims is None
