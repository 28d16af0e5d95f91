#pragma once

#include <string>

#include "runtime/base/blocking.hpp"
#include "runtime/topology/machine.hpp"

namespace troupe {

/// Where discover_machine() looks; tests use their own files.
struct MachineSources {
  std::string root;  // prefix of /sys, /proc and /dev
  /// NVIDIA's management library, by name or path; empty: do not look for GPUs with it.
  std::string nvml = "libnvidia-ml.so.1";
  Blocking* watch = nullptr;  // if not null, RDMA counters are read twice, 200 ms apart
};

/// Examines this host: parts from hwloc; GPUs, their links and states from NVML, matched by PCI bus id, if its library
/// exists; PCI links, NICs, RDMA ports and virtual functions from /sys; limits, settings and ranks from /proc.
/// Information that cannot be found is left out. Takes tens of milliseconds. Throws Error{environment} if hwloc fails.
topology::Machine discover_machine(const MachineSources& sources = {});

}  // namespace troupe
