#include "runtime/exchange/policies/ssp.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/error.hpp"

namespace troupe {

SspPolicy::SspPolicy(const SspSettings& settings, HostedLedger ledger)
    : settings_(settings), ledger_(std::move(ledger)) {
  TROUPE_CHECK(settings.staleness > 0 || !settings.divide_by_staleness, Code::invalid,
               "policy ssp: with a staleness of 0 nothing is stale, so there is nothing to divide by; leave that out");
}

HostedActions SspPolicy::joined(Rank worker) {
  ledger_.join(worker);
  return {};
}

HostedActions SspPolicy::left(Rank worker) {
  HostedActions actions;
  if (!ledger_.leave(worker)) return actions;
  std::erase_if(waiting_, [&](const HostedRead& read) { return read.worker == worker; });
  apply_whole_clocks(actions);
  answer_waiting(actions);
  return actions;
}

HostedActions SspPolicy::pushed(const HostedPush& push) {
  HostedActions actions{.refused = ledger_.take(push), .orders = {}};
  if (actions.refused != Refusal::none) return actions;
  if (settings_.staleness == 0) {
    pending_.push_back(push);
    apply_whole_clocks(actions);
  } else {
    apply_arrived(push, actions);
  }
  answer_waiting(actions);
  return actions;
}

HostedActions SspPolicy::read(const HostedRead& read) {
  HostedActions actions{.refused = ledger_.check(read), .orders = {}};
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

void SspPolicy::apply_arrived(HostedPush push, HostedActions& actions) {
  double scale = 1;
  if (settings_.divide_by_staleness) scale /= static_cast<double>(1 + ledger_.staleness(push));
  count(push);
  actions.orders.emplace_back(ledger_.apply({push}, scale));
}

void SspPolicy::apply_whole_clocks(HostedActions& actions) {
  while (!pending_.empty()) {
    const std::uint64_t clock = std::min_element(pending_.begin(), pending_.end(), [](const auto& a, const auto& b) {
                                  return a.clock < b.clock;
                                })->clock;
    const auto first_later = std::stable_partition(pending_.begin(), pending_.end(),
                                                   [&](const HostedPush& push) { return push.clock == clock; });
    std::sort(pending_.begin(), first_later, [](const auto& a, const auto& b) {
      return a.worker == b.worker ? a.sequence < b.sequence : a.worker < b.worker;
    });
    if (!ledger_.everyone_pushed(clock)) return;
    std::vector<HostedPush> whole(pending_.begin(), first_later);
    pending_.erase(pending_.begin(), first_later);
    for (const HostedPush& push : whole) count(push);
    actions.orders.emplace_back(ledger_.apply(std::move(whole), 1));
  }
}

void SspPolicy::answer_waiting(HostedActions& actions) {
  std::vector<HostedRead> still;
  for (const HostedRead& read : waiting_) {
    if (may_answer(read))
      answer(read, actions);
    else
      still.push_back(read);
  }
  waiting_ = std::move(still);
}

bool SspPolicy::may_answer(const HostedRead& read) const noexcept {
  return read.clock <= ledger_.committed(read.worker) && read.clock <= ledger_.smallest_clock() + settings_.staleness;
}

void SspPolicy::answer(const HostedRead& read, HostedActions& actions) {
  if (behind_.size() <= read.worker.value) behind_.resize(read.worker.value + 1);
  Behind& seen = behind_[read.worker.value];
  // A read that is delivered twice is answered twice, and the worker goes by the first answer.
  if (read.clock == ledger_.pushed(read.worker) && seen.of != read.clock + 1)
    seen = {read.clock + 1, read.clock - std::min(read.clock, ledger_.smallest_clock())};
  actions.orders.emplace_back(ledger_.answer(read));
}

void SspPolicy::count(const HostedPush& push) {
  clocks_behind_.add(push.worker.value < behind_.size() ? behind_[push.worker.value].clocks : 0);
}

}  // namespace troupe
