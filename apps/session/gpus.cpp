#include "apps/session/gpus.hpp"

#include <algorithm>

#include "devices/cuda/cuda_device.hpp"
#include "devices/discovery/machine_discovery.hpp"
#include "runtime/planning/machine_topology.hpp"
#include "transports/nccl/nccl_communicator.hpp"

namespace troupe {
namespace {

/// The GPUs of this machine with NUMA nodes as indices of `node`.
std::vector<Accelerator> known_gpus(const Topology& node) {
  const Topology machine = planning_topology(discover_machine());
  std::vector<Accelerator> gpus = machine.accelerators;
  for (Accelerator& gpu : gpus) {
    if (gpu.numa < 0) continue;
    const std::uint32_t os_index = machine.numa[static_cast<std::size_t>(gpu.numa)].os_index;
    const auto here = std::ranges::find(node.numa, os_index, &NumaNode::os_index);
    gpu.numa = here == node.numa.end() ? -1 : static_cast<std::int32_t>(here - node.numa.begin());
  }
  return gpus;
}

}  // namespace

std::vector<Accelerator> matched_by_bus(std::vector<Accelerator> cuda, const std::vector<Accelerator>& known) {
  std::size_t number = 0;
  for (Accelerator& gpu : cuda) {
    const auto found = std::ranges::find(known, gpu.bus, &Accelerator::bus);
    gpu.name = known.empty() ? text("GPU ", number) : text("GPU ", number, " of CUDA");  // not one of the known names
    ++number;
    if (found == known.end()) continue;
    gpu.name = found->name;
    gpu.numa = found->numa;
    gpu.nearest_nics = found->nearest_nics;
  }
  return cuda;
}

bool may_use_gpus(const SessionOptions& options) {
  const std::string& device = options.configuration.settings.placement.device;
  return (device == "cuda" || (device == "auto" && options.owns_process)) && !options.make_device && !options.model;
}

OwnGpus find_gpus(const Settings& settings, const Topology& node) {
  OwnGpus own;
  if (settings.placement.device == "cpu") return own;
  const CudaGpus found = find_cuda_gpus();
  if (found.gpus.empty()) {
    const std::string why{found.refusal.text()};
    TROUPE_CHECK(settings.placement.device != "cuda", found.refusal.code(), "placement.device = \"cuda\": ", why);
    if (!found.is_absent) own.note = text("GPUs are not used: ", why);
    return own;
  }
  for (const CudaGpu& gpu : found.gpus) {
    Accelerator& made = own.gpus.emplace_back();
    made.model = gpu.model;
    made.memory_bytes = gpu.memory_bytes;
    made.bus = gpu.bus;
    made.vendor = "nvidia";
    made.cuda = true;
    made.exclusive = gpu.exclusive;
    made.reaches = gpu.reaches;
  }
  own.gpus = matched_by_bus(std::move(own.gpus), known_gpus(node));
  return own;
}

std::uint32_t find_nccl(const Settings& settings, const Topology& node, std::size_t ranks) {
  const std::string& wanted = settings.cluster.collectives;
  if (wanted == "own" || node.accelerators.empty() || ranks < 2) return 0;
  const FoundNccl found = find_nccl();
  TROUPE_CHECK(wanted == "auto" || found.version != 0, Code::environment, "cluster.collectives = \"", wanted,
               "\": ", found.why);
  return found.version;
}

}  // namespace troupe
