"""How much the signs count in AddSign and PowerSign, as a function of the step.

Each function gives a function of the step; its value is a float64 Tensor from 1 to 0 (in eager
mode a function without arguments that computes it). With s the smaller of the step and
decay_steps, and x = s/decay_steps:

    get_linear_decay_fn     1 − x
    get_cosine_decay_fn     ½(1 + cos(2π·num_periods·x))
    get_restart_decay_fn    ½(1 + cos(π·(num_periods·x mod 1)))

Each raises:
    TypeError: an argument is no number or Tensor.
    ValueError: decay_steps is not above 0; or, when the function is called, there is no step.

Source: Bello et al., Neural Optimizer Search with Reinforcement Learning, ICML 2017;
tf.contrib.opt's sign_decay.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from optkit.dtypes import float64
from optkit.ops.core import Array, ArrayModule, constant
from optkit.train.schedule import Curve, require_number, scheduled

__all__ = ["get_cosine_decay_fn", "get_linear_decay_fn", "get_restart_decay_fn"]


def _linear(xp: ArrayModule, s: Array, decay_steps: Array) -> Array:
    return 1 - xp.minimum(s, decay_steps) / decay_steps


def _cosine(
    xp: ArrayModule, s: Array, decay_steps: Array, num_periods: Array, zero_after: Array
) -> Array:
    periods = num_periods * (xp.minimum(s, decay_steps) / decay_steps)
    wave = 0.5 * (1 + xp.cos(2 * math.pi * periods))
    return xp.where(periods >= zero_after, 0.0, wave)


def _restart(
    xp: ArrayModule, s: Array, decay_steps: Array, num_periods: Array, zero_after: Array
) -> Array:
    steps = num_periods * xp.minimum(s, decay_steps)
    # The remainder of steps, not of periods: whole steps keep it exact.
    within = steps - decay_steps * xp.floor(steps / decay_steps)
    wave = 0.5 * (1 + xp.cos(math.pi * within / decay_steps))
    return xp.where(steps / decay_steps >= zero_after, 0.0, wave)


def get_linear_decay_fn(decay_steps: Any) -> Callable[[Any], Any]:
    """1 − x: from 1 to 0 along a line."""
    return _decay("LinearSignDecay", _linear, decay_steps=decay_steps)


def get_cosine_decay_fn(
    decay_steps: Any, num_periods: Any = 0.5, zero_after: Any = None
) -> Callable[[Any], Any]:
    """½(1 + cos(2π·num_periods·x)): cosine waves, of which half a one leads from 1 to 0.

    It is 0 from the step on at which num_periods·x is zero_after, if that is given.
    """
    return _decay(
        "CosineSignDecay",
        _cosine,
        decay_steps=decay_steps,
        num_periods=num_periods,
        zero_after=math.inf if zero_after is None else zero_after,
    )


def get_restart_decay_fn(
    decay_steps: Any, num_periods: Any = 1, zero_after: Any = None
) -> Callable[[Any], Any]:
    """½(1 + cos(π·(num_periods·x mod 1))): half cosine waves, each from 1 towards 0.

    It is 0 from the step on at which num_periods·x is zero_after, if that is given. At the last
    step a whole number of periods has started anew, so the value is 1 then.
    """
    return _decay(
        "RestartSignDecay",
        _restart,
        decay_steps=decay_steps,
        num_periods=num_periods,
        zero_after=math.inf if zero_after is None else zero_after,
    )


def _decay(label: str, curve: Curve, **parameters: Any) -> Callable[[Any], Any]:
    for argument, value in parameters.items():
        if not callable(getattr(value, "_as_graph_tensor", None)):
            require_number(label, argument, value)
    return partial(_at, label, curve, parameters)


def _at(label: str, curve: Curve, parameters: dict[str, Any], global_step: Any) -> Any:
    # A float64 rate, so that float64 variables see all digits.
    one = constant(1.0, float64)
    return scheduled(label, None, one, global_step, curve, **parameters)
