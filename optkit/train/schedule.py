"""From the curve of a learning-rate schedule to a tensor that follows the step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from optkit.dtypes import DType, float32, float64
from optkit.graph import Graph, Kind, Operation, Tensor, get_default_graph, is_symbolic
from optkit.ops.core import Array, ArrayModule, as_tensor, constant, constant_value
from optkit.ops.math import add, cast, multiply, subtract
from optkit.ops.random import random_normal
from optkit.shapes import Shape, broadcast_static
from optkit.train.checks import is_number
from optkit.variables import variable_of

__all__ = ["Curve", "built", "rate_tensor", "require_number", "scheduled", "step_tensor", "watched"]

Curve: TypeAlias = Callable[..., Array]
"""`(xp, step, *parameters) -> array`, all float64 of shape ()."""


def _on_curve(
    xp: ArrayModule, step: Array, *parameters: Array, curve: Curve, dtype: DType
) -> Array:
    s, *rest = (xp.asarray(value).astype(xp.float64) for value in (step, *parameters))
    return xp.asarray(curve(xp, s, *rest)).astype(dtype.dtype)


def _curve_type(
    inputs: Sequence[Tensor], attrs: Mapping[str, Any]
) -> Sequence[tuple[DType, Shape]]:
    return [(attrs["dtype"], broadcast_static([tensor.sizes for tensor in inputs]))]


_CURVE = Kind("ScheduleCurve", _on_curve, infer=_curve_type, differentiable=False)


def scheduled(
    label: str,
    name: str | None,
    learning_rate: Any,
    global_step: Any,
    curve: Curve,
    *,
    typed: bool = False,
    noisy: bool = False,
    end_learning_rate: Any = None,
    **parameters: Any,
) -> Any:
    """The rate along `curve`, whose parameters come in the curve's order.

    The first one is the length of a period. With `typed` the curve is told the rate's dtype, with
    `noisy` it gets a normal random number as its last argument. It leads from the rate to
    `end_learning_rate` if that is given, else to zero. In eager mode the result is a function
    that computes it.
    """

    def build() -> Tensor:
        graph = get_default_graph()
        with graph.all_or_nothing(), graph.name_scope(name or label) as scope:
            step = step_tensor(label, "global_step", global_step)
            rate = rate_tensor(label, "learning_rate", learning_rate)
            inputs = [_parameter(label, argument, value) for argument, value in parameters.items()]
            _require_positive(label, next(iter(parameters)), inputs[0])
            if noisy:
                inputs.append(random_normal(step.sizes or (), dtype=float64))
            drawn = partial(curve, dtype=rate.dtype) if typed else curve
            attrs = {"curve": drawn, "dtype": rate.dtype}
            (share,) = graph.create_operation(_CURVE, [step, *inputs], attrs, name="curve").outputs
            if end_learning_rate is None:
                result = multiply(rate, share, name=scope)
            else:
                end = cast(rate_tensor(label, "end_learning_rate", end_learning_rate), rate.dtype)
                result = add(multiply(subtract(rate, end), share), end, name=scope)
            return watched(graph, result, step)

    return built(build)


def built(build: Callable[[], Tensor]) -> Any:
    """What `build` gives; in eager mode `build` itself, after a trial that shows bad arguments."""
    tensor = build()
    return build if get_default_graph().eager else tensor


def watched(graph: Graph, rate: Tensor, step: Tensor) -> Tensor:
    """`rate`, known to sessions as one that stands still unless its step is counted."""
    counter = None if graph.eager else _counter(step)
    if counter is not None:
        graph.schedules[rate.op] = counter
    return rate


def _counter(step: Tensor) -> Operation | None:
    """The operation of the variable that `step` is a read of."""
    if step.op.kind.access == "read":
        return step.op.variables[0]
    variable = variable_of(step)
    return None if variable is None else variable.op


def step_tensor(label: str, argument: str, value: Any) -> Tensor:
    """The step as an integer or floating tensor."""
    if value is None:
        raise ValueError(f"{label}: {argument}: expected the global_step, got None")
    if not is_symbolic(value) and not is_number(value):
        raise TypeError(
            f"{label}: {argument}: expected a Variable, Tensor or number, got {value!r}"
        )
    return _real(label, argument, as_tensor(value, name=argument))


def rate_tensor(label: str, argument: str, value: Any) -> Tensor:
    """The rate as a floating tensor."""
    if value is None:
        raise ValueError(f"{label}: {argument}: expected a rate, got None")
    if callable(value) and not is_symbolic(value):
        value = value()  # in eager mode that is what another schedule gave
    if not is_symbolic(value):
        require_number(label, argument, value)
    tensor = _real(label, argument, as_tensor(value, name=argument))
    return tensor if tensor.dtype.is_floating else cast(tensor, float32)


def _parameter(label: str, argument: str, value: Any) -> Tensor:
    if is_symbolic(value):
        return _real(label, argument, as_tensor(value))
    require_number(label, argument, value)
    return constant(value, float64, name=argument)


def _real(label: str, argument: str, tensor: Tensor) -> Tensor:
    if not (tensor.dtype.is_floating or tensor.dtype.is_integer):
        raise TypeError(f"{label}: {argument}: expected a real dtype, got {tensor!r}")
    return tensor


def require_number(label: str, argument: str, value: Any) -> None:
    """Refuse what is neither a number nor a tensor (TypeError), and NaN (ValueError)."""
    if not is_number(value):
        raise TypeError(f"{label}: {argument}: expected a number or Tensor, got {value!r}")
    if math.isnan(value):
        raise ValueError(f"{label}: {argument}: expected a number, got NaN")


def _require_positive(label: str, argument: str, tensor: Tensor) -> None:
    known = constant_value(tensor)
    if known is not None and not bool(np.all(known > 0)):
        raise ValueError(f"{label}: {argument}: expected a number above 0, got {known}")
