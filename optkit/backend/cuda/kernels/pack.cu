// Small arrays side by side in one block of bytes, a CUDA block for each array. Its table travels
// with the launch, as an argument.
struct Table {
  unsigned long long sources[128];
  int starts[128];
  int sizes[128];
};

extern "C" __global__ void pack(const Table table, unsigned char* block) {
  const unsigned long long source = table.sources[blockIdx.x];
  const int size = table.sizes[blockIdx.x];
  unsigned char* to = block + table.starts[blockIdx.x];
  if (((source | size) & 7) == 0) {  // `to` is a multiple of 16 from the start
    const unsigned long long* from = (const unsigned long long*)source;
    for (int i = threadIdx.x; i < size / 8; i += blockDim.x) ((unsigned long long*)to)[i] = from[i];
  } else {
    const unsigned char* from = (const unsigned char*)source;
    for (int i = threadIdx.x; i < size; i += blockDim.x) to[i] = from[i];
  }
}
