"""`apply_gradients`: what it takes, what it builds, in which order, and what errors leave."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import optkit as tf
from tests.train.rules import OPTIMIZERS, new_step, picture, rows, started, state

T = tf.train

every_optimizer = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)

# -- apply_gradients: what it takes --------------------------------------------------------------


def test_any_iterable_of_pairs_is_taken():
    w = tf.Variable([1.0, 2.0])
    optimizer = T.GradientDescentOptimizer(1.0)
    grad = tf.constant([0.25, 0.5])
    forms = [
        [(grad, w)],
        ((grad, w),),
        zip([grad], [w], strict=True),
        ((g, v) for g, v in [(grad, w)]),
    ]
    train_ops = [optimizer.apply_gradients(pairs) for pairs in [*forms, [[grad, w]]]]
    session = started()
    for train_op in train_ops:
        session.run(train_op)
    assert_array_equal(session.value(w), [-0.25, -0.5])


def test_an_error_inside_a_generator_of_pairs_is_told():
    def pairs():
        raise ZeroDivisionError("mine")
        yield

    with pytest.raises(ZeroDivisionError, match="mine"):
        T.GradientDescentOptimizer(0.1).apply_gradients(pairs())


@pytest.mark.parametrize("bad", [3, None, [3], ["ab"], [(1.0,)], [(1.0, 2.0, 3.0)]], ids=repr)
def test_what_holds_no_pairs_is_refused(bad):
    with pytest.raises(
        TypeError, match=r"grads_and_vars: expected .gradient, variable. pairs, got"
    ):
        T.GradientDescentOptimizer(0.1).apply_gradients(bad)


def test_no_pairs_or_no_gradients_are_refused(graph):
    w, b = tf.Variable(1.0, name="w"), tf.Variable(1.0, name="b")
    optimizer = T.AdamOptimizer()
    before = picture(graph, optimizer)
    with pytest.raises(ValueError, match=r"grads_and_vars: expected .* got none"):
        optimizer.apply_gradients([])
    with pytest.raises(ValueError, match="no variable has a gradient: 'w', 'b'"):
        optimizer.apply_gradients([(None, w), (None, b)])
    assert picture(graph, optimizer) == before


@every_optimizer
def test_a_variable_without_a_gradient_is_left_alone(make):
    w, idle = tf.Variable([1.0, 2.0], name="w"), tf.Variable([3.0], name="idle")
    step = new_step()
    optimizer = make(0.5, step)
    train_op = optimizer.apply_gradients([(None, idle), (tf.constant([0.5, 0.25]), w)], step)
    session = started()
    session.run(train_op)
    assert session.value(idle) == [3.0]
    assert (session.value(w) != [1.0, 2.0]).all()
    for slot in optimizer.get_slot_names():
        assert optimizer.get_slot(idle, slot) is None
        assert optimizer.get_slot(w, slot) is not None


@pytest.mark.parametrize(
    "grad",
    [
        [0.25, 0.5],
        (0.25, 0.5),
        np.array([0.25, 0.5]),
        np.array([0.25, 0.5], np.float32),
        np.array([0.25, 0.5], np.float16),
        [np.float64(0.25), np.float64(0.5)],
    ],
    ids=["list", "tuple", "float64", "float32", "float16", "list of float64"],
)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_lists_and_arrays_are_converted_to_the_dtype_of_the_variable(grad, dtype):
    w = tf.Variable(np.array([1.0, 2.0], dtype))
    train_op = T.GradientDescentOptimizer(1.0).apply_gradients([(grad, w)])
    session = started()
    session.run(train_op)
    assert session.value(w).dtype == dtype
    assert_array_equal(session.value(w), [0.75, 1.5])


def test_python_integers_are_numbers_like_others():
    w, b = tf.Variable([1.0, 2.0]), tf.Variable(3.0)
    train_op = T.GradientDescentOptimizer(1.0).apply_gradients([([1, 2], w), (1, b)])
    session = started()
    session.run(train_op)
    assert_array_equal(session.value(w), [0.0, 0.0])
    assert session.value(b) == 2.0


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "rows"])
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_tensors_of_another_floating_dtype_are_cast(sparse, dtype):
    w = tf.Variable([1.0, 2.0])
    grad = rows([0.25, 0.5], [0, 1], dtype) if sparse else tf.constant([0.25, 0.5], dtype)
    train_op = T.GradientDescentOptimizer(1.0).apply_gradients([(grad, w)])
    session = started()
    session.run(train_op)
    assert_array_equal(session.value(w), np.float32([0.75, 1.5]))


@pytest.mark.parametrize(
    "grad",
    [
        lambda: tf.constant([1, 2]),
        lambda: np.array([1, 2]),
        lambda: tf.constant([True, False]),
        lambda: np.array([1j, 2]),
        lambda: ["a", "b"],
        lambda: object(),
        lambda: rows([1, 2], [0, 1], "int32"),
        lambda: tf.IndexedSlices(tf.constant([1.0]), tf.constant([0.5])),
    ],
    ids=["int tensor", "int array", "bool", "complex", "str", "object", "int rows", "float index"],
)
def test_gradients_of_another_kind_are_refused_with_the_name_of_the_variable(graph, grad):
    w = tf.Variable([1.0, 2.0], name="w")
    optimizer = T.AdamOptimizer()
    grad = grad()
    before = picture(graph, optimizer)
    with pytest.raises(TypeError, match="the gradient of variable 'w': expected"):
        optimizer.apply_gradients([(grad, w)])
    assert picture(graph, optimizer) == before


@pytest.mark.parametrize(
    ("grad", "text"),
    [
        (lambda: [1.0], r"expected shape \(2, 3\), got \(1,\)"),
        (lambda: np.zeros((3, 2)), r"expected shape \(2, 3\), got \(3, 2\)"),
        (lambda: 0.5, r"expected shape \(2, 3\), got \(\)"),
        (lambda: rows(np.zeros((1, 2)), [0]), r"expected rows of shape \(3,\), got \(2,\)"),
        (lambda: rows(np.zeros((1, 3)), [0, 1]), r"expected one index a row of .*, got .*\(2,\)"),
        (lambda: rows(np.zeros((1, 3)), [[0]]), r"expected one index a row of .*, got .*\(1, 1\)"),
        (lambda: rows(np.zeros((1, 3)), 0), r"expected one index a row of .*, got .*\(\)"),
    ],
)
def test_gradients_of_another_shape_are_refused(graph, grad, text):
    w = tf.Variable(np.zeros((2, 3), np.float32), name="w")
    optimizer = T.AdamOptimizer()
    grad = grad()
    before = picture(graph, optimizer)
    with pytest.raises(ValueError, match=f"the gradient of variable 'w': {text}"):
        optimizer.apply_gradients([(grad, w)])
    assert picture(graph, optimizer) == before


def test_a_shape_that_shows_when_run_leaves_everything_as_it_was():
    w, b = tf.Variable([1.0, 2.0], name="w"), tf.Variable([1.0], name="b")
    grad = tf.placeholder(tf.float32)
    step = new_step()
    optimizer = T.AdamOptimizer()
    train_op = optimizer.apply_gradients([(tf.constant([1.0]), b), (grad, w)], step)
    session = started()
    before = state(session, optimizer, w, b, step)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"variable 'w': expected shape \(2,\)"
    ):
        session.run(train_op, {grad: [1.0, 2.0, 3.0]})
    after = state(session, optimizer, w, b, step)
    assert all(np.array_equal(after[name], value) for name, value in before.items())
    session.run(train_op, {grad: [1.0, 2.0]})


def test_rows_of_a_scalar_are_refused():
    b = tf.Variable(1.0, name="b")
    with pytest.raises(
        ValueError, match="the gradient of variable 'b': expected a tensor, got rows"
    ):
        T.GradientDescentOptimizer(0.1).apply_gradients([(rows([1.0], [0]), b)])


@pytest.mark.parametrize(
    "bad", [3.0, "w", None, np.zeros(2)], ids=["float", "str", "None", "array"]
)
def test_what_is_no_variable_is_refused(bad):
    with pytest.raises(TypeError, match="grads_and_vars: expected a Variable, got"):
        T.GradientDescentOptimizer(0.1).apply_gradients([(tf.constant(1.0), bad)])


@pytest.mark.parametrize("index", ["int32", "int64"])
@every_optimizer
def test_rows_may_be_numbered_in_int32_and_int64(make, index):
    w = tf.Variable([1.0, 2.0, 3.0])
    step = new_step()
    grad = tf.IndexedSlices(tf.constant([0.5, 0.25]), tf.constant(np.array([2, 0], index)))
    train_op = make(0.5, step).apply_gradients([(grad, w)], step)
    session = started()
    session.run(train_op)
    assert (session.value(w) != [1.0, 2.0, 3.0]).tolist() == [True, False, True]


@every_optimizer
@pytest.mark.parametrize("bad", [[0, 3], [-1, 0]], ids=str)
def test_a_row_that_is_not_there_leaves_everything_as_it_was(make, bad):
    w, b = tf.Variable([1.0, 2.0, 3.0], name="w"), tf.Variable(1.0, name="b")
    step = new_step()
    optimizer = make(0.5, step)
    pairs = [(tf.constant(1.0), b), (rows([0.5, 0.25], bad), w)]
    train_op = optimizer.apply_gradients(pairs, step)
    session = started()
    before = state(session, optimizer, w, b, step)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"the gradient of variable 'w': expected row numbers in \[0, 3\), got",
    ):
        session.run(train_op)
    after = state(session, optimizer, w, b, step)
    assert all(np.array_equal(after[name], value) for name, value in before.items())


@every_optimizer
def test_no_rows_at_all_change_nothing(make):
    w = tf.Variable([1.0, 2.0, 3.0], name="w")
    step = new_step()
    optimizer = make(0.5, step)
    first = optimizer.apply_gradients([(rows([0.5, 0.25], [0, 1]), w)], step)
    empty = optimizer.apply_gradients([(rows(np.zeros(0), np.zeros(0, np.int32)), w)], step)
    session = started()
    session.run(first)
    before = state(session, optimizer, w)
    session.run(empty)
    after = state(session, optimizer, w)
    if optimizer.decays_all_rows:
        assert (after["w"][:2] != before["w"][:2]).all()
    else:
        assert all(np.array_equal(after[name], value) for name, value in before.items())
    assert session.value(step) == 2


def run_with(make, pairs_of):
    """The variable and slots after one run of each of the train ops, in a new graph."""
    with tf.Graph().as_default():
        w = tf.Variable(np.array([1.0, 2.0]), name="w")
        optimizer = make(0.5, new_step())
        train_ops = [optimizer.apply_gradients(pairs) for pairs in pairs_of(w)]
        session = started()
        for train_op in train_ops:
            session.run(train_op)
        return state(session, optimizer, w)


@every_optimizer
def test_a_variable_listed_twice_is_updated_twice(make):
    grads = np.array([0.5, 0.25]), np.array([0.25, -0.5])
    twice = run_with(make, lambda w: [[(g, w) for g in grads]])
    apart = run_with(make, lambda w: [[(g, w)] for g in grads])
    if make is OPTIMIZERS["Adam"]:
        # The powers grow once a step, however often a variable is listed: the second update has
        # the rate of the first.
        m = 0.9 * 0.1 * grads[0] + 0.1 * grads[1]
        v = 0.999 * 0.001 * grads[0] ** 2 + 0.001 * grads[1] ** 2
        rate = 0.5 * np.sqrt(0.001) / 0.1
        first = [1.0, 2.0] - 0.5 * np.sign(grads[0])
        expected = first - rate * m / np.sqrt(v)
        assert_allclose(twice["w"], expected, rtol=1e-4)  # but for epsilon
        assert_allclose(twice["beta1_power"], 0.81, rtol=1e-12)
    else:
        assert {name: value.tolist() for name, value in twice.items()} == {
            name: value.tolist() for name, value in apart.items()
        }


# -- what it builds: names, collections, steps ---------------------------------------------------


def test_the_train_op_is_named_like_the_optimizer_or_as_asked(graph):
    w = tf.Variable(1.0, name="w")
    make = T.MomentumOptimizer
    assert make(0.1, 0.9).minimize(w * w).name == "Momentum"
    assert make(0.1, 0.9).minimize(w * w).name == "Momentum_1"
    assert make(0.1, 0.9).minimize(w * w, name="train").name == "train"
    assert make(0.1, 0.9).minimize(w * w, name="train").name == "train_1"
    step = new_step()
    train_op = make(0.1, 0.9, name="Mine").minimize(w * w, step)
    assert (train_op.name, train_op.type) == ("Mine", "AssignAdd")
    with graph.name_scope("outer"):
        assert make(0.1, 0.9).minimize(w * w).name == "outer/Momentum"


def test_updates_are_named_after_their_variables(graph):
    w, b = tf.Variable([1.0], name="net/w"), tf.Variable(1.0, name="b")
    T.AdamOptimizer().apply_gradients([([1.0], w), (1.0, b)], new_step())
    updates = [op for op in graph.get_operations() if op.type == "Update"]
    assert [op.name for op in updates] == ["Adam/update_net/w/Adam", "Adam/update_b/Adam"]
    assert [op.colocation_groups() for op in updates] == [[b"loc:@net/w"], [b"loc:@b"]]
    assert "Adam/update" in [op.name for op in graph.get_operations()]


def test_the_train_op_is_collected_once(graph):
    w = tf.Variable(1.0)
    optimizer = T.GradientDescentOptimizer(0.1)
    plain, counted = optimizer.minimize(w * w), optimizer.minimize(w * w, new_step())
    assert graph.get_collection(tf.GraphKeys.TRAIN_OP) == [plain, counted]
    assert started().run(plain) is None


def test_slots_are_named_after_variable_and_optimizer():
    w, b = tf.Variable([1.0], name="w"), tf.Variable(1.0, name="b")
    first, second = T.AdamOptimizer(), T.AdamOptimizer()
    for optimizer in (first, second):
        optimizer.minimize(w * b)
    assert [v.name for v in first.variables()] == [
        *("b/Adam:0", "b/Adam_1:0", "beta1_power:0", "beta2_power:0", "w/Adam:0", "w/Adam_1:0"),
    ]
    assert [v.name for v in second.variables()] == [
        *("b/Adam_2:0", "b/Adam_3:0", "beta1_power_1:0", "beta2_power_1:0"),
        *("w/Adam_2:0", "w/Adam_3:0"),
    ]
    assert (first.get_slot(w, "m").name, first.get_slot(w, "v").name) == ("w/Adam:0", "w/Adam_1:0")


def test_a_second_apply_uses_the_slots_of_the_first():
    w = tf.Variable([1.0], name="w")
    optimizer = T.AdamOptimizer()
    optimizer.minimize(w * w)
    held = optimizer.variables()
    optimizer.minimize(w * w * w)
    assert optimizer.variables() == held


def test_slots_are_prefixed_by_variable_scopes_and_not_by_name_scopes(graph):
    w = tf.Variable([1.0], name="w")
    with tf.variable_scope("outer"):
        optimizer = T.ProximalAdagradOptimizer(0.1)
        optimizer.minimize(w * w)
        assert [v.name for v in optimizer.variables()] == ["outer/w/ProximalAdagrad:0"]
    with graph.name_scope("place"):
        optimizer = T.ProximalAdagradOptimizer(0.1)
        optimizer.minimize(w * w)
        assert [v.name for v in optimizer.variables()] == ["w/ProximalAdagrad:0"]


def test_ftrl_names_its_slots_as_asked():
    w = tf.Variable([1.0], name="w")
    optimizer = T.FtrlOptimizer(0.1, accum_name="n", linear_name="z")
    optimizer.minimize(w * w)
    assert [v.name for v in optimizer.variables()] == ["w/n:0", "w/z:0"]


def test_slots_are_like_their_variable_and_not_trained():
    w = tf.Variable(np.zeros((2, 3)), name="w")
    optimizer = T.RMSPropOptimizer(0.1, centered=True)
    optimizer.minimize(w * w)
    assert tf.trainable_variables() == [w]
    assert len(tf.global_variables()) == 4
    session = started()
    for slot, start in (("rms", 1.0), ("mg", 0.0), ("momentum", 0.0)):
        variable = optimizer.get_slot(w, slot)
        assert not variable.trainable
        assert_array_equal(session.value(variable), np.full((2, 3), start))
        assert session.value(variable).dtype == np.float64


def test_slots_of_a_variable_whose_shape_is_open():
    size = tf.placeholder_with_default(np.int32(3), ())
    w = tf.Variable(lambda: tf.ones([size]), validate_shape=False, name="w")
    optimizer = T.AdagradOptimizer(1.0)
    train_op = optimizer.minimize(w * w)
    session = started()
    session.run(train_op)
    assert_allclose(session.value(optimizer.get_slot(w, "accumulator")), [4.1] * 3, rtol=1e-6)


def test_slots_are_there_only_after_apply_gradients():
    w = tf.Variable([1.0], name="w")
    optimizer = T.AdamOptimizer()
    optimizer.compute_gradients(w * w)
    assert optimizer.get_slot_names() == []
    assert optimizer.get_slot(w, "m") is None
    assert optimizer.variables() == []
    optimizer.minimize(w * w)
    assert optimizer.get_slot_names() == ["m", "v"]
    assert optimizer.get_slot(w, "other") is None
    assert optimizer.get_slot(tf.Variable(1.0), "m") is None


def test_variables_are_those_of_the_current_graph():
    w = tf.Variable([1.0], name="w")
    optimizer = T.AdamOptimizer()
    optimizer.minimize(w * w)
    with tf.Graph().as_default():
        assert optimizer.variables() == []
        other = tf.Variable([1.0], name="w")
        optimizer.minimize(other * other)
        held = optimizer.variables()
        assert [v.name for v in held] == [
            "beta1_power:0",
            "beta2_power:0",
            "w/Adam:0",
            "w/Adam_1:0",
        ]
        assert optimizer.get_slot(other, "m") in held
        assert optimizer.get_slot(w, "m") not in held
    assert [v.name for v in optimizer.variables()] == [v.name for v in held]
    assert not set(optimizer.variables()) & set(held)


def test_slots_do_not_depend_on_reuse():
    """P030 Slots are made inside a reuse scope too."""
    with tf.variable_scope("net"):
        w = tf.get_variable("w", [2], initializer=tf.ones_initializer())
    with tf.variable_scope("net", reuse=True):
        optimizer = T.AdamOptimizer()
        train_op = optimizer.minimize(w * w)
    assert [v.name for v in optimizer.variables()] == [
        *("net/net/w/Adam:0", "net/net/w/Adam_1:0", "net_1/beta1_power:0", "net_1/beta2_power:0"),
    ]
    session = started()
    session.run(train_op)
    assert_allclose(session.value(w), [0.999, 0.999], rtol=1e-6)


@every_optimizer
def test_the_step_grows_by_one_after_the_updates(make):
    w = tf.Variable([1.0, 2.0])
    step = new_step(7)
    train_op = make(0.1, step).minimize(w * w, step)
    session = started()
    assert session.run([train_op, step]) == [None, 7]  # a fetched variable is read at the start
    assert session.value(step) == 8
    session.run(train_op)
    assert session.value(step) == 9


def test_the_step_may_be_int32_and_must_be_a_variable(graph):
    w = tf.Variable(1.0)
    loss = w * w
    step = tf.Variable(0, trainable=False)
    train_op = T.GradientDescentOptimizer(0.1).minimize(loss, step)
    session = started()
    session.run(train_op)
    assert session.value(step) == 1
    constant, vector = tf.constant(3), tf.Variable([0], trainable=False)
    real = tf.Variable(0.0, trainable=False)
    before = picture(graph)
    for bad, error in ((constant, TypeError), (3, TypeError), (3, ValueError), (vector, TypeError)):
        with pytest.raises(error, match="global_step: expected"):
            T.AdamOptimizer().minimize(loss, bad)
    with pytest.raises(TypeError, match="global_step: expected an integer"):
        T.AdamOptimizer().minimize(loss, real)
    assert picture(graph) == before


def test_everything_is_read_before_anything_is_written():
    """The rate of b is w: it is the w from before the update."""
    w, b = tf.Variable(2.0, name="w"), tf.Variable(1.0, name="b")
    step = new_step()
    optimizer = T.GradientDescentOptimizer(w)
    # The gradients are 2b and (2w + 1): each holds the other's variable.
    train_op = optimizer.apply_gradients([(2.0 * b, w), (2.0 * w + 1.0, b)], step)
    session = started()
    session.run(train_op)
    assert session.value(w) == 2.0 - 2.0 * 2.0
    assert session.value(b) == 1.0 - 2.0 * 5.0


def test_powers_grow_after_all_updates_and_the_step_is_last(graph):
    """Both updates take β¹; what follows the train op sees β²."""
    w, b = tf.Variable([1.0], name="w"), tf.Variable([1.0], name="b")
    step = new_step()
    optimizer = T.AdamOptimizer(0.1)
    train_op = optimizer.apply_gradients([([1.0], w), ([1.0], b)], step)
    power = optimizer._get_non_slot_variable("beta1_power")
    with graph.control_dependencies([train_op]):
        after = [power.read_value(), step.read_value(), b.read_value()]
    session = started()
    found = session.run(after)
    assert_allclose(found[0], 0.81, rtol=1e-6)
    assert found[1] == 1
    assert session.value(w) == session.value(b) == found[2]
    assert_allclose(found[2], [0.9], rtol=1e-6)
    updates = {op for op in graph.get_operations() if op.type == "Update"}
    powers = {op for op in graph.get_operations() if op.name.startswith("Adam/Assign")}
    assert (len(updates), len(powers)) == (2, 2)
    assert all(updates <= ancestors(op) for op in powers)
    assert updates | powers <= ancestors(graph.get_operation_by_name("Adam"))


def ancestors(op):
    """All that runs before an operation."""
    found, waiting = set(), [op]
    while waiting:
        last = waiting.pop()
        before = [*last.control_inputs, *(tensor.op for tensor in last.inputs)]
        waiting += [op for op in before if op not in found]
        found.update(before)
    return found


def test_powers_are_float64_if_a_variable_of_the_first_step_is():
    for dtypes, expected in (
        (["float32", "float32"], "float32"),
        (["float16"], "float32"),
        (["float32", "float64"], "float64"),
    ):
        with tf.Graph().as_default():
            optimizer = T.AdamOptimizer()
            pairs = [(np.ones(2, d), tf.Variable(np.ones(2, d))) for d in dtypes]
            optimizer.apply_gradients(pairs)
            power = optimizer._get_non_slot_variable("beta1_power")
            assert power.dtype == expected
            assert started().value(power) == np.dtype(expected).type(0.9)


def test_powers_have_the_dtype_of_a_beta_that_is_a_tensor():
    optimizer = T.AdamOptimizer(beta1=tf.constant(0.5, tf.float64))
    optimizer.apply_gradients([([1.0], tf.Variable([1.0]))])
    assert optimizer._get_non_slot_variable("beta1_power").dtype == tf.float64
    assert optimizer._get_non_slot_variable("beta2_power").dtype == tf.float32


def test_python_floats_keep_their_digits_for_float64():
    w = tf.Variable(np.float64(1.0))
    train_op = T.GradientDescentOptimizer(0.1).apply_gradients([(1.0, w)])
    session = started()
    session.run(train_op)
    assert session.value(w) == 1.0 - 0.1


# -- constraints ---------------------------------------------------------------------------------


def test_a_constraint_is_applied_right_after_the_update():
    w = tf.Variable([1.0, 2.0], constraint=lambda x: tf.maximum(x, 0.5))
    optimizer = T.AdamOptimizer(1.0)
    step = new_step()
    train_op = optimizer.apply_gradients([([1.0, 1.0], w)], step)
    session = started()
    session.run(train_op)
    assert_allclose(session.value(w), [0.5, 1.0], rtol=1e-5)
    assert session.value(step) == 1


def test_a_constraint_and_rows_do_not_go_together(graph):
    b = tf.Variable([1.0], name="b")
    w = tf.Variable([1.0, 2.0], constraint=tf.abs, name="w")
    optimizer = T.AdamOptimizer()
    grad = rows([1.0], [0])
    before = picture(graph, optimizer)
    with pytest.raises(
        RuntimeError, match="variable 'w' has a constraint, which a sparse gradient"
    ):
        optimizer.apply_gradients([([1.0], b), (grad, w)])
    assert picture(graph, optimizer) == before
