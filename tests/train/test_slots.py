"""Slots: names, shapes, and independence of the scopes they are made in.

The names are those that TensorFlow 2.21 gives in v1 graph mode.
"""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from optkit.graph import Graph, GraphKeys
from optkit.initializers import Constant, Ones
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.ops.reductions import reduce_sum
from optkit.runtime.session import Session
from optkit.train.slots import create_slot, create_zeros_slot
from optkit.variable_scope import get_variable, variable_scope
from optkit.variables import (
    Variable,
    global_variables,
    global_variables_initializer,
    trainable_variables,
)


def initial(slot, feed_dict=None):
    with Session() as session:
        session.run(global_variables_initializer(), feed_dict)
        return session.run(slot)


def test_names(graph):
    w = Variable([1.0, 2.0], name="w")
    assert create_slot(w, constant([1.0, 2.0]), "A").name == "w/A:0"
    assert create_zeros_slot(w, "A").name == "w/A_1:0"
    with variable_scope("o"):
        assert create_zeros_slot(w, "A").name == "o/w/A:0"
        assert create_zeros_slot(w, "A").name == "o/w/A_1:0"
        x = get_variable("x", [1])
        assert create_zeros_slot(x, "A").name == "o/o/x/A:0"
    with graph.name_scope("n"):
        assert create_zeros_slot(w, "A").name == "w/A_2:0"
    assert create_zeros_slot(x, "A").name == "o/x/A:0"
    assert create_zeros_slot(w * 2.0, "A").name == "mul/A:0"


def test_a_scope_entered_twice_does_not_clash():
    w = Variable(1.0, name="w")
    names = []
    for _ in range(2):
        with variable_scope("o"):
            names.append(create_zeros_slot(w, "A").name)
    assert names == ["o/w/A:0", "o/w/A_1:0"]


def test_scopes_play_no_part_but_for_the_name(graph):
    w = Variable(1.0, name="w")

    def getter(getter, **kwargs):
        raise AssertionError("slots are not got")

    with variable_scope("o", custom_getter=getter, regularizer=reduce_sum, reuse=True):
        slot = create_zeros_slot(w, "A")
    assert slot.name == "o/w/A:0"
    assert graph.get_collection(GraphKeys.REGULARIZATION_LOSSES) == []


def test_slots_are_global_and_not_trained():
    w = Variable(1.0)
    slot = create_zeros_slot(w, "A")
    assert global_variables() == [w, slot]
    assert trainable_variables() == [w]


@pytest.mark.parametrize(
    ("val", "arguments", "expected"),
    [
        (Ones(), {}, np.ones(2, np.float16)),
        (Ones(), {"dtype": "float64"}, np.ones(2)),
        (Constant(0.5), {"shape": ()}, np.float16(0.5)),
        (lambda shape, dtype: np.full(shape, 3, dtype), {}, np.full(2, 3, np.float16)),
        ([1.0, 2.0], {}, np.float16([1.0, 2.0])),
        (7, {}, np.float16(7.0)),
    ],
)
def test_values(val, arguments, expected):
    w = Variable(np.float16([1.0, 2.0]))
    slot = create_slot(w, val, "A", **arguments)
    assert slot.sizes == expected.shape
    result = initial(slot)
    assert result.dtype == expected.dtype
    assert_array_equal(result, expected)


def test_a_tensor_keeps_its_dtype():
    w = Variable([1.0, 2.0], name="w")
    slot = create_slot(w, constant([3, 4]), "A")
    assert slot.dtype.name == "int32"
    assert_array_equal(initial(slot), [3, 4])
    with pytest.raises(ValueError, match="'w/B': initial_value: expected float64"):
        create_slot(w, constant([3, 4]), "B", dtype="float64")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_zeros_have_the_dtype_of_the_primary(dtype):
    w = Variable(np.ones((2, 3), dtype))
    slot = create_zeros_slot(w, "A")
    assert slot.sizes == (2, 3)
    assert_array_equal(initial(slot), np.zeros((2, 3), dtype), strict=True)
    assert create_zeros_slot(w, "A", "float32").dtype.name == "float32"


def test_a_copy_of_the_primary_starts_as_it_does():
    w = Variable([1.0, 2.0])
    assert_array_equal(initial(create_slot(w, w.initialized_value(), "A")), [1.0, 2.0])


def test_an_open_shape_is_the_primarys_when_initialised():
    w = Variable([1.0, 2.0], validate_shape=False)
    slot = create_zeros_slot(w, "A")
    assert slot.shape.ndims is None
    assert_array_equal(initial(slot), [0.0, 0.0])


def test_a_tensor_of_a_shape_known_late():
    x = placeholder("float32", [None])
    slot = create_zeros_slot(x, "A")
    assert_array_equal(initial(slot, {x: [1.0, 2.0, 3.0]}), np.zeros(3, np.float32))


def test_control_dependencies_do_not_reach_it(graph):
    w = Variable(1.0)
    with graph.control_dependencies([w.assign(2.0)]):
        slot = create_slot(w, Ones(), "A")
    assert not slot.initializer.control_inputs
    assert initial(w) == 1.0


def test_it_is_made_in_the_graph_of_its_primary():
    w = Variable(1.0)
    with Graph().as_default():
        assert create_zeros_slot(w, "A").graph is w.graph
