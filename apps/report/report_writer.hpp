#pragma once

#include <functional>
#include <string>

#include "apps/report/run_record.hpp"
#include "apps/session/session.hpp"
#include "runtime/base/clock.hpp"

namespace troupe::report {

/// Keeps a page of a run (page_of), and beside it a summary for programs (run_summary.hpp), up to date in files: when
/// the plan stands, after every epoch, in long epochs every ten seconds, and at the end; each time a reader finds the
/// old page or the new one, whole. When epochs are so short that writing would take more than a twentieth of the time,
/// fewer are written. Rank 0's. Threads: the session's, one call at a time; finish() and failed() after the run.
class ReportWriter final : public SessionListener {
 public:
  /// `file`: where the page goes; its folder is there. `warn` is told, once, when it cannot be written: that ends no
  /// run.
  ReportWriter(const Configuration& configuration, std::string file, std::function<void(const std::string&)> warn);

  void note(const std::string& text) override;
  void started(const Plan& plan, const std::string& device, const DataPlace& data) override;
  void progress(const RunProgress& progress) override;
  void epoch(const EpochReport& line) override;
  /// The last page of a run that ended, however it did.
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
  Clock::duration cost_{};  // of writing it the last time
  bool warned_ = false;
};

/// Tells in the page at `file`, and in its summary, if there is one of a run that is not over, that the run failed; for
/// a launcher whose ranks cannot tell any more. Says nothing when it cannot.
void tell_failure(const std::string& file, const std::string& reason) noexcept;

}  // namespace troupe::report
