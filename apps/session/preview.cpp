#include <algorithm>

#include "apps/models/models.hpp"
#include "apps/session/gpus.hpp"
#include "apps/session/session.hpp"
#include "devices/cuda/cuda_device.hpp"
#include "devices/discovery/discovery.hpp"
#include "runtime/planning/planner.hpp"

namespace troupe {

namespace {

/// Adds a host's ranks, and its topology if it is another machine.
void add_host(PlanInputs& inputs, const HostSlots& host, std::uint32_t nccl) {
  Topology topology = inputs.topologies.front();
  if (!names_this_machine(host.name)) {
    topology.host = host.name;
    topology.identity = {text("unknown-", host.name), 0};
    inputs.topologies.push_back(topology);
  }
  inputs.ranks.insert(inputs.ranks.end(), host.slots,
                      RankFacts{topology.identity, topology.host, topology.accelerators, nccl});
}

}  // namespace

Plan preview(const Configuration& configuration, const DataPlace& place, const HostList& hosts) {
  const Settings& settings = configuration.settings;
  const DataFacts data = look_at_data(place);
  const Graph graph = build_model(settings, data.fields);
  Topology topology = discover();
  topology.accelerators = find_gpus(settings, topology).gpus;
  PlanInputs inputs;
  inputs.topologies = {topology};
  std::size_t slots = 0;
  for (const HostSlots& host : hosts.hosts) slots += host.slots;
  const std::size_t ranks = hosts.hosts.empty() ? std::max(1u, settings.cluster.local) : slots;
  const std::uint32_t nccl = find_nccl(settings, topology, ranks);
  for (const HostSlots& host : hosts.hosts) add_host(inputs, host, nccl);
  if (hosts.hosts.empty())
    inputs.ranks.resize(ranks, RankFacts{topology.identity, topology.host, topology.accelerators, nccl});
  inputs.cuda_refusal = cuda_refusal(graph, inputs.ranks.size());
  inputs.train_samples = data.train_samples;
  inputs.test_samples = data.test_samples;
  inputs.data_bytes = data.size_bytes;
  const std::size_t others = inputs.topologies.size() - 1;
  const bool has_this = std::any_of(inputs.ranks.begin(), inputs.ranks.end(),
                                    [&](const RankFacts& rank) { return rank.node == topology.identity; });
  if (!has_this) inputs.topologies.erase(inputs.topologies.begin());
  // A run that resumes may have had another number of ranks before, and with it other steps.
  if (settings.checkpoint.resume == "never") check_order_of_switches(settings, inputs);
  Plan plan = make_plan(settings, graph, inputs);
  if (others > 0)
    plan.reasons.push_back(text("Other machines were not examined: ", others, others == 1 ? " is" : " are",
                                " assumed to be like this one."));
  return plan;
}

}  // namespace troupe
