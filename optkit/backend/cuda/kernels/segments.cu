// The sum of each segment of neighbouring rows, where rows come in the order `order`. A thread adds
// up one column of one piece of a segment as a counter in base two counts: it keeps sums of 1, 2, 4
// ... rows and joins two as soon as they are equally many. So rows are added pairwise, in the same
// order as optkit.backend.segments adds them with array operations, and with the same bits. Pieces
// hold a power of two rows, so that a long segment is cut without changing the order.

__device__ __forceinline__ void push(N* sums, long long& count, N value) {
  int level = 0;
  for (long long left = count; left & 1; left >>= 1) value = sums[level++] + value;
  sums[level] = value;
  count++;
}

__device__ __forceinline__ N total(const N* sums, long long count) {
  N sum = N(0);
  bool first = true;
  int level = 0;
  for (long long left = count; left; left >>= 1, level++) {
    if (!(left & 1)) continue;
    sum = first ? sums[level] : sums[level] + sum;
    first = false;
  }
  return sum;
}

// pieces[2 * p], pieces[2 * p + 1]: the first place in `order` of piece p, and its rows.
extern "C" __global__ void pieces_of_segments(const T* values, const long long* order,
                                              const long long* pieces, long long total_elements,
                                              long long width, N* sums_of_pieces) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long n = (long long)blockIdx.x * blockDim.x + threadIdx.x; n < total_elements;
       n += step) {
    const long long piece = n / width, column = n % width;
    const long long first = pieces[2 * piece], rows = pieces[2 * piece + 1];
    N sums[48];
    long long count = 0;
    for (long long i = 0; i < rows; i++)
      push(sums, count, (N)values[order[first + i] * width + column]);
    sums_of_pieces[n] = total(sums, count);
  }
}

// ends[s]: the number of pieces up to and with segment s; places[s]: its row in the result, which
// has `limit` rows. A place outside is skipped: who asked has been told, or will be.
extern "C" __global__ void segments_of_pieces(const N* sums_of_pieces, const long long* ends,
                                              const long long* places, long long total_elements,
                                              long long width, long long limit, T* result) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long n = (long long)blockIdx.x * blockDim.x + threadIdx.x; n < total_elements;
       n += step) {
    const long long segment = n / width, column = n % width;
    if (places[segment] < 0 || places[segment] >= limit) continue;
    const long long first = segment ? ends[segment - 1] : 0;
    N sums[48];
    long long count = 0;
    for (long long piece = first; piece < ends[segment]; piece++)
      push(sums, count, sums_of_pieces[piece * width + column]);
    result[places[segment] * width + column] = T(total(sums, count));
  }
}
