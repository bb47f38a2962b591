"""Matrix products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from optkit.backend.special import wide_dtype
from optkit.dtypes import FLOATS, as_dtype, float32, int32, int64
from optkit.graph import OPERATORS, Operation, Tensor, is_symbolic
from optkit.ops.arguments import static_int, static_ints
from optkit.ops.array import expand_dims, squeeze
from optkit.ops.core import Array, ArrayModule, as_tensor, composite, constant, op
from optkit.ops.math import multiply
from optkit.ops.reductions import reduce_sum
from optkit.shapes import Shape, broadcast_static

__all__ = ["eye", "matmul"]

_TYPES = FLOATS | {int32, int64}


def _product_shape(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Shape:
    a, b = (x.sizes for x in inputs)
    if a is None or b is None:
        return None
    rows, inner = a[-2:][::-1] if attrs["transpose_a"] else a[-2:]
    other, columns = b[-2:][::-1] if attrs["transpose_b"] else b[-2:]
    if inner is not None and other is not None and inner != other:
        raise ValueError(
            f"expected equal inner sizes, got {inner} for a and {other} for b (transpose_a="
            f"{attrs['transpose_a']}, transpose_b={attrs['transpose_b']})"
        )
    batch = broadcast_static([a[:-2], b[:-2]])
    return None if batch is None else (*batch, rows, columns)


def _product(
    xp: ArrayModule,
    a: Array,
    b: Array,
    transpose_a: bool,
    transpose_b: bool,
    out: Array | None = None,
) -> Array:
    dtype = a.dtype
    wide = wide_dtype(dtype)  # BLAS has no float16
    a, b = a.astype(wide, copy=False), b.astype(wide, copy=False)
    a = a.swapaxes(-1, -2) if transpose_a else a
    b = b.swapaxes(-1, -2) if transpose_b else b
    if out is None:
        return xp.matmul(a, b).astype(dtype, copy=False)
    if wide == dtype:
        return xp.matmul(a, b, out=out)
    out[...] = xp.matmul(a, b)
    return out


@op("MatMul", types=_TYPES, shape=_product_shape)
def _matmul(xp: ArrayModule, a: Array, b: Array, *, transpose_a: bool, transpose_b: bool) -> Array:
    return _product(xp, a, b, transpose_a, transpose_b)


@op("BatchMatMulV2", types=_TYPES, shape=_product_shape, broadcasts=True)
def _batch_matmul(
    xp: ArrayModule, a: Array, b: Array, *, transpose_a: bool, transpose_b: bool
) -> Array:
    return _product(xp, a, b, transpose_a, transpose_b)


@_matmul.into
@_batch_matmul.into
def _(
    xp: ArrayModule, a: Array, b: Array, *, transpose_a: bool, transpose_b: bool, out: Array
) -> Array:
    return _product(xp, a, b, transpose_a, transpose_b, out)


@_matmul.gradient
@_batch_matmul.gradient
def _matmul_gradient(node: Operation, dy: Tensor) -> tuple[Tensor, Tensor]:
    a, b = node.inputs
    transpose_a, transpose_b = node.attrs["transpose_a"], node.attrs["transpose_b"]
    if transpose_a:
        da = matmul(b, dy, transpose_a=transpose_b, transpose_b=True)
    else:
        da = matmul(dy, b, transpose_b=not transpose_b)
    if transpose_b:
        db = matmul(dy, a, transpose_a=True, transpose_b=transpose_a)
    else:
        db = matmul(a, dy, transpose_a=not transpose_a)
    return da, db


@composite
def matmul(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> Tensor:
    """The matrix product a·b over the last two axes; axes before them are a batch and broadcast.

    Args:
        a: shape (..., n, k), or (..., k, n) when transposed.
        b: shape (..., k, m), or (..., m, k) when transposed; the dtype of a.
        transpose_a: use a with its last two axes exchanged.
        transpose_b: use b with its last two axes exchanged.
        adjoint_a: the same as `transpose_a` for real numbers.
        adjoint_b: the same as `transpose_b` for real numbers.
        a_is_sparse: a hint, not needed here.
        b_is_sparse: a hint, not needed here.
        name: the operation's name.

    Raises:
        ValueError: fewer than two axes, unequal inner sizes, or a matrix both transposed and
            adjoint.
        TypeError: the dtypes differ, or are neither floats nor int32 nor int64.
    """
    for letter, transpose, adjoint in (
        ("a", transpose_a, adjoint_a),
        ("b", transpose_b, adjoint_b),
    ):
        if transpose and adjoint:
            raise ValueError(f"transpose_{letter} and adjoint_{letter}: expected one at most")
    name = name or "MatMul"
    x, y = _as_pair(a, b)
    for letter, tensor in (("a", x), ("b", y)):
        if tensor.sizes is not None and len(tensor.sizes) < 2:
            raise ValueError(
                f"MatMul {name!r}: {letter}: expected at least two axes, got {tensor!r}"
            )
    plain = all(tensor.sizes is not None and len(tensor.sizes) == 2 for tensor in (x, y))
    return (_matmul if plain else _batch_matmul)(
        x,
        y,
        transpose_a=bool(transpose_a or adjoint_a),
        transpose_b=bool(transpose_b or adjoint_b),
        name=name,
    )


@composite
def eye(
    num_rows: Any,
    num_columns: Any = None,
    batch_shape: Any = None,
    dtype: Any = float32,
    name: str | None = None,
) -> Tensor:
    """Ones on the diagonal, else zeros; all sizes must be known when the graph is built.

    Args:
        num_rows: the number of rows.
        num_columns: the number of columns; as many as rows if None.
        batch_shape: sizes of leading axes along which the matrix is repeated.
        dtype: of the result.
        name: the operation's name.
    """
    rows = static_int(num_rows, "num_rows")
    columns = rows if num_columns is None else static_int(num_columns, "num_columns")
    if rows < 0 or columns < 0:
        raise ValueError(f"num_rows, num_columns: expected sizes >= 0, got {rows}, {columns}")
    matrix = np.eye(rows, columns, dtype=as_dtype(dtype).dtype)
    if batch_shape is not None:
        batch = static_ints(batch_shape, "batch_shape")
        matrix = np.broadcast_to(matrix, (*batch, rows, columns))
    return constant(matrix, name=name or "eye")


# -- NumPy's products, which know vectors ---------------------------------------------------------


def _numpy_matmul(a: Any, b: Any) -> Tensor:
    """a @ b, where a vector is a row on the left and a column on the right."""
    x, y = _as_pair(a, b)
    row, column = _is_vector(x), _is_vector(y)
    if row and column:
        return reduce_sum(multiply(x, y))
    if row:
        return squeeze(matmul(expand_dims(x, 0), y, name="matmul"), [-2])
    if column:
        return squeeze(matmul(x, expand_dims(y, 1), name="matmul"), [-1])
    return matmul(x, y, name="matmul")


def _numpy_dot(a: Any, b: Any) -> Tensor:
    x, y = _as_pair(a, b)
    for tensor in (x, y):
        if tensor.sizes is not None and len(tensor.sizes) > 2:
            raise TypeError(
                f"np.dot of more than two axes has no graph form, use matmul; got {tensor!r}"
            )
    if () in (x.sizes, y.sizes):
        return multiply(x, y)
    return _numpy_matmul(x, y)


def _as_pair(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Both as tensors; numbers take the dtype of the tensor beside them."""
    if is_symbolic(a):
        x = as_tensor(a)
        return x, _like(b, x)
    y = as_tensor(b)
    return _like(a, y), y


def _like(value: Any, other: Tensor) -> Tensor:
    return as_tensor(value) if is_symbolic(value) else as_tensor(value, other.dtype)


def _is_vector(x: Tensor) -> bool:
    return x.sizes is not None and len(x.sizes) == 1


OPERATORS.update(
    {
        "matmul": _numpy_matmul,
        "ufunc:matmul": _numpy_matmul,
        "function:dot": _numpy_dot,
    }
)
