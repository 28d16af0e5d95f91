#include "tools/rtrun/log_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "runtime/error.hpp"
#include "runtime/new_file.hpp"

namespace troupe::rtrun {
namespace {

nlohmann::ordered_json to_json(const EpochReport& report) {
  nlohmann::ordered_json entry;
  entry["main/loss"] = report.loss;
  entry["main/accuracy"] = report.accuracy;
  if (report.test_loss) entry["validation/main/loss"] = *report.test_loss;
  if (report.test_accuracy) entry["validation/main/accuracy"] = *report.test_accuracy;
  entry["epoch"] = report.epoch;
  if (report.part < 1) entry["epoch_detail"] = report.epochs();
  entry["iteration"] = report.steps;
  entry["elapsed_time"] = report.elapsed_s;
  if (report.rate > 0) entry["lr"] = report.rate;
  if (report.skipped > 0) entry["skipped"] = report.skipped;
  for (const SwitchReport& change : report.switches) {
    entry["switches"].push_back({{"iteration", change.step},
                                 {"samples", change.samples},
                                 {"policy", change.policy},
                                 {"reason", change.reason}});
  }
  for (const RankShare& rank : report.ranks) {
    nlohmann::ordered_json one{{"samples_per_step", rank.rows}, {"samples_per_s", rank.samples_per_s}};
    for (std::size_t part = 0; part < kStepParts; ++part)
      one[fmt::format("{}_ms", name_of(static_cast<StepPart>(part)))] = rank.step_ms[part];
    one["last_in_steps"] = rank.last;
    entry["ranks"].push_back(std::move(one));
  }
  return entry;
}

constexpr int kIndent = 4;
constexpr std::string_view kBeforeLine = "\n    ";
constexpr std::string_view kLineEnd = "\n    }";  // deeper levels are indented more, and strings have no line ends
constexpr std::string_view kEnd = "\n]\n";
constexpr std::size_t kMostWaiting = 1 << 20;

}  // namespace

std::string epoch_json(const EpochReport& report) { return to_json(report).dump(); }

void LogFile::add(const EpochReport& report) {
  std::string entry = to_json(report).dump(kIndent);
  for (std::size_t line = entry.find('\n'); line != entry.npos; line = entry.find('\n', line + 1))
    entry.insert(line + 1, kIndent, ' ');
  waiting_ += "," + std::string{kBeforeLine} + entry;
  while (waiting_.size() > kMostWaiting) {
    const std::size_t second = waiting_.find("," + std::string{kBeforeLine} + "{", 1);
    if (second == waiting_.npos) break;
    waiting_.erase(0, second);
  }
  file_ ? append() : begin();
  waiting_.clear();
}

void LogFile::begin() {
  const std::string bytes = "[" + waiting_.substr(1) + std::string{kEnd};
  NewFile file{path_};
  file.write(std::as_bytes(std::span{bytes}));
  file.publish();
  file_ = Fd{::open(path_.c_str(), O_WRONLY | O_CLOEXEC)};
  TROUPE_CHECK_ERRNO(file_, Code::environment, "cannot open ", path_, " that was written just now");
  size_bytes_ = bytes.size();
}

void LogFile::append() {
  struct stat now {};
  TROUPE_CHECK_ERRNO(::fstat(file_.get(), &now) == 0, Code::environment, "cannot look at ", path_);
  if (now.st_nlink == 0) return begin();  // somebody removed it
  TROUPE_CHECK(static_cast<std::uint64_t>(now.st_size) == size_bytes_, Code::environment, path_,
               " was changed by somebody else");
  const std::string bytes = waiting_ + std::string{kEnd};
  const auto at = static_cast<off_t>(size_bytes_ - kEnd.size());
  const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), at);
  if (written == static_cast<ssize_t>(bytes.size())) {
    size_bytes_ += waiting_.size();
    return;
  }
  const int reason = written < 0 ? errno : ENOSPC;
  // Back to what it was: the room for that is there.
  [[maybe_unused]] const auto ended = ::pwrite(file_.get(), kEnd.data(), kEnd.size(), at);
  [[maybe_unused]] const int cut = ::ftruncate(file_.get(), static_cast<off_t>(size_bytes_));
  errno = reason;
  fail_errno(Code::environment, text("cannot write ", path_));
}

void mend_log(const std::string& path) noexcept {
  try {
    std::ifstream in{path, std::ios::binary};
    const std::string all{std::istreambuf_iterator<char>{in}, {}};
    if (all.ends_with(kEnd) || !all.starts_with('[')) return;
    const std::size_t last = all.rfind(kLineEnd);
    if (last == all.npos) return;
    const std::size_t size = last + kLineEnd.size();
    const Fd file{::open(path.c_str(), O_WRONLY | O_CLOEXEC)};
    if (!file || ::pwrite(file.get(), kEnd.data(), kEnd.size(), static_cast<off_t>(size)) < 0) return;
    [[maybe_unused]] const int cut = ::ftruncate(file.get(), static_cast<off_t>(size + kEnd.size()));
  } catch (const std::exception&) {
    // It was mended beside a failure that is told anyway.
  }
}

}  // namespace troupe::rtrun
