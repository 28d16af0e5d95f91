#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/planning/planner.hpp"

namespace troupe::detail {

/// Gives each of `ranks`, all of one host and in rank order, its device: by placement.device a GPU of its node, the one
/// with the fewest ranks among those that its process may use, or the CPU. Adds to `reasons` what is not obvious.
/// Throws Error{environment} where placement.device = "cuda" and there is no GPU, Error{unsupported} where it cannot
/// compute the graph, Error{invalid} where the GPUs take no more ranks.
void assign_gpus(const Settings::Placement& placement, const PlanInputs& inputs, const Topology& node,
                 const std::string& host, const std::vector<RankPlan*>& ranks, std::vector<std::string>& reasons);

/// Whether all ranks can train in the memory of GPUs: each has one, and the GPUs of a node reach each other's memory.
/// Adds to the plan's reasons why some ranks' GPUs do not do for that.
bool reach_each_other(Plan& plan, const PlanInputs& inputs);

/// Notes for each node what its ranks use of their GPUs' memory. Throws Error{invalid} if that is more than there is,
/// which names the GPU, the largest part of what its ranks take, and what to do about that first. `needs_of`: of a
/// rank.
void fit_gpu_memory(Plan& plan, const std::vector<const Topology*>& nodes,
                    const std::function<MemoryNeeds(Rank)>& needs_of);

}  // namespace troupe::detail
