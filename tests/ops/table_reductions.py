"""Rows of the op table: reductions, matrix products, layers and cross entropies."""

from collections.abc import Callable
from typing import Any

import numpy as np

from optkit.ops import cross_entropy, linalg, nn, reductions
from optkit.ops import softmax as softmaxes
from optkit.ops.core import REGISTRY
from tests.ops.rows import INTS, Case, Table, distinct, given, inputs, normal, uniform, whole
from tests.ops.table_math import truth, unary

AXES: dict[str, dict[str, Any]] = {
    "all": {},
    "first axis": {"axis": 0},
    "last axis": {"axis": -1},
    "two axes": {"axis": [2, 0]},
    "no axis": {"axis": []},
    "kept": {"axis": 1, "keepdims": True},
    "all kept": {"keepdims": True},
}


def numpy_axis(axis: Any) -> Any:
    """The axis as NumPy wants it."""
    return tuple(axis) if isinstance(axis, list) else axis


def reduction(
    call: Callable[..., Any],
    reference: Callable[..., Any],
    values: Callable[..., Any] = normal,
    **more: Any,
) -> list[Case]:
    """A reduction of a tensor of three axes over each kind of axis argument."""

    def numpy(x: np.ndarray, axis: Any = None, keepdims: bool = False) -> Any:
        return reference(x, axis=numpy_axis(axis), keepdims=keepdims)

    return [
        Case(name, inputs(values(2, 3, 2)), call, numpy, kwargs=kwargs, **more)
        for name, kwargs in AXES.items()
    ] + [Case("scalar", inputs(values()), call, numpy, **more)]


def whole_reduction(call: Callable[..., Any], reference: Callable[..., Any]) -> Case:
    """A reduction of integers."""
    return Case(
        "integers",
        inputs(whole(2, 3, low=0, high=5)),
        call,
        lambda x, axis: reference(x, axis=axis),
        kwargs={"axis": 1},
        dtypes=INTS,
        wrt=(),
    )


def empty_reduction(call: Callable[..., Any], expected: float) -> list[Case]:
    """A reduction of nothing, to scalars and to rows."""
    return [
        Case("of nothing", inputs(normal(0)), call, lambda x: expected, smooth=False),
        Case(
            "rows of nothing",
            inputs(normal(2, 0)),
            call,
            lambda x, axis: np.full(2, expected),
            kwargs={"axis": 1},
            smooth=False,
        ),
    ]


def above_one(*shape: int) -> Callable[..., Any]:
    return uniform(*shape, low=1.0, high=3.0)


def logsumexp(x: np.ndarray, axis: Any, keepdims: bool) -> Any:
    return np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims))


def lengths(x: np.ndarray, axis: int) -> np.ndarray:
    return np.sum(np.ones_like(x), axis=axis)


def cumsum(x: np.ndarray, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Any:
    """Running sums as products with a triangle of ones."""
    n = x.shape[axis]
    triangle = np.tri(n, k=-1 if exclusive else 0)
    return np.moveaxis(np.tensordot(triangle.T if reverse else triangle, x, (1, axis)), 0, axis)


def others(x: np.ndarray, axis: Any) -> np.ndarray:
    """The product of all other elements along the axes, by leaving one out."""
    result = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        left = x.copy()
        left[index] = 1.0
        whole_product = np.prod(left, axis=axis, keepdims=True)
        result[index] = np.broadcast_to(whole_product, x.shape)[index]
    return result


def matrices(
    name: str, a: tuple[int, ...], b: tuple[int, ...], transpose_a: bool, transpose_b: bool
) -> Case:
    """A product of matrices or batches of them."""

    def reference(x: np.ndarray, y: np.ndarray, transpose_a: bool, transpose_b: bool) -> Any:
        left = "ki" if transpose_a else "ik"
        right = "jk" if transpose_b else "kj"
        return np.einsum(f"...{left},...{right}->...ij", x, y)

    return Case(
        name,
        inputs(normal(*a), normal(*b)),
        linalg.matmul,
        reference,
        kwargs={"transpose_a": transpose_a, "transpose_b": transpose_b},
    )


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(x)
    return e / np.sum(e, axis=axis, keepdims=True)


def probabilities(*shape: int) -> Callable[..., Any]:
    """Rows that sum to 1."""
    return lambda rng: softmax(rng.standard_normal(shape))


def cross_entropies(x: np.ndarray, labels: np.ndarray, axis: int = -1) -> list[np.ndarray]:
    """Both outputs: losses, and their gradients with respect to the logits."""
    loss = -np.sum(labels * np.log(softmax(x, axis)), axis=axis)
    return [loss, softmax(x, axis) - labels]


def sparse_cross_entropies(x: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
    return cross_entropies(x, np.eye(x.shape[-1])[labels])


def both(type_name: str) -> Callable[..., Any]:
    """All outputs of an op."""

    def call(*tensors: Any, **attrs: Any) -> Any:
        return REGISTRY[type_name].node(*tensors, **attrs).outputs

    return call


def classes(*shape: int, count: int) -> Callable[..., Any]:
    return lambda rng: rng.integers(0, count, shape).astype(np.int64)


def bias_sum(dy: np.ndarray, bias: np.ndarray, data_format: str) -> np.ndarray:
    channels = np.moveaxis(dy, 1 if data_format == "NCHW" else -1, 0)
    return np.array([np.sum(channel) for channel in channels])


def bias(value: np.ndarray, bias: np.ndarray, data_format: str | None = None) -> np.ndarray:
    if data_format == "NCHW":
        return np.stack([value[:, i] + b for i, b in enumerate(bias)], 1)
    return np.stack([value[..., i] + b for i, b in enumerate(bias)], -1)


SELU = 1.0507009873554805, 1.6732632423543772

TABLE: Table = {
    # -- reductions
    "Sum": [
        *reduction(reductions.reduce_sum, np.sum),
        whole_reduction(reductions.reduce_sum, np.sum),
        *empty_reduction(reductions.reduce_sum, 0.0),
    ],
    "Mean": [
        *reduction(reductions.reduce_mean, np.mean),
        whole_reduction(reductions.reduce_mean, lambda x, axis: np.trunc(np.mean(x, axis=axis))),
        Case(
            "negative integers",
            inputs(given([-7, 0])),
            reductions.reduce_mean,
            lambda x: -3,
            dtypes=("int8", "int32", "int64"),
            wrt=(),
        ),
        *empty_reduction(reductions.reduce_mean, np.nan),
    ],
    "Prod": [
        *reduction(reductions.reduce_prod, np.prod, distinct, tolerance=2),
        whole_reduction(reductions.reduce_prod, np.prod),
        *empty_reduction(reductions.reduce_prod, 1.0),
        Case(
            "with zeros",
            inputs(given([[0.0, 2.0, 3.0], [0.0, 0.0, 3.0]])),
            reductions.reduce_prod,
            lambda x, axis: np.array([0.0, 0.0]),
            kwargs={"axis": 1},
            smooth=False,
        ),
    ],
    "ProductOfOthers": [
        Case(
            name,
            inputs(distinct(2, 3, 2)),
            REGISTRY["ProductOfOthers"],
            others,
            kwargs={"axis": axis},
            tolerance=2,
        )
        for name, axis in {"all": None, "last axis": (-1,), "two axes": (0, 2)}.items()
    ],
    "Max": [
        *reduction(reductions.reduce_max, np.max, distinct),
        whole_reduction(reductions.reduce_max, np.max),
        *empty_reduction(reductions.reduce_max, -np.inf),
    ],
    "Min": [
        *reduction(reductions.reduce_min, np.min, distinct),
        whole_reduction(reductions.reduce_min, np.min),
        *empty_reduction(reductions.reduce_min, np.inf),
    ],
    "LogSumExp": [
        *reduction(softmaxes.reduce_logsumexp, logsumexp, above_one),
        *empty_reduction(softmaxes.reduce_logsumexp, -np.inf),
    ],
    "Any": reduction(reductions.reduce_any, np.any, truth, dtypes=("bool",), wrt=()),
    "All": reduction(reductions.reduce_all, np.all, truth, dtypes=("bool",), wrt=()),
    "Spread": [
        Case(
            f"{name}, {'divided' if mean else 'whole'}",
            inputs(normal(*small), normal(2, 3)),
            REGISTRY["Spread"],
            lambda y, x, axis, keepdims, mean, small=small: (
                (np.ones((2, 3)) * y.reshape(np.shape(np.sum(x, axis=axis, keepdims=True))))
                / (x.size / y.size if mean else 1)
            ),
            kwargs={"axis": axis, "keepdims": keepdims, "mean": mean},
            wrt=(0,),
        )
        for name, small, axis, keepdims in (
            ("all", (), None, False),
            ("first axis", (3,), (0,), False),
            ("kept", (2, 1), (1,), True),
        )
        for mean in (False, True)
    ],
    "ArgMax": [
        Case(
            name,
            inputs(distinct(2, 3)),
            reductions.argmax,
            lambda x, axis=0, output_type=None: np.argsort(x, axis=axis).take(-1, axis=axis),
            kwargs=kwargs,
            result="int64",
            wrt=(),
        )
        for name, kwargs in {"default axis": {}, "last axis": {"axis": -1}}.items()
    ]
    + [
        Case(
            "first of equal ones, int32",
            inputs(given([1, 3, 3])),
            reductions.argmax,
            lambda x, output_type: 1,
            kwargs={"output_type": "int32"},
            dtypes=INTS,
            result="int32",
            wrt=(),
        )
    ],
    "ArgMin": [
        Case(
            "last axis",
            inputs(distinct(2, 3)),
            reductions.argmin,
            lambda x, axis: np.argsort(x, axis=axis).take(0, axis=axis),
            kwargs={"axis": 1},
            result="int64",
            wrt=(),
        )
    ],
    "Cumsum": [
        Case(
            f"axis {axis}{', exclusive' if exclusive else ''}{', reverse' if reverse else ''}",
            inputs(normal(2, 3)),
            reductions.cumsum,
            cumsum,
            kwargs={"axis": axis, "exclusive": exclusive, "reverse": reverse},
        )
        for axis in (0, -1)
        for exclusive in (False, True)
        for reverse in (False, True)
    ]
    + [
        Case(
            "integers",
            inputs(whole(5, low=0, high=5)),
            reductions.cumsum,
            cumsum,
            dtypes=INTS,
            wrt=(),
        )
    ],
    # -- matrix products
    "MatMul": [
        matrices("plain", (2, 3), (3, 4), False, False),
        matrices("left transposed", (3, 2), (3, 4), True, False),
        matrices("right transposed", (2, 3), (4, 3), False, True),
        matrices("both transposed", (3, 2), (4, 3), True, True),
        matrices("nothing to add", (2, 0), (0, 3), False, False),
        Case(
            "integers",
            inputs(whole(2, 3, low=0, high=5), whole(3, 2, low=0, high=5)),
            linalg.matmul,
            lambda x, y: np.einsum("ik,kj->ij", x, y),
            dtypes=("int32", "int64"),
            wrt=(),
        ),
    ],
    "BatchMatMulV2": [
        matrices("batch", (2, 2, 3), (2, 3, 4), False, False),
        matrices("left transposed", (2, 3, 2), (2, 3, 4), True, False),
        matrices("right transposed", (2, 2, 3), (2, 4, 3), False, True),
        matrices("both transposed", (2, 3, 2), (2, 4, 3), True, True),
        matrices("one for all", (2, 2, 3), (3, 4), False, False),
        matrices("broadcast", (2, 1, 2, 3), (3, 3, 2), False, False),
    ],
    # -- layers
    "Relu": [
        *unary(nn.relu, lambda x: x, 0.1, 2.0),
        *unary(nn.relu, np.zeros_like, -2.0, -0.1, "negative "),
        *unary(nn.relu, lambda x: x, 0.0, 9.0, "integer ", dtypes=INTS, wrt=()),
    ],
    "Relu6": [
        Case(
            "all parts",
            inputs(given([-1.0, 0.5, 5.5, 7.0])),
            nn.relu6,
            lambda x: np.array([0.0, 0.5, 5.5, 6.0]),
        )
    ],
    "LeakyRelu": [
        Case(
            name,
            inputs(given([-2.0, -0.5, 0.5, 2.0])),
            nn.leaky_relu,
            lambda x, alpha=0.2: np.array([-2 * alpha, -0.5 * alpha, 0.5, 2.0]),
            kwargs=kwargs,
        )
        for name, kwargs in {"default slope": {}, "given slope": {"alpha": 0.1}}.items()
    ],
    **{
        type_name: [
            Case(
                "all parts",
                inputs(normal(4), given([-1.0, 0.5, 5.5, 7.0])),
                REGISTRY[type_name],
                lambda dy, x, alpha=0.0, slopes=slopes: dy * np.array(slopes),
                kwargs=kwargs,
                wrt=(0,),
            )
        ]
        for type_name, slopes, kwargs in (
            ("ReluGrad", [0, 1, 1, 1], {}),
            ("Relu6Grad", [0, 1, 1, 0], {}),
            ("LeakyReluGrad", [0.25, 1, 1, 1], {"alpha": 0.25}),
        )
    },
    "Elu": [
        *unary(nn.elu, lambda x: x, 0.1, 2.0),
        *unary(nn.elu, lambda x: np.exp(x) - 1, -2.0, -0.1, "negative "),
    ],
    "Selu": [
        *unary(nn.selu, lambda x: SELU[0] * x, 0.1, 2.0),
        *unary(nn.selu, lambda x: SELU[0] * SELU[1] * (np.exp(x) - 1), -2.0, -0.1, "negative "),
    ],
    "Softsign": [
        *unary(nn.softsign, lambda x: x / (1 + x), 0.1, 2.0),
        *unary(nn.softsign, lambda x: x / (1 - x), -2.0, -0.1, "negative "),
    ],
    "Softmax": [
        Case("rows", inputs(normal(2, 3)), softmaxes.softmax, softmax),
        Case("columns", inputs(normal(2, 3)), softmaxes.softmax, softmax, kwargs={"axis": 0}),
        Case("vector", inputs(normal(3)), softmaxes.softmax, softmax),
        Case("empty", inputs(normal(0, 3)), softmaxes.softmax, softmax),
        Case("no classes", inputs(normal(2, 0)), softmaxes.softmax, softmax),
    ],
    "LogSoftmax": [
        Case(
            name,
            inputs(normal(*shape)),
            softmaxes.log_softmax,
            lambda x, axis=-1: np.log(softmax(x, axis)),
            kwargs=kwargs,
        )
        for name, shape, kwargs in (
            ("rows", (2, 3), {}),
            ("columns", (2, 3), {"axis": 0}),
            ("empty", (0, 3), {}),
        )
    ],
    "BiasAdd": [
        Case("rows", inputs(normal(2, 3), normal(3)), nn.bias_add, bias),
        Case("channels last", inputs(normal(2, 2, 2, 3), normal(3)), nn.bias_add, bias),
        Case(
            "channels first",
            inputs(normal(2, 3, 2, 2), normal(3)),
            nn.bias_add,
            bias,
            kwargs={"data_format": "NCHW"},
        ),
    ],
    "BiasAddGrad": [
        Case(
            data_format,
            inputs(normal(*shape), normal(3)),
            REGISTRY["BiasAddGrad"],
            bias_sum,
            kwargs={"data_format": data_format},
            wrt=(0,),
        )
        for data_format, shape in (("NHWC", (2, 2, 2, 3)), ("NCHW", (2, 3, 2, 2)))
    ],
    "L2Loss": unary(nn.l2_loss, lambda x: np.sum(x**2) / 2),
    # -- cross entropies
    "SigmoidCrossEntropy": [
        Case(
            name,
            inputs(uniform(*shape, low=0.1, high=0.9), normal(*shape)),
            lambda z, x: cross_entropy.sigmoid_cross_entropy_with_logits(labels=z, logits=x),
            lambda z, x: z * np.log(1 + np.exp(-x)) + (1 - z) * np.log(1 + np.exp(x)),
        )
        for name, shape in {"matrix": (2, 3), "scalar": (), "empty": (0, 3)}.items()
    ],
    "SoftmaxCrossEntropyWithLogits": [
        Case(
            name,
            inputs(normal(*shape), probabilities(*shape)),
            both("SoftmaxCrossEntropyWithLogits"),
            cross_entropies,
            kwargs={"axis": axis},
            wrt=wrt,
        )
        # The gradient of the logits is right for labels that sum to 1, which differences of the
        # labels leave: second derivatives are checked with the labels held fixed.
        for name, shape, axis, wrt in (
            ("vector", (3,), 0, (0,)),
            ("rows", (2, 3), 1, (0,)),
            ("last axis", (2, 2, 3), 2, (0,)),
        )
    ]
    + [
        Case(
            "labels",
            inputs(normal(2, 3), probabilities(2, 3)),
            both("SoftmaxCrossEntropyWithLogits"),
            cross_entropies,
            kwargs={"axis": 1},
            smooth=False,
        )
    ],
    "SparseSoftmaxCrossEntropyWithLogits": [
        Case(
            name,
            inputs(normal(*shape, 3), classes(*shape, count=3)),
            both("SparseSoftmaxCrossEntropyWithLogits"),
            sparse_cross_entropies,
        )
        for name, shape in {"scalar": (), "rows": (4,), "two axes": (2, 2)}.items()
    ],
}
