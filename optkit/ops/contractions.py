"""Sums of products over named axes: `einsum` and `tensordot`."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from optkit.backend.special import wide_dtype
from optkit.dtypes import FLOATS, int32, int64
from optkit.graph import Operation, Tensor, is_symbolic
from optkit.ops.arguments import axis_in, static_ints
from optkit.ops.array import ones_like
from optkit.ops.core import Array, ArrayModule, as_tensor, composite, constant_value, op
from optkit.shapes import Shape

__all__ = ["einsum", "tensordot"]


def _contracted(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Shape:
    parts, result = attrs["parts"], attrs["result"]
    sizes: dict[str, int | None] = {}
    for part, x in zip(parts, inputs, strict=True):
        if x.sizes is None:
            continue
        if len(x.sizes) != len(part):
            raise ValueError(f"equation: {part!r} names {len(part)} axes, got {x!r}")
        for label, size in zip(part, x.sizes, strict=True):
            known = sizes.get(label)
            broadcasts = label in attrs["free"] and 1 in (known, size)
            if known is not None and size is not None and known != size and not broadcasts:
                raise ValueError(f"axis {label!r}: expected size {known}, got {size} in {x!r}")
            if known is None or (known == 1 and label in attrs["free"]):
                sizes[label] = size
    return tuple(sizes.get(label) for label in result)


@op("Einsum", types=FLOATS | {int32, int64}, shape=_contracted, broadcasts=True)
def _einsum(
    xp: ArrayModule, *inputs: Array, parts: tuple[str, ...], result: str, free: str
) -> Array:
    dtype = inputs[0].dtype
    wide = wide_dtype(dtype)
    arrays = [x.astype(wide, copy=False) for x in inputs]
    found = xp.einsum(f"{','.join(parts)}->{result}", *arrays, optimize=len(arrays) > 1)
    return found.astype(dtype, copy=False)


@_einsum.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, ...]:
    """For each input the same sum with dy in its place."""
    parts, result, free = (node.attrs[key] for key in ("parts", "result", "free"))
    gradients = []
    for i, (part, x) in enumerate(zip(parts, node.inputs, strict=True)):
        others = [(p, y) for j, (p, y) in enumerate(zip(parts, node.inputs, strict=True)) if j != i]
        operands = [(result, dy), *others]
        if set(part) - set("".join(p for p, _ in operands)):
            # An axis that only x has was summed out: its gradient is the same all along it.
            operands.append((part, ones_like(x)))
        gradients.append(
            _einsum(
                *(y for _, y in operands),
                parts=tuple(p for p, _ in operands),
                result=part,
                free=free,
            )
        )
    return tuple(gradients)


_EQUATION = re.compile(r"[A-Za-z.,]+(->[A-Za-z.]*)?")


@composite
def einsum(equation: str, *inputs: Any, **kwargs: Any) -> Tensor:
    """Products summed over the axes that the result does not name: "ij,jk->ik" is matmul.

    Without "->" the result has, in alphabetical order, the letters that occur once. "..." stands
    for further axes, which broadcast; then ranks must be known.

    Args:
        equation: a letter an axis, operands parted by commas.
        inputs: tensors of one dtype, one an operand, or a list of them.
        kwargs: only `name`.

    Raises:
        ValueError: the equation is malformed or does not fit the inputs, or names one axis twice
            in an operand.
        TypeError: an unknown argument, or unlike dtypes.
    """
    name = kwargs.pop("name", None)
    if kwargs:
        raise TypeError(f"einsum: unknown arguments {sorted(kwargs)}")
    if not isinstance(equation, str):
        raise TypeError(f"equation: expected a string, got {equation!r}")
    if len(inputs) == 1 and isinstance(inputs[0], list | tuple):
        inputs = tuple(inputs[0])
    text = equation.replace(" ", "")
    if not _EQUATION.fullmatch(text.replace("...", ".")):
        raise ValueError(f"equation: expected letters such as 'ij,jk->ik', got {equation!r}")
    left, arrow, result = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(inputs):
        raise ValueError(
            f"equation: {equation!r} has {len(parts)} operands, got {len(inputs)} inputs"
        )
    if not arrow:
        counts = Counter(left.replace(",", "").replace(".", ""))
        dots = "..." if "..." in left else ""
        result = dots + "".join(sorted(x for x, count in counts.items() if count == 1))
    tensors = _operands(inputs)
    parts, result, free = _spelled(equation, parts, result, tensors)
    for part in (*parts, result):
        if len(set(part)) != len(part):
            raise ValueError(f"equation: {equation!r} names an axis twice in one operand")
    unknown = set(result) - set("".join(parts))
    if unknown:
        raise ValueError(f"equation: no operand of {equation!r} has {sorted(unknown)}")
    return _einsum(*tensors, parts=tuple(parts), result=result, free=free, name=name or "einsum")


def _operands(inputs: Sequence[Any]) -> list[Tensor]:
    """As tensors; numbers take the dtype of the first tensor."""
    lead = next((as_tensor(x) for x in inputs if is_symbolic(x)), None)
    dtype = None if lead is None else lead.dtype
    return [as_tensor(x) if is_symbolic(x) else as_tensor(x, dtype) for x in inputs]


def _spelled(
    equation: str, parts: list[str], result: str, tensors: Sequence[Tensor]
) -> tuple[list[str], str, str]:
    """The parts with a letter for each axis behind "...", and those letters."""
    if "." not in "".join(parts) + result:
        return parts, result, ""
    unused = [letter for letter in string.ascii_letters if letter not in equation]
    spelled, widest = [], 0
    for part, x in zip(parts, tensors, strict=True):
        if "." in part:
            if x.sizes is None:
                raise ValueError(f"equation: '...' needs a known rank, got {x!r}")
            width = len(x.sizes) - len(part.replace("...", ""))
            if width < 0:
                raise ValueError(f"equation: {part!r} names too many axes for {x!r}")
            widest = max(widest, width)
            part = part.replace("...", "".join(unused[:width][::-1]))
        spelled.append(part)
    free = "".join(unused[:widest][::-1])
    return spelled, result.replace("...", free), free


@composite
def tensordot(a: Any, b: Any, axes: Any, name: str | None = None) -> Tensor:
    """The sum of products of a and b over pairs of axes; what is left of a, then of b.

    Args:
        a: of known rank.
        b: of known rank and the dtype of a.
        axes: how many last axes of a go with the first ones of b; or a pair of lists, the axes of
            a and those of b that go together.
        name: the node's name.

    Raises:
        ValueError: the axes do not fit, or a rank is not known.
    """
    x, y = _operands([a, b])
    for letter, tensor in (("a", x), ("b", y)):
        if tensor.sizes is None:
            raise ValueError(f"{letter}: expected a known rank, got {tensor!r}")
    left, right = _paired(x, y, axes)
    letters = iter(string.ascii_letters)
    first = [next(letters) for _ in x.sizes or ()]
    second = [next(letters) for _ in y.sizes or ()]
    for i, j in zip(left, right, strict=True):
        second[j] = first[i]
    kept = [label for label in first + second if (label in first) != (label in second)]
    return _einsum(
        x,
        y,
        parts=("".join(first), "".join(second)),
        result="".join(kept),
        free="",
        name=name or "Tensordot",
    )


def _paired(x: Tensor, y: Tensor, axes: Any) -> tuple[list[int], list[int]]:
    ranks = len(x.sizes or ()), len(y.sizes or ())
    if is_symbolic(axes):
        known = constant_value(axes)
        if known is None:
            raise ValueError(f"axes: expected ints or a constant, got {axes!r}")
        axes = known.tolist()
    if isinstance(axes, int | np.integer) and not isinstance(axes, bool):
        count = int(axes)
        if not 0 <= count <= min(ranks):
            raise ValueError(f"axes: expected a count in [0, {min(ranks)}], got {count}")
        return list(range(ranks[0] - count, ranks[0])), list(range(count))
    if not isinstance(axes, list | tuple | np.ndarray) or len(axes) != 2:
        raise ValueError(f"axes: expected an int or a pair of lists, got {axes!r}")
    pair = [
        [axis_in(axis, rank, "axes") for axis in static_ints(given, "axes")]
        for given, rank in zip(axes, ranks, strict=True)
    ]
    if len(pair[0]) != len(pair[1]) or any(len(set(part)) != len(part) for part in pair):
        raise ValueError(f"axes: expected as many different axes of a as of b, got {axes!r}")
    return pair[0], pair[1]
