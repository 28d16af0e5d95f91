#pragma once

#include <string>

#include "apps/topology/text_view.hpp"
#include "runtime/topology/measurements.hpp"

namespace troupe::topology {

/// The figures as tables: medians, with the least and the most of the repeats; "!": clearly below its like.
std::string measured_text(const Measurements& figures);

/// Puts what was measured into a table of memory nodes, and marks what is clearly slower than its like: copies within
/// nodes are compared among each other, and so are those between nodes. Other tables stay as they are.
void add_measured(const Index& index, PathTable& table, const Measurements& figures);

}  // namespace troupe::topology
