// What the simulator and the kernels it built agree on.
#pragma once

namespace simt {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

constexpr unsigned kWarp = 32;
constexpr unsigned kMaxThreads = 1024;  // of a block

enum Wait { kRunning, kBlockBarrier, kWarpBarrier };

// The CUDA thread that is running, as its kernel sees it. One thread runs at a time, so there is
// one context; the scheduler changes it from thread to thread.
struct Context {
  Dim3 grid, block, block_index, thread_index;
  char* dynamic_shared;                       // of the block
  unsigned long long exchange[kMaxThreads];   // one slot a thread, for warp shuffles
  void (*wait)(Wait);                         // give way until the barrier opens

  unsigned thread() const {
    return thread_index.x + block.x * (thread_index.y + block.y * thread_index.z);
  }
};

}  // namespace simt
