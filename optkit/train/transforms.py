"""What is done to gradients between computing and applying them.

Everything here takes (gradient, variable) pairs, leaves None gradients alone, and keeps
IndexedSlices sparse: rows named twice are added up first, since a norm or a noise of the parts is
not that of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from optkit.graph import IndexedSlices, Tensor, get_default_graph, is_symbolic
from optkit.ops.array import shape
from optkit.ops.clip import clip_by_global_norm, clip_by_norm, global_norm
from optkit.ops.core import as_tensor, constant
from optkit.ops.math import cast, check_numerics
from optkit.ops.random import truncated_normal
from optkit.ops.sparse import deduplicate
from optkit.train.checks import require

__all__ = [
    "add_gradient_noise",
    "as_pairs",
    "clip_by_global_norm_fn",
    "clip_gradient_norms",
    "clip_gradient_norms_fn",
    "gradient_norm",
    "gradient_values",
    "multiplied",
    "multiply_gradients",
    "refuse_eager",
]

GradAndVar = tuple[Any, Any]


def refuse_eager(function: str) -> None:
    """Raise a RuntimeError in eager mode, which has no train op to build."""
    if get_default_graph().eager:
        raise RuntimeError(
            f"{function} builds an operation to run, and eager mode runs everything at once; give "
            "minimize a function that computes the loss, or build inside `with graph.as_default():`"
        )


def as_pairs(argument: str, value: Any) -> list[GradAndVar]:
    """A list of (gradient, variable) pairs.

    Raises:
        TypeError: `value` is no iterable of pairs.
    """
    try:
        return [(g, v) for g, v in value]
    except (TypeError, ValueError):
        raise TypeError(f"{argument}: expected (gradient, variable) pairs, got {value!r}") from None


def gradient_values(gradient: Any) -> Tensor:
    """The numbers of a gradient, duplicate rows added up."""
    if isinstance(gradient, IndexedSlices):
        gradient = deduplicate(gradient).values
    return as_tensor(gradient)


def gradient_norm(gradient: Any) -> Tensor:
    """The L2 norm of a gradient, duplicate rows added up; shape ()."""
    return global_norm([gradient])


def add_gradient_noise(
    grads_and_vars: Sequence[GradAndVar], scale: Any, seed: int | None = None
) -> list[GradAndVar]:
    """Add scale·n to every gradient, n from the normal distribution cut off at ±2.

    The noise has the standard deviation 0.8796·scale and never exceeds 2·scale; it has the
    gradient's dtype. A sparse gradient gets noise on the rows it names only.
    """

    def noisy(gradient: Any) -> Any:
        if gradient is None:
            return None
        if isinstance(gradient, IndexedSlices):
            rows = deduplicate(gradient)
            return IndexedSlices(noisy(rows.values), rows.indices, rows.dense_shape)
        noise = truncated_normal(shape(gradient), dtype=gradient.dtype, seed=seed)
        return gradient + noise * cast(as_tensor(scale), gradient.dtype)

    return [(noisy(gradient), variable) for gradient, variable in grads_and_vars]


def multiplied(
    grads_and_vars: Sequence[GradAndVar], multipliers: Any, *, allow_none: bool
) -> list[GradAndVar]:
    """Scale gradients by the multiplier of their variable, where one is given.

    Args:
        grads_and_vars: pairs.
        multipliers: Variable, "w:0" or "w" -> a number, or an array or tensor that broadcasts.
        allow_none: whether a variable with a multiplier may have no gradient.

    Raises:
        ValueError: multipliers is no dict, names no variable of the pairs, or names one without
            a gradient unless `allow_none`.
    """
    if not isinstance(multipliers, dict):
        raise ValueError(  # noqa: TRY004 - the reference's class
            f"gradient_multipliers: expected a dict from variables to numbers, got {multipliers!r}"
        )
    names = {variable.op.name for _, variable in grads_and_vars}
    chosen: dict[str, Any] = {}
    # A Variable wins over its name, as in TF.
    for key, value in sorted(multipliers.items(), key=lambda item: not isinstance(item[0], str)):
        name = key.removesuffix(":0") if isinstance(key, str) else _name_of(key)
        if name is None or name not in names:
            raise ValueError(
                f"gradient_multipliers: {key!r} is none of the variables {sorted(names)}"
            )
        chosen[name] = value
    result = []
    for gradient, variable in grads_and_vars:
        name = variable.op.name
        if name in chosen:
            if gradient is None and not allow_none:
                raise ValueError(
                    f"gradient_multipliers: variable {name!r} has a multiplier but no gradient"
                )
            gradient = _scaled(gradient, chosen[name], name)
        result.append((gradient, variable))
    return result


def _name_of(variable: Any) -> str | None:
    """The operation's name of a Variable; None for anything else."""
    return variable.op.name if is_symbolic(variable) else None


def _scaled(gradient: Any, multiplier: Any, name: str) -> Any:
    if gradient is None:
        return None
    values = gradient.values if isinstance(gradient, IndexedSlices) else gradient
    try:
        if is_symbolic(multiplier):
            factor = cast(as_tensor(multiplier), values.dtype)
        else:
            factor = constant(multiplier, values.dtype, name="multiplier")
        product = values * factor
        if not product.shape.is_compatible_with(values.shape):
            raise ValueError(f"a multiplier of shape {factor.shape} makes it {product.shape}")
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"gradient_multipliers: the gradient of variable {name!r}: {error}") from error
    if isinstance(gradient, IndexedSlices):
        return IndexedSlices(product, gradient.indices, gradient.dense_shape)
    return product


def multiply_gradients(
    grads_and_vars: Sequence[GradAndVar], gradient_multipliers: Any
) -> list[GradAndVar]:
    """Scale gradients by variable (`tf.contrib.training.multiply_gradients`).

    It scales the gradient, not the step: exact for gradient descent, nearly without effect under
    Adam and its like.

    Args:
        grads_and_vars: a list of pairs.
        gradient_multipliers: Variable, "w:0" or "w" -> a number, or an array or tensor that
            broadcasts to the gradient.

    Raises:
        ValueError: an argument is no list or dict, the dict is empty, a key is no variable of the
            list, or a variable with a multiplier has no gradient.
    """
    if not isinstance(grads_and_vars, list):
        raise ValueError(  # noqa: TRY004 - the reference's class
            f"grads_and_vars: expected a list of pairs, got {grads_and_vars!r}"
        )
    if not gradient_multipliers:
        raise ValueError(
            f"gradient_multipliers: expected a multiplier at least, got {gradient_multipliers!r}"
        )
    return multiplied(
        as_pairs("grads_and_vars", grads_and_vars), gradient_multipliers, allow_none=False
    )


def clip_gradient_norms(
    gradients_to_variables: Any, max_norm: Any, *, error_if_nonfinite: bool = False
) -> list[GradAndVar]:
    """Clip each gradient by its own norm: g·max_norm / max(‖g‖, max_norm).

    Args:
        gradients_to_variables: pairs.
        max_norm: a number or a scalar tensor; 0 and less make all gradients zero.
        error_if_nonfinite: raise when a gradient has an infinity or NaN; a run that raises
            changes nothing. Else an infinite element becomes NaN and the others 0, as in TF.

    Raises:
        TypeError, ValueError: max_norm is no number, or NaN.
        InvalidArgumentError: when run, with `error_if_nonfinite`, a gradient is not finite.

    Source: tf.contrib.training.clip_gradient_norms.
    """
    require("clip_gradient_norms", "max_norm", max_norm)
    pairs = as_pairs("gradients_to_variables", gradients_to_variables)
    if error_if_nonfinite:
        pairs = [(_finite(g, v), v) for g, v in pairs]
    return [(None if g is None else clip_by_norm(g, max_norm), v) for g, v in pairs]


def _finite(gradient: Any, variable: Any) -> Any:
    """The gradient, once it is known to be finite."""
    if gradient is None:
        return None
    message = f"the gradient of variable {variable.op.name!r} is inf or nan"
    if isinstance(gradient, IndexedSlices):
        values = check_numerics(gradient.values, message)
        return IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return check_numerics(gradient, message)


def clip_gradient_norms_fn(
    max_norm: Any, *, error_if_nonfinite: bool = False
) -> Callable[[Any], list[GradAndVar]]:
    """`clip_gradient_norms` with the norm filled in, for `transform_grads_fn`."""

    def clip(gradients_to_variables: Any) -> list[GradAndVar]:
        return clip_gradient_norms(
            gradients_to_variables, max_norm, error_if_nonfinite=error_if_nonfinite
        )

    return clip


def clip_by_global_norm_fn(
    clip_norm: Any, *, error_if_nonfinite: bool = False
) -> Callable[[Any], list[GradAndVar]]:
    """Clipping of all gradients together, for `clip_gradients` and `transform_grads_fn`.

    g·min(1, clip_norm/n), with n the norm of all gradients. A norm that is not finite makes all
    of them NaN, as in TF; with `error_if_nonfinite` the run raises an InvalidArgumentError
    instead, and has changed nothing.

    Args:
        clip_norm: a number >= 0 or a scalar tensor.
        error_if_nonfinite: see above.

    Raises:
        TypeError, ValueError: clip_norm is no number, NaN or negative.
    """
    require("clip_by_global_norm_fn", "clip_norm", clip_norm, at_least=0.0)

    def clip(gradients_to_variables: Any) -> list[GradAndVar]:
        pairs = as_pairs("gradients_to_variables", gradients_to_variables)
        clipped, _ = clip_by_global_norm(
            [g for g, _ in pairs], clip_norm, error_if_nonfinite=error_if_nonfinite
        )
        return [(g, v) for g, (_, v) in zip(clipped, pairs, strict=True)]

    return clip
