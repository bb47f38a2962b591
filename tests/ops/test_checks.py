"""Print, Assert and the assert_ functions."""

import numpy as np
import pytest

from optkit.errors import InvalidArgumentError
from optkit.gradients import gradients
from optkit.graph import get_default_graph
from optkit.ops import checks
from optkit.ops.array import identity, placeholder
from optkit.ops.core import constant
from optkit.runtime.eager import eager
from optkit.runtime.session import Session


def test_print_shows_data_each_time_it_runs(capfd):
    x = placeholder("float32", [None])
    y = checks.Print(x, [x, "text"], "x: ", first_n=3, summarize=2)
    session = Session()
    for _ in range(4):
        np.testing.assert_array_equal(session.run(y, {x: [1, 2, 3]}), [1, 2, 3])
    out, err = capfd.readouterr()
    assert out == ""
    assert err == "x: [1.0 2.0 ...]text\n" * 3


def test_print_of_a_constant_waits_for_the_run(capfd):
    y = checks.Print(constant(2), [constant(3)])
    from optkit.ops.core import constant_value

    assert constant_value(y) is None
    assert capfd.readouterr().err == ""
    session = Session()
    for _ in range(3):
        session.run(y)
    assert capfd.readouterr().err == "[3]\n" * 3


def test_print_passes_gradients_on():
    x = placeholder("float32", [])
    y = checks.Print(x * x, [x, x], summarize=-1)
    (dx,) = gradients(y, [x])
    assert Session().run(dx, {x: 3}) == 6
    with pytest.raises(TypeError, match="data: expected a list of tensors"):
        checks.Print(x, x)


def test_assert_fails_where_it_is_waited_for():
    x = placeholder("float32", [2])
    check = checks.Assert(x[0] > 0, ["x =", x])
    with get_default_graph().control_dependencies([check]):
        y = identity(x)
    session = Session()
    for _ in range(3):
        np.testing.assert_array_equal(session.run(y, {x: [1, 2]}), [1, 2])
    with pytest.raises(InvalidArgumentError, match=r"assertion failed: x = \[-1.0 2.0\]") as caught:
        session.run(y, {x: [-1, 2]})
    assert "test_checks.py" in str(caught.value)


COMPARISONS = [
    (checks.assert_equal, "==", [1, 2], [1, 3]),
    (checks.assert_none_equal, "!=", [0, 3], [0, 2]),
    (checks.assert_less, "<", [0, 1], [1, 1]),
    (checks.assert_less_equal, "<=", [1, 2], [2, 2]),
    (checks.assert_greater, ">", [2, 3], [2, 2]),
    (checks.assert_greater_equal, ">=", [1, 2], [0, 2]),
]


@pytest.mark.parametrize(("check", "words", "good", "bad"), COMPARISONS)
def test_comparisons(check, words, good, bad):
    x = placeholder("int32", [2])
    op = check(x, [1, 2], message="sizes")
    session = Session()
    assert session.run(op, {x: good}) is None
    with pytest.raises(InvalidArgumentError, match=f"sizes: expected x {words} y") as caught:
        session.run(op, {x: bad})
    assert "test_checks.py" in str(caught.value)
    check(good, [1, 2])
    with pytest.raises(InvalidArgumentError, match=f"expected x {words} y, got x = "):
        check(bad, [1, 2])


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (checks.assert_positive, [1.0], [0.0]),
        (checks.assert_negative, [-1.0], [0.0]),
        (checks.assert_non_negative, [0.0], [-1.0]),
        (checks.assert_non_positive, [0.0], [1.0]),
    ],
)
def test_signs(check, good, bad):
    x = placeholder("float32", [1])
    op = check(x)
    Session().run(op, {x: good})
    with pytest.raises(InvalidArgumentError, match="assertion failed"):
        Session().run(op, {x: bad})
    with pytest.raises(InvalidArgumentError, match="expected x"):
        check(bad)


def test_ranks_and_types():
    x = placeholder("float32")
    exact, least = checks.assert_rank(x, 1), checks.assert_rank_at_least(x, 1)
    session = Session()
    session.run([exact, least], {x: [1.0]})
    session.run(least, {x: [[1.0]]})
    with pytest.raises(InvalidArgumentError, match="expected a rank == that given"):
        session.run(exact, {x: 1.0})
    with pytest.raises(InvalidArgumentError, match="expected a rank >= that given"):
        session.run(least, {x: 1.0})
    with pytest.raises(ValueError, match="why: expected a rank == 2, got"):
        checks.assert_rank([1.0], 2, message="why")
    with pytest.raises(ValueError, match="rank: expected an int"):
        checks.assert_rank([1.0], 1.5)
    with pytest.raises(ValueError, match="expected a scalar"):
        checks.assert_scalar([1.0])
    assert checks.assert_scalar(1.0).shape == []
    checks.assert_type(1.0, "float32")
    with pytest.raises(TypeError, match="expected int32, got"):
        checks.assert_type(1.0, "int32")


def test_finite():
    x = placeholder("float32", [2])
    y = checks.verify_tensor_all_finite(x, "x is bad")
    np.testing.assert_array_equal(Session().run(y, {x: [1, 2]}), [1, 2])
    with pytest.raises(InvalidArgumentError, match="x is bad"):
        Session().run(y, {x: [1, np.nan]})


def test_eager_mode(capfd):
    with eager():
        checks.assert_equal([1], [1])
        with pytest.raises(InvalidArgumentError, match="expected x < y"):
            checks.assert_less(constant(2), 1)
        with pytest.raises(InvalidArgumentError, match="assertion failed: no"):
            checks.Assert(constant(False), ["no"])
        checks.Print(constant(1), [2])
    assert capfd.readouterr().err == "[2]\n"
