#include "apps/session/session_trace.hpp"

#include <cstdio>
#include <exception>
#include <fstream>

#include "devices/cuda/profiler.hpp"
#include "runtime/base/error.hpp"

namespace troupe {

SessionTrace::SessionTrace(const std::string& file) : file_(file) {
  RangeListener* const profiler = attached_profiler();
  if (file.empty() && profiler == nullptr) return;
  // For a profiler alone nothing is kept, and streams and lanes measure nothing.
  trace_ = std::make_unique<Trace>(file.empty() ? 0 : Trace::kMostSpans, profiler);
  const auto measured = [&](const char* name) { return file.empty() ? nullptr : &trace_->row(name); };
  device_actor = &trace_->row("Device");
  loader_actor = &trace_->row("Loader");
  compute = measured("compute stream");
  node = measured("node's stream");
  exchange = measured("exchange's stream");
  side = measured("second stream");
  side_exchange = measured("second stream's exchange");
  bulk_lane = measured("bulk lane");
  control_lane = measured("control lane");
  membership_actor = &trace_->row("Membership");
  reporter_actor = &trace_->row("Reporter");
  evaluator_actor = &trace_->row("Evaluator");
  checkpointer_actor = &trace_->row("Checkpointer");
  files = &trace_->row("files thread");
  balancer_actor = &trace_->row("Balancer");
  step_coordinator = &trace_->row("StepCoordinator");
}

std::string SessionTrace::write(std::uint32_t rank, std::uint32_t ranks, const std::string& host) const noexcept {
  if (file_.empty()) return {};
  try {
    const std::string file = ranks == 1 ? file_ : trace_part(file_, rank);
    std::ofstream out{file};
    trace_->write(out, rank, text("rank ", rank, " on ", host));
    out.close();
    if (!out && ranks > 1) std::remove(file.c_str());  // the launcher would join what is there of it
    if (!out)
      return text("the trace could not be written to ", file, "; is there room, and may this user write there?");
    if (trace_->is_full()) return text("the trace is full: ", file, " has the beginning of the run");
    return {};
  } catch (const std::exception& error) {
    return text("the trace could not be written: ", error.what());
  }
}

}  // namespace troupe
