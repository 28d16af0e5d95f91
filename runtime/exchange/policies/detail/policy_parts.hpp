#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "runtime/exchange/policies/policy_entry.hpp"

// Parts that policies have in common. Each policy has a file of its own, with its entry and its state machine, named
// after the paper that it follows; its settings have been checked and resolved.
namespace troupe::policies {

using P = PolicySettings;

/// The outer rule that makes the new weights the mean of the ranks' weights.
inline constexpr Rule kAverage{.kind = RuleKind::sgd, .rate = 1};
/// The outer rule of a block of `block` samples, for block_momentum and diloco.
Rule outer_rule(const PolicySettings& settings, std::uint32_t ranks, std::uint64_t block);

/// The length of a block, after which ranks that work locally have a round.
class Blocks {
 public:
  /// One of `every_steps` and `block_samples` is 0.
  explicit Blocks(const PolicySettings& settings)
      : steps_each_(settings.every_steps), samples_each_(settings.block_samples) {}
  /// Counts a step. If the block ends with this step, returns the block's samples; otherwise nothing.
  std::optional<std::uint64_t> count(const StepFacts& facts);

 private:
  std::uint64_t steps_each_;
  std::uint64_t samples_each_;
  std::uint64_t steps_ = 0;
  std::uint64_t samples_ = 0;
};

/// Ranks work locally; every block ends with a round of this outer rule.
std::unique_ptr<RoundPolicy> local_blocks(const PolicySettings& settings, const Rule& outer);
/// The same with the mean.
std::unique_ptr<RoundPolicy> averaged_blocks(const PolicySettings& settings, std::uint32_t ranks);
/// Orders of a step in which ranks work locally; the step ends the block if `outer` is given.
StepActions local_step(const std::optional<Rule>& outer);

/// "deltas, every 8 steps, " followed by "averaged", or by a description of the outer rule.
std::string describe_averaged(const PolicySettings& settings, std::uint32_t ranks);
std::string describe_outer(const PolicySettings& settings, std::uint32_t ranks);
/// Checks that a block has room for a step of all ranks.
std::string check_block(const PolicySettings& settings, std::uint32_t ranks, std::uint32_t batch);

/// The ranks' side of hosted policies: they push to shards, and have a barrier where the group must be consistent, and
/// at the end. The shards decide when contributions are applied.
std::unique_ptr<RoundPolicy> pushes(const PolicySettings& settings, std::uint32_t ranks);

/// A shard that answers every read at once; the common part of hosted policies.
class ImmediateReadPolicy : public HostedPolicy {
 public:
  explicit ImmediateReadPolicy(HostedProgress progress) : progress_(std::move(progress)) {}
  HostedActions joined(Rank worker) override;
  HostedActions left(Rank worker) override;
  HostedActions read(const HostedRead& read) override;
  const HostedProgress& progress() const noexcept final { return progress_; }

 protected:
  HostedProgress progress_;
};

}  // namespace troupe::policies
