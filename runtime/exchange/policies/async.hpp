#pragma once

#include "runtime/exchange/policies/hosted.hpp"

namespace troupe {

/// Settings of asynchronous SGD. The rate of a worker's contribution is multiplied by a factor that begins at
/// `ramp_from` and grows by `ramp_by` every `ramp_every` contributions of that worker, up to 1. Source: CNTK's
/// adjustCoefficient and adjustNBMiniBatch, which are 0.2 for both and 600.
struct AsyncSettings {
  double ramp_from = 0.2;  // 0 < ramp_from <= 1; 1: no ramp
  double ramp_by = 0.2;    // > 0
  std::uint64_t ramp_every = 600;
  bool divide_by_staleness = false;  // also divide by 1 + staleness
};

/// The factor of a worker's contribution of this clock.
double async_ramp(const AsyncSettings& settings, std::uint64_t clock) noexcept;

/// Asynchronous SGD (Dean et al. 2012, "Downpour"): every contribution is an update of its own when it arrives, every
/// read is answered at once.
class AsyncPolicy final : public HostedPolicy {
 public:
  /// Throws Error{invalid} for settings out of range.
  explicit AsyncPolicy(const AsyncSettings& settings, HostedLedger ledger = HostedLedger{});
  HostedActions joined(Rank worker) override;
  HostedActions left(Rank worker) override;
  HostedActions pushed(const HostedPush& push) override;
  HostedActions read(const HostedRead& read) override;
  const HostedLedger& ledger() const noexcept override { return ledger_; }

 private:
  AsyncSettings settings_;
  HostedLedger ledger_;
};

}  // namespace troupe
