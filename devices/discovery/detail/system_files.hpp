#pragma once

#include <string>

#include "runtime/base/blocking.hpp"
#include "runtime/topology/machine.hpp"

namespace troupe::detail {

// The information in files below `root`/sys, /proc and /dev. Missing files change nothing.

/// PCI links, present and possible, physical functions of virtual ones, ACS of bridges (readable by root only), IOMMU.
void add_pci_files(topology::Machine& machine, const std::string& root);
/// Rates, MTUs, drivers, firmware, ports and states of the machine's NICs; with `watch`, the counters that rise within
/// 200 ms.
void add_nic_files(topology::Machine& machine, const std::string& root, Blocking* watch);
/// Kernel, governor, NUMA balancing, modules, device files of GPUs.
void add_system_files(topology::Machine& machine, const std::string& root);
/// Processes that a launcher gave a rank (RANK, OMPI_COMM_WORLD_RANK, PMIX_RANK, SLURM_PROCID), if this user may
/// inspect them.
void add_ranks(topology::Machine& machine, const std::string& root);

}  // namespace troupe::detail
