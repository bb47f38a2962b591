"""Optimizers that users write: TF1's hooks, wrappers, equations."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import optkit as tf
from tests.train.rules import new_step, picture, rows, started

T = tf.train

# -- subclasses in TensorFlow's style ------------------------------------------------------------


class Signed(T.Optimizer):
    """SignSGD with a count of the updates, written with the hooks of TF1."""

    def __init__(self, learning_rate=0.1, use_locking=False, name="Signed"):
        super().__init__(use_locking, name)
        self._lr = learning_rate
        self._lr_t = None
        self.seen = []

    def _create_slots(self, var_list):
        for v in var_list:
            self._zeros_slot(v, "last", self._name)
            self._get_or_make_slot(v, tf.constant(5.0, shape=v.get_shape()), "five", self._name)
            self._get_or_make_slot_with_initializer(
                v, tf.ones_initializer(), tf.TensorShape([]), tf.int32, "count", "Count"
            )
        first = min(var_list, key=lambda x: x.name)
        self._create_non_slot_variable(initial_value=1.0, name="scale", colocate_with=first)

    def _prepare(self):
        self._lr_t = tf.convert_to_tensor(self._call_if_callable(self._lr), name="learning_rate")

    def _apply_dense(self, grad, var):
        self.seen.append("dense")
        step = tf.cast(self._lr_t, var.dtype.base_dtype) * tf.sign(grad)
        last = self.get_slot(var, "last").assign(grad)
        count = self.get_slot(var, "count").assign_add(1)
        return tf.group(var.assign_sub(step, use_locking=self._use_locking), last, count)

    def _apply_sparse(self, grad, var):
        self.seen.append("sparse")
        return tf.scatter_sub(var, grad.indices, self._lr_t * tf.sign(grad.values))

    def _finish(self, update_ops, name_scope):
        scale = self._get_non_slot_variable("scale", graph=tf.get_default_graph())
        with tf.control_dependencies(update_ops):
            grown = scale.assign(scale * 2.0)
        return tf.group(*update_ops, grown, name=name_scope)


def test_a_subclass_may_override_tensorflows_hooks():
    w, e = tf.Variable([1.0, 2.0], name="w"), tf.Variable([1.0, 2.0, 3.0], name="e")
    step = new_step()
    optimizer = Signed(lambda: 0.25)
    loss = tf.reduce_sum(w * [3.0, -4.0]) + tf.reduce_sum(tf.gather(e, [0, 2, 0]))
    train_op = optimizer.minimize(loss, step)
    assert train_op.name == "Signed"
    assert optimizer.seen == ["dense", "sparse"]
    assert optimizer.get_slot_names() == ["count", "five", "last"]
    assert [v.name for v in optimizer.variables()] == [
        *("e/Count:0", "e/Signed:0", "e/Signed_1:0", "scale:0"),
        *("w/Count:0", "w/Signed:0", "w/Signed_1:0"),
    ]
    session = started()
    session.run(train_op)
    assert_array_equal(session.value(w), [0.75, 2.25])
    assert_array_equal(session.value(e), [0.75, 2.0, 2.75])  # row 0 is named twice, and moved once
    assert_array_equal(session.value(optimizer.get_slot(w, "last")), [3.0, -4.0])
    assert_array_equal(session.value(optimizer.get_slot(w, "five")), [5.0, 5.0])
    assert session.value(optimizer.get_slot(w, "count")) == 2
    assert session.value(optimizer._get_non_slot_variable("scale")) == 2.0
    assert session.value(step) == 1


class Resource(T.Optimizer):
    """The same with the hooks that TF1 calls for resource variables."""

    def __init__(self):
        super().__init__(False, "Resource")

    def _resource_apply_dense(self, grad, handle):
        return handle.assign_sub(grad)

    def _resource_apply_sparse(self, grad, handle, indices):
        return tf.scatter_sub(handle, indices, tf.sign(grad))


class Repeats(Resource):
    """Takes duplicate rows as they come."""

    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices):
        return self._resource_apply_sparse(grad, handle, indices)


@pytest.mark.parametrize(("cls", "moved"), [(Resource, 1.0), (Repeats, 2.0)])
def test_a_subclass_may_override_the_hooks_of_resource_variables(cls, moved):
    w, e = tf.Variable([1.0, 2.0]), tf.Variable([4.0, 5.0, 6.0])
    pairs = [([0.5, 0.25], w), (rows([3.0, 7.0, 5.0], [0, 2, 0]), e)]
    train_op = cls().apply_gradients(pairs)
    session = started()
    session.run(train_op)
    assert_array_equal(session.value(w), [0.5, 1.75])
    assert_array_equal(session.value(e), [4.0 - moved, 5.0, 5.0])


class DecaysWeights:
    """Shrinks what is about to be updated, as the weight decay of tf.contrib.opt does."""

    def _resource_apply_dense(self, grad, var):
        with tf.control_dependencies([var.assign_sub(0.5 * var)]):
            return super()._resource_apply_dense(grad, var)

    def _resource_apply_sparse(self, grad, var, indices):
        shrunk = tf.scatter_sub(var, indices, 0.5 * tf.gather(var, indices))
        with tf.control_dependencies([shrunk]):
            return super()._resource_apply_sparse(grad, var, indices)


class MomentumWithDecay(DecaysWeights, T.MomentumOptimizer):
    """An equation, and a hook around it."""


def test_a_hook_may_go_around_an_equation():
    w, e = tf.Variable([4.0, 8.0]), tf.Variable([4.0, 8.0, 16.0])
    optimizer = MomentumWithDecay(1.0, 0.5)
    train_op = optimizer.apply_gradients([([1.0, 2.0], w), (rows([1.0, 1.0, 2.0], [2, 2, 0]), e)])
    session = started()
    session.run(train_op)
    assert_array_equal(session.value(w), [1.0, 2.0])
    assert_array_equal(session.value(e), [0.0, 8.0, 6.0])
    assert_array_equal(session.value(optimizer.get_slot(e, "momentum")), [2.0, 0.0, 2.0])


class Delegates(T.Optimizer):
    """Clips the gradients of another optimizer, as wrappers in TF1 do."""

    def __init__(self, inner):
        super().__init__(False, "Delegates")
        self._inner = inner

    def compute_gradients(self, *args, **kwargs):
        pairs = self._inner.compute_gradients(*args, **kwargs)
        return [(g if g is None else tf.clip_by_value(g, -1.0, 1.0), v) for g, v in pairs]

    def apply_gradients(self, *args, **kwargs):
        return self._inner.apply_gradients(*args, **kwargs)

    def get_slot(self, *args, **kwargs):
        return self._inner.get_slot(*args, **kwargs)

    def get_slot_names(self, *args, **kwargs):
        return self._inner.get_slot_names(*args, **kwargs)

    def variables(self):
        return self._inner.variables()


def test_a_subclass_may_delegate_to_another_optimizer():
    w = tf.Variable([5.0, 0.25], name="w")
    step = new_step()
    optimizer = Delegates(T.MomentumOptimizer(0.5, 0.9))
    train_op = optimizer.minimize(w * w, step)
    session = started()
    session.run(train_op)
    assert_array_equal(session.value(w), [4.5, 0.0])
    assert_array_equal(session.value(optimizer.get_slot(w, "momentum")), [1.0, 0.5])
    assert (train_op.name, session.value(step)) == ("Momentum", 1)


class OnlyDense(T.Optimizer):
    """Has no rule for rows."""

    def __init__(self):
        super().__init__(False, "OnlyDense")

    def _apply_dense(self, grad, var):
        return var.assign_sub(grad)


def test_a_subclass_without_a_rule_says_so_when_it_is_used(graph):
    w = tf.Variable([1.0, 2.0], name="w")
    grad = rows([1.0], [0])
    before = picture(graph)
    with pytest.raises(NotImplementedError, match="OnlyDense has no rule: define update"):
        OnlyDense().apply_gradients([(grad, w)])
    with pytest.raises(NotImplementedError, match="Optimizer has no rule: define update"):
        T.Optimizer(False, "Bare").apply_gradients([([1.0, 1.0], w)])
    assert picture(graph) == before
    OnlyDense().apply_gradients([([1.0, 1.0], w)])


class Float64Only(T.GradientDescentOptimizer):
    """Narrows the dtypes it takes."""

    def _valid_dtypes(self):
        return {tf.float64}


def test_a_subclass_may_narrow_the_dtypes():
    w = tf.Variable(1.0)
    with pytest.raises(ValueError, match=r"loss: expected one of float64, got .*float32"):
        Float64Only(0.1).minimize(w * w)


# -- subclasses by equation ----------------------------------------------------------------------


class Lion(T.Optimizer):
    """An optimizer as its equation."""

    slots = ("m",)

    def __init__(self, learning_rate=1e-4, beta=0.9, name="Lion"):
        super().__init__(False, name, initial={"m": 0.5}, learning_rate=learning_rate, beta=beta)

    def update(self, xp, w, g, m, *, learning_rate, beta):
        return w - learning_rate * xp.sign(m), beta * m + (1 - beta) * g


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_subclass_may_be_its_equation(dtype):
    w = tf.Variable(np.array([[1.0], [2.0], [3.0]], dtype), name="w")
    optimizer = Lion(tf.constant(0.25), 0.5)
    dense = optimizer.apply_gradients([(np.array([[2.0], [-2.0], [0.0]]), w)])
    sparse = optimizer.apply_gradients([(rows([[1.0], [1.0], [4.0]], [1, 1, 0]), w)])
    session = started()
    session.run(dense)
    assert_array_equal(session.value(w), [[0.75], [1.75], [2.75]])
    assert_array_equal(session.value(optimizer.get_slot(w, "m")), [[1.25], [-0.75], [0.25]])
    session.run(sparse)
    assert_array_equal(session.value(w), [[0.5], [2.0], [2.75]])
    assert_array_equal(session.value(optimizer.get_slot(w, "m")), [[2.625], [0.625], [0.25]])
    assert session.value(w).dtype == dtype
    assert optimizer.get_slot(w, "m").name == "w/Lion:0"


class WideSlots(Lion):
    """Keeps its slot in float32 beside a float16 variable."""

    def _create_slots(self, var_list):
        for v in var_list:
            zeros = tf.zeros_initializer()
            self._get_or_make_slot_with_initializer(v, zeros, v.shape, tf.float32, "m", "M")


def test_a_slot_may_have_a_dtype_of_its_own():
    w = tf.Variable(np.float16([1.0, 2.0]), name="w")
    optimizer = WideSlots(0.25, 0.5)
    train_op = optimizer.apply_gradients([(np.float16([1.0, 1e-4]), w)])
    session = started()
    session.run(train_op)
    slot = session.value(optimizer.get_slot(w, "m"))
    assert (session.value(w).dtype, slot.dtype) == (np.float16, np.float32)
    assert_allclose(slot, np.float32([0.5, np.float16(1e-4) / 2]))


def equation(rule, slots=("m",)):
    """An optimizer with this rule, and the variable 'w' that it is to move."""

    class Mine(T.Optimizer):
        def update(self, xp, w, g, *slots, **hyper):
            return rule(xp, w, g, *slots, **hyper)

    Mine.slots = slots
    return Mine(False, "Mine", rate=0.5), tf.Variable([[1.0, 2.0, 3.0]], name="w")


def in_place(target):
    def rule(xp, w, g, m, rate):
        array = {"w": w, "g": g, "m": m, "rate": rate}[target]
        array *= 2
        return w - rate * g, m

    return rule


def through_out(xp, w, g, m, rate):
    xp.multiply(m, 0.9, out=m)
    return w - rate * g, m


@pytest.mark.parametrize(
    "rule",
    [*map(in_place, ["w", "g", "m", "rate"]), through_out],
    ids=["w", "g", "m", "rate", "out"],
)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "rows"])
def test_an_equation_that_writes_in_place_is_refused(graph, rule, sparse):
    optimizer, w = equation(rule)
    grad = rows([[1.0, 2.0, 3.0]], [0]) if sparse else tf.constant([[1.0, 2.0, 3.0]])
    before = picture(graph, optimizer)
    with pytest.raises(
        ValueError, match="the equation of variable 'w' changes one of its arguments in place"
    ):
        optimizer.apply_gradients([(grad, w)])
    assert picture(graph, optimizer) == before


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (lambda xp, w, g, m, rate: w, "expected 2 arrays, the variable and its 1 slots, got 1"),
        (lambda xp, w, g, m, rate: (w, m, m), "expected 2 arrays, .* got 3"),
        (
            lambda xp, w, g, m, rate: (w.sum(), m),
            r".* of the variable's shape, got float64 of shape \(\)",
        ),
        (lambda xp, w, g, m, rate: (w, m[0]), r".* got float64 of shape \(2,\) for \(1, 2\)"),
        (lambda xp, w, g, m, rate: (w, None), ".* got object"),
        (lambda xp, w, g, m, rate: (w * 1j, m), ".* got complex128"),
    ],
)
def test_an_equation_that_gives_the_wrong_arrays_is_refused(graph, rule, text):
    optimizer, w = equation(rule)
    before = picture(graph, optimizer)
    with pytest.raises(ValueError, match=f"the equation of variable 'w': {text}"):
        optimizer.apply_gradients([([[1.0, 2.0, 3.0]], w)])
    assert picture(graph, optimizer) == before


def test_other_errors_of_an_equation_are_told_as_they_are(graph):
    def rule(xp, w, g, m, rate):
        raise ValueError("mine")

    optimizer, w = equation(rule)
    with pytest.raises(ValueError, match=r"^mine$"):
        optimizer.apply_gradients([([[1.0, 2.0, 3.0]], w)])


def test_an_equation_that_fails_when_run_leaves_everything_as_it_was():
    optimizer, w = equation(
        lambda xp, w, g, m, rate: (w - rate * g, m) if w[0, 0] < 1 else (w, m, m)
    )
    b = tf.Variable([1.0])
    pairs = [([1.0], b), ([[1.0, 2.0, 3.0]], w)]
    train_op = T.GradientDescentOptimizer(0.5).apply_gradients(pairs[:1])
    with tf.control_dependencies([train_op]):
        both = optimizer.apply_gradients(pairs[1:])
    session = started()
    with pytest.raises(tf.errors.InvalidArgumentError, match="Mine/update_w/Mine"):
        session.run(both)
    assert session.value(b) == [1.0]
    assert_array_equal(session.value(w), [[1.0, 2.0, 3.0]])


class ForgetsASlot(Lion):
    """Makes none of its slots."""

    def _create_slots(self, var_list):
        pass


def test_a_slot_that_was_not_made_is_named():
    with pytest.raises(ValueError, match=r"Lion: _create_slots made no slot \['m'\]"):
        ForgetsASlot().apply_gradients([([1.0], tf.Variable([1.0]))])


def test_an_equation_may_divide_by_zero_when_it_is_tried():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer, w = equation(lambda xp, w, g, rate: w - rate * g / (w - w), slots=())
        optimizer.apply_gradients([([[1.0, 2.0, 3.0]], w)])


def test_repr_tells_class_and_name():
    assert repr(Lion()) == "<optkit.Lion 'Lion'>"


def test_slots_that_are_a_string_are_refused():
    class Slip(Lion):
        slots = "momentum"

    with pytest.raises(TypeError, match=r"Slip\.slots: .*\('momentum',\) for one"):
        Slip()


def test_an_init_that_does_not_call_its_base_is_told_to():
    class Forgetful(Lion):
        def __init__(self):
            self.rate = 0.1

    with pytest.raises(RuntimeError, match=r"Forgetful\.__init__ must call super"):
        Forgetful().minimize(tf.nn.l2_loss(tf.Variable([1.0])))
