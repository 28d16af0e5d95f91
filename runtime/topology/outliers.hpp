#pragma once

#include <vector>

#include "runtime/topology/machine.hpp"
#include "runtime/topology/paths.hpp"

// What is clearly worse than its like: the doctor, the matrix and the outline all ask here, so that they agree.
namespace troupe::topology {

/// Which of `values` are below `share` of their median, where at least twice as many are not: of halves that differ
/// neither is the odd one, since machines are built that way.
std::vector<bool> clearly_below(const std::vector<double>& values, double share);

struct ShortOfLanes {
  PartIndex gpu = kNoPart;
  std::uint32_t lanes = 0;  // that are up, to all neighbours together
  std::uint32_t usual = 0;  // of most GPUs of its model
};
std::vector<ShortOfLanes> gpus_short_of_lanes(const Index& index);

/// A switch whose link towards the processor has less than half the rate of what it is compared with.
struct SlowSwitch {
  PartIndex part = kNoPart;
  PciLink faster;     // the link that it is compared with
  bool below = true;  // that is the fastest of a GPU or NIC behind it; false: of most other switches of its kind
};
std::vector<SlowSwitch> slow_switches(const Index& index);

/// Which of these ways deserve a second look: over a slow switch, over links with lanes down, or clearly below most of
/// the same class and the same kinds of parts at their ends. `ends`: of each path.
std::vector<bool> slow_paths(const Index& index, const std::vector<Path>& paths,
                             const std::vector<std::pair<PartIndex, PartIndex>>& ends);

}  // namespace troupe::topology
