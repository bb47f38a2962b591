"""Cross entropies: TF's signatures, large logits, labels, second derivatives."""

import math

import numpy as np
import pytest

from optkit.errors import InvalidArgumentError
from optkit.gradients import gradients
from optkit.ops import cross_entropy as ops
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.ops.reductions import reduce_sum
from optkit.runtime.session import Session
from tests.gradcheck import check_gradients

ALL = [
    ops.sigmoid_cross_entropy_with_logits,
    ops.softmax_cross_entropy_with_logits,
    ops.softmax_cross_entropy_with_logits_v2,
    ops.sparse_softmax_cross_entropy_with_logits,
    ops.weighted_cross_entropy_with_logits,
]
DTYPES = pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])


def run(fetches, feed=None):
    return Session().run(fetches, feed)


def gradient(y, x):
    return run(gradients(y, x)[0])


def log_softmax(x):
    return x - np.log(np.sum(np.exp(x), -1, keepdims=True))


# -- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [ALL[0], ALL[1], ALL[3]])
def test_arguments_by_position_are_refused(function):
    x = constant([[1.0, 2.0]])
    with pytest.raises(ValueError, match=f"{function.__name__}: expected labels= and logits= by"):
        function(x, x)


@pytest.mark.parametrize("function", ALL)
def test_missing_arguments_are_refused(function):
    x = constant([[1.0, 2.0]])
    extra = {"pos_weight": 1.0} if function is ALL[4] else {}
    with pytest.raises(ValueError, match=f"{function.__name__}: labels: expected a tensor"):
        function(logits=x, **extra)
    with pytest.raises(ValueError, match=f"{function.__name__}: logits: expected a tensor"):
        function(labels=x, **extra)


@pytest.mark.parametrize("function", [*ALL[:3], ALL[4]])
def test_shapes_must_be_equal(function):
    extra = {"pos_weight": 1.0} if function is ALL[4] else {}
    with pytest.raises(ValueError, match=r"labels, logits: expected one shape, got .*\(2, 3\)"):
        function(labels=constant(np.ones((2, 3))), logits=constant(np.ones((1, 3))), **extra)


@pytest.mark.parametrize("function", ALL[:3])
def test_dtypes_must_be_equal(function):
    x = constant([[1.0, 2.0]])
    with pytest.raises(TypeError, match=r"labels: expected float32, got .*float64"):
        function(labels=constant([[0.0, 1.0]], "float64"), logits=x)


@pytest.mark.parametrize("function", ALL[:3])
def test_plain_labels_take_the_dtype_of_the_logits(function):
    y = function(labels=[[0, 1]], logits=constant([[1.0, 2.0]], "float64"))
    assert y.dtype == "float64"


def test_names():
    x, label = constant([[1.0, 2.0]]), constant([0])
    given = {"labels": x, "logits": x}
    assert ALL[0](**given).op.name == "logistic_loss"
    assert ALL[1](**given).op.name == "softmax_cross_entropy_with_logits"
    sparse = ALL[3](labels=label, logits=x)
    assert sparse.op.name == "SparseSoftmaxCrossEntropyWithLogits"
    for function in ALL[:3]:
        assert function(**given, name="mine").op.name.startswith("mine")


def test_the_axis_of_the_classes():
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal((2, 3)), np.eye(3)[[2, 0]]
    expected = -np.sum(z * log_softmax(x), -1)
    for y in (
        ALL[1](labels=z, logits=constant(x)),
        ALL[1](labels=z.T, logits=constant(x.T), dim=0),
        ALL[1](labels=z.T, logits=constant(x.T), axis=0),
        ALL[2](labels=z, logits=constant(x)),
        ALL[2](z.T, constant(x.T), 0),
        ALL[2](labels=z.T, logits=constant(x.T), dim=0),
    ):
        assert y.sizes == (2,)
        np.testing.assert_allclose(run(y), expected, rtol=1e-12)
    with pytest.raises(ValueError, match=r"axis: expected one in \[-2, 2\), got 5"):
        ALL[2](labels=z, logits=constant(x), axis=5)


def test_static_shapes():
    logits = placeholder("float32", [None, 5])
    assert ALL[1](labels=logits, logits=logits).shape.as_list() == [None]
    unknown = placeholder("float32", None)
    assert ALL[2](labels=logits, logits=unknown).shape.as_list() == [None]
    assert ALL[2](labels=unknown, logits=unknown).shape.ndims is None
    label = placeholder("int32", [7])
    assert ALL[3](labels=label, logits=logits).shape.as_list() == [7]
    assert ALL[3](labels=label, logits=unknown).shape.as_list() == [7]


# -- large logits ---------------------------------------------------------------------------------


@DTYPES
def test_large_logits_of_independent_classes(dtype):
    x = constant([1e4, 1e4, -1e4, -1e4, 0.0], dtype)
    z = constant([1.0, 0.0, 1.0, 0.0, 0.5], dtype)
    y = ALL[0](labels=z, logits=x)
    np.testing.assert_allclose(run(y), [0, 1e4, 1e4, 0, math.log(2)], rtol=1e-3)
    np.testing.assert_allclose(gradient(y, x), [0, 1, -1, 0, 0], atol=1e-6)
    np.testing.assert_allclose(gradient(y, z), [-1e4, -1e4, 1e4, 1e4, 0], rtol=1e-3)
    weighted = ALL[4](labels=z, logits=x, pos_weight=2.0)
    np.testing.assert_allclose(run(weighted), [0, 1e4, 2e4, 0, 1.5 * math.log(2)], rtol=1e-3)
    np.testing.assert_allclose(gradient(weighted, x), [0, 1, -2, 0, -0.25], atol=1e-6)


@DTYPES
def test_large_logits_of_exclusive_classes(dtype):
    x = constant([[1e4, -1e4, 0.0], [1e4, -1e4, 0.0], [1e4, 1e4, 1e4]], dtype)
    labels = [0, 1, 2]
    z = constant(np.eye(3)[labels], dtype)
    expected = [0.0, 2e4, math.log(3)]
    slopes = [[0, 0, 0], [1, -1, 0], [1 / 3, 1 / 3, -2 / 3]]
    for y in (ALL[2](labels=z, logits=x), ALL[3](labels=labels, logits=x)):
        assert y.dtype == dtype
        np.testing.assert_allclose(run(y), expected, rtol=1e-3)
        np.testing.assert_allclose(gradient(y, x), slopes, rtol=1e-3, atol=1e-6)
    assert np.isfinite(gradient(ALL[2](labels=z, logits=x), z)).all()


# -- gradients ------------------------------------------------------------------------------------


def test_labels_get_a_gradient_from_v2_alone():
    x, z = constant([[1.0, 2.0]]), constant([[0.25, 0.75]])
    assert gradients(ALL[1](labels=z, logits=x), z) == [None]
    dz = gradient(ALL[2](labels=z, logits=x), z)
    np.testing.assert_allclose(dz, -log_softmax(np.array([[1.0, 2.0]])), rtol=1e-6)
    assert gradients(ALL[1](labels=z, logits=x), x) != [None]


def test_the_gradient_of_the_logits_is_that_for_labels_that_sum_to_one():
    x, z = constant([[0.0, 0.0]]), constant([[1.0, 1.0]])
    np.testing.assert_allclose(gradient(ALL[2](labels=z, logits=x), x), [[-0.5, -0.5]])


@pytest.mark.parametrize("sparse", [True, False])
def test_curvature(sparse):
    x = np.random.default_rng(0).standard_normal((2, 3))
    labels = np.array([2, 0])

    def loss(t):
        if sparse:
            return ALL[3](labels=labels, logits=t)
        return ALL[2](labels=np.eye(3)[labels], logits=t)

    check_gradients(loss, [x], order=2)
    tensor = constant(x)
    (dx,) = gradients(reduce_sum(loss(tensor)), tensor)
    hessian = np.stack([run(gradients(dx[0, i], tensor)[0])[0] for i in range(3)])
    p = np.exp(log_softmax(x))[0]
    np.testing.assert_allclose(hessian, np.diag(p) - np.outer(p, p), rtol=1e-6, atol=1e-12)


def test_weighted_cross_entropy_is_checked_like_an_op():
    rng = np.random.default_rng(0)
    z, x, weight = rng.uniform(0, 1, (2, 3)), rng.standard_normal((2, 3)), np.array([1.0, 2.0, 3.0])

    def loss(labels, logits, weights):
        return ALL[4](labels=labels, logits=logits, pos_weight=weights)

    value = run(loss(constant(z), constant(x), constant(weight)))
    expected = weight * z * np.log1p(np.exp(-x)) + (1 - z) * np.log1p(np.exp(x))
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    check_gradients(loss, [z, x, weight], order=2)
    old = ALL[4](targets=z, logits=constant(x), pos_weight=constant(weight))
    np.testing.assert_array_equal(run(old), value)


@pytest.mark.parametrize("rows", [None, 2, 2000])
def test_no_more_is_computed_than_first_derivatives_need(graph, rows):
    x = placeholder("float32", [rows, 3])
    loss = ALL[3](labels=placeholder("int32", [rows]), logits=x)
    before = graph.version
    gradients(loss, x)
    types = [op.type for op in graph.get_operations()[before:]]
    assert "Softmax" not in types


# -- labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", [3, -1])
def test_labels_that_are_no_class_are_refused(label):
    loss = ALL[3](labels=[0, label], logits=constant(np.ones((2, 3))))
    with pytest.raises(InvalidArgumentError, match=rf"labels: expected .*\[0, 3\), got {label} at"):
        run(loss)


@pytest.mark.parametrize(
    ("labels", "logits", "message"),
    [
        ([[0, 1]], np.ones((2, 3)), "labels: expected one axis fewer than the logits"),
        ([0, 1, 2], np.ones((2, 3)), "labels: expected the shape of the logits without the last"),
        (0, np.ones(()), "logits: expected at least one axis"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels, logits, message):
    with pytest.raises(ValueError, match=message):
        ALL[3](labels=labels, logits=constant(logits))


def test_labels_are_whole():
    with pytest.raises(TypeError, match=r"labels: expected one of int32, int64, got float32"):
        ALL[3](labels=constant([0.0]), logits=constant([[1.0, 2.0]]))


def test_no_rows():
    x = placeholder("float32", [None, 3])
    feed = {x: np.zeros((0, 3))}
    labels = placeholder("int64", [None])
    loss = ALL[3](labels=labels, logits=x)
    values = run([loss, gradients(loss, x)[0]], {**feed, labels: np.zeros(0, "int64")})
    assert [value.shape for value in values] == [(0,), (0, 3)]
