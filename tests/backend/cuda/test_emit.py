"""Kernel texts, which need no device: what is listed, and what one says."""

import re

import numpy as np
import pytest

import optkit  # noqa: F401 - registers the optimizers' equations
from optkit.backend.cuda import TracedEquation, kernel_sources, register_equations, sources
from optkit.backend.cuda.emit import update_source
from optkit.backend.fused.trace import trace

OPTIMIZERS = [
    "adadelta",
    "adagrad",
    "adagrad_da",
    "adam",
    "ftrl",
    "gradient_descent",
    "momentum",
    "momentum_nesterov",
    "proximal_adagrad",
    "proximal_gradient_descent",
    "rmsprop",
    "rmsprop_centered",
]


@pytest.fixture(scope="module")
def listed():
    return kernel_sources()


def text_of(equation, slots=0, hyper=(), dtype=np.float32):
    return update_source(trace(equation, slots, hyper), np.dtype(dtype))


def rule_of(text):
    """The body of the function that updates one element."""
    return re.search(r"void rule\(.*?\) \{\n(.*?)\n\}", text, re.DOTALL)[1].split("\n")


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_optimizer_has_its_kernels(listed, name, dtype):
    for kind in ("", "_scaled"):
        text, options = listed[f"{name}{kind}-{dtype}"]
        assert "--fmad=false" in options
        assert "void update(" in text
        assert "void update_rows(" in text
        assert ("at_gradient_scale" in text) is bool(kind)
        assert ("float16.cuh" in text) is (dtype == "float16")


def test_every_kernel_file_is_listed(listed):
    for path in (sources.KERNELS).glob("*.cu"):
        assert any(name.split("-")[0] == path.stem for name in listed), path.stem
    assert {"norm-float16", "segments-int64", "histogram-float64", "bounds-int32"} <= set(listed)
    assert all("atomicAdd" not in text or "histogram" in name for name, (text, _) in listed.items())


def test_equations_that_cannot_be_followed_are_left_out(monkeypatch):
    monkeypatch.setattr(sources, "_equations", [])
    register_equations(
        lambda: [
            TracedEquation("good", lambda xp, w, g: w - g, 0, ()),
            TracedEquation("bad", lambda xp, w, g: w if g else g, 0, ()),
        ]
    )
    names = {name.split("-")[0] for name in kernel_sources()}
    assert "good" in names
    assert "bad" not in names


def test_the_rule_is_the_equation():
    def equation(xp, w, g, m, *, rate):
        m = m + 0.1 * g
        return w - rate * m, m

    assert rule_of(text_of(equation, 1, ("rate",))) == [
        "  const N old_w = (N)w;",
        "  const N old_slot0 = (N)slot0;",
        "  const N old_g = (N)g;",
        "  const N x5 = (N(0.1) * old_g);",
        "  const N x6 = (old_slot0 + x5);",
        "  const N x7 = (h_rate * x6);",
        "  const N x8 = (old_w - x7);",
        "  w = T(x8);",
        "  slot0 = T(x6);",
    ]


def test_numbers_are_worked_out_before_the_elements():
    text = text_of(lambda xp, w, g, *, rate: w - xp.sqrt(1 - rate) * g, 0, ("rate",))
    kernel = text[text.index("void update(") :]
    assert "const N h_rate = *at_rate;" in kernel
    assert "const N n2 = (N(1.0) - h_rate);" in kernel
    assert "const N n3 = sqrt(n2);" in kernel
    assert "sqrt" not in "".join(rule_of(text))


@pytest.mark.parametrize(
    ("equation", "line"),
    [
        (lambda xp, w, g: w * (g > 0), "(old_w * N(x"),
        (lambda xp, w, g: xp.where(g > 0, w, 0), " ? N(old_w) : N(N(0.0)))"),
        (lambda xp, w, g: xp.maximum(w, g), "largest(old_w, old_g)"),
        (lambda xp, w, g: xp.minimum(w, g), "smallest(old_w, old_g)"),
        (lambda xp, w, g: xp.sign(g) * w, "sign_of(old_g)"),
        (lambda xp, w, g: w - g**2, "(old_g * old_g)"),
        (lambda xp, w, g: w - g**1.5, "pow(old_g, N(1.5))"),
        (lambda xp, w, g: w + xp.inf * g, "N(1e300 * 1e300)"),
        (lambda xp, w, g: xp.where(~xp.isnan(g), w, g), "(old_g != old_g)"),
        (lambda xp, w, g: xp.abs(w) - g, "fabs(old_w)"),
    ],
    ids=["truth", "where", "max", "min", "sign", "square", "power", "infinity", "nan", "abs"],
)
def test_what_functions_become(equation, line):
    assert line in "\n".join(rule_of(text_of(equation)))


def test_dtypes_without_a_kernel():
    with pytest.raises(KeyError, match="int32"):
        text_of(lambda xp, w, g: w - g, dtype=np.int32)
    with pytest.raises(KeyError, match="bool"):
        sources.source("norm", "bool")
