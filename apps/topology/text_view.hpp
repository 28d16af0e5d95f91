#pragma once

#include <span>
#include <string>
#include <vector>

#include "apps/topology/outline.hpp"
#include "runtime/topology/paths.hpp"
#include "runtime/topology/rings_and_trees.hpp"

namespace troupe::topology {

/// Prints the outline as an indented tree; `color`: with terminal control sequences, written as control().
void print_tree(const Entry& outline, bool color, std::ostream& out);

/// The paths between all members of one kind and all of another.
struct PathTable {
  std::string title;  // "GPU x GPU"
  std::vector<PartIndex> rows;
  std::vector<PartIndex> columns;
  std::vector<Path> paths;               // row by row
  std::vector<std::uint64_t> distances;  // NUMA x NUMA: the firmware's values, 10 is near; empty: unknown
  std::vector<bool> slow;                // below 70 % of the median of its class
  std::vector<double> measured;          // bytes per second, row by row, 0: not measured; empty: nothing was measured
};
inline constexpr const char* kGpus = "GPU x GPU";
inline constexpr const char* kGpusAndNics = "GPU x NIC";
/// More cells than these are no table that somebody reads, and take much time and memory.
inline constexpr std::size_t kMostCells = 65'536;
/// GPU x GPU, GPU x NIC and NUMA x NUMA, for the kinds that exist, without tables that are too large.
std::vector<PathTable> path_tables(const Index& index);
/// A line for each table that is too large; empty: none is.
std::string left_out_text(const Index& index);
/// Names those of the GPUs with NVLink or xGMI lanes that no path uses, because their other end is not in the
/// description; empty: there are none.
std::string unknown_ends_text(const Index& index, const std::vector<PartIndex>& gpus);
/// What to keep in mind of paths between GPUs where the description has neither NVLink nor xGMI; empty: it has some.
std::string no_links_text(const Index& index);
/// Prints a line per row; `color`: marks slow paths.
void print_table(const Index& index, const PathTable& table, bool color, std::ostream& out);
/// The classes and marks that occur in the tables, with their meanings; empty: there are no tables.
std::string legend_text(const std::vector<PathTable>& tables);
/// Returns "GPU 0 - GPU 1 - GPU 0", with the slowest edge.
std::string ring_text(const Index& index, const std::vector<PartIndex>& members, const Ring& ring);

}  // namespace troupe::topology
