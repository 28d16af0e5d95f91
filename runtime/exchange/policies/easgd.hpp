#pragma once

#include "runtime/compute/rules/rule.hpp"
#include "runtime/exchange/policies/hosted.hpp"

namespace troupe {

struct EasgdSettings {
  std::uint64_t period = 10;  // tau: local steps between two exchanges of a worker
  double alpha = 0;           // the pull, 0 < alpha, alpha * workers <= 1; 0: 0.9 / workers
};

EasgdSettings easgd_settings(const PolicySettings& settings);

/// alpha for this many workers. Throws Error{invalid} when the settings are out of range or the exchange would be
/// unstable, which it is for alpha * workers > 1.
double elastic_alpha(const EasgdSettings& settings, std::size_t workers);

/// The elastic pull p -= alpha * (p - c) as a rule's step, for Stream::update with `c` as the only contribution and a
/// total of one sample.
RuleStep elastic_pull(double alpha) noexcept;

/// Elastic averaging (Zhang, Choromanska, LeCun 2015, "Deep learning with elastic averaging SGD", algorithm 1). Workers
/// train by themselves; every `period` steps a worker pushes its parameters x, the shard pulls its center c toward
/// them, c += alpha * (x - c), and answers with the center as it was before, toward which the worker pulls its own, x
/// -= alpha * (x - c). A clock is an exchange.
class EasgdPolicy final : public HostedPolicy {
 public:
  /// Throws as elastic_alpha for `workers`, the most that take part.
  EasgdPolicy(const EasgdSettings& settings, std::size_t workers, HostedLedger ledger = HostedLedger{});
  HostedActions joined(Rank worker) override;
  HostedActions left(Rank worker) override;
  /// The push is answered, as a read of the next clock, with the center before it; then applied. rate_scale is 1.
  HostedActions pushed(const HostedPush& push) override;
  /// The center as it is: what a worker starts from.
  HostedActions read(const HostedRead& read) override;
  const HostedLedger& ledger() const noexcept override { return ledger_; }
  double alpha() const noexcept { return alpha_; }

 private:
  std::size_t workers_;
  double alpha_;
  HostedLedger ledger_;
};

}  // namespace troupe
