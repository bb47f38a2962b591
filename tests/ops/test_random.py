"""Random numbers: the stream, seeds, distributions, and how they advance from run to run."""

import numpy as np
import pytest

from optkit.dtypes import float32
from optkit.errors import InvalidArgumentError
from optkit.gradients import gradients
from optkit.graph import Graph, get_default_graph
from optkit.ops.array import placeholder, shape
from optkit.ops.core import constant
from optkit.ops.random import (
    Stream,
    get_seed,
    random_normal,
    random_shuffle,
    random_uniform,
    set_random_seed,
    truncated_normal,
)
from optkit.runtime.session import Session

COUNT = 200_000


def run(fetches, feed=None):
    return Session().run(fetches, feed)


# -- the stream -----------------------------------------------------------------------------------


def philox(key, counter, blocks):
    """Philox4x64-10 from its paper, in Python's integers."""
    mask = (1 << 64) - 1
    words = []
    position = sum(part << 64 * i for i, part in enumerate(counter))
    for _ in range(blocks):
        position += 1  # NumPy counts up before each block
        c = [position >> 64 * i & mask for i in range(4)]
        k = list(key)
        for _ in range(10):
            a, b = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
            c = [b >> 64 ^ c[1] ^ k[0], b & mask, a >> 64 ^ c[3] ^ k[1], a & mask]
            k = [k[0] + 0x9E3779B97F4A7C15 & mask, k[1] + 0xBB67AE8584CAA73B & mask]
        words += c
    return words


def test_bits_are_philox():
    found = Stream((7, 2**63), 5).bits(12)
    assert found.dtype == np.uint64
    assert found.tolist() == philox((7, 2**63), (0, 0, 0, 5), 3)


def test_uniform_is_made_of_the_top_53_bits():
    words = Stream((1, 2), 3).bits(6)
    expected = [int(word) >> 11 for word in words]
    found = Stream((1, 2), 3).uniform((2, 3))
    assert found.shape == (2, 3)
    np.testing.assert_array_equal(found.ravel() * 2.0**53, expected)
    # The largest word is still below one.
    assert (((1 << 64) - 1) >> 11) * 2.0**-53 < 1


def test_normal_is_box_and_muller():
    u = Stream((1, 2), 3).uniform((2, 2))
    radius = np.sqrt(-2 * np.log(1 - u[0]))
    expected = [*(radius * np.cos(2 * np.pi * u[1])), *(radius * np.sin(2 * np.pi * u[1]))]
    np.testing.assert_allclose(Stream((1, 2), 3).normal((3,)), expected[:3], rtol=1e-12)


def test_truncated_normal_redraws_what_is_outside():
    plain = Stream((1, 2), 3).normal((1000,))
    found = Stream((1, 2), 3).truncated_normal((1000,))
    inside = np.abs(plain) < 2
    assert 0 < (~inside).sum() < 100
    np.testing.assert_array_equal(found[inside], plain[inside])
    assert np.abs(found).max() < 2


def test_streams_of_other_keys_and_runs_differ():
    streams = [
        Stream(key, run).bits(4).tolist() for key in ((0, 0), (0, 1), (1, 0)) for run in (0, 1)
    ]
    assert len({tuple(words) for words in streams}) == 6
    assert Stream((-1, 5), 0).bits(2).tolist() == Stream((2**64 - 1, 5), 0).bits(2).tolist()


def test_p110_numbers_stay_the_same_for_ever():
    # Seeds of published runs must go on to give these.
    stream = Stream((1, 2), 3)
    assert stream.bits(2).tolist() == [1170280437898119671, 13051159143091778299]
    np.testing.assert_array_equal(
        Stream((1, 2), 3).uniform((3,)),
        [0.06344102965932141, 0.707504754819708, 0.27756060377104574],
    )
    for draw in (Stream.normal, Stream.truncated_normal):
        np.testing.assert_allclose(
            draw(Stream((1, 2), 3), (4,)),
            [-0.06238401617518299, -1.528018746132531, 0.356642418901244, -0.351813086652587],
            rtol=1e-14,
        )


def test_streams_can_be_empty():
    for draw in (Stream.uniform, Stream.normal, Stream.truncated_normal):
        assert draw(Stream((1, 2), 0), (0, 3)).shape == (0, 3)


# -- seeds ----------------------------------------------------------------------------------------


def test_seeds_follow_tfs_rules(graph):
    assert get_seed(None) == (None, None)
    assert get_seed(3) == (87654321, 3)
    set_random_seed(5)
    assert graph.seed == 5
    assert get_seed(3) == (5, 3)
    count = len(graph.get_operations())
    assert get_seed(None) == (5, count)
    constant(1.0)
    assert get_seed(None) == (5, count + 1)
    set_random_seed(0)
    assert get_seed(0) == (0, 2**31 - 1)
    assert get_seed(2**31) == (0, 1)


@pytest.mark.parametrize("bad", [1.5, "a"])
def test_seeds_are_ints(bad):
    with pytest.raises(TypeError, match="seed: expected an int or None"):
        set_random_seed(bad)
    with pytest.raises(TypeError, match="seed: expected an int or None"):
        random_normal([2], seed=bad)


def graph_with(build, seed=None):
    """Two runs of `build()` in a session of a new graph."""
    with Graph().as_default():
        if seed is not None:
            set_random_seed(seed)
        tensor = build()
        session = Session(graph=get_default_graph())
        return session.run(tensor), session.run(tensor)


DRAWS = {
    "uniform": random_uniform,
    "normal": random_normal,
    "truncated": truncated_normal,
    "ints": lambda sizes, seed=None: random_uniform(sizes, 0, 1000, "int32", seed),
    "shuffle": lambda sizes, seed=None: random_shuffle(np.arange(50), seed),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_equal_seeds_give_equal_numbers_and_runs_go_on(draw):
    first = graph_with(lambda: draw([50], seed=3))
    second = graph_with(lambda: draw([50], seed=3))
    np.testing.assert_array_equal(first, second)
    assert (first[0] != first[1]).any()
    assert (graph_with(lambda: draw([50], seed=4))[0] != first[0]).any()
    np.testing.assert_array_equal(
        graph_with(lambda: draw([50]), seed=9), graph_with(lambda: draw([50]), seed=9)
    )


def test_without_seeds_sessions_differ():
    x = random_uniform([20])
    assert (run(x) != run(x)).any()


def test_two_ops_with_a_graph_seed_differ():
    set_random_seed(1)
    x, y = run([random_uniform([20]), random_uniform([20])])
    assert (x != y).any()


def test_one_run_draws_once():
    x = random_uniform([20])
    a, b = run([x, x + 0])
    np.testing.assert_array_equal(a, b)


def test_a_failed_run_does_not_advance():
    x = random_uniform([4], seed=1)
    bad = placeholder("int32", [])
    session = Session()
    with pytest.raises(InvalidArgumentError, match="out of range"):
        session.run([x, constant([1.0])[bad]], {bad: 3})
    np.testing.assert_array_equal(
        session.run(x), graph_with(lambda: random_uniform([4], seed=1))[0]
    )


def test_other_ops_of_a_run_do_not_matter():
    x, y = random_uniform([4], seed=1), random_uniform([4], seed=2)
    session = Session()
    session.run(y)
    session.run([y, x + 1])
    _, second = graph_with(lambda: random_uniform([4], seed=1))
    np.testing.assert_array_equal(session.run(x), second)


# -- distributions --------------------------------------------------------------------------------
# Bounds are five standard errors of the moment in question.


def moments(values):
    return values.mean(dtype=np.float64), values.std(dtype=np.float64)


def test_moments_of_uniform():
    mean, deviation = moments(run(random_uniform([COUNT], -1.0, 3.0, seed=1)))
    assert abs(mean - 1) < 5 * (4 / 12**0.5) / COUNT**0.5
    # The deviation of a uniform of width w has the error w·0.1291/√n.
    assert abs(deviation - 4 / 12**0.5) < 5 * 4 * 0.1291 / COUNT**0.5


def test_moments_of_normal():
    mean, deviation = moments(run(random_normal([COUNT], 2.0, 3.0, seed=1)))
    assert abs(mean - 2) < 5 * 3 / COUNT**0.5
    assert abs(deviation - 3) < 5 * 3 / (2 * COUNT) ** 0.5


def test_tails_of_normal():
    values = run(random_normal([COUNT], dtype="float64", seed=1))
    for limit, probability in ((1, 0.317311), (2, 0.0455003), (3, 0.0026998)):
        share = (np.abs(values) > limit).mean()
        assert abs(share - probability) < 5 * (probability / COUNT) ** 0.5


def test_moments_of_truncated_normal():
    values = run(truncated_normal([COUNT], 1.0, 2.0, seed=1))
    mean, deviation = moments(values)
    assert abs(mean - 1) < 5 * 2 * 0.8796 / COUNT**0.5
    assert abs(deviation / 2 - 0.8796) < 0.005
    assert np.abs(values - 1).max() <= 4


def test_moments_of_integers():
    values = run(random_uniform([COUNT], -2, 3, "int64", seed=1))
    assert values.dtype == np.int64
    counts = np.bincount(values + 2, minlength=5)
    assert counts.size == 5
    assert np.abs(counts / COUNT - 0.2).max() < 5 * (0.2 * 0.8 / COUNT) ** 0.5


def test_all_orders_of_a_shuffle_are_as_likely():
    x = random_shuffle([0, 1, 2], seed=1)
    session = Session()
    counts = {}
    for _ in range(6000):
        order = tuple(session.run(x))
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    assert max(abs(count - 1000) for count in counts.values()) < 5 * (1000 * 5 / 6) ** 0.5


def test_shuffle_moves_whole_rows():
    rows = np.arange(20).reshape(10, 2)
    found = run(random_shuffle(rows, seed=1))
    assert (found != rows).any()
    np.testing.assert_array_equal(found[np.argsort(found[:, 0])], rows)
    assert run(random_shuffle(3.0, seed=1)) == 3
    two = random_shuffle([0, 1], seed=1)
    session = Session()
    assert {tuple(session.run(two)) for _ in range(20)} == {(0, 1), (1, 0)}


# -- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("draw", [random_uniform, random_normal, truncated_normal])
def test_dtype_and_shape_are_those_asked_for(draw, dtype):
    x = draw([2, 3], dtype=dtype, seed=1)
    assert x.dtype == dtype
    assert x.shape == [2, 3]
    assert run(x).dtype == dtype
    assert run(draw([], dtype=dtype, seed=1)).shape == ()


@pytest.mark.parametrize("draw", [random_uniform, random_normal, truncated_normal])
def test_shapes_may_be_computed(draw):
    x = placeholder("float32", [None, 3])
    y = draw(shape(x), seed=1)
    assert y.shape == [None, 3]
    assert run(y, {x: np.zeros((4, 3))}).shape == (4, 3)
    with pytest.raises(TypeError, match="shape: expected integers"):
        draw([1.5])


def test_floats_never_reach_maxval():
    # Of 200 000 float16 numbers below 1, 50 would round up to it.
    values = run(random_uniform([COUNT], dtype="float16", seed=1))
    assert values.max() == np.nextafter(np.float16(1), np.float16(0))
    values = run(random_uniform([COUNT], 1000.0, 1001.0, seed=1))
    assert 1000 <= values.min() < values.max() < 1001


def test_floats_narrow_or_reversed_ranges():
    assert run(random_uniform([3], 2.0, 2.0)).tolist() == [2, 2, 2]
    values = run(random_uniform([100], 3.0, 1.0, seed=1))
    assert 1 < values.min() < values.max() <= 3


def test_integers_cover_the_whole_range():
    info = np.iinfo(np.int64)
    values = run(random_uniform([1000], info.min, info.max, "int64", seed=1))
    assert (values < -(2**62)).any()
    assert (values > 2**62).any()
    small = run(random_uniform([1000], -(2**31), 2**31 - 1, "int32", seed=1))
    assert (small < -(2**30)).any()
    assert (small > 2**30).any()


def test_limits_of_integers_may_be_tensors():
    n = placeholder("int32", [])
    x = random_uniform([100], maxval=n, dtype="int32", seed=1)
    assert set(run(x, {n: 3}).tolist()) == {0, 1, 2}
    with pytest.raises(InvalidArgumentError, match="maxval: expected more than minval = 0, got 0"):
        run(x, {n: 0})


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="maxval: expected an int for an integer dtype"):
        random_uniform([2], dtype="int32")
    with pytest.raises(ValueError, match="dtype: expected a float, int32 or int64, got uint8"):
        random_uniform([2], dtype="uint8")
    with pytest.raises(ValueError, match="dtype: expected a float, got int32"):
        random_normal([2], dtype="int32")
    with pytest.raises(TypeError, match="minval: expected int32"):
        random_uniform([2], 0.5, 2, "int32")
    with pytest.raises(TypeError, match="stddev: expected float32"):
        random_normal([2], stddev=constant(np.float64(1)))


def test_gradients_flow_to_mean_deviation_and_limits():
    mean, deviation = placeholder("float32", []), placeholder("float32", [3])
    x = random_normal([2, 3], mean, deviation, seed=1)
    dmean, ddeviation = gradients(x, [mean, deviation])
    feed = {mean: 1.0, deviation: [1.0, 2.0, 3.0]}
    value, dm, dd = run([x, dmean, ddeviation], feed)
    assert dm == 6
    np.testing.assert_allclose(dd, ((value - 1) / feed[deviation]).sum(0), rtol=1e-5)
    high = placeholder("float32", [])
    y = random_uniform([4], 0.0, high, seed=1)
    value, dhigh = run([y, gradients(y, high)[0]], {high: 2.0})
    np.testing.assert_allclose(dhigh, value.sum() / 2, rtol=1e-6)


@pytest.mark.parametrize("draw", [random_uniform, random_normal, truncated_normal])
def test_tensors_as_parameters_give_what_numbers_give(draw):
    first, second = placeholder("float64", []), placeholder("float64", [])
    found = run(draw([9], first, second, dtype="float64", seed=1), {first: 2.5, second: 4.5})
    np.testing.assert_allclose(found, run(draw([9], 2.5, 4.5, dtype="float64", seed=1)))


def test_defaults_are_the_standard_distributions():
    pairs = [
        (random_uniform([9], seed=1), random_uniform([9], 0.0, 1.0, float32, 1)),
        (random_normal([9], seed=1), random_normal([9], 0.0, 1.0, float32, 1)),
        (truncated_normal([9], seed=1), truncated_normal([9], 0.0, 1.0, float32, 1)),
    ]
    for found, expected in run(pairs):
        np.testing.assert_array_equal(found, expected)


def test_array_parameters_broadcast():
    x = run(random_normal([1000, 2], [0.0, 100.0], 1.0, seed=1))
    assert abs(x[:, 0].mean()) < 1
    assert abs(x[:, 1].mean() - 100) < 1


def test_names_are_those_of_tf():
    assert random_uniform([1]).name == "random_uniform:0"
    assert random_normal([1]).name == "random_normal:0"
    assert truncated_normal([1]).name == "truncated_normal:0"
    assert random_normal([1], name="noise").name == "noise:0"
    assert random_shuffle([1]).op.type == "RandomShuffle"
    kinds = {op.type for op in get_default_graph().get_operations()}
    assert {"RandomUniform", "RandomStandardNormal", "TruncatedNormal"} <= kinds


def test_integers_have_their_own_op():
    assert random_uniform([1], 0, 5, "int32").op.type == "RandomUniformInt"
