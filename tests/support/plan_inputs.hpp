#pragma once

#include <cstdint>

#include "runtime/planning/planner.hpp"

namespace troupe::testing {

/// Of a job of `ranks` ranks, placed on `nodes` nodes of four cores in turn.
inline PlanInputs plan_inputs(std::uint32_t ranks, std::uint32_t nodes) {
  PlanInputs inputs{.ranks = {}, .topologies = {}, .train_samples = 1000, .test_samples = 10, .data_bytes = 1};
  for (std::uint32_t n = 0; n < nodes; ++n) {
    Topology topology;
    topology.identity = {"boot", n + 1};
    topology.host = "host";
    for (std::uint32_t c = 0; c < 4; ++c) topology.cores.push_back({.index = c, .cpus = {c}});
    inputs.topologies.push_back(topology);
  }
  for (std::uint32_t r = 0; r < ranks; ++r) inputs.ranks.push_back({inputs.topologies[r % nodes].identity, "host"});
  return inputs;
}

}  // namespace troupe::testing
