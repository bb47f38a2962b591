// Sets a flag where a number lies outside [0, size). All who write it write the same.
extern "C" __global__ void outside(const T* numbers, long long count, long long size, int* flag) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    const long long number = (long long)numbers[i];
    if (number < 0 || number >= size) *flag = 1;
  }
}
