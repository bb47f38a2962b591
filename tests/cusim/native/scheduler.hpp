// Runs a grid: block after block, and the threads of a block in turns, as fibers where the kernel
// has barriers. The order of blocks and threads is a setting: a result that depends on it is a race.
#pragma once
#include <ucontext.h>
#include <xmmintrin.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "abi.hpp"

namespace simt {

using Entry = void (*)(void** arguments);

class Scheduler {
 public:
  int order = 0;         // 0 as numbered, 1 backwards, else shuffled with this seed
  bool strict = false;   // a thread that ended before a barrier of its block is an error
  Context context{};

  // Null, or what was wrong.
  const char* run(Entry entry, void** arguments, Dim3 grid, Dim3 block, size_t shared,
                  bool cooperative) {
    entry_ = entry;
    arguments_ = arguments;
    current_ = this;
    context.grid = grid;
    context.block = block;
    context.wait = &Scheduler::wait;
    const size_t blocks = size_t(grid.x) * grid.y * grid.z;
    threads_.resize(block.x * block.y * block.z);
    std::iota(threads_.begin(), threads_.end(), 0u);
    if (order == 1) std::reverse(threads_.begin(), threads_.end());
    std::vector<size_t> turns;
    if (order > 1) {
      rng_.seed(unsigned(order));
      turns.resize(blocks);
      std::iota(turns.begin(), turns.end(), size_t(0));
      std::shuffle(turns.begin(), turns.end(), rng_);
    }
    shared_.resize(shared + 16);
    context.dynamic_shared =
        reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(shared_.data()) + 15) & ~uintptr_t(15));
    for (size_t i = 0; i < blocks; i++) {
      const size_t b = order > 1 ? turns[i] : order == 1 ? blocks - 1 - i : i;
      context.block_index = {unsigned(b % grid.x), unsigned(b / grid.x % grid.y),
                             unsigned(b / (size_t(grid.x) * grid.y))};
      std::memset(context.dynamic_shared, 0xAB, shared);  // it is not zeroed on a device either
      if (order > 1) std::shuffle(threads_.begin(), threads_.end(), rng_);
      if (!cooperative) {
        for (unsigned thread : threads_) {
          context.thread_index = index_of(thread);
          entry(arguments);
        }
      } else if (const char* error = run_block()) {
        return error;
      }
    }
    return nullptr;
  }

 private:
  struct Fiber {
    ucontext_t state;
    std::unique_ptr<char[]> stack{new char[kStack]};
    bool done;
    Wait waits;
  };
  static constexpr size_t kStack = 64 << 10;
  static inline Scheduler* current_ = nullptr;

  Dim3 index_of(unsigned thread) const {
    const Dim3& block = context.block;
    return {thread % block.x, thread / block.x % block.y, thread / (block.x * block.y)};
  }

  static void start() {
    Scheduler& self = *current_;
    self.entry_(self.arguments_);
    self.running_->done = true;
    swapcontext(&self.running_->state, &self.home_);
  }

  static void wait(Wait barrier) {
    Scheduler& self = *current_;
    Fiber* me = self.running_;
    me->waits = barrier;
    swapcontext(&me->state, &self.home_);
  }

  const char* run_block() {
    const unsigned count = unsigned(threads_.size());
    while (fibers_.size() < count) fibers_.push_back(std::make_unique<Fiber>());
    for (unsigned thread = 0; thread < count; thread++) {
      Fiber& fiber = *fibers_[thread];
      fiber.done = false;
      fiber.waits = kRunning;
      getcontext(&fiber.state);
      fiber.state.uc_stack.ss_sp = fiber.stack.get();
      fiber.state.uc_stack.ss_size = kStack;
      fiber.state.uc_link = nullptr;
      makecontext(&fiber.state, &Scheduler::start, 0);
    }
    for (;;) {
      bool ran = false;
      if (order > 1) std::shuffle(threads_.begin(), threads_.end(), rng_);
      for (unsigned thread : threads_) {
        Fiber& fiber = *fibers_[thread];
        if (fiber.done || fiber.waits != kRunning) continue;
        running_ = &fiber;
        context.thread_index = index_of(thread);
        swapcontext(&home_, &fiber.state);
        ran = true;
      }
      if (ran) continue;
      const unsigned ended = count_if(0, count, [](const Fiber& f) { return f.done; });
      if (ended == count) return nullptr;
      if (open_warps(count)) continue;
      const unsigned waiting =
          count_if(0, count, [](const Fiber& f) { return !f.done && f.waits == kBlockBarrier; });
      if (waiting != count - ended)
        return "a barrier that not all threads of the warp or block reach";
      if (ended && strict) return "__syncthreads() after some threads of the block have ended";
      for (unsigned thread = 0; thread < count; thread++) fibers_[thread]->waits = kRunning;
    }
  }

  // Lets warps go on whose living threads all wait for their warp.
  bool open_warps(unsigned count) {
    bool opened = false;
    for (unsigned first = 0; first < count; first += kWarp) {
      const unsigned last = std::min(count, first + kWarp);
      const unsigned living = count_if(first, last, [](const Fiber& f) { return !f.done; });
      const unsigned waiting = count_if(
          first, last, [](const Fiber& f) { return !f.done && f.waits == kWarpBarrier; });
      if (waiting == 0 || waiting != living) continue;
      for (unsigned thread = first; thread < last; thread++) fibers_[thread]->waits = kRunning;
      opened = true;
    }
    return opened;
  }

  template <class F>
  unsigned count_if(unsigned first, unsigned last, F test) const {
    unsigned count = 0;
    for (unsigned thread = first; thread < last; thread++) count += test(*fibers_[thread]);
    return count;
  }

  Entry entry_ = nullptr;
  void** arguments_ = nullptr;
  std::vector<unsigned> threads_;
  std::vector<std::unique_ptr<Fiber>> fibers_;  // kept: a stack each
  std::vector<char> shared_;
  std::mt19937 rng_;
  Fiber* running_ = nullptr;
  ucontext_t home_;
};

}  // namespace simt
