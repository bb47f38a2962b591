// Streams as queues. Eager ones (the default) run what is put in at once; lazy ones only when
// something waits for them, so that a program that forgets to wait reads old numbers.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "memory.hpp"

struct Work {
  std::function<void()> run;
  std::string what;
};

struct Graph {
  std::vector<Work> works;
};

struct Event {
  Pointer stream = 0;
  uint64_t position = 0;  // it has happened when the stream has done so many works
};

struct Stream {
  std::deque<Work> queue;
  uint64_t done = 0, taken = 0;
  bool blocking = true;  // waits for, and is waited for by, the legacy default stream
  Graph* capturing = nullptr;
  bool broken = false;   // the capture: something in it was not allowed
};

class Streams {
 public:
  bool lazy = false, logging = false;
  std::vector<std::string> log;

  static constexpr uint64_t kAll = UINT64_MAX;

  Stream& at(Pointer handle) { return streams_[handle]; }

  Pointer create(bool blocking) {
    next_ += 16;
    streams_[next_].blocking = blocking;
    return next_;
  }

  void destroy(Pointer handle) {
    drain(handle);
    streams_.erase(handle);
  }

  void put(Pointer handle, Work work) {
    if (logging) log.push_back(work.what);
    Stream& stream = streams_[handle];
    if (stream.capturing) {
      stream.capturing->works.push_back(std::move(work));
      return;
    }
    if (handle == 0 || handle == 1) {  // the legacy default stream
      for (auto& [other, state] : streams_)
        if (other != handle && state.blocking) drain(other);
    } else if (stream.blocking) {
      drain(0);
    }
    stream.queue.push_back(std::move(work));
    stream.taken++;
    if (!lazy) drain(handle);
  }

  void drain(Pointer handle, uint64_t until = kAll) {
    Stream& stream = streams_[handle];
    while (!stream.queue.empty() && stream.done < until) {
      Work work = std::move(stream.queue.front());
      stream.queue.pop_front();
      work.run();
      stream.done++;
    }
  }

  void drain_all() {
    for (auto& entry : streams_) drain(entry.first);
  }

  void record(Event& event, Pointer handle) {
    event.stream = handle;
    event.position = streams_[handle].taken;
  }

  void wait_for(const Event& event) { drain(event.stream, event.position); }

  bool happened(const Event& event) {
    auto found = streams_.find(event.stream);
    return found == streams_.end() || found->second.done >= event.position;
  }

  bool any_capturing() const {
    for (auto& entry : streams_)
      if (entry.second.capturing) return true;
    return false;
  }

 private:
  std::map<Pointer, Stream> streams_;
  Pointer next_ = 0x1000;
};
