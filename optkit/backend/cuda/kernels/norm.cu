// √Σx² over several tensors, as two kernels. Every block adds up one chunk of one tensor in double
// precision and in an order that only its size sets; the second kernel adds up the blocks' sums in
// the order of their numbers. So the same tensors give the same bits in every run.

__device__ __forceinline__ double sum_of_block(double x) {
  __shared__ double sums[256];
  sums[threadIdx.x] = x;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  return sums[0];
}

extern "C" __global__ void squares(const unsigned long long* tensors, const long long* sizes,
                                   const int2* blocks, int chunk, double* partial) {
  const int2 block = blocks[blockIdx.x];
  const long long low = (long long)block.y * chunk;
  const long long rest = sizes[block.x] - low;
  const int count = (int)(rest < chunk ? rest : chunk);
  const T* x = (const T*)tensors[block.x] + low;
  double sum = 0;
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    const double value = (double)(N)x[i];
    sum += value * value;
  }
  sum = sum_of_block(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

extern "C" __global__ void root(const double* partial, int count, N* norm) {
  double sum = 0;
  for (int i = threadIdx.x; i < count; i += blockDim.x) sum += partial[i];
  sum = sum_of_block(sum);
  if (threadIdx.x == 0) *norm = (N)sqrt(sum);
}
