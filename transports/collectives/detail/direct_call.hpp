#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "runtime/exchange/communicator.hpp"
#include "runtime/lanes/lane_loop.hpp"
#include "transports/collectives/detail/direct_head.hpp"
#include "transports/collectives/detail/send_queue.hpp"

namespace troupe::collectives {

class DirectRounds;
struct CollectiveCall;
struct Flow;
struct Round;

/// One message that is sent in a round.
struct Delivery final : SendQueue::Message, SendDone {
  Delivery(Flow& its_flow, std::uint32_t rank, bool is_half) : flow(its_flow), half(is_half) { to = rank; }
  void sent(Status status) noexcept override;

  Flow& flow;
  const bool half;  // it carries the copy of a result in half precision
};

/// What a rank sends to the others in a round: its contributions, or the result of the part that it owns.
struct Flow {
  Flow(Round& its_round, bool sends_results, std::uint32_t self, std::uint32_t ranks);

  Round& round;
  const bool results;
  std::deque<Delivery> deliveries;  // one for each rank and payload kind, the neighbour's first: ranks begin apart
  std::uint32_t left = 0;           // number of this round's messages that were not reported as sent
};

/// What a call does for one chunk, or for all parts of a plain operation, or for the sums.
struct Round final : Waker, LaneTask {
  Round(CollectiveCall& its_call, std::size_t its_channel, std::uint32_t self, std::uint32_t ranks);
  /// The exchange's stream has finished this rank's own work.
  void reached(Point point, Status status) noexcept override;
  void run() noexcept override;

  CollectiveCall& call;
  const std::size_t channel;
  RoundShape shape;
  Flow contributions;
  Flow results;
};

/// A result of another rank that has arrived, until the exchange's stream has copied it to its place.
struct StagedResult final : Waker, LaneTask {
  StagedResult(DirectRounds& its_rounds, std::size_t its_channel) : owner(its_rounds), channel(its_channel) {}
  void reached(Point point, Status status) noexcept override;
  void run() noexcept override;

  DirectRounds& owner;
  const std::size_t channel;
  std::uint64_t sequence = 0;
  PayloadKind payload_kind{};
};

/// One call of this rank, from when it is enqueued until all its messages are sent.
struct CollectiveCall final : Waker, LaneTask {
  /// With one round on each of `count` channels, from `first_channel` on.
  CollectiveCall(DirectRounds& its_rounds, std::size_t its_series, std::size_t first_channel, std::size_t count,
                 std::uint32_t self, std::uint32_t ranks);
  /// The caller's stream has reached the call: its contributions are written.
  void reached(Point point, Status status) noexcept override;
  void run() noexcept override;

  DirectRounds& owner;
  const std::size_t series;
  std::deque<Round> rounds;
  // Set by the caller; for a plain operation only `parts`.
  BucketWork work;
  RuleStep rule;
  StripeMemory mine;          // this rank's part of the bucket
  Memory data;                // its contribution: the bucket's gradients
  std::vector<Memory> parts;  // by owner
  std::uint64_t number = 0;   // in its series
  std::uint64_t verdict = 0;  // its number among the calls of steps with a verdict, from 1; 0: it is not one of them
  // Used by the lane:
  bool begun = false;
  std::uint32_t gathered = 0;  // number of gathered rounds
  std::uint32_t over = 0;      // number of rounds that are over
  std::uint32_t uses = 0;      // rounds not over, their results not sent, and a place in the verdict queue
};

}  // namespace troupe::collectives
