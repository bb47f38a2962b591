// In place of CuPy's complex numbers, which need CUDA's own headers: enough for its other headers
// to compile. Kernels on complex arrays are not simulated.
#pragma once

template <class T>
class complex {
  T re_, im_;

 public:
  complex(T re = 0, T im = 0) : re_(re), im_(im) {}
  template <class U>
  complex(const complex<U>& other) : re_(other.real()), im_(other.imag()) {}
  T real() const { return re_; }
  T imag() const { return im_; }
};

template <class T>
T norm(const complex<T>& z) { return z.real() * z.real() + z.imag() * z.imag(); }

namespace thrust {
using ::complex;
}
