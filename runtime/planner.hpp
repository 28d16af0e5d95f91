#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/graph.hpp"
#include "runtime/plan.hpp"
#include "runtime/settings.hpp"
#include "runtime/topology.hpp"

namespace troupe {

/// One rank as the bootstrap found it.
struct RankFacts {
  NodeIdentity node;
  std::string host;
};

/// What a plan is made of, apart from the settings.
struct PlanInputs {
  std::vector<RankFacts> ranks;         // by rank
  std::vector<Topology> topologies;     // one for each different node of `ranks`, any order
  std::uint64_t train_samples = 0;
  std::uint64_t test_samples = 0;
};

/// Places the ranks and chooses routes. Deterministic: the same inputs give the same plan in every process. Throws
/// Error{invalid} when the settings ask for what the machines do not have, naming key and node.
Plan make_plan(const Settings& settings, const Graph& graph, const PlanInputs& inputs);

/// The plan for people: who runs where, memory per rank, route, stripes, and the reasons.
std::string describe(const Plan& plan);

}  // namespace troupe
