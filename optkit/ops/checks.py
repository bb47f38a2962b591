"""Assertions about values, and printing them, while a graph runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from optkit.backend.arrays import to_numpy
from optkit.dtypes import as_dtype, bool_
from optkit.errors import InvalidArgumentError
from optkit.graph import Operation, Tensor, get_default_graph
from optkit.ops.arguments import static_int
from optkit.ops.control import with_dependencies
from optkit.ops.core import ALL_TYPES, Array, ArrayModule, as_tensor, composite, constant_value, op
from optkit.ops.logic import (
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    not_equal,
)
from optkit.ops.math import check_numerics
from optkit.ops.reductions import reduce_all
from optkit.ops.reshaping import rank as rank_of

__all__ = [
    "Assert",
    "Print",
    "assert_equal",
    "assert_greater",
    "assert_greater_equal",
    "assert_less",
    "assert_less_equal",
    "assert_negative",
    "assert_non_negative",
    "assert_non_positive",
    "assert_none_equal",
    "assert_positive",
    "assert_rank",
    "assert_rank_at_least",
    "assert_scalar",
    "assert_type",
    "verify_tensor_all_finite",
]


def _listed(array: Array, summarize: int | None) -> str:
    """The first elements of an array, 3 if None, all if negative."""
    host = to_numpy(array)
    if host.ndim == 0 and isinstance(host[()], bytes):
        return str(host[()].decode(errors="replace"))
    flat = host.reshape(-1)
    count = 3 if summarize is None else flat.size if summarize < 0 else summarize
    items = [
        item.decode(errors="replace") if isinstance(item, bytes) else str(item)
        for item in flat[:count]
    ]
    if flat.size > count:
        items.append("...")
    return f"[{' '.join(items)}]"


# -- printing -------------------------------------------------------------------------------------


class _Counted:
    """How often a node has printed."""

    def __init__(self) -> None:
        self.count = 0


@op(
    "Print",
    types=ALL_TYPES,
    infer=lambda inputs, _: [(inputs[0].dtype, inputs[0].sizes)],
    effect=True,
)
def _print(
    xp: ArrayModule,
    *inputs: Array,
    message: str,
    first_n: int,
    summarize: int | None,
    printed: _Counted,
) -> Array:
    if first_n < 0 or printed.count < first_n:
        printed.count += 1
        text = "".join(_listed(array, summarize) for array in inputs[1:])
        print(message + text, file=sys.stderr)  # noqa: T201 - what the op is for
    return inputs[0]


@_print.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor | None, ...]:
    return dy, *[None] * (len(node.inputs) - 1)


@composite
def Print(  # noqa: N802 - TF1's name
    input_: Any,
    data: Any,
    message: str | None = None,
    first_n: int | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> Tensor:
    """`input_` itself; whenever it is computed, `data` is printed to stderr.

    Args:
        input_: what is passed on.
        data: a list of tensors to print, of any dtypes.
        message: printed before them.
        first_n: how often to print; always if None or negative.
        summarize: how many elements of each tensor; 3 if None, all if negative.
        name: the node's name.
    """
    if not isinstance(data, list | tuple):
        raise TypeError(f"data: expected a list of tensors, got {data!r}")
    tensors = [as_tensor(item) for item in (input_, *data)]
    graph = get_default_graph()
    return graph.create_operation(
        _print.kind,
        tensors,
        {
            "message": message or "",
            "first_n": -1 if first_n is None else static_int(first_n, "first_n"),
            "summarize": None if summarize is None else static_int(summarize, "summarize"),
            "printed": _Counted(),
        },
        name=name or "Print",
    ).outputs[0]


# -- asserting ------------------------------------------------------------------------------------


@op("Assert", types=ALL_TYPES, infer=lambda _, __: [], differentiable=False, effect=True)
def _assert(xp: ArrayModule, *inputs: Array, summarize: int | None) -> tuple[()]:
    condition, *data = inputs
    if condition.size != 1:
        raise InvalidArgumentError(f"condition: expected one bool, got shape {condition.shape}")
    if not bool(condition):
        text = " ".join(_listed(array, summarize) for array in data)
        raise InvalidArgumentError(f"assertion failed: {text}")
    return ()


@composite
def Assert(  # noqa: N802 - TF1's name
    condition: Any, data: Any, summarize: int | None = None, name: str | None = None
) -> Operation:
    """An operation that fails unless `condition` holds, and then shows `data`.

    It runs where it is asked for: fetch it, or build under control_dependencies([it]).

    Args:
        condition: one bool.
        data: a list of tensors for the message.
        summarize: how many elements of each to show; 3 if None, all if negative.
        name: the node's name.

    Raises:
        InvalidArgumentError: when run, the condition does not hold.
    """
    if not isinstance(data, list | tuple):
        data = [data]
    with get_default_graph().name_scope(name or "Assert") as scope:
        tensors = [as_tensor(condition, bool_, "condition"), *(as_tensor(item) for item in data)]
        limit = None if summarize is None else static_int(summarize, "summarize")
        return get_default_graph().create_operation(
            _assert.kind, tensors, {"summarize": limit}, name=f"{scope}Assert/"
        )


def _compared(
    name: str,
    relation: Callable[[Any, Any], Tensor],
    words: str,
    x: Any,
    y: Any,
    data: Any,
    summarize: int | None,
    message: str | None,
) -> Operation:
    """The assertion that a relation holds for all elements; at once where both are known."""
    with get_default_graph().name_scope(name):
        first = as_tensor(x, name="x")
        second = as_tensor(y, first.dtype, "y") if not hasattr(y, "dtype") else as_tensor(y)
        holds = reduce_all(relation(first, second))
        known = constant_value(first), constant_value(second)
        start = f"{message}: " if message else ""
        if all(value is not None for value in known) and not bool(constant_value(holds)):
            shown = ", ".join(
                f"{letter} = {np.array2string(np.asarray(value), threshold=10)}"
                for letter, value in zip("xy", known, strict=True)
            )
            raise InvalidArgumentError(f"{start}expected x {words} y, got {shown}")
        if data is None:
            data = [
                f"{start}expected x {words} y, got x ({first.name}) =",
                first,
                f"and y ({second.name}) =",
                second,
            ]
        return Assert(holds, data, summarize)


def _comparison(name: str, relation: Callable[[Any, Any], Tensor], words: str) -> Any:
    @composite
    def check(
        x: Any,
        y: Any,
        data: Any = None,
        summarize: int | None = None,
        message: str | None = None,
        name: str | None = None,
    ) -> Operation:
        return _compared(name or label, relation, words, x, y, data, summarize, message)

    label = name
    check.__name__ = check.__qualname__ = name
    check.__doc__ = f"""An operation that fails unless x {words} y for all elements, broadcast.

    Raises:
        InvalidArgumentError: at once where both are constants, else when run.
    """
    return check


assert_equal = _comparison("assert_equal", equal, "==")
assert_none_equal = _comparison("assert_none_equal", not_equal, "!=")
assert_less = _comparison("assert_less", less, "<")
assert_less_equal = _comparison("assert_less_equal", less_equal, "<=")
assert_greater = _comparison("assert_greater", greater, ">")
assert_greater_equal = _comparison("assert_greater_equal", greater_equal, ">=")


def _sign(name: str, relation: Callable[[Any, Any], Tensor], words: str) -> Any:
    @composite
    def check(
        x: Any,
        data: Any = None,
        summarize: int | None = None,
        message: str | None = None,
        name: str | None = None,
    ) -> Operation:
        return _compared(name or label, relation, words, x, 0, data, summarize, message)

    label = name
    check.__name__ = check.__qualname__ = name
    check.__doc__ = f"""An operation that fails unless x {words} 0 for all elements.

    Raises:
        InvalidArgumentError: at once where x is a constant, else when run.
    """
    return check


assert_positive = _sign("assert_positive", greater, ">")
assert_negative = _sign("assert_negative", less, "<")
assert_non_negative = _sign("assert_non_negative", greater_equal, ">=")
assert_non_positive = _sign("assert_non_positive", less_equal, "<=")


def _rank(
    name: str,
    relation: Callable[[Any, Any], Tensor],
    words: str,
    x: Any,
    rank: Any,
    data: Any,
    summarize: int | None,
    message: str | None,
) -> Operation:
    with get_default_graph().name_scope(name):
        tensor = as_tensor(x, name="x")
        wanted = as_tensor(rank, name="rank")
        if wanted.dtype.is_floating or wanted.shape.ndims not in (None, 0):
            raise ValueError(f"rank: expected an int, got {rank!r}")
        ndims, known = tensor.shape.ndims, constant_value(wanted)
        start = f"{message}: " if message else ""
        holds = relation(rank_of(tensor), wanted)
        if ndims is not None and known is not None and not bool(constant_value(holds)):
            raise ValueError(f"{start}expected a rank {words} {int(known)}, got {tensor!r}")
        text = f"{start}expected a rank {words} that given for {tensor.name}, got"
        return Assert(holds, data or [text, rank_of(tensor)], summarize)


@composite
def assert_rank(
    x: Any,
    rank: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """An operation that fails unless x has `rank` axes.

    Raises:
        ValueError: at once where the rank is known.
        InvalidArgumentError: else when run.
    """
    return _rank(name or "assert_rank", equal, "==", x, rank, data, summarize, message)


@composite
def assert_rank_at_least(
    x: Any,
    rank: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """An operation that fails unless x has at least `rank` axes; see `assert_rank`."""
    return _rank(
        name or "assert_rank_at_least", greater_equal, ">=", x, rank, data, summarize, message
    )


@composite
def assert_scalar(tensor: Any, name: str | None = None, message: str | None = None) -> Tensor:
    """The tensor, whose static shape must be ().

    Raises:
        ValueError: it is not.
    """
    x = as_tensor(tensor)
    if x.sizes != ():
        start = f"{message}: " if message else ""
        raise ValueError(f"{start}{name or 'tensor'}: expected a scalar, got {x!r}")
    return x


@composite
def assert_type(tensor: Any, tf_type: Any, message: str | None = None, name: Any = None) -> None:
    """Check a tensor's dtype when the graph is built.

    Raises:
        TypeError: it is another one.
    """
    x, wanted = as_tensor(tensor), as_dtype(tf_type)
    if x.dtype is not wanted:
        start = f"{message}: " if message else ""
        raise TypeError(f"{start}{name or 'tensor'}: expected {wanted.name}, got {x!r}")


@composite
def verify_tensor_all_finite(t: Any, msg: str, name: str | None = None) -> Tensor:
    """The tensor itself, once it is known to be finite.

    Raises:
        InvalidArgumentError: when run, there is a NaN or infinity; the text starts with `msg`.
    """
    with get_default_graph().name_scope(name or "VerifyFinite"):
        x = as_tensor(t)
        checked: Tensor = with_dependencies([check_numerics(x, msg)], x)
        return checked
