"""Sessions on a device: what crosses to the host, what waits, what is launched, what goes wrong."""

import contextlib
import ctypes
import gc
import itertools
import logging

import numpy as np
import pytest

import optkit as tf
import summaries
from optkit.backend.cuda import pace
from optkit.errors import InternalError, InvalidArgumentError, ResourceExhaustedError
from optkit.runtime.device_program import DeviceProgram
from optkit.runtime.device_updates import DeviceGroup
from tests import cusim
from tests.conftest import DEVICE
from tests.train.rules import OPTIMIZERS

pytestmark = pytest.mark.cupy

if DEVICE:
    import cupy


@contextlib.contextmanager
def logged():
    """What is put on streams in the body, in order."""
    found = []
    with cusim.settings(log=True):
        before = len(cusim.stats()["log"])
        yield found
        found += cusim.stats()["log"][before:]


def copies_home(log):
    """How often something was copied to the host."""
    return log.count("memcpy to host")


class Net:
    """Two dense layers, clipped gradients and an optimizer."""

    def __init__(self, optimizer=None, *, clip=True, sizes=(6, 5, 3), backend=None):
        rng = np.random.default_rng(0)
        self.x = tf.placeholder(tf.float32, [None, sizes[0]], name="x")
        self.y = tf.placeholder(tf.int32, [None], name="y")
        h = self.x
        for i, (m, n) in enumerate(itertools.pairwise(sizes)):
            w = tf.get_variable(f"w{i}", initializer=rng.standard_normal((m, n)).astype("f4"))
            b = tf.get_variable(f"b{i}", initializer=np.zeros(n, "f4"))
            h = tf.matmul(h if i == 0 else tf.nn.relu(h), w) + b
        self.loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=self.y, logits=h)
        )
        self.step = tf.train.get_or_create_global_step()
        self.optimizer = optimizer or tf.train.AdamOptimizer(0.01)
        pairs = self.optimizer.compute_gradients(self.loss)
        grads = [g for g, _ in pairs]
        if clip:
            grads, self.norm = tf.clip_by_global_norm(grads, 0.5)
        self.train_op = self.optimizer.apply_gradients(
            zip(grads, [v for _, v in pairs], strict=True), self.step
        )
        self.session = tf.Session(backend=backend)
        self.session.run(tf.global_variables_initializer())

    def feed(self, seed=1):
        rng = np.random.default_rng(seed)
        return {
            self.x: rng.standard_normal((8, 6)).astype("f4"),
            self.y: rng.integers(0, 3, 8).astype("i4"),
        }

    def state(self):
        return {v.op.name: self.session.value(v) for v in tf.global_variables()}


# -- a step ---------------------------------------------------------------------------------------


@pytest.mark.cusim
def test_a_step_is_one_update_launch_and_one_copy_home():
    net = Net()
    for seed in range(3):
        net.session.run([net.loss, net.norm, net.train_op], net.feed(seed))
    with logged() as log:
        net.session.run([net.loss, net.norm, net.train_op], net.feed())
    assert log.count("update") == 1
    assert log.count("pack") == 1
    assert copies_home(log) == 1
    assert log.count("squares") == log.count("root") == 1


@pytest.mark.cusim
def test_a_step_that_fetches_nothing_brings_nothing_home():
    net = Net()
    for seed in range(3):
        net.session.run(net.train_op, net.feed(seed))
    with logged() as log:
        net.session.run(net.train_op, net.feed())
    assert not copies_home(log)
    assert log.count("update") == 1
    assert "pack" not in log


@pytest.mark.cusim
def test_p105_one_launch_updates_a_thousand_variables():
    variables = [tf.Variable(np.full(i % 7 + 1, 1.0, "f4")) for i in range(1000)]
    loss = tf.add_n([tf.reduce_sum(v * v) for v in variables])
    train_op = tf.train.AdamOptimizer(0.1).minimize(loss)
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    session.run(train_op)
    with logged() as log:
        session.run(train_op)
    assert log.count("update") == 1
    assert session.value(variables[0]) < 1


@pytest.mark.cusim
def test_constant_gradients_are_looked_at_once(monkeypatch):
    variables = [tf.Variable(np.full(i % 3 + 1, 1.0, "f4")) for i in range(20)]
    grads = [tf.constant(np.arange(i % 3 + 1, dtype="f4")) for i in range(20)]
    train_op = tf.train.AdamOptimizer(0.1).apply_gradients(list(zip(grads, variables, strict=True)))
    looked = []
    ready = DeviceGroup.ready
    monkeypatch.setattr(DeviceGroup, "ready", lambda *a: looked.append(a) or ready(*a))
    sessions = [tf.Session(backend=name) for name in ("numpy", "cupy")]
    for session in sessions:
        session.run(tf.global_variables_initializer())
        for _ in range(4):
            session.run(train_op)
    assert len(looked) == 1
    with cupy.cuda.Stream():
        sessions[1].run(train_op)
    sessions[0].run(train_op)
    for v in variables:
        np.testing.assert_array_equal(sessions[1].value(v), sessions[0].value(v))


@pytest.mark.cusim
def test_updates_whose_results_are_seen_are_one_launch():
    """Averages over the new values, in the same run, by a group that is staged."""
    variables = [tf.Variable(np.full(i + 1, 1.0 + i, "f4")) for i in range(5)]
    loss = tf.add_n([tf.reduce_sum(v * v) for v in variables])
    step = tf.train.get_or_create_global_step()
    train_op = tf.train.AdamOptimizer(0.1).minimize(loss, step)
    average = tf.train.ExponentialMovingAverage(0.5)
    with tf.control_dependencies([train_op]):
        both = tf.group(average.apply(variables), variables[0].read_value())
    averages = [average.average(v) for v in variables]
    sessions = [tf.Session(backend=name) for name in ("numpy", "cupy")]
    for session in sessions:
        session.run(tf.global_variables_initializer())
        for fetches in (both, [both, variables], train_op, both):
            session.run(fetches)
    with logged() as log:
        sessions[1].run(both)
    assert log.count("update") == 1
    assert not any(name.startswith(("update_one", "update_rows")) for name in log)
    assert not copies_home(log)
    sessions[0].run(both)
    for v in (*variables, *averages, step):
        np.testing.assert_array_equal(sessions[1].value(v), sessions[0].value(v))


@pytest.mark.cusim
@pytest.mark.parametrize("scaled", [False, True])
def test_a_step_that_is_taken_on_a_condition_is_one_launch(scaled):
    """That of accumulated gradients, and that of scaled losses."""
    if scaled:
        optimizer = tf.contrib.mixed_precision.LossScaleOptimizer(tf.train.AdamOptimizer(0.01), 8)
        expected = [1, 1, 1, 1]
    else:
        optimizer = tf.train.GradientAccumulationOptimizer(tf.train.AdamOptimizer(0.01), steps=2)
        expected = [0, 1, 0, 1]
    net = Net(optimizer)
    seen = []
    for seed in range(4):
        with logged() as log:
            net.session.run(net.train_op, net.feed(seed))
        seen.append(sum(name.startswith("update") for name in log))
    assert seen == expected


@pytest.mark.cusim
def test_updates_of_one_variable_by_two_optimizers_are_a_launch_each():
    w = tf.Variable(np.ones(3, "f4"))
    loss = tf.reduce_sum(w * w)
    both = [
        tf.train.AdamOptimizer(0.1).minimize(loss),
        tf.train.MomentumOptimizer(0.1, 0.5).minimize(loss),
    ]
    sessions = [tf.Session(backend=name) for name in ("numpy", "cupy")]
    for session in sessions:
        session.run(tf.global_variables_initializer())
        session.run(both)
    with logged() as log:
        sessions[1].run(both)
    assert log.count("update_one") == 2
    sessions[0].run(both)
    np.testing.assert_array_equal(sessions[1].value(w), sessions[0].value(w))


@pytest.mark.cusim
def test_eager_updates_are_one_launch_each():
    with tf.eager():
        w = tf.Variable(np.ones(3, "f4"))
        optimizer = tf.train.AdamOptimizer(0.1)
        for _ in range(2):
            with logged() as log:
                optimizer.apply_gradients([(tf.constant([1.0, 2.0, 3.0]), w)])
        assert log.count("update_one") == 1
        assert (w.numpy() < 1).all()


@pytest.mark.cusim
@pytest.mark.parametrize("name", ["SGD", "Adam", "Ftrl"])
def test_updates_wait_for_nothing(name):
    """With lazy streams nothing runs until somebody waits: training queues step after step."""
    x = tf.placeholder(tf.float32, [3])  # no products of matrices: cusim's own wait
    w = tf.Variable(np.ones(3, "f4"))
    step = tf.train.get_or_create_global_step()
    train_op = tf.contrib.layers.optimize_loss(
        tf.reduce_sum(w * w * x),
        step,
        0.1,
        name,
        clip_gradients=1.0,
        learning_rate_decay_fn=lambda rate, step: tf.train.exponential_decay(rate, step, 2, 0.5),
    )
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    feed = {x: np.ones(3, "f4")}
    for _ in range(2):
        session.run(train_op.op, feed)
    before = session.value(w)
    memory = (ctypes.c_float * 3).from_address(session._state[w.op].data.ptr)
    with cusim.settings(lazy=True):
        for _ in range(5):
            session.run(train_op.op, feed)
        np.testing.assert_array_equal(memory, before)  # nobody has waited
        session.synchronize()
        assert (np.array(memory) < before).all()
    assert session.value(step) == 7


def test_programs_on_a_device_are_what_runs():
    net = Net()
    for seed in range(2):
        net.session.run(net.train_op, net.feed(seed))
    (program,) = [p for p in net.session._programs.values() if p is not None and p.in_place]
    assert isinstance(program, DeviceProgram)
    held = [net.session._state[v.op] for v in tf.global_variables()]
    assert all(isinstance(array, cupy.ndarray) for array in held)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_p111_dtypes_stay_through_optimizers_and_schedules(name, dtype):
    step = tf.Variable(np.int64(0), trainable=False)
    rate = tf.train.exponential_decay(np.float64(0.1), step, 10, 0.9)
    for given in (0.1, np.float64(0.1), rate):
        w = tf.Variable(np.ones(4, dtype))
        optimizer = OPTIMIZERS[name](given, step)
        train_op = optimizer.minimize(tf.reduce_sum(w * w), step)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for _ in range(3):
                session.run(train_op)
            held = {v.op.name: session.value(v).dtype for v in (w, *optimizer.variables())}
        powers = {name for name in held if "power" in name}
        assert {held[name].name for name in held.keys() - powers} == {dtype}, held


@pytest.mark.parametrize("noise", ["of optimize_loss", "of an op"])
def test_p110_seeds_give_numpys_numbers(noise):
    """Ten steps with gradient noise: NumPy and CuPy end with identical weights."""
    weights = {}
    for backend in ("numpy", "cupy"):
        with tf.Graph().as_default():
            tf.set_random_seed(0)
            w = tf.Variable(np.linspace(-1, 1, 50, dtype="f4"))
            if noise == "of an op":
                gradient = w * 0.5 + tf.random_normal([50], stddev=0.1)
                optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
                train_op = optimizer.apply_gradients([(gradient, w)])
            else:
                step = tf.train.get_or_create_global_step()
                train_op = tf.contrib.layers.optimize_loss(
                    tf.reduce_sum(w * w), step, 0.1, "SGD", gradient_noise_scale=0.1
                )
            with tf.Session(backend=backend) as session:
                session.run(tf.global_variables_initializer())
                for _ in range(10):
                    session.run(train_op)
                weights[backend] = session.value(w).tobytes()
    assert weights["numpy"] == weights["cupy"]


def test_sparse_steps_are_those_of_numpy():
    ids = np.array([[3, 1], [3, 0]], np.int32)
    values = {}
    for backend in ("numpy", "cupy"):
        with tf.Graph().as_default():
            e = tf.Variable(np.arange(20, dtype="f4").reshape(5, 4) / 20)
            picked = tf.placeholder(tf.int32, [None, 2])
            loss = tf.reduce_sum(tf.gather(e, picked) ** 2)
            train_op = tf.train.AdagradOptimizer(0.1).minimize(loss)
            with tf.Session(backend=backend) as session:
                session.run(tf.global_variables_initializer())
                for _ in range(3):
                    session.run(train_op, {picked: ids})
                values[backend] = session.value(e).tobytes()
    assert values["numpy"] == values["cupy"]


class Switched:
    """A model that does one thing in training and another one after it."""

    def __init__(self, backend):
        self.training = tf.placeholder(tf.bool, [], name="training")
        self.x = tf.placeholder(tf.float32, [None, 3], name="x")
        w = tf.Variable(np.ones((3, 2), "f4"))
        mean = tf.Variable(np.zeros(3, "f4"), trainable=False)
        batch = tf.reduce_mean(self.x, 0)

        def average():
            with tf.control_dependencies([mean.assign(mean * 0.5 + batch * 0.5)]):
                return tf.identity(batch)

        centred = self.x - tf.cond(self.training, average, mean.read_value)
        self.y = tf.matmul(centred, w)
        self.inner = tf.cond(
            tf.logical_not(self.training),
            lambda: tf.cond(self.x[0, 0] > 0, lambda: tf.constant(1), lambda: tf.constant(2)),
            lambda: tf.constant(3),
        )
        self.train_op = tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(self.y**2))
        self.held = w, mean
        self.session = tf.Session(backend=backend)
        self.session.run(tf.global_variables_initializer())

    def run(self, *fetches, training):
        x = np.arange(12, dtype="f4").reshape(4, 3)
        return self.session.run(list(fetches), {self.x: x, self.training: training})


def test_branches_do_what_numpy_does():
    results = {}
    for backend in ("numpy", "cupy"):
        with tf.Graph().as_default():
            model = Switched(backend)
            found = []
            for training in (True, False, True, True, False):
                found += model.run(model.y, model.inner, model.train_op, training=training)[:2]
            found += [model.session.value(v) for v in model.held]
            results[backend] = found
    for got, wanted in zip(results["cupy"], results["numpy"], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.cusim
def test_a_fed_flag_is_asked_of_nobody():
    model = Switched("cupy")
    for training in (True, False):
        for _ in range(2):
            model.run(model.y, model.train_op, training=training)
        with logged() as log:
            model.run(model.y, model.train_op, training=training)
        assert log.count("update") == 1
        assert copies_home(log) == 1
    assert all(isinstance(p, DeviceProgram) for p in model.session._programs.values())


def test_a_value_of_a_branch_that_was_not_taken():
    training = tf.placeholder(tf.bool, [])
    inner = []
    tf.cond(training, lambda: inner.append(tf.constant(1.0) * 2) or inner[0], lambda: 0.0)
    session = tf.Session()
    for _ in range(2):
        assert session.run(inner[0], {training: True}) == 2
        with pytest.raises(InvalidArgumentError, match="branch that was not taken"):
            session.run(inner[0], {training: False})


@pytest.mark.cusim
def test_shapes_are_known_to_the_host():
    """Sizes that depend on a batch are worked out where they are asked for."""
    x = tf.placeholder(tf.float32, [None, 4])
    rows = tf.shape(x)[0]
    y = tf.reshape(x, [rows * 2, 2]) + tf.zeros(tf.stack([rows * 2, 2]))
    session = tf.Session()
    feed = {x: cupy.ones((3, 4), "f4")}
    for _ in range(2):
        session.run(y, feed)
    with logged() as log:
        assert session.run(y, feed).shape == (6, 2)
    assert copies_home(log) == 1


@pytest.mark.parametrize("mode", [contextlib.nullcontext, tf.eager], ids=["graph", "eager"])
def test_texts_stay_on_the_host(mode):
    """A variable of text lives beside those of numbers, in runs and loops of both."""
    with mode():
        if mode is tf.eager:
            name = tf.Variable(["a", "b"])
            name.assign(["c", "d"])
            assert name.numpy().tolist() == [b"c", b"d"]
            return
        name, w = tf.Variable(["a", "b"], trainable=False), tf.Variable(2.0)
        label = tf.placeholder(tf.string, [2])
        _, kept, power = tf.while_loop(
            lambda i, *_: i < 3, lambda i, text, y: (i + 1, text, y * w), [0, label, 1.0]
        )
        (slope,) = tf.gradients(power, w)
        train_op = tf.train.GradientDescentOptimizer(0.0).minimize(w * w)
        session = tf.Session()
        session.run(tf.global_variables_initializer())
        for _ in range(3):
            fetches = [name.assign(label), kept, power, slope, train_op]
            told, kept_value, *numbers, _ = session.run(fetches, {label: ["c", "d"]})
            assert told.tolist() == kept_value.tolist() == [b"c", b"d"]
            assert numbers == [8, 12]
        session.import_state(session.export_state())
        assert session.value(name).tolist() == [b"c", b"d"]


# -- feeds ----------------------------------------------------------------------------------------


def test_p108_arrays_of_both_kinds_are_fed_to_both_backends():
    x = tf.placeholder(tf.float32, [3])
    y = x * 2
    arrays = np.array([1, 2, 3], "f4"), cupy.array([1, 2, 3], "f4")
    for backend in ("cupy", "numpy"):
        with tf.Session(backend=backend) as session:
            for array in arrays:
                result = session.run(y, {x: array})
                assert type(result) is np.ndarray
                np.testing.assert_array_equal(result, [2, 4, 6])


@pytest.mark.parametrize("dlpack", [False, True], ids=["interface", "dlpack"])
def test_device_arrays_are_fed_without_a_copy(dlpack):
    class Foreign:
        """Another library's array."""

        def __init__(self, array):
            self.array = array
            if not dlpack:
                self.__cuda_array_interface__ = array.__cuda_array_interface__

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    x = tf.placeholder(tf.float32, [3])
    seen = []
    y = tf.py_func(lambda array: seen.append(1) or array, [x * 1], tf.float32)
    array = cupy.array([1, 2, 3], "f4")
    session = tf.Session()
    backend = session._backend
    assert backend.shared(Foreign(array)).data.ptr == array.data.ptr
    np.testing.assert_array_equal(session.run(y, {x: Foreign(array)}), [1, 2, 3])
    with pytest.raises(ValueError, match="expected shape"):
        session.run(y, {x: Foreign(cupy.zeros(4, "f4"))})


def test_fed_device_arrays_are_converted_where_they_are():
    x = tf.placeholder(tf.float32, [3])
    session = tf.Session()
    result = session.run(x + 1, {x: cupy.array([1, 2, 3], "f8")})
    assert result.dtype == np.float32
    with pytest.raises(TypeError, match="expected int32, got"):
        session.run(tf.placeholder(tf.int32, [3]), {"Placeholder_1:0": cupy.zeros(3, "f4")})


def test_a_fed_device_array_is_never_the_variables_own():
    w = tf.Variable(np.zeros(3, "f4"))
    x = tf.placeholder(tf.float32, [3])
    session = tf.Session()
    array = cupy.array([1, 2, 3], "f4")
    session.run(w.assign(x), {x: array})
    array[...] = 7
    np.testing.assert_array_equal(session.value(w), [1, 2, 3])
    session.run(tf.train.GradientDescentOptimizer(1.0).apply_gradients([(x, w)]), {x: array})
    np.testing.assert_array_equal(array.get(), 7)


def test_p101_fetches_and_summaries_make_one_explicit_copy():
    """CuPy's arrays refuse NumPy's conversion, so every way out must ask for it."""
    w = tf.Variable(np.array([1, 2, 3], "f4"))
    loss = tf.reduce_sum(w)
    tf.summary.scalar("loss", loss)
    tf.summary.histogram("weights", w)
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    value, data = session.run([w, tf.summary.merge_all()])
    assert type(value) is np.ndarray
    assert type(session.run(loss)) is np.float32
    assert b"loss" in data
    assert b"weights" in data
    with tf.Session(backend="numpy") as host:
        host.run(tf.global_variables_initializer())
        assert host.run(tf.summary.merge_all()) == data


@pytest.mark.cusim
def test_summaries_of_a_step_come_home_in_one_block():
    w = tf.Variable(np.arange(100, dtype="f4"))
    for i in range(4):
        tf.summary.scalar(f"scalar{i}", tf.reduce_sum(w) * i)
        tf.summary.histogram(f"histogram{i}", w * i)
    merged = tf.summary.merge_all()
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    session.run(merged)
    with logged() as log:
        session.run(merged)
    assert log.count("count") == 4
    assert log.count("pack") == 1
    assert copies_home(log) == 1


# -- checks ---------------------------------------------------------------------------------------


def gathering(where):
    """Rows picked by numbers that the host knows, or that only the device knows."""
    w = tf.Variable(np.arange(10, dtype="f4").reshape(5, 2), name="w")
    numbers = tf.placeholder(tf.int32, [None])
    picked = tf.gather(w, numbers if where == "host" else numbers * 1, name="picking")
    train_op = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(picked))
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    return w, numbers, picked, train_op, session


@pytest.mark.parametrize("bad", [5, -1])
@pytest.mark.parametrize("where", ["host", "device"])
def test_a_row_that_is_out_of_range_is_told_and_changes_nothing(where, bad):
    w, numbers, picked, train_op, session = gathering(where)
    before = session.value(w)
    for fetches in (train_op, [picked, train_op], picked):
        with pytest.raises(InvalidArgumentError, match=rf"\[0, 5\), got {bad}") as caught:
            session.run(fetches, {numbers: [0, bad]})
        assert "'picking'" in str(caught.value)
        np.testing.assert_array_equal(session.value(w), before)
    session.run(train_op, {numbers: [0, 4]})
    assert session.value(w)[4, 0] != before[4, 0]


@pytest.mark.cusim
def test_numbers_that_the_host_knows_are_checked_there():
    _, numbers, picked, train_op, session = gathering("host")
    session.run([picked, train_op], {numbers: [0, 1]})
    with logged() as log:
        session.run([picked, train_op], {numbers: [0, 1]})
    assert "outside" not in log
    assert copies_home(log) == 1
    assert log.count("update_rows") == 1


@pytest.mark.cusim
def test_all_checks_of_a_step_share_one_flag():
    w = tf.Variable(np.arange(10, dtype="f4").reshape(5, 2))
    numbers = tf.placeholder(tf.int32, [None]) * 1
    picked = [tf.gather(w, numbers) for _ in range(4)]
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    feed = {numbers.op.inputs[0]: [0, 1]}
    session.run(picked, feed)
    session.run(picked, feed)
    with logged() as log:
        session.run(picked, feed)
    assert log.count("outside") == 4
    assert copies_home(log) == 1


# -- streams and devices --------------------------------------------------------------------------


@pytest.mark.cusim
@pytest.mark.parametrize("stream", [None, "own", "given"])
def test_streams_keep_the_order_of_feeds_and_runs(stream):
    """Lazy streams run nothing that nobody waits for: an order that is missing shows."""
    x = tf.placeholder(tf.float32, [3])
    w = tf.Variable(np.zeros(3, "f4"))
    train_op = tf.train.GradientDescentOptimizer(1.0).apply_gradients([(x, w)])
    if stream == "given":
        stream = cupy.cuda.Stream(non_blocking=True)
    session = tf.Session(stream=stream)
    session.run(tf.global_variables_initializer())
    with cusim.settings(lazy=True):
        array = cupy.zeros(3, "f4")
        for i in range(3):
            array += 1  # on the current stream, before the session reads it
            session.run(train_op, {x: array})
            assert session.value(w)[0] == -sum(range(1, i + 2))
        session.run(train_op, {x: array})
        array[...] = 100  # on the current stream, after the session has read it
        cupy.cuda.get_current_stream().synchronize()
        session.synchronize()
    np.testing.assert_array_equal(session.value(w), -9)


@pytest.mark.cusim
def test_runs_on_changing_streams_keep_their_order():
    """As threads have them that share a session, each with a current stream of its own."""
    x = tf.placeholder(tf.float32, [3])
    w = tf.Variable(np.zeros(3, "f4"))
    train_op = tf.train.MomentumOptimizer(1.0, 0.5).apply_gradients([(x, w)])
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    with cusim.settings(lazy=True):
        for i in range(4):
            with streams[i % 2]:
                session.run(train_op, {x: np.ones(3, "f4")})
        # 1, 1.5, 1.75 and 1.875 steps
        np.testing.assert_array_equal(session.value(w), -6.125)


def test_a_session_of_each_backend_in_one_process():
    w = tf.Variable(np.ones(3, "f4"))
    train_op = tf.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(w * w))
    sessions = [tf.Session(backend=name) for name in ("numpy", "cupy", "numpy", "cupy")]
    for session in sessions:
        session.run(tf.global_variables_initializer())
    for turn in range(3):
        for session in sessions[turn:]:
            session.run(train_op)
    assert [s.value(w)[0] for s in sessions] == [0, 0, 0, 0]
    assert [s.backend for s in sessions] == ["numpy", "cupy", "numpy", "cupy"]


@pytest.mark.cusim
def test_devices_are_chosen_by_their_number():
    with cusim.settings(devices=2):
        for session in (
            tf.Session(backend="cupy:1"),
            tf.Session(config=tf.ConfigProto(gpu_options=tf.GPUOptions(visible_device_list="1"))),
        ):
            assert session.list_devices() == ["/device:GPU:1"]
            assert session.backend == "cupy"
            assert session.run(tf.constant(2.0) * 3) == 6
        with pytest.raises(ValueError, match="CuPy sees 2 devices, there is no device 2"):
            tf.Session(backend="cupy:2")
        with tf.use_backend("cupy:1"):
            assert tf.get_backend() == "cupy:1"
    with pytest.raises(ValueError, match="expected numbers of devices, got 'first'"):
        tf.Session(config=tf.ConfigProto(gpu_options=tf.GPUOptions(visible_device_list="first")))


@pytest.mark.cusim
@pytest.mark.parametrize("stream", [None, "own"])
def test_a_session_keeps_to_its_device(stream):
    with cusim.settings(devices=2):
        net = Net()
        other = tf.Session(backend="cupy:1", stream=stream)
        other.run(tf.global_variables_initializer())
        feed = net.feed()
        for session in (net.session, other, net.session, other):
            session.run([net.loss, net.train_op], feed)
        for session, index in ((net.session, 0), (other, 1)):
            arrays = [session._state[v.op] for v in tf.global_variables()]
            assert {array.device.id for array in arrays} == {index}
            with cupy.cuda.Device(index):
                x = cupy.asarray(feed[net.x])
            session.run(net.train_op, {net.x: x, net.y: feed[net.y]})
        for v in tf.global_variables():
            np.testing.assert_array_equal(net.session.value(v), other.value(v))
        other.close()


def test_streams_that_do_not_exist():
    with pytest.raises(ValueError, match='stream: expected None, "own" or a cupy'):
        tf.Session(stream="mine")
    with pytest.raises(ValueError, match="the backend 'numpy' has no streams"):
        tf.Session(backend="numpy", stream="own")


# -- memory and faults ----------------------------------------------------------------------------


def test_p102_a_closed_session_gives_its_memory_back():
    gc.collect()
    tf.release_memory()
    before = tf.memory_report()
    w = tf.Variable(np.zeros((256, 1024), "f4"))
    train_op = tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(w * w))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train_op)
        during = tf.memory_report()
    closed = tf.memory_report()
    gc.collect()
    tf.release_memory()
    after = tf.memory_report()
    assert during.used >= before.used + 3 * w.shape.num_elements() * 4
    assert closed.used + closed.pooled < during.used
    assert after.used <= before.used + 4096
    assert after.pooled <= before.pooled + 4096
    assert after.total >= after.free > 0
    assert after.device == 0


def test_memory_of_the_host_is_nobodys():
    report = tf.memory_report("numpy")
    assert (report.device, report.used, report.total) == (None, 0, 0)
    assert tf.release_memory("numpy") == 0


@pytest.mark.cusim
def test_memory_that_runs_out_is_told_and_changes_nothing():
    w = tf.Variable(np.ones(1000, "f4"))
    big = tf.placeholder(tf.int32, [])
    train_op = w.assign_sub(w * tf.reduce_sum(tf.fill([big], 1.0)))
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    with cusim.settings(limit=1 << 24):
        with pytest.raises(ResourceExhaustedError, match="memory ran out") as caught:
            session.run(train_op, {big: 1 << 24})
        assert isinstance(caught.value.__cause__, cupy.cuda.memory.OutOfMemoryError)
        np.testing.assert_array_equal(session.value(w), 1)
        session.run(train_op, {big: 2})
    np.testing.assert_array_equal(session.value(w), -1)


@pytest.mark.cusim
def test_what_memory_ran_out_for_is_named():
    x = tf.placeholder(tf.float32, [None], name="x")
    w = tf.Variable(np.ones(4, "f4"))
    parts = [x * float(i) for i in range(3)]
    total = tf.add_n(parts, name="total")
    train_op = tf.train.GradientDescentOptimizer(0.1).apply_gradients([(total[:4], w)])
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    for _ in range(2):
        session.run(train_op, {x: np.ones(4, "f4")})
    before = session.value(w)
    size = 1 << 20
    cupy.get_default_memory_pool().free_all_blocks()
    for arrays, culprit in ((0, "x"), (5, "total")):  # x, its parts and one sum of two fit
        limit = cusim.stats()["used"] + (4 * arrays + 2) * size
        with (
            cusim.settings(limit=limit),
            pytest.raises(ResourceExhaustedError, match="memory ran out") as caught,
        ):
            session.run(train_op, {x: np.ones(size, "f4")})
        assert caught.value.op.name == culprit
        np.testing.assert_array_equal(session.value(w), before)
        cupy.get_default_memory_pool().free_all_blocks()


@pytest.mark.cusim
def test_a_fault_of_the_device_ends_the_session_with_its_cause():
    kernel = cupy.RawKernel(
        'extern "C" __global__ void wild(float* x) { x[1LL << 40] = 1; }', "wild"
    )
    net = Net()
    net.session.run(net.train_op, net.feed())
    with cusim.settings():
        kernel((1,), (1,), (cupy.zeros(1, "f4"),))
        with pytest.raises(InternalError, match="device failed, which ends the session") as caught:
            net.session.run([net.loss, net.train_op], net.feed())
        causes = []
        error = caught.value.__cause__
        while error is not None:
            causes.append(error)
            error = error.__cause__
        assert any(isinstance(e, cupy.cuda.runtime.CUDARuntimeError) for e in causes)
        assert "IllegalAddress" in str(caught.value)
        with pytest.raises(InternalError, match="the session has ended: its device failed before"):
            net.session.run(net.loss, net.feed())
        with pytest.raises(InternalError, match="restore a checkpoint"):
            net.session.value(net.step)
        net.session.close()


def test_an_error_while_variables_are_written_ends_the_session(monkeypatch):
    """Some updates have been queued, others not: going on would train on a mixture."""
    net = Net()
    net.session.run(net.train_op, net.feed())

    def failing(*_):
        raise RuntimeError("no more launches")

    monkeypatch.setattr(net.session._arenas, "commit", failing)
    with pytest.raises(InternalError, match=r"ends the session .RuntimeError: no more launches"):
        net.session.run(net.train_op, net.feed())
    with pytest.raises(InternalError, match="the session has ended"):
        net.session.run(net.loss, net.feed())


def test_other_errors_do_not_end_a_session():
    net = Net()
    with pytest.raises(InvalidArgumentError):
        net.session.run(net.loss, {net.x: np.zeros((2, 6), "f4"), net.y: [0, 9]})
    assert np.isfinite(net.session.run(net.loss, net.feed()))


# -- time -----------------------------------------------------------------------------------------


@pytest.mark.cusim
def test_p104_who_waits_is_billed_for_all_that_was_queued():
    """Runs that fetch nothing only queue; `synchronize` does not return before they are done."""
    net = Net()
    net.session.run(net.train_op, net.feed())
    with cusim.settings(lazy=True):
        for seed in range(3):
            net.session.run(net.train_op, net.feed(seed))
        step = net.session._state[net.step.op]
        address = step.data.ptr
        net.session.synchronize()
        seen = np.zeros(1, np.int64)
        cupy.cuda.runtime.memcpy(seen.ctypes.data, address, 8, 2)
    assert seen[0] == 4


@pytest.mark.cusim
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"clip_gradients": 1.0, "gradient_noise_scale": 0.1},
        {"gradient_multipliers": {"w0": 0.5}, "summaries": list(summaries.OPTIMIZER_SUMMARIES)},
    ],
    ids=["plain", "clipped, noisy", "multiplied"],
)
def test_p104_each_step_of_fit_updates_once_and_waits_once(options, tmp_path):
    """Its speed is that of the device, as each step waits for its loss."""
    net = Net()
    step = tf.train.get_or_create_global_step()
    train_op = tf.contrib.layers.optimize_loss(net.loss, step, 0.01, "Adam", **options)
    marks = []

    class Mark(tf.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            marks.append(len(cusim.stats()["log"]))

    with cusim.settings(log=True):
        data = [net.feed(i) for i in range(8)]
        tf.fit(train_op, data, hooks=[Mark()], logdir=tmp_path, save_summaries_steps=6)
        log = cusim.stats()["log"]
    steps = [log[first:last] for first, last in itertools.pairwise(marks)][2:]
    writes = [False, False, False, True, False]  # at steps 1 and 7
    assert [part.count("update") for part in steps] == [1] * 5
    # What is fetched comes in one copy; summaries, where they are written, in one more.
    assert [copies_home(part) for part in steps] == [1 + wrote for wrote in writes]


def test_p105_small_steps_are_told_once(monkeypatch, caplog):
    monkeypatch.setattr(pace, "_FIRST", 3)
    monkeypatch.setattr(pace, "_COUNT", 2)
    monkeypatch.setattr(pace, "_SHARE", 0)
    monkeypatch.setattr(pace, "_told", False)
    with caplog.at_level(logging.WARNING, "optkit"):
        for _ in range(2):
            with tf.Graph().as_default():
                net = Net()
                for seed in range(6):
                    net.session.run(net.train_op, net.feed(seed))
    (message,) = caplog.messages
    assert "it waits for the host" in message
    assert "backend='numpy'" in message


def test_large_steps_are_not(caplog):
    watch = pace.Pace()
    with caplog.at_level(logging.WARNING, "optkit"):
        for _ in range(200):
            if watch.looks():
                watch.note(queueing=0.001, waiting=0.01)
    assert not caplog.messages


# -- train ops of tf.contrib ----------------------------------------------------------------------


@pytest.mark.cusim
def test_checked_train_ops_wait_once():
    """create_train_op checks the loss; the flag comes home with what is fetched."""
    w = tf.Variable(np.ones(3, "f4"))
    x = tf.placeholder(tf.float32, [3])
    train_op = tf.contrib.training.create_train_op(
        tf.reduce_sum(tf.sqrt(w * x)), tf.train.GradientDescentOptimizer(0.1)
    )
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    for _ in range(2):
        session.run(train_op, {x: np.ones(3, "f4")})
    with logged() as log:
        session.run(train_op, {x: np.ones(3, "f4")})
    assert log.count("nonfinite") == 1
    assert copies_home(log) == 1
    before = session.value(w)
    with pytest.raises(InvalidArgumentError, match="LossTensor is inf or nan"):
        session.run(train_op, {x: np.array([1, -1, 1], "f4")})
    np.testing.assert_array_equal(session.value(w), before)


# -- eager mode -----------------------------------------------------------------------------------


def test_p108_eager_values_move_to_the_backend_that_works_with_them():
    with tf.eager():
        made = {}
        for backend in ("numpy", "cupy"):
            with tf.use_backend(backend):
                made[backend] = tf.constant([1.0, 2.0]), tf.Variable(np.ones(2, "f4"))
        for backend, other in (("numpy", "cupy"), ("cupy", "numpy")):
            (a, v), (b, u) = made[backend], made[other]
            with tf.use_backend(backend):
                np.testing.assert_array_equal((a + b).numpy(), [2, 4])
                np.testing.assert_array_equal(tf.stack([b, a]).numpy(), [[1, 2], [1, 2]])
                np.testing.assert_array_equal((u * a).numpy(), [1, 2])
                tf.train.GradientDescentOptimizer(1.0).apply_gradients([(a, u), (b, v)])
                for variable in (u, v):
                    variable.assign_add(a)
                    np.testing.assert_array_equal(variable.numpy(), 1)


@pytest.mark.cusim
def test_eager_operations_run_on_the_device_that_is_named():
    with cusim.settings(devices=2), tf.eager():
        with tf.use_backend("cupy:1"):
            v = tf.Variable(np.ones(2, "f4"))
            x = tf.constant([1.0, 2.0]) * v
            v.assign_add(x)
        assert x.value.device.id == 1
        assert v.op.held.device.id == 1
        np.testing.assert_array_equal(v.numpy(), [2, 3])
