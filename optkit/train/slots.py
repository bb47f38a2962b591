"""Slot variables: what an optimizer or an average remembers about a variable."""

from __future__ import annotations

from typing import Any

from optkit.dtypes import DType, as_dtype
from optkit.graph import Tensor, is_symbolic
from optkit.ops import array
from optkit.shapes import TensorShape
from optkit.variable_scope import get_variable_scope
from optkit.variables import Variable

__all__ = ["create_slot", "create_zeros_slot"]


def create_slot(
    primary: Variable | Tensor,
    val: Any,
    name: str,
    colocate_with_primary: bool = True,
    *,
    shape: Any = None,
    dtype: Any = None,
) -> Variable:
    """A variable that goes with `primary`, not trained, named `<primary's operation>/<name>`.

    The name is made unique with _1, _2, ... in the order of creation. The current variable scope
    is put before it; its reuse, getters and regularizers, and name scopes, play no part.

    Args:
        primary: a Variable, or a Tensor, which need not be in a session yet.
        val: the initial value, or an initializer, called as `val(shape, dtype=dtype)`.
        name: the last part of the name.
        colocate_with_primary: accepted; a session has one device.
        shape: what an initializer is called with; `primary`'s if None.
        dtype: the dtype; `primary`'s if None (that of `val` if it is a tensor).

    Raises:
        TypeError, ValueError: the initial value does not fit.
    """
    graph = primary.graph
    with graph.as_default():
        scope = get_variable_scope().name
        full_name = f"{scope}/{primary.op.name}/{name}" if scope else f"{primary.op.name}/{name}"
        symbolic = is_symbolic(val)
        wanted = None if symbolic and dtype is None else as_dtype(dtype or primary.dtype)
        static = TensorShape(primary.shape if shape is None else shape)
        known = static.is_fully_defined()
        with graph.name_scope(None):
            if symbolic:
                return _slot(val, full_name, wanted, val.shape.is_fully_defined())
            if callable(val):
                return _slot(
                    lambda: val(static.as_list() if known else _shape_of(primary), dtype=wanted),
                    full_name,
                    wanted,
                    known,
                )
            return _slot(val, full_name, wanted, True)


def create_zeros_slot(
    primary: Variable | Tensor, name: str, dtype: Any = None, colocate_with_primary: bool = True
) -> Variable:
    """A slot that starts at zero, of the shape of `primary`; see `create_slot`."""
    return create_slot(primary, array.zeros, name, colocate_with_primary, dtype=dtype)


def _slot(val: Any, name: str, dtype: DType | None, validate: bool) -> Variable:
    return Variable(val, trainable=False, validate_shape=validate, name=name, dtype=dtype)


def _shape_of(primary: Variable | Tensor) -> Tensor:
    """The shape when the slot is initialised, where it is not known before."""
    return array.shape(primary.initialized_value() if isinstance(primary, Variable) else primary)
