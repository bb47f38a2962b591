"""How layers read their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from optkit import initializers, nn
from optkit.dtypes import bool_
from optkit.graph import Tensor, is_symbolic
from optkit.ops.arguments import static_int
from optkit.ops.control import cond
from optkit.ops.core import as_tensor, constant_value
from optkit.shapes import TensorShape, dimension_value

__all__ = [
    "activation_of",
    "chosen",
    "format_argument",
    "initializer_of",
    "known_condition",
    "op_format",
    "padding_argument",
    "size_argument",
    "sizes_argument",
]


def activation_of(activation: Any) -> Callable[[Any], Any] | None:
    """The function that `activation` is or names; None for none.

    Raises:
        TypeError: it is neither.
    """
    if activation is None or activation == "linear":
        return None
    if isinstance(activation, str):
        activation = getattr(nn, activation, activation)
    if not callable(activation):
        raise TypeError(
            f"activation: expected a function, the name of one in nn, or None, got {activation!r}"
        )
    return activation  # type: ignore[no-any-return]


def initializer_of(initializer: Any) -> Any:
    """The initializer that is given or named; None for the scope's.

    Raises:
        ValueError: no initializer has that name.
    """
    if not isinstance(initializer, str):
        return initializer
    for name in (initializer, f"{initializer}_initializer"):
        found = getattr(initializers, name, None)
        if callable(found):
            return found()
    raise ValueError(
        f"initializer: expected an initializer or the name of one, got {initializer!r}"
    )


def known_condition(condition: Any, argument: str) -> bool | Tensor:
    """A condition as a bool where its value is known now, else as a bool tensor.

    Raises:
        TypeError: it is neither a bool (or 0 or 1) nor a bool tensor.
    """
    if is_symbolic(condition):
        tensor = as_tensor(condition)
        known = constant_value(tensor) if tensor.dtype is bool_ else None
        if known is None or known.ndim:
            if tensor.dtype is bool_ and tensor.sizes in ((), None):
                return tensor
            condition = tensor
        else:
            return bool(known)
    if is_symbolic(condition) or condition not in (True, False):
        raise TypeError(f"{argument}: expected a bool or a bool tensor, got {condition!r}")
    return bool(condition)


def chosen(condition: Any, when: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    """What `when` gives where a condition from `known_condition` holds, else what `otherwise` does.

    What is not known now is decided when the graph runs.
    """
    if isinstance(condition, bool):
        return when() if condition else otherwise()
    return cond(condition, when, otherwise)


def size_argument(value: Any, argument: str) -> int:
    """A size of at least 1; whole floats count, as in TF.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is below 1.
    """
    value = dimension_value(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    size = static_int(value, argument)
    if size < 1:
        raise ValueError(f"{argument}: expected a number >= 1, got {size}")
    return size


def format_argument(data_format: str | None) -> str:
    """Where the channels are: "channels_last" (None too) or "channels_first".

    Raises:
        ValueError: it is neither.
    """
    chosen_format = "channels_last" if data_format is None else data_format
    if chosen_format not in ("channels_last", "channels_first"):
        raise ValueError(
            f"data_format: expected channels_last or channels_first, got {data_format!r}"
        )
    return chosen_format


def sizes_argument(value: Any, count: int, argument: str) -> tuple[int, ...]:
    """`count` sizes, from as many numbers or from one for all.

    Raises:
        TypeError, ValueError: they are no whole numbers of at least 1, or another number of them.
    """
    several = isinstance(value, list | tuple | np.ndarray | TensorShape)
    items = list(value) if several else [value] * count
    if len(items) != count:
        raise ValueError(
            f"{argument}: expected a number or a list of {count} numbers, got {value!r}"
        )
    return tuple(size_argument(item, argument) for item in items)


def padding_argument(padding: Any) -> str:
    """The padding as layers write it: "valid" or "same".

    Raises:
        ValueError: it is neither.
    """
    written = padding.lower() if isinstance(padding, str) else padding
    if written not in ("valid", "same"):
        raise ValueError(f"padding: expected valid or same, got {padding!r}")
    return str(written)


def op_format(data_format: str, rank: int) -> str:
    """The data_format of an op for images (rank 2) or sequences, from a layer's."""
    spatial = "HW"[2 - rank :]
    return f"N{spatial}C" if data_format == "channels_last" else f"NC{spatial}"
