#include "apps/session/process_placement.hpp"

#include <algorithm>
#include <cstdlib>

#include "devices/discovery/memory_binding.hpp"

namespace troupe {
namespace {

std::string ucx_names(const std::string& planned, const Topology& node, const std::string& transport) {
  const auto nic =
      std::find_if(node.nics.begin(), node.nics.end(), [&](const Nic& each) { return is_called(each, planned); });
  if (nic == node.nics.end()) return planned;
  if (nic->infiniband.empty()) return nic->name;
  if (nic->name.empty()) return rdma_name(*nic);
  return transport == "tcp" ? nic->name : rdma_name(*nic) + "," + nic->name;
}

}  // namespace

NetworkChoice network_choice(const Plan& plan, Rank self, const Topology& node, const Settings& settings,
                             const char* users) {
  if (users != nullptr) return {.by = NetworkChoice::By::user, .devices = {}, .users = users};
  if (plan.nodes.size() == 1) {
    const auto loopback =
        std::find_if(node.nics.begin(), node.nics.end(), [](const Nic& nic) { return nic.loopback && nic.up; });
    if (loopback == node.nics.end()) return {};
    return {.by = NetworkChoice::By::one_node, .devices = loopback->name, .users = {}};
  }
  const std::string& planned = plan.ranks.at(self.value).network_device;
  if (planned.empty() || settings.placement.affinity != "plan") return {};
  return {.by = NetworkChoice::By::plan, .devices = ucx_names(planned, node, settings.cluster.transport), .users = {}};
}

ProcessPlacement::ProcessPlacement(const Plan& plan, Rank self, const Topology& node, const Settings& settings)
    : rank_(plan.ranks.at(self.value)),
      network_(network_choice(plan, self, node, settings, std::getenv("UCX_NET_DEVICES"))) {
  if (settings.placement.affinity == "none") {
    rank_.cpus.clear();  // then lanes have no CPUs of their own
    return;
  }
  for (auto* const cpus : {&rank_.cpus, &rank_.control_cpus, &rank_.bulk_cpus}) *cpus = permitted_cpus(*cpus);
  // With one NUMA node there is no choice.
  if (settings.placement.affinity == "plan" && node.numa.size() > 1) memory_ = make_memory_binding(rank_.numa_nodes);
}

void ProcessPlacement::take_process() {
  has_process_ = true;
  keep_process_on(rank_.cpus);
  if (memory_) memory_->bind_thread(/*moves=*/true);
}

}  // namespace troupe
