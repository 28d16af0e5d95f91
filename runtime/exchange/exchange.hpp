#pragma once

// The room exchange: how ranks come to the same parameters: who moves bytes (communicator.hpp), when (policies/),
// packed how (filters/), and what of a bucket belongs to whom (stripes.hpp, chunks.hpp). Communicators live in
// transports/; this room knows streams and points, but no network, no process and no file.

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

/// How far a group's exchange has come, for the one that goes on in its place.
struct ExchangeProgress {
  std::unique_ptr<PolicySequence> policy;  // with the switches that were ordered and not begun
  std::uint64_t updates = 0;               // that the rule has made
};

/// The communication of one parameter group, under one view and one policy: a Communicator (bytes), a Policy (when) and
/// a Rule (arithmetic). Per step: begin, acquire and contribute for each bucket, commit; all on the same stream, which
/// only enqueues.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// A step begins. `sums`: where the replica writes what this rank adds; `total` (zero by now): where the sums over
  /// all ranks go that become known with this step, of one step or of several.
  virtual void begin(Stream& stream, const StepFacts& facts, Memory sums, Memory total) = 0;
  /// Whether this step's sums reach the other ranks with it.
  virtual bool has_round() const noexcept = 0;
  /// Whether totals are of all ranks; otherwise they are this rank's own. Of the step that began last.
  virtual bool totals_are_common() const noexcept = 0;
  /// Others than the replica read the weights once a step is committed: an app that owns the loop, or has a model of
  /// its own. Before the first begin().
  virtual void show_between_steps() noexcept {}
  /// Work that is enqueued on `stream` from here on may read the bucket's weights and write its gradients.
  virtual void acquire(Stream& /*stream*/, const Bucket& /*bucket*/) {}
  /// Takes a bucket whose gradients `stream` has finished by now.
  virtual void contribute(Stream& stream, const Bucket& bucket) = 0;
  /// The step's last bucket was contributed.
  virtual void commit(Stream& stream) = 0;
  /// From which points on what was contributed so far is in the weights, where that is not so for whatever is enqueued
  /// on the stream next; points of value 0 mean nothing. Valid until the next call.
  virtual std::span<const Point> pending() const noexcept { return {}; }
  /// Work that is enqueued on `stream` from here on starts after those points.
  virtual void join(Stream& stream) {
    for (const Point& point : pending()) stream.wait(point);
  }
  /// Whether, with what was enqueued so far, all ranks' weights are the group's parameters, and every gradient is in
  /// them: what may be saved.
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
  /// Why switch_at would refuse the policy whatever the step, with what to do; empty: it would not.
  virtual std::string refusal(const PolicySettings&) const { return "this group keeps its policy to the end"; }
  /// From `step` on it is another. Throws Error{invalid} when that step, or the one before it, has begun, or when the
  /// group has no memory for the policy, naming what is missing.
  virtual void switch_at(Step step, const PolicySettings& policy) = 0;
  /// How many updates the rule has made, counted on from the job's beginning.
  virtual std::uint64_t updates() const noexcept = 0;
  /// Ends the tenancy: no contribution is taken any more; what is under way ends with `why`. Gives the stripes back for
  /// the next tenant. Idempotent.
  virtual std::vector<StripeMemory> retire(const Status& why) noexcept = 0;
  /// After retire(), of an exchange that is_consistent(); no step begins any more.
  virtual ExchangeProgress hand_over() { return {}; }
};

/// What a rank says with a step, for all to count (StepSums).
struct StepVotes {
  bool stop = false;    // it asks to end
  bool saving = false;  // it is still writing a checkpoint
  Rank rank{};          // who says it
};

/// All groups of one view: routes each bucket to its group's exchange and counts steps. The device actor's side.
class StepExchange final : public BucketSink {
 public:
  /// How many steps' sums are kept: a total may be read until this many steps later.
  static constexpr std::uint64_t kStepsKept = 8;
  /// Bytes of `sums` for `groups` groups.
  static constexpr std::uint64_t ring_bytes(std::size_t groups) noexcept {
    return kStepsKept * entries(groups) * sizeof(StepSums);
  }
  /// Bytes of `totals`: behind them lies what the rank says with each step.
  static constexpr std::uint64_t total_bytes(std::size_t groups) noexcept {
    return ring_bytes(groups) + kStepsKept * sizeof(StepSums);
  }

  /// `sums` have ring_bytes(); `totals` total_bytes(), which the host reads and writes, and so do devices. exchanges[g]
  /// is group g's, and outlives this object. `buckets` become ready
  /// in every step, over all groups. What total() tells is of group `reporting`. Throws Error{invalid} when memory is
  /// missing.
  StepExchange(ViewId view, AddressSpace& space, Memory sums, Memory totals, std::vector<Exchange*> exchanges,
               std::size_t buckets = 1, GroupId reporting = {});

  ViewId view() const noexcept { return view_; }
  /// Starts the step of `facts` (one more than the last): where the replica writes its sums. Throws Error{invalid} for
  /// another step, or before the last one was committed.
  Memory begin(Stream& stream, const StepFacts& facts, StepVotes votes);
  void acquire(const Bucket& bucket, Stream& stream) noexcept override;
  void ready(const Bucket& bucket, Stream& stream) noexcept override;
  /// The step is enqueued wholly: the point at which it is committed, which may be later than what is enqueued on
  /// `stream` next. A bucket that could not be contributed, or one that never became ready, is an Error here.
  Point commit(Stream& stream);
  /// Work that is enqueued on `stream` from here on starts when the steps so far are committed.
  void join(Stream& stream);
  /// The sums over all ranks that became known with `step`; without samples where none did. To be read once the step is
  /// committed, until kStepsKept steps later.
  StepSums total(Step step) const;

  /// See Exchange; of all groups.
  bool is_consistent() const noexcept;
  bool totals_are_common() const noexcept { return exchanges_[reporting_]->totals_are_common(); }
  const PolicySettings& policy() const noexcept { return exchanges_[reporting_]->policy(); }
  /// By group.
  std::vector<std::uint64_t> updates() const;
  std::vector<PolicyKind> policies() const;
  std::string refusal(const PolicySettings& policy) const;
  void switch_at(Step step, const PolicySettings& policy);
  /// What an evaluation reads: the common weights, or their average where the rule keeps one; and back.
  bool keeps_average() const noexcept;
  void show_evaluated(Stream& stream);
  void hide_evaluated(Stream& stream);
  void show_common(Stream& stream);
  void show_own(Stream& stream);

 private:
  /// Of one step: each group's; of several groups, what the replica wrote stands before them.
  static constexpr std::size_t entries(std::size_t groups) noexcept { return groups == 1 ? 1 : 1 + groups; }
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
  Step step_{};
  bool begun_ = false;     // a first step was begun; the next one follows step_
  bool open_ = false;      // between begin and commit
  std::size_t ready_ = 0;  // buckets of this step so far
  Status failed_;          // of this step, told by commit
  PointJoin committed_;
  std::vector<Point> points_;  // of the step, reused
};

/// Bytes that the digests of a group's tensors take, of as many steps as may be under way.
constexpr std::uint64_t digest_bytes(std::size_t tensors) noexcept {
  return StepExchange::kStepsKept * tensors * sizeof(std::uint64_t);
}

/// What of `stripe` lies in `bucket`; count 0: nothing.
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

/// The counters with which shards begin when a hosted policy begins.
struct HostingStart {
  PolicySettings policy;
  std::uint64_t updates = 0;  // that the rule has made
  std::uint64_t clock = 0;    // contributions of each rank under this policy
  std::uint64_t samples = 0;  // of all ranks, taken
};

/// A group's exchange while a policy hosts its stripes: shards apply what ranks push when it comes. Calls as those of
/// an Exchange, between two open() of which all ranks take the same steps.
class HostedRoute {
 public:
  virtual ~HostedRoute() = default;
  /// The shards take the stripes over, which `stream` is done with by then; the rank's weights become what they hold.
  virtual void open(Stream& stream, const HostingStart& start) = 0;
  /// After a meeting: the shard of this process lets go of its stripe before what `stream` is given next.
  virtual void close(Stream& stream) = 0;
  virtual void begin(const StepFacts& facts, const Rule& rule, Memory sums, Memory total) = 0;
  /// `meets`: the step ends with a meeting of all ranks, after which everything contributed is applied, and nothing
  /// more until this rank goes on: the stripes may be read, or taken over.
  virtual void commit(Stream& stream, bool meets) = 0;
  virtual bool is_consistent() const noexcept = 0;
  virtual bool totals_are_common() const noexcept = 0;
  virtual void show_common(Stream& stream) = 0;
  virtual void show_own(Stream& stream) = 0;
  /// Whether there is memory for policies whose ranks have weights beside what they read (PolicyNeeds::landing).
  virtual bool has_landing() const noexcept = 0;
  /// How many updates the rule will have made by the meeting with which the last step ends.
  virtual std::uint64_t updates() const noexcept = 0;
  /// Any thread; idempotent.
  virtual void retire(const Status& why) noexcept = 0;
};

/// What the ranks of a group work on whose policy exchanges in rounds. "Whole" is of the group's elements.
struct ExchangeMemory {
  Memory gradients;  // whole f32; the replica writes them
  /// `scaled` and `squares` are alike in all of them.
  std::vector<StripeMemory> mine;  // the stripes this rank is tenant of, at least one, with the rule's state
  /// Where ranks have weights of their own: those, which the replica reads, and what all tenants have published, of
  /// which `mine.parameters` is a part. Empty: the replica reads what the tenants publish.
  Memory weights, bf16;  // whole f32, bf16
  Memory common, common_bf16;
  Memory held;                                 // whole f32: gradients kept or on their way, or weights put aside
  Memory held_bf16;                            // whole bf16, where there is `bf16`
  std::array<Memory, kMaxStateSlots> state{};  // whole; `mine.state` are parts of it. Of policies that work locally
  std::vector<StripeMemory> outer;             // `mine` with the outer rule's state and journals of their own; likewise
  Memory residual;                             // whole f32: what a filter took away; empty: nothing is kept
  Memory carry, round_total;                   // StepSums each
  /// Where ranks reach each other's stripes: all of them as their tenants have them but for the journals, in rank
  /// order, and journals for pieces of them (relief_journal_bytes), or none.
  std::vector<StripeMemory> stripes{};
  Memory relief_journal;
};

/// Journals for the pieces that a rank may update of others' stripes: one for each part that a bucket and a stripe have
/// in common.
std::uint64_t relief_journal_bytes(std::span<const Stripe> stripes, std::span<const Bucket> buckets,
                                   std::size_t state_slots) noexcept;

/// How a group exchanges. `communicator`, `side` and `hosted` outlive the exchange.
struct ExchangeParts {
  Communicator* communicator = nullptr;  // null: all policies are hosted ones
  Rule rule;
  std::unique_ptr<PolicySequence> policy;
  std::vector<Bucket> buckets;  // of the group
  ExchangeMemory memory;
  std::optional<RateSchedule> rate{};  // the rule's; nothing: as the rule says
  bool running = false;                // running statistics: a switch gives them without_outer_momentum()
  Stream* side = nullptr;              // of policies that have a round under way behind the next step
  HostedRoute* hosted = nullptr;       // of hosted policies
  std::uint64_t updates = 0;           // that the rule has made before
  bool average_begins = false;         // the average of the parameters starts as what they are at the first step
};

/// What the policy orders, on the device's stream: by the collective route, or by way of the shards while it is a
/// hosted one. Threads: retire may be called by another one than the rest.
std::unique_ptr<Exchange> make_policy_exchange(ExchangeParts parts);

}  // namespace troupe
