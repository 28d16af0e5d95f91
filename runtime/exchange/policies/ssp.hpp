#pragma once

#include "runtime/exchange/policies/hosted.hpp"

namespace troupe {

struct SspSettings {
  std::uint64_t staleness = 3;       // s, in clocks
  bool divide_by_staleness = false;  // divide a contribution's rate by 1 + the updates that came before it; s > 0
};

/// Bounded staleness (Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter
/// server"). A read at clock c is answered when the parameters contain every worker's contributions of clocks up to
/// c - s - 1, and all of the reader's own. A clock ticks when a contribution is committed, that is, applied; who leaves
/// counts no more from that moment, who joins starts at the smallest clock.
/// s > 0: contributions are applied when they arrive, each as an update of its own.
/// s = 0: those of one clock are added up in the order of ranks and applied as one update once all have come, so that
/// parameters have the bits of the synchronous step.
class SspPolicy final : public HostedPolicy {
 public:
  /// Throws Error{invalid} for division by a staleness that there is not.
  explicit SspPolicy(const SspSettings& settings, HostedLedger ledger = HostedLedger{});
  HostedActions joined(Rank worker) override;
  HostedActions left(Rank worker) override;
  HostedActions pushed(const HostedPush& push) override;
  HostedActions read(const HostedRead& read) override;
  const HostedLedger& ledger() const noexcept override { return ledger_; }
  bool updates_wait_for_readers() const noexcept override { return settings_.staleness == 0; }
  /// For every applied contribution, how many clocks the slowest worker was behind it when its parameters were read:
  /// never more than s.
  const StalenessHistogram& staleness() const noexcept override { return clocks_behind_; }
  std::string_view staleness_unit() const noexcept override { return "steps of the slowest rank"; }

 private:
  void apply_arrived(HostedPush push, HostedActions& actions);
  void apply_whole_clocks(HostedActions& actions);
  void answer_waiting(HostedActions& actions);
  bool may_answer(const HostedRead& read) const noexcept;
  void answer(const HostedRead& read, HostedActions& actions);
  void count(const HostedPush& push);

  SspSettings settings_;
  HostedLedger ledger_;
  std::vector<HostedPush> pending_;  // s = 0: of clocks that are not whole yet, in the order of arrival
  std::vector<HostedRead> waiting_;  // at most one a worker, in the order of ranks
  struct Behind {
    std::uint64_t of = 0;  // the clock of that read, from 1
    std::uint64_t clocks = 0;
  };
  std::vector<Behind> behind_;  // by rank: at the read of its next contribution
  StalenessHistogram clocks_behind_;
};

}  // namespace troupe
