"""The update operation: an equation applied to a variable and its slots."""

import numpy as np
import pytest

from optkit.backend import use_backend
from optkit.dtypes import as_dtype
from optkit.errors import FailedPreconditionError, InvalidArgumentError
from optkit.graph import IndexedSlices
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.ops.update import try_equation, update
from optkit.runtime import Session
from optkit.variables import Variable, global_variables_initializer


def momentum(xp, w, g, m, *, rate, decay):
    """Not the library's own: the test's."""
    m = decay * m + g
    return w - rate * m, m


def plain(xp, w, g, *, rate):
    return w - rate * g


class Model:
    """A variable w, a slot m and one update of both, run once."""

    def __init__(self, equation, w, gradient, slots=(), *, dtype="float32", **options):
        self.w = Variable(np.array(w, dtype), name="w")
        self.slots = [Variable(np.array(slot, dtype), name=f"m{i}") for i, slot in enumerate(slots)]
        hyper = {"rate": constant(0.5, as_dtype(dtype))}
        if slots:
            hyper["decay"] = constant(0.25, as_dtype(dtype))
        self.op = update(
            equation,
            self.w.op,
            [slot.op for slot in self.slots],
            gradient,
            hyper,
            name="update",
            **options,
        )
        self.session = Session()
        self.session.run(global_variables_initializer())

    def run(self, feeds=None):
        result = self.session.run(self.op.outputs[0], feeds)
        return result, [self.session.value(slot) for slot in self.slots]


def rows(values, indices, dtype="float32"):
    return IndexedSlices(constant(np.array(values, dtype)), constant(indices), constant([4, 2]))


W = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]
M = [[0.5, 1.0], [1.5, 2.0], [2.5, 3.0], [3.5, 4.0]]
G = [[1.0, -1.0], [2.0, 0.0]]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_dense(dtype):
    g = np.arange(8.0).reshape(4, 2)
    model = Model(momentum, W, constant(g.astype(dtype)), [M], dtype=dtype)
    w, (m,) = model.run()
    expected = 0.25 * np.array(M) + g
    np.testing.assert_array_equal(m, expected.astype(dtype))
    np.testing.assert_array_equal(w, (np.array(W) - 0.5 * expected).astype(dtype))
    assert w.dtype == m.dtype == dtype
    np.testing.assert_array_equal(model.session.value(model.w), w)


def test_an_equation_without_slots_may_give_the_array_itself():
    w, slots = Model(plain, [1.0, 2.0], constant([2.0, 4.0])).run()
    np.testing.assert_array_equal(w, [0.0, 0.0])
    assert slots == []


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_that_are_not_named_stay_with_their_slots(dtype):
    model = Model(momentum, W, rows(G, [3, 0], dtype), [M], dtype=dtype)
    w, (m,) = model.run()
    expected_w, expected_m = np.array(W), np.array(M)
    for row, g in ((3, G[0]), (0, G[1])):
        expected_m[row] = 0.25 * expected_m[row] + g
        expected_w[row] -= 0.5 * expected_m[row]
    np.testing.assert_array_equal(m, expected_m)
    np.testing.assert_array_equal(w, expected_w)


def test_all_rows_may_decay():
    model = Model(momentum, W, rows(G, [3, 0]), [M], decays_all_rows=True)
    w, (m,) = model.run()
    g = np.zeros((4, 2))
    g[[3, 0]] = G
    expected = 0.25 * np.array(M) + g
    np.testing.assert_array_equal(m, expected)
    np.testing.assert_array_equal(w, np.array(W) - 0.5 * expected)


def test_no_rows_at_all():
    empty = IndexedSlices(constant(np.zeros((0, 2), np.float32)), constant(np.zeros(0, np.int64)))
    w, (m,) = Model(momentum, W, empty, [M]).run()
    np.testing.assert_array_equal(w, W)
    np.testing.assert_array_equal(m, M)


def test_half_precision_is_updated_in_float32():
    seen = []

    def equation(xp, w, g, m, *, rate, decay):
        seen.extend([w.dtype, g.dtype, m.dtype, rate.dtype, decay.dtype])
        # 1e-8 is zero in float16.
        return w - rate * g / (g + xp.float32(1e-8)), m

    model = Model(equation, [1.0], constant([0.0], "float16"), [[0.0]], dtype="float16")
    w, _ = model.run()
    assert {str(dtype) for dtype in seen} == {"float32"}
    assert w.dtype == np.float16
    np.testing.assert_array_equal(w, [1.0])


def test_float64_scalars_do_not_widen_the_variable():
    def equation(xp, w, g, *, rate):
        return np.float64(1.0) * w - rate * g

    w, _ = Model(equation, [1.0], constant([2.0])).run()
    assert w.dtype == np.float32


def test_updates_see_the_newest_value():
    w = Variable([1.0], name="w")
    first = update(plain, w.op, [], constant([2.0]), {"rate": constant(1.0)}, name="first")
    second = update(plain, w.op, [], constant([5.0]), {"rate": constant(1.0)}, name="second")
    with Session() as session:
        session.run(w.initializer)
        values = session.run([first.outputs[0], second.outputs[0]])
        np.testing.assert_array_equal(values, [[-1.0], [-6.0]])
        session.run(second)
        np.testing.assert_array_equal(session.value(w), [-11.0])


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gradient", "message"),
    [
        (lambda: rows(G, [0, 4]), r"variable 'w': expected row numbers in \[0, 4\), got 4 at posi"),
        (lambda: rows(G, [-1, 0]), r"expected row numbers in \[0, 4\), got -1 at position 0"),
        (lambda: rows(G, [1]), r"variable 'w': expected shape \(1, 2\), got \(2, 2\)"),
        (lambda: rows(G[:1], [0, 1]), r"variable 'w': expected shape \(2, 2\), got \(1, 2\)"),
        (lambda: rows([[1.0], [2.0]], [0, 1]), r"expected shape \(2, 2\), got \(2, 1\)"),
        (lambda: placeholder("float32", name="g"), r"expected shape \(4, 2\), got \(2, 4\)"),
    ],
)
@pytest.mark.parametrize("decays_all_rows", [True, False])
def test_gradients_that_do_not_fit(gradient, message, decays_all_rows, graph):
    model = Model(momentum, W, gradient(), [M], decays_all_rows=decays_all_rows)
    feeds = {"g:0": np.ones((2, 4))} if "g" in graph._by_name else {}
    with pytest.raises(InvalidArgumentError, match=message) as error:
        model.run(feeds)
    assert error.value.op is model.op
    np.testing.assert_array_equal(model.session.value(model.w), W)
    np.testing.assert_array_equal(model.session.value(model.slots[0]), M)


@pytest.mark.parametrize(
    "equation",
    [
        lambda xp, w, g, m, **_: (w[:1], m),
        lambda xp, w, g, m, **_: (w, m.sum()),
        lambda xp, w, g, m, **_: (w,),
        lambda xp, w, g, m, **_: (w, m, g),
        lambda xp, w, g, m, **_: w,
    ],
)
@pytest.mark.parametrize(
    "gradient", [lambda: constant(np.ones((4, 2), np.float32)), lambda: rows(G, [3, 0])]
)
def test_equations_that_give_other_arrays(equation, gradient):
    model = Model(equation, W, gradient(), [M])
    with pytest.raises(
        InvalidArgumentError, match=r"equation of variable 'w': expected 2 arrays of"
    ):
        model.run()
    np.testing.assert_array_equal(model.session.value(model.w), W)
    np.testing.assert_array_equal(model.session.value(model.slots[0]), M)


@pytest.mark.parametrize("changed", ["w", "m", "g"])
def test_equations_cannot_change_their_arguments(changed):
    g = placeholder("float32", [2])

    def equation(xp, w, g, m, **_):
        {"w": w, "m": m, "g": g}[changed][0] = 100.0
        return w, m

    with use_backend("numpy"):  # CuPy's arrays cannot be made read-only; see try_equation
        model = Model(equation, [1.0, 2.0], g * 1.0, [[3.0, 4.0]])
    with pytest.raises(InvalidArgumentError, match="read-only"):
        model.run({g: [5.0, 6.0]})
    np.testing.assert_array_equal(model.session.value(model.w), [1.0, 2.0])
    np.testing.assert_array_equal(model.session.value(model.slots[0]), [3.0, 4.0])


def test_what_an_equation_gives_back_is_not_shared():
    g = placeholder("float32", [2])
    model = Model(lambda xp, w, g, m, **_: (g, g), [1.0, 2.0], g, [[3.0, 4.0]])
    fed = np.array([5.0, 6.0], np.float32)
    model.run({g: fed})
    fed[:] = 0.0
    np.testing.assert_array_equal(model.session.value(model.w), [5.0, 6.0])
    np.testing.assert_array_equal(model.session.value(model.slots[0]), [5.0, 6.0])


@pytest.mark.parametrize("missing", ["w", "m0"])
def test_uninitialised_targets_are_named(missing):
    w, m = Variable([1.0], name="w"), Variable([1.0], name="m0")
    hyper = {"rate": constant(0.5), "decay": constant(0.5)}
    train = update(momentum, w.op, [m.op], constant([1.0]), hyper, name="update")
    with Session() as session:
        session.run({"w": m, "m0": w}[missing].initializer)
        with pytest.raises(FailedPreconditionError, match=f"variable '{missing}' is not initiali"):
            session.run(train)


# -- trying an equation ---------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[], [3], [4, 2]])
def test_trying_a_good_equation(sizes):
    w = Variable(np.ones(sizes, np.float32), name="w")
    try_equation(momentum, w.op, 2, ("rate", "decay"))
    try_equation(plain, w.op, 1, ("rate",))


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        (lambda xp, w, g, m: w, "'w': expected 2 arrays, the variable and its 1 slots, got 1"),
        (lambda xp, w, g, m: (w, m, m), "'w': expected 2 arrays.*got 3"),
        (lambda xp, w, g, m: (w, m.sum()), r"'w': expected arrays of the variable's shape"),
        (lambda xp, w, g, m: (w, "text"), r"'w': expected arrays of the variable's shape"),
        (lambda xp, w, g, m: (w, m.__iadd__(g)), "'w' changes one of its arguments in place"),
        (lambda xp, w, g, m: (w.__imul__(2), m), "return new arrays instead"),
    ],
)
def test_trying_a_bad_equation(equation, message):
    w = Variable([1.0, 2.0, 3.0], name="w")
    with pytest.raises(ValueError, match=message):
        try_equation(equation, w.op, 2, ())


def test_errors_of_an_equations_own_stay():
    def equation(xp, w, g):
        raise LookupError("its own")

    with pytest.raises(LookupError, match="its own"):
        try_equation(equation, Variable([1.0]).op, 1, ())
