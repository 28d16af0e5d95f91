#pragma once

#include <string>

#include "runtime/compute/stream.hpp"
#include "runtime/model/graph.hpp"
#include "runtime/model/layout.hpp"

namespace troupe {

/// What to do about numbers that are not finite.
inline constexpr const char* kAgainstNonFinite =
    "lower optimizer.rate, set optimizer.clip_norm or train.non_finite = \"skip\", or look for such numbers in the "
    "data";

/// What was not finite in a step: "the gradient of dense2.bias, first at rank 1"; empty: nothing that is known. Without
/// a verdict (see needs_verdict) only losses are known.
std::string describe_bad(const StepSums& total, const Graph& graph, const Layout& layout);

/// Whether a run of `rule` goes on after a step with these sums over all ranks; the same at every rank.
/// Error{device_fault} with the step, what was not finite, and what to do, when it does not.
Status judge_step(const Rule& rule, Step step, const StepSums& total, const Graph& graph, const Layout& layout);

/// Whether the step was left out.
bool is_skipped(const Rule& rule, const StepSums& total) noexcept;

}  // namespace troupe
