"""The global step: finding, making and checking it."""

import pytest

from optkit.errors import ValueOrTypeError
from optkit.global_step import (
    assert_global_step,
    create_global_step,
    get_global_step,
    get_or_create_global_step,
    global_step,
)
from optkit.graph import Graph, GraphKeys
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.runtime.session import Session
from optkit.variable_scope import get_variable, variable_scope
from optkit.variables import Variable, global_variables, trainable_variables


def test_there_is_none_at_first():
    assert get_global_step() is None


def test_it_is_made_once(graph):
    step = get_or_create_global_step()
    assert get_or_create_global_step() is get_global_step() is step
    assert (step.name, step.dtype.name, step.shape) == ("global_step:0", "int64", [])
    assert graph.get_collection(GraphKeys.GLOBAL_STEP) == global_variables() == [step]
    assert trainable_variables() == []


def test_a_second_one_is_refused():
    create_global_step()
    with pytest.raises(ValueError, match=r"has one already: .*'global_step:0'"):
        create_global_step()


def test_the_variable_scope_is_part_of_its_name(graph):
    with graph.name_scope("n"), variable_scope("foo"):
        assert create_global_step().name == "foo/global_step:0"


def test_reuse_does_not_matter():
    with variable_scope("foo", reuse=True):
        assert get_or_create_global_step().name == "foo/global_step:0"


def test_of_another_graph():
    other = Graph()
    step = create_global_step(other)
    assert step.graph is other
    assert get_global_step(other) is get_or_create_global_step(other) is step
    assert get_global_step() is None


def test_without_the_collection_the_name_counts():
    step = Variable(3, name="global_step", trainable=False)
    assert get_global_step() is step
    with pytest.raises(ValueError, match="has one already"):
        create_global_step()


def test_a_tensor_may_be_it(graph):
    step = constant(3, name="global_step")
    assert get_global_step() is step
    graph.add_to_collection(GraphKeys.GLOBAL_STEP, constant(4))
    assert get_global_step() is not step


def test_several_are_none_and_an_error_in_the_log(graph, caplog):
    for _ in range(2):
        graph.add_to_collection(GraphKeys.GLOBAL_STEP, constant(4))
    assert get_global_step() is None
    ((name, _, message),) = caplog.record_tuples
    assert name == "optkit"
    assert "expected one item in the collection 'global_step'" in message


def test_its_value_is_a_python_int():
    step = create_global_step()
    with Session() as session:
        session.run(step.initializer)
        session.run(step.assign_add(41))
        value = global_step(session, step)
    assert (value, type(value)) == (41, int)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_integers_pass(dtype):
    assert_global_step(get_variable("x", [], dtype))
    assert_global_step(constant(1, dtype))


def test_a_shape_that_is_not_known_passes():
    assert_global_step(placeholder("int64"))
    assert_global_step(placeholder("int64", [None]))


@pytest.mark.parametrize(
    ("message", "make"),
    [
        ("expected a Variable or a Tensor, got None", lambda: None),
        ("expected a Variable or a Tensor, got 3", lambda: 3),
        ("expected an integer dtype, got .*'x:0'", lambda: Variable(1.0, name="x")),
        (r"expected shape \(\), got .*'x:0'", lambda: constant([1], name="x")),
    ],
)
@pytest.mark.parametrize("kind", [ValueError, TypeError, ValueOrTypeError])
def test_what_cannot_be_one(message, make, kind):
    with pytest.raises(kind, match=f"global_step: {message}"):
        assert_global_step(make())


def test_a_bad_one_is_refused_where_it_is_found():
    Variable(1.0, name="global_step")
    with pytest.raises(ValueOrTypeError, match="expected an integer dtype"):
        get_or_create_global_step()
