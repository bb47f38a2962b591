"""What optimizers are given: lists of variables, gradients; and why there are none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from optkit.gradients import blocking_operations
from optkit.graph import IndexedSlices, Tensor, is_symbolic
from optkit.ops.core import INDEX_TYPES, as_tensor
from optkit.ops.math import cast
from optkit.variables import Variable, trainable_variables

__all__ = ["as_gradient", "listed_variables", "require_gradient"]


def listed_variables(value: Any, argument: str = "var_list") -> list[Any]:
    """The variables of a nesting, in order; the trainable ones for None.

    Raises:
        TypeError: an item is no Variable.
        ValueError: there are none.
    """
    if value is None:
        variables: list[Any] = list(trainable_variables())
        where = "there are no trainable variables"
    else:
        variables = list(_flat(value))
        where = f"{argument}: expected variables, got none"
    if not variables:
        raise ValueError(where)
    for item in variables:
        if not is_symbolic(item):
            raise TypeError(f"{argument}: expected Variables, got {item!r} among them")
    return variables


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = value.values()
    if is_symbolic(value) or isinstance(value, str) or not isinstance(value, Iterable):
        yield value
        return
    for item in value:
        yield from _flat(item)


def as_gradient(grad: Any, var: Any) -> Any:
    """A gradient as a tensor or rows of the variable's dtype and shape."""
    if not isinstance(var, Variable):
        if is_symbolic(var):
            raise NotImplementedError(
                f"grads_and_vars: {var!r} is no Variable and cannot be updated"
            )
        raise TypeError(f"grads_and_vars: expected a Variable, got {var!r}")
    if grad is None:
        return None
    where = f"grads_and_vars: the gradient of variable {var.op.name!r}"
    if isinstance(grad, IndexedSlices):
        values = _as_dtype(grad.values, var, where)
        if var.sizes == ():
            raise ValueError(f"{where}: expected a tensor, got rows of a variable of shape ()")
        expected, got = var.shape[1:], values.shape[1:]
        if values.shape.ndims is not None and not expected.is_compatible_with(got):
            raise ValueError(f"{where}: expected rows of shape {expected}, got {got}")
        indices = as_tensor(grad.indices)
        if indices.dtype not in INDEX_TYPES:
            raise TypeError(f"{where}: expected int32 or int64 indices, got {indices!r}")
        if not indices.shape.is_compatible_with(values.shape[:1]):
            raise ValueError(f"{where}: expected one index a row of {values!r}, got {indices!r}")
        return IndexedSlices(values, indices, grad.dense_shape)
    tensor = _as_dtype(grad, var, where)
    if not tensor.shape.is_compatible_with(var.shape):
        raise ValueError(f"{where}: expected shape {var.shape}, got {tensor.shape}")
    return tensor


def _as_dtype(value: Any, var: Variable, where: str) -> Tensor:
    """`value` as a tensor of the variable's dtype; casts within the floating types only."""
    try:
        # NumPy's values have a dtype of their own; Python's numbers take the variable's.
        tensor = as_tensor(value, None if hasattr(value, "dtype") else var.dtype)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{where}: expected a tensor, IndexedSlices or None: {error}") from error
    if tensor.dtype is var.dtype:
        return tensor
    if not tensor.dtype.is_floating:
        raise TypeError(f"{where}: expected {var.dtype.name}, got {tensor!r}")
    return as_tensor(cast(tensor, var.dtype))


def require_gradient(loss: Any, pairs: Sequence[tuple[Any, Any]]) -> None:
    """Refuse a loss that no variable has a gradient of, and tell what is in the way."""
    if all(g is None for g, _ in pairs):
        raise ValueError(_no_gradient_text(loss, [v for _, v in pairs]))


def _no_gradient_text(loss: Any, variables: Sequence[Any]) -> str:
    names = ", ".join(repr(v.op.name) for v in variables)
    text = f"no variable has a gradient of the loss; the variables are {names}"
    if is_symbolic(loss):
        text += f", the loss is {loss._as_graph_tensor()!r}"
        blocked = blocking_operations(loss, variables)
        if blocked:
            ops = "; ".join(op.describe() for op in blocked)
            return f"{text}. These operations are not differentiable: {ops}"
        return f"{text}. The loss does not depend on them"
    return text
