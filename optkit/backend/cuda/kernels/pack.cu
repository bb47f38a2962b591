// Small arrays side by side in one block of bytes, a CUDA block for each array. Its table travels
// with the launch, as an argument.
struct Table {
  unsigned long long sources[128];
  int starts[128];
  int sizes[128];
};

extern "C" __global__ void pack(const Table table, unsigned char* block) {
  const unsigned char* from = (const unsigned char*)table.sources[blockIdx.x];
  unsigned char* to = block + table.starts[blockIdx.x];
  for (int i = threadIdx.x; i < table.sizes[blockIdx.x]; i += blockDim.x) to[i] = from[i];
}
