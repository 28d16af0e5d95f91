#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "transports/collectives/detail/direct_call.hpp"

namespace troupe::collectives {

/// The calls of steps with a verdict, in the order in which they were made. What is measured over the buckets is added
/// up in their order; then the sums are exchanged, and then the updates use them. Each of these reads what the previous
/// one wrote to the same memory, so none may overtake another, although they belong to different series. Threads: the
/// lane's.
class VerdictQueue {
 public:
  /// The caller's stream has reached the call. Points may be reported by different threads, so calls may be added in
  /// any order.
  void add(CollectiveCall& call) {
    const auto later = [&](const CollectiveCall* other) { return other->verdict > call.verdict; };
    calls_.insert(std::find_if(calls_.begin(), calls_.end(), later), &call);
  }
  /// The call whose turn it is; null: it has not been added yet.
  CollectiveCall* next() const noexcept {
    return !calls_.empty() && calls_.front()->verdict == ended_ + 1 ? calls_.front() : nullptr;
  }
  /// The next call has its turn: until passed() it is no other call's turn.
  void pop() { calls_.pop_front(); }
  /// The call has done what the calls behind it wait for.
  void passed() { ++ended_; }

 private:
  std::deque<CollectiveCall*> calls_;
  std::uint64_t ended_ = 0;
};

}  // namespace troupe::collectives
