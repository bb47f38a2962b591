"""Each rule against TensorFlow's numbers and its paper's recurrence; fused as well as called."""

import json
from pathlib import Path

import numpy as np
import pytest

import optkit as tf
from optkit.backend.arrays import to_numpy
from optkit.backend.fused import FusedUpdate
from optkit.backend.fused import update as fused_update
from optkit.runtime import Plan
from optkit.runtime.device_updates import device_rows
from optkit.train.optimizer import Optimizer
from tests.contrib.opt.rules import MAKERS, MOVES_ALL, O, Recurrence
from tests.train.rules import rows, started

GOLDEN = {
    case["id"]: case
    for case in json.loads(
        (Path(__file__).parents[2] / "golden" / "optimizers.json").read_text(encoding="utf-8")
    )["raw_op_cases"]
}
RAW = {
    "raw_adamax": lambda lr, beta1, beta2, epsilon: O.AdaMaxOptimizer(lr, beta1, beta2, epsilon),
    "raw_amsgrad": lambda lr, beta1, beta2, epsilon: O.AMSGradOptimizer(lr, beta1, beta2, epsilon),
    "raw_nadam": lambda lr, beta1, beta2, epsilon: O.NadamOptimizer(lr, beta1, beta2, epsilon),
    "raw_addsign": lambda lr, alpha, sign_decay, beta: O.AddSignOptimizer(
        lr, alpha, beta, lambda step: sign_decay
    ),
    "raw_powersign": lambda lr, logbase, sign_decay, beta: O.PowerSignOptimizer(
        lr, np.exp(logbase), beta, lambda step: sign_decay
    ),
}

every_rule = pytest.mark.parametrize("name", MAKERS)


@pytest.mark.parametrize("case", RAW)
def test_a_run_matches_tensorflows_kernel(case):
    golden = GOLDEN[case]
    w = tf.Variable(np.float32(golden["initial_value"]), name="w")
    fed = tf.placeholder(tf.float32, w.shape)
    optimizer = RAW[case](**golden["hyper"])
    train_op = optimizer.apply_gradients([(fed, w)], tf.train.create_global_step())
    session = started()
    for step in golden["steps"]:
        session.run(train_op, {fed: step["grad"]})
        np.testing.assert_allclose(session.value(w), step["expected"]["var"], rtol=2e-6)
        assert optimizer.get_slot_names() == sorted(step["expected"]["slots"])
        for slot, value in step["expected"]["slots"].items():
            held = session.value(optimizer.get_slot(w, slot))
            np.testing.assert_allclose(held, value, rtol=2e-6, err_msg=slot)


TOLERANCE = {
    "float16": {"rtol": 4e-3, "atol": 2e-3},
    "float32": {"rtol": 2e-5, "atol": 2e-6},
    "float64": {"rtol": 1e-12, "atol": 1e-14},
}
INITIAL = np.array([[1.0, -2.0], [0.5, 3.0], [-1.5, 0.25], [2.0, -0.75]])


class Beside:
    """A variable on its way, beside the recurrence."""

    def __init__(self, name, dtype):
        self.w = tf.Variable(INITIAL.astype(dtype), name="w")
        self.dtype = dtype
        self.optimizer = MAKERS[name]()
        self.step = tf.train.create_global_step()
        self.expected = Recurrence(name, INITIAL)
        self.fed = tf.placeholder(dtype, [None, 2])
        self.indices = tf.placeholder(tf.int32, [None])
        sparse = tf.IndexedSlices(self.fed, self.indices)
        self.dense_op = self.optimizer.apply_gradients([(self.fed, self.w)], self.step)
        self.rows_op = self.optimizer.apply_gradients([(sparse, self.w)], self.step)
        self.session = started()

    def dense(self, g):
        self.session.run(self.dense_op, {self.fed: g})
        self.expected.dense(g)

    def rows(self, values, indices):
        self.session.run(self.rows_op, {self.fed: values, self.indices: indices})
        self.expected.rows(values, indices)

    def check(self):
        found = self.session.value(self.w)
        assert found.dtype == self.dtype
        np.testing.assert_allclose(
            found.astype(float), self.expected.w, **TOLERANCE[np.dtype(self.dtype).name]
        )


def gradients(count, steps, seed=0):
    """Gradients whose digits float16 holds exactly, zeros among them."""
    rng = np.random.default_rng(seed)
    return rng.integers(-8, 9, (steps, count, 2)) / 8


@every_rule
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_dense_steps_follow_the_paper(name, dtype):
    path = Beside(name, dtype)
    for g in gradients(4, 6):
        path.dense(g)
        path.check()


@every_rule
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rows_that_repeat_follow_the_paper(name, dtype):
    path = Beside(name, dtype)
    for g, indices in zip(
        gradients(3, 4), ([1, 3, 1], [0, 0, 0], [2, 1, 3], [3, 3, 1]), strict=True
    ):
        path.rows(g, indices)
        path.check()
    path.dense(gradients(4, 1)[0])
    path.rows([[0.0, 0.0]], [2])
    path.check()


@every_rule
def test_rows_left_out_stay_where_they_are(name):
    path = Beside(name, "float64")
    path.dense(gradients(4, 1)[0])
    before = path.session.value(path.w)
    path.rows([[0.5, 0.25]], [1])
    moved = (path.session.value(path.w) != before).any(axis=1)
    assert moved.tolist() == ([True] * 4 if name in MOVES_ALL else [False, True, False, False])


@every_rule
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "rows"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_programs_give_the_references_bits(name, dtype, sparse):
    step = tf.train.create_global_step()
    w = tf.Variable(INITIAL.astype(dtype), name="w")
    b = tf.Variable(INITIAL[0].astype(dtype), name="b")
    x = tf.placeholder(dtype, [3, 2])
    part = tf.gather(w, [1, 2, 1]) if sparse else w[:3]
    loss = tf.reduce_sum(tf.square(part * x - b))
    train_op = MAKERS[name]().minimize(loss, step)
    fast, slow = started(), started()
    slow._program = lambda plan: None
    for g in gradients(3, 4):
        for session in (fast, slow):
            session.run(train_op, {x: g})
    states = [{op.name: to_numpy(v) for op, v in s._state.items()} for s in (fast, slow)]
    assert states[0].keys() == states[1].keys()
    for key, value in states[0].items():
        np.testing.assert_array_equal(value, states[1][key], err_msg=key)


def fused_and_called(name, dtype, size):
    """What the fused kernel leaves in the arrays, and what the equation gives when called."""
    optimizer: Optimizer = MAKERS[name]()
    step = tf.train.create_global_step()
    w = tf.Variable(np.zeros(2, dtype))
    done = optimizer.apply_gradients([(np.ones(2, dtype), w)], step)
    (update,) = [op for op in w.graph.get_operations() if op.kind.name == "Update"]
    assert done.graph is w.graph
    equation, hyper = update.attrs["equation"], update.attrs["hyper"]
    wide = np.float32 if dtype is np.float16 else dtype
    rng = np.random.default_rng(size)
    scalars = [wide(value) for value in rng.uniform(0.1, 0.9, len(hyper))]
    arrays = rng.standard_normal((2, size)).astype(dtype)
    slots = [rng.random(size).astype(dtype) for _ in optimizer.slots]
    expected = equation(
        np,
        *(array.astype(wide) for array in (*arrays, *slots)),
        **dict(zip(hyper, scalars, strict=True)),
    )
    FusedUpdate(equation, len(slots), hyper)([arrays[0], *slots], arrays[1], scalars)
    return zip((arrays[0], *slots), (wanted.astype(dtype) for wanted in expected), strict=True)


@every_rule
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_equations_are_fused_bit_by_bit(monkeypatch, name, dtype):
    monkeypatch.setattr(fused_update.compiled, "available", lambda: False)
    for got, wanted in fused_and_called(name, dtype, fused_update.TILE + 17):
        np.testing.assert_array_equal(got, wanted)


@every_rule
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_compiled_equations_give_the_same(name, dtype):
    """To the bit but for exponentials, which the C library and NumPy round differently."""
    pytest.importorskip("numba")
    for got, wanted in fused_and_called(name, dtype, fused_update._COMPILED + 17):
        if name == "PowerSign":
            np.testing.assert_allclose(got, wanted, rtol=1e-5)
        else:
            np.testing.assert_array_equal(got, wanted)


@every_rule
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "rows"])
def test_eager_steps_are_those_of_a_graph(name, sparse):
    path = Beside(name, "float64")
    with tf.eager():
        w = tf.Variable(INITIAL)
        step = tf.Variable(np.int64(0), trainable=False)
        optimizer = MAKERS[name]()
        for g in gradients(4, 3):
            grad = rows(g[:3], [1, 3, 1], "float64") if sparse else tf.constant(g)
            optimizer.apply_gradients([(grad, w)], step)
        moved = w.numpy()
    for g in gradients(4, 3):
        path.rows(g[:3], [1, 3, 1]) if sparse else path.dense(g)
    np.testing.assert_allclose(moved, path.session.value(path.w), rtol=1e-13, atol=1e-15)


@every_rule
def test_bfloat16_follows_float32(name):
    pytest.importorskip("ml_dtypes")
    found = []
    for dtype in (tf.float32, tf.bfloat16):
        with tf.Graph().as_default():
            step = tf.train.create_global_step()
            w = tf.Variable(tf.cast(tf.constant(INITIAL, tf.float32), dtype))
            loss = tf.reduce_sum(w * tf.cast(tf.constant(0.5 * INITIAL, tf.float32), dtype))
            train_op = MAKERS[name]().minimize(loss, step)
            session = started()
            for _ in range(3):
                session.run(train_op)
            value = session.value(w)
            assert value.dtype == dtype.dtype
            found.append(value.astype(np.float32))
    np.testing.assert_allclose(found[1], found[0], rtol=0.03, atol=0.03)


@every_rule
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_zero_gradients_leave_a_new_variable_as_it_was(name, dtype):
    w = tf.Variable(np.asarray([1.0, -2.0], dtype))
    optimizer = MAKERS[name]()
    train_op = optimizer.apply_gradients([([0.0, 0.0], w)], tf.train.create_global_step())
    session = started()
    session.run(train_op)
    kept = 1.0 - 0.03 * name.endswith("W") - 0.05 * 0.1 * (name == "Lion")
    np.testing.assert_allclose(
        session.value(w), [kept, -2.0 * kept], rtol=1e-3 if dtype == "float16" else 1e-6
    )


def test_every_optimizer_of_contrib_opt_is_in_the_table():
    made = {type(make()) for make in MAKERS.values()}
    public = {
        value
        for value in map(O.__dict__.get, O.__all__)
        if isinstance(value, type) and issubclass(value, Optimizer) and value.slots
    }
    assert public <= made


def test_sparse_slices_reach_lazy_adam_and_adam_differently():
    found = {}
    for cls in (tf.train.AdamOptimizer, O.LazyAdamOptimizer):
        with tf.Graph().as_default():
            w = tf.Variable(np.zeros(2), name="w")
            optimizer = cls(0.1)
            ops = [optimizer.apply_gradients([(rows([1.0], [i], "float64"), w)]) for i in (0, 1)]
            session = started()
            for op in ops:
                session.run(op)
            found[cls] = session.value(optimizer.get_slot(w, "m"))
    np.testing.assert_allclose(found[tf.train.AdamOptimizer], [0.09, 0.1])
    np.testing.assert_allclose(found[O.LazyAdamOptimizer], [0.1, 0.1])


def test_a_device_leaves_nadams_rows_to_the_reference():
    """Its kernels move all rows of the variable or the named rows of the slots."""
    w = tf.Variable(INITIAL, name="w")
    train_op = MAKERS["Nadam"]().apply_gradients([(rows([[1.0, 2.0]], [1], "float64"), w)])
    assert device_rows(Plan(w.graph, [train_op], []), set()) == []
