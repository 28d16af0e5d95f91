#include "tools/rtrun/line_forwarder.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "tools/rtrun/progress_bar.hpp"

namespace troupe::rtrun {
namespace {

constexpr std::size_t kLongestLine = 64 * 1024;  // longer ones are cut into lines

void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // nobody reads stderr any more
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace

LineForwarder::LineForwarder(std::string prefix, Fd source) : prefix_(std::move(prefix)), source_(std::move(source)) {
  if (draws_bars(STDERR_FILENO)) prefix_ = "\r\033[K" + prefix_;  // rank 0's progress bar may stand there
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
  std::string lines;
  std::size_t begin = 0;
  for (std::size_t end; (end = pending_.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines += prefix_ + pending_.substr(begin, end + 1 - begin);
  pending_.erase(0, begin);
  if (!pending_.empty() && (all || pending_.size() > kLongestLine)) {
    lines += prefix_ + pending_ + "\n";
    pending_.clear();
  }
  write_all(lines);
}

}  // namespace troupe::rtrun
