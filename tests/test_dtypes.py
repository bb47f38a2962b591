"""DTypes have TF1's attributes and pass for NumPy's dtypes."""

import copy
import pickle

import numpy as np
import pytest

from optkit import dtypes
from optkit.dtypes import DType, as_dtype, result_dtype
from optkit.ops.array import placeholder

FLOATING = ["float16", "float32", "float64"]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
COMPLEX = ["complex64", "complex128"]
WITH_NUMPY = [*FLOATING, *SIGNED, *UNSIGNED, *COMPLEX, "bool"]
ALL = [*WITH_NUMPY, "bfloat16", "string"]


def named(name: str) -> DType:
    return getattr(dtypes, "bool_" if name == "bool" else name)


@pytest.mark.parametrize("name", ALL)
def test_kind_attributes(name):
    dtype = named(name)
    assert dtype.name == name
    assert dtype.is_floating == (name in [*FLOATING, "bfloat16"])
    assert dtype.is_integer == (name in SIGNED + UNSIGNED)
    assert dtype.is_unsigned == (name in UNSIGNED)
    assert dtype.is_complex == (name in COMPLEX)
    assert dtype.is_bool == (name == "bool")
    assert dtype.is_quantized is False
    assert dtype.is_numpy_compatible is True
    assert dtype.base_dtype is dtype
    assert dtype.as_datatype_enum == name


@pytest.mark.parametrize("name", WITH_NUMPY)
def test_numpy_attributes(name):
    dtype = named(name)
    expected = np.dtype(name)
    assert dtype.as_numpy_dtype is expected.type
    assert dtype.size == expected.itemsize


@pytest.mark.parametrize("name", WITH_NUMPY)
def test_numpy_takes_it_for_a_dtype(name):
    # Warnings are errors here: NumPy deprecates some objects with a `dtype` attribute.
    dtype, expected = named(name), np.dtype(name)
    assert np.dtype(dtype) == expected
    assert np.zeros(2, dtype).dtype == expected
    assert np.array([1, 0], dtype=dtype).dtype == expected
    assert np.ones(1).astype(dtype).dtype == expected
    assert np.issubdtype(np.dtype(dtype), expected.type)
    assert np.asarray([0, 1]).view(np.int64).astype(dtype).dtype == dtype


def test_string_is_an_array_of_objects():
    assert np.empty(1, dtypes.string).dtype == np.dtype(object)
    assert dtypes.string.size == 1


@pytest.mark.parametrize("name", COMPLEX)
def test_real_dtype_of_complex(name):
    assert (
        named(name).real_dtype
        is {
            "complex64": dtypes.float32,
            "complex128": dtypes.float64,
        }[name]
    )


@pytest.mark.parametrize("name", [*FLOATING, *SIGNED, *UNSIGNED, "bool", "string"])
def test_real_dtype_of_others_is_itself(name):
    assert named(name).real_dtype is named(name)


@pytest.mark.parametrize("name", FLOATING)
def test_limits_of_floats(name):
    dtype = named(name)
    assert (dtype.min, dtype.max) == (np.finfo(name).min, np.finfo(name).max)
    assert dtype.limits == (0, 1)


@pytest.mark.parametrize("name", SIGNED + UNSIGNED)
def test_limits_of_integers(name):
    dtype = named(name)
    assert (dtype.min, dtype.max) == (np.iinfo(name).min, np.iinfo(name).max)
    assert dtype.limits == (0, np.iinfo(name).max)


@pytest.mark.parametrize("name", ["bool", "string", *COMPLEX])
def test_no_limits_of_others(name):
    with pytest.raises(TypeError, match=f"dtype {name} has no smallest and largest value"):
        _ = named(name).min
    with pytest.raises(TypeError, match="no smallest"):
        _ = named(name).max
    with pytest.raises(ValueError, match=f"dtype {name} has no range of intensities"):
        _ = named(name).limits


@pytest.mark.parametrize("name", WITH_NUMPY)
def test_equality(name):
    dtype = named(name)
    assert dtype == name
    assert dtype == np.dtype(name)
    assert np.dtype(name) == dtype
    assert dtype == np.dtype(name).type
    assert dtype.is_compatible_with(name)
    others = [named(other) for other in WITH_NUMPY if other != name]
    assert all(dtype != other and not dtype.is_compatible_with(other) for other in others)
    assert len({dtype, *others}) == len(WITH_NUMPY)


@pytest.mark.parametrize("other", [None, 3, "nonsense", [1], object(), {}])
def test_unequal_to_what_is_no_dtype(other):
    assert dtypes.float32 != other
    assert not dtypes.float32.is_compatible_with(other)


def test_unequal_to_a_tensor():
    x = placeholder(dtypes.float32)
    assert dtypes.float32 != x
    with pytest.raises(TypeError, match="dtype: expected a data type"):
        as_dtype(x)


def test_texts():
    assert repr(dtypes.float32) == "optkit.float32"
    assert str(dtypes.float32) == "<dtype: 'float32'>"


@pytest.mark.parametrize("name", ALL)
def test_copies_are_the_same_object(name):
    dtype = named(name)
    assert copy.deepcopy(dtype) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype


# Names, NumPy's types and Python's; observed in TensorFlow but for the last four, which it refuses.
@pytest.mark.parametrize(
    ("value", "name"),
    [
        *[(name, name) for name in ALL],
        *[(np.dtype(name), name) for name in WITH_NUMPY],
        *[(np.dtype(name).type, name) for name in WITH_NUMPY],
        ("half", "float16"),
        ("float", "float32"),
        ("double", "float64"),
        (float, "float32"),
        (bool, "bool"),
        (object, "string"),
        (np.str_, "string"),
        (np.dtype("S3"), "string"),
        (np.dtype("U3"), "string"),
        (int, "int32"),
        ("int", "int32"),
        (complex, "complex128"),
        (str, "string"),
    ],
)
def test_as_dtype(value, name):
    assert as_dtype(value) is named(name)


def test_as_dtype_gives_a_dtype_back():
    assert as_dtype(dtypes.bfloat16) is dtypes.bfloat16


@pytest.mark.parametrize(
    "value", [None, "nonsense", 3, 1.5, [1], {}, object(), np.arange(3), list, lambda: 1]
)
def test_as_dtype_refuses(value):
    with pytest.raises(TypeError, match=r"dtype: expected a data type, got"):
        as_dtype(value)


@pytest.mark.parametrize("value", [np.longdouble, "M8[s]", "m8[s]", np.void])
def test_as_dtype_refuses_numpy_types_without_a_counterpart(value):
    with pytest.raises(TypeError, match="optkit has no type for NumPy's"):
        as_dtype(value)


def test_bfloat16_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    dtype = DType("bfloat16")  # the shared one may have found its type already
    assert dtype.is_floating
    assert dtype.size == 2
    for ask in (lambda: dtype.as_numpy_dtype, lambda: np.zeros(1, dtype), lambda: dtype.max):
        with pytest.raises(TypeError, match=r"dtype bfloat16 needs the ml_dtypes package"):
            ask()


# Observed in TensorFlow; test_core.py has the whole table of what `constant` makes of a value.
@pytest.mark.parametrize(
    ("value", "name"),
    [
        (1.5, "float32"),
        ([1, 2.5], "float32"),
        ([], "float32"),
        (1, "int32"),
        (2**31, "int64"),
        (2**63, "uint64"),
        (True, "bool"),
        (np.float64(1), "float64"),
        (np.arange(3), "int64"),
        ([np.float64(1)], "float32"),
        ([np.int64(1)], "int32"),
        ([np.int16(1)], "int16"),
        ([np.zeros(2), np.zeros(2)], "float64"),
    ],
)
def test_result_dtype(value, name):
    assert result_dtype(value) is named(name)
