#include "actors/exchange/hosted_exchange.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <caf/send.hpp>
#include <optional>
#include <utility>

#include "runtime/exchange/policies/hosted.hpp"

namespace troupe {
namespace {

/// A rule that leaves parameters unchanged and writes their copy in half precision.
RuleStep image_only() noexcept {
  RuleStep step;
  step.kind = RuleKind::sgd;
  return step;
}

/// Every message to the shard and the worker is sent when the device's stream reaches a point. Therefore both get them
/// in the order in which the exchange enqueued its work, and never before the memory that a message names may be read.
/// A worker of another rank may reach the shard first: the shard keeps its JoinHosting until the phase begins here.
class MessageExchange final : public HostedExchange {
 public:
  explicit MessageExchange(HostedExchangeParts parts)
      : parts_(std::move(parts)),
        memory_(parts_.memory),
        starts_(parts_.space),
        pauses_(parts_.space),
        begins_(parts_.space),
        messenger_(parts_.space),
        pause_line_(parts_.space) {
    if (has_landing()) parts_.space.address_of<StepSums>(memory_.one)->samples = 1;
    whole_.stripe = {parts_.mine.stripe.group, Rank{}, 0, memory_.weights.size_bytes / sizeof(float)};
    whole_.parameters = memory_.weights;
    whole_.half = memory_.half;
    whole_.copy_type = parts_.mine.copy_type;
  }

  void open(Stream& stream, const HostingStart& start) override {
    TROUPE_CHECK(is_hosted(start.policy.kind), Code::invalid, "update.policy = \"", name_of(start.policy.kind),
                 "\" exchanges in rounds, no shard hosts stripes for it");
    settings_ = resolved(start.policy, parts_.ranks);
    alpha_ = elastic_alpha(settings_, parts_.ranks);
    TROUPE_CHECK(has_landing() || (!alpha_ && memory_.half.size_bytes == 0), Code::invalid,
                 "what is read needs memory of its own where weights are made of it");
    updates_ = start.updates;
    idle_steps_ = 0;
    steps_ = start.clock;
    ++phase_;
    const std::uint64_t clock = alpha_ ? start.clock / settings_.every_steps : start.clock;
    if (parts_.shard) {
      auto policy =
          make_hosted_policy(settings_, parts_.ranks, parts_.self, HostedProgress{start.updates + idle_pushes_, clock});
      if (parts_.replay) policy = with_replay(std::move(policy), parts_.replay);
      starts_.send_at(stream.mark(), parts_.shard,
                      StartHosting{std::move(policy), alpha_, start.samples, idle_pushes_, phase_});
    }
    begins_.send_at(stream.mark(), parts_.worker, BeginHosting{phase_});
    wait_for_worker(stream);
    adopt(stream);
  }

  void close(Stream& stream) override {
    if (!parts_.shard) return;
    pauses_.send_at(stream.mark(), parts_.shard, PauseHosting{pause_line_.id(), ++times_paused_, {}});
    stream.wait({pause_line_.id(), times_paused_});
  }

  void begin(const StepFacts& facts, const Rule& rule, Memory sums, Memory total) override {
    check_not_retired(facts.step);
    rule_ = rule;
    sums_ = sums;
    total_ = total;
    idle_ = facts.idle;
    taken_ = part_of(facts.samples);
    computed_ = part_of(facts.computed());
    idle_ranks_ = parts_.ranks - std::min<std::uint64_t>(parts_.ranks, facts.computed());
    ++steps_;
  }

  void commit(Stream& stream, bool is_barrier) override {
    if (!totals_are_common()) stream.sum_up(total_, std::array{sums_});
    at_barrier_ = is_barrier;
    if (alpha_) {
      commit_elastic(stream, is_barrier);
    } else {
      updates_ += totals_are_common() ? 1 : parts_.ranks - idle_ranks_;
      if (!totals_are_common()) idle_pushes_ += idle_ranks_;
      send_contribution(
          stream, {sums_, totals_are_common() ? total_ : Memory{}, memory_.gradients, is_barrier, taken_, computed_});
      adopt(stream);
    }
    if (is_barrier) copy_other_stripes(stream);
  }

  bool is_consistent() const noexcept override { return at_barrier_; }
  bool totals_are_common() const noexcept override { return sums_clocks(settings_); }

  /// Under elastic averaging: shows the center as it was read last.
  void show_common(Stream& stream) override {
    if (!alpha_) return;
    stream.copy(memory_.held, memory_.weights);
    if (memory_.half.size_bytes > 0) stream.copy(memory_.held_half, memory_.half);
    adopt(stream);
  }
  void show_own(Stream& stream) override {
    if (!alpha_) return;
    stream.copy(memory_.weights, memory_.held);
    if (memory_.half.size_bytes > 0) stream.copy(memory_.half, memory_.held_half);
  }

  bool has_landing() const noexcept override { return memory_.landing != memory_.weights; }

  std::uint64_t updates() const noexcept override { return updates_; }

  void retire(const Status& why) noexcept override {
    if (retired_.exchange(true, std::memory_order_acq_rel)) return;
    parts_.space.timeline(parts_.line).poison(why);
    pause_line_.line().poison(why);
    if (parts_.shard) caf::anon_send(parts_.shard, EndHosting{why});
  }

 private:
  void check_not_retired(Step step) const {
    TROUPE_CHECK(!retired_.load(std::memory_order_acquire), Code::aborted, "step ", step.value,
                 ": the exchange of group ", whole_.stripe.group.value, " was retired");
  }

  /// This rank's part of a step's samples, as equal ranks divide them (SampleLedger). The parts of all ranks add up to
  /// `samples`.
  std::uint64_t part_of(std::uint64_t samples) const noexcept {
    const std::uint64_t self = parts_.self.value;
    return samples * (self + 1) / parts_.ranks - samples * self / parts_.ranks;
  }

  void wait_for_worker(Stream& stream) { stream.wait({parts_.line, ++read_}); }

  void send_contribution(Stream& stream, Contribution contribution) {
    messenger_.send_at(stream.mark(), parts_.worker, ContributionReady{rounds_++, contribution, {}});
    wait_for_worker(stream);
  }

  /// Copies the parameters that were read to the weights.
  void adopt(Stream& stream) {
    if (!has_landing()) return;
    stream.copy(memory_.weights, memory_.landing);
    if (memory_.half.size_bytes > 0) stream.update(image_only(), 1, whole_, std::array{memory_.landing}, memory_.one);
  }

  void commit_elastic(Stream& stream, bool is_barrier) {
    StripeMemory own = whole_;
    own.state = memory_.state;
    own.no_decay = memory_.no_decay;
    ++updates_;
    if (idle_) ++idle_steps_;
    const std::uint64_t made = std::max<std::uint64_t>(updates_ - idle_steps_, 1);  // by this rank's own state
    stream.update(rule_step(rule_, made), updates_, own, std::array{memory_.gradients}, sums_);
    if (steps_ % settings_.every_steps == 0) {
      send_contribution(stream, {sums_, {}, memory_.weights, false});
      stream.update(elastic_pull(*alpha_), 1, whole_, std::array{memory_.landing}, memory_.one);
    }
    if (is_barrier) send_contribution(stream, {{}, {}, {}, true});
  }

  /// Brings the stripes of other shards, read at the barrier, to `common`; this process's shard has written its own
  /// stripe there.
  void copy_other_stripes(Stream& stream) {
    const Memory& to = memory_.common;
    if (to.size_bytes == 0) return;
    const std::uint64_t first = parts_.mine.stripe.first * sizeof(float);
    const std::uint64_t end = first + parts_.mine.stripe.count * sizeof(float);
    if (first > 0) stream.copy(slice(to, 0, first), slice(memory_.landing, 0, first));
    if (end < to.size_bytes) {
      stream.copy(slice(to, end, to.size_bytes - end), slice(memory_.landing, end, to.size_bytes - end));
    }
    if (memory_.common_half.size_bytes == 0) return;
    StripeMemory all = whole_;
    all.parameters = to;
    all.half = memory_.common_half;
    stream.update(image_only(), 1, all, std::array{memory_.landing}, memory_.one);
  }

  const HostedExchangeParts parts_;
  const HostedMemory memory_;
  PointMessenger<StartHosting, StepExchange::kStepsKept> starts_;
  PointMessenger<PauseHosting, StepExchange::kStepsKept> pauses_;
  PointMessenger<BeginHosting, StepExchange::kStepsKept> begins_;
  PointMessenger<ContributionReady, 2 * StepExchange::kStepsKept> messenger_;  // may push, then await a barrier
  const PrivateTimeline pause_line_;                                           // the shard signals it when it pauses
  std::uint64_t times_paused_ = 0;
  PolicySettings settings_;
  Rule rule_;
  std::optional<double> alpha_;    // under elastic averaging, in which each rank has its own weights
  StripeMemory whole_;             // all weights of this rank
  std::uint64_t updates_ = 0;      // that the rule counts
  std::uint64_t idle_pushes_ = 0;  // pushes without samples: versions of the shards that the rule does not count
  bool idle_ = false;              // this rank has no samples in this step
  std::uint64_t idle_ranks_ = 0;   // how many ranks have none, as equal ranks divide them
  std::uint64_t idle_steps_ = 0;   // under elastic averaging: those that left this rank's own state as it was
  std::uint64_t phase_ = 0;        // how many times it was opened
  std::uint64_t steps_ = 0;        // under the present policy
  std::uint64_t rounds_ = 0;       // that were sent to the worker
  std::uint64_t read_ = 0;         // the value of the worker's line for which the stream waits
  bool at_barrier_ = false;
  Memory sums_, total_;
  std::uint64_t taken_ = 0, computed_ = 0;  // PushRequest's of this step
  std::atomic<bool> retired_{false};
};

}  // namespace

std::unique_ptr<HostedExchange> hosted_exchange(HostedExchangeParts parts) {
  return std::make_unique<MessageExchange>(std::move(parts));
}

}  // namespace troupe
