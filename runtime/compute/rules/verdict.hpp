#pragma once

#include <string>

#include "runtime/compute/stream.hpp"
#include "runtime/model/graph.hpp"
#include "runtime/model/layout.hpp"

namespace troupe {

/// Advice about numbers that are not finite.
inline constexpr const char* kAgainstNonFinite =
    "lower optimizer.rate, set optimizer.clip_norm or train.non_finite = \"skip\", or look for such numbers in the "
    "data";

/// What was not finite in a step: "the gradient of dense2.bias, first at rank 1"; empty: nothing, as far as is known.
/// Without a verdict (see needs_verdict) only losses are known.
std::string describe_bad(const StepSums& total, const Graph& graph, const Layout& layout);

/// Whether a run with `rule` continues after a step with these sums over all ranks; the same at every rank. If not,
/// Error{device_fault} with the step, what was not finite, and what to do.
Status judge_step(const Rule& rule, Step step, const StepSums& total, const Graph& graph, const Layout& layout);

/// Whether the step changed no parameter.
bool is_skipped(const Rule& rule, const StepSums& total) noexcept;

}  // namespace troupe
