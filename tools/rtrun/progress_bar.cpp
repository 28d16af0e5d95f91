#include "tools/rtrun/progress_bar.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "tools/rtrun/table.hpp"

namespace troupe::rtrun {
namespace {

/// 1:02:03, 2:03, 0:07
std::string duration_text(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::llround(std::clamp(seconds, 0.0, 1e9)));
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

bool draws_bars(int fd) {
  const char* terminal = std::getenv("TERM");
  return ::isatty(fd) == 1 && terminal != nullptr && std::string_view{terminal} != "dumb";
}

std::size_t terminal_columns(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void ProgressBar::draw(const std::string& label, double share, const std::string& tail) {
  if (!active_) return;
  const std::size_t text = label.size() + tail.size() + 4;  // " [" and "] "
  std::string line = label;
  if (columns_ > text + 5) {
    const std::size_t cells = std::min<std::size_t>(40, columns_ - text - 1);
    const auto full = static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(cells));
    line += " [" + std::string(full, '#') + std::string(cells - full, '.') + "] ";
  } else {
    line += ' ';
  }
  line += tail;
  if (line.size() >= columns_) line.resize(columns_ - 1);  // a line that wraps could not be taken away again
  out_ << '\r' << line << "\033[K" << std::flush;
  drawn_ = true;
}

void ProgressBar::clear() {
  if (!drawn_) return;
  out_ << "\r\033[K" << std::flush;
  drawn_ = false;
}

std::string progress_label(const RunProgress& progress, std::uint64_t steps_per_epoch, std::uint32_t epochs) {
  if (steps_per_epoch == 0) return fmt::format("step {}/{}", progress.step, progress.steps);
  const std::uint64_t epoch =
      std::min(progress.step, progress.steps - std::min<std::uint64_t>(progress.steps, 1)) / steps_per_epoch + 1;
  return fmt::format("epoch {}/{} step {}/{}", epoch, std::max<std::uint64_t>(epochs, epoch), progress.step,
                     progress.steps);
}

std::string progress_tail(const RunProgress& progress, std::uint64_t samples_per_step) {
  std::string tail =
      fmt::format("{} samples/s", grouped(static_cast<std::uint64_t>(std::max(0.0, progress.samples_per_s))));
  const std::uint64_t left = progress.steps > progress.step ? progress.steps - progress.step : 0;
  if (progress.samples_per_s > 0 && samples_per_step > 0)
    tail += ", " + duration_text(static_cast<double>(left * samples_per_step) / progress.samples_per_s) + " left";
  return tail;
}

}  // namespace troupe::rtrun
