"""`optimize_loss`: loss to train op in one call, with its summaries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from optkit import summary
from optkit.dtypes import DType, float16, float32
from optkit.errors import ValueOrTypeError
from optkit.global_step import assert_global_step, get_global_step
from optkit.graph import GraphKeys, IndexedSlices, Operation, Tensor, get_default_graph, is_symbolic
from optkit.initializers import Constant, Zeros
from optkit.ops.array import ones_like
from optkit.ops.clip import clip_by_global_norm, global_norm
from optkit.ops.control import with_dependencies
from optkit.ops.core import as_tensor, constant_value
from optkit.ops.elementary import exp, log, sqrt
from optkit.ops.logic import is_finite, logical_and
from optkit.ops.math import cast, maximum, minimum, select
from optkit.train.adagrad import AdagradOptimizer
from optkit.train.adam import AdamOptimizer
from optkit.train.checks import is_number, require
from optkit.train.ftrl import FtrlOptimizer
from optkit.train.given import listed_variables, require_gradient
from optkit.train.gradient_descent import GradientDescentOptimizer
from optkit.train.matching import number_given
from optkit.train.momentum import MomentumOptimizer
from optkit.train.moving_averages import assign_moving_average
from optkit.train.optimizer import Optimizer
from optkit.train.rmsprop import RMSPropOptimizer
from optkit.train.step_summaries import StepSummaries, merged_rows
from optkit.train.transforms import add_gradient_noise, as_pairs, multiplied, refuse_eager
from optkit.variable_scope import get_variable, variable_scope
from summaries import OPTIMIZER_SUMMARIES
from summaries.quantities import EXTRA_SUMMARIES

__all__ = [
    "EXTRA_SUMMARIES",
    "OPTIMIZER_CLS_NAMES",
    "OPTIMIZER_SUMMARIES",
    "adaptive_clipping_fn",
    "optimize_loss",
]

OPTIMIZER_CLS_NAMES: dict[str, Callable[[Any], Optimizer]] = {
    "Adagrad": AdagradOptimizer,
    "Adam": AdamOptimizer,
    "Ftrl": FtrlOptimizer,
    "Momentum": lambda learning_rate: MomentumOptimizer(learning_rate, momentum=0.9),
    "RMSProp": RMSPropOptimizer,
    "SGD": GradientDescentOptimizer,
}
"""The optimizers that `optimize_loss` knows by name."""

_DEFAULT_SUMMARIES = ("loss", "learning_rate", "global_gradient_norm")

_Pairs = list[tuple[Any, Any]]


def optimize_loss(
    loss: Any,
    global_step: Any,
    learning_rate: Any,
    optimizer: Any,
    gradient_noise_scale: Any = None,
    gradient_multipliers: Any = None,
    clip_gradients: Any = None,
    learning_rate_decay_fn: Callable[[Any, Any], Any] | None = None,
    update_ops: Iterable[Any] | None = None,
    variables: Sequence[Any] | None = None,
    name: str | None = None,
    summaries: Iterable[str] | None = None,
    colocate_gradients_with_ops: bool = False,
    increment_global_step: bool = True,
) -> Tensor:
    """A tensor whose evaluation takes one training step and gives the loss before it.

    Gradients go through noise, multipliers and clipping, in this order, and then to the
    optimizer. The loss, its gradients and the rate are read as they were at the start of the run.

    Args:
        loss: a floating scalar.
        global_step: an integer Variable that counts the steps, or None for the graph's own, if it
            has one.
        learning_rate: a number >= 0, a scalar Tensor or Variable (read at every step), or None
            when the optimizer has its own. A number becomes the variable `<scope>/learning_rate`.
        optimizer: a name from OPTIMIZER_CLS_NAMES, an Optimizer, a subclass of it, or a callable
            that takes the learning rate (nothing, when that is None) and returns an Optimizer.
        gradient_noise_scale: adds noise of this scale to the gradients: normal, cut off at twice
            the scale, so of standard deviation 0.8796 times it.
        gradient_multipliers: Variable, "w:0" or "w" -> factor of its gradient. It scales the
            gradient, not the step: exact for SGD, nearly without effect under Adam and its like.
        clip_gradients: the largest global norm, a number >= 0 (infinity: no clipping) or scalar
            tensor; or a function from (gradient, variable) pairs to such pairs, e.g.
            `adaptive_clipping_fn()`.
        learning_rate_decay_fn: `(learning_rate, global_step) -> tensor`, e.g. a decay of
            `optkit.train`; called when there is a learning_rate.
        update_ops: operations to run with each step; the collection UPDATE_OPS if None.
        variables: variables to train; all trainable ones if None.
        name: the scope; "OptimizeLoss", made unique, if None.
        summaries: names from OPTIMIZER_SUMMARIES and EXTRA_SUMMARIES; loss, learning_rate and
            global_gradient_norm if None.
        colocate_gradients_with_ops: record that gradients belong where their operations are.
        increment_global_step: whether global_step is counted here.

    Raises:
        ValueError: an argument has a value it cannot have, no variable has a gradient, or a decay
            function comes without a global step.
        TypeError: a variable is none, or a callable lacks an argument.

    Source: tf.contrib.layers.optimize_loss.
    """
    graph = get_default_graph()
    refuse_eager("optimize_loss")
    with graph.all_or_nothing():
        loss = _scalar_loss(loss)
        if global_step is None:
            global_step = get_global_step()
        else:
            _check_step(global_step, increment_global_step)
        with variable_scope(name, "OptimizeLoss", [loss, global_step]):
            scope = graph.get_name_scope()
            prefix = f"{scope}/" if scope else ""
            updates = _update_ops(update_ops)
            if updates:
                loss = with_dependencies(updates, loss)
            rate = _learning_rate(learning_rate, loss.dtype)
            told = StepSummaries(prefix, _summary_names(summaries))
            if rate is not None and learning_rate_decay_fn is not None:
                rate = _decayed(rate, global_step, learning_rate_decay_fn)
            opt = _optimizer(optimizer, rate)
            chosen = listed_variables(variables, "variables")
            pairs = opt.compute_gradients(
                loss, chosen, colocate_gradients_with_ops=colocate_gradients_with_ops
            )
            require_gradient(loss, pairs)
            with summary.written_when(opt.applies_when()):
                in_use = opt.learning_rate_tensor()
                if in_use is not None or rate is not None:
                    told.scalar("learning_rate", rate if in_use is None else in_use)
                if gradient_noise_scale is not None:
                    _require_scalar("gradient_noise_scale", gradient_noise_scale)
                    pairs = add_gradient_noise(pairs, gradient_noise_scale)
                if gradient_multipliers is not None:
                    pairs = multiplied(pairs, gradient_multipliers, allow_none=True)
                if told.measures:
                    pairs = merged_rows(pairs)
                unclipped, norm = pairs, None
                if told.norms:
                    norm = told.norm(pairs)
                    told.scalar("global_norm/gradient_norm", norm)
                if clip_gradients is not None:
                    pairs = _clipped(pairs, clip_gradients, norm)
                told.scalar("loss", loss)
                told.nonfinite(unclipped)
                told.gradients(pairs)
                if clip_gradients is not None:
                    if told.norms:
                        clipped_norm = told.norm(pairs)
                        told.scalar("global_norm/clipped_gradient_norm", clipped_norm)
                    told.clipping(unclipped, pairs)
                told.variables(pairs)
                first = len(graph.get_operations())
                applied = opt.apply_gradients(
                    pairs,
                    global_step=global_step if increment_global_step else None,
                    name="train",
                )
                told.updates(pairs, applied, first)
            train_op: Tensor = with_dependencies([applied], loss)
            return train_op


def _scalar_loss(loss: Any) -> Tensor:
    if loss is None:
        raise ValueError("loss: expected a floating scalar, got None")
    tensor = as_tensor(loss)
    if not tensor.dtype.is_floating:
        raise ValueError(f"loss: expected a floating scalar, got {tensor!r}")
    if tensor.sizes not in ((), None):
        raise ValueError(f"loss: expected a scalar, got {tensor!r}; use reduce_mean")
    return tensor


def _check_step(global_step: Any, increment: bool) -> None:
    assert_global_step(global_step)
    if increment and not hasattr(global_step, "assign_add"):
        raise ValueOrTypeError(
            f"global_step: expected a Variable, got {global_step!r}, which cannot be incremented"
        )


def _update_ops(update_ops: Iterable[Any] | None) -> tuple[Operation, ...]:
    graph = get_default_graph()
    items = graph.get_collection(GraphKeys.UPDATE_OPS) if update_ops is None else update_ops
    return graph.as_operations(items, "update_ops")


def _learning_rate(learning_rate: Any, loss_dtype: DType) -> Tensor | None:
    """The rate as a scalar tensor; a number as a variable of the loss's dtype."""
    if learning_rate is None:
        return None
    if is_symbolic(learning_rate):
        tensor = as_tensor(learning_rate)
        if tensor.sizes != () or not (tensor.dtype.is_floating or tensor.dtype.is_integer):
            raise ValueError(f"learning_rate: expected a scalar number, got {tensor!r}")
        return tensor
    if not is_number(learning_rate):
        raise ValueError(
            "learning_rate: expected a number >= 0, a scalar Tensor, a Variable or None, got "
            f"{learning_rate!r}"
        )
    number = float(learning_rate)
    if math.isnan(number) or number < 0:
        raise ValueError(f"learning_rate: expected a number >= 0, got {learning_rate!r}")
    variable = get_variable(
        "learning_rate",
        (),
        float32 if loss_dtype is float16 else loss_dtype,
        initializer=Constant(number),
        trainable=False,
    )
    number_given(variable.op, number)
    return as_tensor(variable)


def _decayed(rate: Tensor, global_step: Any, decay: Callable[[Any, Any], Any]) -> Any:
    """What the decay function makes of the rate, a scalar."""
    if not callable(decay):
        raise TypeError(f"learning_rate_decay_fn: expected a function, got {decay!r}")
    if global_step is None:
        raise ValueError(
            "global_step: learning_rate_decay_fn needs a step, and there is none; pass one or call "
            "create_global_step()"
        )
    decayed = decay(rate, global_step)
    if not is_number(decayed) and not is_symbolic(decayed):
        raise TypeError(
            f"learning_rate_decay_fn: expected it to give a number or Tensor, got {decayed!r}"
        )
    if is_symbolic(decayed) and as_tensor(decayed).sizes not in ((), None):
        raise ValueError(f"learning_rate_decay_fn: expected it to give a scalar, got {decayed!r}")
    return decayed


def _summary_names(names: Iterable[str] | None) -> set[str]:
    if names is None:
        return set(_DEFAULT_SUMMARIES)
    known = [*OPTIMIZER_SUMMARIES, *EXTRA_SUMMARIES]
    expected = f"summaries: expected a list of names out of {', '.join(known)}, got"
    if not isinstance(names, Iterable):
        raise TypeError(f"{expected} {names!r}")
    chosen = [names] if isinstance(names, str) else list(names)
    for item in chosen:
        if isinstance(names, str) or item not in known:
            raise ValueError(f"{expected} {item!r}")
    return set(chosen)


def _optimizer(optimizer: Any, rate: Tensor | None) -> Optimizer:
    """The optimizer that a name, an instance, a class or a callable stands for."""
    known = ", ".join(OPTIMIZER_CLS_NAMES)
    if isinstance(optimizer, Optimizer):
        return optimizer
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZER_CLS_NAMES:
            raise ValueError(f"optimizer: expected one of {known}, got {optimizer!r}")
        return OPTIMIZER_CLS_NAMES[optimizer](_needed(rate, optimizer))
    if isinstance(optimizer, type) and issubclass(optimizer, Optimizer):
        return optimizer(learning_rate=_needed(rate, optimizer.__name__))  # type: ignore[call-arg]
    if callable(optimizer):
        made = optimizer() if rate is None else optimizer(rate)
        if not isinstance(made, Optimizer):
            raise ValueError(  # noqa: TRY004 - the reference's class
                f"optimizer: expected the callable to give an Optimizer, got {made!r}"
            )
        return made
    raise ValueError(
        f"optimizer: expected one of {known}, an Optimizer, a subclass of it or a callable, got "
        f"{optimizer!r}"
    )


def _needed(rate: Tensor | None, name: str) -> Tensor:
    if rate is None:
        raise ValueError(f"learning_rate: the optimizer {name!r} needs one, got None")
    return rate


def _clipped(pairs: _Pairs, clip_gradients: Any, norm: Tensor | None) -> _Pairs:
    """The pairs after clipping; `norm` is their global norm, if it is there already."""
    if is_number(clip_gradients) or is_symbolic(clip_gradients):
        _require_scalar("clip_gradients", clip_gradients)
        if norm is not None and norm.dtype.size < 4:
            norm = None  # rounded to half precision, which clipping does not do
        clipped, _ = clip_by_global_norm([g for g, _ in pairs], clip_gradients, norm)
        return [(g, v) for g, (_, v) in zip(clipped, pairs, strict=True)]
    if callable(clip_gradients):
        clipped = as_pairs("clip_gradients' result", clip_gradients(pairs))
        if not clipped:
            raise ValueError("clip_gradients: expected the function to return pairs, got none")
        return clipped
    raise ValueError(
        "clip_gradients: expected a number >= 0, a scalar Tensor or a function of the gradients, "
        f"got {clip_gradients!r}"
    )


def _require_scalar(argument: str, value: Any) -> None:
    """Refuse what is no number >= 0; of a tensor as far as its value is known."""
    if not is_symbolic(value):
        if not is_number(value):
            raise TypeError(f"{argument}: expected a number or a scalar Tensor, got {value!r}")
        require("optimize_loss", argument, value, at_least=0.0)
        return
    tensor = as_tensor(value)
    if tensor.sizes not in ((), None) or not (tensor.dtype.is_floating or tensor.dtype.is_integer):
        raise ValueError(f"{argument}: expected a scalar number, got {value!r}")
    known = constant_value(tensor)
    if known is not None:
        require("optimize_loss", argument, known[()], at_least=0.0)


def adaptive_clipping_fn(
    std_factor: float = 2.0,
    decay: float = 0.95,
    static_max_norm: float | None = None,
    global_step: Any = None,
    report_summary: bool = False,
    epsilon: float = 1e-8,
    name: str | None = None,
) -> Callable[[Any], _Pairs]:
    """A clipping function whose threshold follows the norms seen so far, for `clip_gradients`.

    With n the global norm, and running means m of ln(n + ε) and q of its square:
        m ← d·m + (1−d)·ln(n+ε);  q ← d·q + (1−d)·ln²(n+ε)
        max_norm = exp(m + std_factor·√max(ε, q − m²))
        g ← g · (1 if n < max_norm else exp(m)/n)
    Both means start at zero, so early steps are clipped hard unless `global_step` is given. A
    norm that is not finite leaves the means alone, and that step's gradients pass unclipped.

    Args:
        std_factor: how many standard deviations above the mean are let through.
        decay: d, in [0, 1].
        static_max_norm: a bound on the norm in any case, above 0.
        global_step: a step t that makes d = min(decay, t/(t+1)), so that the means start right.
        report_summary: add the scalar `global_norm/adaptive_max_gradient_norm`.
        epsilon: ε, above 0.
        name: the scope of the two variables; "AdaptiveMaxNorm" if None.

    Raises:
        TypeError, ValueError: a value is out of range or no number.

    Source: tf.contrib.layers.adaptive_clipping_fn.
    """
    owner = "adaptive_clipping_fn"
    require(owner, "std_factor", std_factor)
    require(owner, "decay", decay, at_least=0.0, at_most=1.0)
    require(owner, "epsilon", epsilon, above=0.0)
    if static_max_norm is not None:
        require(owner, "static_max_norm", static_max_norm, above=0.0)

    def clip(grads_and_vars: Any) -> _Pairs:
        pairs = as_pairs("grads_and_vars", grads_and_vars)
        norm = global_norm([g for g, _ in pairs])
        max_norm, mean = _adaptive_max_norm(norm, std_factor, decay, global_step, epsilon, name)
        if report_summary:
            summary.scalar("global_norm/adaptive_max_gradient_norm", max_norm)
        factor = select(norm < max_norm, ones_like(norm), exp(mean) / norm)
        if static_max_norm is not None:
            factor = minimum(static_max_norm / norm, factor)
        factor = select(is_finite(norm), factor, ones_like(norm))
        return [(_times(g, factor), v) for g, v in pairs]

    return clip


def _times(gradient: Any, factor: Tensor) -> Any:
    if gradient is None:
        return None
    scale = cast(factor, gradient.dtype)
    if isinstance(gradient, IndexedSlices):
        return IndexedSlices(gradient.values * scale, gradient.indices, gradient.dense_shape)
    return gradient * scale


def _adaptive_max_norm(
    norm: Tensor,
    std_factor: float,
    decay: float,
    global_step: Any,
    epsilon: float,
    name: str | None,
) -> tuple[Tensor, Tensor]:
    """The threshold, and the mean of the logarithm of the norm, both after this step's norm."""
    with variable_scope(name, "AdaptiveMaxNorm", [norm]):
        log_norm = log(norm + epsilon)
        usable = is_finite(log_norm)
        applies = summary.condition()
        if applies is not None:  # a norm that is not yet that of a step counts for nothing
            usable = logical_and(usable, applies)
        rate: Any = decay
        if global_step is not None:
            step = cast(as_tensor(global_step), norm.dtype)
            rate = minimum(decay, step / (step + 1.0))

        def average(value: Tensor, label: str) -> Tensor:
            variable = get_variable(label, (), norm.dtype, initializer=Zeros(), trainable=False)
            # Averaging a value with itself changes nothing: so a bad norm leaves no trace.
            seen = select(usable, value, as_tensor(variable))
            return assign_moving_average(variable, seen, rate, zero_debias=False)

        mean = average(log_norm, "mean")
        sq_mean = average(log_norm * log_norm, "sq_mean")
        std = sqrt(maximum(epsilon, sq_mean - mean * mean))
        return exp(mean + std_factor * std), mean
