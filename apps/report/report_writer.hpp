#pragma once

#include <functional>
#include <string>

#include "apps/report/run_record.hpp"
#include "apps/session/session.hpp"
#include "runtime/base/clock.hpp"

namespace troupe::report {

/// Keeps the page of a run (page_of), and beside it a summary for programs (run_summary.hpp), up to date in files: when
/// the plan is made, after every epoch, in long epochs every ten seconds, and at the end. A reader always finds the
/// complete old page or the complete new one. If epochs are so short that writing would take more than a twentieth of
/// the time, fewer are written. Used by rank 0. Threads: the session's, one call at a time; finish() and failed() after
/// the run.
class ReportWriter final : public SessionListener {
 public:
  /// `file`: the page's path; its folder exists. `warn` is called, once, if it cannot be written: that does not end the
  /// run.
  ReportWriter(const Configuration& configuration, std::string file, std::function<void(const std::string&)> warn);

  void note(const std::string& text) override;
  void started(const Plan& plan, const std::string& device, const DataPlace& data) override;
  void progress(const RunProgress& progress) override;
  void epoch(const EpochReport& line) override;
  /// The last page of a run that has ended, with or without an error.
  void finish(const RunResult& result);
  /// The only page of a run that could not begin.
  void failed(const std::string& reason);

 private:
  void write();
  std::string file_;
  std::function<void(const std::string&)> warn_;
  RunRecord record_;
  std::size_t notes_left_out_ = 0;
  Clock::time_point written_{};
  Clock::duration cost_{};  // of writing it last time
  bool warned_ = false;
};

/// Writes into the page at `file`, and into its summary, that the run failed, if it is the page of an unfinished run;
/// for a launcher whose ranks cannot do it any more. Reports no error.
void tell_failure(const std::string& file, const std::string& reason) noexcept;

}  // namespace troupe::report
