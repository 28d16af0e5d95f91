#include "runtime/base/error.hpp"
#include "runtime/exchange/policies/async.hpp"
#include "runtime/exchange/policies/easgd.hpp"
#include "runtime/exchange/policies/ssp.hpp"

namespace troupe {

EasgdSettings easgd_settings(const PolicySettings& settings) {
  return {.period = settings.every_steps, .alpha = settings.elasticity};
}

namespace {

std::unique_ptr<HostedPolicy> make_policy(const PolicySettings& settings, std::uint32_t ranks, HostedLedger ledger) {
  switch (settings.kind) {
    case PolicyKind::async:
      return std::make_unique<AsyncPolicy>(
          AsyncSettings{settings.ramp_from, settings.ramp_by, settings.ramp_every, settings.divide_by_staleness},
          std::move(ledger));
    case PolicyKind::ssp:
      return std::make_unique<SspPolicy>(
          SspSettings{settings.staleness, settings.divide_by_staleness && settings.staleness > 0}, std::move(ledger));
    case PolicyKind::easgd: return std::make_unique<EasgdPolicy>(easgd_settings(settings), ranks, std::move(ledger));
    default:
      fail(Code::invalid,
           text("update.policy = \"", name_of(settings.kind), "\" exchanges in rounds, no shard hosts stripes for it"));
  }
}

}  // namespace

std::unique_ptr<HostedPolicy> make_hosted_policy(const PolicySettings& settings, std::uint32_t ranks, Rank host,
                                                 HostedLedger ledger) {
  auto policy = with_meetings(make_policy(settings, ranks, std::move(ledger)), host);
  for (std::uint32_t r = 0; r < ranks; ++r) policy->joined(Rank{r});
  return policy;
}

}  // namespace troupe
