#include <cmath>

#include "runtime/exchange/policies/detail/round_policies.hpp"

namespace troupe::policies {
namespace {

/// Every B samples of all ranks, the mean of what the ranks' weights have moved goes through a momentum.
/// Source: Chen, Huo 2016 (Scalable training of deep learning machines by incremental block training with intra-block
/// parallel optimization and blockwise model-update filtering), section 2.3.
class BlockMomentum final : public RoundPolicy {
 public:
  BlockMomentum(const PolicySettings& settings, std::uint32_t ranks)
      : settings_(settings), ranks_(ranks), blocks_(0, settings.block_samples) {}
  StepOrders next(const StepFacts& facts) override {
    const auto block = blocks_.count(facts);
    if (!block) return local_step({});
    StepOrders orders = local_step(outer_rule(settings_, ranks_, *block));
    orders.clear_state = settings_.reset_momentum;
    return orders;
  }
  bool works_locally() const noexcept override { return true; }

 private:
  const PolicySettings settings_;
  const std::uint32_t ranks_;
  Blocks blocks_;
};

}  // namespace

Rule outer_rule(const PolicySettings& settings, std::uint32_t ranks, std::uint64_t block) {
  double momentum = settings.outer_momentum.value_or(0);
  if (settings.time_constant) momentum = std::exp(-static_cast<double>(block) / *settings.time_constant);
  if (settings.kind == PolicyKind::block_momentum && settings.block_rule == BlockRule::cntk) {
    // CNTK gives the momentum a time constant and lets the block's own size decide; it sums where the paper averages.
    const double full = static_cast<double>(settings.block_samples);
    if (!settings.time_constant && momentum > 0) momentum = std::pow(momentum, static_cast<double>(block) / full);
    return {.kind = RuleKind::block,
            .rate = (1 - momentum) * settings.outer_rate.value_or(1) * ranks,
            .momentum = momentum,
            .look_ahead = settings.nesterov ? momentum : 0};
  }
  return {.kind = settings.nesterov ? RuleKind::nesterov : RuleKind::momentum,
          .rate = settings.outer_rate.value_or(1),
          .momentum = momentum};
}

std::unique_ptr<RoundPolicy> block_momentum(const PolicySettings& settings, std::uint32_t ranks) {
  return std::make_unique<BlockMomentum>(settings, ranks);
}

}  // namespace troupe::policies
