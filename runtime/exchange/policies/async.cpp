#include <algorithm>
#include <utility>

#include "runtime/exchange/policies/detail/policy_parts.hpp"

namespace troupe::policies {
namespace {

/// Asynchronous SGD (Dean et al. 2012, "Downpour"): every contribution is an update of its own when it arrives, and
/// every read is answered at once. The rate of a worker's contribution is multiplied by a factor that begins at
/// `ramp_from` and grows by `ramp_by` after every `ramp_every` contributions of that worker, up to 1. Source of the
/// ramp: CNTK's adjustCoefficient and adjustNBMiniBatch; CNTK uses 0.2 for the first two values and 600 for the third.
class Async final : public ImmediateReadPolicy {
 public:
  Async(const PolicySettings& settings, HostedProgress progress)
      : ImmediateReadPolicy(std::move(progress)), settings_(settings) {}

  HostedActions pushed(const HostedPush& push) override {
    HostedActions actions{.refused = progress_.take(push), .orders = {}};
    if (actions.refused != Refusal::none) return actions;
    const auto ramps = static_cast<double>(push.clock / settings_.ramp_every);
    double scale = std::min(1.0, settings_.ramp_from + settings_.ramp_by * ramps);
    if (settings_.divide_by_staleness) scale /= static_cast<double>(1 + progress_.staleness(push));
    actions.orders.emplace_back(progress_.apply({push}, scale));
    return actions;
  }

 private:
  const PolicySettings settings_;
};

std::unique_ptr<HostedPolicy> host_async(const PolicySettings& settings, std::uint32_t, HostedProgress progress) {
  return std::make_unique<Async>(settings, std::move(progress));
}

std::string describe_async(const PolicySettings&, std::uint32_t) { return "gradients, at once, staleness not bounded"; }

constexpr PolicyReads kAsyncReads[] = {
    {&P::distributed_after}, {&P::divide_by_staleness}, {&P::ramp_from}, {&P::ramp_by}, {&P::ramp_every}};

}  // namespace

constinit const PolicyEntry async{.section = "hosted-stripes",
                                  .sent = "gradients",
                                  .when = "at once, to shards",
                                  .use_when = "ranks have very different speeds, and none should wait for another",
                                  .reads = kAsyncReads,
                                  .needs = {.own_weights = true, .hosted = true},
                                  .make = pushes,
                                  .describe = describe_async,
                                  .host = host_async};

}  // namespace troupe::policies
