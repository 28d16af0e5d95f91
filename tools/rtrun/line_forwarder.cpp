#include "tools/rtrun/line_forwarder.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "runtime/base/new_file.hpp"
#include "runtime/base/printable.hpp"
#include "tools/terminal/terminal.hpp"

namespace troupe::rtrun {
namespace {

constexpr std::size_t kLongestLine = 64 * 1024;  // longer ones are divided

constexpr std::size_t kLongestShown = 500;  // characters of a last line

constexpr std::string_view kError = "error: ";

/// False: some bytes could not be written.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace

bool RankLog::keep(std::string_view line) {
  const std::string_view content = line.substr(0, std::min(kLongestShown, line.find_last_not_of("\r\n") + 1));
  if (!content.empty()) last_line_ = content;
  if (first_error_.empty() && is_own(line) && line.substr(own_.size()).starts_with(kError)) {
    first_error_ = line.substr(own_.size() + kError.size());
    while (first_error_.ends_with('\n')) first_error_.pop_back();
  }
  if (path_.empty() || failed_) return false;
  if (!file_ && !is_special_file(path_))
    file_ = Fd{::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
  failed_ = !file_ || !write_all(file_.get(), line);
  return !failed_;
}

LineForwarder::LineForwarder(std::string prefix, Fd source, RankLog& log)
    : prefix_(std::move(prefix)), source_(std::move(source)), log_(&log) {
  if (terminal::draws_bars(STDERR_FILENO)) prefix_ = terminal::kClearLine + prefix_;
}

void LineForwarder::forward() {
  std::array<char, 16 * 1024> buffer;
  while (source_) {
    const ssize_t n = ::read(source_.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) {
      source_.reset();
      break;
    }
    pending_.append(buffer.data(), static_cast<std::size_t>(n));
    write_lines(false);
  }
}

void LineForwarder::flush() { write_lines(true); }

void LineForwarder::write_lines(bool all) {
  std::string shown;
  const auto take = [&](const std::string& line) {
    if (!log_->keep(line) || log_->is_own(line)) shown += prefix_ + printable(line);
  };
  std::size_t begin = 0;
  for (std::size_t end; (end = pending_.find('\n', begin)) != std::string::npos; begin = end + 1)
    take(pending_.substr(begin, end + 1 - begin));
  pending_.erase(0, begin);
  if (!pending_.empty() && (all || pending_.size() > kLongestLine)) {
    take(pending_ + "\n");
    pending_.clear();
  }
  write_all(STDERR_FILENO, shown);  // errors are ignored: stderr may be closed
}

}  // namespace troupe::rtrun
