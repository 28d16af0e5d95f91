#include "actors/exchange/hosted_exchange.hpp"

#include <array>
#include <atomic>
#include <caf/send.hpp>
#include <utility>

#include "runtime/policies/easgd.hpp"

namespace troupe {
namespace {

/// Parameters stay as they are; their bf16 image is written.
RuleStep image_only() noexcept {
  RuleStep step;
  step.kind = RuleKind::sgd;
  return step;
}

class HostedExchange final : public Exchange {
 public:
  explicit HostedExchange(HostedExchangeParts parts)
      : parts_(std::move(parts)),
        memory_(parts_.memory),
        messenger_(parts_.space),
        elastic_(parts_.settings.kind == PolicyKind::easgd),
        common_totals_(parts_.settings.kind == PolicyKind::ssp && parts_.settings.staleness == 0),
        updates_(parts_.updates) {
    TROUPE_CHECK(is_hosted(parts_.settings.kind), Code::invalid, "update.policy = \"", name_of(parts_.settings.kind),
                 "\" is of lent stripes, not of hosted ones");
    TROUPE_CHECK(parts_.settings.distributed_after == 0, Code::invalid,
                 "a hosted group exchanges from its first step on: switch to it after that many samples instead");
    const bool own_landing = memory_.landing != memory_.weights;
    TROUPE_CHECK(own_landing || (!elastic_ && memory_.half.size_bytes == 0), Code::invalid,
                 "what is read needs memory of its own where weights are made of it");
    if (elastic_) alpha_ = elastic_alpha(easgd_settings(parts_.settings), parts_.ranks);
    if (own_landing) parts_.space.address_of<StepSums>(memory_.one)->samples = 1;
    whole_.stripe = {parts_.buckets.empty() ? GroupId{} : parts_.buckets[0].group, Rank{}, 0,
                     memory_.weights.size_bytes / sizeof(float)};
    whole_.parameters = memory_.weights;
    whole_.half = memory_.half;
  }

  void begin(Stream& stream, const StepFacts& facts, Memory sums, Memory total) override {
    check_tenancy(facts.step);
    if (!std::exchange(begun_, true)) {
      stream.wait({parts_.line, 1});
      adopt(stream);
    }
    step_ = facts.step;
    sums_ = sums;
    total_ = total;
    ++steps_;
  }

  bool has_round() const noexcept override { return true; }

  void contribute(Stream&, const Bucket& bucket) override {
    check_tenancy(step_);
    TROUPE_CHECK(bucket.count > 0 && (bucket.first + bucket.count) * sizeof(float) <= memory_.gradients.size_bytes,
                 Code::invalid, "bucket ", bucket.index, " covers elements ", bucket.first, " to ",
                 bucket.first + bucket.count, " of group ", bucket.group.value, ", which has ",
                 memory_.gradients.size_bytes / sizeof(float));
  }

  void commit(Stream& stream) override {
    if (!common_totals_) stream.sum_up(total_, std::array{sums_});
    if (elastic_) return commit_elastic(stream);
    ++updates_;
    push_and_wait(stream);
    adopt(stream);
  }

  bool is_consistent() const noexcept override { return common_totals_; }

  /// Of elastic averaging, the center as it was read last; the others have no weights of their own.
  void show_common(Stream& stream) override {
    if (!elastic_) return;
    stream.copy(memory_.held, memory_.weights);
    if (memory_.half.size_bytes > 0) stream.copy(memory_.held_half, memory_.half);
    adopt(stream);
  }
  void show_own(Stream& stream) override {
    if (!elastic_) return;
    stream.copy(memory_.weights, memory_.held);
    if (memory_.half.size_bytes > 0) stream.copy(memory_.half, memory_.held_half);
  }

  const PolicySettings& policy() const noexcept override { return parts_.settings; }
  void switch_at(Step step, const PolicySettings& policy) override {
    fail(Code::invalid, text("group ", whole_.stripe.group.value, " is hosted (", name_of(parts_.settings.kind),
                             ") and cannot become ", name_of(policy.kind), " at step ", step.value,
                             ": retire it and hand its stripes to the next tenant"));
  }

  std::uint64_t updates() const noexcept override { return updates_; }

  std::vector<StripeMemory> retire(const Status& why) noexcept override {
    std::vector<StripeMemory> stripes;
    const bool first = !retired_.exchange(true, std::memory_order_acq_rel);
    if (first) parts_.space.timeline(parts_.line).poison(why);
    for (const auto& [shard, stripe] : parts_.hosted) {
      if (first && shard) caf::anon_send(shard, EndHosting{why});
      stripes.push_back(stripe);
    }
    return stripes;
  }

 private:
  void check_tenancy(Step step) const {
    TROUPE_CHECK(!retired_.load(std::memory_order_acquire), Code::aborted, "step ", step.value,
                 ": the exchange of group ", whole_.stripe.group.value, " was retired");
  }

  void push_and_wait(Stream& stream) {
    messenger_.tell_at(stream.mark(), parts_.worker,
                       ContributionReady{rounds_, sums_, common_totals_ ? total_ : Memory{}, {}});
    ++rounds_;
    stream.wait({parts_.line, rounds_ + 1});
  }

  /// The weights become what was read.
  void adopt(Stream& stream) {
    if (memory_.landing == memory_.weights) return;
    stream.copy(memory_.weights, memory_.landing);
    if (memory_.half.size_bytes > 0) stream.update(image_only(), 1, whole_, std::array{memory_.landing}, memory_.one);
  }

  void commit_elastic(Stream& stream) {
    StripeMemory own = whole_;
    own.state = memory_.state;
    own.no_decay = memory_.no_decay;
    ++updates_;
    stream.update(rule_step(parts_.rule, updates_), updates_, own, std::array{memory_.gradients}, sums_);
    if (steps_ % parts_.settings.every_steps != 0) return;
    push_and_wait(stream);
    stream.update(elastic_pull(alpha_), 1, whole_, std::array{memory_.landing}, memory_.one);
  }

  const HostedExchangeParts parts_;
  const HostedMemory memory_;
  PointMessenger<ContributionReady, StepExchange::kStepsKept> messenger_;
  const bool elastic_;
  const bool common_totals_;
  double alpha_ = 0;
  StripeMemory whole_;  // the rank's weights, all of them
  std::uint64_t updates_;
  std::uint64_t steps_ = 0;
  std::uint64_t rounds_ = 0;
  Step step_{};
  Memory sums_, total_;
  bool begun_ = false;
  std::atomic<bool> retired_{false};
};

}  // namespace

std::unique_ptr<Exchange> hosted_exchange(HostedExchangeParts parts) {
  return std::make_unique<HostedExchange>(std::move(parts));
}

}  // namespace troupe
