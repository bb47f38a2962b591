"""Operations that are Python functions of the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optkit.backend.arrays import to_numpy
from optkit.dtypes import DType, as_dtype, string
from optkit.errors import InvalidArgumentError
from optkit.graph import Operation, get_default_graph
from optkit.ops.core import ALL_TYPES, Array, ArrayModule, as_array, as_tensor, op

__all__ = ["py_func"]


def _called(
    xp: ArrayModule, inputs: Sequence[Array], function: Callable[..., Any], types: Sequence[DType]
) -> Any:
    result = function(*(np.array(to_numpy(x))[()] for x in inputs))
    if not types:
        return ()
    values = list(result) if isinstance(result, list | tuple) else [result]
    if len(values) != len(types):
        raise InvalidArgumentError(
            f"func: expected {len(types)} values, as Tout says, got {len(values)}"
        )
    arrays = []
    for i, (value, dtype) in enumerate(zip(values, types, strict=True)):
        array = np.asarray(value)
        if dtype is string or array.dtype.kind in "OUS":
            array = as_array(value, dtype)
        elif array.dtype != dtype.dtype:
            raise InvalidArgumentError(
                f"func: expected {dtype.name} for value {i}, as Tout says, got {array.dtype}"
            )
        arrays.append(array if dtype is string else xp.asarray(array))
    return tuple(arrays) if len(arrays) != 1 else arrays[0]


def _types(_: Any, attrs: Any) -> list[tuple[DType, None]]:
    return [(dtype, None) for dtype in attrs["types"]]


@op("PyFunc", types=ALL_TYPES, infer=_types, differentiable=False, effect=True)
def _py_func(
    xp: ArrayModule, *inputs: Array, function: Callable[..., Any], types: tuple[DType, ...]
) -> Any:
    return _called(xp, inputs, function, types)


@op("PyFuncStateless", types=ALL_TYPES, infer=_types, differentiable=False)
def _py_func_stateless(
    xp: ArrayModule, *inputs: Array, function: Callable[..., Any], types: tuple[DType, ...]
) -> Any:
    return _called(xp, inputs, function, types)


def py_func(
    func: Callable[..., Any],
    inp: Any,
    Tout: Any,  # noqa: N803 - TF1's name
    stateful: bool = True,
    name: str | None = None,
) -> Any:
    """Calls a Python function on the values of tensors, as NumPy arrays or scalars of its own.

    Shapes of the results are not known when the graph is built, and no gradient flows.

    Args:
        func: gets an array a tensor; gives an array, or several for several dtypes.
        inp: the tensors.
        Tout: the dtype of the result, or a list of dtypes.
        stateful: whether the function does more than give its values, or may give others each
            time; if not, a call on constants may happen once for all.
        name: the node's name.

    Returns:
        A tensor where Tout is a dtype, a list of tensors where it is a list; the operation where
        that list is empty.

    Raises:
        InvalidArgumentError: when run, the function gives other dtypes, or another number of
            values; what it raises itself names the operation.
    """
    if not callable(func):
        raise TypeError(f"func: expected a function, got {func!r}")
    if not isinstance(inp, list | tuple):
        raise TypeError(f"inp: expected a list of tensors, got {inp!r}")
    several = isinstance(Tout, list | tuple)
    types = tuple(as_dtype(item) for item in (Tout if several else [Tout]))
    kind = (_py_func if stateful or not types else _py_func_stateless).kind
    node: Operation = get_default_graph().create_operation(
        kind,
        [as_tensor(item) for item in inp],
        {"function": func, "types": types},
        name=name or "PyFunc",
    )
    if not several:
        return node.outputs[0]
    return list(node.outputs) if types else node
