#include <cmath>

#include "runtime/exchange/policies/detail/policy_parts.hpp"

namespace troupe::policies {
namespace {

/// Every B samples of all ranks, a momentum is applied to the mean change of the ranks' weights.
/// Source: Chen, Huo 2016 (Scalable training of deep learning machines by incremental block training with intra-block
/// parallel optimization and blockwise model-update filtering), section 2.3.
class BlockMomentum final : public RoundPolicy {
 public:
  BlockMomentum(const PolicySettings& settings, std::uint32_t ranks)
      : settings_(settings), ranks_(ranks), blocks_(settings) {}
  StepActions next(const StepFacts& facts) override {
    const auto block = blocks_.count(facts);
    if (!block) return local_step({});
    StepActions actions = local_step(outer_rule(settings_, ranks_, *block));
    actions.clear_state = settings_.reset_momentum;
    return actions;
  }

 private:
  const PolicySettings settings_;
  const std::uint32_t ranks_;
  Blocks blocks_;
};

std::unique_ptr<RoundPolicy> make_block_momentum(const PolicySettings& settings, std::uint32_t ranks) {
  return std::make_unique<BlockMomentum>(settings, ranks);
}

// The default length of a block is CNTK's.
constexpr PolicyReads kBlockMomentumReads[] = {{&P::distributed_after}, {&P::block_samples, 120000},
                                               {&P::block_rule},        {&P::outer_momentum, 1, -1, &P::time_constant},
                                               {&P::time_constant},     {&P::outer_rate, 1},
                                               {&P::nesterov},          {&P::reset_momentum}};

}  // namespace

Rule outer_rule(const PolicySettings& settings, std::uint32_t ranks, std::uint64_t block) {
  double momentum = settings.outer_momentum;
  if (settings.time_constant > 0) momentum = std::exp(-static_cast<double>(block) / settings.time_constant);
  if (settings.block_rule == BlockRule::cntk) {
    // CNTK applies a time constant to the block's actual size, and adds up the changes that the paper averages.
    const double full = static_cast<double>(settings.block_samples);
    if (settings.time_constant == 0 && momentum > 0) momentum = std::pow(momentum, static_cast<double>(block) / full);
    return {.kind = RuleKind::block,
            .rate = (1 - momentum) * settings.outer_rate * ranks,
            .momentum = momentum,
            .look_ahead = settings.nesterov ? momentum : 0};
  }
  return {.kind = settings.nesterov ? RuleKind::nesterov : RuleKind::momentum,
          .rate = settings.outer_rate,
          .momentum = momentum};
}

constinit const PolicyEntry block_momentum{
    .section = "block_momentum",
    .sent = "the changes of the weights",
    .when = "every `block_samples` samples of all ranks",
    .use_when = "the network is tens of times too slow: blocks of many steps",
    .reads = kBlockMomentumReads,
    .needs = {.own_weights = true, .held = true, .whole_state = true, .outer_state = true},
    .make = make_block_momentum,
    .describe = describe_outer,
    .check = check_block};

}  // namespace troupe::policies
