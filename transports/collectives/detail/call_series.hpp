#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "runtime/memory/arena.hpp"
#include "transports/collectives/detail/direct_call.hpp"
#include "transports/collectives/detail/direct_head.hpp"
#include "transports/collectives/detail/group_failure.hpp"
#include "transports/collectives/detail/round_plan.hpp"

namespace troupe::collectives {

/// The calls of this rank, in series: one series for each bucket, one for plain operations, one for sums alone. A
/// series has a line of this process, which counts its finished calls. Calls of one series use the same memory, so they
/// follow each other; those of different series do not wait for each other.
///
/// A call object is reused when nothing uses it any more: its rounds are over, its messages are sent, and it is in no
/// queue (CollectiveCall::uses). That may be after its point was signalled, and the caller may be several calls ahead.
/// Therefore a series has as many objects as were ever in use at once. Threads: the caller's, the lane's, or both, as
/// stated.
class CallSeries {
 public:
  CallSeries(AddressSpace& space, const RoundPlan& plan, GroupFailure& failure, DirectRounds& owner);

  std::size_t of_plain() const noexcept { return plan_.ownership().count_buckets(); }
  std::size_t of_sums() const noexcept { return of_plain() + 1; }

  // Called by the caller's thread:
  /// Takes a call object, numbers it, and gives its rounds that shape.
  CollectiveCall& take(std::size_t series, const RoundShape& common);
  /// The point at which `call` is over; and at which the previous one is.
  Point end_of(const CollectiveCall& call) const { return {series_[call.series].over->id(), call.number}; }
  Point end_before(const CollectiveCall& call) const { return {series_[call.series].over->id(), call.number - 1}; }

  // Called by the lane's thread:
  /// Whether all earlier calls of its series are over.
  bool is_next(const CollectiveCall& call) const noexcept { return series_[call.series].ended + 1 == call.number; }
  std::uint64_t ended(std::size_t series) const noexcept { return series_[series].ended; }
  /// All rounds of the call are over: signals its point.
  void end(const CollectiveCall& call);
  /// One use of the call has ended.
  void release(CollectiveCall& call) noexcept;

  // Called by any thread:
  /// Whether all calls are over, and all their messages are sent.
  bool is_idle() const noexcept;

 private:
  struct Series {
    Series(AddressSpace& space, std::size_t first, std::size_t count)
        : own(space), over(&own.line()), first_channel(first), count_channels(count) {}
    PrivateTimeline own;
    Timeline* over;
    std::size_t first_channel;  // of the rounds of each call
    std::size_t count_channels;
    std::uint64_t enqueued = 0;        // used by the caller
    std::uint64_t ended = 0;           // used by the lane
    std::deque<CollectiveCall> calls;  // as many as were ever in use at once; guarded by mutex_, as is free
    std::vector<CollectiveCall*> free;
  };
  void add(AddressSpace& space, std::size_t first_channel, std::size_t count_channels);

  const RoundPlan& plan_;
  GroupFailure& failure_;
  DirectRounds& owner_;
  std::deque<Series> series_;        // by bucket, then those of plain operations and of sums
  std::uint64_t calls_ = 0;          // used by the caller: of all series
  std::uint64_t verdict_calls_ = 0;  // used by the caller
  mutable std::mutex mutex_;         // guards calls and free of each series
};

}  // namespace troupe::collectives
