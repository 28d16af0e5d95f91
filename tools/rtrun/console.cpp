#include "tools/rtrun/console.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/session/run_log.hpp"
#include "runtime/base/detail/json.hpp"
#include "runtime/base/words.hpp"
#include "tools/rtrun/messages.hpp"
#include "tools/rtrun/progress_text.hpp"
#include "tools/rtrun/table.hpp"

namespace troupe::rtrun {
namespace {

double samples_per_s(const RunTotal& total) {
  return total.train_s > 0 ? static_cast<double>(total.samples) / total.train_s : 0;
}

/// One line; bytes that are not UTF-8, for example in a path, do not make it fail.
std::string text_of(const nlohmann::ordered_json& json) { return json_text(json) + "\n"; }

std::string last_line(const RunResult& result, const EpochReport* best, const std::string& folder) {
  if (result.total.samples == 0 && !result.stopped)
    return fmt::format("Nothing to train: all {} steps were done before, results in {}\n", grouped(result.total.steps),
                       folder);
  std::string line = result.reason.empty() ? std::string{} : result.reason + "\n";
  line += fmt::format("{} {} steps in {:.1f} s: {} samples/s", result.stopped ? "Stopped after" : "Trained",
                      grouped(result.total.steps), result.total.elapsed_s,
                      grouped(static_cast<std::uint64_t>(samples_per_s(result.total))));
  if (best != nullptr) line += fmt::format(", best test accuracy {:.4f} (epoch {})", *best->test_accuracy, best->epoch);
  return line + fmt::format(", results in {}\n", folder);
}

std::string last_json(const RunResult& result, const EpochReport* best, const std::string& folder) {
  nlohmann::ordered_json line{{"event", "finished"},
                              {"status", result.stopped ? "stopped" : "finished"},
                              {"iteration", result.total.steps},
                              {"elapsed_time", result.total.elapsed_s},
                              {"samples_per_s", samples_per_s(result.total)}};
  if (best != nullptr) {
    line["best/validation/main/accuracy"] = *best->test_accuracy;
    line["best/epoch"] = best->epoch;
  }
  if (!result.reason.empty()) line["reason"] = result.reason;
  line["results"] = folder;
  return text_of(line);
}

std::string progress_json(const RunProgress& progress) {
  return text_of({{"event", "progress"},
                  {"iteration", progress.step},
                  {"iterations", progress.steps},
                  {"samples", progress.samples},
                  {"samples_per_s", progress.samples_per_s},
                  {"loss", progress.loss},
                  {"elapsed_time", progress.elapsed_s}});
}

/// With LogReport's names, after the kind of line.
std::string epoch_line(const EpochReport& report) {
  nlohmann::ordered_json line{{"event", "epoch"}};
  line.update(json_from(epoch_json(report)));
  return text_of(line);
}

/// A generated text, each of its lines behind a bar.
std::string text_lines(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    out += fmt::format("    | {}\n", text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace

Console::Console(const Settings& settings, std::ostream& out, ConsoleOptions options)
    : settings_(settings),
      out_(out),
      options_(options),
      bar_(out, options.bar && !options.quiet && !json(), options.columns) {}

void Console::print(const std::string& text) {
  bar_.clear();
  if (out_ << text << std::flush) return;
  if (!std::exchange(lost_, true))
    say("warning: stdout cannot be written; training continues without it, and ends with exit code 3");
}

void Console::note(const std::string& text) {
  bar_.clear();
  say(text);
}

void Console::preparing(std::uint64_t done, std::uint64_t total, const std::string& what) {
  bar_.draw(what, total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0,
            fmt::format("{}/{}", grouped(done), grouped(total)));
}

void Console::starting(std::uint32_t ranks) {
  const double patience = std::chrono::duration<double>(settings_.faults.start).count();
  bar_.say(fmt::format("starting {} rank{} (faults.start_s = {:g})", ranks, ranks == 1 ? "" : "s", patience));
}

void Console::started(const Plan& plan, const std::string& device, const DataPlace& data) {
  samples_per_step_ = std::uint64_t{plan.batch} * plan.world_size();
  if (samples_per_step_ > 0) steps_per_epoch_ = (plan.train_samples + samples_per_step_ - 1) / samples_per_step_;
  facts_.epochs = epochs();
  facts_.test_samples = plan.test_samples;
  if (samples_per_step_ > 0) facts_.test_batches = (plan.test_samples + samples_per_step_ - 1) / samples_per_step_;
  if (options_.quiet) return;
  if (json()) {
    const nlohmann::ordered_json line{{"event", "started"},
                                      {"ranks", plan.world_size()},
                                      {"device", device},
                                      {"communicator", name_of(plan.levels)},
                                      {"model", plan.model},
                                      {"dtype", name_of(plan.dtype)},
                                      {"batch", plan.batch},
                                      {"steps", plan.steps},
                                      {"seed", plan.seed},
                                      {"data", data.description},
                                      {"plan", fmt::format("{:016x}", plan.hash())}};
    return print(text_of(line));
  }
  print(fmt::format("Data: {}\nDevice: {}\n{}{}", data.description, device, job_header(settings_, plan),
                    lines() != nullptr ? std::string{} : table_header()));
}

void Console::progress(const RunProgress& progress) {
  if (options_.json && !options_.quiet) return print(progress_json(progress));
  const double share =
      progress.steps > 0 ? static_cast<double>(progress.step) / static_cast<double>(progress.steps) : 0;
  bar_.draw(progress_label(progress, steps_per_epoch_, epochs()), share, progress_tail(progress, samples_per_step_));
}

/// The number of epochs of the run; the last one may be incomplete.
std::uint32_t Console::epochs() const {
  if (settings_.train.steps == 0 || steps_per_epoch_ == 0) return settings_.train.epochs;
  return static_cast<std::uint32_t>((settings_.train.steps + steps_per_epoch_ - 1) / steps_per_epoch_);
}

/// A row of the table; before it the names of the columns again if there are new columns.
std::string Console::rows_of(const EpochReport& report) {
  const std::size_t before = values_.size();
  for (const ReportedValue& reported : report.values)
    if (std::ranges::find(values_, reported.name) == values_.end()) values_.push_back(reported.name);
  return (values_.size() > before ? table_header(values_) : std::string{}) + table_row(report, values_);
}

void Console::steps(const StepsReport& part) {
  if (const LineFormat* format = lines(); format != nullptr && !options_.quiet) print(format->steps(part));
}

/// The lines of an epoch in report.format.
std::string Console::lines_of(const EpochReport& report) {
  if (json()) return epoch_line(report);
  const LineFormat* const format = lines();
  if (format == nullptr) return rows_of(report);
  const std::string printed = format->epoch(report, facts_);
  facts_.samples_before = report.samples;
  facts_.train_s_before = report.train_s;
  return printed;
}

void Console::epoch(const EpochReport& report) {
  if (!options_.quiet) print(lines_of(report) + (json() ? std::string{} : text_lines(report.generated_text)));
  if (report.test_accuracy && (!best_ || *report.test_accuracy > *best_->test_accuracy)) best_ = report;
}

void Console::finish(const RunResult& result) {
  bar_.clear();
  if (!result.status.ok()) return;
  const EpochReport* best = best_ ? &*best_ : nullptr;
  print(json() ? last_json(result, best, settings_.report.dir) : last_line(result, best, settings_.report.dir));
}

std::string failed_json(const std::string& error, int exit_code) {
  return text_of({{"event", "finished"}, {"status", "failed"}, {"error", error}, {"exit_code", exit_code}});
}

}  // namespace troupe::rtrun
