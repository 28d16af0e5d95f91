#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "transports/collectives/detail/direct_call.hpp"

namespace troupe::collectives {

/// The calls of steps with a verdict, in the order in which they were made. What is measured over the buckets is added
/// up in their order, the sums are exchanged after that, and the updates follow the sums: all three read what the one
/// before has written to the same memory, so none may pass another, though they are of different series. Threads: the
/// lane's.
class VerdictQueue {
 public:
  /// The caller's stream has come to the call. What lines tell of different points may come by different threads, and
  /// so in any order.
  void add(CollectiveCall& call) {
    const auto later = [&](const CollectiveCall* other) { return other->verdict > call.verdict; };
    calls_.insert(std::find_if(calls_.begin(), calls_.end(), later), &call);
  }
  /// The call whose turn it is; null while it has not come.
  CollectiveCall* next() const noexcept {
    return !calls_.empty() && calls_.front()->verdict == ended_ + 1 ? calls_.front() : nullptr;
  }
  /// The next call takes its turn: until passed() it is nobody's turn.
  void pop() { calls_.pop_front(); }
  /// It has done what those behind it wait for.
  void passed() { ++ended_; }

 private:
  std::deque<CollectiveCall*> calls_;
  std::uint64_t ended_ = 0;
};

}  // namespace troupe::collectives
