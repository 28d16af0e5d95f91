#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/planning/plan.hpp"
#include "tools/rtrun/prediction.hpp"

namespace troupe::rtrun {

/// What one rank takes of its GPU's memory, by parts, in bytes (gpu_memory_parts).
struct GpuMemory {
  Rank rank;
  std::vector<std::pair<std::string, std::uint64_t>> parts;
};
/// "- Rank 0 takes of its GPU's memory: activations 1.2 GB, weights 0.4 GB", as a line.
std::string text_of(const GpuMemory& memory);

/// `rtrun plan --json`: one object, {"schema": "troupe.plan", "version": 1, ...}. Times in ms, sizes in bytes;
/// "modelled" says of each time whether figures that it needs were not measured. `memory`: absent: no rank computes on
/// a GPU.
std::string json_of(const Plan& plan, const std::optional<GpuMemory>& memory, const PredictedJob& job);
/// `rtrun plan --compare --json`: {"schema": "troupe.compared_steps", "version": 1, ...}.
std::string json_of(const ComparedJob& job);

}  // namespace troupe::rtrun
