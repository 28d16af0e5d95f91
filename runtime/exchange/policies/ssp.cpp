#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "runtime/exchange/policies/detail/policy_parts.hpp"

namespace troupe::policies {
namespace {

bool by_whole_clocks(const PolicySettings& s) { return s.staleness == 0; }

/// Bounded staleness (Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter
/// server"). A read at clock c is answered when the parameters contain every worker's contributions of clocks up to c -
/// s - 1, and all of the reader's own. A worker's clock advances when its contribution is committed, that is, applied.
/// A worker that leaves no longer counts from that moment; a worker that joins starts at the smallest clock.
/// s > 0: contributions are applied when they arrive, each as an update of its own.
/// s = 0: the contributions of one clock are added up in rank order and applied as one update when all have arrived, so
/// the parameters have the bits of the synchronous step.
class Ssp final : public ImmediateReadPolicy {
 public:
  Ssp(const PolicySettings& settings, HostedProgress progress)
      : ImmediateReadPolicy(std::move(progress)), settings_(settings) {}
  HostedActions left(Rank worker) override;
  HostedActions pushed(const HostedPush& push) override;
  HostedActions read(const HostedRead& read) override;
  bool updates_wait_for_readers() const noexcept override { return by_whole_clocks(settings_); }
  /// For every applied contribution, how many clocks the slowest worker was behind its worker when the parameters for
  /// it were read: at most s.
  const StalenessHistogram& staleness() const noexcept override { return clocks_behind_; }
  std::string_view staleness_unit() const noexcept override { return "steps of the slowest rank"; }

 private:
  void apply_arrived(HostedPush push, HostedActions& actions);
  void apply_whole_clocks(HostedActions& actions);
  void answer_waiting(HostedActions& actions);
  bool may_answer(const HostedRead& read) const noexcept;
  void answer(const HostedRead& read, HostedActions& actions);
  void count(const HostedPush& push);

  const PolicySettings settings_;
  std::vector<HostedPush> pending_;  // s = 0: contributions of incomplete clocks, in the order of arrival
  std::vector<HostedRead> waiting_;  // at most one per worker, in rank order
  struct Behind {
    std::uint64_t of = 0;  // clock of that read, counted from 1
    std::uint64_t clocks = 0;
  };
  std::vector<Behind> behind_;  // by rank: at the read for its next contribution
  StalenessHistogram clocks_behind_;
};

HostedActions Ssp::left(Rank worker) {
  HostedActions actions;
  if (!progress_.leave(worker)) return actions;
  std::erase_if(waiting_, [&](const HostedRead& read) { return read.worker == worker; });
  apply_whole_clocks(actions);
  answer_waiting(actions);
  return actions;
}

HostedActions Ssp::pushed(const HostedPush& push) {
  HostedActions actions{.refused = progress_.take(push), .orders = {}};
  if (actions.refused != Refusal::none) return actions;
  if (by_whole_clocks(settings_)) {
    pending_.push_back(push);
    apply_whole_clocks(actions);
  } else {
    apply_arrived(push, actions);
  }
  answer_waiting(actions);
  return actions;
}

HostedActions Ssp::read(const HostedRead& read) {
  HostedActions actions{.refused = progress_.check(read), .orders = {}};
  if (actions.refused != Refusal::none) return actions;
  if (may_answer(read)) {
    answer(read, actions);
    return actions;
  }
  const auto place = std::lower_bound(waiting_.begin(), waiting_.end(), read,
                                      [](const HostedRead& a, const HostedRead& b) { return a.worker < b.worker; });
  if (place != waiting_.end() && place->worker == read.worker) {
    place->clock = std::max(place->clock, read.clock);
  } else {
    waiting_.insert(place, read);
  }
  return actions;
}

void Ssp::apply_arrived(HostedPush push, HostedActions& actions) {
  double scale = 1;
  if (settings_.divide_by_staleness) scale /= static_cast<double>(1 + progress_.staleness(push));
  count(push);
  actions.orders.emplace_back(progress_.apply({push}, scale));
}

/// Applies the smallest clock whose contributions are pending, as long as it is complete; an incomplete one stops the
/// loop, because clocks are applied in order. The sort puts the contributions of the clock in rank order:
/// floating-point sums depend on the order, and in the order of arrival the parameters would differ from run to run.
void Ssp::apply_whole_clocks(HostedActions& actions) {
  while (!pending_.empty()) {
    const std::uint64_t clock = std::min_element(pending_.begin(), pending_.end(), [](const auto& a, const auto& b) {
                                  return a.clock < b.clock;
                                })->clock;
    const auto first_later = std::stable_partition(pending_.begin(), pending_.end(),
                                                   [&](const HostedPush& push) { return push.clock == clock; });
    std::sort(pending_.begin(), first_later, [](const auto& a, const auto& b) {
      return a.worker == b.worker ? a.sequence < b.sequence : a.worker < b.worker;
    });
    if (!progress_.everyone_pushed(clock)) return;
    std::vector<HostedPush> whole(pending_.begin(), first_later);
    pending_.erase(pending_.begin(), first_later);
    for (const HostedPush& push : whole) count(push);
    actions.orders.emplace_back(progress_.apply(std::move(whole), 1));
  }
}

void Ssp::answer_waiting(HostedActions& actions) {
  std::vector<HostedRead> still;
  for (const HostedRead& read : waiting_) {
    if (may_answer(read))
      answer(read, actions);
    else
      still.push_back(read);
  }
  waiting_ = std::move(still);
}

bool Ssp::may_answer(const HostedRead& read) const noexcept {
  return read.clock <= progress_.committed(read.worker) &&
         read.clock <= progress_.smallest_clock() + settings_.staleness;
}

void Ssp::answer(const HostedRead& read, HostedActions& actions) {
  if (behind_.size() <= read.worker.value) behind_.resize(read.worker.value + 1);
  Behind& seen = behind_[read.worker.value];
  // A read that is delivered twice is answered twice; the worker uses the first answer.
  if (read.clock == progress_.pushed(read.worker) && seen.of != read.clock + 1)
    seen = {read.clock + 1, read.clock - std::min(read.clock, progress_.smallest_clock())};
  actions.orders.emplace_back(progress_.answer(read));
}

void Ssp::count(const HostedPush& push) {
  clocks_behind_.add(push.worker.value < behind_.size() ? behind_[push.worker.value].clocks : 0);
}

std::unique_ptr<HostedPolicy> host_ssp(const PolicySettings& settings, std::uint32_t, HostedProgress progress) {
  return std::make_unique<Ssp>(settings, std::move(progress));
}

std::string describe_ssp(const PolicySettings& s, std::uint32_t) {
  return fmt::format("gradients, every step, at most {} steps stale", s.staleness);
}

constexpr PolicyReads kSspReads[] = {{&P::distributed_after}, {&P::staleness}, {&P::divide_by_staleness}};

}  // namespace

constinit const PolicyEntry ssp{
    .section = "hosted-stripes",
    .sent = "gradients",
    .when = "at once, to shards; a rank waits while it is more than `staleness` steps ahead",
    .use_when = "the same, when updates must not be too stale",
    .reads = kSspReads,
    .needs = {.own_weights = true, .hosted = true},
    .make = pushes,
    .describe = describe_ssp,
    .host = host_ssp,
    .sums_clocks = by_whole_clocks};

}  // namespace troupe::policies
