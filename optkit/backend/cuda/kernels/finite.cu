// Sets a flag where a number is NaN or infinite. All who write it write the same.
extern "C" __global__ void nonfinite(const T* x, long long count, int* flag) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    const N value = (N)x[i];
    if (!(value - value == N(0))) *flag = 1;
  }
}
