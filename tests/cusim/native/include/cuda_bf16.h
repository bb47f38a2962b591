// bfloat16: CUDA's <cuda_bf16.h> in small. Numbers are converted; none is computed here.
#pragma once

struct __nv_bfloat16 {
  unsigned short bits;

  __nv_bfloat16() {}
  // The nearest, ties to even; a NaN stays one.
  __nv_bfloat16(float x) {
    const unsigned wide = simt::same_bits<unsigned>(x);
    bits = x != x ? 0x7fff : (wide + 0x7fff + ((wide >> 16) & 1)) >> 16;
  }
  operator float() const { return simt::same_bits<float>(unsigned(bits) << 16); }
};

inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline float __bfloat162float(__nv_bfloat16 x) { return float(x); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  __nv_bfloat16 made;
  made.bits = bits;
  return made;
}
inline bool __hisnan(__nv_bfloat16 x) { return (x.bits & 0x7fff) > 0x7f80; }
inline bool __hisinf(__nv_bfloat16 x) { return (x.bits & 0x7fff) == 0x7f80; }
