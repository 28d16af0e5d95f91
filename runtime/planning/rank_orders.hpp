#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/planning/plan.hpp"
#include "runtime/planning/topology.hpp"
#include "runtime/topology/machine.hpp"

namespace troupe {

/// An order of ranks, and its slowest edge: its ends, its bytes per second in one direction, and what limits them.
struct RankOrder {
  std::vector<Rank>
      order;  // a ring: each rank sends to the next, the last to the first; a tree: for each rank its parent or itself
  Rank from{};
  Rank to{};
  double slowest = 0;  // infinity: within the memory of one NUMA node; 0: not known
  std::string limit;   // "the link between processors", "eth0"
};

/// The ring and the tree over a plan's ranks in which the slowest edge is as fast as possible. Rates are modelled:
/// within a node by topology::best_path(), between nodes by the slower of the two network devices. This is what the
/// machines would allow, not what the exchange does: it sends from each rank to each owner.
struct RankOrders {
  RankOrder ring;
  RankOrder tree;
};

/// `machines` and `topologies`: for each node of the plan; several may be the same object; a null machine: the rates
/// between its NUMA nodes are not known. Up to 16 ranks are searched; with more, ranks stay in their order, and the
/// tree joins nodes by their leaders.
RankOrders rank_orders(const Plan& plan, std::span<const topology::Machine* const> machines,
                       std::span<const Topology* const> topologies);

/// As two lines for people.
std::string describe(const RankOrders& orders);

}  // namespace troupe
