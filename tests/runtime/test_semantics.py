"""Reads, writes and failures: what a run sees, what it leaves, and that it is always the same."""

import copy
import signal
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optkit
from optkit.dtypes import float32
from optkit.errors import InvalidArgumentError, ResourceExhaustedError
from optkit.graph import Graph, Kind, Operation, Tensor, control_dependencies, get_default_graph
from optkit.ops import state
from optkit.ops.array import identity, placeholder
from optkit.ops.control import cond, group
from optkit.ops.core import constant
from optkit.ops.math import add
from optkit.ops.random import Stream, random_normal
from optkit.ops.state_ops import scatter_add
from optkit.runtime import Session
from optkit.variables import Variable, global_variables, global_variables_initializer

RUNS = range(4)
"""Everything is run this often: a plan may be run otherwise from its second run on."""


@pytest.fixture
def session(graph):
    with Session() as session:
        yield session


def variable(session, value=1.0, name="w"):
    made = Variable(value, name=name)
    session.run(made.initializer)
    return made


# -- 1: a variable in an expression is a read at that place ---------------------------------------


def test_a_read_without_control_inputs_is_the_value_at_the_start(session):
    w = variable(session)
    step = w.assign_add(1.0)
    later = w * 10.0  # built after the write, and still not ordered after it
    for run in RUNS:
        assert session.run([later, step, w]) == [10.0 * (run + 1), run + 2.0, run + 1.0]


def test_control_dependencies_in_force_order_a_read(session):
    w = variable(session)
    with control_dependencies([w.assign_add(1.0)]):
        after = w * 10.0
    for run in RUNS:
        assert session.run(after) == 10.0 * (run + 2)


def test_a_read_before_a_write(session):
    w = variable(session)
    before = identity(w)
    with control_dependencies([before]):
        step = w.assign_add(1.0)
    for run in RUNS:
        assert session.run([step, before]) == [run + 2.0, run + 1.0]


def test_reads_with_equal_control_inputs_are_one_operation(graph):
    w = Variable(1.0)
    a, b = constant(1.0), constant(2.0)
    with control_dependencies([a, b]):
        first = w * 1.0
    with control_dependencies([b]), control_dependencies([a]):
        second = w * 2.0
    with control_dependencies([b]):
        third = w * 3.0
    fourth, fifth = w * 4.0, w * 5.0
    assert first.op.inputs[0] is second.op.inputs[0]
    assert third.op.inputs[0] is not first.op.inputs[0]
    assert fourth.op.inputs[0] is fifth.op.inputs[0] is w.op.outputs[0]
    assert sum(op.type == "ReadVariable" for op in graph.get_operations()) == 2


# -- 2: the newest write among the ancestors ------------------------------------------------------


def test_a_data_edge_orders_as_a_control_edge_does(session):
    w = variable(session)
    value = w.assign(5.0) * 2.0  # the write is an ancestor by data
    with control_dependencies([value]):
        after = identity(w)
    assert session.run(after) == 5.0


def test_a_chain_of_writes(session):
    w = variable(session)
    reads = []
    last = constant(0.0)
    for value in (2.0, 3.0, 4.0):
        with control_dependencies([last]):
            last = w.assign(value)
        with control_dependencies([last]):
            reads.append(identity(w))
    with control_dependencies(reads[:1]):
        reads.append(identity(w))
    for _ in RUNS:
        assert session.run(reads) == [2.0, 3.0, 4.0, 2.0]
        assert session.value(w) == 4.0


def test_a_write_that_is_no_ancestor_changes_no_version(session):
    w = variable(session)
    first = w.assign(2.0)
    w.assign(99.0)  # never asked for
    between = w.assign(3.0)  # runs after `first`, but the read does not come after it
    with control_dependencies([first]):
        read = identity(w)
    for _ in RUNS:
        assert session.run([between, read]) == [3.0, 2.0]
        assert session.value(w) == 3.0


def test_only_writes_to_the_same_variable_count(session):
    w, v = variable(session), variable(session, 7.0, "v")
    with control_dependencies([v.assign(8.0)]):
        assert session.run(identity(w)) == 1.0
        assert session.run(identity(v)) == 8.0


def test_one_run_may_see_several_versions_in_one_expression(session):
    w = variable(session)
    with control_dependencies([w.assign(10.0)]):
        ten = identity(w)
        with control_dependencies([w.assign(100.0)]):
            hundred = identity(w)
    for _ in RUNS:
        session.run(w.initializer)
        assert session.run(w + ten + hundred) == 111.0


# -- 3: the value of an assign op -----------------------------------------------------------------


def test_the_value_of_a_write_is_the_variable_right_after_it(session):
    w = variable(session)
    steps = [w.assign(5.0), w.assign_add(1.0), w.assign_sub(2.0), w.assign(7.0)]
    for _ in RUNS:
        session.run(w.initializer)
        assert session.run(steps) == [5.0, 6.0, 4.0, 7.0]
        assert session.value(w) == 7.0


# -- 4: current values, reads, and the order of creation ------------------------------------------


def test_unordered_writes_run_in_the_order_they_were_built(session):
    w = variable(session)
    double = w.assign(w * 2.0)
    plus = w.assign_add(10.0)
    minus = w.assign_sub(1.0)
    for fetch in ([double, plus, minus], [minus, plus, double], [plus, minus, double, plus]):
        session.run(w.initializer)
        found = dict(zip(fetch, session.run(fetch), strict=True))
        assert found == {double: 2.0, plus: 12.0, minus: 11.0}
    assert session.run(group(minus, double)) is None
    assert session.value(w) == 21.0  # 11 · 2 − 1


def test_what_a_write_takes_is_read(session):
    w = variable(session)
    once, twice = w.assign_add(w), w.assign_add(w)  # both take w from the start of the run
    assert session.run([once, twice]) == [2.0, 3.0]
    assert session.run([once, twice]) == [6.0, 9.0]


def test_scatter_changes_the_current_value(session):
    w = variable(session, [1.0, 2.0])
    steps = [w.assign([10.0, 20.0]), scatter_add(w, [1, 1], w), w.assign_add([1.0, 1.0])]
    for _ in RUNS:
        session.run(w.initializer)
        np.testing.assert_array_equal(session.run(steps)[2], [11.0, 24.0])


def test_optimizer_updates_change_the_current_value_and_read_all_else(session):
    w, rate = variable(session, 1.0), variable(session, 0.5, "rate")
    loss = w * w
    optimizer = optkit.train.GradientDescentOptimizer(rate)
    steps = [w.assign(10.0), rate.assign(100.0), optimizer.minimize(loss), optimizer.minimize(loss)]
    for _ in RUNS:
        session.run([w.initializer, rate.initializer])
        assert session.run([loss, *steps])[0] == 1.0
        assert session.value(w) == 10.0 - 0.5 * 2.0 - 0.5 * 2.0


# -- 5: beta powers, then the global step ---------------------------------------------------------


def ancestors(op: Operation) -> set[Operation]:
    found, waiting = set(), [op]
    while waiting:
        at = waiting.pop()
        for before in (*at.control_inputs, *(tensor.op for tensor in at.inputs)):
            if before not in found:
                found.add(before)
                waiting.append(before)
    return found


def test_beta_powers_are_written_after_all_updates_and_the_step_is_last(session, graph):
    w, v = Variable([1.0, 2.0], name="w"), Variable(3.0, name="v")
    step = optkit.train.create_global_step()
    optimizer = optkit.train.AdamOptimizer(0.1)
    train = optimizer.minimize(optkit.reduce_sum(w * w) + v * v, global_step=step)
    session.run(global_variables_initializer())
    writes = [op for op in graph.get_operations() if op.kind.access == "write"]
    initializers = {v.initializer for v in global_variables()}
    writes = [op for op in writes if op not in initializers]
    updates = {op for op in writes if op.type == "Update"}
    powers = {op for op in writes if "beta" in op.variables[0].name}
    (counting,) = (op for op in writes if op.variables == (step.op,))
    assert len(updates) == len(powers) == 2
    for power in powers:
        assert updates <= ancestors(power)
    assert powers | updates <= ancestors(counting)
    beta1, beta2 = (v for v in optimizer.variables() if "beta" in v.name)
    for run in RUNS:
        assert session.run([beta1, train, step])[::2] == [
            pytest.approx(0.9 ** (run + 1), rel=1e-6),
            run,
        ]
    assert session.value(beta2) == pytest.approx(0.999**5, rel=1e-6)


# -- 6: fetched variables -------------------------------------------------------------------------


def test_a_fetched_variable_is_the_one_from_the_start(session):
    w = variable(session)
    step = optkit.train.create_global_step()
    loss = w * w
    train = optkit.train.GradientDescentOptimizer(0.25).minimize(loss, global_step=step)
    session.run(step.initializer)
    for run in RUNS:
        before = session.value(w)
        assert session.run([train, step, w, loss]) == [None, run, before, before * before]
        assert session.value(step) == run + 1
        assert session.value(w) == before / 2


def test_update_ops_and_the_loss(session, graph):
    w = variable(session)
    moving = Variable(10.0, trainable=False, name="moving")
    session.run(moving.initializer)
    optkit.add_to_collection(optkit.GraphKeys.UPDATE_OPS, moving.assign_add(1.0))
    loss = w * moving
    train = optkit.create_train_op(loss, optkit.train.GradientDescentOptimizer(0.5), None)
    for run in RUNS:
        old_w, old_moving = session.run([w, moving])
        assert old_moving == 10.0 + run
        assert session.run(train) == old_w * old_moving
        assert session.run([w, moving]) == [old_w - 0.5 * old_moving, old_moving + 1.0]


# -- 7: failures ----------------------------------------------------------------------------------


class Fuse:
    """Operations that pass their input on, and raise while one of them is set."""

    def __init__(self):
        self.set_at: int | None = None
        self.error: BaseException | None = None
        self.count = 0

    def __call__(self, x: Tensor) -> Tensor:
        number, self.count = self.count, self.count + 1

        def kernel(xp, x, stream, **_):
            if self.set_at == number:
                if self.error is None:
                    signal.raise_signal(signal.SIGINT)
                else:
                    raise copy.copy(self.error)  # an error keeps the frames that it went through
            return x + 0

        kind = Kind(
            "Fuse",
            kernel,
            infer=lambda inputs, _: [(inputs[0].dtype, inputs[0].sizes)],
            gradient=lambda _, dy: self(dy),
            random=True,  # else it is worked out once where its input is a constant
        )
        attrs = {"seed": (number, 0)}
        return x.graph.create_operation(kind, [x], attrs, name=f"fuse{number}").outputs[0]


def everything(session: Session) -> dict[str, bytes]:
    """All that a session holds, bit for bit."""
    found = {}
    for op, held in session._state.items():
        value = session.value(op) if op.kind.access == "variable" else held
        found[op.name] = np.asarray(value).tobytes()
    return found


def training(fuse: Fuse) -> Tensor:
    """A step that writes all kinds of state, with a fuse at every joint."""
    optkit.set_random_seed(7)
    w = Variable(np.array([[1.0, -2.0], [0.5, 3.0], [1.5, 0.25]], np.float32), name="w")
    b = Variable(np.array([0.5, 0.5], np.float32), name="b")
    moving = Variable(1.0, trainable=False, name="moving")
    noise = fuse(random_normal([2]))
    rows = optkit.gather(w, [0, 2, 0])
    loss = fuse(optkit.reduce_sum(rows * rows) + optkit.reduce_sum(fuse(b * b) * noise))
    update = moving.assign(fuse(moving * 0.5 + loss))
    with control_dependencies([update]):
        checked = fuse(identity(loss))  # ordered after a write
    step = optkit.train.create_global_step()
    optimizer = optkit.train.AdamOptimizer(0.1)
    pairs = optimizer.compute_gradients(loss, [w, b])
    pairs = [(fuse(g) if isinstance(g, Tensor) else g, v) for g, v in pairs]
    train = optimizer.apply_gradients(pairs, global_step=step)
    average = optkit.train.ExponentialMovingAverage(0.9)
    with control_dependencies([train, checked]):
        averaged = average.apply([w, b])
    with control_dependencies([averaged, step.assign_add(1)]):
        return fuse(identity(loss))  # ordered after all writes


def fuses() -> int:
    fuse = Fuse()
    with Graph().as_default():
        training(fuse)
    return fuse.count


ERRORS = {
    "value": (ValueError("bad value"), InvalidArgumentError),
    "its own": (LookupError("its own"), LookupError),
    "op error": (InvalidArgumentError("bad argument"), InvalidArgumentError),
    "memory": (MemoryError("no more"), ResourceExhaustedError),
    "ctrl-c": (KeyboardInterrupt(), KeyboardInterrupt),
    "signal": (None, KeyboardInterrupt),
    "exit": (SystemExit(1), SystemExit),
}


@pytest.mark.parametrize("warm", [0, 3])
@pytest.mark.parametrize(("error", "expected"), ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("place", range(fuses()))
def test_a_failed_run_leaves_everything_as_it_was(session, place, error, expected, warm):
    fuse = Fuse()
    result = training(fuse)
    initializer = global_variables_initializer()
    undisturbed = Session()
    for each in (session, undisturbed):
        each.run(initializer)
        for _ in range(warm):
            each.run(result)
    before = everything(session)
    assert len(before) > 10
    fuse.set_at, fuse.error = place, error
    for _ in range(2):
        with pytest.raises(expected):
            session.run(result)
        assert everything(session) == before
    fuse.set_at = None
    for _ in RUNS:
        # Random numbers go on as if nothing had happened.
        assert session.run(result) == undisturbed.run(result)
        assert everything(session) == everything(undisturbed)
    undisturbed.close()


def test_errors_name_the_operation_and_the_users_line(session):
    fuse = Fuse()
    result = fuse(constant(1.0))
    fuse.set_at = 0
    for fuse.error in (
        ValueError("bad value"),
        MemoryError("no more"),
        InvalidArgumentError("bad"),
    ):
        with pytest.raises((InvalidArgumentError, ResourceExhaustedError)) as caught:
            session.run(result)
        assert caught.value.op is result.op
        assert f"operation 'fuse0' (Fuse), built at {__file__}:" in str(caught.value)
    fuse.error = LookupError("its own")
    with pytest.raises(LookupError, match="its own") as found:
        session.run(result)
    assert "operation 'fuse0' (Fuse), built at" in "\n".join(found.value.__notes__)


class Raising(optkit.train.Optimizer):
    """A user's own equation, which refuses large gradients."""

    slots = ("m",)

    def __init__(self):
        super().__init__(False, "Raising", lr=0.5)

    def update(self, xp, w, g, m, *, lr):
        if float(xp.max(g)) > 100.0:
            raise ValueError("the equation's own")
        return w - lr * g - m, m + g


@pytest.mark.parametrize("warm", [0, 3])
def test_a_users_equation_that_raises(session, warm):
    w, v = variable(session, [1.0, 2.0]), variable(session, [3.0], "v")
    x = placeholder("float32", [])
    step = optkit.train.create_global_step()
    loss = optkit.reduce_sum(w * w) + optkit.reduce_sum(v * x)
    train = Raising().minimize(loss, global_step=step)
    session.run(global_variables_initializer())
    for _ in range(warm):
        session.run(train, {x: 1.0})
    before = everything(session)
    with pytest.raises(InvalidArgumentError, match="the equation's own"):
        session.run(train, {x: 1000.0})  # after the update of w
    assert everything(session) == before
    session.run(train, {x: 1.0})
    assert everything(session) != before


def test_a_failing_fetch_leaves_the_writes_of_others_undone(session):
    w = variable(session)
    uninitialised = Variable(1.0, name="late")
    missing = placeholder("float32", [])
    before = everything(session)
    for other in (uninitialised, missing, constant(1) // constant(0)):
        with pytest.raises(optkit.errors.OpError):
            session.run([w.assign_add(1.0), other])
        assert everything(session) == before


def test_what_an_interrupt_meets_in_the_middle_of_ten_runs(session):
    """A real signal, at every operation in turn: the run counts wholly or not at all."""
    w, v = variable(session, 0), variable(session, 0, "v")
    fuse = Fuse()
    steps = [fuse(w.assign_add(1)), fuse(v.assign_add(1)), fuse(identity(w))]
    for place in (0, 1, 2, None, 1, None, 0):
        fuse.set_at = place
        done = session.value(w)
        if place is None:
            session.run(steps)
            done += 1
        else:
            with pytest.raises(KeyboardInterrupt):
                session.run(steps)
        assert session.value(w) == session.value(v) == done


# -- 8: always the same ---------------------------------------------------------------------------


def test_a_hundred_repeats_give_a_hundred_equal_answers():
    result = training(Fuse())
    initializer = global_variables_initializer()
    answers = set()
    for _ in range(100):
        with Session() as session:
            session.run(initializer)
            losses = [session.run(result).tobytes() for _ in range(3)]
            answers.add((*losses, *everything(session).values()))
    assert len(answers) == 1


def test_a_hundred_runs_of_one_fetch_are_equal(session):
    w = variable(session, np.linspace(-1.0, 1.0, 1000, dtype=np.float32))
    with control_dependencies([w.assign_add(w * 0.5)]):
        norm = optkit.global_norm([w])
    found = set()
    for _ in range(100):
        session.run(w.initializer)
        found.add(session.run([norm, w])[0].tobytes())
    assert len(found) == 1


def test_random_numbers_depend_on_the_seed_and_the_number_of_the_run(session):
    x = random_normal([3], seed=5)
    y = x + 0.0
    with Session() as other:
        for run in RUNS:
            expected = Stream((87654321, 5), run).normal([3]).astype(np.float32)
            fetches = ([x, y], [y])[run % 2]  # whatever is fetched, it is a run
            np.testing.assert_array_equal(session.run(fetches), [expected] * len(fetches))
            np.testing.assert_array_equal(other.run(y), expected)


# -- cond -----------------------------------------------------------------------------------------


@pytest.fixture
def branching(session):
    """w counts the true side, v the false one; the branches read, write and read again."""
    w, v = variable(session, 0.0), variable(session, 0.0, "v")
    flag = placeholder("bool", [])

    def side(target, amount):
        def build():
            with control_dependencies([target.assign_add(amount)]):
                return identity(target) * 10.0

        return build

    return w, v, flag, cond(flag, side(w, 1.0), side(v, 2.0))


def test_only_the_side_taken_writes(session, branching):
    w, v, flag, result = branching
    for run in RUNS:
        assert session.run(result, {flag: True}) == 10.0 * (run + 1)
        assert session.run([w, v]) == [run + 1.0, 2.0 * run]
        assert session.run(result, {flag: False}) == 20.0 * (run + 1)
        assert session.run([w, v]) == [run + 1.0, 2.0 * run + 2.0]


def test_a_read_after_a_cond_sees_the_write_of_the_side_taken(session, branching):
    w, v, flag, result = branching
    with control_dependencies([w.assign(100.0)]):
        pass
    with control_dependencies([result]):
        after = [identity(w), identity(v)]
    for run in RUNS:
        session.run([w.initializer, v.initializer])
        assert session.run([w, v, *after], {flag: True}) == [0.0, 0.0, 1.0, 0.0]
        session.run([w.initializer, v.initializer])
        assert session.run([w, v, *after], {flag: False}) == [0.0, 0.0, 0.0, 2.0], run


def test_a_write_in_a_side_not_taken_hides_no_older_one(session):
    w = variable(session, 0.0)
    flag = placeholder("bool", [])
    first = w.assign(5.0)
    with control_dependencies([first]):
        chosen = cond(flag, lambda: w.assign_add(1.0), lambda: constant(0.0))
    with control_dependencies([chosen]):
        after = identity(w)
    for _ in RUNS:
        assert session.run(after, {flag: True}) == 6.0
        assert session.run(after, {flag: False}) == 5.0


def test_a_failure_in_a_side_of_a_cond(session):
    w = variable(session, 0.0)
    fuse = Fuse()
    flag = placeholder("bool", [])
    step = w.assign_add(1.0)
    with control_dependencies([step]):
        result = cond(flag, lambda: fuse(w.assign_add(10.0)), lambda: constant(0.0))
    fuse.set_at, fuse.error = 0, ValueError("bad value")
    for _ in RUNS:
        with pytest.raises(InvalidArgumentError, match="bad value"):
            session.run(result, {flag: True})
        assert session.value(w) == 0.0
    assert session.run(result, {flag: False}) == 0.0  # the fuse is in the other side
    assert session.value(w) == 1.0


def test_a_read_in_a_branch_of_a_variable_that_holds_nothing(session):
    late = Variable(3.0, name="late")
    flag = placeholder("bool", [])
    result = cond(flag, lambda: late * 2.0, lambda: constant(0.0))
    assert session.run(result, {flag: False}) == 0.0
    with pytest.raises(optkit.errors.FailedPreconditionError, match="'late' is not initialised"):
        session.run(result, {flag: True})


# -- random programs against an interpreter of the rules ------------------------------------------


@dataclass(frozen=True)
class Line:
    """One line of a program; it may refer to earlier lines by their numbers."""

    kind: str
    target: int = 0
    takes: tuple[int, ...] = ()
    after: frozenset[int] = frozenset()


@dataclass
class Program:
    """Lines, and what a run of them asks for."""

    lines: list[Line]
    fetches: list[int]
    fed_lines: dict[int, int]
    fed_variables: dict[int, int]
    fails_first: bool = False
    start: list[int] = field(default_factory=lambda: [3, 5])


@st.composite
def programs(draw) -> Program:
    lines: list[Line] = []
    for number in range(draw(st.integers(1, 10))):
        earlier = st.integers(0, number - 1)
        after = draw(st.frozensets(earlier, max_size=2)) if number else frozenset()
        kinds = ["constant", "read"]
        if number:
            kinds += ["add", "assign", "assign_add", "assign_sub", "fuse"]
        kind = draw(st.sampled_from(kinds))
        takes = {"constant": 0, "read": 0, "add": 2}.get(kind, 1)
        lines.append(
            Line(kind, draw(st.integers(0, 1)), tuple(draw(earlier) for _ in range(takes)), after)
        )
    numbers = st.integers(0, len(lines) - 1)
    feedable = [i for i, line in enumerate(lines) if line.kind != "read"]
    values = st.integers(-9, 9)
    fed = draw(st.dictionaries(st.sampled_from(feedable), values, max_size=1)) if feedable else {}
    return Program(
        lines,
        draw(st.lists(numbers, min_size=1, max_size=4)),
        fed,
        draw(st.dictionaries(st.integers(0, 1), values, max_size=1)) if draw(st.booleans()) else {},
        draw(st.booleans()),
    )


def before(program: Program, number: int) -> set[int]:
    """The lines that run before one: its ancestors by data, which feeding cuts, and control."""
    found: set[int] = set()
    waiting = [number]
    while waiting:
        line = program.lines[waiting.pop()]
        # An input is no control input too, so feeding it cuts both (as in TF).
        data = [i for i in line.takes if i not in program.fed_lines]
        for other in (*data, *line.after - set(line.takes)):
            if other not in found:
                found.add(other)
                waiting.append(other)
    return found


def needed(program: Program) -> list[int]:
    """The lines that a run carries out, in the order they were written."""
    found: set[int] = set()
    for fetch in program.fetches:
        if fetch not in program.fed_lines:
            found |= {fetch} | before(program, fetch)
    return sorted(found)


def interpret(program: Program, held: list[int]) -> tuple[list[int], list[int]]:
    """The values of the fetches, and what the variables hold afterwards."""
    current = list(held)
    right_after: dict[int, int] = {}
    values: dict[int, int] = {}
    for number in needed(program):
        line = program.lines[number]
        taken = [program.fed_lines.get(i, values.get(i, 0)) for i in line.takes]
        variable = line.target
        match line.kind:
            case "constant":
                value = number
            case "add":
                value = sum(taken)
            case "fuse":
                (value,) = taken
            case "read":
                writes = [
                    i
                    for i in before(program, number)
                    if program.lines[i].kind.startswith("assign")
                    and program.lines[i].target == variable
                ]
                value = right_after[max(writes)] if writes else held[variable]
                value = program.fed_variables.get(variable, value)
            case "assign":
                (value,) = taken
            case "assign_add":
                value = current[variable] + taken[0]
            case "assign_sub":
                value = current[variable] - taken[0]
        if line.kind.startswith("assign"):
            current[variable] = right_after[number] = value
        values[number] = value
    return [program.fed_lines.get(i, values.get(i, 0)) for i in program.fetches], current


def build(program: Program, variables: list[Variable], fuse: Fuse) -> list[Tensor]:
    tensors: list[Tensor] = []
    for number, line in enumerate(program.lines):
        taken = [tensors[i] for i in line.takes]
        target = variables[line.target].op
        with control_dependencies([tensors[i] for i in sorted(line.after)]):
            match line.kind:
                case "constant":
                    # Nothing that could be worked out beforehand: fuses are no pure functions.
                    made = add(variables[-1], number)
                case "add":
                    made = add(*taken)
                case "fuse":
                    made = fuse(*taken)
                case "read":
                    made = state.read(target)
                case "assign":
                    made = state.assign(target, *taken)
                case "assign_add":
                    made = state.assign_add(target, *taken)
                case "assign_sub":
                    made = state.assign_sub(target, *taken)
        tensors.append(made)
    return tensors


@given(programs())
def test_random_programs_follow_the_rules(program):
    fuse = Fuse()
    fuse.error = ValueError("bad value")
    with Graph().as_default(), Session() as session:
        variables = [Variable(np.int64(value)) for value in (*program.start, 0)]
        session.run([v.initializer for v in variables])
        tensors = build(program, variables, fuse)
        fetches = [tensors[i] for i in program.fetches]
        feeds = {tensors[i]: value for i, value in program.fed_lines.items()}
        feeds |= {variables[i]: value for i, value in program.fed_variables.items()}
        fuses = [i for i in needed(program) if program.lines[i].kind == "fuse"]
        held = list(program.start)
        for run in RUNS:
            if fuses and program.fails_first:
                kinds = [line.kind for line in program.lines[: fuses[run % len(fuses)]]]
                fuse.set_at = kinds.count("fuse")
                with pytest.raises(InvalidArgumentError, match="bad value"):
                    session.run(fetches, feeds)
                fuse.set_at = None
                assert [session.value(v) for v in variables[:2]] == held
            expected, held = interpret(program, held)
            assert session.run(fetches, feeds) == expected
            assert [session.value(v) for v in variables[:2]] == held


def test_the_interpreter_against_a_case_done_by_hand():
    lines = [
        Line("read", 0),  # 3
        Line("assign_add", 0, (0,)),  # 6
        Line("read", 0, after=frozenset({1})),  # 6
        Line("assign", 1, (2,)),  # 6
        Line("read", 1),  # 5, no ancestor
        Line("add", 0, (3, 4)),  # 11
        Line("assign_sub", 0, (5,)),  # 6 - 11
    ]
    program = Program(lines, [2, 5, 6, 4], {}, {})
    assert interpret(program, [3, 5]) == ([6, 11, -5, 5], [-5, 6])
    fed = Program(lines, [5, 2], {3: 100}, {1: 50})
    assert interpret(fed, [3, 5]) == ([150, 6], [6, 5])


def test_dtype_of_a_fuse_is_that_of_its_input():
    assert Fuse()(constant(1.0)).dtype is float32
    assert get_default_graph().get_operation_by_name("fuse0").type == "Fuse"
    assert global_variables() == []
