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

/// One message on its way.
struct Delivery final : SendQueue::Message, SendDone {
  Delivery(Flow& its_flow, std::uint32_t rank, bool is_bf16) : flow(its_flow), bf16(is_bf16) { to = rank; }
  void sent(Status status) noexcept override;

  Flow& flow;
  const bool bf16;  // the bf16 image of a result
};

/// What a rank sends to the others in a round: its contributions, or the result of what it owns.
struct Flow {
  Flow(Round& its_round, bool sends_results, std::uint32_t self, std::uint32_t ranks);

  Round& round;
  const bool results;
  std::deque<Delivery> deliveries;  // all that there may be; to this rank's neighbour first, so that ranks begin apart
  std::uint32_t left = 0;           // of this round's, not told to be sent
};

/// What a call does about one chunk, or about all parts of a plain operation, or about the sums.
struct Round final : Waker, LaneTask {
  Round(CollectiveCall& its_call, std::size_t its_channel, std::uint32_t self, std::uint32_t ranks);
  /// The exchange's stream has done this rank's own work.
  void reached(Point point, Status status) noexcept override;
  void run() noexcept override;

  CollectiveCall& call;
  const std::size_t channel;
  RoundShape shape;
  Flow contributions;
  Flow results;
};

/// A result of another rank that has arrived, until the exchange's stream has copied it to where it belongs.
struct StagedResult final : Waker, LaneTask {
  StagedResult(DirectRounds& its_rounds, std::size_t its_channel) : owner(its_rounds), channel(its_channel) {}
  void reached(Point point, Status status) noexcept override;
  void run() noexcept override;

  DirectRounds& owner;
  const std::size_t channel;
  std::uint64_t sequence = 0;
  Cargo cargo{};
};

/// One call of this rank, from when it is enqueued until everything that it sends is out.
struct CollectiveCall final : Waker, LaneTask {
  /// With a round on each of `count` channels from `first_channel` on.
  CollectiveCall(DirectRounds& its_rounds, std::size_t its_series, std::size_t first_channel, std::size_t count,
                 std::uint32_t self, std::uint32_t ranks);
  /// The caller's stream has come so far: what it contributes is written.
  void reached(Point point, Status status) noexcept override;
  void run() noexcept override;

  DirectRounds& owner;
  const std::size_t series;
  std::deque<Round> rounds;
  // The caller's words; of a plain operation only `parts`.
  BucketWork work;
  RuleStep rule;
  StripeMemory mine;          // this rank's part of the bucket
  Memory data;                // what it contributes: the bucket's gradients
  std::vector<Memory> parts;  // by owner
  std::uint64_t number = 0;   // of its series
  std::uint64_t verdict = 0;  // its place among the calls of steps with a verdict, from 1; 0: it is none
  // The lane's.
  bool begun = false;
  std::uint32_t gathered = 0;  // rounds
  std::uint32_t over = 0;      // rounds
  std::uint32_t uses = 0;      // rounds not over, results of them not out, and a place in the queue of verdicts
};

}  // namespace troupe::collectives
