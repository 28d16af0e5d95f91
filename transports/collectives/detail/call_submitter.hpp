#pragma once

#include <cstdint>
#include <span>

#include "runtime/compute/stream.hpp"
#include "runtime/exchange/communicator.hpp"
#include "runtime/memory/arena.hpp"
#include "transports/collectives/detail/call_series.hpp"
#include "transports/collectives/detail/direct_call.hpp"
#include "transports/collectives/detail/direct_head.hpp"
#include "transports/collectives/detail/round_plan.hpp"

namespace troupe::collectives {

/// Submits the calls of a group's rounds: it enqueues on the caller's stream what a call needs before it may be sent,
/// and passes the call to the lane, to DirectRounds, when that stream has reached it. It never waits; it returns a
/// point on a line of this process. Threads: one at a time.
class CallSubmitter {
 public:
  CallSubmitter(AddressSpace& space, const RoundPlan& plan, CallSeries& calls)
      : space_(space), plan_(plan), calls_(calls) {}

  Point update(Stream& stream, const BucketWork& work, const RuleStep& rule, const StripeMemory& mine);
  /// `parts` by owner; for operations that reduce, each at most RoundPlan::most_reduced().
  Point plain(Stream& stream, PlainOperation operation, std::span<const Memory> parts);
  [[nodiscard]] Point gather(Stream& stream, const BucketWork& work, const StripeMemory& mine);
  [[nodiscard]] Point agree(Stream& stream, const BucketWork& work);
  Point publish(Stream& stream, const BucketWork& work, const RuleStep& rule, const StripeMemory& mine);

 private:
  CollectiveCall& take(RoundPart part, const BucketWork& work, const StripeMemory& mine);
  void count_uses(CollectiveCall& call, const Round& round) const;
  void check(const BucketWork& work, const StripeMemory& mine) const;
  Point enqueue(Stream& stream, CollectiveCall& call);
  Point enqueue_next(Stream& stream, CollectiveCall& call);

  AddressSpace& space_;
  const RoundPlan& plan_;
  CallSeries& calls_;
};

}  // namespace troupe::collectives
