"""Failed runs: in every kind of operation, at every line, and for want of memory.

Afterwards all state is what it was before the run, bit for bit, and the session goes on as one
that nothing has happened to.
"""

import copy
import importlib
import pkgutil
import signal
import sys

import numpy as np
import pytest

import optkit as tf
from optkit import ops, summary
from optkit.backend.arrays import to_numpy
from optkit.graph import Kind, Operation, Tensor, get_default_graph
from optkit.nesting import flatten
from optkit.ops.core import REGISTRY
from optkit.ops.update import update_norm
from optkit.runtime import Session, code
from tests.ops.table import TABLE


def everything(session):
    """All that a session holds, bit for bit."""
    return {op.name: to_numpy(held).tobytes() for op, held in session._state.items()}


def bits(value):
    if isinstance(value, list | tuple):
        return [bits(item) for item in value]
    return value.tobytes() if isinstance(value, np.ndarray | np.generic) else value


# -- a step that writes all kinds of state --------------------------------------------------------


class Step:
    """What runs, and the writes around it: an assignment before, updates, averages after."""

    def __init__(self, build=lambda: []):
        """`build` gives more to fetch."""
        tf.set_random_seed(7)
        w = tf.Variable(np.float32([[1.0, -2.0], [0.5, 3.0]]), name="w")
        b = tf.Variable(np.float32([0.5]), name="b")
        rows = tf.Variable(np.float32([[1.0], [2.0], [3.0]]), name="rows")
        moving = tf.Variable(1.0, trainable=False, name="moving")
        with tf.control_dependencies([moving.assign_add(1.0)]):
            self.built = [tf.identity(moving), *flatten(build())]
        noise = tf.random_normal([2])
        loss = tf.reduce_sum(w * w * noise) + tf.reduce_sum(b * b)
        loss += tf.reduce_sum(tf.gather(rows, [0, 2, 0]))
        step = tf.train.get_or_create_global_step()
        train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss, step, [w, b, rows])
        average = tf.train.ExponentialMovingAverage(0.9)
        ops = [x for x in self.built if isinstance(x, Tensor | Operation)]
        with tf.control_dependencies([train, *ops]):
            averaged = average.apply([w])
        self.fetches = [*self.built, loss, noise, train, averaged]
        self.initializer = tf.global_variables_initializer()

    def session(self, *, program=True):
        session = Session()
        session._entropy = 5
        if not program:
            session._program = lambda plan: None
        session.run(self.initializer)
        return session

    def run(self, session):
        return bits(session.run(self.fetches))


class Switch:
    """Kernels pass through it, and raise while an error is set."""

    def __init__(self, monkeypatch, kind):
        self.error = None
        self.calls = 0
        for name in ("kernel", "into"):
            real = getattr(kind, name)
            if real is not None:
                monkeypatch.setattr(kind, name, self._guarded(real))

    def _guarded(self, real):
        def kernel(*arrays, **attrs):
            if self.error is not None:
                self.calls += 1
                raise copy.copy(self.error)  # an error keeps the frames that it went through
            return real(*arrays, **attrs)

        return kernel


# -- every kind of operation ----------------------------------------------------------------------


def variable(*shape, dtype="float32"):
    return tf.Variable(np.ones(shape, dtype), trainable=False, name="target")


def scattered(mode):
    return lambda: getattr(tf, f"scatter_{mode}")(variable(3, 2), [0, 2], tf.ones([2, 2]))


def looped():
    x = tf.identity(variable(2))
    y = tf.while_loop(lambda y: y[0] < 3.0, lambda y: (y * 2.0,), [x])
    return [y, tf.gradients(y, x)[0]]


def sampled(sampler, **more):
    return lambda: list(sampler(tf.cast(variable(2, 1), tf.int64), 1, 2, True, 9, seed=3, **more))


def updated():
    v = variable(2)
    op = tf.train.AdamOptimizer(0.1).apply_gradients([(tf.ones([2]), v)])
    updates = [x for x in op.graph.get_operations() if v.op in x.variables]
    return [op, update_norm(updates[-1])]


def watched():
    kind, inputs = KINDS["CheckFinite"], [tf.identity(variable())]
    return list(get_default_graph().create_operation(kind, inputs).outputs)


def counter():
    return tf.identity(variable(dtype="int64"))


def names_of_none():
    return tf.report_uninitialized_variables([variable(2)])


def written_when():
    with summary.written_when(variable() > 0.0):
        return tf.summary.scalar("s", variable())


ELSEWHERE = {
    "Assert": lambda: tf.Assert(variable() > 0.0, ["no"]),
    "Assign": lambda: variable(2).assign([2.0, 3.0]),
    "AssignAdd": lambda: variable(2).assign_add([2.0, 3.0]),
    "AssignSub": lambda: variable(2).assign_sub([2.0, 3.0]),
    "CheckFinite": watched,
    "ComputeAccidentalHits": lambda: list(
        tf.nn.compute_accidental_hits(tf.cast(variable(2, 1), tf.int64), [1, 2], 1)
    ),
    "ConditionalSummary": written_when,
    "FirstTrue": lambda: tf.case([(variable() > 0.0, lambda: tf.constant(1.0))]),
    "FixedUnigramCandidateSampler": sampled(
        tf.nn.fixed_unigram_candidate_sampler, unigrams=[1.0] * 9
    ),
    "HistogramSummary": lambda: tf.summary.histogram("h", variable(2)),
    "ImageSummary": lambda: tf.summary.image("i", variable(1, 2, 2, 1)),
    "LogUniformCandidateSampler": sampled(tf.nn.log_uniform_candidate_sampler),
    "MergeSummary": lambda: tf.summary.merge([tf.summary.scalar("s", variable())]),
    "Multinomial": lambda: tf.multinomial(variable(2, 3), 2),
    "NoOp": tf.no_op,
    "OrthogonalMatrix": lambda: tf.orthogonal_initializer()([3, 2]),
    "Print": lambda: tf.Print(variable(2), [], ""),
    "PyFunc": lambda: tf.py_func(lambda x: x, [variable(2)], tf.float32),
    "PyFuncStateless": lambda: tf.py_func(lambda x: x, [variable(2)], tf.float32, stateful=False),
    "RandomShuffle": lambda: tf.random_shuffle(variable(3)),
    "RandomStandardNormal": lambda: tf.random_normal([2]),
    "RandomUniform": lambda: tf.random_uniform([2]),
    "RandomUniformInt": lambda: tf.random_uniform([2], 0, 5, tf.int32),
    "RequireInitialized": lambda: tf.assert_variables_initialized([variable(2)]),
    "ScalarSummary": lambda: tf.summary.scalar("s", variable()),
    "ScheduleCurve": lambda: tf.train.exponential_decay(0.1, counter(), 10, 0.9),
    "SchedulePiece": lambda: tf.train.piecewise_constant(counter(), [10], [0.1, 0.2]),
    "TextSummary": lambda: tf.summary.text("t", names_of_none()),
    "TruncatedNormal": lambda: tf.truncated_normal([2]),
    "UniformCandidateSampler": sampled(tf.nn.uniform_candidate_sampler),
    "UninitializedNames": names_of_none,
    "Update": updated,
    "UpdateNorm": updated,
    "While": looped,
    "WhileGrad": looped,
} | {
    f"Scatter{mode.title()}": scattered(mode)
    for mode in ("update", "add", "sub", "mul", "div", "min", "max")
}
"""How to build operations that the table of ops has no case for."""

WITHOUT_KERNEL = {"IsVariableInitialized", "Merge", "Placeholder", "ReadVariable", "VariableV2"}
UNSEEN = {"Const", "Identity", "NoOp", "StopGradient", "Update"}
"""Those whose kernels a program does not call: it has their values, or fuses them."""
READS_A_FILE = {"RestoreV2"}
ERRORS = ValueError("bad"), MemoryError("none"), KeyboardInterrupt()


def from_table(case):
    """Of a case's inputs, which are variables."""
    arrays = [np.asarray(array) for array in case.inputs(np.random.default_rng(7))]
    dtype = case.dtypes[-1]
    arrays = [array.astype(dtype) if array.dtype == np.float64 else array for array in arrays]

    def build():
        with tf.control_dependencies(None):
            variables = [tf.Variable(array, trainable=False) for array in arrays]
        return list(flatten(case.call(*map(tf.identity, variables), **case.kwargs)))

    return build


def all_kinds():
    """Every kind that optkit's modules define."""
    found = {}
    for module in [m for name, m in sys.modules.items() if name.startswith("optkit.")]:
        for value in vars(module).values():
            values = value.values() if isinstance(value, dict) else [value]
            found |= {kind.name: kind for kind in values if isinstance(kind, Kind)}
    return found | {name: op.kind for name, op in REGISTRY.items()}


for _module in pkgutil.iter_modules(ops.__path__):
    importlib.import_module(f"optkit.ops.{_module.name}")
KINDS = all_kinds()
TESTED = sorted(KINDS.keys() - WITHOUT_KERNEL - READS_A_FILE - {"Const"})


def test_every_kind_has_a_kernel_or_is_known_to_have_none():
    assert {name for name, kind in KINDS.items() if kind.kernel is None} <= WITHOUT_KERNEL


@pytest.mark.parametrize("name", TESTED)
def test_a_failure_in_any_kind_of_operation_leaves_everything_as_it_was(monkeypatch, name):
    switch = Switch(monkeypatch, KINDS[name])
    row = TABLE.get(name)
    build = ELSEWHERE.get(name)
    step = Step(build or from_table(row[0]))
    assert name in {op.type for op in get_default_graph().get_operations()}
    undisturbed = step.session()
    expected = [(step.run(undisturbed), everything(undisturbed)) for _ in ERRORS]
    for program in (True, False):
        session = step.session(program=program)
        # When it is compiled, when it notes shapes, and with planned memory.
        for (result, state), error in zip(expected, ERRORS, strict=True):
            before = everything(session)
            if not program or name not in UNSEEN:
                switch.error, switch.calls = error, 0
                with pytest.raises((tf.errors.OpError, KeyboardInterrupt)):
                    step.run(session)
                assert switch.calls
                assert everything(session) == before
            switch.error = None
            assert step.run(session) == result
            assert everything(session) == state


# -- every line -----------------------------------------------------------------------------------


RUN = Session.run.__code__


class Injector:
    """Does something when the n-th line of optkit's, or of a program's, is about to run."""

    def __init__(self, act):
        self.act = act
        self.left = -1
        self.count = 0

    def __call__(self, frame, event, argument):
        if event == "call":
            # Signals come at calls and in loops; `run` has none between a `finally` and its line.
            return self if self.ours(frame.f_code) and frame.f_code is not RUN else None
        if event == "line":
            self.count += 1
            self.left -= 1
            if self.left == 0:
                self.act(frame)
        return self

    @staticmethod
    def ours(made):
        return "/optkit/" in made.co_filename or made.co_filename == code.FILE

    def during(self, work, at):
        """What `work` gives or raises, when something happens at one of its lines."""
        self.left, self.count = at, 0
        before = sys.gettrace()
        sys.settrace(self)
        try:
            return work()
        except (KeyboardInterrupt, MemoryError, tf.errors.OpError) as error:
            return error
        finally:
            sys.settrace(before)


def interrupt(frame):
    signal.raise_signal(signal.SIGINT)


def run_out(frame):
    """Python takes memory at all lines, but what is written needs none to speak of."""
    held_back = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    if not held_back and not frame.f_code.co_filename.endswith("interrupts.py"):
        raise MemoryError("none")


def lines_of(step, runs):
    """How many lines the last of so many runs has."""
    session, injector = step.session(), Injector(interrupt)
    for _ in range(runs):
        result = injector.during(lambda: step.run(session), -1)
    assert not isinstance(result, BaseException)
    return injector.count


@pytest.mark.slow
@pytest.mark.host("it interrupts programs of the host")
@pytest.mark.parametrize("act", [interrupt, run_out])
@pytest.mark.parametrize(("runs", "share"), [(1, 0.01), (3, 0.03), (4, 0.3)])
def test_a_run_that_is_cut_off_at_any_line_counts_wholly_or_not_at_all(
    monkeypatch, act, runs, share
):
    """Ctrl-C, or no memory, while it is compiled, when it has its memory planned, and later."""
    monkeypatch.setattr(code, "LARGE", 1)
    step = Step()
    undisturbed = step.session()
    history = [(None, everything(undisturbed))]
    history += [(step.run(undisturbed), everything(undisturbed)) for _ in range(runs + 2)]
    lines = lines_of(step, runs)
    rng = np.random.default_rng(runs)
    chosen = sorted({*rng.integers(1, lines, int(lines * share)).tolist(), lines - 1})
    injector = Injector(act)
    for at in chosen:
        session = step.session()
        for _ in range(runs - 1):
            step.run(session)
        result = injector.during(lambda: step.run(session), at)  # noqa: B023 - called at once
        done = runs - 1 if everything(session) == history[runs - 1][1] else runs
        assert everything(session) == history[done][1], at
        if not isinstance(result, BaseException):
            assert result == history[done][0]
        for expected, state in history[done + 1 :]:
            assert step.run(session) == expected
            assert everything(session) == state
