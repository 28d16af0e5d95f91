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

/// A switch whose link to the processor has less than half the rate of another link, with which it is compared.
struct SlowSwitch {
  PartIndex part = kNoPart;
  PciLink faster;     // the other link
  bool below = true;  // it is the fastest of a GPU or NIC behind the switch; false: of most other switches of its kind
};
std::vector<SlowSwitch> slow_switches(const Index& index);

/// Which paths are slow: over a slow switch, over links with lanes down, or clearly below most paths of the same class
/// between the same kinds of parts. `ends`: of each path.
std::vector<bool> slow_paths(const Index& index, const std::vector<Path>& paths,
                             const std::vector<std::pair<PartIndex, PartIndex>>& ends);

}  // namespace troupe::topology
