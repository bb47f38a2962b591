// How many values each bucket has, a bucket being the top bits of the float (sign, exponent, three
// bits of the mantissa); and the moments of the finite values. Floats are looked at as bits: where
// they are compared or converted, subnormal ones would count as zero. A block counts in shared
// memory where the buckets fit, combining neighbours that are alike, as zeros often are; integers
// add up to the same in any order. Moments are added up in an order that only the size sets.

#define SINGLE (sizeof(T) == 4)
#define SHIFT (SINGLE ? 20 : 49)
#define LOCAL (SINGLE ? 4096 : 1)
#define INFINITE __longlong_as_double(0x7ff0000000000000LL)

__device__ __forceinline__ unsigned long long bits_of(float x) { return __float_as_uint(x); }
__device__ __forceinline__ unsigned long long bits_of(double x) {
  return (unsigned long long)__double_as_longlong(x);
}

__device__ __forceinline__ bool is_finite(unsigned long long bits) {
  const unsigned long long exponent = SINGLE ? 0x7f800000ULL : 0x7ff0000000000000ULL;
  return (bits & exponent) != exponent;
}

__device__ __forceinline__ double exact(float x) {
  const unsigned int bits = __float_as_uint(x);
  if (bits & 0x7f800000u) return (double)x;
  const double size = (double)(bits & 0x7fffffu) * 1.401298464324817e-45;
  return bits >> 31 ? -size : size;
}
__device__ __forceinline__ double exact(double x) { return x; }

__device__ __forceinline__ void add(unsigned int* local, unsigned long long* counts, int bucket,
                                    unsigned int number) {
  if (SINGLE)
    atomicAdd(&local[bucket], number);
  else
    atomicAdd(&counts[bucket], (unsigned long long)number);
}

// The moments (least, largest, sum, sum of squares) of 256 threads, put into `result` by the first.
__device__ __forceinline__ void joined(double low, double high, double sum, double squares,
                                       double* result) {
  __shared__ double all[4][256];
  const int me = threadIdx.x;
  all[0][me] = low;
  all[1][me] = high;
  all[2][me] = sum;
  all[3][me] = squares;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (me < half) {
      if (all[0][me + half] < all[0][me]) all[0][me] = all[0][me + half];
      if (all[1][me + half] > all[1][me]) all[1][me] = all[1][me + half];
      all[2][me] += all[2][me + half];
      all[3][me] += all[3][me + half];
    }
    __syncthreads();
  }
  if (me < 4) result[me] = all[me][0];
}

extern "C" __global__ void count(const T* x, long long n, unsigned long long* counts,
                                 double* partial) {
  __shared__ unsigned int local[LOCAL];
  if (SINGLE)
    for (int i = threadIdx.x; i < LOCAL; i += blockDim.x) local[i] = 0;
  __syncthreads();
  double low = INFINITE, high = -INFINITE, sum = 0, squares = 0;
  int last = 0;
  unsigned int run = 0;
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    const unsigned long long bits = bits_of(x[i]);
    const int bucket = (int)(bits >> SHIFT);
    if (bucket != last) {
      if (run) add(local, counts, last, run);
      last = bucket;
      run = 0;
    }
    run++;
    if (is_finite(bits)) {
      const double value = exact(x[i]);
      if (value < low) low = value;
      if (value > high) high = value;
      sum += value;
      squares += value * value;
    }
  }
  if (run) add(local, counts, last, run);
  joined(low, high, sum, squares, partial + 4 * blockIdx.x);
  if (SINGLE)
    for (int i = threadIdx.x; i < LOCAL; i += blockDim.x)
      if (local[i]) atomicAdd(&counts[i], (unsigned long long)local[i]);
}

extern "C" __global__ void totals(const double* partial, int blocks, double* moments) {
  double low = INFINITE, high = -INFINITE, sum = 0, squares = 0;
  for (int i = threadIdx.x; i < blocks; i += blockDim.x) {
    if (partial[4 * i] < low) low = partial[4 * i];
    if (partial[4 * i + 1] > high) high = partial[4 * i + 1];
    sum += partial[4 * i + 2];
    squares += partial[4 * i + 3];
  }
  joined(low, high, sum, squares, moments);
}
