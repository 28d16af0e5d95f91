#include "runtime/exchange/policies/easgd.hpp"

#include <utility>

#include "runtime/base/error.hpp"

namespace troupe {

double elastic_alpha(const EasgdSettings& settings, std::size_t workers) {
  TROUPE_CHECK(settings.period > 0 && workers > 0, Code::invalid, "policy easgd: an exchange every ", settings.period,
               " steps of ", workers, " workers; both must be at least 1");
  const double count = static_cast<double>(workers);
  if (settings.alpha == 0) return 0.9 / count;
  TROUPE_CHECK(settings.alpha > 0 && settings.alpha * count <= 1, Code::invalid,
               "policy easgd: alpha = ", settings.alpha, " with ", workers,
               " workers is unstable; alpha * workers must be above 0 and at most 1,", " so use alpha = ", 1 / count,
               " or less");
  return settings.alpha;
}

RuleStep elastic_pull(double alpha) noexcept {
  // With g = c - p and a rate of -alpha, p -= rate * g is p += alpha * (c - p).
  RuleStep step;
  step.kind = RuleKind::sgd;
  step.rate = -static_cast<float>(alpha);
  step.decay = -1;
  return step;
}

EasgdPolicy::EasgdPolicy(const EasgdSettings& settings, std::size_t workers, HostedLedger ledger)
    : workers_(workers), alpha_(elastic_alpha(settings, workers)), ledger_(std::move(ledger)) {}

HostedActions EasgdPolicy::joined(Rank worker) {
  TROUPE_CHECK(ledger_.takes_part(worker) || ledger_.count_workers() < workers_, Code::invalid, "policy easgd: rank ",
               worker.value, " would be one worker more than the ", workers_, " for which alpha = ", alpha_,
               " was made");
  ledger_.join(worker);
  return {};
}

HostedActions EasgdPolicy::left(Rank worker) {
  ledger_.leave(worker);
  return {};
}

HostedActions EasgdPolicy::pushed(const HostedPush& push) {
  HostedActions actions{.refused = ledger_.take(push), .orders = {}};
  if (actions.refused != Refusal::none) return actions;
  actions.orders.emplace_back(ledger_.answer({push.worker, push.clock + 1}));
  actions.orders.emplace_back(ledger_.apply({push}, 1));
  return actions;
}

HostedActions EasgdPolicy::read(const HostedRead& read) {
  HostedActions actions{.refused = ledger_.check(read), .orders = {}};
  if (actions.refused == Refusal::none) actions.orders.emplace_back(ledger_.answer(read));
  return actions;
}

}  // namespace troupe
