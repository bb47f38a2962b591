"""einsum, tensordot, top_k, segments, diagonals: what they refuse. Values are in the op table."""

import numpy as np
import pytest

from optkit.errors import InvalidArgumentError
from optkit.ops import diagonals, ranking, segments
from optkit.ops.array import placeholder
from optkit.ops.contractions import einsum, tensordot
from optkit.ops.core import constant
from optkit.runtime.session import Session


@pytest.mark.parametrize(
    ("equation", "shapes", "message"),
    [
        ("ij,jk->ik", [(2, 3), (4, 2)], "axis 'j': expected size 3, got 4"),
        ("ij->i", [(2,)], "'ij' names 2 axes"),
        ("ij,jk->ik", [(2, 3)], "has 2 operands, got 1"),
        ("ii->i", [(2, 2)], "names an axis twice"),
        ("i->k", [(2,)], r"no operand of 'i->k' has \['k'\]"),
        ("i;j", [(2,)], "expected letters such as"),
        ("...ij->ij", [(2,)], "names too many axes"),
    ],
)
def test_einsum_refuses(equation, shapes, message):
    with pytest.raises(ValueError, match=message):
        einsum(equation, *(np.zeros(shape, np.float32) for shape in shapes))


def test_einsum_arguments():
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(Session().run(einsum("ij -> ji", [x])), x.T)
    with pytest.raises(TypeError, match="einsum: unknown arguments"):
        einsum("i->i", x, axis=1)
    with pytest.raises(TypeError, match="equation: expected a string"):
        einsum(x, x)
    with pytest.raises(ValueError, match=r"'\.\.\.' needs a known rank"):
        einsum("...->...", placeholder("float32"))


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (3, r"expected a count in \[0, 2\]"),
        ([[0], [0, 1]], "expected as many different axes"),
        ([[2], [0]], "axes: expected one in"),
        ([0], "expected an int or a pair of lists"),
        (1, "expected size 3, got 4"),
    ],
)
def test_tensordot_refuses(axes, message):
    with pytest.raises(ValueError, match=message):
        tensordot(np.zeros((2, 3)), np.zeros((4, 2)), axes)
    with pytest.raises(ValueError, match="a: expected a known rank"):
        tensordot(placeholder("float32"), [1.0], 1)


def test_top_k_takes_the_first_of_equals():
    values, indices = Session().run(ranking.top_k([[1, 3, 2, 3], [0, 0, 0, 0]], 3))
    np.testing.assert_array_equal(values, [[3, 3, 2], [0, 0, 0]])
    np.testing.assert_array_equal(indices, [[1, 3, 2], [0, 1, 2]])
    assert indices.dtype == np.int32
    found = ranking.top_k(constant([1.0, 5.0]))
    assert found.values.shape == [1]
    with pytest.raises(ValueError, match="input: expected at least k = 3 elements"):
        ranking.top_k([1.0], 3)
    k = placeholder("int32", [])
    with pytest.raises(InvalidArgumentError, match=r"k: expected a count in \[0, 1\], got 2"):
        Session().run(ranking.top_k([1.0], k), {k: 2})


def test_in_top_k_is_false_for_what_is_no_number():
    x = np.array([[1, np.nan, 0], [np.inf, 1, 0], [1, 2, 3]], np.float32)
    assert Session().run(ranking.in_top_k(x, [0, 0, 5], 3)).tolist() == [False] * 3
    with pytest.raises(ValueError, match="targets: expected one a row"):
        ranking.in_top_k(x, [0], 1)


def test_segments_check_their_numbers():
    ids = placeholder("int32", [None])
    total = segments.segment_sum(constant([1.0, 2.0]), ids)
    assert total.shape == [None]
    assert segments.segment_sum([1.0, 2.0], [0, 3]).shape == [4]
    for numbers, message in [([1, 0], "never fall"), ([-1, 0], ">= 0"), ([0], "expected shape")]:
        with pytest.raises(InvalidArgumentError, match=message) as caught:
            Session().run(total, {ids: numbers})
        assert "test_contractions.py" in str(caught.value)
    with pytest.raises(ValueError, match="segment_ids: expected one a row"):
        segments.segment_mean([1.0, 2.0], [0])


def test_products_of_segments_with_zeros_have_gradients():
    from optkit.gradients import gradients

    x = constant([2.0, 0.0, 3.0, 0.0, 0.0, 5.0])
    y = segments.segment_prod(x, [0, 0, 0, 1, 1, 1])
    (dx,) = gradients(y, [x])
    np.testing.assert_array_equal(Session().run(dx), [0, 6, 0, 0, 0, 0])


def test_extremes_share_their_gradient():
    from optkit.gradients import gradients

    x = constant([4.0, 4.0, 1.0])
    (dx,) = gradients(segments.segment_max(x, [0, 0, 0]), [x])
    np.testing.assert_array_equal(Session().run(dx), [0.5, 0.5, 0])


def test_diagonals_check_shapes():
    with pytest.raises(ValueError, match="one shape twice"):
        diagonals.diag_part(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="expected at least two axes"):
        diagonals.trace([1.0])
    x = placeholder("float32", [None, None])
    with pytest.raises(InvalidArgumentError, match="one shape twice"):
        Session().run(diagonals.diag_part(x), {x: np.zeros((2, 3))})
