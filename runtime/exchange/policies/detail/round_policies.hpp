#pragma once

#include <cstdint>
#include <memory>

#include "runtime/exchange/policies/policy.hpp"

// The policies that exchange in rounds, one file each, named after the paper that it follows. Settings are checked
// before.
namespace troupe::policies {

std::unique_ptr<RoundPolicy> sync(const PolicySettings& settings);
std::unique_ptr<RoundPolicy> double_buffered();
std::unique_ptr<RoundPolicy> local_sgd(const PolicySettings& settings);
std::unique_ptr<RoundPolicy> model_averaging(const PolicySettings& settings);
std::unique_ptr<RoundPolicy> block_momentum(const PolicySettings& settings, std::uint32_t ranks);
std::unique_ptr<RoundPolicy> diloco(const PolicySettings& settings);

/// The outer rule of a block of `block` samples, for block_momentum and diloco.
Rule outer_rule(const PolicySettings& settings, std::uint32_t ranks, std::uint64_t block);
/// The outer rule that makes the new weights the mean of the ranks' weights.
Rule averaging_rule();

/// What policies of ranks that work locally from round to round have in common: the length of a block.
class Blocks {
 public:
  /// One of the two is 0.
  Blocks(std::uint64_t steps, std::uint64_t samples) : steps_each_(steps), samples_each_(samples) {}
  /// Counts a step; the block's samples when it ends with this step, otherwise nothing.
  std::optional<std::uint64_t> count(const StepFacts& facts);

 private:
  std::uint64_t steps_each_;
  std::uint64_t samples_each_;
  std::uint64_t steps_ = 0;
  std::uint64_t samples_ = 0;
};

/// Ranks work locally; every block ends with a round of this outer rule.
std::unique_ptr<RoundPolicy> local_blocks(const Blocks& blocks, const Rule& outer);

/// The ranks push to hosting shards, and meet where the group is to be consistent, and at the end.
std::unique_ptr<RoundPolicy> pushes(bool works_locally);

/// Orders of a step in which ranks work locally, ending its block when `outer` is given.
StepOrders local_step(const std::optional<Rule>& outer);

}  // namespace troupe::policies
