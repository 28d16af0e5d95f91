#include "runtime/compute/rules/verdict.hpp"

#include <cmath>

namespace troupe {
namespace {

/// The parameter that element `element` of the group belongs to.
std::string parameter_at(std::uint64_t element, const Graph& graph, const Layout& layout) {
  for (std::size_t p = 0; p < layout.entries().size(); ++p) {
    const auto [first, count] = layout.entries()[p];
    if (element >= first && element < first + count) return graph.parameters()[p].name;
  }
  return text("element ", element);
}

}  // namespace

std::string describe_bad(const StepSums& total, const Graph& graph, const Layout& layout) {
  if (total.bad_gradient != 0) {
    return text("the gradient of ", parameter_at(bad_element(total.bad_gradient), graph, layout), ", first at rank ",
                bad_rank(total.bad_gradient));
  }
  if (std::isfinite(total.loss)) return {};
  return total.bad_loss == 0 ? std::string{"the loss"} : text("the loss, first at rank ", total.bad_loss - 1);
}

bool is_skipped(const Rule& rule, const StepSums& total) noexcept {
  if (rule.scales_loss && total.bad_gradient != 0) return true;
  return needs_verdict(rule) && total.samples != 0 && !std::isfinite(total.gradient_squares);
}

Status judge_step(const Rule& rule, Step step, const StepSums& total, const Graph& graph, const Layout& layout) {
  const bool skipped = is_skipped(rule, total);
  const bool continues =
      skipped ? rule.skips_non_finite || rule.scales_loss : std::isfinite(total.loss) && total.bad_gradient == 0;
  if (continues) return {};
  return {Code::device_fault,
          text("step ", step.value, ": ", describe_bad(total, graph, layout), " is not finite",
               skipped ? " (the parameters are those of the step before)" : "", "; ", kAgainstNonFinite)};
}

}  // namespace troupe
