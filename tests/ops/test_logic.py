"""Comparison and logic: operators, dtypes, errors."""

import numpy as np
import pytest

from optkit.gradients import gradients
from optkit.ops import logic
from optkit.ops.core import constant
from optkit.ops.math import cast
from optkit.runtime.session import Session

A, B = [True, True, False, False], [True, False, True, False]


@pytest.mark.parametrize(
    ("build", "name", "expected"),
    [
        (lambda a, b: a & b, "and", [True, False, False, False]),
        (lambda a, b: a | b, "or", [True, True, True, False]),
        (lambda a, b: a ^ b, "xor", [False, True, True, False]),
        (lambda a, _: ~a, "LogicalNot", [False, False, True, True]),
        (logic.logical_and, "LogicalAnd", [True, False, False, False]),
    ],
)
def test_logic(build, name, expected):
    y = build(constant(A), constant(B))
    assert y.op.name == name
    assert Session().run(y).tolist() == expected


@pytest.mark.parametrize("build", [lambda a: B & a, lambda a: B | a, lambda a: np.array(B) ^ a])
def test_logic_with_plain_values_on_the_left(build):
    expected = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
    y = build(constant(A))
    assert Session().run(y).tolist() == expected[y.op.name](A, B).tolist()


def test_logic_is_of_truth_values():
    with pytest.raises(TypeError, match=r"LogicalAnd 'and': x: expected one of bool, got int32"):
        constant(1) & constant(2)
    with pytest.raises(TypeError, match=r"LogicalNot 'LogicalNot': x: expected one of bool"):
        ~constant(1)


def test_equality_of_tensors_is_identity_and_of_values_a_function():
    x, y = constant([1.0, 2.0]), constant([1.0, 3.0])
    assert (x == y) is False
    assert (x != y) is True
    assert Session().run(logic.equal(x, y)).tolist() == [True, False]
    assert Session().run(np.not_equal(x, y)).tolist() == [False, True]


def test_text_is_compared():
    words = constant(["a", "b"])
    assert Session().run(logic.equal(words, "a")).tolist() == [True, False]
    assert Session().run(logic.not_equal(words, constant("a"))).tolist() == [False, True]
    scalar = Session().run(logic.equal(constant("a"), "a"))
    assert scalar.dtype == bool
    assert scalar
    with pytest.raises(TypeError, match=r"Less 'Less': x: expected one of .*got string"):
        logic.less(constant("a"), "b")


def test_comparisons_have_no_gradient():
    x = constant([1.0, 2.0])
    assert gradients(cast(x > 1.5, "float32") + cast(logic.is_finite(x), "float32"), x) == [None]
