"""Rows of the op table: batch normalisation and the weights of losses."""

from typing import Any

import numpy as np

from optkit.ops import batch_norm
from optkit.ops.core import REGISTRY
from optkit.ops.math import cast
from tests.ops.rows import Case, Table, inputs, normal, uniform


def normalized(x: Any, scale: Any, offset: Any, **settings: Any) -> Any:
    wide = batch_norm.parameter_dtype(x.dtype)
    y, mean, variance = batch_norm.normalized_batch(
        x, cast(scale, wide), cast(offset, wide), **settings
    )
    return y, cast(mean, x.dtype), cast(variance, x.dtype)


def reference(
    x: np.ndarray,
    scale: np.ndarray,
    offset: np.ndarray,
    axes: tuple[int, ...],
    epsilon: float,
    correction: int = 0,
) -> Any:
    columns = np.moveaxis(x, axes, range(len(axes)))
    columns = columns.reshape(-1, *columns.shape[len(axes) :])
    n = len(columns)
    mean, variance = columns.mean(0), columns.var(0)
    shape = [1 if i in axes else size for i, size in enumerate(x.shape)]
    y = (x - mean.reshape(shape)) / np.sqrt(variance.reshape(shape) + epsilon)
    y = y * scale.reshape(shape) + offset.reshape(shape)
    return y, mean, variance * (n / max(n - 1, 1) if correction else 1)


def gradient(dy: Any, x: Any, scale: Any, offset: Any, **settings: Any) -> Any:
    """The gradient op, at the moments of x."""
    wide = batch_norm.parameter_dtype(x.dtype)
    settings = {"correction": 0} | settings
    scale = cast(scale, wide)
    _, mean, variance = batch_norm.normalized_batch(x, scale, cast(offset, wide), **settings)
    op = REGISTRY["FusedBatchNormGrad"]
    dx, dscale, doffset = op.node(dy, x, scale, mean, variance, **settings).outputs
    return dx, cast(dscale, x.dtype), cast(doffset, x.dtype)


def gradient_reference(
    dy: np.ndarray,
    x: np.ndarray,
    scale: np.ndarray,
    offset: np.ndarray,
    axes: tuple[int, ...],
    epsilon: float,
    correction: int = 0,
) -> Any:
    """By the Jacobian of the normalised values, one column after the other."""
    del offset, correction
    rest = [i for i in range(x.ndim) if i not in axes]
    order = [*rest, *axes]
    columns = x.transpose(order).reshape(scale.size, -1)
    dys = dy.transpose(order).reshape(scale.size, -1)
    dx, dscale = np.empty_like(columns), np.empty(scale.size)
    n = columns.shape[1]
    for i, (column, up, factor) in enumerate(zip(columns, dys, scale.ravel(), strict=True)):
        centred = column - column.mean()
        sigma = np.sqrt(column.var() + epsilon)
        jacobian = (np.eye(n) - 1 / n) / sigma - np.outer(centred, centred) / (n * sigma**3)
        dx[i] = factor * up @ jacobian
        dscale[i] = up @ centred / sigma
    back = np.argsort(order)
    dx = dx.reshape([x.shape[i] for i in order]).transpose(back)
    return dx, dscale.reshape(scale.shape), dys.sum(1).reshape(scale.shape)


def positive(*shape: int) -> Any:
    return uniform(*shape, low=0.5, high=1.5)


SETTINGS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "rows": ((4, 3), (3,), {"axes": (0,), "epsilon": 1e-3}),
    "sample variance": ((4, 3), (3,), {"axes": (0,), "epsilon": 1e-3, "correction": 1}),
    "channels last": ((2, 2, 2, 3), (3,), {"axes": (0, 1, 2), "epsilon": 0.1}),
    "channels first": ((2, 3, 2, 2), (3,), {"axes": (0, 2, 3), "epsilon": 0.1, "correction": 1}),
    "two axes stay": ((2, 3, 4), (3, 4), {"axes": (0,), "epsilon": 0.5}),
}


def norms(call: Any, expected: Any, upstream: bool) -> list[Case]:
    return [
        Case(
            name,
            inputs(
                *[normal(*shape)] * upstream,
                normal(*shape),
                positive(*parameter),
                normal(*parameter),
            ),
            call,
            expected,
            kwargs=settings,
            wrt=(0, 1, 2),
            tolerance=8.0,
            gradient_tolerance=16.0,
            unknown_rank=False,
        )
        for name, (shape, parameter, settings) in SETTINGS.items()
    ]


def weighted() -> list[Case]:
    shapes = {"scalar": (), "rows": (2, 1), "columns": (1, 3), "all": (2, 3)}
    return [
        Case(
            name,
            inputs(normal(*shape), normal(2, 3)),
            lambda w, values: REGISTRY["CheckedWeights"](w, values),
            lambda w, _: w,
            wrt=(0,),
        )
        for name, shape in shapes.items()
    ]


TABLE: Table = {
    "CheckedWeights": weighted(),
    "FusedBatchNorm": norms(normalized, reference, upstream=False),
    "FusedBatchNormGrad": norms(gradient, gradient_reference, upstream=True),
}
