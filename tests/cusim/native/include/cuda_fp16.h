// Half precision: CUDA's <cuda_fp16.h> in small. Numbers are converted; none is computed here.
#pragma once

struct __half_raw {
  unsigned short x;
};

struct __half {
  unsigned short bits;

  __half() {}
  __half(float x) : bits(simt::same_bits<unsigned short>(_Float16(x))) {}
  explicit __half(double x) : bits(simt::same_bits<unsigned short>(_Float16(x))) {}
  explicit __half(bool x) : __half(float(x)) {}
  explicit __half(int x) : __half(float(x)) {}
  explicit __half(unsigned x) : __half(float(x)) {}
  explicit __half(long long x) : __half(float(x)) {}
  explicit __half(unsigned long long x) : __half(float(x)) {}
  __half(const __half_raw& raw) : bits(raw.x) {}
  operator float() const { return float(simt::same_bits<_Float16>(bits)); }
  operator __half_raw() const { return {bits}; }
};
using half = __half;

inline __half __float2half(float x) { return __half(x); }
inline __half __float2half_rn(float x) { return __half(x); }
inline __half __double2half(double x) { return __half(x); }
inline float __half2float(__half x) { return float(x); }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline __half __ushort_as_half(unsigned short bits) { return __half(__half_raw{bits}); }
