"""Initial values of variables, under TF1's names.

An initializer is called as `init(shape, dtype=None, partition_info=None)` and gives a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from optkit.dtypes import FLOATS, DType, as_dtype, float32, float64
from optkit.graph import Tensor, is_symbolic
from optkit.ops import array, core, random
from optkit.ops.core import Array, ArrayModule, constant, op
from optkit.shapes import TensorShape

__all__ = [
    "Constant",
    "GlorotNormal",
    "GlorotUniform",
    "Identity",
    "Initializer",
    "Ones",
    "Orthogonal",
    "RandomNormal",
    "RandomUniform",
    "TruncatedNormal",
    "UniformUnitScaling",
    "VarianceScaling",
    "Zeros",
    "constant_initializer",
    "contrib_variance_scaling_initializer",
    "glorot_normal_initializer",
    "glorot_uniform_initializer",
    "he_normal",
    "he_uniform",
    "identity_initializer",
    "lecun_normal",
    "lecun_uniform",
    "ones_initializer",
    "orthogonal_initializer",
    "random_normal_initializer",
    "random_uniform_initializer",
    "truncated_normal_initializer",
    "uniform_unit_scaling_initializer",
    "variance_scaling_initializer",
    "xavier_initializer",
    "zeros_initializer",
]

# The standard deviation of a standard normal cut off at two standard deviations:
# √(1 - 2·2·φ(2) / (Φ(2) - Φ(-2))).
_TRUNCATED_STDDEV = math.sqrt(
    1 - 4 * math.exp(-2) / math.sqrt(2 * math.pi) / math.erf(math.sqrt(2))
)

_FILLED = 1000
"""From this size on a constant is not stored in the graph but filled in when it runs."""


class Initializer:
    """What all initializers share; `_value` makes the tensor.

    Attributes:
        dtype: the dtype used when the call names none.
    """

    dtype: DType

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        """A tensor of `shape`; `partition_info` is accepted as in TF, variables are whole."""
        return self._value(shape, self.dtype if dtype is None else as_dtype(dtype))

    def _value(self, shape: Any, dtype: DType) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must define _value")

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain values."""
        return {
            key: value.name if isinstance(value, DType) else value
            for key, value in vars(self).items()
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Initializer:
        """The initializer that `get_config` described."""
        return cls(**config)

    def __repr__(self) -> str:
        given = ", ".join(f"{key}={value!r}" for key, value in self.get_config().items())
        return f"<optkit.initializers.{type(self).__name__} {given}>"


class Zeros(Initializer):
    """Zeros (False for bool)."""

    def __init__(self, dtype: Any = float32) -> None:
        self.dtype = as_dtype(dtype)

    def _value(self, shape: Any, dtype: DType) -> Tensor:
        return array.zeros(shape, dtype)


class Ones(Initializer):
    """Ones (True for bool)."""

    def __init__(self, dtype: Any = float32) -> None:
        self.dtype = as_dtype(dtype)

    def _value(self, shape: Any, dtype: DType) -> Tensor:
        return array.ones(shape, dtype)


class Constant(Initializer):
    """Given values, in row-major order; the last one fills what is left.

    Raises:
        TypeError: `value` is no number, list or array.
        ValueError: when called, there are more values than the shape holds, or with
            `verify_shape` another shape.
    """

    def __init__(self, value: Any = 0, dtype: Any = float32, verify_shape: bool = False) -> None:
        if not (np.isscalar(value) or isinstance(value, list | tuple | np.ndarray)):
            raise TypeError(f"value: expected a number, a list or an array, got {value!r}")
        self.value = value
        self.dtype = as_dtype(dtype)
        self.verify_shape = verify_shape

    def _value(self, shape: Any, dtype: DType) -> Tensor:
        if np.ndim(self.value) == 0 and not self.verify_shape:
            size = TensorShape(core.constant_value_as_shape(shape)).num_elements()
            if size is None or size >= _FILLED:
                return array.fill(shape, core.as_array(self.value, dtype), name="Const")
        return constant(self.value, dtype, shape, verify_shape=self.verify_shape)


class RandomUniform(Initializer):
    """Uniform in [minval, maxval); maxval is 1 for floats and must be given for ints."""

    def __init__(
        self, minval: Any = 0, maxval: Any = None, seed: int | None = None, dtype: Any = float32
    ) -> None:
        self.minval = minval
        self.maxval = maxval
        self.seed = seed
        self.dtype = as_dtype(dtype)

    def _value(self, shape: Any, dtype: DType) -> Tensor:
        return random.random_uniform(shape, self.minval, self.maxval, dtype, self.seed)


class RandomNormal(Initializer):
    """Normal with the given mean and standard deviation."""

    def __init__(
        self, mean: Any = 0.0, stddev: Any = 1.0, seed: int | None = None, dtype: Any = float32
    ) -> None:
        self.mean = mean
        self.stddev = stddev
        self.seed = seed
        self.dtype = _floating(dtype)

    def _value(self, shape: Any, dtype: DType) -> Tensor:
        return random.random_normal(shape, self.mean, self.stddev, dtype, self.seed)


class TruncatedNormal(Initializer):
    """Normal, with values beyond two standard deviations drawn again."""

    def __init__(
        self, mean: Any = 0.0, stddev: Any = 1.0, seed: int | None = None, dtype: Any = float32
    ) -> None:
        self.mean = mean
        self.stddev = stddev
        self.seed = seed
        self.dtype = _floating(dtype)

    def _value(self, shape: Any, dtype: DType) -> Tensor:
        return random.truncated_normal(shape, self.mean, self.stddev, dtype, self.seed)


class UniformUnitScaling(Initializer):
    """Uniform in ±factor·√(3 / n), n the product of all sizes but the last.

    The scale of the input survives a linear layer (Sussillo & Abbott, arXiv:1412.6558).
    """

    def __init__(self, factor: float = 1.0, seed: int | None = None, dtype: Any = float32) -> None:
        self.factor = factor
        self.seed = seed
        self.dtype = _floating(dtype)

    def _value(self, shape: Any, dtype: DType) -> Tensor:
        sizes = _known(shape)
        limit = self.factor * math.sqrt(3 / max(1, math.prod(sizes[:-1])))
        return random.random_uniform(sizes, -limit, limit, dtype, self.seed)


class VarianceScaling(Initializer):
    """Random values of variance scale / n, n the fan-in, the fan-out or their mean.

    Fan-in and fan-out are the last but one and the last size, each times the product of the sizes
    before those two; n is at least 1.

    Args:
        scale: the positive factor.
        mode: "fan_in", "fan_out" or "fan_avg".
        distribution: "truncated_normal" (or "normal"), "untruncated_normal" or "uniform"; the
            truncated one is widened so that its variance is right after the cut.
        seed: the operation's seed.
        dtype: the dtype.

    Raises:
        ValueError: a bad argument.
    """

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        seed: int | None = None,
        dtype: Any = float32,
    ) -> None:
        if is_symbolic(scale) or not scale > 0:
            raise ValueError(f"scale: expected a positive number, got {scale!r}")
        if mode not in ("fan_in", "fan_out", "fan_avg"):
            raise ValueError(f"mode: expected fan_in, fan_out or fan_avg, got {mode!r}")
        kinds = ("normal", "uniform", "truncated_normal", "untruncated_normal")
        if str(distribution).lower() not in kinds:
            raise ValueError(
                f"distribution: expected one of {', '.join(kinds)}, got {distribution!r}"
            )
        self.scale = scale
        self.mode = mode
        self.distribution = distribution.lower()
        self.seed = seed
        self.dtype = _floating(dtype)

    def _value(self, shape: Any, dtype: DType) -> Tensor:
        sizes = _known(shape)
        stddev = math.sqrt(self.scale / max(1.0, _fan(sizes, self.mode)))
        if self.distribution == "uniform":
            limit = math.sqrt(3) * stddev
            return random.random_uniform(sizes, -limit, limit, dtype, self.seed)
        if self.distribution == "untruncated_normal":
            return random.random_normal(sizes, 0.0, stddev, dtype, self.seed)
        stddev /= _TRUNCATED_STDDEV
        return random.truncated_normal(sizes, 0.0, stddev, dtype, self.seed)


class GlorotUniform(VarianceScaling):
    """Uniform in ±√(6 / (fan_in + fan_out)) (Glorot & Bengio, AISTATS 2010)."""

    def __init__(self, seed: int | None = None, dtype: Any = float32) -> None:
        super().__init__(1.0, "fan_avg", "uniform", seed, dtype)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain values."""
        return {"seed": self.seed, "dtype": self.dtype.name}


class GlorotNormal(VarianceScaling):
    """Truncated normal of variance 2 / (fan_in + fan_out) (Glorot & Bengio, AISTATS 2010)."""

    def __init__(self, seed: int | None = None, dtype: Any = float32) -> None:
        super().__init__(1.0, "fan_avg", "truncated_normal", seed, dtype)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain values."""
        return {"seed": self.seed, "dtype": self.dtype.name}


class Orthogonal(Initializer):
    """A matrix with orthonormal rows or columns (the shorter side), times `gain`.

    Further axes count as rows. It is the Q of a normal matrix, signs fixed so that all orthogonal
    matrices are equally likely (Saxe et al., arXiv:1312.6120; Mezzadri, arXiv:math-ph/0609050).

    Raises:
        ValueError: when called with a shape of fewer than two axes.
    """

    def __init__(self, gain: float = 1.0, seed: int | None = None, dtype: Any = float32) -> None:
        self.gain = gain
        self.seed = seed
        self.dtype = _floating(dtype)

    def _value(self, shape: Any, dtype: DType) -> Tensor:
        sizes = _known(shape)
        if len(sizes) < 2:
            raise ValueError(f"shape: expected two axes or more, got {TensorShape(sizes)}")
        rows, columns = math.prod(sizes[:-1]), sizes[-1]
        tall = [max(rows, columns), min(rows, columns)]
        # float64 whatever the result is: QR has no float16 form, and float32 loses orthogonality.
        normal = random.random_normal(tall, 0.0, 1.0, float64, self.seed)
        return _orthogonal(normal, gain=float(self.gain), sizes=sizes, dtype=dtype)


@op(
    "OrthogonalMatrix",
    types={float64},
    host=["normal"],
    differentiable=False,
    infer=lambda _, attrs: [(attrs["dtype"], attrs["sizes"])],
)
def _orthogonal(
    xp: ArrayModule, normal: Array, *, gain: float, sizes: tuple[int, ...], dtype: DType
) -> Array:
    """`gain` times the Q of a tall matrix, transposed where `sizes` are wide."""
    q, r = np.linalg.qr(normal)
    q = q * np.where(np.diagonal(r) < 0, -gain, gain)
    if math.prod(sizes[:-1]) < sizes[-1]:
        q = q.T
    return xp.asarray(np.ascontiguousarray(q).reshape(sizes).astype(dtype.dtype))


class Identity(Initializer):
    """The identity matrix times `gain`, cut or filled with zeros where it is not square.

    Raises:
        ValueError: when called with a shape that has not two axes.
    """

    def __init__(self, gain: float = 1.0, dtype: Any = float32) -> None:
        self.gain = gain
        self.dtype = _floating(dtype)

    def _value(self, shape: Any, dtype: DType) -> Tensor:
        sizes = _known(shape)
        if len(sizes) != 2:
            raise ValueError(f"shape: expected two axes, got {TensorShape(sizes)}")
        return constant(self.gain * np.eye(*sizes, dtype=dtype.dtype), dtype, name="eye")


zeros_initializer = Zeros
ones_initializer = Ones
constant_initializer = Constant
random_uniform_initializer = RandomUniform
random_normal_initializer = RandomNormal
truncated_normal_initializer = TruncatedNormal
uniform_unit_scaling_initializer = UniformUnitScaling
variance_scaling_initializer = VarianceScaling
glorot_uniform_initializer = GlorotUniform
glorot_normal_initializer = GlorotNormal
orthogonal_initializer = Orthogonal
identity_initializer = Identity


def he_normal(seed: int | None = None) -> VarianceScaling:
    """Truncated normal of variance 2 / fan_in (He et al., arXiv:1502.01852)."""
    return VarianceScaling(2.0, "fan_in", "truncated_normal", seed)


def he_uniform(seed: int | None = None) -> VarianceScaling:
    """Uniform in ±√(6 / fan_in) (He et al., arXiv:1502.01852)."""
    return VarianceScaling(2.0, "fan_in", "uniform", seed)


def lecun_normal(seed: int | None = None) -> VarianceScaling:
    """Truncated normal of variance 1 / fan_in (LeCun et al., Efficient BackProp, 1998)."""
    return VarianceScaling(1.0, "fan_in", "truncated_normal", seed)


def lecun_uniform(seed: int | None = None) -> VarianceScaling:
    """Uniform in ±√(3 / fan_in) (LeCun et al., Efficient BackProp, 1998)."""
    return VarianceScaling(1.0, "fan_in", "uniform", seed)


def contrib_variance_scaling_initializer(
    factor: float = 2.0,
    mode: str = "FAN_IN",
    uniform: bool = False,
    seed: int | None = None,
    dtype: Any = float32,
) -> Callable[..., Tensor]:
    """contrib.layers' `variance_scaling_initializer`: an initializer of variance about factor / n.

    n is the fan-in ("FAN_IN"), the fan-out ("FAN_OUT") or their mean ("FAN_AVG"). Uniform:
    ±√(3·factor/n). Else a truncated normal of stddev √(1.3·factor/n) before the cut, where 1.3 is
    contrib's rounding of 1 / 0.8796².

    Raises:
        TypeError: `dtype` is not floating, or `mode` is another.
    """

    def checked(dtype: Any) -> DType:
        if as_dtype(dtype) not in FLOATS:
            raise TypeError(f"dtype: expected a floating dtype, got {as_dtype(dtype).name}")
        return as_dtype(dtype)

    of = checked(dtype)
    if mode not in ("FAN_IN", "FAN_OUT", "FAN_AVG"):
        raise TypeError(f"mode: expected FAN_IN, FAN_OUT or FAN_AVG, got {mode!r}")

    def initializer(shape: Any, dtype: Any = of, partition_info: Any = None) -> Tensor:
        sizes = _known(shape)
        result = of if dtype is None else checked(dtype)
        variance = factor / max(1.0, _fan(sizes, mode.lower()))
        if uniform:
            limit = math.sqrt(3.0 * variance)
            return random.random_uniform(sizes, -limit, limit, result, seed)
        return random.truncated_normal(sizes, 0.0, math.sqrt(1.3 * variance), result, seed)

    return initializer


def xavier_initializer(
    uniform: bool = True, seed: int | None = None, dtype: Any = float32
) -> Callable[..., Tensor]:
    """contrib.layers' initializer of variance 2 / (fan_in + fan_out) (Glorot & Bengio, 2010)."""
    return contrib_variance_scaling_initializer(1.0, "FAN_AVG", uniform, seed, dtype)


def _floating(dtype: Any) -> DType:
    of = as_dtype(dtype)
    if of not in FLOATS:
        raise ValueError(f"dtype: expected a floating dtype, got {of.name}")
    return of


def _known(shape: Any) -> tuple[int, ...]:
    """The sizes; they must be known when the graph is built."""
    sizes = core.constant_value_as_shape(shape)
    if sizes is None or None in sizes:
        raise ValueError(f"shape: expected a fully known shape, got {TensorShape(sizes)}")
    return tuple(size for size in sizes if size is not None)


def _fan(sizes: tuple[int, ...], mode: str) -> float:
    """The fan-in, fan-out or their mean of a weight's shape; 1 for a scalar."""
    if not sizes:
        return 1.0
    before = math.prod(sizes[:-2])
    fan_in = float(sizes[-2] * before) if len(sizes) > 1 else float(sizes[0])
    fan_out = float(sizes[-1] * before)
    return {"fan_in": fan_in, "fan_out": fan_out}.get(mode, (fan_in + fan_out) / 2)
