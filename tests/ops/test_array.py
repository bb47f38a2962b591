"""Placeholders, shapes, filled tensors, joining: static shapes, errors, names, special cases.

Values and gradients are in the op table.
"""

import numpy as np
import pytest

from optkit.dtypes import float32, int32, int64, string
from optkit.errors import InvalidArgumentError
from optkit.gradients import gradients
from optkit.graph import IndexedSlices
from optkit.ops.array import (
    broadcast_to,
    concat,
    expand_dims,
    fill,
    identity,
    ones,
    ones_like,
    placeholder,
    placeholder_with_default,
    rank,
    reshape,
    shape,
    size,
    split,
    squeeze,
    stack,
    stop_gradient,
    transpose,
    unstack,
    zeros,
    zeros_like,
)
from optkit.ops.core import constant, constant_value
from optkit.runtime.session import Session


def run(fetches, feed=None):
    return Session().run(fetches, feed)


# -- placeholders ---------------------------------------------------------------------------------


def test_placeholder_that_is_not_fed_is_named():
    x = placeholder("float32", [None, 2], name="images")
    with pytest.raises(InvalidArgumentError, match=r"'images' was not fed.*float32.*\(\?, 2\)"):
        run(x + 1)


def test_placeholder_without_shape_takes_any():
    x = placeholder(float32)
    assert x.shape.ndims is None
    assert x.name == "Placeholder:0"
    assert run(x, {x: [[1.0]]}).shape == (1, 1)


def test_placeholder_of_static_shape_refuses_another():
    x = placeholder(float32, 3)
    assert x.shape == [3]
    with pytest.raises(ValueError, match=r"expected shape \(3,\), got \(2,\)"):
        run(x, {x: [1.0, 2.0]})


def test_placeholder_with_default_takes_a_value_or_keeps_its_own():
    x = placeholder_with_default([1.0, 2.0], [None])
    assert x.shape == [None]
    np.testing.assert_array_equal(run(x), [1, 2])
    np.testing.assert_array_equal(run(x, {x: [3.0]}), [3])


def test_placeholder_with_default_is_no_constant():
    assert constant_value(placeholder_with_default(1, [])) is None


def test_placeholder_with_default_refuses_another_shape():
    with pytest.raises(ValueError, match=r"input: expected shape \(3,\)"):
        placeholder_with_default([1.0, 2.0], [3])
    x = placeholder("float32")
    default = placeholder_with_default(x, [3])
    with pytest.raises(InvalidArgumentError, match=r"expected shape \(3,\), got \(2,\)"):
        run(default, {x: [1.0, 2.0]})


def test_placeholder_with_default_passes_gradients():
    x = placeholder("float32", [2])
    y = placeholder_with_default(x, [None])
    (dx,) = gradients(y * y, x)
    np.testing.assert_array_equal(run(dx, {x: [1.0, 2.0]}), [2, 4])
    # What is fed does not depend on x, but the graph does, as in TF.
    np.testing.assert_array_equal(run(dx, {x: [1.0, 2.0], y: [5.0, 6.0]}), [10, 12])


# -- identity -------------------------------------------------------------------------------------


def test_identity_keeps_indexed_slices():
    slices = IndexedSlices(constant([[1.0]]), constant([2]), constant([4, 1]))
    same = identity(slices)
    assert isinstance(same, IndexedSlices)
    value = run(same)
    np.testing.assert_array_equal(value.values, [[1]])
    np.testing.assert_array_equal(value.indices, [2])
    np.testing.assert_array_equal(value.dense_shape, [4, 1])
    assert identity(IndexedSlices(constant([1.0]), constant([2]))).dense_shape is None


def test_stop_gradient_gives_none_through_it():
    x = placeholder("float32", [])
    assert gradients(stop_gradient(x), x) == [None]
    (dx,) = gradients(x * stop_gradient(x), x)
    assert run(dx, {x: 3.0}) == 3


# -- shapes as values -----------------------------------------------------------------------------


def test_static_shapes_are_constants(graph):
    x = placeholder("float32", [2, 3])
    for tensor, value in ((shape(x), [2, 3]), (size(x), 6), (rank(x), 2)):
        assert tensor.op.type == "Const"
        assert tensor.dtype == int32
        np.testing.assert_array_equal(run(tensor), value)  # x is not needed
    assert shape(x, out_type=int64).dtype == int64


def test_unknown_shapes_are_worked_out_when_run():
    x = placeholder("float32", [None, 3])
    assert shape(x).shape == [2]
    assert shape(placeholder("float32")).shape == [None]
    values = run([shape(x), size(x, out_type="int64"), rank(x)], {x: np.zeros((4, 3))})
    np.testing.assert_array_equal(values[0], [4, 3])
    assert values[1] == 12
    assert values[1].dtype == np.int64
    assert values[2] == 2
    y = placeholder("float32")
    assert run(rank(y), {y: np.zeros((1, 2, 3))}) == 3


@pytest.mark.parametrize("function", [shape, size])
def test_sizes_are_int32_or_int64(function):
    with pytest.raises(TypeError, match=r"out_type: expected int32 or int64, got float32"):
        function(constant([1.0]), out_type="float32")


# -- filled ---------------------------------------------------------------------------------------


def test_small_zeros_are_constants_large_ones_are_filled():
    assert zeros([3]).op.type == "Const"
    assert zeros([3]).name.startswith("zeros")
    large = zeros([1000, 2])
    assert large.op.type == "Fill"
    assert large.shape == [1000, 2]
    np.testing.assert_array_equal(run(large), np.zeros((1000, 2), np.float32))


@pytest.mark.parametrize(
    ("dtype", "zero", "one"),
    [("float16", 0, 1), ("int64", 0, 1), ("bool", False, True), ("complex64", 0, 1)],
)
def test_zeros_and_ones_have_the_dtype(dtype, zero, one):
    a, b = zeros([2], dtype), ones([2], dtype)
    assert a.dtype == b.dtype == dtype
    np.testing.assert_array_equal(run([a, b]), [[zero] * 2, [one] * 2])


def test_zeros_of_text_are_empty():
    tensor = zeros([2], string)
    assert run(tensor).tolist() == [b"", b""]
    assert run(zeros_like(constant(["a"]))).tolist() == [b""]
    x = placeholder(string, [None])
    assert run(zeros_like(x), {x: ["a", "b"]}).tolist() == [b"", b""]
    with pytest.raises(TypeError, match="dtype: expected numbers or bool, got string"):
        ones_like(x)
    with pytest.raises(TypeError, match="dtype: expected numbers or bool, got string"):
        ones([2], string)


def test_zeros_of_a_computed_shape():
    x = placeholder("float32", [None, 3])
    y = zeros(shape(x))
    assert y.shape == [None, 3]
    assert run(y, {x: np.ones((5, 3))}).shape == (5, 3)
    assert zeros([shape(x)[0], 2]).shape == [None, 2]


@pytest.mark.parametrize("sizes", [3, [3], (3,), np.int64(3), constant])
def test_shapes_come_in_many_forms(sizes):
    assert zeros(constant([3]) if sizes is constant else sizes).shape == [3]
    assert zeros([]).shape == []


def test_bad_sizes_are_refused():
    with pytest.raises(TypeError, match="shape: expected integers"):
        zeros([1.5])
    with pytest.raises(TypeError, match="shape: expected a list of sizes"):
        zeros([[1], [2, 3]])
    n = placeholder("int32", [1])
    assert run(zeros(n), {n: [0]}).shape == (0,)
    with pytest.raises(InvalidArgumentError, match=r"dims: expected a list of sizes >= 0"):
        run(zeros(n), {n: [-1]})


def test_like_keeps_or_changes_the_dtype():
    x = placeholder("float64", [None])
    assert zeros_like(x).dtype == "float64"
    assert ones_like(x, "int32").dtype == "int32"
    assert ones_like(constant([1, 2])).op.type == "Const"
    assert zeros_like(constant([1, 2])).op.type == "Const"
    assert zeros_like(constant([1, 2]), optimize=False).op.type == "ZerosLike"
    assert ones_like(constant([1, 2]), optimize=False).op.type == "OnesLike"
    assert zeros_like([[1, 2]]).shape == [1, 2]
    values = run([zeros_like(x), ones_like(x)], {x: [np.nan, 1.0]})
    np.testing.assert_array_equal(values, [[0, 0], [1, 1]])


def test_fill_takes_a_scalar():
    with pytest.raises(ValueError, match="value: expected a scalar"):
        fill([2], [1.0])


def test_gradient_of_fill_is_the_sum():
    x = placeholder("float32", [])
    (dx,) = gradients(fill([2, 3], x), x)
    assert run(dx, {x: 1.0}) == 6


def test_broadcast_to_of_one_rank():
    x = placeholder("float32", [3, 1])
    assert broadcast_to(x, [3, 4]).shape == [3, 4]
    assert run(broadcast_to(x, [3, 4]), {x: np.ones((3, 1))}).shape == (3, 4)


def test_broadcast_to_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match=r"BroadcastTo: .*broadcast"):
        broadcast_to([1.0, 2.0], [3])
    with pytest.raises(ValueError, match=r"\(2, 1\) does not broadcast to \(2,\)"):
        broadcast_to([[1.0], [2.0]], [2])
    with pytest.raises(ValueError, match=r"\(2,\) does not broadcast to \(1,\)"):
        broadcast_to([1.0, 2.0], [1])
    x = placeholder("float32")
    with pytest.raises(InvalidArgumentError, match="broadcast"):
        run(broadcast_to(x, [3]), {x: [1.0, 2.0]})


# -- reshape and friends --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "sizes", "after"),
    [
        ([2, 6], [-1], [12]),
        ([2, 6], [3, -1], [3, 4]),
        ([None, 6], [-1, 3], [None, 3]),
        ([None, 6], [4, 3], [4, 3]),
        (None, [2, -1], [2, None]),
        ([0, 3], [-1, 3], [0, 3]),
        ([0, 3], [0, -1], [0, None]),
        ([], [1, 1], [1, 1]),
        ([1], [], []),
    ],
)
def test_reshape_infers_what_it_can(before, sizes, after):
    assert reshape(placeholder("float32", before), sizes).shape == after


def test_reshape_uses_what_is_known_of_a_computed_shape():
    x = placeholder("float32", [None, 4, 5])
    assert reshape(x, [shape(x)[0], 20]).shape == [None, 20]
    assert reshape(x, concat([shape(x)[:1], [20]], 0)).shape == [None, 20]
    y = placeholder("float32", [6])
    assert reshape(y, [2, shape(x)[0]]).shape == [2, 3]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([4], "6 elements do not fit"),
        ([4, -1], "6 elements do not fit"),
        ([0, -1], "6 elements do not fit"),
        ([-1, -1], "at most one -1"),
        ([-2, 3], "at most one -1"),
    ],
)
def test_reshape_refuses_what_does_not_fit(sizes, message):
    with pytest.raises(ValueError, match=message):
        reshape(placeholder("float32", [2, 3]), sizes)


def test_reshape_that_does_not_fit_when_run():
    x = placeholder("float32", [None])
    y = reshape(x, [2, -1], name="pairs")
    with pytest.raises(InvalidArgumentError, match=r"3 elements of shape \(3,\).*\n.*'pairs'"):
        run(y, {x: [1.0, 2.0, 3.0]})


def test_reshape_takes_dtypes_of_all_kinds():
    assert run(reshape([["a", "b"]], [2])).tolist() == [b"a", b"b"]
    assert run(reshape([True, False], [1, 2])).tolist() == [[True, False]]


@pytest.mark.parametrize(
    ("before", "perm", "after"),
    [
        ([None, 3], None, [3, None]),
        (None, None, None),
        (None, [1, 0], [None, None]),
        ([2, None, 4], [2, 0, 1], [4, 2, None]),
    ],
)
def test_transpose_infers_what_it_can(before, perm, after):
    found = transpose(placeholder("float32", before), perm)
    assert found.shape.sizes == (None if after is None else tuple(after))


@pytest.mark.parametrize(
    ("perm", "message"),
    [
        ([0, 0], "each axis once"),
        ([0], "expected 2 axes"),
        ([0, 2], "each axis once"),
        ([0, -3], "perm: expected one in"),
    ],
)
def test_transpose_refuses_what_is_no_permutation(perm, message):
    with pytest.raises(ValueError, match=message):
        transpose(placeholder("float32", [2, 3]), perm)


def test_transpose_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match="perm: expected ints or a constant"):
        transpose([[1.0]], placeholder("int32", [2]))
    with pytest.raises(ValueError, match="conjugate: only False"):
        transpose([[1.0]], conjugate=True)


@pytest.mark.parametrize(
    ("axis", "after"), [(0, [1, None, 3]), (1, [None, 1, 3]), (-1, [None, 3, 1])]
)
def test_expand_dims_infers_the_shape(axis, after):
    assert expand_dims(placeholder("float32", [None, 3]), axis).shape == after
    assert expand_dims(placeholder("float32", [None, 3]), dim=axis).shape == after
    assert expand_dims(placeholder("float32", [None, 3]), constant(axis)).shape == after


def test_expand_dims_refuses_bad_axes():
    with pytest.raises(ValueError, match=r"axis: expected one in \[-2, 2\), got 2"):
        expand_dims([1.0], 2)
    with pytest.raises(ValueError, match="axis: expected an int, got None"):
        expand_dims([1.0])
    with pytest.raises(ValueError, match="axis and its old name dim were both given"):
        expand_dims([1.0], 0, dim=0)
    with pytest.raises(TypeError, match="axis: expected an int, got True"):
        expand_dims([1.0], True)
    with pytest.raises(TypeError, match=r"axis: expected an int, got 0\.5"):
        expand_dims([1.0], 0.5)
    with pytest.raises(ValueError, match="axis: expected an int or a constant"):
        expand_dims([1.0], placeholder("int32", []))


@pytest.mark.parametrize(
    ("before", "axis", "after"),
    [
        ([1, 3, 1], None, [3]),
        ([1, None], None, None),
        ([None, 3, 1], [0], [3, 1]),
        ([None, 3, 1], -1, [None, 3]),
        ([1, 2], [], [2]),
    ],
)
def test_squeeze_infers_what_it_can(before, axis, after):
    found = squeeze(placeholder("float32", before), axis)
    assert found.shape.sizes == (None if after is None else tuple(after))
    assert squeeze(placeholder("float32", [1, 2]), squeeze_dims=[0]).shape == [2]


def test_squeeze_refuses_axes_with_more_than_one_element():
    with pytest.raises(ValueError, match="axis 1 has size 3, expected 1"):
        squeeze(placeholder("float32", [1, 3]), 1)
    x = placeholder("float32", [None])
    with pytest.raises(InvalidArgumentError):
        run(squeeze(x, 0), {x: [1.0, 2.0]})


# -- joining --------------------------------------------------------------------------------------


def test_concat_infers_what_it_can():
    x, y = placeholder("float32", [None, 3]), placeholder("float32", [2, None])
    assert concat([x, y], 0).shape == [None, 3]
    assert concat([x, y], -1).shape == [2, None]
    assert concat([x, placeholder("float32")], 0).shape == [None, 3]
    assert concat([x, placeholder("float32", [None, 4])], 1).shape == [None, 7]
    assert concat([placeholder("float32")] * 2, 0).shape.ndims is None


def test_concat_refuses_what_does_not_fit():
    x = placeholder("float32", [2, 3])
    with pytest.raises(ValueError, match=r"ConcatV2.*not compatible"):
        concat([x, placeholder("float32", [3, 4])], 0)
    with pytest.raises(ValueError, match="tensors of one rank"):
        concat([x, placeholder("float32", [3])], 0)
    with pytest.raises(ValueError, match="axis: expected one in"):
        concat([x, x], 2)
    with pytest.raises(ValueError, match="expected at least one"):
        concat([], 0)
    with pytest.raises(TypeError, match="float32"):
        concat([x, placeholder("float64", [2, 3])], 0)


def test_concat_of_one_is_itself():
    x = placeholder("float32", [2])
    assert concat([x], 0).op.type == "Identity"
    assert concat(x, 0).shape == [2]


def test_concat_that_does_not_fit_when_run():
    x = placeholder("float32")
    with pytest.raises(InvalidArgumentError):
        run(concat([x, [[1.0]]], 0), {x: [1.0]})


def test_parts_without_use_get_zeros():
    x = placeholder("float32", [4])
    first, _ = split(x, 2)
    np.testing.assert_array_equal(run(gradients(first, x)[0], {x: np.ones(4)}), [1, 1, 0, 0])


def test_split_infers_what_it_can():
    x = placeholder("float32", [None, 6])
    assert [part.shape.as_list() for part in split(x, 3, -1)] == [[None, 2]] * 3
    assert [part.shape.as_list() for part in split(x, 2)] == [[None, 6]] * 2
    assert [part.shape.as_list() for part in split(x, [1, -1, 2], 1)] == [
        [None, 1],
        [None, 3],
        [None, 2],
    ]
    assert [part.shape.ndims for part in split(placeholder("float32"), 2)] == [None] * 2
    sizes = placeholder("int32", [2])
    assert [part.shape.as_list() for part in split(x, sizes, 1)] == [[None, None]] * 2
    assert [part.shape.ndims for part in split(placeholder("float32"), sizes)] == [None] * 2
    assert len(split(x, constant(3), 1)) == 3


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (4, "not divisible by 4"),
        (0, "at least one part"),
        ([2, 3], "do not add up"),
        ([-1, -1], "do not add up"),
        ([8, -1], "do not add up"),
    ],
)
def test_split_refuses_what_does_not_fit(parts, message):
    with pytest.raises(ValueError, match=message):
        split(placeholder("float32", [6]), parts)


def test_split_that_does_not_fit_when_run():
    x = placeholder("float32", [None])
    with pytest.raises(InvalidArgumentError, match="not divisible by 2"):
        run(split(x, 2), {x: [1.0]})
    with pytest.raises(InvalidArgumentError, match=r"sizes \[2, 2\] do not add up to 3"):
        run(split(x, [2, 2]), {x: [1.0, 2.0, 3.0]})


def test_split_needs_a_static_number_of_parts():
    with pytest.raises(ValueError, match="num: the number of parts is not static"):
        split(placeholder("float32", [6]), placeholder("int32", [None]))


def test_stack_infers_what_it_can():
    x, y = placeholder("float32", [None, 3]), placeholder("float32", [2, None])
    assert stack([x, y]).shape == [2, 2, 3]
    assert stack([x, y], axis=-1).shape == [2, 3, 2]
    assert stack([placeholder("float32")] * 2).shape.ndims is None


def test_stack_takes_numbers_beside_tensors():
    x = placeholder("float64", [])
    found = stack([1, x, 2.5])
    assert found.dtype == "float64"
    np.testing.assert_array_equal(run(found, {x: 7.0}), [1, 7, 2.5])
    assert stack(constant([[1.0], [2.0]])).shape == [2, 1]


def test_stack_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match=r"Pack.*not compatible"):
        stack([placeholder("float32", [2]), placeholder("float32", [3])])
    with pytest.raises(ValueError, match="expected at least one"):
        stack([])


def test_unstack_infers_the_number():
    x = placeholder("float32", [2, None])
    assert [row.shape.as_list() for row in unstack(x)] == [[None]] * 2
    assert [row.shape.as_list() for row in unstack(x, 3, axis=1)] == [[2]] * 3
    assert unstack(placeholder("float32", [0])) == []
    with pytest.raises(ValueError, match=r"num: axis 1 of .* has no static size"):
        unstack(x, axis=1)
    with pytest.raises(ValueError, match=r"num: axis 0 of .* has size 2, got 3"):
        unstack(x, 3)
    with pytest.raises(InvalidArgumentError, match="axis 1 has size 2, expected 3"):
        run(unstack(x, 3, axis=1), {x: np.zeros((2, 2))})


def test_names_are_those_of_tf():
    x = constant([[1.0, 2.0]], name="x")
    assert [
        tensor.op.name
        for tensor in (
            identity(x),
            reshape(x, [2]),
            transpose(x),
            expand_dims(x, 0),
            squeeze(x),
            concat([x, x], 0),
            stack([x, x]),
            split(x, 2, 1)[1],
            unstack(x)[0],
            fill([1], 2.0),
            x[0],
            zeros_like(x),
            ones_like(x),
            zeros([1]),
            ones([1]),
            shape(x),
            size(x),
            rank(x),
        )
    ] == [
        "Identity",
        "Reshape",
        "transpose",
        "ExpandDims",
        "Squeeze",
        "concat",
        "stack",
        "split",
        "unstack",
        "Fill",
        "strided_slice",
        "zeros_like",
        "ones_like",
        "zeros",
        "ones",
        "Shape",
        "Size",
        "Rank",
    ]
    assert reshape(x, [2], name="flat").name == "flat:0"
