#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "apps/session/session.hpp"
#include "tools/rtrun/line_formats.hpp"
#include "tools/terminal/terminal.hpp"

namespace troupe::rtrun {

struct ConsoleOptions {
  bool quiet = false;        // only the last line
  bool json = false;         // only lines of JSON, including progress
  bool bar = false;          // `out` is a terminal
  std::size_t columns = 80;  // of that terminal
};

/// Shows a run at rank 0: ChainerMN's header and table, MXNet's or CNTK's lines, or lines of JSON, according to the
/// options and report.format; on a terminal also a progress bar. Threads: any, one call at a time; finish() after the
/// run.
class Console final : public SessionListener {
 public:
  /// `settings` and `out` outlive it.
  Console(const Settings& settings, std::ostream& out, ConsoleOptions options);

  void note(const std::string& text) override;
  void preparing(std::uint64_t done, std::uint64_t total, const std::string& what) override;
  void started(const Plan& plan, const std::string& device, const DataPlace& data) override;
  void progress(const RunProgress& progress) override;
  void epoch(const EpochReport& report) override;
  void steps(const StepsReport& part) override;
  /// Ranks begin to connect.
  void starting(std::uint32_t ranks);
  /// Prints the last line. Nothing if the run failed: its error follows.
  void finish(const RunResult& result);

 private:
  /// The lines of report.format, if it is another program's format.
  const LineFormat* lines() const { return options_.json ? nullptr : find_line_format(settings_.report.format); }
  bool json() const { return options_.json || settings_.report.format == "json"; }
  std::uint32_t epochs() const;
  void print(const std::string& text);
  std::string rows_of(const EpochReport& report);
  std::string lines_of(const EpochReport& report);
  const Settings& settings_;
  std::ostream& out_;
  ConsoleOptions options_;
  terminal::ProgressBar bar_;
  bool lost_ = false;  // something could not be printed
  std::uint64_t samples_per_step_ = 0;
  std::uint64_t steps_per_epoch_ = 0;
  LineFacts facts_;
  std::vector<std::string> values_;  // names under which the app has reported values, with a column each
  std::optional<EpochReport> best_;  // the one with the best accuracy in evaluation
};

/// The last line of JSON for a run that failed.
std::string failed_json(const std::string& error, int exit_code);

}  // namespace troupe::rtrun
