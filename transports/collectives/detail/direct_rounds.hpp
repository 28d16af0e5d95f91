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

/// The lane's side of a group's rounds at one rank: brings each from its first message to its end. Once all that this
/// rank adds up of a chunk is there, that work is enqueued on the exchange's stream, and the result is sent when that
/// stream has done it; so chunks are worked on in the order in which they become complete, whatever the order of the
/// calls. The caller's side is CallerSide.
///
/// A call goes so: its stream comes to it (arrived_at) - its rounds begin, contributions leave (begin) - all that this
/// rank adds up has come (gathered) - OwnWork - results leave (own_work_done) - everything of its rounds has come and
/// left (over) - its point is signalled. Each step is taken when the last of what it needs is there, by whichever of
/// arrived(), sent() or a point that was, so each of these ends with advance() and pump().
///
/// A channel has rounds one after the other, two at a time: a rank may be one round ahead of another one, not two, for
/// it needs that one's answer. So there are two places for everything that belongs to a round. Threads: the lane's,
/// where it says nothing else.
class DirectRounds final : public Receiver {
 public:
  DirectRounds(AddressSpace& space, LaneLoop& loop, Stream& exchange, DirectGroup group);

  // Any thread's.
  const RoundPlan& plan() const noexcept { return plan_; }
  CallSeries& calls() noexcept { return calls_; }
  const CallSeries& calls() const noexcept { return calls_; }
  GroupFailure& failure() noexcept { return failure_; }
  bool post(LaneTask& task) noexcept { return loop_.post(task); }

  Memory landing(Peer from, Lane lane, std::span<const std::byte> head, std::uint64_t size_bytes) noexcept override;
  void arrived(Peer from, Lane lane, std::span<const std::byte> head, Memory payload) noexcept override;
  void dropped(Peer from, Lane lane, Memory payload, const Status& why) noexcept override;
  void lost(Peer peer, const Status& why) noexcept override;

  // For calls and what they consist of.
  /// The caller's stream has come to `call`; or the exchange's, to the sums of a step with a verdict.
  void arrived_at(CollectiveCall& call) noexcept;
  /// The exchange's stream has done this rank's own work.
  void own_work_done(Round& round) noexcept;
  /// It has copied a result that arrived to where it belongs.
  void unstaged(const StagedResult& result) noexcept;
  void sent(Delivery& delivery, const Status& status) noexcept;

 private:
  /// The rounds of a chunk, of plain operations or of the sums.
  struct Channel {
    Channel(std::uint32_t self, std::span<const Rank> names) : window(self, names) {}
    RoundWindow window;
    std::deque<StagedResult> staged;       // of other ranks, by sequence, rank and cargo; of device memory
    std::array<Round*, 2> rounds{};        // begun, by sequence
    std::array<std::uint64_t, 2> begun{};  // their sequences
    std::uint64_t gathered = 0;            // rounds that were dealt with
    std::uint64_t over = 0;                // likewise
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
  bool hear_abort(Peer from, std::span<const std::byte> head);
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
  std::uint64_t agreed_ = 0;  // the last of the sums' calls whose turn came among the verdicts
};

}  // namespace troupe::collectives
