#pragma once

#include <string>

#include "runtime/base/blocking.hpp"
#include "runtime/topology/machine.hpp"

namespace troupe {

/// Where discover_machine() looks; tests put their own there.
struct MachineSources {
  std::string root;  // in front of /sys, /proc and /dev
  /// NVIDIA's management library, by name or path; empty: do not look for GPUs with it.
  std::string nvml = "libnvidia-ml.so.1";
  Blocking* watch = nullptr;  // if not null, look at RDMA counters twice, 200 ms apart
};

/// Looks at this host: parts from hwloc; GPUs, their links and states from NVML, joined by PCI bus id, where its
/// library is; PCI links, NICs, RDMA ports and virtual functions from /sys; limits, settings and ranks from /proc. What
/// cannot be looked up stays absent. Takes some tens of milliseconds. Throws Error{environment} when hwloc cannot.
topology::Machine discover_machine(const MachineSources& sources = {});

}  // namespace troupe
