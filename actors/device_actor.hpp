#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "actors/messages.hpp"
#include "actors/point_messenger.hpp"
#include "actors/step_coordinator.hpp"
#include "runtime/compute/device.hpp"
#include "runtime/data/schedule.hpp"
#include "runtime/exchange/exchange.hpp"

namespace troupe {

/// Enqueues whole steps on the device's stream, as far ahead of it as its credits allow; no mailbox and no host wait
/// lies between a gradient and its update. Ends with the code of the first step that fails.
using DeviceActor = ActorOf<Takes<BatchLease>, Takes<StepReached>, Takes<EvaluationReached>, Takes<SnapshotReached>,
                            Takes<SnapshotFree>, Takes<Begin>, Takes<StopRequest>, Takes<HoldSteps>, Takes<StepOrder>,
                            Takes<EvaluationVerdict>, Takes<OrderOverdue>>;
using CommitReceiver = ActorOf<Takes<Committed>>;
using EvaluationReceiver = ActorOf<Takes<Evaluated>>;
using FinishReceiver = ActorOf<Takes<DeviceFinished>>;
using SnapshotReceiver = ActorOf<Takes<SnapshotTaken>>;
using RankSumsReceiver = ActorOf<Takes<RankSums>>;
using RankDigestReceiver = ActorOf<Takes<RankDigest>>;

/// How many steps may be enqueued and not yet committed.
inline constexpr std::uint64_t kStepsAhead = 3;
static_assert(kStepsAhead < StepExchange::kStepsKept);

/// Evaluations' sums, as many as may be under way when every step ends an epoch.
inline constexpr std::uint64_t kEvaluationsKept = kStepsAhead + 1;

/// The job's last step when a rank's wish to end was counted in step `counted`: every rank sees it with the same step,
/// and none can have enqueued that one before, so that all of them enqueue it as the last: it ends blocks and rounds.
/// Nothing: nobody wishes it, or the plan ends before.
std::optional<Step> end_after(const Schedule& schedule, Step counted, const StepSums& total) noexcept;

/// A part of this rank's state, and where a checkpoint's copy of it lies; equal sizes.
struct SnapshotPart {
  Memory from;
  Memory to;
};

/// When checkpoints are made, and of what. There is memory for one copy: as long as it is being written, saves that are
/// due are left out, at all ranks alike; the one after the last step is made in any case.
struct SavePlan {
  std::uint64_t every_steps = 0;  // 0: never but at the end
  bool evaluated = false;         // also after steps that are evaluated
  std::uint32_t first_number = 1;
  std::vector<SnapshotPart> parts;
};

/// When the ranks' weights are compared, and where they lie.
struct DigestPlan {
  std::uint64_t every_steps = 0;  // after the first consistent step from each multiple on
  std::vector<Memory> tensors;    // of the weights that the replica reads
  Memory results;                 // digest_bytes()
};

/// A policy that is to begin with step `at`, and why.
struct OrderedSwitch {
  Step at;
  std::string reason;
};

/// What the device actor of a view that is retired leaves to the next one's.
struct DeviceProgress {
  std::optional<PolicySettings> policy{};  // of the last step; nothing: there was none
  std::vector<OrderedSwitch> switches{};   // to come
  std::uint32_t next_number = 1;           // of checkpoints
};

/// What a device actor works with; all outlive it.
struct DeviceParts {
  Stream& stream;
  Replica& replica;
  StepExchange& exchange;
  AddressSpace& space;
  PointMessenger<StepReached, kStepsAhead + 1>& steps;
  PointMessenger<EvaluationReached, kEvaluationsKept + 1>& evaluations;
  Memory evaluation_sums;  // kEvaluationsKept StepSums
  Schedule schedule;
  PointMessenger<SnapshotReached, 1>& snapshots;
  std::optional<SavePlan> saves;  // absent: no checkpoints
  Rank self{};
  /// What becomes of the run after a step with these sums, the same at every rank; absent: it continues.
  std::function<Status(Step, const StepSums&)> verdict{};
  /// Told when a step begins under another policy than the one before it, and why; absent: nobody is. Without a reason
  /// the policy's turn had come.
  std::function<void(Step, const PolicySettings&, const std::string& reason)> switched{};
  /// Told the last step when the run is to end before the plan does by somebody's word, not by the sums of a step;
  /// absent: nobody is.
  std::function<void(Step last)> ends_early{};
  /// Whether every step's sums are of all ranks, so that a wish to end is counted by all alike. Otherwise some steps'
  /// are the rank's own: a wish goes to the coordinator, and the sums to who gathers them.
  bool sums_are_common = true;
  std::chrono::milliseconds order_within{60000};  // after steps were held
  std::optional<DigestPlan> digests{};            // absent: nobody compares
  /// Whether after an evaluation no step begins before its EvaluationVerdict, so that one which ends the run does so
  /// at the same step in every run of the same numbers.
  bool awaits_verdicts = false;
  /// Why this rank cannot continue in another view when steps are held for that; empty: it can. Absent: it never can.
  std::function<std::string()> rebuild_refusal{};
  DeviceProgress from{};                          // of the view before
  std::function<void(DeviceProgress)> retired{};  // told before the audience that the view ends here
  TraceRow* trace = nullptr;                      // null: nothing is noted
  Programs* programs =
      nullptr;  // of steps, which the stream replays from; null: every step is enqueued, none is replayed
};

/// Who is told, in this order, and never answers.
struct DeviceAudience {
  std::vector<CommitReceiver> committed;
  EvaluationReceiver evaluated;
  std::vector<FinishReceiver> finished;
  SnapshotReceiver snapshots;         // none without DeviceParts::saves
  StepCoordinatorPeer coordinator{};  // who may hold steps; none: nobody
  RankSumsReceiver sums{};            // where they are the rank's own
  RankDigestReceiver digests{};       // none without DeviceParts::digests
};

DeviceActor spawn_device(caf::actor_system& system, const DeviceParts& parts, DeviceAudience audience);

}  // namespace troupe
