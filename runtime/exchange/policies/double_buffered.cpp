#include "runtime/exchange/policies/detail/policy_parts.hpp"

namespace troupe::policies {
namespace {

/// A step's gradients are exchanged while the next step is computed, so weights are always one step stale. A step that
/// needs consistent weights, and the last one, waits for the round in progress and exchanges its own gradients at once,
/// so no gradient is lost.
/// Source: Akiba, Fukuda, Suzuki 2017 (ChainerMN), double buffering.
class DoubleBuffered final : public RoundPolicy {
 public:
  StepActions next(const StepFacts& facts) override {
    StepActions actions;
    actions.finish_previous = in_progress_;
    actions.sent = Sent::gradient;
    actions.finish = facts.consistent || facts.last;
    in_progress_ = !actions.finish;
    return actions;
  }

 private:
  bool in_progress_ = false;
};

std::unique_ptr<RoundPolicy> make_double_buffered(const PolicySettings&, std::uint32_t) {
  return std::make_unique<DoubleBuffered>();
}

std::string describe_double_buffered(const PolicySettings&, std::uint32_t) {
  return "gradients, every step, one step stale, behind the next step";
}

constexpr PolicyReads kDoubleBufferedReads[] = {{&P::distributed_after}};

}  // namespace

constinit const PolicyEntry double_buffered{.section = "double_buffered",
                                            .sent = "gradients",
                                            .when = "every step, while the next one is computed",
                                            .use_when = "a step's exchange takes about as long as its computation",
                                            .reads = kDoubleBufferedReads,
                                            .needs = {.own_weights = true, .held = true, .side_stream = true},
                                            .has_verdicts = true,
                                            .make = make_double_buffered,
                                            .describe = describe_double_buffered};

}  // namespace troupe::policies
