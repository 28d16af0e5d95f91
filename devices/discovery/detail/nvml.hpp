#pragma once

#include <string>

#include "runtime/topology/machine.hpp"

namespace troupe::detail {

/// Opens NVIDIA's management library at run time, and fills in GPUs, links and the driver's version. A GPU that does
/// not answer is found with state lost, one that may not be asked with no_permission. Does nothing when there is no
/// such library or driver. Takes its own declarations of the library's stable binary interface: no header is needed to
/// build.
void add_nvml(topology::Machine& machine, const std::string& library);

}  // namespace troupe::detail
