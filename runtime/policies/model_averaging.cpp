#include "runtime/policies/detail/lent_policies.hpp"

namespace troupe::policies {
namespace {

/// Every B samples of all ranks, the ranks' weights become their mean, each counting by its samples.
/// Source: McDonald, Hall, Mann 2010 (Distributed training strategies for the structured perceptron), section 4.
class ModelAveraging final : public LentPolicy {
 public:
  explicit ModelAveraging(std::uint64_t block_samples) : blocks_(0, block_samples) {}
  StepOrders next(const StepFacts& facts) override {
    return local_step(blocks_.count(facts) ? std::optional{averaging_rule()} : std::nullopt);
  }
  bool works_locally() const noexcept override { return true; }

 private:
  Blocks blocks_;
};

}  // namespace

std::unique_ptr<LentPolicy> model_averaging(const PolicySettings& settings) {
  return std::make_unique<ModelAveraging>(settings.block_samples);
}

}  // namespace troupe::policies
