#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apps/report/run_record.hpp"
#include "runtime/planning/cost_model.hpp"

namespace troupe::report {

/// A run for programs: report.json beside its page.
struct RunSummary {
  RunState state = RunState::running;
  std::string reason;  // why it failed
  std::string model;   // Plan::model; empty: it failed before there was a plan
  std::string device;
  std::vector<NodePlan> nodes;              // as Plan::nodes
  std::vector<std::uint32_t> node_of_rank;  // by rank
  std::uint64_t rows = 0;                   // of all ranks in a step, at the beginning
  std::uint64_t last_step = 0;              // steps so far, including those before the checkpoint from which it resumed
  std::uint64_t samples = 0;                // trained in this run by all ranks
  double elapsed_s = 0;
  double train_s = 0;              // without evaluation
  StreamTimes times;               // of rank 0, in this run; all zero: its device does not measure
  double loss_scale = 0;           // of the newest line; 0: the loss is not scaled
  std::string generated_text;      // the newest; empty: none
  std::vector<std::string> notes;  // as RunRecord::notes

  /// Means of this run's steps; with 0 steps there were none.
  MeasuredSteps measured() const;
  friend bool operator==(const RunSummary&, const RunSummary&) = default;
};

RunSummary summary_of(const RunRecord& record);

inline constexpr int kSummaryVersion = 1;
/// {"schema": "troupe.report", "version": 1, ...}; times in seconds.
std::string to_json(const RunSummary& summary);
/// Reads the output of to_json(); unknown keys are ignored. Throws Error{invalid}; the message begins with `source`.
RunSummary summary_from_json(std::string_view text, std::string_view source);
/// Reads a file. Throws as summary_from_json, and Error{environment} if it cannot be read.
RunSummary read_summary(const std::string& file);

/// The path of a page's summary: report.json beside report.html.
std::string summary_file(const std::string& page);

}  // namespace troupe::report
