"""Every op of the table: values, dtypes, shapes, gradients of both orders; that none is missing.

Sessions use the current backend, so OPTKIT_BACKEND=cupy runs all of this on a device.
"""

import importlib
import pkgutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import optkit.ops
from optkit.gradients import gradients
from optkit.graph import Graph
from optkit.ops.array import placeholder
from optkit.ops.core import REGISTRY, constant
from optkit.runtime.eager import eager
from optkit.runtime.session import Session
from optkit.runtime.tape import GradientTape
from tests.gradcheck import check_gradients, tensors_of
from tests.ops.rows import Case, Elsewhere
from tests.ops.table import CASES, DOUBLED, TABLE

ROOT = Path(__file__).parents[2]

for _module in pkgutil.iter_modules(optkit.ops.__path__):
    importlib.import_module(f"optkit.ops.{_module.name}")

BY_CASE = [pytest.param(name, case, id=f"{name}-{case.name}") for name, case in CASES]
BY_DTYPE = [
    pytest.param(name, case, dtype, id=f"{name}-{case.name}-{dtype}")
    for name, case in CASES
    for dtype in case.dtypes
]


def arrays_of(case: Case, dtype: str) -> list[np.ndarray]:
    """The case's inputs; always the same ones."""
    made = [np.asarray(array) for array in case.inputs(np.random.default_rng(7))]
    return [array.astype(dtype) if array.dtype == np.float64 else array for array in made]


def floats(case: Case, arrays: list[np.ndarray]) -> list[int]:
    """The positions of the inputs that must have a gradient."""
    if case.wrt is not None:
        return list(case.wrt)
    return [i for i, array in enumerate(arrays) if array.dtype.kind == "f"]


class Built:
    """A case as a graph, with the values and gradients that a session gives for it."""

    def __init__(self, case: Case, arrays: list[np.ndarray], shapes: list) -> None:
        self.graph = Graph()
        self.case = case
        with self.graph.as_default():
            self.xs = [placeholder(a.dtype, s) for a, s in zip(arrays, shapes, strict=True)]
            self.ys = tensors_of(case.call(*self.xs, **case.kwargs))
            self.feed = dict(zip(self.xs, arrays, strict=True))
            self.session = Session(graph=self.graph)

    def values(self) -> list:
        return self.session.run(self.ys, self.feed)

    def weights(self) -> list[np.ndarray]:
        """Of the floating outputs; numbers that every float dtype can hold."""
        rng = np.random.default_rng(8)
        values = [value for value in self.values() if value.dtype.kind == "f"]
        shapes = [np.shape(value) for value in values]
        return [rng.integers(1, 17, s) / 8 * rng.choice([-1, 1], s) for s in shapes]

    def gradients(self, wrt: Sequence[int]) -> list:
        ys = [y for y in self.ys if y.dtype.is_floating]
        with self.graph.as_default():
            return gradients(ys, [self.xs[i] for i in wrt], self.weights())


def static(arrays: list[np.ndarray]) -> list:
    return [array.shape for array in arrays]


def tolerance(dtype: str, values: np.ndarray, ulps: float) -> float:
    """So many units in the last place of the largest finite value."""
    finite = np.abs(values[np.isfinite(values)])
    largest = float(np.max(finite, initial=0.0))
    return ulps * float(np.finfo(dtype).eps) * max(largest, 1e-3)


@pytest.mark.parametrize(("type_name", "case", "dtype"), BY_DTYPE)
def test_values_are_the_reference(type_name, case, dtype):
    arrays = arrays_of(case, dtype)
    built = Built(case, arrays, static(arrays))
    assert type_name in {op.type for op in built.graph.get_operations()}
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    expected = case.reference(*wide, **case.kwargs)
    expected = expected if isinstance(expected, list | tuple) else [expected]
    result = np.dtype(case.result or dtype)
    values = built.values()
    assert len(values) == len(expected) == len(built.ys)
    for y, value, target in zip(built.ys, values, expected, strict=True):
        assert y.dtype == result
        assert value.dtype == result
        assert np.shape(value) == np.shape(target)
        if case.shape_known:
            assert y.sizes == np.shape(value)
        target = np.asarray(target)
        if result.kind == "f":
            atol = tolerance(result.name, target, 4 * case.tolerance)
            np.testing.assert_allclose(value.astype(np.float64), target, rtol=0, atol=atol)
        else:
            np.testing.assert_array_equal(value, target.astype(result))


@pytest.mark.parametrize(("type_name", "case"), BY_CASE)
def test_unknown_shapes_give_the_same(type_name, case):
    arrays = arrays_of(case, case.dtypes[-1])
    known = Built(case, arrays, static(arrays))
    expected = known.values()
    variants = [[[None] * array.ndim for array in arrays]]
    if case.unknown_rank:
        variants.append([None] * len(arrays))
    wrt = floats(case, arrays)
    for shapes in variants:
        built = Built(case, arrays, shapes)
        for y, value, target in zip(built.ys, built.values(), expected, strict=True):
            assert y.shape.is_compatible_with(np.shape(value))
            np.testing.assert_array_equal(value, target)
        if wrt:
            found = built.session.run(built.gradients(wrt), built.feed)
            target = known.session.run(known.gradients(wrt), known.feed)
            for i, dx, dx_known in zip(wrt, found, target, strict=True):
                assert dx.shape == arrays[i].shape
                np.testing.assert_allclose(dx, dx_known, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(("type_name", "case"), BY_CASE)
def test_eager_mode_gives_the_same(type_name, case):
    arrays = arrays_of(case, case.dtypes[-1])
    built = Built(case, arrays, static(arrays))
    wrt = floats(case, arrays)
    with eager(), GradientTape() as tape:
        xs = [constant(array) for array in arrays]
        tape.watch([xs[i] for i in wrt])
        ys = tensors_of(case.call(*xs, **case.kwargs))
        for y, value in zip(ys, built.values(), strict=True):
            np.testing.assert_array_equal(y.numpy(), value)
        if wrt:
            ys = [y for y in ys if y.dtype.is_floating]
            dxs = tape.gradient(ys, [xs[i] for i in wrt], built.weights())
            expected = built.session.run(built.gradients(wrt), built.feed)
            for dx, target in zip(dxs, expected, strict=True):
                np.testing.assert_array_equal(dx.numpy(), target)


@pytest.mark.parametrize(
    ("type_name", "case"),
    [p for p in BY_CASE if "float64" in p.values[1].dtypes and p.values[1].wrt != ()],
)
def test_gradients_are_the_differences(type_name, case):
    arrays = arrays_of(case, "float64")
    check_gradients(
        lambda *xs: case.call(*xs, **case.kwargs),
        arrays,
        floats(case, arrays),
        order=2 if case.smooth else 1,
        step=case.step,
    )


@pytest.mark.parametrize(
    ("type_name", "case", "dtype"),
    [
        p
        for p in BY_DTYPE
        if p.values[2] in ("float16", "float32")
        and "float64" in p.values[1].dtypes
        and p.values[1].wrt != ()
    ],
)
def test_gradients_of_narrow_floats_are_those_of_float64(type_name, case, dtype):
    arrays = arrays_of(case, dtype)
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    wrt = floats(case, arrays)
    narrow_built, wide_built = (Built(case, each, static(each)) for each in (arrays, wide))
    found = narrow_built.session.run(narrow_built.gradients(wrt), narrow_built.feed)
    expected = wide_built.session.run(wide_built.gradients(wrt), wide_built.feed)
    for dx, target in zip(found, expected, strict=True):
        assert dx.dtype == dtype
        atol = tolerance(dtype, target, 8 * case.gradient_tolerance)
        np.testing.assert_allclose(dx.astype(np.float64), target, rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("type_name", "case"),
    [p for p in BY_CASE if not REGISTRY[p.values[0]].kind.differentiable],
)
def test_what_is_declared_without_gradient_has_none(type_name, case):
    arrays = arrays_of(case, case.dtypes[-1])
    built = Built(case, arrays, static(arrays))
    if all(y.dtype.is_floating for y in built.ys):
        assert built.gradients(range(len(arrays))) == [None] * len(arrays)


# -- the table itself -----------------------------------------------------------------------------


@pytest.mark.host("it calls kernels that write into NumPy arrays")
@pytest.mark.parametrize(
    ("type_name", "case", "dtype"),
    [p for p in BY_DTYPE if REGISTRY[p.values[0]].kind.into is not None],
)
def test_writing_into_an_array_gives_the_same_bits(type_name, case, dtype):
    arrays = arrays_of(case, dtype)
    built = Built(case, arrays, static(arrays))
    seen = 0
    for op in built.graph.get_operations():
        if op.kind.into is None:
            continue
        seen += 1
        *inputs, expected = map(
            np.asarray, built.session.run([*op.inputs, *op.outputs], built.feed)
        )
        out = np.full_like(expected, 7)
        with np.errstate(all="ignore"):
            assert op.kind.into(np, *inputs, out=out, **op.attrs) is out
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(np.signbit(out), np.signbit(expected))
    assert seen


def test_every_op_has_a_row():
    assert sorted(REGISTRY.keys() - TABLE.keys()) == []


def test_every_row_has_an_op():
    assert sorted(TABLE.keys() - REGISTRY.keys()) == []
    assert DOUBLED == []


@pytest.mark.parametrize("type_name", sorted(TABLE))
def test_rows_agree_with_the_declaration(type_name):
    row, kind = TABLE[type_name], REGISTRY[type_name].kind
    if isinstance(row, Elsewhere):
        assert row.why
        text = (ROOT / row.file).read_text(encoding="utf-8")
        names = {row.name} if row.name else {type_name, REGISTRY[type_name].__name__.lstrip("_")}
        assert any(name in text for name in names)
        return
    names = [case.name for case in row]
    assert len(set(names)) == len(names) > 0
    checked = [case for case in row if case.wrt != () and "float64" in case.dtypes]
    assert bool(checked) == kind.differentiable
    assert (kind.gradient is not None) == kind.differentiable


def test_every_float_dtype_is_covered():
    """An op that takes a float dtype has a case for it."""
    missing = []
    for type_name, row in TABLE.items():
        if isinstance(row, Elsewhere):
            continue
        covered = {dtype for case in row for dtype in case.dtypes}
        taken = {dtype.name for dtype in REGISTRY[type_name]._types} - {"bfloat16"}
        missing += [
            (type_name, dtype)
            for dtype in ("float16", "float32", "float64")
            if dtype in taken and dtype not in covered
        ]
    assert missing == []
