#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "actors/remote/calls.hpp"

namespace troupe::remote {

/// The calls of this process that have no answer yet. A ticket is never used twice. Threads: one.
class OpenCalls {
 public:
  std::uint64_t open(Peer callee, CallDone& done) {
    if (free_.empty()) {
      free_.reserve(slots_.size() + 1);
      slots_.emplace_back();
      free_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));
    }
    const std::uint32_t place = free_.back();
    free_.pop_back();
    slots_[place].callee = callee;
    slots_[place].done = &done;
    return std::uint64_t{slots_[place].times} << 32 | place;
  }

  bool is_open(std::uint64_t ticket, Peer callee) const noexcept {
    const std::uint64_t place = ticket & 0xffffffff;
    return place < slots_.size() && slots_[place].done != nullptr && slots_[place].times == ticket >> 32 &&
           slots_[place].callee == callee;
  }

  /// The receiver of the answer; null: the call is not open any more.
  CallDone* close(std::uint64_t ticket, Peer callee) noexcept {
    if (!is_open(ticket, callee)) return nullptr;
    const auto place = static_cast<std::uint32_t>(ticket);
    ++slots_[place].times;
    free_.push_back(place);
    return std::exchange(slots_[place].done, nullptr);
  }

  /// Closes all calls to `callee`, or all calls.
  std::vector<CallDone*> close_all(std::optional<Peer> callee = {}) {
    std::vector<CallDone*> closed;
    for (std::uint64_t place = 0; place < slots_.size(); ++place) {
      if (callee && slots_[place].callee != *callee) continue;
      if (CallDone* const done = close(std::uint64_t{slots_[place].times} << 32 | place, slots_[place].callee))
        closed.push_back(done);
    }
    return closed;
  }

 private:
  struct Slot {
    Peer callee;
    CallDone* done = nullptr;  // null: free
    std::uint32_t times = 0;   // how often it was used
  };
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;  // has space for all, so that close() does not throw
};

}  // namespace troupe::remote
