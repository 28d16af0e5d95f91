#pragma once

#include <vector>

#include "runtime/topology/machine.hpp"
#include "runtime/topology/paths.hpp"

// Parts that are clearly worse than others of their kind. The doctor, the matrix and the outline all use this.
namespace troupe::topology {

/// Which of `values` are below `share` of their median, if at least twice as many are not. If one half is lower than
/// the other, neither is an outlier, because machines are built like that.
std::vector<bool> clearly_below(const std::vector<double>& values, double share);

struct ShortOfLanes {
  PartIndex gpu = kNoPart;
  std::uint32_t lanes = 0;  // lanes that are up, to all neighbours together
  std::uint32_t usual = 0;  // lanes of most GPUs of its model
};
std::vector<ShortOfLanes> gpus_short_of_lanes(const Index& index);

/// Whether the part stands for a whole PCI switch. Of hwloc's bridges, counted from the top, every second one does: it
/// is a switch's port toward the processor.
bool is_switch(const Machine& machine, PartIndex part);

/// A switch or port whose PCI link is clearly slower than another link, with which it is compared: a switch's link to
/// the processor, or a port's to the next switch, has less than half of the other link's rate; a port directly above
/// a GPU or NIC has less than that device, though both are ends of one link.
struct SlowBridge {
  PartIndex part = kNoPart;
  PciLink faster;         // the other link
  bool below = true;      // it is the fastest of a GPU or NIC behind it; false: of most other switches of its kind
  std::size_t peers = 0;  // bridges at its depth, itself included, with a like device behind them
};
/// The slowest first. Of the two ends of a link between bridges, the lower one stands for both unless the upper one is
/// slower.
std::vector<SlowBridge> slow_bridges(const Index& index);

/// Which paths are slow: over the link of a slow bridge, over links with lanes down, or clearly below most paths of the
/// same class between the same kinds of parts. `ends`: of each path.
std::vector<bool> slow_paths(const Index& index, const std::vector<Path>& paths,
                             const std::vector<std::pair<PartIndex, PartIndex>>& ends);

}  // namespace troupe::topology
