"""The gradient checker: `optkit.gradients` against differences, in float64.

Outputs are weighted with random numbers and added up, so that one gradient covers all of them;
each element of each input is then moved by itself. The difference quotient of fourth order with
step h has an error of about h⁴, so that a gradient wrong by a few parts in ten million is seen.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optkit.gradients import gradients
from optkit.graph import Graph, Tensor
from optkit.ops.array import placeholder
from optkit.ops.sparse import densify
from optkit.runtime.session import Session

STEP = 1e-3
RELATIVE = 1e-7
"""The accepted error in parts of the largest derivative of an input."""


def tensors_of(value: Any) -> list[Tensor]:
    """What a function returned, as a list."""
    return list(value) if isinstance(value, list | tuple) else [value]


def check_gradients(
    function: Callable[..., Any],
    arrays: Sequence[np.ndarray],
    wrt: Sequence[int] | None = None,
    *,
    order: int = 1,
    relative: float = RELATIVE,
    step: float = STEP,
    seed: int = 0,
) -> None:
    """Compare the gradients of `function`, of tensors, at `arrays` with difference quotients.

    Args:
        function: from one tensor an array to a tensor or several; others than floats are ignored.
        arrays: the inputs; floating ones must be float64.
        wrt: positions of the inputs to check, all floating ones if None. The gradients of all
            others must be None or are not looked at.
        order: 2 checks the gradients of the gradients as well.
        relative: the accepted error in parts of the largest derivative of an input.
        step: how far an element is moved to each side, and twice that.
        seed: of the weights.

    Raises:
        AssertionError: naming the input, both gradients and the order.
    """
    rng = np.random.default_rng(seed)
    arrays = [np.asarray(array) for array in arrays]
    if wrt is None:
        wrt = [i for i, array in enumerate(arrays) if array.dtype.kind == "f"]
    graph = Graph()
    with graph.as_default():
        xs = [placeholder(array.dtype, array.shape) for array in arrays]
        ys = [y for y in tensors_of(function(*xs)) if y.dtype.is_floating]
        session = Session(graph=graph)
        sample = session.run(ys, dict(zip(xs, arrays, strict=True)))
        weights = [rng.standard_normal(np.shape(value)) for value in sample]
        dxs = gradients(ys, [xs[i] for i in wrt], weights)
        for i, dx in zip(wrt, dxs, strict=True):
            assert dx is not None, f"order 1, input {i}: no gradient"
        dxs = [densify(dx) for dx in dxs]
    feed = dict(zip(xs, arrays, strict=True))
    found = session.run(dxs, feed)

    def projected(i: int, array: np.ndarray) -> float:
        values = session.run(ys, {**feed, xs[i]: array})
        return sum(float(np.sum(w * v)) for w, v in zip(weights, values, strict=True))

    for i, dx in zip(wrt, found, strict=True):
        assert np.shape(dx) == arrays[i].shape
        _compare(dx, _differences(projected, i, arrays[i], step), f"input {i}", relative)
    if order == 2:
        _check_second(function, arrays, wrt, weights, relative=relative, step=step, seed=seed + 1)


def _differences(
    projected: Callable[[int, np.ndarray], float], i: int, array: np.ndarray, step: float
) -> np.ndarray:
    """(8·(f(x+h) - f(x-h)) - (f(x+2h) - f(x-2h)))/12h, element by element."""
    derivative = np.zeros(array.shape)
    for index in np.ndindex(array.shape):
        at = []
        for shift in (1, -1, 2, -2):
            moved = array.copy()
            moved[index] += shift * step
            at.append(projected(i, moved))
        derivative[index] = (8 * (at[0] - at[1]) - (at[2] - at[3])) / (12 * step)
    return derivative


def _compare(found: Any, expected: np.ndarray, what: str, relative: float) -> None:
    largest = float(np.max(np.abs(expected), initial=0.0))
    np.testing.assert_allclose(
        found,
        expected,
        rtol=0,
        atol=relative * max(largest, 1e-2),
        err_msg=f"the gradient of {what} differs from the difference quotient",
    )


def _check_second(
    function: Callable[..., Any],
    arrays: Sequence[np.ndarray],
    wrt: Sequence[int],
    weights: Sequence[np.ndarray],
    **options: Any,
) -> None:
    """Check the gradients of the function (inputs, weights of outputs) -> gradients of inputs."""

    def first(*tensors: Tensor) -> list[Tensor]:
        xs, grad_ys = tensors[: len(arrays)], tensors[len(arrays) :]
        ys = [y for y in tensors_of(function(*xs)) if y.dtype.is_floating]
        return gradients(ys, [xs[i] for i in wrt], list(grad_ys))

    graph = Graph()
    both = [*arrays, *weights]
    with graph.as_default():
        xs = [placeholder(array.dtype, array.shape) for array in both]
        dxs = gradients(first(*xs), xs)
    # Of a function that is linear in an input the gradient is None, not zeros.
    reached = [i for i, dx in enumerate(dxs) if dx is not None and both[i].dtype.kind == "f"]
    _assert_flat(first, both, [i for i in wrt if i not in reached], options["step"])
    check_gradients(first, both, reached, **options)


def _assert_flat(
    function: Callable[..., Any], arrays: Sequence[np.ndarray], wrt: Sequence[int], step: float
) -> None:
    """Moving inputs without a gradient changes nothing."""
    graph = Graph()
    with graph.as_default():
        xs = [placeholder(array.dtype, array.shape) for array in arrays]
        ys = tensors_of(function(*xs))
        session = Session(graph=graph)
    before = session.run(ys, dict(zip(xs, arrays, strict=True)))
    for i in wrt:
        moved = [a + step if j == i else a for j, a in enumerate(arrays)]
        after = session.run(ys, dict(zip(xs, moved, strict=True)))
        for old, new in zip(before, after, strict=True):
            np.testing.assert_array_equal(old, new, err_msg=f"order 2, input {i}: no gradient")
