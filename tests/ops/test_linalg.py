"""Matrix products: arguments, static shapes, errors, NumPy's vectors."""

import numpy as np
import pytest

from optkit.errors import InvalidArgumentError
from optkit.gradients import gradients
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.ops.linalg import eye, matmul
from optkit.runtime.session import Session
from tests.gradcheck import check_gradients


def run(fetches, feed=None):
    return Session().run(fetches, feed)


def numbers(*shape):
    return np.random.default_rng(3).standard_normal(shape)


def test_plain_and_batch_products_are_told_apart():
    x, y = constant(numbers(2, 3)), constant(numbers(3, 4))
    assert matmul(x, y).op.type == "MatMul"
    assert matmul(x, constant(numbers(5, 3, 4))).op.type == "BatchMatMulV2"
    assert matmul(x, placeholder("float64", None)).op.type == "BatchMatMulV2"
    assert matmul(x, y).op.name == "MatMul_3"
    assert matmul(x, y, name="product").op.name == "product"


@pytest.mark.parametrize(
    ("a", "b", "shape"),
    [
        ([None, 3], [3, 4], [None, 4]),
        ([None, None], [None, None], [None, None]),
        ([5, 2, 3], [3, 4], [5, 2, 4]),
        ([None, 2, 3], [5, 3, 4], [5, 2, 4]),
        ([None, 2, 3], [1, 3, 4], [None, 2, 4]),
        (None, [3, 4], None),
    ],
)
def test_static_shapes(a, b, shape):
    y = matmul(placeholder("float32", a), placeholder("float32", b))
    assert y.sizes == (None if shape is None else tuple(shape))


def test_adjoint_is_transposed():
    x, y = numbers(3, 2), numbers(4, 3)
    product = matmul(constant(x), constant(y), adjoint_a=True, adjoint_b=True)
    np.testing.assert_allclose(run(product), x.T @ y.T, rtol=1e-12)
    for side in "ab":
        with pytest.raises(ValueError, match=f"transpose_{side} and adjoint_{side}"):
            matmul(constant(x), constant(y), **{f"transpose_{side}": True, f"adjoint_{side}": True})


def test_hints_of_sparsity_change_nothing():
    x = constant(np.eye(2))
    assert run(matmul(x, x, a_is_sparse=True, b_is_sparse=True)).tolist() == np.eye(2).tolist()


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([2, 3], [2, 3], r"MatMul: expected equal inner sizes, got 3 for a and 2 for b"),
        ([5, 2, 3], [4, 3, 2], r"BatchMatMulV2: shapes \(5,\) and \(4,\) do not broadcast"),
        ([3], [3, 2], r"MatMul 'MatMul': a: expected at least two axes"),
        ([2, 3], [], r"MatMul 'MatMul': b: expected at least two axes"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(a, b, message):
    with pytest.raises(ValueError, match=message):
        matmul(constant(np.ones(a)), constant(np.ones(b)))


def test_shapes_found_out_when_run():
    x, y = placeholder("float32", [None, None]), placeholder("float32", [None, None])
    with pytest.raises(InvalidArgumentError, match=r"(?s)operation 'MatMul'.*test_linalg"):
        run(matmul(x, y), {x: np.ones((2, 3)), y: np.ones((2, 3))})


def test_dtypes_that_differ_are_refused():
    x, y = constant(np.eye(2)), constant(np.eye(2, dtype="float32"), name="narrow")
    with pytest.raises(TypeError, match=r"MatMul 'MatMul': b: expected float64, got .*'narrow:0'"):
        matmul(x, y)
    with pytest.raises(TypeError, match=r"MatMul 'MatMul': a: expected one of .*, got bool"):
        matmul(constant([[True]]), constant([[True]]))


@pytest.mark.parametrize("left", [True, False])
def test_arrays_take_the_dtype_of_the_tensor(left):
    x, array = constant(np.eye(2, dtype="float32")), [[1, 2], [3, 4]]
    product = matmul(x, array) if left else matmul(array, x)
    assert product.dtype == "float32"
    assert run(product).tolist() == array


def test_float16_products_are_added_up_in_float32():
    x = constant(np.full((1, 4096), 1.0), "float16")
    product = run(matmul(x, x, transpose_b=True))
    assert product.dtype == "float16"
    assert product == 4096.0  # in float16 the sum stops at 2048


def test_gradients_of_a_batch_of_unknown_size():
    x, w = placeholder("float64", [None, 2, 3]), constant(numbers(3, 2))
    dw = gradients(matmul(x, w), w)[0]
    value = numbers(4, 2, 3)
    expected = np.repeat(value.sum((0, 1))[:, None], 2, 1)
    np.testing.assert_allclose(run(dw, {x: value}), expected, rtol=1e-12)


# -- NumPy's spelling -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b"),
    [((2, 3), (3, 4)), ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((5, 2, 3), (3,))],
)
def test_products_with_vectors(a, b):
    x, y = numbers(*a), numbers(*b)
    tensor, other = constant(x), constant(y)
    for product in (tensor @ other, tensor @ y, x @ other, np.matmul(tensor, other)):
        assert product.sizes == (x @ y).shape
        np.testing.assert_allclose(run(product), x @ y, rtol=1e-12)
    check_gradients(lambda s, t: s @ t, [x, y], order=2)
    if len(a) < 3:
        np.testing.assert_allclose(run(np.dot(tensor, other)), np.dot(x, y), rtol=1e-12)
        np.testing.assert_allclose(run(np.dot(x, other)), np.dot(x, y), rtol=1e-12)


def test_the_operator_is_named_as_in_tf():
    x = constant(numbers(2, 2))
    assert (x @ x).op.name == "matmul"


def test_dot_with_a_scalar_multiplies():
    x = constant([1.0, 2.0])
    assert run(np.dot(x, 3.0)).tolist() == [3.0, 6.0]


def test_dot_of_more_axes_is_refused():
    with pytest.raises(TypeError, match=r"np\.dot of more than two axes .* use matmul"):
        np.dot(constant(numbers(2, 2, 2)), constant(numbers(2, 2)))


# -- eye ------------------------------------------------------------------------------------------


def test_eye():
    assert run(eye(2)).tolist() == [[1, 0], [0, 1]]
    assert eye(2).dtype == "float32"
    assert run(eye(2, 3, dtype="int32")).tolist() == [[1, 0, 0], [0, 1, 0]]
    batch = eye(2, batch_shape=[3, 1])
    assert batch.shape.as_list() == [3, 1, 2, 2]
    np.testing.assert_array_equal(run(batch), np.broadcast_to(np.eye(2), (3, 1, 2, 2)))
    with pytest.raises(ValueError, match="expected sizes >= 0, got -1"):
        eye(-1)
    with pytest.raises(TypeError, match=r"num_rows: expected an int, got 2\.0"):
        eye(2.0)
