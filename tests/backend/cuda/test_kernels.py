"""optkit's kernels on CuPy: bit for bit what NumPy gives, and the same in every run."""

import numpy as np
import pytest

from optkit.backend.arrays import scatter_rows, to_host
from optkit.backend.cuda.checks import Checks, deferred, deferred_finite
from optkit.backend.cuda.elementwise import elementwise
from optkit.backend.cuda.launch import CHUNK
from optkit.backend.cuda.norm import device_norm
from optkit.backend.cuda.rows import PIECE
from optkit.backend.cuda.transfer import Transfer
from optkit.backend.cuda.update import DeviceUpdate, fused_values
from optkit.backend.fused import UntraceableError
from optkit.backend.segments import merge_rows, segment_sum
from summaries.histogram import counter_for, measure
from tests import cusim
from tests.backend.test_fused import EXTRA, OPTIMIZERS, VALUES
from tests.conftest import DEVICE

pytestmark = pytest.mark.cupy

if DEVICE:
    import cupy

ORDERS = [0, 1, 7] if DEVICE == "sim" else [0]


@pytest.fixture(params=ORDERS)
def schedule(request):
    """Threads and blocks in another order: the results of kernels with barriers may not change."""
    if DEVICE == "sim":
        with cusim.settings(order=request.param):
            yield
    else:
        yield


def sent(*arrays):
    return [cupy.asarray(array) for array in arrays]


# -- updates --------------------------------------------------------------------------------------

# Powers, which no two libraries round alike: units in the last place of the largest value.
INEXACT = {"ftrl": {"float16": 1, "float32": 64, "float64": 64}}


def state_of(optimizer, rng, shape, dtype):
    w, g = rng.standard_normal((2, *shape)).astype(dtype)
    return g, [w, *((1 + rng.random(shape)).astype(dtype) for _ in optimizer.slots)]


def expected_of(optimizer, hyper, g, columns, wide):
    scalars = {key: wide(VALUES[key]) for key in hyper}
    news = optimizer.update(
        np, columns[0].astype(wide), g.astype(wide), *(c.astype(wide) for c in columns[1:]),
        **scalars,
    )  # fmt: skip
    news = news if isinstance(news, tuple) else (news,)
    return [new.astype(g.dtype) for new in news]


def assert_same(name, got, wanted):
    ulps = INEXACT.get(name, {}).get(got.dtype.name, 0)
    unit = np.finfo(got.dtype).eps * np.max(np.abs(wanted), initial=0)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=ulps * unit)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_give_the_equations_bits(name, dtype):
    """Many variables in one launch: with tails, of one element, of several chunks, not aligned."""
    optimizer = OPTIMIZERS[name]()
    hyper = (*optimizer._hyper, *EXTRA.get(name, ()))
    wide = np.float32 if dtype is np.float16 else dtype
    rng = np.random.default_rng(3)
    update = DeviceUpdate(optimizer.update, len(optimizer.slots), hyper, np.dtype(dtype))
    columns, gradients, expected = [], [], []
    for size in (1, 13, 1000, 0, 2 * CHUNK + 5):
        g, values = state_of(optimizer, rng, (size,), dtype)
        expected.append(expected_of(optimizer, hyper, g, values, wide))
        columns.append(sent(*values))
        gradients.append(cupy.asarray(g))
    g, values = state_of(optimizer, rng, (30,), dtype)
    expected.append([e[1:] for e in expected_of(optimizer, hyper, g, values, wide)])
    columns.append([array[1:] for array in sent(*values)])  # starts between two packs
    gradients.append(cupy.asarray(g)[1:])
    numbers = [cupy.asarray(wide(VALUES[key])) for key in hyper]
    update.bind(columns).start(gradients, numbers)()
    for column, wanted in zip(columns, expected, strict=True):
        for array, new in zip(column, wanted, strict=True):
            assert_same(name, array.get(), new)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", ["adagrad", "momentum", "ftrl"])
def test_rows_are_updated_and_others_left(name, dtype):
    optimizer = OPTIMIZERS[name]()
    hyper = (*optimizer._hyper, *EXTRA.get(name, ()))
    wide = np.float32 if dtype is np.float16 else dtype
    rng = np.random.default_rng(4)
    update = DeviceUpdate(optimizer.update, len(optimizer.slots), hyper, np.dtype(dtype))
    _, values = state_of(optimizer, rng, (50, 3), dtype)
    rows = np.array([49, 0, 7])
    g = rng.standard_normal((3, 3)).astype(dtype)
    column = sent(*values)
    numbers = [cupy.asarray(wide(VALUES[key])) for key in hyper]
    gradient, places = sent(g, rows)
    update.bind([column]).start_rows(gradient, places, numbers)()
    news = expected_of(optimizer, hyper, g, [value[rows] for value in values], wide)
    for array, value, new in zip(column, values, news, strict=True):
        value[rows] = new
        assert_same(name, array.get(), value)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_new_values_beside_the_old_ones(dtype):
    wide = np.float32 if dtype == "f2" else np.dtype(dtype).type
    rng = np.random.default_rng(5)
    optimizer = OPTIMIZERS["momentum"]()
    scalars = {key: cupy.asarray(wide(VALUES[key])) for key in optimizer._hyper}
    g, values = state_of(optimizer, rng, (7, 3), dtype)
    column = sent(*values)
    column[0] = cupy.asarray(values[0].T.copy()).T
    news = fused_values(optimizer.update, scalars, column, cupy.asarray(g))
    for new, wanted in zip(
        news, expected_of(optimizer, optimizer._hyper, g, values, wide), strict=True
    ):
        np.testing.assert_array_equal(new.get(), wanted)
    for array, value in zip(column, values, strict=True):
        np.testing.assert_array_equal(array.get(), value)
    other = cupy.asarray(g).astype("f8" if dtype == "f4" else "f4")
    assert fused_values(optimizer.update, scalars, column, other) is None
    assert fused_values(lambda xp, w, g: xp.sort(w), {}, column[:1], cupy.asarray(g)) is None


def test_an_update_of_no_rows():
    update = DeviceUpdate(lambda xp, w, g: w - g, 0, (), np.dtype(np.float32))
    (w, g, rows) = sent(np.ones((4, 2), "f4"), np.ones((0, 2), "f4"), np.zeros(0, np.int64))
    update.bind([[w]]).start_rows(g, rows, [])()
    np.testing.assert_array_equal(w.get(), 1)


SPECIAL = {
    "maximum": lambda xp, w, g: xp.maximum(w, g),
    "minimum": lambda xp, w, g: xp.minimum(w, g),
    "sign": lambda xp, w, g: xp.sign(w) * g,
    "where": lambda xp, w, g: xp.where(xp.isnan(w) | ~xp.isfinite(g), 1, w),
    "copysign": lambda xp, w, g: xp.copysign(g, w),
    "truth": lambda xp, w, g: w * (w >= g) + g * (g > 0) - (w != g),
    "clip": lambda xp, w, g: xp.clip(w, -1, 1) - g,
    "absolute": lambda xp, w, g: abs(w) / g,
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values_are_numpys(name):
    """NaN and infinity, signs of zero and ties, through everything that compares."""
    corners = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 3.0, np.inf, -np.inf, np.nan], "f4")
    w, g = (x.ravel() for x in np.meshgrid(corners, corners))
    with np.errstate(all="ignore"):
        expected = SPECIAL[name](np, w, g).astype(np.float32)
    dw, dg = sent(w.copy(), g)
    DeviceUpdate(SPECIAL[name], 0, (), np.dtype(np.float32)).bind([[dw]]).start([dg], [])()
    np.testing.assert_array_equal(dw.get(), expected)
    if name not in ("maximum", "minimum"):  # NumPy's take either of two zeros
        known = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(dw.get()[known]), np.signbit(expected[known]))


def test_dtypes_without_a_kernel():
    with pytest.raises(UntraceableError, match="variables of dtype int32"):
        DeviceUpdate(lambda xp, w, g: w - g, 0, (), np.dtype(np.int32))


# -- sums in a fixed order ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_norms(schedule, dtype):
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in [(), (3, 5), 0, 2 * CHUNK + 9]]
    expected = np.sqrt(sum((a.astype(np.float64) ** 2).sum() for a in arrays))
    norm = device_norm([*sent(*arrays[:3]), cupy.asarray(arrays[3])])
    assert norm.shape == ()
    assert norm.dtype == (np.float32 if dtype is np.float16 else dtype)
    np.testing.assert_allclose(norm.get(), expected, 4 * np.finfo(norm.dtype).eps)


def test_norms_of_views_and_of_nothing():
    (x,) = sent(np.arange(12.0).reshape(3, 4))
    assert float(device_norm([x.T[::2]])) == np.sqrt(
        (np.arange(12.0).reshape(3, 4)[:, ::2] ** 2).sum()
    )
    assert float(device_norm([cupy.zeros(0, "f4")])) == 0.0
    assert np.isnan(float(device_norm(sent(np.array([1, np.nan], "f4")))))


def test_norms_have_the_same_bits_in_every_order():
    (x,) = sent(np.random.default_rng(6).standard_normal(3 * CHUNK).astype("f4"))
    bits = set()
    for order in (0, 1, 2, 3):
        with cusim.settings(order=order) if DEVICE == "sim" else np.errstate():
            bits.add(device_norm([x, x[5:]]).get().tobytes())
    assert len(bits) == 1


@pytest.mark.parametrize("on_host", [True, False], ids=["numbers on the host", "on the device"])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "i8"])
@pytest.mark.parametrize(
    ("count", "groups", "shape"),
    [
        (0, 5, (3,)),
        (1, 5, (3,)),
        (7, 5, (2, 2)),
        (500, 20, (4,)),
        (3 * PIECE + 7, 2, ()),
        (40, 1000, (3,)),
    ],
)
def test_rows_with_one_number_are_added_as_numpy_adds_them(dtype, count, groups, shape, on_host):
    rng = np.random.default_rng(count)
    values = (10 * rng.standard_normal((count, *shape))).astype(dtype)
    rows = rng.integers(0, groups, count)
    (dvalues,) = sent(values)
    numbers = rows if on_host else cupy.asarray(rows)
    total = segment_sum(cupy, dvalues, numbers, groups)
    wanted = segment_sum(np, values.copy(), rows, groups)
    np.testing.assert_array_equal(total.get(), wanted)
    assert total.dtype == wanted.dtype
    merged = merge_rows(cupy, dvalues, numbers)
    assert type(merged.rows) is type(numbers)
    for got, wanted in zip(to_host(merged), merge_rows(np, values.copy(), rows), strict=True):
        np.testing.assert_array_equal(got, wanted)
        assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(dvalues.get(), values)


def test_sums_keep_the_sign_of_zero():
    values, rows = np.array([-0.0, -0.0, -0.0, 0.0], "f4"), np.array([0, 2, 2, 1])
    got = segment_sum(cupy, cupy.asarray(values), rows, 3).get()
    wanted = segment_sum(np, values.copy(), rows, 3)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted))
    assert np.signbit(got).tolist() == [True, False, True]


def test_p112_repeated_rows_have_the_same_bits_in_every_run():
    """1e5 gradients for a few rows: five runs, in different orders, and NumPy."""
    rng = np.random.default_rng(112)
    values = rng.standard_normal((100_000, 1)).astype("f4")
    rows = rng.integers(0, 3, 100_000)
    wanted = segment_sum(np, values.copy(), rows, 3).tobytes()
    dvalues, numbers = sent(values, rows)
    for order, places in enumerate([numbers, rows, rows, rows, rows]):
        with cusim.settings(order=order) if DEVICE == "sim" else np.errstate():
            assert segment_sum(cupy, dvalues, places, 3).get().tobytes() == wanted


@pytest.mark.parametrize("mode", ["update", "add", "sub", "mul", "min", "max"])
def test_scattering(mode):
    rng = np.random.default_rng(8)
    current, updates = rng.standard_normal((6, 2)), rng.standard_normal((5, 2))
    rows = np.array([1, 4, 1, 1, 0])
    wanted = scatter_rows(np, current, rows, updates, mode)
    got = scatter_rows(cupy, *sent(current, rows, updates), mode)
    np.testing.assert_array_equal(got.get(), wanted)


# -- checks, transfers, histograms ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["i4", "i8"])
def test_checks_share_a_flag(dtype):
    good, below, above = sent(*(np.array(x, dtype) for x in ([0, 4], [0, -1], [[5], [0]])))
    for bad in (below, above):
        with Checks() as checks:
            assert checks.flag is None
            assert deferred(good, 5)
            assert not checks.flag.get().any()
            assert deferred(bad, 5)
            assert deferred(good, 5)
        assert checks.flag.get().any()
    assert not deferred(good, 5)  # nobody collects them any more


def test_arrays_come_home_together():
    rng = np.random.default_rng(9)
    arrays = [
        rng.standard_normal(shape).astype(dtype)
        for shape in [(), (3,), (2, 3), (0,), (100,)]
        for dtype in ("f2", "f4", "f8", "i4")
    ]
    arrays += [rng.random(9) > 0.5, np.arange(100_000), *[np.arange(i) for i in range(140)]]
    devices = sent(*arrays)
    devices[2] = cupy.asfortranarray(cupy.asarray(arrays[2]))
    got = to_host([*devices, np.arange(3), devices[6].T, 1.5])
    for array, wanted in zip(got, [*arrays, np.arange(3), arrays[6].T, 1.5], strict=True):
        assert type(array) is np.ndarray
        assert array.dtype == np.asarray(wanted).dtype
        np.testing.assert_array_equal(array, wanted)
    got[0][...] = 7  # the caller's own
    assert devices[0].get() == arrays[0]


@pytest.mark.cusim
def test_small_arrays_take_one_launch_and_one_copy():
    devices = sent(*(np.arange(i + 1.0) for i in range(100)))
    to_host(devices)
    with cusim.settings(log=True):
        before = len(cusim.stats()["log"])
        to_host(devices)
        assert cusim.stats()["log"][before:] == ["pack", "memcpy to host"]


@pytest.mark.cusim
def test_what_is_on_its_way_is_not_changed_by_what_comes_after():
    with cusim.settings(lazy=True):
        x, y = sent(np.arange(3.0), np.arange(4.0))
        transfer = Transfer([x, y])
        x *= 0
        y -= 1
        a, b = transfer.wait()
    np.testing.assert_array_equal(a, [0, 1, 2])
    np.testing.assert_array_equal(b, [0, 1, 2, 3])


def histogram_cases():
    rng = np.random.default_rng(10)
    for size in (0, 1, 5, 1000, 20_000):
        for dtype in ("f2", "f4", "f8"):
            yield rng.standard_normal(size).astype(dtype)
    for dtype in ("i4", "i8", "u1", "i2"):
        yield rng.integers(0, 100, 1000).astype(dtype) - np.array(5, dtype)
    yield rng.integers(0, 2**32, 20_000, np.uint64).astype(np.uint32).view(np.float32)
    yield rng.integers(2**52, 2**63, 5000).view(np.float64)
    yield np.array([0, -0.0, 1e-40, -1e-40, np.inf, -np.inf, np.nan, 3e38, -3e38] * 9, "f4")
    yield np.zeros(5000, "f4")
    yield np.full(10, np.nan, "f4")
    yield rng.standard_normal((4, 5, 6)).astype("f4")[:, ::2].T
    yield rng.random(10) > 0.5


@pytest.mark.parametrize("values", list(histogram_cases()), ids=lambda x: f"{x.dtype}-{x.size}")
def test_histograms_count_as_the_host_does(schedule, values):
    (device,) = sent(values)
    assert counter_for(device) is not None
    got, wanted = measure(device), measure(values)
    np.testing.assert_array_equal(got.limits, wanted.limits)
    np.testing.assert_array_equal(got.counts, wanted.counts)
    for name in ("num", "nonfinite", "min", "max"):
        assert getattr(got, name) == getattr(wanted, name), name
    sums = [[h.sum, h.sum_squares] for h in (got, wanted)]
    np.testing.assert_allclose(*sums, rtol=1e-12, atol=1e-12 * values.size)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_checks_that_all_is_finite(dtype):
    largest = np.finfo(dtype).max
    good, *bad = sent(
        *(
            np.array(x, dtype)
            for x in ([1.0, largest, -largest], [[np.nan]], [1, np.inf], [-np.inf])
        )
    )
    with Checks() as checks:
        assert deferred_finite(good)
        assert deferred_finite(cupy.zeros(0, dtype))
    assert not checks.flag.get().any()
    for array in bad:
        with Checks() as checks:
            assert deferred_finite(array)
        assert checks.flag.get().any()
    assert not deferred_finite(good)
    with Checks():
        assert not deferred_finite(cupy.arange(3))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_formulas_are_one_launch(dtype):
    def formula(xp, x, y):
        return xp.where(x < y, xp.nan, x * 2 + xp.sqrt(y)) / (x > 1)

    rng = np.random.default_rng(11)
    for shapes in [((5, 3), (5, 3)), ((), (7,)), ((4,), ()), ((), ()), ((0, 2), ())]:
        x, y = (np.asarray(rng.random(shape) * 3, dtype) for shape in shapes)
        with np.errstate(all="ignore"):
            wanted = formula(np, x, y)
        got = elementwise(formula, *sent(x, y))
        assert got.shape == wanted.shape
        assert got.dtype == wanted.dtype == dtype
        np.testing.assert_array_equal(got.get(), wanted)
    (a, b) = sent(np.ones(3, "f4"), np.ones((2, 3), "f4"))
    assert elementwise(formula, a, b) is None
    assert elementwise(formula, a, cupy.ones(3, "f8")) is None
    assert elementwise(formula, *[cupy.ones(3, "f2")] * 2) is None
    assert elementwise(lambda xp, x: xp.sort(x), a) is None
