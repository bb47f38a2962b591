"""Rows of the op table: convolutions, pooling, local response normalisation."""

from collections.abc import Callable
from typing import Any

import numpy as np

from optkit.ops import convolution, depthwise, lrn, pooling
from tests.ops import images
from tests.ops.rows import INTS, Case, Table, distinct, given, inputs, normal, whole

EXPLICIT = [[0, 0], [2, 0], [0, 1], [0, 0]]

CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], dict]] = {
    # name: shapes of images, filters and result; arguments
    "same": ((2, 4, 3, 2), (3, 2, 2, 3), (2, 4, 3, 3), {"strides": 1, "padding": "SAME"}),
    "valid, strided": (
        (1, 5, 7, 1),
        (2, 3, 1, 2),
        (1, 2, 3, 2),
        {"strides": [1, 2, 2, 1], "padding": "VALID"},
    ),
    "strides past the end": (
        (2, 5, 6, 1),
        (1, 2, 1, 1),
        (2, 2, 2, 1),
        {"strides": (3, 4), "padding": "SAME"},
    ),
    "dilated": (
        (1, 5, 4, 2),
        (2, 2, 2, 1),
        (1, 5, 4, 1),
        {"strides": 1, "padding": "SAME", "dilations": (2, 3)},
    ),
    "channels first": (
        (2, 2, 3, 4),
        (2, 3, 2, 2),
        (2, 2, 2, 4),
        {"strides": [1, 1, 2, 1], "padding": "SAME", "data_format": "NCHW"},
    ),
    "explicit padding": (
        (1, 3, 3, 2),
        (3, 2, 2, 1),
        (1, 3, 3, 1),
        {"strides": 1, "padding": EXPLICIT},
    ),
    "one element": ((2, 2, 3, 2), (1, 1, 2, 3), (2, 2, 3, 3), {"strides": 1, "padding": "SAME"}),
    "one element, channels first": (
        (2, 2, 2, 3),
        (1, 1, 2, 3),
        (2, 3, 2, 3),
        {"strides": 1, "padding": "VALID", "data_format": "NCHW"},
    ),
    "whole image": ((2, 3, 2, 2), (3, 2, 2, 2), (2, 1, 1, 2), {"strides": 1, "padding": "VALID"}),
    "no images": ((0, 4, 3, 2), (3, 2, 2, 3), (0, 4, 3, 3), {"strides": 1, "padding": "SAME"}),
}


def convolutions(call: Callable[..., Any], reference: Callable[..., Any]) -> list[Case]:
    """A convolution of images."""
    return [
        Case(name, inputs(normal(*x), normal(*w)), call, reference, kwargs=kwargs)
        for name, (x, w, _, kwargs) in CONVOLUTIONS.items()
    ]


def to_input(call: Callable[..., Any], reference: Callable[..., Any]) -> list[Case]:
    """The gradient of a convolution for its images, their shape given when run, or before."""
    cases = []
    for name, (x, w, y, kwargs) in CONVOLUTIONS.items():
        shape = given(x, np.int32)
        arrays = inputs(shape, normal(*w), normal(*y))
        cases.append(Case(name, arrays, call, reference, kwargs=kwargs, shape_known=False))
    x, w, y, kwargs = CONVOLUTIONS["same"]
    cases.append(
        Case(
            "constant sizes",
            inputs(normal(*w), normal(*y)),
            lambda w, dy, **kwargs: call(x, w, dy, **kwargs),
            lambda w, dy, **kwargs: reference(x, w, dy, **kwargs),
            kwargs=kwargs,
        )
    )
    return cases


def to_filter(call: Callable[..., Any], reference: Callable[..., Any]) -> list[Case]:
    """The gradient of a convolution for its filters, their shape given when run, or before."""
    cases = []
    for name, (x, w, y, kwargs) in CONVOLUTIONS.items():
        shape = given(w, np.int32)
        arrays = inputs(normal(*x), shape, normal(*y))
        cases.append(Case(name, arrays, call, reference, kwargs=kwargs, shape_known=False))
    x, w, y, kwargs = CONVOLUTIONS["same"]
    cases.append(
        Case(
            "constant sizes",
            inputs(normal(*x), normal(*y)),
            lambda x, dy, **kwargs: call(x, w, dy, **kwargs),
            lambda x, dy, **kwargs: reference(x, w, dy, **kwargs),
            kwargs=kwargs,
        )
    )
    return cases


DEPTHWISE: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], dict]] = {
    "same": ((2, 4, 3, 2), (3, 2, 2, 2), (2, 4, 3, 4), {"strides": 1, "padding": "SAME"}),
    "valid, strided": (
        (1, 5, 7, 2),
        (2, 3, 2, 1),
        (1, 2, 3, 2),
        {"strides": 2, "padding": "VALID"},
    ),
    "dilated, channels first": (
        (2, 2, 4, 3),
        (2, 2, 2, 2),
        (2, 4, 4, 3),
        {"strides": 1, "padding": "SAME", "dilations": (2, 1), "data_format": "NCHW"},
    ),
    "no images": ((0, 4, 3, 2), (3, 2, 2, 3), (0, 4, 3, 6), {"strides": 1, "padding": "SAME"}),
}


def depthwise_cases(kind: str, call: Callable[..., Any], reference: Callable[..., Any]) -> Any:
    """A depthwise convolution, or its gradient for its images or its filters."""
    cases = []
    for name, (x, w, y, kwargs) in DEPTHWISE.items():
        arrays = {
            "forward": (normal(*x), normal(*w)),
            "input": (given(x, np.int32), normal(*w), normal(*y)),
            "filter": (normal(*x), given(w, np.int32), normal(*y)),
        }[kind]
        known = kind == "forward"
        cases.append(Case(name, inputs(*arrays), call, reference, kwargs=kwargs, shape_known=known))
    return cases


POOLS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict]] = {
    "apart": ((2, 4, 4, 2), (2, 2, 2, 2), {"ksize": 2, "strides": 2, "padding": "VALID"}),
    "overlapping, padded": (
        (2, 4, 3, 2),
        (2, 4, 3, 2),
        {"ksize": [1, 3, 2, 1], "strides": 1, "padding": "SAME"},
    ),
    "strides past the end": (
        (1, 5, 6, 1),
        (1, 2, 2, 1),
        {"ksize": (1, 2), "strides": (3, 4), "padding": "SAME"},
    ),
    "channels first": (
        (2, 2, 3, 5),
        (2, 2, 2, 2),
        {
            "ksize": [1, 1, 2, 3],
            "strides": [1, 1, 1, 2],
            "padding": "VALID",
            "data_format": "NCHW",
        },
    ),
    "no images": ((0, 4, 3, 2), (0, 4, 3, 2), {"ksize": 2, "strides": 1, "padding": "SAME"}),
}


def pools(call: Callable[..., Any], reference: Callable[..., Any]) -> list[Case]:
    """A pooling of images."""
    return [
        Case(name, inputs(distinct(*x)), call, reference, kwargs=kwargs)
        for name, (x, _, kwargs) in POOLS.items()
    ]


def with_dilations(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a pooling."""
    settings = {"data_format": "NHWC", **kwargs}
    return pooling._checked(
        settings["ksize"], settings["strides"], settings["padding"], settings["data_format"]
    )


def pool_gradients(
    second: int, call: Callable[..., Any], reference: Callable[..., Any], **more: Any
) -> list[Case]:
    """A gradient op of a pooling, of images and of an array: POOLS' shape number `second`."""
    cases = []
    for name, shapes in POOLS.items():
        x, other, kwargs = shapes[0], shapes[second], shapes[2]
        arrays = inputs(distinct(*x), normal(*other))
        cases.append(Case(name, arrays, call, reference, kwargs=kwargs, wrt=[1], **more))
    return cases


def max_pool_grad(x: Any, dy: Any, **kwargs: Any) -> Any:
    return pooling._max_pool_grad(x, pooling.max_pool(x, **kwargs), dy, **with_dilations(kwargs))


def max_pool_grad_grad(x: Any, dz: Any, **kwargs: Any) -> Any:
    y = pooling.max_pool(x, **kwargs)
    return pooling._max_pool_grad_grad(x, y, dz, **with_dilations(kwargs))


def avg_pool_grad(sizes: Any, dy: Any, **kwargs: Any) -> Any:
    return pooling._avg_pool_grad(sizes, dy, **with_dilations(kwargs))


def pool_to_input() -> list[Case]:
    return [
        Case(
            name,
            inputs(given(x, np.int32), normal(*y)),
            avg_pool_grad,
            images.avg_pool_input,
            kwargs=kwargs,
            shape_known=False,
        )
        for name, (x, y, kwargs) in POOLS.items()
    ]


TABLE: Table = {
    # -- convolutions
    "Conv2D": convolutions(convolution.conv2d, images.conv2d),
    "Conv2DBackpropInput": to_input(convolution.conv2d_backprop_input, images.conv2d_input),
    "Conv2DBackpropFilter": to_filter(convolution.conv2d_backprop_filter, images.conv2d_filter),
    "DepthwiseConv2dNative": depthwise_cases(
        "forward", depthwise.depthwise_conv2d_native, images.depthwise
    ),
    "DepthwiseConv2dNativeBackpropInput": depthwise_cases(
        "input", depthwise.depthwise_conv2d_backprop_input, images.depthwise_input
    ),
    "DepthwiseConv2dNativeBackpropFilter": depthwise_cases(
        "filter", depthwise.depthwise_conv2d_backprop_filter, images.depthwise_filter
    ),
    # -- pooling
    "MaxPool": [
        *pools(pooling.max_pool, images.max_pool),
        Case(
            "integers",
            inputs(whole(2, 3, 4, 2, low=0, high=9)),
            pooling.max_pool,
            images.max_pool,
            kwargs={"ksize": 2, "strides": 1, "padding": "SAME"},
            dtypes=INTS,
            wrt=(),
        ),
    ],
    "MaxPoolGrad": pool_gradients(1, max_pool_grad, images.max_pool_input),
    "MaxPoolGradGrad": pool_gradients(0, max_pool_grad_grad, images.max_pool_picked),
    "MaxPoolWithArgmax": [
        Case(
            name,
            inputs(distinct(*POOLS[name][0])),
            lambda x, **kwargs: pooling.max_pool_with_argmax(x, **kwargs)[0],
            images.max_pool,
            kwargs=POOLS[name][2],
        )
        for name in ("apart", "overlapping, padded")
    ],
    "AvgPool": pools(pooling.avg_pool, images.avg_pool),
    "AvgPoolGrad": pool_to_input(),
    # -- normalisation
    "LRN": [
        Case("near", inputs(normal(2, 2, 1, 5)), lrn.lrn, images.lrn, kwargs={"depth_radius": 1}),
        Case(
            "all channels",
            inputs(normal(1, 2, 2, 3)),
            lrn.lrn,
            images.lrn,
            kwargs={"bias": 2.0, "alpha": 0.5, "beta": 0.75},
        ),
        Case("no images", inputs(normal(0, 2, 2, 3)), lrn.lrn, images.lrn),
    ],
    "LRNSum": [
        Case(
            f"{radius} channels away",
            inputs(normal(2, 4)),
            lambda x, radius: lrn._channel_sum(x, depth_radius=radius),
            images.near,
            kwargs={"radius": radius},
        )
        for radius in (0, 1, 9)
    ],
}
