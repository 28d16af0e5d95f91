#include "tools/rtrun/plan_json.hpp"

#include <nlohmann/json.hpp>

#include "runtime/base/detail/json.hpp"
#include "runtime/base/words.hpp"
#include "runtime/planning/detail/amounts.hpp"

namespace troupe::rtrun {
namespace {

using nlohmann::ordered_json;

constexpr double kMilli = 1e3;

std::string printed(const ordered_json& json) { return json_text(json, 1) + '\n'; }

/// {"ms": {"all": 7.8, "load": 0, ...}, "modelled": {"all": true, ...}}
ordered_json parts_json(const PredictedStep& step) {
  ordered_json ms{{"all", step.total() * kMilli}}, modelled{{"all", step.is_modelled()}};
  for (std::size_t i = 0; i < kStepParts; ++i) {
    const std::string name{name_of(static_cast<StepPart>(i))};
    ms[name] = step.seconds[i] * kMilli;
    modelled[name] = step.modelled[i];
  }
  return {{"ms", ms}, {"modelled", modelled}};
}

/// What follows the times: figures, sentences, remarks.
void add_basis(ordered_json& to, const PredictedJob& job) {
  to["figures"] = ordered_json::array();
  for (const UsedFigure& figure : job.prediction.figures)
    to["figures"].push_back(
        {{"what", figure.what}, {"value", figure.value}, {"unit", figure.unit}, {"modelled", figure.is_modelled}});
  to["basis"] = job.prediction.basis;
  for (const std::string& line : split(job.remarks, '\n'))
    to["basis"].push_back(line.starts_with("- ") ? line.substr(2) : line);
}

ordered_json step_json(const PredictedJob& job) {
  ordered_json step = parts_json(job.prediction.mean);
  step["samples_per_second"] = job.prediction.samples_per_second;
  step["phases"] = ordered_json::array();
  for (const PredictedPhase& phase : job.prediction.phases) {
    ordered_json& made = step["phases"].emplace_back(parts_json(phase.step));
    made["first"] = phase.first, made["steps"] = phase.steps, made["policies"] = phase.policies;
  }
  add_basis(step, job);
  return step;
}

ordered_json node_json(const NodePlan& node) {
  ordered_json gpus = ordered_json::array();
  for (const GpuUse& gpu : node.gpus)
    gpus.push_back({{"bus", gpu.bus}, {"model", gpu.model}, {"used_bytes", gpu.used}, {"memory_bytes", gpu.there}});
  return {{"host", node.host}, {"used_bytes", node.memory_used}, {"memory_bytes", node.memory_there}, {"gpus", gpus}};
}

ordered_json rank_json(const RankPlan& rank) {
  return {{"rank", rank.rank.value},
          {"node", rank.node},
          {"device", rank.device},
          {"gpu", rank.gpu},
          {"cpus", rank.cpus},
          {"network", rank.network_device},
          {"memory_bytes", rank.memory_bytes},
          {"gpu_bytes", rank.gpu_bytes}};
}

}  // namespace

std::string text_of(const GpuMemory& memory) {
  std::string out = "- Rank " + std::to_string(memory.rank.value) + " takes of its GPU's memory: ";
  for (std::size_t i = 0; i < memory.parts.size(); ++i)
    out += (i == 0 ? "" : ", ") + memory.parts[i].first + ' ' +
           detail::scaled(static_cast<double>(memory.parts[i].second), "B");
  return out + '\n';
}

std::string json_of(const Plan& plan, const std::optional<GpuMemory>& memory, const PredictedJob& job) {
  ordered_json out{{"schema", "troupe.plan"},
                   {"version", 1},
                   {"model", plan.model},
                   {"dtype", name_of(plan.dtype)},
                   {"parameters", plan.parameters},
                   {"batch", plan.batch},
                   {"ranks_in_all", plan.world_size()},
                   {"steps", plan.steps},
                   {"exchange", name_of(plan.levels)}};
  for (const NodePlan& node : plan.nodes) out["nodes"].push_back(node_json(node));
  for (const RankPlan& rank : plan.ranks) out["ranks"].push_back(rank_json(rank));
  if (memory) {
    ordered_json& parts = out["gpu_memory"] = {{"rank", memory->rank.value}, {"bytes", ordered_json::object()}};
    for (const auto& [name, bytes] : memory->parts) parts["bytes"][name] = bytes;
  }
  out["reasons"] = plan.reasons;
  out["step"] = step_json(job);
  return printed(out);
}

std::string json_of(const ComparedJob& job) {
  ordered_json out{{"schema", "troupe.compared_steps"}, {"version", 1}, {"steps", job.measured.steps}};
  out["predicted"] = parts_json(job.predicted.prediction.mean);
  ordered_json& ms = out["measured"]["ms"] = {{"all", job.measured.step_s * kMilli}};
  for (std::size_t i = 0; job.measured.has_parts && i < kStepParts; ++i)
    ms[std::string{name_of(static_cast<StepPart>(i))}] = job.measured.seconds[i] * kMilli;
  add_basis(out, job.predicted);
  return printed(out);
}

}  // namespace troupe::rtrun
