"""Plans: what runs, in which order, and which write each read may see."""

from optkit.graph import control_dependencies
from optkit.ops.array import identity, placeholder
from optkit.ops.control import cond, no_op
from optkit.ops.core import constant
from optkit.runtime import Plan
from optkit.variables import Variable


def operations(plan):
    return [step.op for step in plan.steps]


def test_only_what_is_needed_in_the_order_it_was_built(graph):
    x, y = constant(1.0), constant(2.0)
    constant(3.0)
    z = x + y
    with control_dependencies([no_op()]) as _:
        last = identity(z)
    plan = Plan(graph, [last], [])
    gate = graph.get_operation_by_name("NoOp")
    assert operations(plan) == [x.op, y.op, z.op, gate, last.op]
    assert plan.fetched == (plan.places[last],)
    assert plan.size == len(plan.places) == 4


def test_feeding_cuts_data_edges_alone(graph):
    x = placeholder("float32", [])
    y = x * 2.0
    z = y + 1.0
    with control_dependencies([y]):
        w = identity(z)
    plan = Plan(graph, [z], [y])
    assert y.op not in operations(plan)
    assert plan.fed == (plan.places[y],)
    ordered = Plan(graph, [w], [y])
    (step,) = (step for step in ordered.steps if step.op is y.op)
    assert step.outputs == (None,)  # it runs, and its value is the fed one


def test_nothing_runs_for_a_fed_fetch(graph):
    x = constant(1.0)
    plan = Plan(graph, [x, x.op], [x])
    assert operations(plan) == [x.op]  # an operation is fetched as such
    assert operations(Plan(graph, [x], [x])) == []
    assert Plan(graph, [x.op], []).fetched == (None,)


def test_reads_know_the_writes_before_them(graph):
    w, v = Variable(1.0), Variable(1.0)
    first = w.assign(2.0)
    with control_dependencies([first, v.assign(3.0)]):
        second = w.assign_add(1.0)
    w.assign(9.0)
    with control_dependencies([second]):
        read = identity(w)
    plan = Plan(graph, [read], [])
    (step,) = (step for step in plan.steps if step.op.type == "ReadVariable")
    assert step.sources == (second.op, first.op)


def test_branches_of_a_step(graph):
    outer, inner = placeholder("bool", []), placeholder("bool", [])
    held = []

    def deep():
        held.append(constant(1.0))
        return held[0]

    result = cond(outer, lambda: cond(inner, lambda: constant(0.0), deep), lambda: constant(2.0))
    plan = Plan(graph, [result], [])
    (step,) = (step for step in plan.steps if step.op is held[0].op)
    assert step.branch == ((plan.places[outer], True), (plan.places[inner], False))
    assert next(step for step in plan.steps if step.op is result.op).branch == ()


def test_long_chains_overflow_nothing(graph):
    x = placeholder("float32", [])
    y = x
    for _ in range(5000):
        y = y + 1.0
    assert len(Plan(graph, [y], []).steps) == 10001
