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

/// The calls of this rank, in series: one for each bucket, one for plain operations, one for sums alone. A series has a
/// line of this process, which counts the calls of it that are over. Calls of one series use the same memory, so they
/// follow each other; those of different series do not wait for each other.
///
/// A call object is used again when everything about it has ended: its rounds are over, what it sends is out, and it
/// stands in no queue (CollectiveCall::uses). That can be after its point was signalled, and the caller may be several
/// calls ahead, so a series has as many objects as were ever in use at once. Threads: the caller's, the lane's, or
/// both, as it says.
class CallSeries {
 public:
  CallSeries(AddressSpace& space, const RoundPlan& plan, GroupFailure& failure, DirectRounds& owner);

  std::size_t of_plain() const noexcept { return plan_.ownership().count_buckets(); }
  std::size_t of_sums() const noexcept { return of_plain() + 1; }

  // The caller's.
  /// A call whose rounds have that shape, numbered.
  CollectiveCall& take(std::size_t series, const RoundShape& common);
  /// When `call` is over; and when the one before it is.
  Point end_of(const CollectiveCall& call) const { return {series_[call.series].over->id(), call.number}; }
  Point end_before(const CollectiveCall& call) const { return {series_[call.series].over->id(), call.number - 1}; }

  // The lane's.
  /// Whether all calls of its series before it are over.
  bool is_next(const CollectiveCall& call) const noexcept { return series_[call.series].ended + 1 == call.number; }
  std::uint64_t ended(std::size_t series) const noexcept { return series_[series].ended; }
  /// All of its rounds are over: signals its point.
  void end(const CollectiveCall& call);
  /// One use of it has ended.
  void release(CollectiveCall& call) noexcept;

  // Any thread's.
  /// Whether all calls are over, and what they sent is out.
  bool is_idle() const noexcept;

 private:
  struct Series {
    Series(AddressSpace& space, std::size_t first, std::size_t count)
        : own(space), over(&own.line()), first_channel(first), count_channels(count) {}
    PrivateTimeline own;
    Timeline* over;
    std::size_t first_channel;  // of the rounds of each call
    std::size_t count_channels;
    std::uint64_t enqueued = 0;        // the caller's
    std::uint64_t ended = 0;           // the lane's
    std::deque<CollectiveCall> calls;  // as many as were ever under way at once; guarded by mutex_, as is free
    std::vector<CollectiveCall*> free;
  };
  void add(AddressSpace& space, std::size_t first_channel, std::size_t count_channels);

  const RoundPlan& plan_;
  GroupFailure& failure_;
  DirectRounds& owner_;
  std::deque<Series> series_;        // by bucket, then plain operations' and the sums'
  std::uint64_t calls_ = 0;          // the caller's: of all series
  std::uint64_t verdict_calls_ = 0;  // the caller's
  mutable std::mutex mutex_;         // guards calls and free of each series
};

}  // namespace troupe::collectives
