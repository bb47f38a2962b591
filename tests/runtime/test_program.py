"""Programs and the reference: the same results, the same state, bit for bit."""

import signal
import tracemalloc
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optkit
from optkit.backend.arrays import to_numpy
from optkit.errors import FailedPreconditionError, InternalError, InvalidArgumentError
from optkit.graph import Graph, IndexedSlices
from optkit.runtime import Session, code, interrupts
from optkit.runtime.interrupts import HeldBack
from optkit.runtime.updates import DenseGroup
from optkit.train.optimizer import Optimizer

# -- two sessions of one graph, one of which never makes a program --------------------------------


@dataclass
class Pair:
    """A session as users have it, and one that runs everything by the reference."""

    fast: Session = field(default_factory=Session)
    slow: Session = field(default_factory=Session)

    def __post_init__(self):
        self.slow._entropy = self.fast._entropy
        self.slow._program = lambda plan: None
        self.seen: list[Any] = []
        self.errors: list[Exception] = []
        find = self.fast._program
        self.fast._program = lambda plan: self._watched(find(plan))

    def _watched(self, program):
        def run(*arguments):
            try:
                return program(*arguments)
            except Exception as error:
                self.errors.append(error)
                raise

        return run if program is not None else None

    def run(self, fetches, feed=None, *, left=False):
        """Both give the same, or fail alike; afterwards their states are the same.

        A program may leave to the reference only what fails there too, and what `left` says.
        """
        self.errors.clear()
        results = [_outcome(session, fetches, feed) for session in (self.fast, self.slow)]
        assert _bits(results[0]) == _bits(results[1])
        assert not self.errors or left or _failed(results[1])
        assert _state(self.fast) == _state(self.slow)
        for result, bits in self.seen:  # what was handed out is the caller's own
            assert _bits(result) == bits
        self.seen.append((results[0], _bits(results[0])))
        return results[0]


def _outcome(session, fetches, feed):
    try:
        return session.run(fetches, feed)
    except Exception as error:  # noqa: BLE001 - whatever it is, both must raise it
        return type(error), str(error)


def _failed(result):
    return isinstance(result, tuple) and result and isinstance(result[0], type)


def _bits(value):
    if hasattr(value, "__cuda_array_interface__"):
        value = to_numpy(value)
    if isinstance(value, list | tuple):
        return [_bits(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return str(value.dtype), value.shape, value.tobytes()
    return value


def _state(session):
    return {op.name: _bits(value) for op, value in session._state.items()}


# -- random graphs --------------------------------------------------------------------------------

SHAPES = [(), (1,), (3,), (3, 2), (4, 5), (0, 2), (33,)]
DTYPES = [optkit.float16, optkit.float32, optkit.float64]


class Equation(Optimizer):
    """A user's optimizer with one slot."""

    slots = ("m",)

    def __init__(self, equation, **hyper):
        super().__init__(False, "Equation", **(hyper or {"rate": 0.1}))
        self.equation = equation

    def update(self, xp, w, g, m, **hyper):
        return self.equation(xp, w, g, m, **hyper)


def by_size(xp, w, g, m, rate):
    """No symbols can follow it."""
    m = m + g if g.size > 3 else m - g
    return w - rate * m, m


def _optimizer(draw):
    train = optkit.train
    return draw(
        st.sampled_from(
            [
                lambda: train.GradientDescentOptimizer(0.1),
                lambda: train.MomentumOptimizer(0.1, 0.9),
                lambda: train.AdamOptimizer(0.1),
                lambda: train.AdagradOptimizer(0.1),
                lambda: train.RMSPropOptimizer(0.1, centered=True),
                lambda: train.FtrlOptimizer(0.1),
                lambda: train.ProximalAdagradOptimizer(0.1, l1_regularization_strength=0.01),
                lambda: train.AdadeltaOptimizer(1.0),
                lambda: Equation(by_size),
                lambda: Equation(lambda xp, w, g, m, rate: (w - xp.sqrt(2.0) * rate * g, g)),
            ]
        )
    )()


class Case:
    """A graph drawn by hypothesis, and what may be fetched from it and fed."""

    def __init__(self, draw):
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 1000)))
        self.variables = [self._variable() for _ in range(draw(st.integers(1, 4)))]
        self.feeds = {}
        self.norms = []
        self.trains = [self._train() for _ in range(draw(st.integers(1, 2)))]
        self.writes = [self._write() for _ in range(draw(st.integers(0, 2)))]
        self.values = [self._value() for _ in range(draw(st.integers(1, 3)))]
        if draw(st.booleans()):
            self._average()
        if draw(st.booleans()):
            self._branch()

    def array(self, shape, dtype):
        array = self.rng.standard_normal(shape).astype(dtype.as_numpy_dtype)
        return np.asfortranarray(array) if array.ndim and self.draw(st.booleans()) else array

    def _variable(self):
        draw = self.draw
        shape, dtype = draw(st.sampled_from(SHAPES)), draw(st.sampled_from(DTYPES))
        constraint = draw(st.sampled_from([None, None, lambda w: optkit.clip_by_value(w, -1, 1)]))
        return optkit.Variable(
            self.array(shape, dtype),
            constraint=constraint,
            validate_shape=draw(st.integers(0, 5)) > 0,
        )

    def fed(self, shape, dtype):
        tensor = optkit.placeholder(dtype, draw_shape(self.draw, shape))
        self.feeds[tensor] = lambda: self.array(shape, dtype)
        return tensor

    def _gradient(self, w):
        draw, shape, dtype = self.draw, self.shape_of(w), w.dtype
        alike = [v for v in self.variables if v.dtype is dtype and self.shape_of(v) == shape]
        kinds = ["constant", "self", "other", "fed", "square", "random", "transposed"]
        if shape and w.constraint is None:
            kinds += ["rows", "rows"]
        kind = draw(st.sampled_from(kinds))
        if kind == "constant":
            return self.array(shape, dtype)
        if kind == "self":
            return optkit.identity(w)
        if kind == "other":
            return optkit.identity(draw(st.sampled_from(alike)))
        if kind == "fed":
            return self.fed(shape, dtype)
        if kind == "random":
            return optkit.random_normal(shape, dtype=dtype, seed=draw(st.sampled_from([None, 7])))
        if kind == "transposed":
            return optkit.transpose(optkit.constant(self.array(shape[::-1], dtype)))
        if kind == "rows":
            count = draw(st.integers(0, 4))
            indices = optkit.placeholder(optkit.int64, [None])
            self.feeds[indices] = lambda: self.rng.integers(
                0, max(1, shape[0]) + draw(st.sampled_from([0, 0, 0, 1])), count
            )
            return IndexedSlices(self.fed((count, *shape[1:]), dtype), indices)
        return optkit.square(w) * self.draw(st.sampled_from([1.0, 0.25]))

    def shape_of(self, w):
        return tuple(w.initial_value.shape.as_list())

    def _train(self):
        draw = self.draw
        chosen = draw(
            st.lists(st.sampled_from(self.variables), min_size=1, max_size=4, unique_by=id)
        )
        clipped = draw(st.booleans())
        if clipped:
            chosen = [w for w in chosen if w.dtype is chosen[0].dtype]
        gradients = [self._gradient(w) for w in chosen]
        if clipped:
            gradients, norm = optkit.clip_by_global_norm(gradients, 0.5)
            self.norms.append(norm)
        step = optkit.train.get_or_create_global_step() if draw(st.booleans()) else None
        return _optimizer(draw).apply_gradients(
            list(zip(gradients, chosen, strict=True)), global_step=step
        )

    def _write(self):
        draw = self.draw
        w = draw(st.sampled_from(self.variables))
        value = draw(
            st.sampled_from(
                [
                    lambda: self.fed(self.shape_of(w), w.dtype),
                    lambda: optkit.identity(w),
                    lambda: w * 2.0,
                    lambda: optkit.random_uniform(self.shape_of(w), dtype=w.dtype),
                ]
            )
        )()
        kind = draw(st.sampled_from(["assign", "assign_add", "assign_sub"]))
        return getattr(w, kind)(value)

    def _value(self):
        w = self.draw(st.sampled_from(self.variables))
        return self.draw(
            st.sampled_from(
                [
                    lambda: optkit.identity(w),
                    lambda: optkit.reduce_sum(w),
                    lambda: optkit.reshape(w, [-1]),
                    lambda: optkit.check_numerics(w * 3.0, "w"),
                    lambda: optkit.reduce_sum(w) + optkit.random_normal([], dtype=w.dtype),
                ]
            )
        )()

    def _average(self):
        average = optkit.train.ExponentialMovingAverage(0.9)
        with optkit.control_dependencies([self.trains[0]]):
            self.trains.append(average.apply(self.variables))

    def _branch(self):
        """A cond with a write on one side, and a read after it."""
        flag = optkit.placeholder(optkit.bool, [])
        self.feeds[flag] = lambda: bool(self.rng.integers(2))
        w, v = (self.draw(st.sampled_from(self.variables)) for _ in range(2))

        def written():
            with optkit.control_dependencies([self._write()]):
                return optkit.reduce_sum(optkit.cast(w, optkit.float32))

        def read():
            return optkit.reduce_sum(optkit.cast(v, optkit.float32)) * 2.0

        chosen = optkit.cond(flag, written, read)
        with optkit.control_dependencies([chosen, self.draw(st.sampled_from(self.trains))]):
            self.values += [chosen, optkit.identity(w), optkit.identity(v)]

    def act(self, pair):
        draw = self.draw
        kind = draw(st.sampled_from([*["run"] * 4, "load", "initialize", "feed", "open"]))
        w = draw(st.sampled_from(self.variables))
        if kind == "initialize":
            pair.run(w.initializer)
            return
        if kind == "load":
            shape = self.shape_of(w)
            pair.run(w.initializer, {w.initial_value: self.array(shape, w.dtype)})
            return
        if kind == "open":
            if w.shape.ndims is None:
                pair.run(w.initializer, {w.initial_value: self.array((2,), w.dtype)})
            return
        offered = [*self.trains, *self.trains, *self.writes, *self.values, *self.variables]
        offered += self.norms
        fetches = draw(st.lists(st.sampled_from(offered), min_size=1, max_size=4))
        feed = {tensor: make() for tensor, make in self.feeds.items()}
        if kind == "feed":
            feed[w] = self.array(self.shape_of(w), w.dtype)
        for _ in range(draw(st.integers(1, 5))):
            pair.run(fetches, feed)


def draw_shape(draw, shape):
    return draw(st.sampled_from([shape, (None,) * len(shape), None]))


@given(data=st.data())
def test_programs_do_what_the_reference_does(data):
    large = data.draw(st.sampled_from([1, code.LARGE]))
    with Graph().as_default() as graph, mock.patch.object(code, "LARGE", large):
        graph.seed = data.draw(st.sampled_from([None, 3]))
        case = Case(data.draw)
        pair = Pair()
        if data.draw(st.integers(0, 9)):
            pair.run(optkit.global_variables_initializer())
        for _ in range(data.draw(st.integers(1, 5))):
            case.act(pair)


# -- one case each --------------------------------------------------------------------------------


@pytest.fixture
def pair(graph):
    return Pair()


def test_a_gradient_that_is_another_variable_which_is_updated_too(pair):
    a, b = optkit.Variable([1.0, 2.0], name="a"), optkit.Variable([3.0, 5.0], name="b")
    sgd, momentum = optkit.train.GradientDescentOptimizer, optkit.train.MomentumOptimizer
    first = sgd(0.5).apply_gradients([(optkit.identity(b), a)])
    second = momentum(0.5, 0.9).apply_gradients([(optkit.reshape(a, [2]), b)])
    pair.run(optkit.global_variables_initializer())
    pair.run([first, second])
    assert pair.run([a, b])[0].tolist() == [-0.5, -0.5]
    pair.run([second, first])


def test_a_scaled_half_precision_gradient_is_rounded_before_the_update(pair):
    w = optkit.Variable(np.zeros(50, np.float16))
    gradient = np.random.default_rng(0).standard_normal(50).astype(np.float16)
    scaled = gradient * optkit.placeholder_with_default(np.float16(0.3), [])
    train = optkit.train.GradientDescentOptimizer(0.7).apply_gradients([(scaled, w)])
    pair.run(optkit.global_variables_initializer())
    pair.run([train, w])
    assert pair.run(w).any()


def test_a_norm_has_the_same_bits_wherever_the_gradients_lie(pair):
    """Alone, with the train op, and after another train op has spread the variables."""
    rng = np.random.default_rng(5)
    values = [rng.standard_normal(size).astype(np.float32) for size in (7, 5000, 3, 40, 4096, 900)]
    variables = [optkit.Variable(value) for value in values]
    gradients, norm = optkit.clip_by_global_norm([w * 1.1 for w in variables], 0.5)
    sgd = optkit.train.GradientDescentOptimizer(0.0)
    train = sgd.apply_gradients(list(zip(gradients, variables, strict=True)))
    some = sgd.apply_gradients([(values[3], variables[3])])
    pair.run(optkit.global_variables_initializer())
    alone = pair.run([norm, norm])
    pair.run([norm, norm])
    assert pair.run([train, norm])[1] == alone[0]
    other = Pair()
    other.run(optkit.global_variables_initializer())
    other.run(some)
    assert other.run([train, norm])[1] == alone[0]


def test_a_variable_in_fortrans_order_adds_up_the_same_before_and_after_an_update(pair):
    value = np.random.default_rng(0).standard_normal((300, 40)).astype(np.float32).T
    w = optkit.Variable(value)
    total = optkit.reduce_sum(w)
    train = optkit.train.GradientDescentOptimizer(0.0).minimize(total)
    pair.run(w.initializer, {w.initial_value: value})
    first = pair.run(total)
    pair.run([train, total])
    assert pair.run(total) == first


def test_rows_of_a_variable_that_changes_its_shape(pair):
    w = optkit.Variable([[1.0], [2.0]], validate_shape=False)
    rows = IndexedSlices(optkit.constant([[1.0]]), optkit.constant([0]))
    train = optkit.train.GradientDescentOptimizer(1.0).apply_gradients([(rows, w)])
    value = optkit.placeholder(optkit.float32, [None, 1])
    assign = w.assign(value)
    pair.run(optkit.global_variables_initializer())
    pair.run(train)
    pair.run(assign, {value: [[5.0], [6.0], [7.0]]})
    pair.run(train)
    assert pair.run(w).tolist() == [[4.0], [6.0], [7.0]]
    pair.run(assign, {value: [[8.0]]})
    pair.run([train, w])
    assert pair.run(w).tolist() == [[7.0]]


@pytest.mark.host("it looks into the programs of the host")
def test_an_equation_that_changes_large_gradients_in_place_is_refused_at_every_run(pair):
    def sly(xp, w, g, m, rate):
        if g.size > 8:
            g *= 2
        return w - rate * g, m

    w = optkit.Variable(np.zeros(10, np.float32))
    value = np.ones(10, np.float32)
    rows = IndexedSlices(optkit.square(value), optkit.range(10))
    dense = Equation(sly).apply_gradients([(optkit.square(value), w)])
    sparse = Equation(sly).apply_gradients([(rows, w)])
    pair.run(optkit.global_variables_initializer())
    for train in (dense, sparse) * 2:
        kind, text = pair.run(train)
        assert kind is InvalidArgumentError
        assert "read-only" in text
    assert not pair.run(w).any()


def test_numbers_that_numpy_works_out_in_float64(pair):
    w = optkit.Variable(np.linspace(0.1, 3.0, 50, dtype=np.float32))
    train = Equation(lambda xp, w, g, m, rate: (w - xp.sqrt(2.0) * g, m + g)).apply_gradients(
        [(w * 1.0, w)]
    )
    pair.run(optkit.global_variables_initializer())
    pair.run(train)


def test_two_variables_from_one_array_and_an_assignment_between_members_of_an_arena(pair):
    a, b = optkit.Variable([1.0, 2.0]), optkit.Variable([1.0, 2.0])
    pair.run(optkit.global_variables_initializer())
    source = np.float32([4.0, 5.0])
    for w in (a, b):
        pair.run(w.initializer, {w.initial_value: source})
    train = optkit.train.GradientDescentOptimizer(0.5).apply_gradients([([1.0, 1.0], a), (a, b)])
    pair.run(train)
    source[:] = 0.0
    swap = [a.assign(b), b.assign(a)]
    assert [value.tolist() for value in pair.run([a, b])] == [[3.5, 4.5], [2.0, 2.5]]
    pair.run(swap)
    pair.run([*swap, a, b])
    pair.run([train, a])
    assert [value.tolist() for value in pair.run([a, b])] == [[3.0, 4.0], [0.25, 0.25]]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("wrong", [[0.1], [0.1, 0.2, 0.3], [0.1, 0.2]])
def test_a_rate_that_is_no_scalar_is_refused_before_anything_is_written(pair, count, sparse, wrong):
    """It would stretch over the variable, or break off half-way."""
    rate = optkit.placeholder(optkit.float32, name="rate")  # of any shape
    gradient = optkit.ones([3])
    if sparse:
        gradient = IndexedSlices(gradient, optkit.range(3))
    variables = [optkit.Variable(np.float32([1.0, 2.0, 3.0])) for _ in range(count)]
    opt = optkit.train.MomentumOptimizer(rate, 0.9)
    train = opt.apply_gradients([(gradient, w) for w in variables])
    pair.run(optkit.global_variables_initializer())
    for _ in range(3):
        pair.run(train, {rate: 0.1})
        kind, text = pair.run(train, {rate: wrong})
        assert kind is InvalidArgumentError
        assert "learning_rate, of the update of variable" in text
        assert f"expected a scalar, got shape ({len(wrong)},)" in text
    np.testing.assert_allclose(pair.run(variables[0])[0], 1 - 0.1 - 0.19 - 0.271, rtol=1e-6)


def test_a_rule_that_gives_rows_of_a_variable_which_is_updated_too(pair):
    v, w = (optkit.Variable(np.float32([[1.0], [2.0], [3.0]])) for _ in range(2))
    rows = optkit.range(3)
    first = Equation(lambda xp, w, g, m, rate: (w - g, m)).apply_gradients(
        [(IndexedSlices(optkit.ones([3, 1]), rows), v)]
    )
    second = Equation(lambda xp, w, g, m, rate: (g, m + g)).apply_gradients(
        [(IndexedSlices(optkit.identity(v), rows), w)]
    )
    pair.run(optkit.global_variables_initializer())
    for k in range(3):
        pair.run([first, second])
        assert pair.run(w).tolist() == [[1.0 - k], [2.0 - k], [3.0 - k]]


def said(x):
    """The elements of x above zero, which are said to be three."""
    found = optkit.boolean_mask(x, x > 0)
    found.set_shape([3])
    return found


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("large", [1, code.LARGE])
def test_a_shape_that_was_said_wrongly_spreads_nothing(pair, monkeypatch, large, inside):
    """One number would be written to the places of three."""
    monkeypatch.setattr(code, "LARGE", large)
    x = optkit.placeholder(optkit.float32, [None])
    y = optkit.map_fn(said, optkit.reshape(x, [1, -1]))[0] if inside else said(x)
    assert y.sizes == (3,)
    a, b = optkit.Variable(np.zeros(3, np.float32)), optkit.Variable(np.zeros(2, np.float32))
    sgd = optkit.train.GradientDescentOptimizer(1.0)
    train = sgd.apply_gradients([(y * 2.0, a), (optkit.ones([2]), b)])
    total = optkit.exp(y * 2.0) * 2.0
    pair.run(optkit.global_variables_initializer())
    for values in [[1, 2, 3, -1]] * 4 + [[1, -2, -3, -1]]:
        pair.run([train, total], {x: values})
    assert isinstance(pair.run(train, {x: [1, -2, -3, -1]}), tuple)
    pair.run(total, {x: [1, -2, -3, -1]})


@pytest.mark.parametrize("kind", [FailedPreconditionError, InvalidArgumentError])
def test_after_an_error_the_session_goes_on_as_the_reference_does(pair, kind):
    w = optkit.Variable([1.0, 2.0])
    x = optkit.placeholder(optkit.float32, [2])
    late = optkit.Variable(1.0, name="late")
    noisy = w * x + optkit.random_normal([2], seed=1)
    wrong = late if kind is FailedPreconditionError else optkit.check_numerics(noisy, "noisy")
    train = optkit.train.AdamOptimizer(0.1).minimize(optkit.reduce_sum(noisy), var_list=[w])
    pair.run([v.initializer for v in optkit.global_variables() if v is not late])
    for _ in range(3):
        pair.run([train, noisy], {x: [1.0, 1.0]})
        assert pair.run([train, noisy, wrong], {x: [np.inf, 1.0]})[0] is kind


# -- signals --------------------------------------------------------------------------------------


class LimitError(Exception):
    """What a handler raises."""


class ComplaintError(InvalidArgumentError, LimitError):
    """The same, as operations raise it too."""

    def __init__(self):
        super().__init__("time is over")


@pytest.fixture
def handler(request):
    """A handler of SIGALRM that raises LimitError, or what the test says."""

    def raise_it(number, frame):
        raise getattr(request, "param", LimitError)

    before = signal.signal(signal.SIGALRM, raise_it)
    yield raise_it
    signal.signal(signal.SIGALRM, before)


@pytest.mark.host("it looks into the programs of the host")
@pytest.mark.parametrize("warm", [0, 3])
@pytest.mark.parametrize("name", ["SIGINT", "SIGALRM"])
@pytest.mark.parametrize("handler", [LimitError, ComplaintError], indirect=True)
def test_a_signal_while_variables_are_written_is_handled_when_all_are(
    pair, handler, monkeypatch, name, warm
):
    number = getattr(signal, name)
    a, b = optkit.Variable([1.0, 2.0]), optkit.Variable(np.float64([3.0]))
    train = optkit.train.GradientDescentOptimizer(1.0).apply_gradients(
        [([1.0, 1.0], a), (np.ones(1), b)], global_step=optkit.train.create_global_step()
    )
    pair.run(optkit.global_variables_initializer())
    apply, armed = DenseGroup.apply, []

    def interrupted(self, *arguments):
        apply(self, *arguments)
        if armed:
            signal.raise_signal(number)

    monkeypatch.setattr(DenseGroup, "apply", interrupted)
    for _ in range(warm):
        pair.run(train)
    armed.append(True)
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM)
    with pytest.raises(KeyboardInterrupt if name == "SIGINT" else LimitError):
        pair.fast.run(train)
    armed.clear()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM)) == handlers
    pair.slow.run(train)
    pair.run([train, a, b])


def test_what_a_signal_handler_raises_in_a_program_is_not_lost(pair, handler):
    w = optkit.Variable([1.0, 2.0])
    calls = []

    def equation(xp, w, g, m, rate):
        if calls:
            calls.pop()
            signal.raise_signal(signal.SIGALRM)
        return w - g, m + g.max()

    train = Equation(equation).apply_gradients([([1.0, 1.0], w)])
    pair.run(optkit.global_variables_initializer())
    for _ in range(3):
        pair.run(train)
    calls.append("once")
    with pytest.raises(LimitError):
        pair.fast.run(train)
    pair.run(train)


def test_ctrl_c_works_after_a_handler_has_raised_at_any_place_of_holding_signals_back(
    handler, monkeypatch
):
    real, left = interrupts._set_handler, []

    def setting(*arguments):
        result = real(*arguments)
        if left and not left.pop():
            signal.raise_signal(signal.SIGALRM)
        return result

    monkeypatch.setattr(interrupts, "_set_handler", setting)
    raised = 0
    for place in range(12):
        left[:] = [False, *[True] * place]
        try:
            with HeldBack():
                pass
        except LimitError:
            raised += 1
        left.clear()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(LimitError):
            signal.raise_signal(signal.SIGALRM)
    assert raised >= 2


@pytest.mark.host("a device's faults are other ones")
@pytest.mark.parametrize("fails_in", ["apply", "commit"])
def test_a_failure_while_variables_are_written_ends_the_session(graph, monkeypatch, fails_in):
    """It cannot be undone, and must not be taken for a failure of the computation."""
    w = optkit.Variable([1.0, 2.0])
    train = optkit.train.GradientDescentOptimizer(1.0).apply_gradients(
        [([1.0, 1.0], w)], global_step=optkit.train.create_global_step()
    )
    session = Session()
    session.run(optkit.global_variables_initializer())
    session.run(train)
    state = session.export_state()

    def broken(*_):
        raise MemoryError("no more")

    owner = DenseGroup if fails_in == "apply" else type(session._arenas)
    monkeypatch.setattr(owner, fails_in, broken)
    if fails_in == "apply":
        session._programs.clear()  # which have the method as it was
    with pytest.raises(InternalError, match=r"hold is unknown \(MemoryError: no more\)") as caught:
        session.run(train)
    assert isinstance(caught.value.__cause__.__cause__, MemoryError)
    monkeypatch.undo()
    for work in (
        lambda: session.run(w),
        lambda: session.value(w),
        session.export_state,
        lambda: session.import_state(state),
    ):
        with pytest.raises(InternalError, match="the session has ended"):
            work()
    session.close()
    with Session() as fresh:
        fresh.import_state(state)
        assert fresh.run([w, train])[0].tolist() == [0.0, 1.0]


# -- memory ---------------------------------------------------------------------------------------


def test_values_are_freed_when_they_have_been_read(graph):
    x = optkit.placeholder(optkit.float32, [None])
    y = x
    for _ in range(20):
        y = optkit.sin(y) + 1.0
    loss = optkit.reduce_sum(y)
    with optkit.Session() as session:
        data = np.zeros(500_000, np.float32)
        for _ in range(2):
            session.run(loss, {x: data})
        tracemalloc.start()
        try:
            session.run(loss, {x: data})
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 4 * data.nbytes  # all 40 values together are 40 times as much


@pytest.mark.parametrize("name", ["v0", "v3", "v7"])
def test_names_of_variables_are_no_names_of_values(graph, name):
    w = optkit.Variable([1.0, 2.0], name=name)
    b = optkit.Variable([3.0, 4.0, 5.0], name="v1")
    loss = optkit.reduce_sum(w * w) + optkit.reduce_sum(b * b)
    train = optkit.train.GradientDescentOptimizer(0.5).minimize(loss)
    with optkit.Session() as session:
        session.run(optkit.global_variables_initializer())
        assert session.run([loss, train])[0] == 55
        assert session._programs[next(reversed(session._plans.values()))] is not None
        np.testing.assert_array_equal(session.value(w), [0, 0])


@pytest.mark.host("it looks into the programs of the host")
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rows_of_an_optimizer_that_moves_all_rows(pair, dtype):
    rng = np.random.default_rng(11)
    w = optkit.Variable(rng.standard_normal((9000, 16)).astype(dtype))  # two threads' worth
    b = optkit.Variable(rng.standard_normal((5, 2)).astype(dtype))
    values = optkit.placeholder(dtype, [None, 16])
    rows = IndexedSlices(values, optkit.constant([3, 8999, 3]), w.shape)
    few = IndexedSlices(optkit.constant(np.ones((1, 2), dtype)), optkit.constant([4]), b.shape)
    train = optkit.train.AdamOptimizer(0.01).apply_gradients([(rows, w), (few, b)])
    pair.run(optkit.global_variables_initializer())
    for _ in range(3):
        pair.run(train, {values: rng.standard_normal((3, 16)).astype(dtype)})
    program = program_of(pair.fast)
    assert [row.idle is not None for row in program._rows] == [True, True]


def test_rows_of_an_optimizer_that_moves_all_rows_take_no_arrays_of_its_size(graph):
    w = optkit.Variable(np.ones((100_000, 16), np.float32))
    rows = IndexedSlices(optkit.ones([2, 16]), optkit.constant([1, 7]), w.shape)
    train = optkit.train.AdamOptimizer(0.01).apply_gradients([(rows, w)])
    session = Session()
    session.run(optkit.global_variables_initializer())
    session.run(train)
    tracemalloc.start()
    try:
        session.run(train)
        assert tracemalloc.get_traced_memory()[1] < w.shape.num_elements() * 4 / 10
    finally:
        tracemalloc.stop()


def program_of(session):
    return session._programs[next(reversed(session._plans.values()))]


@pytest.mark.host("it looks into the programs of the host")
@pytest.mark.parametrize("clip", [None, 0.5])
def test_averages_after_the_update_see_the_new_values_and_the_update_is_still_fused(pair, clip):
    rng = np.random.default_rng(12)
    x = optkit.placeholder(optkit.float32, [None, 6])
    w = optkit.Variable(rng.standard_normal((6, 4)).astype(np.float32))
    b = optkit.Variable(np.zeros(4, np.float32))
    loss = optkit.reduce_mean(optkit.square(x @ w + b))
    average = optkit.train.ExponentialMovingAverage(0.9)
    train = optkit.contrib.layers.optimize_loss(loss, None, 0.1, "Adam", clip_gradients=clip)
    with optkit.control_dependencies([train]):
        averaged = average.apply([w, b])
        after = [optkit.identity(w), optkit.reduce_sum(b)]
    pair.run(optkit.global_variables_initializer())
    for _ in range(4):
        before, new, *_ = pair.run(
            [w, *after, averaged, loss], {x: rng.standard_normal((5, 6)).astype(np.float32)}
        )
        assert not np.array_equal(before, new)
        np.testing.assert_array_equal(pair.fast.value(w), new)
    assert [group.seen for group in program_of(pair.fast)._groups] == [True]


def test_a_weight_that_is_constrained_after_its_update(pair):
    w = optkit.Variable(np.float32([0.1, 3.0, -2.0]))
    b = optkit.Variable(np.float32([1.0]))
    loss = optkit.reduce_sum(optkit.square(w)) + optkit.reduce_sum(b)
    train = optkit.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    with optkit.control_dependencies([train]):
        bounded = w.assign(optkit.clip_by_value(w, -1.0, 1.0))
    pair.run(optkit.global_variables_initializer())
    for _ in range(3):
        value = pair.run([bounded, train, b])[0]
        assert np.abs(value).max() <= 1
    assert [len(group.steps) for group in program_of(pair.fast)._groups] == [1]  # that of b


def test_an_update_seen_before_the_other_updates_of_its_kind(pair):
    a, b = optkit.Variable([1.0]), optkit.Variable([2.0])
    opt = optkit.train.GradientDescentOptimizer(0.5)
    first = opt.apply_gradients([(optkit.constant([1.0]), a)])
    with optkit.control_dependencies([first]):
        second = opt.apply_gradients([(optkit.identity(a), b)])
    pair.run(optkit.global_variables_initializer())
    for _ in range(3):
        pair.run(second)
    assert pair.run([a, b])[1].tolist() == [2.0 - 0.5 * (0.5 + 0.0 - 0.5)]


# -- planned memory -------------------------------------------------------------------------------


@pytest.fixture
def all_planned(monkeypatch):
    monkeypatch.setattr(code, "LARGE", 1)


def perceptron(batch=None):
    rng = np.random.default_rng(2)
    x = optkit.placeholder(optkit.float32, [batch, 30])
    net = x
    for n, m in [(30, 20), (20, 10)]:
        w = optkit.Variable(rng.standard_normal((n, m)).astype(np.float32))
        net = optkit.nn.relu(net @ w + optkit.Variable(np.full(m, 0.1, np.float32)))
    loss = optkit.reduce_mean(optkit.square(net))
    train = optkit.contrib.layers.optimize_loss(loss, None, 0.1, "Adam", clip_gradients=1.0)
    return x, net, train


@pytest.mark.host("it looks into the programs of the host")
def test_planned_values_of_a_step_are_those_of_the_reference(pair, all_planned):
    x, net, train = perceptron()
    pair.run(optkit.global_variables_initializer())
    rng = np.random.default_rng(3)
    for batch in [5, 5, 5, 7, 5, 7, 7, 7, 5, 1, 1, 1, 7]:  # the workspace moves when it grows
        pair.run([train, net], {x: rng.standard_normal((batch, 30)).astype(np.float32)})
    version = program_of(pair.fast)._versions[(((7, 30), (120, 4)),)]
    assert version._function not in (None, version._plain)


@pytest.mark.parametrize("order", ["C", "F"])
def test_sums_have_the_same_bits_with_planned_memory(pair, all_planned, order):
    """Whatever the order in memory of what is added up, which is that of the feed here."""
    x = optkit.placeholder(optkit.float32, [None, None])
    totals = [
        optkit.reduce_sum(optkit.exp(each * scale) + 1.0)
        for each in (x, optkit.transpose(x))
        for scale in (0.1, 0.3, 0.5, 0.7, 1.1, 1.3)
    ]
    value = np.random.default_rng(0).standard_normal((300, 41)).astype(np.float32)
    fed = {x: np.asarray(value, order=order)}
    first = pair.run(totals, fed)
    for _ in range(4):
        pair.run(totals, {x: value})
        assert pair.run(totals, fed) == first


def test_a_view_keeps_the_place_of_what_it_shows(pair, all_planned):
    x = optkit.placeholder(optkit.float32, [3, 3])
    w = optkit.Variable(np.eye(3, dtype=np.float32))
    turned = optkit.reshape(optkit.transpose(x + 1.0), [3, 3])
    other = optkit.exp(x * 2.0)  # would lie where x + 1 lay
    loss = optkit.reduce_sum(turned * (other @ w))
    train = optkit.train.GradientDescentOptimizer(0.1).minimize(loss)
    pair.run(optkit.global_variables_initializer())
    for k in range(4):
        pair.run([loss, train], {x: np.arange(9, dtype=np.float32).reshape(3, 3) / (9 + k)})


@pytest.mark.host("it looks into the programs of the host")
def test_large_values_made_of_what_was_just_written_have_places_too(pair, all_planned):
    x = optkit.placeholder(optkit.float32, [None])
    w = optkit.Variable(np.zeros(4, np.float32), validate_shape=False)
    y = optkit.exp(w.assign(x + 0.5)) * 2.0
    pair.run(w.initializer)
    for k in range(4):
        pair.run(y, {x: [k, 1.0, 2.0]})
    (version,) = program_of(pair.fast)._versions.values()
    assert version._function is not version._plain


@pytest.mark.host("it looks into the programs of the host")
def test_shapes_of_a_run_that_was_interrupted_are_noted_anew(pair, all_planned):
    x = optkit.placeholder(optkit.float32, [None])
    checked = optkit.check_numerics(x, "x")
    with optkit.control_dependencies([checked]):
        y = optkit.exp(x * 2.0) + 1.0
    for value in [1.0, np.nan, 1.0, 1.0]:  # the second run notes
        pair.run(y, {x: [value, 2.0]})
    (version,) = program_of(pair.fast)._versions.values()
    assert len(version._layouts) == 4


def test_a_value_whose_shape_depends_on_values_is_not_written_to_a_planned_place(pair, all_planned):
    x = optkit.placeholder(optkit.float32, [4])
    w = optkit.Variable(2.0)
    some = optkit.boolean_mask(x, x > 0)
    y = some * w
    train = optkit.train.GradientDescentOptimizer(0.1).minimize(optkit.reduce_sum(y))
    pair.run(optkit.global_variables_initializer())
    for values in [[1, 2, -1, 3], [1, 2, -1, 3], [1, 2, -1, 3], [1, 2, 4, 3], [-1, -1, -1, 3]]:
        assert pair.run([y, train], {x: values})[0].shape == (sum(v > 0 for v in values),)


@pytest.mark.host("it looks into the programs of the host")
def test_more_shapes_than_versions_are_kept(pair, all_planned):
    x, net, train = perceptron()
    pair.run(optkit.global_variables_initializer())
    for batch in [*range(1, 12)] * 3:
        pair.run([net, train], {x: np.ones((batch, 30), np.float32)})
    program = program_of(pair.fast)
    assert len(program._versions) == 8


@pytest.mark.host("it looks into the programs of the host")
def test_gradients_go_straight_to_their_place_in_the_arena(graph, monkeypatch):
    copied = []
    monkeypatch.setattr(code, "gathered", lambda *arguments: copied.append(arguments[2]))
    x, _, train = perceptron()
    session = Session()
    session.run(optkit.global_variables_initializer())
    session.run(train, {x: np.ones((5, 30), np.float32)})
    assert copied == ["Variable_1", "Variable_3"]  # of the matrices nothing is copied


def test_an_interrupted_planned_step_leaves_everything(pair, all_planned, monkeypatch):
    x, net, train = perceptron()
    guard = optkit.placeholder_with_default(1.0, [])
    checked = optkit.check_numerics(optkit.reduce_sum(net) / guard, "net")
    pair.run(optkit.global_variables_initializer())
    feed = {x: np.ones((5, 30), np.float32)}
    for _ in range(4):
        pair.run([train, checked], feed)
    kind, text = pair.run([train, checked], {**feed, guard: 0.0})
    assert kind is InvalidArgumentError
    assert "net" in text
    pair.run([train, checked], feed)


# -- branches -------------------------------------------------------------------------------------


@pytest.mark.host("it looks into the programs of the host")
@pytest.mark.parametrize("large", [1, code.LARGE])
def test_a_step_whose_layers_depend_on_a_fed_flag(pair, monkeypatch, large):
    monkeypatch.setattr(code, "LARGE", large)
    optkit.set_random_seed(4)
    x = optkit.placeholder(optkit.float32, [None, 6])
    training = optkit.placeholder(optkit.bool, [])
    net = optkit.layers.dense(x, 5)
    net = optkit.layers.batch_normalization(net, training=training)
    net = optkit.layers.dropout(optkit.nn.relu(net), 0.5, training=training)
    loss = optkit.reduce_mean(optkit.square(net))
    train = optkit.contrib.layers.optimize_loss(loss, None, 0.1, "Adam", clip_gradients=1.0)
    pair.run(optkit.global_variables_initializer())
    rng = np.random.default_rng(6)
    for flag in [True, True, True, False, True, False, False, False, True]:
        feed = {x: rng.standard_normal((7, 6)).astype(np.float32), training: flag}
        pair.run([train, net] if flag else net, feed)
        assert program_of(pair.fast) is not None
    pair.run([train, net], {x: np.ones((3, 6), np.float32), training: False})


@pytest.mark.host("it looks into the programs of the host")
def test_writes_reads_and_fetches_in_branches(pair):
    outer, inner = (optkit.placeholder(optkit.bool, []) for _ in range(2))
    w = optkit.Variable(np.float32([1.0, 2.0]))
    count = optkit.Variable(0)
    inside = []

    def deep():
        with optkit.control_dependencies([w.assign_add([1.0, 1.0])]):
            inside.append(optkit.identity(w) * 10.0)
        return inside[0]

    def shallow():
        with optkit.control_dependencies([count.assign_add(1)]):
            return optkit.random_normal([2]) + w

    def yes():
        return optkit.cond(inner, deep, lambda: optkit.identity(w))

    result = optkit.cond(outer, yes, shallow)
    with optkit.control_dependencies([result]):
        after = [optkit.identity(w), optkit.identity(count), optkit.is_variable_initialized(w)]
    pair.run(after, {outer: True, inner: True})  # before anything has a value
    pair.run(optkit.global_variables_initializer())
    for flags in [(True, True), (True, False), (False, True), (False, False)] * 2:
        feed = dict(zip([outer, inner], flags, strict=True))
        pair.run([result, *after], feed)
        found = pair.run(inside, feed)
        assert (found[0] is InvalidArgumentError) == (flags != (True, True))
    program = pair.fast._programs[
        pair.fast._plan([result.op.outputs[0], *[a.op.outputs[0] for a in after]], [outer, inner])
    ]
    assert program is not None


def test_an_update_in_a_branch(pair):
    w = optkit.Variable(np.float32([1.0, -3.0]))
    flag = optkit.placeholder(optkit.bool, [])
    opt = optkit.train.AdamOptimizer(0.1)
    pairs = opt.compute_gradients(optkit.reduce_sum(optkit.square(w)))
    train = optkit.cond(
        flag,
        lambda: optkit.tuple([w], control_inputs=[opt.apply_gradients(pairs)])[0],
        lambda: optkit.identity(w),
    )
    pair.run(optkit.global_variables_initializer())
    for value in [True, False, True, True, False]:
        pair.run([train, w], {flag: value})


def test_updates_in_a_branch_are_fused(pair):
    """Also where clipping has a factor for all, in arenas of several variables, and by rows."""
    shapes = [[2, 3], [4], [3]]
    variables = [optkit.Variable(optkit.ones(shape)) for shape in shapes]
    table = optkit.Variable(optkit.ones([5, 2]))
    x = optkit.placeholder(optkit.float32, [])
    flag, other = optkit.placeholder(optkit.bool, []), optkit.placeholder(optkit.bool, [])
    opt = optkit.train.AdamOptimizer(0.1)
    momentum = optkit.train.MomentumOptimizer(0.1, 0.9)
    grads = [x * v for v in variables]
    clipped, norm = optkit.clip_by_global_norm(grads, 0.5)
    rows = optkit.IndexedSlices(x * optkit.ones([2, 2]), [1, 3])

    def yes():
        first = opt.apply_gradients(list(zip(clipped, variables, strict=True)))
        inner = optkit.cond(other, lambda: momentum.apply_gradients([(rows, table)]), optkit.no_op)
        return optkit.group(first, inner)

    train = optkit.cond(flag, yes, optkit.no_op)
    pair.run(optkit.global_variables_initializer())
    for i in range(12):
        feed = {x: 0.25 * i, flag: i % 3 > 0, other: i % 2 > 0}
        pair.run([train, norm] if i % 4 else [train, grads[0]], feed)
    pair.run(train, {x: 1.0, flag: True, other: True})
    program = pair.fast._programs[pair.fast._plan([train], [x, flag, other])]
    assert [len(group.steps) for group in program._groups] == [3]
    assert len(program._rows) == 1


def test_a_norm_in_a_branch_is_no_norm_for_those_outside(pair):
    """Gradients are gathered where they are needed, whichever branch was first to need them."""
    variables = [optkit.Variable([1.0, 2.0]), optkit.Variable([3.0])]
    grads = [optkit.placeholder(optkit.float32, v.shape) for v in variables]
    flag, other = optkit.placeholder(optkit.bool, []), optkit.placeholder(optkit.bool, [])
    inside = optkit.cond(other, lambda: optkit.global_norm(grads), lambda: optkit.constant(0.0))
    outside = optkit.global_norm(grads)
    opt = optkit.train.AdamOptimizer(0.1)
    pairs = list(zip(grads, variables, strict=True))
    train = optkit.cond(flag, lambda: opt.apply_gradients(pairs), optkit.no_op)
    pair.run(optkit.global_variables_initializer())
    for i in range(16):
        feed = {g: np.full(v.shape, 1.0 + i) for g, v in pairs}
        feed |= {flag: i % 2 > 0, other: i % 4 > 1}
        pair.run([train, inside] if i < 8 else [train, inside, outside], feed)


def test_a_branch_that_is_never_taken_needs_no_values(pair):
    w, never = optkit.Variable([1.0]), optkit.Variable([1.0])
    flag = optkit.placeholder(optkit.bool, [])
    rate = optkit.train.GradientDescentOptimizer(0.5)

    def step(variable):
        return rate.apply_gradients([(optkit.ones([1]), variable)])

    train = optkit.cond(flag, lambda: step(w), lambda: step(never))
    pair.run(w.initializer)
    for _ in range(3):
        pair.run([train, w], {flag: True})
    pair.run(train, {flag: False})
    pair.run(never.initializer)
    for value in [False, True, False]:
        pair.run(train, {flag: value})
