"""Static shapes: TF1's `TensorShape` and `Dimension`, with unknown rank and unknown sizes.

>>> TensorShape([None, 3]).merge_with([2, None]) == [2, 3]
True
>>> TensorShape([None, 3])[1].value, TensorShape(None).ndims
(3, None)
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np

__all__ = [
    "Dimension",
    "Shape",
    "TensorShape",
    "as_shape",
    "broadcast_static",
    "dimension_value",
    "fits",
]

Shape: TypeAlias = tuple[int | None, ...] | None
"""A static shape inside optkit: a tuple with None for unknown sizes, or None for unknown rank."""


class Dimension:
    """One size of a shape: a non-negative int, or unknown (`value` is None).

    Arithmetic with an unknown size gives an unknown size.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        if isinstance(value, Dimension):
            value = value.value
        if value is not None:
            if isinstance(value, bool):
                raise TypeError(f"dimension: expected an int or None, got {value!r}")
            try:
                value = operator.index(value)
            except TypeError:
                raise TypeError(f"dimension: expected an int or None, got {value!r}") from None
            if value < 0:
                raise ValueError(f"dimension: expected a size >= 0, got {value}")
        self.value: int | None = value

    def _binary(self, other: Any, function: Any) -> Dimension:
        other = Dimension(other).value
        if self.value is None or other is None:
            return Dimension(None)
        return Dimension(function(self.value, other))

    def __add__(self, other: Any) -> Dimension:
        return self._binary(other, operator.add)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Dimension:
        return self._binary(other, operator.sub)

    def __rsub__(self, other: Any) -> Dimension:
        return Dimension(other) - self

    def __mul__(self, other: Any) -> Dimension:
        return self._binary(other, operator.mul)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Dimension:
        return self._binary(other, operator.floordiv)

    def __rfloordiv__(self, other: Any) -> Dimension:
        return Dimension(other) // self

    def __mod__(self, other: Any) -> Dimension:
        return self._binary(other, operator.mod)

    def __rmod__(self, other: Any) -> Dimension:
        return Dimension(other) % self

    def __truediv__(self, other: Any) -> NoReturn:
        raise TypeError(f"a dimension is whole: use {self} // {other} instead of /")

    def __rtruediv__(self, other: Any) -> NoReturn:
        raise TypeError(f"a dimension is whole: use {other} // {self} instead of /")

    def __index__(self) -> int:
        if self.value is None:
            raise TypeError("this dimension is unknown until the graph runs; use optkit.shape(x)")
        return self.value

    __int__ = __index__

    # As in TF1, a comparison with an unknown size is None: neither true nor false.

    def _compared(self, other: Any, function: Any) -> Any:
        try:
            other = Dimension(other).value
        except (TypeError, ValueError):
            return NotImplemented
        return None if self.value is None or other is None else function(self.value, other)

    def __eq__(self, other: object) -> Any:
        return self._compared(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return self._compared(other, operator.ne)

    def __hash__(self) -> int:
        return hash(self.value)

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, operator.lt)

    def __le__(self, other: Any) -> Any:
        return self._compared(other, operator.le)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, operator.gt)

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, operator.ge)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __repr__(self) -> str:
        return f"Dimension({self.value})"

    def __str__(self) -> str:
        return "?" if self.value is None else str(self.value)

    def is_compatible_with(self, other: Any) -> bool:
        """Whether both can be the same size."""
        other = Dimension(other).value
        return self.value is None or other is None or self.value == other

    def merge_with(self, other: Any) -> Dimension:
        """The size that both are, the known one where one is unknown."""
        other = Dimension(other)
        if not self.is_compatible_with(other):
            raise ValueError(f"dimensions {self} and {other} are not compatible")
        return self if self.value is not None else other


def dimension_value(dimension: Any) -> int | None:
    """The int or None behind a `Dimension`, an int or None."""
    return dimension.value if isinstance(dimension, Dimension) else dimension


class TensorShape:
    """A static shape: known, partly known, or of unknown rank (`TensorShape(None)`)."""

    __slots__ = ("sizes",)

    def __init__(self, dims: Any) -> None:
        self.sizes: Shape = as_shape(dims)

    @property
    def dims(self) -> list[Dimension] | None:
        """The sizes as `Dimension` objects, None for unknown rank."""
        return None if self.sizes is None else [Dimension(size) for size in self.sizes]

    @property
    def ndims(self) -> int | None:
        """The number of axes, None for unknown rank."""
        return None if self.sizes is None else len(self.sizes)

    @property
    def rank(self) -> int | None:
        """The number of axes, None for unknown rank."""
        return self.ndims

    def as_list(self) -> list[int | None]:
        """The sizes, None for unknown ones.

        Raises:
            ValueError: the rank is unknown.
        """
        return list(self._known())

    def as_proto(self) -> list[int]:
        """The sizes with -1 for unknown ones."""
        return [-1 if size is None else size for size in self._known()]

    def num_elements(self) -> int | None:
        """The product of the sizes, None unless all are known."""
        if self.sizes is None:
            return None
        product = 1
        for size in self.sizes:
            if size is None:
                return None
            product *= size
        return product

    def is_fully_defined(self) -> bool:
        """Whether rank and all sizes are known."""
        return self.sizes is not None and None not in self.sizes

    def assert_is_fully_defined(self) -> None:
        """Raise ValueError unless rank and all sizes are known."""
        if not self.is_fully_defined():
            raise ValueError(f"shape {self} is not fully defined")

    def assert_has_rank(self, rank: int) -> None:
        """Raise ValueError when the rank is known and another."""
        if self.ndims not in (None, rank):
            raise ValueError(f"shape {self} has rank {self.ndims}, expected {rank}")

    def with_rank(self, rank: int) -> TensorShape:
        """This shape, with the rank known; ValueError when it is another."""
        self.assert_has_rank(rank)
        return self.merge_with(TensorShape([None] * rank))

    def with_rank_at_least(self, rank: int) -> TensorShape:
        """This shape; ValueError when it has fewer axes."""
        if self.ndims is not None and self.ndims < rank:
            raise ValueError(f"shape {self} has rank {self.ndims}, expected at least {rank}")
        return self

    def with_rank_at_most(self, rank: int) -> TensorShape:
        """This shape; ValueError when it has more axes."""
        if self.ndims is not None and self.ndims > rank:
            raise ValueError(f"shape {self} has rank {self.ndims}, expected at most {rank}")
        return self

    def assert_same_rank(self, other: Any) -> None:
        """Raise ValueError when both ranks are known and differ."""
        other = TensorShape(other)
        if None not in (self.ndims, other.ndims) and self.ndims != other.ndims:
            raise ValueError(f"shapes {self} and {other} have different ranks")

    def is_compatible_with(self, other: Any) -> bool:
        """Whether both can be the shape of one array."""
        other = as_shape(other)
        if self.sizes is None or other is None:
            return True
        return len(self.sizes) == len(other) and all(
            a is None or b is None or a == b for a, b in zip(self.sizes, other, strict=True)
        )

    def assert_is_compatible_with(self, other: Any) -> None:
        """Raise ValueError unless both can be the shape of one array."""
        if not self.is_compatible_with(other):
            raise ValueError(f"shapes {self} and {TensorShape(other)} are not compatible")

    def merge_with(self, other: Any) -> TensorShape:
        """All that is known of one array of both shapes.

        Raises:
            ValueError: no array can have both.
        """
        self.assert_is_compatible_with(other)
        other = as_shape(other)
        if self.sizes is None:
            return TensorShape(other)
        if other is None:
            return self
        return TensorShape([b if a is None else a for a, b in zip(self.sizes, other, strict=True)])

    merge = merge_with

    def most_specific_compatible_shape(self, other: Any) -> TensorShape:
        """What arrays of both shapes have in common; sizes that differ are unknown."""
        other = as_shape(other)
        if self.sizes is None or other is None or len(self.sizes) != len(other):
            return TensorShape(None)
        return TensorShape([a if a == b else None for a, b in zip(self.sizes, other, strict=True)])

    def concatenate(self, other: Any) -> TensorShape:
        """The axes of both, one after the other."""
        other = as_shape(other)
        if self.sizes is None or other is None:
            return TensorShape(None)
        return TensorShape(self.sizes + other)

    def _known(self) -> tuple[int | None, ...]:
        if self.sizes is None:
            raise ValueError("the shape has an unknown rank")
        return self.sizes

    def __len__(self) -> int:
        return len(self._known())

    def __bool__(self) -> bool:
        return self.sizes is not None

    def __iter__(self) -> Iterator[Dimension]:
        return iter([Dimension(size) for size in self._known()])

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return TensorShape(_sizes_between(key) if self.sizes is None else self.sizes[key])
        return Dimension(None if self.sizes is None else self.sizes[key])

    def __eq__(self, other: object) -> bool:
        try:
            return self.sizes == as_shape(other)
        except (TypeError, ValueError):
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self.sizes)

    def __add__(self, other: Any) -> TensorShape:
        return self.concatenate(other)

    def __radd__(self, other: Any) -> TensorShape:
        return TensorShape(other).concatenate(self)

    def __repr__(self) -> str:
        return f"TensorShape({None if self.sizes is None else list(self.sizes)})"

    def __str__(self) -> str:
        if self.sizes is None:
            return "<unknown>"
        inner = ", ".join("?" if size is None else str(size) for size in self.sizes)
        return f"({inner},)" if len(self.sizes) == 1 else f"({inner})"


def _sizes_between(key: slice) -> Shape:
    """A slice of a shape of unknown rank: its length may be known all the same."""
    start, stop = key.start or 0, key.stop
    if key.step not in (None, 1) or stop is None or start < 0 or stop < start:
        return None
    count: int = stop - start
    return (None,) * count


def as_shape(value: Any) -> Shape:
    """`value` as a tuple of sizes or None; accepts a TensorShape, an int, a sequence or None.

    Raises:
        TypeError: `value` is no shape.
        ValueError: a size is negative (-1 is an unknown size only where an op says so).
    """
    if value is None:
        return None
    if isinstance(value, TensorShape):
        return value.sizes
    if isinstance(value, Dimension | int | np.integer):
        return (Dimension(value).value,)
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"shape: expected a list of sizes, an int or None, got {value!r}")
    return tuple(Dimension(size).value for size in value)


def fits(static: Shape, sizes: tuple[int, ...]) -> bool:
    """Whether an array of these sizes has a static shape."""
    if static is None or static == sizes:
        return True
    return len(static) == len(sizes) and all(
        known is None or known == size for known, size in zip(static, sizes, strict=True)
    )


def broadcast_static(shapes: Sequence[Shape]) -> Shape:
    """The shape NumPy's broadcasting gives, as far as it is known.

    Raises:
        ValueError: the shapes do not broadcast.
    """
    known = [shape for shape in shapes if shape is not None]
    rank = max((len(shape) for shape in known), default=0)
    sizes: list[int | None] = []
    for axis in range(-rank, 0):
        column = [shape[axis] for shape in known if -axis <= len(shape)]
        wide = {size for size in column if size is not None and size != 1}
        if len(wide) > 1:
            raise ValueError(
                f"shapes {' and '.join(str(TensorShape(s)) for s in shapes)} do not broadcast"
            )
        if wide:
            sizes.append(wide.pop())
        else:
            sizes.append(None if None in column else 1)
    return tuple(sizes) if len(known) == len(shapes) else None
