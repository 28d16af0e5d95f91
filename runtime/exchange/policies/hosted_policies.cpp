#include "runtime/base/error.hpp"
#include "runtime/exchange/policies/detail/policy_parts.hpp"

namespace troupe {
namespace policies {

HostedActions ImmediateReadPolicy::joined(Rank worker) {
  progress_.join(worker);
  return {};
}

HostedActions ImmediateReadPolicy::left(Rank worker) {
  progress_.leave(worker);
  return {};
}

HostedActions ImmediateReadPolicy::read(const HostedRead& read) {
  HostedActions actions{.refused = progress_.check(read), .orders = {}};
  if (actions.refused == Refusal::none) actions.orders.emplace_back(progress_.answer(read));
  return actions;
}

}  // namespace policies

std::unique_ptr<HostedPolicy> make_plain_hosted_policy(const PolicySettings& given, std::uint32_t ranks,
                                                       HostedProgress progress) {
  const PolicyEntry& entry = entry_of(given.kind);
  TROUPE_CHECK(entry.host != nullptr, Code::invalid, "update.policy = \"", name_of(given.kind),
               "\" exchanges in rounds, no shard hosts stripes for it");
  const PolicySettings settings = resolved(given, ranks);
  const std::string wrong = check_policy(settings, ranks, 0);
  TROUPE_CHECK(wrong.empty(), Code::invalid, wrong);
  return entry.host(settings, ranks, std::move(progress));
}

std::unique_ptr<HostedPolicy> make_hosted_policy(const PolicySettings& settings, std::uint32_t ranks, Rank host,
                                                 HostedProgress progress) {
  auto policy = with_barriers(make_plain_hosted_policy(settings, ranks, std::move(progress)), host);
  for (std::uint32_t r = 0; r < ranks; ++r) policy->joined(Rank{r});
  return policy;
}

bool sums_clocks(const PolicySettings& settings) {
  const PolicyEntry& entry = entry_of(settings.kind);
  return entry.sums_clocks != nullptr && entry.sums_clocks(settings);
}

std::optional<double> elastic_alpha(const PolicySettings& settings, std::uint32_t ranks) {
  const PolicyEntry& entry = entry_of(settings.kind);
  return entry.pull == nullptr ? std::nullopt : std::optional{resolved(settings, ranks).*entry.pull};
}

RuleStep elastic_pull(double alpha) noexcept {
  // With g = c - p and a rate of -alpha, p -= rate * g is p += alpha * (c - p).
  RuleStep step;
  step.kind = RuleKind::sgd;
  step.rate = -static_cast<float>(alpha);
  step.decay = -1;
  return step;
}

}  // namespace troupe
