"""Stand-ins for what comes to CuPy as compiled libraries: cuBLAS and Thrust's sorting."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.cusim.cache import COMPILER, NATIVE, CusimError, built, digest, folder


def stand_in_blas(cupy_backends: Path, toolkit: str) -> list[Path]:
    """libcublas and libcublasLt with every symbol that CuPy's module wants; few of them work.

    Args:
        cupy_backends: the folder of that package.
        toolkit: the number in the libraries' names: "12" or "13".
    """
    (module,) = (cupy_backends / "cuda" / "libs").glob("cublas.*.so")
    try:
        listed = subprocess.run(
            ["nm", "-D", "--undefined-only", str(module)],
            capture_output=True,
            text=True,
            check=True,
        )
    except FileNotFoundError as error:
        raise CusimError(f"cusim needs binutils: {error}") from error
    wanted = sorted({*re.findall(r"\bcublas\w+", listed.stdout)})
    products = (NATIVE / "blas.hpp").read_text(encoding="utf-8")
    there = {*re.findall(r"\bint (cublas\w+)\(", products)}
    for kind in re.findall(r"\bint cublas##letter##(\w+)\(", products):
        there |= {f"cublasS{kind}", f"cublasD{kind}"}
    missing = [name for name in wanted if name not in there]
    text = '#include "blas.hpp"\nextern "C" {\n'
    text += "".join(f"int {name}() {{ return kUnsupported; }}\n" for name in missing) + "}\n"
    place = folder() / f"blas-{digest(text, products, toolkit)}"
    place.mkdir(exist_ok=True)
    source = place / "blas.cpp"
    source.write_text(text, encoding="utf-8")
    return [
        built(
            place / name,
            [*COMPILER, "-shared", f"-Wl,-soname,{name}", f"-I{NATIVE}", str(source)],
        )
        for name in (f"libcublasLt.so.{toolkit}", f"libcublas.so.{toolkit}")
    ]


def load_blas(paths: Sequence[Path], synchronize: int) -> None:
    """Load them under the names by which CuPy looks for them."""
    for path in paths:
        loaded = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        loaded.cusim_set_synchronize(ctypes.c_void_p(synchronize))


def replace_sorting(thrust: Any, synchronize: int) -> None:
    """NumPy's stable sorts in place of the three functions of `cupy.cuda.thrust`."""
    wait = ctypes.CFUNCTYPE(None)(synchronize)

    def view(address: int, shape: Sequence[int], dtype: Any) -> np.ndarray[Any, Any]:
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype="int64")) * dtype.itemsize
        return np.frombuffer((ctypes.c_char * size).from_address(address), dtype).reshape(shape)

    def sort(dtype: Any, data: int, keys: int, shape: Sequence[int]) -> None:
        wait()
        array = view(data, shape, dtype)
        array[...] = np.sort(array, axis=-1, kind="stable")

    def argsort(dtype: Any, indices: int, data: int, keys: int, shape: Sequence[int]) -> None:
        wait()
        array = view(data, shape, dtype)
        order = np.argsort(array, axis=-1, kind="stable")
        view(indices, shape, "int64")[...] = order
        array[...] = np.take_along_axis(array, order, -1)

    def lexsort(dtype: Any, indices: int, keys: int, count: int, length: int) -> None:
        wait()
        view(indices, (length,), "int64")[...] = np.lexsort(view(keys, (count, length), dtype))

    thrust.sort, thrust.argsort, thrust.lexsort = sort, argsort, lexsort
