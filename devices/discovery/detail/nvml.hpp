#pragma once

#include <string>

#include "runtime/topology/machine.hpp"

namespace troupe::detail {

/// Loads NVIDIA's management library at run time, and fills in GPUs, links and the driver's version. A GPU that
/// does not answer gets the state `lost`; a GPU that this user may not query gets `no_permission`. Does nothing
/// without the library or the driver. Declares the library's stable binary interface itself, so no header is needed to
/// build.
void add_nvml(topology::Machine& machine, const std::string& library);

}  // namespace troupe::detail
