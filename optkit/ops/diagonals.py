"""Diagonals of matrices, single or in batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optkit.errors import InvalidArgumentError
from optkit.graph import Operation, Tensor, get_default_graph
from optkit.ops.core import ALL_TYPES, Array, ArrayModule, as_tensor, composite, op
from optkit.ops.reductions import reduce_sum
from optkit.ops.reshaping import reshape, shape
from optkit.shapes import Shape

__all__ = ["diag", "diag_part", "matrix_diag", "matrix_diag_part", "trace"]


def _matrix_shape(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Shape:
    (x,) = inputs
    if x.sizes is None:
        return None
    if not x.sizes:
        raise ValueError(f"diagonal: expected at least one axis, got {x!r}")
    return (*x.sizes, x.sizes[-1])


@op("MatrixDiag", types=ALL_TYPES, shape=_matrix_shape)
def _matrix_diag(xp: ArrayModule, diagonal: Array) -> Array:
    n = diagonal.shape[-1]
    result = xp.zeros((*diagonal.shape, n), diagonal.dtype)
    result[..., xp.arange(n), xp.arange(n)] = diagonal
    return result


def _diagonal_shape(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Shape:
    (x,) = inputs
    if x.sizes is None:
        return None
    if len(x.sizes) < 2:
        raise ValueError(f"input: expected at least two axes, got {x!r}")
    rows, columns = x.sizes[-2:]
    known = None if rows is None or columns is None else min(rows, columns)
    return (*x.sizes[:-2], known)


@op("MatrixDiagPart", types=ALL_TYPES, shape=_diagonal_shape)
def _matrix_diag_part(xp: ArrayModule, input: Array) -> Array:
    return xp.diagonal(input, axis1=-2, axis2=-1)


@op("MatrixDiagPartGrad", types=ALL_TYPES, shape=lambda inputs, _: inputs[1].sizes)
def _spread_diagonal(xp: ArrayModule, dy: Array, like: Array) -> Array:
    """dy on the diagonal of zeros in the shape of `like`."""
    result = xp.zeros(like.shape, dy.dtype)
    n = dy.shape[-1]
    result[..., xp.arange(n), xp.arange(n)] = dy
    return result


@_matrix_diag.gradient
def _(_: Operation, dy: Tensor) -> Tensor:
    return _matrix_diag_part(dy)


@_matrix_diag_part.gradient
def _(node: Operation, dy: Tensor) -> Tensor:
    return _spread_diagonal(dy, node.inputs[0])


@_spread_diagonal.gradient
def _(_: Operation, dz: Tensor) -> tuple[Tensor, None]:
    return _matrix_diag_part(dz), None


@composite
def matrix_diag(diagonal: Any, name: str | None = None) -> Tensor:
    """Square matrices with `diagonal` (..., n) on their diagonals; shape (..., n, n)."""
    return _matrix_diag(diagonal, name=name or "MatrixDiag")


@composite
def matrix_diag_part(input: Any, name: str | None = None) -> Tensor:
    """The diagonals of matrices (..., n, m); shape (..., min(n, m))."""
    return _matrix_diag_part(input, name=name or "MatrixDiagPart")


@composite
def trace(x: Any, name: str | None = None) -> Tensor:
    """The sum of the diagonal of each matrix; shape (...) for x of shape (..., n, m)."""
    with get_default_graph().name_scope(name or "Trace"):
        return reduce_sum(_matrix_diag_part(as_tensor(x)), [-1])


def _doubled(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Shape:
    (x,) = inputs
    return None if x.sizes is None else (*x.sizes, *x.sizes)


@op("Diag", types=ALL_TYPES, shape=_doubled)
def _diag(xp: ArrayModule, diagonal: Array) -> Array:
    n = diagonal.size
    result = xp.zeros((n, n), diagonal.dtype)
    result[xp.arange(n), xp.arange(n)] = diagonal.reshape(-1)
    return result.reshape(diagonal.shape * 2)


def _halved(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Shape:
    (x,) = inputs
    if x.sizes is None:
        return None
    half = len(x.sizes) // 2
    if not x.sizes or len(x.sizes) % 2 or not x.shape[:half].is_compatible_with(x.shape[half:]):
        raise ValueError(f"input: expected a shape that is one shape twice, got {x!r}")
    sizes: Shape = x.shape[:half].merge_with(x.shape[half:]).sizes
    return sizes


@op("DiagPart", types=ALL_TYPES, shape=_halved)
def _diag_part(xp: ArrayModule, input: Array) -> Array:
    half = input.ndim // 2
    sizes = input.shape[:half]
    if not half or sizes != input.shape[half:]:
        raise InvalidArgumentError(
            f"input: expected a shape that is one shape twice, got {input.shape}"
        )
    n = 1
    for size in sizes:
        n *= size
    return xp.diagonal(input.reshape(n, n)).reshape(sizes)


@_diag.gradient
def _(node: Operation, dy: Tensor) -> Tensor:
    return reshape(_diag_part(dy), shape(node.inputs[0]))


@_diag_part.gradient
def _(_: Operation, dy: Tensor) -> Tensor:
    return _diag(dy)


@composite
def diag(diagonal: Any, name: str | None = None) -> Tensor:
    """`diagonal` of shape s on the diagonal of zeros of shape s + s."""
    return _diag(diagonal, name=name or "Diag")


@composite
def diag_part(input: Any, name: str | None = None) -> Tensor:
    """The diagonal, of shape s, of a tensor of shape s + s."""
    return _diag_part(input, name=name or "DiagPart")
