#pragma once

#include <string>

#include "runtime/base/blocking.hpp"
#include "runtime/topology/machine.hpp"

namespace troupe::detail {

// What files below `root`/sys, /proc and /dev tell. Nothing is changed where a file is not there.

/// PCI links now and possible, physical functions of virtual ones, ACS of bridges (only root may read it), IOMMU.
void add_pci_files(topology::Machine& machine, const std::string& root);
/// Rates, MTUs, drivers, firmware, ports and states of NICs that the machine has; with `watch`, which counters rise
/// within 200 ms.
void add_nic_files(topology::Machine& machine, const std::string& root, Blocking* watch);
/// Kernel, governor, NUMA balancing, modules, device files of GPUs.
void add_system_files(topology::Machine& machine, const std::string& root);
/// Processes that a launcher gave a rank (RANK, OMPI_COMM_WORLD_RANK, PMIX_RANK, SLURM_PROCID), as far as this user may
/// look at them.
void add_ranks(topology::Machine& machine, const std::string& root);

}  // namespace troupe::detail
