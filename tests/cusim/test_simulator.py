"""The simulator runs kernels as a device does, and notices what a device would punish."""

import functools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import cusim
from tests.conftest import DEVICE

pytestmark = pytest.mark.cusim
ROOT = Path(__file__).parents[2]

if DEVICE == "sim":
    import cupy
    from cupy.cuda.runtime import CUDARuntimeError

    Module = functools.partial(cupy.RawModule, options=("--fmad=false",))


@pytest.fixture
def guarded():
    """Each array in a block of its own, with a page after it that nobody may touch."""
    before = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(None)
    yield
    cupy.cuda.set_allocator(before)


# -- kernels --------------------------------------------------------------------------------------

SUM = """
extern "C" __global__ void sum_of_block(const float* x, float* sums) {
  __shared__ float part[64];
  const int t = threadIdx.x;
  part[t] = x[blockIdx.x * 64 + t];
  for (int half = 32; half > 0; half /= 2) {
    %s
    if (t < half) part[t] += part[t + half];
  }
  if (t == 0) sums[blockIdx.x] = part[0];
}
"""


def sums_in_every_order(barrier):
    kernel = Module(code=SUM % barrier).get_function("sum_of_block")
    x = np.random.default_rng(1).random((4, 64), np.float32)
    found = []
    for order in (0, 1, 5):
        with cusim.settings(order=order):
            sums = cupy.zeros(4, np.float32)
            kernel((4,), (64,), (cupy.asarray(x), sums))
            found.append(sums.get())
    return x.sum(1), found


def test_a_reduction_with_barriers_is_right_in_every_order():
    expected, found = sums_in_every_order("__syncthreads();")
    for sums in found:
        np.testing.assert_allclose(sums, expected, rtol=1e-6)
        np.testing.assert_array_equal(sums, found[0])


def test_a_missing_barrier_shows_as_a_difference():
    expected, found = sums_in_every_order("")
    assert any(not np.allclose(sums, expected, rtol=1e-3) for sums in found)


WARP = """
extern "C" __global__ void warp(const int* x, int* out) {
  const int v = x[threadIdx.x];
  out[threadIdx.x] = __shfl_down_sync(~0u, v, 4);
  out[64 + threadIdx.x] = __shfl_xor_sync(~0u, v, 1);
  out[128 + threadIdx.x] = __shfl_sync(~0u, v, 2, 8);
  out[192 + threadIdx.x] = __shfl_up_sync(~0u, v, 1);
  out[256 + threadIdx.x] = __popc(__ballot_sync(~0u, v % 2));
}
"""


@pytest.mark.parametrize("order", [0, 1, 9])
def test_shuffles_and_votes(order):
    x = np.random.default_rng(order).integers(0, 100, 64).astype(np.int32)
    out = cupy.zeros(320, np.int32)
    with cusim.settings(order=order):
        Module(code=WARP).get_function("warp")((1,), (64,), (cupy.asarray(x), out))
        down, xor, among, up, votes = out.get().reshape(5, 2, 32)
    lanes = np.arange(32)
    warps = x.reshape(2, 32)
    np.testing.assert_array_equal(down, warps[:, np.where(lanes < 28, lanes + 4, lanes)])
    np.testing.assert_array_equal(xor, warps[:, lanes ^ 1])
    np.testing.assert_array_equal(among, warps[:, lanes // 8 * 8 + 2])
    np.testing.assert_array_equal(up, warps[:, np.maximum(lanes - 1, 0)])
    np.testing.assert_array_equal(votes, np.broadcast_to((warps % 2).sum(1)[:, None], (2, 32)))


SCALE = """
template <class T> __global__ void scale(T* x, T by) { x[threadIdx.x] *= by; }
extern "C" __global__ void dynamic(int* x) {
  extern __shared__ int swap[];
  swap[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = swap[blockDim.x - 1 - threadIdx.x];
}
"""


def test_templates_and_dynamic_shared_memory():
    names = ("scale<float>", "scale<int>")
    module = cupy.RawModule(code=SCALE, options=("-std=c++17",), name_expressions=names)
    x, n = cupy.arange(4, dtype=np.float32), cupy.arange(4, dtype=np.int32)
    module.get_function("scale<float>")((1,), (4,), (x, np.float32(0.5)))
    module.get_function("scale<int>")((1,), (4,), (n, np.int32(3)))
    module.get_function("dynamic")((1,), (4,), (n,), shared_mem=16)
    np.testing.assert_array_equal(x.get(), [0, 0.5, 1, 1.5])
    np.testing.assert_array_equal(n.get(), [9, 6, 3, 0])


def test_arithmetic_is_float32_and_subnormals_are_zero():
    code = """extern "C" __global__ void f(float* x) { x[0] = sqrt(x[0]) * x[1] + x[2]; }"""
    x = np.array([2, 1.1, 3e-3], np.float32)
    on_device = cupy.asarray(x)
    kernel = Module(code=code).get_function("f")
    kernel((1,), (1,), (on_device,))
    assert on_device[0].get() == np.sqrt(x[0]) * x[1] + x[2]
    tiny = cupy.asarray(np.array([1e-40, 1, 0], np.float32))
    kernel((1,), (1,), (tiny,))
    assert tiny[0].get() == 0
    assert np.float32(1e-40) * np.float32(1) > 0  # the process computes on as it did


# -- what a device punishes -----------------------------------------------------------------------


def test_an_access_out_of_bounds_is_found_when_somebody_waits_and_stays(guarded):
    kernel = Module(
        code='extern "C" __global__ void f(float* x) { x[threadIdx.x + 4096] = 1; }'
    ).get_function("f")
    with cusim.settings():
        x = cupy.zeros(64, np.float32)
        kernel((1,), (1,), (x,))
        for _ in range(2):
            with pytest.raises(CUDARuntimeError, match="cudaErrorIllegalAddress"):
                x.get()
        assert cusim.stats()["fault"] == "f: an access outside of every array"
    assert cusim.stats()["fault"] == ""
    assert cupy.zeros(3).get().tolist() == [0, 0, 0]


def test_a_barrier_that_not_all_threads_reach():
    code = """extern "C" __global__ void f() {
      if (threadIdx.x < 16) __syncwarp(); else __syncthreads();
    }"""
    kernel = Module(code=code).get_function("f")
    with cusim.settings():
        kernel((1,), (32,), ())
        with pytest.raises(CUDARuntimeError, match="cudaErrorLaunchFailure"):
            cupy.cuda.runtime.deviceSynchronize()
        assert "a barrier that not all threads" in cusim.stats()["fault"]


def test_leaving_before_a_barrier_is_an_error_where_that_is_asked_for():
    code = """extern "C" __global__ void f() { if (threadIdx.x > 7) return; __syncthreads(); }"""
    kernel = Module(code=code).get_function("f")
    kernel((1,), (32,), ())
    cupy.cuda.runtime.deviceSynchronize()
    with cusim.settings(strict=True):
        kernel((1,), (32,), ())
        with pytest.raises(CUDARuntimeError, match="cudaErrorLaunchFailure"):
            cupy.cuda.runtime.deviceSynchronize()


@pytest.mark.parametrize(
    ("grid", "block", "shared"),
    [((1,), (1025,), 0), ((1, 65536), (1,), 0), ((1,), (1,), 48 * 1024 + 1)],
)
def test_launches_that_a_device_refuses(grid, block, shared):
    kernel = Module(code='extern "C" __global__ void f() {}').get_function("f")
    with pytest.raises(cupy.cuda.driver.CUDADriverError, match="CUDA_ERROR_INVALID_VALUE"):
        kernel(grid, block, (), shared_mem=shared)


def test_texts_that_do_not_compile():
    with pytest.raises(cupy.cuda.compiler.CompileException, match="undeclared_name"):
        Module(code='extern "C" __global__ void f() { undeclared_name(); }').get_function("f")


def test_memory_that_nobody_wrote_is_nan(guarded):
    assert np.isnan(cupy.empty(5, np.float32).get()).all()


MANY = """
from tests import cusim
cusim.install()
import cupy
first = cupy.ones(3).sum()
kept = []
try:
    while True:
        kept.append(cupy.empty(1))
except cupy.cuda.memory.OutOfMemoryError:
    kept.clear()
    cupy.get_default_memory_pool().free_all_blocks()
    print(first, cupy.ones(3).sum())
"""


def test_more_blocks_than_a_process_may_have_mappings():
    limit = Path("/proc/sys/vm/max_map_count")
    if not limit.is_file() or int(limit.read_text()) > 100_000:
        pytest.skip("needs a limit that is reached soon")
    command = [sys.executable, "-c", MANY]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3.0 3.0\n", "")


def test_memory_runs_out():
    pool = cupy.cuda.MemoryPool()
    with (
        cupy.cuda.using_allocator(pool.malloc),
        cusim.settings(limit=cusim.stats()["used"] + 1000),
    ):
        kept = cupy.zeros(100, np.float32)
        with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
            cupy.zeros(1000, np.float32)
        free, total = cupy.cuda.runtime.memGetInfo()
        assert 0 <= free < 1000 < total
        assert kept.get().tolist() == [0] * 100
    cupy.zeros(1000, np.float32)


# -- streams --------------------------------------------------------------------------------------


def test_lazy_streams_show_who_does_not_wait():
    stream = cupy.cuda.Stream(non_blocking=True)
    out = cupy.cuda.alloc_pinned_memory(16)
    home = np.frombuffer(out, np.float32, 4)
    home[:] = -1
    with cusim.settings(lazy=True):
        with stream:
            x = cupy.arange(4, dtype=np.float32)
            x.get(out=home, stream=stream, blocking=False)
            done = stream.record()
        assert not done.done
        assert home.tolist() == [-1] * 4
        done.synchronize()
        assert home.tolist() == [0, 1, 2, 3]


def test_the_null_stream_does_not_wait_for_others():
    stream = cupy.cuda.Stream(non_blocking=True)
    x = cupy.zeros(4, np.float32)
    with cusim.settings(lazy=True):
        with stream:
            x += 1
        early = cupy.empty_like(x)
        cupy.add(x, 0, out=early)
        cupy.cuda.Stream.null.synchronize()
        stream.synchronize()
    assert early.get().tolist() == [0] * 4
    assert x.get().tolist() == [1] * 4


def test_graphs_are_captured_and_run_again():
    stream = cupy.cuda.Stream(non_blocking=True)
    x = cupy.zeros(2, np.float32)
    one = cupy.ones(2, np.float32)
    with stream:
        cupy.add(x, one, out=x)
        stream.begin_capture()
        cupy.add(x, one, out=x)
        graph = stream.end_capture()
        for _ in range(3):
            graph.launch()
    stream.synchronize()
    assert x.get().tolist() == [4, 4]


def test_the_log_tells_what_was_launched():
    x = cupy.arange(8, dtype=np.float32)
    with cusim.settings(log=True):
        (x * x).get()
        log = cusim.stats()["log"]
    assert log == ["cupy_multiply__float32_float32_float32", "memcpy to host"]


def test_devices_are_counted_and_chosen():
    assert cupy.cuda.runtime.getDeviceCount() == 2
    with cupy.cuda.Device(1):
        x = cupy.ones(3)
        assert x.device.id == 1
    assert cupy.ones(3).device.id == 0
    with pytest.raises(CUDARuntimeError, match="cudaErrorInvalidDevice"):
        cupy.cuda.Device(2).use()
    with cusim.settings(devices=1):
        assert cupy.cuda.runtime.getDeviceCount() == 1


# -- what stands in for libraries -----------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32])
@pytest.mark.parametrize("shapes", [((3, 4), (4, 2)), ((2, 3, 4), (4, 5)), ((2, 1, 3), (2, 3, 1))])
def test_products(dtype, shapes):
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-8, 8, shape).astype(dtype) for shape in shapes)
    np.testing.assert_array_equal((cupy.asarray(a) @ cupy.asarray(b)).get(), a @ b)


def test_sorting():
    x = np.random.default_rng(4).integers(0, 5, (3, 40)).astype(np.int32)
    on_device = cupy.asarray(x)
    np.testing.assert_array_equal(cupy.sort(on_device).get(), np.sort(x))
    np.testing.assert_array_equal(cupy.argsort(on_device).get(), np.argsort(x, kind="stable"))
