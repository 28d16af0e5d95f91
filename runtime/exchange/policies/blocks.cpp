#include <utility>

#include <fmt/format.h>

#include "runtime/base/error.hpp"
#include "runtime/exchange/policies/detail/policy_parts.hpp"

namespace troupe::policies {
namespace {

class LocalBlocks final : public RoundPolicy {
 public:
  LocalBlocks(const Blocks& blocks, const Rule& outer) : blocks_(blocks), outer_(outer) {}
  StepActions next(const StepFacts& facts) override {
    return local_step(blocks_.count(facts) ? std::optional{outer_} : std::nullopt);
  }

 private:
  Blocks blocks_;
  const Rule outer_;
};

std::string each_block(const PolicySettings& s) {
  return s.every_steps != 0 ? fmt::format("deltas, every {} steps, ", s.every_steps)
                            : fmt::format("deltas, every {} samples of all ranks, ", s.block_samples);
}

}  // namespace

std::optional<std::uint64_t> Blocks::count(const StepFacts& facts) {
  ++steps_;
  samples_ += facts.samples;
  const bool full = steps_each_ != 0 ? steps_ >= steps_each_ : samples_ >= samples_each_;
  if (!full && !facts.last) return {};
  steps_ = 0;
  return std::exchange(samples_, 0);
}

std::unique_ptr<RoundPolicy> local_blocks(const PolicySettings& settings, const Rule& outer) {
  return std::make_unique<LocalBlocks>(Blocks{settings}, outer);
}

std::unique_ptr<RoundPolicy> averaged_blocks(const PolicySettings& settings, std::uint32_t) {
  return local_blocks(settings, kAverage);
}

StepActions local_step(const std::optional<Rule>& outer) {
  StepActions actions;
  actions.local_update = true;
  if (!outer) return actions;
  actions.sent = Sent::delta;
  actions.outer = *outer;
  actions.finish = true;
  return actions;
}

std::string describe_averaged(const PolicySettings& settings, std::uint32_t) {
  return each_block(settings) + "averaged";
}

std::string describe_outer(const PolicySettings& settings, std::uint32_t ranks) {
  return each_block(settings) + to_string(outer_rule(settings, ranks, settings.block_samples));
}

std::string check_block(const PolicySettings& s, std::uint32_t ranks, std::uint32_t batch) {
  const std::uint64_t step = std::uint64_t{batch} * ranks;
  if (s.block_samples >= step) return {};
  return text("update.block_samples = ", s.block_samples, " is less than one step of ", ranks, " ranks with ", batch,
              " samples each: give at least ", step, ", or take update.policy = \"sync\"");
}

}  // namespace troupe::policies
