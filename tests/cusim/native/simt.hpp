// The CUDA C++ language for g++: force-included before the text of a kernel, which is compiled as
// it is. It holds what CuPy's kernels and optkit's use; a name that is missing is a compile error.
#pragma once
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <utility>

#include "abi.hpp"

#define __CUDACC_VER_MAJOR__ 13
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static  // blocks run one after the other
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)

// CUDA's functions have float overloads; plain C's ::sqrt(x) would compute in double.
using std::abs, std::acos, std::acosh, std::asin, std::asinh, std::atan, std::atan2, std::atanh;
using std::cbrt, std::ceil, std::copysign, std::cos, std::cosh, std::erf, std::erfc, std::exp;
using std::exp2, std::expm1, std::fabs, std::floor, std::fma, std::fmax, std::fmin, std::fmod;
using std::frexp, std::hypot, std::isfinite, std::isinf, std::isnan, std::ldexp, std::lgamma;
using std::log, std::log10, std::log1p, std::log2, std::modf, std::nextafter, std::pow, std::rint;
using std::round, std::signbit, std::sin, std::sinh, std::sqrt, std::tan, std::tanh, std::tgamma;
using std::trunc;

// -- built-in types and variables ----------------------------------------------------------------

using dim3 = simt::Dim3;
using uint3 = simt::Dim3;
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) double2 { double x, y; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }

namespace simt {
static Context* context = nullptr;  // one a library of kernels; `simt_bind` sets it

// Calls a kernel with arguments given by address, as cuLaunchKernel does.
template <class... A, size_t... I>
void call(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_cv_t<std::remove_reference_t<A>>*>(arguments[I])...);
}
template <class... A>
void call(void (*kernel)(A...), void** arguments) {
  call(kernel, arguments, std::index_sequence_for<A...>{});
}
// The number of arguments and the bytes of each.
template <class... A>
const unsigned* sizes(void (*)(A...)) {
  static const unsigned found[] = {sizeof...(A), unsigned(sizeof(A))...};
  return found;
}
}  // namespace simt

#define gridDim (simt::context->grid)
#define blockDim (simt::context->block)
#define blockIdx (simt::context->block_index)
#define threadIdx (simt::context->thread_index)
static const int warpSize = simt::kWarp;

// -- barriers, shuffles, votes: warps take part as a whole, masks are not looked at ---------------

inline void __syncthreads() { simt::context->wait(simt::kBlockBarrier); }
inline void __syncwarp(unsigned = ~0u) { simt::context->wait(simt::kWarpBarrier); }
inline void __threadfence() {}
inline void __threadfence_block() {}

namespace simt {
// Every thread of the warp shows a value; then `take(slots, lane)` reads what it needs.
template <class T, class F>
auto exchanged(T value, F take) {
  static_assert(sizeof(T) <= sizeof(unsigned long long));
  const unsigned me = context->thread(), warp = me & ~(kWarp - 1);
  std::memcpy(&context->exchange[me], &value, sizeof(T));
  context->wait(kWarpBarrier);
  auto taken = take(&context->exchange[warp], me - warp);
  context->wait(kWarpBarrier);
  return taken;
}
template <class T>
T shuffled(T value, int source, int width) {
  return exchanged(value, [&](const unsigned long long* slots, unsigned lane) {
    T found = value;
    if (source >= 0 && unsigned(source) / width == lane / width)
      std::memcpy(&found, &slots[source], sizeof(T));
    return found;
  });
}
inline int lane() { return int(context->thread() & (kWarp - 1)); }
}  // namespace simt

template <class T>
T __shfl_sync(unsigned, T value, int source, int width = 32) {
  const int lane = simt::lane();
  return simt::shuffled(value, lane / width * width + source % width, width);
}
template <class T>
T __shfl_down_sync(unsigned, T value, unsigned by, int width = 32) {
  const int source = simt::lane() + int(by);
  return simt::shuffled(value, source < 32 ? source : -1, width);
}
template <class T>
T __shfl_up_sync(unsigned, T value, unsigned by, int width = 32) {
  return simt::shuffled(value, simt::lane() - int(by), width);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask, int width = 32) {
  return simt::shuffled(value, simt::lane() ^ mask, width);
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  return simt::exchanged(predicate, [](const unsigned long long* slots, unsigned) {
    const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    const unsigned first = simt::context->thread() & ~(simt::kWarp - 1);
    unsigned votes = 0;
    for (unsigned lane = 0; lane < simt::kWarp && first + lane < threads; lane++) {
      int vote;
      std::memcpy(&vote, &slots[lane], sizeof vote);
      votes |= unsigned(vote != 0) << lane;
    }
    return votes;
  });
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }

// -- atomics: one thread runs at a time ------------------------------------------------------------

template <class T, class U>
T atomicAdd(T* place, U value) { T old = *place; *place = old + T(value); return old; }
template <class T, class U>
T atomicSub(T* place, U value) { T old = *place; *place = old - T(value); return old; }
template <class T>
T atomicExch(T* place, T value) { T old = *place; *place = value; return old; }
template <class T>
T atomicCAS(T* place, T expected, T value) {
  T old = *place;
  if (old == expected) *place = value;
  return old;
}
template <class T>
T atomicMax(T* place, T value) { T old = *place; if (value > old) *place = value; return old; }
template <class T>
T atomicMin(T* place, T value) { T old = *place; if (value < old) *place = value; return old; }
template <class T>
T atomicOr(T* place, T value) { T old = *place; *place = old | value; return old; }
template <class T>
T atomicAnd(T* place, T value) { T old = *place; *place = old & value; return old; }

// -- intrinsics ------------------------------------------------------------------------------------

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return std::sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline float rsqrtf(float a) { return 1.0f / std::sqrt(a); }
inline double rsqrt(double a) { return 1.0 / std::sqrt(a); }
inline float rsqrt(float a) { return rsqrtf(a); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((uint64_t(a) * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
template <class T>
T __ldg(const T* place) { return *place; }

namespace simt {
template <class To, class From>
To same_bits(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
}  // namespace simt
inline long long __double_as_longlong(double x) { return simt::same_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return simt::same_bits<double>(x); }
inline unsigned __float_as_uint(float x) { return simt::same_bits<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return simt::same_bits<float>(x); }
inline int __float_as_int(float x) { return simt::same_bits<int>(x); }
inline float __int_as_float(int x) { return simt::same_bits<float>(x); }

template <class T>
const T& min(const T& a, const T& b) { return b < a ? b : a; }
template <class T>
const T& max(const T& a, const T& b) { return a < b ? b : a; }
