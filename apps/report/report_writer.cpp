#include "apps/report/report_writer.hpp"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <utility>

#include "apps/report/page.hpp"
#include "apps/report/run_summary.hpp"
#include "runtime/base/new_file.hpp"

namespace troupe::report {
namespace {

constexpr std::chrono::seconds kWriteEvery{10};
constexpr int kTimesItsCost = 20;
constexpr std::size_t kMostNotes = 100;

void replace_file(const std::string& path, const std::string& text) {
  refuse_special_file(path);
  write_new_file(path, text);
}

}  // namespace

ReportWriter::ReportWriter(const Configuration& configuration, std::string file,
                           std::function<void(const std::string&)> warn)
    : file_(std::move(file)), warn_(std::move(warn)) {
  record_.begun = std::chrono::system_clock::now();
  record_.configuration = configuration.file;
  record_.settings = configuration.values;
}

void ReportWriter::note(const std::string& text) {
  if (record_.notes.size() < kMostNotes) return record_.notes.push_back(text);
  record_.notes.back() = fmt::format("{} more notes, the last: {}", ++notes_left_out_, text);
}

void ReportWriter::started(const Plan& plan, const std::string& device, const DataPlace& data) {
  record_.plan = plan;
  record_.device = device;
  record_.data = data.description;
  record_.last.steps = plan.steps;
  write();
}

void ReportWriter::progress(const RunProgress& progress) {
  record_.last = progress;
  record_.trace.add({progress.elapsed_s, progress.train_s, progress.samples, progress.times});
  if (Clock::now() - written_ >= kWriteEvery) write();
}

void ReportWriter::epoch(const EpochReport& line) {
  add_epoch(record_.epochs, line);
  record_.trace.add({line.elapsed_s, line.train_s, line.samples, line.times});
  record_.last.step = line.steps;
  record_.last.loss = line.loss;
  if (Clock::now() - written_ >= kTimesItsCost * cost_) write();
}

void ReportWriter::finish(const RunResult& result) {
  record_.state = !result.status.ok() ? RunState::failed : result.stopped ? RunState::stopped : RunState::finished;
  if (!result.status.ok()) record_.reason = result.status.text();
  if (result.total.steps > record_.last.step) record_.last.step = result.total.steps;
  record_.trace.add({result.total.elapsed_s, result.total.train_s, result.total.samples, result.total.times});
  write();
}

void ReportWriter::failed(const std::string& reason) {
  record_.state = RunState::failed;
  record_.reason = reason;
  write();
}

void ReportWriter::write() {
  const auto begun = Clock::now();
  record_.written = std::chrono::system_clock::now();
  try {
    replace_file(file_, page_of(record_));
    replace_file(summary_file(file_), to_json(summary_of(record_)));
  } catch (const Error& error) {
    if (!std::exchange(warned_, true))
      warn_(fmt::format(
          "warning: {}; training continues without the report: free some room there, or set report.dir to a "
          "folder that can be written",
          error.what()));
  }
  written_ = Clock::now();
  cost_ = written_ - begun;
}

void tell_failure(const std::string& file, const std::string& reason) noexcept {
  try {
    refuse_special_file(file);
    refuse_special_file(summary_file(file));
    std::ifstream in{file, std::ios::binary};
    const std::string page{std::istreambuf_iterator<char>{in}, {}};
    const auto told = failed_page(page, reason);
    if (!told) return;
    replace_file(file, *told);
    RunSummary summary = read_summary(summary_file(file));
    summary.state = RunState::failed;
    summary.reason = reason;
    replace_file(summary_file(file), to_json(summary));
  } catch (const std::exception&) {
    // The file could not be written. This is not reported: it belongs to a failure that is reported anyway.
  }
}

}  // namespace troupe::report
