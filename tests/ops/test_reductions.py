"""Reductions: their arguments, ties, nothing to reduce, large values."""

import math

import numpy as np
import pytest

from optkit.errors import InvalidArgumentError
from optkit.gradients import gradients
from optkit.ops import reductions as ops
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.ops.softmax import reduce_logsumexp
from optkit.runtime.session import Session
from tests.gradcheck import check_gradients

NUMERIC = [ops.reduce_sum, ops.reduce_mean, ops.reduce_prod, ops.reduce_max, ops.reduce_min]
REDUCTIONS = [*NUMERIC, reduce_logsumexp]


def run(fetches, feed=None):
    return Session().run(fetches, feed)


def gradient(y, x):
    return run(gradients(y, x)[0])


# -- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("axis", "shape"),
    [
        (None, []),
        (0, [3, 4]),
        (-1, [2, 3]),
        (np.int64(1), [2, 4]),
        ([0, 2], [3]),
        ((-1, -2), [2]),
        (np.array([1, 0]), [4]),
        ([], [2, 3, 4]),
    ],
)
def test_axes(reduction, axis, shape):
    x = constant(np.ones((2, 3, 4)))
    assert reduction(x, axis).shape.as_list() == shape
    assert run(reduction(x, axis)).shape == tuple(shape)


def test_an_axis_may_be_a_constant_tensor():
    x = constant(np.ones((2, 3)))
    assert ops.reduce_sum(x, constant(1)).shape.as_list() == [2]
    assert ops.reduce_sum(x, constant([0, 1])).shape.as_list() == []
    with pytest.raises(ValueError, match="axis: expected ints or a constant, got"):
        ops.reduce_sum(x, placeholder("int32", []))


def test_older_names_of_arguments():
    x = constant([[1.0, 2.0], [3.0, 5.0]])
    assert run(ops.reduce_sum(x, reduction_indices=1)).tolist() == [3.0, 8.0]
    assert run(ops.reduce_sum(x, 1, keep_dims=True)).tolist() == [[3.0], [8.0]]
    assert run(ops.argmax(x, dimension=1)).tolist() == [1, 1]
    for wrong in (
        lambda: ops.reduce_sum(x, 1, reduction_indices=1),
        lambda: ops.reduce_sum(x, 1, keepdims=True, keep_dims=True),
        lambda: ops.argmax(x, 1, dimension=1),
    ):
        with pytest.raises(ValueError, match="given"):
            wrong()


@pytest.mark.parametrize("reduction", [*REDUCTIONS, ops.argmax, ops.argmin, ops.cumsum])
def test_axes_that_do_not_exist_are_refused(reduction):
    x = constant(np.ones((2, 3)))
    for axis in (2, -3):
        with pytest.raises(ValueError, match=rf"axis: expected one in \[-2, 2\), got {axis}"):
            reduction(x, axis)
    with pytest.raises(TypeError, match=r"axis: expected an int, got 1\.0"):
        reduction(x, 1.0)


def test_an_axis_named_twice_is_refused():
    with pytest.raises(ValueError, match="axis: expected each axis once"):
        ops.reduce_sum(constant(np.ones((2, 3))), [1, -1])


def test_axes_of_unknown_rank_are_checked_when_run():
    x = placeholder("float32", None)
    y = ops.reduce_sum(x, [-1])
    assert y.shape.ndims is None
    assert run(y, {x: [[1.0, 2.0]]}).tolist() == [3.0]
    with pytest.raises(InvalidArgumentError, match=r"(?s)axis.*operation 'Sum'"):
        run(y, {x: 1.0})
    assert ops.reduce_sum(x).shape.as_list() == []


def test_names():
    x = constant([1.0])
    names = ["Sum", "Mean", "Prod", "Max", "Min", "ReduceLogSumExp"]
    assert [reduction(x).op.name for reduction in REDUCTIONS] == names
    assert ops.reduce_sum(x, name="total").op.name == "total"


def test_dtypes():
    for reduction in (ops.reduce_any, ops.reduce_all):
        with pytest.raises(TypeError, match="x: expected one of bool, got float32"):
            reduction(constant([1.0]))
    for reduction in NUMERIC:
        with pytest.raises(TypeError, match=r"x: expected one of .*, got bool"):
            reduction(constant([True]))
    with pytest.raises(TypeError, match=r"LogSumExp .*: expected one of .*int32"):
        reduce_logsumexp(constant([1]))
    with pytest.raises(TypeError, match="reduce_variance: input_tensor: expected floats"):
        ops.reduce_variance(constant([1]))


# -- values ---------------------------------------------------------------------------------------


def test_float16_adds_up_in_float32():
    x = placeholder("float16", [None])
    ones = np.ones(4096, "float16")  # adding 1 to 2048 changes nothing in float16
    large = np.full(3, 40000, "float16")
    total, mean = ops.reduce_sum(x), ops.reduce_mean(x)
    assert run([total, mean], {x: ones}) == [4096.0, 1.0]
    assert run([total, mean], {x: large}) == [math.inf, 40000.0]
    assert run(reduce_logsumexp(x), {x: ones}) == pytest.approx(1 + math.log(4096), rel=1e-3)
    assert run(ops.cumsum(x), {x: ones})[-1] == 4096.0
    many = np.ones(70000, "float16")  # more than float16's largest number
    assert run(gradients(mean, x)[0], {x: many})[0] == np.float16(1 / 70000)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_integers_keep_their_dtype(dtype):
    x = constant([1, 2, 4], dtype)
    for reduction, expected in zip(NUMERIC, [7, 2, 8, 4, 1], strict=True):
        value = run(reduction(x))
        assert value == expected
        assert value.dtype == dtype
    assert run(ops.cumsum(x)).dtype == dtype


def test_a_mean_of_integers_does_not_overflow():
    assert run(ops.reduce_mean(constant([100, 100, 100], "int8"))) == 100


def test_nothing_to_reduce():
    x = placeholder("float32", [None, 2])
    feed = {x: np.zeros((0, 2))}
    expected = [0.0, math.nan, 1.0, -math.inf, math.inf, -math.inf]
    for reduction, value in zip(REDUCTIONS, expected, strict=True):
        np.testing.assert_array_equal(run(reduction(x, 0), feed), [value, value])
        np.testing.assert_array_equal(run(reduction(x), feed), value)
        assert run(reduction(x, 1), feed).shape == (0,)
        assert run(gradients(reduction(x, 0), x)[0], feed).shape == (0, 2)
    whole = placeholder("int32", [None])
    limits = np.iinfo("int32")
    empty = {whole: np.zeros(0, "int32")}
    assert run([ops.reduce_max(whole), ops.reduce_min(whole)], empty) == [limits.min, limits.max]
    assert run(ops.reduce_mean(whole), empty) == 0
    truth = placeholder("bool", [None])
    none = {truth: np.zeros(0, bool)}
    assert run([ops.reduce_any(truth), ops.reduce_all(truth)], none) == [False, True]


@pytest.mark.parametrize("finder", [ops.argmax, ops.argmin])
def test_no_position_among_nothing(finder):
    x = placeholder("float32", [None, 2])
    with pytest.raises(InvalidArgumentError, match="expected elements along axis 0, got none"):
        run(finder(x), {x: np.zeros((0, 2))})


def test_positions():
    x = constant([[3.0, 1.0, 3.0], [0.0, 5.0, 2.0]])
    assert run(ops.argmax(x)).tolist() == [0, 1, 0]
    assert run(ops.argmax(x, -1)).tolist() == [0, 1]
    assert run(ops.argmin(x, 1)).tolist() == [1, 0]
    assert ops.argmax(x, 1).dtype == "int64"
    assert ops.argmax(x, 1, output_type="int32").dtype == "int32"
    with pytest.raises(TypeError, match="output_type: expected int32 or int64, got float32"):
        ops.argmax(x, 1, output_type="float32")


def test_large_exponents_do_not_overflow():
    for dtype in ("float16", "float32", "float64"):
        x = constant([[1e4, 1e4, -1e4], [-1e4, -1e4, -1e4]], dtype)
        y = reduce_logsumexp(x, 1)
        np.testing.assert_allclose(run(y), [1e4 + math.log(2), math.log(3) - 1e4], rtol=1e-3)
        third = 1 / 3
        expected = [[0.5, 0.5, 0.0], [third, third, third]]
        np.testing.assert_allclose(gradient(y, x), expected, rtol=1e-3)


def test_infinite_exponents():
    x = constant([[math.inf, 1.0], [-math.inf, -math.inf], [-math.inf, 1.0]])
    y = run(reduce_logsumexp(x, 1))
    np.testing.assert_array_equal(y, [math.inf, -math.inf, 1.0])


def test_variance_and_deviation():
    x = np.random.default_rng(1).standard_normal((3, 4))
    tensor = constant(x)
    for function, reference in ((ops.reduce_variance, np.var), (ops.reduce_std, np.std)):
        for axis in (None, 0, -1):
            y = function(tensor, axis, keepdims=True)
            np.testing.assert_allclose(run(y), reference(x, axis=axis, keepdims=True), rtol=1e-12)
        check_gradients(lambda t, function=function: function(t, 1), [x], order=2)


def test_counts_of_what_is_not_zero():
    x = constant([[0.0, 1.0, -2.0], [0.0, 0.0, 3.0]])
    assert run(ops.count_nonzero(x)) == 3
    assert run(ops.count_nonzero(x, 1)).tolist() == [2, 1]
    assert run(ops.count_nonzero(x, 1, keepdims=True)).tolist() == [[2], [1]]
    assert run(ops.count_nonzero(constant([True, False]))) == 1
    assert ops.count_nonzero(x).dtype == "int64"
    assert ops.count_nonzero(x, dtype="int32").dtype == "int32"


# -- gradients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", [ops.reduce_max, ops.reduce_min])
def test_equal_extremes_share_the_gradient(reduction):
    x = constant([[2.0, 2.0, 2.0, 2.0], [1.0, 1.0, 1.0, 1.0]])
    assert gradient(reduction(x, 1), x).tolist() == [[0.25] * 4] * 2
    assert gradient(reduction(x), x).sum() == 1.0
    y = constant([[0.0, 3.0, 3.0, 0.0]])
    shared = [[0.0, 0.5, 0.5, 0.0]] if reduction is ops.reduce_max else [[0.5, 0.0, 0.0, 0.5]]
    assert gradient(reduction(y, 1), y).tolist() == shared


def test_products_with_zeros():
    x = constant([[2.0, 0.0, 3.0], [0.0, 0.0, 3.0], [2.0, 5.0, 3.0]])
    expected = [[0.0, 6.0, 0.0], [0.0, 0.0, 0.0], [15.0, 6.0, 10.0]]
    assert gradient(ops.reduce_prod(x, 1), x).tolist() == expected
    assert gradient(ops.reduce_prod(x), x).tolist() == [[0.0] * 3] * 3
    y = constant([2.0, 0.0, 3.0])
    assert gradient(ops.reduce_prod(y), y).tolist() == [0.0, 6.0, 0.0]


def test_products_of_many_axes_with_zeros():
    x = np.arange(1.0, 13.0).reshape(2, 3, 2)
    x[0, 1, 0] = 0.0
    for axis in (None, 0, 1, 2, [0, 2], [1, 2]):
        check_gradients(lambda t, axis=axis: ops.reduce_prod(t, axis), [x])


def test_a_mean_of_unknown_size_is_differentiated():
    x = placeholder("float64", [None, None])
    (dx,) = gradients(ops.reduce_mean(x, 0), x)
    assert run(dx, {x: np.ones((4, 3))}).tolist() == [[0.25] * 3] * 4
    assert run(dx, {x: np.ones((2, 1))}).tolist() == [[0.5]] * 2
