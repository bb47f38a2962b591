"""Static shapes: what is known, partly known, unknown."""

import contextlib
import itertools
import operator
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optkit.shapes import Dimension, TensorShape, as_shape, broadcast_static, dimension_value

# -- Dimension ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (lambda d: d + 2, 9),
        (lambda d: 2 + d, 9),
        (lambda d: d - 2, 5),
        (lambda d: 9 - d, 2),
        (lambda d: d * 2, 14),
        (lambda d: 2 * d, 14),
        (lambda d: d // 2, 3),
        (lambda d: 15 // d, 2),
        (lambda d: d % 4, 3),
        (lambda d: 16 % d, 2),
        (lambda d: d + Dimension(1), 8),
    ],
)
def test_dimension_arithmetic(result, expected):
    found = result(Dimension(7))
    assert isinstance(found, Dimension)
    assert found.value == expected
    assert result(Dimension(None)).value is None


@pytest.mark.parametrize("operation", ["+", "-", "*", "//", "%"])
def test_dimension_arithmetic_with_an_unknown_operand(operation):
    for left, right in (("d", "None"), ("d", "Dimension(None)"), ("None", "d")):
        found = eval(f"{left} {operation} {right}", {"d": Dimension(7), "Dimension": Dimension})
        assert found.value is None


def test_dimension_below_zero():
    with pytest.raises(ValueError, match="expected a size >= 0, got -1"):
        Dimension(2) - 3
    with pytest.raises(ValueError, match="expected a size >= 0, got -1"):
        Dimension(-1)


def test_dimension_has_no_true_division():
    with pytest.raises(TypeError, match="use 3 // 2"):
        Dimension(3) / 2
    with pytest.raises(TypeError, match="use 6 // 3"):
        6 / Dimension(3)


@pytest.mark.parametrize("value", [2.0, 2.5, "3", True, [1], object()])
def test_dimension_refuses(value):
    with pytest.raises(TypeError, match="dimension: expected an int or None"):
        Dimension(value)


def test_dimension_takes_ints_of_all_kinds():
    assert Dimension(np.int64(3)).value == 3
    assert type(Dimension(np.int64(3)).value) is int
    assert Dimension(Dimension(3)).value == 3


def test_dimension_comparisons():
    three = Dimension(3)
    assert three == 3
    assert three == Dimension(3)
    assert three != 4
    assert three < 4 <= Dimension(4)
    assert three > 2 >= Dimension(2)
    assert (three != 3) is False
    assert three != "a"


def test_comparing_an_unknown_dimension_is_neither_true_nor_false():
    # As in TF1: code such as `if x.shape[0] != 3: raise` passes while the size is unknown.
    unknown = Dimension(None)
    for found in (
        unknown == 3,
        unknown != 3,
        unknown < 3,
        unknown <= 3,
        unknown > 3,
        unknown >= 3,
        unknown == unknown,
        Dimension(3) == None,  # noqa: E711 - the operator is what is tested
        Dimension(3) != unknown,
    ):
        assert found is None


def test_ordering_a_dimension_against_no_number():
    with pytest.raises(TypeError, match="not supported"):
        _ = Dimension(3) < "a"


def test_dimension_as_an_int():
    three = Dimension(3)
    assert int(three) == 3
    assert list(range(three)) == [0, 1, 2]
    assert np.zeros(three).shape == (3,)
    assert hash(three) == hash(3)
    assert not Dimension(0)
    for use in (int, range, operator.index):
        with pytest.raises(TypeError, match=r"unknown until the graph runs; use optkit.shape"):
            use(Dimension(None))


def test_dimension_texts():
    assert (repr(Dimension(3)), str(Dimension(3))) == ("Dimension(3)", "3")
    assert (repr(Dimension(None)), str(Dimension(None))) == ("Dimension(None)", "?")


def test_dimension_merging():
    assert Dimension(3).merge_with(None).value == 3
    assert Dimension(None).merge_with(3).value == 3
    assert Dimension(3).is_compatible_with(None)
    assert not Dimension(3).is_compatible_with(4)
    with pytest.raises(ValueError, match="dimensions 3 and 4 are not compatible"):
        Dimension(3).merge_with(4)


def test_dimension_value():
    assert dimension_value(Dimension(3)) == 3
    assert dimension_value(Dimension(None)) is None
    assert dimension_value(3) == 3
    assert dimension_value(None) is None


# -- TensorShape ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "sizes"),
    [
        (None, None),
        ([], ()),
        (3, (3,)),
        (np.int32(3), (3,)),
        ([2, None], (2, None)),
        ((2, Dimension(3)), (2, 3)),
        (np.array([1, 2]), (1, 2)),
        (TensorShape([1]), (1,)),
        (Dimension(None), (None,)),
    ],
)
def test_shape_of_a_value(value, sizes):
    assert as_shape(value) == sizes
    assert TensorShape(value).sizes == sizes


@pytest.mark.parametrize("value", ["ab", b"ab", 2.5, object(), [2.5], ["a"], [True], [[1]]])
def test_no_shape(value):
    with pytest.raises(TypeError, match="expected"):
        TensorShape(value)


def test_negative_sizes_are_refused():
    with pytest.raises(ValueError, match="expected a size >= 0, got -1"):
        TensorShape([2, -1])


@pytest.mark.parametrize("sizes", [[], [3], [2, 3], [None, 3], [None, None]])
def test_equal_to_lists_and_tuples(sizes):
    shape = TensorShape(sizes)
    assert shape == sizes
    assert shape == tuple(sizes)
    assert sizes == shape
    assert shape == TensorShape(sizes)
    assert (shape != sizes) is False
    assert hash(shape) == hash(TensorShape(sizes))
    assert shape != [*sizes, 1]
    assert shape != None  # noqa: E711 - the operator is what is tested
    assert shape != "ab"
    assert shape != [-1]


def test_unknown_rank():
    shape = TensorShape(None)
    assert shape == TensorShape(None)
    assert shape == None  # noqa: E711
    assert shape.ndims is shape.rank is shape.dims is shape.num_elements() is None
    assert not shape
    assert not shape.is_fully_defined()
    assert shape[0].value is None
    assert shape[1:].ndims is None
    assert shape[:2] == [None, None]
    assert shape[1:3] == [None, None]
    assert shape[:-1].ndims is None
    assert str(shape) == "<unknown>"
    assert repr(shape) == "TensorShape(None)"
    for use in (len, list, TensorShape.as_list, TensorShape.as_proto):
        with pytest.raises(ValueError, match="unknown rank"):
            use(shape)


def test_known_rank():
    shape = TensorShape([2, None, 3])
    assert shape.ndims == shape.rank == len(shape) == 3
    assert shape.as_list() == [2, None, 3]
    assert shape.as_proto() == [2, -1, 3]
    assert [size.value for size in shape] == [2, None, 3]
    assert [size.value for size in shape.dims] == [2, None, 3]
    assert shape[0].value == 2
    assert shape[-1].value == 3
    assert isinstance(shape[1:], TensorShape)
    assert shape[1:] == [None, 3]
    assert bool(TensorShape([]))
    with pytest.raises(IndexError):
        _ = shape[3]


@pytest.mark.parametrize(
    ("sizes", "text"), [([], "()"), ([3], "(3,)"), ([2, None], "(2, ?)"), ([1, 2, 3], "(1, 2, 3)")]
)
def test_text(sizes, text):
    assert str(TensorShape(sizes)) == text
    assert repr(TensorShape(sizes)) == f"TensorShape({sizes})"


def test_number_of_elements():
    assert TensorShape([2, 3]).num_elements() == 6
    assert TensorShape([]).num_elements() == 1
    assert TensorShape([0, 3]).num_elements() == 0
    assert TensorShape([2, None]).num_elements() is None


def test_fully_defined():
    assert TensorShape([2, 3]).is_fully_defined()
    assert TensorShape([]).is_fully_defined()
    TensorShape([2]).assert_is_fully_defined()
    with pytest.raises(ValueError, match=r"shape \(2, \?\) is not fully defined"):
        TensorShape([2, None]).assert_is_fully_defined()


def test_ranks():
    shape = TensorShape([2])
    assert shape.with_rank(1) == shape.with_rank_at_least(1) == shape.with_rank_at_most(1) == [2]
    assert TensorShape(None).with_rank(2) == [None, None]
    assert TensorShape(None).with_rank_at_least(2).ndims is None
    shape.assert_has_rank(1)
    TensorShape(None).assert_has_rank(1)
    shape.assert_same_rank([5])
    shape.assert_same_rank(None)
    for check in (
        lambda: shape.with_rank(2),
        lambda: shape.with_rank_at_least(2),
        lambda: shape.with_rank_at_most(0),
        lambda: shape.assert_has_rank(2),
    ):
        with pytest.raises(ValueError, match=r"shape \(2,\) has rank 1, expected"):
            check()
    with pytest.raises(ValueError, match="different ranks"):
        shape.assert_same_rank([1, 1])


def test_joining():
    assert TensorShape([1]).concatenate([2]) == [1, 2]
    assert TensorShape([1]) + [2] == [1, 2]  # noqa: RUF005 - the operator is what is tested
    assert [2] + TensorShape([1]) == [2, 1]  # noqa: RUF005
    assert (TensorShape(None) + [1]).ndims is None  # noqa: RUF005
    assert TensorShape([1]).concatenate(None).ndims is None


def test_numpy_takes_it_for_a_shape():
    shape = TensorShape([2, 3])
    assert np.zeros(shape).shape == (2, 3)
    assert int(np.prod(shape)) == 6
    assert int(np.prod(shape[1:])) == 3
    assert np.zeros([shape[0], 4]).shape == (2, 4)


def test_what_two_shapes_have_in_common():
    common = TensorShape([1, 2]).most_specific_compatible_shape
    assert common([1, 3]) == [1, None]
    assert common([1, None]) == [1, None]
    assert common([1, 2]) == [1, 2]
    assert common([1]).ndims is None
    assert common(None).ndims is None


def test_a_shape_can_be_pickled():
    shape = TensorShape([2, None])
    assert pickle.loads(pickle.dumps(shape)) == shape


partial = st.none() | st.lists(st.none() | st.integers(0, 3), max_size=3)


@given(partial, partial)
def test_merging(a, b):
    a, b = TensorShape(a), TensorShape(b)
    assert a.is_compatible_with(b) == b.is_compatible_with(a)
    if not a.is_compatible_with(b):
        with pytest.raises(ValueError, match="are not compatible"):
            a.merge_with(b)
        with pytest.raises(ValueError, match="are not compatible"):
            a.assert_is_compatible_with(b)
        return
    a.assert_is_compatible_with(b)
    merged = a.merge_with(b)
    assert merged == b.merge_with(a) == a.merge(b)
    # Merging adds what is known, and nothing else.
    assert merged.merge_with(a) == merged.merge_with(b) == merged
    for axis, size in enumerate(merged.sizes or ()):
        known = {shape.sizes[axis] for shape in (a, b) if shape.sizes is not None} - {None}
        assert known == ({size} - {None})


# -- broadcasting ---------------------------------------------------------------------------------


@given(st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=3))
def test_broadcasting_as_numpy(shapes):
    try:
        expected = np.broadcast_shapes(*map(tuple, shapes))
    except ValueError:
        with pytest.raises(ValueError, match="do not broadcast"):
            broadcast_static([tuple(shape) for shape in shapes])
    else:
        assert broadcast_static([tuple(shape) for shape in shapes]) == expected


@given(st.lists(st.lists(st.sampled_from([None, 1, 2, 3]), max_size=3), min_size=1, max_size=2))
def test_broadcasting_partly_known_shapes(shapes):
    """What is claimed holds for every way to fill in the unknown sizes that broadcasts."""
    holes = sum(size is None for shape in shapes for size in shape)
    outcomes = set()
    for filling in itertools.product([1, 2, 3], repeat=holes):
        values = iter(filling)
        full = [tuple(next(values) if size is None else size for size in s) for s in shapes]
        with contextlib.suppress(ValueError):
            outcomes.add(np.broadcast_shapes(*full))
    shapes = [tuple(shape) for shape in shapes]
    if not outcomes:
        with pytest.raises(ValueError, match="do not broadcast"):
            broadcast_static(shapes)
        return
    claimed = broadcast_static(shapes)
    columns = [set(column) for column in zip(*outcomes, strict=True)]
    assert claimed == tuple(column.pop() if len(column) == 1 else None for column in columns)


def test_broadcasting_with_an_unknown_rank():
    assert broadcast_static([(2, 3), None]) is None
    with pytest.raises(ValueError, match=r"shapes \(2,\) and \(3,\) and <unknown> do not"):
        broadcast_static([(2,), (3,), None])
