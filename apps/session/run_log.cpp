#include "apps/session/run_log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string_view>

#include "runtime/base/detail/json.hpp"
#include "runtime/base/error.hpp"

namespace troupe {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const EpochReport& report) {
  Json entry;
  entry["main/loss"] = report.loss;
  entry["main/accuracy"] = report.accuracy;
  if (report.test_loss) entry["validation/main/loss"] = *report.test_loss;
  if (report.test_accuracy) entry["validation/main/accuracy"] = *report.test_accuracy;
  entry["epoch"] = report.epoch;
  if (report.part < 1) entry["epoch_detail"] = report.epochs();
  entry["iteration"] = report.steps;
  entry["elapsed_time"] = report.elapsed_s;
  if (report.steps_per_s > 0) entry["steps_per_s"] = report.steps_per_s;
  if (report.rate) entry["lr"] = *report.rate;
  if (report.skipped > 0) entry["skipped"] = report.skipped;
  if (report.loss_scale > 0) entry["loss_scale"] = report.loss_scale;
  if (!report.generated_text.empty()) entry["generated_text"] = report.generated_text;
  for (const ReportedValue& reported : report.values) entry[reported.name] = reported.value;  // null if not finite
  for (const SwitchReport& change : report.switches) {
    entry["switches"].push_back({{"iteration", change.step},
                                 {"samples", change.samples},
                                 {"policy", change.policy},
                                 {"reason", change.reason}});
  }
  for (const RankShare& rank : report.ranks) {
    Json one{{"samples_per_step", rank.rows}, {"samples_per_s", rank.samples_per_s}};
    for (std::size_t part = 0; part < kStepParts; ++part)
      one[fmt::format("{}_ms", name_of(static_cast<StepPart>(part)))] = rank.step_ms[part];
    one["last_in_steps"] = rank.last;
    entry["ranks"].push_back(std::move(one));
  }
  return entry;
}

constexpr int kIndent = 4;
constexpr std::string_view kBeforeLine = "\n    ";
constexpr std::string_view kLineEnd = "\n    }";  // deeper levels are indented more; strings contain no line ends
constexpr std::string_view kEnd = "\n]\n";
constexpr std::size_t kMostWaiting = 1 << 20;
constexpr std::size_t kMostWaitingRows = 4096;

/// A line of the array, with a comma before it.
std::string array_line(const Json& json) {
  std::string entry = json_text(json, kIndent);
  for (std::size_t line = entry.find('\n'); line != entry.npos; line = entry.find('\n', line + 1))
    entry.insert(line + 1, kIndent, ' ');
  return "," + std::string{kBeforeLine} + entry;
}

/// The size without the incomplete line at which a writer was killed; nothing: the log is complete, or is not a log.
std::optional<std::size_t> size_of_whole_lines(const std::string& log) {
  if (log.ends_with(kEnd) || !log.starts_with('[')) return {};
  const std::size_t last = log.rfind(kLineEnd);
  if (last == log.npos) return {};
  return last + kLineEnd.size();
}

/// The complete lines of a log; none if it is not a log.
Json lines_of(std::string log) {
  if (const auto whole = size_of_whole_lines(log)) log = log.substr(0, *whole) + std::string{kEnd};
  Json lines = Json::parse(log, nullptr, /*allow_exceptions=*/false);
  return lines.is_array() ? lines : Json::array();
}

/// A column that every table has.
struct Column {
  std::string_view name;
  std::string (*cell)(const EpochReport&);
};
std::string number(double value) { return fmt::format("{}", value); }
std::string number(const std::optional<double>& value) { return value ? number(*value) : std::string{}; }
std::string number_above_zero(double value) { return value > 0 ? number(value) : std::string{}; }

constexpr std::array kColumns{
    Column{"epoch", [](const EpochReport& r) { return std::to_string(r.epoch); }},
    Column{"epoch_detail", [](const EpochReport& r) { return number(r.epochs()); }},
    Column{"iteration", [](const EpochReport& r) { return std::to_string(r.steps); }},
    Column{"elapsed_time", [](const EpochReport& r) { return number(r.elapsed_s); }},
    Column{"steps_per_s", [](const EpochReport& r) { return number_above_zero(r.steps_per_s); }},
    Column{"main/loss", [](const EpochReport& r) { return number(r.loss); }},
    Column{"main/accuracy", [](const EpochReport& r) { return number(r.accuracy); }},
    Column{"validation/main/loss", [](const EpochReport& r) { return number(r.test_loss); }},
    Column{"validation/main/accuracy", [](const EpochReport& r) { return number(r.test_accuracy); }},
    Column{"lr", [](const EpochReport& r) { return number(r.rate); }},
    Column{"skipped", [](const EpochReport& r) { return std::to_string(r.skipped); }},
};
/// The column of f16 jobs alone.
constexpr std::string_view kLossScale = "loss_scale";
constexpr std::size_t kIteration = 2;
static_assert(kColumns[kIteration].name == "iteration");

std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells(1);
  for (const char c : row) {  // no cell contains a comma or a quote
    if (c == ',')
      cells.emplace_back();
    else
      cells.back() += c;
  }
  return cells;
}

std::string row_of(const std::vector<std::string>& cells) { return fmt::format("{}", fmt::join(cells, ",")); }

/// A row, extended by empty cells for columns that were added after it.
std::string padded(const std::string& row, std::size_t columns) {
  const auto there = static_cast<std::size_t>(std::ranges::count(row, ',')) + 1;
  return row + std::string(columns > there ? columns - there : 0, ',');
}

/// The complete lines, without their line ends.
std::vector<std::string> whole_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
    lines.push_back(text.substr(begin, end - begin));
  return lines;
}

std::vector<std::string> first_columns() {
  std::vector<std::string> names;
  for (const Column& column : kColumns) names.emplace_back(column.name);
  return names;
}

/// Cuts a file after `size` bytes and appends `end`.
void cut(const std::string& path, std::size_t size, std::string_view end) {
  const Fd file{::open(path.c_str(), O_WRONLY | O_CLOEXEC)};
  if (!file || (!end.empty() && ::pwrite(file.get(), end.data(), end.size(), static_cast<off_t>(size)) < 0)) return;
  [[maybe_unused]] const int done = ::ftruncate(file.get(), static_cast<off_t>(size + end.size()));
}

}  // namespace

std::string epoch_json(const EpochReport& report) { return json_text(to_json(report)); }

bool is_log_key(const std::string& name) {
  if (name == "switches" || name == "ranks" || name == "event" || name == "generated_text" || name == kLossScale)
    return true;
  return std::ranges::any_of(kColumns, [&](const Column& column) { return column.name == name; });
}

std::vector<LoggedEvaluation> evaluations_in(const std::string& path, std::uint64_t steps) {
  std::vector<LoggedEvaluation> found;
  for (const Json& line : lines_of(bytes_of(path))) {
    if (!line.is_object() || !line.contains("validation/main/loss")) continue;
    const auto iteration = line.find("iteration"), epoch = line.find("epoch");
    if (iteration == line.end() || epoch == line.end() || !iteration->is_number_unsigned() ||
        !epoch->is_number_unsigned())
      continue;
    const Json& loss = line["validation/main/loss"];
    const LoggedEvaluation one{.steps = iteration->get<std::uint64_t>(),
                               .epoch = epoch->get<std::uint32_t>(),
                               .loss = loss.is_number() ? loss.get<double>() : std::nan("")};
    while (!found.empty() && found.back().steps >= one.steps) found.pop_back();
    if (one.steps <= steps) found.push_back(one);
  }
  return found;
}

LogFile::LogFile(std::string path) : file_(std::move(path), kEnd) {}

void LogFile::go_on_after(std::uint64_t steps) {
  kept_.clear();
  for (const Json& line : lines_of(bytes_of(file_.path()))) {
    const auto iteration = line.is_object() ? line.find("iteration") : line.end();
    if (iteration == line.end() || !iteration->is_number_unsigned()) continue;
    if (iteration->get<std::uint64_t>() <= steps) kept_ += array_line(line);
  }
}

void LogFile::add(const EpochReport& report) {
  waiting_ += array_line(to_json(report));
  while (waiting_.size() > kMostWaiting) {
    const std::size_t second = waiting_.find("," + std::string{kBeforeLine} + "{", 1);
    if (second == waiting_.npos) break;
    waiting_.erase(0, second);
  }
  if (file_.is_there()) {
    file_.append(waiting_);
  } else {
    file_.begin("[" + (kept_ + waiting_).substr(1));
    kept_.clear();
  }
  waiting_.clear();
}

CsvLog::CsvLog(std::string path) : file_(std::move(path), {}), columns_(first_columns()) {}

void CsvLog::go_on_after(std::uint64_t steps) {
  const std::vector<std::string> rows = whole_lines(bytes_of(file_.path()));
  const std::vector<std::string> fixed = first_columns();
  std::vector<std::string> names = rows.empty() ? std::vector<std::string>{} : cells_of(rows.front());
  if (names.size() < fixed.size() || !std::equal(fixed.begin(), fixed.end(), names.begin())) return;
  columns_ = std::move(names);
  kept_.clear();
  for (std::size_t r = 1; r < rows.size(); ++r) {
    const std::vector<std::string> cells = cells_of(rows[r]);
    std::uint64_t iteration = 0;
    if (cells.size() != columns_.size()) continue;
    const std::string& told = cells[kIteration];
    if (std::from_chars(told.data(), told.data() + told.size(), iteration).ec != std::errc{}) continue;
    if (iteration <= steps) kept_.push_back(rows[r]);
  }
}

/// The rows with as many cells as the table has columns.
std::string CsvLog::lines(const std::vector<std::string>& rows) const {
  std::string all;
  for (const std::string& row : rows) all += padded(row, columns_.size()) + '\n';
  return all;
}

void CsvLog::add(const EpochReport& report) {
  std::vector<std::string> cells;
  for (const Column& column : kColumns) cells.push_back(column.cell(report));
  const auto put = [&](std::string_view name, double value) {
    const auto at = static_cast<std::size_t>(std::ranges::find(columns_, name) - columns_.begin());
    if (at == columns_.size()) {
      columns_.emplace_back(name);
      wider_ = true;
    }
    cells.resize(std::max(cells.size(), at + 1));
    cells[at] = number(value);
  };
  if (report.loss_scale > 0) put(kLossScale, report.loss_scale);
  for (const ReportedValue& reported : report.values) put(reported.name, reported.value);
  if (waiting_.size() == kMostWaitingRows) waiting_.erase(waiting_.begin());
  waiting_.push_back(row_of(cells));
  if (file_.is_there() && !wider_) {
    file_.append(lines(waiting_));
  } else {
    std::vector<std::string> before = kept_;
    if (file_.is_there()) {
      before = whole_lines(bytes_of(file_.path()));
      if (!before.empty()) before.erase(before.begin());  // the line of names
    }
    file_.begin(row_of(columns_) + '\n' + lines(before) + lines(waiting_));
    kept_.clear();
    wider_ = false;
  }
  waiting_.clear();
}

void mend_log(const std::string& path) noexcept {
  try {
    if (const auto whole = size_of_whole_lines(bytes_of(path))) cut(path, *whole, kEnd);
    const std::string table = bytes_of(path + ".csv");
    if (!table.empty() && !table.ends_with('\n')) cut(path + ".csv", table.rfind('\n') + 1, {});
  } catch (const std::exception&) {
    // The file could not be repaired. This is not reported: repairing follows a failure that is reported anyway.
  }
}

FolderLock lock_report(Blocking& blocking, const std::string& dir, const std::string& holder,
                       const std::function<void(const std::string&)>& note) {
  FolderLock lock = FolderLock::take(blocking, dir, "report.lock", holder, "set report.dir to a folder of its own",
                                     Deadline::after(kLockPatience));
  if (!lock.held()) note(text(dir, ": this file system has no locks; make sure that no other job writes there"));
  return lock;
}

}  // namespace troupe
