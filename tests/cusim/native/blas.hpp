// A stand-in for cuBLAS: the products that CuPy's matmul and dot ask for, column-major, added up in
// double, each rounded once. The rest of the library answers "not supported".
#include <cstddef>
#include <cstdint>

namespace {

enum Type { kFloat = 0, kDouble = 1, kHalf = 2, kBfloat = 14 };  // of cudaDataType
constexpr int kOk = 0, kUnsupported = 15;                        // of cublasStatus_t

void (*synchronize)() = nullptr;

struct bfloat {
  uint16_t bits;
  operator double() const {
    const uint32_t wide = uint32_t(bits) << 16;
    float x;
    __builtin_memcpy(&x, &wide, 4);
    return x;
  }
  explicit bfloat(double value) {
    const float x = float(value);
    uint32_t wide;
    __builtin_memcpy(&wide, &x, 4);
    bits = x != x ? 0x7fff : (wide + 0x7fff + ((wide >> 16) & 1)) >> 16;
  }
};

// C = alpha·op(A)·op(B) + beta·C with C (m, n); op is the transpose unless its number is 0.
template <class T>
void product(int ta, int tb, int m, int n, int k, double alpha, const T* a, int lda, const T* b,
             int ldb, double beta, T* c, int ldc) {
  for (int j = 0; j < n; j++)
    for (int i = 0; i < m; i++) {
      double sum = 0;
      for (int p = 0; p < k; p++)
        sum += double(ta ? a[p + size_t(i) * lda] : a[i + size_t(p) * lda]) *
               double(tb ? b[j + size_t(p) * ldb] : b[p + size_t(j) * ldb]);
      T& out = c[i + size_t(j) * ldc];
      out = T(beta != 0 ? alpha * sum + beta * double(out) : alpha * sum);  // beta 0: C may be NaN
    }
}

struct Shape {
  int ta, tb, m, n, k, lda, ldb, ldc;
};

template <class T>
int batched(const Shape& s, double alpha, const void* a, long long sa, const void* b, long long sb,
            double beta, void* c, long long sc, int batch) {
  if (synchronize) synchronize();
  for (int i = 0; i < batch; i++)
    product(s.ta, s.tb, s.m, s.n, s.k, alpha, static_cast<const T*>(a) + i * sa, s.lda,
            static_cast<const T*>(b) + i * sb, s.ldb, beta, static_cast<T*>(c) + i * sc, s.ldc);
  return kOk;
}

// alpha and beta have the type that is computed in: double for double, else float.
int any(int type, const Shape& s, const void* alpha, const void* a, long long sa, const void* b,
        long long sb, const void* beta, void* c, long long sc, int batch) {
  auto scalar = [&](const void* x) {
    return type == kDouble ? *static_cast<const double*>(x) : double(*static_cast<const float*>(x));
  };
  switch (type) {
    case kFloat: return batched<float>(s, scalar(alpha), a, sa, b, sb, scalar(beta), c, sc, batch);
    case kDouble: return batched<double>(s, scalar(alpha), a, sa, b, sb, scalar(beta), c, sc, batch);
    case kHalf: return batched<_Float16>(s, scalar(alpha), a, sa, b, sb, scalar(beta), c, sc, batch);
    case kBfloat: return batched<bfloat>(s, scalar(alpha), a, sa, b, sb, scalar(beta), c, sc, batch);
    default: return kUnsupported;
  }
}

}  // namespace

extern "C" {

void cusim_set_synchronize(void (*function)()) { synchronize = function; }

int cublasCreate_v2(void** handle) {
  *handle = reinterpret_cast<void*>(1);
  return kOk;
}
int cublasDestroy_v2(void*) { return kOk; }
int cublasSetStream_v2(void*, void*) { return kOk; }
int cublasGetPointerMode_v2(void*, int* mode) {
  *mode = 0;
  return kOk;
}
int cublasSetPointerMode_v2(void*, int) { return kOk; }
int cublasSetMathMode(void*, int) { return kOk; }
int cublasGetMathMode(void*, int* mode) {
  *mode = 0;
  return kOk;
}
int cublasGetVersion_v2(void*, int* version) {
  *version = 130000;
  return kOk;
}

int cublasGemmEx(void*, int ta, int tb, int m, int n, int k, const void* alpha, const void* a,
                 int type, int lda, const void* b, int, int ldb, const void* beta, void* c, int,
                 int ldc, int, int) {
  return any(type, {ta, tb, m, n, k, lda, ldb, ldc}, alpha, a, 0, b, 0, beta, c, 0, 1);
}
int cublasGemmStridedBatchedEx(void*, int ta, int tb, int m, int n, int k, const void* alpha,
                               const void* a, int type, int lda, long long sa, const void* b, int,
                               int ldb, long long sb, const void* beta, void* c, int, int ldc,
                               long long sc, int batch, int, int) {
  return any(type, {ta, tb, m, n, k, lda, ldb, ldc}, alpha, a, sa, b, sb, beta, c, sc, batch);
}
int cublasSgemmEx(void*, int ta, int tb, int m, int n, int k, const float* alpha, const void* a,
                  int type, int lda, const void* b, int, int ldb, const float* beta, void* c, int,
                  int ldc) {
  return any(type, {ta, tb, m, n, k, lda, ldb, ldc}, alpha, a, 0, b, 0, beta, c, 0, 1);
}
int cublasSgemm_v2(void*, int ta, int tb, int m, int n, int k, const float* alpha, const float* a,
                   int lda, const float* b, int ldb, const float* beta, float* c, int ldc) {
  return any(kFloat, {ta, tb, m, n, k, lda, ldb, ldc}, alpha, a, 0, b, 0, beta, c, 0, 1);
}
int cublasDgemm_v2(void*, int ta, int tb, int m, int n, int k, const double* alpha, const double* a,
                   int lda, const double* b, int ldb, const double* beta, double* c, int ldc) {
  return any(kDouble, {ta, tb, m, n, k, lda, ldb, ldc}, alpha, a, 0, b, 0, beta, c, 0, 1);
}

#define BATCHED(letter, T, type)                                                                    \
  int cublas##letter##gemmBatched(void*, int ta, int tb, int m, int n, int k, const T* alpha,       \
                                  const T* const* a, int lda, const T* const* b, int ldb,           \
                                  const T* beta, T* const* c, int ldc, int batch) {                 \
    if (synchronize) synchronize(); /* the tables of addresses are written on a stream */           \
    for (int i = 0; i < batch; i++)                                                                 \
      any(type, {ta, tb, m, n, k, lda, ldb, ldc}, alpha, a[i], 0, b[i], 0, beta, c[i], 0, 1);       \
    return kOk;                                                                                     \
  }                                                                                                 \
  int cublas##letter##gemmStridedBatched(void*, int ta, int tb, int m, int n, int k,                \
                                         const T* alpha, const T* a, int lda, long long sa,         \
                                         const T* b, int ldb, long long sb, const T* beta, T* c,    \
                                         int ldc, long long sc, int batch) {                        \
    return any(type, {ta, tb, m, n, k, lda, ldb, ldc}, alpha, a, sa, b, sb, beta, c, sc, batch);    \
  }
BATCHED(S, float, kFloat)
BATCHED(D, double, kDouble)
}
