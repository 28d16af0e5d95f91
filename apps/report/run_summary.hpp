#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apps/report/run_record.hpp"
#include "runtime/planning/cost_model.hpp"

namespace troupe::report {

/// What programs want to know of a run: report.json beside its page.
struct RunSummary {
  RunState state = RunState::running;
  std::string reason;  // why it failed
  std::string model;   // Plan::model; empty: it failed before there was a plan
  std::string device;
  std::vector<NodePlan> nodes;              // as Plan::nodes
  std::vector<std::uint32_t> node_of_rank;  // by rank
  std::uint64_t rows = 0;                   // of all ranks in a step, at first
  std::uint64_t last_step = 0;              // steps so far, those before a checkpoint that it went on from included
  std::uint64_t samples = 0;                // trained in this run, all ranks
  double elapsed_s = 0;
  double train_s = 0;              // evaluation not counted
  StreamTimes times;               // rank 0's, in this run; all zero: its device does not measure
  std::vector<std::string> notes;  // as RunRecord::notes

  /// Means of this run's steps; 0 steps: there were none.
  MeasuredSteps measured() const;
  friend bool operator==(const RunSummary&, const RunSummary&) = default;
};

RunSummary summary_of(const RunRecord& record);

inline constexpr int kSummaryVersion = 1;
/// {"schema": "troupe.report", "version": 1, ...}; times in seconds.
std::string to_json(const RunSummary& summary);
/// Reads what to_json() wrote; keys that it does not know are skipped. Throws Error{invalid} with `source` in front.
RunSummary summary_from_json(std::string_view text, std::string_view source);
/// Of the file. Throws as summary_from_json, and Error{environment} when it cannot be read.
RunSummary read_summary(const std::string& file);

/// Where a page's summary is: report.json beside report.html.
std::string summary_file(const std::string& page);

}  // namespace troupe::report
