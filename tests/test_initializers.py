"""Initializers: values, moments and bounds of the random ones, configurations."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from optkit import initializers
from optkit.graph import Graph
from optkit.initializers import (
    Constant,
    GlorotNormal,
    GlorotUniform,
    Identity,
    Initializer,
    Ones,
    Orthogonal,
    RandomNormal,
    RandomUniform,
    TruncatedNormal,
    UniformUnitScaling,
    VarianceScaling,
    Zeros,
    he_normal,
    he_uniform,
    lecun_normal,
    lecun_uniform,
    xavier_initializer,
)
from optkit.initializers import contrib_variance_scaling_initializer as contrib_scaling
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.runtime.session import Session
from optkit.shapes import TensorShape
from optkit.variables import Variable

SHAPE = (120, 250)
"""30000 values: mean and deviation of a sample are off by about 0.6 % of the deviation."""


def value(initializer, shape=SHAPE, **kwargs):
    with Graph().as_default() as graph:
        graph.seed = 3
        tensor = initializer(shape, **kwargs)
        with Session() as session:
            return session.run(tensor)


class TestFixedValues:
    @pytest.mark.parametrize(
        ("initializer", "shape", "expected"),
        [
            (Zeros(), [2, 2], [[0.0, 0.0], [0.0, 0.0]]),
            (Zeros("bool"), [2], [False, False]),
            (Ones(), [2], [1.0, 1.0]),
            (Ones("int32"), (), 1),
            (Constant(), [2], [0.0, 0.0]),
            (Constant(2.5), [2, 1], [[2.5], [2.5]]),
            (Constant([1, 2, 3]), [2, 3], [[1.0, 2.0, 3.0], [3.0, 3.0, 3.0]]),
            (Constant([1, 2]), TensorShape([2]), [1.0, 2.0]),
            (Constant(np.float64([[1], [2]]), verify_shape=True), [2, 1], [[1.0], [2.0]]),
            (Constant(3, verify_shape=True), [], 3.0),
            (Constant(True, "bool"), 2, [True, True]),
            (Identity(), [2, 2], [[1.0, 0.0], [0.0, 1.0]]),
            (Identity(2.0), [2, 3], [[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]]),
        ],
    )
    def test_values(self, initializer, shape, expected):
        result = value(initializer, shape)
        assert result.dtype == initializer.dtype
        assert_array_equal(result, expected)

    def test_large_constants_are_not_stored_in_the_graph(self, graph):
        tensor = Constant(2.0)([100, 100])
        assert max(op.outputs[0].shape.num_elements() for op in graph.get_operations()[:-1]) == 2
        with Session() as session:
            assert_array_equal(session.run(tensor), np.full((100, 100), 2, np.float32))

    def test_sizes_known_late(self):
        late = placeholder("int32", [2])
        tensors = [Zeros()(late), Ones()(late), Constant(2.0)(late), RandomNormal()(late)]
        with Session() as session:
            results = session.run(tensors, {late: [2, 3]})
        assert {result.shape for result in results} == {(2, 3)}
        assert [result.max() for result in results[:3]] == [0.0, 1.0, 2.0]

    @pytest.mark.parametrize(
        ("kind", "message", "call"),
        [
            (TypeError, "value: expected a number", lambda: Constant(None)),
            (TypeError, "value: expected a number", lambda: Constant(constant(1.0))),
            (ValueError, r"3 values do not fit shape \(2,\)", lambda: Constant([1, 2, 3])([2])),
            (ValueError, "expected shape", lambda: Constant(1.0, verify_shape=True)([2])),
            (ValueError, r"shape: expected two axes, got \(2,\)", lambda: Identity()([2])),
            (ValueError, "shape: expected two axes", lambda: Identity()([1, 2, 3])),
        ],
    )
    def test_refusals(self, kind, message, call):
        with pytest.raises(kind, match=message):
            call()


TRUNCATED = 0.87962566103423978
"""The deviation of a standard normal cut off at 2."""

BOUND = {"uniform": math.sqrt(3), "truncated": 2 / TRUNCATED, "normal": np.inf}
"""The largest value, in deviations."""

# Mean, variance and distribution; SHAPE has fan_in 120, fan_out 250, and 185 is their mean.
RANDOM = {
    "uniform": (RandomUniform(), 0.5, 1 / 12, "uniform"),
    "uniform in bounds": (RandomUniform(-2.0, 2.0), 0, 16 / 12, "uniform"),
    "normal": (RandomNormal(3.0, 0.5), 3, 0.25, "normal"),
    "truncated normal": (TruncatedNormal(3.0, 0.5), 3, 0.25 * TRUNCATED**2, "truncated"),
    "unit scaling": (UniformUnitScaling(2.0), 0, 4 / 120, "uniform"),
    "scaled": (VarianceScaling(), 0, 1 / 120, "truncated"),
    "scaled out": (VarianceScaling(3.0, "fan_out", "normal"), 0, 3 / 250, "truncated"),
    "scaled avg": (VarianceScaling(2.0, "fan_avg", "untruncated_normal"), 0, 2 / 185, "normal"),
    "scaled uniform": (VarianceScaling(2.0, "fan_in", "UNIFORM"), 0, 2 / 120, "uniform"),
    "glorot uniform": (GlorotUniform(), 0, 1 / 185, "uniform"),
    "glorot normal": (GlorotNormal(), 0, 1 / 185, "truncated"),
    "he normal": (he_normal(), 0, 2 / 120, "truncated"),
    "he uniform": (he_uniform(), 0, 2 / 120, "uniform"),
    "lecun normal": (lecun_normal(), 0, 1 / 120, "truncated"),
    "lecun uniform": (lecun_uniform(), 0, 1 / 120, "uniform"),
    "xavier": (xavier_initializer(), 0, 1 / 185, "uniform"),
    "xavier normal": (xavier_initializer(False), 0, 1.3 / 185 * TRUNCATED**2, "truncated"),
    "contrib": (contrib_scaling(), 0, 2.6 / 120 * TRUNCATED**2, "truncated"),
    "contrib uniform": (contrib_scaling(1.0, "FAN_OUT", True), 0, 1 / 250, "uniform"),
}


class TestRandomValues:
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize(
        ("initializer", "mean", "variance", "kind"), RANDOM.values(), ids=RANDOM.keys()
    )
    def test_moments_and_bounds(self, initializer, mean, variance, kind, dtype):
        sample = value(initializer, dtype=dtype)
        assert sample.dtype == dtype
        assert sample.shape == SHAPE
        scaled = (sample.astype(np.float64) - mean) / math.sqrt(variance)
        assert abs(scaled.mean()) < 0.025
        assert abs(scaled.std() - 1) < 0.02
        largest = np.abs([scaled.min(), scaled.max()])
        assert (largest <= BOUND[kind] + 1e-5).all()
        # The bounds are reached, and a normal goes beyond them.
        assert (largest > min(BOUND[kind], 3.0) - 0.1).all()

    def test_integers(self):
        sample = value(RandomUniform(2, 5, dtype="int32"))
        assert sample.dtype == np.int32
        assert set(np.unique(sample)) == {2, 3, 4}

    @pytest.mark.parametrize(
        ("shape", "fan_in", "fan_out"),
        [((), 1, 1), ((40,), 40, 40), ((40, 50), 40, 50), ((3, 3, 20, 30), 180, 270)],
    )
    @pytest.mark.parametrize("mode", ["fan_in", "fan_out", "fan_avg"])
    def test_fans(self, graph, shape, fan_in, fan_out, mode):
        n = {"fan_in": fan_in, "fan_out": fan_out}.get(mode, (fan_in + fan_out) / 2)
        limit = math.sqrt(3 / n)
        for kind in (
            VarianceScaling(1.0, mode, "uniform"),
            contrib_scaling(1.0, mode.upper(), True),
        ):
            op = kind(shape).op
            assert_allclose([op.attrs["low"], op.attrs["high"]], [-limit, limit])

    @pytest.mark.parametrize(("shape", "n"), [((), 1), ((9,), 1), ((2, 3, 9), 6)])
    def test_unit_scaling_divides_by_all_sizes_but_the_last(self, shape, n):
        op = UniformUnitScaling()(shape).op
        assert_allclose([op.attrs["low"], op.attrs["high"]], [-math.sqrt(3 / n), math.sqrt(3 / n)])

    @pytest.mark.parametrize("kind", [VarianceScaling(), contrib_scaling(), UniformUnitScaling()])
    def test_no_weights(self, kind):
        assert value(kind, (0, 3)).shape == (0, 3)

    def test_a_seed_repeats(self):
        kinds = (RandomUniform, RandomNormal, TruncatedNormal, VarianceScaling, Orthogonal)
        for kind in (*kinds, xavier_initializer, he_normal, UniformUnitScaling, GlorotNormal):
            first, again, other = (value(kind(seed=seed), (8, 5)) for seed in (7, 7, 8))
            assert_array_equal(first, again)
            assert (first != other).any()

    @pytest.mark.parametrize(
        "kind",
        [
            GlorotUniform,
            Identity,
            Orthogonal,
            RandomNormal,
            TruncatedNormal,
            UniformUnitScaling,
            VarianceScaling,
        ],
    )
    def test_floats_only(self, kind):
        with pytest.raises(ValueError, match="dtype: expected a floating dtype, got int32"):
            kind(dtype="int32")

    @pytest.mark.parametrize(
        ("message", "arguments"),
        [
            ("scale: expected a positive number, got 0", {"scale": 0}),
            ("scale: expected a positive number, got nan", {"scale": math.nan}),
            ("mode: expected fan_in.*got 'FAN_IN'", {"mode": "FAN_IN"}),
            ("distribution: expected one of.*got 'cauchy'", {"distribution": "cauchy"}),
        ],
    )
    def test_refusals(self, message, arguments):
        with pytest.raises(ValueError, match=message):
            VarianceScaling(**arguments)

    def test_contribs_refusals_are_type_errors(self):
        with pytest.raises(TypeError, match="dtype: expected a floating dtype, got int32"):
            contrib_scaling(dtype="int32")
        with pytest.raises(TypeError, match="dtype: expected a floating dtype, got int32"):
            xavier_initializer()([2, 2], dtype="int32")
        with pytest.raises(TypeError, match="mode: expected FAN_IN"):
            contrib_scaling(mode="fan_in")

    @pytest.mark.parametrize("initializer", [VarianceScaling(), xavier_initializer(), Orthogonal()])
    def test_the_shape_must_be_known(self, initializer):
        with pytest.raises(ValueError, match=r"shape: expected a fully known shape, got \(\?, 2\)"):
            initializer(TensorShape([None, 2]))


class TestOrthogonal:
    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    @pytest.mark.parametrize("shape", [(5, 5), (7, 3), (3, 7), (2, 3, 4), (2, 2, 9)])
    def test_the_shorter_side_is_orthonormal(self, shape, dtype):
        sample = value(Orthogonal(dtype=dtype), shape)
        assert sample.shape == shape
        assert sample.dtype == dtype
        flat = sample.reshape(-1, shape[-1]).astype(np.float64)
        gram = flat.T @ flat if flat.shape[0] >= flat.shape[1] else flat @ flat.T
        assert_allclose(gram, np.eye(len(gram)), atol=10 * np.finfo(dtype).eps)

    def test_gain(self):
        assert Orthogonal()((4, 4)).op.type == "OrthogonalMatrix"
        sample = value(Orthogonal(gain=3.0), (4, 4))
        assert_allclose(sample @ sample.T, 9 * np.eye(4), atol=1e-5)

    def test_all_orthogonal_matrices_are_equally_likely(self):
        # Without the signs the diagonal of Q is mostly negative (its mean at 2 x 2 is -0.6).
        with Graph().as_default() as graph:
            graph.seed = 3
            tensor = Orthogonal(seed=1)((2, 2))
            with Session() as session:
                samples = np.array([session.run(tensor) for _ in range(400)])
        assert np.abs(samples.mean(axis=0)).max() < 0.12
        assert abs(np.linalg.det(samples).mean()) < 0.15

    @pytest.mark.parametrize("shape", [(), (3,)])
    def test_it_needs_two_axes(self, shape):
        with pytest.raises(ValueError, match="shape: expected two axes or more"):
            Orthogonal()(shape)


class TestConfigurations:
    @pytest.mark.parametrize(
        ("initializer", "expected"),
        [
            (Zeros("float64"), {"dtype": "float64"}),
            (Ones(), {"dtype": "float32"}),
            (Constant([1, 2]), {"value": [1, 2], "dtype": "float32", "verify_shape": False}),
            (RandomUniform(1, 2, 3), {"minval": 1, "maxval": 2, "seed": 3, "dtype": "float32"}),
            (RandomNormal(seed=3), {"mean": 0.0, "stddev": 1.0, "seed": 3, "dtype": "float32"}),
            (TruncatedNormal(), {"mean": 0.0, "stddev": 1.0, "seed": None, "dtype": "float32"}),
            (UniformUnitScaling(), {"factor": 1.0, "seed": None, "dtype": "float32"}),
            (Orthogonal(2.0), {"gain": 2.0, "seed": None, "dtype": "float32"}),
            (Identity(2.0), {"gain": 2.0, "dtype": "float32"}),
            (GlorotUniform(5), {"seed": 5, "dtype": "float32"}),
            (GlorotNormal(5), {"seed": 5, "dtype": "float32"}),
            (
                he_uniform(4),
                {
                    "scale": 2.0,
                    "mode": "fan_in",
                    "distribution": "uniform",
                    "seed": 4,
                    "dtype": "float32",
                },
            ),
        ],
    )
    def test_there_and_back(self, initializer, expected):
        config = initializer.get_config()
        assert config == expected
        again = type(initializer).from_config(config)
        assert type(again) is type(initializer)
        assert vars(again) == vars(initializer)

    def test_tf1s_names_are_the_classes(self):
        for name in initializers.__all__:
            if name.endswith("_initializer") and "contrib" not in name and "xavier" not in name:
                kind = getattr(initializers, name)
                assert kind.__name__ == "".join(
                    part.title() for part in name.removesuffix("_initializer").split("_")
                )

    def test_a_subclass_defines_the_value(self):
        class Half(Initializer):
            def __init__(self):
                self.dtype = Ones().dtype

        with pytest.raises(NotImplementedError, match="Half must define _value"):
            Half()([2])

    def test_as_the_initial_value_of_a_variable(self):
        w = Variable(lambda: Ones()([2], "float64"), name="w")
        assert w.dtype.name == "float64"
        assert w.initial_value.op.name == "w/Initializer/ones"


def test_repr_tells_the_arguments():
    text = "<optkit.initializers.RandomUniform minval=-1, maxval=1, seed=None, dtype='float32'>"
    assert repr(initializers.RandomUniform(-1, 1)) == text
