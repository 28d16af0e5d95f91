#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/topology/machine.hpp"

namespace troupe::topology {

/// rates[i * n + j]: bytes per second from member i to member j of a collective; symmetric.
struct RateMatrix {
  std::size_t count = 0;
  std::vector<double> rates;
  double at(std::size_t i, std::size_t j) const { return rates[i * count + j]; }
};
/// Modelled rates between parts, over the best paths.
RateMatrix rates_between(const Index& index, std::span<const PartIndex> parts);

/// The order of all members in a ring, and the rate of its slowest edge (the last member is connected to the first).
struct Ring {
  std::vector<std::size_t> order;
  double slowest = 0;
  bool exact = true;  // no ring has a faster slowest edge; false: the search was stopped before that was certain
};
/// The ring whose slowest edge is the fastest: rates are tried from the highest, until a ring exists whose edges all
/// have at least that rate. Deterministic. Exact up to 8 members; with more, the search for each rate stops after about
/// 100,000 steps, and not every rate is tried where there are many.
Ring find_ring(const RateMatrix& rates);

/// A tree over all members from the first one, parent[0] = 0, whose slowest edge is the fastest (a maximum spanning
/// tree).
struct Tree {
  std::vector<std::size_t> parent;
  double slowest = 0;
};
Tree find_tree(const RateMatrix& rates);

}  // namespace troupe::topology
