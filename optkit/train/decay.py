"""Learning-rate schedules: the rate as a function of the step.

All take the initial rate (a number, Tensor, Variable or another schedule) and the step (an integer
or floating Variable, Tensor or number), which is read each time the rate is needed: before the
train op counts it. The result is a Tensor in the rate's dtype; Python floats and integers give
float32. In eager mode it is a function without arguments that computes the rate, as optimizers take
it. What depends on the step is computed in float64, so that periods end at whole steps exactly and
large int64 steps keep their digits. The rate can be differentiated, the step and the shape of the
curve cannot. With s the step and n the length of a period, in steps:

    exponential_decay         lr · rate^(s/n)
    natural_exp_decay         lr · e^(−rate·s/n)
    inverse_time_decay        lr / (1 + rate·s/n)
    polynomial_decay          (lr − end)·(1 − s/n)^power + end
    piecewise_constant        values[i], boundaries[i−1] < s ≤ boundaries[i]
    cosine_decay              lr · ((1−α)·½(1 + cos(π·s/n)) + α)
    cosine_decay_restarts     the same, over and over, in growing periods
    linear_cosine_decay       lr · ((α + 1 − s/n)·½(1 + cos(2π·periods·s/n)) + β)
    noisy_linear_cosine_decay the same with noise

Each raises:
    TypeError: an argument is no number, Tensor or Variable.
    ValueError: there is no step, or a number is NaN or out of range; the length of a period must
        be above 0 (a Tensor that is not constant is not checked).

A session warns once when a train op uses a schedule whose step it does not count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from optkit.dtypes import DType, float32, int64, result_dtype
from optkit.errors import InvalidArgumentError
from optkit.graph import Kind, Tensor, get_default_graph, is_symbolic
from optkit.ops.core import Array, ArrayModule, as_tensor, constant_value
from optkit.ops.indexing import gather
from optkit.ops.math import cast
from optkit.train.checks import is_number
from optkit.train.schedule import (
    Curve,
    built,
    rate_tensor,
    require_number,
    scheduled,
    step_tensor,
    watched,
)

__all__ = [
    "cosine_decay",
    "cosine_decay_restarts",
    "exponential_decay",
    "inverse_time_decay",
    "linear_cosine_decay",
    "natural_exp_decay",
    "noisy_linear_cosine_decay",
    "piecewise_constant",
    "piecewise_constant_decay",
    "polynomial_decay",
    "sgdr_decay",
]

# -- the curves: float64 arrays of shape () ------------------------------------------------------


def _progress(xp: ArrayModule, s: Array, n: Array) -> Array:
    """The part of the only period that has passed, at most 1."""
    return xp.minimum(s, n) / n


def _half_wave(xp: ArrayModule, x: Array, waves: Array | float = 0.5) -> Array:
    """½(1 + cos(2π·waves·x)): from 1 to 0 in half a wave."""
    return 0.5 * (1 + xp.cos(2 * math.pi * waves * x))


def _exponential(xp: ArrayModule, periods: Array, decay_rate: Array) -> Array:
    return decay_rate**periods


def _natural_exp(xp: ArrayModule, periods: Array, decay_rate: Array) -> Array:
    return xp.exp(-decay_rate * periods)


def _inverse_time(xp: ArrayModule, periods: Array, decay_rate: Array) -> Array:
    return 1 / (1 + decay_rate * periods)


def _by_periods(
    xp: ArrayModule,
    s: Array,
    decay_steps: Array,
    decay_rate: Array,
    *,
    curve: Curve,
    staircase: bool,
    dtype: DType,
) -> Array:
    """`curve` of the number of periods passed; of the whole ones with `staircase`."""
    periods = xp.floor(s / decay_steps) if staircase else s / decay_steps
    # Rounded as in TF: as an exponent, its last digit shows in the rate.
    return curve(xp, periods.astype(dtype.dtype).astype(xp.float64), decay_rate)


def _polynomial(
    xp: ArrayModule, s: Array, decay_steps: Array, power: Array, *, cycle: bool
) -> Array:
    if cycle:
        # Step 0 belongs to the first cycle, as does every later step up to decay_steps.
        decay_steps = decay_steps * xp.maximum(xp.ceil(s / decay_steps), 1)
    return (1 - _progress(xp, s, decay_steps)) ** power


def _cosine(xp: ArrayModule, s: Array, decay_steps: Array, alpha: Array) -> Array:
    return (1 - alpha) * _half_wave(xp, _progress(xp, s, decay_steps)) + alpha


_SLACK = 1e-12
"""Relative error allowed in the start of a period: a step that near to it counts as its start."""


def _cosine_restarts(
    xp: ArrayModule, s: Array, first_decay_steps: Array, t_mul: Array, m_mul: Array, alpha: Array
) -> Array:
    x = s / first_decay_steps
    equal = t_mul == 1
    t = xp.where(equal, 2.0, t_mul)  # any value but 1 keeps the other form finite

    def start(i: Array) -> Array:
        return (t**i - 1) / (t - 1)

    # With t below 1 all periods together are finite; after their end the last one stays ended.
    remaining = xp.maximum(1 - x * (1 - t), _SLACK)
    i = xp.floor(xp.log(remaining) / xp.log(t))
    # The logarithm is rounded, so at a restart it may still name the period that has ended.
    i = i + (x >= start(i + 1) * (1 - _SLACK))
    within = xp.minimum((x - start(i)) / t**i, 1)
    period = xp.where(equal, xp.floor(x), i)
    within = xp.where(equal, x - xp.floor(x), within)
    return (1 - alpha) * m_mul**period * _half_wave(xp, within) + alpha


def _linear_cosine(
    xp: ArrayModule,
    s: Array,
    decay_steps: Array,
    num_periods: Array,
    alpha: Array,
    beta: Array,
    noise: Array | float = 0.0,
) -> Array:
    x = _progress(xp, s, decay_steps)
    return (alpha + (1 - x) + noise) * _half_wave(xp, x, num_periods) + beta


def _noisy_linear_cosine(
    xp: ArrayModule,
    s: Array,
    decay_steps: Array,
    initial_variance: Array,
    variance_decay: Array,
    num_periods: Array,
    alpha: Array,
    beta: Array,
    normal: Array,
) -> Array:
    # The variance goes on falling after decay_steps, where the linear part has ended.
    noise = normal * xp.sqrt(initial_variance / (1 + s) ** variance_decay)
    return _linear_cosine(xp, s, decay_steps, num_periods, alpha, beta, noise)


# -- the schedules -------------------------------------------------------------------------------


def exponential_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Any:
    """lr · decay_rate^(s/decay_steps); `staircase` changes it only once a period.

    Example:
        >>> import optkit as tf
        >>> with tf.Graph().as_default(), tf.Session() as session:
        ...     rate = exponential_decay(8.0, 30, decay_steps=10, decay_rate=0.5)
        ...     print(session.run(rate))
        1.0
    """
    return scheduled(
        "ExponentialDecay",
        name,
        learning_rate,
        global_step,
        partial(_by_periods, curve=_exponential, staircase=bool(staircase)),
        typed=True,
        decay_steps=decay_steps,
        decay_rate=decay_rate,
    )


def natural_exp_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Any:
    """lr · e^(−decay_rate·s/decay_steps); `staircase` changes it only once a period."""
    return scheduled(
        "ExponentialDecay",
        name,
        learning_rate,
        global_step,
        partial(_by_periods, curve=_natural_exp, staircase=bool(staircase)),
        typed=True,
        decay_steps=decay_steps,
        decay_rate=decay_rate,
    )


def inverse_time_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Any:
    """lr / (1 + decay_rate·s/decay_steps); `staircase` changes it only once a period."""
    return scheduled(
        "InverseTimeDecay",
        name,
        learning_rate,
        global_step,
        partial(_by_periods, curve=_inverse_time, staircase=bool(staircase)),
        typed=True,
        decay_steps=decay_steps,
        decay_rate=decay_rate,
    )


def polynomial_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    end_learning_rate: Any = 0.0001,
    power: Any = 1.0,
    cycle: bool = False,
    name: str | None = None,
) -> Any:
    """From lr to `end_learning_rate`: (lr − end)·(1 − min(s, n)/n)^power + end.

    n is `decay_steps`. With `cycle` the rate rises again after n, 2n, ... steps, each time to
    less: n is then the smallest multiple of `decay_steps` that is not below s (and not zero).
    """
    return scheduled(
        "PolynomialDecay",
        name,
        learning_rate,
        global_step,
        partial(_polynomial, cycle=bool(cycle)),
        end_learning_rate=end_learning_rate,
        decay_steps=decay_steps,
        power=power,
    )


def cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    alpha: Any = 0.0,
    name: str | None = None,
) -> Any:
    """Half a cosine wave from lr to α·lr: lr · ((1−α)·½(1 + cos(π·min(s, n)/n)) + α).

    `alpha` is the part of the initial rate that is left at the end, not a rate.

    Source: Loshchilov & Hutter, ICLR 2017.
    """
    return scheduled(
        "CosineDecay",
        name,
        learning_rate,
        global_step,
        _cosine,
        decay_steps=decay_steps,
        alpha=alpha,
    )


def cosine_decay_restarts(
    learning_rate: Any,
    global_step: Any,
    first_decay_steps: Any,
    t_mul: Any = 2.0,
    m_mul: Any = 1.0,
    alpha: Any = 0.0,
    name: str | None = None,
) -> Any:
    """Half cosine waves with restarts: lr · ((1−α)·mⁱ·½(1 + cos(π·x)) + α).

    Period i has first_decay_steps·t_mulⁱ steps and starts at lr·m_mulⁱ (for α = 0); x is the part
    of it that has passed.

    Source: Loshchilov & Hutter, ICLR 2017.
    """
    return _restarting(
        name, learning_rate, global_step, t_mul, m_mul, alpha, first_decay_steps=first_decay_steps
    )


def sgdr_decay(
    learning_rate: Any,
    global_step: Any,
    initial_period_steps: Any,
    t_mul: Any = 2.0,
    m_mul: Any = 1.0,
    name: str | None = None,
) -> Any:
    """`cosine_decay_restarts` down to zero, under the name of tf.contrib.training."""
    return _restarting(
        name,
        learning_rate,
        global_step,
        t_mul,
        m_mul,
        0.0,
        initial_period_steps=initial_period_steps,
    )


def _restarting(
    name: str | None,
    learning_rate: Any,
    global_step: Any,
    t_mul: Any,
    m_mul: Any,
    alpha: Any,
    **period: Any,
) -> Any:
    if is_number(t_mul) and not t_mul > 0:
        raise ValueError(f"SGDRDecay: t_mul: expected a number above 0, got {t_mul!r}")
    return scheduled(
        "SGDRDecay",
        name,
        learning_rate,
        global_step,
        _cosine_restarts,
        **period,
        t_mul=t_mul,
        m_mul=m_mul,
        alpha=alpha,
    )


def linear_cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    num_periods: Any = 0.5,
    alpha: Any = 0.0,
    beta: Any = 0.001,
    name: str | None = None,
) -> Any:
    """A line times cosine waves: lr · ((α + 1 − x)·½(1 + cos(2π·num_periods·x)) + β).

    x is min(s, decay_steps)/decay_steps.

    Source: Bello et al., Neural Optimizer Search with Reinforcement Learning, ICML 2017.
    """
    return scheduled(
        "LinearCosineDecay",
        name,
        learning_rate,
        global_step,
        _linear_cosine,
        decay_steps=decay_steps,
        num_periods=num_periods,
        alpha=alpha,
        beta=beta,
    )


def noisy_linear_cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    initial_variance: Any = 1.0,
    variance_decay: Any = 0.55,
    num_periods: Any = 0.5,
    alpha: Any = 0.0,
    beta: Any = 0.001,
    name: str | None = None,
) -> Any:
    """`linear_cosine_decay` with noise ε added to the line: (α + 1 − x + ε).

    ε is normal with variance initial_variance/(1 + s)^variance_decay, drawn anew in each run from
    the graph's random numbers.

    Source: Bello et al., Neural Optimizer Search with Reinforcement Learning, ICML 2017.
    """
    return scheduled(
        "NoisyLinearCosineDecay",
        name,
        learning_rate,
        global_step,
        _noisy_linear_cosine,
        noisy=True,
        decay_steps=decay_steps,
        initial_variance=initial_variance,
        variance_decay=variance_decay,
        num_periods=num_periods,
        alpha=alpha,
        beta=beta,
    )


# -- steps of constant height --------------------------------------------------------------------


def _piece(xp: ArrayModule, x: Array, boundaries: Array, *, checked: bool) -> Array:
    if not checked and bool((boundaries[1:] <= boundaries[:-1]).any()):
        raise InvalidArgumentError(
            f"boundaries: expected strictly increasing values, got {boundaries}"
        )
    return xp.searchsorted(boundaries, x, side="left").astype(xp.int64)


_PIECE = Kind(
    "SchedulePiece",
    _piece,
    infer=lambda inputs, _: [(int64, inputs[0].sizes)],
    differentiable=False,
)


def piecewise_constant(
    x: Any, boundaries: Sequence[Any], values: Sequence[Any], name: str | None = None
) -> Any:
    """values[0] up to and including step boundaries[0], values[1] up to boundaries[1], and so on.

    Args:
        x: the step.
        boundaries: strictly increasing; numbers take the dtype of x, tensors must have it.
        values: one more than boundaries; of one floating dtype, which is that of the result.
        name: the operation's name.

    Raises:
        TypeError: a boundary or value is no number, or of another dtype.
        ValueError: x is None, the lengths do not fit, or the boundaries do not increase.
        InvalidArgumentError: when run, boundaries that are Tensors do not increase.
    """
    label = "PiecewiseConstant"
    boundaries, values = list(boundaries), list(values)
    if len(values) != len(boundaries) + 1 or not boundaries:
        raise ValueError(
            f"{label}: boundaries, values: expected one or more boundaries and one value more, got "
            f"{len(boundaries)} boundaries and {len(values)} values"
        )

    def build() -> Tensor:
        graph = get_default_graph()
        with graph.all_or_nothing(), graph.name_scope(name or label) as scope:
            step = step_tensor(label, "x", x)
            limits = as_tensor([_boundary(label, b, step.dtype) for b in boundaries], step.dtype)
            heights = _of_one_dtype(label, values)
            known = constant_value(limits)
            if known is not None and not bool((known[1:] > known[:-1]).all()):
                raise ValueError(
                    f"{label}: boundaries: expected strictly increasing values, got "
                    f"{known.tolist()}"
                )
            attrs = {"checked": known is not None}
            (piece,) = graph.create_operation(_PIECE, [step, limits], attrs, name="piece").outputs
            return watched(graph, gather(heights, piece, name=scope), step)

    return built(build)


piecewise_constant_decay = piecewise_constant


def _boundary(label: str, value: Any, dtype: DType) -> Any:
    if is_symbolic(value):
        tensor = as_tensor(value)
        if tensor.dtype is dtype:
            return tensor
        if tensor.dtype.is_integer and dtype.is_integer:
            return cast(tensor, dtype)
        raise TypeError(f"{label}: boundaries: expected {dtype.name} as x, got {tensor!r}")
    require_number(label, "boundaries", value)
    number = np.asarray(value).astype(dtype.dtype)[()]
    if dtype.is_integer and number != value:
        raise ValueError(
            f"{label}: boundaries: expected whole numbers that fit {dtype.name}, the dtype of x, "
            f"got {value!r}"
        )
    return number


def _of_one_dtype(label: str, values: Sequence[Any]) -> Tensor:
    """The values, stacked; tensors among them decide on the dtype, else the widest number does."""
    given, numbers = set(), set()
    for value in values:
        if is_symbolic(value):
            given.add(rate_tensor(label, "values", value).dtype)
        else:
            require_number(label, "values", value)
            dtype = result_dtype(value)
            numbers.add(dtype if dtype.is_floating else float32)
    if len(given) > 1:
        names = ", ".join(sorted(dtype.name for dtype in given))
        raise TypeError(f"{label}: values: expected one dtype, got {names}")
    common = max(given or numbers, key=lambda dtype: dtype.size)
    return as_tensor([cast(v, common) if is_symbolic(v) else v for v in values], common)
