#pragma once

#include <vector>

#include "runtime/base/clock.hpp"
#include "runtime/base/trace.hpp"
#include "runtime/lanes/lane_loop.hpp"
#include "runtime/memory/arena.hpp"
#include "transports/collectives/detail/direct_call.hpp"
#include "transports/collectives/detail/group_failure.hpp"
#include "transports/collectives/detail/round_plan.hpp"
#include "transports/collectives/detail/send_queue.hpp"

namespace troupe::collectives {

/// Sends the messages of rounds: a head for each delivery, and the payload from its place in memory. Threads: the
/// lane's.
class RoundSender {
 public:
  RoundSender(AddressSpace& space, LaneLoop& loop, const RoundPlan& plan, const GroupFailure& failure);

  /// Queues all messages of the flow in its round. False: there are none.
  bool send(Flow& flow);
  /// Sends the messages that may be sent now.
  void pump() { queue_.pump(); }
  /// The transport has sent it, or never will. Returns whether it was the last one of its flow.
  bool sent(Delivery& delivery);

 private:
  /// The messages to one rank, for the trace.
  struct Link {
    TraceRow* row;
    Clock::time_point sent;  // when the last message was completely sent
  };
  bool try_send(Delivery& delivery);
  Urgency urgency_of(const Flow& flow) const noexcept;
  void note(const Delivery& delivery) noexcept;

  AddressSpace& space_;
  LaneLoop& loop_;
  const RoundPlan& plan_;
  const GroupFailure& failure_;
  SendQueue queue_;
  std::vector<Link> links_;  // by rank; empty: nothing is traced
};

}  // namespace troupe::collectives
