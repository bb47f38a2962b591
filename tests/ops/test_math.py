"""What the op table does not say of arithmetic and casts: names, dtypes, errors, special values."""

import math

import numpy as np
import pytest

from optkit.dtypes import as_dtype
from optkit.errors import InvalidArgumentError
from optkit.gradients import gradients
from optkit.graph import IndexedSlices, Tensor
from optkit.ops import math as ops
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.ops.reductions import reduce_sum
from optkit.runtime.session import Session
from tests.gradcheck import check_gradients


def run(fetches, feed=None):
    return Session().run(fetches, feed)


def gradient(y, x):
    return run(gradients(y, x)[0])


# -- operators ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "name", "type_name", "value"),
    [
        (lambda x: x + 1, "add", "Add", 4.0),
        (lambda x: 1 + x, "add", "Add", 4.0),
        (lambda x: x - 1, "sub", "Sub", 2.0),
        (lambda x: 1 - x, "sub", "Sub", -2.0),
        (lambda x: x * 2, "mul", "Mul", 6.0),
        (lambda x: 2 * x, "mul", "Mul", 6.0),
        (lambda x: x / 2, "truediv", "RealDiv", 1.5),
        (lambda x: 6 / x, "truediv", "RealDiv", 2.0),
        (lambda x: x // 2, "floordiv", "FloorDiv", 1.0),
        (lambda x: 7 // x, "floordiv", "FloorDiv", 2.0),
        (lambda x: x % 2, "mod", "FloorMod", 1.0),
        (lambda x: 7 % x, "mod", "FloorMod", 1.0),
        (lambda x: x**2, "pow", "Pow", 9.0),
        (lambda x: 2**x, "pow", "Pow", 8.0),
        (lambda x: -x, "Neg", "Neg", -3.0),
        (lambda x: abs(-x), "Abs", "Abs", 3.0),
        (lambda x: x < 4, "Less", "Less", True),
        (lambda x: x <= 3, "LessEqual", "LessEqual", True),
        (lambda x: x > 4, "Greater", "Greater", False),
        (lambda x: x >= 3, "GreaterEqual", "GreaterEqual", True),
    ],
)
def test_operators_are_named_as_in_tf(build, name, type_name, value):
    y = build(constant(3.0))
    assert (y.op.name, y.op.type) == (name, type_name)
    result = run(y)
    assert result == value
    assert result.dtype == y.dtype == (np.bool_ if isinstance(value, bool) else np.float32)


def test_functions_are_named_by_type_or_as_asked():
    x = constant(1.0)
    assert ops.add(x, x).op.name == "Add"
    assert ops.add(x, x).op.name == "Add_1"
    assert ops.multiply(x, x, name="area").op.name == "area"
    assert ops.multiply(x, x, "area").op.name == "area_1"
    assert ops.truediv(x, x).op.name == "truediv"


def test_a_third_tensor_is_no_name():
    x = constant(1.0)
    with pytest.raises(TypeError, match="add: name: expected a string"):
        ops.add(x, x, x)


def test_constants_of_an_operator_are_named_inside_it(graph):
    x = constant(3.0)
    _ = x * 2.0
    assert [op.name for op in graph.get_operations()] == ["Const", "mul/y", "mul"]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("number", [2, 2.0, np.float64(2), np.float32(2), np.array(2.0)])
def test_numbers_take_the_dtype_of_the_tensor(dtype, number):
    x = constant([1.0, 2.0], dtype)
    for y in (x * number, number * x, ops.maximum(x, number), x**number, x / number):
        assert y.dtype == dtype
        assert run(y).dtype == dtype


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        lambda x, y: x + y,
        lambda x, y: y - x,
        lambda x, y: x / y,
        lambda x, y: y / x,
        ops.maximum,
    ],
)
def test_dtypes_that_differ_are_refused_by_name(build, graph):
    x, y = constant(1.0, name="x"), constant(1, name="y")
    before = graph.get_operations()
    with pytest.raises(TypeError, match=r"(?s)\w+ '\w+': \w: expected \w+, got .*dtype=\w+") as e:
        build(x, y)
    assert "float32" in str(e.value)
    assert "int32" in str(e.value)
    assert graph.get_operations() == before


def test_a_float_does_not_fit_integers():
    with pytest.raises(TypeError, match=r"Mul 'mul': y: expected int32, got 2\.5"):
        constant(1) * 2.5


def test_shapes_that_do_not_broadcast_are_refused():
    x, y = constant([1.0, 2.0], name="two"), constant([1.0, 2.0, 3.0], name="three")
    with pytest.raises(ValueError, match=r"Add: shapes \(2,\) and \(3,\).*'two:0'.*'three:0'"):
        x + y


def test_shapes_unknown_until_the_run_are_refused_then():
    x, y = placeholder("float32", [None]), placeholder("float32", [None])
    with pytest.raises(InvalidArgumentError, match=r"(?s)operation 'add' \(Add\).*test_math"):
        run(x + y, {x: [1.0, 2.0], y: [1.0, 2.0, 3.0]})


def test_bool_is_no_number():
    with pytest.raises(TypeError, match=r"Add 'add': x: expected one of .*, got bool"):
        constant(True) + constant(True)


# -- sums -----------------------------------------------------------------------------------------


def test_add_n_of_one_is_that_one():
    x = constant(1.0)
    assert ops.add_n([x]) is x
    assert ops.add_n(x) is x


def test_add_n_adds_rows():
    rows = IndexedSlices(constant([[1.0], [2.0]]), constant([1, 1]), constant([3, 1]))
    total = ops.add_n([rows, constant([[10.0], [10.0], [10.0]])])
    np.testing.assert_array_equal(run(total), [[10], [13], [10]])


def test_add_n_merges_static_shapes():
    x, y = placeholder("float32", [None, 3]), placeholder("float32", [2, None])
    assert ops.add_n([x, y]).shape.as_list() == [2, 3]


@pytest.mark.parametrize("function", [ops.add_n, ops.accumulate_n])
def test_add_n_refuses_nothing_and_other_shapes(function):
    with pytest.raises(ValueError, match="inputs: expected at least one tensor"):
        function([])
    with pytest.raises(ValueError, match=r"AddN: .*\(\) and \(1,\)"):
        function([constant(1.0), constant([1.0])])
    with pytest.raises(TypeError, match=r"AddN .*inputs\[1\]: expected float32, got .*int32"):
        function([constant(1.0), constant(1)])


def test_accumulate_n_checks_what_is_stated():
    x = placeholder("float32", None)
    assert ops.accumulate_n([x, x], shape=[2]).shape.as_list() == [2]
    with pytest.raises(TypeError, match="expected float64, got float32"):
        ops.accumulate_n([x, x], tensor_dtype="float64")
    with pytest.raises(ValueError, match="not compatible"):
        ops.accumulate_n([constant(1.0)], shape=[2])


def test_scalar_mul():
    assert run(ops.scalar_mul(2, constant([1.0, 3.0]))).tolist() == [2.0, 6.0]
    rows = IndexedSlices(constant([1.0, 2.0]), constant([0, 4]))
    scaled = ops.scalar_mul(constant(3.0), rows)
    assert scaled.indices is rows.indices
    assert run(scaled.values).tolist() == [3.0, 6.0]
    with pytest.raises(ValueError, match="scalar: expected a scalar"):
        ops.scalar_mul([1.0, 2.0], constant(1.0))


# -- division -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "result"),
    [
        ("int8", "float32"),
        ("uint8", "float32"),
        ("int16", "float32"),
        ("int32", "float64"),
        ("int64", "float64"),
        ("float16", "float16"),
        ("float32", "float32"),
    ],
)
def test_true_division_of_integers_gives_floats(dtype, result):
    x = constant([7, 6], dtype)
    for y in (x / 2, ops.divide(x, 2), ops.truediv(x, constant(2, dtype)), 42 / (x / x * 12)):
        assert y.dtype == result
    assert run(x / 2).tolist() == [3.5, 3.0]
    assert run(7 / constant(2, dtype)) == 3.5


def test_plain_numbers_divide():
    assert run(ops.truediv(7, 2)) == 3.5
    assert run(ops.truediv(7.0, 2)) == 3.5
    assert run(ops.floordiv(7, 2)) == 3
    assert run(ops.div(7, 2)) == 3


def test_div_is_python_twos():
    y = ops.div(constant([-7, 7]), 2)
    assert (y.dtype, run(y).tolist(), y.op.type) == (np.int32, [-4, 3], "FloorDiv")
    y = ops.div(constant(7.0), 2)
    assert (run(y), y.op.type) == (3.5, "RealDiv")


def test_floored_division_floors_the_quotient():
    # As TF; Python's own 1.0 // 0.1 is 9, for 0.1 is a little more than a tenth.
    assert run(constant(1.0, "float64") // 0.1) == 10.0


def test_dividing_by_zero():
    x = constant([1.0, -1.0, 0.0])
    np.testing.assert_array_equal(run(x / 0), [math.inf, -math.inf, math.nan])
    np.testing.assert_array_equal(run(x // 0), [math.inf, -math.inf, math.nan])
    for y in (constant([1, 2]) // [1, 0], constant([1, 2]) % [1, 0]):
        with pytest.raises(InvalidArgumentError, match="integers other than 0 to divide by"):
            run(y)


def test_division_without_nan_has_no_gradient_at_zero():
    x, y = constant([1.0, 0.0, 3.0]), constant([0.0, 0.0, 2.0])
    z = ops.div_no_nan(x, y)
    assert gradient(z, x).tolist() == [0.0, 0.0, 0.5]
    assert gradient(z, y).tolist() == [0.0, 0.0, -0.75]


# -- powers, signs, extremes ----------------------------------------------------------------------


def test_the_gradient_of_an_exponent_is_zero_where_the_base_is_not_positive():
    x = constant([-2.0, 0.0, 2.0])
    y = constant([2.0, 2.0, 2.0])
    expected = [0.0, 0.0, 4 * math.log(2)]
    np.testing.assert_allclose(gradient(x**y, y), expected, rtol=1e-6)
    np.testing.assert_allclose(gradient(x**y, x), [-4, 0, 4], rtol=1e-6)


@pytest.mark.parametrize("constant_exponent", [True, False])
def test_powers_are_differentiated_at_zero(constant_exponent):
    x = constant([0.0, 0.0, 0.0], "float64")
    exponents = [0.0, 1.0, 2.0]
    if constant_exponent:
        y, feed = constant(exponents, "float64"), {}
    else:
        y = placeholder("float64", [3])
        feed = {y: exponents}
    first = gradients(x**y, x)[0]
    second = gradients(first, x)[0]
    third = gradients(second, x)[0]
    for dx, expected in ((first, [0, 1, 0]), (second, [0, 0, 2]), (third, [0, 0, 0])):
        assert run(dx, feed).tolist() == expected


def test_a_constant_exponent_has_mixed_derivatives():
    x, y = constant(3.0, "float64"), constant(2.0, "float64")
    dx, dy = gradients(x**y, [x, y])
    # ∂²(x^y)/∂x∂y = x^(y-1)·(1 + y·log x), in either order.
    expected = 3.0 * (1 + 2 * math.log(3.0))
    assert gradient(dx, y) == pytest.approx(expected)
    assert gradient(dy, x) == pytest.approx(expected)


def test_integers_have_no_negative_powers():
    with pytest.raises(InvalidArgumentError, match="exponents >= 0 for integers"):
        run(constant(2) ** -1)
    assert run(constant(2, "uint8") ** 3) == 8


def test_abs_and_sign_at_zero():
    x = constant([-2.0, 0.0, 3.0])
    assert gradient(ops.abs(x), x).tolist() == [-1.0, 0.0, 1.0]
    assert gradient(ops.sign(x), x).tolist() == [0.0, 0.0, 0.0]
    infinite = constant([math.inf, 1.0])
    assert run(gradients(ops.sign(x), x, [[math.inf] * 3])[0]).tolist() == [0.0, 0.0, 0.0]
    assert gradient(ops.abs(infinite), infinite).tolist() == [1.0, 1.0]


def test_equal_values_give_the_first_the_gradient():
    for function in (ops.maximum, ops.minimum):
        x, y = constant([1.0]), constant([1.0])
        assert gradient(function(x, y), x).tolist() == [1.0]
        assert gradient(function(x, y), y).tolist() == [0.0]


def test_extremes_of_nan_are_nan():
    for function in (ops.maximum, ops.minimum):
        values = run(function(constant([math.nan, 1.0]), [1.0, math.nan]))
        assert np.isnan(values).all()


def test_a_selection_gives_the_side_not_chosen_zero():
    x, y = constant([1.0, 2.0]), constant([3.0, 4.0])
    z = ops.select([True, False], x, y)
    dx, dy = run(gradients(z, [x, y], [[math.inf, math.inf]]))
    assert dx.tolist() == [math.inf, 0.0]
    assert dy.tolist() == [0.0, math.inf]


def test_broadcast_inputs_get_sums():
    check_gradients(
        lambda x, y, z: (x * y + z) / (1 + y**2),
        [np.arange(6.0).reshape(2, 3), np.array([[1.0], [2.0]]), np.array(3.0)],
        order=2,
    )


# -- casts and checks -----------------------------------------------------------------------------


def test_a_cast_to_the_same_dtype_is_the_tensor():
    x = constant(1.0)
    assert ops.cast(x, "float32") is x
    assert ops.to_float(x) is x


def test_named_casts():
    x = constant(2.7)
    for function, name in (
        (ops.to_double, "float64"),
        (ops.to_int32, "int32"),
        (ops.to_int64, "int64"),
    ):
        y = function(x)
        assert y.dtype == name
        assert y.op.name == f"To{function.__name__[3:].title()}"
    assert ops.to_float(constant(3)).op.name == "ToFloat"


def test_casts_of_rows():
    rows = IndexedSlices(constant([1.0]), constant([3]), constant([5]))
    cast = ops.cast(rows, "float16")
    assert cast.dtype == "float16"
    assert cast.indices is rows.indices
    assert cast.dense_shape is rows.dense_shape


def test_a_complex_number_is_cast_to_its_real_part():
    z = constant([1 + 2j, -3j], "complex64")
    assert run(ops.cast(z, "float32")).tolist() == [1.0, 0.0]
    assert run(ops.cast(z, "complex128")).dtype == "complex128"


def test_gradients_pass_casts_between_floats_only():
    x = constant([1.5, 2.5])
    (dx,) = gradients(reduce_sum(ops.cast(x, "float64") ** 2), x)
    assert dx.dtype == "float32"
    assert run(dx).tolist() == [3.0, 5.0]
    assert gradients(ops.cast(ops.cast(x, "int32"), "float32"), x) == [None]


@pytest.mark.parametrize(
    ("value", "dtype", "wanted", "expected"),
    [
        ([300.0, -5.0, 7.9], "float32", "uint8", [255, 0, 7]),
        ([300, -300], "int32", "int8", [127, -128]),
        ([1e30, -1e30, 3.0], "float32", "int32", [2**31 - 128, -(2**31), 3]),
        ([1e30, -1e30, 3.0], "float64", "int32", [2**31 - 1, -(2**31), 3]),
        ([1e6, -1e6, 0.5], "float64", "float16", [65504, -65504, 0.5]),
        ([1.5], "float32", "float64", [1.5]),
    ],
)
def test_saturating_casts(value, dtype, wanted, expected):
    y = ops.saturate_cast(constant(value, dtype), wanted)
    assert y.dtype == wanted
    assert run(y).tolist() == expected


def test_check_numerics_passes_what_is_finite():
    x = constant([1.0, -2.0])
    y = ops.check_numerics(x, "the loss")
    assert run(y).tolist() == [1.0, -2.0]
    assert gradient(y, x).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("value", "kinds"),
    [
        (math.nan, "NaN"),
        (math.inf, "Inf"),
        (-math.inf, "Inf"),
        ([math.nan, math.inf], "NaN and Inf"),
    ],
)
def test_check_numerics_says_what_it_was_told(value, kinds):
    y = ops.check_numerics(constant(value), "LossTensor is inf or nan")
    with pytest.raises(InvalidArgumentError, match="LossTensor is inf or nan : Tensor had") as e:
        run(y)
    assert kinds in str(e.value)


def test_check_numerics_checks_the_gradient():
    x = constant(0.0)
    y = ops.check_numerics(x, "root's input") ** 0.5
    with pytest.raises(InvalidArgumentError, match="gradient of the tensor checked for"):
        gradient(y, x)


def test_check_numerics_wants_floats():
    with pytest.raises(TypeError, match=r"CheckNumerics .*tensor: expected one of .*int32"):
        ops.check_numerics(constant(1), "an integer")


def test_results_keep_the_dtype_at_every_rank():
    """0-d results are NumPy scalars inside a run; none may widen its dtype."""
    for dtype in ("float16", "float32"):
        x = placeholder(dtype, [])
        y = ops.squared_difference(x * 2 + 1, 0.5) / 3 - x
        assert y.dtype == as_dtype(dtype)
        assert run(y, {x: 1.5}).dtype == dtype
    assert isinstance(y, Tensor)
