"""Putting the simulator under CuPy, for the one version that it knows."""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import json
import os
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.cusim.cache import COMPILER, NATIVE, CusimError, built, digest, folder
from tests.cusim.compiler import replace_nvrtc
from tests.cusim.libraries import load_blas, replace_sorting, stand_in_blas

CUPY_VERSION = "14.2.0"
_TOOLKITS = {"cupy-cuda12x": "12", "cupy-cuda13x": "13"}
_SIGNATURES = Path(__file__).parent / "signatures.json"

# What Python code calls on `cupy.cuda.runtime` by name, past the C function pointers.
_FOR_PYTHON = (
    "deviceGetAttribute",
    "deviceSynchronize",
    "driverGetVersion",
    "getDevice",
    "getDeviceCount",
    "getDeviceProperties",
    "memGetInfo",
    "memcpy",
    "setDevice",
)

_native: ModuleType | None = None


def native() -> Any:
    """The compiled part, once it is installed."""
    if _native is None:
        raise CusimError("cusim is not installed: call cusim.install() before CuPy is imported")
    return _native


def check(found: dict[str, str]) -> str:
    """The number of the CUDA toolkit of the one known CuPy.

    Args:
        found: the installed distributions of CuPy and their versions.

    Raises:
        CusimError: CuPy is missing, doubly there, or another version.
    """
    wheels = " or ".join(f"{name}=={CUPY_VERSION}" for name in _TOOLKITS)
    if len(found) != 1:
        listed = ", ".join(f"{name}=={version}" for name, version in found.items()) or "none"
        raise CusimError(f"cusim needs one CuPy, {wheels}; installed: {listed}")
    ((name, version),) = found.items()
    if version != CUPY_VERSION or name not in _TOOLKITS:
        raise CusimError(
            f"cusim knows the C functions of {wheels}; installed: {name}=={version}. For another "
            f"version, compare signatures.json and the seams in compiler.py and libraries.py"
        )
    return _TOOLKITS[name]


def installed() -> dict[str, str]:
    """The distributions that bring the package cupy, with their versions."""
    names = importlib.metadata.packages_distributions().get("cupy", [])
    return {name: importlib.metadata.version(name) for name in sorted({*names})}


def install() -> None:
    """Run CuPy on the simulator from here on; once is enough.

    Raises:
        CusimError: CuPy was imported before, is not the version known here, or g++ is missing.
    """
    global _native
    if _native is not None:
        return
    if "cupy" in sys.modules:
        raise CusimError("cusim.install() comes too late: CuPy has been imported")
    toolkit = check(installed())
    os.environ["CUPY_ACCELERATORS"] = ""  # CUB and cuTENSOR are binaries
    os.environ["CUPY_CACHE_IN_MEMORY"] = "1"  # the kernels are kept in our folder
    compiled = _compiled_part()
    runtime = importlib.import_module("cupy_backends.cuda.api.runtime")
    driver = importlib.import_module("cupy_backends.cuda.api.driver")
    _check_signatures({**driver.__pyx_capi__, **runtime.__pyx_capi__})
    compiled.install(runtime, driver)
    for name in _FOR_PYTHON:
        setattr(runtime, name, getattr(compiled, name))
    blas = stand_in_blas(Path(runtime.__file__).parents[2], toolkit)
    load_blas(blas, compiled.synchronize_address())
    cupy = importlib.import_module("cupy")
    replace_nvrtc(
        importlib.import_module("cupy.cuda.compiler"), cupy._core.core._get_header_dir_path()
    )
    replace_sorting(cupy.cuda.thrust, compiled.synchronize_address())
    _native = compiled


def _compiled_part() -> ModuleType:
    source = NATIVE / "cusim.cpp"
    parts = [path.read_bytes() for path in sorted(NATIVE.glob("*.[ch]pp"))]
    path = built(
        folder() / f"_cusim-{digest(*parts, sys.version)}.so",
        [*COMPILER, "-shared", f"-I{sysconfig.get_paths()['include']}", f"-I{NATIVE}", str(source),
         "-ldl"],
    )  # fmt: skip
    spec = importlib.util.spec_from_file_location("_cusim", path)
    if spec is None or spec.loader is None:
        raise CusimError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _check_signatures(capsules: dict[str, Any]) -> None:
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    for name, expected in json.loads(_SIGNATURES.read_text(encoding="utf-8")).items():
        found = name_of(capsules[name]).decode() if name in capsules else None
        if found != expected:
            raise CusimError(f"cusim: {name} is {found!r} in this CuPy, {expected!r} in the known")
