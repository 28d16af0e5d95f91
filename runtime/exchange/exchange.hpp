#pragma once

// The room exchange: how ranks agree on parameters: who moves data (communicator.hpp), when (policies/), in what packed
// form (compression/), and which rank owns which part of a bucket (stripes.hpp, chunks.hpp). Communicators are
// implemented in transports/, and the hosted exchange in actors/exchange; this room knows streams and points, but no
// network, process or file. It compresses nothing itself: transports/collectives packs a bucket just before it sends it
// (CallSubmitter::enqueue_next in detail/call_submitter.cpp).

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/compute/device.hpp"
#include "runtime/compute/point_join.hpp"
#include "runtime/compute/rules/rate_schedule.hpp"
#include "runtime/exchange/communicator.hpp"
#include "runtime/exchange/policies/policy.hpp"

namespace troupe {

/// The progress of a group's exchange, for the exchange that continues in its place.
struct ExchangeProgress {
  std::unique_ptr<PolicySequence> policy;  // with the switches that were ordered and have not begun
  std::uint64_t updates = 0;               // number of updates by the rule
  std::uint64_t idle_updates = 0;          // ExchangeParts::idle_updates
};

/// The communication of one parameter group, in one view: a Communicator (how data moves), a Policy (when) and a Rule
/// (arithmetic). In each step: begin, acquire and contribute for each bucket, commit; all on the same stream, and all
/// only enqueue.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// A step begins. `sums`: where the replica writes this rank's sums; `total` (zero at this time): where to put the
  /// sums over all ranks that become known with this step. They may be those of several steps.
  virtual void begin(Stream& stream, const StepFacts& facts, Memory sums, Memory total) = 0;
  /// Whether this step's sums are sent to the other ranks in this step.
  virtual bool has_round() const noexcept = 0;
  /// Whether totals are over all ranks; otherwise they are this rank's own sums. Refers to the step that began last.
  virtual bool totals_are_common() const noexcept = 0;
  /// Call this if not only the replica reads the weights after a step is committed: if an app runs the loop, or has a
  /// model of its own. Before the first begin().
  virtual void show_between_steps() noexcept {}
  /// From here on, work enqueued on `stream` may read the bucket's weights and write its gradients.
  virtual void acquire(Stream& /*stream*/, const Bucket& /*bucket*/) {}
  /// Takes a bucket whose gradients are complete at this position of `stream`.
  virtual void contribute(Stream& stream, const Bucket& bucket) = 0;
  /// All buckets of the step were contributed.
  virtual void commit(Stream& stream) = 0;
  /// By bucket, the point from which on the weights include the contributions so far; value 0: they do for all work
  /// enqueued on the stream from now on. Valid until the next call.
  virtual std::span<const Point> pending() const noexcept { return {}; }
  /// From here on, work enqueued on `stream` starts after those points.
  virtual void join(Stream& stream) {
    for (const Point& point : pending()) stream.wait(point);
  }
  /// Whether, after the work enqueued so far, all ranks' weights are the group's parameters and include every gradient,
  /// so that they may be saved.
  virtual bool is_consistent() const noexcept = 0;
  /// Swaps the agreed parameters of the group into the replica; show_own swaps this rank's own back.
  virtual void show_common(Stream& stream) = 0;
  virtual void show_own(Stream& stream) = 0;
  /// Parameters and their moving average change places, at all ranks, if the rule keeps one: between the two calls, all
  /// of which every rank makes after the same step, the replica reads the average. Nothing else may be read or begun
  /// there. Work that is enqueued on `stream` from here on sees it.
  virtual bool keeps_average() const noexcept { return false; }
  virtual void show_average(Stream&) {}
  virtual void hide_average(Stream&) {}
  /// The policy of the step that began last.
  virtual const PolicySettings& policy() const noexcept = 0;
  virtual PolicyProgress policy_progress() const noexcept { return {policy().kind, {}}; }
  /// Why switch_at would refuse the policy at any step, and what to do; empty: it would not.
  virtual std::string refusal(const PolicySettings&) const { return "this group keeps its policy to the end"; }
  /// From `step` on the group has another policy. Throws Error{invalid} if that step or the one before it has begun, or
  /// if the group has no memory for the policy; the text names what is missing.
  virtual void switch_at(Step step, const PolicySettings& policy) = 0;
  /// Number of updates by the rule, counted from the beginning of the job.
  virtual std::uint64_t updates() const noexcept = 0;
  /// Ends the exchange: it takes no more contributions, and waits in progress end with `why`. Returns the stripes for
  /// the next exchange. Idempotent.
  virtual std::vector<StripeMemory> retire(const Status& why) noexcept = 0;
  /// Call after retire(), if is_consistent(); no step may begin afterwards.
  virtual ExchangeProgress hand_over() { return {}; }
};

/// What a rank reports with a step; all ranks' reports are counted (StepSums).
struct StepVotes {
  bool stop = false;    // it asks to end the run
  bool saving = false;  // it is still writing a checkpoint
  Rank rank{};          // the rank that reports
};

/// All groups of one view: passes each bucket to its group's exchange and counts steps. Used by the device actor.
class StepExchange final : public BucketSink {
 public:
  /// How many steps' sums are kept: a step's total may be read until this many steps later.
  static constexpr std::uint64_t kStepsKept = 8;
  /// Bytes of `sums` for `groups` groups.
  static constexpr std::uint64_t ring_bytes(std::size_t groups) noexcept {
    return kStepsKept * entries(groups) * sizeof(StepSums);
  }
  /// Bytes of `totals`: after the ring come the rank's reports with each step, and its loss scales.
  static constexpr std::uint64_t total_bytes(std::size_t groups) noexcept {
    return scales_at(groups) + (kStepsKept + 1) * sizeof(LossScaleState);
  }

  /// `sums` have ring_bytes(); `totals` have total_bytes(), in memory that both the host and devices read and
  /// write. exchanges[g] is group g's, and outlives this object. `buckets`: how many buckets, over all groups,
  /// become ready in every step. total() reports about group `reporting`. `loss_scale`:
  /// the rank's LossScaleState; empty: the loss is not scaled. Throws Error{invalid} if memory is
  /// missing.
  StepExchange(ViewId view, AddressSpace& space, Memory sums, Memory totals, std::vector<Exchange*> exchanges,
               std::size_t buckets = 1, GroupId reporting = {}, Memory loss_scale = {});

  ViewId view() const noexcept { return view_; }
  /// Starts the step of `facts` (one more than the last), and returns where the replica writes its sums. Throws
  /// Error{invalid} for another step, or if the last one was not committed.
  Memory begin(Stream& stream, const StepFacts& facts, StepVotes votes);
  void acquire(const Bucket& bucket, Stream& stream) noexcept override;
  void ready(const Bucket& bucket, Stream& stream) noexcept override;
  /// The whole step is enqueued. Returns the point at which it is committed, which may be later than the work enqueued
  /// on `stream` next. Throws Error if a bucket could not be contributed or never became ready.
  Point commit(Stream& stream);
  /// From here on, work enqueued on `stream` starts when the steps so far are committed.
  void join(Stream& stream);
  /// The sums over all ranks that became known with `step`; without samples if none did. Read them after the step is
  /// committed and until kStepsKept steps later.
  StepSums total(Step step) const;
  /// The loss scale with which this rank has computed the step; likewise. Of a rank that scales no loss: 1.
  LossScaleState loss_scale(Step step) const;
  /// Copies the loss scale at this position of `stream`, after join(); the other call reads it once the stream has
  /// passed, until the next copy. Nothing: the loss is not scaled.
  void copy_loss_scale(Stream& stream);
  std::optional<LossScale> copied_loss_scale() const;

  /// Like Exchange's, for all groups.
  bool is_consistent() const noexcept;
  bool totals_are_common() const noexcept { return exchanges_[reporting_]->totals_are_common(); }
  const PolicySettings& policy() const noexcept { return exchanges_[reporting_]->policy(); }
  /// For each group.
  std::vector<std::uint64_t> updates() const;
  std::vector<PolicyProgress> policies() const;
  std::string refusal(const PolicySettings& policy) const;
  void switch_at(Step step, const PolicySettings& policy);
  /// What an evaluation reads: the common weights, or their average where the rule keeps one; and back.
  bool keeps_average() const noexcept;
  void show_evaluated(Stream& stream);
  void hide_evaluated(Stream& stream);
  void show_common(Stream& stream);
  void show_own(Stream& stream);

 private:
  /// Entries per step: one per group; if there are several groups, the replica's own sums come before them.
  static constexpr std::size_t entries(std::size_t groups) noexcept { return groups == 1 ? 1 : 1 + groups; }
  static constexpr std::uint64_t scales_at(std::size_t groups) noexcept {
    return ring_bytes(groups) + kStepsKept * sizeof(StepSums);
  }
  Memory scale_place(std::uint64_t index) const noexcept;
  Memory entry(const Memory& ring, Step step, std::size_t index) const noexcept;
  Memory of_group(const Memory& ring, Step step, std::size_t group) const noexcept;
  Memory said(Step step) const noexcept;
  void share_sums(Stream& stream);
  template <class What>
  void guarded(const Bucket& bucket, What&& what) noexcept;

  ViewId view_;
  AddressSpace& space_;
  Memory sums_;
  Memory totals_;
  std::vector<Exchange*> exchanges_;
  std::size_t buckets_;
  std::size_t reporting_;
  Memory loss_scale_;
  Step step_{};
  bool begun_ = false;     // a step has begun; the next one must follow step_
  bool open_ = false;      // between begin and commit
  std::size_t ready_ = 0;  // buckets of this step that became ready so far
  Status failed_;          // error of this step, reported by commit
  PointJoin committed_;
  std::vector<Point> points_;  // of this step; reused
};

/// Bytes of the digests of a group's tensors, for as many steps as can be in progress.
constexpr std::uint64_t digest_bytes(std::size_t tensors) noexcept {
  return StepExchange::kStepsKept * tensors * sizeof(std::uint64_t);
}

/// The part of `stripe` that lies in `bucket`; count 0: none.
Stripe common_part(const Stripe& stripe, const Bucket& bucket) noexcept;

/// The memory of `range`, a part of `stripe`, with the first `slots` of its states and without a journal.
StripeMemory slice_of(const StripeMemory& stripe, const Stripe& range, std::size_t slots);

/// Likewise of what is common with a bucket. Every bucket's pass has a journal of its own: bucket b's is the b-th of
/// journal_bytes(`journal_slots`) each in the stripe's journal; no rule that is used on the stripe keeps more states.
/// Throws Error{invalid} when a journal is there but too small for the bucket.
StripeMemory common_part(const StripeMemory& stripe, const Bucket& bucket, std::size_t slots,
                         std::size_t journal_slots);
inline StripeMemory common_part(const StripeMemory& stripe, const Bucket& bucket, RuleKind rule) {
  return common_part(stripe, bucket, state_slots(rule), state_slots(rule));
}

/// The same of the one of a rank's `stripes` that has something in common with the bucket, or of the first.
StripeMemory common_part(std::span<const StripeMemory> stripes, const Bucket& bucket, std::size_t slots,
                         std::size_t journal_slots);

/// Starting counters for shards when a hosted policy begins.
struct HostingStart {
  PolicySettings policy;
  std::uint64_t updates = 0;  // number of updates by the rule
  std::uint64_t clock = 0;    // contributions of each rank under this policy
  std::uint64_t samples = 0;  // taken by all ranks
};

/// A group's exchange while a policy hosts its stripes: shards apply the ranks' contributions when they arrive. The
/// calls are those of an Exchange. From one open() to the next all ranks take the same steps.
class HostedExchange {
 public:
  virtual ~HostedExchange() = default;
  /// The shards take over the stripes once `stream` has passed; the rank's weights become the shards' parameters.
  virtual void open(Stream& stream, const HostingStart& start) = 0;
  /// After a barrier: this process's shard stops using its stripe before the work that `stream` is given next.
  virtual void close(Stream& stream) = 0;
  virtual void begin(const StepFacts& facts, const Rule& rule, Memory sums, Memory total) = 0;
  /// `is_barrier`: the step ends with a barrier of all ranks. After it every contribution is applied and no further one
  /// is until this rank continues, so the stripes may be read or taken over.
  virtual void commit(Stream& stream, bool is_barrier) = 0;
  virtual bool is_consistent() const noexcept = 0;
  virtual bool totals_are_common() const noexcept = 0;
  virtual void show_common(Stream& stream) = 0;
  virtual void show_own(Stream& stream) = 0;
  /// Whether there is memory for policies whose ranks have weights besides those that they read (PolicyNeeds::landing).
  virtual bool has_landing() const noexcept = 0;
  /// How many updates the rule will have made by the barrier with which the last step ends.
  virtual std::uint64_t updates() const noexcept = 0;
  /// Any thread; idempotent.
  virtual void retire(const Status& why) noexcept = 0;
};

/// The memory of a group whose policy exchanges in rounds. "Whole" means all of the group's elements.
struct ExchangeMemory {
  Memory gradients;  // whole f32, written by the replica
  /// `scaled` and `squares` are the same in all of them.
  std::vector<StripeMemory> mine;  // the stripes that this rank owns, at least one, with the rule's state
  /// If ranks have weights of their own: these weights, which the replica reads, and the parameters that all owners
  /// have published; `mine.parameters` is a part of the latter. Empty: the replica reads what owners publish.
  Memory weights, half;  // whole f32, bf16 or f16
  Memory common, common_half;
  Memory held;                                 // whole f32: gradients that are kept or being sent, or weights put aside
  Memory held_half;                            // whole, if there is `half`
  std::array<Memory, kMaxStateSlots> state{};  // whole; `mine.state` are parts of it. For policies that work locally
  std::vector<StripeMemory> outer;             // `mine` with the outer rule's state and separate journals; likewise
  Memory residual;                             // whole f32: rounding errors of compression; empty: not kept
  Memory carry, round_total;                   // StepSums each
  Memory loss_scale{};                         // this rank's LossScaleState; empty: the loss is not scaled
  /// If ranks can access each other's stripes: all stripes as their owners have them, without journals, in rank order;
  /// and journals for pieces of them (relief_journal_bytes). Empty: they cannot.
  std::vector<StripeMemory> stripes{};
  Memory relief_journal;
};

/// Bytes of journals for the pieces of other ranks' stripes that a rank may update: one journal for each part that a
/// bucket and a stripe have in common.
std::uint64_t relief_journal_bytes(std::span<const Stripe> stripes, std::span<const Bucket> buckets,
                                   std::size_t state_slots) noexcept;

/// How a group exchanges. `communicator`, `side` and `hosted` outlive the exchange.
struct ExchangeParts {
  Communicator* communicator = nullptr;  // null: all policies are hosted
  Rule rule;
  std::unique_ptr<PolicySequence> policy;
  std::vector<Bucket> buckets;  // of the group
  ExchangeMemory memory;
  std::optional<RateSchedule> rate{};  // the rule's; nothing: as the rule says
  LossScaling scaling{};               // with memory.loss_scale, which this exchange then moves
  bool running = false;                // running statistics: a switch gives them without_outer_momentum()
  Stream* side = nullptr;              // of policies that have a round under way behind the next step
  HostedExchange* hosted = nullptr;    // of hosted policies
  std::uint64_t updates = 0;           // that the rule has made before
  /// Those in which this rank, training locally, had no samples, so that its state did not change.
  std::uint64_t idle_updates = 0;
  bool average_begins = false;  // the average of the parameters starts as what they are at the first step
};

/// Executes the policy's orders on the device's stream: through the communicator, or through the shards while the
/// policy is hosted. Threads: retire may be called by another thread than the rest.
std::unique_ptr<Exchange> make_policy_exchange(ExchangeParts parts);

}  // namespace troupe
