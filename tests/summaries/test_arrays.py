import numpy as np
import pytest

from summaries._arrays import real_array, to_numpy


class OnDevice:
    """As a CuPy array: no implicit copies, `get` returns a NumPy array."""

    def __init__(self, array):
        self._array = array

    def get(self):
        return self._array

    def __array__(self, dtype=None, copy=None):
        raise TypeError("implicit conversion to a NumPy array is not allowed")


class OnDeviceWithInterface(OnDevice):
    """As CuPy's own: the interface also tells that it is a device array."""

    __cuda_array_interface__ = ()
    __dlpack__ = None


class Tracked:
    """As a PyTorch tensor with a gradient: exports only after `detach` and `cpu`."""

    def __init__(self, array, steps=()):
        self._array = array
        self._steps = steps

    def detach(self):
        return Tracked(self._array, (*self._steps, "detach"))

    def cpu(self):
        return Tracked(self._array, (*self._steps, "cpu"))

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __dlpack__(self, **options):
        assert self._steps == ("detach", "cpu")
        return self._array.__dlpack__(**options)


class Sparse:
    """As a sparse PyTorch tensor: its merged values are a tensor."""

    is_sparse = True

    def __init__(self, array, steps=()):
        self._array = array
        self._steps = steps

    def detach(self):
        return Sparse(self._array, ("detach",))

    def coalesce(self):
        return Sparse(self._array, (*self._steps, "coalesce"))

    def values(self):
        assert self._steps == ("detach", "coalesce")
        return Tracked(self._array, ("detach",))

    def cpu(self):
        raise AssertionError("all of it")


class Small:
    """As a PyTorch tensor of bfloat16, which NumPy has not."""

    def __init__(self, array):
        self._array = array

    def detach(self):
        return self

    cpu = detach

    def __array__(self, dtype=None, copy=None):
        raise TypeError("unsupported ScalarType")

    def float(self):
        return self._array


class Valueless(Small):
    """As a PyTorch tensor of the device "meta"."""

    def cpu(self):
        raise NotImplementedError("no data")


class Exporting:
    """An array that knows DLPack alone, or `__array__` too where DLPack fails."""

    def __init__(self, array, error=None):
        self._array = array
        self._error = error

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __dlpack__(self, **options):
        if self._error:
            raise self._error
        return self._array.__dlpack__(**options)

    def __array__(self, dtype=None, copy=None):
        assert self._error, "DLPack comes first"
        return self._array


VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    "wrapped",
    [
        VALUES,
        VALUES.tolist(),
        OnDevice(VALUES),
        OnDeviceWithInterface(VALUES),
        Tracked(VALUES),
        Sparse(VALUES),
        Small(VALUES),
        Exporting(VALUES),
        Exporting(VALUES, BufferError("no")),
        Exporting(VALUES, RuntimeError("no")),
    ],
    ids=[
        "numpy",
        "list",
        "device",
        "cupy",
        "torch",
        "sparse",
        "small",
        "dlpack",
        "dlpack fails",
        "dlpack raises",
    ],
)
def test_p101_any_array_becomes_numpy(wrapped):
    array = to_numpy(wrapped)
    assert type(array) is np.ndarray
    np.testing.assert_array_equal(array, VALUES)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, bool])
def test_what_is_masked_is_nan(dtype):
    values = np.array([1, 0, 1], dtype)
    masked = np.ma.masked_array(values, [False, True, False])
    np.testing.assert_array_equal(to_numpy(masked), [1, np.nan, 1])
    assert np.isnan(to_numpy(np.ma.masked))


def test_memory_is_shared_where_it_can_be():
    assert to_numpy(VALUES) is VALUES
    assert np.shares_memory(to_numpy(Exporting(VALUES)), VALUES)


@pytest.mark.parametrize("value", [1j, "text", None, [1, "a"], np.array(["2020"], "M8[Y]")])
def test_what_is_not_real_names_the_tag(value):
    with pytest.raises(TypeError, match="'loss' takes real numbers, not"):
        real_array("loss", value)


def test_a_tensor_without_values_names_the_tag():
    with pytest.raises(TypeError, match="'loss' takes real numbers: no data"):
        real_array("loss", Valueless(VALUES))


def test_a_ragged_list_names_the_tag():
    with pytest.raises(ValueError, match=r"'loss' takes real numbers: .*inhomogeneous"):
        real_array("loss", [[1], [2, 3]])


def test_the_small_floats_of_ml_dtypes_are_real():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = real_array("x", VALUES.astype(ml_dtypes.bfloat16))
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, VALUES)
