#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "actors/caf_compatibility.hpp"
#include "actors/number_bits.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/checkpoint/store.hpp"
#include "runtime/compute/stream.hpp"
#include "runtime/data/load_balancer.hpp"
#include "runtime/exchange/policies/policy.hpp"
#include "runtime/exchange/replica_digests.hpp"
#include "runtime/memory/lease.hpp"
#include "runtime/report/line_values.hpp"

// All messages of a training job. Those in the first part never leave their process (leases, status texts); those in
// the second part are sent between processes, are registered by name, and contain only numbers and strings.
namespace troupe {

/// Loader to Device: a filled slot. A training batch has its step; an evaluation batch has the step that it follows.
struct BatchLease {
  Lease lease;
  Step step;
  bool evaluation = false;
  bool last = false;             // evaluation: the last batch of this pass
  std::uint32_t rows = 0;        // filled rows, from the slot's first one on
  std::vector<Rank> relieved{};  // ranks without a part in the step's update (relieved_ranks.hpp)
};

/// The pool to Loader: a slot is free again.
struct SlotFree {};

/// A source to the loader: one of the batches that it was asked for is filled.
struct BatchFilled {};

/// Stream to Device: the step's point was reached, or its line poisoned.
struct StepReached {
  Step step;
  Status status;
};

/// Stream to Device: the evaluation that followed `step` is done.
struct EvaluationReached {
  Step step;
  Status status;
};

/// Device to Reporter, Checkpointer, Balancer and Membership: the step is committed. Contains its sums over all ranks.
struct Committed {
  ViewId view;
  Step step;
  StepSums total;
};

/// Device to Evaluator: this rank's sums over its part of the test set.
struct Evaluated {
  Step step;
  StepSums sums;
};

/// Rank 0's Evaluator to Reporter: the sums of all ranks.
struct TestResult {
  Step step;
  StepSums sums;
};

/// The thread that generates texts to Device and Reporter: the text after the evaluation of `step`, or the error.
struct TextGenerated {
  Step step;
  std::string text;
  Status status;
};

/// To Device: end after the steps in progress, at every rank.
struct StopRequest {};

/// Stream to Device: this rank's part of a checkpoint has been copied. Training continues.
struct SnapshotReached {
  Step step;
  std::uint32_t number = 0;            // of the checkpoint
  std::vector<std::uint64_t> updates;  // number of updates that each group's rule had made
  Status status;
  std::optional<Step> evaluated{};  // this member and the others as in SnapshotTaken
  std::vector<PolicyProgress> policies{};
  std::optional<LossScale> loss_scale{};
};

/// Device to Checkpointer, after the step's Committed: the copy may be written.
struct SnapshotTaken {
  Step step;
  std::uint32_t number = 0;
  std::vector<std::uint64_t> updates;
  /// The evaluation for which the copy was made, if there is one; its result shows how good this checkpoint is.
  std::optional<Step> evaluated{};
  std::vector<PolicyProgress> policies{};  // after the step, by group
  std::optional<LossScale> loss_scale{};   // behind the step; of jobs that scale the loss
};

/// Checkpointer to Device: the copy was written, or could not be; the next one may be made.
struct SnapshotFree {};

/// The thread for files to Checkpointer: this rank's file is on the disk, or the error.
struct FileWritten {
  CheckpointId id;
  CheckpointFile file;
  Status status;
};

/// The thread for files to rank 0's Checkpointer: a checkpoint is complete, or the error.
struct CheckpointPublished {
  CheckpointId id;
  Status status;
  bool again = false;  // it was published before, now with its accuracy
};

/// Checkpointer to itself: that checkpoint should be complete by now.
struct SaveOverdue {
  CheckpointId id;
};

/// Checkpointer to Membership: all saves have ended, with or without success.
struct CheckpointsDone {
  std::uint64_t saved_steps = 0;  // at rank 0: of the newest checkpoint that this run saved; 0: none
  Status last{};                  // at rank 0: the error of the last save
};

/// Membership to Loader and Device: the view begins.
struct Begin {
  ViewId view;
};

/// Device to Membership: the last step is committed, and everything about it was reported.
struct DeviceFinished {
  bool stopped = false;  // before the plan's last step
  Status verdict{};      // not ok: why all ranks end after the previous step, by agreement
  bool retired = false;  // the view ends here, and the run continues in the next one
};

/// Bootstrap's watch, heartbeats or the transport to Membership: a process has died.
struct PeerLost {
  Peer peer;
  Status why;
};

/// Rank 0's Reporter to Membership: the run's last line was passed on.
struct Reported {};

/// Reporter to itself: the apps should have reported their last values by now.
struct ValuesOverdue {};

/// Membership to itself: an actor of this process ended with this error, and no lost rank has been found meanwhile.
struct LocalFailure {
  Status why;
};

/// Membership to itself: the view should have begun by now.
struct StartOverdue {};

/// Membership to itself: the run should have ended by now.
struct EndOverdue {};

/// The result of a request to a StepCoordinator.
struct StepOutcome {
  Status status;            // if it was refused, why
  std::uint64_t first = 0;  // the first step with the new policy, or the last one of the run or view
};

/// To StepCoordinator, from any thread of rank 0's process: all ranks exchange by this policy from one of the next
/// steps on. `done` is called once, on the actor's thread, unless the run ends before.
struct PolicyRequest {
  PolicySettings policy;
  std::string reason;  // for people
  std::function<void(const StepOutcome&)> done;
};

/// Likewise: all ranks end the view after one of the next steps, and continue in another view from the state in memory.
/// `done` is called with the first step that may be the view's last; ranks continue as long as a round of their policy
/// is unfinished.
struct RebuildRequest {
  std::string reason;  // for people
  std::function<void(const StepOutcome&)> done;
};

/// StepCoordinator to itself: every rank should have reported its next step by now.
struct AnswersOverdue {
  std::uint32_t number = 0;
};

/// Device to itself: rank 0 should have sent an order by now.
struct OrderOverdue {
  std::uint32_t number = 0;
};

// ---- across processes ----------------------------------------------------------------------------------------------

/// Member to coordinator: ready for the first step.
struct JoinView {
  std::uint32_t rank = 0;
};
/// Coordinator to member: the view begins.
struct ViewBegins {
  std::uint32_t view = 0;
};
/// Member to coordinator: all steps of this member are done.
struct MemberFinished {
  std::uint32_t rank = 0;
};
/// Coordinator to member: all members have finished.
struct LeaveView {
  std::uint32_t view = 0;
  std::uint64_t saved_steps = 0;  // of the newest checkpoint that this run saved; 0: none
  Code unsaved_code = Code::ok;   // of the error of the last save
  std::string unsaved;
};
/// Between coordinator and members, in both directions: another member is lost. Members that never exchanged messages
/// do not watch each other, and a member that notices a loss may end before the coordinator does.
struct MemberLost {
  std::uint32_t rank = 0;
  std::string why;
};
/// Evaluator to rank 0's Evaluator: one rank's result for its part of the test set.
struct TestPart {
  std::uint32_t rank = 0;
  std::uint64_t step = 0;
  double loss = 0;
  std::uint64_t correct = 0;
  std::uint64_t samples = 0;
};

/// Balancer to rank 0's: this rank's balancer exists, and wants the ledger's decisions.
struct JoinLedger {
  std::uint32_t rank = 0;
};

/// SlotLender to its node's loader: this slot of the rank's pool may be filled.
struct SlotLent {
  std::uint32_t rank = 0;
  std::uint32_t arena = 0;
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = 0;
};

/// The node's loader to the SlotLender: the slot at that offset has been filled; members as in BatchLease.
struct SlotFilled {
  std::uint64_t offset = 0;
  std::uint64_t step = 0;
  bool evaluation = false;
  bool last = false;
  std::uint32_t rows = 0;
  std::vector<std::uint32_t> relieved{};  // ranks
};

/// Rank 0's Balancer to the others, and each to its rank's Loader: from step `first` on ranks take these numbers of
/// rows, until step `until`; later steps are not decided yet.
struct LedgerUpdate {
  std::uint64_t first = 0;
  std::uint64_t until = 0;
  std::vector<std::uint32_t> rows;
};

/// Checkpointer to rank 0's: one rank's file is written, or the error.
struct PartSaved {
  std::uint32_t rank = 0;
  std::uint32_t number = 0;
  std::uint64_t steps = 0;
  std::string file;   // format_checkpoint_file()
  std::string wrong;  // empty: no error
  Code code = Code::ok;
};

/// The purpose for which steps are held.
enum class StepOrderKind : std::uint8_t {
  go_on,          // nothing was decided
  switch_policy,  // from step `at` on the policy is `policy`
  end,            // step `at` is the run's last
  rebuild,        // the view's last step is `at`, or the first one after it that leaves the same weights at all ranks
};

/// Device to rank 0's StepCoordinator: this rank's device exists, and accepts orders.
struct JoinSteps {
  std::uint32_t rank = 0;
};
/// StepCoordinator to Device: begin no step until order `number` arrives, and report the next step.
struct HoldSteps {
  std::uint32_t number = 0;
  StepOrderKind about = StepOrderKind::go_on;
  PolicySettings policy;  // for switch_policy
};
/// Device to StepCoordinator: this rank begins no step before the order.
struct StepsHeld {
  std::uint32_t rank = 0;
  std::uint32_t number = 0;
  std::uint64_t next = 0;  // step
  std::uint64_t last = 0;  // last step of the run, as far as this rank knows
  std::string refusal;     // why this rank cannot do what steps are held for; empty: it can
};
/// StepCoordinator to Device: continue, with this decision.
struct StepOrder {
  std::uint32_t number = 0;
  StepOrderKind kind = StepOrderKind::go_on;
  std::uint64_t at = 0;   // step
  PolicySettings policy;  // for switch_policy
  std::string reason;     // for switch_policy, for people
};
/// Rank 0's session to StepCoordinator, and StepCoordinator to Device: whether the run ends after the evaluation of
/// `step`.
struct EvaluationVerdict {
  std::uint64_t step = 0;
  bool end = false;
};
/// Device to StepCoordinator, if no sums carry the ranks' votes: this rank wants to end.
struct EndRequest {
  std::uint32_t rank = 0;
};
/// Device to rank 0's SumsGatherer, if the sums of steps are each rank's own: the step is committed.
struct RankSums {
  std::uint32_t rank = 0;
  std::uint64_t step = 0;
  double loss = 0;
  std::uint64_t correct = 0;
  std::uint64_t samples = 0;
};

/// A rank's app to rank 0's Reporter: the values that it reported since the last message, which belong to the steps up
/// to `step`. No more values of these steps follow; `last`: nor of later steps.
struct RankValues {
  std::uint32_t rank = 0;
  std::uint64_t step = 0;
  bool last = false;
  std::vector<ValueSum> values;
};

/// A number that is not a policy is refused before it becomes one.
template <class Inspector>
auto inspect(Inspector& f, PolicySettings& x) {
  std::vector<std::uint64_t> words = to_words(x);
  auto loaded = [&]() -> caf::error {
    return from_words(words, x) ? caf::error{} : caf::error{caf::sec::invalid_argument};
  };
  return f(caf::meta::type_name("troupe.PolicySettings"), words, caf::meta::load_callback(loaded));
}
TROUPE_MESSAGE_FIELDS(JoinView, x.rank)
TROUPE_MESSAGE_FIELDS(ViewBegins, x.view)
TROUPE_MESSAGE_FIELDS(MemberFinished, x.rank)
TROUPE_CHECKED_MESSAGE_FIELDS(LeaveView, x.unsaved_code <= Code::corrupt, x.view, x.saved_steps, x.unsaved_code,
                              x.unsaved)
TROUPE_MESSAGE_FIELDS(MemberLost, x.rank, x.why)
TROUPE_MESSAGE_FIELDS(TestPart, x.rank, x.step, NumberBits{x.loss}, x.correct, x.samples)

TROUPE_MESSAGE_FIELDS(SlotLent, x.rank, x.arena, x.offset, x.size_bytes)
TROUPE_MESSAGE_FIELDS(SlotFilled, x.offset, x.step, x.evaluation, x.last, x.rows, x.relieved)
TROUPE_MESSAGE_FIELDS(JoinLedger, x.rank)
TROUPE_MESSAGE_FIELDS(LedgerUpdate, x.first, x.until, x.rows)
/// Balancer to rank 0's: what its device did in some steps.
TROUPE_MESSAGE_FIELDS(RankTimes, x.rank, x.first, x.samples, x.spent_ns, x.waits_us)

TROUPE_CHECKED_MESSAGE_FIELDS(PartSaved, x.code <= Code::corrupt, x.rank, x.number, x.steps, x.file, x.wrong, x.code)

TROUPE_MESSAGE_FIELDS(JoinSteps, x.rank)
TROUPE_MESSAGE_FIELDS(HoldSteps, x.number, x.about, x.policy)
TROUPE_MESSAGE_FIELDS(StepsHeld, x.rank, x.number, x.next, x.last, x.refusal)
TROUPE_MESSAGE_FIELDS(StepOrder, x.number, x.kind, x.at, x.policy, x.reason)
TROUPE_MESSAGE_FIELDS(EvaluationVerdict, x.step, x.end)
TROUPE_MESSAGE_FIELDS(EndRequest, x.rank)
/// Device to rank 0's DigestActor.
TROUPE_MESSAGE_FIELDS(RankDigest, x.rank, x.step, x.tensors)
TROUPE_MESSAGE_FIELDS(RankSums, x.rank, x.step, NumberBits{x.loss}, x.correct, x.samples)
TROUPE_CHECKED_MESSAGE_FIELDS(ValueSum, is_value_name(x.name), x.name, NumberBits{x.sum}, x.count)
TROUPE_MESSAGE_FIELDS(RankValues, x.rank, x.step, x.last, x.values)

}  // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::PolicyRequest, troupe::RebuildRequest, troupe::AnswersOverdue, troupe::OrderOverdue,
                     troupe::SnapshotReached, troupe::SnapshotTaken, troupe::SnapshotFree, troupe::FileWritten,
                     troupe::CheckpointPublished, troupe::CheckpointsDone, troupe::SaveOverdue, troupe::BatchLease,
                     troupe::SlotFree, troupe::BatchFilled, troupe::StepReached, troupe::EvaluationReached,
                     troupe::Committed, troupe::Evaluated, troupe::TestResult, troupe::TextGenerated,
                     troupe::StopRequest, troupe::Begin, troupe::DeviceFinished, troupe::PeerLost, troupe::Reported,
                     troupe::ValuesOverdue, troupe::LocalFailure, troupe::StartOverdue, troupe::EndOverdue)
