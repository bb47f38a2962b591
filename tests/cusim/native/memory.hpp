// Device and pinned memory: every block ends at a page that nobody may touch, so that an access
// out of bounds faults, and starts as NaNs, so that reading what nobody wrote shows.
#pragma once
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <map>

using Pointer = intptr_t;  // as CuPy passes device addresses and handles

enum class Kind : int { kPinned = 1, kDevice = 2 };  // cudaMemoryType

struct Block {
  char* base;       // of the mapping
  size_t mapped;    // bytes, guard pages included
  size_t size;      // bytes asked for
  Kind kind;
  int device;
};

class Memory {
 public:
  size_t limit = 0;  // of device memory in bytes; 0: what the machine has

  static constexpr size_t kTotal = size_t(8) << 30;  // what a device without a limit says it has

  // 0 where the limit or the machine does not allow it.
  Pointer allocate(size_t size, Kind kind, int device) {
    if (kind == Kind::kDevice && limit && used_ + size > limit) return 0;
    const size_t body = ((size ? size : 1) + kPage - 1) / kPage * kPage;
    const size_t mapped = body + 2 * kPage;
    void* found = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) return 0;
    char* base = static_cast<char*>(found);
    // A process may have so many mappings and no more; CuPy then frees what it keeps, and asks again.
    if (mprotect(base + kPage, body, PROT_READ | PROT_WRITE)) {
      munmap(base, mapped);
      return 0;
    }
    // Aligned as cudaMalloc does, and as near to the guard page as that allows.
    char* start = base + kPage + ((body - size) & ~(kAlignment - 1));
    std::memset(start, 0xFF, size);
    blocks_[Pointer(start)] = {base, mapped, size, kind, device};
    if (kind == Kind::kDevice) used_ += size;
    return Pointer(start);
  }

  void release(Pointer start) {
    auto found = blocks_.find(start);
    if (found == blocks_.end()) return;
    if (found->second.kind == Kind::kDevice) used_ -= found->second.size;
    munmap(found->second.base, found->second.mapped);
    blocks_.erase(found);
  }

  // The block that an address lies in; null for ordinary host memory.
  const Block* find(Pointer address) const {
    auto after = blocks_.upper_bound(address);
    if (after == blocks_.begin()) return nullptr;
    --after;
    const bool inside = address < after->first + Pointer(after->second.size);
    return inside || address == after->first ? &after->second : nullptr;
  }

  size_t used() const { return used_; }
  size_t total() const { return limit ? limit : kTotal; }
  size_t blocks() const { return blocks_.size(); }

 private:
  static constexpr size_t kPage = 4096, kAlignment = 256;
  std::map<Pointer, Block> blocks_;
  size_t used_ = 0;
};
