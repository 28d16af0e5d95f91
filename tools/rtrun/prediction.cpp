#include "tools/rtrun/prediction.hpp"

#include <algorithm>

#include "apps/models/models.hpp"
#include "apps/report/run_summary.hpp"
#include "apps/session/gpus.hpp"
#include "devices/cuda/cuda_device.hpp"
#include "devices/discovery/discovery.hpp"
#include "devices/discovery/machine_discovery.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/host_identity.hpp"
#include "runtime/planning/gpu_models.hpp"
#include "runtime/planning/planner.hpp"

namespace troupe::rtrun {
namespace {

/// Measured figures: those of the file, or this host's if it `is_here`.
CostFigures find_figures(const std::string& file, const PredictedMachines& machines, const Settings& settings,
                         std::string& trouble) {
  const bool is_here = machines.is_here;
  CostFigures figures{.measured = {}, .assumed = assumed_figures(*machines.node), .tf32 = settings.model.tf32};
  for (const topology::Machine* const machine : machines.machines) add_modelled_gpus(*machine, figures.assumed);
  if (!file.empty()) {
    const auto read = topology::read_measurements(file);
    TROUPE_CHECK(read, Code::invalid, file, ": there is no such file; `rttopo bench --out ", file, "` makes it");
    figures.measured = *read;
    return figures;
  }
  if (!is_here) return figures;
  try {  // figures that the user did not name must not make the plan fail
    if (const auto read = topology::read_measurements(topology::measurements_file(host_name())))
      figures.measured = *read;
  } catch (const Error& error) {
    trouble = text("- ", error.what(), "; `rttopo bench` makes it again\n");
  }
  return figures;
}

/// The plan that the run's ranks had: nodes and ranks from the report, each node like this one.
Plan plan_like(const Settings& settings, const Graph& graph, const DataFacts& data, const Topology& topology,
               const report::RunSummary& run) {
  PlanInputs inputs;
  for (const NodePlan& node : run.nodes) {
    Topology& like_this = inputs.topologies.emplace_back(topology);
    like_this.identity = node.identity;
    like_this.host = node.host;
  }
  const std::uint32_t nccl = find_nccl(settings, topology, run.node_of_rank.size());
  for (const std::uint32_t node : run.node_of_rank)
    inputs.ranks.push_back({run.nodes[node].identity, run.nodes[node].host, topology.accelerators, nccl});
  inputs.cuda_refusal = cuda_refusal(graph, inputs.ranks.size());
  inputs.train_samples = data.train_samples;
  inputs.test_samples = data.test_samples;
  inputs.data_bytes = data.size_bytes;
  return make_plan(settings, graph, inputs);
}

}  // namespace

PredictedJob predicted(const Configuration& configuration, const DataPlace& data, const Plan& plan,
                       const PredictedMachines& machines, const std::string& figures) {
  const Settings& settings = configuration.settings;
  const Graph graph = build_model(settings, look_at_data(data).fields);
  PredictedJob job;
  const CostFigures costs = find_figures(figures, machines, settings, job.remarks);
  const std::string& boot_id = machines.node->identity.boot_id;
  if (machines.is_here &&
      std::ranges::any_of(plan.nodes, [&](const NodePlan& other) { return other.identity.boot_id != boot_id; }))
    job.remarks += text("- Other machines are assumed to be as fast as ",
                        costs.measured.host.empty() ? "this one" : costs.measured.host, ".\n");
  job.prediction = predict(plan, graph, layout_of(settings, graph), costs, plan.steps);
  return job;
}

ComparedJob compared(const Configuration& configuration, const DataPlace& data, const std::string& report,
                     const std::string& figures) {
  const report::RunSummary run = report::read_summary(report);
  ComparedJob job{.predicted = {}, .measured = run.measured()};
  TROUPE_CHECK(job.measured.steps > 0 && !run.node_of_rank.empty(), Code::invalid, report,
               ": this run has made no step yet; compare after its first steps");
  const Settings& settings = configuration.settings;
  const DataFacts facts = look_at_data(data);
  const Graph graph = build_model(settings, facts.fields);
  Topology topology = discover();
  topology.accelerators = find_gpus(settings, topology).gpus;
  const topology::Machine machine = discover_machine();
  const Plan plan = plan_like(settings, graph, facts, topology, run);
  TROUPE_CHECK(plan.model == run.model, Code::invalid, report, " is of another job: its model is ", run.model,
               ", but the configuration's is ", plan.model);
  const std::uint64_t rows = std::uint64_t{plan.batch} * plan.world_size();
  TROUPE_CHECK(rows == run.rows, Code::invalid, report, " is of another job: its steps have ", run.rows,
               " rows of all ranks, but the configuration's have ", rows);
  const topology::Machine* const here = &machine;
  const CostFigures costs = find_figures(figures, {&topology, {&here, 1}, true}, settings, job.predicted.remarks);
  job.predicted.prediction = predict(plan, graph, layout_of(settings, graph), costs, job.measured.steps);
  return job;
}

}  // namespace troupe::rtrun
