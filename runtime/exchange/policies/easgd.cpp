#include <utility>

#include <fmt/format.h>

#include "runtime/base/error.hpp"
#include "runtime/exchange/policies/detail/policy_parts.hpp"

namespace troupe::policies {
namespace {

/// Elastic averaging (Zhang, Choromanska, LeCun 2015, "Deep learning with elastic averaging SGD", algorithm 1). Workers
/// train by themselves. Every few steps a worker pushes its parameters x; the shard moves its center c toward them, c
/// += alpha * (x - c), and answers with the center as it was before; the worker moves its own parameters toward that, x
/// -= alpha * (x - c). A clock is an exchange.
class Easgd final : public ImmediateReadPolicy {
 public:
  Easgd(std::uint32_t workers, HostedProgress progress) : ImmediateReadPolicy(std::move(progress)), workers_(workers) {}

  HostedActions joined(Rank worker) override {
    TROUPE_CHECK(progress_.takes_part(worker) || progress_.count_workers() < workers_, Code::invalid,
                 "policy easgd: rank ", worker.value, " would be one worker more than the ", workers_,
                 " for which its elasticity was made");
    return ImmediateReadPolicy::joined(worker);
  }
  /// The push is answered like a read of the next clock, with the center before the push; then it is applied unscaled.
  HostedActions pushed(const HostedPush& push) override {
    HostedActions actions{.refused = progress_.take(push), .orders = {}};
    if (actions.refused != Refusal::none) return actions;
    actions.orders.emplace_back(progress_.answer({push.worker, push.clock + 1}));
    actions.orders.emplace_back(progress_.apply({push}, 1));
    return actions;
  }

 private:
  const std::uint32_t workers_;
};

std::unique_ptr<HostedPolicy> host_easgd(const PolicySettings&, std::uint32_t ranks, HostedProgress progress) {
  return std::make_unique<Easgd>(ranks, std::move(progress));
}

std::string describe_easgd(const PolicySettings& s, std::uint32_t) {
  return fmt::format("elastic differences, every {} steps", s.every_steps);
}

/// The bound is from section 3.1 of the paper: the product is how far all ranks together pull the center.
std::string check_easgd(const PolicySettings& s, std::uint32_t ranks, std::uint32_t) {
  if (s.elasticity * ranks <= 1) return {};
  return text("update.elasticity = ", s.elasticity, " with ", ranks, " ranks: the average oscillates when their ",
              "product is above 1; give at most ", 1.0 / ranks);
}

constexpr PolicyReads kEasgdReads[] = {{&P::distributed_after}, {&P::every_steps, 8}, {&P::elasticity, 0, 0.9}};

}  // namespace

constinit const PolicyEntry easgd{
    .section = "hosted-stripes",
    .sent = "weights",
    .when = "every `every_steps` steps, to shards",
    .use_when = "the same, with slow networks",
    .reads = kEasgdReads,
    .needs = {.own_weights = true, .held = true, .whole_state = true, .hosted = true, .landing = true},
    .make = pushes,
    .describe = describe_easgd,
    .check = check_easgd,
    .host = host_easgd,
    .pull = &P::elasticity};

}  // namespace troupe::policies
