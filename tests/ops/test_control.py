"""Groups, control dependencies, cond and case: what runs, what flows, what is refused.

The ops are NoOp, Merge and FirstTrue.
"""

from typing import NamedTuple

import numpy as np
import pytest

from optkit.dtypes import float32
from optkit.errors import InvalidArgumentError
from optkit.gradients import gradients
from optkit.graph import IndexedSlices, Operation, Tensor
from optkit.ops import state
from optkit.ops.array import identity, placeholder
from optkit.ops.control import case, cond, group, merge, no_op, tuple_, with_dependencies
from optkit.ops.core import constant
from optkit.ops.indexing import gather
from optkit.ops.math import check_numerics
from optkit.ops.sparse import densify
from optkit.runtime.eager import eager
from optkit.runtime.session import Session
from optkit.variables import Variable


@pytest.fixture
def session():
    return Session()


def counters(session, *values):
    """Variables that hold the values."""
    made = [Variable(float(value), name="v") for value in values]
    session.run([v.initializer for v in made])
    return made


# -- order ----------------------------------------------------------------------------------------


def test_group_runs_all_it_is_given(session):
    a, b = counters(session, 0, 0)
    both = group([state.assign(a.op, 1.0), {"b": state.assign(b.op, 2.0).op}], name="both")
    assert isinstance(both, Operation)
    assert both.name == "both"
    assert both.type == "NoOp"
    assert session.run(both) is None
    assert session.run([a, b]) == [1, 2]


def test_group_of_nothing(session):
    assert session.run(group({1: no_op(), "a": []})) is None
    assert session.run([group(), no_op("idle")]) == [None, None]


def test_group_refuses_what_cannot_run():
    with pytest.raises(TypeError, match=r"inputs: expected operations or tensors, got 3\.0"):
        group(no_op(), 3.0)


def test_tuple_waits_for_all(session):
    a, b = counters(session, 1, 2)
    write = state.assign(b.op, 20.0)
    x, none, y = tuple_([identity(a), None, write], control_inputs=[no_op()])
    assert none is None
    assert session.run(x) == 1  # and with it ran the write
    assert session.run(b) == 20
    assert session.run(y) == 20


def test_tuple_keeps_slices_and_operations(session):
    slices = IndexedSlices(constant([1.0]), constant([2]), constant([4]))
    op = no_op()
    kept, same = tuple_([slices, op])
    assert isinstance(kept, IndexedSlices)
    np.testing.assert_array_equal(session.run(kept).indices, [2])
    assert same is op
    with pytest.raises(ValueError, match="tensors: expected at least one"):
        tuple_([None])


def test_with_dependencies_runs_them_first(session):
    (a,) = counters(session, 1)
    x = with_dependencies([state.assign(a.op, 5.0)], constant(3.0), name="after")
    assert x.name == "after:0"
    assert session.run(x) == 3
    assert session.run(a) == 5


# -- cond: what runs ------------------------------------------------------------------------------


def test_cond_gives_the_value_of_the_side_taken(session):
    p = placeholder("bool", [])
    y = cond(p, lambda: constant(1.0), lambda: constant(2.0))
    assert y.op.type == "Merge"
    assert y.name == "cond/Merge:0"
    assert session.run(y, {p: True}) == 1
    assert session.run(y, {p: False}) == 2


def test_cond_has_the_side_effects_of_the_side_taken_only(session):
    a, b = counters(session, 0, 0)
    p = placeholder("bool", [])
    y = cond(p, lambda: state.assign_add(a.op, 1.0), lambda: state.assign_add(b.op, 10.0))
    for taken in (True, False, False):
        session.run(y, {p: taken})
    assert session.run([a, b]) == [1, 20]


def test_cond_does_not_run_what_would_fail(session):
    x = placeholder("float32", [])
    y = cond(x > 0, lambda: check_numerics(x / 0, "bad"), lambda: x)
    assert session.run(y, {x: -1.0}) == -1
    with pytest.raises(InvalidArgumentError, match="bad"):
        session.run(y, {x: 1.0})


def test_what_was_built_before_cond_always_runs(session):
    (a,) = counters(session, 0)
    p = placeholder("bool", [])
    outside = state.assign_add(a.op, 1.0)
    y = cond(p, lambda: identity(outside), lambda: constant(0.0))
    session.run(y, {p: False})
    assert session.run(a) == 1


def test_operations_and_none_become_an_operation(session):
    a, b = counters(session, 0, 0)
    p = placeholder("bool", [])
    done = cond(p, lambda: group(state.assign(a.op, 1.0)), no_op)
    either = cond(p, lambda: state.assign(b.op, 3.0).op, lambda: group(state.assign(b.op, 4.0)))
    nothing = cond(p, lambda: None, lambda: None)
    for op in (done, either, nothing):
        assert isinstance(op, Operation)
    session.run([done, either, nothing], {p: False})
    assert session.run([a, b]) == [0, 4]
    session.run([done, either], {p: True})
    assert session.run([a, b]) == [1, 3]


def test_nested_conds(session):
    p, q = placeholder("bool", []), placeholder("bool", [])
    (a,) = counters(session, 0)

    def inner():
        return cond(q, lambda: state.assign_add(a.op, 1.0), lambda: state.assign_add(a.op, 10.0))

    y = cond(p, inner, lambda: constant(-1.0))
    assert session.run(y, {p: True, q: True}) == 1
    assert session.run(y, {p: True, q: False}) == 11
    assert session.run(y, {p: False, q: True}) == -1
    assert session.run(a) == 11


def test_a_predicate_inside_a_branch_is_not_run_outside_it(session):
    x, p = placeholder("float32", []), placeholder("bool", [])

    def inner():
        return cond(check_numerics(1 / x, "bad") > 0, lambda: constant(1.0), lambda: constant(2.0))

    y = cond(p, inner, lambda: constant(3.0))
    assert session.run(y, {p: False, x: 0.0}) == 3
    assert session.run(y, {p: True, x: -1.0}) == 2


def test_what_a_branch_built_cannot_be_used_outside():
    p = placeholder("bool", [])
    kept = []

    def branch():
        kept.append(constant(1.0))
        return kept[0]

    cond(p, branch, lambda: constant(2.0))
    with pytest.raises(ValueError, match="was built inside a cond branch and is used outside it"):
        identity(kept[0])


def test_what_was_not_taken_cannot_be_fetched(session):
    p = placeholder("bool", [])
    kept = []

    def branch():
        kept.append(constant(1.0))
        return kept[0]

    cond(p, branch, lambda: constant(2.0))
    assert session.run(kept[0], {p: True}) == 1
    with pytest.raises(InvalidArgumentError, match="branch that was not taken"):
        session.run(kept[0], {p: False})


def test_reads_in_a_branch_see_its_writes(session):
    (a,) = counters(session, 1)
    p = placeholder("bool", [])

    def write():
        from optkit.graph import get_default_graph

        with get_default_graph().control_dependencies([state.assign(a.op, 5.0)]):
            return identity(a)

    y = cond(p, write, lambda: identity(a))
    assert session.run(y, {p: False}) == 1
    assert session.run(y, {p: True}) == 5


# -- cond: structures -----------------------------------------------------------------------------


class Pair(NamedTuple):
    """Two values."""

    a: object
    b: object


@pytest.mark.parametrize(
    "structure",
    [
        lambda x: [x, x * 2],
        lambda x: (x, [x * 2, {"k": x, "j": -x}]),
        lambda x: {"b": x, "a": [x]},
        lambda x: Pair(x, (x,)),
        lambda x: [],
    ],
)
def test_structures_are_kept(structure, session):
    p, x = placeholder("bool", []), placeholder("float32", [])
    y = cond(p, lambda: structure(x), lambda: structure(x + 1))
    assert session.run(y, {p: True, x: 3.0}) == structure(3.0)
    assert session.run(y, {p: False, x: 3.0}) == structure(4.0)
    assert type(y) is type(structure(3.0))


def test_single_values_are_unpacked_unless_strict(session):
    p = placeholder("bool", [])
    assert isinstance(cond(p, lambda: [constant(1.0)], lambda: [constant(2.0)]), Tensor)
    kept = cond(p, lambda: [constant(1.0)], lambda: [constant(2.0)], strict=True)
    assert session.run(kept, {p: True}) == [1]


def test_numbers_and_slices_are_values(session):
    p = placeholder("bool", [])
    y, slices = cond(
        p,
        lambda: (1.5, IndexedSlices(constant([1.0]), constant([2]), constant([4]))),
        lambda: (2.5, IndexedSlices(constant([3.0, 4.0]), constant([0, 0]), constant([4]))),
    )
    assert y.dtype == float32
    value = session.run([y, slices], {p: False})
    assert value[0] == 2.5
    np.testing.assert_array_equal(value[1].values, [3, 4])
    np.testing.assert_array_equal(session.run(densify(slices), {p: True}), [0, 0, 1, 0])
    open_slices = cond(
        p,
        lambda: IndexedSlices(constant([1.0]), constant([2])),
        lambda: IndexedSlices(constant([1.0]), constant([2]), constant([4])),
    )
    assert open_slices.dense_shape is None


@pytest.mark.parametrize(
    ("first", "second", "after"),
    [([2, 3], [2, 3], [2, 3]), ([2, 3], [2, 4], [2, None]), ([2], [2, 3], None), (None, [2], None)],
)
def test_the_static_shape_is_what_both_sides_have(first, second, after):
    x, y = placeholder("float32", first), placeholder("float32", second)
    found = cond(placeholder("bool", []), lambda: x, lambda: y).shape
    assert found.sizes == (None if after is None else tuple(after))


@pytest.mark.parametrize(
    ("first", "second", "error", "message"),
    [
        (lambda: 1.0, lambda: 1, ValueError, r"different dtypes: .*float32.* and .*int32"),
        (lambda: [1.0, 2.0], lambda: (1.0, 2.0), TypeError, "a list of 2 against a tuple of 2"),
        (lambda: [1.0, 2.0], lambda: [1.0] * 3, ValueError, "2 values against 3"),
        (lambda: {"a": 1.0}, lambda: {"b": 1.0}, ValueError, r"keys \['a'\] against \['b'\]"),
        (lambda: [1.0, 2.0], lambda: 1.0, TypeError, "a list of 2 against"),
        (lambda: None, lambda: 1.0, TypeError, r"an operation \(or None\) against <optkit.Tensor"),
        (no_op, lambda: 1.0, TypeError, "against"),
        (lambda: "text", lambda: 1.0, ValueError, "different dtypes"),
    ],
)
def test_results_that_do_not_match_are_refused(first, second, error, message):
    with pytest.raises(error, match=message):
        cond(placeholder("bool", []), first, second, name="choice")


def test_bad_predicates_are_refused():
    one = lambda: constant(1.0)  # noqa: E731
    with pytest.raises(TypeError, match="pred: expected a bool tensor, got Python's True; use if"):
        cond(True, one, one)
    with pytest.raises(TypeError, match="pred: expected a bool tensor, got None"):
        cond(None, one, one)
    with pytest.raises(TypeError, match=r"pred: expected a bool tensor, got .*int32"):
        cond(placeholder("int32", []), one, one)
    with pytest.raises(ValueError, match=r"pred: expected shape \(\)"):
        cond(placeholder("bool", [2]), one, one)


def test_bad_functions_are_refused():
    p = placeholder("bool", [])
    with pytest.raises(TypeError, match="true_fn: expected a function, got None"):
        cond(p, None, no_op)
    with pytest.raises(TypeError, match="false_fn: expected a function, got 3"):
        cond(p, no_op, 3)
    with pytest.raises(TypeError, match="true_fn and its old name fn1 were both given"):
        cond(p, no_op, no_op, fn1=no_op)


def test_old_names_are_known(session):
    p = placeholder("bool", [])
    y = cond(p, fn1=lambda: constant(1.0), fn2=lambda: constant(2.0))
    assert session.run(y, {p: False}) == 2


# -- cond: gradients ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [[2], [None], None])
def test_gradients_follow_the_side_taken(shape, session):
    p, x, w = placeholder("bool", []), placeholder("float32", shape), placeholder("float32", [])
    y = cond(p, lambda: x * x, lambda: x * w)
    dx, dw = gradients(y, [x, w])
    feed = {x: [3.0, 4.0], w: 5.0}
    np.testing.assert_array_equal(session.run(dx, {p: True, **feed}), [6, 8])
    np.testing.assert_array_equal(session.run(dx, {p: False, **feed}), [5, 5])
    assert session.run(dw, {p: True, **feed}) == 0
    assert session.run(dw, {p: False, **feed}) == 7


def test_gradients_of_what_passes_through_unchanged(session):
    p, x, y = placeholder("bool", []), placeholder("float32", []), placeholder("float32", [])
    dx, dy = gradients(cond(p, lambda: x, lambda: y), [x, y])
    assert session.run([dx, dy], {p: True, x: 1.0, y: 2.0}) == [1, 0]
    assert session.run([dx, dy], {p: False, x: 1.0, y: 2.0}) == [0, 1]


def test_gradients_of_nested_conds(session):
    p, q, x = placeholder("bool", []), placeholder("bool", []), placeholder("float32", [])
    y = cond(p, lambda: cond(q, lambda: x * 2, lambda: x * 3), lambda: x * 5)
    (dx,) = gradients(y, x)
    found = {
        (a, b): session.run(dx, {p: a, q: b, x: 1.0}) for a in (True, False) for b in (True, False)
    }
    assert found == {(True, True): 2, (True, False): 3, (False, True): 5, (False, False): 5}


def test_second_derivatives_of_conds(session):
    p, x = placeholder("bool", []), placeholder("float32", [])
    (dx,) = gradients(cond(p, lambda: x * x * x, lambda: x * x), x)
    (ddx,) = gradients(dx, x)
    assert session.run(ddx, {p: True, x: 2.0}) == 12
    assert session.run(ddx, {p: False, x: 2.0}) == 2


def test_gradients_of_gathers_in_a_branch(session):
    p, x = placeholder("bool", []), placeholder("float32", [3])
    y = cond(p, lambda: gather(x, [1, 1]), lambda: gather(x, [0, 2]))
    dx = densify(gradients(y, x)[0])
    np.testing.assert_array_equal(session.run(dx, {p: True, x: np.zeros(3)}), [0, 2, 0])
    np.testing.assert_array_equal(session.run(dx, {p: False, x: np.zeros(3)}), [1, 0, 1])


def test_gradients_of_variables_in_branches(session):
    (v,) = counters(session, 3)
    p = placeholder("bool", [])
    (dv,) = gradients(cond(p, lambda: v * v, lambda: v + 1.0) + v, v)
    assert session.run(dv, {p: True}) == 7
    assert session.run(dv, {p: False}) == 2


def test_gradients_do_not_run_the_side_not_taken(session):
    p, x = placeholder("bool", []), placeholder("float32", [])
    y = cond(p, lambda: x * check_numerics(1 / x, "bad"), lambda: x)
    (dx,) = gradients(y, x)
    assert session.run(dx, {p: False, x: 0.0}) == 1
    with pytest.raises(InvalidArgumentError, match="bad"):
        session.run(dx, {p: True, x: 0.0})


def test_eager_cond_calls_one_function():
    with eager():
        for pred in (True, constant(True), np.bool_(True)):
            assert cond(pred, lambda: [constant(1.0)], no_op).numpy() == 1
        assert cond(False, no_op, lambda: 2.0) == 2
        assert cond(constant(True), lambda: [3.0], no_op, strict=True) == [3]
        with pytest.raises(TypeError, match="pred: expected a bool tensor"):
            cond(1, no_op, no_op)


def test_eager_merge_chooses():
    with eager():
        assert merge(constant(True), constant(1.0), constant(2.0)).numpy() == 1
        assert merge(constant(False), constant(1.0), constant(2.0)).numpy() == 2


def test_eager_case_takes_the_first_that_holds():
    with eager():
        pairs = [(constant(False), lambda: 1.0), (constant(True), lambda: constant(2.0))]
        assert case(pairs).numpy() == 2
        with pytest.raises(InvalidArgumentError, match="none of the 1 predicates holds"):
            case(pairs[:1])


# -- case -----------------------------------------------------------------------------------------


@pytest.fixture
def choice():
    """Two predicates, and the pairs of a case with them."""
    p, q = placeholder("bool", []), placeholder("bool", [])
    return p, q, [(p, lambda: constant(1.0)), (q, lambda: constant(2.0))]


def test_case_takes_the_first_that_holds(choice, session):
    p, q, pairs = choice
    y = case(pairs, default=lambda: constant(3.0))
    found = [session.run(y, {p: a, q: b}) for a in (True, False) for b in (True, False)]
    assert found == [1, 1, 2, 3]
    assert y.name.startswith("case/")


def test_case_takes_a_dict(choice, session):
    p, q, pairs = choice
    y = case(dict(pairs), default=lambda: constant(3.0), name="pick")
    assert session.run(y, {p: False, q: True}) == 2


def test_case_without_default_needs_one_to_hold(choice, session):
    p, q, pairs = choice
    y = case(pairs)
    assert session.run(y, {p: False, q: True}) == 2
    with pytest.raises(InvalidArgumentError, match="none of the 2 predicates holds"):
        session.run(y, {p: False, q: False})


def test_exclusive_case_refuses_two_that_hold(choice, session):
    p, q, pairs = choice
    y = case(pairs, exclusive=True)
    assert session.run(y, {p: True, q: False}) == 1
    with pytest.raises(InvalidArgumentError, match=r"at most one .* those at \[0, 1\] do"):
        session.run(y, {p: True, q: True})


def test_case_of_one_pair(session):
    (a,) = counters(session, 0)
    p = placeholder("bool", [])
    value = case([(p, lambda: [constant(1.0)])])
    done = case([(p, lambda: group(state.assign(a.op, 1.0)))])
    nothing = case([(p, lambda: None)])
    assert session.run(value, {p: True}) == 1
    with pytest.raises(InvalidArgumentError, match="none of the 1 predicates holds"):
        session.run(value, {p: False})
    for op in (done, nothing):
        with pytest.raises(InvalidArgumentError, match="none of the 1 predicates holds"):
            session.run(op, {p: False})
    assert session.run(a) == 0
    session.run(done, {p: True})
    assert session.run(a) == 1


def test_case_has_the_side_effects_of_one_side(session):
    a, b, c = counters(session, 0, 0, 0)
    p, q = placeholder("bool", []), placeholder("bool", [])
    done = case(
        [(p, lambda: state.assign(a.op, 1.0)), (q, lambda: state.assign(b.op, 1.0))],
        default=lambda: state.assign(c.op, 1.0),
    )
    session.run(done, {p: False, q: True})
    assert session.run([a, b, c]) == [0, 1, 0]


def test_bad_cases_are_refused(choice):
    p, _, pairs = choice
    with pytest.raises(ValueError, match="pred_fn_pairs: expected at least one pair"):
        case([])
    with pytest.raises(TypeError, match=r"expected \(bool tensor, function\)"):
        case([(p, 3)])
    with pytest.raises(TypeError, match="default: expected a function, got 3"):
        case(pairs, default=3)
    with pytest.raises(TypeError, match="pred: expected a bool tensor"):
        case([(constant(1), no_op)])
