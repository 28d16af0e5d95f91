#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/session/session.hpp"
#include "runtime/planning/topology.hpp"

namespace troupe {

/// What this process found of GPUs.
struct OwnGpus {
  std::vector<Accelerator> gpus;
  std::string note;  // for people: why GPUs are not used that somebody would expect to be; empty: nothing to tell
};

/// The GPUs that CUDA shows this process, with their places in `node`, if a rank of the job may compute on one:
/// otherwise no driver is opened. Throws Error{environment} with what to do where placement.device = "cuda" and there
/// are none.
OwnGpus find_gpus(const Settings& settings, const Topology& node);
/// NCCL's number of the version that this process can use, if ranks of the job may exchange over NCCL: it has GPUs, and
/// there are other ranks; otherwise 0, and no library is opened. Throws Error{environment} with what to do where
/// cluster.collectives asks for NCCL and there is none.
std::uint32_t find_nccl(const Settings& settings, const Topology& node, std::size_t ranks);
/// Whether ranks of a session may compute on GPUs: the app brings neither a device nor a model of its own. A program
/// that embeds a session may read its tensors, which a GPU's memory would hide, so there "auto" is the CPU.
bool may_use_gpus(const SessionOptions& options);

/// Adds to each of CUDA's GPUs what `known` ones of the same PCI bus id tell: name, NUMA node, NICs. Others are named
/// by their number.
std::vector<Accelerator> matched_by_bus(std::vector<Accelerator> cuda, const std::vector<Accelerator>& known);

}  // namespace troupe
