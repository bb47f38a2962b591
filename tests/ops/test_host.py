"""py_func: Python functions as operations."""

import numpy as np
import pytest

from optkit.errors import InvalidArgumentError
from optkit.gradients import gradients
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.ops.host import py_func
from optkit.runtime.eager import eager
from optkit.runtime.session import Session


def test_one_result_and_several():
    x = placeholder("float32", [2])
    one = py_func(lambda a: a * 2, [x], "float32")
    assert one.shape.ndims is None
    several = py_func(lambda a: (a.sum(), a.astype(np.int64)), [x], ["float32", "int64"])
    session = Session()
    for _ in range(3):
        values = session.run([one, *several], {x: [1, 2]})
        for value, expected in zip(values, [[2, 4], 3, [1, 2]], strict=True):
            np.testing.assert_array_equal(value, expected)
    assert gradients(one, [x]) == [None]


def test_a_stateful_function_is_called_each_run():
    calls = []
    count = py_func(lambda x: calls.append(1) or np.int64(len(calls)), [constant(1)], "int64")
    session = Session()
    assert [session.run(count) for _ in range(4)] == [1, 2, 3, 4]
    fixed = py_func(lambda: np.float32(7), [], "float32", stateful=False)
    assert [session.run(fixed) for _ in range(3)] == [7, 7, 7]


def test_without_results_it_is_an_operation():
    seen = []
    op = py_func(lambda x: seen.append(x.tolist()), [constant([1, 2])], [])
    session = Session()
    for _ in range(3):
        assert session.run(op) is None
    assert seen == [[1, 2]] * 3


def test_the_function_may_change_its_arrays():
    def double(x):
        x *= 2
        return x

    x = placeholder("float32", [1])
    doubled = py_func(double, [x], "float32")
    y, z = Session().run([doubled, x + 0], {x: [3]})
    assert (y, z) == (6, 3)


def test_texts():
    y = py_func(lambda x: x.decode() + "!", [constant("a")], "string")
    assert Session().run(y) == b"a!"


def test_mistakes_name_the_line():
    x = constant([1.0])
    session = Session()
    with pytest.raises(InvalidArgumentError, match="expected float32 for value 0") as caught:
        session.run(py_func(lambda x: x.astype(np.float64), [x], "float32"))
    assert "test_host.py" in str(caught.value)
    with pytest.raises(InvalidArgumentError, match="func: expected 2 values"):
        session.run(py_func(lambda x: x, [x], ["float32", "float32"]))
    with pytest.raises(InvalidArgumentError, match="ValueError: mine") as caught:
        session.run(py_func(lambda x: _fail(), [x], "float32"))
    assert "test_host.py" in str(caught.value)
    with pytest.raises(TypeError, match="func: expected a function"):
        py_func(3, [x], "float32")
    with pytest.raises(TypeError, match="inp: expected a list"):
        py_func(abs, x, "float32")


def _fail():
    raise ValueError("mine")


def test_eager_mode():
    with eager():
        assert py_func(lambda x: x + 1, [constant(1.0)], "float32").numpy() == 2
        first, second = py_func(lambda: (np.int32(1), np.int32(2)), [], ["int32", "int32"])
        assert (first.numpy(), second.numpy()) == (1, 2)
