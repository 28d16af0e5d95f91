#include "tools/rtrun/prediction.hpp"

#include <algorithm>

#include "apps/models/models.hpp"
#include "apps/report/run_summary.hpp"
#include "devices/discovery/discovery.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/host_identity.hpp"
#include "runtime/planning/cost_model.hpp"
#include "runtime/planning/planner.hpp"

namespace troupe::rtrun {
namespace {

/// Measured figures: those of the file, or this host's if it `is_here`.
CostFigures find_figures(const std::string& file, const Topology& topology, bool is_here, std::string& trouble) {
  CostFigures figures{.measured = {}, .assumed = assumed_figures(topology)};
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
  for (const std::uint32_t node : run.node_of_rank)
    inputs.ranks.push_back({run.nodes[node].identity, run.nodes[node].host});
  inputs.train_samples = data.train_samples;
  inputs.test_samples = data.test_samples;
  inputs.data_bytes = data.size_bytes;
  return make_plan(settings, graph, inputs);
}

}  // namespace

std::string predicted_text(const Configuration& configuration, const DataPlace& data, const Plan& plan,
                           const Topology& node, bool is_here, const std::string& figures) {
  const Settings& settings = configuration.settings;
  if (std::ranges::any_of(plan.ranks, [](const RankPlan& rank) { return rank.device == "cuda"; }))
    return "\nNo step time is predicted: there are no figures for GPUs.\n";
  const Graph graph = build_model(settings, look_at_data(data).fields);
  std::string trouble;
  const CostFigures costs = find_figures(figures, node, is_here, trouble);
  if (is_here && std::any_of(plan.nodes.begin(), plan.nodes.end(),
                             [&](const NodePlan& other) { return other.identity.boot_id != node.identity.boot_id; }))
    trouble += text("- Other machines are taken to be as fast as ",
                    costs.measured.host.empty() ? "this one" : costs.measured.host, ".\n");
  return describe(predict(plan, graph, layout_of(settings, graph), costs, plan.steps)) + trouble;
}

std::string compared_text(const Configuration& configuration, const DataPlace& data, const std::string& report,
                          const std::string& figures) {
  const report::RunSummary run = report::read_summary(report);
  const MeasuredSteps measured = run.measured();
  TROUPE_CHECK(configuration.settings.placement.device != "cuda", Code::unsupported,
               "placement.device = \"cuda\": no step time is predicted that could be compared, since there are no "
               "figures for GPUs");
  TROUPE_CHECK(measured.steps > 0 && !run.node_of_rank.empty(), Code::invalid, report,
               ": this run has made no step yet; compare when it has");
  const Settings& settings = configuration.settings;
  const DataFacts facts = look_at_data(data);
  const Graph graph = build_model(settings, facts.fields);
  const Topology topology = discover();
  const Plan plan = plan_like(settings, graph, facts, topology, run);
  TROUPE_CHECK(plan.model == run.model, Code::invalid, report, " is of another job: its model is ", run.model,
               ", but the configuration's is ", plan.model);
  const std::uint64_t rows = std::uint64_t{plan.batch} * plan.world_size();
  TROUPE_CHECK(rows == run.rows, Code::invalid, report, " is of another job: its steps have ", run.rows,
               " rows of all ranks, but the configuration's have ", rows);
  std::string trouble;
  const CostFigures costs = find_figures(figures, topology, true, trouble);
  return compare(predict(plan, graph, layout_of(settings, graph), costs, measured.steps), measured) + trouble;
}

}  // namespace troupe::rtrun
