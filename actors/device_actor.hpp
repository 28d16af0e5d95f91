#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "actors/messages.hpp"
#include "actors/point_messenger.hpp"
#include "actors/step_coordinator.hpp"
#include "runtime/base/io_threads.hpp"
#include "runtime/compute/device.hpp"
#include "runtime/compute/recorded_stream.hpp"
#include "runtime/data/schedule.hpp"
#include "runtime/exchange/exchange.hpp"

namespace troupe {

/// Enqueues whole steps on the device's stream, as far ahead as its credits allow. There is no mailbox and no host wait
/// between a gradient and its update. Ends with the error of the first step that fails.
using DeviceActor = ActorOf<Takes<BatchLease>, Takes<StepReached>, Takes<EvaluationReached>, Takes<SnapshotReached>,
                            Takes<SnapshotFree>, Takes<Begin>, Takes<StopRequest>, Takes<HoldSteps>, Takes<StepOrder>,
                            Takes<EvaluationVerdict>, Takes<OrderOverdue>, Takes<TextGenerated>>;
using CommitReceiver = ActorOf<Takes<Committed>>;
using EvaluationReceiver = ActorOf<Takes<Evaluated>>;
using FinishReceiver = ActorOf<Takes<DeviceFinished>>;
using SnapshotReceiver = ActorOf<Takes<SnapshotTaken>>;
using RankSumsReceiver = ActorOf<Takes<RankSums>>;
using RankDigestReceiver = ActorOf<Takes<RankDigest>>;
using TextReceiver = ActorOf<Takes<TextGenerated>>;

/// How many steps may be enqueued that are not committed yet.
inline constexpr std::uint64_t kStepsAhead = 3;
static_assert(kStepsAhead < StepExchange::kStepsKept);

/// Number of slots for evaluations' sums, enough if every step ends an epoch.
inline constexpr std::uint64_t kEvaluationsKept = kStepsAhead + 1;

/// The job's last step if step `counted` has votes for the end. Every rank sees the votes in the same step, and no rank
/// can have enqueued the returned step by then, so all ranks enqueue it as the last one, which ends blocks and rounds.
/// Nothing: there is no vote, or the plan ends before.
std::optional<Step> end_after(const Schedule& schedule, Step counted, const StepSums& total) noexcept;

/// A part of this rank's state, and the memory for a checkpoint's copy of it; both have the same size.
struct SnapshotPart {
  Memory from;
  Memory to;
};

/// When checkpoints are made, and their contents. There is memory for one copy: while it is being written, saves that
/// are due are left out, at all ranks alike. The save after the last step is always made.
struct SavePlan {
  std::uint64_t every_steps = 0;  // 0: only at the end
  bool evaluated = false;         // also after steps that are evaluated
  std::uint32_t first_number = 1;
  std::vector<SnapshotPart> parts;
};

/// When the ranks' weights are compared, and their memory.
struct DigestPlan {
  std::uint64_t every_steps = 0;  // after the first consistent step at or after each multiple of this
  std::vector<Memory> tensors;    // the weights that the replica reads
  Memory results;                 // digest_bytes()
};

/// How a text is generated after each evaluation, with the weights that it evaluated. There is memory for one copy of
/// them: until a text is generated, no other evaluation ends.
struct TextPlan {
  Memory from;                                // the replica's weights
  Memory copy;                                // in host memory
  IoThreads& work;                            // one thread, on which texts are generated
  std::function<std::string(Step)> generate;  // from the copy
};

/// A policy that begins with step `at`, and why.
struct OrderedSwitch {
  Step at;
  std::string reason;
};

/// What the device actor of a retired view leaves to the next view's.
struct DeviceProgress {
  std::optional<PolicySettings> policy{};  // of the last step; nothing: there was none
  std::vector<OrderedSwitch> switches{};   // those that have not begun
  std::uint32_t next_number = 1;           // of the next checkpoint
};

/// What a device actor needs; all of it outlives the actor.
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
  /// Decides from a step's sums whether the run continues, the same at every rank; absent: it always continues.
  std::function<Status(Step, const StepSums&)> verdict{};
  /// Called when a step begins with a different policy than the step before, with the reason; absent: no call. Without
  /// a reason the policy follows by the plan.
  std::function<void(Step, const PolicySettings&, const std::string& reason)> switched{};
  /// Called with the last step if the run ends before the plan because of an order, not because of the votes in a
  /// step's sums; absent: no call.
  std::function<void(Step last)> ends_early{};
  /// Whether every step's sums are of all ranks, so that all ranks count votes for the end alike. Otherwise the sums of
  /// some steps are the rank's own: a request to end is sent to the coordinator, and the sums to the gatherer.
  bool sums_are_common = true;
  std::chrono::milliseconds order_within{60000};  // for an order after steps were held
  std::optional<DigestPlan> digests{};            // absent: weights are not compared
  std::optional<TextPlan> texts{};                // absent: no texts are generated
  /// Whether no step begins after an evaluation before its EvaluationVerdict. A verdict that ends the run then does so
  /// at the same step in every run with the same numbers.
  bool awaits_verdicts = false;
  /// Why this rank cannot continue in another view when steps are held for one; empty: it can. Absent: it never can.
  std::function<std::string()> rebuild_refusal{};
  DeviceProgress from{};                          // of the previous view
  std::function<void(DeviceProgress)> retired{};  // called before the receivers are told that the view ends
  TraceRow* trace = nullptr;                      // null: nothing is traced
  /// The streams on which this thread enqueues the work of a step, `stream` first; their work of a step is recorded,
  /// and replayed when it comes again. Empty: no step is replayed.
  std::vector<RecordedStream> recorded{};
};

/// The receivers of a device's messages, in this order; they never answer.
struct DeviceReceivers {
  std::vector<CommitReceiver> committed;
  EvaluationReceiver evaluated;
  std::vector<FinishReceiver> finished;
  SnapshotReceiver snapshots;         // empty without DeviceParts::saves
  StepCoordinatorPeer coordinator{};  // it may hold steps; empty: none does
  RankSumsReceiver sums{};            // if the sums are the rank's own
  RankDigestReceiver digests{};       // empty without DeviceParts::digests
  TextReceiver texts{};               // empty without DeviceParts::texts
};

DeviceActor spawn_device(caf::actor_system& system, const DeviceParts& parts, DeviceReceivers receivers);

}  // namespace troupe
