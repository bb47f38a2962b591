"""Local response normalisation: values, arguments, errors."""

import numpy as np
import pytest

from optkit.gradients import gradients
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.ops.lrn import local_response_normalization, lrn
from optkit.runtime.session import Session
from tests.ops import images


def test_defaults():
    x = np.random.default_rng(0).standard_normal((2, 2, 3, 13)).astype("float32")
    y = lrn(x)
    assert y.op.name == y.op.type == "LRN"
    expected = images.lrn(x.astype("float64"))
    np.testing.assert_allclose(Session().run(y), expected, rtol=1e-5, atol=1e-6)
    assert local_response_normalization is lrn


def test_float16_is_computed_in_float32():
    x = constant(np.array([[[[400.0, 0]]]], "float16"))  # 400² is not finite in float16
    y = lrn(x)
    value, dx = Session().run([y, gradients(y, x)[0]])
    assert value.dtype == dx.dtype == "float16"
    np.testing.assert_allclose(value.ravel(), [1, 0], rtol=1e-3)
    np.testing.assert_allclose(dx.ravel(), [0, 1 / 400], rtol=1e-3, atol=1e-6)


def test_bad_arguments():
    x = placeholder("float32", [None, 4])
    with pytest.raises(ValueError, match=r"input: expected four axes \(NHWC\), got shape"):
        lrn(x)
    with pytest.raises(ValueError, match="depth_radius: expected an int ≥ 0, got -1"):
        lrn(np.ones((1, 1, 1, 1)), -1)
    with pytest.raises(TypeError, match="depth_radius: expected an int"):
        lrn(np.ones((1, 1, 1, 1)), 2.5)
