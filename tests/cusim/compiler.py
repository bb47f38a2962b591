"""From a kernel's text to a library that the simulator runs, in place of NVRTC."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.cusim.cache import COMPILER, NATIVE, CusimError, built, digest, folder, sources

ARCHITECTURE = "-arch=sm_90"
FLAGS = ("-fvisibility-inlines-hidden", "-fno-gnu-unique")

kernels: list[str] = []
"""The names of the kernels that were compiled, or found compiled, in this process."""

_KERNEL = re.compile(
    r'extern\s+"C"\s+__global__\s+(?:__launch_bounds__\([^)]*\)\s*)?void\s+'
    r"(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\("
)
_DYNAMIC_SHARED = re.compile(
    r"extern\s+__shared__\s+(?:__align__\(\w+\)\s*)?((?:\w+\s+)*?\w+)\s+(\w+)\s*\[\s*\]\s*;"
)
_BARRIERS = re.compile(r"__sync|__shfl|__ballot|__any")

_CUPY_HEADERS = ("complex.cuh", "carray.cuh", "atomics.cuh", "math_constants.h", "float16.cuh")

_TAIL = """
extern "C" void simt_bind(simt::Context* given) { simt::context = given; }
extern "C" const int simt_cooperative = %d;
"""
_TAIL_OF_KERNEL = """
extern "C" void simt_entry_%(name)s(void** arguments) { simt::call(&%(kernel)s, arguments); }
extern "C" const unsigned* simt_sizes_%(name)s() { return simt::sizes(&%(kernel)s); }
"""


def checks_nvrtc(names: Iterable[str]) -> bool:
    """Whether NVRTC is to compile this text too: OPTKIT_CUSIM_NVRTC is own (the default), all, 0.

    "own" leaves out CuPy's kernels, whose texts are CuPy's business.
    """
    mode = os.environ.get("OPTKIT_CUSIM_NVRTC", "own")
    return mode == "all" or (mode == "own" and not all(name.startswith("cupy_") for name in names))


def prelude(cupy_include: str | None, contract: str) -> Path:
    """The header that comes before a kernel's text, precompiled."""
    lines = [f'#include "{NATIVE / "simt.hpp"}"']
    include = []
    if cupy_include is not None:
        lines += [f"#include <cupy/{name}>" for name in _CUPY_HEADERS]
        include = ["-I" + cupy_include]
    text = "\n".join(lines) + "\n"
    place = folder() / f"prelude-{digest(text, contract, sources())}"
    header = place / "prelude.hpp"
    if not header.exists():
        place.mkdir(exist_ok=True)
        header.write_text(text, encoding="utf-8")
    built(
        place / "prelude.hpp.gch",
        [*COMPILER, *FLAGS, contract, f"-I{NATIVE / 'include'}", *include, "-x", "c++-header",
         str(header)],
    )  # fmt: skip
    return header


def names_of(source: str, expressions: Sequence[str]) -> dict[str, str]:
    """The kernels of a text: what C++ calls each -> a name that a symbol can have.

    Args:
        source: the text.
        expressions: instances of templates, such as `scale<float>`.
    """
    plain = {name: name for name in _KERNEL.findall(source)}
    return plain | {text: re.sub(r"\W", "_", text) for text in expressions}


def library(source: str, names: dict[str, str], options: Sequence[str], cupy_include: str) -> Path:
    """A kernel's text as a shared library; kept under a name made from all that matters.

    Fused multiply-adds are left out, as the option --fmad=false asks; OPTKIT_CUSIM_CONTRACT=fast
    allows them where the option is not given.

    Raises:
        CusimError: the text names no kernel that can be found, or g++ refuses it.
    """
    if not names:
        raise CusimError(f'cusim: no extern "C" __global__ void in\n{source}')
    exact = any("fmad=false" in option for option in options)
    mode = "off" if exact else os.environ.get("OPTKIT_CUSIM_CONTRACT", "off")
    contract = f"-ffp-contract={mode}"
    defines = [option for option in options if option.startswith("-D")]
    text = _DYNAMIC_SHARED.sub(r"\1* \2 = (\1*)simt::context->dynamic_shared;", source)
    text += _TAIL % bool(_BARRIERS.search(source))
    text += "".join(_TAIL_OF_KERNEL % {"kernel": k, "name": name} for k, name in names.items())
    of_cupy = "<cupy/" in source or '"cupy/' in source
    name = digest(text, contract, repr(defines), sources())
    target = folder() / "kernels" / name[:2] / f"{name}.so"
    if not target.exists():
        header = prelude(cupy_include if of_cupy else None, contract)
        written = target.with_suffix(f".{os.getpid()}.cpp")
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(text, encoding="utf-8")
        fma = ["-mfma"] if mode == "fast" else []
        try:
            built(
                target,
                [*COMPILER, *FLAGS, contract, *fma, "-shared", "-Wl,-Bsymbolic", *defines,
                 "-include", str(header), f"-I{NATIVE / 'include'}", "-I" + cupy_include,
                 f"-I{NATIVE}", str(written)],
            )  # fmt: skip
        finally:
            written.unlink()
    kernels.extend(names.values())
    return target


def replace_nvrtc(compiler: Any, cupy_include: str) -> None:
    """Put g++ behind `cupy.cuda.compiler`, after NVRTC where `checks_nvrtc` says so.

    A refused text raises CuPy's own CompileException, as on a device.
    """

    def compile_text(
        source: str,
        options: Sequence[str] = (),
        arch: str | None = None,
        filename: str = "kern.cu",
        name_expressions: Sequence[str] | None = None,
        log_stream: Any = None,
        cache_in_memory: bool = False,
        jitify: bool | None = None,
        method: str | None = None,
    ) -> tuple[bytes, dict[str, str]]:
        names = names_of(source, name_expressions or ())
        if checks_nvrtc(names.values()):
            chosen = (*options, ARCHITECTURE, "--device-as-default-execution-space")
            done = folder() / "nvrtc" / digest(source, repr(chosen))
            if not done.exists():
                program = compiler._NVRTCProgram(
                    source, filename, name_expressions=name_expressions, method="cubin"
                )
                cubin, _ = program.compile(chosen, log_stream)
                done.parent.mkdir(exist_ok=True)
                done.write_text(f"{len(cubin)} bytes\n", encoding="utf-8")
        path = library(source, names, options, cupy_include)
        return b"cusim:" + os.fsencode(path) + b"\0", names

    compiler._compile_using_nvrtc_no_warning = compile_text
    compiler._get_arch_for_options_for_nvrtc = lambda arch=None: (ARCHITECTURE, "cubin")
    compiler._preprocess = lambda *_: ""  # CuPy's cache key; ours is the text
    if os.environ.get("OPTKIT_CUSIM_NVRTC") == "0":
        compiler._get_nvrtc_version = lambda: (13, 0)
