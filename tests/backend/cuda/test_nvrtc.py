"""Every kernel compiles for real devices, with its numbers in registers; no device is needed."""

import functools
import importlib.util
import re

import pytest

import optkit  # noqa: F401 - registers the optimizers' equations
from optkit.backend.cuda import kernel_sources

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("cupy") is None or importlib.util.find_spec("nvidia") is None,
        reason="needs the extra cuda-test: CuPy, NVRTC and CUDA's headers",
    ),
]

ARCHITECTURES = ("80", "90", "100")


@functools.cache
def sources():
    return kernel_sources()


def compiled(text, options, arch):
    """(cubin, what ptxas says) with the options that CuPy would use."""
    from cupy._core import core
    from cupy.cuda import nvrtc

    chosen = core.assemble_cupy_compiler_options(tuple(options))
    chosen += ("-ftz=true", f"-arch=sm_{arch}", "--device-as-default-execution-space")
    program = nvrtc.createProgram(text, "kernel.cu", (), ())
    try:
        nvrtc.compileProgram(program, (*chosen, "--ptxas-options=-v"))
        return nvrtc.getCUBIN(program), nvrtc.getProgramLog(program)
    except nvrtc.NVRTCError as error:
        raise AssertionError(nvrtc.getProgramLog(program)) from error
    finally:
        nvrtc.destroyProgram(program)


def checked(text, options, arch):
    cubin, log = compiled(text, options, arch)
    assert cubin.startswith(b"\x7fELF")
    kernels = set(re.findall(r"__global__ void (?:__launch_bounds__\(\w+\) )?(\w+)\(", text))
    assert kernels
    seen = set(re.findall(r"Compiling entry function '(\w+)'", log))
    assert seen == kernels, log
    spilled = re.findall(r"(\d+) bytes spill (?:stores|loads)", log)
    assert len(spilled) >= 2 * len(kernels), log  # functions that are not inlined are told too
    assert set(spilled) == {"0"}, log


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_kernel_becomes_a_cubin_without_spills(arch):
    assert len(sources()) > 50
    for name, (text, options) in sources().items():
        try:
            checked(text, options, arch)
        except AssertionError as error:
            error.add_note(f"kernel {name}, sm_{arch}")
            raise


def test_products_are_not_joined_with_sums():
    from cupy._core import core
    from cupy.cuda import nvrtc

    for name in ("adam-float32", "proximal_adagrad-float64"):
        text, options = sources()[name]
        assert "--fmad=false" in options
        program = nvrtc.createProgram(text, "kernel.cu", (), ())
        chosen = core.assemble_cupy_compiler_options(tuple(options))
        nvrtc.compileProgram(program, (*chosen, "-ftz=true", "-arch=compute_90"))
        ptx = nvrtc.getPTX(program)
        ptx = ptx.decode() if isinstance(ptx, bytes) else ptx
        nvrtc.destroyProgram(program)
        assert re.search(r"\bmul\.", ptx)
        # A division is a sequence with fused steps in it, exactly rounded as a whole.
        lines = [line for line in ptx.splitlines() if re.search(r"\bfma\.rn\.f", line)]
        assert lines == []


def test_spills_and_errors_are_noticed():
    greedy = """extern "C" __global__ void __launch_bounds__(1024) greedy(float* x, int n) {
      float kept[96];
      #pragma unroll
      for (int i = 0; i < 96; i++) kept[i] = x[i * n + threadIdx.x];
      __syncthreads();
      #pragma unroll
      for (int i = 0; i < 96; i++) x[(95 - i) * n + threadIdx.x] = kept[i] * kept[(i * 7) % 96];
    }"""
    with pytest.raises(AssertionError, match="bytes spill stores"):
        checked(greedy, (), "90")
    with pytest.raises(AssertionError, match='identifier "nowhere" is undefined'):
        checked('extern "C" __global__ void f(){ nowhere(); }', (), "90")
