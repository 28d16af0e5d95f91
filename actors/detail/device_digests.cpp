#include "actors/detail/device_digests.hpp"

namespace troupe::detail {
namespace {

Memory slot_of(const DigestPlan& plan, Step step, std::size_t tensor) {
  const std::uint64_t place = step.value % StepExchange::kStepsKept * plan.tensors.size() + tensor;
  return slice(plan.results, place * sizeof(std::uint64_t), sizeof(std::uint64_t));
}

}  // namespace

bool DeviceDigests::enqueue(const DeviceParts& parts, Step step) {
  if (!parts.digests) return false;
  const DigestPlan& plan = *parts.digests;
  due_ = due_ || (step.value + 1) % plan.every_steps == 0;
  if (!due_ || !parts.exchange.is_consistent()) return false;
  parts.exchange.show_common(parts.stream);
  for (std::size_t t = 0; t < plan.tensors.size(); ++t) parts.stream.digest(slot_of(plan, step, t), plan.tensors[t]);
  parts.exchange.show_own(parts.stream);
  steps_.push_back(step);
  due_ = false;
  return true;
}

std::optional<RankDigest> DeviceDigests::take(const DeviceParts& parts, Step step) {
  if (steps_.empty() || steps_.front() != step) return {};
  steps_.pop_front();
  RankDigest digest{.rank = parts.self.value, .step = step.value, .tensors = {}};
  for (std::size_t t = 0; t < parts.digests->tensors.size(); ++t)
    digest.tensors.push_back(*parts.space.address_of<std::uint64_t>(slot_of(*parts.digests, step, t)));
  return digest;
}

}  // namespace troupe::detail
