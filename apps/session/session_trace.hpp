#pragma once

#include <memory>
#include <string>

#include "runtime/base/trace.hpp"

namespace troupe {

/// The rows of one rank's trace, in display order; all are null if nothing is traced and no profiler is attached, which
/// sees the actors' rows also without a trace.
class SessionTrace {
 public:
  /// `file`: the file of the trace (report.trace); empty: there is no trace.
  explicit SessionTrace(const std::string& file);
  /// For actors. Null: as the rows.
  Trace* trace() noexcept { return trace_.get(); }
  /// For what measures spans only to keep them. Null: nothing is kept.
  Trace* kept() noexcept { return file_.empty() ? nullptr : trace_.get(); }
  /// Writes the trace of rank `rank` of `ranks` on `host`: to the file, or, if there are several ranks, to
  /// trace_part(file, rank). Returns a message for the user; empty: none. Never throws.
  std::string write(std::uint32_t rank, std::uint32_t ranks, const std::string& host) const noexcept;

  TraceRow* device_actor = nullptr;
  TraceRow* loader_actor = nullptr;
  TraceRow* membership_actor = nullptr;
  TraceRow* reporter_actor = nullptr;
  TraceRow* evaluator_actor = nullptr;
  TraceRow* checkpointer_actor = nullptr;
  TraceRow* balancer_actor = nullptr;
  TraceRow* step_coordinator = nullptr;
  TraceRow* files = nullptr;  // the thread that writes checkpoints
  TraceRow* compute = nullptr;
  TraceRow* node = nullptr;
  TraceRow* exchange = nullptr;
  TraceRow* side = nullptr;
  TraceRow* side_exchange = nullptr;
  TraceRow* bulk_lane = nullptr;
  TraceRow* control_lane = nullptr;

 private:
  const std::string file_;
  std::unique_ptr<Trace> trace_;
};

}  // namespace troupe
