#pragma once

#include <string>

#include "runtime/topology/machine.hpp"
#include "runtime/topology/measurements.hpp"

namespace troupe {

/// Adds figures of the machine's GPUs and of the links between them that were not measured but follow from what the
/// machine's description says: for each GPU its peak rates, by the number of its cores, its clocks and the width of its
/// memory bus, otherwise by the data sheet of its model, otherwise those of a slow GPU; for each link the modelled
/// bandwidth of its path (topology/paths.hpp). GpuFigure::modelled_from says which. GPUs of other vendors are left out.
void add_modelled_gpus(const topology::Machine& machine, topology::Measurements& figures);

/// What is assumed of a GPU of which nothing is known, and of a path: PCI Express 3 x16.
topology::GpuFigure unknown_gpu(const std::string& bus, const std::string& model);
topology::GpuLinkFigure unknown_gpu_link(const std::string& from, const std::string& to);

}  // namespace troupe
