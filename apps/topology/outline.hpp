#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/topology/machine.hpp"

namespace troupe::topology {

/// One thing to show of a machine, with the things inside it or behind it.
struct Entry {
  enum class Kind : std::uint8_t {
    machine,
    package,
    group,
    memory,
    cache,
    cores,
    host_bridge,
    pci_switch,
    gpu,
    nic,
    disk,
    other
  };
  Kind kind = Kind::machine;
  PartIndex part = kRoot;
  std::string title;                  // "GPU 0", "switch 0000:10:00.0"
  std::vector<std::string> details;   // facts about it, the most important first
  std::vector<std::string> troubles;  // what is wrong with it
  std::uint32_t cores = 0;            // for kind cores
  std::vector<Entry> below;
};

/// The parts that a reader looks for: packages, memory, large caches, cores in groups, PCI switches (one entry for all
/// ports that hwloc lists), GPUs with links and health, NICs together with their virtual functions. `all`: every part
/// separately.
Entry outline(const Index& index, bool all = false);

/// Returns "24.0 GB/s"; empty for 0.
std::string rate_text(double bytes_per_second);

}  // namespace troupe::topology
