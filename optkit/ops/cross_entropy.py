"""Cross entropies of logits, computed without overflow for logits of any size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optkit.dtypes import FLOATS, DType
from optkit.graph import Operation, Tensor, get_default_graph, is_symbolic
from optkit.ops.arguments import is_zero, one_of
from optkit.ops.array import expand_dims, stop_gradient
from optkit.ops.core import INDEX_TYPES, Array, ArrayModule, as_tensor, composite, op
from optkit.ops.elementary import sigmoid, softplus
from optkit.ops.reductions import reduce_sum
from optkit.ops.softmax import class_axis, log_softmax, shifted_exponentials, softmax
from optkit.ops.state import check_indices
from optkit.shapes import Shape, TensorShape

__all__ = [
    "sigmoid_cross_entropy_with_logits",
    "softmax_cross_entropy_with_logits",
    "softmax_cross_entropy_with_logits_v2",
    "sparse_softmax_cross_entropy_with_logits",
    "weighted_cross_entropy_with_logits",
]


def _require(function: str, sentinel: Any, labels: Any, logits: Any) -> None:
    if sentinel is not None:
        raise ValueError(f"{function}: expected labels= and logits= by name, got them by position")
    for name, value in (("labels", labels), ("logits", logits)):
        if value is None:
            raise ValueError(f"{function}: {name}: expected a tensor, got None")


def _merged(labels: Tensor, logits: Tensor) -> Shape:
    try:
        return logits.shape.merge_with(labels.sizes).sizes
    except ValueError:
        raise ValueError(
            f"labels, logits: expected one shape, got {labels!r} and {logits!r}"
        ) from None


def _tensors(labels: Any, logits: Any) -> tuple[Tensor, Tensor]:
    """Both as tensors, the labels of the logits' dtype where they are no tensor yet."""
    logits = as_tensor(logits, None, "logits")
    labels = as_tensor(labels, None if is_symbolic(labels) else logits.dtype, "labels")
    return labels, logits


# -- independent classes --------------------------------------------------------------------------


@op("SigmoidCrossEntropy", types=FLOATS, shape=lambda inputs, _: _merged(inputs[1], inputs[0]))
def _sigmoid_cross_entropy(xp: ArrayModule, logits: Array, labels: Array) -> Array:
    return xp.maximum(logits, 0) - logits * labels + xp.log1p(xp.exp(-xp.abs(logits)))


@_sigmoid_cross_entropy.gradient
def _(node: Operation, dy: Tensor) -> tuple[Tensor, Tensor]:
    logits, labels = node.inputs
    return dy * (sigmoid(logits) - labels), -dy * logits


@composite
def sigmoid_cross_entropy_with_logits(
    _sentinel: Any = None, labels: Any = None, logits: Any = None, name: str | None = None
) -> Tensor:
    """-labels·log σ(logits) - (1 - labels)·log(1 - σ(logits)), elementwise.

    Args:
        _sentinel: catches arguments by position, which are refused.
        labels: probabilities, of the shape and dtype of the logits.
        logits: floats.
        name: the operation's name.

    Raises:
        ValueError: the shapes differ, or an argument is missing or given by position.
    """
    _require("sigmoid_cross_entropy_with_logits", _sentinel, labels, logits)
    labels, logits = _tensors(labels, logits)
    return _sigmoid_cross_entropy(logits, labels, name=name or "logistic_loss")


@composite
def weighted_cross_entropy_with_logits(
    labels: Any = None,
    logits: Any = None,
    pos_weight: Any = None,
    name: str | None = None,
    targets: Any = None,
) -> Tensor:
    """-pos_weight·labels·log σ(logits) - (1 - labels)·log(1 - σ(logits)), elementwise.

    Args:
        labels: probabilities, of the shape and dtype of the logits.
        logits: floats.
        pos_weight: the weight of positive labels; broadcasts to the logits.
        name: the name scope.
        targets: the older name of `labels`.

    Raises:
        ValueError: the shapes differ or an argument is missing.
    """
    labels = one_of("labels", labels, "targets", targets)
    _require("weighted_cross_entropy_with_logits", None, labels, logits)
    with get_default_graph().name_scope(name or "logistic_loss"):
        labels, logits = _tensors(labels, logits)
        _merged(labels, logits)
        weight = 1 + (pos_weight - 1) * labels
        return (1 - labels) * logits + weight * softplus(-logits)  # type: ignore[no-any-return]


# -- exclusive classes ----------------------------------------------------------------------------


def _softmax_types(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> list[tuple[DType, Shape]]:
    logits, labels = inputs
    sizes, axis = _merged(labels, logits), attrs["axis"]
    loss = None if sizes is None else tuple(n for i, n in enumerate(sizes) if i != axis)
    return [(logits.dtype, loss), (logits.dtype, sizes)]


# As in TF the op's second output is the gradient of its first: both need the exponentials.
@op("SoftmaxCrossEntropyWithLogits", types=FLOATS, infer=_softmax_types)
def _softmax_cross_entropy(
    xp: ArrayModule, logits: Array, labels: Array, *, axis: int
) -> tuple[Array, Array]:
    shifted, e, total = shifted_exponentials(xp, logits, axis)
    loss = (labels * (xp.log(total) - shifted)).sum(axis=axis)
    dlogits = e / total - labels
    return loss.astype(logits.dtype, copy=False), dlogits.astype(logits.dtype, copy=False)


@_softmax_cross_entropy.gradient
def _(node: Operation, dloss: Tensor, ddlogits: Tensor) -> tuple[Tensor, Tensor]:
    logits, axis = node.inputs[0], node.attrs["axis"]
    dloss = expand_dims(dloss, axis)
    dlogits, dlabels = dloss * node.outputs[1], -dloss * log_softmax(logits, axis)
    if not is_zero(ddlogits):
        dlogits = dlogits + _softmax_derivative(logits, ddlogits, axis)
        dlabels = dlabels - ddlogits
    return dlogits, dlabels


def _softmax_derivative(logits: Tensor, dy: Tensor, axis: int) -> Any:
    y = softmax(logits, axis)
    return (dy - reduce_sum(dy * y, axis, keepdims=True)) * y


@composite
def softmax_cross_entropy_with_logits_v2(
    labels: Any = None,
    logits: Any = None,
    axis: Any = None,
    name: str | None = None,
    dim: Any = None,
) -> Tensor:
    """-Σ labels·log softmax(logits) over the classes.

    The gradient of the logits is that for labels that sum to 1, as in TF; the labels have one too.

    Args:
        labels: probabilities of the classes, of the shape and dtype of the logits.
        logits: floats.
        axis: the axis of the classes, the last if None.
        name: the operation's name.
        dim: the older name of `axis`.

    Raises:
        ValueError: the shapes differ or an argument is missing.
    """
    _require("softmax_cross_entropy_with_logits_v2", None, labels, logits)
    labels, logits = _tensors(labels, logits)
    axis = class_axis(logits, one_of("axis", axis, "dim", dim))
    if axis < 0 and labels.sizes is not None:
        axis = class_axis(labels, axis)
    name = name or "softmax_cross_entropy_with_logits"
    return _softmax_cross_entropy.node(logits, labels, axis=axis, name=name).outputs[0]


@composite
def softmax_cross_entropy_with_logits(
    _sentinel: Any = None,
    labels: Any = None,
    logits: Any = None,
    dim: Any = -1,
    name: str | None = None,
    axis: Any = None,
) -> Tensor:
    """-Σ labels·log softmax(logits) over the classes; the labels are held constant.

    Args:
        _sentinel: catches arguments by position, which are refused.
        labels: probabilities of the classes, of the shape and dtype of the logits.
        logits: floats.
        dim: the older name of `axis`.
        name: the operation's name.
        axis: the axis of the classes, the last if None.

    Raises:
        ValueError: the shapes differ, or an argument is missing or given by position.
    """
    _require("softmax_cross_entropy_with_logits", _sentinel, labels, logits)
    labels, logits = _tensors(labels, logits)
    axis = dim if axis is None else axis
    return softmax_cross_entropy_with_logits_v2(stop_gradient(labels), logits, axis, name)


def _sparse_types(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> list[tuple[DType, Shape]]:
    logits, labels = inputs
    if logits.sizes == ():
        raise ValueError(f"logits: expected at least one axis, got {logits!r}")
    rows: Shape = labels.sizes
    if logits.sizes is not None:
        if labels.sizes is not None and len(labels.sizes) != len(logits.sizes) - 1:
            raise ValueError(
                f"labels: expected one axis fewer than the logits, got {labels!r} and {logits!r}"
            )
        try:
            rows = TensorShape(logits.sizes[:-1]).merge_with(labels.sizes).sizes
        except ValueError:
            raise ValueError(
                f"labels: expected the shape of the logits without the last axis, got {labels!r} "
                f"and {logits!r}"
            ) from None
    full = logits.sizes if rows is None else (*rows, logits.sizes[-1] if logits.sizes else None)
    return [(logits.dtype, rows), (logits.dtype, full)]


@op(
    "SparseSoftmaxCrossEntropyWithLogits",
    types=FLOATS,
    accepts={"labels": INDEX_TYPES},
    infer=_sparse_types,
    either=("labels",),
)
def _sparse_softmax_cross_entropy(
    xp: ArrayModule, logits: Array, labels: Array
) -> tuple[Array, Array]:
    check_indices(xp, labels, logits.shape[-1], "labels")
    shifted, e, total = shifted_exponentials(xp, logits, -1)
    classes = logits.shape[-1]
    rows, flat = xp.arange(labels.size), xp.asarray(labels).reshape(-1)
    picked = shifted.reshape(-1, classes)[rows, flat].reshape(labels.shape)
    loss = xp.log(total)[..., 0] - picked
    dlogits = (e / total).reshape(-1, classes)
    dlogits[rows, flat] -= 1  # each row once
    dlogits = dlogits.reshape(logits.shape)
    return loss.astype(logits.dtype, copy=False), dlogits.astype(logits.dtype, copy=False)


@_sparse_softmax_cross_entropy.gradient
def _(node: Operation, dloss: Tensor, ddlogits: Tensor) -> tuple[Tensor, None]:
    dlogits: Any = expand_dims(dloss, -1) * node.outputs[1]
    if not is_zero(ddlogits):
        dlogits = dlogits + _softmax_derivative(node.inputs[0], ddlogits, -1)
    return dlogits, None


@composite
def sparse_softmax_cross_entropy_with_logits(
    _sentinel: Any = None, labels: Any = None, logits: Any = None, name: str | None = None
) -> Tensor:
    """-log softmax(logits)[label] over the last axis.

    Args:
        _sentinel: catches arguments by position, which are refused.
        labels: class numbers, int32 or int64, of the shape of the logits without the last axis.
        logits: floats.
        name: the operation's name.

    Raises:
        ValueError: the shapes do not fit, or an argument is missing or given by position.
        InvalidArgumentError: when run, a label is no class number.
    """
    _require("sparse_softmax_cross_entropy_with_logits", _sentinel, labels, logits)
    return _sparse_softmax_cross_entropy.node(logits, labels, name=name).outputs[0]
