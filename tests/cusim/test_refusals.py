"""What cusim refuses, and says, before it touches CuPy."""

import subprocess
import sys

import pytest

from tests import cusim
from tests.cusim import cache, compiler
from tests.cusim.install import installed


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({}, "installed: none"),
        ({"cupy-cuda13x": "14.2.1"}, "installed: cupy-cuda13x==14.2.1. For another version"),
        ({"cupy": "14.2.0"}, "installed: cupy==14.2.0"),
        (
            {"cupy-cuda12x": "14.2.0", "cupy-cuda13x": "14.2.0"},
            "installed: cupy-cuda12x==14.2.0, cupy-cuda13x==14.2.0",
        ),
    ],
)
def test_every_cupy_but_the_known_one(found, told):
    with pytest.raises(cusim.CusimError, match=r"cupy-cuda12x==.* or cupy-cuda13x==") as e:
        cusim.check(found)
    assert told in str(e.value)


def test_the_known_one():
    assert cusim.check({"cupy-cuda13x": cusim.CUPY_VERSION}) == "13"
    assert cusim.check({"cupy-cuda12x": cusim.CUPY_VERSION}) == "12"


def test_installing_after_cupy_was_imported():
    code = (
        "import sys, types; sys.modules['cupy'] = types.ModuleType('cupy')\n"
        "from tests import cusim; cusim.install()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "cusim.install() comes too late: CuPy has been imported" in done.stderr


@pytest.mark.skipif(bool(installed()), reason="CuPy is installed")
def test_without_cupy():
    with pytest.raises(cusim.CusimError, match="installed: none"):
        cusim.install()
    with pytest.raises(cusim.CusimError, match=r"call cusim.install\(\) before CuPy is imported"):
        cusim.stats()


def test_a_compiler_that_is_missing_or_refuses(tmp_path):
    with pytest.raises(cusim.CusimError, match="cusim needs the compiler no-such-compiler"):
        cache.built(tmp_path / "a.so", ["no-such-compiler"])
    refusing = [sys.executable, "-c", "import sys; sys.exit('line 1: no')"]
    with pytest.raises(cusim.CusimError, match="line 1: no"):
        cache.built(tmp_path / "a.so", refusing)
    assert list(tmp_path.iterdir()) == []


def test_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("OPTKIT_CUSIM_CACHE", str(tmp_path / "kept"))
    assert cusim.folder() == tmp_path / "kept"
    assert cusim.folder().is_dir()
    monkeypatch.delenv("OPTKIT_CUSIM_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cusim.folder() == tmp_path / ".cache" / "optkit" / "cusim"


def test_kernels_are_found_in_a_text():
    text = (
        'extern "C" __global__ void plain(int n) {}\n'
        'extern "C" __global__ void __launch_bounds__(256) bounded(float* x) {}\n'
        "__device__ void helper() {}\n"
        "template <class T> __global__ void scale(T* x) {}\n"
    )
    names = compiler.names_of(text, ["scale<float>"])
    assert names == {"plain": "plain", "bounded": "bounded", "scale<float>": "scale_float_"}


@pytest.mark.parametrize(
    ("mode", "own", "of_cupy"), [("own", True, False), ("all", True, True), ("0", False, False)]
)
def test_which_texts_nvrtc_gets(monkeypatch, mode, own, of_cupy):
    monkeypatch.setenv("OPTKIT_CUSIM_NVRTC", mode)
    assert compiler.checks_nvrtc(["update"]) is own
    assert compiler.checks_nvrtc(["cupy_add__float32_float32_float32"]) is of_cupy
