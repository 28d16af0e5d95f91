#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>

#include "runtime/exchange/communicator.hpp"
#include "runtime/lanes/lane_loop.hpp"
#include "runtime/memory/arena.hpp"
#include "transports/collectives/detail/call_order.hpp"
#include "transports/collectives/detail/call_series.hpp"
#include "transports/collectives/detail/direct_call.hpp"
#include "transports/collectives/detail/direct_head.hpp"
#include "transports/collectives/detail/group_failure.hpp"
#include "transports/collectives/detail/own_work.hpp"
#include "transports/collectives/detail/round_plan.hpp"
#include "transports/collectives/detail/round_sender.hpp"
#include "transports/collectives/detail/round_window.hpp"
#include "transports/collectives/detail/verdict_queue.hpp"
#include "transports/collectives/direct_communicator.hpp"

namespace troupe::collectives {

/// The lane's side of a group's rounds at one rank: takes each round from its first message to its end. When everything
/// that this rank adds up of a chunk has arrived, the addition is enqueued on the exchange's stream, and the result is
/// sent when that stream has done it. Thus chunks are processed in the order in which they become complete, whatever
/// the order of the calls. CallSubmitter submits the calls.
///
/// The course of a call: its stream reaches it (arrived_at); its rounds begin and contributions are sent (begin);
/// everything that this rank adds up has arrived (gathered); OwnWork computes; results are sent (own_work_done); all
/// messages of its rounds have been received and sent (over); its point is signalled. Each step is taken as soon as its
/// last condition holds, in arrived(), sent(), or when a point is reached. Therefore each of these ends with advance()
/// and pump().
///
/// The rounds of a channel follow each other, but two may be in progress: a rank may be one round ahead of another, not
/// two, since it needs the other's answer. Therefore everything that belongs to a round has two places. Threads: the
/// lane's, unless stated otherwise.
class DirectRounds final : public Receiver {
 public:
  DirectRounds(AddressSpace& space, LaneLoop& loop, Stream& exchange, DirectGroup group);

  // Called by any thread:
  const RoundPlan& plan() const noexcept { return plan_; }
  CallSeries& calls() noexcept { return calls_; }
  const CallSeries& calls() const noexcept { return calls_; }
  GroupFailure& failure() noexcept { return failure_; }
  bool post(LaneTask& task) noexcept { return loop_.post(task); }

  Memory landing(Peer from, Lane lane, std::span<const std::byte> head, std::uint64_t size_bytes) noexcept override;
  void arrived(Peer from, Lane lane, std::span<const std::byte> head, Memory payload) noexcept override;
  void dropped(Peer from, Lane lane, Memory payload, const Status& why) noexcept override;
  void lost(Peer peer, const Status& why) noexcept override;

  // Called by calls and their parts:
  /// The caller's stream has reached `call`; or the exchange's stream has reached the sums of a step with a verdict.
  void arrived_at(CollectiveCall& call) noexcept;
  /// The exchange's stream has finished this rank's own work.
  void own_work_done(Round& round) noexcept;
  /// The exchange's stream has copied a result that arrived to its place.
  void unstaged(const StagedResult& result) noexcept;
  void sent(Delivery& delivery, const Status& status) noexcept;

 private:
  /// The rounds of a chunk, of plain operations, or of the sums.
  struct Channel {
    Channel(std::uint32_t self, std::span<const Rank> names) : window(self, names) {}
    RoundWindow window;
    std::deque<StagedResult> staged;       // for device memory: of other ranks, by sequence, rank and payload kind
    std::array<Round*, 2> rounds{};        // those that have begun, by sequence
    std::array<std::uint64_t, 2> begun{};  // their sequence numbers
    std::uint64_t gathered = 0;            // number of rounds handled by gathered()
    std::uint64_t over = 0;                // number of rounds handled by over()
  };

  const Round* begun(const RoundShape& shape) const noexcept;
  void begin(CollectiveCall& call);
  void advance(std::size_t channel);
  void gathered(Round& round);
  void over(Round& round);
  void advance_verdicts();
  bool may_take_turn(CollectiveCall& call);
  void take_turn(CollectiveCall& call);
  void send(Flow& flow);
  void finished(Flow& flow);
  std::optional<DirectHead> accept(Peer from, std::span<const std::byte> head, std::uint64_t size_bytes);
  bool take_abort_notice(Peer from, std::span<const std::byte> head);
  void unstage(const DirectHead& head);

  AddressSpace& space_;
  LaneLoop& loop_;
  const RoundPlan plan_;
  GroupFailure failure_;
  CallSeries calls_;
  OwnWork work_;
  RoundSender sender_;
  CallOrder order_;
  std::deque<Channel> channels_;
  VerdictQueue verdicts_;
  std::uint64_t agreed_ = 0;  // the last call of the sums that had its turn in the verdict queue
};

}  // namespace troupe::collectives
