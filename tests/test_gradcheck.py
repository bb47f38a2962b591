"""The gradient checker catches gradients that are wrong."""

import numpy as np
import pytest

from optkit.ops import core
from optkit.ops.array import stop_gradient
from optkit.ops.core import op
from optkit.ops.elementary import exp, sin
from optkit.ops.math import multiply
from tests.gradcheck import check_gradients


@pytest.fixture
def declare(monkeypatch):
    """Declare an op x·y for one test, with the gradient that is given."""

    def with_gradient(rule):
        monkeypatch.setattr(core, "REGISTRY", {})

        @op("Tested")
        def tested(xp, x, y):
            return x * y

        tested.gradient(rule)
        return tested

    return with_gradient


X = np.array([[0.5, -1.5, 2.0], [1.0, 3.0, -0.25]])
Y = np.array([[1.5, 0.5, -1.0], [2.0, 0.75, 1.25]])


def test_right_gradients_pass(declare):
    product = declare(lambda node, dz: (dz * node.inputs[1], dz * node.inputs[0]))
    check_gradients(product, [X, Y], order=2)


@pytest.mark.parametrize("factor", [1.0005, 0.9995, -1.0])
@pytest.mark.parametrize("wrong", [0, 1])
def test_a_gradient_off_by_a_factor_is_caught(declare, factor, wrong):
    factors = [factor if i == wrong else 1.0 for i in range(2)]
    product = declare(
        lambda node, dz: (dz * node.inputs[1] * factors[0], dz * node.inputs[0] * factors[1])
    )
    with pytest.raises(AssertionError, match=f"gradient of input {wrong} differs"):
        check_gradients(product, [X, Y])


def test_one_wrong_element_is_caught(declare):
    factors = np.ones(X.shape)
    factors[1, 2] = 1.0005  # of the smallest derivative that is large enough to matter
    product = declare(lambda node, dz: (dz * node.inputs[1] * factors, dz * node.inputs[0]))
    with pytest.raises(AssertionError, match="gradient of input 0 differs"):
        check_gradients(product, [X, Y])


def test_a_missing_gradient_is_caught(declare):
    product = declare(lambda node, dz: (None, dz * node.inputs[0]))
    with pytest.raises(AssertionError, match="input 0: no gradient"):
        check_gradients(product, [X, Y])


def test_a_wrong_second_derivative_is_caught(declare):
    # Right at first order, but dx is not seen to depend on y.
    product = declare(lambda node, dz: (dz * stop_gradient(node.inputs[1]), dz * node.inputs[0]))
    check_gradients(product, [X, Y])
    with pytest.raises(AssertionError):
        check_gradients(product, [X, Y], order=2)


def test_a_missing_second_derivative_is_caught(declare):
    product = declare(
        lambda node, dz: (dz * stop_gradient(node.inputs[1]), dz * stop_gradient(node.inputs[0]))
    )
    with pytest.raises(AssertionError, match="no gradient"):
        check_gradients(product, [X, Y], order=2)


def test_several_outputs_are_weighted():
    check_gradients(lambda x, y: [sin(x), exp(y), multiply(x, y)], [X, Y], order=2)


def test_integers_are_held_fixed():
    check_gradients(lambda x, _: sin(x), [X, np.arange(3)])
