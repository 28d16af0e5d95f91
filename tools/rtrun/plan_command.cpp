#include "tools/rtrun/plan_command.hpp"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>

#include "apps/models/models.hpp"
#include "apps/session/gpus.hpp"
#include "apps/session/session.hpp"
#include "apps/topology/plan_picture.hpp"
#include "apps/topology/text_view.hpp"
#include "devices/cuda/cuda_device.hpp"
#include "devices/discovery/discovery.hpp"
#include "devices/discovery/machine_discovery.hpp"
#include "runtime/base/new_file.hpp"
#include "runtime/planning/machine_topology.hpp"
#include "runtime/planning/planner.hpp"
#include "runtime/planning/rank_orders.hpp"
#include "tools/rtrun/plan_json.hpp"
#include "tools/rtrun/prediction.hpp"
#include "tools/rtrun/prepare.hpp"

namespace troupe::rtrun {
namespace {

/// A plan and its machines.
struct PlannedMachines {
  Plan plan;
  std::deque<topology::Machine> machines;  // one of each kind
  std::deque<Topology> topologies;
  std::vector<const topology::Machine*> machine_of;  // by node of the plan
  std::vector<const Topology*> topology_of;
};

bool names_machines(const CommandLine& line) {
  return !line.nodes.empty() || line.ranks != 0 || line.what_if.nodes != 0 || line.what_if.ranks != 0 ||
         line.what_if.gpus != 0;
}

/// With what NVML tells of GPUs only where ranks may compute on some.
topology::Machine this_host(bool with_gpus) {
  return with_gpus ? discover_machine() : discover_machine({.root = {}, .nvml = {}});
}

bool computes_on_gpus(const Plan& plan) {
  return std::ranges::any_of(plan.ranks, [](const RankPlan& rank) { return !rank.gpu.empty(); });
}

/// The plan that a run would make.
PlannedMachines plan_of_run(const Configuration& configuration) {
  PlannedMachines made;
  made.plan = preview(configuration, look_for_data(configuration), host_list(configuration));
  made.machines.push_back(this_host(computes_on_gpus(made.plan)));
  made.topologies.push_back(discover());
  made.machine_of.assign(made.plan.nodes.size(), &made.machines.front());
  made.topology_of.assign(made.plan.nodes.size(), &made.topologies.front());
  return made;
}

/// The kinds of machines that the command line names, or this host.
std::vector<MachineGroup> kinds_of(const CommandLine& line, const Settings& settings, PlannedMachines& made) {
  std::vector<MachineGroup> kinds;
  if (line.nodes.empty()) {
    Topology here = discover();
    here.accelerators = find_gpus(settings, here).gpus;
    made.machines.push_back(this_host(!here.accelerators.empty()));
    kinds.push_back({.source = "this host", .topology = std::move(here)});
    return kinds;
  }
  for (rttopo::Node& node : rttopo::nodes_of(line.nodes)) {
    rttopo::refuse_graphs(node);
    kinds.push_back({.source = node.source, .count = node.count, .topology = planning_topology(node.machine)});
    made.machines.push_back(std::move(node.machine));
  }
  return kinds;
}

/// A plan for machines from files, or for several machines like this one.
PlannedMachines plan_of_machines(const CommandLine& line, const Configuration& configuration) {
  const Settings& settings = configuration.settings;
  PlannedMachines made;
  const std::vector<MachineGroup> kinds = kinds_of(line, settings, made);
  ClusterRequest request{.ranks = line.ranks, .what_if = line.what_if};
  const HostList hosts = host_list(configuration);
  if (line.nodes.empty()) request.ranks_of_machine = settings.cluster.local;
  PlanInputs inputs = hypothetical_cluster(settings.placement, kinds, request);
  const DataFacts data = look_at_data(look_for_data(configuration));
  const Graph graph = build_model(settings, data.fields);
  inputs.train_samples = data.train_samples;
  inputs.test_samples = data.test_samples;
  inputs.data_bytes = data.size_bytes;
  inputs.cuda_refusal = cuda_refusal(graph, inputs.ranks.size());
  made.plan = make_plan(settings, graph, inputs);
  if (!hosts.hosts.empty() || (!line.nodes.empty() && settings.cluster.local != 0))
    made.plan.reasons.push_back(text("The machines and ranks are those of the command line; cluster.nodes (",
                                     hosts.hosts.empty() ? text("local:", settings.cluster.local) : describe(hosts),
                                     ") does not count here."));
  for (std::size_t k = 0; k < kinds.size(); ++k)
    if (topology::count(made.machines[k]).cores == 0)
      made.plan.reasons.push_back(kinds[k].source +
                                  " describes processors but no cores, so each processor counts as a core.");
  std::map<std::string, std::size_t> kind_of;  // by boot id
  for (const Topology& topology : inputs.topologies)
    for (std::size_t k = 0; k < kinds.size(); ++k)
      if (topology.identity.boot_id.starts_with(kinds[k].source + ", machine")) kind_of[topology.identity.boot_id] = k;
  for (const MachineGroup& kind : kinds) made.topologies.push_back(kind.topology);
  for (const NodePlan& node : made.plan.nodes) {
    const std::size_t kind = kind_of.at(node.identity.boot_id);
    made.machine_of.push_back(&made.machines[kind]);
    made.topology_of.push_back(&made.topologies[kind]);
  }
  return made;
}

/// The order of GPUs on each kind of machine that has ranks near GPUs.
std::string gpu_rings(const PlannedMachines& made) {
  std::string out;
  std::vector<const topology::Machine*> told;
  for (const RankPlan& rank : made.plan.ranks) {
    const topology::Machine* const machine = made.machine_of[rank.node];
    if (rank.accelerator.empty() || std::find(told.begin(), told.end(), machine) != told.end()) continue;
    told.push_back(machine);
    const topology::Index index{*machine};
    std::vector<topology::PartIndex> parts;
    for (const topology::Gpu& gpu : machine->gpus) parts.push_back(gpu.part);
    if (parts.size() < 2) continue;
    const topology::Ring ring = topology::find_ring(topology::rates_between(index, parts));
    out += text("GPUs     of node ", rank.node, ": ", topology::ring_text(index, parts, ring), '\n');
  }
  return out;
}

/// The rank that takes the most of a GPU's memory; nothing: none computes on one.
std::optional<GpuMemory> largest_gpu_memory(const PlannedMachines& made, const Graph& graph) {
  if (!computes_on_gpus(made.plan)) return std::nullopt;
  const auto rank = std::ranges::max_element(made.plan.ranks, {}, &RankPlan::gpu_bytes);
  return GpuMemory{rank->rank, gpu_memory_parts(made.plan, memory_needs(made.plan, graph, rank->rank))};
}

PredictedJob predicted_for(const CommandLine& line, const Configuration& configuration, const DataPlace& data,
                           const PlannedMachines& made) {
  std::vector<const topology::Machine*> machines;
  if (computes_on_gpus(made.plan))
    for (const topology::Machine& machine : made.machines) machines.push_back(&machine);
  return predicted(configuration, data, made.plan, {made.topology_of.front(), machines, !names_machines(line)},
                   line.figures);
}

std::string orders_text(const PlannedMachines& made, const RankOrders& orders) {
  const std::string lines = describe(orders) + gpu_rings(made);
  if (lines.empty()) return {};
  return "\nRing and tree whose slowest edge is the fastest, by modelled rates (the exchange uses neither):\n" + lines;
}

}  // namespace

void print_plan(const CommandLine& line, const Configuration& configuration, std::ostream& out) {
  const DataPlace data = look_for_data(configuration);
  if (!line.compare.empty()) {
    const ComparedJob job = compared(configuration, data, line.compare, line.figures);
    out << (line.json ? json_of(job) : compare(job.predicted.prediction, job.measured) + job.predicted.remarks);
    return;
  }
  const PlannedMachines made =
      names_machines(line) ? plan_of_machines(line, configuration) : plan_of_run(configuration);
  const RankOrders orders = rank_orders(made.plan, made.machine_of, made.topology_of);
  if (!line.picture.empty()) {
    if (!write_new_file(line.picture, plan_picture(made.plan, made.topology_of, orders))) out << line.picture << '\n';
    return;
  }
  const PredictedJob job = predicted_for(line, configuration, data, made);
  const auto memory = largest_gpu_memory(made, build_model(configuration.settings, look_at_data(data).fields));
  if (line.json) {
    out << json_of(made.plan, memory, job);
    return;
  }
  out << describe(made.plan) << (memory ? text_of(*memory) : "") << orders_text(made, orders)
      << describe(job.prediction) << job.remarks;
}

}  // namespace troupe::rtrun
