#pragma once

#include <string>

#include "apps/topology/text_view.hpp"
#include "runtime/topology/measurements.hpp"

namespace troupe::topology {

/// The figures as tables: medians, with the minimum and maximum of the repeats; "!": clearly slower than similar ones.
std::string measured_text(const Measurements& figures);

/// Adds measurements to a table of memory nodes, and marks those that are clearly slower than similar ones: copies
/// within nodes are compared with each other, and so are those between nodes. Adds those between GPUs to a table of
/// GPUs. Other tables are not changed.
void add_measured(const Index& index, PathTable& table, const Measurements& figures);

}  // namespace troupe::topology
