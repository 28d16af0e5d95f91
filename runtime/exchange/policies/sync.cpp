#include <fmt/format.h>

#include "runtime/exchange/policies/detail/policy_parts.hpp"

namespace troupe::policies {
namespace {

/// The gradients of one step, or the sum of those of several steps, make one update.
/// Source: Goyal et al. 2017 (Accurate, large minibatch SGD), section 2.
class Sync final : public RoundPolicy {
 public:
  explicit Sync(std::uint32_t accumulate) : accumulate_(accumulate) {}
  StepActions next(const StepFacts& facts) override {
    StepActions actions;
    if (++kept_ < accumulate_ && !facts.last) {
      actions.keep = true;
      return actions;
    }
    kept_ = 0;
    actions.sent = Sent::gradient;
    actions.finish = true;
    return actions;
  }

 private:
  const std::uint32_t accumulate_;
  std::uint32_t kept_ = 0;
};

std::unique_ptr<RoundPolicy> make_sync(const PolicySettings& settings, std::uint32_t) {
  return std::make_unique<Sync>(settings.accumulate);
}

std::string describe_sync(const PolicySettings& s, std::uint32_t) {
  return s.accumulate == 1 ? "gradients, every step, never stale"
                           : fmt::format("gradients, every {} steps, added up, never stale", s.accumulate);
}

constexpr PolicyReads kSyncReads[] = {{&P::accumulate}};

}  // namespace

constinit const PolicyEntry sync{.section = "sync",
                                 .sent = "gradients",
                                 .when = "every step, or every `accumulate` steps",
                                 .use_when = "the network keeps up: nothing converges better at equal samples",
                                 .reads = kSyncReads,
                                 .has_verdicts = true,
                                 .make = make_sync,
                                 .describe = describe_sync};

}  // namespace troupe::policies
