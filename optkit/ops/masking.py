"""Sequences of unequal length: masks, what they select, and reversal; grids of coordinates."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from optkit.dtypes import as_dtype, bool_
from optkit.errors import InvalidArgumentError
from optkit.graph import Operation, Tensor, get_default_graph
from optkit.ops.arguments import axis_in, one_of, static_int, static_ints
from optkit.ops.array import concat
from optkit.ops.core import (
    ALL_TYPES,
    INDEX_TYPES,
    Array,
    ArrayModule,
    as_tensor,
    composite,
    constant_value,
    op,
)
from optkit.ops.elementary import sqrt
from optkit.ops.indexing import gather, where
from optkit.ops.logic import less
from optkit.ops.math import abs, cast, maximum, multiply, pow
from optkit.ops.reductions import reduce_max, reduce_sum
from optkit.ops.reshaping import broadcast_to, expand_dims, reshape, shape, squeeze
from optkit.ops.sequences import range
from optkit.shapes import Shape

__all__ = ["boolean_mask", "meshgrid", "norm", "reverse_sequence", "sequence_mask"]


@composite
def sequence_mask(
    lengths: Any, maxlen: Any = None, dtype: Any = bool_, name: str | None = None
) -> Tensor:
    """True at the first `lengths[i]` places of row i; shape lengths.shape + (maxlen,).

    Args:
        lengths: integers of any shape.
        maxlen: the length of a row; the largest of `lengths` if None.
        dtype: of the result; numbers are 1 and 0.
        name: the name scope.

    Raises:
        TypeError: the lengths are no integers.
        ValueError: maxlen is no scalar.
    """
    with get_default_graph().name_scope(name or "SequenceMask"):
        counts = as_tensor(lengths, name="lengths")
        if counts.dtype not in INDEX_TYPES:
            raise TypeError(f"lengths: expected int32 or int64, got {counts!r}")
        if maxlen is None:
            limit = maximum(reduce_max(counts), 0)
        else:
            limit = as_tensor(maxlen, name="maxlen")
            if limit.shape.ndims not in (None, 0):
                raise ValueError(f"maxlen: expected a scalar, got {limit!r}")
            if limit.dtype not in INDEX_TYPES:
                raise TypeError(f"maxlen: expected int32 or int64, got {limit!r}")
        places = range(0, cast(limit, counts.dtype))
        mask = less(places, expand_dims(counts, -1))
        wanted = as_dtype(dtype)
        return mask if wanted is bool_ else cast(mask, wanted)


@composite
def boolean_mask(tensor: Any, mask: Any, name: str = "boolean_mask", axis: Any = None) -> Tensor:
    """The elements (rows, ...) of `tensor` where `mask` is true, along one axis.

    Args:
        tensor: any dtype.
        mask: bool, of known rank k > 0; its shape is that of k axes of `tensor`.
        name: the name scope.
        axis: the first of those axes; 0 if None.

    Raises:
        ValueError: the mask is a scalar, of unknown rank, or does not fit.
        TypeError: the mask is not bool.
    """
    with get_default_graph().name_scope(name):
        x, chosen = as_tensor(tensor, name="tensor"), as_tensor(mask, name="mask")
        if chosen.dtype is not bool_:
            raise TypeError(f"mask: expected bool, got {chosen!r}")
        width = chosen.shape.ndims
        if not width:
            raise ValueError(f"mask: expected a known rank of at least 1, got {chosen!r}")
        first = 0 if axis is None else static_int(axis, "axis")
        if x.sizes is not None:
            first = axis_in(first, len(x.sizes))
        elif first < 0:
            raise ValueError(f"axis: expected one >= 0 for a tensor of unknown rank, got {first}")
        masked = x.shape[first : first + width]
        if x.sizes is not None and not masked.is_compatible_with(chosen.sizes):
            raise ValueError(f"mask: expected shape {masked}, got {chosen!r}")
        sizes = shape(x)
        merged = concat([sizes[:first], [-1], sizes[first + width :]], 0)
        # A mask of fewer elements than the axes would pick from the front only.
        flat = _checked_mask(reshape(chosen, [-1]), sizes, shape(chosen), first)
        places = reshape(where(flat), [-1])
        result = gather(reshape(x, merged), places, axis=first)
        if x.sizes is not None:
            result.set_shape(
                x.shape[:first].concatenate([None]).concatenate(x.shape[first + width :])
            )
        return result


@op(
    "CheckedMask",
    types={bool_},
    accepts={"sizes": INDEX_TYPES, "masked": INDEX_TYPES},
    host=("sizes", "masked"),
    differentiable=False,
)
def _mask_that_fits(
    xp: ArrayModule, mask: Array, sizes: Array, masked: Array, *, axis: int
) -> Array:
    """The mask, once its shape is known to be that of the tensor's axes."""
    expected = sizes[axis : axis + masked.size]
    if not np.array_equal(expected, masked):
        raise InvalidArgumentError(
            f"mask: expected shape {tuple(expected.tolist())}, got {tuple(masked.tolist())}"
        )
    return mask


def _checked_mask(mask: Tensor, sizes: Tensor, masked: Tensor, axis: int) -> Tensor:
    known = constant_value(sizes), constant_value(masked)
    if all(part is not None for part in known):
        return mask
    return _mask_that_fits(mask, sizes, masked, axis=axis)


# -- reversal -------------------------------------------------------------------------------------


def _reversed_shape(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Shape:
    x, lengths = inputs
    if lengths.shape.ndims not in (None, 1):
        raise ValueError(f"seq_lengths: expected a vector, got {lengths!r}")
    if x.sizes is None:
        return None
    batch = axis_in(attrs["batch_axis"], len(x.sizes), "batch_axis")
    along = axis_in(attrs["seq_axis"], len(x.sizes), "seq_axis")
    if batch == along:
        raise ValueError(f"seq_axis and batch_axis: expected different axes, got {batch} twice")
    rows = lengths.sizes[0] if lengths.sizes else None
    if None not in (rows, x.sizes[batch]) and rows != x.sizes[batch]:
        raise ValueError(f"seq_lengths: expected {x.sizes[batch]} of them, got {lengths!r}")
    return x.sizes


@op(
    "ReverseSequence",
    types=ALL_TYPES,
    accepts={"seq_lengths": INDEX_TYPES},
    shape=_reversed_shape,
)
def _reverse_sequence(
    xp: ArrayModule, input: Array, seq_lengths: Array, *, seq_axis: int, batch_axis: int
) -> Array:
    n = input.shape[seq_axis]
    if bool((seq_lengths < 0).any()) or bool((seq_lengths > n).any()):
        raise InvalidArgumentError(f"seq_lengths: expected numbers in [0, {n}], got {seq_lengths}")
    rows = xp.moveaxis(input, (batch_axis, seq_axis), (0, 1))
    steps = xp.arange(n)[None, :]
    ends = seq_lengths[:, None]
    places = xp.where(steps < ends, ends - 1 - steps, steps)
    turned = rows[xp.arange(rows.shape[0])[:, None], places]
    return xp.moveaxis(turned, (0, 1), (batch_axis, seq_axis))


@_reverse_sequence.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, None]:
    return _reverse_sequence(dy, node.inputs[1], **node.attrs), None


@composite
def reverse_sequence(
    input: Any,
    seq_lengths: Any,
    seq_axis: Any = None,
    batch_axis: Any = None,
    name: str | None = None,
    seq_dim: Any = None,
    batch_dim: Any = None,
) -> Tensor:
    """Each row's first `seq_lengths[i]` elements in reverse order, the rest as it is.

    Args:
        input: any dtype, at least two axes.
        seq_lengths: int32 or int64, one a row.
        seq_axis: the axis along which is reversed.
        batch_axis: the axis of the rows; 0 if None.
        name: the node's name.
        seq_dim: the old name of `seq_axis`.
        batch_dim: the old name of `batch_axis`.
    """
    along = one_of("seq_axis", seq_axis, "seq_dim", seq_dim)
    if along is None:
        raise ValueError("seq_axis: expected an axis, got None")
    batch = one_of("batch_axis", batch_axis, "batch_dim", batch_dim)
    return _reverse_sequence(
        input,
        seq_lengths,
        seq_axis=static_int(along, "seq_axis"),
        batch_axis=0 if batch is None else static_int(batch, "batch_axis"),
        name=name or "ReverseSequence",
    )


# -- grids ----------------------------------------------------------------------------------------


@composite
def meshgrid(*args: Any, indexing: str = "xy", name: str | None = None) -> list[Tensor]:
    """For each vector a tensor that runs along one axis as the vector does, as np.meshgrid.

    Args:
        args: vectors of one dtype; scalars count as vectors of one element.
        indexing: "xy" exchanges the first two axes, "ij" does not.
        name: the name scope.

    Raises:
        ValueError: an argument has more than one axis, or another `indexing`.
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"indexing: expected 'xy' or 'ij', got {indexing!r}")
    with get_default_graph().name_scope(name or "meshgrid"):
        vectors = [as_tensor(arg) for arg in args]
        for i, vector in enumerate(vectors):
            if vector.shape.ndims not in (None, 0, 1):
                raise ValueError(f"args[{i}]: expected a vector, got {vector!r}")
        order = list(builtins.range(len(vectors)))
        if indexing == "xy" and len(order) > 1:
            order[:2] = 1, 0
        flat = [reshape(vector, [-1]) for vector in vectors]
        sizes = concat([shape(flat[i]) for i in order], 0) if flat else None
        grids = []
        for i, vector in enumerate(flat):
            lined = reshape(vector, [-1 if j == i else 1 for j in order])
            grids.append(broadcast_to(lined, sizes))
        return grids


# -- norms ----------------------------------------------------------------------------------------


@composite
def norm(
    tensor: Any,
    ord: Any = "euclidean",  # noqa: A002 - TF1's name
    axis: Any = None,
    keepdims: Any = None,
    name: str | None = None,
    keep_dims: Any = None,
) -> Tensor:
    """A norm of vectors, or of matrices.

    Args:
        tensor: floats.
        ord: "euclidean" (for matrices "fro" too), 1, 2 (vectors only), np.inf or another
            p > 0: (Σ|x|^p)^(1/p). Of a matrix, 1 and np.inf are the largest column and row sums.
        axis: of the vectors; a pair for matrices; None takes all elements as one vector.
        keepdims: whether the axes stay with size 1.
        name: the name scope.
        keep_dims: the old name of `keepdims`.

    Raises:
        ValueError: there is no such norm for that many axes.
    """
    keep = bool(one_of("keepdims", keepdims, "keep_dims", keep_dims))
    axes = None if axis is None else static_ints(axis, "axis")
    matrices = axes is not None and len(axes) == 2 and isinstance(axis, list | tuple)
    if axes is not None and len(axes) != 1 and not matrices:
        raise ValueError(f"axis: expected an int, a pair of ints or None, got {axis!r}")
    known = ["euclidean", "fro", 1, np.inf] if matrices else ["euclidean", 1, 2, np.inf]
    positive = not isinstance(ord, str) and ord > 0 and not matrices
    if ord not in known and not positive:
        raise ValueError(f"ord: expected one of {known}, got {ord!r}")
    with get_default_graph().name_scope(name or "norm"):
        x = as_tensor(tensor)
        if matrices and ord in (1, np.inf):
            rank = x.shape.ndims
            if rank is None:
                raise ValueError(f"tensor: expected a known rank, got {x!r}")
            rows, columns = (axis_in(item, rank) for item in axes or ())
            added, compared = (rows, columns) if ord == 1 else (columns, rows)
            sums = reduce_sum(abs(x), added, keepdims=True)
            largest = reduce_max(sums, compared, keepdims=True)
            return largest if keep else squeeze(largest, [rows, columns])
        if ord in ("euclidean", "fro", 2):
            return sqrt(reduce_sum(multiply(x, x), axes, keepdims=keep))
        if ord == 1:
            return reduce_sum(abs(x), axes, keepdims=keep)
        if ord == np.inf:
            return reduce_max(abs(x), axes, keepdims=keep)
        return pow(reduce_sum(pow(abs(x), ord), axes, keepdims=keep), 1.0 / ord)
