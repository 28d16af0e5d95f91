#include "runtime/exchange/policies/async.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/error.hpp"

namespace troupe {

double async_ramp(const AsyncSettings& settings, std::uint64_t clock) noexcept {
  return std::min(1.0, settings.ramp_from + settings.ramp_by * static_cast<double>(clock / settings.ramp_every));
}

AsyncPolicy::AsyncPolicy(const AsyncSettings& settings, HostedLedger ledger)
    : settings_(settings), ledger_(std::move(ledger)) {
  TROUPE_CHECK(settings.ramp_from > 0 && settings.ramp_from <= 1 && settings.ramp_by > 0 && settings.ramp_every > 0,
               Code::invalid, "policy async: a ramp from ", settings.ramp_from, " by ", settings.ramp_by, " every ",
               settings.ramp_every, " contributions; it must begin above 0 and at most at 1, and grow");
}

HostedActions AsyncPolicy::joined(Rank worker) {
  ledger_.join(worker);
  return {};
}

HostedActions AsyncPolicy::left(Rank worker) {
  ledger_.leave(worker);
  return {};
}

HostedActions AsyncPolicy::pushed(const HostedPush& push) {
  HostedActions actions{.refused = ledger_.take(push), .orders = {}};
  if (actions.refused != Refusal::none) return actions;
  double scale = async_ramp(settings_, push.clock);
  if (settings_.divide_by_staleness) scale /= static_cast<double>(1 + ledger_.staleness(push));
  actions.orders.emplace_back(ledger_.apply({push}, scale));
  return actions;
}

HostedActions AsyncPolicy::read(const HostedRead& read) {
  HostedActions actions{.refused = ledger_.check(read), .orders = {}};
  if (actions.refused == Refusal::none) actions.orders.emplace_back(ledger_.answer(read));
  return actions;
}

}  // namespace troupe
