#include "apps/report/run_summary.hpp"

#include <array>
#include <cmath>
#include <filesystem>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/base/detail/json.hpp"
#include "runtime/base/error.hpp"
#include "runtime/topology/reading.hpp"

namespace troupe::report {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kSummarySchema = "troupe.report";
constexpr std::array<std::string_view, 4> kStates{"running", "finished", "stopped", "failed"};
constexpr std::size_t kMostSummaryRanks = 1'000'000;
constexpr double kLongest_s = 1e9;  // more does not fit into nanoseconds

constexpr std::array<std::pair<std::string_view, StreamTimes::Span StreamTimes::*>, 7> kTimes{
    {{"load", &StreamTimes::load},
     {"compute", &StreamTimes::compute},
     {"update", &StreamTimes::update},
     {"copy", &StreamTimes::copy},
     {"exchange", &StreamTimes::exchange},
     {"evaluate", &StreamTimes::evaluate},
     {"idle", &StreamTimes::idle}}};

double in_seconds(StreamTimes::Span span) { return std::chrono::duration<double>(span).count(); }

/// Looks up values in an object, and reports values of a wrong kind.
class Keys {
 public:
  Keys(const ordered_json& from, std::string_view source) : from_(from), source_(source) {
    if (!from.is_object()) wrong("this", "an object");
  }
  void take(const char* key, std::string& value) const {
    if (const ordered_json* at = find(key)) {
      if (!at->is_string()) wrong(key, "a text");
      value = at->get<std::string>();
    }
  }
  void take(const char* key, double& value) const {
    if (const ordered_json* at = find(key)) {
      if (!at->is_number()) wrong(key, "a number");
      value = at->get<double>();
      if (!std::isfinite(value) || value < 0 || value > kLongest_s) wrong(key, "a number of seconds");
    }
  }
  template <class Number>
  void take_whole(const char* key, Number& value) const {
    if (const ordered_json* at = find(key)) {
      if (!at->is_number_unsigned() || !std::in_range<Number>(at->get<std::uint64_t>())) wrong(key, "a whole number");
      value = at->get<Number>();
    }
  }
  const ordered_json* list(const char* key) const {
    const ordered_json* at = find(key);
    if (at != nullptr && (!at->is_array() || at->size() > kMostSummaryRanks)) wrong(key, "a list");
    return at;
  }
  const ordered_json* find(const char* key) const {
    const auto at = from_.find(key);
    return at == from_.end() ? nullptr : &*at;
  }
  [[noreturn]] void wrong(const char* key, const char* wanted) const {
    fail(Code::invalid, text(source_, ": ", key, " is not ", wanted));
  }

 private:
  const ordered_json& from_;
  const std::string_view source_;
};

RunState state_of(const Keys& keys) {
  std::string word{kStates.front()};
  keys.take("state", word);
  for (std::size_t i = 0; i < kStates.size(); ++i)
    if (kStates[i] == word) return static_cast<RunState>(i);
  keys.wrong("state", "one of running, finished, stopped and failed");
}

}  // namespace

MeasuredSteps RunSummary::measured() const {
  MeasuredSteps measured;
  if (rows == 0 || samples < rows) return measured;
  measured.steps = samples / rows;
  const double steps = static_cast<double>(measured.steps);
  measured.step_s = train_s / steps;
  measured.has_parts = times.total() != StreamTimes::Span{};
  const std::array<StreamTimes::Span, kStepParts> spans{times.load, times.compute, times.update, times.copy,
                                                        times.exchange};
  for (std::size_t i = 0; i < kStepParts; ++i) measured.seconds[i] = in_seconds(spans[i]) / steps;
  return measured;
}

RunSummary summary_of(const RunRecord& record) {
  const TracePoint& last = record.trace.points().back();
  RunSummary summary;
  summary.state = record.state;
  summary.reason = record.reason;
  summary.device = record.device;
  summary.last_step = record.last.step;
  summary.samples = last.samples;
  summary.elapsed_s = last.elapsed_s;
  summary.train_s = last.train_s;
  summary.times = last.times;
  if (!record.epochs.empty()) summary.loss_scale = record.epochs.back().loss_scale;
  if (const EpochReport* line = newest_text(record)) summary.generated_text = line->generated_text;
  summary.notes = record.notes;
  if (!record.plan) return summary;
  summary.model = record.plan->model;
  summary.nodes = record.plan->nodes;
  for (const RankPlan& rank : record.plan->ranks) summary.node_of_rank.push_back(rank.node);
  summary.rows = std::uint64_t{record.plan->batch} * record.plan->world_size();
  return summary;
}

std::string to_json(const RunSummary& summary) {
  ordered_json nodes = ordered_json::array();
  for (const NodePlan& node : summary.nodes)
    nodes.push_back({{"host", node.host},
                     {"boot_id", node.identity.boot_id},
                     {"network_namespace", node.identity.network_namespace},
                     {"leader", node.leader}});
  ordered_json times = ordered_json::object();
  for (const auto& [name, member] : kTimes) times[std::string{name}] = in_seconds(summary.times.*member);
  ordered_json out{{"schema", kSummarySchema},
                   {"version", kSummaryVersion},
                   {"state", kStates.at(static_cast<std::size_t>(summary.state))},
                   {"reason", summary.reason},
                   {"model", summary.model},
                   {"device", summary.device},
                   {"nodes", nodes},
                   {"node_of_rank", summary.node_of_rank},
                   {"rows_per_step", summary.rows},
                   {"last_step", summary.last_step},
                   {"samples", summary.samples},
                   {"elapsed_s", summary.elapsed_s},
                   {"train_s", summary.train_s},
                   {"rank_0_s", times}};
  if (const MeasuredSteps steps = summary.measured(); steps.steps > 0) {
    ordered_json& mean = out["mean_step_ms"] = {{"all", steps.step_s * 1e3}};
    for (std::size_t i = 0; steps.has_parts && i < kStepParts; ++i)
      mean[std::string{name_of(static_cast<StepPart>(i))}] = steps.seconds[i] * 1e3;
  }
  if (summary.loss_scale > 0) out["loss_scale"] = summary.loss_scale;
  if (!summary.generated_text.empty()) out["generated_text"] = summary.generated_text;
  out["notes"] = summary.notes;
  return json_text(out, 1) + '\n';
}

RunSummary summary_from_json(std::string_view text, std::string_view source) {
  const ordered_json json = json_from(text);
  TROUPE_CHECK(!json.is_discarded(), Code::invalid, source,
               ": no JSON, or not all of it; every run writes such a file, report.json in report.dir");
  const Keys keys{json, source};
  std::string schema;
  keys.take("schema", schema);
  TROUPE_CHECK(schema == kSummarySchema, Code::invalid, source,
               ": this is not a run's report (its \"schema\" is not \"", kSummarySchema,
               "\"); every run writes one, report.json in report.dir");
  int version = 0;
  keys.take_whole("version", version);
  TROUPE_CHECK(version == kSummaryVersion, Code::invalid, source, ": written in version ", version, " of ",
               kSummarySchema, "; this build reads version ", kSummaryVersion);
  RunSummary summary;
  summary.state = state_of(keys);
  keys.take("reason", summary.reason), keys.take("model", summary.model), keys.take("device", summary.device);
  keys.take_whole("rows_per_step", summary.rows), keys.take_whole("last_step", summary.last_step);
  keys.take_whole("samples", summary.samples);
  keys.take("generated_text", summary.generated_text);
  keys.take("loss_scale", summary.loss_scale);
  keys.take("elapsed_s", summary.elapsed_s), keys.take("train_s", summary.train_s);
  if (const ordered_json* nodes = keys.list("nodes")) {
    for (const ordered_json& each : *nodes) {
      const Keys node{each, source};
      NodePlan& made = summary.nodes.emplace_back();
      node.take("host", made.host), node.take("boot_id", made.identity.boot_id);
      node.take_whole("network_namespace", made.identity.network_namespace), node.take_whole("leader", made.leader);
    }
  }
  if (const ordered_json* ranks = keys.list("node_of_rank")) {
    for (const ordered_json& each : *ranks) {
      if (!each.is_number_unsigned() || each.get<std::uint64_t>() >= summary.nodes.size())
        keys.wrong("node_of_rank", "a list of places in \"nodes\"");
      summary.node_of_rank.push_back(each.get<std::uint32_t>());
    }
  }
  if (const ordered_json* notes = keys.list("notes")) {
    for (const ordered_json& each : *notes) {
      if (!each.is_string()) keys.wrong("notes", "a list of texts");
      summary.notes.push_back(each.get<std::string>());
    }
  }
  if (const ordered_json* at = keys.find("rank_0_s")) {
    const Keys times{*at, source};
    for (const auto& [name, member] : kTimes) {
      double seconds = 0;
      times.take(std::string{name}.c_str(), seconds);
      summary.times.*member = std::chrono::nanoseconds{std::llround(seconds * 1e9)};
    }
  }
  return summary;
}

RunSummary read_summary(const std::string& file) { return summary_from_json(topology::read_topology_file(file), file); }

std::string summary_file(const std::string& page) {
  return std::filesystem::path{page}.replace_extension(".json").string();
}

}  // namespace troupe::report
